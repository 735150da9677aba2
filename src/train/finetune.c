/* finetune.c - a whole tuning run: labelled cases, a model with the head they need, steps, evaluation,
 * checkpoints; and going on where a run stopped. */
#include "banyan/finetune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/ahead.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/work.h"

typedef struct tuning {
    by_device *device;
    by_finetune_spec spec; /* with every default filled in */
    by_tokenizer *tokenizer;
    by_cases cases, eval_cases; /* until the works have them */
    by_work train, eval;
    bool has_eval;
    by_model *model;
    by_trainer *trainer;
    by_passes *passes; /* of evaluation */
    by_log *log;
    by_ahead ahead;
    char *last; /* the checkpoint it goes on from, or NULL */
    by_run_state state;
    by_row_groups groups; /* of the present epoch */
    int64_t epoch, epoch_steps;
    int lock;
    double started;
    by_finetune_result *result;
} tuning;

enum { FEW_PASSES = 24 }; /* shapes that are kept compiled */

/* ---- the model ------------------------------------------------------------------------------- */

/* Has the model these labels in this order? Then its head is kept. */
static bool same_labels(const by_model *m, const by_labels *labels)
{
    if (by_model_labels(m) != labels->count)
        return false;
    for (int i = 0; i < labels->count; i++)
        if (strcmp(by_model_label_name(m, i), labels->names[i]) != 0)
            return false;
    return true;
}

/* How to open the model: with the head that it has when that is the right one, else with a new one. */
static by_status choose_head(const tuning *t, const by_labels *labels, by_model_spec *spec)
{
    const by_task_data *data = &t->spec.reading;
    by_model *m = by_model_open(t->device, t->spec.model, &(by_model_spec){.dtype = spec->dtype});
    if (!m)
        return by_error_status();
    spec->task = by_work_task(data->kind);
    spec->problem = by_work_problem(data);
    spec->labels = data->kind == BY_WORK_REGRESS ? t->cases.list[0].n_labels : labels->count;
    spec->new_head = by_model_task(m) != spec->task;
    if (by_work_has_names(data->kind) || data->kind == BY_WORK_REGRESS)
        spec->new_head =
            spec->new_head || by_model_problem(m) != spec->problem ||
            (by_work_has_names(data->kind) ? !same_labels(m, labels) : by_model_labels(m) != spec->labels);
    by_model_free(m);
    return BY_OK;
}

static by_status open_fresh(tuning *t)
{
    by_labels labels = {0};
    by_model_spec spec = {.dtype = t->spec.dtype,
                          .training = true,
                          .stochastic_rounding = t->spec.stochastic_rounding,
                          .seed = t->spec.seed};
    by_status s = by_work_has_names(t->spec.reading.kind) ? by_cases_labels(&t->cases, &labels) : BY_OK;
    if (s == BY_OK && by_work_has_names(t->spec.reading.kind) && labels.count < 2 &&
        !t->spec.reading.separator)
        s = by_fail(BY_ERR_FORMAT, "%s: all cases have the label \"%s\"", t->cases.path, labels.names[0]);
    if (s == BY_OK)
        s = choose_head(t, &labels, &spec);
    if (s == BY_OK && !(t->model = by_model_open(t->device, t->spec.model, &spec)))
        s = by_error_status();
    if (s == BY_OK && by_work_has_names(t->spec.reading.kind))
        s = by_model_name_labels(t->model, labels.names, labels.count);
    if (s == BY_OK && t->spec.dropout >= 0)
        by_model_set_dropout(t->model, t->spec.dropout);
    by_free(labels.names);
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
        return by_error_status();
    if (by_model_task(t->model) != by_work_task(t->spec.reading.kind))
        return by_fail(BY_ERR_ARGUMENT,
                       "the run in %s is for another task (%s); use another folder, or start it afresh",
                       t->spec.out, by_task_name(by_model_task(t->model)));
    return by_checkpoint_load(t->last, t->model, &t->state);
}

