/* picture_run.c - training on pictures with labels or captions, as a client of the loop. Threads prepare
 * batches ahead, and accuracy selects the best checkpoint. */
#include "train/picture_run.h"

#include <math.h>

#include "base/file.h"
#include "infer/picture_passes.h"
#include "model/model.h"
#include "train/defaults.h"

/* ---- the client ------------------------------------------------------------------------------ */

/* Traces the first step of this process. */
static void trace(train_picture_run *r, by_trace_fn fn)
{
    const by_batch like = train_picture_like(r);
    by_program *p = r->spec.trace ? by_trainer_program(r->trainer, &like) : NULL;
    if (p)
        by_program_trace(p, fn, r->spec.user);
    if (!fn)
        r->spec.trace = NULL;
}

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    train_picture_run *r = self;
    const double before = r->batches.waited;
    trace(r, r->spec.trace);
    for (int k = 0; k < r->spec.accumulate; k++) {
        by_batch b;
        BY_TRY(train_pictures_next(&r->batches, r->model, &b, NULL));
        if (r->teacher)
            BY_TRY(train_teacher_label(r->teacher, &b));
        BY_TRY(by_trainer_backward(r->trainer, &b, k == 0, NULL));
        work->pictures += b.batch;
        work->tokens += (double)b.batch * b.seq;
        work->flops += by_trainer_flops(r->trainer);
    }
    trace(r, NULL);
    work->waited = r->batches.waited - before;
    BY_TRY(train_update(r->trainer, rate));
    return r->average ? train_average_update(r->average, step + 1) : BY_OK;
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    return by_trainer_read(((train_picture_run *)self)->trainer, count, losses, norms);
}

static by_status measure(train_picture_run *r, const char *predictions)
{
    const train_picture_measure w = {.source = &r->eval_source,
                                     .workers = train_picture_workers(r->device, r->spec.images.data.workers),
                                     .passes = r->passes,
                                     .model = r->model,
                                     .predictions = predictions};
    by_image_result_free(&r->evaluation);
    BY_TRY(train_pictures_measure(&w, &r->evaluation));
    r->n_metrics = train_picture_metrics(&r->evaluation, r->metrics);
    return BY_OK;
}

/* Calls a function with the averaged parameters in place of the parameters, if there are any. */
static by_status with_average(train_picture_run *r,
                              by_status (*fn)(train_picture_run *r, const char *argument),
                              const char *argument)
{
    if (!r->average)
        return fn(r, argument);
    BY_TRY(train_average_enter(r->average));
    by_status s = fn(r, argument);
    return train_average_leave(r->average) == BY_OK ? s : base_error_status();
}

static by_status evaluate(void *self, by_report *p, double *score)
{
    train_picture_run *r = self;
    BY_TRY(with_average(r, measure, NULL));
    p->eval_loss = r->evaluation.loss;
    p->metrics = r->metrics;
    p->n_metrics = r->n_metrics;
    *score = r->metrics[0].value;
    r->result->eval_loss = p->eval_loss;
    return BY_OK;
}

static by_status save_model(train_picture_run *r, const char *dir)
{
    BY_TRY(train_model_save(r->model, r->tokenizer, dir));
    return by_processor_save(r->processor, dir);
}

static by_status save(void *self, const char *dir)
{
    train_picture_run *r = self;
    BY_TRY(with_average(r, save_model, dir));
    return r->average ? train_average_save(r->average, dir) : BY_OK;
}

static void title(void *self, base_buf *out)
{
    const train_picture_run *r = self;
    train_log_title(out, r->model,
                    r->task == BY_TASK_SEQ2SEQ    ? "captions"
                    : r->task == BY_TASK_CONTRAST ? "pictures and captions"
                                                  : "image classification");
}

static const train_client client = {
    step, read_losses, evaluate, save, train_picture_load, train_picture_record, title, NULL};

/* ---- the end ----------------------------------------------------------------------------------- */

