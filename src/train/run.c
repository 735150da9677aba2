/* run.c - a whole training run: data, model, steps, evaluation, checkpoints, logs; and going on where a run
 * stopped. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "io/hf.h"
#include "io/json.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/log.h"

typedef struct run {
    by_device *device;
    by_run_spec spec; /* with every default filled in */
    by_dataset data;
    by_model *model;
    by_trainer *trainer;
    by_log *log;
    char *last; /* the checkpoint it goes on from, NULL for a run that begins */
    by_run_state state;
    by_lm_batches train, eval;
    int32_t *inputs, *targets;
    int lock;
    double started;
    double rate; /* measured FLOP/s of matrix products */
    by_run_result *result;
} run;

/* ---- the folder ------------------------------------------------------------------------------ */

static by_status lock_folder(run *r)
{
    BY_TRY(by_dir_make(r->spec.out));
    char *path = by_path_join(r->spec.out, ".lock");
    if (!path)
        return BY_ERR_MEMORY;
    r->lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    int error = errno;
    by_free(path);
    if (r->lock < 0)
        return by_fail(BY_ERR_IO, "%s: %s", r->spec.out, strerror(error));
    if (flock(r->lock, LOCK_EX | LOCK_NB) != 0)
        return by_fail(BY_ERR_IO, "%s: another process is training into this folder", r->spec.out);
    return BY_OK;
}

/* Forget an earlier run in the same folder. */
static by_status start_afresh(const char *out)
{
    BY_TRY(by_checkpoint_clean(out, true));
    BY_TRY(by_log_remove(out));
    const char *names[] = {"data", "run.json"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        char *path = by_path_join(out, names[i]);
        by_status s = !path ? BY_ERR_MEMORY : by_dir_exists(path) ? by_dir_remove(path) : BY_OK;
        if (path && by_file_exists(path))
            unlink(path);
        by_free(path);
        BY_TRY(s);
    }
    return BY_OK;
}

/* ---- run.json: everything needed to repeat the run, and what must not change when it goes on --- */

static const char *const schedules[] = {"constant", "linear", "cosine", "inverse-sqrt"};
static const char *const optimizers[] = {"adamw", "sgd", "adafactor"};

/* Numbers that decide the course of training; those of its shape are m's. */
typedef struct fact {
    const char *key;
    double value;
} fact;

static int collect_facts(const run *r, const by_model *m, fact *f)
{
    const by_run_spec *s = &r->spec;
    fact all[] = {
        {"layers", by_model_layers(m)},
        {"heads", by_model_heads(m)},
        {"width", by_model_width(m)},
        {"context", by_model_context(m)},
        {"vocab", by_model_vocab(m)},
        {"inner", by_config_get(m->arch, m->config, BY_ROLE_INNER)},
        {"dropout", round(by_config_get(m->arch, m->config, BY_ROLE_DROPOUT) * 1e6) / 1e6}, /* a float */
        {"batch", s->batch},
        {"seq", s->seq},
        {"accumulate", s->accumulate},
        {"steps", (double)s->steps},
        {"seed", (double)s->seed},
        {"learning_rate", s->schedule.rate},
        {"min_learning_rate", s->schedule.min_rate},
        {"warmup_steps", (double)s->schedule.warmup},
        {"beta1", s->optimizer.beta1},
        {"beta2", s->optimizer.beta2},
        {"eps", s->optimizer.eps},
        {"momentum", s->optimizer.momentum},
        {"weight_decay", s->optimizer.weight_decay},
        {"max_grad_norm", s->optimizer.max_grad_norm},
        {"eval_fraction", s->eval_fraction},
        {"data_fingerprint", (double)(r->data.fingerprint >> 12)},
    };
    memcpy(f, all, sizeof all);
    return BY_COUNT(all);
}
#define MAX_FACTS 32

/* Names that decide it too. */
enum { NAMES = 5 };
typedef struct name {
    const char *key, *value;
} name;

static void collect_names(const run *r, name *n)
{
    const by_run_spec *s = &r->spec;
    name all[NAMES] = {{"family", s->init_from ? by_model_family(r->model) : s->family},
                       {"dtype", by_dtype_name(s->dtype)},
                       {"tokenizer", s->tokenizer ? s->tokenizer : "char"},
                       {"optimizer", optimizers[s->optimizer.kind]},
                       {"schedule", schedules[s->schedule.kind]}};
    memcpy(n, all, sizeof all);
}

