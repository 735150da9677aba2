/* log.c - see log.h. */
#include "train/log.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "io/curve.h"
#include "io/events.h"
#include "base/json.h"

typedef struct points {
    double *x, *y;
    size_t count, capacity;
} points;

struct by_log {
    char *out;
    FILE *metrics;
    by_events *events;
    points loss, eval;
};

static by_status push(points *p, double x, double y)
{
    if (p->count == p->capacity) {
        size_t grown = p->capacity ? p->capacity * 2 : 256;
        double *more = by_resize(p->x, grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        p->x = more;
        more = by_resize(p->y, grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        p->y = more;
        p->capacity = grown;
    }
    p->x[p->count] = x;
    p->y[p->count++] = y;
    return BY_OK;
}

/* Take one old line over when it is whole and not after `step`. A torn last line, left by a crash, is
 * dropped. */
static by_status replay(by_log *l, const char *line, size_t size, int64_t step, by_buf *kept)
{
    by_error_clear();
    cJSON *json = by_json_parse(line, size, "metrics.jsonl");
    int64_t at = -1;
    double loss = NAN, eval = NAN;
    by_status s = BY_OK;
    if (json && by_json_int(json, "step", -1, 0, INT64_C(1) << 50, &at) == BY_OK && at >= 0 && at <= step) {
        by_json_double(json, "loss", NAN, -INFINITY, INFINITY, &loss);
        by_json_double(json, "eval_loss", NAN, -INFINITY, INFINITY, &eval);
        by_buf_put(kept, line, size);
        by_buf_puts(kept, "\n");
        if (isfinite(loss))
            s = push(&l->loss, (double)at, loss);
        if (s == BY_OK && isfinite(eval))
            s = push(&l->eval, (double)at, eval);
    }
    cJSON_Delete(json);
    if (by_error_status() == BY_ERR_MEMORY)
        return BY_ERR_MEMORY; /* a line that could not be read for want of memory is no torn one */
    by_error_clear();
    return s;
}

static by_status cut_metrics(by_log *l, const char *path, int64_t step)
{
    if (!by_file_exists(path))
        return BY_OK;
    size_t size;
    char *text = by_file_read(path, (size_t)1 << 32, &size);
    if (!text)
        return by_error_status();
    by_buf kept = {0};
    by_status s = BY_OK;
    for (char *at = text, *end; s == BY_OK && (end = memchr(at, '\n', size - (size_t)(at - text)));
         at = end + 1)
        s = replay(l, at, (size_t)(end - at), step, &kept);
    if (s == BY_OK)
        s = kept.failed ? BY_ERR_MEMORY : by_file_write(path, kept.data ? kept.data : "", kept.size);
    by_free(text);
    by_buf_free(&kept);
    return s;
}

by_status by_log_remove(const char *out)
{
    DIR *d = opendir(out);
    by_status s = BY_OK;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, "metrics.jsonl") != 0 && strcmp(e->d_name, "loss.svg") != 0 &&
            strncmp(e->d_name, "events.out.tfevents.", 20) != 0)
            continue;
        char *path = by_path_join(out, e->d_name);
        if (!path || (unlink(path) != 0 && errno != ENOENT))
            s = path ? by_fail(BY_ERR_IO, "cannot remove %s: %s", path, strerror(errno)) : BY_ERR_MEMORY;
        by_free(path);
    }
    if (d)
        closedir(d);
    return s;
}

by_log *by_log_open(const char *out, int64_t step)
{
    by_log *l = by_alloc_zero(1, sizeof *l);
    char *path = by_path_join(out, "metrics.jsonl");
    bool ok = l && path && (l->out = by_strdup(out)) && cut_metrics(l, path, step) == BY_OK;
    if (ok) {
        l->metrics = fopen(path, "a");
        if (!l->metrics)
            by_fail(BY_ERR_IO, "%s: %s", path, strerror(errno));
        ok = l->metrics && (l->events = by_events_open(out));
    }
    by_free(path);
    if (!ok) {
        by_log_close(l);
        return NULL;
    }
    return l;
}

