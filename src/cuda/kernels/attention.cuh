/* attention.cuh - what the attention kernels share: where queries, keys and values lie, which keys a query
 * sees, and which weights dropout keeps. */
#ifndef BY_CUDA_KERNELS_ATTENTION_CUH
#define BY_CUDA_KERNELS_ATTENTION_CUH

#include <float.h>

#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/kernel.cuh"

/* The score of a hidden key: finite, so that a row of nothing else is told from one with infinities in it,
 * which must come out as NaN. */
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

/* Rows of heads: element (b, t, h, d) lies at b * batch + t * row + h * dim + d. */
struct head_rows {
    void *at; /* NULL: not wanted */
    int64_t row, batch;
};

struct attention {
    int batch, queries, keys; /* keys: of every batch row, or those that a cache has room for */
    int heads, kv_heads, group, dim;
    by_mask mask;
    float scale;
    bool dropout;
    drop dropping;
    uint32_t rng;
    const uint64_t *random;
    const int32_t *key_mask; /* (batch, keys), NULL: all are seen */
    const int32_t *past;     /* (batch): keys before the first query, NULL: every batch row has `keys` keys */
    head_rows q, k, v, y;
    float *lse;    /* (batch, heads, queries), NULL: not wanted */
    void *weights; /* (batch, heads, queries, keys), NULL: not wanted */
};

/* ---- host ------------------------------------------------------------------------------------ */

static inline head_rows rows_of(const by_tensor *t, int64_t first)
{
    head_rows r = {NULL, 0, 0};
    if (t) {
        r.at = (char *)t->data + first * (int64_t)by_dtype_size(t->type);
        r.row = t->dim[2];
        r.batch = t->dim[1] * t->dim[2];
    }
    return r;
}

/* Queries, keys and values of three tensors, or side by side in the one of them that is packed. */
static inline void rows_of_qkv(const by_attention_attr *x, by_tensor *const *from, head_rows *q, head_rows *k,
                               head_rows *v)
{
    const int64_t d = x->head_dim;
    *q = rows_of(from[0], 0);
    *k = x->packed ? rows_of(from[0], x->heads * d) : rows_of(from[1], 0);
    *v = x->packed ? rows_of(from[0], (x->heads + x->kv_heads) * d) : rows_of(from[2], 0);
}

/* What the three ops have in common: in[0..2] and the attributes. */
static inline attention attention_of(const by_cuda_exec *x, const by_node *n)
{
    const by_attention_attr *p = (const by_attention_attr *)n->attr;
    attention a = {};
    a.batch = (int)n->in[0]->dim[0];
    a.queries = (int)n->in[0]->dim[1];
    a.keys = (int)(p->packed ? n->in[0]->dim[1] : n->in[1]->dim[1]);
    a.heads = p->heads;
    a.kv_heads = p->kv_heads;
    a.group = p->heads / p->kv_heads;
    a.dim = p->head_dim;
    a.mask = p->mask;
    a.scale = p->scale;
    a.dropout = p->dropout > 0;
    a.dropping = drop_of(p->dropout);
    a.rng = n->rng;
    a.random = x->random;
    rows_of_qkv(p, n->in, &a.q, &a.k, &a.v);
    return a;
}

/* Whether the matrix instructions can do it: rows in whole pieces of 16 bytes; and the largest product must
 * be the largest score. */
static inline bool fits_mma(const attention &a, by_dtype type)
{
    return type != BY_F32 && a.dim % 8 == 0 && a.dim <= 256 && a.scale > 0;
}

/* y, lse and weights of `a`, whose element type is `type` (attention.cu). */
by_status by_cuda_attend(by_cuda_exec *x, const attention &a, by_dtype type);

/* ---- masks: all that knows them is here ------------------------------------------------------ */

/* What the queries of one batch row see. */
struct sight {
    by_mask mask;
    int queries, keys;
    int shift;           /* query t stands at key t + shift */
    const int32_t *seen; /* (keys), NULL: all */
};
struct span {
    int from, to;
};

/* Positions in the cache before the first query, 0 for a count that cannot be. */
static __device__ __forceinline__ int past_of(const attention &a, int b)
{
    const int past = a.past[b];
    return past < 0 || past > a.keys - a.queries ? 0 : past;
}

static __device__ __forceinline__ sight sight_of(const attention &a, int b)
{
    const int keys = a.past ? past_of(a, b) + a.queries : a.keys;
    return sight{a.mask, a.queries, keys, keys - a.queries,
                 a.key_mask ? a.key_mask + (int64_t)b * a.keys : nullptr};
}

/* Whether query t sees key s. */
static __device__ __forceinline__ bool sees(const sight &v, int t, int s)
{
    return s < v.keys && (v.mask != BY_MASK_CAUSAL || s <= t + v.shift) && (!v.seen || v.seen[s]);
}

/* The score of a key that is not seen: where there is no key, less than any score. */
static __device__ __forceinline__ float score_unseen(const sight &v, int s)
{
    return s < v.keys ? HIDDEN : -INFINITY;
}

/* The keys outside of which queries [t0, t0 + n) see nothing. */
static __device__ __forceinline__ span keys_seen(const sight &v, int t0, int n)
{
    return span{0, v.mask == BY_MASK_CAUSAL ? max(min(v.keys, t0 + n + v.shift), 0) : v.keys};
}

/* The queries outside of which keys [s0, s0 + n) are not seen. */
static __device__ __forceinline__ span queries_seeing(const sight &v, int s0, int n)
{
    (void)n;
    return span{v.mask == BY_MASK_CAUSAL ? max(s0 - v.shift, 0) : 0, v.queries};
}

/* Whether every query from t0 on sees each of keys [s0, s0 + m). */
static __device__ __forceinline__ bool sees_all(const sight &v, int t0, int s0, int m)
{
    return !v.seen && s0 + m <= v.keys && (v.mask != BY_MASK_CAUSAL || s0 + m - 1 <= t0 + v.shift);
}

/* Whether there may be queries that see no key at all. Their weights are 1 / keys on every key, their
 * log-sum-exp is -infinity. */
template <bool EASY = false>
static __host__ __device__ __forceinline__ bool may_see_nothing(const attention &a)
{
    return !EASY && !a.past && (a.key_mask || (a.mask == BY_MASK_CAUSAL && a.queries > a.keys));
}

/* The common case, for which kernels are compiled once more without the rest: no dropout, no key mask, and
 * every query sees something. */
static inline bool is_easy(const attention &a)
{
    return !a.dropout && !a.key_mask && !may_see_nothing(a);
}

/* The same attention, and the compiler is told so. */
template <bool EASY> static __device__ __forceinline__ attention known(attention a)
{
    if (EASY) {
        a.dropout = false;
        a.key_mask = nullptr;
    }
    return a;
}

/* ---- device ---------------------------------------------------------------------------------- */

template <class T>
static __device__ __forceinline__ T *head_at(const attention &a, const head_rows &r, int b, int h)
{
    return (T *)r.at + b * r.batch + (int64_t)h * a.dim;
}

/* 2^x, good to two units in the last place; 0 where that is denormal. */
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
