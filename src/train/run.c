/* run.c - pretraining, a client of the loop: data with an objective, one model, one trainer. */
#include <math.h>

#include "base/file.h"
#include "model/model.h"
#include "train/defaults.h"
#include "train/picture_run.h"
#include "train/run.h"

/* ---- the model ------------------------------------------------------------------------------- */

/* Whether a model that was opened has a causal mask is in its configuration. */
static by_status check_causal(const train_run *r)
{
    bool causal = arch_config_get(r->model->arch, r->model->config, ARCH_ROLE_CAUSAL) != 0;
    if (r->model->arch->is_causal && causal != (data_objective_task(r->data.kind) == BY_TASK_LM))
        return base_fail(BY_ERR_ARGUMENT, "%s is %sa causal model, and the objective \"%s\" needs %s",
                         r->spec.init_from, causal ? "" : "not ", data_objective_name(r->data.kind),
                         causal ? "one that is not" : "one");
    return BY_OK;
}

static by_model_spec model_spec(const by_run_spec *s)
{
    return (by_model_spec){.dtype = s->dtype,
                           .training = true,
                           .stochastic_rounding = s->stochastic_rounding,
                           .adapter = s->adapter,
                           .weights = s->weights,
                           .seed = s->seed};
}

static by_status open_model(train_run *r)
{
    const by_run_spec *s = &r->spec;
    by_model_spec spec = model_spec(s);
    spec.task = data_objective_task(r->data.kind);
    if (r->lesson) {
        BY_TRY(r->lesson->open(r->lesson->user, r->device, &spec, &r->model));
        if (s->shape.dropout >= 0)
            by_model_set_dropout(r->model, s->shape.dropout);
        return check_causal(r);
    }
    if (s->init_from) {
        spec.new_head = spec.task != BY_TASK_LM;
        r->model = by_model_open(r->device, s->init_from, &spec);
        if (r->model && s->shape.dropout >= 0)
            by_model_set_dropout(r->model, s->shape.dropout);
        return r->model ? check_causal(r) : base_error_status();
    }
    by_model_shape shape = train_run_shape(r);
    r->model = by_model_new(r->device, s->family, &shape, &spec);
    if (!r->model)
        return base_error_status();
    train_run_tokens(&r->data, r->model);
    return BY_OK;
}

static by_status load(void *self, const char *dir)
{
    train_run *r = self;
    by_model_spec spec = model_spec(&r->spec);
    spec.adapter = NULL; /* it is in the checkpoint */
    r->model = by_model_open(r->device, dir, &spec);
    return r->model ? train_model_load(r->model, dir) : base_error_status();
}

static by_status save(void *self, const char *dir)
{
    const train_run *r = self;
    BY_TRY(train_model_save(r->model, r->data.tokenizer, dir));
    if (r->data.processor)
        BY_TRY(by_processor_save(r->data.processor, dir));
    BY_TRY(train_lesson_save(r->lesson, dir));
    return r->streams ? train_streams_save(r->streams, r->spec.accumulate, dir) : BY_OK;
}

