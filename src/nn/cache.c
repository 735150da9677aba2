/* cache.c - the key-value store, and attention over views of it (see cache.h). */
#include "nn/cache.h"

#include <string.h>

#include "graph/graph.h"

struct nn_named {
    char *name;
    by_memory *memory;
    nn_named *next;
};

/* ---- the store ------------------------------------------------------------------------------- */

nn_store *nn_store_new(by_device *d, int64_t pages, int64_t page)
{
    nn_store *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (nn_store){.device = d, .pages = pages, .page = page};
    s->free = base_alloc_zero((size_t)pages, sizeof *s->free);
    if (!s->free) {
        nn_store_free(s);
        return NULL;
    }
    while (s->n_free < pages) {
        s->free[s->n_free] = (int32_t)(pages - 1 - s->n_free);
        s->n_free++;
    }
    return s;
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

static void free_named(nn_named *n)
{
    for (nn_named *next; n; n = next) {
        next = n->next;
        by_memory_free(n->memory);
        base_free(n->name);
        base_free(n);
    }
}

void nn_store_free(nn_store *s)
{
    if (!s)
        return;
    free_pairs(&s->own);
    free_pairs(&s->cross);
    free_named(s->named);
    base_free(s->free);
    base_free(s);
}

static size_t pairs_bytes(const nn_pairs *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->layers; i++)
        bytes += by_memory_bytes(p->keys[i]) + by_memory_bytes(p->values[i]);
    return bytes;
}

size_t nn_store_bytes(const nn_store *s)
{
    size_t bytes = pairs_bytes(&s->own) + pairs_bytes(&s->cross);
    for (const nn_named *n = s->named; n; n = n->next)
        bytes += by_memory_bytes(n->memory);
    return bytes;
}

int32_t nn_page_take(nn_store *s)
{
    return s->n_free ? s->free[--s->n_free] : -1;
}

void nn_page_give(nn_store *s, int32_t page)
{
    s->free[s->n_free++] = page;
}

/* Allocates the pair of memories of `bytes` each for layer `i`, unless present. */
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

/* The states of layer i with this shape, in memories with a capacity of `room` positions. */
static bool states_of(by_graph *g, by_device *d, nn_pairs *p, int i, const int64_t *shape, int64_t room,
                      by_dtype type, by_tensor *state[2])
{
    if (by_graph_status(g) != BY_OK)
        return false;
    if (!pair_of(d, p, i, (size_t)(room * shape[2]) * by_dtype_size(type))) {
        base_fail_context("the key-value cache");
        gr_poison(g);
        return false;
    }
    state[0] = by_state(g, "k_cache", type, 3, shape, p->keys[i]);
    state[1] = by_state(g, "v_cache", type, 3, shape, p->values[i]);
    return true;
}

void nn_store_move(by_graph *g, const nn_store *s, by_tensor *from, by_tensor *past, int beams)
{
    for (int i = 0; i < s->own.layers; i++) {
        if (!s->own.keys[i])
            continue;
        const int64_t bytes = (int64_t)by_memory_bytes(s->own.keys[i]) / (s->pages * s->page);
        const by_dtype type = bytes % 4 ? BY_BF16 : BY_F32; /* of the same size: a view */
        const int64_t shape[3] = {s->pages, s->page, bytes / (int64_t)by_dtype_size(type)};
        by_tensor *k = by_state(g, "k_cache", type, 3, shape, s->own.keys[i]);
        by_reorder(g, k, by_state(g, "v_cache", type, 3, shape, s->own.values[i]), from, past, NULL, beams);
    }
}

/* ---- memory by name -------------------------------------------------------------------------- */

static nn_named *add_named(nn_store *s, const char *name, size_t bytes)
{
    nn_named *n = base_alloc_zero(1, sizeof *n);
    if (!n)
        return NULL;
    n->name = base_strdup(name);
    n->memory = by_memory_new(s->device, bytes);
    if (!n->name || !n->memory) {
        free_named(n);
        return NULL;
    }
    n->next = s->named;
    return s->named = n;
}

by_tensor *nn_cache_state(by_graph *g, const by_cache *c, const char *name, by_dtype type, int rank,
                          const int64_t *shape, int64_t room)
{
    nn_named *n = c->store->named;
    int64_t elements = 1;
    if (by_graph_status(g) != BY_OK)
        return NULL;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    if (!n && !(n = add_named(c->store, name, (size_t)room * by_dtype_size(type))))
        return by_graph_fail(g, "%s: no memory for the states of %lld sequences", name,
                             (long long)c->store->rows);
    for (int i = 0; i < rank; i++)
        elements *= shape[i];
    if ((size_t)elements * by_dtype_size(type) > by_memory_bytes(n->memory))
        return by_graph_fail(g, "%s: the state was created for fewer elements", name);
    return by_state(g, n->name, type, rank, shape, n->memory);
}

static by_tensor *source_state(by_graph *g, const by_cache *c, const char *name, by_dtype type, int64_t width,
                               bool lengthy)
{
    const nn_store *s = c->store;
    const int64_t many[3] = {s->sources, c->source_length, width}, one[2] = {s->sources, width};
    return nn_cache_state(g, c, name, type, lengthy ? 3 : 2, lengthy ? many : one,
                          s->sources * width * (lengthy ? s->source_room : 1));
}

void nn_cache_put(by_graph *g, const by_cache *c, const char *name, by_tensor *x, bool lengthy)
{
    by_store(g, x, source_state(g, c, name, by_type(x), by_dim(x, -1), lengthy));
}

