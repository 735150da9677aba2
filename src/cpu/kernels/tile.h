/* tile.h - shared by the attention kernels. Scores are stored transposed, st (keys, queries): a vector
 * register holds adjacent queries, so that the softmax over keys needs no sum across a register, and every
 * product of the forward and the backward pass is "rows of vectors, scaled by single numbers and added up",
 * one small routine. Only queries (and dy) are ever transposed, once per tile.
 *
 * The first half is independent of the element type; the second is included once for each. */
#ifndef BY_CPU_KERNELS_TILE_H
#define BY_CPU_KERNELS_TILE_H

#include <float.h>

#include "cpu/kernels/kernel.h"
#include "graph/views.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { TILE = 64 };       /* queries and keys of a tile */
enum { FEW_QUERIES = 4 }; /* up to here, single dot products are faster than tiles that are mostly padding, */
enum { MANY_KEYS = 1024 };    /* unless a pattern leaves out most of this many keys or more */
enum { FORK_WORK = 1 << 18 }; /* fewer multiplications run on one thread */

/* Accumulators of the product: MR rows of two vectors. */
#if BY_ISA_LEVEL >= 2
#define MR 8
#else
#define MR 4
#endif
#define VEC FN(tile_vector)
#define VL  ((int)(BY_VECTOR_BYTES / sizeof(R)))

#define ROUND_UP(n, step) (((n) + (step)-1) / (step) * (step))

/* The score of a masked key, as in PyTorch models: finite, so that a fully masked row differs from one with
 * infinities, which must give NaN. */
#define HIDDEN ((R)(sizeof(R) == 8 ? -DBL_MAX : -(double)FLT_MAX))
/* The log-sum-exp stored for a query that attends to no key. Its weights are 1 / S on every key. */
#define SEES_NOTHING ((R)-INFINITY)

/* Rows of heads: element (b, t, h, d) lies at b * batch + t * row + h * D + d. In pages, b * batch becomes
 * pages[b][t >> shift] * batch, and t what is left of it. In a group of a view, t is first mapped to
 * first + t / run * step + t % run. */
typedef struct head_rows {
    void *at;
    int64_t row, batch;
    int64_t first, step, run; /* step 0: t itself */
    const int32_t *pages;     /* (B, columns); NULL: row b is page b */
    int64_t columns;
    int shift;
} head_rows;

/* A bias: entry i for query t of head (b, h) is at b * batch + h * head + t * row + i. Broadcast axes have
 * stride 0. */
typedef struct bias_rows {
    const void *at; /* NULL: none */
    int64_t batch, head, row, count;
    int64_t zero; /* by distance: the entry of distance 0 */
    bool relative;
} bias_rows;
enum { BIASES = 2 }; /* by key, and by distance */

/* A mask for pairs of a query and a key, or of blocks of them, with the layout of a bias. */
typedef struct pair_rows {
    const void *at; /* NULL: none */
    int64_t batch, head, row;
    int64_t block; /* queries and keys that an entry is for */
    bool bytes;    /* u8, else i32 */
} pair_rows;

typedef struct attention {
    const gr_exec *e;
    const gr_node *n;
    int64_t batch, queries, keys; /* keys: number of the longest row if past is given */
    int heads, kv_heads, group, dim;
    bool causal;
    int window; /* under the causal mask, no more than the last `window` keys are seen; 0: all */
    gr_reach reach;
    int64_t all_queries, all_keys; /* of the whole problem; queries and keys may be those of a group */
    double scale;
    float dropout;
    bool empty_zero;
    const int32_t *key_mask; /* (batch, mask_row), NULL: nothing is masked */
    int64_t mask_row;
    const int32_t *prefix; /* (batch): keys before this are visible despite the causal mask; NULL: none */
    const int32_t *past;   /* (batch), NULL: every batch row has `keys` keys */
    pair_rows pairs;
    bias_rows bias[BIASES];
    head_rows q, k, v, y;
    void *lse, *weights; /* NULL: not wanted */
    bool more;           /* y and lse have results of other keys, to which these are added */
} attention;