void train_run_sizes(by_run_spec *s, data_objective_kind kind, const by_model *m)
{
    if (s->seq <= 0)
        s->seq = by_model_context(m);
    s->batch = BY_MAX(s->batch, 1);
    s->accumulate = BY_MAX(s->accumulate, 1);
    if (kind == DATA_OBJECTIVE_TRANSLATE) { /* the objective decides how many rows a batch has */
        s->batch = 1;
        s->batch_tokens = s->batch_tokens > 0 ? s->batch_tokens : 4096;
    } else {
        s->batch_tokens = 0;
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Texts that continue from step to step keep their state in streams. */
static by_status make_streams(train_run *r)
{
    const int count = r->spec.accumulate + 1;
    if (!data_objective_follows(r->data.rows))
        return BY_OK;
    r->streams = base_alloc_zero((size_t)count, sizeof *r->streams);
    for (int i = 0; r->streams && i < count; i++)
        if (!(r->streams[i] = by_stream_new(r->model, r->spec.batch)))
            return base_error_status();
    return r->streams ? BY_OK : BY_ERR_MEMORY;
}

static void free_streams(train_run *r)
{
    for (int i = 0; r->streams && i <= r->spec.accumulate; i++)
        by_stream_free(r->streams[i]);
    base_free(r->streams);
}

/* A recurrent network that sees the zero state only once would not learn to start from it, as it must for
 * every later text. Its streams are therefore reset every few segments. */
enum { RESTART_SEGMENTS = 16 };

static bool restarts_at(const train_run *r, int64_t step)
{
    return data_objective_restarts(r->data.rows, step) ||
           (by_model_memory(r->model) == 0 && step % RESTART_SEGMENTS == 0);
}

/* A batch of an evaluation, the first of which restarts the stream. */
static by_status give_stream(const train_run *r, by_batch *b, bool restarts)
{
    if (!r->streams)
        return BY_OK;
    b->stream = r->streams[r->spec.accumulate];
    return restarts ? by_stream_reset(b->stream) : BY_OK;
}

/* ---- scheduled sampling (Bengio et al. 2015) ---------------------------------------------------- */

static by_status make_sampled(train_run *r)
{
    if (!(r->spec.scheduled_sampling > 0))
        return BY_OK;
    if (data_objective_task(r->data.kind) != BY_TASK_SEQ2SEQ)
        return base_fail(BY_ERR_ARGUMENT,
                         "scheduled sampling needs an encoder-decoder, and the objective is \"%s\"",
                         data_objective_name(r->data.kind));
    const size_t rows = r->rows.room ? r->rows.room : (size_t)r->rows.batch * (size_t)r->rows.seq;
    r->sampled = base_alloc_zero(rows, sizeof *r->sampled);
    return r->sampled ? BY_OK : BY_ERR_MEMORY;
}

/* Selects the tokens of micro-batch k that the decoder predicts itself, as a function of seed, step and
 * micro-batch, so that resumed runs are identical. The first token of a row is always given. */
static void give_sampled(train_run *r, by_batch *b, int64_t step, int k)
{
    const by_run_spec *s = &r->spec;
    if (!r->sampled)
        return;
    const double share = s->scheduled_sampling * (double)step / (double)BY_MAX(s->steps - 1, 1);
    base_rng random = base_rng_make(base_hash("sampled", 7, s->seed), (uint64_t)(step * s->accumulate + k));
    for (int64_t i = 0, n = (int64_t)b->batch * b->seq; i < n; i++)
        r->sampled[i] = base_rng_uniform(&random) < share && i % b->seq > 0;
    by_batch_put_tokens(b, "sampled", r->sampled);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Micro-batch k of the step whose rows are in r->rows. */
static by_batch micro_batch(train_run *r, int64_t step, int k)
{
    by_batch b = data_samples_batch(&r->rows, k);
    b.stream = r->streams ? r->streams[k] : NULL;
    give_sampled(r, &b, step, k);
    return b;
}

static int64_t count_targets(const train_run *r, const by_batch *b)
{
    const int32_t *targets = by_batch_ids(b, "targets");
    int64_t n = 0;
    for (int64_t i = 0, all = by_batch_targets(r->model, b); i < all; i++)
        n += targets[i] != -100;
    return n;
}

/* If micro-batches have different numbers of targets, each target has the same weight. */
static void weigh(train_run *r, const by_batch *b)
{
    int64_t all = 0;
    for (int k = 0; k < r->spec.accumulate; k++) {
        by_batch other = data_samples_batch(&r->rows, k);
        all += count_targets(r, &other);
    }
    by_trainer_share(r->trainer, (double)count_targets(r, b) / (double)BY_MAX(all, 1));
}

/* Trace the first step of this process. */
static void trace(train_run *r, by_trace_fn fn)
{
    by_batch like = micro_batch(r, 0, 0);
    by_program *p = r->spec.trace ? by_trainer_program(r->trainer, &like) : NULL;
    if (p)
        by_program_trace(p, fn, r->spec.user);
    if (!fn)
        r->spec.trace = NULL;
}

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    train_run *r = self;
    const by_run_spec *s = &r->spec;
    BY_TRY(data_objective_get(r->data.rows, step, &r->rows));
    data_objective_prefetch(r->data.rows, step + 1);
    trace(r, s->trace);
    for (int k = 0; k < s->accumulate; k++) {
        by_batch b = micro_batch(r, step, k);
        if (r->rows.shapes && s->accumulate > 1)
            weigh(r, &b);
        if (b.stream && restarts_at(r, step))
            BY_TRY(by_stream_reset(b.stream));
        BY_TRY(train_lesson_prepare(r->lesson, &b, false));
        BY_TRY(by_trainer_backward(r->trainer, &b, k == 0, NULL));
        work->tokens += (double)b.batch * b.seq;
        work->flops += by_trainer_flops(r->trainer);
    }
    trace(r, NULL);
    BY_TRY(train_update(r->trainer, rate));
    return train_lesson_update(r->lesson, rate, step);
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    return by_trainer_read(((train_run *)self)->trainer, count, losses, norms);
}

/* The second task of the last batch: the number of sentence pairs, and of correct predictions. */
static by_status count_pairs(train_run *r, const int32_t *labels, int64_t *seen, int64_t *right)
{
    by_pass *p = by_trainer_evaluated(r->trainer);
    float *scores = base_alloc((size_t)r->spec.batch * 2 * sizeof *scores);
    by_status s = scores ? by_pass_read(p, by_io_output(by_pass_io(p), "second"), scores) : BY_ERR_MEMORY;
    for (int i = 0; i < r->spec.batch && s == BY_OK; i++) {
        *seen += labels[i] >= 0;
        *right += labels[i] == (scores[2 * i + 1] > scores[2 * i]);
    }
    base_free(scores);
    return s;
}

/* Batches of the held-out part, and the number used per evaluation. */
static int64_t held_batches(const train_run *r, int64_t *all)
{
    const by_run_spec *s = &r->spec;
    *all = data_objective_held_batches(r->data.eval_rows, &r->eval_rows);
    if (s->eval_batches < 0)
        return train_default_eval_batches(*all, s->eval_every, s->accumulate);
    return s->eval_batches > 0 ? BY_MIN(*all, s->eval_batches) : *all;
}

/* The loss covers only tokens, so that it is comparable across objectives. A subset of batches is spread
 * evenly over all, because batches of pairs are sorted by length; for consecutive batches it is the first
 * ones. */
static by_status measure(train_run *r, by_report *p)
{
    int64_t all, batches = held_batches(r, &all);
    int64_t count = 0, seen = 0, right = 0;
    double sum = 0;
    for (int64_t i = 0; i < batches; i++) {
        BY_TRY(
            data_objective_held_batch(r->data.eval_rows, r->streams ? i : i * all / batches, &r->eval_rows));
        by_batch b = data_samples_batch(&r->eval_rows, 0);
        BY_TRY(give_stream(r, &b, i == 0));
        const int32_t *labels = by_batch_ids(&b, "second_targets");
        by_batch_put(&b, "second_targets", BY_I32, 0, NULL, NULL);
        BY_TRY(by_trainer_evaluate(r->trainer, &b, &sum, &count));
        if (labels)
            BY_TRY(count_pairs(r, labels, &seen, &right));
    }
    p->eval_loss = count ? sum / (double)count : NAN;
    p->next_accuracy = seen ? (double)right / (double)seen : NAN;
    return BY_OK;
}

static by_status evaluate(void *self, by_report *p, double *score)
{
    (void)score; /* the loss decides */
    train_run *r = self;
    BY_TRY(train_lesson_measure(r->lesson, r->trainer, p)); /* evaluations share the memory */
    BY_TRY(measure(r, p));
    if (r->data.processor && !by_processor_colours(r->data.processor)) {
        r->metrics[0] = (by_metric){"bits_per_dim", p->eval_loss / log(2)};
        p->metrics = r->metrics;
        p->n_metrics = r->n_metrics = 1;
    }
    r->result->eval_loss = p->eval_loss;
    r->result->next_accuracy = p->next_accuracy;
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    const train_run *r = self;
    char task[64];
    base_format(task, sizeof task, "%s%sobjective %s", r->lesson ? r->lesson->title : "",
                r->lesson ? ", " : "", data_objective_name(r->data.kind));
    train_log_title(out, r->model, task);
}

static const train_client client = {step, read_losses, evaluate, save, load, train_run_record, title, NULL};

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Steps per epoch, not rounded. */
static double epoch_steps(const train_run *r)
{
    return data_objective_batches(r->data.rows, r->spec.batch) / r->spec.accumulate;
}

static double usual_epochs(const train_run *r)
{
    return r->spec.init_from && r->data.kind == DATA_OBJECTIVE_TRANSLATE
               ? train_default_tuning_epochs(epoch_steps(r))
               : train_default_epochs(r->data.kind, epoch_steps(r));
}

static by_status fill_defaults(train_run *r)
{
    by_run_spec *s = &r->spec;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)((s->epochs > 0 ? s->epochs : usual_epochs(r)) * epoch_steps(r)), 1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&r->loop, s->steps));
    const double factor = r->model->arch->training.rate;
    if (s->schedule.rate < 0)
        s->schedule.rate = train_default_rate(r->data.kind, s->optimizer.kind, by_model_width(r->model)) *
                           (factor > 0 ? factor : 1);
    if (s->schedule.min_rate < 0)
        s->schedule.min_rate = s->schedule.rate / 10;
    if (s->schedule.warmup < 0)
        s->schedule.warmup = s->warmup_share != 0
                                 ? (int64_t)ceil(BY_MAX(s->warmup_share, 0) * (double)r->loop.first_steps)
                                 : train_default_warmup(r->data.kind, r->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = BY_MAX(s->steps / 10, 1);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    if (s->log_every <= 0)
        s->log_every = BY_MAX(s->steps / 10000, 1);
    s->keep = BY_MAX(BY_MAX(s->keep, s->average), 1);
    return BY_OK;
}

