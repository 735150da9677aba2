/* attention.cuh - shared by the attention kernels: the layout of queries, keys and values, which keys a query
 * attends to, and which weights dropout keeps. */
#ifndef BY_CUDA_KERNELS_ATTENTION_CUH
#define BY_CUDA_KERNELS_ATTENTION_CUH

#include <float.h>

#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/kernel.cuh"
#include "graph/reach.h"

/* The score of a masked key: finite, so that a fully masked row differs from one with infinities, which must
 * give NaN. */
#define HIDDEN (-FLT_MAX)
#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

#ifdef BY_CUDA_EMULATE
#define UNROLL
#define UNROLL_4
#else
#define UNROLL   _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#endif

/* Rows of heads: element (b, t, h, d) is at b * batch + t * row + h * dim + d. */
struct head_rows {
    void *at; /* NULL: not wanted */
    int64_t row, batch;
    const int32_t *rows; /* (B) batch row b is row rows[b] of `count` here; NULL: row b */
    int count;
    int64_t column; /* with columns: see `attention` */
};

/* A bias: entry i for query t of head (b, h) is at b * batch + h * head + t * row + i. Broadcast axes have
 * stride 0. */
struct bias_rows {
    const void *at; /* NULL: none */
    int64_t batch, head, row;
    int count, zero; /* by distance: entry `zero` is that of distance 0 */
    bool relative;
};
enum { BIASES = 2 }; /* by key, and by distance */

/* A mask for pairs of a query and a key, or of blocks of them, with the layout of a bias. */
struct pair_rows {
    const void *at; /* NULL: none */
    int64_t batch, head, row;
    int block;  /* queries and keys that an entry is for */
    bool bytes; /* u8, else i32 */
};

struct attention {
    int batch, queries, keys; /* keys: of every batch row, or the capacity of a cache */
    int heads, kv_heads, group, dim;
    /* if not 0, sequence b is column b % columns of batch row b / columns, head_rows.column apart */
    int columns;
    by_mask mask; /* none or causal */
    int lag;      /* under a causal mask, these keys at and before the own position are not visible */
    gr_reach reach;
    float scale;
    bool dropout;
    drop dropping;
    uint32_t rng;
    const uint64_t *random;
    bool empty_zero;         /* queries that attend to nothing give zeros */
    const int32_t *key_mask; /* (batch, keys), NULL: nothing is masked */
    const int32_t *prefix;   /* (batch): keys before this are visible despite the causal mask; NULL: none */
    const int32_t *past;     /* (batch): keys before the first query, NULL: every batch row has `keys` keys */
    pair_rows pairs;
    bias_rows bias[BIASES];
    head_rows q, k, v, y;
    float *lse;    /* (batch, heads, queries), NULL: not wanted */
    void *weights; /* (batch, heads, queries, keys), NULL: not wanted */
};

/* ---- host ------------------------------------------------------------------------------------ */

static inline head_rows rows_of(const by_tensor *t, int64_t first)
{
    head_rows r = {};
    if (t) {
        r.at = (char *)t->data + first * (int64_t)by_dtype_size(t->type);
        r.row = t->dim[2];
        r.batch = t->dim[1] * t->dim[2];
    }
    return r;
}

/* Queries, keys and values from three tensors, or packed side by side in one. */
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
    bias_rows r = {};
    if (t) {
        const int64_t row = t->dim[3], head = t->dim[2] * row, batch = t->dim[1] * head;
        r.at = t->data;
        r.batch = t->dim[0] > 1 ? batch : 0;
        r.head = t->dim[1] > 1 ? head : 0;
        r.row = t->dim[2] > 1 ? row : 0;
        r.count = (int)row;
        r.zero = zero;
        r.relative = relative;
    }
    return r;
}

static inline pair_rows pairs_of(const by_tensor *t, int block)
{
    const bias_rows r = bias_of(t, false, 0);
    return pair_rows{r.at, r.batch, r.head, r.row, BY_MAX(block, 1), t && t->type == BY_U8};
}

