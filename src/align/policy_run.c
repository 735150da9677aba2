/* policy_run.c - reinforcement learning for text as a client of the loop. A step samples answers to its
 * prompts, rewards them, and updates the policy (banyan/align_policy.h). */
#include "align/policy_run.h"

#include <math.h>

#include "banyan/adapter.h"
#include "base/file.h"
#include "base/json.h"
#include "model/adapter.h"
#include "train/defaults.h"

/* ---- models ------------------------------------------------------------------------------------- */

static by_status check_model(const by_model *m)
{
    if (by_model_task(m) != BY_TASK_LM || by_model_is_pair(m) || by_model_pads_left(m) || by_model_rereads(m))
        return base_fail(BY_ERR_UNSUPPORTED, "%s does not write answers from left to right; a decoder does",
                         base_a(by_model_class(m)).text);
    return BY_OK;
}

static by_status open_policy(align_policy *p, const char *dir, bool fresh)
{
    by_model_spec spec = align_model_spec(&p->spec);
    spec.adapter = fresh ? spec.adapter : NULL; /* otherwise it is in the checkpoint */
    p->model = by_model_open(p->device, dir, &spec);
    if (!p->model)
        return base_error_status();
    by_model_set_dropout(p->model, BY_MAX(p->spec.dropout, 0));
    return check_model(p->model);
}

/* A new adapter is the identity, so the reference is the model without it. */
static bool is_own_reference(const align_policy *p)
{
    return !p->spec.reference && p->spec.adapter && !model_adapter_is_folder(p->spec.model);
}

static by_status open_reference(align_policy *p)
{
    const char *dir = p->spec.reference ? p->spec.reference : p->spec.model;
    const by_model_spec spec = {.dtype = p->spec.dtype, .weights = p->spec.weights};
    if (!align_policy_needs_reference(p) || is_own_reference(p))
        return BY_OK;
    p->reference = by_model_open(p->device, dir, &spec);
    if (!p->reference)
        return base_error_status();
    if (by_model_vocab(p->reference) != by_model_vocab(p->model))
        return base_fail(BY_ERR_ARGUMENT, "the reference %s has %d tokens, the policy %d", dir,
                         by_model_vocab(p->reference), by_model_vocab(p->model));
    return check_model(p->reference);
}

/* ---- checkpoints -------------------------------------------------------------------------------- */

#define STATE "policy_state.json"

static by_status write_state(const align_policy *p, const char *dir)
{
    char *path = base_path_join(dir, STATE);
    base_buf text = {0};
    base_buf_printf(&text, "{\"beta\": \"%a\"}\n", p->beta);
    by_status s = path && !text.failed ? base_file_write(path, text.data, text.size) : BY_ERR_MEMORY;
    base_buf_free(&text);
    base_free(path);
    return s;
}

static by_status read_state(align_policy *p, const char *dir)
{
    char *path = base_path_join(dir, STATE);
    size_t size;
    char *text = path ? base_file_read(path, 1 << 16, &size) : NULL;
    cJSON *json = text ? base_json_parse(text, size, path) : NULL;
    const char *beta = NULL;
    by_status s = json ? base_json_string(json, "beta", NULL, &beta) : base_error_status();
    if (s == BY_OK && beta && p->spec.policy.kl_target > 0)
        p->beta = base_strtod(beta, NULL);
    cJSON_Delete(json);
    base_free(text);
    base_free(path);
    return s;
}

static by_status save(void *self, const char *dir)
{
    const align_policy *p = self;
    BY_TRY(train_model_save(p->model, p->source.tokenizer, dir));
    BY_TRY(write_state(p, dir));
    if (p->spec.method != BY_ALIGN_PPO)
        return BY_OK;
    char *critic = base_path_join(dir, "critic");
    by_status s = critic ? train_model_save(p->critic.model, NULL, critic) : BY_ERR_MEMORY;
    base_free(critic);
    return s;
}

static by_status load(void *self, const char *dir)
{
    align_policy *p = self;
    BY_TRY(open_policy(p, dir, false));
    BY_TRY(train_model_load(p->model, dir));
    BY_TRY(read_state(p, dir));
    return p->spec.method == BY_ALIGN_PPO ? align_critic_open(p, dir) : BY_OK;
}

