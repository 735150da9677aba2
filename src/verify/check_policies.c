/* check_policies.c - losses of policy gradients (see check_align.h). */
#include <math.h>

#include "verify/check_align.h"

#include "base/json.h"

/* Prompts and answers side by side. Arrays of answers are (rows, cols); in whole rows, what belongs to token t of an answer stands at
 * position before + t, which predicts it. */
typedef struct rollouts {
    int rows, cols, prompt, width; /* width: of whole rows */
    verify_texts texts;
    by_batch batch;
} rollouts;

static int before(const rollouts *r)
{
    return r->prompt - 1;
}

/* Spreads an array of answers over whole rows. */
static float *widen(verify_align *a, const rollouts *r, const float *x)
{
    float *y = x ? verify_align_room(a, (size_t)r->rows * (size_t)r->width, sizeof *y) : NULL;
    for (int i = 0; y && i < r->rows * r->cols; i++)
        y[i / r->cols * r->width + before(r) + i % r->cols] = x[i];
    return y;
}

static float *narrow(verify_align *a, const rollouts *r, const float *x)
{
    float *y = x ? verify_align_room(a, (size_t)r->rows * (size_t)r->cols, sizeof *y) : NULL;
    for (int i = 0; y && i < r->rows * r->cols; i++)
        y[i] = x[i / r->cols * r->width + before(r) + i % r->cols];
    return y;
}

static void put_wide(rollouts *r, const char *name, const float *values)
{
    by_batch_put(&r->batch, name, BY_F32, 2, (int64_t[]){r->rows, r->width}, values);
}

/* One row after another: the prompt's columns, then the answer's. */
static int32_t *join(verify_align *a, const rollouts *r, const int32_t *prompt, const int32_t *answer)
{
    int32_t *y =
        prompt && answer ? verify_align_room(a, (size_t)r->rows * (size_t)r->width, sizeof *y) : NULL;
    for (int i = 0; y && i < r->rows * r->width; i++) {
        const int row = i / r->width, t = i % r->width;
        y[i] = t < r->prompt ? prompt[row * r->prompt + t] : answer[row * r->cols + t - r->prompt];
    }
    return y;
}

static by_status take_rollouts(verify_align *a, rollouts *r)
{
    const int32_t *prompt = verify_align_ids(a, "prompt_ids", &r->rows, &r->prompt);
    const int32_t *prompt_mask = verify_align_ids(a, "prompt_mask", NULL, NULL);
    const int32_t *answer = verify_align_ids(a, "completion_ids", NULL, &r->cols);
    const int32_t *answer_mask = verify_align_ids(a, "completion_mask", NULL, NULL);
    r->width = r->prompt + r->cols;
    if (!answer_mask || !prompt_mask)
        return base_error_status();
    int32_t *none = verify_align_room(a, (size_t)r->rows * (size_t)r->prompt, sizeof *none);
    r->texts = (verify_texts){.rows = r->rows,
                              .cols = r->width,
                              .tokens = join(a, r, prompt, answer),
                              .mask = join(a, r, prompt_mask, answer_mask),
                              .completion = join(a, r, none, answer_mask)};
    return r->texts.completion ? verify_align_batch(a, &r->texts, &r->batch) : base_error_status();
}

static by_status compare_metrics(verify_align *a, const char *variant, const by_policy_metrics *m)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {{"metric.kl", m->kl},
                {"metric.entropy", m->entropy},
                {"metric.clip_ratio.low_mean", m->low_mean},
                {"metric.clip_ratio.low_min", m->low_min},
                {"metric.clip_ratio.high_mean", m->high_mean},
                {"metric.clip_ratio.high_max", m->high_max},
                {"metric.clip_ratio.region_mean", m->region_mean},
                {"metric.cispo_clip_ratio", m->high_mean}};
    for (int i = 0; i < BY_COUNT(rows); i++)
        BY_TRY(verify_align_number_is(a, variant, rows[i].name, rows[i].value));
    return BY_OK;
}