static by_status write_run_json(const run *r)
{
    fact f[MAX_FACTS];
    name names[NAMES];
    int n = collect_facts(r, r->model, f);
    const by_run_spec *s = &r->spec;
    collect_names(r, names);
    cJSON *json = cJSON_CreateObject(), *files = cJSON_CreateArray();
    bool ok =
        json && files && cJSON_AddStringToObject(json, "banyan", by_version()) &&
        cJSON_AddStringToObject(json, "command", s->command ? s->command : "") &&
        cJSON_AddStringToObject(json, "device", by_device_description(r->device)) &&
        cJSON_AddNumberToObject(json, "parameters", (double)by_params_elements(by_model_params(r->model))) &&
        cJSON_AddNumberToObject(json, "train_tokens", (double)(r->data.train_end - r->data.train_begin)) &&
        cJSON_AddNumberToObject(json, "eval_tokens", (double)(r->data.eval_end - r->data.eval_begin));
    for (int i = 0; i < NAMES && ok; i++)
        ok = cJSON_AddStringToObject(json, names[i].key, names[i].value) != NULL;
    for (int i = 0; i < n && ok; i++)
        ok = cJSON_AddNumberToObject(json, f[i].key, f[i].value) != NULL;
    for (int i = 0; i < s->data_count && ok; i++)
        ok = cJSON_AddItemToArray(files, cJSON_CreateString(s->data[i]));
    char *path = by_path_join(s->out, "run.json");
    by_status status = BY_ERR_MEMORY;
    if (ok && path && cJSON_AddItemToObject(json, "data", files)) {
        files = NULL; /* the object has it now */
        status = by_json_write(path, json);
    } else {
        by_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    }
    cJSON_Delete(files);
    cJSON_Delete(json);
    by_free(path);
    return status;
}

static by_status differs(const run *r, const char *key, const char *was, const char *asked)
{
    if (strcmp(key, "data_fingerprint") == 0)
        return by_fail(BY_ERR_ARGUMENT,
                       "the run in %s was started with other data; use another folder, or start it afresh",
                       r->spec.out);
    return by_fail(
        BY_ERR_ARGUMENT,
        "the run in %s was started with %s %s, and this asks for %s; use another folder, or start it afresh",
        r->spec.out, key, was, asked);
}

static by_status compare_names(const run *r, const cJSON *json)
{
    name names[NAMES];
    collect_names(r, names);
    for (int i = 0; i < NAMES; i++) {
        const char *was = "";
        BY_TRY(by_json_string(json, names[i].key, "", &was));
        if (strcmp(was, names[i].value) != 0)
            return differs(r, names[i].key, was, names[i].value);
    }
    return BY_OK;
}

/* More steps are fine where the schedule does not depend on their number. */
static by_status compare_facts(const run *r, const by_model *asked, const cJSON *json)
{
    fact f[MAX_FACTS];
    int n = collect_facts(r, asked, f);
    bool free_steps =
        r->spec.schedule.kind == BY_SCHEDULE_CONSTANT || r->spec.schedule.kind == BY_SCHEDULE_INVERSE_SQRT;
    for (int i = 0; i < n; i++) {
        double was = NAN;
        char text[2][32];
        BY_TRY(by_json_double(json, f[i].key, NAN, -INFINITY, INFINITY, &was));
        if (was == f[i].value || (free_steps && strcmp(f[i].key, "steps") == 0))
            continue;
        snprintf(text[0], sizeof text[0], "%.10g", was);
        snprintf(text[1], sizeof text[1], "%.10g", f[i].value);
        return differs(r, f[i].key, text[0], text[1]);
    }
    return BY_OK;
}

/* The shape that the spec asks for, which need not be that of the model in the folder. */
static by_model_shape asked_shape(const run *r)
{
    by_model_shape shape = r->spec.shape;
    if (r->data.tokenizer)
        shape.vocab = by_tokenizer_vocab_size(r->data.tokenizer);
    return shape;
}

