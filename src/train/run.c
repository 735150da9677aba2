/* run.c - a whole training run: data, model, steps, evaluation, checkpoints, logs; and going on where a run
 * stopped. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "model/model.h"
#include "train/folder.h"
#include "train/run.h"
#include "train/defaults.h"

/* ---- set-up ---------------------------------------------------------------------------------- */

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

static by_status open_model(train_run *r)
{
    by_run_spec *s = &r->spec;
    by_model_spec spec = {
        .dtype = s->dtype, .training = true, .stochastic_rounding = s->stochastic_rounding, .seed = s->seed};
    if (r->last) {
        r->model = by_model_open(r->device, r->last, &spec);
        return r->model ? train_checkpoint_load(r->last, r->model, &r->state) : base_error_status();
    }
    spec.task = data_objective_task(r->data.kind);
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

static void fill_sizes(train_run *r)
{
    by_run_spec *s = &r->spec;
    if (s->seq <= 0)
        s->seq = by_model_context(r->model);
    s->batch = BY_MAX(s->batch, 1);
    s->accumulate = BY_MAX(s->accumulate, 1);
    if (r->data.kind == DATA_OBJECTIVE_TRANSLATE) { /* how many rows a batch has is up to the objective */
        s->batch = 1;
        s->batch_tokens = s->batch_tokens > 0 ? s->batch_tokens : 4096;
    } else {
        s->batch_tokens = 0;
    }
}

/* Steps of an epoch, not rounded. */
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
    r->first_steps = s->steps;
    if (r->last)
        BY_TRY(train_folder_recall(s->out, s->steps, &r->first_steps, &r->longer));
    if (s->schedule.rate < 0)
        s->schedule.rate = train_default_rate(r->data.kind, s->optimizer.kind, by_model_width(r->model));
    if (s->schedule.min_rate < 0)
        s->schedule.min_rate = s->schedule.rate / 10;
    if (s->schedule.warmup < 0)
        s->schedule.warmup = train_default_warmup(r->data.kind, r->first_steps);
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

/* What a step needs, compiled and allocated. */
static by_status set_up_steps(train_run *r)
{
    const by_run_spec *s = &r->spec;
    const bool many = r->data.kind == DATA_OBJECTIVE_TRANSLATE;
    r->trainer = by_trainer_new(r->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed,
                                                             .label_smoothing = (float)s->label_smoothing,
                                                             .many_shapes = many});
    if (!r->trainer)
        return base_error_status();
    BY_TRY(data_samples_make(&r->rows, r->data.rows, s->batch * s->accumulate, s->batch));
    if (r->data.eval_rows)
        BY_TRY(data_samples_make(&r->eval_rows, r->data.eval_rows, s->batch, s->batch));
    if (many)
        data_samples_largest(&r->rows, r->data.rows);
    by_batch like = data_samples_batch(&r->rows, 0);
    if (!by_trainer_program(r->trainer, &like))
        return base_error_status();
    by_trainer_set_steps(r->trainer, r->state.step);
    return BY_OK;
}

static by_status open_log(train_run *r)
{
    const by_run_spec *s = &r->spec;
    const bool measured = s->report && !s->no_peak && r->state.step < s->steps;
    r->log = train_log_open(&r->folder, r->state.step);
    if (!r->log)
        return base_error_status();
    r->ahead = (train_readback){.trainer = r->trainer,
                                .log = r->log,
                                .log_every = s->log_every,
                                .steps = s->steps,
                                .started = r->started,
                                .peak = measured ? by_device_peak(r->device, s->dtype) : NAN,
                                .dtype = s->dtype,
                                .report = s->report,
                                .user = s->user,
                                .wanted = s->ahead};
    return BY_OK;
}

/* With overwrite an earlier run stays as it is until everything is open. */
static by_status open_folder(train_run *r)
{
    const by_run_spec *s = &r->spec;
    BY_TRY(train_folder_enter(
        &r->folder,
        &(train_folder_use){.out = s->out,
                            .overwrite = s->overwrite,
                            .averages = s->average > 0,
                            .leaves_model = s->leaves_model,
                            .model = s->init_from,
                            .inputs = {{s->data, s->data_count},
                                       {s->eval_data, s->eval_count},
                                       {(const char *const[]){s->tokenizer, s->target_tokenizer}, 2}},
                            .report = s->report,
                            .user = s->user}));
    return s->overwrite ? BY_OK : train_checkpoint_find(&r->folder, &r->last);
}

