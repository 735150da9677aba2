/* gemm.c - our own matrix products, for cases that the libraries do not support or that are slow there.
 *
 * Packed: c is computed in tiles of MR x NR held in registers, from panels of a and b that are copied into
 * the order in which the tile reads them, and converted to R on the way (Goto and van de Geijn 2008). Skinny:
 * with few rows every element of b is used only a few times; it is read once, in order, and never copied.
 *
 * The order in which every element of c is summed depends only on the description, not on the number of
 * threads. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/team.h"
#include "cpu/gemm_select.h"
#if BY_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

/* Rows of a tile: with two vectors of columns, as many accumulators as fit in registers. */
#if BY_ISA_LEVEL >= 2
#define MR 14
#elif BY_ISA_LEVEL == 1
#define MR 6
#else
#define MR 4
#endif

enum {
    KC = 256,          /* depth of a block: a panel of a, MR x KC, stays in the first-level cache */
    MC = MR * 64,      /* rows of a block */
    NC = 1024,         /* columns of a block */
    GROUP = 256,       /* columns of a task: KC x GROUP of b stays in the second-level cache */
    STRIP = 16384,     /* accumulators of a skinny product that stay in the cache, over all rows */
    PARTS = 8,         /* parts of k in a skinny product, so that a thread reads one long stretch of b */
    DOTS = 64,         /* results that a skinny product stores at a time */
    ROWS = 4,          /* rows of x that go through the registers together */
    COLS = 4,          /* dot products that go through the registers together */
    FAR = 16384,       /* bytes of b that may be prefetched before the current ones are done */
    AHEAD = 4096,      /* prefetch distance of a single stream, in bytes */
    UNIT = 64,         /* columns handed to threads in a skinny product */
    FORK_WORK = 65536, /* fewer multiplications are not worth a second thread */
};

typedef float vec_float __attribute__((vector_size(BY_VECTOR_BYTES), aligned(4), may_alias));
typedef double vec_double __attribute__((vector_size(BY_VECTOR_BYTES), aligned(8), may_alias));

/* Loads one vector of R from memory of any alignment. */
static inline vec_float load_f32(const float *p)
{
    return *(const vec_float *)p;
}

static inline vec_float load_bf16(const uint16_t *p)
{
#if BY_ISA_LEVEL >= 2
    return (vec_float)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif BY_ISA_LEVEL == 1
    return (vec_float)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    vec_float v = {0};
    for (int i = 0; i < BY_VECTOR_BYTES / 4; i++)
        v[i] = base_bf16_to_f32(p[i]);
    return v;
#endif
}

static inline vec_float load_f16(const uint16_t *p)
{
#if BY_ISA_LEVEL >= 2
    return (vec_float)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif BY_ISA_LEVEL == 1
    return (vec_float)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    vec_float v = {0};
    for (int i = 0; i < BY_VECTOR_BYTES / 4; i++)
        v[i] = cpu_f16_load(p[i]);
    return v;
#endif
}

#if BY_ISA_LEVEL == 0
static inline vec_double load_f64(const double *p)
{
    return *(const vec_double *)p;
}
#endif

#define VEC          BY_PASTE(vec, R)
#define LOAD         BY_PASTE(load, T_NAME)
#define LANES        ((int)(sizeof(VEC) / sizeof(R)))
#define JOB          FN(job)
#define NR           (2 * LANES)
#define INLINE       static inline __attribute__((always_inline))
#define ROUND(x, to) (((x) + (to)-1) / (to) * (to))

static inline int worth_threads(const cpu_gemm_desc *d, int threads)
{
    return d->batch * d->m * d->n * d->k < FORK_WORK ? 1 : threads;
}

#define BY_TEMPLATE "cpu/kernels/gemm.c"
#include "cpu/kernels/each_type.h"

/* ---- the table for gemm_select.c ------------------------------------------------------------- */

#if BY_ISA_LEVEL == 0
#define CASE_F64(call) \
    case BY_F64:       \
        call(f64);     \
        break;
#else
#define CASE_F64(call)
#endif
#define SWITCH(type, call) \
    switch (type) {        \
    case BY_F32:           \
        call(f32);         \
        break;             \
    case BY_BF16:          \
        call(bf16);        \
        break;             \
    case BY_F16:           \
        call(f16);         \
        break;             \
        CASE_F64(call)     \
    default:               \
        break;             \
    }

