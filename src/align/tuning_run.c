/* tuning_run.c - runs that learn from given answers: supervised tuning, preferences, reward models; a client
 * of the loop. */
#include <math.h>
#include <string.h>

#include "align/methods.h"
#include "align/tuning.h"
#include "align/tuning_data.h"
#include "base/input.h"
#include "train/defaults.h"
#include "train/loop.h"

typedef struct tuning {
    by_device *device;
    by_align_spec spec; /* defaults filled in */
    align_objective objective;
    align_source source;
    align_part train, eval;
    bool has_eval;
    by_model *model;
    by_trainer *trainer;
    by_passes *passes;         /* of evaluation */
    align_reference reference; /* not made if all its log-probabilities are known */
    align_reference present;   /* KTO: the current model, on mismatched answers */
    by_memory *memory;         /* activations of both and of evaluation */
    data_row_groups groups;    /* of the current epoch */
    int64_t epoch, epoch_steps;
    align_tally seen; /* of the last step */
    by_metric measures[BY_METRICS_MAX], metrics[BY_METRICS_MAX];
    base_buf losses; /* the losses of DPO in words */
    train_loop loop;
    by_align_result *result;
} tuning;

enum { FEW_PASSES = 24 }; /* shapes that stay compiled */

/* ---- the model --------------------------------------------------------------------------------- */

static bool is_reward(const by_align_spec *s)
{
    return s->method == BY_ALIGN_REWARD;
}

static by_status open_fresh(tuning *t)
{
    by_model_spec spec = align_model_spec(&t->spec);
    BY_TRY(align_choose_head(t->device, &t->spec, &spec));
    t->model = by_model_open(t->device, t->spec.model, &spec);
    if (!t->model)
        return base_error_status();
    if (t->spec.dropout > 0)
        by_model_set_dropout(t->model, t->spec.dropout);
    by_model_set_noise(t->model, t->spec.noise);
    return BY_OK;
}

static by_status load(void *self, const char *dir)
{
    tuning *t = self;
    by_model_spec spec = align_model_spec(&t->spec);
    spec.adapter = NULL; /* it is in the checkpoint */
    t->model = by_model_open(t->device, dir, &spec);
    if (!t->model)
        return base_error_status();
    by_model_set_noise(t->model, t->spec.noise);
    return train_model_load(t->model, dir);
}

static by_status save(void *self, const char *dir)
{
    const tuning *t = self;
    return train_model_save(t->model, t->source.tokenizer, dir);
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Makes the batch of these rows with everything that the loss reads. */
static by_status make_batch(tuning *t, align_part *p, const int *rows, int count)
{
    const by_align_spec *s = &t->spec;
    BY_TRY(align_part_batch(p, s, rows, count));
    if (align_needs_reference(s) && !p->ref_logps)
        BY_TRY(align_reference_run(&t->reference, &p->batch.rows.batch, p->ref));
    if (align_needs_mismatched(s)) {
        float *logps = p->margin; /* unused here: unpaired answers have no margins */
        if (!p->ref_mismatched)
            BY_TRY(align_reference_run(&t->reference, &p->other.rows.batch, p->other_ref));
        BY_TRY(align_reference_run(&t->present, &p->other.rows.batch, logps));
        p->kl = by_kto_kl(logps, p->other_ref, count);
    }
    align_part_put(p, s);
    return BY_OK;
}

static by_status enter_epoch(tuning *t, int64_t epoch)
{
    if (epoch == t->epoch)
        return BY_OK;
    data_row_groups_free(&t->groups);
    t->epoch = epoch;
    return data_rows_shuffled(&t->train.list.rows, t->spec.batch * align_rows_each(&t->train),
                              t->spec.seed + (uint64_t)epoch, &t->groups);
}

static double weigh(const tuning *t, int64_t g)
{
    return align_part_weight(&t->train, t->spec.method, t->groups.rows + t->groups.first[g],
                             t->groups.first[g + 1] - t->groups.first[g]);
}

/* The loss of a step is a mean over all predicted tokens, or all examples, of its micro-batches. */
static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    tuning *t = self;
    BY_TRY(enter_epoch(t, step / t->epoch_steps));
    const int64_t begin = step % t->epoch_steps * t->spec.accumulate,
                  end = BY_MIN(begin + t->spec.accumulate, t->groups.count);
    double all = 0;
    for (int64_t g = begin; g < end; g++)
        all += weigh(t, g);
    t->seen.count = 0;
    for (int64_t g = begin; g < end; g++) {
        const int from = t->groups.first[g], count = t->groups.first[g + 1] - from;
        BY_TRY(make_batch(t, &t->train, t->groups.rows + from, count));
        const by_batch *b = &t->train.batch.rows.batch;
        by_trainer_share(t->trainer, weigh(t, g) / all);
        BY_TRY(by_trainer_backward(t->trainer, b, g == begin, NULL));
        if (t->spec.method != BY_ALIGN_SFT)
            BY_TRY(align_tally_pass(&t->seen, &t->train, &t->spec, by_trainer_trained(t->trainer)));
        work->tokens += (double)b->batch * b->seq;
    }
    return train_update(t->trainer, rate);
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    return by_trainer_read(((tuning *)self)->trainer, count, losses, norms);
}