static by_status name_languages(train_run *r)
{
    const by_objective_choice *c = &r->spec.objective;
    base_buf text = {0};
    for (int i = 0; i < c->language_count; i++)
        base_buf_printf(&text, "%s%s", i ? "," : "", c->languages[i]);
    r->languages = text.data;
    return text.failed ? base_fail(BY_ERR_MEMORY, "out of memory") : BY_OK;
}

/* Compiles and allocates everything a step needs. */
static by_status set_up_steps(train_run *r)
{
    const by_run_spec *s = &r->spec;
    const bool many = r->data.kind == DATA_OBJECTIVE_TRANSLATE;
    const train_lesson *l = r->lesson;
    BY_TRY(make_streams(r));
    r->trainer = by_trainer_new(r->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .loss = l ? l->loss : NULL,
                                                             .loss_user = l ? l->loss_user : NULL,
                                                             .hidden = l && l->hidden,
                                                             .scores = l && l->scores,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed,
                                                             .label_smoothing = (float)s->label_smoothing,
                                                             .many_shapes = many || r->model->arch->derived,
                                                             .streams = r->streams != NULL});
    if (!r->trainer)
        return base_error_status();
    BY_TRY(data_samples_make(&r->rows, r->data.rows, s->batch * s->accumulate, s->batch));
    if (r->data.eval_rows)
        BY_TRY(data_samples_make(&r->eval_rows, r->data.eval_rows, s->batch, s->batch));
    if (many)
        data_samples_largest(&r->rows, r->data.rows);
    BY_TRY(make_sampled(r));
    for (int k = 0; k < (r->streams ? s->accumulate : 1); k++) {
        by_batch like = micro_batch(r, 0, k);
        BY_TRY(train_lesson_prepare(l, &like, true));
        if (!by_trainer_program(r->trainer, &like))
            return base_error_status();
    }
    if (r->loop.last && r->streams)
        BY_TRY(train_streams_load(r->streams, s->accumulate, r->loop.last));
    by_trainer_set_steps(r->trainer, r->loop.state.step);
    return BY_OK;
}