/* Shared by the three ops: the common inputs and the attributes. */
static inline attention attention_of(const cuda_exec *x, const gr_node *n)
{
    const gr_attention_attr *p = (const gr_attention_attr *)n->attr;
    const by_attention_spec &spec = p->spec;
    const by_tensor *key_mask = n->in[GR_ATT_KEY_MASK], *prefix = n->in[GR_ATT_PREFIX];
    attention a = {};
    a.batch = (int)n->in[0]->dim[0];
    a.queries = (int)n->in[0]->dim[1];
    a.keys = (int)(n->in[1] ? n->in[1]->dim[1] : n->in[0]->dim[1]);
    a.heads = spec.heads;
    a.kv_heads = spec.kv_heads;
    a.group = spec.heads / spec.kv_heads;
    a.dim = p->head_dim;
    a.mask = spec.mask == BY_MASK_NONE ? BY_MASK_NONE : BY_MASK_CAUSAL;
    a.reach = gr_reach_of(&spec.pattern);
    a.scale = spec.scale;
    a.dropout = spec.dropout > 0;
    a.dropping = drop_of(spec.dropout);
    a.empty_zero = spec.empty_zero;
    a.rng = n->rng;
    a.random = x->random;
    a.key_mask = key_mask ? (const int32_t *)key_mask->data : NULL;
    a.prefix = prefix ? (const int32_t *)prefix->data : NULL;
    a.pairs = pairs_of(n->in[GR_ATT_PAIR_MASK], spec.pair_block);
    a.bias[0] = bias_of(n->in[GR_ATT_BIAS], false, 0);
    a.bias[1] = bias_of(n->in[GR_ATT_RELATIVE], true, spec.relative_zero);
    rows_of_qkv(p, n->in, &a.q, &a.k, &a.v);
    return a;
}

/* y, lse and weights of `a`, whose element type is `type` (attention.cu). */
by_status cuda_attend(cuda_exec *x, const attention &a, by_dtype type);
/* The same for few queries, and whether they are few (attention_few.cu). */
bool cuda_takes_few(const attention &a);
by_status cuda_attend_few(cuda_exec *x, const attention &a, by_dtype type);

/* ---- masking: only the code here knows about it ---------------------------------------------- */

/* Kernels are compiled for three levels, so that the common cases do not pay for the rest: EASY without
 * dropout and key masks, where every query sees a key; MASKED with these; ANY with prefixes, patterns, pair
 * masks, biases and empty_zero too. BIASED is ANY without prefixes, patterns and pair masks, as in T5 and
 * Transformer-XL. */
enum { EASY, MASKED, ANY, BIASED };

/* The code of a level: that of BIASED is ANY's, of which known() removes most. */
template <int LEVEL> struct code_of {
    enum { LEVEL_OF = LEVEL == BIASED ? ANY : LEVEL };
};

/* What the queries of one batch row attend to; with a pair mask, those of one head. */
template <int LEVEL> struct sight {
    by_mask mask;
    int queries, keys;
    int shift;           /* query t is at key t + shift */
    const int32_t *seen; /* (keys), NULL: all */
    /* ANY only: */
    int prefix; /* under a causal mask, these are visible as well */
    gr_reach reach;
    const void *pairs; /* of this head; NULL: none */
    int64_t pair_row;
    int pair_block;
    bool pair_bytes;
};
struct span {
    int from, to;
};

/* Positions in the cache before the first query, 0 for an invalid count. */
static __device__ __forceinline__ int past_of(const attention &a, int b)
{
    const int past = a.past[b];
    return past < 0 || past > a.keys - a.queries ? 0 : past;
}

/* The same as seen by head h; -1: by all heads together. */
template <int LEVEL>
static __device__ __forceinline__ sight<LEVEL> as_head(sight<LEVEL> v, const attention &a, int b, int h)
{
    if constexpr (LEVEL == ANY) {
        if (h >= 0)
            v.reach = gr_reach_of_head(v.reach, h, a.heads);
        if (a.pairs.at)
            v.pairs = (const char *)a.pairs.at + (b * a.pairs.batch + max(h, 0) * a.pairs.head) *
                                                     (int64_t)(a.pairs.bytes ? 1 : sizeof(int32_t));
    }
    return v;
}

