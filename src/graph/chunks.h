/* chunks.h - which rows attend to each other in by_chunked_attention, for both backends. Chunks are numbered
 * through all rounds: chunk g belongs to round g / chunks. */
#ifndef BY_GRAPH_CHUNKS_H
#define BY_GRAPH_CHUNKS_H

#include "graph/graph.h"

#ifdef __CUDACC__
#define GR_CHUNKS static __host__ __device__ __forceinline__
#else
#define GR_CHUNKS static inline
#endif

/* Scores of masked keys and of a row's own key, as in the published models. They are finite, so a row that
 * sees no other key attends to itself. */
#define GR_CHUNKS_MASKED (-1e9f)
#define GR_CHUNKS_SELF   (-1e5f)

typedef struct gr_chunks {
    int rows;         /* T */
    int chunk;        /* C, rows of a chunk */
    int chunks;       /* N, of a round */
    int total;        /* R N */
    int before, seen; /* chunks before its own, and all that a row sees */
    bool causal, avoid_self;
} gr_chunks;

static inline gr_chunks gr_chunks_of(const gr_node *n)
{
    const by_chunked_spec *s = &((const gr_chunked_attr *)n->attr)->spec;
    const by_tensor *order = n->in[GR_CHUNKED_ORDER];
    gr_chunks c;
    c.rows = (int)n->in[0]->dim[1];
    c.chunk = s->chunk;
    c.chunks = (int)(s->length / s->chunk);
    c.total = c.chunks * (order ? (int)order->dim[2] : 1);
    c.before = s->before;
    c.seen = s->before + 1 + s->after;
    c.causal = s->causal;
    c.avoid_self = s->avoid_self;
    return c;
}

/* The chunk that chunk g sees at index w of [0, seen). */
GR_CHUNKS int gr_chunks_seen(const gr_chunks *c, int g, int w)
{
    const int at = (g + w - c->before) % c->total;
    return at < 0 ? at + c->total : at;
}

/* The chunk that sees chunk g at index w. */
GR_CHUNKS int gr_chunks_seeing(const gr_chunks *c, int g, int w)
{
    const int at = (g - w + c->before) % c->total;
    return at < 0 ? at + c->total : at;
}

/* Row i of chunk g, or -1 for padding. order: that of this head, (R, T), or NULL. */
GR_CHUNKS int gr_chunks_row(const gr_chunks *c, const int32_t *order, int g, int i)
{
    const int round = g / c->chunks, at = (g - round * c->chunks) * c->chunk + i;
    if (i >= c->chunk || at >= c->rows)
        return -1;
    return order ? order[(int64_t)round * c->rows + at] : at;
}

/* Applies the masks to a score. A key is given by its row, -1 for padding; replaced scores have no
 * gradient. */
typedef enum gr_meeting { GR_MEETS, GR_MEETS_MASKED, GR_MEETS_ITSELF, GR_MEETS_NOTHING } gr_meeting;
GR_CHUNKS gr_meeting gr_chunks_meet(const gr_chunks *c, int query, int key, bool masked)
{
    if (key < 0)
        return GR_MEETS_NOTHING;
    if (c->avoid_self && key == query)
        return GR_MEETS_ITSELF;
    return masked || (c->causal && key > query) ? GR_MEETS_MASKED : GR_MEETS;
}

/* The logarithm of a row's sum of e^(score - largest). The reference stores the log-sum-exp as f32. For a row
 * that sees only itself, perhaps in several rounds, it is -1e5 plus the logarithm rounded to 1/128. For a
 * padding row that sees only padding it is -1e9, so that each of its weights is 1. */
GR_CHUNKS bool gr_chunks_rounds(double largest)
{
    return largest == (double)GR_CHUNKS_SELF || largest == (double)GR_CHUNKS_MASKED;
}

GR_CHUNKS double gr_chunks_log(double largest, double log_sum)
{
    return gr_chunks_rounds(largest) ? (double)(float)(largest + log_sum) - largest : log_sum;
}

/* The index, in units of four, of the random number of weight (i, column) of chunk g, which is element i %
 * 4. */
GR_CHUNKS uint64_t gr_chunks_random(const gr_chunks *c, int64_t head, int g, int i, int column)
{
    return ((uint64_t)(head * c->total + g) * (uint64_t)((c->chunk + 3) / 4) + (uint64_t)(i / 4)) *
               (uint64_t)(c->seen * c->chunk) +
           (uint64_t)column;
}

#endif
