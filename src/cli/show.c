/* show.c - see show.h. */
#include "cli/show.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/report.h"
#include "report/history.h"
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

static void quote(base_buf *b, const char *word)
{
    bool plain = *word != '\0';
    for (const char *c = word; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("-_./:=,@%+", *c));
    if (plain) {
        base_buf_puts(b, word);
        return;
    }
    base_buf_puts(b, "'");
    for (const char *c = word; *c; c++)
        base_buf_puts(b, *c == '\'' ? "'\\''" : (char[]){*c, '\0'});
    base_buf_puts(b, "'");
}

char *cli_command_line(int argc, char **argv)
{
    base_buf b = {0};
    base_buf_puts(&b, "banyan");
    for (int i = 0; i < argc; i++) {
        base_buf_puts(&b, " ");
        quote(&b, argv[i]);
    }
    return b.data;
}

void cli_note_finished(const char *run_folder, int64_t steps)
{
    cli_note("nothing left to do: the run in %s already has its %lld steps; --max-steps N above that "
             "continues it, --overwrite starts it again",
             run_folder, (long long)steps);
}

/* ---- the curve ------------------------------------------------------------------------------- */

void cli_show_curve(const char *folder, const char *loss_unit, bool always)
{
    report_history h = {0};
    if ((always || cli_is_terminal(STDERR_FILENO)) && report_history_read(&h, folder) == BY_OK &&
        h.loss.count > 1) {
        const report_curve c = report_history_curve(&h, NULL, loss_unit);
        char *text = report_curve_text(&c, always ? 76 : BY_MIN(cli_width(STDERR_FILENO), 100));
        if (text)
            fputs(text, stderr);
        base_free(text);
    }
    report_history_free(&h);
}
