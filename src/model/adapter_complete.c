/* adapter_complete.c - completes a configuration once the layers of the model are known: lists of modules,
 * patterns, numbers. */
#include "model/adapter.h"

typedef struct member {
    const char *key;
    cJSON *value;
} member;

/* The module of an adapter's parameter: its name without the prefix and without everything from `end` on. */
static char *module_of(const by_adapter *a, int param, const char *end)
{
    const char *name = a->params->list[param].name + strlen(MODEL_ADAPTER_PREFIX);
    return base_sprintf("%.*s", (int)(end - name), name);
}

static char *target_module(const by_adapter *a, int i)
{
    const int param = a->targets[i].a;
    return module_of(a, param, strstr(a->params->list[param].name, a->config.ia3 ? ".ia3_l" : ".lora_"));
}

static bool add_name(cJSON *list, const char *name)
{
    cJSON *item = name && list ? cJSON_CreateString(name) : NULL;
    return item && cJSON_AddItemToArray(list, item);
}

/* All adapted modules, or only those whose inputs are scaled. */
static cJSON *adapted_modules(const by_adapter *a, bool inputs)
{
    cJSON *list = cJSON_CreateArray();
    bool ok = list != NULL;
    for (int i = 0; i < a->n_targets && ok; i++) {
        if (inputs && !a->targets[i].inputs)
            continue;
        char *module = target_module(a, i);
        ok = add_name(list, module);
        base_free(module);
    }
    if (!ok)
        cJSON_Delete(list);
    return ok ? list : NULL;
}

/* The modules that are stored whole; null without any. Replaced biases alone do not count. */
static cJSON *saved_modules(by_adapter *a)
{
    cJSON *list = cJSON_CreateArray();
    bool ok = list != NULL;
    for (int i = 0; i < a->n_replaced && ok; i++) {
        const model_replaced *r = &a->replaced[i];
        bool saved;
        ok = model_adapter_saves(a, r->tied ? a->model->arch->head : a->model->params->list[r->body].name,
                                 &saved) == BY_OK;
        char *module = ok && saved ? module_of(a, r->own, strrchr(a->params->list[r->own].name, '.')) : NULL;
        ok =
            ok && (!saved ||
                   (module && (model_adapter_lists(list, module, strlen(module)) || add_name(list, module))));
        base_free(module);
    }
    if (ok && list->child)
        return list;
    cJSON_Delete(list);
    return ok ? cJSON_CreateNull() : NULL;
}

/* The adapted modules whose rank, or alpha, differs from the default. */
static cJSON *other_values(const by_adapter *a, bool ranks)
{
    cJSON *pattern = cJSON_CreateObject();
    bool ok = pattern != NULL;
    for (int i = 0; i < a->n_targets && ok; i++) {
        const model_target *t = &a->targets[i];
        const double value = ranks ? t->rank : t->alpha,
                     usual = ranks ? (double)a->config.rank : a->config.alpha;
        char *module = target_module(a, i);
        ok = module && (value == usual || cJSON_AddNumberToObject(pattern, module, value));
        base_free(module);
    }
    if (!ok)
        cJSON_Delete(pattern);
    return ok ? pattern : NULL;
}

static bool put_members(by_adapter *a, const member *members, int n)
{
    bool ok = true;
    for (int i = 0; i < n; i++)
        ok = members[i].value && base_json_put(a->json, members[i].key, members[i].value) && ok;
    return ok;
}

static bool list_inputs(by_adapter *a)
{
    return put_members(a, &(member){"feedforward_modules", adapted_modules(a, true)}, 1);
}

/* Names as in files may be path suffixes or expressions, which cannot be translated. The matched modules are
 * listed instead. */
static bool list_modules(by_adapter *a)
{
    const member all[] = {{"exclude_modules", cJSON_CreateNull()},
                          {"modules_to_save", saved_modules(a)},
                          {"target_modules", adapted_modules(a, false)}};
    if (a->config.ia3)
        return put_members(a, all, BY_COUNT(all)) && list_inputs(a);
    const member of_lora_alone[] = {{"alpha_pattern", other_values(a, false)},
                                    {"layers_pattern", cJSON_CreateNull()},
                                    {"layers_to_transform", cJSON_CreateNull()},
                                    {"rank_pattern", other_values(a, true)}};
    const bool ok = put_members(a, of_lora_alone, BY_COUNT(of_lora_alone));
    return put_members(a, all, BY_COUNT(all)) && ok;
}

bool model_adapter_takes_all(const by_adapter *a)
{
    return cJSON_IsString(a->config.targets) && strcmp(a->config.targets->valuestring, "all-linear") == 0;
}

static bool number_prefix(by_adapter *a)
{
    const double width = (double)a->targets[0].width;
    const member both[] = {{"num_attention_heads", cJSON_CreateNumber(a->heads)},
                           {"num_layers", cJSON_CreateNumber(by_model_layers(a->model))},
                           {"token_dim", cJSON_CreateNumber(width)}};
    if (!put_members(a, both, BY_COUNT(both)))
        return false;
    if (a->config.prompt)
        return true;
    const member members[] = {{"encoder_hidden_size", cJSON_CreateNumber(width)},
                              {"prefix_projection", cJSON_CreateFalse()}};
    return put_members(a, members, BY_COUNT(members));
}

by_status model_adapter_complete(by_adapter *a)
{
    if (a->config.prefix)
        return number_prefix(a) ? BY_OK : base_fail(BY_ERR_MEMORY, "out of memory");
    bool transposed = false, ok = true;
    for (int i = 0; i < a->n_targets; i++)
        transposed |= a->targets[i].w_is_kn;
    if (transposed)
        ok = base_json_put(a->json, "fan_in_fan_out", cJSON_CreateTrue());
    if (a->old_names)
        ok = ok && list_modules(a);
    else if (model_adapter_takes_all(a)) {
        ok = put_members(a, &(member){"target_modules", adapted_modules(a, false)}, 1) && ok;
        ok = ok && (!a->config.ia3 || list_inputs(a));
    }
    return ok ? model_adapter_configure(a) : base_fail(BY_ERR_MEMORY, "out of memory");
}