static void measure(void *self, by_report *r)
{
    tuning *t = self;
    r->measures = t->measures;
    r->n_measures = align_tally_read(&t->seen, t->measures);
}

/* ---- evaluation -------------------------------------------------------------------------------- */

static by_status evaluate_groups(tuning *t, const data_row_groups *groups, align_tally *m)
{
    align_part *p = &t->eval;
    for (int g = 0; g < groups->count; g++) {
        const int from = groups->first[g], count = groups->first[g + 1] - from;
        float loss;
        BY_TRY(make_batch(t, p, groups->rows + from, count));
        by_pass *pass = by_passes_get(t->passes, &p->batch.rows.batch);
        BY_TRY(pass ? by_pass_run(pass, &p->batch.rows.batch) : base_error_status());
        BY_TRY(by_pass_read(pass, by_pass_loss(pass), &loss));
        align_tally_add(m, "loss", ALIGN_MEAN, (double)loss,
                        align_part_weight(p, t->spec.method, groups->rows + from, count));
        BY_TRY(align_tally_pass(m, p, &t->spec, pass));
    }
    return BY_OK;
}

/* Computes the loss and, in t->metrics, the other metrics. For supervised tuning, the perplexity comes
 * first. */
static by_status evaluate_all(tuning *t, double *loss, int *count)
{
    align_tally m = {0};
    data_row_groups groups;
    by_metric all[BY_METRICS_MAX];
    by_status s =
        data_rows_by_length(&t->eval.list.rows, t->spec.eval_batch * align_rows_each(&t->eval), &groups);
    if (s == BY_OK)
        s = evaluate_groups(t, &groups, &m);
    data_row_groups_free(&groups);
    BY_TRY(s);
    const int n = align_tally_read(&m, all);
    *loss = all[0].value;
    *count = 0;
    if (t->spec.method == BY_ALIGN_SFT)
        t->metrics[(*count)++] = (by_metric){"perplexity", exp(*loss)};
    for (int i = 1; i < n && *count < BY_METRICS_MAX; i++)
        t->metrics[(*count)++] = all[i];
    return BY_OK;
}

static by_status evaluate(void *self, by_report *r, double *score)
{
    tuning *t = self;
    (void)score; /* the loss selects the best model */
    r->metrics = t->metrics;
    return evaluate_all(t, &r->eval_loss, &r->n_metrics);
}

/* ---- run.json ---------------------------------------------------------------------------------- */

