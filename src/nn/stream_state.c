/* stream_state.c - see stream_state.h and banyan/stream.h. */
#include <string.h>

#include "graph/graph.h"
#include "nn/stream_state.h"

typedef struct part part;
struct part {
    by_stream_part is;
    part *next;
};

struct by_stream {
    by_device *device;
    int batch, count;
    part *first, **end;
};

by_stream *nn_stream_new(by_device *d, int batch)
{
    by_stream *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (by_stream){.device = d, .batch = batch};
    s->end = &s->first;
    return s;
}

static void free_part(part *p)
{
    union { /* owned by the stream; others only read it */
        const char *from;
        char *to;
    } name = {p->is.name};
    base_free(name.to);
    by_memory_free(p->is.memory);
    base_free(p);
}

void by_stream_free(by_stream *s)
{
    for (part *p = s ? s->first : NULL, *next; p; p = next) {
        next = p->next;
        free_part(p);
    }
    base_free(s);
}

int by_stream_batch(const by_stream *s)
{
    return s ? s->batch : 0;
}

int by_stream_count(const by_stream *s)
{
    return s ? s->count : 0;
}

const by_stream_part *by_stream_at(const by_stream *s, int i)
{
    part *p = s && i >= 0 ? s->first : NULL;
    while (p && i-- > 0)
        p = p->next;
    return p ? &p->is : NULL;
}

const by_stream_part *by_stream_find(const by_stream *s, const char *name)
{
    part *p = s && name ? s->first : NULL;
    while (p && strcmp(p->is.name, name) != 0)
        p = p->next;
    return p ? &p->is : NULL;
}

size_t by_stream_bytes(const by_stream *s)
{
    size_t bytes = 0;
    for (const part *p = s ? s->first : NULL; p; p = p->next)
        bytes += by_memory_bytes(p->is.memory);
    return bytes;
}

static by_status clear(by_memory *m)
{
    static const char zeros[1 << 16];
    const size_t bytes = by_memory_bytes(m);
    for (size_t at = 0; at < bytes; at += sizeof zeros)
        BY_TRY(by_memory_write(m, at, zeros, BY_MIN(bytes - at, sizeof zeros)));
    return BY_OK;
}

by_status by_stream_reset(by_stream *s)
{
    if (!s)
        return base_fail_missing("stream");
    for (part *p = s->first; p; p = p->next)
        BY_TRY(clear(p->is.memory));
    return BY_OK;
}

/* ---- for models ------------------------------------------------------------------------------ */

static part *add_part(by_stream *s, const by_stream_part *like)
{
    size_t elements = 1;
    part *p = base_alloc_zero(1, sizeof *p);
    for (int i = 0; i < like->rank; i++)
        elements *= (size_t)like->shape[i];
    if (!p)
        return NULL;
    p->is = *like;
    p->is.name = base_strdup(like->name);
    p->is.memory = by_memory_new(s->device, elements * by_dtype_size(like->type));
    if (!p->is.name || !p->is.memory) {
        free_part(p);
        return NULL;
    }
    *s->end = p;
    s->end = &p->next;
    s->count++;
    return p;
}

static bool is_like(const by_stream_part *a, const by_stream_part *b)
{
    bool same = a->type == b->type && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

by_tensor *nn_stream_state(by_graph *g, by_stream *s, const char *name, by_dtype type, int rank,
                           const int64_t *shape)
{
    by_stream_part like = {.name = name, .type = type, .rank = rank};
    if (by_graph_status(g) != BY_OK)
        return NULL;
    for (int i = 0; i < rank; i++)
        like.shape[i] = shape[i];
    if (shape[0] != s->batch)
        return by_graph_fail(g, "%s: the batch has %lld rows, its stream %d", name, (long long)shape[0],
                             s->batch);
    const by_stream_part *is = by_stream_find(s, name);
    if (!is) {
        const part *p = add_part(s, &like);
        if (!p)
            return by_graph_fail(g, "%s: no memory for the state of a stream", name);
        is = &p->is;
    }
    if (!is_like(is, &like))
        return by_graph_fail(g, "%s: the stream was created for another type or length of memory", name);
    return by_state(g, is->name, type, rank, shape, is->memory);
}

/* The last `length` rows of a memory and the first `first` rows of the segment after it, of both (B, M + T,
 * ...). */
static by_tensor *last_rows(by_graph *g, by_tensor *both, int64_t length, int64_t first)
{
    const int64_t segment = by_dim(both, 1) - length;
    const int64_t enter = first > 0 && first < segment ? first : segment;
    return by_slice(g, both, 1, enter, length);
}

by_tensor *nn_memory_held_first(by_graph *g, by_stream *s, by_tensor *tokens, by_tensor *mask, int64_t length,
                                int64_t first)
{
    if (!s || length <= 0)
        return mask;
    const int64_t rows = by_dim(tokens, 0), held[2] = {rows, length}, new[2] = {rows, by_dim(tokens, 1)};
    by_tensor *old = nn_stream_state(g, s, "memory.held", BY_I32, 2, held);
    by_tensor *now = mask ? mask : by_fill(g, BY_I32, 2, new, 1);
    by_tensor *both = by_concat(g, (by_tensor *[]){old, now}, 2, 1); /* (B, M + T) */
    by_store(g, last_rows(g, both, length, first), old);
    return both;
}

by_tensor *nn_memory_rows_first(by_graph *g, by_stream *s, const char *name, by_tensor *x, int64_t length,
                                int64_t first)
{
    if (!s || length <= 0)
        return x;
    const int64_t shape[3] = {by_dim(x, 0), length, by_dim(x, 2)};
    by_tensor *old = nn_stream_state(g, s, name, by_type(x), 3, shape);
    by_tensor *both = by_concat(g, (by_tensor *[]){old, x}, 2, 1); /* (B, M + T, C) */
    by_store(g, last_rows(g, both, length, first), old);
    return both;
}

by_tensor *nn_memory_held(by_graph *g, by_stream *s, by_tensor *tokens, by_tensor *mask, int64_t length)
{
    return nn_memory_held_first(g, s, tokens, mask, length, 0);
}

by_tensor *nn_memory_rows(by_graph *g, by_stream *s, const char *name, by_tensor *x, int64_t length)
{
    return nn_memory_rows_first(g, s, name, x, length, 0);
}