/* One tile: queries [t0, t0 + queries) of head (b, h) against keys [s0, s0 + keys). */
typedef struct tile {
    int64_t b, t0, s0;
    int h, queries, width, keys; /* width: queries rounded up to whole vectors */
    int position;                /* position of its first query */
    int diagonal;                /* query t attends to key s of the tile if s <= t + diagonal, */
    int prefix;                  /* or if s < prefix */
    int trim;                    /* beyond this diagonal nothing is computed or read, */
    int trail;                   /* nor for s <= t + trail, where a window ends */
} tile;

static inline head_rows rows_of(const by_tensor *t, int64_t first)
{
    head_rows r = {0};
    if (t) {
        r.at = (char *)t->data + first * (int64_t)by_dtype_size(t->type);
        r.row = t->dim[2];
        r.batch = t->dim[1] * t->dim[2];
    }
    return r;
}

/* A cache (pages, P, C), whose rows lie in `pages` (B, n); NULL: in the page of their number. */
static inline head_rows rows_in_pages(const by_tensor *cache, const by_tensor *pages)
{
    head_rows r = rows_of(cache, 0);
    if (pages) {
        r.pages = pages->data;
        r.columns = pages->dim[1];
        for (r.shift = 0; r.columns > 1 && cache->dim[1] >> r.shift > 1;)
            r.shift++;
        r.shift = r.columns > 1 ? r.shift : 62; /* all of a row is in one page */
    }
    return r;
}

/* The row of the tensor that t, of the whole or of a group, stands for. */
static inline int64_t row_of(const head_rows *r, int64_t t)
{
    return r->step == 0  ? t
           : r->run == 1 ? r->first + t * r->step
                         : r->first + t / r->run * r->step + t % r->run;
}

/* Where row t of batch row b begins. */
static inline int64_t row_at(const head_rows *r, int64_t b, int64_t t)
{
    t = row_of(r, t);
    if (!r->pages)
        return b * r->batch + t * r->row;
    const int64_t column = t >> r->shift;
    return r->pages[b * r->columns + column] * r->batch + (t - (column << r->shift)) * r->row;
}

/* Queries, keys and values of three tensors, or side by side in the one of them that is packed. */
static inline void rows_of_qkv(const gr_attention_attr *x, by_tensor *const *from, head_rows *q, head_rows *k,
                               head_rows *v)
{
    const int64_t d = x->head_dim;
    *q = rows_of(from[0], 0);
    *k = x->packed ? rows_of(from[0], x->spec.heads * d) : rows_of(from[1], 0);
    *v = x->packed ? rows_of(from[0], (x->spec.heads + x->spec.kv_heads) * d) : rows_of(from[2], 0);
}

static inline bias_rows bias_of(const by_tensor *t, bool relative, int zero)
{
    if (!t)
        return (bias_rows){0};
    const int64_t row = t->dim[3], head = t->dim[2] * row, batch = t->dim[1] * head;
    return (bias_rows){.at = t->data,
                       .batch = t->dim[0] > 1 ? batch : 0,
                       .head = t->dim[1] > 1 ? head : 0,
                       .row = t->dim[2] > 1 ? row : 0,
                       .count = row,
                       .zero = zero,
                       .relative = relative};
}

static inline pair_rows pairs_of(const by_tensor *t, int block)
{
    const bias_rows r = bias_of(t, false, 0);
    return (pair_rows){r.at, r.batch, r.head, r.row, BY_MAX(block, 1), t && t->type == BY_U8};
}

