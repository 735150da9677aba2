/* adapter_config.c - adapter_config.json: PEFT's LoraConfig and IA3Config, read and written. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "model/adapter.h"

/* PEFT's names of tasks. */
static const struct {
    by_task task;
    const char *name;
} tasks[] = {{BY_TASK_CLASSIFY, "SEQ_CLS"},     {BY_TASK_TAG, "TOKEN_CLS"},
             {BY_TASK_ANSWER, "QUESTION_ANS"},  {BY_TASK_LM, "CAUSAL_LM"},
             {BY_TASK_SEQ2SEQ, "SEQ_2_SEQ_LM"}, {BY_TASK_FEATURES, "FEATURE_EXTRACTION"}};

/* NULL for models of pictures, because PEFT's task classes pass text inputs on, which not all of these models
 * take. */
static const char *task_type(const by_model *m)
{
    for (int i = 0; i < BY_COUNT(tasks) && !m->arch->pictures; i++)
        if (tasks[i].task == m->task)
            return tasks[i].name;
    return NULL;
}

by_task model_adapter_task(const cJSON *json)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "task_type");
    for (int i = 0; cJSON_IsString(name) && i < BY_COUNT(tasks); i++)
        if (strcmp(tasks[i].name, name->valuestring) == 0)
            return tasks[i].task;
    return BY_TASK_DEFAULT;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Keys that are read below, and keys that do not affect what an adapter computes: of every method, and of
 * one. */
static const char *const known[] = {"auto_mapping",
                                    "base_model_name_or_path",
                                    "exclude_modules",
                                    "fan_in_fan_out",
                                    "inference_mode",
                                    "modules_to_save",
                                    "peft_type",
                                    "peft_version",
                                    "revision",
                                    "runtime_config",
                                    "target_modules",
                                    "task_type",
                                    NULL},
                         *const of_lora[] = {"alpha_pattern",
                                             "bias",
                                             "corda_config",
                                             "eva_config",
                                             "init_lora_weights",
                                             "layers_pattern",
                                             "layers_to_transform",
                                             "loftq_config",
                                             "lora_alpha",
                                             "lora_bias",
                                             "lora_dropout",
                                             "lora_ga_config",
                                             "megatron_core",
                                             "qalora_group_size",
                                             "r",
                                             "rank_pattern",
                                             "trainable_token_indices",
                                             "use_dora",
                                             "use_rslora",
                                             NULL},
                         *const of_ia3[] = {"feedforward_modules", "init_ia3_weights", NULL},
                         *const of_prefix[] = {"encoder_hidden_size",
                                               "init_weights",
                                               "num_attention_heads",
                                               "num_layers",
                                               "num_transformer_submodules",
                                               "num_virtual_tokens",
                                               "prefix_projection",
                                               "token_dim",
                                               NULL},
                         *const of_prompt[] = {"num_attention_heads",
                                               "num_layers",
                                               "num_transformer_submodules",
                                               "num_virtual_tokens",
                                               "prompt_tuning_init",
                                               "prompt_tuning_init_text",
                                               "token_dim",
                                               "tokenizer_kwargs",
                                               "tokenizer_name_or_path",
                                               NULL};

static bool is_in(const char *const *keys, const char *key)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* An unknown key is accepted if it is switched off. */
static by_status check_keys(const cJSON *json, const char *const *own)
{
    for (const cJSON *k = json->child; k; k = k->next) {
        const bool off =
            cJSON_IsNull(k) || cJSON_IsFalse(k) || ((cJSON_IsObject(k) || cJSON_IsArray(k)) && !k->child);
        if (!off && !is_in(known, k->string) && !is_in(own, k->string))
            return base_fail(BY_ERR_UNSUPPORTED, "adapter_config.json: %s is not supported",
                             io_show(k->string).text);
    }
    return BY_OK;
}