static void record_method(const tuning *t, train_record *out)
{
    const by_align_spec *s = &t->spec;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"beta", s->beta},
                   {"alpha", s->alpha},
                   {"gamma", s->gamma},
                   {"label_smoothing", s->label_smoothing},
                   {"center", s->center},
                   {"desirable_weight", s->desirable_weight},
                   {"undesirable_weight", s->undesirable_weight},
                   {"unpaired", s->unpaired},
                   {"learn_prompts", s->learn_prompts},
                   {"pack", s->pack},
                   {"limit", t->train.list.spec.limit},
                   {"train_examples", t->train.list.examples},
                   {"train_sequences", t->train.list.count},
                   {"eval_examples", t->eval.list.examples},
                   {"eval_fraction", s->eval_fraction},
                   {"data_fingerprint", (double)(t->train.list.fingerprint >> 12)}};
    train_record_text(out, "method", by_align_name(s->method), TRAIN_SAME);
    train_record_text(out, "loss", t->losses.data, TRAIN_SAME);
    train_record_newer(out, "divergence", s->divergence, 0);
    train_record_newer(out, "divergence_alpha", s->divergence_alpha, 0);
    train_record_newer(out, "weight_pairs", s->weight_pairs, 0);
    train_record_newer(out, "dynamic", s->dynamic, 0);
    train_record_newer(out, "noise", s->noise, 0);
    train_record_newer(out, "keep_end", s->keep_end, 0);
    if (align_needs_reference(s)) /* its path may change */
        train_record_newer(out, "own_reference", s->reference != NULL, NAN);
    align_source_record(&t->source, out);
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_number(out, numbers[i].key, numbers[i].value, TRAIN_SAME);
}

static void record_model(const tuning *t, train_record *out)
{
    const by_align_spec *s = &t->spec;
    const struct {
        const char *key, *value;
        train_rule rule;
    } texts[] = {{"model", s->model, TRAIN_FREE},
                 {"reference", s->reference, TRAIN_FREE},
                 {"chat_template", s->chat_template, TRAIN_FREE},
                 {"family", by_model_family(t->model), TRAIN_SAME},
                 {"class", by_model_class(t->model), TRAIN_SAME},
                 {"dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME},
                 {"freeze", s->freeze, TRAIN_SAME},
                 {"weights", s->weights ? by_dtype_name(s->weights) : NULL, TRAIN_SAME},
                 {"data", s->data, TRAIN_FREE},
                 {"eval_data", s->eval_data, TRAIN_FREE}};
    for (int i = 0; i < BY_COUNT(texts); i++)
        train_record_text(out, texts[i].key, texts[i].value, texts[i].rule);
    train_record_adapter(out, s->adapter, s->lora);
}

static by_status record(void *self, train_record *out)
{
    const tuning *t = self;
    const by_align_spec *s = &t->spec;
    record_method(t, out);
    record_model(t, out);
    train_loop_record(&t->loop, TRAIN_COURSE(s, t->device), out);
    if (s->dropout >= 0)
        train_record_number(out, "dropout", s->dropout, TRAIN_SAME);
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    const tuning *t = self;
    train_log_title(out, t->model, by_align_name(t->spec.method));
}

static const train_client client = {step, read_losses, evaluate, save, load, record, title, measure};
static const train_client quiet_client = {step, read_losses, evaluate, save, load, record, title, NULL};

/* ---- set-up ------------------------------------------------------------------------------------ */

/* The default learning rate by method and width. Preference methods start from a model that writes well
 * already and use a thirtieth of the rate. */
static double usual_rate(const tuning *t)
{
    const bool first = t->spec.method == BY_ALIGN_SFT || is_reward(&t->spec);
    return train_default_tuning_rate(by_model_width(t->model)) / (first ? 1 : 30) *
           train_default_adapter_factor(t->model);
}

static by_status fill_defaults(tuning *t)
{
    by_align_spec *s = &t->spec;
    const int64_t rows = (int64_t)s->batch * s->accumulate * align_rows_each(&t->train);
    const int64_t eval_rows = t->has_eval ? t->eval.list.rows.count : 0;
    t->epoch_steps = (t->train.list.rows.count + rows - 1) / rows;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)ceil((s->epochs > 0 ? s->epochs : 3) * (double)t->epoch_steps), 1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&t->loop, s->steps));
    if (s->schedule.rate < 0)
        s->schedule.rate = usual_rate(t);
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)t->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = train_default_eval_steps(t->epoch_steps, eval_rows, rows);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    t->epoch = -1;
    return BY_OK;
}

/* With overwrite, an earlier run is kept until everything is open. */
static by_status open_folder(tuning *t)
{
    const by_align_spec *s = &t->spec;
    const char *const inputs[] = {s->data, s->eval_data, s->chat_template};
    return train_loop_open(&t->loop, s->method == BY_ALIGN_SFT ? &quiet_client : &client, t,
                           &(train_folder_use){.out = s->out,
                                               .overwrite = s->overwrite,
                                               .leaves_model = true,
                                               .model = s->model,
                                               .inputs = {{inputs, BY_COUNT(inputs)}},
                                               .report = s->report,
                                               .user = s->user});
}

