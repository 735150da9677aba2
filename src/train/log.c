/* log.c - see log.h. */
#include "train/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "report/events.h"
#include "report/history.h"

struct train_log {
    train_folder *folder;  /* borrowed */
    FILE *metrics;         /* NULL: given up */
    report_events *events; /* NULL: given up */
    bool no_curve;         /* given up */
    report_history history;
};

/* A file that cannot be written does not end a run. */
static void give_up(train_log *l, const char *what)
{
    train_folder_warn(l->folder, "%s; training continues without %s", by_error_message(), what);
    base_error_clear();
}

/* Keeps an old line if it is complete and not after `step`. A partial last line, left by a crash, is
 * dropped. */
static by_status replay(train_log *l, const char *line, size_t size, int64_t step, base_buf *kept)
{
    base_error_clear();
    cJSON *json = base_json_parse(line, size, "metrics.jsonl");
    int64_t at = -1;
    by_status s = BY_OK;
    if (json && base_json_int(json, "step", -1, 0, INT64_C(1) << 50, &at) == BY_OK && at >= 0 && at <= step) {
        base_buf_put(kept, line, size);
        base_buf_puts(kept, "\n");
        s = report_history_add_line(&l->history, json);
    }
    cJSON_Delete(json);
    if (base_error_status() == BY_ERR_MEMORY)
        return BY_ERR_MEMORY; /* out of memory: not a partial line */
    base_error_clear();
    return s;
}

static by_status cut_metrics(train_log *l, const char *path, int64_t step)
{
    if (!base_file_exists(path))
        return BY_OK;
    size_t size;
    char *text = base_file_read(path, (size_t)1 << 32, &size);
    if (!text)
        return base_error_status();
    base_buf kept = {0};
    by_status s = BY_OK;
    for (char *at = text, *end; s == BY_OK && (end = memchr(at, '\n', size - (size_t)(at - text)));
         at = end + 1)
        s = replay(l, at, (size_t)(end - at), step, &kept);
    if (s == BY_OK)
        s = kept.failed ? BY_ERR_MEMORY : base_file_write(path, kept.data ? kept.data : "", kept.size);
    base_free(text);
    base_buf_free(&kept);
    return s;
}

static by_status open_metrics(train_log *l, int64_t step)
{
    char *path = base_path_join(l->folder->out, "metrics.jsonl");
    by_status s = path ? cut_metrics(l, path, step) : BY_ERR_MEMORY;
    if (s == BY_OK && !(l->metrics = fopen(path, "a")))
        s = base_fail(BY_ERR_IO, "%s: %s", path, strerror(errno));
    base_free(path);
    return s;
}

static by_status open_events(train_log *l)
{
    l->events = report_events_open(l->folder->out);
    if (!l->events)
        return base_error_status();
    const char *path = report_events_path(l->events), *name = strrchr(path, '/');
    const by_status s = train_folder_add(l->folder, name ? name + 1 : path);
    if (s != BY_OK)
        unlink(path);
    return s;
}

static void close_metrics(train_log *l)
{
    if (l->metrics)
        fclose(l->metrics);
    l->metrics = NULL;
}

static void close_events(train_log *l)
{
    report_events_close(l->events);
    l->events = NULL;
}

train_log *train_log_open(train_folder *f, int64_t step)
{
    train_log *l = base_alloc_zero(1, sizeof *l);
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

void train_log_close(train_log *l)
{
    if (!l)
        return;
    close_metrics(l);
    close_events(l);
    report_history_free(&l->history);
    base_free(l);
}

typedef struct scalar {
    char key[64], tag[64];
    double value;
} scalar;

enum { MOST_MEASURES = 64, MAX_SCALARS = 9 + BY_METRICS_MAX + MOST_MEASURES };

static int add_scalars(scalar *out, int n, const by_metric *list, int count, const char *key, const char *tag)
{
    for (int i = 0; i < count; i++) {
        if (!isfinite(list[i].value))
            continue;
        base_format(out[n].key, sizeof out[n].key, "%s%s", key, list[i].name);
        base_format(out[n].tag, sizeof out[n].tag, "%s%s", tag, list[i].name);
        out[n++].value = list[i].value;
    }
    return n;
}

/* The numeric values of a report; returns their number. */
static int scalars_of(const by_report *r, scalar *out)
{
    const scalar all[] = {{"loss", "train/loss", r->loss},
                          {"learning_rate", "train/learning_rate", r->learning_rate},
                          {"grad_norm", "train/grad_norm", r->grad_norm},
                          {"ms", "speed/ms", r->ms},
                          {"tokens_per_s", "speed/tokens_per_s", r->tokens_per_s},
                          {"pictures_per_s", "speed/pictures_per_s", r->pictures_per_s},
                          {"data_wait", "speed/data_wait", r->data_wait},
                          {"eval_loss", "eval/loss", r->eval_loss},
                          {"eval_next_accuracy", "eval/next_accuracy", r->next_accuracy}};
    int n = 0;
    for (int i = 0; i < BY_COUNT(all); i++)
        if (isfinite(all[i].value))
            out[n++] = all[i];
    n = add_scalars(out, n, r->measures, BY_MIN(r->n_measures, MOST_MEASURES), "", "train/");
    return add_scalars(out, n, r->metrics, BY_MIN(r->n_metrics, BY_METRICS_MAX), "eval_", "eval/");
}

static by_status write_metrics(train_log *l, int64_t step, const scalar *list, int n)
{
    base_buf line = {0};
    base_buf_printf(&line, "{\"step\": %lld", (long long)step);
    for (int i = 0; i < n; i++)
        base_buf_printf(&line, ", \"%s\": %.9g", list[i].key, list[i].value);
    base_buf_puts(&line, "}\n");
    by_status s = line.failed ? base_fail(BY_ERR_MEMORY, "out of memory while logging") : BY_OK;
    if (s == BY_OK && (fwrite(line.data, 1, line.size, l->metrics) != line.size || fflush(l->metrics) != 0))
        s = base_fail(BY_ERR_IO, "%s/metrics.jsonl: %s", l->folder->out, strerror(errno));
    base_buf_free(&line);
    return s;
}

static by_status write_events(train_log *l, const by_report *r, const scalar *list, int n)
{
    for (int i = 0; i < n; i++)
        BY_TRY(report_events_scalar(l->events, r->step, list[i].tag, list[i].value));
    return r->evaluated ? report_events_flush(l->events) : BY_OK;
}

void train_log_write(train_log *l, const by_report *r)
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
        s = report_history_add(&l->history, r->step, list[i].key, list[i].value);
    if (s != BY_OK && !l->no_curve) {
        give_up(l, "loss.svg");
        l->no_curve = true;
    }
}

void train_log_title(base_buf *out, const by_model *m, const char *task)
{
    base_buf_printf(out, "%s, %.3g M parameters: %s", by_model_title(m),
                    (double)by_params_elements(by_model_params(m)) / 1e6, task);
}

void train_log_draw(train_log *l, const char *title, const char *loss_unit)
{
    if (l->no_curve)
        return;
    char *path = base_path_join(l->folder->out, "loss.svg");
    report_curve curve = report_history_curve(&l->history, title, loss_unit);
    if (!path || report_curve_svg(path, &curve) != BY_OK) {
        give_up(l, "loss.svg");
        l->no_curve = true;
    }
    base_free(path);
}
