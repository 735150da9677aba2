/* nn.c - embeddings, projections, norms, attention and feed-forward blocks (see nn.h). */
#include "nn/nn.h"

#include "graph/graph.h"

/* ids NULL: the first row (C) alone. padding -1: none. */
static by_tensor *embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                            by_init init, int padding)
{
    by_scope_push(g, "%s", name);
    by_tensor *table = by_param(g, "weight", 2, (int64_t[]){rows, width}, init);
    by_tensor *y = ids ? by_gather_padded(g, table, ids, padding)
                       : by_reshape(g, by_slice(g, table, 0, 0, 1), 1, (int64_t[]){width});
    by_scope_pop(g);
    return y;
}

by_tensor *nn_embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width, float std)
{
    return embedding(g, name, ids, rows, width, (by_init){BY_INIT_NORMAL, std}, -1);
}

by_tensor *nn_embedding_padded(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                               float std, int padding)
{
    return embedding(g, name, ids, rows, width, (by_init){BY_INIT_NORMAL, std}, padding);
}

by_tensor *nn_positions(by_graph *g, const char *name, by_tensor *positions, int64_t rows, int64_t width,
                        float std, bool sines)
{
    by_init init = sines ? (by_init){BY_INIT_SINES, 0} : (by_init){BY_INIT_NORMAL, std};
    return embedding(g, name, positions, rows, width, init, -1);
}

by_tensor *nn_segments(by_graph *g, const char *name, by_tensor *segments, int64_t rows, int64_t width,
                       float std)
{
    return embedding(g, name, segments, rows, width, (by_init){BY_INIT_NORMAL, std}, -1);
}

by_tensor *nn_hide(by_graph *g, by_tensor *x, by_tensor *mask)
{
    int64_t b = by_dim(x, 0), t = by_dim(x, 1), c = by_dim(x, 2);
    by_tensor *seen = by_reshape(g, by_cast(g, mask, by_type(x)), 2, (int64_t[]){b * t, 1});
    by_tensor *ones = by_fill(g, by_type(x), 2, (int64_t[]){1, c}, 1);
    return by_mul(g, x, by_reshape(g, by_matmul(g, seen, ones, false, false), 3, (int64_t[]){b, t, c}));
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

by_tensor *nn_first(by_graph *g, by_tensor *x)
{
    by_tensor *first = by_slice(g, x, 1, 0, 1);
    return by_reshape(g, first, 2, (int64_t[]){by_dim(x, 0), by_dim(x, -1)});
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

/* Attention of q, k and v, or of q, k and v in one when k and v are NULL; over the cache unless that is NULL.
 */
static by_tensor *attend(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, nn_cache *cache, int layer,
                         const by_attention_spec *spec)
{
    if (!cache || by_graph_status(g) != BY_OK)
        return by_attention(g, q, k, v, spec);
    int64_t b = by_dim(q, 0), c = k ? by_dim(k, -1) : by_dim(q, -1) / 3;
    int64_t shape[3] = {b, cache->capacity, c};
    size_t bytes = (size_t)(BY_MAX(b, cache->rows) * cache->capacity * c) * by_dtype_size(by_type(q));
    if (!cache_layer(cache, layer, bytes)) {
        by_fail_context("the key-value cache");
        return by_graph_poison(g);
    }
    by_tensor *keys = by_state(g, "k_cache", by_type(q), 3, shape, cache->keys[layer]);
    by_tensor *values = by_state(g, "v_cache", by_type(q), 3, shape, cache->values[layer]);
    if (cache->from)
        by_reorder(g, keys, values, cache->from, cache->past, cache->beams);
    return by_attention_cached(g, q, k, v, keys, values, cache->past, spec);
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
    by_tensor *y = attend(g, qkv, NULL, NULL, s->cache, s->layer, &spec); /* (B, T, C) */
    y = nn_linear(g, s->out, y, &(nn_linear_spec){.out = c, .conv1d = s->conv1d, .std = s->out_std});
    by_scope_pop(g);
    return y;
}

/* ---- blocks of encoders ---------------------------------------------------------------------- */

by_tensor *nn_encoder_block(by_graph *g, by_tensor *x, const nn_encoder_spec *s) /* (B, T, C) -> (B, T, C) */
{
    const nn_linear_spec square = {.out = by_dim(x, -1), .std = s->std};
    by_tensor *q = nn_linear(g, s->query, x, &square);
    by_tensor *k = nn_linear(g, s->key, x, &square);
    by_tensor *v = nn_linear(g, s->value, x, &square);
    by_tensor *h = attend(g, q, k, v, s->cache, s->layer,
                          &(by_attention_spec){.heads = s->heads,
                                               .mask = s->mask,
                                               .dropout = s->weights_drop,
                                               .key_mask = s->key_mask,
                                               .weights = s->weights});
    h = nn_linear(g, s->out, h, &square);
    x = nn_layernorm(g, s->norm1, by_add(g, x, by_dropout(g, h, s->drop1)), s->eps);
    h = nn_linear(g, s->wide, x, &(nn_linear_spec){.out = s->inner, .act = s->act, .std = s->std});
    h = nn_linear(g, s->narrow, h, &square);
    return nn_layernorm(g, s->norm2, by_add(g, x, by_dropout(g, h, s->drop2)), s->eps);
}