/* Other initialisations change the weights of the body, and the adapter fits only the changed weights. */
static by_status check_init(const cJSON *json)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
    const cJSON *init = cJSON_GetObjectItemCaseSensitive(json, "init_lora_weights");
    if (!cJSON_IsString(init))
        return BY_OK;
    for (int i = 0; i < BY_COUNT(plain); i++)
        if (strcmp(init->valuestring, plain[i]) == 0)
            return BY_OK;
    return base_fail(
        BY_ERR_UNSUPPORTED,
        "adapter_config.json: init_lora_weights \"%s\" changes the weights of the model; convert the "
        "adapter to plain LoRA first",
        io_show(init->valuestring).text);
}

/* A list of strings or of numbers, or a single one; NULL if absent or null. */
static by_status read_list(const cJSON *json, const char *key, bool numbers, bool alone, const cJSON **out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    *out = NULL;
    if (!v || cJSON_IsNull(v))
        return BY_OK;
    bool ok = cJSON_IsArray(v) || (alone && (numbers ? cJSON_IsNumber(v) : cJSON_IsString(v)));
    for (const cJSON *e = cJSON_IsArray(v) ? v->child : NULL; e && ok; e = e->next)
        ok = numbers ? cJSON_IsNumber(e) : cJSON_IsString(e);
    *out = v;
    return ok ? BY_OK
              : base_fail(BY_ERR_FORMAT, "adapter_config.json: %s is not a list of %s", key,
                          numbers ? "numbers" : "names");
}

enum { MAX_RANK = 1 << 16 };

static by_status read_pattern(const cJSON *json, const char *key, bool ranks, const cJSON **out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    *out = v && !cJSON_IsNull(v) ? v : NULL;
    bool ok = !*out || cJSON_IsObject(*out);
    for (const cJSON *e = ok && *out ? (*out)->child : NULL; e && ok; e = e->next)
        ok = cJSON_IsNumber(e) && (!ranks || (e->valuedouble >= 1 && e->valuedouble <= MAX_RANK &&
                                              e->valuedouble == floor(e->valuedouble)));
    return ok ? BY_OK
              : base_fail(BY_ERR_FORMAT, "adapter_config.json: %s must give names %s", key,
                          ranks ? "whole numbers from 1 on" : "numbers");
}

static by_status read_bias(const cJSON *json, model_adapter_config *c)
{
    static const char *const words[] = {"none", "lora_only", "all"};
    const char *bias;
    BY_TRY(base_json_string(json, "bias", "none", &bias));
    for (int i = 0; i < BY_COUNT(words); i++)
        if (strcmp(bias, words[i]) == 0) {
            c->bias = i;
            return BY_OK;
        }
    return base_fail(BY_ERR_FORMAT, "adapter: bias must be none, lora_only or all, not \"%s\"",
                     io_show(bias).text);
}

static bool are_tokens(const cJSON *list)
{
    bool ok = cJSON_IsArray(list) && list->child;
    for (const cJSON *e = ok ? list->child : NULL; e && ok; e = e->next)
        ok = cJSON_IsNumber(e) && e->valuedouble == floor(e->valuedouble) && fabs(e->valuedouble) < 1 << 24;
    return ok;
}

/* A list of token ids, or one list for each embedding name. */
static by_status read_tokens(const cJSON *json, model_adapter_config *c)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, "trainable_token_indices");
    c->tokens = v && !cJSON_IsNull(v) && v->child ? v : NULL;
    bool ok = !c->tokens || cJSON_IsObject(v) || are_tokens(v);
    for (const cJSON *e = cJSON_IsObject(v) ? v->child : NULL; e && ok; e = e->next)
        ok = are_tokens(e);
    return ok ? BY_OK
              : base_fail(BY_ERR_FORMAT,
                          "adapter_config.json: trainable_token_indices must be a list of token ids, or "
                          "such lists by the names of embeddings");
}

