/* finetune.c - a whole tuning run: labelled cases, a model with the head they need, steps, evaluation,
 * checkpoints; and going on where a run stopped. */
#include "banyan/finetune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/readback.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/defaults.h"
#include "train/task_batches.h"

typedef struct tuning {
    by_device *device;
    by_finetune_spec spec; /* with every default filled in */
    by_tokenizer *tokenizer;
    data_examples cases, eval_cases; /* until the works have them */
    train_task train, eval;
    bool has_eval;
    by_model *model;
    by_trainer *trainer;
    by_passes *passes; /* of evaluation */
    by_memory *memory; /* of their activations */
    train_log *log;
    train_readback ahead;
    char *last; /* the checkpoint it goes on from, or NULL */
    train_run_state state;
    int64_t first_steps;    /* that it began with */
    bool longer;            /* more than recorded are asked for */
    data_row_groups groups; /* of the present epoch */
    int64_t epoch, epoch_steps;
    train_folder folder;
    double started;
    by_finetune_result *result;
} tuning;

enum { FEW_PASSES = 24 }; /* shapes that are kept compiled */

/* ---- the model ------------------------------------------------------------------------------- */

/* Has the model these labels in this order? Then its head is kept. */
static bool same_labels(const by_model *m, const data_labels *labels)
{
    if (by_model_labels(m) != labels->count)
        return false;
    for (int i = 0; i < labels->count; i++)
        if (strcmp(by_model_label_name(m, i), labels->names[i]) != 0)
            return false;
    return true;
}

/* How to open the model: with the head that it has when that is the right one, else with a new one. */
static by_status choose_head(const tuning *t, const data_labels *labels, by_model_spec *spec)
{
    const by_examples_spec *data = &t->spec.reading;
    by_model *m = by_model_open(t->device, t->spec.model, &(by_model_spec){.dtype = spec->dtype});
    if (!m)
        return base_error_status();
    spec->task = train_task_task(data->kind);
    spec->problem = train_task_problem(data);
    spec->labels = data->kind == BY_EXAMPLE_REGRESS ? t->cases.list[0].n_labels : labels->count;
    spec->new_head = by_model_task(m) != spec->task;
    if (train_task_has_names(data->kind) || data->kind == BY_EXAMPLE_REGRESS)
        spec->new_head =
            spec->new_head || by_model_problem(m) != spec->problem ||
            (train_task_has_names(data->kind) ? !same_labels(m, labels) : by_model_labels(m) != spec->labels);
    by_model_free(m);
    return BY_OK;
}

static by_status open_fresh(tuning *t)
{
    data_labels labels = {0};
    by_model_spec spec = {.dtype = t->spec.dtype,
                          .training = true,
                          .stochastic_rounding = t->spec.stochastic_rounding,
                          .seed = t->spec.seed};
    by_status s =
        train_task_has_names(t->spec.reading.kind) ? data_examples_labels(&t->cases, &labels) : BY_OK;
    if (s == BY_OK && train_task_has_names(t->spec.reading.kind) && labels.count < 2 &&
        !t->spec.reading.separator)
        s = base_fail(BY_ERR_FORMAT, "%s: all cases have the label \"%s\"", t->cases.path, labels.names[0]);
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

static by_status open_model(tuning *t)
{
    if (!t->last)
        return open_fresh(t);
    t->model = by_model_open(t->device, t->last,
                             &(by_model_spec){.dtype = t->spec.dtype,
                                              .training = true,
                                              .stochastic_rounding = t->spec.stochastic_rounding});
    if (!t->model)
        return base_error_status();
    if (by_model_task(t->model) != train_task_task(t->spec.reading.kind))
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s is for another task (%s); use another folder, or start it afresh",
                         t->spec.out, by_task_name(by_model_task(t->model)));
    return train_checkpoint_load(t->last, t->model, &t->state);
}

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
    t->first_steps = s->steps;
    if (t->last)
        BY_TRY(train_folder_recall(s->out, s->steps, &t->first_steps, &t->longer));
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)t->first_steps);
    if (s->eval_every <= 0)
        s->eval_every = train_default_eval_steps(t->epoch_steps, t->has_eval ? t->eval.rows.count : 0, rows);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    t->epoch = -1;
    return BY_OK;
}

