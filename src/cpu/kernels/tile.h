/* tile.h - what the attention kernels share. Scores are kept turned round, st (keys, queries): a vector
 * register holds neighbouring queries, so that the softmax over keys needs no sum across a register, and
 * every product of the forward and the backward pass is "rows of vectors, scaled by single numbers and added
 * up", one small routine. Only queries (and dy) are ever transposed, once per tile.
 *
 * The first half knows no element type; the second is included once for each. */
#ifndef BY_CPU_KERNELS_TILE_H
#define BY_CPU_KERNELS_TILE_H

#include <float.h>

#include "cpu/kernels/kernel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { TILE = 64 };           /* queries and keys of a tile */
enum { FEW_QUERIES = 4 };     /* up to here, one dot product at a time beats tiles that are mostly padding */
enum { FORK_WORK = 1 << 18 }; /* multiplications below which one thread does it all */

/* Accumulators of the product: MR rows of two vectors. */
#if BY_ISA_LEVEL >= 2
#define MR 8
#else
#define MR 4
#endif
#define VEC FN(tile_vector)
#define VL  ((int)(BY_VECTOR_BYTES / sizeof(R)))

#define ROUND_UP(n, step) (((n) + (step)-1) / (step) * (step))

/* The score of a hidden key, as PyTorch models write it: finite, so that a row of nothing else is told from
 * one with infinities in it, which must come out as NaN. */
#define HIDDEN ((R)(sizeof(R) == 8 ? -DBL_MAX : -(double)FLT_MAX))
/* The log-sum-exp kept for a query that sees no key at all. Its weights are 1 / S on every key. */
#define SEES_NOTHING ((R)-INFINITY)

/* Rows of heads: element (b, t, h, d) lies at b * batch + t * row + h * D + d. */
typedef struct head_rows {
    void *at;
    int64_t row, batch;
} head_rows;

typedef struct attention {
    const by_exec *e;
    const by_node *n;
    int64_t batch, queries, keys; /* keys: of the longest row, when past is given */
    int heads, kv_heads, group, dim;
    by_mask mask;
    double scale;
    float dropout;
    const int32_t *key_mask; /* (batch, keys), NULL: all are seen */
    const int32_t *past;     /* (batch), NULL: every batch row has `keys` keys */
    head_rows q, k, v, y;
    void *lse, *weights; /* NULL: not wanted */
} attention;

