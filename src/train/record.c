/* record.c - run.json: everything needed to repeat a run, and what must not change when it goes on. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "model/model.h"
#include "base/json.h"
#include "train/folder.h"
#include "train/run.h"
#include "train/defaults.h"

static const char *const schedules[] = {"constant", "linear", "cosine", "inverse-sqrt"};
static const char *const optimizers[] = {"adamw", "sgd", "adafactor"};

/* Numbers that decide the course of training; those of its shape are m's. */
typedef struct fact {
    const char *key;
    double value;
    bool younger; /* than some runs: where it is not recorded it was 0 */
} fact;

static int collect_facts(const train_run *r, const by_model *m, fact *f)
{
    const by_run_spec *s = &r->spec;
    const bool hides = data_objective_masks(r->data.kind), mends = data_objective_denoises(r->data.kind),
               fim = r->data.kind == DATA_OBJECTIVE_FIM;
    const data_masking mask = train_masking_choose(s, r->data.kind);
    fact all[] = {
        {"layers", by_model_layers(m), false},
        {"heads", by_model_heads(m), false},
        {"width", by_model_width(m), false},
        {"context", by_model_context(m), false},
        {"vocab", by_model_vocab(m), false},
        {"inner", arch_config_get(m->arch, m->config, ARCH_ROLE_INNER), false},
        {"dropout", round(arch_config_get(m->arch, m->config, ARCH_ROLE_DROPOUT) * 1e6) / 1e6,
         false}, /* a float */
        {"batch", s->batch, false},
        {"seq", s->seq, false},
        {"accumulate", s->accumulate, false},
        {"steps", (double)s->steps, false},
        {"seed", (double)s->seed, false},
        {"learning_rate", s->schedule.rate, false},
        {"min_learning_rate", s->schedule.min_rate, false},
        {"warmup_steps", (double)s->schedule.warmup, false},
        {"beta1", BY_MAX(s->optimizer.beta1, 0), false},
        {"beta2", BY_MAX(s->optimizer.beta2, 0), false},
        {"eps", BY_MAX(s->optimizer.eps, 0), false},
        {"momentum", s->optimizer.momentum, false},
        {"weight_decay", s->optimizer.weight_decay, false},
        {"max_grad_norm", s->optimizer.max_grad_norm, false},
        {"eval_fraction", s->eval_fraction, false},
        {"data_fingerprint", (double)(r->data.fingerprint >> 12), false},
        {"mask_share", hides || mends || fim ? mask.share : 0, true},
        {"mask_span", mends ? mask.span : 0, true},
        {"suffix_first", fim && s->objective.suffix_first, true},
        {"mask_copies", mask.copies, true},
        {"mask_words", mask.longest, true},
        {"whole_words", mask.whole_words, true},
        {"decoder_layers", arch_config_get(m->arch, m->config, ARCH_ROLE_DECODER_LAYERS), true},
        {"pre_norm", arch_config_get(m->arch, m->config, ARCH_ROLE_PRE_NORM), true},
        {"label_smoothing", s->label_smoothing, true},
        {"batch_tokens", s->batch_tokens, true},
    };
    memcpy(f, all, sizeof all);
    return BY_COUNT(all);
}
#define MAX_FACTS 40

/* Names that decide it too. */
enum { NAMES = 8 };
typedef struct name {
    const char *key, *value;
    const char *before; /* what it was in runs that did not record it */
} name;

static void collect_names(const train_run *r, name *n)
{
    const by_run_spec *s = &r->spec;
    name all[NAMES] = {{"family", s->init_from ? by_model_family(r->model) : s->family, ""},
                       {"dtype", train_folder_dtype(s->dtype, s->stochastic_rounding), ""},
                       {"tokenizer", s->tokenizer ? s->tokenizer : "char", ""},
                       {"target_tokenizer", s->target_tokenizer ? s->target_tokenizer : "", ""},
                       {"optimizer", optimizers[s->optimizer.kind], ""},
                       {"schedule", schedules[s->schedule.kind], ""},
                       {"objective", data_objective_name(r->data.kind), "lm"},
                       {"languages", r->languages ? r->languages : "", ""}};
    memcpy(n, all, sizeof all);
}