/* What decides the course of the run. NULL when memory is out. */
static cJSON *facts(const tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    const by_example_kind kind = s->reading.kind;
    const int labels =
        train_task_has_names(kind) || kind == BY_EXAMPLE_REGRESS ? by_model_labels(t->model) : 0;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"labels", labels},
                   {"limit", t->train.rows.spec.limit},
                   {"overlap", t->train.spec.overlap},
                   {"batch", s->batch},
                   {"accumulate", s->accumulate},
                   {"steps", (double)s->steps},
                   {"first_steps", (double)t->first_steps},
                   {"seed", (double)s->seed},
                   {"learning_rate", s->schedule.rate},
                   {"warmup_steps", (double)s->schedule.warmup},
                   {"schedule", s->schedule.kind},
                   {"beta1", BY_MAX(s->optimizer.beta1, 0)},
                   {"beta2", BY_MAX(s->optimizer.beta2, 0)},
                   {"eps", BY_MAX(s->optimizer.eps, 0)},
                   {"weight_decay", s->optimizer.weight_decay},
                   {"max_grad_norm", s->optimizer.max_grad_norm},
                   {"layer_decay", s->layer_decay > 0 ? s->layer_decay : 1},
                   {"train_cases", t->train.cases.count},
                   {"train_rows", t->train.rows.count},
                   {"eval_cases", t->has_eval ? t->eval.cases.count : 0},
                   {"data_fingerprint", (double)(t->train.cases.fingerprint >> 12)}};
    const struct {
        const char *key, *value;
    } names[] = {{"model", s->model},
                 {"family", by_model_family(t->model)},
                 {"class", by_model_class(t->model)},
                 {"dtype", train_folder_dtype(s->dtype, s->stochastic_rounding)},
                 {"freeze", s->freeze},
                 {"class_weights", s->class_weights},
                 {"data", s->data},
                 {"eval_data", s->eval_data},
                 {"banyan", by_version()},
                 {"command", s->command},
                 {"device", by_device_description(t->device)}};
    cJSON *json = cJSON_CreateObject();
    bool ok = json != NULL;
    for (int i = 0; i < BY_COUNT(names) && ok; i++)
        ok = cJSON_AddStringToObject(json, names[i].key, names[i].value ? names[i].value : "") != NULL;
    for (int i = 0; i < BY_COUNT(numbers) && ok; i++)
        ok = cJSON_AddNumberToObject(json, numbers[i].key, numbers[i].value) != NULL;
    if (ok && train_folder_add_options(json, s->options))
        return json;
    cJSON_Delete(json);
    base_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    return NULL;
}

static by_status record(const tuning *t)
{
    cJSON *json = facts(t);
    if (!json)
        return BY_ERR_MEMORY;
    by_status s = train_folder_record(t->spec.out, json);
    cJSON_Delete(json);
    return s;
}

static by_status check(const tuning *t)
{
    cJSON *json = facts(t);
    if (!json)
        return BY_ERR_MEMORY;
    by_status s = train_folder_compare(
        t->spec.out, json,
        t->longer ? ",banyan,command,options,device,model,data,eval_data,first_steps,steps,"
                  : ",banyan,command,options,device,model,data,eval_data,first_steps,");
    cJSON_Delete(json);
    return s;
}

static by_status open_data(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    BY_TRY(data_examples_open(&t->cases, s->data, &s->reading));
    if (s->eval_data)
        BY_TRY(data_examples_open(&t->eval_cases, s->eval_data, &s->reading));
    t->has_eval = s->eval_data != NULL;
    t->tokenizer = by_tokenizer_load(s->model);
    return t->tokenizer ? BY_OK : base_error_status();
}

