/* attention.h - shared by the attention kernels, for every element type: where queries, keys and values lie,
 * groups of views, and which keys a query attends to. tile.h has the arithmetic. */
#ifndef BY_CPU_KERNELS_ATTENTION_H
#define BY_CPU_KERNELS_ATTENTION_H

#include <float.h>

#include "cpu/kernels/kernel.h"
#include "cpu/kernels/team.h"
#include "graph/views.h"

enum { TILE = 64 };       /* queries and keys of a tile */
enum { FEW_QUERIES = 4 }; /* up to here, single dot products are faster than tiles that are mostly padding, */
enum { MANY_KEYS = 1024 };    /* unless a pattern leaves out most of this many keys or more */
enum { FORK_WORK = 1 << 18 }; /* fewer multiplications run on one thread */

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
    if (r.on && !gr_reaches(&r, gr_spot_of(&r, (int)p), gr_key_spot_of(&r, (int)s)))
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