static size_t scratch_bytes(const cpu_gemm_desc *d, int threads)
{
    size_t bytes = 0;
#define CALL(type) bytes = BY_TYPED(scratch, type)(d, threads)
    SWITCH(d->ab_type, CALL)
#undef CALL
    return bytes;
}

static void run(const cpu_gemm_desc *d, int threads, const void *a, const void *b, const void *bias, void *c,
                void *scratch)
{
#define CALL(type) BY_TYPED(product, type)(d, threads, a, b, bias, c, scratch)
    SWITCH(d->ab_type, CALL)
#undef CALL
}

static void finish(const cpu_gemm_desc *d, int threads, const void *bias, void *c)
{
    const int64_t rows = d->batch * d->m;
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * d->n > BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        float *row = (float *)c + r / d->m * d->stride_c + r % d->m * d->ldc;
        if (d->bias && d->bias_type == BY_F32)
            for (int64_t j = 0; j < d->n; j++)
                row[j] += ((const float *)bias)[j];
        else if (d->bias)
            for (int64_t j = 0; j < d->n; j++) {
                float b;
                base_convert(&b, BY_F32, (const char *)bias + j * (int64_t)by_dtype_size(d->bias_type),
                             d->bias_type, 1);
                row[j] += b;
            }
        BY_TYPED(activate, f32)(d->act, d->n, row, row);
    }
}

const cpu_gemm_own BY_PASTE(cpu_gemm_own, BY_ISA) = {
    .scratch = scratch_bytes, .run = run, .finish = finish, .stored = &BY_PASTE(cpu_gemm_stored, BY_ISA)};

#else /* ---- typed ----------------------------------------------------------------------------------- */

#include "cpu/kernels/act.h"

/* Shared by the threads of a team. */
typedef struct FN(job) {
    const cpu_gemm_desc *d;
    const T *a, *b;
    const R *bias; /* NULL: none */
    void *c;
    R *pack_a, *pack_b;
    R *part; /* sums of the previous blocks, if c cannot hold them */
} FN(job);

static R FN(get)(const cpu_gemm_desc *d, const void *c, int64_t at)
{
    return d->c_type == T_ID ? LD(((const T *)c)[at]) : ((const R *)c)[at];
}

/* c[at..at + n) = act(v + bias); overwrites v. */
static inline void FN(store)(const cpu_gemm_desc *d, int64_t n, R *v, const R *bias, void *c, int64_t at)
{
    if (bias)
        for (int64_t i = 0; i < n; i++)
            v[i] += bias[i];
    if (d->act != BY_ACT_NONE)
        FN(activate)(d->act, n, v, v);
    if (d->c_type == T_ID) {
        T *y = (T *)c + at;
        for (int64_t i = 0; i < n; i++)
            y[i] = ST(v[i]);
    } else {
        memcpy((R *)c + at, v, (size_t)n * sizeof(R));
    }
}

/* ---- packed ---------------------------------------------------------------------------------- */

/* Packs a panel of w lines (rows of a, columns of b) and depth k, padded with zeros to `width` lines: out[p *
 * width + i]. Element (i, p) is at src[p * ld + i] if lines are adjacent, otherwise at src[i * ld + p]. */
INLINE void FN(pack)(int width, int64_t w, int64_t k, const T *restrict src, int64_t ld, bool adjacent,
                     R *restrict out)
{
    if (w < width && k > 0)
        memset(out, 0, (size_t)(k * width) * sizeof(R));
    if (adjacent && w == width)
        for (int64_t p = 0; p < k; p++)
            for (int i = 0; i < width; i++)
                out[p * width + i] = LD(src[p * ld + i]);
    else if (adjacent)
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < w; i++)
                out[p * width + i] = LD(src[p * ld + i]);
    else
        for (int64_t p0 = 0; p0 < k; p0 += 16) /* 16 deep, so that the output stays in the cache */
            for (int64_t i = 0; i < w; i++)
                for (int64_t p = p0; p < BY_MIN(p0 + 16, k); p++)
                    out[p * width + i] = LD(src[i * ld + p]);
}

