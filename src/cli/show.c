/* show.c - see show.h. */
#include "cli/show.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/report.h"
#include "io/curve.h"
#include "base/json.h"

void cli_trace_line(void *user, const by_trace_entry *e)
{
    (void)user;
    char bad[64] = "";
    if (e->index == 0)
        fprintf(stderr, "%5s %-18s %-44s %-26s %12s %9s %8s %8s\n", "node", "op", "name", "shape", "norm",
                "ms", "GFLOP/s", "GB/s");
    if (e->first_bad >= 0)
        snprintf(bad, sizeof bad, "  not finite from element %lld on", (long long)e->first_bad);
    fprintf(stderr, "%5d %-18s %-44s %-26s %12.5g %9.3f %8.1f %8.1f%s\n", e->index, e->op, e->name, e->shape,
            e->norm, e->seconds * 1e3, e->flops / e->seconds * 1e-9, e->bytes / e->seconds * 1e-9, bad);
}

void cli_json_number(cJSON *object, const char *key, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static void quote(by_buf *b, const char *word)
{
    bool plain = *word != '\0';
    for (const char *c = word; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("-_./:=,@%+", *c));
    if (plain) {
        by_buf_puts(b, word);
        return;
    }
    by_buf_puts(b, "'");
    for (const char *c = word; *c; c++)
        by_buf_puts(b, *c == '\'' ? "'\\''" : (char[]){*c, '\0'});
    by_buf_puts(b, "'");
}

char *cli_command_line(int argc, char **argv)
{
    by_buf b = {0};
    by_buf_puts(&b, "banyan");
    for (int i = 0; i < argc; i++) {
        by_buf_puts(&b, " ");
        quote(&b, argv[i]);
    }
    return b.data;
}

/* ---- the curve ------------------------------------------------------------------------------- */

typedef struct series {
    double *x, *y;
    size_t count, capacity;
} series;

static void push(series *s, double x, double y)
{
    if (!isfinite(y))
        return;
    if (s->count == s->capacity) {
        size_t grown = s->capacity ? s->capacity * 2 : 256;
        double *xs = by_resize(s->x, grown, sizeof *xs);
        if (xs)
            s->x = xs;
        double *ys = xs ? by_resize(s->y, grown, sizeof *ys) : NULL;
        if (!ys)
            return;
        s->y = ys;
        s->capacity = grown;
    }
    s->x[s->count] = x;
    s->y[s->count++] = y;
}

static bool read_metrics(const char *folder, series *loss, series *eval)
{
    char *path = by_path_join(folder, "metrics.jsonl");
    FILE *f = path ? fopen(path, "r") : NULL;
    by_free(path);
    if (!f)
        return false;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while ((n = getline(&line, &room, f)) > 0) {
        cJSON *j = by_json_parse(line, (size_t)n, "metrics.jsonl");
        double step = NAN, l = NAN, e = NAN;
        if (j) {
            by_json_double(j, "step", NAN, -INFINITY, INFINITY, &step);
            by_json_double(j, "loss", NAN, -INFINITY, INFINITY, &l);
            by_json_double(j, "eval_loss", NAN, -INFINITY, INFINITY, &e);
        }
        cJSON_Delete(j);
        push(loss, step, l);
        push(eval, step, e);
    }
    free(line);
    fclose(f);
    return loss->count > 1;
}

void cli_show_curve(const char *folder, bool always)
{
    series loss = {0}, eval = {0};
    if ((always || cli_is_terminal(STDERR_FILENO)) && read_metrics(folder, &loss, &eval)) {
        by_curve_series both[2] = {{.name = "training loss",
                                    .x = loss.x,
                                    .y = loss.y,
                                    .count = loss.count,
                                    .smoothing = BY_CURVE_AUTO},
                                   {.name = "held-out loss",
                                    .x = eval.x,
                                    .y = eval.y,
                                    .count = eval.count,
                                    .style = BY_CURVE_POINTS}};
        by_curve c = {.x_label = "step", .y_label = "loss", .series = both, .count = eval.count ? 2 : 1};
        int width = always ? 76 : BY_MIN(cli_width(STDERR_FILENO), 100);
        char *text = by_curve_text(&c, BY_MAX(width, 24), 14, true);
        if (text)
            fputs(text, stderr);
        by_free(text);
    }
    by_free(loss.x);
    by_free(loss.y);
    by_free(eval.x);
    by_free(eval.y);
}