/* A run goes on only as it began. */
static by_status check_run_json(const run *r)
{
    char *path = by_path_join(r->spec.out, "run.json");
    cJSON *json = path ? by_json_load(path) : NULL;
    by_free(path);
    if (!json)
        return by_fail_context("%s: there is a checkpoint but no readable run.json", r->spec.out);
    by_status s = compare_names(r, json);
    if (s == BY_OK && r->spec.init_from) {
        s = compare_facts(r, r->model, json);
    } else if (s == BY_OK) {
        by_model_shape shape = asked_shape(r);
        by_model *asked = by_model_new(r->device, r->spec.family, &shape, &(by_model_spec){.blank = true});
        s = asked ? compare_facts(r, asked, json) : by_error_status();
        by_model_free(asked);
    }
    cJSON_Delete(json);
    return s;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static by_status open_model(run *r)
{
    by_run_spec *s = &r->spec;
    by_model_spec spec = {.dtype = s->dtype, .training = true, .seed = s->seed};
    if (r->last) {
        r->model = by_model_open(r->device, r->last, &spec);
        return r->model ? by_checkpoint_load(r->last, r->model, &r->state) : by_error_status();
    }
    if (s->init_from) {
        r->model = by_model_open(r->device, s->init_from, &spec);
        if (r->model && s->shape.dropout >= 0)
            by_model_set_dropout(r->model, s->shape.dropout);
        return r->model ? BY_OK : by_error_status();
    }
    by_model_shape shape = asked_shape(r);
    r->model = by_model_new(r->device, s->family, &shape, &spec);
    if (!r->model)
        return by_error_status();
    if (r->data.tokenizer)
        by_model_set_eos(r->model, by_tokenizer_eos(r->data.tokenizer));
    return BY_OK;
}

static void fill_defaults(run *r)
{
    by_run_spec *s = &r->spec;
    if (s->seq <= 0)
        s->seq = by_model_context(r->model);
    s->batch = BY_MAX(s->batch, 1);
    s->accumulate = BY_MAX(s->accumulate, 1);
    int64_t per_step = (int64_t)s->batch * s->accumulate * s->seq;
    int64_t tokens = r->data.train_end - r->data.train_begin;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)((s->epochs > 0 ? s->epochs : 1) * (double)tokens / (double)per_step), 1);
    s->schedule.steps = s->steps;
    if (s->schedule.rate <=
        0) /* narrower models bear higher rates: 3e-3 at 128, 5e-4 at 768, 2.4e-4 at 1600 */
        s->schedule.rate = BY_MIN(0.384 / by_model_width(r->model), 3e-3);
    if (s->schedule.min_rate < 0)
        s->schedule.min_rate = s->schedule.rate / 10;
    if (s->schedule.warmup < 0)
        s->schedule.warmup = BY_MIN(100, s->steps / 10);
    if (s->eval_every <= 0)
        s->eval_every = BY_MAX(s->steps / 10, 1);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    if (s->log_every <= 0)
        s->log_every = BY_MAX(s->steps / 10000, 1);
    s->keep = BY_MAX(s->keep, 1);
}

/* The micro-batch that begins at cell `at` of the present inputs and targets. */
static by_batch batch_at(const run *r, size_t at)
{
    return (by_batch){
        .batch = r->spec.batch, .seq = r->spec.seq, .tokens = r->inputs + at, .targets = r->targets + at};
}