/* 1 where whole rows have a token of an answer to predict. */
static float *mask_of(verify_align *a, const rollouts *r)
{
    float *mask = verify_align_room(a, (size_t)r->rows * (size_t)r->width, sizeof *mask);
    for (int i = 0; mask && i < r->rows * r->width; i++)
        mask[i] = r->texts.targets[i] >= 0;
    return mask;
}

/* Runs the loss of a variant; compares it, the metrics and the gradients. */
static by_status check_policy(verify_align *a, const char *variant, const rollouts *r,
                              const by_policy_spec *spec, by_policy_seen *seen)
{
    const bool gradients = verify_align_has_grads(a, variant);
    by_pass *p = verify_align_pass(a, a->model, &r->batch, by_policy_loss, spec, gradients);
    by_policy_metrics metrics;
    double loss = 0;
    by_status s = p ? verify_align_loss(a, p, &loss) : base_error_status();
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    seen->rows = r->rows;
    seen->cols = r->width;
    seen->logps = s == BY_OK ? verify_align_output(a, p, "token_logps") : NULL;
    seen->entropy = seen->logps ? verify_align_output(a, p, "entropy") : NULL;
    seen->mask = seen->entropy ? mask_of(a, r) : NULL;
    if (s == BY_OK && !seen->mask)
        s = base_error_status();
    if (s == BY_OK) {
        by_policy_measure(seen, spec, &metrics);
        s = compare_metrics(a, variant, &metrics);
    }
    if (s == BY_OK && gradients)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

/* ---- GRPO ------------------------------------------------------------------------------------- */

/* Log-probabilities, entropies and divergences of tokens, which need no variant. */
static by_status check_tokens(verify_align *a, const rollouts *r, const float *ref, double temperature)
{
    const by_likelihood_spec spec = {.temperature = temperature};
    by_pass *p = verify_align_pass(a, a->model, &r->batch, by_likelihood_loss, &spec, false);
    float *logps = p ? narrow(a, r, verify_align_output(a, p, "token_logps")) : NULL;
    float *entropy = logps ? narrow(a, r, verify_align_output(a, p, "entropy")) : NULL;
    float *mask = entropy ? narrow(a, r, mask_of(a, r)) : NULL;
    float *kl = verify_align_room(a, (size_t)r->rows * (size_t)r->cols, sizeof *kl);
    by_pass_free(p);
    if (!mask || !kl)
        return base_error_status();
    for (int i = 0; i < r->rows * r->cols; i++) {
        const double d = (double)ref[i] - (double)logps[i];
        kl[i] = mask[i] != 0 ? (float)(exp(d) - d - 1) : 0;
        entropy[i] *= mask[i];
    }
    BY_TRY(verify_align_values(a, "output", "per_token_logps", logps));
    BY_TRY(verify_align_values(a, "output", "per_token_entropy", entropy));
    return verify_align_values(a, "output", "per_token_kl", kl);
}

static const struct {
    const char *name;
    by_reward_scale scale;
} scales[] = {{"group", BY_SCALE_GROUP}, {"batch", BY_SCALE_BATCH}, {"none", BY_SCALE_NONE}};

static by_reward_scale scale_of(const char *name)
{
    for (int i = 0; i < BY_COUNT(scales); i++)
        if (strcmp(scales[i].name, name) == 0)
            return scales[i].scale;
    return BY_SCALE_GROUP;
}

static by_policy_spec grpo_spec(const verify_align *a, const char *variant, const rollouts *r)
{
    const char *type = verify_align_word(a, variant, "loss_type");
    double tokens = 0;
    for (int i = 0; i < r->rows * r->width; i++)
        tokens += r->texts.targets[i] >= 0;
    const bool dr = strcmp(type, "dr_grpo") == 0;
    const bool soft = strcmp(type, "sapo") == 0;
    return (by_policy_spec){.mean = strcmp(type, "grpo") == 0 || soft ? BY_MEAN_SEQUENCE
                                    : strcmp(type, "bnpo") == 0       ? BY_MEAN_TOKEN
                                                                      : BY_MEAN_GIVEN,
                            .divisor = dr ? r->rows * verify_align_number(a, "", "max_completion_length", 0)
                                          : tokens,
                            .term = soft                         ? BY_TERM_SOFT
                                    : strcmp(type, "cispo") == 0 ? BY_TERM_WEIGHTED
                                                                 : BY_TERM_CLIPPED,
                            .delta = verify_align_number(a, variant, "delta", 0),
                            .top_entropy = verify_align_number(a, variant, "top_entropy_quantile", 1),
                            .by_sequence = strcmp(verify_align_word(a, variant, "level"), "sequence") == 0,
                            .epsilon_low = verify_align_number(a, variant, "epsilon_low", 0),
                            .epsilon_high = verify_align_number(a, variant, "epsilon_high", 0),
                            .beta = verify_align_number(a, variant, "beta", 0),
                            .temperature = verify_align_number(a, "", "temperature", 1)};
}

by_status verify_grpo(verify_align *a)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants"), *v;
    const int group = (int)verify_align_number(a, "", "num_generations", 1);
    rollouts r = {0};
    BY_TRY(take_rollouts(a, &r));
    const float *rewards = verify_align_floats(a, "rewards"),
                *ref = verify_align_floats(a, "ref_per_token_logps");
    const float *old = widen(a, &r, verify_align_floats(a, "old_per_token_logps")),
                *wide_ref = widen(a, &r, ref);
    float *advantages = verify_align_room(a, (size_t)r.rows, sizeof *advantages);
    if (!rewards || !old || !wide_ref || !advantages)
        return base_error_status();
    BY_TRY(check_tokens(a, &r, ref, verify_align_number(a, "", "temperature", 1)));
    for (int i = 0; i < BY_COUNT(scales); i++) {
        char name[40];
        base_format(name, sizeof name, "advantages.%s", scales[i].name);
        by_group_advantages(rewards, r.rows, group, scales[i].scale, advantages);
        BY_TRY(verify_align_values(a, "output", name, advantages));
    }
    put_wide(&r, "token_ref_logps", wide_ref);
    const int mine = a->n_arrays;
    cJSON_ArrayForEach(v, variants)
    {
        const by_policy_spec spec = grpo_spec(a, v->string, &r);
        const bool first = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(v, "old"));
        by_group_advantages(rewards, r.rows, group, scale_of(verify_align_word(a, v->string, "scale")),
                            advantages);
        by_batch_put(&r.batch, "advantages", BY_F32, 1, (int64_t[]){r.rows}, advantages);
        put_wide(&r, "old_logps", first ? NULL : old);
        BY_TRY(check_policy(a, v->string, &r, &spec,
                            &(by_policy_seen){.old_logps = first ? NULL : old,
                                              .ref_logps = wide_ref,
                                              .advantages = advantages}));
        verify_align_drop(a, mine);
    }
    return BY_OK;
}