/* One tile: queries [t0, t0 + queries) of head (b, h) against keys [s0, s0 + keys). */
typedef struct tile {
    int64_t b, t0, s0;
    int h, queries, width, keys; /* width: queries rounded up to whole vectors */
    int diagonal;                /* key s of the tile is seen by query t when s <= t + diagonal */
    int trim;                    /* what lies beyond this diagonal is neither computed nor read */
} tile;

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
static inline attention attention_of(const by_exec *e, const by_node *n)
{
    const by_attention_attr *x = n->attr;
    attention a = {.e = e,
                   .n = n,
                   .batch = n->in[0]->dim[0],
                   .queries = n->in[0]->dim[1],
                   .keys = x->packed ? n->in[0]->dim[1] : n->in[1]->dim[1],
                   .heads = x->heads,
                   .kv_heads = x->kv_heads,
                   .group = x->heads / x->kv_heads,
                   .dim = x->head_dim,
                   .mask = x->mask,
                   .scale = x->scale,
                   .dropout = x->dropout};
    rows_of_qkv(x, n->in, &a.q, &a.k, &a.v);
    return a;
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

/* Threads worth waking for `tasks` independent pieces of work. */
static inline int threads_for(const attention *a, int64_t tasks, double work)
{
    int64_t n = work < FORK_WORK ? 1 : BY_MIN(a->e->threads, tasks);
    return n < 1 ? 1 : (int)n;
}

/* ---- masks: these three and finish_scores are all that knows them ---------------------------- */

/* Whether query t of batch row b sees key s. */
static inline bool sees(const attention *a, int64_t b, int64_t t, int64_t s)
{
    if (a->mask == BY_MASK_CAUSAL && s > keys_of(a, b) - a->queries + t)
        return false;
    return !a->key_mask || a->key_mask[b * a->keys + s];
}

/* How many keys, from the first, queries [t0, t0 + n) of batch row b may see. At least 1, so that a query
 * that sees nothing meets a hidden key. */
static inline int64_t keys_seen(const attention *a, int64_t b, int64_t t0, int64_t n)
{
    int64_t keys = keys_of(a, b);
    if (a->mask != BY_MASK_CAUSAL)
        return keys;
    int64_t last = keys - a->queries + t0 + n;
    return last < 1 ? 1 : BY_MIN(last, keys);
}

/* The tile of t0 and s0; with `whole`, for queries that see nothing, no part of it is left out. */
static inline tile tile_at(const attention *a, int64_t b, int h, int64_t t0, int64_t s0, int lanes,
                           bool whole)
{
    int64_t keys = keys_of(a, b), diagonal = TILE;
    tile x = {.b = b, .t0 = t0, .s0 = s0, .h = h};
    x.queries = (int)BY_MIN(a->queries - t0, TILE);
    x.width = ROUND_UP(x.queries, lanes);
    x.keys = (int)BY_MIN(keys - s0, TILE);
    if (a->mask == BY_MASK_CAUSAL)
        diagonal = keys - a->queries + t0 - s0;
    x.diagonal = (int)(diagonal > TILE ? TILE : diagonal < -TILE ? -TILE : diagonal);
    x.trim = whole ? TILE : x.diagonal;
    if (s0 == 0)
        x.trim = BY_MAX(x.trim, 0); /* every query meets the first key */
    return x;
}

#endif

#ifdef T_NAME

typedef R VEC __attribute__((vector_size(BY_VECTOR_BYTES), aligned(sizeof(R)), may_alias));

/* The first query of the part of a tile that is computed for key s, the same for MR keys together. */
static inline int FN(first_query)(const tile *x, int s)
{
    const int step = VL > MR ? VL : MR;
    int first = (s & ~(MR - 1)) - x->trim;
    return first <= 0 ? 0 : BY_MIN(first / step * step, x->width);
}

/* Products to scores: where biases would be added, and what the masks hide is hidden. What sees() says, by
 * rows. */
static inline void FN(finish_scores)(const attention *a, const tile *x, R *restrict st)
{
    const int32_t *seen = a->key_mask ? a->key_mask + x->b * a->keys + x->s0 : NULL;
    for (int s = 0; s < x->keys; s++) {
        int hidden = seen && !seen[s] ? x->width : BY_MIN(s - x->diagonal, x->width);
        for (int t = 0; t < hidden; t++)
            st[s * TILE + t] = HIDDEN;
    }
}

/* keep (keys, queries): 0 for a dropped weight, 1 / (1 - p) for a kept one. The random number of weight
 * (b, h, t, s) is that of element ((b H + h) S + s) T' + t, T' being T rounded up to a multiple of 4. */
static inline void FN(draw_dropout)(const attention *a, const tile *x, R *restrict keep)
{
    const uint32_t threshold = by_drop_threshold(a->dropout);
    const R factor = (R)(1.0 / (1.0 - (double)a->dropout));
    const uint64_t row = (uint64_t)ROUND_UP(a->queries, 4);
    uint32_t buffer[BY_RANDOM_SPAN + 4 * BY_LANES];
    for (int s = 0; s < x->keys; s++) {
        uint64_t first = (uint64_t)((x->b * a->heads + x->h) * a->keys + x->s0 + s) * row + (uint64_t)x->t0;
        const uint32_t *u = by_random_span(a->e, a->n, first, x->width, buffer);
        for (int t = 0; t < x->width; t++)
            keep[s * TILE + t] = u[t] >= threshold ? factor : 0;
    }
}

/* ---- rows between memory and working space (rows, ld), ld: the head's size rounded up to vectors --- */

static inline T *FN(head_at)(const attention *a, const head_rows *r, int64_t b, int64_t t, int h)
{
    return (T *)r->at + b * r->batch + t * r->row + (int64_t)h * a->dim;
}

/* to = from times factor; f16 by the processor's own conversion where it has one */
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

/* Load n rows times factor; zeros to the right of them up to ld, and below them up to `rows` rows. */
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

/* c (MR, nv vectors) [+]= a (MR, depth) b (depth, nv vectors). a has rows at distance lda, or, turned, lies
 * (depth, MR). */
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
        FN(panel)(false, x->width - t, dim, k + s * ld, ld, qt + t, TILE, st + s * TILE + t, TILE, false);
    }
}

/* o (queries, D) [+]= p (keys, queries)^T v (keys, D) */
static inline void FN(sum_over_keys)(const tile *x, int64_t ld, const R *p, const R *v, R *o, bool add)
{
    for (int t = 0; t < x->queries; t += MR) {
        int depth = t + MR + x->trim;
        depth = depth < 0 ? 0 : BY_MIN(depth, x->keys);
        FN(panel)(true, ld, depth, p + t, TILE, v, ld, o + t * ld, ld, add);
    }
}

/* o (keys, D) += p (keys, queries) q (queries, D) */
static inline void FN(sum_over_queries)(const tile *x, int64_t ld, const R *p, const R *q, R *o)
{
    for (int s = 0; s < x->keys; s += MR) {
        int t = BY_MIN(BY_MAX(s - x->trim, 0), x->queries);
        FN(panel)(false, ld, x->queries - t, p + s * TILE + t, TILE, q + t * ld, ld, o + s * ld, ld, true);
    }
}

/* Scores to softmax weights by the log-sum-exp of each query; even (queries) is 1 / S for those that see
 * nothing, whose log-sum-exp is given as +infinity here, and 0 for all others. */
static inline void FN(scores_to_weights)(const tile *x, const R *restrict lse, const R *restrict even,
                                         R *restrict st)
{
    for (int s = 0; s < x->keys; s++) {
        R *restrict p = st + s * TILE;
#pragma omp simd
        for (int t = FN(first_query)(x, s); t < x->width; t++)
            p[t] = R_EXP(p[t] - lse[t]) + even[t];
    }
}

/* ---- what the files offer each other --------------------------------------------------------- */

by_status FN(by_attention_tiles)(const attention *a); /* any shape (attention.c) */
by_status
    FN(by_attention_rows)(const attention *a); /* few queries, no dropout, no weights (attention_cached.c) */

#endif