/* Shared by the three ops: the common inputs and the attributes. */
static inline attention attention_of(const gr_exec *e, const gr_node *n)
{
    const gr_attention_attr *x = n->attr;
    const by_attention_spec *spec = &x->spec;
    by_tensor *const *in = n->in;
    attention a = {.e = e,
                   .n = n,
                   .batch = n->in[0]->dim[0],
                   .queries = n->in[0]->dim[1],
                   .keys = n->in[1] ? n->in[1]->dim[1] : n->in[0]->dim[1],
                   .heads = spec->heads,
                   .kv_heads = spec->kv_heads,
                   .group = spec->heads / spec->kv_heads,
                   .dim = x->head_dim,
                   .causal = spec->mask != BY_MASK_NONE,
                   .reach = gr_reach_of(&spec->pattern),
                   .scale = spec->scale,
                   .dropout = spec->dropout,
                   .empty_zero = spec->empty_zero,
                   .key_mask = in[GR_ATT_KEY_MASK] ? in[GR_ATT_KEY_MASK]->data : NULL,
                   .mask_row = in[GR_ATT_KEY_MASK] ? in[GR_ATT_KEY_MASK]->dim[1] : 0,
                   .prefix = in[GR_ATT_PREFIX] ? in[GR_ATT_PREFIX]->data : NULL,
                   .pairs = pairs_of(in[GR_ATT_PAIR_MASK], spec->pair_block),
                   .bias = {bias_of(in[GR_ATT_BIAS], false, 0),
                            bias_of(in[GR_ATT_RELATIVE], true, spec->relative_zero)}};
    a.all_queries = a.queries;
    a.all_keys = a.keys;
    rows_of_qkv(x, n->in, &a.q, &a.k, &a.v);
    return a;
}

/* Group x as an attention of its own. */
static inline void map_rows(head_rows *r, int first, int step, int run)
{
    r->first = first;
    r->step = step;
    r->run = run;
}
static inline attention attention_of_group(const attention *a, const gr_group *x)
{
    attention y = *a;
    y.queries = x->queries;
    y.keys = x->keys;
    y.past = NULL;
    y.causal = x->causal;
    y.window = x->window;
    y.reach.on = false;
    map_rows(&y.q, x->query_at, x->query_step, 1);
    map_rows(&y.y, x->query_at, x->query_step, 1);
    map_rows(&y.k, x->key_at, x->key_step, x->run);
    map_rows(&y.v, x->key_at, x->key_step, x->run);
    return y;
}

static inline int64_t lse_row(const attention *a, int64_t b, int h, int64_t t)
{
    return (b * a->heads + h) * a->all_queries + row_of(&a->q, t);
}

static inline int64_t keys_of(const attention *a, int64_t b)
{
    return a->past ? a->past[b] + a->queries : a->keys;
}

static inline int thread_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Returns the number of threads worth waking for `tasks` independent pieces of work. */
static inline int threads_for(const attention *a, int64_t tasks, double work)
{
    int64_t n = work < FORK_WORK ? 1 : BY_MIN(a->e->threads, tasks);
    return n < 1 ? 1 : (int)n;
}

/* Whether a pattern is taken by views; of few queries if that reads far fewer keys. */
static inline bool takes_views(const attention *a)
{
    gr_view views[GR_MAX_VIEWS];
    const bool worth = a->queries > FEW_QUERIES || (a->reach.cycle && a->keys >= MANY_KEYS);
    return worth && a->y.at && !a->weights && gr_node_views(a->n, a->causal, a->queries, a->keys, views) > 0;
}

/* ---- masking: only these functions and finish_scores know about it --------------------------- */

/* Returns the position of query t of batch row b among the keys. */
static inline int64_t position_of(const attention *a, int64_t b, int64_t t)
{
    return keys_of(a, b) - a->queries + t;
}

static inline int64_t prefix_of(const attention *a, int64_t b)
{
    return a->prefix ? BY_MAX(BY_MIN(a->prefix[b], keys_of(a, b)), 0) : 0;
}

/* Whether the pair mask lets block i of queries of head (b, h) attend to block j of keys; `at` is the offset of
 * row i. */
static inline int64_t pair_row(const attention *a, int64_t b, int h, int64_t i)
{
    return b * a->pairs.batch + h * a->pairs.head + i * a->pairs.row;
}
static inline bool pair_seen(const attention *a, int64_t at, int64_t j)
{
    return a->pairs.bytes ? ((const uint8_t *)a->pairs.at)[at + j] != 0
                          : ((const int32_t *)a->pairs.at)[at + j] != 0;
}

/* Returns true if a pair mask by blocks lets any of queries [t0, t0 + n) attend to any of keys [s0, s0 + m). A
 * mask by single pairs is not looked through. */
