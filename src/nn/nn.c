/* nn.c - embeddings, projections, norms, attention and feed-forward blocks (see nn.h). */
#include "nn/nn.h"

#include "graph/graph.h"

by_tensor *nn_embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width, float std)
{
    by_scope_push(g, "%s", name);
    by_tensor *table = by_param(g, "weight", 2, (int64_t[]){rows, width}, (by_init){BY_INIT_NORMAL, std});
    by_tensor *y = by_gather(g, table, ids);
    by_scope_pop(g);
    return y;
}

by_tensor *nn_linear(by_graph *g, const char *name, by_tensor *x, const nn_linear_spec *s)
{
    int64_t in = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "weight", 2, s->conv1d ? (int64_t[]){in, s->out} : (int64_t[]){s->out, in},
                            (by_init){BY_INIT_NORMAL, s->std});
    by_tensor *b = s->no_bias ? NULL : by_param(g, "bias", 1, &s->out, (by_init){BY_INIT_ZERO, 0});
    by_tensor *y = by_linear(g, x, w, b, &(by_linear_spec){.w_is_kn = s->conv1d, .act = s->act});
    by_scope_pop(g);
    return y;
}

by_tensor *nn_layernorm(by_graph *g, const char *name, by_tensor *x, float eps)
{
    int64_t c = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *gamma = by_param(g, "weight", 1, &c, (by_init){BY_INIT_ONE, 0});
    by_tensor *beta = by_param(g, "bias", 1, &c, (by_init){BY_INIT_ZERO, 0});
    by_tensor *y = by_layernorm(g, x, gamma, beta, eps);
    by_scope_pop(g);
    return y;
}

by_tensor *nn_pick(by_graph *g, by_tensor *x, by_tensor *rows)
{
    by_tensor *flat = by_reshape(g, x, 2, (int64_t[]){-1, by_dim(x, -1)});
    return by_gather(g, flat, rows);
}

by_tensor *nn_mlp(by_graph *g, const char *name, by_tensor *x, const nn_mlp_spec *s)
{
    int64_t c = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *h = nn_linear(
        g, s->in, x, &(nn_linear_spec){.out = s->inner, .conv1d = s->conv1d, .act = s->act, .std = s->std});
    h = nn_linear(g, s->out, h, &(nn_linear_spec){.out = c, .conv1d = s->conv1d, .std = s->out_std});
    by_scope_pop(g);
    return h;
}

/* ---- attention ------------------------------------------------------------------------------- */

nn_cache *nn_cache_new(by_device *d, int64_t capacity)
{
    nn_cache *c = by_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->device = d;
    c->capacity = capacity;
    return c;
}

void nn_cache_free(nn_cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->layers; i++) {
        by_memory_free(c->keys[i]);
        by_memory_free(c->values[i]);
    }
    by_free(c->keys);
    by_free(c->values);
    by_free(c);
}

size_t nn_cache_bytes(const nn_cache *c)
{
    size_t bytes = 0;
    for (int i = 0; i < c->layers; i++)
        bytes += by_memory_bytes(c->keys[i]) + by_memory_bytes(c->values[i]);
    return bytes;
}

/* Make sure that layer `i` has its pair of memories of `bytes` each. */
static bool cache_layer(nn_cache *c, int i, size_t bytes)
{
    if (i >= c->layers) {
        by_memory **keys = by_resize(c->keys, (size_t)i + 1, sizeof *keys);
        if (!keys)
            return false;
        c->keys = keys;
        by_memory **values = by_resize(c->values, (size_t)i + 1, sizeof *values);
        if (!values)
            return false;
        c->values = values;
        for (; c->layers <= i; c->layers++)
            c->keys[c->layers] = c->values[c->layers] = NULL;
    }
    if (!c->keys[i])
        c->keys[i] = by_memory_new(c->device, bytes);
    if (!c->values[i])
        c->values[i] = by_memory_new(c->device, bytes);
    return c->keys[i] && c->values[i];
}

static by_tensor *attend_cached(by_graph *g, by_tensor *qkv, const nn_attention_spec *s,
                                const by_attention_spec *spec)
{
    int64_t b = by_dim(qkv, 0), c = by_dim(qkv, -1) / 3;
    int64_t shape[3] = {b, s->cache->capacity, c};
    size_t bytes = (size_t)(b * s->cache->capacity * c) * by_dtype_size(by_type(qkv));
    if (by_graph_status(g) != BY_OK)
        return qkv;
    if (!cache_layer(s->cache, s->layer, bytes)) {
        by_fail_context("the key-value cache");
        return by_graph_poison(g);
    }
    by_tensor *k = by_state(g, "k_cache", by_type(qkv), 3, shape, s->cache->keys[s->layer]);
    by_tensor *v = by_state(g, "v_cache", by_type(qkv), 3, shape, s->cache->values[s->layer]);
    return by_attention_cached(g, qkv, NULL, NULL, k, v, s->cache->past, spec);
}

by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, const nn_attention_spec *s)
{
    int64_t c = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *qkv = /* (B, T, 3C) */
        nn_linear(g, s->qkv, x, &(nn_linear_spec){.out = 3 * c, .conv1d = s->conv1d, .std = s->std});
    by_attention_spec spec = {.heads = s->heads,
                              .mask = s->mask,
                              .scale = s->scale,
                              .dropout = s->dropout,
                              .key_mask = s->key_mask,
                              .weights = s->weights};
    by_tensor *y =
        s->cache ? attend_cached(g, qkv, s, &spec) : by_attention(g, qkv, NULL, NULL, &spec); /* (B, T, C) */
    y = nn_linear(g, s->out, y, &(nn_linear_spec){.out = c, .conv1d = s->conv1d, .std = s->out_std});
    by_scope_pop(g);
    return y;
}