/* ---- RLOO ------------------------------------------------------------------------------------- */

by_status verify_rloo(verify_align *a)
{
    const int group = (int)verify_align_number(a, "", "num_generations", 1);
    const double beta = verify_align_number(a, "", "beta", 0);
    const by_policy_spec spec = {.whole_sequence = true,
                                 .epsilon_low = verify_align_number(a, "", "epsilon_low", 0),
                                 .epsilon_high = verify_align_number(a, "", "epsilon_high", 0),
                                 .temperature = verify_align_number(a, "", "temperature", 1)};
    rollouts r = {0};
    BY_TRY(take_rollouts(a, &r));
    const float *scores = verify_align_floats(a, "scores"),
                *old = verify_align_floats(a, "old_per_token_logps"),
                *ref = verify_align_floats(a, "ref_per_token_logps"), *mask = narrow(a, &r, mask_of(a, &r));
    float *rows = verify_align_room(a, 4 * (size_t)r.rows, sizeof *rows);
    if (!scores || !old || !ref || !mask || !rows)
        return base_error_status();
    float *kl = rows, *sums = rows + r.rows, *rewards = rows + 2 * r.rows, *advantages = rows + 3 * r.rows;
    for (int i = 0; i < r.rows * r.cols; i++) {
        kl[i / r.cols] += mask[i] != 0 ? old[i] - ref[i] : 0;
        sums[i / r.cols] += mask[i] != 0 ? old[i] : 0;
    }
    for (int i = 0; i < r.rows; i++)
        rewards[i] = (float)((double)scores[i] - beta * (double)kl[i]);
    BY_TRY(verify_align_values(a, "output", "kl", kl));
    BY_TRY(verify_align_values(a, "output", "old_logps", sums));
    BY_TRY(verify_align_values(a, "output", "rewards", rewards));
    const float *wide_old = widen(a, &r, old);
    for (int normalized = 0; normalized < 2; normalized++) {
        by_leave_one_out(rewards, r.rows, group, normalized, advantages);
        BY_TRY(verify_align_values(a, "output", normalized ? "advantages_normalized" : "advantages",
                                   advantages));
        put_wide(&r, "old_logps", wide_old);
        by_batch_put(&r.batch, "advantages", BY_F32, 1, (int64_t[]){r.rows}, advantages);
        BY_TRY(check_policy(a, normalized ? "normalized" : "plain", &r, &spec,
                            &(by_policy_seen){.old_logps = wide_old, .advantages = advantages}));
    }
    return BY_OK;
}