static by_status open_fresh(align_policy *p)
{
    BY_TRY(open_policy(p, p->spec.model, true));
    return p->spec.method == BY_ALIGN_PPO ? align_critic_open(p, NULL) : BY_OK;
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* Prompt i of a step, from a permutation that differs from epoch to epoch. */
static const align_prompt *prompt_at(const align_policy *p, int64_t step, int i)
{
    const int per_step = p->spec.batch * p->spec.accumulate;
    const uint64_t n = (uint64_t)p->train_prompts, at = (uint64_t)step * (uint64_t)per_step + (uint64_t)i;
    return &p->prompts.list[base_permute(at % n, n, p->spec.seed + at / n)];
}

/* The seed of a step. Steps and evaluations have different seeds. */
static uint64_t seed_of(const align_policy *p, int64_t step, bool trial)
{
    const base_philox x = base_philox_at(p->spec.seed, trial ? UINT64_MAX : (uint64_t)step, 0);
    return (uint64_t)x.v[0] << 32 | x.v[1];
}

static align_sampling sampling_of(const align_policy *p, int64_t step, bool trial)
{
    return (align_sampling){.model = p->model,
                            .tokenizer = p->source.tokenizer,
                            .run = &p->spec.policy,
                            .max_new_tokens = p->max_new_tokens,
                            .greedy = trial && p->spec.policy.greedy_eval,
                            .seed = seed_of(p, step, trial),
                            .cancelled = p->spec.cancelled,
                            .user = p->spec.user};
}

static by_status sample(align_policy *p, int64_t step)
{
    const int count = p->spec.batch * p->spec.accumulate;
    const align_prompt **prompts = base_alloc_zero((size_t)count, sizeof *prompts);
    const align_sampling how = sampling_of(p, step, false);
    by_status s = prompts ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++)
        prompts[i] = prompt_at(p, step, i);
    if (s == BY_OK)
        s = align_rollouts_sample(&p->rollouts, p->generator, prompts, &how);
    base_free(prompts);
    return s;
}

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    align_policy *p = self;
    align_rollouts *r = &p->rollouts;
    const double begin = base_seconds();
    BY_TRY(sample(p, step));
    const double sampled = base_seconds();
    BY_TRY(align_rewards_score(&p->rewards, r->judged, r->rows, r->each, r->total));
    const double judged = base_seconds();
    BY_TRY(align_policy_learn(p, step, rate));
    p->sampled = sampled - begin;
    p->judged = judged - sampled;
    p->learned = base_seconds() - judged;
    p->last_loss = p->seen.policy_loss / BY_MAX(p->seen.updates, 1) +
                   p->spec.policy.value_weight * p->seen.value_loss / BY_MAX(p->seen.updates, 1);
    p->last_norm = p->seen.norm / BY_MAX(p->seen.updates, 1);
    work->tokens += (double)r->rows * r->width;
    return align_samples_write(p, step + 1);
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    const align_policy *p = self;
    for (int i = 0; i < count; i++) { /* count is 1 for this client */
        losses[i] = p->last_loss;
        norms[i] = p->last_norm;
    }
    return BY_OK;
}

static void measure(void *self, by_report *r)
{
    align_policy *p = self;
    align_policy_measure(p);
    r->measures = p->measures.list;
    r->n_measures = p->measures.count;
}

/* ---- evaluation ----------------------------------------------------------------------------------- */

static const align_prompt *held_out(const align_policy *p, int i)
{
    return p->eval_prompts.count ? &p->eval_prompts.list[i] : &p->prompts.list[p->train_prompts + i];
}

/* Samples one answer to each of some held-out prompts. Adds up rewards and lengths. */
static by_status try_some(align_policy *p, int first, int count, double *reward, double *length)
{
    align_rollouts *r = &p->trials;
    const align_prompt **prompts = base_alloc_zero((size_t)count, sizeof *prompts);
    align_sampling how = sampling_of(p, 0, true);
    by_status s = prompts ? BY_OK : BY_ERR_MEMORY;
    how.seed += (uint64_t)first;
    r->rows = count;
    for (int i = 0; s == BY_OK && i < count; i++)
        prompts[i] = held_out(p, first + i);
    if (s == BY_OK)
        s = align_rollouts_sample(r, p->generator, prompts, &how);
    if (s == BY_OK)
        s = align_rewards_score(&p->rewards, r->judged, r->rows, r->each, r->total);
    for (int i = 0; s == BY_OK && i < count; i++) {
        *reward += (double)r->total[i];
        *length += r->count[i];
    }
    base_free(prompts);
    return s;
}

