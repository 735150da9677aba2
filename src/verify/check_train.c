/* check_train.c - repeats recorded training steps, batch by batch. */
#include <math.h>
#include <stdio.h>

#include "banyan/adapter.h"
#include "base/json.h"
#include "graph/graph.h"
#include "verify/check.h"

static by_status read_schedule(const char *form, by_schedule_spec *s)
{
    int warmup, divisor, rest;
    s->kind = BY_SCHEDULE_CONSTANT;
    if (strcmp(form, "constant") == 0)
        return BY_OK;
    if (sscanf(form, "linear warm-up over %d steps from lr/%d, then cosine to zero over the other %d:",
               &warmup, &divisor, &rest) != 3 ||
        divisor != warmup || warmup < 0 || warmup + rest != s->steps)
        return base_fail(BY_ERR_UNSUPPORTED, "unknown schedule \"%s\"", form);
    s->kind = BY_SCHEDULE_COSINE;
    s->warmup = warmup;
    return BY_OK;
}

/* Reads the settings of a recorded training run. Descriptions of what is fixed here must be the known
 * ones. *all: every trained parameter decays, otherwise matrices alone. */
static by_status read_training(const cJSON *json, by_optimizer_spec *optimizer, by_schedule_spec *schedule,
                               bool *all)
{
    const char *kind, *decay, *form;
    double dropout;
    const cJSON *betas = cJSON_GetObjectItemCaseSensitive(json, "betas");
    const cJSON *beta1 = cJSON_GetArrayItem(betas, 0), *beta2 = cJSON_GetArrayItem(betas, 1);
    BY_TRY(base_json_string(json, "optimizer", "", &kind));
    BY_TRY(base_json_string(json, "decay", "", &decay));
    BY_TRY(base_json_string(json, "schedule", "", &form));
    BY_TRY(base_json_double(json, "dropout", 0, 0, 1, &dropout));
    BY_TRY(base_json_double(json, "lr", 0, 0, 1e3, &schedule->rate));
    BY_TRY(base_json_double(json, "eps", 0, 0, 1, &optimizer->eps));
    BY_TRY(base_json_double(json, "weight_decay", 0, 0, 1e3, &optimizer->weight_decay));
    BY_TRY(base_json_double(json, "clip_grad_norm", 0, 0, 1e9, &optimizer->max_grad_norm));
    BY_TRY(base_json_int(json, "steps", 0, 1, 1 << 20, &schedule->steps));
    if (!verify_has_prefix(kind, "AdamW") || !cJSON_IsNumber(beta1) || !cJSON_IsNumber(beta2) ||
        optimizer->eps == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "the optimizer must be AdamW with betas and eps");
    *all = strcmp(decay, "all trainable tensors") == 0;
    if ((!*all && strcmp(decay, "tensors of two or more dimensions") != 0) || dropout != 0)
        return base_fail(
            BY_ERR_UNSUPPORTED,
            "can repeat only runs without dropout and with weight decay on \"tensors of two or more "
            "dimensions\" or \"all trainable tensors\"");
    optimizer->kind = BY_ADAMW;
    optimizer->beta1 = beta1->valuedouble;
    optimizer->beta2 = beta2->valuedouble;
    return read_schedule(form, schedule);
}

/* Runs one step of an encoder-decoder. */
static by_status pair_step(verify_case *c, const char *prefix, by_trainer *t, double *loss)
{
    BY_TRY(verify_shape(c, prefix));
    BY_TRY(verify_pair(c, prefix));
    by_batch b = by_batch_of(c->batch, c->seq, c->tokens);
    by_batch_put_source(&b, c->source_seq, c->source, NULL);
    by_batch_put_tokens(&b, "targets", c->targets);
    return by_trainer_backward(t, &b, true, loss);
}

static by_status text_step(verify_case *c, const char *prefix, by_trainer *t, double *loss)
{
    bool classify = by_model_task(c->model) == BY_TASK_CLASSIFY;
    int32_t *tokens = NULL, *labels = NULL, *mask = NULL;
    by_status s = verify_ids(c, prefix, "input_ids", c->batch, c->seq, &tokens);
    if (s == BY_OK)
        s = verify_ids(c, prefix, "attention_mask", c->batch, c->seq, &mask);
    if (s == BY_OK)
        s = verify_ids(c, prefix, "labels", c->batch, classify ? 0 : c->seq, &labels);
    if (s == BY_OK && (!tokens || !labels))
        s = base_fail(BY_ERR_FORMAT, "the reference has no %s", tokens ? "labels" : "input_ids");
    if (s == BY_OK && !classify)
        verify_shift(c, labels);
    by_batch b = by_batch_of(c->batch, c->seq, tokens);
    by_batch_put_tokens(&b, "mask", mask);
    by_batch_put_ids(&b, "targets", classify ? c->batch : (int64_t)c->batch * c->seq, labels);
    if (s == BY_OK)
        s = by_trainer_backward(t, &b, true, loss);
    base_free(tokens);
    base_free(labels);
    base_free(mask);
    return s;
}