static by_status read_lora(const cJSON *json, model_adapter_config *c)
{
    BY_TRY(check_keys(json, of_lora));
    BY_TRY(check_init(json));
    BY_TRY(base_json_int(json, "r", 8, 1, MAX_RANK, &c->rank));
    BY_TRY(base_json_double(json, "lora_alpha", 8, -1e6, 1e6, &c->alpha));
    BY_TRY(base_json_double(json, "lora_dropout", 0, 0, 0.999, &c->dropout));
    BY_TRY(base_json_bool(json, "use_rslora", false, &c->rslora));
    BY_TRY(base_json_bool(json, "use_dora", false, &c->dora));
    BY_TRY(base_json_bool(json, "lora_bias", false, &c->shifts));
    if (c->shifts && c->dora)
        return base_fail(BY_ERR_UNSUPPORTED, "adapter_config.json: lora_bias does not go with use_dora");
    BY_TRY(read_bias(json, c));
    BY_TRY(read_list(json, "layers_to_transform", true, true, &c->layers));
    BY_TRY(read_list(json, "layers_pattern", false, true, &c->layers_pattern));
    BY_TRY(read_pattern(json, "rank_pattern", true, &c->rank_pattern));
    BY_TRY(read_tokens(json, c));
    return read_pattern(json, "alpha_pattern", false, &c->alpha_pattern);
}

static by_status read_ia3(const cJSON *json, model_adapter_config *c)
{
    BY_TRY(check_keys(json, of_ia3));
    BY_TRY(read_list(json, "feedforward_modules", false, true, &c->feedforward));
    return c->feedforward ? BY_OK
                          : base_fail(BY_ERR_FORMAT, "adapter_config.json names no feedforward_modules");
}

enum { MAX_PREFIX = 1 << 12 };

/* Reads a prefix or a prompt. The rest follows from the model, and the shape of the parameter shows whether
 * it fits. The file has the final values, whatever projection or initialisation made them. */
static by_status read_prefix(by_adapter *a)
{
    const by_model *m = a->model;
    BY_TRY(check_keys(a->json, a->config.prompt ? of_prompt : of_prefix));
    BY_TRY(base_json_int(a->json, "num_virtual_tokens", 0, 1, MAX_PREFIX, &a->config.prefix));
    if (a->config.prefix == 0)
        return base_fail(BY_ERR_FORMAT, "adapter_config.json has no num_virtual_tokens");
    if (a->config.save && a->config.save->child)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "adapter_config.json: modules_to_save is not supported for prefixes and prompts");
    by_canvas canvas;
    if (m->task != BY_TASK_LM || by_model_canvas(m, &canvas) || !by_model_has_cache(m) ||
        by_model_first_position(m) != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "adapter: a %s is for decoders that write text, not for %s",
                         a->config.prompt ? "prompt" : "prefix", by_model_class(m));
    return by_model_is_limited(m) && by_model_context(m) <= a->config.prefix
               ? base_fail(BY_ERR_ARGUMENT, "adapter: a %s of %d positions leaves none of %d for text",
                           a->config.prompt ? "prompt" : "prefix", (int)a->config.prefix, by_model_context(m))
               : BY_OK;
}

by_status model_adapter_configure(by_adapter *a)
{
    const cJSON *json = a->json;
    model_adapter_config *c = &a->config;
    const char *type;
    if (!cJSON_IsObject(json))
        return base_fail(BY_ERR_FORMAT, "adapter_config.json is not an object");
    BY_TRY(base_json_string(json, "peft_type", "", &type));
    c->ia3 = strcmp(type, "IA3") == 0;
    c->prompt = strcmp(type, "PROMPT_TUNING") == 0;
    const bool prefix = c->prompt || strcmp(type, "PREFIX_TUNING") == 0;
    if (!c->ia3 && !prefix && strcmp(type, "LORA") != 0)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "adapter_config.json: the peft_type is \"%s\"; LORA, IA3, PREFIX_TUNING and "
                         "PROMPT_TUNING are supported",
                         io_show(type).text);
    BY_TRY(read_list(json, "target_modules", false, true, &c->targets));
    BY_TRY(read_list(json, "exclude_modules", false, true, &c->excluded));
    BY_TRY(read_list(json, "modules_to_save", false, false, &c->save));
    if (prefix)
        return read_prefix(a);
    BY_TRY((c->ia3 ? read_ia3 : read_lora)(json, c));
    return c->targets ? BY_OK : base_fail(BY_ERR_FORMAT, "adapter_config.json names no target_modules");
}

cJSON *model_adapter_read_config(const char *dir)
{
    char *path = base_path_join(dir, "adapter_config.json");
    cJSON *json = path ? base_json_load(path) : NULL;
    base_free(path);
    return json;
}

