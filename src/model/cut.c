/* cut.c - models made of selected layers of another (by_model_cut). */
#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "model/model.h"

/* The first component of a name, except the last, that is a number: "encoder.layer.11.output" -> 11, the
 * prefix "encoder.layer." and the rest ".output". Returns false if there is none. */
static bool split(const char *name, int *prefix, long *number, const char **rest)
{
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        *number = strtol(at + 1, &end, 10);
        if (end > at + 1 && *end == '.') {
            *prefix = (int)(at + 1 - name);
            *rest = end;
            return true;
        }
    }
    return false;
}

static int find_layer(const by_model *m, const char *name, int prefix, long layer, const char *rest)
{
    char *other = base_sprintf("%.*s%ld%s", prefix, name, layer, rest);
    const int i = other ? by_params_find(m->params, other) : -1;
    base_free(other);
    return i;
}

/* The parameter of m that this one is copied from, or -1. A name with a number belongs to a layer if m has
 * the same name in its last layer; other names are the same in both. */
static int origin(const by_model *m, const char *name, const int *layers, int count)
{
    const int last[] = {by_model_layers(m) - 1,
                        (int)arch_config_get(m->arch, m->config, ARCH_ROLE_DECODER_LAYERS) - 1};
    int prefix;
    long number;
    const char *rest;
    if (split(name, &prefix, &number, &rest) && number < count)
        for (int k = 0; k < BY_COUNT(last); k++)
            if (last[k] >= 0 && find_layer(m, name, prefix, last[k], rest) >= 0)
                return find_layer(m, name, prefix, layers[number], rest);
    return by_params_find(m->params, name);
}

static by_status copy_values(const by_model *from, by_model *to, const int *layers, int count)
{
    const by_params *p = from->params, *q = to->params;
    by_status s = BY_OK;
    for (int i = 0; i < q->count && s == BY_OK; i++) {
        const int k = origin(from, q->list[i].name, layers, count);
        if (k < 0 || p->list[k].count != q->list[i].count)
            return base_fail(BY_ERR_UNSUPPORTED, "cannot select layers of this %s: %s has no counterpart",
                             from->arch->title, q->list[i].name);
        float *v = base_alloc((size_t)p->list[k].count * sizeof *v);
        s = v ? by_params_get(p, k, BY_SLOT_VALUE, v) : BY_ERR_MEMORY;
        if (s == BY_OK)
            s = by_params_set(to->params, i, BY_SLOT_VALUE, v);
        base_free(v);
    }
    return s;
}

static by_status check_layers(const by_model *m, const int *layers, int count)
{
    const int decoder = (int)arch_config_get(m->arch, m->config, ARCH_ROLE_DECODER_LAYERS);
    const int most = decoder > 0 ? BY_MIN(decoder, by_model_layers(m)) : by_model_layers(m);
    if (m->adapter)
        return base_fail(BY_ERR_UNSUPPORTED, "the model has an adapter: merge it first");
    if (count < 1)
        return base_fail(BY_ERR_ARGUMENT, "a model needs at least one layer");
    for (int i = 0; i < count; i++)
        if (layers[i] < 0 || layers[i] >= most)
            return base_fail(BY_ERR_ARGUMENT, "layer %d: the model has the layers 0 to %d", layers[i],
                             most - 1);
    return BY_OK;
}

/* Lists of config.json with an entry for each layer. */
static by_status cut_lists(cJSON *json, int of, const int *layers, int count)
{
    cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != of || of < 2)
            continue;
        cJSON *list = cJSON_CreateArray();
        for (int i = 0; list && i < count; i++)
            cJSON_AddItemToArray(list, cJSON_Duplicate(cJSON_GetArrayItem(item, layers[i]), true));
        if (!list || cJSON_GetArraySize(list) != count)
            return base_fail(BY_ERR_MEMORY, "out of memory");
        cJSON *old = item->child;
        item->child = list->child;
        list->child = old;
        cJSON_Delete(list);
    }
    return BY_OK;
}

static by_status copy_names(const by_model *from, by_model *to)
{
    if (!from->label_names)
        return BY_OK;
    return by_model_name_labels(to, (const char *const *)from->label_names, from->labels);
}

static by_status cut_into(by_model *to, const by_model *from, const int *layers, int count,
                          const by_model_spec *spec)
{
    const arch_family *a = from->arch;
    to->arch = a;
    to->task = from->task;
    to->promoted = from->promoted;
    to->labels = from->labels;
    to->problem = from->problem;
    to->eos = from->eos;
    to->pad = from->pad;
    to->start = from->start;
    to->config = base_alloc(a->config_size);
    to->json = from->json ? cJSON_Duplicate(from->json, true) : NULL;
    if (!to->config || (from->json && !to->json))
        return base_fail(BY_ERR_MEMORY, "out of memory");
    memcpy(to->config, from->config, a->config_size);
    BY_TRY(cut_lists(to->json, by_model_layers(from), layers, count));
    if (!arch_config_set(a, to->config, ARCH_ROLE_LAYERS, count))
        return base_fail(BY_ERR_UNSUPPORTED, "cannot select layers of %s", base_a(a->title).text);
    arch_config_set(a, to->config, ARCH_ROLE_DECODER_LAYERS, count);
    BY_TRY(a->check(to->config));
    BY_TRY(copy_names(from, to));
    BY_TRY(model_declare(to));
    BY_TRY(model_prepare(to, spec));
    BY_TRY(by_params_freeze(to->params, spec->training));
    return copy_values(from, to, layers, count);
}

by_model *by_model_cut(const by_model *m, const int *layers, int count, const by_model_spec *spec)
{
    if (!m || !layers || !spec) {
        base_fail_missing(!m ? "model" : !layers ? "list of layers" : "by_model_spec");
        return NULL;
    }
    base_error_clear();
    if (check_layers(m, layers, count) != BY_OK)
        return NULL;
    by_model *cut = model_blank(m->device, spec->dtype);
    if (cut && cut_into(cut, m, layers, count, spec) != BY_OK) {
        by_model_free(cut);
        return NULL;
    }
    return cut;
}

void by_layers_even(int of, int count, int *out)
{
    for (int i = 0; i < count; i++)
        out[i] = count > 1 ? (2 * i * (of - 1) + count - 1) / (2 * (count - 1)) : of - 1;
}