static by_status evaluate(void *self, by_report *report, double *score)
{
    align_policy *p = self;
    double reward = 0, length = 0;
    for (int first = 0; first < p->eval_count; first += p->trials.capacity_rows)
        BY_TRY(try_some(p, first, BY_MIN(p->trials.capacity_rows, p->eval_count - first), &reward, &length));
    p->evaluation[0] = (by_metric){"reward", reward / p->eval_count};
    p->evaluation[1] = (by_metric){"completions/mean_length", length / p->eval_count};
    p->n_evaluation = 2;
    report->metrics = p->evaluation;
    report->n_metrics = p->n_evaluation;
    *score = reward / p->eval_count;
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    const align_policy *p = self;
    train_log_title(out, p->model, by_align_name(p->spec.method));
}

static const train_client client = {step, read_losses,         evaluate, save,
                                    load, align_policy_record, title,    measure};

/* ---- set-up ------------------------------------------------------------------------------------- */

static by_status check_terms(const by_align_spec *s)
{
    const by_policy_run *run = &s->policy;
    if (run->delta != 0 && !(run->delta > 1 + run->epsilon_high && isfinite(run->delta)))
        return base_fail(BY_ERR_ARGUMENT, "delta is %g; it must be above 1 + epsilon_high, %g", run->delta,
                         1 + run->epsilon_high);
    if (!(run->top_entropy > 0 && run->top_entropy <= 1))
        return base_fail(BY_ERR_ARGUMENT, "top_entropy is %g; it must be above 0 and at most 1",
                         run->top_entropy);
    if ((run->delta != 0 || run->top_entropy != 1) && s->method != BY_ALIGN_GRPO)
        return base_fail(BY_ERR_ARGUMENT, "delta and top_entropy are only for GRPO");
    if (run->normalize && s->method != BY_ALIGN_RLOO)
        return base_fail(BY_ERR_ARGUMENT, "normalized advantages are for RLOO; GRPO has scale");
    return BY_OK;
}

static by_status check_spec(const by_align_spec *s)
{
    const by_policy_run *run = &s->policy;
    const bool groups = s->method == BY_ALIGN_GRPO || s->method == BY_ALIGN_RLOO;
    BY_TRY(train_check_weights(s->weights, s->adapter || s->freeze, s->model));
    if (run->generations < 1 || (groups && run->generations < 2))
        return base_fail(BY_ERR_ARGUMENT,
                         "%s compares the answers to a prompt, so it needs 2 or more generations, not %d",
                         by_align_name(s->method), run->generations);
    if (run->updates < 1 || run->minibatches < 1 || run->max_new_tokens < 0)
        return base_fail(BY_ERR_ARGUMENT, "updates, minibatches and max_new_tokens must be at least 1");
    const int64_t rows = (int64_t)s->batch * s->accumulate * run->generations;
    if (rows > 1 << 20 || rows % run->minibatches != 0)
        return base_fail(BY_ERR_ARGUMENT, "the %lld answers of a step cannot be split into %d minibatches",
                         (long long)rows, run->minibatches);
    if (!(run->temperature > 0) || !isfinite(run->temperature))
        return base_fail(BY_ERR_ARGUMENT, "temperature is %g; it must be above 0", run->temperature);
    if (run->mask_truncated && s->method == BY_ALIGN_PPO)
        return base_fail(BY_ERR_ARGUMENT,
                         "PPO cannot mask truncated answers; use a penalty for a missing end");
    if (run->kl_target > 0 && s->method != BY_ALIGN_PPO)
        return base_fail(BY_ERR_ARGUMENT, "only PPO adapts beta to a target divergence");
    return check_terms(s);
}