/* Saves the best model with its processor. */
static by_status take_best(train_picture_run *r)
{
    char *dir = base_path_join(r->spec.out, isfinite(r->loop.state.best_eval) ? "best" : "last");
    const by_model_spec spec = {.dtype = r->spec.dtype,
                                .weights = r->spec.adapter ? r->spec.weights : BY_F32};
    by_model *m = dir ? by_model_open(r->device, dir, &spec) : NULL;
    base_free(dir);
    if (!m)
        return base_error_status();
    by_passes_free(r->passes);
    train_pictures_close(&r->batches);
    train_average_free(r->average);
    by_trainer_free(r->trainer);
    by_model_free(r->model);
    r->trainer = NULL;
    r->average = NULL;
    r->passes = NULL;
    r->model = m;
    r->source.model = r->eval_source.model = m; /* for the start token of captions */
    return train_picture_make_passes(r);
}

static by_status leave(train_picture_run *r)
{
    char *stage;
    BY_TRY(train_folder_stage(&r->loop.folder, &stage));
    by_status s = by_model_save(r->model, stage, BY_F32);
    if (s == BY_OK)
        s = by_processor_save(r->processor, stage);
    if (s == BY_OK && r->tokenizer)
        s = by_tokenizer_save(r->tokenizer, stage);
    if (s == BY_OK)
        s = train_folder_place_files(&r->loop.folder, NULL);
    if (s != BY_OK)
        train_folder_unstage(&r->loop.folder);
    base_free(stage);
    return s;
}

/* Reports the last evaluation as that of the best model, unless an earlier one was better or this process has
 * made none. */
static by_status finish(train_picture_run *r)
{
    const char *predictions = r->tuning ? r->tuning->predictions : NULL;
    const bool known = r->evaluation.pictures > 0 && r->loop.state.best_step == r->loop.state.step;
    BY_TRY(take_best(r));
    if (train_picture_holds_out(r)) {
        if (!known || predictions)
            BY_TRY(measure(r, predictions));
        r->result->n_metrics = r->n_metrics;
        memcpy(r->result->metrics, r->metrics, sizeof r->metrics);
        r->result->best_eval_loss = r->evaluation.loss;
    }
    return r->spec.leaves_model ? leave(r) : BY_OK;
}

static void describe(const train_picture_run *r)
{
    const by_run_spec *s = &r->spec;
    by_pictures reads;
    char kinds[80];
    gen_reads_pictures(r->model, &reads);
    if (r->tokenizer)
        base_format(kinds, sizeof kinds, " with captions of up to %d tokens of %d", r->length,
                    by_tokenizer_vocab_size(r->tokenizer));
    else
        base_format(kinds, sizeof kinds, " of %d classes", by_model_labels(r->model));
    base_buf note = {0};
    base_buf_printf(
        &note,
        "%s: %.2f M parameters; %lld pictures%s, %lld for evaluation; %d x %d pixels, %d "
        "positions; %lld steps of %d picture%s (%.3g epochs), evaluated every %lld; %d %s "
        "pictures; memory %.0f MiB of parameters and optimiser, %.0f MiB of activations",
        by_model_title(r->model), (double)r->result->parameters / 1e6, (long long)r->train.count, kinds,
        (long long)r->held.count, r->source.width, r->source.height,
        by_pictures_positions(&reads, r->source.height, r->source.width), (long long)s->steps,
        s->batch * s->accumulate, s->batch * s->accumulate == 1 ? "" : "s",
        (double)s->steps * s->batch * s->accumulate / (double)r->train.count, (long long)s->eval_every,
        train_picture_workers(r->device, s->images.data.workers),
        train_picture_workers(r->device, s->images.data.workers) == 1 ? "thread prepares" : "threads prepare",
        (double)r->result->state_bytes / 1048576.0, (double)r->result->activation_bytes / 1048576.0);
    train_loop_announce(&r->loop, note.failed ? "" : note.data);
    base_buf_free(&note);
}

static void tear_down(train_picture_run *r)
{
    train_pictures_close(&r->batches);
    by_passes_free(r->passes);
    by_memory_free(r->memory);
    train_teacher_free(r->teacher);
    train_average_free(r->average);
    by_trainer_free(r->trainer);
    by_image_result_free(&r->evaluation);
    by_model_free(r->model);
    by_processor_free(r->processor);
    by_tokenizer_free(r->tokenizer);
    train_captions_close(&r->captions);
    train_captions_close(&r->eval_captions);
    by_picture_set_free(r->set);
    by_picture_set_free(r->eval_set);
}

