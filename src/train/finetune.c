/* finetune.c - fine-tuning on labelled examples, a client of the loop: a model with the head of the task, and
 * metrics that select the best checkpoint. */
#include "banyan/finetune.h"

#include <math.h>

#include "train/defaults.h"
#include "train/lesson.h"
#include "train/loop.h"
#include "train/picture_run.h"
#include "train/task_batches.h"

typedef struct tuning {
    by_device *device;
    by_finetune_spec spec;      /* defaults filled in */
    const train_lesson *lesson; /* NULL: none */
    by_tokenizer *tokenizer;
    data_examples examples, eval_examples; /* until the tasks take them over */
    train_task train, eval;
    bool has_eval;
    by_model *model;
    by_trainer *trainer;
    by_passes *passes;      /* of evaluation */
    by_memory *memory;      /* of their activations */
    data_row_groups groups; /* of the present epoch */
    int64_t epoch, epoch_steps;
    by_task_result evaluation; /* the last */
    train_loop loop;
    by_finetune_result *result;
} tuning;

enum { FEW_PASSES = 24 }; /* shapes that are kept compiled */

/* ---- the model ------------------------------------------------------------------------------- */

/* Whether the model has these labels in this order, so that its head is kept. */
static bool same_labels(const by_model *m, const data_labels *labels)
{
    if (by_model_labels(m) != labels->count)
        return false;
    for (int i = 0; i < labels->count; i++)
        if (strcmp(by_model_label_name(m, i), labels->names[i]) != 0)
            return false;
    return true;
}

/* How to open the model: with its own head if that fits, otherwise with a new one. */
static by_status choose_head(const tuning *t, const data_labels *labels, by_model_spec *spec)
{
    const by_examples_spec *data = &t->spec.reading;
    by_model *m = by_model_open(t->device, t->spec.model, &(by_model_spec){.dtype = spec->dtype});
    if (!m)
        return base_error_status();
    spec->task = train_task_task(data->kind);
    spec->problem = train_task_problem(data);
    spec->labels = data->kind == BY_EXAMPLE_REGRESS ? t->examples.list[0].n_labels : labels->count;
    spec->new_head = by_model_task(m) != spec->task;
    if (train_task_has_names(data->kind) || data->kind == BY_EXAMPLE_REGRESS)
        spec->new_head =
            spec->new_head || by_model_problem(m) != spec->problem ||
            (train_task_has_names(data->kind) ? !same_labels(m, labels) : by_model_labels(m) != spec->labels);
    by_model_free(m);
    return BY_OK;
}

static by_model_spec spec_of(const by_finetune_spec *s)
{
    return (by_model_spec){.dtype = s->dtype,
                           .training = true,
                           .stochastic_rounding = s->stochastic_rounding,
                           .freeze = s->freeze,
                           .layer_decay = s->layer_decay,
                           .adapter = s->adapter,
                           .weights = s->weights,
                           .seed = s->seed};
}

/* The model that a lesson creates, whose labels get names. */
static by_status open_lesson(tuning *t)
{
    by_model_spec spec = spec_of(&t->spec);
    spec.task = train_task_task(t->spec.reading.kind);
    spec.problem = train_task_problem(&t->spec.reading);
    BY_TRY(t->lesson->open(t->lesson->user, t->device, &spec, &t->model));
    if (t->spec.dropout >= 0)
        by_model_set_dropout(t->model, t->spec.dropout);
    return BY_OK;
}

