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
    const int kv = spec->kv_heads ? spec->kv_heads : spec->heads, all = spec->heads + 2 * kv;
    const int64_t rows = by_dim(q, 0), width = k ? by_dim(k, -1) : all > 0 ? by_dim(q, -1) / all * kv : 0;
    const int64_t shape[3] = {rows, cache->capacity, width},
                  room = BY_MAX(rows, cache->rows) * cache->capacity;
    if (!states_of(g, cache->device, &cache->own, layer, shape, room, by_type(q), &keys, &values))
        return gr_poison(g);
    if (cache->from)
        by_reorder(g, keys, values, cache->from, cache->past, cache->beams);
    return by_attention_cached(g, q, k, v, keys, values, cache->past, spec);
}

/* ---- projections ----------------------------------------------------------------------------- */

static int64_t inner_of(const nn_attention_spec *s, const by_tensor *x)
{
    return s->inner ? s->inner : by_dim(x, -1);
}

/* Width of all keys, and of all values. */
static int64_t key_width(const nn_attention_spec *s, const by_tensor *x)
{
    const int kv = s->op.kv_heads ? s->op.kv_heads : s->op.heads;
    return s->op.heads > 0 ? inner_of(s, x) / s->op.heads * kv : 0;
}

static by_tensor *project(by_graph *g, const nn_attention_spec *s, const char *name, by_tensor *x,
                          int64_t width, float std)
{
    return nn_linear(
        g, name, x,
        &(nn_linear_spec){
            .out = width, .conv1d = s->conv1d, .no_bias = s->no_bias, .std = std ? std : s->std});
}

/* ---- keys and values of an encoder's output -------------------------------------------------- */

/* States (N, S, width) with the keys and values of N sources. */
static bool cross_states(by_graph *g, const nn_attention_spec *s, int64_t sources, int64_t width,
                         by_dtype type, by_tensor **keys, by_tensor **values)
{
    nn_cache *c = s->cache;
    const int64_t shape[3] = {sources, c->source_length, width};
    const int64_t room = BY_MAX(sources, c->rows / BY_MAX(c->beams, 1)) * c->source_room;
    return states_of(g, c->device, &c->cross, s->layer, shape, room, type, keys, values);
}

void nn_attention_keep(by_graph *g, const char *name, by_tensor *memory, const nn_attention_spec *s)
{
    const int64_t width = key_width(s, memory);
    by_tensor *keys, *values;
    by_scope_push(g, "%s", name);
    by_tensor *k = project(g, s, s->key, memory, width, 0), *v = project(g, s, s->value, memory, width, 0);
    if (cross_states(g, s, by_dim(k, 0), width, by_type(k), &keys, &values)) {
        by_store(g, k, keys);
        by_store(g, v, values);
    }
    by_scope_pop(g);
}

/* The rows of one source, several in beam search, share its keys. */
static by_tensor *attend_kept(by_graph *g, by_tensor *q, int64_t width, const nn_attention_spec *s)
{
    by_tensor *keys, *values, *from = s->cache->source_from;
    const int64_t rows = by_dim(q, 0), t = by_dim(q, 1), inner = by_dim(q, 2);
    const int64_t beams = BY_MAX(s->cache->beams, 1), sources = rows / beams;
    by_attention_spec op = s->op;
    op.key_mask = s->cache->source_mask;
    if (!cross_states(g, s, sources, width, by_type(q), &keys, &values))
        return gr_poison(g);
    if (from) {
        by_tensor *lengths = by_fill(g, BY_I32, 1, &sources, (double)s->cache->source_length);
        by_reorder(g, keys, values, from, lengths, 1);
    }
    q = by_reshape(g, q, 3, (int64_t[]){sources, beams * t, inner});
    return by_reshape(g, by_attention(g, q, keys, values, &op), 3, (int64_t[]){rows, t, inner});
}

/* ---- attention ------------------------------------------------------------------------------- */

by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, by_tensor *from,
                        const nn_attention_spec *s)
{
    const int64_t inner = inner_of(s, x), width = key_width(s, x);
    by_tensor *k = NULL, *v = NULL;
    if (name)
        by_scope_push(g, "%s", name);
    by_tensor *q = s->qkv ? project(g, s, s->qkv, x, inner + 2 * width, 0)
                          : project(g, s, s->query, x, inner, s->query_std); /* (B, T, H*D) */
    if (from && !s->qkv) {
        k = project(g, s, s->key, from, width, 0); /* (B, S, Hkv*D) */
        v = project(g, s, s->value, from, width, 0);
    }
    if (s->rope && from) {
        const int dim = s->op.heads > 0 ? (int)(inner / s->op.heads) : 0;
        if (s->qkv) { /* take the packed projection apart */
            by_tensor *all = q;
            q = by_slice(g, all, 2, 0, inner);
            k = by_slice(g, all, 2, inner, width);
            v = by_slice(g, all, 2, inner + width, width);
        }
        q = nn_rotary(g, q, s->positions, dim, s->rope);
        k = nn_rotary(g, k, s->positions, dim, s->rope);
    }
    by_tensor *y = from ? attend(g, q, k, v, s->cache, s->layer, &s->op) : attend_kept(g, q, width, s);
    y = nn_linear(g, s->out, y,
                  &(nn_linear_spec){.out = by_dim(x, -1),
                                    .conv1d = s->conv1d,
                                    .no_bias = s->no_out_bias,
                                    .std = s->out_std ? s->out_std : s->std});
    if (name)
        by_scope_pop(g);
    return y;
}