static by_status run(train_picture_run *r)
{
    by_run_result *result = r->result;
    BY_TRY(train_picture_set_up(r, &client));
    result->resumed_from = r->loop.state.step;
    result->parameters = by_params_elements(by_model_params(r->model));
    result->trained = by_params_trained(by_model_trained(r->model));
    result->labels = by_model_labels(r->model);
    result->activation_bytes = by_trainer_bytes(r->trainer);
    result->state_bytes = by_trainer_state_bytes(r->trainer);
    describe(r);
    by_status s = train_loop_run(&r->loop);
    result->loss = r->loop.loss;
    result->stopped_early = r->loop.stopped_early;
    result->steps = r->loop.state.step;
    result->best_step = train_picture_holds_out(r) ? r->loop.state.best_step : r->loop.state.step;
    result->data_wait = r->loop.stepped > 0 ? r->loop.waited / r->loop.stepped : (double)NAN;
    return s == BY_OK ? finish(r) : s;
}

by_status train_picture_train(by_device *d, const by_run_spec *spec, const train_picture_tuning *tuning,
                              by_run_result *result)
{
    train_picture_run r = {
        .device = d, .spec = *spec, .tuning = tuning, .loop = {.folder = {.lock = -1}}, .result = result};
    *result = train_loop_no_result();
    const double started = base_seconds();
    by_status s = run(&r);
    result->seconds = base_seconds() - started;
    train_loop_close(&r.loop, s);
    tear_down(&r);
    return s;
}

/* ---- entry points ------------------------------------------------------------------------------ */

bool train_reads_pictures(by_device *d, const by_run_spec *spec)
{
    by_pictures reads;
    const arch_family *a = spec->family && !spec->init_from ? arch_find(spec->family) : NULL;
    by_model *m = spec->init_from ? by_model_open(d, spec->init_from, &(by_model_spec){0}) : NULL;
    const bool yes = a ? a->pictures != NULL : m && by_model_pictures(m, &reads);
    by_model_free(m);
    base_error_clear(); /* opening the model reports the error */
    return yes;
}

by_status train_without_pictures(const by_image_training *i)
{
    const by_augment *a = &i->augment;
    const struct {
        const char *name;
        bool wanted;
    } parts[] = {
        {"flips", a->flip > 0},
        {"crops", a->crop_padding > 0 || a->crop_scale[0] > 0},
        {"RandAugment", a->layers > 0},
        {"changes of colour", a->brightness > 0 || a->contrast > 0 || a->saturation > 0 || a->hue > 0},
        {"erasing", a->erase > 0},
        {"mixup and cutmix", a->mixup > 0 || a->cutmix > 0},
        {"stochastic depth", i->drop_path > 0},
        {"averaged weights", i->average > 0},
        {"a teacher", i->teacher != NULL}};
    for (int k = 0; k < BY_COUNT(parts); k++)
        if (parts[k].wanted)
            return base_fail(BY_ERR_ARGUMENT,
                             "%s: only models that read pictures in patches (ViT, DeiT, CLIP, captions) and "
                             "classifiers of pictures are trained with that",
                             parts[k].name);
    return BY_OK;
}

by_status train_finetune_pictures(by_device *d, const by_finetune_spec *spec, by_finetune_result *result)
{
    const train_picture_tuning tuning = {.kind = spec->reading.kind,
                                         .freeze = spec->freeze,
                                         .layer_decay = spec->layer_decay,
                                         .warmup_share = spec->warmup_share,
                                         .eval_batch = spec->work.batch,
                                         .predictions = spec->predictions};
    if (spec->class_weights)
        return base_fail(BY_ERR_UNSUPPORTED, "class weights are not supported for pictures");
    if (spec->predictions && !spec->eval_data)
        return base_fail(BY_ERR_ARGUMENT, "predictions need evaluation data");
    by_run_spec run = train_tuning_run(spec);
    by_run_result r;
    run.batch = spec->batch;
    run.images = spec->images;
    run.no_peak = true;
    by_status s = train_picture_train(d, &run, &tuning, &r);
    *result = train_tuning_result(&r);
    result->evaluated = r.n_metrics > 0;
    result->data_wait = r.data_wait;
    result->labels = r.labels;
    result->best.n_metrics = r.n_metrics;
    memcpy(result->best.metrics, r.metrics, sizeof r.metrics);
    result->best.score = r.n_metrics ? r.metrics[0].value : -r.best_eval_loss;
    return s;
}