/* ---- PPO -------------------------------------------------------------------------------------- */

typedef struct ppo {
    rollouts r;
    int32_t *positions, *pick;
    const int32_t *last;
    const float *old_logps, *ref_logps, *old_values, *scores;
    float *mask, *mask1; /* (rows, cols): tokens that are there, and one more */
} ppo;

/* Positions skip what is masked; the answer of a row ends after token `last`. */
static by_status take_ppo(verify_align *a, ppo *p)
{
    rollouts *r = &p->r;
    const int pad = (int)verify_align_number(a, "", "pad_token_id", 0);
    int32_t *tokens = verify_align_ids(a, "query_responses", &r->rows, &r->width);
    r->prompt = (int)verify_align_number(a, "", "context_length", 0);
    r->cols = r->width - r->prompt;
    p->last = verify_align_ids(a, "sequence_lengths", NULL, NULL);
    p->old_logps = verify_align_floats(a, "old_logprobs");
    p->ref_logps = verify_align_floats(a, "ref_logprobs");
    p->old_values = verify_align_floats(a, "old_values");
    p->scores = verify_align_floats(a, "scores");
    const size_t all = (size_t)r->rows * (size_t)r->width, answers = (size_t)r->rows * (size_t)r->cols;
    int32_t *mask = verify_align_room(a, all, sizeof *mask),
            *completion = verify_align_room(a, all, sizeof *mask);
    p->positions = verify_align_room(a, all, sizeof *p->positions);
    p->pick = verify_align_room(a, answers, sizeof *p->pick);
    p->mask = verify_align_room(a, answers, sizeof *p->mask);
    p->mask1 = verify_align_room(a, answers, sizeof *p->mask1);
    if (!tokens || !p->scores || !mask || !completion || !p->positions || !p->pick || !p->mask || !p->mask1)
        return base_error_status();
    for (int i = 0, seen = 0; i < r->rows * r->width; i++) {
        const int row = i / r->width, t = i % r->width;
        seen = t ? seen : 0;
        mask[i] = tokens[i] != pad;
        p->positions[i] = seen;
        seen += mask[i];
        completion[i] = t >= r->prompt && t - r->prompt <= p->last[row];
    }
    for (int i = 0; i < r->rows * r->cols; i++) {
        const int row = i / r->cols, t = i % r->cols;
        p->pick[i] = row * r->width + before(r) + t;
        p->mask[i] = t <= p->last[row];
        p->mask1[i] = t <= p->last[row] + 1;
    }
    r->texts = (verify_texts){
        .rows = r->rows, .cols = r->width, .tokens = tokens, .mask = mask, .completion = completion};
    BY_TRY(verify_align_batch(a, &r->texts, &r->batch));
    by_batch_put_tokens(&r->batch, "positions", p->positions);
    return BY_OK;
}