/* The model as it was at the start: the trained model itself before its first step or without its new
 * adapter, otherwise another copy. */
static by_status open_reference(tuning *t, bool first)
{
    const by_align_spec *s = &t->spec;
    const bool bare = s->adapter && !s->reference;
    if (!s->reference && (bare || first))
        return align_reference_make(&t->reference, t->model, bare, &t->memory);
    const char *dir = s->reference ? s->reference : s->model;
    t->reference.own =
        by_model_open(t->device, dir, &(by_model_spec){.dtype = s->dtype, .weights = s->weights});
    if (!t->reference.own)
        return base_error_status();
    if (by_model_vocab(t->reference.own) != by_model_vocab(t->model) ||
        by_model_task(t->reference.own) != by_model_task(t->model))
        return base_fail(BY_ERR_ARGUMENT, "the reference %s is %s of %d tokens, not %s of %d", dir,
                         base_a(by_model_class(t->reference.own)).text, by_model_vocab(t->reference.own),
                         base_a(by_model_class(t->model)).text, by_model_vocab(t->model));
    const int context = by_model_context(t->reference.own);
    if (by_model_is_limited(t->reference.own) && context < t->train.list.rows.spec.limit)
        return base_fail(
            BY_ERR_ARGUMENT,
            "the reference %s reads %d positions, and examples may have %d: give --max-length %d", dir,
            context, t->train.list.rows.spec.limit, context);
    return align_reference_make(&t->reference, t->reference.own, false, &t->memory);
}

/* Log-probabilities of the reference: read, computed now, or left to the steps. */
static by_status prepare_reference(tuning *t)
{
    static const char name[] = "reference.safetensors";
    const by_align_spec *s = &t->spec;
    if (!align_needs_reference(s))
        return BY_OK;
    if (s->no_cache)
        return open_reference(t, false);
    BY_TRY(train_folder_claim_in(&t->loop.folder, "data", name));
    char *path = base_sprintf("%s/data/%s", s->out, name);
    const align_cache cache = {.path = path,
                               .train = &t->train,
                               .eval = t->has_eval ? &t->eval : NULL,
                               .rows = s->eval_batch * align_rows_each(&t->train),
                               .cancelled = s->cancelled,
                               .user = s->user};
    by_status status = path ? BY_OK : BY_ERR_MEMORY;
    if (status == BY_OK && !(t->loop.last && align_cache_read(&cache))) {
        status = open_reference(t, t->loop.state.step == 0);
        if (status == BY_OK)
            status = align_cache_make(&cache, &t->reference);
        align_reference_free(&t->reference);
    }
    base_free(path);
    return status;
}

/* Evaluation passes for rows of all lengths share their activations. */
static by_status make_passes(tuning *t)
{
    by_pass_spec spec = {.grads = BY_GRAD_NONE, .loss_alone = true, .memory = &t->memory};
    t->objective.model = t->model;
    spec.loss = align_objective_loss(&t->objective, true, &spec.loss_user);
    t->passes = by_passes_new(t->model, &spec, FEW_PASSES);
    BY_TRY(t->passes ? BY_OK : base_error_status());
    return align_needs_mismatched(&t->spec) ? align_reference_make(&t->present, t->model, false, &t->memory)
                                            : BY_OK;
}

static by_status make_trainer(tuning *t)
{
    const by_align_spec *s = &t->spec;
    by_trainer_spec spec = {.accumulate = s->accumulate,
                            .recompute = s->recompute,
                            .no_dropout = s->method == BY_ALIGN_SFT ? s->dropout == 0 : s->dropout <= 0,
                            .optimizer = s->optimizer,
                            .seed = s->seed,
                            .many_shapes = true};
    spec.loss = align_objective_loss(&t->objective, false, &spec.loss_user);
    t->trainer = by_trainer_new(t->model, &spec);
    return t->trainer ? BY_OK : base_error_status();
}