static inline bool any_pair_seen(const attention *a, int64_t b, int h, int64_t t0, int64_t n, int64_t s0,
                                 int64_t m)
{
    const int64_t block = a->pairs.block, last = (s0 + m - 1) / block;
    if (!a->pairs.at || block == 1)
        return true;
    for (int64_t i = t0 / block; i <= (t0 + n - 1) / block; i++)
        for (int64_t j = s0 / block; j <= last; j++)
            if (pair_seen(a, pair_row(a, b, h, i), j))
                return true;
    return false;
}

/* The weight that a query which attends to nothing has on each of n keys. */
static inline double empty_weight(const attention *a, int64_t n)
{
    return a->empty_zero ? 0 : 1.0 / (double)n;
}

/* Returns true if query t of head (b, h) attends to key s. */
static inline bool sees(const attention *a, int64_t b, int h, int64_t t, int64_t s)
{
    const int64_t p = position_of(a, b, t);
    const gr_reach r = gr_reach_of_head(a->reach, h, a->heads);
    if (a->causal && s > p && s >= prefix_of(a, b))
        return false;
    if (r.on && !gr_reaches(&r, gr_spot_of(&r, (int)p), gr_spot_of(&r, (int)s)))
        return false;
    if (a->pairs.at && !pair_seen(a, pair_row(a, b, h, t / a->pairs.block), s / a->pairs.block))
        return false;
    return !a->key_mask || a->key_mask[b * a->mask_row + s];
}

/* Returns the range of keys of batch row b outside of which queries [t0, t0 + n) attend to nothing. */
static inline gr_stretch keys_seen(const attention *a, int64_t b, int64_t t0, int64_t n)
{
    const int64_t last = position_of(a, b, t0 + n - 1);
    int64_t end = keys_of(a, b);
    if (a->causal)
        end = BY_MIN(end, BY_MAX(last + 1, prefix_of(a, b)));
    if (a->window)
        return (gr_stretch){(int)BY_MAX(last - n + 2 - a->window, 0), (int)BY_MAX(end, 0)};
    return gr_reach_keys(&a->reach, (int)(last - n + 1), (int)last, (int)BY_MAX(end, 0));
}

/* Returns true if queries [t0, t0 + n) may attend to any of keys [s0, s0 + m). */
static inline bool any_seen(const attention *a, int64_t b, int64_t t0, int64_t n, int64_t s0, int64_t m)
{
    const int64_t p = position_of(a, b, t0);
    if (a->causal && s0 > p + n - 1 && s0 >= prefix_of(a, b))
        return false;
    return !a->reach.on || gr_reach_meets(&a->reach, (int)p, (int)(p + n - 1), (int)s0, (int)(s0 + m - 1));
}

/* Returns the first tile of keys, of those at s0, s0 + TILE, ... before `end`, to which any of queries [t0,
 * t0 + n) of head h attends, or with `whole` the first of all; at least `end` if there is none. */
static inline int64_t next_keys(const attention *a, int64_t b, int h, int64_t t0, int64_t n, int64_t s0,
                                int64_t end, bool whole)
{
    if (!whole)
        s0 = gr_reach_skip(&a->reach, (int)position_of(a, b, t0), (int)s0, TILE);
    while (s0 < end && !whole &&
           (!any_seen(a, b, t0, n, s0, TILE) ||
            !any_pair_seen(a, b, h, t0, n, s0, BY_MIN(keys_of(a, b) - s0, TILE))))
        s0 += TILE;
    return s0;
}

/* Returns the tile of t0 and s0. With `whole`, for queries that attend to nothing, no part is left out. The
 * first tile of some queries has a part for each of them, so that all meet a key, even if masked. */
