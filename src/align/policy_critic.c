/* policy_critic.c - the critic of PPO: a model with a value for each token, and the advantages computed from
 * its values. */
#include <math.h>

#include "align/policy_run.h"
#include "align/terms.h"
#include "base/file.h"

/* ---- the model ---------------------------------------------------------------------------------- */

#define CRITIC "critic"

/* Whether a directory has a head with one output. */
static by_status has_head(by_device *d, const char *dir, bool *out)
{
    by_model *m = by_model_open(d, dir, &(by_model_spec){0});
    if (!m)
        return base_error_status();
    *out = by_model_task(m) == BY_TASK_CLASSIFY && by_model_labels(m) == 1;
    by_model_free(m);
    return BY_OK;
}

by_status align_critic_open(align_policy *p, const char *checkpoint)
{
    const by_align_spec *s = &p->spec;
    char *saved = checkpoint ? base_path_join(checkpoint, CRITIC) : NULL;
    const char *dir = saved ? saved : s->policy.value_model ? s->policy.value_model : s->model;
    bool whole = false;
    by_model_spec spec = {.dtype = s->dtype,
                          .training = true,
                          .stochastic_rounding = s->stochastic_rounding,
                          .task = BY_TASK_CLASSIFY,
                          .problem = BY_PROBLEM_REGRESSION,
                          .labels = 1,
                          .seed = s->seed};
    if (checkpoint && !saved)
        return BY_ERR_MEMORY;
    by_status status = has_head(p->device, dir, &whole);
    spec.new_head = !whole;
    if (status == BY_OK && !(p->critic.model = by_model_open(p->device, dir, &spec)))
        status = base_error_status();
    if (status == BY_OK && by_model_vocab(p->critic.model) != by_model_vocab(p->model) &&
        by_model_source_vocab(p->critic.model) != by_model_source_vocab(p->model))
        status = base_fail(BY_ERR_ARGUMENT, "the critic %s has %d tokens, the policy %d", dir,
                           by_model_source_vocab(p->critic.model), by_model_source_vocab(p->model));
    if (status == BY_OK && checkpoint)
        status = train_model_load(p->critic.model, dir);
    if (status == BY_OK)
        by_model_set_dropout(p->critic.model, 0);
    base_free(saved);
    return status;
}

/* Heads that pool a text have one output per row, not one per token. */
static by_status check_values(const align_critic *c)
{
    const int32_t tokens[2] = {0}, pick[2] = {0, 1};
    by_batch b = by_batch_of(1, 2, tokens);
    by_batch_put_ids(&b, "pick", 2, pick);
    by_pass *pass = by_passes_get(c->passes, &b);
    if (!pass)
        return base_error_status();
    if (by_elements(by_io_output(by_pass_io(pass), "logits")) == 2)
        return BY_OK;
    return base_fail(BY_ERR_UNSUPPORTED,
                     "%s has a number for a text, and PPO's critic one for each token; grpo, rloo and "
                     "reinforce need no critic",
                     base_a(by_model_class(c->model)).text);
}

by_status align_critic_plan(align_policy *p)
{
    const by_policy_run *run = &p->spec.policy;
    align_critic *c = &p->critic;
    union {
        const void *from;
        void *to;
    } loss = {&c->loss};
    c->loss.clip = run->value_clip;
    c->trainer = by_trainer_new(c->model, &(by_trainer_spec){.accumulate = p->spec.accumulate,
                                                             .recompute = p->spec.recompute,
                                                             .optimizer = p->spec.optimizer,
                                                             .seed = p->spec.seed,
                                                             .many_shapes = true,
                                                             .loss = by_value_loss,
                                                             .loss_user = loss.to});
    c->passes = c->trainer ? by_passes_new(c->model, &(by_pass_spec){.memory = &p->memory}, 0) : NULL;
    if (!c->passes)
        return base_error_status();
    by_trainer_set_steps(c->trainer, p->loop.state.step * align_policy_updates(p));
    return check_values(c);
}