/* Compiles the largest batches first. All others use their memory, and the run needs no more later. */
static by_status plan_memory(tuning *t)
{
    BY_TRY(align_part_largest(&t->train, &t->spec, t->spec.batch));
    if (!by_trainer_program(t->trainer, &t->train.batch.rows.batch))
        return base_error_status();
    if (t->has_eval) {
        BY_TRY(align_part_largest(&t->eval, &t->spec, t->spec.eval_batch));
        if (!by_passes_get(t->passes, &t->eval.batch.rows.batch))
            return base_error_status();
    }
    t->result->activation_bytes = by_trainer_bytes(t->trainer) + by_passes_bytes(t->passes);
    t->result->state_bytes = by_trainer_state_bytes(t->trainer);
    return BY_OK;
}

static by_status set_up(tuning *t)
{
    by_align_spec *s = &t->spec;
    BY_TRY(align_source_open(&t->source, s));
    BY_TRY(open_folder(t));
    BY_TRY(align_check_method(&t->loop, s->method));
    BY_TRY(t->loop.last ? train_loop_load(&t->loop) : open_fresh(t));
    BY_TRY(align_source_read(&t->source, s, t->model, &t->train, &t->eval));
    t->has_eval = t->eval.list.count > 0;
    BY_TRY(fill_defaults(t));
    BY_TRY(train_loop_check(&t->loop));
    BY_TRY(prepare_reference(t));
    BY_TRY(make_trainer(t));
    BY_TRY(make_passes(t));
    BY_TRY(plan_memory(t));
    t->result->trained = by_params_trained(by_model_trained(t->model));
    by_trainer_set_steps(t->trainer, t->loop.state.step);
    return train_loop_begin(&t->loop, &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = t->has_eval,
                                                         .device = t->device,
                                                         .loss_unit = by_align_loss_unit(s->method)});
}

static void free_passes(tuning *t)
{
    by_passes_free(t->passes);
    align_reference_free(&t->present);
    align_reference_free(&t->reference);
    by_trainer_free(t->trainer);
    t->passes = NULL;
    t->trainer = NULL;
}

