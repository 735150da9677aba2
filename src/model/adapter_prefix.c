/* adapter_prefix.c - prefix tuning: trained keys and values before the text in every layer. They are one
 * parameter with a row for each position: keys and values of the first layer, of the second, and so on.
 *
 * Without a cache, they are put before the keys and values of the text. A cache has room for them before the
 * first token: the generator feeds that many placeholder tokens, and the prefix replaces their keys and
 * values. */
#include "model/adapter.h"

int model_adapter_prefix(const by_adapter *a)
{
    return a ? (int)a->config.prefix : 0;
}

/* Layers are declared in order. */
static by_status declare_layer(by_graph *g, by_adapter *a, int layer, int64_t width,
                               const by_attention_spec *spec)
{
    const int64_t shape[] = {a->config.prefix, 2 * width * by_model_layers(a->model)};
    if (layer != a->n_targets)
        return base_fail(BY_ERR_UNSUPPORTED, "adapter: layer %d of %s attends more than once", layer,
                         a->model->arch->title);
    model_target *more = base_resize(a->targets, (size_t)layer + 1, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    a->targets = more;
    const by_tensor *all =
        gr_param_leaf(g, a->params, MODEL_ADAPTER_PROMPT, 2, shape, (by_init){BY_INIT_NORMAL, 0.02f});
    more[a->n_targets++] = (model_target){
        .weight = -1, .bias = -1, .a = all->param, .b = -1, .magnitude = -1, .norms = -1, .width = width};
    a->heads = spec->kv_heads ? spec->kv_heads : spec->heads;
    return by_graph_status(g);
}

/* The keys (which = 0) or values (1) of a layer: (N, C). */
static by_tensor *rows_of(by_graph *g, const by_adapter *a, int layer, int which, int64_t width)
{
    const gr_param_info *info = &a->params->list[a->targets[layer].a];
    by_tensor *all = gr_param_leaf(g, a->params, info->name, info->rank, info->dim, info->init);
    return by_slice(g, all, 1, (2 * layer + which) * width, width);
}

by_tensor *model_prefix_before(by_graph *g, by_tensor *rows, by_tensor *x)
{
    const int64_t shape[] = {by_dim(x, 0), by_dim(rows, 0), by_dim(x, 2)};
    by_tensor *y = by_add(g, by_fill(g, by_type(x), 3, shape, 0), rows);
    return by_concat(g, (by_tensor *[]){y, x}, 2, 1);
}

/* The cache position of every new token: (B, T), in f32. */
static by_tensor *places_of(by_graph *g, by_tensor *past, int64_t positions)
{
    by_tensor *first = by_reshape(g, by_cast(g, past, BY_F32), 2, (int64_t[]){-1, 1});
    return by_add(g, first, by_cast(g, by_range_from(g, 2, (int64_t[]){1, positions}, 0), BY_F32));
}

by_tensor *model_prefix_over(by_graph *g, by_tensor *rows, by_tensor *past, by_tensor *x)
{
    by_tensor *places = places_of(g, past, by_dim(x, 1));
    const double last = (double)by_dim(rows, 0) - 1;
    const int64_t shape[] = {by_dim(x, 0), by_dim(x, 1), 1};
    by_tensor *after = by_clamp(g, by_sub(g, places, by_fill(g, BY_F32, 0, NULL, last)), 0, 1);
    by_tensor *own = gr_gather_plain(g, rows, by_cast(g, by_clamp(g, places, 0, last), BY_I32), -1);
    return by_where(g, by_reshape(g, by_cast(g, after, BY_I32), 3, shape), x, own);
}

bool model_prefix_fits(by_graph *g, const by_adapter *a, const by_attention_spec *s)
{
    const bool plain =
        s->mask == BY_MASK_CAUSAL && s->pattern.kind == BY_PATTERN_FULL && !s->bias && !s->relative;
    if (!plain)
        by_graph_fail(g, "adapter: the attention of %s takes no prefix", a->model->arch->title);
    else if (s->pair_mask)
        by_graph_fail(g, "adapter: rows of several documents take no prefix: do not pack them");
    return !gr_is_bad(g);
}

static void extend(void *user, by_graph *g, int layer, by_tensor *past, const by_attention_spec *spec,
                   by_tensor **k, by_tensor **v)
{
    by_adapter *a = user;
    const int64_t width = by_dim(*k, 2);
    if (!model_prefix_fits(g, a, spec))
        return;
    if (a->declaring && declare_layer(g, a, layer, width, spec) != BY_OK) {
        gr_poison(g);
        return;
    }
    by_tensor **both[] = {k, v};
    for (int i = 0; i < 2; i++) {
        by_tensor *rows = rows_of(g, a, layer, i, width);
        *both[i] = past ? model_prefix_over(g, rows, past, *both[i]) : model_prefix_before(g, rows, *both[i]);
    }
}

gr_hook model_prefix_hook(by_adapter *a)
{
    return (gr_hook){.extend = extend, .user = a};
}