/* ---- new adapters ----------------------------------------------------------------------------- */

/* Appends the comma-separated parts of a text to a list; numbers as numbers. */
static bool add_names(cJSON *list, const char *text, bool numbers)
{
    bool ok = list != NULL;
    for (const char *at = text; ok && at && *at;) {
        const size_t n = strcspn(at, ",");
        char *name = base_sprintf("%.*s", (int)n, at), *end = name;
        cJSON *item =
            name ? (numbers ? cJSON_CreateNumber((double)strtol(name, &end, 10)) : cJSON_CreateString(name))
                 : NULL;
        ok = item && n > 0 && (!numbers || (end > name && !*end)) && cJSON_AddItemToArray(list, item);
        if (!ok)
            cJSON_Delete(item);
        base_free(name);
        at += n + (at[n] == ',');
    }
    return ok;
}

bool model_adapter_lists(const cJSON *list, const char *name, size_t n)
{
    for (const cJSON *e = list->child; e; e = e->next)
        if (strlen(e->valuestring) == n && strncmp(e->valuestring, name, n) == 0)
            return true;
    return false;
}

/* Stores a head that is trained for labels, and any part of the model without values in its file, with the
 * adapter. */
static bool add_heads(const by_model *m, cJSON *list)
{
    const bool head = model_has_new_head(m->task);
    for (int i = 0; i < m->params->count; i++) {
        const char *name = m->params->list[i].name, *last = strrchr(name, '.');
        const bool outside = !model_in_body(m, name), fresh = m->fresh && m->fresh[i];
        if (!last || !((head && outside) || fresh))
            continue;
        const size_t n = outside ? strcspn(name, ".") : (size_t)(last - name);
        char *module = base_sprintf("%.*s", (int)n, name);
        const bool ok = module && (model_adapter_lists(list, name, n) || add_names(list, module, false));
        base_free(module);
        if (!ok)
            return false;
    }
    return true;
}

static cJSON *save_list(const by_model *m, const by_adapter_spec *spec)
{
    cJSON *list = cJSON_CreateArray();
    if (!add_names(list, spec->save, false) || !add_heads(m, list)) {
        cJSON_Delete(list);
        return NULL;
    }
    if (list->child)
        return list;
    cJSON_Delete(list);
    return cJSON_CreateNull();
}

/* The default layers of the family; NULL: none. */
static const char *usual_targets(const by_model *m, const by_adapter_spec *spec)
{
    const arch_scaled *s = spec->ia3 ? arch_scaled_of(m->arch) : NULL;
    return spec->ia3 ? (s ? s->targets : NULL) : m->arch->adapted;
}

/* "all-linear", an expression or a list. */
static cJSON *describe_names(const char *names)
{
    if (strcmp(names, "all-linear") == 0 || strpbrk(names, "*?|()[]\\^$"))
        return cJSON_CreateString(names);
    cJSON *list = cJSON_CreateArray();
    if (add_names(list, names, false))
        return list;
    cJSON_Delete(list);
    return NULL;
}

static cJSON *target_list(const by_model *m, const by_adapter_spec *spec)
{
    return describe_names(spec->targets ? spec->targets : usual_targets(m, spec));
}

/* The default feed-forward names that are among the targets. */
static cJSON *usual_feedforward(const by_model *m, const cJSON *targets)
{
    const arch_scaled *s = arch_scaled_of(m->arch);
    cJSON *list = s ? describe_names(s->feedforward) : cJSON_CreateArray();
    for (int i = cJSON_GetArraySize(list) - 1; i >= 0 && cJSON_IsArray(targets); i--) {
        const char *name = cJSON_GetArrayItem(list, i)->valuestring;
        if (!model_adapter_lists(targets, name, strlen(name)))
            cJSON_DeleteItemFromArray(list, i);
    }
    return list;
}

static cJSON *number_list(const char *numbers, const char *of)
{
    if (!numbers)
        return cJSON_CreateNull();
    cJSON *list = cJSON_CreateArray();
    if (add_names(list, numbers, true))
        return list;
    cJSON_Delete(list);
    base_fail(BY_ERR_ARGUMENT, "adapter: \"%s\" is not a list of %s", numbers, of);
    return NULL;
}