/* Fits prompt and answer into the context. */
static by_status plan_lengths(align_policy *p)
{
    const int context = by_model_context(p->model), asked = p->spec.policy.max_new_tokens;
    const int usual = p->spec.method == BY_ALIGN_PPO ? 53 : 512;
    p->capacity = p->spec.limit > 0 ? BY_MIN(p->spec.limit, context) : context;
    p->max_new_tokens = asked ? asked : BY_MIN(usual, BY_MAX(p->capacity / 2, 1));
    if (p->max_new_tokens >= p->capacity)
        return base_fail(BY_ERR_ARGUMENT,
                         "a context of %d tokens has no room for a prompt and an answer of %d", p->capacity,
                         p->max_new_tokens);
    return BY_OK;
}

/* Holds out the last prompts of a random order, which is the same in every run. */
static by_status hold_out(align_policy *p)
{
    align_prompts *x = &p->prompts;
    align_prompt *mixed = base_alloc_zero((size_t)x->count, sizeof *mixed);
    if (!mixed)
        return BY_ERR_MEMORY;
    for (int i = 0; i < x->count; i++)
        mixed[i] = x->list[base_permute((uint64_t)i, (uint64_t)x->count, 0)];
    base_free(x->list);
    x->list = mixed;
    x->capacity = x->count;
    p->eval_count = (int)ceil(p->spec.eval_fraction * x->count);
    p->train_prompts = x->count - p->eval_count;
    return p->train_prompts > 0
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "%s: of %d prompts, %d are held out and none is left",
                           p->spec.data, x->count, p->eval_count);
}

static by_status open_prompts(align_policy *p)
{
    const by_align_spec *s = &p->spec;
    BY_TRY(align_source_open(&p->source, s));
    const align_prompts_spec spec = {.tokenizer = p->source.tokenizer,
                                     .chat = p->source.chat,
                                     .limit = p->capacity - p->max_new_tokens,
                                     .start = by_model_eos(p->model)};
    BY_TRY(align_prompts_open(&p->prompts, s->data, &spec));
    p->train_prompts = p->prompts.count;
    if (s->eval_data) {
        BY_TRY(align_prompts_open(&p->eval_prompts, s->eval_data, &spec));
        p->eval_count = p->eval_prompts.count;
        return BY_OK;
    }
    return s->eval_fraction > 0 ? hold_out(p) : BY_OK;
}

static by_status fill_defaults(align_policy *p)
{
    by_align_spec *s = &p->spec;
    const int64_t per_step = (int64_t)s->batch * s->accumulate;
    const double usual = s->method == BY_ALIGN_PPO ? 3e-6 : 1e-6;
    p->epoch_steps = (p->train_prompts + per_step - 1) / per_step;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)ceil((s->epochs > 0 ? s->epochs : 3) * (double)p->epoch_steps), 1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&p->loop, s->steps));
    if (s->schedule.rate < 0)
        s->schedule.rate = usual * train_default_tuning_rate(by_model_width(p->model)) / 3e-5 *
                           train_default_adapter_factor(p->model);
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)p->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = BY_MAX(BY_MIN(p->epoch_steps, s->steps / 10), 1);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    return BY_OK;
}

static by_status open_rewards(align_policy *p)
{
    const by_policy_run *run = &p->spec.policy;
    return align_rewards_open(&p->rewards, run->rewards, run->reward_count,
                              &(align_court){.device = p->device,
                                             .judging = &p->spec.policy.judging,
                                             .cancelled = p->spec.cancelled,
                                             .user = p->spec.user});
}

static by_status make_room(align_policy *p)
{
    const int rows = p->spec.batch * p->spec.accumulate * p->spec.policy.generations;
    const size_t n = (size_t)rows;
    BY_TRY(align_rollouts_init(&p->rollouts, rows, p->spec.policy.generations, p->rewards.count));
    BY_TRY(align_rollouts_init(&p->trials, rows, 1, p->rewards.count));
    p->row_kl = base_alloc_zero(n, sizeof *p->row_kl);
    p->shaped = base_alloc_zero(n, sizeof *p->shaped);
    p->advantages = base_alloc_zero(n, sizeof *p->advantages);
    p->order = base_alloc_zero(n, sizeof *p->order);
    if (!p->row_kl || !p->shaped || !p->advantages || !p->order)
        return BY_ERR_MEMORY;
    const int longest = BY_MAX(p->prompts.longest, p->eval_prompts.longest);
    p->generator = by_generator_new(
        p->model, &(by_generator_spec){.batch = rows, .capacity = longest + p->max_new_tokens});
    return p->generator ? BY_OK : base_error_status();
}