/* What is computed once: masks, log-probabilities (1 where there is no token) and values (0 there). */
static by_status check_rollout(verify_align *a, const ppo *p, const float *logps, const float *values)
{
    const int n = p->r.rows * p->r.cols;
    float *x = verify_align_room(a, 4 * (size_t)n, sizeof *x);
    if (!x || !logps || !values)
        return base_error_status();
    for (int i = 0; i < n; i++) {
        x[i] = p->mask[i] == 0;
        x[n + i] = p->mask1[i] == 0;
        x[2 * n + i] = p->mask[i] != 0 ? logps[i] : 1;
        x[3 * n + i] = p->mask1[i] != 0 ? values[i] : 0;
    }
    BY_TRY(verify_align_values(a, "output", "padding_mask", x));
    BY_TRY(verify_align_values(a, "output", "padding_mask_p1", x + n));
    BY_TRY(verify_align_values(a, "output", "logprobs", x + 2 * n));
    return verify_align_values(a, "output", "values", x + 3 * n);
}

/* The entropies of all positions, with those after the end, and the measures of the policy. */
static by_status check_measures(verify_align *a, const char *variant, const ppo *p,
                                const by_policy_spec *spec, const float *logps, const float *entropy,
                                const float *advantages)
{
    const int n = p->r.rows * p->r.cols;
    by_policy_metrics m;
    by_policy_measure(&(by_policy_seen){.rows = p->r.rows,
                                        .cols = p->r.cols,
                                        .logps = logps,
                                        .old_logps = p->old_logps,
                                        .entropy = entropy,
                                        .mask = p->mask,
                                        .advantages = advantages,
                                        .by_token = true},
                      spec, &m);
    double mean = 0, tokens = 0;
    for (int i = 0; i < n; i++) {
        mean += (double)entropy[i] / n;
        tokens += p->mask[i] != 0;
    }
    BY_TRY(verify_align_values(a, variant, "entropy", entropy));
    BY_TRY(verify_align_number_is(a, variant, "entropy_mean", mean));
    BY_TRY(verify_align_number_is(a, variant, "entropy_masked_mean", m.entropy));
    BY_TRY(verify_align_number_is(a, variant, "approxkl",
                                  m.approx_kl * tokens / n)); /* a mean over padding too */
    return verify_align_number_is(a, variant, "policy_clipfrac", m.region_mean);
}

static by_status check_gae(verify_align *a, const char *variant, const ppo *p, const by_gae *g)
{
    const bool third = strcmp(variant, "k3_whiten") == 0;
    const by_rollout rollout = {.rows = p->r.rows,
                                .cols = p->r.cols,
                                .last = p->last,
                                .logps = p->old_logps,
                                .ref_logps = p->ref_logps,
                                .values = p->old_values,
                                .scores = p->scores};
    const by_gae_spec spec = {.kl = verify_align_number(a, "", "kl_coef", 0),
                              .third = third,
                              .whiten_rewards = third,
                              .gamma = verify_align_number(a, "", "gamma", 0),
                              .lambda = verify_align_number(a, "", "lam", 0)};
    BY_TRY(by_gae_compute(&rollout, &spec, g));
    BY_TRY(verify_align_values(a, variant, "kl", g->kl));
    BY_TRY(verify_align_values(a, variant, "rewards_raw", g->rewards_raw));
    BY_TRY(verify_align_values(a, variant, "rewards", g->rewards));
    BY_TRY(verify_align_values(a, variant, "advantages_raw", g->advantages_raw));
    BY_TRY(verify_align_values(a, variant, "advantages", g->advantages));
    return verify_align_values(a, variant, "returns", g->returns);
}