static inline tile tile_at(const attention *a, int64_t b, int h, int64_t t0, int64_t s0, int lanes,
                           bool first, bool whole)
{
    const int64_t keys = keys_of(a, b), position = position_of(a, b, t0), prefix = prefix_of(a, b) - s0;
    const int64_t diagonal = a->causal ? position - s0 : TILE;
    tile x = {.b = b, .t0 = t0, .s0 = s0, .h = h, .position = (int)position};
    x.queries = (int)BY_MIN(a->queries - t0, TILE);
    x.width = ROUND_UP(x.queries, lanes);
    x.keys = (int)BY_MIN(keys - s0, TILE);
    x.diagonal = (int)(diagonal > TILE ? TILE : diagonal < -TILE ? -TILE : diagonal);
    x.prefix = (int)BY_MAX(BY_MIN(prefix, TILE), 0);
    x.trim = whole || x.prefix ? TILE : x.diagonal;
    x.trail = a->window && diagonal - a->window > -TILE ? (int)(diagonal - a->window) : -TILE;
    if (first)
        x.trim = BY_MAX(x.trim, 0);
    return x;
}

/* ---- biases ---------------------------------------------------------------------------------- */

static inline int64_t clamp_entry(const bias_rows *x, int64_t i)
{
    return i < 0 ? 0 : BY_MIN(i, x->count - 1);
}

/* The entry, before clamping, of key s for the query at position p. */
static inline int64_t bias_entry(const bias_rows *x, int64_t p, int64_t s)
{
    return x->relative ? s - p + x->zero : s;
}

#endif

#ifdef T_NAME

typedef R VEC __attribute__((vector_size(BY_VECTOR_BYTES), aligned(sizeof(R)), may_alias));

/* Returns the first query of the part of a tile that is computed for key s, the same for MR keys together. */
static inline int FN(first_query)(const tile *x, int s)
{
    const int step = VL > MR ? VL : MR;
    int first = (s & ~(MR - 1)) - x->trim;
    return first <= 0 ? 0 : BY_MIN(first / step * step, x->width);
}

/* Returns the end of that part. */
static inline int FN(last_query)(const tile *x, int s)
{
    const int step = VL > MR ? VL : MR, end = (s | (MR - 1)) - x->trail;
    return end <= 0 ? 0 : BY_MIN(ROUND_UP(end, step), x->width);
}

static inline const T *FN(bias_at)(const bias_rows *x, int64_t b, int h, int64_t t)
{
    return (const T *)x->at + b * x->batch + h * x->head + t * x->row;
}

/* Adds the bias of the tile's queries to the scores. If all of them share one row, it is constant along
 * diagonals if by distance, otherwise constant for a key. (Elements beyond the trim may be modified as
 * well.) */
static inline void FN(add_bias)(const bias_rows *bias, const tile *x, R *restrict st)
{
    const T *row = FN(bias_at)(bias, x->b, x->h, x->t0);
    const int64_t first = bias_entry(bias, x->position, x->s0);
    R line[2 * TILE];
    if (bias->row) {
        for (int t = 0; t < x->queries; t++, row += bias->row)
            for (int s = 0; s < x->keys; s++)
                st[s * TILE + t] += LD(row[clamp_entry(bias, first + s - (bias->relative ? t : 0))]);
        return;
    }
    for (int i = 0; i < 2 * TILE - 1; i++) /* key s and query t have i = t - s + TILE - 1 */
        line[i] = bias->relative ? LD(row[clamp_entry(bias, first + TILE - 1 - i)]) : 0;
    for (int s = 0; s < x->keys; s++) {
        const R same = bias->relative ? 0 : LD(row[first + s]);
        const R *restrict along = line + TILE - 1 - s;
#pragma omp simd
        for (int t = 0; t < x->width; t++)
            st[s * TILE + t] += bias->relative ? along[t] : same;
    }
}

/* Masks the keys outside the pattern. */
static inline void FN(hide_unreached)(const attention *a, const tile *x, R *restrict st)
{
    const gr_reach r = gr_reach_of_head(a->reach, x->h, a->heads);
    gr_spot query[TILE];
    for (int t = 0; t < x->width; t++)
        query[t] = gr_spot_of(&r, x->position + t);
    for (int s = 0; s < x->keys; s++) {
        const gr_spot key = gr_spot_of(&r, (int)x->s0 + s);
        for (int t = 0; t < x->width; t++)
            st[s * TILE + t] = gr_reaches(&r, query[t], key) ? st[s * TILE + t] : HIDDEN;
    }
}

