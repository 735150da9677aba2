/* relative_attention.c - relative attention (Dai et al. 2019, "Transformer-XL"), also used by XLNet. See
 * nn.h. */
#include <math.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "nn/cache.h"

by_tensor *nn_distances(by_graph *g, int64_t length, int zero, int64_t width, by_dtype type)
{
    by_tensor *steps = by_range_from(g, 1, &length, -zero); /* s - p, whose sine has the opposite sign */
    by_tensor *both = by_sines(g, steps, width, type);      /* (L, C) */
    const int64_t sines = width - width / 2;
    by_tensor *parts[2] = {by_scale(g, by_slice(g, both, 1, 0, sines), -1),
                           by_slice(g, both, 1, sines, width / 2)};
    return by_concat(g, parts, 2, 1);
}

/* x (..., N, H*D) -> (..., H, N, D), of 2 or 3 axes. */
static by_tensor *heads_first(by_graph *g, by_tensor *x, int heads)
{
    const int64_t n = by_dim(x, -2), d = by_dim(x, -1) / heads;
    if (by_rank(x) == 2)
        return by_permute_axes(g, by_reshape(g, x, 3, (int64_t[]){n, heads, d}), (int[]){1, 0, 2});
    x = by_reshape(g, x, 4, (int64_t[]){by_dim(x, 0), n, heads, d});
    return by_permute_axes(g, x, (int[]){0, 2, 1, 3});
}

static by_tensor *shifted(by_graph *g, by_tensor *q, by_tensor *bias) /* bias (H, D) or (H*D) */
{
    return bias ? by_add(g, q, by_reshape(g, bias, 1, (int64_t[]){-1})) : q;
}

/* Both terms of these queries and keys. Row i of distances is that of s - p = i - zero. */
static by_tensor *attend(by_graph *g, const nn_relative_spec *s, by_attention_spec op, by_tensor *q,
                         by_tensor *k, by_tensor *v, by_tensor *distances, int64_t zero)
{
    by_tensor *seeks = by_scale(g, shifted(g, q, s->position), op.scale); /* (B, T, H*D) */
    op.relative = by_matmul(g, heads_first(g, seeks, op.heads), heads_first(g, distances, op.heads), false,
                            true); /* (B, H, T, L) */
    op.relative_zero = (int)zero;
    return nn_attend_over(g, shifted(g, q, s->content), k, v, s->cache, s->layer, &op);
}

/* ---- a chunk of the queries at a time --------------------------------------------------------- */

int64_t nn_relative_chunk(int64_t heads, int64_t queries, int64_t distances)
{
    enum { WHOLE = 1 << 22, ENTRIES = 1 << 30, PARTS = 16, STEP = 64 };
    const char *asked = getenv("BANYAN_RELATIVE_CHUNK");
    if (asked && atoi(asked) > 0)
        return atoi(asked);
    if (queries * distances <= WHOLE)
        return queries;
    const int64_t size = BY_MIN(queries / PARTS, ENTRIES / BY_MAX(heads * distances, 1));
    return BY_MAX(size / STEP * STEP, STEP);
}

/* A custom block: only the results of chunks are kept. */
typedef struct cut {
    nn_relative_spec spec;
    by_tensor *in;                /* the queries, (B, T, H*D) */
    by_tensor *k, *v, *distances; /* in the accumulation type, because every chunk adds to their gradients */
    int64_t queries;
    nn_chunk at;
    by_tensor *weights; /* of the last chunk, where they are wanted */
} cut;

/* Queries from `first` on, and the keys that they see. The op aligns the last query with the last key, so
 * with a causal mask later keys are cut off. Without one, chunks see all keys. */
static nn_chunk chunk_at(const cut *c, int64_t first)
{
    const int64_t before = by_dim(c->k, 1) - c->queries; /* the position of the first query */
    nn_chunk at = {first, BY_MIN(c->spec.chunk, c->queries - first), 0, by_dim(c->k, 1)};
    if (c->spec.op.mask == BY_MASK_CAUSAL) {
        const by_pattern *seen = &c->spec.op.pattern;
        const int64_t reach = seen->kind == BY_PATTERN_WINDOW ? seen->before : first + before;
        at.key = BY_MAX(first + before - reach, 0);
        at.keys = before + first + at.queries - at.key;
    }
    return at;
}

/* Weights (B, H, n, keys of the chunk) with zeros for the others: (B, H, n, S). */
static by_tensor *widened(by_graph *g, by_tensor *weights, int64_t first, int64_t all)
{
    const int64_t b = by_dim(weights, 0), h = by_dim(weights, 1), n = by_dim(weights, 2);
    const int64_t after = all - first - by_dim(weights, 3);
    by_tensor *parts[3];
    int count = 0;
    if (first > 0)
        parts[count++] = by_fill(g, by_type(weights), 4, (int64_t[]){b, h, n, first}, 0);
    parts[count++] = weights;
    if (after > 0)
        parts[count++] = by_fill(g, by_type(weights), 4, (int64_t[]){b, h, n, after}, 0);
    return nn_concat(g, parts, count, 3);
}

