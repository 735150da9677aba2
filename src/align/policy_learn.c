/* policy_learn.c - a step of policy training: log-probabilities of the answers, advantages from their
 * rewards, updates. */
#include <math.h>

#include "align/policy_run.h"
#include "banyan/adapter.h"

/* ---- the loss ----------------------------------------------------------------------------------- */

static bool is_grpo(const align_policy *p, by_grpo_kind kind)
{
    return p->spec.method == BY_ALIGN_GRPO && p->spec.policy.loss == kind;
}

void align_policy_choose_loss(align_policy *p)
{
    static const by_policy_mean means[BY_GRPO_KINDS] = {
        [BY_GRPO_DAPO] = BY_MEAN_GIVEN,   [BY_GRPO_GRPO] = BY_MEAN_SEQUENCE, [BY_GRPO_DR] = BY_MEAN_GIVEN,
        [BY_GRPO_BNPO] = BY_MEAN_TOKEN,   [BY_GRPO_GSPO] = BY_MEAN_SEQUENCE, [BY_GRPO_CISPO] = BY_MEAN_GIVEN,
        [BY_GRPO_SAPO] = BY_MEAN_SEQUENCE};
    const by_policy_run *run = &p->spec.policy;
    p->loss = (by_policy_spec){.divisor = 1,
                               .epsilon_low = run->epsilon_low,
                               .epsilon_high = run->epsilon_high,
                               .temperature = run->temperature};
    p->spoken.temperature = run->temperature;
    switch (p->spec.method) {
    case BY_ALIGN_GRPO:
        p->loss.mean = means[run->loss];
        p->loss.term = run->loss == BY_GRPO_CISPO  ? BY_TERM_WEIGHTED
                       : run->loss == BY_GRPO_SAPO ? BY_TERM_SOFT
                                                   : BY_TERM_CLIPPED;
        p->loss.delta = run->delta;
        p->loss.top_entropy = run->top_entropy;
        p->loss.by_sequence = run->loss == BY_GRPO_GSPO;
        p->loss.beta = p->beta;
        break;
    case BY_ALIGN_PPO:
        p->loss.mean = BY_MEAN_TOKEN;
        break;
    default: /* RLOO, REINFORCE */
        p->loss.whole_sequence = true;
    }
}

int align_policy_updates(const align_policy *p)
{
    return p->spec.policy.updates * p->spec.policy.minibatches;
}

bool align_policy_needs_reference(const align_policy *p)
{
    return p->beta != 0 || p->spec.policy.kl_target > 0;
}

bool align_policy_needs_old(const align_policy *p)
{
    return align_policy_updates(p) > 1 || p->spec.method == BY_ALIGN_PPO ||
           (align_policy_needs_reference(p) && p->spec.method != BY_ALIGN_GRPO);
}

/* The weight of a micro-batch with `rows` of `all` rows and `own` of `tokens` tokens in an update. */
static double share_of(const align_policy *p, int rows, int all, double tokens)
{
    if (is_grpo(p, BY_GRPO_DAPO) || is_grpo(p, BY_GRPO_CISPO))
        return 1 / BY_MAX(tokens, 1);
    if (is_grpo(p, BY_GRPO_DR))
        return 1 / ((double)all * p->max_new_tokens);
    return (double)rows / all;
}

/* ---- log-probabilities ---------------------------------------------------------------------------- */