static by_status set_up(train_run *r)
{
    by_run_spec *s = &r->spec;
    BY_TRY(open_folder(r));
    BY_TRY(train_dataset_open(&r->data, s, &r->folder, r->last));
    BY_TRY(name_languages(r));
    r->state.best_eval = r->state.best_loss = NAN;
    BY_TRY(open_model(r));
    fill_sizes(r);
    if (s->seq > by_model_context(r->model))
        return base_fail(BY_ERR_ARGUMENT, "sequences of %d tokens are longer than the model's context of %d",
                         s->seq, by_model_context(r->model));
    BY_TRY(train_dataset_objectives(&r->data, s, r->model, true));
    BY_TRY(fill_defaults(r));
    if (r->last)
        BY_TRY(train_run_check(r));
    BY_TRY(set_up_steps(r));
    if (r->last) {
        BY_TRY(train_checkpoint_mend(&r->folder, &r->state, s->keep));
        BY_TRY(r->longer ? train_run_record(r) : BY_OK);
    } else { /* everything that the run needs is open: what an earlier one left may go */
        BY_TRY(s->overwrite ? train_folder_forget(&r->folder) : BY_OK);
        BY_TRY(train_folder_take_input(&r->folder));
        BY_TRY(train_run_record(r));
    }
    return open_log(r);
}