/* Masks the pairs that the pair mask excludes. */
static inline void FN(hide_pairs)(const attention *a, const tile *x, R *restrict st)
{
    const int64_t block = a->pairs.block;
    int end_t, end_s; /* of the block that begins at t, at s */
    for (int t = 0; t < x->queries; t = end_t) {
        const int64_t i = (x->t0 + t) / block, row = pair_row(a, x->b, x->h, i);
        end_t = (int)BY_MIN((i + 1) * block - x->t0, x->queries);
        for (int s = 0; s < x->keys; s = end_s) {
            const int64_t j = (x->s0 + s) / block;
            end_s = (int)BY_MIN((j + 1) * block - x->s0, x->keys);
            for (int k = s; k < end_s && !pair_seen(a, row, j); k++)
                for (int m = t; m < end_t; m++)
                    st[k * TILE + m] = HIDDEN;
        }
    }
}

/* Products to scores: adds biases, and masks what sees() excludes, row by row. */
static inline void FN(finish_scores)(const attention *a, const tile *x, R *restrict st)
{
    const int32_t *seen = a->key_mask ? a->key_mask + x->b * a->mask_row : NULL;
    const gr_reach r = gr_reach_of_head(a->reach, x->h, a->heads);
    const int p = x->position, s0 = (int)x->s0;
    for (int i = 0; i < BIASES; i++)
        if (a->bias[i].at)
            FN(add_bias)(&a->bias[i], x, st);
    if (a->pairs.at)
        FN(hide_pairs)(a, x, st);
    if (!gr_reach_covers(&r, p, p + x->queries - 1, s0, s0 + x->keys - 1))
        FN(hide_unreached)(a, x, st);
    for (int s = 0; s < x->keys; s++) {
        int hidden = s < x->prefix ? 0 : BY_MIN(s - x->diagonal, x->width);
        if (seen && !seen[row_of(&a->k, s0 + s)])
            hidden = x->width;
        for (int t = 0; t < hidden; t++)
            st[s * TILE + t] = HIDDEN;
        for (int t = BY_MAX(s - x->trail, 0), end = FN(last_query)(x, s); t < end; t++)
            st[s * TILE + t] = HIDDEN;
    }
}

/* keep (keys, queries): 0 for a dropped weight, 1 / (1 - p) for a kept one. The random number of weight
 * (b, h, t, s) is that of element ((b H + h) S + s) T' + t, T' being T rounded up to a multiple of 4. */
static inline void FN(draw_dropout)(const attention *a, const tile *x, R *restrict keep)
{
    const uint32_t threshold = cpu_drop_threshold(a->dropout);
    const R factor = (R)(1.0 / (1.0 - (double)a->dropout));
    const uint64_t row = (uint64_t)ROUND_UP(a->all_queries, 4);
    const int64_t step = a->q.step ? a->q.step : 1, head = x->b * a->heads + x->h;
    uint32_t buffer[BY_RANDOM_SPAN + 4 * BY_LANES];
    for (int s = 0; s < x->keys; s++) {
        const uint64_t first =
            (uint64_t)(head * a->all_keys + row_of(&a->k, x->s0 + s)) * row + (uint64_t)row_of(&a->q, x->t0);
        const uint32_t *u = step == 1 ? cpu_random_span(a->e, a->n, first, x->width, buffer) : buffer;
        for (int t = 0; t < x->queries && step > 1; t++)
            buffer[t] = *cpu_random_span(a->e, a->n, first + (uint64_t)(t * step), 1, buffer + TILE);
        for (int t = 0; t < x->width; t++)
            keep[s * TILE + t] = t < x->queries && u[t] >= threshold ? factor : 0;
    }
}

/* ---- rows between memory and working space (rows, ld), ld: the head size rounded up to vectors --- */

static inline T *FN(head_at)(const attention *a, const head_rows *r, int64_t b, int64_t t, int h)
{
    return (T *)r->at + row_at(r, b, t) + (int64_t)h * a->dim;
}

