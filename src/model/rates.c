/* rates.c - which parameters of a model learn, how fast, and how those that do not are stored. */
#include <math.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "model/model.h"

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

/* 0: before the first layer; i + 1: layer i; layers + 1: after the last. */
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
static by_status frozen_depth(const by_model *m, const char *freeze, int *out)
{
    const int layers = by_model_layers(m);
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
        return base_fail(
            BY_ERR_ARGUMENT,
            "what is to be frozen is \"embeddings\", \"body\" or a number of layers up to %d, not "
            "\"%s\"",
            layers, freeze);
    *out = (int)n + 1;
    return BY_OK;
}

/* Each layer learns at layer_decay times the rate of the one above it. */
static by_status set_rates(by_model *m, double layer_decay, const char *freeze)
{
    by_params *p = m->params;
    const double decay = layer_decay > 0 ? layer_decay : 1;
    const int top = by_model_layers(m) + 1;
    int frozen;
    BY_TRY(frozen_depth(m, freeze, &frozen));
    for (int i = 0; i < p->count; i++) {
        const int depth = depth_of(m, i);
        BY_TRY(by_params_set_rate(p, i, depth < frozen ? 0 : pow(decay, top - depth)));
    }
    return BY_OK;
}

/* Weights that are not trained, and whose rows are whole blocks, are stored as `type`. */
static by_status set_types(by_params *p, by_dtype type, bool training)
{
    if (by_dtype_block(type) < 2 && type != BY_BF16 && type != BY_F16)
        return base_fail(BY_ERR_ARGUMENT, "weights are stored as q8_0, q4_0, bf16 or f16, not %s",
                         by_dtype_name(type));
    if (by_dtype_block(type) < 2 && by_dtype_size(p->type) == 2)
        return base_fail(BY_ERR_UNSUPPORTED, "weights of %s need f32 activations, not %s",
                         by_dtype_name(type), by_dtype_name(p->type));
    for (int i = 0; i < p->count; i++) {
        const gr_param_info *info = &p->list[i];
        const int64_t cols = info->rank ? info->dim[info->rank - 1] : 1;
        if (info->weight && !(training && info->trainable) && cols % (int64_t)by_dtype_block(type) == 0)
            BY_TRY(by_params_set_type(p, i, type));
    }
    return BY_OK;
}

by_status model_prepare(by_model *m, const by_model_spec *spec)
{
    if (spec->training)
        BY_TRY(set_rates(m, spec->layer_decay, spec->freeze));
    if (spec->training && spec->stochastic_rounding)
        BY_TRY(by_params_without_masters(m->params));
    return spec->weights ? set_types(m->params, spec->weights, spec->training) : BY_OK;
}
