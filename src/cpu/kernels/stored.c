/* stored.c - products with weights in storage types: blocks of 8 and 4 bits, and 16-bit floats under f32.
 * With few rows a product is bound by reading b, so b is read as stored and every value is converted in
 * registers, once for up to ROWS rows of a. With many rows b is converted first (unpack).
 *
 * Values are converted exactly and summed in f32, in an order that depends on the description alone. */
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/team.h"
#include "cpu/gemm_select.h"

enum {
    ROWS = 4,          /* rows of a that go through the registers together */
    PARTS = 8,         /* of k where b is stored (k, n), so that a thread reads one long stretch of it */
    UNIT = 64,         /* columns handed to threads */
    FORK_WORK = 65536, /* multiplications below which a second thread does not pay */
};

typedef float vec __attribute__((vector_size(BY_VECTOR_BYTES), aligned(4), may_alias));
#define LANES        (BY_VECTOR_BYTES / 4)
#define VECS         (BASE_BLOCK / LANES) /* vectors of a block */
#define INLINE       static inline __attribute__((always_inline))
#define ROUND(x, to) (((x) + (to)-1) / (to) * (to))

/* ---- one block of 32 values ------------------------------------------------------------------ */

INLINE float scale_of(const char *at)
{
    uint16_t h;
    memcpy(&h, at, sizeof h);
#if BY_ISA_LEVEL >= 1
    return _cvtsh_ss(h);
#else
    return cpu_f16_load(h);
#endif
}

INLINE void load_q8_0(const char *at, vec *w)
{
    const float d = scale_of(at);
    at += offsetof(base_q8_0, q);
#pragma GCC unroll 8
    for (int i = 0; i < VECS; i++) {
#if BY_ISA_LEVEL >= 2
        w[i] = d * (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at + i)));
#elif BY_ISA_LEVEL == 1
        w[i] =
            d * (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(at + 8 * i))));
#else
        float v[LANES];
        for (int k = 0; k < LANES; k++)
            v[k] = d * (float)(int8_t)at[i * LANES + k];
        memcpy(&w[i], v, sizeof v);
#endif
    }
}

INLINE void load_q4_0(const char *at, vec *w)
{
    const float d = scale_of(at);
    at += offsetof(base_q4_0, q);
#if BY_ISA_LEVEL >= 1
    const __m128i all = _mm_loadu_si128((const __m128i *)at), low = _mm_set1_epi8(15),
                  eight = _mm_set1_epi8(8);
    const __m128i q[2] = {_mm_sub_epi8(_mm_and_si128(all, low), eight),
                          _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(all, 4), low), eight)};
#pragma GCC unroll 4
    for (int i = 0; i < VECS; i++) {
#if BY_ISA_LEVEL >= 2
        w[i] = d * (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q[i]));
#else
        const __m128i half = i % 2 ? _mm_srli_si128(q[i / 2], 8) : q[i / 2];
        w[i] = d * (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half));
#endif
    }
#else
    float v[BASE_BLOCK];
    for (int i = 0; i < BASE_BLOCK; i++) {
        const int byte = (uint8_t)at[i % (BASE_BLOCK / 2)];
        v[i] = d * (float)((i < BASE_BLOCK / 2 ? byte & 15 : byte >> 4) - 8);
    }
    memcpy(w, v, sizeof v);
#endif
}

INLINE void load_bf16(const char *at, vec *w)
{
#pragma GCC unroll 8
    for (int i = 0; i < VECS; i++) {
#if BY_ISA_LEVEL >= 2
        w[i] = (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at + i)), 16);
#elif BY_ISA_LEVEL == 1
        w[i] = (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at + i)), 16);
#else
        float v[LANES];
        for (int k = 0; k < LANES; k++) {
            uint16_t h;
            memcpy(&h, at + 2 * (i * LANES + k), sizeof h);
            v[k] = base_bf16_to_f32(h);
        }
        memcpy(&w[i], v, sizeof v);
#endif
    }
}

INLINE void load_f16(const char *at, vec *w)
{
#pragma GCC unroll 8
    for (int i = 0; i < VECS; i++) {
#if BY_ISA_LEVEL >= 2
        w[i] = (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at + i));
#elif BY_ISA_LEVEL == 1
        w[i] = (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at + i));
#else
        float v[LANES];
        for (int k = 0; k < LANES; k++) {
            uint16_t h;
            memcpy(&h, at + 2 * (i * LANES + k), sizeof h);
            v[k] = cpu_f16_load(h);
        }
        memcpy(&w[i], v, sizeof v);
#endif
    }
}

/* `type` is a constant wherever this is called. */
INLINE void load(by_dtype type, const char *at, vec *w)
{
    switch (type) {
    case BY_Q8_0:
        load_q8_0(at, w);
        break;
    case BY_Q4_0:
        load_q4_0(at, w);
        break;
    case BY_BF16:
        load_bf16(at, w);
        break;
    default:
        load_f16(at, w);
        break;
    }
}

INLINE size_t block_bytes(by_dtype type)
{
    return type == BY_Q8_0 ? sizeof(base_q8_0) : type == BY_Q4_0 ? sizeof(base_q4_0) : 2 * BASE_BLOCK;
}