/* Passes for log-probabilities share their activations. */
static by_passes *spoken_passes(align_policy *p, by_model *m)
{
    return by_passes_new(
        m,
        &(by_pass_spec){
            .loss_alone = true, .memory = &p->memory, .loss = by_likelihood_loss, .loss_user = &p->spoken},
        0);
}

static by_status make_learners(align_policy *p)
{
    const by_align_spec *s = &p->spec;
    const int split = (s->accumulate + s->policy.minibatches - 1) / s->policy.minibatches;
    align_policy_choose_loss(p);
    p->trainer = by_trainer_new(p->model, &(by_trainer_spec){.accumulate = split,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed,
                                                             .many_shapes = true,
                                                             .loss = by_policy_loss,
                                                             .loss_user = &p->loss});
    p->likelihood = p->trainer ? spoken_passes(p, p->model) : NULL;
    p->ref_likelihood = p->likelihood ? spoken_passes(p, p->reference ? p->reference : p->model) : NULL;
    if (!p->ref_likelihood)
        return base_error_status();
    by_trainer_set_steps(p->trainer, p->loop.state.step * align_policy_updates(p));
    return s->method == BY_ALIGN_PPO ? align_critic_plan(p) : BY_OK;
}

static by_status open_folder(align_policy *p)
{
    const by_align_spec *s = &p->spec;
    return train_loop_open(&p->loop, &client, p,
                           &(train_folder_use){.out = s->out,
                                               .overwrite = s->overwrite,
                                               .leaves_model = true,
                                               .model = s->model,
                                               .inputs = {{(const char *const[]){s->data, s->eval_data}, 2}},
                                               .report = s->report,
                                               .user = s->user});
}

static by_status set_up(align_policy *p)
{
    const by_align_spec *s = &p->spec;
    BY_TRY(check_spec(s));
    BY_TRY(open_rewards(p));
    BY_TRY(open_folder(p));
    BY_TRY(align_check_method(&p->loop, s->method));
    BY_TRY(p->loop.last ? train_loop_load(&p->loop) : open_fresh(p));
    BY_TRY(open_reference(p));
    BY_TRY(plan_lengths(p));
    BY_TRY(open_prompts(p));
    BY_TRY(fill_defaults(p));
    BY_TRY(make_room(p));
    BY_TRY(train_loop_check(&p->loop));
    BY_TRY(make_learners(p));
    BY_TRY(train_loop_begin(&p->loop, &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = p->eval_count > 0,
                                                         .device = p->device,
                                                         .loss_unit = by_align_loss_unit(s->method)}));
    return align_samples_open(p);
}