static cJSON *text_or_null(const char *text)
{
    return text ? cJSON_CreateString(text) : cJSON_CreateNull();
}

static by_status check_spec(const by_model *m, const by_adapter_spec *s)
{
    if (s->rank < 0 || s->rank > MAX_RANK || !(fabs(s->alpha) <= 1e6))
        return base_fail(BY_ERR_ARGUMENT, "adapter: rank %d and alpha %g are not possible", s->rank,
                         s->alpha);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return base_fail(BY_ERR_ARGUMENT, "adapter: a dropout of %g is not possible", s->dropout);
    const int before = s->prompt ? s->prompt : s->prefix;
    if (before < 0 || before > MAX_PREFIX || (before && s->ia3) || (s->prompt && s->prefix))
        return base_fail(BY_ERR_ARGUMENT, "adapter: a %s of %d positions is not possible%s",
                         s->prompt ? "prompt" : "prefix", before,
                         s->prompt && s->prefix ? " beside a prefix" : "");
    if (!before && !s->targets && !usual_targets(m, s))
        return base_fail(BY_ERR_ARGUMENT,
                         "adapter: %s has no usual layers to adapt; name some, or all-linear",
                         m->arch->title);
    return BY_OK;
}

typedef struct member {
    const char *key;
    cJSON *value;
} member;

