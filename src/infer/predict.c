/* predict.c - running a model on texts, and classification (banyan/predict.h). */
#include "infer/predict.h"

#include <math.h>

#include "infer/picture_passes.h"

/* ---- predictors ------------------------------------------------------------------------------ */

by_status gen_predict_check(const by_model *m, by_task task)
{
    by_task has = by_model_task(m);
    if (has == task || (task == BY_TASK_MLM && has == BY_TASK_PRETRAIN))
        return BY_OK;
    if (has == BY_TASK_CONTRAST && task == BY_TASK_CLASSIFY)
        return base_fail(BY_ERR_ARGUMENT, "%s has no labels of its own; give some, as in --labels cat,dog",
                         base_a(by_model_class(m)).text);
    return base_fail(BY_ERR_ARGUMENT,
                     "%s has a head for \"%s\", not for \"%s\"; 'banyan finetune' gives a model another head",
                     base_a(by_model_class(m)).text, by_task_name(has), by_task_name(task));
}

by_predictor *by_predictor_new(by_model *m, const by_tokenizer *t, const by_predictor_spec *spec)
{
    if (!m || !spec || (!t && !spec->processor)) {
        base_fail_missing(!m ? "model" : !spec ? "by_predictor_spec" : "tokenizer");
        return NULL;
    }
    base_error_clear();
    if (spec->task != BY_TASK_DEFAULT && gen_predict_check(m, spec->task) != BY_OK)
        return NULL;
    by_predictor *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (by_predictor){.model = m, .tokenizer = t, .spec = *spec};
    if (p->spec.batch <= 0)
        p->spec.batch = strncmp(by_device_name(by_model_device(m)), "cpu", 3) == 0 ? 32 : 256;
    p->passes = by_passes_new(m, &(by_pass_spec){0}, 64);
    if (!p->passes) {
        by_predictor_free(p);
        return NULL;
    }
    return p;
}

void by_predictor_free(by_predictor *p)
{
    if (!p)
        return;
    by_passes_free(p->passes);
    base_free(p->values[0]);
    base_free(p->values[1]);
    base_free(p);
}

/* ---- batches --------------------------------------------------------------------------------- */

by_status gen_predict_rows(by_predictor *p, const data_rows_spec *spec, const char *const *texts,
                           const char *const *pairs, int count, data_rows *rows)
{
    if (!p->tokenizer)
        return base_fail(BY_ERR_ARGUMENT, "%s reads pictures, not texts",
                         base_a(by_model_class(p->model)).text);
    BY_TRY(data_rows_init(rows, p->model, p->tokenizer, spec));
    for (int i = 0; i < count; i++)
        BY_TRY(data_rows_add(rows, texts[i], pairs ? pairs[i] : NULL));
    return BY_OK;
}

static by_status run_group(by_predictor *p, const data_rows *rows, const data_row_groups *groups, int g,
                           data_row_batch *memory, const gen_predict_calls *calls, void *user)
{
    if (p->spec.cancelled && p->spec.cancelled(p->spec.user))
        return base_fail(BY_ERR_CANCELLED, "interrupted");
    BY_TRY(data_rows_group(rows, groups, g, p->spec.batch, memory));
    by_batch b = memory->batch;
    if (calls->prepare)
        BY_TRY(calls->prepare(user, &b, rows, groups->rows + groups->first[g], memory->rows));
    by_pass *pass = by_passes_get(p->passes, &b);
    if (!pass)
        return base_error_status();
    BY_TRY(by_pass_run(pass, &b));
    gen_predicted done = {.rows = rows,
                          .list = groups->rows + groups->first[g],
                          .count = memory->rows,
                          .batch = &b,
                          .io = by_pass_io(pass),
                          .pass = pass};
    return calls->take(user, p, &done);
}

by_status gen_predict_run(by_predictor *p, const data_rows *rows, const gen_predict_calls *calls, void *user)
{
    data_row_groups groups = {0};
    data_row_batch memory = {0};
    by_status s = data_rows_by_length(rows, p->spec.batch, &groups);
    for (int g = 0; s == BY_OK && g < groups.count; g++)
        s = run_group(p, rows, &groups, g, &memory, calls, user);
    data_row_groups_free(&groups);
    data_row_batch_free(&memory);
    return s;
}