/* to = from times factor; f16 uses the processor's conversion if available */
static inline void FN(load_row)(int64_t n, const T *restrict from, R factor, R *restrict to)
{
    int64_t d = 0;
#if BY_ISA_LEVEL >= 1
    if (T_ID == BY_F16)
        for (; d + 8 <= n; d += 8)
            _mm256_storeu_ps(to + d,
                             factor * _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(from + d))));
#endif
#pragma omp simd
    for (int64_t i = d; i < n; i++)
        to[i] = LD(from[i]) * factor;
}

/* Loads n rows times factor, padded with zeros to ld columns and `rows` rows. */
static inline void FN(load_rows)(const attention *a, const head_rows *r, int64_t b, int64_t t0, int h, int n,
                                 int rows, R factor, int64_t ld, R *restrict to)
{
    const int dim = a->dim;
    for (int i = 0; i < n; i++, to += ld) {
        FN(load_row)(dim, FN(head_at)(a, r, b, t0 + i, h), factor, to);
        for (int64_t d = dim; d < ld; d++)
            to[d] = 0;
    }
    if (n < rows)
        memset(to, 0, sizeof(R) * (size_t)((rows - n) * ld));
}

static inline void FN(store_row)(T *restrict to, const R *restrict from, int n, R factor)
{
#pragma omp simd
    for (int d = 0; d < n; d++)
        to[d] = ST(from[d] * factor);
}

#if BY_ISA_LEVEL >= 2
#define ZIP_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif BY_ISA_LEVEL == 1
#define ZIP_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#endif

/* to[i] = the sum of the lanes of x[i], four at a time */
static inline void FN(add_lanes)(const VEC x[4], R *restrict to)
{
#if BY_ISA_LEVEL >= 1
    VEC a = __builtin_shufflevector(x[0], x[1], ZIP_LOW) + __builtin_shufflevector(x[0], x[1], ZIP_HIGH);
    VEC b = __builtin_shufflevector(x[2], x[3], ZIP_LOW) + __builtin_shufflevector(x[2], x[3], ZIP_HIGH);
    /* now the sums of 0 2 1 3 0 2 1 3 ... */
    a = __builtin_shufflevector(a, b, ZIP_LOW) + __builtin_shufflevector(a, b, ZIP_HIGH);
    for (int width = 4; width < VL; width *= 2)
        a = __builtin_shufflevector(a, a, ZIP_LOW) + __builtin_shufflevector(a, a, ZIP_HIGH);
    to[0] = a[0], to[1] = a[VL / 2], to[2] = a[VL / 4], to[3] = a[VL / 4 * 3];
#else
    for (int i = 0; i < 4; i++) {
        to[i] = 0;
        for (int j = 0; j < VL; j++)
            to[i] += x[i][j];
    }
#endif
}

/* to (cols, TILE) = from (rows, cols) transposed; rows and cols are multiples of VL. */
static inline void FN(transpose)(int rows, int64_t cols, const R *restrict from, R *restrict to)
{
#if BY_ISA_LEVEL >= 1
    /* Zipping row i with row i + VL/2, for all i, log2(VL) times over transposes a square of VL. */
    for (int r = 0; r < rows; r += VL) {
        for (int64_t c = 0; c < cols; c += VL) {
            VEC x[VL], y[VL];
            for (int i = 0; i < VL; i++)
                x[i] = *(const VEC *)(from + (r + i) * cols + c);
            for (int width = 1; width < VL; width *= 2) {
                for (int i = 0; i < VL / 2; i++) {
                    y[2 * i] = __builtin_shufflevector(x[i], x[i + VL / 2], ZIP_LOW);
                    y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + VL / 2], ZIP_HIGH);
                }
                memcpy(x, y, sizeof x);
            }
            for (int i = 0; i < VL; i++)
                *(VEC *)(to + (c + i) * TILE + r) = x[i];
        }
    }
#else
    for (int r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * TILE + r] = from[r * cols + c];
#endif
}

/* ---- products -------------------------------------------------------------------------------- */

/* c (MR, nv vectors) [+]= a (MR, depth) b (depth, nv vectors). The rows of a are lda apart or, with `turned`,
 * a is (depth, MR). */