/* h: as in as_head. */
template <int LEVEL> static __device__ __forceinline__ sight<LEVEL> sight_of(const attention &a, int b, int h)
{
    const int keys = a.past ? past_of(a, b) + a.queries : a.keys;
    sight<LEVEL> v = {a.mask,
                      a.queries,
                      keys,
                      keys - a.queries - a.lag,
                      a.key_mask ? a.key_mask + (int64_t)b * a.keys : nullptr,
                      0,
                      {},
                      nullptr,
                      0,
                      1,
                      false};
    if constexpr (LEVEL == ANY) {
        v.prefix = a.prefix ? max(min(a.prefix[b], keys), 0) : 0;
        v.reach = a.reach;
        v.pair_row = a.pairs.row;
        v.pair_block = a.pairs.block;
        v.pair_bytes = a.pairs.bytes;
    }
    return as_head(v, a, b, h);
}

/* Entry (i, j) of the pair mask. */
static __device__ __forceinline__ bool pair_entry(const sight<ANY> &v, int i, int j)
{
    const int64_t at = i * v.pair_row + j;
    return v.pair_bytes ? ((const uint8_t *)v.pairs)[at] != 0 : ((const int32_t *)v.pairs)[at] != 0;
}

/* Returns true if the pair mask lets query t attend to key s. */
static __device__ __forceinline__ bool pair_seen(const sight<ANY> &v, int t, int s)
{
    if (!v.pairs || t >= v.queries || s >= v.keys)
        return true;
    return v.pair_block == 1 ? pair_entry(v, t, s) : pair_entry(v, t / v.pair_block, s / v.pair_block);
}

/* Returns true if a pair mask by blocks lets any of queries [t0, t0 + n) attend to any of keys [s0, s0 + m);
 * v is that of one head. A mask by single pairs is not looked through. */
template <int LEVEL>
static __device__ __forceinline__ bool pairs_any(const sight<LEVEL> &v, int t0, int n, int s0, int m)
{
    if constexpr (LEVEL == ANY) {
        if (!v.pairs || v.pair_block == 1)
            return true;
        const int rows = (min(t0 + n, v.queries) - 1) / v.pair_block,
                  columns = (min(s0 + m, v.keys) - 1) / v.pair_block;
        for (int i = t0 / v.pair_block; i <= rows; i++)
            for (int j = s0 / v.pair_block; j <= columns; j++)
                if (pair_entry(v, i, j))
                    return true;
        return false;
    }
    return true;
}

/* Returns true if one entry of the pair mask is that of all queries [t0, t0 + n) and keys [s0, s0 + m), and
 * lets them through. */
static __device__ __forceinline__ bool pairs_all(const sight<ANY> &v, int t0, int n, int s0, int m)
{
    const int i = t0 / v.pair_block, j = s0 / v.pair_block;
    return !v.pairs || (v.pair_block > 1 && (min(t0 + n, v.queries) - 1) / v.pair_block == i &&
                        (s0 + m - 1) / v.pair_block == j && pair_entry(v, i, j));
}

/* Returns true if the masks let query t attend to key s. */
template <int LEVEL> static __device__ __forceinline__ bool lets(const sight<LEVEL> &v, int t, int s)
{
    if constexpr (LEVEL == ANY) {
        if (!pair_seen(v, t, s))
            return false;
        if (s < v.prefix)
            return !v.seen || v.seen[s];
    }
    return s < v.keys && (v.mask != BY_MASK_CAUSAL || s <= t + v.shift) && (!v.seen || v.seen[s]);
}

