/* history.c - see history.h. */
#include "report/history.h"

#include <math.h>

#include "base/file.h"

/* Metrics that rank models. Each task has one of them, the first that it reports. */
static const struct {
    const char *key, *name, *label;
    bool noisy; /* a value of every step, not of evaluations */
} METRICS[] = {
    {"eval_accuracy", "held-out accuracy", "accuracy (0 to 1)", false},
    {"eval_f1", "held-out F1", "F1 (0 to 1)", false},
    {"eval_micro_f1", "held-out micro F1", "micro F1 (0 to 1)", false},
    {"eval_pearson", "held-out Pearson's r", "Pearson's r (-1 to 1)", false},
    {"eval_perplexity", "held-out perplexity", "perplexity (per token)", false},
    {"eval_next_accuracy", "held-out accuracy of pairs", "accuracy (0 to 1)", false},
    {"eval_rewards/accuracies", "held-out accuracy of pairs", "accuracy (0 to 1)", false},
    {"reward", "mean reward", "reward", true},
};

void report_history_free(report_history *h)
{
    report_series *all[] = {&h->loss, &h->eval, &h->metric};
    for (int i = 0; i < BY_COUNT(all); i++) {
        base_free(all[i]->x);
        base_free(all[i]->y);
    }
    *h = (report_history){0};
}

static by_status push(report_series *p, double x, double y)
{
    if (p->count == p->capacity) {
        const size_t grown = p->capacity ? p->capacity * 2 : 256;
        double *more = base_resize(p->x, grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        p->x = more;
        more = base_resize(p->y, grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        p->y = more;
        p->capacity = grown;
    }
    p->x[p->count] = x;
    p->y[p->count++] = y;
    return BY_OK;
}

by_status report_history_add(report_history *h, int64_t step, const char *key, double value)
{
    if (!isfinite(value))
        return BY_OK;
    if (strcmp(key, "loss") == 0)
        return push(&h->loss, (double)step, value);
    if (strcmp(key, "eval_loss") == 0)
        return push(&h->eval, (double)step, value);
    h->percent |= strcmp(key, "eval_exact_match") == 0; /* SQuAD reports percentages */
    for (int i = 0; i < BY_COUNT(METRICS); i++)
        if (strcmp(key, METRICS[i].key) == 0 && (h->kind == 0 || h->kind == 1 + i)) {
            h->kind = 1 + i;
            return push(&h->metric, (double)step, value);
        }
    return BY_OK;
}

by_status report_history_add_line(report_history *h, const cJSON *line)
{
    int64_t step;
    BY_TRY(base_json_int(line, "step", -1, 0, INT64_C(1) << 50, &step));
    const cJSON *item;
    cJSON_ArrayForEach(item, line) if (cJSON_IsNumber(item) && step >= 0)
        BY_TRY(report_history_add(h, step, item->string, item->valuedouble));
    return BY_OK;
}

by_status report_history_read(report_history *h, const char *folder)
{
    size_t size;
    char *path = base_path_join(folder, "metrics.jsonl");
    char *text = path ? base_file_read(path, (size_t)1 << 32, &size) : NULL;
    by_status s = text ? BY_OK : base_error_status();
    base_free(path);
    for (char *at = text, *end; s == BY_OK && (end = memchr(at, '\n', size - (size_t)(at - text)));
         at = end + 1) {
        cJSON *line = base_json_parse(at, (size_t)(end - at), "metrics.jsonl");
        if ((line ? report_history_add_line(h, line) : base_error_status()) == BY_ERR_MEMORY)
            s = BY_ERR_MEMORY;
        else
            base_error_clear();
        cJSON_Delete(line);
    }
    base_free(text);
    return s;
}

static report_curve_series series_of(const char *name, const report_series *p, bool exact)
{
    return (report_curve_series){.name = name, .x = p->x, .y = p->y, .count = p->count, .exact = exact};
}

report_curve report_history_curve(report_history *h, const char *title, const char *loss_unit)
{
    base_format(h->unit, sizeof h->unit, "loss (%s)", loss_unit);
    h->series[0] = series_of("training loss", &h->loss, false);
    h->series[1] = series_of("held-out loss", &h->eval, true);
    h->panels[0] = (report_curve_panel){h->unit, h->series, h->eval.count ? 2 : 1};
    if (h->kind > 0) {
        const int i = h->kind - 1;
        h->series[2] = series_of(METRICS[i].name, &h->metric, !METRICS[i].noisy);
        h->panels[1] =
            (report_curve_panel){h->percent && i == 1 ? "F1 (%)" : METRICS[i].label, h->series + 2, 1};
    }
    return (report_curve){
        .title = title, .x_label = "step", .panels = h->panels, .count = h->kind > 0 ? 2 : 1};
}
