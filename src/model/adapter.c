/* adapter.c - creates adapters from a configuration and frees them (banyan/adapter.h). */
#include "model/adapter.h"

/* Declares the adapter's parameters by building the model once. The hook declares what the configuration
 * names. */
static by_status find_layers(by_adapter *a)
{
    by_model *m = a->model;
    by_adapter *before = m->adapter;
    by_params_free(a->params);
    a->n_targets = a->n_replaced = a->n_tokens = 0;
    a->params = by_params_new(m->device, m->params->type);
    if (!a->params)
        return base_error_status();
    m->adapter = a;
    a->declaring = true;
    by_status s = model_declare(m);
    a->declaring = false;
    m->adapter = before;
    if (s == BY_OK && a->config.prefix && a->n_targets != (a->config.prompt ? 1 : by_model_layers(m)))
        s = base_fail(BY_ERR_UNSUPPORTED, "adapter: the attention of %s takes no prefix", m->arch->title);
    if (s == BY_OK)
        s = model_tokens_check(a);
    if (s == BY_OK && a->n_targets == 0)
        s = base_fail(BY_ERR_ARGUMENT,
                      "adapter: no linear layer or embedding of %s%s has one of the target names",
                      a->config.layers ? "the given layers of " : "", m->arch->title);
    return s;
}

/* Excludes the body from updates. It was opened without gradients, moments and masters. */
static by_status freeze_body(by_model *m)
{
    if (m->params->training)
        return base_fail(BY_ERR_ARGUMENT,
                         "the model was opened for training; to train an adapter, open it without");
    for (int i = 0; i < m->params->count; i++)
        BY_TRY(by_params_set_rate(m->params, i, 0));
    return BY_OK;
}

static by_status prepare(by_adapter *a, const char *dir)
{
    BY_TRY(model_adapter_configure(a));
    a->hook = a->config.prompt   ? model_prompt_hook(a)
              : a->config.prefix ? model_prefix_hook(a)
                                 : model_adapter_hook(a);
    if (a->training)
        BY_TRY(freeze_body(a->model));
    const bool all = model_adapter_takes_all(a);
    BY_TRY(find_layers(a));
    BY_TRY(model_adapter_complete(a));
    if (all) /* their names are known now, so their biases can be matched too */
        BY_TRY(find_layers(a));
    if (dir)
        BY_TRY(model_adapter_match(a, dir));
    return by_params_freeze(a->params, a->training);
}

/* Takes ownership of the configuration, even on failure. dir: the folder with the values, or NULL. */
static by_adapter *make(by_model *m, cJSON *json, const char *dir, bool training)
{
    by_adapter *a = json ? base_alloc_zero(1, sizeof *a) : NULL;
    if (!a) {
        cJSON_Delete(json);
        return NULL;
    }
    a->model = m;
    a->json = json;
    a->training = training;
    a->next = m->adapters;
    m->adapters = a;
    if (prepare(a, dir) == BY_OK)
        return a;
    by_adapter_free(a);
    return NULL;
}

/* Selects the adapter, or frees it on failure. */
static by_adapter *finish(by_adapter *a, by_status s)
{
    if (s == BY_OK)
        s = model_adapter_derive(a);
    if (s == BY_OK)
        by_model_use(a->model, a);
    else
        by_adapter_free(a);
    return s == BY_OK ? a : NULL;
}

static int names_in(const char *list)
{
    int n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

by_adapter *by_adapter_new(by_model *m, const by_adapter_spec *spec, bool training)
{
    if (!m || !spec) {
        base_fail_missing(m ? "by_adapter_spec" : "model");
        return NULL;
    }
    by_adapter *a = make(m, model_adapter_describe(m, spec), NULL, training);
    if (a && spec->save && model_adapter_check_saved(a, names_in(spec->save)) != BY_OK) {
        by_adapter_free(a);
        return NULL;
    }
    return a ? finish(a, spec->blank ? BY_OK : model_adapter_init(a, spec->seed)) : NULL;
}

by_adapter *by_adapter_open(by_model *m, const char *dir, bool training)
{
    if (!m || !dir) {
        base_fail_missing(m ? "folder of an adapter" : "model");
        return NULL;
    }
    by_adapter *a = make(m, model_adapter_read_config(dir), dir, training);
    a = a ? finish(a, model_adapter_load(a)) : NULL;
    if (!a)
        base_fail_context("%s", dir);
    return a;
}

void by_adapter_free(by_adapter *a)
{
    if (!a)
        return;
    by_adapter **at = &a->model->adapters;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    if (a->model->adapter == a)
        a->model->adapter = NULL;
    for (int i = 0; a->before && i < a->model->params->count; i++)
        base_free(a->before[i]);
    base_free(a->before);
    model_adapter_close(a);
    by_params_free(a->params);
    base_free(a->targets);
    base_free(a->replaced);
    base_free(a->tokens);
    base_free(a->prompt.keys_values);
    cJSON_Delete(a->json);
    base_free(a);
}

void by_model_use(by_model *m, by_adapter *a)
{
    if (m && (!a || a->model == m))
        m->adapter = a;
}

by_adapter *by_model_adapter(const by_model *m)
{
    return m ? m->adapter : NULL;
}

by_params *by_adapter_params(const by_adapter *a)
{
    return a ? a->params : NULL;
}

int by_adapter_layers(const by_adapter *a)
{
    return a ? a->n_targets : 0;
}

by_params *by_model_trained(const by_model *m)
{
    return m && m->adapter && m->adapter->training ? m->adapter->params : by_model_params(m);
}