/* Returns true if query t attends to key s. */
template <int LEVEL> static __device__ __forceinline__ bool sees(const sight<LEVEL> &v, int t, int s)
{
    if constexpr (LEVEL == ANY)
        if (v.reach.on &&
            !gr_reaches(&v.reach, gr_spot_of(&v.reach, t + v.shift), gr_key_spot_of(&v.reach, s)))
            return false;
    return lets(v, t, s);
}

/* The score of an invisible key; if there is no key, less than any score. */
template <int LEVEL> static __device__ __forceinline__ float score_unseen(const sight<LEVEL> &v, int s)
{
    return s < v.keys ? HIDDEN : -INFINITY;
}

/* The range of keys outside of which queries [t0, t0 + n) attend to nothing. */
template <int LEVEL> static __device__ __forceinline__ span keys_seen(const sight<LEVEL> &v, int t0, int n)
{
    if constexpr (LEVEL == ANY) {
        const int last = t0 + n - 1 + v.shift;
        const int end = v.mask == BY_MASK_CAUSAL ? max(min(v.keys, last + 1), v.prefix) : v.keys;
        const gr_stretch near = gr_reach_keys(&v.reach, t0 + v.shift, last, end);
        return span{near.from, near.to};
    }
    return span{0, v.mask == BY_MASK_CAUSAL ? max(min(v.keys, t0 + n + v.shift), 0) : v.keys};
}

/* The range of queries outside of which none attends to keys [s0, s0 + n). */
template <int LEVEL>
static __device__ __forceinline__ span queries_seeing(const sight<LEVEL> &v, int s0, int n)
{
    (void)n;
    if constexpr (LEVEL == ANY) {
        const int first = v.mask != BY_MASK_CAUSAL || s0 < v.prefix ? v.shift : max(s0, v.shift);
        const gr_stretch near = gr_reach_queries(&v.reach, s0, s0 + n - 1, first, v.queries + v.shift);
        return span{near.from - v.shift, near.to - v.shift};
    }
    return span{v.mask == BY_MASK_CAUSAL ? max(s0 - v.shift, 0) : 0, v.queries};
}

/* Returns true if the key mask lets all of keys [s0, s0 + m), which exist, through; at the lower levels, if
 * there is none. All lanes of a warp ask together. */
template <int LEVEL> static __device__ __forceinline__ bool keys_all(const sight<LEVEL> &v, int s0, int m)
{
    if (LEVEL < ANY || !v.seen)
        return !v.seen;
    bool all = true;
    for (int s = s0 + (int)(threadIdx.x & 31); s < s0 + m; s += 32)
        all = all && v.seen[s];
    return __all_sync(0xffffffffu, all);
}

/* Returns true if each of queries [t0, t0 + n) attends to each of keys [s0, s0 + m). */
template <int LEVEL>
static __device__ __forceinline__ bool sees_all(const sight<LEVEL> &v, int t0, int n, int s0, int m)
{
    if constexpr (LEVEL == ANY)
        if (!gr_reach_covers(&v.reach, t0 + v.shift, t0 + n - 1 + v.shift, s0, s0 + m - 1) ||
            s0 + m > v.keys || t0 >= v.queries || !pairs_all(v, t0, n, s0, m))
            return false;
    return keys_all(v, s0, m) && s0 + m <= v.keys && (v.mask != BY_MASK_CAUSAL || s0 + m - 1 <= t0 + v.shift);
}

/* Returns true if the pattern lets any of queries [t0, t0 + n) attend to any of keys [s0, s0 + m). */
template <int LEVEL>
static __device__ __forceinline__ bool sees_any(const sight<LEVEL> &v, int t0, int n, int s0, int m)
{
    if constexpr (LEVEL == ANY)
        return !v.reach.on || gr_reach_meets(&v.reach, t0 + v.shift, t0 + n - 1 + v.shift, s0, s0 + m - 1);
    return true;
}

/* The same, if a pair mask by blocks lets them too; v is that of one head. */
template <int LEVEL>
static __device__ __forceinline__ bool meets(const sight<LEVEL> &v, int t0, int n, int s0, int m)
{
    return sees_any(v, t0, n, s0, m) && pairs_any(v, t0, n, s0, m);
}