static void tear_down(align_policy *p)
{
    float *const floats[] = {p->old_logps,       p->ref_logps,  p->token_advantages, p->row_kl,
                             p->shaped,          p->advantages, p->part.old_logps,   p->part.ref_logps,
                             p->part.advantages, p->part.mask,  p->part.logps,       p->part.entropy};
    align_critic_close(&p->critic);
    by_generator_free(p->generator);
    by_passes_free(p->likelihood);
    by_passes_free(p->ref_likelihood);
    by_trainer_free(p->trainer);
    by_memory_free(p->memory);
    align_rewards_close(&p->rewards);
    align_rollouts_free(&p->rollouts);
    align_rollouts_free(&p->trials);
    align_prompts_close(&p->prompts);
    align_prompts_close(&p->eval_prompts);
    for (int i = 0; i < BY_COUNT(floats); i++)
        base_free(floats[i]);
    base_free(p->part.tokens);
    base_free(p->part.targets);
    base_free(p->order);
    base_free(p->reward_text);
    base_free(p->stop_text);
    by_model_free(p->reference);
    by_model_free(p->model);
    align_source_close(&p->source);
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* Saves the best model in the run folder; without evaluations, the last one. */
static by_status finish(align_policy *p)
{
    const by_align_spec *s = &p->spec;
    by_model *best = NULL;
    if (train_loop_best_is_older(&p->loop)) {
        best = train_checkpoint_best(&p->loop.folder, p->device,
                                     &(by_model_spec){.dtype = s->dtype, .weights = s->weights});
        BY_TRY(best ? BY_OK : base_error_status());
    }
    by_status status =
        train_checkpoint_leave(&p->loop.folder, best ? best : p->model, p->source.tokenizer, NULL);
    by_model_free(best);
    return status;
}

static void describe(const align_policy *p)
{
    const by_align_spec *s = &p->spec;
    const align_rollouts *r = &p->rollouts;
    base_buf note = {0};
    base_buf_printf(&note, "%d prompt%s, the longest of %d tokens", p->train_prompts,
                    p->train_prompts == 1 ? "" : "s", p->prompts.longest);
    if (p->prompts.left_out)
        base_buf_printf(&note, "; %d longer than %d left out", p->prompts.left_out,
                        p->capacity - p->max_new_tokens);
    if (p->eval_count)
        base_buf_printf(&note, "; %d for evaluation", p->eval_count);
    base_buf_printf(
        &note,
        "\n%s: %.2f M parameters, %.2f M of them learn by %s; %lld steps of %d answers to %d prompts, up to "
        "%d tokens each; rewards:",
        by_model_class(p->model), (double)p->result->parameters / 1e6, (double)p->result->trained / 1e6,
        by_align_name(s->method), (long long)s->steps, r->rows, r->rows / r->group, p->max_new_tokens);
    for (int i = 0; i < p->rewards.count; i++)
        base_buf_printf(&note, " %s", p->rewards.list[i].name);
    train_loop_announce(&p->loop, note.failed ? "" : note.data);
    base_buf_free(&note);
}

/* Copies the main metrics of the last step to the result. */
static void report_result(align_policy *p)
{
    static const char *const names[] = {"reward", "kl", "entropy", "completions/mean_length"};
    by_align_result *r = p->result;
    r->evaluated = p->eval_count > 0;
    for (int i = 0; i < p->n_evaluation; i++)
        r->metrics[r->n_metrics++] = p->evaluation[i];
    for (int i = 0; i < BY_COUNT(names) && !r->evaluated; i++)
        for (int k = 0; k < p->measures.count; k++)
            if (strcmp(p->measures.names[k], names[i]) == 0)
                r->metrics[r->n_metrics++] = (by_metric){names[i], p->measures.list[k].value};
}

static by_status run(align_policy *p)
{
    by_align_result *r = p->result;
    BY_TRY(set_up(p));
    r->resumed_from = p->loop.state.step;
    r->parameters = by_params_elements(by_model_params(p->model));
    r->trained = by_params_trained(by_model_trained(p->model));
    describe(p);
    by_status s = train_loop_run(&p->loop);
    r->loss = p->loop.loss;
    r->stopped_early = p->loop.stopped_early;
    r->steps = p->loop.state.step;
    r->best_step = p->eval_count ? p->loop.state.best_step : p->loop.state.step;
    r->activation_bytes = by_trainer_bytes(p->trainer) + by_passes_bytes(p->likelihood);
    r->state_bytes = by_trainer_state_bytes(p->trainer);
    if (s == BY_OK)
        report_result(p);
    return s == BY_OK ? finish(p) : s;
}

by_status align_policy_run(by_device *d, const by_align_spec *spec, by_align_result *result)
{
    align_policy p = {.device = d, .spec = *spec, .loop = {.folder = {.lock = -1}}, .result = result};
    const double started = base_seconds();
    p.spec.batch = spec->batch > 0 ? spec->batch : 8;
    p.spec.accumulate = BY_MAX(spec->accumulate, 1);
    p.spec.beta = BY_MAX(spec->beta, 0);
    p.beta = p.spec.beta;
    align_policy_fill(&p.spec.policy, spec->method);
    by_status s = run(&p);
    result->seconds = base_seconds() - started;
    train_loop_close(&p.loop, s);
    tear_down(&p);
    return s;
}