/* ---- what learns, and how fast --------------------------------------------------------------- */

/* The layer in a parameter's name, "encoder.layer.11.output": 11. -1: none. */
static int layer_in(const char *name)
{
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        long n = strtol(at + 1, &end, 10);
        if (end > at + 1 && (*end == '.' || !*end))
            return (int)n;
    }
    return -1;
}

/* 0: before the first layer; i + 1: layer i; layers + 1: behind the last. */
static int depth_of(const by_model *m, int param)
{
    const by_params *p = by_model_params(m);
    const int layer = layer_in(by_params_name(p, param));
    if (layer >= 0)
        return BY_MIN(layer, by_model_layers(m) - 1) + 1;
    for (int i = 0; i < param; i++)
        if (layer_in(by_params_name(p, i)) >= 0)
            return by_model_layers(m) + 1;
    return 0;
}

/* Depths below this are frozen. */
static by_status frozen_depth(const tuning *t, int *out)
{
    const char *freeze = t->spec.freeze;
    const int layers = by_model_layers(t->model);
    *out = 0;
    if (!freeze)
        return BY_OK;
    char *end;
    long n = strtol(freeze, &end, 10);
    if (strcmp(freeze, "embeddings") == 0)
        n = 0;
    else if (strcmp(freeze, "body") == 0)
        n = layers;
    else if (end == freeze || *end || n < 0 || n > layers)
        return by_fail(BY_ERR_ARGUMENT,
                       "what is to be frozen is \"embeddings\", \"body\" or a number of layers up to %d, not "
                       "\"%s\"",
                       layers, freeze);
    *out = (int)n + 1;
    return BY_OK;
}

static by_status set_rates(tuning *t)
{
    by_params *p = by_model_params(t->model);
    const double decay = t->spec.layer_decay > 0 ? t->spec.layer_decay : 1;
    const int top = by_model_layers(t->model) + 1;
    int frozen;
    BY_TRY(frozen_depth(t, &frozen));
    t->result->trained = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        const int depth = depth_of(t->model, i);
        const double scale = depth < frozen ? 0 : pow(decay, top - depth);
        by_params_set_rate(p, i, scale);
        int64_t n = scale != 0;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= by_params_shape(p, i)[k];
        t->result->trained += n;
    }
    return BY_OK;
}

/* ---- class weights --------------------------------------------------------------------------- */

/* Those that make every label count the same in all: cases / (labels * cases of the label). */
static void balance(const by_cases *c, int labels, float *weights)
{
    double all = 0;
    for (int i = 0; i < labels; i++)
        weights[i] = 0;
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < c->list[i].n_labels; k++) {
            weights[c->list[i].values[k]]++;
            all++;
        }
    for (int i = 0; i < labels; i++)
        weights[i] = weights[i] > 0 ? (float)(all / labels / weights[i]) : 0;
}

static by_status parse_weights(const char *list, int labels, float *weights)
{
    const char *at = list;
    for (int i = 0; i < labels; i++) {
        char *end;
        weights[i] = strtof(at, &end);
        if (end == at || !(weights[i] >= 0) || !isfinite(weights[i]) || *end != (i + 1 < labels ? ',' : '\0'))
            return by_fail(
                BY_ERR_ARGUMENT,
                "class weights are \"balanced\" or %d numbers with commas, one for each label, not "
                "\"%s\"",
                labels, list);
        at = end + 1;
    }
    return BY_OK;
}