/* meets() and sees_all() of head h; v is that of all heads together. Where all see the same, nothing
 * is derived for each tile. */
template <int LEVEL>
static __device__ __forceinline__ bool head_meets(const sight<LEVEL> &v, const attention &a, int b, int h,
                                                  int t0, int n, int s0, int m)
{
    return LEVEL == ANY && (v.reach.split || v.pairs) ? meets(as_head(v, a, b, h), t0, n, s0, m)
                                                      : sees_any(v, t0, n, s0, m);
}

template <int LEVEL>
static __device__ __forceinline__ bool head_sees_all(const sight<LEVEL> &v, const attention &a, int b, int h,
                                                     int t0, int n, int s0, int m)
{
    return LEVEL == ANY && (v.reach.split || v.pairs) ? sees_all(as_head(v, a, b, h), t0, n, s0, m)
                                                      : sees_all(v, t0, n, s0, m);
}

template <int LEVEL> static __device__ __forceinline__ bool has_pair_blocks(const sight<LEVEL> &v)
{
    return LEVEL == ANY && v.pairs && v.pair_block > 1;
}

/* Of the tiles of m keys at s0, s0 + m, ... before `end`, returns the first to which any of queries [t0, t0 +
 * n) may attend. Entries of a pair mask lie in memory: the lanes of a warp look at 32 tiles at once. */
template <int LEVEL>
static __device__ __forceinline__ int next_keys(const sight<LEVEL> &v, int t0, int n, int s0, int m, int end)
{
    if constexpr (LEVEL == ANY) {
        s0 = gr_reach_skip(&v.reach, t0 + v.shift, s0, m);
        for (; has_pair_blocks(v) && s0 < end; s0 += 32 * m) {
            const int at = s0 + (int)(threadIdx.x & 31) * m;
            const uint32_t found = __ballot_sync(0xffffffffu, at < end && meets(v, t0, n, at, m));
            if (found)
                return s0 + (__ffs((int)found) - 1) * m;
        }
        while (s0 < end && !sees_any(v, t0, n, s0, m))
            s0 += m;
    }
    return s0;
}

/* Returns true if some queries may attend to no key at all and have weights: 1 / keys on every key. Their
 * log-sum-exp is -infinity. */
template <int LEVEL> static __host__ __device__ __forceinline__ bool may_see_nothing(const attention &a)
{
    if constexpr (LEVEL == ANY)
        return !a.empty_zero && (a.key_mask || a.pairs.at || !gr_reaches_itself(&a.reach) ||
                                 (!a.past && a.queries > a.keys && (a.mask == BY_MASK_CAUSAL || a.reach.on)));
    return LEVEL == MASKED && !a.past && (a.key_mask || (a.mask == BY_MASK_CAUSAL && a.queries > a.keys));
}

static __host__ __device__ __forceinline__ bool has_bias(const attention &a)
{
    return a.bias[0].at || a.bias[1].at;
}

static inline int level_of(const attention &a)
{
    if (a.prefix || a.reach.on || has_bias(a) || a.pairs.at || a.empty_zero || (a.past && a.key_mask))
        return ANY;
    return a.dropout || may_see_nothing<MASKED>(a) ? MASKED : EASY;
}

/* Whether kernels of level BIASED suffice for a node of level ANY. */
static inline bool is_biased(const attention &a)
{
    return !a.prefix && !a.past && !a.reach.on && !a.pairs.at && !a.columns && !a.lag;
}

/* The same attention, with absent features made known to the compiler. */
template <int LEVEL> static __device__ __forceinline__ attention known(attention a)
{
    if (LEVEL == EASY) {
        a.dropout = false;
        a.key_mask = nullptr;
    }
    if (LEVEL == BIASED) {
        a.prefix = a.past = nullptr;
        a.reach = gr_reach{false, 1, 0, 0, 0, 0, 0, false, 0};
        a.pairs = pair_rows{nullptr, 0, 0, 0, 1, false};
        a.columns = a.lag = 0;
    }
    return a;
}