static void tear_down(tuning *t)
{
    data_row_groups_free(&t->groups);
    free_passes(t);
    by_memory_free(t->memory);
    align_part_close(&t->train);
    align_part_close(&t->eval);
    by_model_free(t->model);
    align_source_close(&t->source);
    base_buf_free(&t->losses);
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* Replaces the last model by the best. */
static by_status take_best(tuning *t)
{
    const by_model_spec spec = {.dtype = t->spec.dtype, .weights = t->spec.weights};
    by_model *m = train_checkpoint_best(&t->loop.folder, t->device, &spec);
    if (!m)
        return base_error_status();
    free_passes(t);
    by_model_set_pad(m, by_model_pad(t->model)); /* rows that were generated */
    by_model_free(t->model);
    t->model = t->eval.list.model = t->eval.list.rows.model = m;
    t->eval.mismatched.model = t->eval.mismatched.rows.model = m;
    if (align_needs_reference(&t->spec) && t->spec.no_cache)
        BY_TRY(open_reference(t, false));
    return make_passes(t);
}

/* Saves the model in the run folder. */
static by_status finish(tuning *t)
{
    by_align_result *r = t->result;
    if (train_loop_best_is_older(&t->loop))
        BY_TRY(take_best(t));
    if (t->has_eval)
        BY_TRY(evaluate_all(t, &r->eval_loss, &r->n_metrics));
    memcpy(r->metrics, t->metrics, sizeof r->metrics);
    r->evaluated = t->has_eval;
    r->best_step = t->has_eval ? t->loop.state.best_step : t->loop.state.step;
    return train_checkpoint_leave(&t->loop.folder, t->model, t->source.tokenizer, NULL);
}

static void describe(const tuning *t)
{
    const by_align_result *r = t->result;
    base_buf note = {0};
    const by_params *body = by_model_params(t->model), *trained = by_model_trained(t->model);
    const size_t values =
        by_params_value_bytes(body) + (trained != body ? by_params_value_bytes(trained) : 0);
    base_buf_printf(&note, "%s: ", base_input_name(t->spec.data));
    data_instructions_describe(&t->train.list, &note);
    if (t->has_eval) {
        base_buf_puts(&note, "\nheld out: ");
        data_instructions_describe(&t->eval.list, &note);
    }
    base_buf_printf(&note,
                    "\n%s, %s: %.2f M parameters, %.2f M of them learn; %lld steps of %d %s, evaluated every "
                    "%lld; memory %.1f MiB of parameters, %.1f MiB of gradients and optimiser for those that "
                    "learn, %.1f MiB of activations",
                    by_align_name(t->spec.method), by_model_class(t->model), (double)r->parameters / 1e6,
                    (double)r->trained / 1e6, (long long)t->spec.steps, t->spec.batch * t->spec.accumulate,
                    align_rows_each(&t->train) == 2 ? "pairs"
                    : t->spec.pack                  ? "rows"
                                                    : "examples",
                    (long long)t->spec.eval_every, (double)values / 1048576.0,
                    (double)(r->state_bytes - values) / 1048576.0, (double)r->activation_bytes / 1048576.0);
    train_loop_announce(&t->loop, note.failed ? "" : note.data);
    base_buf_free(&note);
}

static by_status run(tuning *t)
{
    by_align_result *r = t->result;
    BY_TRY(set_up(t));
    r->resumed_from = t->loop.state.step;
    r->parameters = by_params_elements(by_model_params(t->model));
    describe(t);
    by_status s = train_loop_run(&t->loop);
    r->loss = t->loop.loss;
    r->stopped_early = t->loop.stopped_early;
    r->steps = t->loop.state.step;
    return s == BY_OK ? finish(t) : s;
}

static by_status check_loss(const by_align_spec *s)
{
    if (s->method != BY_ALIGN_SFT && s->method != BY_ALIGN_REWARD && !(s->beta > 0 && isfinite(s->beta)))
        return base_fail(BY_ERR_ARGUMENT, "beta is %g; it must be above 0", s->beta);
    if (s->method == BY_ALIGN_KTO && !(s->desirable_weight >= 0 && s->undesirable_weight >= 0 &&
                                       s->desirable_weight + s->undesirable_weight > 0))
        return base_fail(
            BY_ERR_ARGUMENT,
            "the weights of good and bad answers are %g and %g; expected a positive sum and none below 0",
            s->desirable_weight, s->undesirable_weight);
    if (s->method == BY_ALIGN_DPO)
        BY_TRY(align_check_dpo(s));
    return s->label_smoothing < 0 || s->label_smoothing >= 0.5
               ? base_fail(BY_ERR_ARGUMENT, "label smoothing is %g; it must be from 0 to less than 0.5",
                           s->label_smoothing)
               : BY_OK;
}

/* Checks that need no open files. */
static by_status check_spec(const by_align_spec *s)
{
    BY_TRY(train_check_weights(s->weights, s->adapter || s->freeze, s->model));
    BY_TRY(check_loss(s));
    if (s->eval_fraction < 0 || s->eval_fraction >= 1)
        return base_fail(BY_ERR_ARGUMENT, "the held-out share is %g; it must be from 0 to less than 1",
                         s->eval_fraction);
    return s->method != BY_ALIGN_SFT && (s->pack || s->learn_prompts || s->dynamic || s->noise != 0)
               ? base_fail(BY_ERR_ARGUMENT, "packing, training on prompts, noise and the dynamic loss are "
                                            "only for supervised tuning")
               : BY_OK;
}

by_status align_supervised_run(by_device *d, const by_align_spec *spec, by_align_result *result)
{
    tuning t = {.device = d, .spec = *spec, .loop = {.folder = {.lock = -1}}, .result = result};
    const double started = base_seconds();
    t.spec.batch = spec->batch > 0 ? spec->batch : 8;
    t.spec.accumulate = BY_MAX(spec->accumulate, 1);
    t.spec.eval_batch = spec->eval_batch > 0 ? spec->eval_batch : t.spec.batch;
    t.objective = align_objective_of(&t.spec);
    if (spec->method == BY_ALIGN_DPO)
        align_describe_losses(spec, &t.losses);
    by_status s = t.losses.failed ? BY_ERR_MEMORY : check_spec(spec);
    if (s == BY_OK)
        s = run(&t);
    result->seconds = base_seconds() - started;
    train_loop_close(&t.loop, s);
    tear_down(&t);
    return s;
}