static by_status open_fresh(tuning *t)
{
    if (t->lesson)
        return open_lesson(t);
    data_labels labels = {0};
    by_model_spec spec = spec_of(&t->spec);
    by_status s =
        train_task_has_names(t->spec.reading.kind) ? data_examples_labels(&t->examples, &labels) : BY_OK;
    if (s == BY_OK && train_task_has_names(t->spec.reading.kind) && labels.count < 2 &&
        !t->spec.reading.separator)
        s = base_fail(BY_ERR_FORMAT, "%s: all examples have the label \"%s\"", t->examples.path,
                      labels.names[0]);
    if (s == BY_OK)
        s = choose_head(t, &labels, &spec);
    if (s == BY_OK && !(t->model = by_model_open(t->device, t->spec.model, &spec)))
        s = base_error_status();
    if (s == BY_OK && train_task_has_names(t->spec.reading.kind))
        s = by_model_name_labels(t->model, labels.names, labels.count);
    if (s == BY_OK && t->spec.dropout >= 0)
        by_model_set_dropout(t->model, t->spec.dropout);
    base_free(labels.names);
    return s;
}

static by_status load(void *self, const char *dir)
{
    tuning *t = self;
    by_model_spec spec = spec_of(&t->spec);
    spec.adapter = NULL; /* it is in the checkpoint */
    t->model = by_model_open(t->device, dir, &spec);
    if (!t->model)
        return base_error_status();
    if (by_model_task(t->model) != train_task_task(t->spec.reading.kind))
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s is for another task (%s); use another folder, or overwrite it",
                         t->spec.out, by_task_name(by_model_task(t->model)));
    return train_model_load(t->model, dir);
}

static by_status save(void *self, const char *dir)
{
    const tuning *t = self;
    BY_TRY(train_model_save(t->model, t->tokenizer, dir));
    return train_lesson_save(t->lesson, dir);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static by_status enter_epoch(tuning *t, int64_t epoch)
{
    if (epoch == t->epoch)
        return BY_OK;
    data_row_groups_free(&t->groups);
    t->epoch = epoch;
    return data_rows_shuffled(&t->train.rows, t->spec.batch, t->spec.seed + (uint64_t)epoch, &t->groups);
}

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    tuning *t = self;
    const by_finetune_spec *s = &t->spec;
    BY_TRY(enter_epoch(t, step / t->epoch_steps));
    int64_t g = step % t->epoch_steps * s->accumulate, end = BY_MIN(g + s->accumulate, t->groups.count);
    for (bool first = true; g < end; g++, first = false) {
        const int from = t->groups.first[g], count = t->groups.first[g + 1] - from;
        int64_t counted;
        BY_TRY(train_task_batch(&t->train, t->groups.rows + from, count, count,
                                s->seed ^ (uint64_t)(step + 1) << 20, &counted));
        train_task_weigh(&t->train);
        BY_TRY(train_lesson_prepare(t->lesson, &t->train.batch.batch, false));
        BY_TRY(by_trainer_backward(t->trainer, &t->train.batch.batch, first, NULL));
        work->tokens += (double)count * t->train.batch.batch.seq;
    }
    BY_TRY(train_update(t->trainer, rate));
    return train_lesson_update(t->lesson, rate, step);
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    return by_trainer_read(((tuning *)self)->trainer, count, losses, norms);
}

static by_status evaluate(void *self, by_report *r, double *score)
{
    tuning *t = self;
    by_task_result *v = &t->evaluation;
    BY_TRY(train_lesson_measure(t->lesson, t->trainer, r));
    BY_TRY(train_task_evaluate(&t->eval, t->passes, NULL, v));
    r->eval_loss = v->loss;
    r->metrics = v->metrics;
    r->n_metrics = v->n_metrics;
    *score = v->score;
    return BY_OK;
}