static by_status set_weights(tuning *t)
{
    const char *list = t->spec.class_weights;
    const int labels = by_model_labels(t->model);
    if (!list)
        return BY_OK;
    if (!by_work_has_names(t->spec.reading.kind) || t->spec.reading.separator)
        return by_fail(BY_ERR_ARGUMENT, "class weights are for tasks where one label of several is right");
    t->train.weights = by_alloc_zero((size_t)labels, sizeof *t->train.weights);
    if (!t->train.weights)
        return BY_ERR_MEMORY;
    if (strcmp(list, "balanced") != 0)
        return parse_weights(list, labels, t->train.weights);
    balance(&t->train.cases, labels, t->train.weights);
    return BY_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void fill_defaults(tuning *t)
{
    by_finetune_spec *s = &t->spec;
    const int together = t->train.rows.spec.together;
    s->batch = BY_MAX(s->batch / together, 1) * together;
    s->accumulate = BY_MAX(s->accumulate, 1);
    const int64_t rows = (int64_t)s->batch * s->accumulate;
    t->epoch_steps = (t->train.rows.count + rows - 1) / rows;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)ceil((s->epochs > 0 ? s->epochs : 3) * (double)t->epoch_steps), 1);
    s->schedule.steps = s->steps;
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)s->steps);
    if (s->eval_every <= 0)
        s->eval_every = t->epoch_steps;
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    t->epoch = -1;
}

/* What decides the course of the run. NULL when memory is out. */
static cJSON *facts(const tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    const by_work_kind kind = s->reading.kind;
    const int labels = by_work_has_names(kind) || kind == BY_WORK_REGRESS ? by_model_labels(t->model) : 0;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"labels", labels},
                   {"limit", t->train.rows.spec.limit},
                   {"overlap", t->train.spec.overlap},
                   {"batch", s->batch},
                   {"accumulate", s->accumulate},
                   {"steps", (double)s->steps},
                   {"seed", (double)s->seed},
                   {"learning_rate", s->schedule.rate},
                   {"warmup_steps", (double)s->schedule.warmup},
                   {"schedule", s->schedule.kind},
                   {"beta1", s->optimizer.beta1},
                   {"beta2", s->optimizer.beta2},
                   {"eps", s->optimizer.eps},
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
                 {"dtype", by_folder_dtype(s->dtype, s->stochastic_rounding)},
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
    if (ok)
        return json;
    cJSON_Delete(json);
    by_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    return NULL;
}

static by_status record(const tuning *t)
{
    cJSON *json = facts(t);
    if (!json)
        return BY_ERR_MEMORY;
    by_status s = t->state.step > 0
                      ? by_folder_compare(t->spec.out, json, ",banyan,command,device,model,data,eval_data,")
                      : by_folder_record(t->spec.out, json);
    cJSON_Delete(json);
    return s;
}

static by_status open_data(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    BY_TRY(by_cases_open(&t->cases, s->data, &s->reading));
    if (s->eval_data)
        BY_TRY(by_cases_open(&t->eval_cases, s->eval_data, &s->reading));
    t->has_eval = s->eval_data != NULL;
    t->tokenizer = by_tokenizer_load(s->model);
    return t->tokenizer ? BY_OK : by_error_status();
}

static by_status make_works(tuning *t)
{
    BY_TRY(by_work_number(t->model, &t->cases));
    BY_TRY(by_work_open(&t->train, &t->cases, t->model, t->tokenizer, &t->spec.work));
    if (!t->has_eval)
        return BY_OK;
    BY_TRY(by_work_number(t->model, &t->eval_cases));
    return by_work_open(&t->eval, &t->eval_cases, t->model, t->tokenizer, &t->spec.work);
}