static by_status train_step(verify_case *c, by_trainer *t, int step, double rate)
{
    static const char *const known[] = {"input_ids", "labels", "attention_mask", NULL};
    static const char *const known_pair[] = {"input_ids", "labels", NULL};
    const bool pair = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    char prefix[24];
    double loss, norm;
    base_format(prefix, sizeof prefix, "step%d.", step);
    BY_TRY(verify_known(c, prefix, pair ? known_pair : known));
    by_status s = pair ? pair_step(c, prefix, t, &loss) : text_step(c, prefix, t, &loss);
    if (s == BY_OK)
        s = by_trainer_update(t, rate, &norm);
    if (s != BY_OK)
        return base_fail_context("step %d", step);
    c->losses[step] = (float)loss;
    c->norms[step] = (float)norm;
    return BY_OK;
}

/* Finds the largest second moment of all parameters: the scale of the gradients. */
static by_status find_moment(verify_case *c)
{
    const by_params *p = by_model_trained(c->model);
    for (int i = 0; i < by_params_count(p); i++) {
        float *v = verify_parameter(p, i, BY_SLOT_MOMENT2);
        if (!v)
            return base_error_status();
        for (size_t k = 0; k < verify_parameter_size(p, i); k++)
            c->moment = BY_MAX(c->moment, (double)v[k]);
        base_free(v);
    }
    return BY_OK;
}

static void decay_all(by_params *p)
{
    for (int i = 0; i < p->n_segments; i++)
        p->segments[i].decay = true;
}

by_status verify_training(verify_case *c, const cJSON *json)
{
    by_optimizer_spec optimizer = {0};
    by_schedule_spec schedule = {0};
    bool all = false;
    BY_TRY(read_training(json, &optimizer, &schedule, &all));
    if (all)
        decay_all(by_model_trained(c->model));
    BY_TRY(verify_shape(c, "step0."));
    c->steps = (int)schedule.steps;
    c->losses = base_alloc_zero((size_t)c->steps, sizeof *c->losses);
    c->norms = base_alloc_zero((size_t)c->steps, sizeof *c->norms);
    if (!c->losses || !c->norms)
        return BY_ERR_MEMORY;
    by_trainer *t = by_trainer_new(c->model, &(by_trainer_spec){.optimizer = optimizer});
    by_status s = t ? BY_OK : base_error_status();
    for (int i = 0; i < c->steps && s == BY_OK; i++)
        s = train_step(c, t, i, by_schedule_rate(&schedule, i));
    by_trainer_free(t);
    return s == BY_OK ? find_moment(c) : s;
}

by_status verify_step_values(verify_case *c, const by_weight *e, const float *here)
{
    return verify_compare(c, e, VERIFY_SUBJECT_STEP_VALUES, 1, (int64_t[]){c->steps}, here, NULL);
}

/* Adam turns a gradient that is zero except for rounding (that of a key bias, for example) into steps of the
 * usual size in a meaningless direction. In f32 such elements are recognisable: their gradients are below a
 * millionth of the largest, and not exactly zero. */
by_status verify_trained(verify_case *c, const by_weight *e)
{
    const by_params *p;
    int i = verify_locate(c, e->name + strlen("final."), &p);
    if (verify_missing(c, e, i, true))
        return BY_OK;
    size_t n = verify_parameter_size(p, i);
    float *here = verify_parameter(p, i, BY_SLOT_VALUE),
          *v = here ? verify_parameter(p, i, BY_SLOT_MOMENT2) : NULL;
    bool *skip = base_alloc_zero(n, sizeof *skip);
    by_status s = here && v && skip ? BY_OK : base_error_status();
    for (size_t k = 0; s == BY_OK && k < n; k++)
        skip[k] = verify_is_wide(c) && v[k] > 0 && (double)v[k] < 1e-12 * c->moment;
    if (s == BY_OK)
        s = verify_compare(c, e, VERIFY_SUBJECT_TRAINED, by_params_rank(p, i), by_params_shape(p, i), here,
                           skip);
    base_free(here);
    base_free(v);
    base_free(skip);
    return s;
}