static inline __attribute__((always_inline)) void FN(block)(const int nv, const bool turned, int depth,
                                                            const R *a, int64_t lda, const R *b, int64_t ldb,
                                                            R *c, int64_t ldc, bool add)
{
    VEC acc[MR][2];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < nv; j++)
            acc[i][j] = (VEC){0};
    for (int p = 0; p < depth; p++) {
        const R *ap = turned ? a + p * lda : a + p;
        const R *bp = b + p * ldb;
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < nv; j++)
                acc[i][j] += ap[turned ? i : i * lda] * *(const VEC *)(bp + j * VL);
    }
    for (int i = 0; i < MR; i++) {
        for (int j = 0; j < nv; j++) {
            VEC *to = (VEC *)(c + i * ldc + j * VL);
            if (add)
                acc[i][j] += *to;
            *to = acc[i][j];
        }
    }
}

/* The same for n columns, a multiple of VL. */
static inline __attribute__((always_inline)) void FN(panel)(const bool turned, int64_t n, int depth,
                                                            const R *a, int64_t lda, const R *b, int64_t ldb,
                                                            R *c, int64_t ldc, bool add)
{
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL)
        FN(block)(2, turned, depth, a, lda, b + j, ldb, c + j, ldc, add);
    if (j < n)
        FN(block)(1, turned, depth, a, lda, b + j, ldb, c + j, ldc, add);
}

/* st (keys, queries) = k (keys, D) qt (D, queries) */
static inline void FN(times_queries)(const tile *x, int dim, int64_t ld, const R *k, const R *qt, R *st)
{
    for (int s = 0; s < x->keys; s += MR) {
        int t = FN(first_query)(x, s);
        FN(panel)
        (false, FN(last_query)(x, s) - t, dim, k + s * ld, ld, qt + t, TILE, st + s * TILE + t, TILE, false);
    }
}

/* o (queries, D) [+]= p (keys, queries)^T v (keys, D) */
static inline void FN(sum_over_keys)(const tile *x, int64_t ld, const R *p, const R *v, R *o, bool add)
{
    for (int t = 0; t < x->queries; t += MR) {
        const int from = BY_MAX(t + x->trail + 1, 0), to = BY_MIN(t + MR + x->trim, x->keys);
        FN(panel)
        (true, ld, BY_MAX(to - from, 0), p + from * TILE + t, TILE, v + from * ld, ld, o + t * ld, ld, add);
    }
}

/* o (keys, D) += p (keys, queries) q (queries, D) */
static inline void FN(sum_over_queries)(const tile *x, int64_t ld, const R *p, const R *q, R *o)
{
    for (int s = 0; s < x->keys; s += MR) {
        const int t = BY_MAX(s - x->trim, 0), end = BY_MIN(s + MR - 1 - x->trail, x->queries);
        FN(panel)
        (false, ld, BY_MAX(end - t, 0), p + s * TILE + t, TILE, q + t * ld, ld, o + s * ld, ld, true);
    }
}

/* Scores to softmax weights with the log-sum-exp of each query; even (queries) is 1 / S (0 with empty_zero)
 * for those that attend to nothing, whose log-sum-exp is given as +infinity here, and 0 for all others. */
static inline void FN(scores_to_weights)(const tile *x, const R *restrict lse, const R *restrict even,
                                         R *restrict st)
{
    for (int s = 0; s < x->keys; s++) {
        R *restrict p = st + s * TILE;
#pragma omp simd
        for (int t = FN(first_query)(x, s); t < FN(last_query)(x, s); t++)
            p[t] = R_EXP(p[t] - lse[t]) + even[t];
    }
}

/* ---- shared between files -------------------------------------------------------------------- */

by_status FN(cpu_attention_tiles)(const attention *a); /* any shape (attention.c) */
by_status FN(cpu_attention_rows)(
    const attention *a); /* few queries, no dropout, no weights (attention_cached.c) */
by_status FN(cpu_attention_views)(const attention *a); /* where gr_node_views is not 0 (attention.c) */

#endif