static by_status check_critic(verify_align *a, const char *variant, const ppo *p, const float *returns,
                              double weight, double *loss, float **values)
{
    const int n = p->r.rows * p->r.cols;
    const by_value_spec spec = {verify_align_number(a, "", "cliprange_value", 0)};
    const int64_t shape[] = {p->r.rows, p->r.cols};
    by_batch b = p->r.batch;
    by_batch_put(&b, "targets", BY_I32, 0, NULL, NULL);
    by_batch_put_ids(&b, "pick", n, p->pick);
    by_batch_put(&b, "old_values", BY_F32, 2, shape, p->old_values);
    by_batch_put(&b, "returns", BY_F32, 2, shape, returns);
    by_batch_put(&b, "value_mask", BY_F32, 2, shape, p->mask1);
    union {
        const void *from;
        void *to;
    } user = {&spec};
    by_pass *pass = by_pass_new(
        a->other, &b, &(by_pass_spec){.grads = BY_GRAD_STORE, .loss = by_value_loss, .loss_user = user.to});
    if (pass)
        by_pass_scale(pass, weight);
    by_status s = pass ? by_pass_run(pass, &b) : base_error_status();
    if (s == BY_OK)
        s = verify_align_loss(a, pass, loss);
    *values = s == BY_OK ? verify_align_output(a, pass, "values") : NULL;
    by_pass_free(pass);
    BY_TRY(*values ? verify_align_number_is(a, variant, "value_loss", *loss) : base_error_status());
    return verify_align_number_is(a, variant, "value_clipfrac",
                                  by_value_clipped(*values, p->old_values, returns, p->mask1, n, &spec));
}

static by_status check_ppo(verify_align *a, const char *variant, ppo *p)
{
    const size_t n = (size_t)p->r.rows * (size_t)p->r.cols;
    const double weight = verify_align_number(a, "", "vf_coef", 0),
                 clip = verify_align_number(a, "", "cliprange", 0);
    const by_policy_spec spec = {
        .mean = BY_MEAN_TOKEN, .epsilon_low = clip, .epsilon_high = clip, .temperature = 0.7 + 1e-7};
    float *g = verify_align_room(a, 6 * n, sizeof *g), *values = NULL;
    if (!g)
        return BY_ERR_MEMORY;
    const by_gae gae = {g, g + n, g + 2 * n, g + 3 * n, g + 4 * n, g + 5 * n};
    BY_TRY(check_gae(a, variant, p, &gae));
    put_wide(&p->r, "advantages", widen(a, &p->r, gae.advantages));
    put_wide(&p->r, "old_logps", widen(a, &p->r, p->old_logps));
    by_pass *pass = verify_align_pass(a, a->model, &p->r.batch, by_policy_loss, &spec, true);
    double policy = 0, critic = 0;
    by_status s = pass ? verify_align_loss(a, pass, &policy) : base_error_status();
    float *logps = s == BY_OK ? narrow(a, &p->r, verify_align_output(a, pass, "token_logps")) : NULL;
    float *entropy = logps ? narrow(a, &p->r, verify_align_output(a, pass, "entropy")) : NULL;
    by_pass_free(pass);
    BY_TRY(entropy ? verify_align_number_is(a, variant, "policy_loss", policy) : base_error_status());
    BY_TRY(check_measures(a, variant, p, &spec, logps, entropy, gae.advantages));
    BY_TRY(check_critic(a, variant, p, gae.returns, weight, &critic, &values));
    BY_TRY(verify_align_number_is(a, variant, "loss", policy + weight * critic));
    if (!verify_align_has_grads(a, variant))
        return BY_OK;
    BY_TRY(check_rollout(a, p, logps, values));
    BY_TRY(verify_align_grads(a, variant, "policy.", a->model));
    return verify_align_grads(a, variant, "value.", a->other);
}

by_status verify_ppo(verify_align *a)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants"), *v;
    ppo p = {0};
    BY_TRY(take_ppo(a, &p));
    const int mine = a->n_arrays;
    cJSON_ArrayForEach(v, variants)
    {
        BY_TRY(check_ppo(a, v->string, &p));
        verify_align_drop(a, mine);
    }
    return BY_OK;
}