static by_status record(void *self, train_record *out)
{
    const tuning *t = self;
    const by_finetune_spec *s = &t->spec;
    const by_example_kind kind = s->reading.kind;
    const bool labelled = train_task_has_names(kind) || kind == BY_EXAMPLE_REGRESS;
    const struct {
        const char *key, *value;
        train_rule rule;
    } texts[] = {{"model", s->model, TRAIN_FREE},
                 {"family", by_model_family(t->model), TRAIN_SAME},
                 {"class", by_model_class(t->model), TRAIN_SAME},
                 {"dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME},
                 {"freeze", s->freeze, TRAIN_SAME},
                 {"weights", s->weights ? by_dtype_name(s->weights) : NULL, TRAIN_SAME},
                 {"class_weights", s->class_weights, TRAIN_SAME},
                 {"data", s->data, TRAIN_FREE},
                 {"eval_data", s->eval_data, TRAIN_FREE}};
    const struct {
        const char *key;
        double value;
        train_rule rule;
    } numbers[] = {{"labels", labelled ? by_model_labels(t->model) : 0, TRAIN_SAME},
                   {"limit", t->train.rows.spec.limit, TRAIN_SAME},
                   {"overlap", t->train.spec.overlap, TRAIN_SAME},
                   {"layer_decay", s->layer_decay > 0 ? s->layer_decay : 1, TRAIN_SAME},
                   {"train_cases", t->train.examples.count, TRAIN_SAME},
                   {"train_rows", t->train.rows.count, TRAIN_SAME},
                   {"eval_cases", t->has_eval ? t->eval.examples.count : 0, TRAIN_SAME},
                   {"data_fingerprint", (double)(t->train.examples.fingerprint >> 12), TRAIN_SAME}};
    for (int i = 0; i < BY_COUNT(texts); i++)
        train_record_text(out, texts[i].key, texts[i].value, texts[i].rule);
    train_record_adapter(out, s->adapter, s->lora);
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_number(out, numbers[i].key, numbers[i].value, numbers[i].rule);
    train_record_newer(out, "own_dropout", s->dropout, NAN);
    train_loop_record(&t->loop, TRAIN_COURSE(s, t->device), out);
    train_lesson_record(t->lesson, out);
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    const tuning *t = self;
    char task[80];
    base_format(task, sizeof task, "%s%s%s", t->lesson ? t->lesson->title : "", t->lesson ? ", " : "",
                train_task_title(t->spec.reading.kind));
    train_log_title(out, t->model, task);
}

static const train_client client = {step, read_losses, evaluate, save, load, record, title, NULL};

/* ---- set-up ---------------------------------------------------------------------------------- */

static by_status fill_defaults(tuning *t)
{
    by_finetune_spec *s = &t->spec;
    const int together = t->train.rows.spec.together;
    if (s->batch <= 0)
        s->batch = train_default_tuning_batch(t->train.rows.count);
    s->batch = BY_MAX(s->batch / together, 1) * together;
    s->accumulate = BY_MAX(s->accumulate, 1);
    const int64_t rows = (int64_t)s->batch * s->accumulate;
    t->epoch_steps = (t->train.rows.count + rows - 1) / rows;
    if (s->steps <= 0)
        s->steps = BY_MAX(
            (int64_t)ceil((s->epochs > 0 ? s->epochs : train_default_tuning_epochs((double)t->epoch_steps)) *
                          (double)t->epoch_steps),
            1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&t->loop, s->steps));
    if (s->schedule.rate < 0)
        s->schedule.rate =
            train_default_tuning_rate(by_model_width(t->model)) * train_default_adapter_factor(t->model);
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)t->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = train_default_eval_steps(t->epoch_steps, t->has_eval ? t->eval.rows.count : 0, rows);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    t->epoch = -1;
    return BY_OK;
}

static by_status open_data(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    BY_TRY(data_examples_open(&t->examples, s->data, &s->reading));
    if (s->eval_data)
        BY_TRY(data_examples_open(&t->eval_examples, s->eval_data, &s->reading));
    t->has_eval = s->eval_data != NULL;
    t->tokenizer = by_tokenizer_load(s->model);
    return t->tokenizer ? BY_OK : base_error_status();
}

static by_status open_tasks(tuning *t)
{
    BY_TRY(train_task_number(t->model, &t->examples));
    BY_TRY(train_task_open(&t->train, &t->examples, t->model, t->tokenizer, &t->spec.work));
    t->train.rows.spec.teacher_segments = t->lesson ? t->lesson->segments : 0;
    if (!t->has_eval)
        return BY_OK;
    BY_TRY(train_task_number(t->model, &t->eval_examples));
    return train_task_open(&t->eval, &t->eval_examples, t->model, t->tokenizer, &t->spec.work);
}