/* With overwrite, an earlier run is kept until everything is open. */
static by_status open_folder(train_run *r)
{
    const by_run_spec *s = &r->spec;
    return train_loop_open(
        &r->loop, &client, r,
        &(train_folder_use){.out = s->out,
                            .overwrite = s->overwrite,
                            .averages = s->average > 0,
                            .leaves_model = s->leaves_model,
                            .model = s->init_from,
                            .inputs = {{s->data, s->data_count},
                                       {s->eval_data, s->eval_count},
                                       {(const char *const[]){s->tokenizer, s->target_tokenizer}, 2}},
                            .report = s->report,
                            .user = s->user});
}

static const char *loss_unit(const train_run *r)
{
    return !r->data.processor                            ? "nats per token"
           : by_processor_colours(r->data.processor) > 0 ? "nats per colour"
                                                         : "nats per value";
}

static by_status set_up(train_run *r)
{
    by_run_spec *s = &r->spec;
    BY_TRY(open_folder(r));
    BY_TRY(train_loop_check_family(&r->loop, s->init_from ? NULL : s->family));
    BY_TRY(train_dataset_open(&r->data, s, &r->loop.folder, r->loop.last));
    BY_TRY(name_languages(r));
    BY_TRY(r->loop.last ? train_loop_load(&r->loop) : open_model(r));
    train_run_sizes(s, r->data.kind, r->model);
    if (s->seq > by_model_context(r->model))
        return base_fail(BY_ERR_ARGUMENT, "sequences of %d tokens exceed the model's context of %d", s->seq,
                         by_model_context(r->model));
    if (r->data.kind ==
        DATA_OBJECTIVE_PLM) /* the second part of a row must not enter the memory: the next row predicts it */
        arch_config_set(r->model->arch, r->model->config, ARCH_ROLE_REUSE,
                        s->objective.reuse > 0 ? s->objective.reuse : s->seq / 2);
    BY_TRY(train_dataset_objectives(&r->data, s, r->model, true));
    BY_TRY(fill_defaults(r));
    BY_TRY(train_lesson_begin(r->lesson, r->model, r->loop.last));
    BY_TRY(train_loop_check(&r->loop));
    BY_TRY(set_up_steps(r));
    return train_loop_begin(&r->loop,
                            &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = r->data.eval_rows != NULL,
                                               .measures_peak = !s->no_peak, .device = r->device,
                                               .loss_unit = loss_unit(r)});
}