/* tile (MR, NR) = panel of a (k, MR)^T times panel of b (k, NR). */
static void FN(tile)(int64_t k, const R *restrict a, const R *restrict b, R *restrict tile)
{
    VEC acc[MR][2] = {{{0}}};
    for (int64_t p = 0; p < k; p++) {
        VEC b0 = *(const VEC *)(b + p * NR), b1 = *(const VEC *)(b + p * NR + LANES);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            acc[i][0] += b0 * a[p * MR + i];
            acc[i][1] += b1 * a[p * MR + i];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        *(VEC *)(tile + i * NR) = acc[i][0];
        *(VEC *)(tile + i * NR + LANES) = acc[i][1];
    }
}

/* Stores the valid part (rows, cols) of a tile: adds it to the sum of the previous blocks, and applies bias
 * and activation after the last. */
static void FN(merge)(const JOB *j, R *tile, int64_t row, int64_t col, int64_t rows, int64_t cols, R *part,
                      int64_t ld_part, bool first, bool last)
{
    const cpu_gemm_desc *d = j->d;
    for (int64_t i = 0; i < rows; i++) {
        R *v = tile + i * NR, *sum = part + i * ld_part;
        int64_t at = (row + i) * d->ldc + col;
        if (!first)
            for (int64_t q = 0; q < cols; q++)
                v[q] += sum[q];
        else if (d->accumulate)
            for (int64_t q = 0; q < cols; q++)
                v[q] += FN(get)(d, j->c, at + q);
        if (last)
            FN(store)(d, cols, v, j->bias ? j->bias + col : NULL, j->c, at);
        else
            memcpy(sum, v, (size_t)cols * sizeof(R));
    }
}

/* Processes one block of depth kc: packs its panels, synchronises, multiplies. Panels and tasks are
 * distributed evenly over the team. */
static void FN(block)(const JOB *j, int64_t i0, int64_t mc, int64_t j0, int64_t nc, int64_t p0, int64_t kc,
                      int id, int team)
{
    const cpu_gemm_desc *d = j->d;
    const int64_t panels_a = (mc + MR - 1) / MR, panels_b = (nc + NR - 1) / NR, panels = panels_a + panels_b;
    for (int64_t q = panels * id / team; q < panels * (id + 1) / team; q++) {
        if (q < panels_a) {
            int64_t i = i0 + q * MR;
            const T *src = d->ta ? j->a + p0 * d->lda + i : j->a + i * d->lda + p0;
            FN(pack)(MR, BY_MIN(MR, i0 + mc - i), kc, src, d->lda, d->ta, j->pack_a + q * MR * kc);
        } else {
            int64_t i = j0 + (q - panels_a) * NR;
            const T *src = d->tb ? j->b + i * d->ldb + p0 : j->b + p0 * d->ldb + i;
            FN(pack)
            (NR, BY_MIN(NR, j0 + nc - i), kc, src, d->ldb, !d->tb, j->pack_b + (q - panels_a) * NR * kc);
        }
    }
    cpu_team_wait(team);

    /* the sums of previous blocks are kept in c itself if its type allows */
    R *part = d->c_type == gr_acc_type(T_ID) ? (R *)j->c + i0 * d->ldc + j0 : j->part;
    const int64_t ld_part = d->c_type == gr_acc_type(T_ID) ? d->ldc : NC;
    const int64_t groups = (nc + GROUP - 1) / GROUP, tasks = groups * panels_a;
    R tile[MR * NR] __attribute__((aligned(64)));
    for (int64_t t = tasks * id / team; t < tasks * (id + 1) / team; t++) {
        const int64_t i = t % panels_a * MR, end = BY_MIN(nc, (t / panels_a + 1) * GROUP);
        for (int64_t q = t / panels_a * GROUP; q < end; q += NR) {
            FN(tile)(kc, j->pack_a + i * kc, j->pack_b + q * kc, tile);
            FN(merge)
            (j, tile, i0 + i, j0 + q, BY_MIN(MR, mc - i), BY_MIN(NR, nc - q), part + i * ld_part + q, ld_part,
             p0 == 0, p0 + kc == d->k);
        }
    }
    cpu_team_wait(team);
}

static void FN(packed)(const JOB *j, int id, int team)
{
    const cpu_gemm_desc *d = j->d;
    /* If k = 0, runs once, for bias and activation. */
    for (int64_t i = 0; i < d->m; i += MC)
        for (int64_t q = 0; q < d->n; q += NC)
            for (int64_t p = 0; p == 0 || p < d->k; p += KC)
                FN(block)
    (j, i, BY_MIN(MC, d->m - i), q, BY_MIN(NC, d->n - q), p, BY_MIN(KC, d->k - p), id, team);
}