static by_status set_up(run *r)
{
    by_run_spec *s = &r->spec;
    BY_TRY(lock_folder(r));
    BY_TRY(s->overwrite ? start_afresh(s->out) : by_checkpoint_clean(s->out, false));
    BY_TRY(by_checkpoint_find(s->out, &r->last));
    BY_TRY(by_dataset_open(&r->data, s, r->last != NULL));
    r->state.best_eval = NAN;
    BY_TRY(open_model(r));
    fill_defaults(r);
    if (s->seq > by_model_context(r->model))
        return by_fail(BY_ERR_ARGUMENT, "sequences of %d tokens are longer than the model's context of %d",
                       s->seq, by_model_context(r->model));
    BY_TRY(r->state.step > 0 ? check_run_json(r) : write_run_json(r));
    if (r->state.step > 0)
        BY_TRY(by_checkpoint_mend(s->out, &r->state, s->keep));
    r->train = (by_lm_batches){
        r->data.train, r->data.train_begin, r->data.train_end, s->batch * s->accumulate, s->seq, s->seed};
    BY_TRY(by_lm_batches_check(&r->train));
    r->eval = (by_lm_batches){r->data.eval, r->data.eval_begin, r->data.eval_end, s->batch, s->seq, s->seed};
    if (r->data.eval && r->data.eval_end - r->data.eval_begin < 2)
        return by_fail(BY_ERR_ARGUMENT, "the held-out part has fewer than two tokens");
    r->trainer = by_trainer_new(r->model, &(by_trainer_spec){.accumulate = s->accumulate,
                                                             .recompute = s->recompute,
                                                             .optimizer = s->optimizer,
                                                             .seed = s->seed});
    if (!r->trainer)
        return by_error_status();
    r->log = by_log_open(s->out, r->state.step);
    if (!r->log)
        return by_error_status();
    size_t cells = (size_t)s->batch * (size_t)s->accumulate * (size_t)s->seq;
    r->inputs = by_alloc_zero(cells, sizeof *r->inputs);
    r->targets = by_alloc_zero(cells, sizeof *r->targets);
    if (!r->inputs || !r->targets)
        return BY_ERR_MEMORY;
    by_batch like = batch_at(r, 0);
    if (!by_trainer_program(r->trainer, &like))
        return by_error_status();
    by_trainer_set_steps(r->trainer, r->state.step);
    r->rate = by_device_peak(r->device, s->dtype);
    return BY_OK;
}