/* Returns true if the matrix instructions can be used: rows in whole pieces of 16 bytes, and the largest
 * product must be the largest score. */
static inline bool fits_mma(const attention &a, by_dtype type)
{
    return type != BY_F32 && a.dim % 8 == 0 && a.dim <= (level_of(a) == ANY ? 128 : 256) && a.scale > 0;
}

/* ---- biases ---------------------------------------------------------------------------------- */

/* The entry, before clamping, of key s for the query at position p. */
static __device__ __forceinline__ int bias_entry(const bias_rows &x, int p, int s)
{
    return x.relative ? s - p + x.zero : s;
}

/* The rows of one head of each bias; NULL: none. */
template <class T> struct bias_heads {
    const T *at[BIASES];
};
template <class T> static __device__ __forceinline__ bias_heads<T> bias_at(const attention &a, int b, int h)
{
    bias_heads<T> r;
    UNROLL
    for (int i = 0; i < BIASES; i++)
        r.at[i] = a.bias[i].at ? (const T *)a.bias[i].at + b * a.bias[i].batch + h * a.bias[i].head : nullptr;
    return r;
}

/* What the biases, whose rows of this head are `rows`, add to the score of query t and key s, in powers of 2.
 * A score that becomes infinite is effectively masked. Beyond the last query and key the value does not
 * matter. */
template <class T>
static __device__ __forceinline__ float bias_for(const attention &a, const sight<ANY> &see,
                                                 const bias_heads<T> &rows, int t, int s)
{
    float x = 0;
    UNROLL
    for (int k = 0; k < BIASES; k++) {
        const bias_rows &bias = a.bias[k];
        const int i = max(min(bias_entry(bias, t + see.shift, s), bias.count - 1), 0);
        if (rows.at[k])
            x += to_float(rows.at[k][min(t, a.queries - 1) * bias.row + i]);
    }
    return fmaxf(x * LOG2_E, x < HIDDEN ? x : HIDDEN);
}

/* The factor that turns products into exponents; with a bias, it has already been applied (add_bias). */
template <int LEVEL> static __device__ __forceinline__ float exponent_factor(const attention &a)
{
    return LEVEL == ANY && has_bias(a) ? 1 : a.scale * LOG2_E;
}

/* ---- device ---------------------------------------------------------------------------------- */

template <class T>
static __device__ __forceinline__ T *head_at(const attention &a, const head_rows &r, int b, int h)
{
    if (a.columns)
        return (T *)r.at + b / a.columns * r.batch + b % a.columns * r.column + (int64_t)h * a.dim;
    const int64_t row = r.rows ? min(max(r.rows[b], 0), r.count - 1) : b;
    return (T *)r.at + row * r.batch + (int64_t)h * a.dim;
}

/* 2^x, accurate to two units in the last place; 0 if the result is denormal. */
static __device__ __forceinline__ float power2(float x)
{
#ifdef BY_CUDA_EMULATE
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&acc)[M][N][4])
{
    UNROLL
    for (int i = 0; i < M * N * 4; i++)
        acc[i / 4 / N][i / 4 % N][i % 4] = 0;
}

/* Bit i: weight (t + i, s) of head (b, h) is kept; t is a multiple of 4. The random number of weight (t, s)
 * is that of element ((b H + h) S + s) T' + t, T' being T rounded up to a multiple of 4. */
static __device__ __forceinline__ uint32_t kept4(const attention &a, int64_t head, int t, int s)
{
    const int64_t quads = (a.queries + 3) / 4;
    const uint4 r = random4(a.random, a.rng, (uint64_t)((head * a.keys + s) * quads + t / 4));
    const uint32_t limit = a.dropping.threshold;
    return (uint32_t)(r.x >= limit) | (uint32_t)(r.y >= limit) << 1 | (uint32_t)(r.z >= limit) << 2 |
           (uint32_t)(r.w >= limit) << 3;
}

#endif