/* With overwrite, an earlier run is kept until everything is open. */
static by_status open_folder(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    return train_loop_open(&t->loop, &client, t,
                           &(train_folder_use){.out = s->out,
                                               .overwrite = s->overwrite,
                                               .leaves_model = true,
                                               .model = s->model,
                                               .inputs = {{(const char *const[]){s->data, s->eval_data}, 2}},
                                               .report = s->report,
                                               .user = s->user});
}

/* Evaluation passes for rows of all lengths share activation memory. */
static by_status make_passes(tuning *t)
{
    t->passes =
        by_passes_new(t->model, &(by_pass_spec){.grads = BY_GRAD_NONE, .memory = &t->memory}, FEW_PASSES);
    return t->passes ? BY_OK : base_error_status();
}

/* The largest batches are compiled first: all others share their memory, so the run allocates no more
 * later. */
static by_status plan_memory(tuning *t)
{
    BY_TRY(train_task_largest(&t->train, t->spec.batch));
    BY_TRY(train_lesson_prepare(t->lesson, &t->train.batch.batch, true));
    if (!by_trainer_program(t->trainer, &t->train.batch.batch))
        return base_error_status();
    if (t->has_eval) {
        BY_TRY(train_task_largest(&t->eval, t->eval.spec.batch));
        if (!by_passes_get(t->passes, &t->eval.batch.batch))
            return base_error_status();
    }
    t->result->activation_bytes = by_trainer_bytes(t->trainer) + by_passes_bytes(t->passes);
    t->result->state_bytes = by_trainer_state_bytes(t->trainer);
    return BY_OK;
}

static by_status set_up(tuning *t)
{
    by_finetune_spec *s = &t->spec;
    BY_TRY(open_data(t));
    BY_TRY(open_folder(t));
    BY_TRY(t->loop.last ? train_loop_load(&t->loop) : open_fresh(t));
    BY_TRY(open_tasks(t));
    BY_TRY(fill_defaults(t));
    BY_TRY(train_lesson_begin(t->lesson, t->model, t->loop.last));
    BY_TRY(train_loop_check(&t->loop));
    BY_TRY(train_tuning_weights(&t->train, s->class_weights));
    t->result->trained = by_params_trained(by_model_trained(t->model));
    const train_lesson *l = t->lesson;
    t->trainer = by_trainer_new(t->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .loss = l ? l->loss : NULL,
                                                             .loss_user = l ? l->loss_user : NULL,
                                                             .hidden = l && l->hidden,
                                                             .scores = l && l->scores,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed,
                                                             .many_shapes = true});
    BY_TRY(t->trainer ? make_passes(t) : base_error_status());
    BY_TRY(plan_memory(t));
    by_trainer_set_steps(t->trainer, t->loop.state.step);
    return train_loop_begin(&t->loop, &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = t->has_eval,
                                                         .device = t->device,
                                                         .loss_unit = train_task_loss_unit(&s->reading)});
}