by_tensor *nn_cache_get(by_graph *g, const by_cache *c, const char *name, by_dtype type, int64_t width,
                        bool lengthy)
{
    by_tensor *all = source_state(g, c, name, type, width, lengthy);
    if (!c->sources)
        return all;
    const int64_t groups = by_dim(c->sources, 0), length = c->source_length;
    if (!lengthy)
        return by_gather(g, all, c->sources);
    by_tensor *flat = by_reshape(g, all, 2, (int64_t[]){-1, length * width});
    return by_reshape(g, by_gather(g, flat, c->sources), 3, (int64_t[]){groups, length, width});
}

/* ---- views ----------------------------------------------------------------------------------- */

int64_t nn_cache_room(const by_cache *c)
{
    return c->store->page * (c->pages ? by_dim(c->pages, 1) : 1);
}

/* Extends a key mask to prepended keys. */
static by_tensor *longer_mask(by_graph *g, by_tensor *mask, int64_t more)
{
    if (!mask || more == 0)
        return mask;
    by_tensor *ones = by_fill(g, BY_I32, 2, (int64_t[]){by_dim(mask, 0), more}, 1);
    return by_concat(g, (by_tensor *[]){ones, mask}, 2, 1);
}

static void unpack(by_graph *g, by_tensor **q, by_tensor **k, by_tensor **v, const by_attention_spec *spec)
{
    const int64_t kv = spec->kv_heads ? spec->kv_heads : spec->heads, all = spec->heads + 2 * kv;
    const int64_t size = all > 0 ? by_dim(*q, 2) / all : 0, inner = spec->heads * size;
    by_tensor *packed = *q;
    *q = by_slice(g, packed, 2, 0, inner);
    *k = by_slice(g, packed, 2, inner, kv * size);
    *v = by_slice(g, packed, 2, inner + kv * size, kv * size);
}

static by_tensor *attend(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, const by_cache *cache,
                         int layer, const by_attention_spec *spec)
{
    if (!cache)
        return by_attention(g, q, k, v, spec);
    nn_store *s = cache->store;
    const int64_t kv = spec->kv_heads ? spec->kv_heads : spec->heads;
    const int64_t all = spec->heads + 2 * kv;
    const int64_t width = k ? by_dim(k, -1) : all > 0 ? by_dim(q, -1) / all * kv : 0;
    const int64_t shape[3] = {s->pages, s->page, width};
    by_attention_spec over = *spec;
    by_tensor *state[2];
    if (!states_of(g, s->device, &s->own, layer, shape, s->pages * s->page, by_type(q), state))
        return gr_poison(g);
    if (cache->from)
        by_reorder(g, state[0], state[1], cache->from, cache->past, cache->pages, cache->beams);
    over.pages = cache->pages;
    return by_attention_cached(g, q, k, v, state[0], state[1], cache->past, &over);
}

/* Attention to the keys and values that the hook of the graph returns. Returned weights are only those of the
 * text's own keys. */
static by_tensor *attend_extended(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                  const by_cache *cache, int layer, const by_attention_spec *spec)
{
    by_attention_spec over = *spec;
    if (!k)
        unpack(g, &q, &k, &v, spec);
    const int64_t own = by_dim(k, 1);
    if (!gr_is_bad(g))
        g->hook->extend(g->hook->user, g, layer, cache ? cache->past : NULL, spec, &k, &v);
    const int64_t more = by_dim(k, 1) - own;
    over.key_mask = longer_mask(g, spec->key_mask, more);
    by_tensor *y = attend(g, q, k, v, cache, layer, &over);
    if (spec->weights && more > 0 && !gr_is_bad(g))
        *spec->weights = by_slice(g, *spec->weights, 3, more, own);
    return y;
}

by_tensor *nn_attend_over(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, const by_cache *cache,
                          int layer, const by_attention_spec *spec)
{
    const bool extended = !gr_is_bad(g) && g->hook && g->hook->extend;
    return (extended ? attend_extended : attend)(g, q, k, v, cache, layer, spec);
}

/* States (sources, S, C). */
static bool source_states(by_graph *g, const by_cache *c, int layer, int64_t width, by_dtype type,
                          by_tensor *state[2])
{
    nn_store *s = c->store;
    const int64_t shape[3] = {s->sources, c->source_length, width};
    return states_of(g, s->device, &s->cross, layer, shape, s->sources * s->source_room, type, state);
}

void nn_cache_keep_source(by_graph *g, by_tensor *k, by_tensor *v, const by_cache *c, int layer)
{
    by_tensor *state[2];
    if (!source_states(g, c, layer, by_dim(k, -1), by_type(k), state))
        return;
    by_store(g, k, state[0]);
    by_store(g, v, state[1]);
}

by_tensor *nn_attend_source(by_graph *g, by_tensor *q, const by_cache *c, int layer,
                            const by_attention_spec *spec)
{
    const int64_t rows = by_dim(q, 0), t = by_dim(q, 1), width = by_dim(q, 2);
    const int64_t beams = BY_MAX(c->beams, 1), groups = rows / beams;
    by_attention_spec over = *spec;
    by_tensor *state[2], *y;
    const int64_t kv = spec->kv_heads ? spec->kv_heads : spec->heads;
    if (!source_states(g, c, layer, width / BY_MAX(spec->heads, 1) * kv, by_type(q), state))
        return gr_poison(g);
    q = by_reshape(g, q, 3, (int64_t[]){groups, beams * t, width});
    over.key_mask = c->source_mask;
    if (c->sources) {
        over.pages = by_reshape(g, c->sources, 2, (int64_t[]){groups, 1});
        y = by_attention_cached(g, q, NULL, NULL, state[0], state[1], NULL, &over);
    } else {
        y = by_attention(g, q, state[0], state[1], &over);
    }
    return by_reshape(g, y, 3, (int64_t[]){rows, t, width});
}