static by_status make_works(tuning *t)
{
    BY_TRY(train_task_number(t->model, &t->cases));
    BY_TRY(train_task_open(&t->train, &t->cases, t->model, t->tokenizer, &t->spec.work));
    if (!t->has_eval)
        return BY_OK;
    BY_TRY(train_task_number(t->model, &t->eval_cases));
    return train_task_open(&t->eval, &t->eval_cases, t->model, t->tokenizer, &t->spec.work);
}

/* With overwrite an earlier run stays as it is until everything is open. */
static by_status open_folder(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    BY_TRY(train_folder_enter(
        &t->folder, &(train_folder_use){.out = s->out,
                                        .overwrite = s->overwrite,
                                        .leaves_model = true,
                                        .model = s->model,
                                        .inputs = {{(const char *const[]){s->data, s->eval_data}, 2}},
                                        .report = s->report,
                                        .user = s->user}));
    return s->overwrite ? BY_OK : train_checkpoint_find(&t->folder, &t->last);
}

/* Passes of evaluation, for rows of all lengths, share their activations. */
static by_status make_passes(tuning *t)
{
    t->passes =
        by_passes_new(t->model, &(by_pass_spec){.grads = BY_GRAD_NONE, .memory = &t->memory}, FEW_PASSES);
    return t->passes ? BY_OK : base_error_status();
}

/* The largest batches come first: theirs is the memory that all others use, and the run needs no more later.
 */
static by_status plan_memory(tuning *t)
{
    BY_TRY(train_task_largest(&t->train, t->spec.batch));
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
    t->state.best_eval = t->state.best_loss = NAN;
    BY_TRY(open_data(t));
    BY_TRY(open_folder(t));
    BY_TRY(open_model(t));
    BY_TRY(make_works(t));
    BY_TRY(fill_defaults(t));
    if (t->last)
        BY_TRY(check(t));
    BY_TRY(train_tuning_weights(&t->train, s->class_weights));
    BY_TRY(train_tuning_rates(t->model, s->layer_decay, s->freeze, &t->result->trained));
    t->trainer = by_trainer_new(t->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed,
                                                             .many_shapes = true});
    BY_TRY(t->trainer ? make_passes(t) : base_error_status());
    BY_TRY(plan_memory(t));
    if (t->last) {
        BY_TRY(train_checkpoint_mend(&t->folder, &t->state, s->keep));
        BY_TRY(t->longer ? record(t) : BY_OK);
    } else { /* everything that the run needs is open: what an earlier one left may go */
        BY_TRY(s->overwrite ? train_folder_forget(&t->folder) : BY_OK);
        BY_TRY(record(t));
    }
    t->log = train_log_open(&t->folder, t->state.step);
    if (!t->log)
        return base_error_status();
    by_trainer_set_steps(t->trainer, t->state.step);
    t->ahead = (train_readback){.trainer = t->trainer,
                                .log = t->log,
                                .log_every = s->log_every,
                                .steps = s->steps,
                                .started = t->started,
                                .report = s->report,
                                .user = s->user,
                                .wanted = s->ahead};
    return BY_OK;
}