static by_status set_up(tuning *t)
{
    by_finetune_spec *s = &t->spec;
    t->state.best_eval = NAN;
    BY_TRY(open_data(t));
    BY_TRY(by_folder_lock(s->out, &t->lock));
    BY_TRY(s->overwrite ? by_folder_forget(s->out) : by_checkpoint_clean(s->out, false));
    BY_TRY(by_checkpoint_find(s->out, &t->last));
    BY_TRY(open_model(t));
    BY_TRY(make_works(t));
    fill_defaults(t);
    BY_TRY(record(t));
    if (t->state.step > 0)
        BY_TRY(by_checkpoint_mend(s->out, &t->state, s->keep));
    BY_TRY(set_weights(t));
    BY_TRY(set_rates(t));
    t->trainer = by_trainer_new(t->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed});
    t->passes = by_passes_new(t->model, &(by_pass_spec){.grads = BY_GRAD_NONE}, FEW_PASSES);
    t->log = t->trainer && t->passes ? by_log_open(s->out, t->state.step) : NULL;
    if (!t->log)
        return by_error_status();
    by_trainer_set_steps(t->trainer, t->state.step);
    t->ahead = (by_ahead){.trainer = t->trainer,
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
    by_free(t->last);
    by_row_groups_free(&t->groups);
    by_log_close(t->log);
    by_passes_free(t->passes);
    by_trainer_free(t->trainer);
    by_work_close(&t->train);
    by_work_close(&t->eval);
    by_cases_close(&t->cases);
    by_cases_close(&t->eval_cases);
    by_model_free(t->model);
    by_tokenizer_free(t->tokenizer);
    if (t->lock >= 0)
        close(t->lock);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static by_status enter_epoch(tuning *t)
{
    const int64_t epoch = t->state.step / t->epoch_steps;
    if (epoch == t->epoch)
        return BY_OK;
    by_row_groups_free(&t->groups);
    t->epoch = epoch;
    return by_rows_shuffled(&t->train.rows, t->spec.batch, t->spec.seed + (uint64_t)epoch, &t->groups);
}

/* Started, not waited for. */
static by_status train_step(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    const double rate = by_schedule_rate(&s->schedule, t->state.step);
    double tokens = 0;
    by_ahead_begin(&t->ahead);
    BY_TRY(enter_epoch(t));
    int64_t g = t->state.step % t->epoch_steps * s->accumulate,
            end = BY_MIN(g + s->accumulate, t->groups.count);
    for (bool first = true; g < end; g++, first = false) {
        const int from = t->groups.first[g], count = t->groups.first[g + 1] - from;
        int64_t counted;
        BY_TRY(by_work_batch(&t->train, t->groups.rows + from, count, count,
                             s->seed ^ (uint64_t)(t->state.step + 1) << 20, &counted));
        t->train.batch.batch.class_weights = t->train.weights;
        BY_TRY(by_trainer_backward(t->trainer, &t->train.batch.batch, first, NULL));
        tokens += (double)count * t->train.batch.batch.seq;
    }
    by_status updated = by_trainer_update(t->trainer, rate, NULL);
    if (updated != BY_OK)
        return by_ahead_failed(&t->ahead, updated);
    by_ahead_add(&t->ahead, rate, tokens, 0);
    t->state.step++;
    return BY_OK;
}

static by_status save(tuning *t, bool is_best)
{
    BY_TRY(by_checkpoint_save(t->spec.out, t->model, t->tokenizer, &t->state, is_best, t->spec.keep));
    char *title = by_sprintf("%s", by_model_class(t->model));
    by_status s = title ? by_log_draw(t->log, title) : BY_ERR_MEMORY;
    by_free(title);
    return s;
}

static bool evaluates(const tuning *t)
{
    return t->has_eval && (t->state.step >= t->spec.steps || t->state.step % t->spec.eval_every == 0);
}

/* Whether there is more to do after this step than to start the next. */
static bool is_due(const tuning *t)
{
    return by_ahead_full(&t->ahead) || evaluates(t) || t->state.step >= t->spec.steps ||
           t->state.step % t->spec.save_every == 0;
}

/* What happens between two steps. *stop is set when the run is to end early. */
static by_status after_step(tuning *t, by_report *p, by_verdict *v, bool *stop)
{
    const by_finetune_spec *s = &t->spec;
    const bool last = t->state.step >= s->steps;
    bool is_best = false;
    if (evaluates(t)) {
        BY_TRY(by_work_judge(&t->eval, t->passes, NULL, v));
        p->evaluated = true;
        p->eval_loss = v->loss;
        p->metrics = v->metrics;
        p->n_metrics = v->n_metrics;
        is_best = isnan(t->state.best_eval) || v->score > t->state.best_eval;
        t->state.stale = is_best ? 0 : t->state.stale + 1;
        if (is_best) {
            t->state.best_eval = v->score;
            t->state.best_step = t->state.step;
        }
        *stop = s->patience > 0 && t->state.stale >= s->patience;
        t->result->stopped_early = *stop && !last;
    }
    if (p->evaluated || last || t->state.step % s->log_every == 0)
        BY_TRY(by_log_write(t->log, p));
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
    by_verdict v;
    BY_TRY(by_ahead_settle(&t->ahead, &p));
    t->result->loss = p.loss;
    BY_TRY(after_step(t, &p, &v, stop));
    by_ahead_report(&t->ahead, &p);
    return BY_OK;
}

static by_status cancel(tuning *t)
{
    bool stop = false;
    if (t->ahead.count > 0)
        BY_TRY(settle(t, &stop));
    if (t->state.step > 0)
        BY_TRY(save(t, false));
    return by_fail(BY_ERR_CANCELLED, "stopped at step %lld; the same command goes on from there",
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
    char *best = by_path_join(t->spec.out, "best");
    by_model *m = best ? by_model_open(t->device, best, &(by_model_spec){.dtype = t->spec.dtype}) : NULL;
    by_free(best);
    if (!m)
        return by_error_status();
    by_passes_free(t->passes);
    by_trainer_free(t->trainer);
    by_model_free(t->model);
    t->trainer = NULL;
    t->model = t->eval.model = t->eval.rows.model = m;
    t->passes = by_passes_new(m, &(by_pass_spec){.grads = BY_GRAD_NONE}, FEW_PASSES);
    return t->passes ? BY_OK : by_error_status();
}

/* Leave the model in the folder itself, as anyone would expect to find it. */
static by_status finish(tuning *t)
{
    const by_finetune_spec *s = &t->spec;
    if (t->has_eval && t->state.best_step > 0 && t->state.best_step != t->state.step)
        BY_TRY(take_best(t));
    if (t->has_eval)
        BY_TRY(by_work_judge(&t->eval, t->passes, s->predictions, &t->result->best));
    t->result->evaluated = t->has_eval;
    t->result->best_step = t->has_eval ? t->state.best_step : t->state.step;
    BY_TRY(by_model_save(t->model, s->out, BY_F32));
    return by_tokenizer_save(t->tokenizer, s->out);
}

static by_status run(tuning *t)
{
    BY_TRY(set_up(t));
    by_finetune_result *r = t->result;
    r->resumed_from = t->state.step;
    r->parameters = by_params_elements(by_model_params(t->model));
    r->labels = by_model_labels(t->model);
    by_report p = by_report_empty();
    char *note =
        by_sprintf("%s: %.2f M parameters, %.2f M of them learn; %d cases in %d rows, %d for evaluation",
                   by_model_class(t->model), (double)r->parameters / 1e6, (double)r->trained / 1e6,
                   t->train.cases.count, t->train.rows.count, t->has_eval ? t->eval.cases.count : 0);
    p.step = t->state.step;
    p.note = note;
    by_ahead_report(&t->ahead, &p);
    by_free(note);
    by_status s = tune(t);
    r->steps = t->state.step;
    return s == BY_OK ? finish(t) : s;
}

by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result)
{
    if (!d || !spec || !result)
        return by_fail_missing(d ? "by_finetune_spec or by_finetune_result" : "device");
    by_error_clear();
    tuning t = {.device = d, .spec = *spec, .lock = -1, .started = by_seconds(), .result = result};
    *result = (by_finetune_result){.loss = NAN};
    by_status s =
        spec->predictions && !spec->eval_data
            ? by_fail(BY_ERR_ARGUMENT, "predictions are made on evaluation data, and there are none")
            : run(&t);
    result->seconds = by_seconds() - t.started;
    tear_down(&t);
    return s;
}