/* ---- b stored (n, k): dot products ----------------------------------------------------------- */

INLINE float total(vec v)
{
    float part[LANES];
    memcpy(part, &v, sizeof v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            part[i] += part[i + half];
    return part[0];
}

/* One row of b with `rows` rows of x. */
INLINE void dots(by_dtype type, int rows, int64_t k, const char *b, const float *x, float *out, int64_t ld)
{
    vec s[ROWS * VECS] = {{0}}, w[VECS];
    for (int64_t p = 0; p < k; p += BASE_BLOCK, b += block_bytes(type)) {
        __builtin_prefetch(b + 2048);
        load(type, b, w);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int i = 0; i < VECS; i++)
                s[r * VECS + i] += w[i] * *(const vec *)(x + r * k + p + i * LANES);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vec all = s[r * VECS];
#pragma GCC unroll 8
        for (int i = 1; i < VECS; i++)
            all += s[r * VECS + i];
        out[r * ld] = total(all);
    }
}

/* Columns [lo, hi) of y (m, n). */
INLINE void columns_nk(by_dtype type, const cpu_gemm_desc *d, const float *x, const char *b, float *y,
                       int64_t lo, int64_t hi)
{
    const size_t row = (size_t)(d->ldb / BASE_BLOCK) * block_bytes(type);
    for (int64_t col = lo; col < hi; col++) {
        const char *from = b + (size_t)col * row;
        for (int64_t r = 0; r < d->m; r += ROWS) {
            const float *xr = x + r * d->k;
            float *to = y + r * d->n + col;
            if (d->m - r == 1)
                dots(type, 1, d->k, from, xr, to, d->n);
            else if (d->m - r == 2)
                dots(type, 2, d->k, from, xr, to, d->n);
            else if (d->m - r == 3)
                dots(type, 3, d->k, from, xr, to, d->n);
            else
                dots(type, ROWS, d->k, from, xr, to, d->n);
        }
    }
}

/* ---- b stored (k, n): sums of rows ----------------------------------------------------------- */

/* y (m, n) = x b over `depth` rows of b. */
INLINE void add_rows(by_dtype type, int depth, const cpu_gemm_desc *d, const float *x, const char *b,
                     float *y)
{
    const size_t row = (size_t)(d->ldb / BASE_BLOCK) * block_bytes(type);
    for (int64_t col = 0; col < d->n; col += BASE_BLOCK, b += block_bytes(type)) {
        vec w[4 * VECS];
#pragma GCC unroll 4
        for (int p = 0; p < depth; p++) {
            __builtin_prefetch(b + (size_t)(p + depth) * row);
            load(type, b + (size_t)p * row, w + p * VECS);
        }
        for (int64_t r = 0; r < d->m; r++) {
            const float *xr = x + r * d->k;
            vec *to = (vec *)(y + r * d->n + col);
#pragma GCC unroll 8
            for (int i = 0; i < VECS; i++) {
                vec sum = to[i];
#pragma GCC unroll 4
                for (int p = 0; p < depth; p++)
                    sum += w[p * VECS + i] * xr[p];
                to[i] = sum;
            }
        }
    }
}

/* y (m, n) over rows [lo, hi) of b. */
INLINE void rows_kn(by_dtype type, const cpu_gemm_desc *d, const float *x, const char *b, float *y,
                    int64_t lo, int64_t hi)
{
    const size_t row = (size_t)(d->ldb / BASE_BLOCK) * block_bytes(type);
    int64_t p = lo;
    memset(y, 0, (size_t)(d->m * d->n) * sizeof *y);
    for (; p + 4 <= hi; p += 4)
        add_rows(type, 4, d, x + p, b + (size_t)p * row, y);
    for (; p < hi; p++)
        add_rows(type, 1, d, x + p, b + (size_t)p * row, y);
}

/* ---- a function for each type ---------------------------------------------------------------- */

typedef void part_fn(const cpu_gemm_desc *d, const float *x, const char *b, float *y, int64_t lo, int64_t hi);
#define TYPE(id, name)                                                                                 \
    static void nk_##name(const cpu_gemm_desc *d, const float *x, const char *b, float *y, int64_t lo, \
                          int64_t hi)                                                                  \
    {                                                                                                  \
        columns_nk(id, d, x, b, y, lo, hi);                                                            \
    }                                                                                                  \
    static void kn_##name(const cpu_gemm_desc *d, const float *x, const char *b, float *y, int64_t lo, \
                          int64_t hi)                                                                  \
    {                                                                                                  \
        rows_kn(id, d, x, b, y, lo, hi);                                                               \
    }                                                                                                  \
    static void floats_##name(const char *from, int64_t n, float *to)                                  \
    {                                                                                                  \
        for (int64_t i = 0; i < n; i += BASE_BLOCK, from += block_bytes(id)) {                         \
            vec w[VECS];                                                                               \
            load(id, from, w);                                                                         \
            memcpy(to + i, w, sizeof w);                                                               \
        }                                                                                              \
    }