by_status gen_predict_read(by_predictor *p, by_pass *pass, const by_tensor *t, int which, float **out)
{
    const size_t n = (size_t)by_elements(t);
    if (n > p->room[which]) {
        float *more = base_resize(p->values[which], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        p->values[which] = more;
        p->room[which] = n;
    }
    *out = p->values[which];
    return by_pass_read(pass, t, *out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

void gen_probabilities(float *x, int n)
{
    float top = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++)
        x[i] = (float)(x[i] / sum);
}

int gen_places_top(const float *x, int n, int k, int *places)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int at = found < k ? found++ : k;
        for (; at > 0 && x[places[at - 1]] < x[i]; at--)
            if (at < k)
                places[at] = places[at - 1];
        if (at < k)
            places[at] = i;
    }
    return found;
}

/* ---- labels of texts ------------------------------------------------------------------------- */

/* Converts the logits of one example to scores of the problem. */
static void to_scores(const by_model *m, const float *logits, float *x)
{
    const int labels = by_model_labels(m);
    const by_problem problem = by_model_problem(m);
    memcpy(x, logits, (size_t)labels * sizeof *x);
    if (problem == BY_PROBLEM_ONE_LABEL)
        gen_probabilities(x, labels);
    for (int k = 0; k < labels && problem == BY_PROBLEM_MANY_LABELS; k++)
        x[k] = 1 / (1 + expf(-x[k]));
}

static by_status take_labels(void *user, by_predictor *p, const gen_predicted *b)
{
    float *scores = user, *logits;
    const int labels = by_model_labels(p->model);
    BY_TRY(gen_predict_read(p, b->pass, by_io_output(b->io, "logits"), 0, &logits));
    BY_TRY(by_pass_finite(p->model, logits, (size_t)b->count * (size_t)labels));
    for (int i = 0; i < b->count; i++)
        to_scores(p->model, logits + (size_t)i * (size_t)labels,
                  scores + (size_t)b->rows->list[b->list[i]].example * (size_t)labels);
    return BY_OK;
}

by_status by_predictor_classify(by_predictor *p, const char *const *texts, const char *const *pairs,
                                int count, float *scores)
{
    static const gen_predict_calls calls = {NULL, take_labels};
    if (!p || (count > 0 && (!texts || !scores)))
        return base_fail_missing(!p ? "predictor" : !texts ? "text" : "array of scores");
    BY_TRY(gen_predict_check(p->model, BY_TASK_CLASSIFY));
    data_rows rows = {0};
    by_status s = gen_predict_rows(p, &(data_rows_spec){0}, texts, pairs, count, &rows);
    if (s == BY_OK)
        s = gen_predict_run(p, &rows, &calls, scores);
    data_rows_free(&rows);
    return s;
}

/* ---- labels of pictures ---------------------------------------------------------------------- */

typedef struct labelling {
    by_predictor *predictor;
    float *scores;
} labelling;

static by_status take_picture_labels(void *user, by_pass *pass, int first, int count)
{
    const labelling *l = user;
    const by_model *m = l->predictor->model;
    const size_t labels = (size_t)by_model_labels(m);
    float *logits;
    BY_TRY(gen_predict_read(l->predictor, pass, by_io_output(by_pass_io(pass), "logits"), 0, &logits));
    BY_TRY(by_pass_finite(m, logits, (size_t)count * labels));
    for (int i = 0; i < count; i++)
        to_scores(m, logits + (size_t)i * labels, l->scores + (size_t)(first + i) * labels);
    return BY_OK;
}

by_status by_predictor_classify_pictures(by_predictor *p, const by_picture_set *set, int64_t first, int count,
                                         float *scores)
{
    if (!p || !set || (count > 0 && !scores))
        return base_fail_missing(!p ? "predictor" : !set ? "dataset" : "array of scores");
    if (!p->spec.processor)
        return base_fail(BY_ERR_ARGUMENT,
                         "the predictor was created without a processor and reads only texts");
    BY_TRY(gen_predict_check(p->model, BY_TASK_CLASSIFY));
    labelling l = {p, scores};
    return gen_pictures_run(
        &(gen_pictures_spec){.model = p->model,
                             .processor = p->spec.processor,
                             .batch = p->spec.batch,
                             .cancelled = p->spec.cancelled,
                             .cancel_user = p->spec.user},
        &(gen_picture_passes){.passes = p->passes, .take = take_picture_labels, .user = &l}, set, first,
        count);
}