static by_tensor *attend_chunk(by_graph *g, void *user, by_tensor *q) /* (B, n, H*D) -> (B, n, H*D) */
{
    cut *c = user;
    const nn_chunk at = c->at;
    const by_dtype type = by_type(q);
    const bool causal = c->spec.op.mask == BY_MASK_CAUSAL;
    const int64_t last = by_dim(c->distances, -2) - 1, p = at.query + by_dim(c->k, 1) - c->queries;
    const int64_t nearest = (causal ? 0 : at.key + at.keys - 1 - p) + c->spec.zero;
    const int64_t farthest = at.key - (p + at.queries - 1) + c->spec.zero;
    const int64_t low = BY_MIN(BY_MAX(farthest, 0), last), high = BY_MIN(BY_MAX(nearest, 0), last);
    by_attention_spec op = c->spec.op;
    by_tensor *k = by_cast(g, by_slice(g, c->k, 1, at.key, at.keys), type);
    by_tensor *v = by_cast(g, by_slice(g, c->v, 1, at.key, at.keys), type);
    by_tensor *r = by_cast(g, by_slice(g, c->distances, -2, low, high - low + 1), type), *weights = NULL;
    if (op.key_mask)
        op.key_mask = by_slice(g, op.key_mask, 1, at.key, at.keys);
    if (c->spec.pairs)
        c->spec.pairs(g, c->spec.user, &at, q, &op);
    op.weights = op.weights ? &weights : NULL;
    /* The op aligns the last query with the last key. */
    const int64_t late = at.key + at.keys - (p + at.queries);
    by_tensor *y = attend(g, &c->spec, op, q, k, v, r, c->spec.zero - low + late);
    c->weights = weights ? widened(g, weights, at.key, by_dim(c->k, 1)) : NULL;
    return y;
}

static int chunks_of(const cut *c)
{
    return (int)((c->queries + c->spec.chunk - 1) / c->spec.chunk);
}

static void forward(by_graph *g, void *user, by_tensor *const *in, by_tensor **out)
{
    cut *c = user;
    const int count = chunks_of(c);
    by_tensor **y = base_arena_alloc(g->arena, 2 * (size_t)count * sizeof *y);
    if (!y) {
        gr_poison(g);
        return;
    }
    for (int i = 0; i < count; i++) {
        c->at = chunk_at(c, i * c->spec.chunk);
        y[i] = attend_chunk(g, c, by_slice(g, in[0], 1, c->at.query, c->at.queries));
        y[count + i] = c->weights;
    }
    if (c->spec.op.weights)
        out[1] = nn_concat(g, y + count, count, 2);
    out[0] = nn_concat(g, y, count, 1);
}

static void backward(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                     by_tensor **again)
{
    cut *c = user;
    const int count = chunks_of(c);
    by_tensor **dq = base_arena_alloc(g->arena, (size_t)count * sizeof *dq), *q = c->in;
    (void)out;
    (void)again;
    if (!dq) {
        gr_poison(g);
        return;
    }
    c->spec.op.weights = NULL;
    for (int i = 0; i < count; i++) {
        c->at = chunk_at(c, i * c->spec.chunk);
        by_tensor *part = by_slice(g, q, 1, c->at.query, c->at.queries);
        by_vjp(g, attend_chunk, c, part, by_slice(g, dout[0], 1, c->at.query, c->at.queries), &dq[i]);
    }
    din[0] = dq[0] ? nn_concat(g, dq, count, 1) : NULL;
}

/* Whether chunks can omit keys without changing results: with a causal mask, a query that sees no key must
 * not give the mean of all values. */
static bool can_cut(const nn_relative_spec *s, int64_t queries)
{
    const by_pattern_kind kind = s->op.pattern.kind;
    if (s->cache || s->chunk <= 0 || s->chunk >= queries)
        return false;
    if (s->op.mask == BY_MASK_CAUSAL)
        return (kind == BY_PATTERN_FULL || kind == BY_PATTERN_WINDOW) &&
               (s->op.empty_zero || (!s->op.key_mask && !s->pairs));
    return s->op.mask == BY_MASK_NONE && kind == BY_PATTERN_FULL;
}

static by_tensor *attend_in_chunks(by_graph *g, const nn_relative_spec *s, by_tensor *q, by_tensor *k,
                                   by_tensor *v)
{
    const by_dtype sums = gr_acc_type(by_type(q));
    by_tensor *out[2] = {NULL, NULL}, **weights = s->op.weights;
    cut *c = base_arena_alloc(g->arena, sizeof *c);
    if (!c)
        return gr_poison(g);
    *c = (cut){.spec = *s, .in = q, .queries = by_dim(q, 1)};
    c->k = by_cast(g, k, sums);
    c->v = by_cast(g, v, sums);
    c->distances = by_cast(g, s->distances, sums);
    by_block_custom(g, &(by_custom_spec){.forward = forward, .backward = backward, .user = c}, &q, 1, out,
                    weights ? 2 : 1);
    if (weights)
        *weights = out[1];
    return out[0];
}

by_tensor *nn_relative_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                 const nn_relative_spec *spec)
{
    nn_relative_spec s = *spec;
    if (s.op.heads < 1 || by_dim(q, -1) % s.op.heads)
        return by_graph_fail(g, "%d heads do not divide a width of %lld", s.op.heads,
                             (long long)by_dim(q, -1));
    if (s.op.scale == 0)
        s.op.scale = 1.0f / sqrtf((float)by_dim(q, -1) / (float)s.op.heads);
    if (can_cut(&s, by_dim(q, 1)))
        return attend_in_chunks(g, &s, q, k, v);
    if (s.pairs)
        s.pairs(g, s.user, &(nn_chunk){0, by_dim(q, 1), 0, by_dim(k, 1)}, q, &s.op);
    return attend(g, &s, s.op, q, k, v, s.distances, s.zero);
}