static void tear_down(tuning *t)
{
    data_row_groups_free(&t->groups);
    by_passes_free(t->passes);
    by_memory_free(t->memory);
    by_trainer_free(t->trainer);
    train_task_close(&t->train);
    train_task_close(&t->eval);
    data_examples_close(&t->examples);
    data_examples_close(&t->eval_examples);
    by_model_free(t->model);
    by_tokenizer_free(t->tokenizer);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The best model replaces the last. */
static by_status take_best(tuning *t)
{
    const by_model_spec spec = {.dtype = t->spec.dtype, .weights = t->spec.weights};
    by_model *m = train_checkpoint_best(&t->loop.folder, t->device, &spec);
    if (!m)
        return base_error_status();
    by_passes_free(t->passes);
    by_trainer_free(t->trainer);
    by_model_set_pad(m, by_model_pad(t->model)); /* seed of the rows */
    by_model_free(t->model);
    t->trainer = NULL;
    t->model = t->eval.model = t->eval.rows.model = m;
    return make_passes(t);
}

/* Writes the model into the folder itself. */
static by_status finish(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    if (train_loop_best_is_older(&t->loop))
        BY_TRY(take_best(t));
    if (t->has_eval)
        BY_TRY(train_task_evaluate(&t->eval, t->passes, s->predictions, &t->result->best));
    t->result->evaluated = t->has_eval;
    t->result->best_step = t->has_eval ? t->loop.state.best_step : t->loop.state.step;
    return train_checkpoint_leave(&t->loop.folder, t->model, t->tokenizer, NULL);
}

static void describe(const tuning *t)
{
    const by_finetune_result *r = t->result;
    base_buf note = {0};
    const by_params *body = by_model_params(t->model), *trained = by_model_trained(t->model);
    const size_t values =
        by_params_value_bytes(body) + (trained != body ? by_params_value_bytes(trained) : 0);
    data_examples_describe(&t->train.examples, &note);
    base_buf_puts(&note, "\n");
    if (t->has_eval) {
        data_examples_describe(&t->eval.examples, &note);
        base_buf_puts(&note, "\n");
    }
    base_buf_printf(&note,
                    "%s: %.2f M parameters, %.2f M of them learn; %d examples in %d rows, %d for evaluation; "
                    "%lld steps of %d rows, evaluated every %lld; memory %.1f MiB of parameters, %.1f MiB of "
                    "gradients and optimiser for those that learn, %.1f MiB of activations",
                    by_model_class(t->model), (double)r->parameters / 1e6, (double)r->trained / 1e6,
                    t->train.examples.count, t->train.rows.count, t->has_eval ? t->eval.examples.count : 0,
                    (long long)t->spec.steps, t->spec.batch * t->spec.accumulate,
                    (long long)t->spec.eval_every, (double)values / 1048576.0,
                    (double)(r->state_bytes - values) / 1048576.0, (double)r->activation_bytes / 1048576.0);
    train_loop_announce(&t->loop, note.failed ? "" : note.data);
    base_buf_free(&note);
}

static by_status run(tuning *t)
{
    by_finetune_result *r = t->result;
    BY_TRY(set_up(t));
    r->resumed_from = t->loop.state.step;
    r->parameters = by_params_elements(by_model_params(t->model));
    r->labels = by_model_labels(t->model);
    describe(t);
    by_status s = train_loop_run(&t->loop);
    r->loss = t->loop.loss;
    r->stopped_early = t->loop.stopped_early;
    r->steps = t->loop.state.step;
    return s == BY_OK ? finish(t) : s;
}

by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result)
{
    return train_finetune_with(d, spec, NULL, result);
}

by_status train_finetune_with(by_device *d, const by_finetune_spec *spec, const train_lesson *lesson,
                              by_finetune_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_finetune_spec or by_finetune_result" : "device");
    base_error_clear();
    BY_TRY(train_check_weights(spec->weights, spec->adapter || spec->freeze, spec->model));
    if (data_kind_is_picture(spec->reading.kind))
        return train_finetune_pictures(d, spec, result);
    BY_TRY(train_without_pictures(&spec->images));
    if (spec->reading.kind == BY_EXAMPLE_SEQ2SEQ)
        return train_finetune_seq2seq(d, spec, result);
    tuning t = {
        .device = d, .spec = *spec, .lesson = lesson, .loop = {.folder = {.lock = -1}}, .result = result};
    *result = (by_finetune_result){.loss = NAN};
    const double started = base_seconds();
    by_status s = spec->predictions && !spec->eval_data
                      ? base_fail(BY_ERR_ARGUMENT, "predictions require evaluation data")
                      : run(&t);
    result->seconds = base_seconds() - started;
    train_loop_close(&t.loop, s);
    tear_down(&t);
    return s;
}