void by_log_close(by_log *l)
{
    if (!l)
        return;
    if (l->metrics)
        fclose(l->metrics);
    by_events_close(l->events);
    by_free(l->loss.x);
    by_free(l->loss.y);
    by_free(l->eval.x);
    by_free(l->eval.y);
    by_free(l->out);
    by_free(l);
}

/* One key of a line; a value that is not a number is left out. */
static by_status put(by_log *l, by_buf *line, int64_t step, const char *key, const char *tag, double value)
{
    if (!isfinite(value))
        return BY_OK;
    by_buf_printf(line, ", \"%s\": %.9g", key, value);
    return by_events_scalar(l->events, step, tag, value);
}

by_status by_log_write(by_log *l, const by_report *r)
{
    by_buf line = {0};
    by_buf_printf(&line, "{\"step\": %lld", (long long)r->step);
    by_status s = put(l, &line, r->step, "loss", "train/loss", r->loss);
    if (s == BY_OK)
        s = put(l, &line, r->step, "learning_rate", "train/learning_rate", r->learning_rate);
    if (s == BY_OK)
        s = put(l, &line, r->step, "grad_norm", "train/grad_norm", r->grad_norm);
    if (s == BY_OK)
        s = put(l, &line, r->step, "ms", "speed/ms", r->ms);
    if (s == BY_OK)
        s = put(l, &line, r->step, "tokens_per_s", "speed/tokens_per_s", r->tokens_per_s);
    if (s == BY_OK)
        s = put(l, &line, r->step, "eval_loss", "eval/loss", r->eval_loss);
    if (s == BY_OK)
        s = put(l, &line, r->step, "eval_next_accuracy", "eval/next_accuracy", r->next_accuracy);
    for (int i = 0; i < r->n_metrics && s == BY_OK; i++) {
        char key[64], tag[64];
        snprintf(key, sizeof key, "eval_%s", r->metrics[i].name);
        snprintf(tag, sizeof tag, "eval/%s", r->metrics[i].name);
        s = put(l, &line, r->step, key, tag, r->metrics[i].value);
    }
    by_buf_puts(&line, "}\n");
    if (s == BY_OK && line.failed)
        s = by_fail(BY_ERR_MEMORY, "out of memory while logging");
    if (s == BY_OK && (fwrite(line.data, 1, line.size, l->metrics) != line.size || fflush(l->metrics) != 0))
        s = by_fail(BY_ERR_IO, "%s/metrics.jsonl: %s", l->out, strerror(errno));
    by_buf_free(&line);
    if (s == BY_OK && isfinite(r->loss))
        s = push(&l->loss, (double)r->step, r->loss);
    if (s == BY_OK && isfinite(r->eval_loss)) {
        s = push(&l->eval, (double)r->step, r->eval_loss);
        if (s == BY_OK)
            s = by_events_flush(l->events);
    }
    return s;
}

by_status by_log_draw(by_log *l, const char *title)
{
    by_curve_series series[2] = {{.name = "training loss",
                                  .x = l->loss.x,
                                  .y = l->loss.y,
                                  .count = l->loss.count,
                                  .smoothing = BY_CURVE_AUTO},
                                 {.name = "held-out loss",
                                  .x = l->eval.x,
                                  .y = l->eval.y,
                                  .count = l->eval.count,
                                  .style = BY_CURVE_POINTS}};
    by_curve curve = {.title = title,
                      .x_label = "step",
                      .y_label = "loss (nats per token)",
                      .series = series,
                      .count = l->eval.count ? 2 : 1};
    char *path = by_path_join(l->out, "loss.svg");
    by_status s = path ? by_curve_svg(path, &curve) : BY_ERR_MEMORY;
    by_free(path);
    return s;
}