by_status train_run_record(const train_run *r)
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
        cJSON_AddStringToObject(json, "recipe", s->recipe ? s->recipe : "") &&
        cJSON_AddStringToObject(json, "device", by_device_description(r->device)) &&
        cJSON_AddNumberToObject(json, "parameters", (double)by_params_elements(by_model_params(r->model))) &&
        cJSON_AddNumberToObject(json, "first_steps", (double)r->first_steps) &&
        cJSON_AddNumberToObject(json, "eval_batches", (double)s->eval_batches) &&
        cJSON_AddNumberToObject(json, "train_tokens", (double)r->data.train_tokens) &&
        cJSON_AddNumberToObject(json, "eval_tokens", (double)r->data.eval_tokens);
    if (ok && isfinite(r->data.entropy))
        ok = cJSON_AddNumberToObject(json, "unigram_entropy", r->data.entropy) != NULL;
    for (int i = 0; i < NAMES && ok; i++)
        ok = cJSON_AddStringToObject(json, names[i].key, names[i].value) != NULL;
    for (int i = 0; i < n && ok; i++)
        ok = cJSON_AddNumberToObject(json, f[i].key, f[i].value) != NULL;
    for (int i = 0; i < s->data_count && ok; i++)
        ok = cJSON_AddItemToArray(files, cJSON_CreateString(s->data[i]));
    by_status status = BY_ERR_MEMORY;
    ok = ok && train_folder_add_options(json, s->options);
    if (ok && cJSON_AddItemToObject(json, "data", files)) {
        files = NULL; /* the object has it now */
        status = train_folder_record(s->out, json);
    } else {
        base_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    }
    cJSON_Delete(files);
    cJSON_Delete(json);
    return status;
}

static by_status compare_names(const train_run *r, const cJSON *json)
{
    name names[NAMES];
    collect_names(r, names);
    for (int i = 0; i < NAMES; i++) {
        const char *was = "";
        BY_TRY(base_json_string(json, names[i].key, names[i].before, &was));
        const bool path = strstr(names[i].key, "tokenizer") != NULL;
        if (path ? !train_folder_same_path(json, was, names[i].value) : strcmp(was, names[i].value) != 0)
            return train_folder_differs(r->spec.out, names[i].key, was, names[i].value);
    }
    return BY_OK;
}

/* A run may be made longer; fewer steps are fine where the schedule does not depend on their number. */
static by_status compare_facts(const train_run *r, const by_model *asked, const cJSON *json)
{
    fact f[MAX_FACTS];
    int n = collect_facts(r, asked, f);
    bool free_steps =
        r->spec.schedule.kind == BY_SCHEDULE_CONSTANT || r->spec.schedule.kind == BY_SCHEDULE_INVERSE_SQRT;
    for (int i = 0; i < n; i++) {
        double was = NAN;
        char text[2][32];
        BY_TRY(base_json_double(json, f[i].key, f[i].younger ? 0 : NAN, -INFINITY, INFINITY, &was));
        if (was == f[i].value || ((free_steps || r->longer) && strcmp(f[i].key, "steps") == 0))
            continue;
        base_format(text[0], sizeof text[0], "%.10g", was);
        base_format(text[1], sizeof text[1], "%.10g", f[i].value);
        return train_folder_differs(r->spec.out, f[i].key, text[0], text[1]);
    }
    return BY_OK;
}

by_model_shape train_run_shape(const train_run *r)
{
    by_model_shape shape = r->spec.shape;
    if (r->data.kind == DATA_OBJECTIVE_TRANSLATE && shape.dropout < 0)
        shape.dropout = train_default_dropout(r->data.train_part.count);
    if (r->data.tokenizer) {
        shape.vocab = by_tokenizer_vocab_size(r->data.tokenizer);
        shape.target_vocab = by_tokenizer_target_vocab_size(r->data.tokenizer);
    }
    if (r->spec.objective.language_count > 1)
        shape.languages = r->spec.objective.language_count;
    return shape;
}

/* Decoders need no padding. */
void train_run_tokens(const train_dataset *d, by_model *m)
{
    const by_tokenizer *t = d->tokenizer;
    if (!t)
        return;
    const int pad = by_tokenizer_special(t, BY_SPECIAL_PAD);
    by_model_set_eos(m, by_tokenizer_eos(t));
    if (d->kind != DATA_OBJECTIVE_LM && pad >= 0)
        by_model_set_pad(m, pad);
    if (by_model_task(m) == BY_TASK_SEQ2SEQ)
        by_model_set_start(m, m->arch->starts_with_eos ? by_tokenizer_eos(t) : pad);
}

/* A run goes on only as it began. */
by_status train_run_check(const train_run *r)
{
    cJSON *json = train_folder_read(r->spec.out);
    if (!json)
        return base_error_status();
    by_status s = compare_names(r, json);
    if (s == BY_OK && r->spec.init_from) {
        s = compare_facts(r, r->model, json);
    } else if (s == BY_OK) {
        by_model_shape shape = train_run_shape(r);
        by_model *asked =
            by_model_new(r->device, r->spec.family, &shape,
                         &(by_model_spec){.blank = true, .task = data_objective_task(r->data.kind)});
        if (asked)
            train_run_tokens(&r->data, asked);
        s = asked ? compare_facts(r, asked, json) : base_error_status();
        by_model_free(asked);
    }
    cJSON_Delete(json);
    return s;
}