static void tear_down(train_run *r)
{
    base_free(r->languages);
    base_free(r->sampled);
    data_samples_free(&r->rows);
    data_samples_free(&r->eval_rows);
    by_trainer_free(r->trainer);
    free_streams(r);
    by_model_free(r->model);
    train_dataset_close(&r->data);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Averages the last checkpoints, which often improves translation (Vaswani et al. 2017). The model is
 * overwritten. */
static by_status average(train_run *r)
{
    const by_run_spec *s = &r->spec;
    char *dir = NULL;
    by_status status = train_checkpoint_average(&r->loop.folder, s->average, r->model, &r->result->averaged);
    by_report p = train_report_empty();
    if (status == BY_OK && r->data.eval_rows)
        status = measure(r, &p);
    r->result->averaged_eval_loss = p.eval_loss;
    if (status == BY_OK)
        status = train_folder_stage(&r->loop.folder, &dir);
    if (status == BY_OK)
        status = by_model_save(r->model, dir, BY_F32);
    if (status == BY_OK && r->data.tokenizer)
        status = by_tokenizer_save(r->data.tokenizer, dir);
    if (status == BY_OK && r->data.processor)
        status = by_processor_save(r->data.processor, dir);
    if (status == BY_OK)
        status = train_folder_place(&r->loop.folder, "averaged");
    base_free(dir);
    return status;
}

/* Writes the best model, or without held-out data the last one, into the folder itself. */
static by_status leave(train_run *r)
{
    char *dir = base_path_join(r->spec.out, isfinite(r->loop.state.best_eval) ? "best" : "last");
    by_model *m = dir ? by_model_open(r->device, dir, &(by_model_spec){0}) : NULL;
    by_status s = m ? train_checkpoint_leave(&r->loop.folder, m, r->data.tokenizer, r->data.processor)
                    : base_error_status();
    by_model_free(m);
    base_free(dir);
    return s;
}

/* Describes the run in a sentence. */
static void describe(const train_run *r)
{
    base_buf note = {0};
    if (r->data.found.size && !r->data.found.failed)
        base_buf_puts(&note, r->data.found.data);
    base_buf_printf(&note, "%s: %.2f M parameters, %lld training tokens, %lld held out",
                    by_model_title(r->model), (double)r->result->parameters / 1e6,
                    (long long)r->data.train_tokens, (long long)r->data.eval_tokens);
    if (r->data.kind != DATA_OBJECTIVE_LM)
        base_buf_printf(&note, ", %lld rows of objective %s", (long long)data_objective_rows(r->data.rows),
                        data_objective_name(r->data.kind));
    if (isfinite(r->data.entropy))
        base_buf_printf(&note, ", unigram entropy %.4f", r->data.entropy);
    int64_t empty, longer;
    data_objective_dropped(r->data.rows, &empty, &longer);
    if (empty || longer)
        base_buf_printf(&note, "; skipped: %lld pairs with an empty side, %lld longer than %d tokens",
                        (long long)empty, (long long)longer, r->spec.seq);
    base_buf_printf(&note, "; %lld steps (%.3g epochs)", (long long)r->spec.steps,
                    (double)r->spec.steps / epoch_steps(r));
    int64_t all = 0, taken = r->data.eval_rows ? held_batches(r, &all) : 0;
    if (taken < all)
        base_buf_printf(&note, "; evaluations take %lld of %lld held-out batches (--eval-batches 0: all)",
                        (long long)taken, (long long)all);
    if (r->spec.schedule.warmup > r->spec.steps)
        base_buf_printf(&note, "; the warm-up of %lld steps is longer than the run: the rate ends at %.2e",
                        (long long)r->spec.schedule.warmup,
                        by_schedule_rate(&r->spec.schedule, r->spec.steps - 1));
    base_buf_printf(&note, "; memory %.0f MiB of parameters and optimiser, %.0f MiB of activations",
                    (double)r->result->state_bytes / 1048576.0,
                    (double)r->result->activation_bytes / 1048576.0);
    train_loop_announce(&r->loop, note.failed ? "" : note.data);
    base_buf_free(&note);
}

static by_status run(train_run *r)
{
    by_run_result *result = r->result;
    BY_TRY(set_up(r));
    result->resumed_from = r->loop.state.step;
    result->loss_unit = loss_unit(r);
    result->parameters = by_params_elements(by_model_params(r->model));
    result->trained = by_params_trained(by_model_trained(r->model));
    result->activation_bytes = by_trainer_bytes(r->trainer);
    result->state_bytes = by_trainer_state_bytes(r->trainer);
    describe(r);
    by_status s = train_loop_run(&r->loop);
    result->loss = r->loop.loss;
    result->stopped_early = r->loop.stopped_early;
    result->steps = r->loop.state.step;
    result->best_eval_loss = r->loop.state.best_eval;
    result->best_step = r->loop.state.best_step;
    if (r->n_metrics) {
        result->metrics[0] = (by_metric){r->metrics[0].name, r->loop.state.best_eval / log(2)};
        result->n_metrics = 1;
    }
    if (s == BY_OK && r->spec.average > 0)
        s = average(r);
    return s == BY_OK && r->spec.leaves_model ? leave(r) : s;
}

by_status by_train_run(by_device *d, const by_run_spec *spec, by_run_result *result)
{
    return train_run_with(d, spec, NULL, result);
}

by_status train_run_with(by_device *d, const by_run_spec *spec, const train_lesson *lesson,
                         by_run_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_run_spec or by_run_result" : "device");
    base_error_clear();
    if (!lesson && train_reads_pictures(d, spec))
        return train_picture_train(d, spec, NULL, result);
    BY_TRY(train_without_pictures(&spec->images));
    train_run r = {
        .device = d, .spec = *spec, .lesson = lesson, .loop = {.folder = {.lock = -1}}, .result = result};
    *result = train_loop_no_result();
    const double started = base_seconds();
    by_status s = run(&r);
    result->seconds = base_seconds() - started;
    train_loop_close(&r.loop, s);
    tear_down(&r);
    return s;
}