static by_status reserve(align_policy *p)
{
    const align_rollouts *r = &p->rollouts;
    const size_t n = (size_t)r->rows * (size_t)r->width;
    float **wide[] = {&p->old_logps, &p->ref_logps, &p->token_advantages};
    if (n <= p->wide_capacity)
        return BY_OK;
    for (int i = 0; i < BY_COUNT(wide); i++) {
        float *more = base_resize(*wide[i], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        *wide[i] = more;
    }
    p->wide_capacity = n;
    return BY_OK;
}

static by_status reserve_part(align_policy *p, int rows)
{
    struct align_part *x = &p->part;
    const size_t n = (size_t)rows * (size_t)p->rollouts.width;
    float **floats[] = {&x->old_logps, &x->ref_logps, &x->advantages, &x->mask, &x->logps, &x->entropy};
    int32_t **ids[] = {&x->tokens, &x->targets};
    if (n <= x->capacity)
        return BY_OK;
    for (int i = 0; i < BY_COUNT(floats); i++) {
        float *more = base_resize(*floats[i], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        *floats[i] = more;
    }
    for (int i = 0; i < BY_COUNT(ids); i++) {
        int32_t *more = base_resize(*ids[i], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        *ids[i] = more;
    }
    x->capacity = n;
    return BY_OK;
}

/* Rows that are computed at once. */
static int part_rows(const align_policy *p)
{
    return p->spec.batch * p->spec.policy.generations;
}

/* Log-probabilities of the answers' tokens (rows, width), 0 elsewhere. */
static by_status read_logps(align_policy *p, by_passes *passes, float *out)
{
    const align_rollouts *r = &p->rollouts;
    for (int first = 0; first < r->rows; first += part_rows(p)) {
        const int count = BY_MIN(part_rows(p), r->rows - first);
        const ptrdiff_t at = (ptrdiff_t)first * r->width;
        by_batch b = by_batch_of(count, r->width, r->tokens + at);
        by_batch_put_tokens(&b, "targets", r->targets + at);
        by_pass *pass = by_passes_get(passes, &b);
        if (!pass)
            return base_error_status();
        BY_TRY(by_pass_run(pass, &b));
        BY_TRY(by_pass_read(pass, by_io_output(by_pass_io(pass), "token_logps"), out + at));
    }
    return BY_OK;
}

/* Without a separate model, the reference is the policy without its adapter. */
static by_status read_reference(align_policy *p)
{
    by_adapter *own = by_model_adapter(p->model);
    if (!p->reference)
        by_model_use(p->model, NULL);
    by_status s = read_logps(p, p->ref_likelihood, p->ref_logps);
    by_model_use(p->model, own);
    return s;
}

/* ---- advantages ------------------------------------------------------------------------------------- */

/* Sums log p_old - log p_ref over each answer. */
static void sum_divergence(align_policy *p)
{
    const align_rollouts *r = &p->rollouts;
    for (int i = 0; i < r->rows; i++) {
        double sum = 0;
        for (int t = 0; t < r->width; t++) {
            const ptrdiff_t at = (ptrdiff_t)i * r->width + t;
            sum += r->mask[at] != 0 ? (double)p->old_logps[at] - (double)p->ref_logps[at] : 0;
        }
        p->row_kl[i] = (float)sum;
    }
}

static by_status find_advantages(align_policy *p)
{
    const align_rollouts *r = &p->rollouts;
    const by_policy_run *run = &p->spec.policy;
    const bool shapes = align_policy_needs_reference(p) && p->spec.method != BY_ALIGN_GRPO;
    if (shapes)
        sum_divergence(p);
    if (p->spec.method == BY_ALIGN_PPO)
        return align_critic_advise(p);
    double mean = 0;
    for (int i = 0; i < r->rows; i++) {
        p->shaped[i] = r->total[i] - (shapes ? (float)(p->beta * (double)p->row_kl[i]) : 0);
        mean += (double)p->shaped[i] / r->rows;
    }
    if (p->spec.method == BY_ALIGN_GRPO)
        by_group_advantages(p->shaped, r->rows, r->group,
                            run->loss == BY_GRPO_DR ? BY_SCALE_NONE : run->scale, p->advantages);
    else if (p->spec.method == BY_ALIGN_RLOO)
        by_leave_one_out(p->shaped, r->rows, r->group, run->normalize, p->advantages);
    for (int i = 0; p->spec.method == BY_ALIGN_REINFORCE && i < r->rows; i++)
        p->advantages[i] = (float)((double)p->shaped[i] - mean);
    return BY_OK;
}

/* ---- updates ------------------------------------------------------------------------------------------ */

void align_policy_gather(const align_policy *p, const float *from, const int *rows, int count, float *to)
{
    const int width = p->rollouts.width;
    for (int i = 0; i < count; i++)
        memcpy(to + (ptrdiff_t)i * width, from + (ptrdiff_t)rows[i] * width, (size_t)width * sizeof *to);
}

static by_batch make_batch(align_policy *p, const int *rows, int count)
{
    const align_rollouts *r = &p->rollouts;
    struct align_part *x = &p->part;
    const int64_t wide[] = {count, r->width}, narrow[] = {count};
    const bool by_token = p->spec.method == BY_ALIGN_PPO;
    for (int i = 0; i < count; i++) {
        const size_t bytes = (size_t)r->width * sizeof *x->tokens;
        memcpy(x->tokens + (ptrdiff_t)i * r->width, r->tokens + (ptrdiff_t)rows[i] * r->width, bytes);
        memcpy(x->targets + (ptrdiff_t)i * r->width, r->targets + (ptrdiff_t)rows[i] * r->width, bytes);
        if (!by_token)
            x->advantages[i] = p->advantages[rows[i]];
    }
    align_policy_gather(p, r->mask, rows, count, x->mask);
    by_batch b = by_batch_of(count, r->width, x->tokens);
    by_batch_put_tokens(&b, "targets", x->targets);
    if (by_token)
        align_policy_gather(p, p->token_advantages, rows, count, x->advantages);
    by_batch_put(&b, "advantages", BY_F32, by_token ? 2 : 1, by_token ? wide : narrow, x->advantages);
    if (align_policy_needs_old(p)) {
        align_policy_gather(p, p->old_logps, rows, count, x->old_logps);
        by_batch_put(&b, "old_logps", BY_F32, 2, wide, x->old_logps);
    }
    if (align_policy_needs_reference(p))
        align_policy_gather(p, p->ref_logps, rows, count, x->ref_logps);
    if (p->loss.beta != 0)
        by_batch_put(&b, "token_ref_logps", BY_F32, 2, wide, x->ref_logps);
    return b;
}

/* One update from rows order[0..count), computed in micro-batches. */
static by_status update(align_policy *p, const int *order, int count, double rate)
{
    const align_rollouts *r = &p->rollouts;
    const int parts = part_rows(p);
    double tokens = 0, loss, norm;
    for (int i = 0; i < count; i++)
        for (int t = 0; t < r->width; t++)
            tokens += r->mask[(ptrdiff_t)order[i] * r->width + t] != 0;
    for (int first = 0; first < count; first += parts) {
        const int n = BY_MIN(parts, count - first);
        const by_batch b = make_batch(p, order + first, n);
        by_trainer_share(p->trainer, share_of(p, n, count, tokens));
        BY_TRY(by_trainer_backward(p->trainer, &b, first == 0, NULL));
        BY_TRY(align_policy_see(p, n));
        if (p->spec.method == BY_ALIGN_PPO)
            BY_TRY(align_critic_learn(p, order + first, n, first == 0, (double)n / count));
    }
    BY_TRY(train_update(p->trainer, rate));
    if (p->spec.method == BY_ALIGN_PPO)
        BY_TRY(align_critic_update(p, rate));
    BY_TRY(by_trainer_loss(p->trainer, &loss));
    BY_TRY(by_trainer_norm(p->trainer, &norm));
    p->seen.policy_loss += loss;
    p->seen.norm += norm;
    p->seen.updates++;
    return BY_OK;
}

/* The order of the answers in one pass over them: shuffled if the pass has several updates. */
static void shuffle(align_policy *p, int64_t step, int pass)
{
    const int rows = p->rollouts.rows;
    const bool mixed = p->spec.policy.minibatches > 1;
    const uint64_t seed = base_philox_at(p->spec.seed, (uint64_t)step, 1 + (uint64_t)pass).v[0];
    for (int i = 0; i < rows; i++)
        p->order[i] = mixed ? (int)base_permute((uint64_t)i, (uint64_t)rows, seed) : i;
}

by_status align_policy_learn(align_policy *p, int64_t step, double rate)
{
    const by_policy_run *run = &p->spec.policy;
    const int rows = p->rollouts.rows, count = rows / run->minibatches;
    BY_TRY(reserve(p));
    BY_TRY(reserve_part(p, part_rows(p)));
    if (align_policy_needs_old(p))
        BY_TRY(read_logps(p, p->likelihood, p->old_logps));
    if (align_policy_needs_reference(p))
        BY_TRY(read_reference(p));
    BY_TRY(find_advantages(p));
    p->seen = (align_seen){.sum = {.low_min = 1}};
    for (int pass = 0; pass < run->updates; pass++) {
        shuffle(p, step, pass);
        for (int i = 0; i < run->minibatches; i++)
            BY_TRY(update(p, p->order + (ptrdiff_t)i * count, count, rate));
    }
    return BY_OK;
}