static void tear_down(run *r)
{
    by_free(r->last);
    by_free(r->inputs);
    by_free(r->targets);
    by_log_close(r->log);
    by_trainer_free(r->trainer);
    by_model_free(r->model);
    by_dataset_close(&r->data);
    if (r->lock >= 0)
        close(r->lock);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static by_status train_step(run *r, by_report *out)
{
    const by_run_spec *s = &r->spec;
    size_t cells = (size_t)s->batch * (size_t)s->seq;
    double begin = by_seconds();
    BY_TRY(by_lm_batches_get(&r->train, r->state.step, r->inputs, r->targets));
    by_lm_batches_prefetch(&r->train, r->state.step + 1);
    for (int k = 0; k < s->accumulate; k++) {
        by_batch b = batch_at(r, (size_t)k * cells);
        BY_TRY(by_trainer_backward(r->trainer, &b, k == 0, NULL));
    }
    out->learning_rate = by_schedule_rate(&s->schedule, r->state.step);
    by_status updated = by_trainer_update(r->trainer, out->learning_rate, NULL);
    BY_TRY(by_trainer_loss(r->trainer, &out->loss)); /* says more than a norm that is not finite */
    BY_TRY(updated);
    BY_TRY(by_trainer_norm(r->trainer, &out->grad_norm));
    r->state.step++;
    double seconds = by_seconds() - begin;
    out->ms = seconds * 1e3;
    out->tokens_per_s = (double)cells * s->accumulate / seconds;
    out->peak_share = r->rate > 0 ? by_trainer_flops(r->trainer) * s->accumulate / seconds / r->rate : NAN;
    return BY_OK;
}

static by_status evaluate(run *r, double *loss)
{
    const by_run_spec *s = &r->spec;
    int64_t windows = by_lm_eval_windows(&r->eval), count = 0;
    double sum = 0;
    if (s->eval_batches > 0)
        windows = BY_MIN(windows, s->eval_batches * s->batch);
    for (int64_t w = 0; w < windows; w += s->batch) {
        BY_TRY(by_lm_eval_get(&r->eval, w, s->batch, r->inputs, r->targets));
        by_batch b = batch_at(r, 0);
        BY_TRY(by_trainer_evaluate(r->trainer, &b, &sum, &count));
    }
    *loss = count ? sum / (double)count : NAN;
    return BY_OK;
}

static by_status save(run *r, bool is_best)
{
    BY_TRY(by_checkpoint_save(r->spec.out, r->model, r->data.tokenizer, &r->state, is_best, r->spec.keep));
    char *title = by_sprintf("%s, %.3g M parameters", by_model_title(r->model),
                             (double)by_params_elements(by_model_params(r->model)) / 1e6);
    by_status s = title ? by_log_draw(r->log, title) : BY_ERR_MEMORY;
    by_free(title);
    return s;
}

static void report(const run *r, by_report *p)
{
    p->step = r->state.step;
    p->steps = r->spec.steps;
    p->seconds = by_seconds() - r->started;
    if (r->spec.report)
        r->spec.report(r->spec.user, p);
}

static by_report no_report(void)
{
    return (by_report){.loss = NAN,
                       .eval_loss = NAN,
                       .learning_rate = NAN,
                       .grad_norm = NAN,
                       .ms = NAN,
                       .tokens_per_s = NAN,
                       .peak_share = NAN};
}

/* What happens between two steps: evaluation, logging, saving. *stop is set when the run is to end early. */
static by_status after_step(run *r, by_report *p, bool *stop)
{
    const by_run_spec *s = &r->spec;
    bool last = r->state.step >= s->steps, is_best = false;
    if (r->data.eval && (last || r->state.step % s->eval_every == 0)) {
        BY_TRY(evaluate(r, &p->eval_loss));
        p->evaluated = true;
        is_best = isnan(r->state.best_eval) || p->eval_loss < r->state.best_eval;
        r->state.stale = is_best ? 0 : r->state.stale + 1;
        if (is_best) {
            r->state.best_eval = p->eval_loss;
            r->state.best_step = r->state.step;
        }
        r->result->eval_loss = p->eval_loss;
        *stop = s->patience > 0 && r->state.stale >= s->patience;
        r->result->stopped_early = *stop && !last;
    }
    p->step = r->state.step;
    if (p->evaluated || last || r->state.step % s->log_every == 0)
        BY_TRY(by_log_write(r->log, p));
    if (last || *stop || is_best || r->state.step % s->save_every == 0) {
        BY_TRY(save(r, is_best));
        p->saved = true;
    }
    return BY_OK;
}

static void trace(run *r, by_trace_fn fn)
{
    const by_batch like = batch_at(r, 0);
    by_program *p = by_trainer_program(r->trainer, &like);
    if (p)
        by_program_trace(p, fn, r->spec.user);
}

static by_status train(run *r)
{
    bool stop = r->spec.patience > 0 && r->state.stale >= r->spec.patience;
    if (r->spec.trace && r->state.step < r->spec.steps)
        trace(r, r->spec.trace);
    while (r->state.step < r->spec.steps && !stop) {
        if (r->spec.cancelled && r->spec.cancelled(r->spec.user)) {
            if (r->state.step > 0)
                BY_TRY(save(r, false));
            return by_fail(BY_ERR_CANCELLED, "stopped at step %lld; the same command goes on from there",
                           (long long)r->state.step);
        }
        by_report p = no_report();
        BY_TRY(train_step(r, &p));
        trace(r, NULL);
        r->result->loss = p.loss;
        BY_TRY(after_step(r, &p, &stop));
        report(r, &p);
    }
    return BY_OK;
}

by_status by_train_run(by_device *d, const by_run_spec *spec, by_run_result *result)
{
    by_error_clear();
    run r = {.device = d, .spec = *spec, .lock = -1, .started = by_seconds(), .result = result};
    *result = (by_run_result){.loss = NAN, .eval_loss = NAN, .best_eval_loss = NAN};
    by_status s = set_up(&r);
    if (s == BY_OK) {
        result->resumed_from = r.state.step;
        result->parameters = by_params_elements(by_model_params(r.model));
        result->activation_bytes = by_trainer_bytes(r.trainer);
        result->state_bytes = by_trainer_state_bytes(r.trainer);
        by_report p = no_report();
        char *note = by_sprintf(
            "%s: %.2f M parameters, %lld training tokens, %lld held out; memory %.0f MiB of parameters and "
            "optimiser, %.0f MiB of activations",
            by_model_title(r.model), (double)result->parameters / 1e6,
            (long long)(r.data.train_end - r.data.train_begin),
            (long long)(r.data.eval_end - r.data.eval_begin), (double)result->state_bytes / 1048576.0,
            (double)result->activation_bytes / 1048576.0);
        p.note = note;
        report(&r, &p);
        by_free(note);
        s = train(&r);
        result->steps = r.state.step;
        result->best_eval_loss = r.state.best_eval;
        result->best_step = r.state.best_step;
    }
    result->seconds = by_seconds() - r.started;
    tear_down(&r);
    return s;
}