static void tear_down(tuning *t)
{
    base_free(t->last);
    data_row_groups_free(&t->groups);
    train_log_close(t->log);
    by_passes_free(t->passes);
    by_memory_free(t->memory);
    by_trainer_free(t->trainer);
    train_task_close(&t->train);
    train_task_close(&t->eval);
    data_examples_close(&t->cases);
    data_examples_close(&t->eval_cases);
    by_model_free(t->model);
    by_tokenizer_free(t->tokenizer);
    train_folder_close(&t->folder);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static by_status enter_epoch(tuning *t)
{
    const int64_t epoch = t->state.step / t->epoch_steps;
    if (epoch == t->epoch)
        return BY_OK;
    data_row_groups_free(&t->groups);
    t->epoch = epoch;
    return data_rows_shuffled(&t->train.rows, t->spec.batch, t->spec.seed + (uint64_t)epoch, &t->groups);
}

/* Started, not waited for. */
static by_status train_step(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    const double rate = by_schedule_rate(&s->schedule, t->state.step);
    double tokens = 0;
    train_readback_begin(&t->ahead);
    BY_TRY(enter_epoch(t));
    int64_t g = t->state.step % t->epoch_steps * s->accumulate,
            end = BY_MIN(g + s->accumulate, t->groups.count);
    for (bool first = true; g < end; g++, first = false) {
        const int from = t->groups.first[g], count = t->groups.first[g + 1] - from;
        int64_t counted;
        BY_TRY(train_task_batch(&t->train, t->groups.rows + from, count, count,
                                s->seed ^ (uint64_t)(t->state.step + 1) << 20, &counted));
        t->train.batch.batch.class_weights = t->train.weights;
        BY_TRY(by_trainer_backward(t->trainer, &t->train.batch.batch, first, NULL));
        tokens += (double)count * t->train.batch.batch.seq;
    }
    by_status updated = by_trainer_update(t->trainer, rate, NULL);
    if (updated != BY_OK)
        return train_readback_failed(&t->ahead, updated);
    train_readback_add(&t->ahead, rate, tokens, 0);
    t->state.step++;
    return BY_OK;
}

static by_status save(tuning *t, bool is_best)
{
    BY_TRY(train_checkpoint_save(&t->folder, t->model, t->tokenizer, &t->state, is_best, t->spec.keep));
    train_log_draw(t->log, t->model, train_task_title(t->spec.reading.kind),
                   train_task_loss_unit(&t->spec.reading));
    return BY_OK;
}

static bool evaluates(const tuning *t)
{
    return t->has_eval && (t->state.step >= t->spec.steps || t->state.step % t->spec.eval_every == 0);
}

/* Whether there is more to do after this step than to start the next. */
static bool is_due(const tuning *t)
{
    return train_readback_full(&t->ahead) || evaluates(t) || t->state.step >= t->spec.steps ||
           t->state.step % t->spec.save_every == 0;
}

/* Of models with equal scores, the one with the lower loss is better: a small evaluation set often ties. */
static bool is_better(const by_task_result *v, const train_run_state *best)
{
    return isnan(best->best_eval) || v->score > best->best_eval ||
           (v->score == best->best_eval && v->loss < best->best_loss);
}

/* What happens between two steps. *stop is set when the run is to end early. */
static by_status after_step(tuning *t, by_report *p, by_task_result *v, bool *stop)
{
    const by_finetune_spec *s = &t->spec;
    const bool last = t->state.step >= s->steps;
    bool is_best = false;
    if (evaluates(t)) {
        BY_TRY(train_task_judge(&t->eval, t->passes, NULL, v));
        p->evaluated = true;
        p->eval_loss = v->loss;
        p->metrics = v->metrics;
        p->n_metrics = v->n_metrics;
        is_best = is_better(v, &t->state);
        t->state.stale = is_best ? 0 : t->state.stale + 1;
        if (is_best) {
            t->state.best_eval = v->score;
            t->state.best_loss = v->loss;
            t->state.best_step = t->state.step;
        }
        *stop = s->patience > 0 && t->state.stale >= s->patience;
        t->result->stopped_early = *stop && !last;
    }
    if (p->evaluated || last || t->state.step % s->log_every == 0)
        train_log_write(t->log, p);
    if (last || *stop || is_best || t->state.step % s->save_every == 0) {
        BY_TRY(save(t, is_best));
        p->saved = true;
    }
    return BY_OK;
}

/* Look at the steps that were started, and do what is due after the last of them. */
static by_status settle(tuning *t, bool *stop)
{
    by_report p;
    by_task_result v;
    BY_TRY(train_readback_settle(&t->ahead, &p));
    t->result->loss = p.loss;
    BY_TRY(after_step(t, &p, &v, stop));
    train_readback_report(&t->ahead, &p);
    return BY_OK;
}

static by_status cancel(tuning *t)
{
    bool stop = false;
    if (t->ahead.count > 0)
        BY_TRY(settle(t, &stop));
    if (t->state.step > 0)
        BY_TRY(save(t, false));
    return base_fail(BY_ERR_CANCELLED, "stopped at step %lld; the same command goes on from there",
                     (long long)t->state.step);
}

static by_status tune(tuning *t)
{
    bool stop = t->spec.patience > 0 && t->state.stale >= t->spec.patience;
    while (t->state.step < t->spec.steps && !stop) {
        if (t->spec.cancelled && t->spec.cancelled(t->spec.user))
            return cancel(t);
        by_status s = train_step(t);
        if (s != BY_OK && t->ahead.count > 0)
            BY_TRY(settle(t, &stop)); /* those before it were in order */
        BY_TRY(s);
        if (is_due(t))
            BY_TRY(settle(t, &stop));
    }
    return BY_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The best model takes the place of the last. */
static by_status take_best(tuning *t)
{
    char *best = base_path_join(t->spec.out, "best");
    by_model *m = best ? by_model_open(t->device, best, &(by_model_spec){.dtype = t->spec.dtype}) : NULL;
    base_free(best);
    if (!m)
        return base_error_status();
    by_passes_free(t->passes);
    by_trainer_free(t->trainer);
    by_model_free(t->model);
    t->trainer = NULL;
    t->model = t->eval.model = t->eval.rows.model = m;
    return make_passes(t);
}

/* Leave the model in the folder itself, as anyone would expect to find it. */
static by_status finish(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    if (t->has_eval && t->state.best_step > 0 && t->state.best_step != t->state.step)
        BY_TRY(take_best(t));
    if (t->has_eval)
        BY_TRY(train_task_judge(&t->eval, t->passes, s->predictions, &t->result->best));
    t->result->evaluated = t->has_eval;
    t->result->best_step = t->has_eval ? t->state.best_step : t->state.step;
    return train_checkpoint_leave(&t->folder, t->model, t->tokenizer);
}

static by_status run(tuning *t)
{
    BY_TRY(set_up(t));
    by_finetune_result *r = t->result;
    r->resumed_from = t->state.step;
    r->parameters = by_params_elements(by_model_params(t->model));
    r->labels = by_model_labels(t->model);
    by_report p = train_report_empty();
    base_buf note = {0};
    data_examples_describe(&t->train.cases, &note);
    base_buf_puts(&note, "\n");
    if (t->has_eval) {
        data_examples_describe(&t->eval.cases, &note);
        base_buf_puts(&note, "\n");
    }
    base_buf_printf(
        &note,
        "%s: %.2f M parameters, %.2f M of them learn; %d cases in %d rows, %d for evaluation; %lld "
        "steps of %d rows, evaluated every %lld; memory %.0f MiB of parameters and optimiser, %.0f "
        "MiB of activations",
        by_model_class(t->model), (double)r->parameters / 1e6, (double)r->trained / 1e6, t->train.cases.count,
        t->train.rows.count, t->has_eval ? t->eval.cases.count : 0, (long long)t->spec.steps,
        t->spec.batch * t->spec.accumulate, (long long)t->spec.eval_every, (double)r->state_bytes / 1048576.0,
        (double)r->activation_bytes / 1048576.0);
    p.step = t->state.step;
    p.note = note.failed ? "" : note.data;
    train_readback_report(&t->ahead, &p);
    base_buf_free(&note);
    by_status s = tune(t);
    r->steps = t->state.step;
    return s == BY_OK ? finish(t) : s;
}

by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_finetune_spec or by_finetune_result" : "device");
    base_error_clear();
    tuning t = {
        .device = d, .spec = *spec, .folder = {.lock = -1}, .started = base_seconds(), .result = result};
    *result = (by_finetune_result){.loss = NAN};
    by_status s =
        spec->predictions && !spec->eval_data
            ? base_fail(BY_ERR_ARGUMENT, "predictions are made on evaluation data, and there are none")
            : run(&t);
    if (s != BY_OK && s != BY_ERR_CANCELLED && t.state.step == 0)
        train_folder_abandon(&t.folder); /* it did not come to its first step */
    result->seconds = base_seconds() - t.started;
    tear_down(&t);
    return s;
}
