/* rates.c - learning-rate factors of a model's parameters, and storage types of frozen ones. */
#include <math.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "model/model.h"

/* The layer in a parameter's name, 11 in "encoder.layer.11.output", or -1. */
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

/* What is frozen: all depths below a limit, with exceptions. */
typedef struct frozen {
    int depth;
    bool spares;
    const char *spared; /* comma-separated names; NULL: biases */
} frozen;

static bool is_bias(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strstr(dot ? dot : name, "bias") != NULL;
}

/* Whether these n characters are whole parts of the name, "query.bias" of "layer.0.query.bias". */
static bool has_parts(const char *name, const char *parts, size_t n)
{
    for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        if (strncmp(at, parts, n) == 0 && (!at[n] || at[n] == '.'))
            return true;
    return false;
}

/* Whether one of the names in a list is in this one. */
static bool is_listed(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (has_parts(name, list, n))
            return true;
    }
    return false;
}

static bool is_spared(const frozen *f, const char *name)
{
    return f->spares && (f->spared ? is_listed(f->spared, name) : is_bias(name));
}

static bool is_in_model(const by_model *m, const char *parts, size_t n)
{
    bool found = false;
    for (int i = 0; i < m->params->count && !found; i++)
        found = has_parts(m->params->list[i].name, parts, n);
    return found;
}

static by_status check_spared(const by_model *m, const frozen *f)
{
    bool any = false;
    for (int i = 0; i < m->params->count && !any; i++)
        any = is_spared(f, m->params->list[i].name);
    if (!any && !f->spared)
        return base_fail(BY_ERR_ARGUMENT, "no parameter of this %s is a bias", m->arch->title);
    for (const char *at = f->spared; at && *at;) {
        const size_t n = strcspn(at, ",");
        if (n == 0 || !is_in_model(m, at, n))
            return base_fail(BY_ERR_ARGUMENT, "no parameter of this %s has \"%.*s\" in its name",
                             m->arch->title, (int)n, at);
        at += n + (at[n] == ',');
    }
    return any ? BY_OK : base_fail(BY_ERR_ARGUMENT, "but: is empty");
}

/* Everything is frozen except the listed parameters and, for tasks with labels or spans, parameters above the
 * last layer, which may be new. */
static by_status freeze_rest(const by_model *m, const char *spared, frozen *f)
{
    *f = (frozen){.depth = by_model_layers(m) + 1 + !model_has_new_head(m->task), .spares = true};
    f->spared = spared;
    return check_spared(m, f);
}

static by_status find_frozen(const by_model *m, const char *freeze, frozen *f)
{
    const int layers = by_model_layers(m);
    *f = (frozen){0};
    if (!freeze)
        return BY_OK;
    if (strcmp(freeze, "weights") == 0)
        return freeze_rest(m, NULL, f);
    if (strncmp(freeze, "but:", 4) == 0)
        return freeze_rest(m, freeze + 4, f);
    char *end;
    long n = strtol(freeze, &end, 10);
    if (strcmp(freeze, "embeddings") == 0)
        n = 0;
    else if (strcmp(freeze, "body") == 0)
        n = layers;
    else if (end == freeze || *end || n < 0 || n > layers)
        return base_fail(BY_ERR_ARGUMENT,
                         "parameters to freeze are \"embeddings\", \"body\", \"weights\", \"but:NAMES\" or a "
                         "number of layers up to %d, not \"%s\"",
                         layers, freeze);
    f->depth = (int)n + 1;
    return BY_OK;
}

/* The learning rate of each layer is layer_decay times that of the layer above. */
static by_status set_rates(by_model *m, double layer_decay, const char *freeze)
{
    by_params *p = m->params;
    const double decay = layer_decay > 0 ? layer_decay : 1;
    const int top = by_model_layers(m) + 1;
    frozen f;
    BY_TRY(find_frozen(m, freeze, &f));
    for (int i = 0; i < p->count; i++) {
        const int depth = depth_of(m, i);
        const bool learns = depth >= f.depth || is_spared(&f, p->list[i].name);
        BY_TRY(by_params_set_rate(p, i, learns ? pow(decay, top - depth) : 0));
    }
    return BY_OK;
}

/* Frozen weights whose rows are whole blocks are stored as `type`. */
static by_status set_types(by_params *p, by_dtype type, bool training)
{
    if (by_dtype_block(type) < 2 && type != BY_BF16 && type != BY_F16)
        return base_fail(BY_ERR_ARGUMENT, "weights can be stored as q8_0, q4_0, bf16 or f16, not %s",
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