void align_critic_close(align_critic *c)
{
    void *const all[] = {c->last,      c->pick,       c->scores,  c->values, c->logps,
                         c->ref_logps, c->advantages, c->returns, c->mask};
    by_passes_free(c->passes);
    by_trainer_free(c->trainer);
    by_model_free(c->model);
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
    *c = (align_critic){0};
}

/* ---- arrays of answers ---------------------------------------------------------------------------- */

static by_status reserve(align_policy *p)
{
    align_critic *c = &p->critic;
    enum { STEP = 8 }; /* widths are rounded so that few passes are compiled */
    c->cols = (p->rollouts.longest + STEP - 1) / STEP * STEP;
    const size_t n = (size_t)p->rollouts.rows * (size_t)c->cols;
    if (n <= c->capacity)
        return BY_OK;
    float **floats[] = {&c->scores,     &c->values,  &c->logps, &c->ref_logps,
                        &c->advantages, &c->returns, &c->mask};
    for (int i = 0; i < BY_COUNT(floats); i++) {
        float *more = base_resize(*floats[i], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        *floats[i] = more;
    }
    int32_t *pick = base_resize(c->pick, n, sizeof *pick);
    c->pick = pick ? pick : c->pick;
    int32_t *last = base_resize(c->last, n, sizeof *last);
    c->last = last ? last : c->last;
    c->capacity = pick && last ? n : c->capacity;
    return pick && last ? BY_OK : BY_ERR_MEMORY;
}

/* Copies (rows, width) to (rows, cols), with `nothing` where there is no token. */
static void narrow(const align_policy *p, const float *from, float nothing, float *to)
{
    const align_rollouts *r = &p->rollouts;
    for (int i = 0; i < r->rows; i++)
        for (int t = 0; t < p->critic.cols; t++)
            to[i * p->critic.cols + t] =
                t < r->count[i] ? from[(ptrdiff_t)i * r->width + r->prompt[i] - 1 + t] : nothing;
}

static void widen(const align_policy *p, const float *from, float *to)
{
    const align_rollouts *r = &p->rollouts;
    memset(to, 0, (size_t)r->rows * (size_t)r->width * sizeof *to);
    for (int i = 0; i < r->rows; i++)
        for (int t = 0; t < r->count[i]; t++)
            to[(ptrdiff_t)i * r->width + r->prompt[i] - 1 + t] = from[i * p->critic.cols + t];
}

/* A batch of these rows that picks the position before each token of the answers. */
static by_batch batch_of(align_policy *p, const int *rows, int count)
{
    const align_rollouts *r = &p->rollouts;
    align_critic *c = &p->critic;
    for (int i = 0; i < count; i++) {
        memcpy(p->part.tokens + (ptrdiff_t)i * r->width, r->tokens + (ptrdiff_t)rows[i] * r->width,
               (size_t)r->width * sizeof *r->tokens);
        for (int t = 0; t < c->cols; t++)
            c->pick[i * c->cols + t] = i * r->width + BY_MIN(r->prompt[rows[i]] - 1 + t, r->width - 1);
    }
    by_batch b = by_batch_of(count, r->width, p->part.tokens);
    by_batch_put_ids(&b, "pick", (int64_t)count * c->cols, c->pick);
    return b;
}

static by_status read_values(align_policy *p, int part)
{
    align_critic *c = &p->critic;
    for (int first = 0; first < p->rollouts.rows; first += part) {
        const int count = BY_MIN(part, p->rollouts.rows - first);
        for (int i = 0; i < count; i++)
            p->order[i] = first + i;
        by_batch b = batch_of(p, p->order, count);
        by_pass *pass = by_passes_get(c->passes, &b);
        if (!pass)
            return base_error_status();
        BY_TRY(by_pass_run(pass, &b));
        BY_TRY(by_pass_read(pass, by_io_output(by_pass_io(pass), "logits"),
                            c->values + (ptrdiff_t)first * c->cols));
    }
    return BY_OK;
}

/* ---- advantages ------------------------------------------------------------------------------------- */

/* Moves beta towards a divergence of kl_target per answer (Ziegler et al. 2019). */
static void adapt_beta(align_policy *p)
{
    const by_policy_run *run = &p->spec.policy;
    double kl = 0;
    if (!(run->kl_target > 0))
        return;
    for (int i = 0; i < p->rollouts.rows; i++)
        kl += (double)p->row_kl[i] / p->rollouts.rows;
    const double error = BY_MAX(BY_MIN(kl / run->kl_target - 1, 0.2), -0.2);
    p->beta *= 1 + error * p->rollouts.rows / run->kl_horizon;
}

by_status align_critic_advise(align_policy *p)
{
    const by_policy_run *run = &p->spec.policy;
    const align_rollouts *r = &p->rollouts;
    align_critic *c = &p->critic;
    BY_TRY(reserve(p));
    BY_TRY(read_values(p, p->spec.batch * run->generations));
    narrow(p, p->old_logps, 1, c->logps);
    narrow(p, align_policy_needs_reference(p) ? p->ref_logps : p->old_logps, 1, c->ref_logps);
    for (int i = 0; i < r->rows; i++) {
        c->last[i] = r->count[i] - 1;
        c->scores[i] = r->total[i] - (r->ended[i] ? 0 : (float)run->missing_eos_penalty);
        for (int t = 0; t < c->cols; t++) {
            c->mask[i * c->cols + t] = t <= r->count[i];
            c->values[i * c->cols + t] *= c->mask[i * c->cols + t];
        }
    }
    BY_TRY(by_gae_compute(&(by_rollout){.rows = r->rows,
                                        .cols = c->cols,
                                        .last = c->last,
                                        .logps = c->logps,
                                        .ref_logps = c->ref_logps,
                                        .values = c->values,
                                        .scores = c->scores},
                          &(by_gae_spec){.kl = train_literal(p->beta),
                                         .third = run->third,
                                         .whiten_rewards = run->whiten_rewards,
                                         .gamma = run->gamma,
                                         .lambda = run->lambda},
                          &(by_gae){.advantages = c->advantages, .returns = c->returns}));
    widen(p, c->advantages, p->token_advantages);
    adapt_beta(p);
    return BY_OK;
}

/* ---- updates ---------------------------------------------------------------------------------------- */

/* Copies rows of an array (rows, cols) to the memory of a micro-batch of the policy, which is larger. */
static const float *gather(const align_critic *c, const float *from, const int *rows, int count, float *to)
{
    for (int i = 0; i < count; i++)
        memcpy(to + (ptrdiff_t)i * c->cols, from + (ptrdiff_t)rows[i] * c->cols,
               (size_t)c->cols * sizeof *to);
    return to;
}

by_status align_critic_learn(align_policy *p, const int *rows, int count, bool first, double share)
{
    align_critic *c = &p->critic;
    struct align_part *x = &p->part;
    const int64_t shape[] = {count, c->cols};
    const int n = count * c->cols;
    by_batch b = batch_of(p, rows, count);
    const float *old = gather(c, c->values, rows, count, x->old_logps),
                *returns = gather(c, c->returns, rows, count, x->ref_logps),
                *mask = gather(c, c->mask, rows, count, x->mask);
    double loss;
    by_batch_put(&b, "old_values", BY_F32, 2, shape, old);
    by_batch_put(&b, "returns", BY_F32, 2, shape, returns);
    by_batch_put(&b, "value_mask", BY_F32, 2, shape, mask);
    by_trainer_share(c->trainer, share * p->spec.policy.value_weight);
    BY_TRY(by_trainer_backward(c->trainer, &b, first, &loss));
    by_pass *pass = by_trainer_trained(c->trainer);
    BY_TRY(by_pass_read(pass, by_io_output(by_pass_io(pass), "values"), x->logps));
    p->seen.value_loss += share * loss;
    p->seen.value_clipped += share * by_value_clipped(x->logps, old, returns, mask, n, &c->loss);
    return BY_OK;
}

by_status align_critic_update(align_policy *p, double rate)
{
    const double own = p->spec.policy.value_rate, base = p->spec.schedule.rate;
    return train_update(p->critic.trainer, own > 0 && base > 0 ? rate * own / base : rate);
}
