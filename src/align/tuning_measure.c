/* tuning_measure.c - metrics of learning from given answers, under their usual names (tuning.h). */
#include <math.h>
#include <string.h>

#include "align/tuning.h"
#include "base/base.h"

void align_tally_add(align_tally *m, const char *name, align_fold fold, double value, double weight)
{
    int i = 0;
    while (i < m->count && strcmp(m->list[i].name, name) != 0)
        i++;
    if (i == BY_METRICS_MAX || !(weight > 0))
        return;
    if (i == m->count) {
        m->list[m->count].name = name;
        m->list[m->count].fold = fold;
        m->list[m->count].weight = 0;
        m->list[m->count++].value = fold == ALIGN_MEAN ? 0 : value;
    }
    m->list[i].weight += weight;
    m->list[i].value = fold == ALIGN_MEAN    ? m->list[i].value + value * weight
                       : fold == ALIGN_LEAST ? BY_MIN(m->list[i].value, value)
                                             : BY_MAX(m->list[i].value, value);
}

static double value_of(const align_tally *m, int i)
{
    return m->list[i].fold == ALIGN_MEAN ? m->list[i].value / m->list[i].weight : m->list[i].value;
}

static double find_value(const align_tally *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->list[i].name, name) == 0)
            return value_of(m, i);
    return NAN;
}

int align_tally_read(const align_tally *m, by_metric out[BY_METRICS_MAX])
{
    int n = m->count;
    for (int i = 0; i < n; i++)
        out[i] = (by_metric){m->list[i].name, value_of(m, i)};
    /* Unpaired answers have a margin as well. */
    const double margin = find_value(m, "rewards/chosen") - find_value(m, "rewards/rejected");
    if (n < BY_METRICS_MAX && isfinite(margin) && isnan(find_value(m, "rewards/margins")))
        out[n++] = (by_metric){"rewards/margins", margin};
    return n;
}

/* ---- passes ------------------------------------------------------------------------------------- */

/* A tensor that the loss returned, as a heap array. NULL on failure. */
static float *read_output(by_pass *pass, const char *name)
{
    const by_tensor *t = by_io_output(by_pass_io(pass), name);
    float *values = t ? base_alloc((size_t)by_elements(t) * sizeof *values + 1) : NULL;
    if (!t)
        base_fail(BY_ERR_ARGUMENT, "the loss returns no \"%s\"", name);
    if (values && by_pass_read(pass, t, values) != BY_OK) {
        base_free(values);
        values = NULL;
    }
    return values;
}

static by_status measure_scalar(align_tally *m, const char *name, by_pass *pass, const char *output,
                                double weight)
{
    float *value = read_output(pass, output);
    if (!value)
        return base_error_status();
    align_tally_add(m, name, ALIGN_MEAN, (double)*value, weight);
    base_free(value);
    return BY_OK;
}

/* For evaluations. Training uses the model's own loss, which has no such outputs. */
static by_status measure_tuning(align_tally *m, const align_part *p, by_pass *pass)
{
    const double counted = (double)p->batch.counted;
    float loss, *right = read_output(pass, "right"), *entropy = read_output(pass, "entropy");
    by_status s = right && entropy ? by_pass_read(pass, by_pass_loss(pass), &loss) : base_error_status();
    const int64_t n = (int64_t)p->batch.rows.batch.batch * p->batch.rows.batch.seq;
    double sum = 0;
    for (int64_t i = 0; s == BY_OK && i < n; i++)
        sum += p->batch.cells[i] >= 0 ? (double)entropy[i] : 0;
    if (s == BY_OK) {
        align_tally_add(m, "mean_token_accuracy", ALIGN_MEAN, (double)*right / counted, counted);
        align_tally_add(m, "entropy", ALIGN_MEAN, sum / counted, counted);
    }
    base_free(right);
    base_free(entropy);
    return s;
}

static void measure_scores(align_tally *m, const float *r, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        align_tally_add(m, "accuracy", ALIGN_MEAN, r[i] > r[pairs + i], 1);
        align_tally_add(m, "margin", ALIGN_MEAN, (double)r[i] - (double)r[pairs + i], 1);
    }
    for (int i = 0; i < 2 * pairs; i++) {
        align_tally_add(m, "mean_reward", ALIGN_MEAN, (double)r[i], 1);
        align_tally_add(m, "min_reward", ALIGN_LEAST, (double)r[i], 1);
        align_tally_add(m, "max_reward", ALIGN_MOST, (double)r[i], 1);
    }
}

static void measure_pairs(align_tally *m, const float *r, const float *logps, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        const double chosen = (double)r[i], rejected = (double)r[pairs + i];
        align_tally_add(m, "rewards/accuracies", ALIGN_MEAN, chosen > rejected, 1);
        align_tally_add(m, "rewards/margins", ALIGN_MEAN, chosen - rejected, 1);
        align_tally_add(m, "rewards/chosen", ALIGN_MEAN, chosen, 1);
        align_tally_add(m, "rewards/rejected", ALIGN_MEAN, rejected, 1);
        align_tally_add(m, "logps/chosen", ALIGN_MEAN, (double)logps[i], 1);
        align_tally_add(m, "logps/rejected", ALIGN_MEAN, (double)logps[pairs + i], 1);
    }
}

static void measure_judged(align_tally *m, const align_part *p, const float *r, const float *logps, int rows)
{
    for (int i = 0; i < rows; i++) {
        const bool good = p->label[i] > 0;
        align_tally_add(m, good ? "rewards/chosen" : "rewards/rejected", ALIGN_MEAN, (double)r[i], 1);
        align_tally_add(m, good ? "logps/chosen" : "logps/rejected", ALIGN_MEAN, (double)logps[i], 1);
    }
}

static by_status measure_answers(align_tally *m, const align_part *p, const by_align_spec *s, by_pass *pass)
{
    const int rows = p->batch.rows.batch.batch;
    float *r = read_output(pass, "rewards"), *logps = r ? read_output(pass, "logps") : NULL;
    if (logps && s->method == BY_ALIGN_KTO)
        measure_judged(m, p, r, logps, rows);
    else if (logps)
        measure_pairs(m, r, logps, rows / 2);
    base_free(r);
    base_free(logps);
    if (!logps)
        return base_error_status();
    if (align_needs_mismatched(s))
        align_tally_add(m, "kl", ALIGN_MEAN, (double)p->kl, rows);
    if (by_io_output(by_pass_io(pass), "likelihood"))
        BY_TRY(measure_scalar(m, "nll_loss", pass, "likelihood", rows));
    return BY_OK;
}

static by_status measure_odds(align_tally *m, by_pass *pass, int pairs)
{
    float *odds = read_output(pass, "log_odds");
    for (int i = 0; odds && i < pairs; i++)
        align_tally_add(m, "log_odds_chosen", ALIGN_MEAN, (double)odds[i], 1);
    base_free(odds);
    return odds ? BY_OK : base_error_status();
}

by_status align_tally_pass(align_tally *m, const align_part *p, const by_align_spec *s, by_pass *pass)
{
    const int rows = p->batch.rows.batch.batch;
    if (s->method == BY_ALIGN_SFT)
        return measure_tuning(m, p, pass);
    if (s->method == BY_ALIGN_REWARD) {
        float *r = read_output(pass, "rewards");
        if (r)
            measure_scores(m, r, rows / 2);
        base_free(r);
        return r ? BY_OK : base_error_status();
    }
    BY_TRY(measure_answers(m, p, s, pass));
    return s->method == BY_ALIGN_ORPO ? measure_odds(m, pass, rows / 2) : BY_OK;
}
