/* log.c - see log.h. */
#include "train/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "io/events.h"
#include "train/history.h"

struct by_log {
    by_folder *folder; /* borrowed */
    FILE *metrics;     /* NULL: given up */
    by_events *events; /* NULL: given up */
    bool no_curve;     /* given up */
    by_history history;
};

/* A file that could not be written is no reason to end a run. */
static void give_up(by_log *l, const char *what)
{
    by_folder_warn(l->folder, "%s; training goes on without %s", by_error_message(), what);
    by_error_clear();
}

/* Take one old line over when it is whole and not after `step`. A torn last line, left by a crash, is
 * dropped. */
static by_status replay(by_log *l, const char *line, size_t size, int64_t step, by_buf *kept)
{
    by_error_clear();
    cJSON *json = by_json_parse(line, size, "metrics.jsonl");
    int64_t at = -1;
    by_status s = BY_OK;
    if (json && by_json_int(json, "step", -1, 0, INT64_C(1) << 50, &at) == BY_OK && at >= 0 && at <= step) {
        by_buf_put(kept, line, size);
        by_buf_puts(kept, "\n");
        s = by_history_add_line(&l->history, json);
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

static by_status open_metrics(by_log *l, int64_t step)
{
    char *path = by_path_join(l->folder->out, "metrics.jsonl");
    by_status s = path ? cut_metrics(l, path, step) : BY_ERR_MEMORY;
    if (s == BY_OK && !(l->metrics = fopen(path, "a")))
        s = by_fail(BY_ERR_IO, "%s: %s", path, strerror(errno));
    by_free(path);
    return s;
}

static by_status open_events(by_log *l)
{
    l->events = by_events_open(l->folder->out);
    if (!l->events)
        return by_error_status();
    const char *name = strrchr(by_events_path(l->events), '/');
    return by_folder_add(l->folder, name ? name + 1 : by_events_path(l->events));
}

static void close_metrics(by_log *l)
{
    if (l->metrics)
        fclose(l->metrics);
    l->metrics = NULL;
}

static void close_events(by_log *l)
{
    by_events_close(l->events);
    l->events = NULL;
}

by_log *by_log_open(by_folder *f, int64_t step)
{
    by_log *l = by_alloc_zero(1, sizeof *l);
    if (!l)
        return NULL;
    l->folder = f;
    if (open_metrics(l, step) != BY_OK) {
        give_up(l, "metrics.jsonl");
        close_metrics(l);
    }
    if (open_events(l) != BY_OK) {
        give_up(l, "TensorBoard events");
        close_events(l);
    }
    return l;
}

void by_log_close(by_log *l)
{
    if (!l)
        return;
    close_metrics(l);
    close_events(l);
    by_history_free(&l->history);
    by_free(l);
}

typedef struct scalar {
    char key[64], tag[64];
    double value;
} scalar;

/* The values of a report that are numbers; returns how many. */
static int scalars_of(const by_report *r, scalar *out)
{
    const scalar all[] = {{"loss", "train/loss", r->loss},
                          {"learning_rate", "train/learning_rate", r->learning_rate},
                          {"grad_norm", "train/grad_norm", r->grad_norm},
                          {"ms", "speed/ms", r->ms},
                          {"tokens_per_s", "speed/tokens_per_s", r->tokens_per_s},
                          {"eval_loss", "eval/loss", r->eval_loss},
                          {"eval_next_accuracy", "eval/next_accuracy", r->next_accuracy}};
    int n = 0;
    for (int i = 0; i < BY_COUNT(all); i++)
        if (isfinite(all[i].value))
            out[n++] = all[i];
    for (int i = 0; i < BY_MIN(r->n_metrics, BY_METRICS_MAX); i++) {
        if (!isfinite(r->metrics[i].value))
            continue;
        by_format(out[n].key, sizeof out[n].key, "eval_%s", r->metrics[i].name);
        by_format(out[n].tag, sizeof out[n].tag, "eval/%s", r->metrics[i].name);
        out[n++].value = r->metrics[i].value;
    }
    return n;
}
enum { MAX_SCALARS = 7 + BY_METRICS_MAX };

static by_status write_metrics(by_log *l, int64_t step, const scalar *list, int n)
{
    by_buf line = {0};
    by_buf_printf(&line, "{\"step\": %lld", (long long)step);
    for (int i = 0; i < n; i++)
        by_buf_printf(&line, ", \"%s\": %.9g", list[i].key, list[i].value);
    by_buf_puts(&line, "}\n");
    by_status s = line.failed ? by_fail(BY_ERR_MEMORY, "out of memory while logging") : BY_OK;
    if (s == BY_OK && (fwrite(line.data, 1, line.size, l->metrics) != line.size || fflush(l->metrics) != 0))
        s = by_fail(BY_ERR_IO, "%s/metrics.jsonl: %s", l->folder->out, strerror(errno));
    by_buf_free(&line);
    return s;
}

static by_status write_events(by_log *l, const by_report *r, const scalar *list, int n)
{
    for (int i = 0; i < n; i++)
        BY_TRY(by_events_scalar(l->events, r->step, list[i].tag, list[i].value));
    return isfinite(r->eval_loss) ? by_events_flush(l->events) : BY_OK;
}

void by_log_write(by_log *l, const by_report *r)
{
    scalar list[MAX_SCALARS];
    const int n = scalars_of(r, list);
    if (l->metrics && write_metrics(l, r->step, list, n) != BY_OK) {
        give_up(l, "metrics.jsonl");
        close_metrics(l);
    }
    if (l->events && write_events(l, r, list, n) != BY_OK) {
        give_up(l, "TensorBoard events");
        close_events(l);
    }
    by_status s = BY_OK;
    for (int i = 0; i < n && s == BY_OK; i++)
        s = by_history_add(&l->history, r->step, list[i].key, list[i].value);
    if (s != BY_OK && !l->no_curve) {
        give_up(l, "loss.svg");
        l->no_curve = true;
    }
}

void by_log_draw(by_log *l, const by_model *m, const char *task, const char *loss_unit)
{
    if (l->no_curve)
        return;
    char *title = by_sprintf("%s, %.3g M parameters: %s", by_model_title(m),
                             (double)by_params_elements(by_model_params(m)) / 1e6, task);
    char *path = by_path_join(l->folder->out, "loss.svg");
    by_curve curve = by_history_curve(&l->history, title, loss_unit);
    if (!title || !path || by_curve_svg(path, &curve) != BY_OK) {
        give_up(l, "loss.svg");
        l->no_curve = true;
    }
    by_free(title);
    by_free(path);
}
