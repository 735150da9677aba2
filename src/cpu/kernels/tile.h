/* tile.h - shared by the attention kernels. Scores are stored transposed, st (keys, queries): a vector
 * register holds adjacent queries, so that the softmax over keys needs no sum across a register, and every
 * product of the forward and the backward pass is "rows of vectors, scaled by single numbers and added up",
 * one small routine. Only queries (and dy) are ever transposed, once per tile. */
#include "cpu/kernels/attention.h"

#ifndef BY_CPU_KERNELS_TILE_H
#define BY_CPU_KERNELS_TILE_H

/* Accumulators of the product: MR rows of two vectors. */
#if BY_ISA_LEVEL >= 2
#define MR 8
#else
#define MR 4
#endif
#define VEC FN(tile_vector)
#define VL  ((int)(BY_VECTOR_BYTES / sizeof(R)))

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
        const gr_spot key = gr_key_spot_of(&r, (int)x->s0 + s);
        for (int t = 0; t < x->width; t++)
            st[s * TILE + t] = gr_reaches(&r, query[t], key) ? st[s * TILE + t] : HIDDEN;
    }
}

/* Masks the pairs that a mask by single pairs excludes. */
static inline void FN(hide_single_pairs)(const attention *a, const tile *x, R *restrict st)
{
    for (int t = 0; t < x->queries; t++) {
        const int64_t row = pair_row(a, x->b, x->h, x->t0 + t) + x->s0;
        if (a->pairs.bytes) {
            const uint8_t *seen = (const uint8_t *)a->pairs.at + row;
            for (int s = 0; s < x->keys; s++)
                st[s * TILE + t] = seen[s] ? st[s * TILE + t] : HIDDEN;
        } else {
            const int32_t *seen = (const int32_t *)a->pairs.at + row;
            for (int s = 0; s < x->keys; s++)
                st[s * TILE + t] = seen[s] ? st[s * TILE + t] : HIDDEN;
        }
    }
}

/* The same by blocks. */
static inline void FN(hide_blocks)(const attention *a, const tile *x, R *restrict st)
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
    if (a->pairs.at && a->pairs.block == 1)
        FN(hide_single_pairs)(a, x, st);
    else if (a->pairs.at)
        FN(hide_blocks)(a, x, st);
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