static void tear_down(train_run *r)
{
    base_free(r->last);
    base_free(r->languages);
    data_samples_free(&r->rows);
    data_samples_free(&r->eval_rows);
    train_log_close(r->log);
    by_trainer_free(r->trainer);
    by_model_free(r->model);
    train_dataset_close(&r->data);
    train_folder_close(&r->folder);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int64_t count_targets(const train_run *r, const by_batch *b)
{
    int64_t n = 0;
    for (int64_t i = 0, all = by_batch_targets(r->model, b); i < all; i++)
        n += b->targets[i] != -100;
    return n;
}

/* Where micro-batches have different numbers of targets, each target counts the same. */
static void weigh(train_run *r, const by_batch *b)
{
    int64_t all = 0;
    for (int k = 0; k < r->spec.accumulate; k++) {
        by_batch other = data_samples_batch(&r->rows, k);
        all += count_targets(r, &other);
    }
    by_trainer_share(r->trainer, (double)count_targets(r, b) / (double)BY_MAX(all, 1));
}

/* Started, not waited for. */
static by_status train_step(train_run *r)
{
    const by_run_spec *s = &r->spec;
    const double rate = by_schedule_rate(&s->schedule, r->state.step);
    double tokens = 0, flops = 0;
    train_readback_begin(&r->ahead);
    BY_TRY(data_objective_get(r->data.rows, r->state.step, &r->rows));
    data_objective_prefetch(r->data.rows, r->state.step + 1);
    for (int k = 0; k < s->accumulate; k++) {
        by_batch b = data_samples_batch(&r->rows, k);
        if (r->rows.shapes && s->accumulate > 1)
            weigh(r, &b);
        BY_TRY(by_trainer_backward(r->trainer, &b, k == 0, NULL));
        tokens += (double)b.batch * b.seq;
        flops += by_trainer_flops(r->trainer);
    }
    by_status updated = by_trainer_update(r->trainer, rate, NULL);
    if (updated != BY_OK)
        return train_readback_failed(&r->ahead, updated);
    train_readback_add(&r->ahead, rate, tokens, flops);
    r->state.step++;
    return BY_OK;
}

/* Of the last batch: how many texts of the second task there were, and how many were judged right. */
static by_status judge(train_run *r, const int32_t *labels, int64_t *seen, int64_t *right)
{
    by_pass *p = by_trainer_evaluated(r->trainer);
    float *scores = base_alloc((size_t)r->spec.batch * 2 * sizeof *scores);
    by_status s = scores ? by_pass_read(p, by_pass_io(p)->second, scores) : BY_ERR_MEMORY;
    for (int i = 0; i < r->spec.batch && s == BY_OK; i++) {
        *seen += labels[i] >= 0;
        *right += labels[i] == (scores[2 * i + 1] > scores[2 * i]);
    }
    base_free(scores);
    return s;
}

/* Batches of the held-out part, and how many of them an evaluation takes. */
static int64_t held_batches(const train_run *r, int64_t *all)
{
    const by_run_spec *s = &r->spec;
    *all = data_objective_held_batches(r->data.eval_rows, &r->eval_rows);
    if (s->eval_batches < 0)
        return train_default_eval_batches(*all, s->eval_every, s->accumulate);
    return s->eval_batches > 0 ? BY_MIN(*all, s->eval_batches) : *all;
}

/* The loss is that of the tokens alone, which can be compared with other objectives'. A part of the batches
 * is taken evenly from all: those of pairs are sorted by length. */
static by_status evaluate(train_run *r, by_report *p)
{
    int64_t all, batches = held_batches(r, &all);
    int64_t count = 0, seen = 0, right = 0;
    double sum = 0;
    for (int64_t i = 0; i < batches; i++) {
        BY_TRY(data_objective_held_batch(r->data.eval_rows, i * all / batches, &r->eval_rows));
        by_batch b = data_samples_batch(&r->eval_rows, 0);
        const int32_t *labels = b.second;
        b.second = NULL;
        BY_TRY(by_trainer_evaluate(r->trainer, &b, &sum, &count));
        if (labels)
            BY_TRY(judge(r, labels, &seen, &right));
    }
    p->eval_loss = count ? sum / (double)count : NAN;
    p->next_accuracy = seen ? (double)right / (double)seen : NAN;
    return BY_OK;
}

static by_status save(train_run *r, bool is_best)
{
    BY_TRY(train_checkpoint_save(&r->folder, r->model, r->data.tokenizer, &r->state, is_best, r->spec.keep));
    char task[64];
    base_format(task, sizeof task, "objective %s", data_objective_name(r->data.kind));
    train_log_draw(r->log, r->model, task, "nats per token");
    return BY_OK;
}

static bool evaluates(const train_run *r)
{
    return r->data.eval_rows && (r->state.step >= r->spec.steps || r->state.step % r->spec.eval_every == 0);
}

/* Whether there is more to do after this step than to start the next. */
static bool is_due(const train_run *r)
{
    return train_readback_full(&r->ahead) || evaluates(r) || r->state.step >= r->spec.steps ||
           r->state.step % r->spec.save_every == 0;
}

/* What happens between two steps: evaluation, logging, saving. *stop is set when the run is to end early. */
static by_status after_step(train_run *r, by_report *p, bool *stop)
{
    const by_run_spec *s = &r->spec;
    bool last = r->state.step >= s->steps, is_best = false;
    if (evaluates(r)) {
        BY_TRY(evaluate(r, p));
        p->evaluated = true;
        is_best = isnan(r->state.best_eval) || p->eval_loss < r->state.best_eval;
        r->state.stale = is_best ? 0 : r->state.stale + 1;
        if (is_best) {
            r->state.best_eval = p->eval_loss;
            r->state.best_step = r->state.step;
        }
        r->result->eval_loss = p->eval_loss;
        r->result->next_accuracy = p->next_accuracy;
        *stop = s->patience > 0 && r->state.stale >= s->patience;
        r->result->stopped_early = *stop && !last;
    }
    if (p->evaluated || last || r->state.step % s->log_every == 0)
        train_log_write(r->log, p);
    if (last || *stop || is_best || r->state.step % s->save_every == 0) {
        BY_TRY(save(r, is_best));
        p->saved = true;
    }
    return BY_OK;
}

static void trace(train_run *r, by_trace_fn fn)
{
    const by_batch like = data_samples_batch(&r->rows, 0);
    by_program *p = by_trainer_program(r->trainer, &like);
    if (p)
        by_program_trace(p, fn, r->spec.user);
}

/* Look at the steps that were started, and do what is due after the last of them. */
static by_status settle(train_run *r, bool *stop)
{
    by_report p;
    BY_TRY(train_readback_settle(&r->ahead, &p));
    r->result->loss = p.loss;
    BY_TRY(after_step(r, &p, stop));
    train_readback_report(&r->ahead, &p);
    return BY_OK;
}

static by_status cancel(train_run *r)
{
    bool stop = false;
    if (r->ahead.count > 0)
        BY_TRY(settle(r, &stop));
    if (r->state.step > 0)
        BY_TRY(save(r, false));
    return base_fail(BY_ERR_CANCELLED, "stopped at step %lld; the same command goes on from there",
                     (long long)r->state.step);
}

static by_status train(train_run *r)
{
    bool stop = r->spec.patience > 0 && r->state.stale >= r->spec.patience;
    if (r->spec.trace && r->state.step < r->spec.steps)
        trace(r, r->spec.trace);
    while (r->state.step < r->spec.steps && !stop) {
        if (r->spec.cancelled && r->spec.cancelled(r->spec.user))
            return cancel(r);
        by_status s = train_step(r);
        if (s != BY_OK && r->ahead.count > 0)
            BY_TRY(settle(r, &stop)); /* those before it were in order */
        BY_TRY(s);
        trace(r, NULL);
        if (is_due(r))
            BY_TRY(settle(r, &stop));
    }
    return BY_OK;
}

/* The mean of the last checkpoints, which is what often translates best (Vaswani et al. 2017). The model is
 * not needed for anything else any more. */
static by_status average(train_run *r)
{
    const by_run_spec *s = &r->spec;
    char *dir = NULL;
    by_status status = train_checkpoint_average(&r->folder, s->average, r->model, &r->result->averaged);
    by_report p = train_report_empty();
    if (status == BY_OK && r->data.eval_rows)
        status = evaluate(r, &p);
    r->result->averaged_eval_loss = p.eval_loss;
    if (status == BY_OK)
        status = train_folder_stage(&r->folder, &dir);
    if (status == BY_OK)
        status = by_model_save(r->model, dir, BY_F32);
    if (status == BY_OK && r->data.tokenizer)
        status = by_tokenizer_save(r->data.tokenizer, dir);
    if (status == BY_OK)
        status = train_folder_place(&r->folder, "averaged");
    base_free(dir);
    return status;
}

/* What begins now, in a sentence. */
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
        base_buf_printf(&note, "; left out: %lld pairs with an empty side, %lld longer than %d tokens",
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
    by_report p = train_report_empty();
    p.step = r->state.step;
    p.note = note.data;
    train_readback_report(&r->ahead, &p);
    base_buf_free(&note);
}

by_status by_train_run(by_device *d, const by_run_spec *spec, by_run_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_run_spec or by_run_result" : "device");
    base_error_clear();
    train_run r = {
        .device = d, .spec = *spec, .folder = {.lock = -1}, .started = base_seconds(), .result = result};
    *result = (by_run_result){
        .loss = NAN, .eval_loss = NAN, .best_eval_loss = NAN, .next_accuracy = NAN, .averaged_eval_loss = NAN};
    by_status s = set_up(&r);
    const bool begun = s == BY_OK;
    if (begun) {
        result->resumed_from = r.state.step;
        result->parameters = by_params_elements(by_model_params(r.model));
        result->activation_bytes = by_trainer_bytes(r.trainer);
        result->state_bytes = by_trainer_state_bytes(r.trainer);
        describe(&r);
        s = train(&r);
        if (s == BY_OK && spec->average > 0)
            s = average(&r);
        result->steps = r.state.step;
        result->best_eval_loss = r.state.best_eval;
        result->best_step = r.state.best_step;
    }
    result->seconds = base_seconds() - r.started;
    if (!begun || (s != BY_OK && s != BY_ERR_CANCELLED && r.state.step == 0))
        train_folder_abandon(&r.folder); /* it did not come to its first step */
    tear_down(&r);
    return s;
}