/* An object with these members. Takes ownership of them, even on failure. */
static cJSON *object_of(const member *members, int n)
{
    cJSON *json = cJSON_CreateObject();
    bool ok = json != NULL;
    for (int i = 0; i < n; i++) {
        const bool put =
            ok && members[i].value && cJSON_AddItemToObject(json, members[i].key, members[i].value);
        if (!put)
            cJSON_Delete(members[i].value);
        ok = put;
    }
    if (ok)
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* Keys are sorted, as PEFT writes them. */
static cJSON *describe_lora(const by_model *m, const by_adapter_spec *s)
{
    const int rank = s->rank ? s->rank : 8;
    const member members[] = {{"alpha_pattern", cJSON_CreateObject()},
                              {"auto_mapping", cJSON_CreateNull()},
                              {"base_model_name_or_path", text_or_null(m->dir)},
                              {"bias", cJSON_CreateString(s->bias ? s->bias : "none")},
                              {"exclude_modules", cJSON_CreateNull()},
                              {"fan_in_fan_out", cJSON_CreateFalse()},
                              {"inference_mode", cJSON_CreateTrue()},
                              {"init_lora_weights", cJSON_CreateTrue()},
                              {"layers_pattern", cJSON_CreateNull()},
                              {"layers_to_transform", number_list(s->layers, "layer numbers")},
                              {"lora_alpha", cJSON_CreateNumber(s->alpha != 0 ? s->alpha : rank)},
                              {"lora_bias", cJSON_CreateFalse()},
                              {"lora_dropout", cJSON_CreateNumber(s->dropout)},
                              {"modules_to_save", save_list(m, s)},
                              {"peft_type", cJSON_CreateString("LORA")},
                              {"r", cJSON_CreateNumber(rank)},
                              {"rank_pattern", cJSON_CreateObject()},
                              {"revision", cJSON_CreateNull()},
                              {"target_modules", target_list(m, s)},
                              {"task_type", text_or_null(task_type(m))},
                              {"trainable_token_indices", number_list(s->tokens, "token ids")},
                              {"use_dora", cJSON_CreateBool(s->dora)},
                              {"use_rslora", cJSON_CreateBool(s->rslora)}};
    return object_of(members, BY_COUNT(members));
}

static cJSON *describe_ia3(const by_model *m, const by_adapter_spec *s)
{
    cJSON *targets = target_list(m, s);
    const member members[] = {{"auto_mapping", cJSON_CreateNull()},
                              {"base_model_name_or_path", text_or_null(m->dir)},
                              {"exclude_modules", cJSON_CreateNull()},
                              {"fan_in_fan_out", cJSON_CreateFalse()},
                              {"feedforward_modules", s->feedforward ? describe_names(s->feedforward)
                                                                     : usual_feedforward(m, targets)},
                              {"inference_mode", cJSON_CreateTrue()},
                              {"init_ia3_weights", cJSON_CreateTrue()},
                              {"modules_to_save", save_list(m, s)},
                              {"peft_type", cJSON_CreateString("IA3")},
                              {"revision", cJSON_CreateNull()},
                              {"target_modules", targets},
                              {"task_type", text_or_null(task_type(m))}};
    return object_of(members, BY_COUNT(members));
}

/* PEFT rejects other lists. */
static by_status check_feedforward(const cJSON *json)
{
    const cJSON *targets = cJSON_GetObjectItemCaseSensitive(json, "target_modules"),
                *inputs = cJSON_GetObjectItemCaseSensitive(json, "feedforward_modules");
    const bool lists = cJSON_IsArray(targets) && cJSON_IsArray(inputs);
    for (const cJSON *e = lists ? inputs->child : NULL; e; e = e->next)
        if (!model_adapter_lists(targets, e->valuestring, strlen(e->valuestring)))
            return base_fail(BY_ERR_ARGUMENT,
                             "adapter: the feed-forward module \"%s\" is not among the targets",
                             e->valuestring);
    return BY_OK;
}

/* Numbers of the model are added once they are known. */
static cJSON *describe_prefix(const by_model *m, const by_adapter_spec *s)
{
    const member members[] = {{"auto_mapping", cJSON_CreateNull()},
                              {"base_model_name_or_path", text_or_null(m->dir)},
                              {"encoder_hidden_size", cJSON_CreateNull()},
                              {"inference_mode", cJSON_CreateTrue()},
                              {"num_attention_heads", cJSON_CreateNull()},
                              {"num_layers", cJSON_CreateNull()},
                              {"num_transformer_submodules", cJSON_CreateNumber(1)},
                              {"num_virtual_tokens", cJSON_CreateNumber(s->prefix)},
                              {"peft_type", cJSON_CreateString("PREFIX_TUNING")},
                              {"prefix_projection", cJSON_CreateFalse()},
                              {"revision", cJSON_CreateNull()},
                              {"task_type", text_or_null(task_type(m))},
                              {"token_dim", cJSON_CreateNull()}};
    return object_of(members, BY_COUNT(members));
}

static cJSON *describe_prompt(const by_model *m, const by_adapter_spec *s)
{
    const member members[] = {{"auto_mapping", cJSON_CreateNull()},
                              {"base_model_name_or_path", text_or_null(m->dir)},
                              {"inference_mode", cJSON_CreateTrue()},
                              {"num_attention_heads", cJSON_CreateNull()},
                              {"num_layers", cJSON_CreateNull()},
                              {"num_transformer_submodules", cJSON_CreateNumber(1)},
                              {"num_virtual_tokens", cJSON_CreateNumber(s->prompt)},
                              {"peft_type", cJSON_CreateString("PROMPT_TUNING")},
                              {"prompt_tuning_init", cJSON_CreateString("RANDOM")},
                              {"prompt_tuning_init_text", cJSON_CreateNull()},
                              {"revision", cJSON_CreateNull()},
                              {"task_type", text_or_null(task_type(m))},
                              {"token_dim", cJSON_CreateNull()},
                              {"tokenizer_kwargs", cJSON_CreateNull()},
                              {"tokenizer_name_or_path", cJSON_CreateNull()}};
    return object_of(members, BY_COUNT(members));
}

cJSON *model_adapter_describe(const by_model *m, const by_adapter_spec *s)
{
    if (check_spec(m, s) != BY_OK)
        return NULL;
    base_error_clear();
    cJSON *json = (s->prompt   ? describe_prompt
                   : s->prefix ? describe_prefix
                   : s->ia3    ? describe_ia3
                               : describe_lora)(m, s);
    if (!json && base_error_status() == BY_OK)
        base_fail(BY_ERR_MEMORY, "out of memory while describing an adapter");
    if (check_feedforward(json) == BY_OK)
        return json;
    cJSON_Delete(json);
    return NULL;
}