/* ---- skinny: m <= BY_GEMM_SKINNY_ROWS, x is a in R, dense ------------------------------------ */

/* acc (rows, w) += x (rows, depth) b (depth, w). With `ahead`, the following rows of b are prefetched one by
 * one. */
INLINE void FN(axpy)(int rows, int depth, bool ahead, int64_t w, const T *b, int64_t ldb, const R *x,
                     int64_t ldx, R *acc, int64_t ld)
{
    const int64_t width = w * (int64_t)sizeof(T), pitch = ldb * (int64_t)sizeof(T);
    const char *next = (const char *)(b + depth * ldb), *end = next + width;
    int64_t i = 0;
    for (; i + LANES <= w; i += LANES) {
        VEC s[ROWS];
        for (int q = 0; ahead && q < depth * LANES * (int)sizeof(T); q += 64) {
            __builtin_prefetch(next);
            next += 64;
            if (next >= end) {
                end += pitch;
                next = end - width;
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            s[r] = *(const VEC *)(acc + r * ld + i);
#pragma GCC unroll 4
        for (int p = 0; p < depth; p++) {
            VEC v = LOAD(b + p * ldb + i);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                s[r] += v * x[r * ldx + p];
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            *(VEC *)(acc + r * ld + i) = s[r];
    }
    for (; i < w; i++)
        for (int p = 0; p < depth; p++)
            for (int r = 0; r < rows; r++)
                acc[r * ld + i] += LD(b[p * ldb + i]) * x[r * ldx + p];
}

static void FN(axpy4)(int64_t rows, bool ahead, int64_t w, const T *b, int64_t ldb, const R *x, int64_t ldx,
                      R *acc, int64_t ld)
{
    if (rows == 1)
        FN(axpy)(1, 4, ahead, w, b, ldb, x, ldx, acc, ld);
    else if (rows == 2)
        FN(axpy)(2, 4, ahead, w, b, ldb, x, ldx, acc, ld);
    else if (rows == 3)
        FN(axpy)(3, 4, ahead, w, b, ldb, x, ldx, acc, ld);
    else
        FN(axpy)(4, 4, ahead, w, b, ldb, x, ldx, acc, ld);
}

/* b stored (k, n): acc (m, n) = x b over rows [lo, hi) of b. Memory is read in order as far as the
 * accumulators of m rows fit into the cache, or, for a single row, in strips narrow enough to prefetch four
 * rows of b in time. */
static void FN(skinny_part)(const cpu_gemm_desc *d, const R *x, const T *b, int64_t lo, int64_t hi, R *acc,
                            int64_t ld)
{
    /* single row: strips of equal width, of which four rows are prefetched in time */
    const int64_t most = d->m > 1 ? STRIP / ROUND(d->m, ROWS) : FAR / 4 / (int64_t)sizeof(T);
    const int64_t strips = (d->n + most - 1) / most, strip = ROUND((d->n + strips - 1) / strips, UNIT);
    memset(acc, 0, (size_t)(d->m * ld) * sizeof(R));
    for (int64_t col = 0; col < d->n; col += strip) {
        const int64_t w = BY_MIN(strip, d->n - col);
        const bool near = 4 * w * (int64_t)sizeof(T) <= FAR;
        for (int64_t p = lo; p < hi;) {
            const T *bp = b + p * d->ldb + col;
            const bool four = hi - p >= 4 && (near || d->m > 1);
            for (int64_t r = 0; r < d->m; r += four ? ROWS : 1) {
                const R *xr = x + r * d->k + p;
                R *to = acc + r * ld + col;
                if (four)
                    FN(axpy4)(BY_MIN(ROWS, d->m - r), near, w, bp, d->ldb, xr, d->k, to, ld);
                else
                    FN(axpy)(1, 1, false, w, bp, d->ldb, xr, d->k, to, ld);
            }
            p += four ? 4 : 1;
        }
    }
}

/* Computes columns [lo, hi) of c from the sums over the parts of k, in order. */
static void FN(skinny_sum)(const JOB *j, const R *parts, int64_t ld, int64_t lo, int64_t hi)
{
    const cpu_gemm_desc *d = j->d;
    R v[DOTS];
    for (int64_t r = 0; r < d->m; r++)
        for (int64_t col = lo; col < hi; col += DOTS) {
            const int64_t w = BY_MIN(DOTS, hi - col);
            for (int64_t i = 0; i < w; i++)
                v[i] = d->accumulate ? FN(get)(d, j->c, r * d->ldc + col + i) : 0;
            for (int64_t q = 0; q < PARTS; q++)
                for (int64_t i = 0; i < w; i++)
                    v[i] += parts[(q * d->m + r) * ld + col + i];
            FN(store)(d, w, v, j->bias ? j->bias + col : NULL, j->c, r * d->ldc + col);
        }
}

static inline R FN(total)(VEC v)
{
    R part[LANES];
    memcpy(part, &v, sizeof v);
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            part[i] += part[i + half];
    return part[0];
}

/* out (rows, cols) = x (rows, k) b (cols, k)^T, with depth vectors along k in flight. Prefetching walks
 * through the memory of the following columns as one stream that starts at `next`: memory delivers a single
 * long stream faster than several short ones. */
INLINE void FN(dots)(int rows, int cols, int depth, int64_t k, const T *b, int64_t ldb, const char *next,
                     const R *x, R *out)
{
    VEC s[ROWS * COLS] = {{0}};
    const int64_t step = depth * LANES;
    int64_t p = 0;
    for (; p + step <= k; p += step) {
#pragma GCC unroll 4
        for (int i = 0; i < cols * depth * LANES * (int)sizeof(T); i += 64)
            __builtin_prefetch(next + p * cols * (int64_t)sizeof(T) + i);
#pragma GCC unroll 4
        for (int q = 0; q < cols; q++)
#pragma GCC unroll 4
            for (int u = 0; u < depth; u++) {
                VEC v = LOAD(b + q * ldb + p + u * LANES);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    s[(r * cols + q) * depth + u] += v * *(const VEC *)(x + r * k + p + u * LANES);
            }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < cols; q++) {
            VEC all = s[(r * cols + q) * depth];
#pragma GCC unroll 4
            for (int u = 1; u < depth; u++)
                all += s[(r * cols + q) * depth + u];
            R sum = FN(total)(all);
            for (int64_t i = p; i < k; i++)
                sum += LD(b[q * ldb + i]) * x[r * k + i];
            out[r * DOTS + q] = sum;
        }
}

/* Computes columns [lo, hi) of c with b stored (n, k): dot products, one at a time for a single row, COLS at
 * a time for more. */
static void FN(skinny_nk)(const JOB *j, const R *x, int64_t lo, int64_t hi)
{
    const cpu_gemm_desc *d = j->d;
    const int64_t k = d->k, ldb = d->ldb, m = d->m;
    R out[BY_GEMM_SKINNY_ROWS * DOTS];
    for (int64_t col = lo; col < hi; col += DOTS) {
        const int64_t w = BY_MIN(DOTS, hi - col);
        for (int64_t i = 0; i < w;) {
            const int cols = m > 1 && w - i >= COLS ? COLS : 1;
            const T *b = j->b + (col + i) * ldb;
            const int64_t group = COLS * ldb * (int64_t)sizeof(T);
            const char *next = (const char *)b + (cols == 1 ? AHEAD : group <= FAR ? group : 0);
            for (int64_t r = 0; r < m; r += ROWS) {
                const int64_t rows = BY_MIN(ROWS, m - r);
                const R *xr = x + r * k;
                R *to = out + r * DOTS + i;
                if (cols == 1)
                    for (int64_t q = 0; q < rows; q++)
                        FN(dots)(1, 1, 4, k, b, ldb, next, xr + q * k, to + q * DOTS);
                else if (rows == 1)
                    FN(dots)(1, COLS, 1, k, b, ldb, next, xr, to);
                else if (rows == 2)
                    FN(dots)(2, COLS, 1, k, b, ldb, next, xr, to);
                else if (rows == 3)
                    FN(dots)(3, COLS, 1, k, b, ldb, next, xr, to);
                else
                    FN(dots)(4, COLS, 1, k, b, ldb, next, xr, to);
            }
            i += cols;
        }
        for (int64_t r = 0; r < m; r++) {
            if (d->accumulate)
                for (int64_t i = 0; i < w; i++)
                    out[r * DOTS + i] += FN(get)(d, j->c, r * d->ldc + col + i);
            FN(store)(d, w, out + r * DOTS, j->bias ? j->bias + col : NULL, j->c, r * d->ldc + col);
        }
    }
}

static void FN(skinny)(const JOB *j, const R *x, int threads)
{
    const cpu_gemm_desc *d = j->d;
    const int64_t units = (d->n + UNIT - 1) / UNIT, ld = ROUND(d->n, 16);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t id = cpu_team_thread(), team = cpu_team_size();
        const int64_t lo = units * id / team * UNIT, hi = BY_MIN(d->n, units * (id + 1) / team * UNIT);
        if (d->tb) {
            FN(skinny_nk)(j, x, lo, hi);
        } else {
            for (int64_t q = PARTS * id / team; q < PARTS * (id + 1) / team; q++)
                FN(skinny_part)
            (d, x, j->b, d->k * q / PARTS, d->k * (q + 1) / PARTS, j->part + q * d->m * ld, ld);
            cpu_team_wait((int)team);
            FN(skinny_sum)(j, j->part, ld, lo, hi);
        }
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Sizes of scratch memory, in elements of R: the bias, then x of a skinny product, or the panels of each
 * team. */
static int64_t FN(bias_size)(const cpu_gemm_desc *d)
{
    return d->bias && d->bias_type != gr_acc_type(T_ID) ? ROUND(d->n, 16) : 0;
}

static void FN(sizes)(const cpu_gemm_desc *d, int64_t *a, int64_t *b, int64_t *part)
{
    const int64_t kc = BY_MIN(KC, d->k);
    *a = ROUND(ROUND(BY_MIN(MC, d->m), MR) * kc, 16);
    *b = ROUND(BY_MIN(NC, d->n), NR) * kc;
    *part = d->c_type != gr_acc_type(T_ID) && d->k > KC ? BY_MIN(MC, d->m) * NC : 0;
}

static size_t FN(scratch)(const cpu_gemm_desc *d, int threads)
{
    int64_t a, b, part, bias = FN(bias_size)(d);
    if (cpu_gemm_is_skinny(d))
        return (size_t)(bias + ROUND(d->m * d->k, 16) + (d->tb ? 0 : PARTS * d->m * ROUND(d->n, 16))) *
               sizeof(R);
    FN(sizes)(d, &a, &b, &part);
    return (size_t)(bias + (a + b + part) * BY_MIN((int64_t)threads, d->batch)) * sizeof(R);
}

static void FN(product)(const cpu_gemm_desc *d, int threads, const void *a, const void *b, const void *bias,
                        void *c, void *scratch)
{
    R *memory = scratch;
    JOB j = {.d = d, .a = a, .b = b, .c = c, .bias = bias};
    if (d->m == 0 || d->n == 0)
        return;
    if (FN(bias_size)(d)) {
        base_convert(memory, gr_acc_type(T_ID), bias, d->bias_type, (size_t)d->n);
        j.bias = memory;
        memory += FN(bias_size)(d);
    } else if (!d->bias) {
        j.bias = NULL;
    }
    threads = worth_threads(d, threads);
    if (cpu_gemm_is_skinny(d)) {
        for (int64_t r = 0; r < d->m; r++)
            for (int64_t p = 0; p < d->k; p++)
                memory[r * d->k + p] = LD(j.a[r * d->lda + p]);
        j.part = memory + ROUND(d->m * d->k, 16);
        FN(skinny)(&j, memory, threads);
        return;
    }
    int64_t size_a, size_b, size_part;
    FN(sizes)(d, &size_a, &size_b, &size_part);
    const int64_t size_c = (int64_t)by_dtype_size(d->c_type);
    /* One product per thread, or all threads on each product in turn. */
    const bool by_batch = d->batch >= threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int id = cpu_team_thread(), team = cpu_team_size();
        JOB mine = j;
        mine.pack_a = memory + (by_batch ? id * (size_a + size_b + size_part) : 0);
        mine.pack_b = mine.pack_a + size_a;
        mine.part = mine.pack_b + size_b;
        for (int64_t i = by_batch ? id : 0; i < d->batch; i += by_batch ? team : 1) {
            mine.a = j.a + i * d->stride_a;
            mine.b = j.b + i * d->stride_b;
            mine.c = (char *)c + i * d->stride_c * size_c;
            FN(packed)(&mine, by_batch ? 0 : id, by_batch ? 1 : team);
        }
    }
}

#endif