TYPE(BY_Q8_0, q8_0)
TYPE(BY_Q4_0, q4_0)
TYPE(BY_BF16, bf16)
TYPE(BY_F16, f16)

static const struct {
    part_fn *nk, *kn;
    void (*floats)(const char *from, int64_t n, float *to);
} types[BY_DTYPE_COUNT] = {[BY_Q8_0] = {nk_q8_0, kn_q8_0, floats_q8_0},
                           [BY_Q4_0] = {nk_q4_0, kn_q4_0, floats_q4_0},
                           [BY_BF16] = {nk_bf16, kn_bf16, floats_bf16},
                           [BY_F16] = {nk_f16, kn_f16, floats_f16}};

/* ---- entry ----------------------------------------------------------------------------------- */

/* x (m, k) and y (m, n) as floats; y once for every part of k where b is stored (k, n). */
static size_t scratch(const cpu_gemm_desc *d)
{
    const int64_t parts = d->tb ? 1 : PARTS;
    return (size_t)(ROUND(d->m * d->k, 16) + parts * ROUND(d->m * d->n, 16) + d->n) * sizeof(float);
}

/* Columns [lo, hi) of y, the first part, become the sum of all parts in their order. */
static void add_parts(const cpu_gemm_desc *d, float *y, int64_t lo, int64_t hi)
{
    const int64_t size = ROUND(d->m * d->n, 16);
    for (int64_t r = 0; r < d->m; r++)
        for (int q = 1; q < PARTS; q++)
            for (int64_t i = r * d->n + lo; i < r * d->n + hi; i++)
                y[i] += y[q * size + i];
}

static void multiply(const cpu_gemm_desc *d, int threads, const float *x, const char *b, float *y)
{
    const int64_t units = (d->n + UNIT - 1) / UNIT, size = ROUND(d->m * d->n, 16);
    threads = d->m * d->n * d->k < FORK_WORK ? 1 : threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t id = cpu_team_thread(), team = cpu_team_size();
        const int64_t lo = units * id / team * UNIT, hi = BY_MIN(d->n, units * (id + 1) / team * UNIT);
        if (d->tb) {
            types[d->b_type].nk(d, x, b, y, lo, hi);
        } else {
            for (int64_t q = PARTS * id / team; q < PARTS * (id + 1) / team; q++)
                types[d->b_type].kn(d, x, b, y + q * size, d->k * q / PARTS, d->k * (q + 1) / PARTS);
            cpu_team_wait(team);
            add_parts(d, y, lo, hi);
        }
    }
}

static void run(const cpu_gemm_desc *d, int threads, const void *a, const void *b, const void *bias, void *c,
                void *scratch)
{
    float *x = scratch, *y = x + ROUND(d->m * d->k, 16);
    float *wide = y + (d->tb ? 1 : PARTS) * ROUND(d->m * d->n, 16); /* the bias */
    const size_t size = by_dtype_size(d->ab_type), c_size = by_dtype_size(d->c_type);
    cpu_gemm_desc row = {.m = 1, .n = d->n, .batch = 1, .bias = d->bias, .act = d->act};
    if (d->m == 0 || d->n == 0)
        return;
    for (int64_t r = 0; r < d->m; r++)
        base_convert(x + r * d->k, BY_F32, (const char *)a + (size_t)(r * d->lda) * size, d->ab_type,
                     (size_t)d->k);
    if (d->bias)
        base_convert(wide, BY_F32, bias, d->bias_type, (size_t)d->n);
    multiply(d, threads, x, b, y);
    for (int64_t r = 0; r < d->m; r++) {
        BY_PASTE(cpu_gemm_own, BY_ISA).finish(&row, 1, wide, y + r * d->n);
        base_convert((char *)c + (size_t)(r * d->ldc) * c_size, d->c_type, y + r * d->n, BY_F32,
                     (size_t)d->n);
    }
}

static void unpack_row(int64_t count, const char *from, by_dtype from_type, char *to, by_dtype to_type)
{
    enum { CHUNK = 8 * BASE_BLOCK };
    float part[CHUNK];
    if (to_type == BY_F64 || count % BASE_BLOCK != 0) {
        base_convert(to, to_type, from, from_type, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i += CHUNK) {
        const int64_t n = BY_MIN(CHUNK, count - i);
        types[from_type].floats(from + by_dtype_bytes(from_type, (size_t)i), n, part);
        base_convert(to + (size_t)i * by_dtype_size(to_type), to_type, part, BY_F32, (size_t)n);
    }
}

static void unpack(int threads, int64_t rows, int64_t count, const void *from, by_dtype from_type,
                   size_t from_bytes, void *to, by_dtype to_type)
{
    const size_t to_bytes = (size_t)count * by_dtype_size(to_type);
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * count > BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++)
        unpack_row(count, (const char *)from + (size_t)r * from_bytes, from_type,
                   (char *)to + (size_t)r * to_bytes, to_type);
}

const cpu_gemm_stored BY_PASTE(cpu_gemm_stored, BY_ISA) = {.scratch = scratch, .run = run, .unpack = unpack};
