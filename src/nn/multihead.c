/* multihead.c - attention with its projections, and the keys and values that decoding keeps (see nn.h). */
#include "graph/graph.h"
#include "nn/nn.h"

/* ---- the cache ------------------------------------------------------------------------------- */

nn_cache *nn_cache_new(by_device *d, int64_t capacity)
{
    nn_cache *c = base_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->device = d;
    c->capacity = capacity;
    return c;
}

static void free_pairs(nn_pairs *p)
{
    for (int i = 0; i < p->layers; i++) {
        by_memory_free(p->keys[i]);
        by_memory_free(p->values[i]);
    }
    base_free(p->keys);
    base_free(p->values);
}

void nn_cache_free(nn_cache *c)
{
    if (!c)
        return;
    free_pairs(&c->own);
    free_pairs(&c->cross);
    base_free(c);
}

static size_t pairs_bytes(const nn_pairs *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->layers; i++)
        bytes += by_memory_bytes(p->keys[i]) + by_memory_bytes(p->values[i]);
    return bytes;
}

size_t nn_cache_bytes(const nn_cache *c)
{
    return pairs_bytes(&c->own) + pairs_bytes(&c->cross);
}

/* Make sure that layer `i` has its pair of memories of `bytes` each. */
static bool pair_of(by_device *d, nn_pairs *p, int i, size_t bytes)
{
    if (i >= p->layers) {
        by_memory **keys = base_resize(p->keys, (size_t)i + 1, sizeof *keys);
        if (!keys)
            return false;
        p->keys = keys;
        by_memory **values = base_resize(p->values, (size_t)i + 1, sizeof *values);
        if (!values)
            return false;
        p->values = values;
        for (; p->layers <= i; p->layers++)
            p->keys[p->layers] = p->values[p->layers] = NULL;
    }
    if (!p->keys[i])
        p->keys[i] = by_memory_new(d, bytes);
    if (!p->values[i])
        p->values[i] = by_memory_new(d, bytes);
    return p->keys[i] && p->values[i];
}

/* The states of layer i: (rows, length, width), in memories with room for `room` positions in all. */
static bool states_of(by_graph *g, by_device *d, nn_pairs *p, int i, const int64_t *shape, int64_t room,
                      by_dtype type, by_tensor **keys, by_tensor **values)
{
    if (by_graph_status(g) != BY_OK)
        return false;
    if (!pair_of(d, p, i, (size_t)(room * shape[2]) * by_dtype_size(type))) {
        base_fail_context("the key-value cache");
        gr_poison(g);
        return false;
    }
    *keys = by_state(g, "k_cache", type, 3, shape, p->keys[i]);
    *values = by_state(g, "v_cache", type, 3, shape, p->values[i]);
    return true;
}

/* Attention of q, k and v, or of q, k and v in one when k and v are NULL; over the cache unless that is NULL.
 */
static by_tensor *attend(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, nn_cache *cache, int layer,
                         const by_attention_spec *spec)
{
    by_tensor *keys, *values;
    if (!cache)
        return by_attention(g, q, k, v, spec);
    const int64_t rows = by_dim(q, 0), width = k ? by_dim(k, -1) : by_dim(q, -1) / 3;
    const int64_t shape[3] = {rows, cache->capacity, width},
                  room = BY_MAX(rows, cache->rows) * cache->capacity;
    if (!states_of(g, cache->device, &cache->own, layer, shape, room, by_type(q), &keys, &values))
        return gr_poison(g);
    if (cache->from)
        by_reorder(g, keys, values, cache->from, cache->past, cache->beams);
    return by_attention_cached(g, q, k, v, keys, values, cache->past, spec);
}

/* ---- one projection for all ------------------------------------------------------------------ */

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

/* ---- one projection for each ----------------------------------------------------------------- */

static int64_t inner_of(const nn_attend_spec *s, const by_tensor *x)
{
    return s->inner ? s->inner : by_dim(x, -1);
}

static by_tensor *project(by_graph *g, const nn_attend_spec *s, const char *name, by_tensor *x, float std)
{
    return nn_linear(
        g, name, x,
        &(nn_linear_spec){.out = inner_of(s, x), .no_bias = s->no_bias, .std = std ? std : s->std});
}

/* States (N, S, inner) of what the encoder made of N sources. */
static bool cross_states(by_graph *g, const nn_attend_spec *s, int64_t sources, int64_t inner, by_dtype type,
                         by_tensor **keys, by_tensor **values)
{
    nn_cache *c = s->cache;
    const int64_t shape[3] = {sources, c->source_length, inner};
    const int64_t room = BY_MAX(sources, c->rows / BY_MAX(c->beams, 1)) * c->source_room;
    return states_of(g, c->device, &c->cross, s->layer, shape, room, type, keys, values);
}

void nn_attend_keep(by_graph *g, by_tensor *memory, const nn_attend_spec *s)
{
    by_tensor *keys, *values;
    by_tensor *k = project(g, s, s->key, memory, 0), *v = project(g, s, s->value, memory, 0);
    if (!cross_states(g, s, by_dim(k, 0), by_dim(k, -1), by_type(k), &keys, &values))
        return;
    by_store(g, k, keys);
    by_store(g, v, values);
}

/* The rows of one source, several when its text is searched for in several ways, look at its keys together.
 */
static by_tensor *attend_kept(by_graph *g, by_tensor *q, const nn_attend_spec *s,
                              const by_attention_spec *spec)
{
    by_tensor *keys, *values, *from = s->cache->source_from;
    const int64_t rows = by_dim(q, 0), t = by_dim(q, 1), inner = by_dim(q, 2);
    const int64_t beams = BY_MAX(s->cache->beams, 1), sources = rows / beams;
    if (!cross_states(g, s, sources, inner, by_type(q), &keys, &values))
        return gr_poison(g);
    if (from) {
        by_tensor *lengths = by_fill(g, BY_I32, 1, &sources, (double)s->cache->source_length);
        by_reorder(g, keys, values, from, lengths, 1);
    }
    q = by_reshape(g, q, 3, (int64_t[]){sources, beams * t, inner});
    return by_reshape(g, by_attention(g, q, keys, values, spec), 3, (int64_t[]){rows, t, inner});
}

by_tensor *nn_attend(by_graph *g, by_tensor *x, by_tensor *from, const nn_attend_spec *s)
{
    const by_attention_spec spec = {.heads = s->heads,
                                    .mask = s->mask,
                                    .scale = s->scale,
                                    .dropout = s->dropout,
                                    .key_mask = from ? s->key_mask : s->cache->source_mask,
                                    .bias = s->bias,
                                    .by_distance = s->bias != NULL,
                                    .bias_zero = s->bias_zero,
                                    .weights = s->weights};
    by_tensor *y, *q = project(g, s, s->query, x, s->query_std);
    if (from) {
        by_tensor *k = project(g, s, s->key, from, 0), *v = project(g, s, s->value, from, 0);
        y = attend(g, q, k, v, s->cache, s->layer, &spec);
    } else {
        y = attend_kept(g, q, s, &spec);
    }
    return nn_linear(g, s->out, y,
                     &(nn_linear_spec){.out = by_dim(x, -1),
                                       .no_bias = s->no_bias,
                                       .std = s->out_std ? s->out_std : s->std});
}
