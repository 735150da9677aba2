/* fp8.cu - products in FP8 for 16-bit linear layers. Both operands are rounded to e4m3 when needed, each row
 * along the contracted dimension with its own scale: its largest number becomes 448. Nothing is remembered
 * between steps, so runs repeat and resume exactly. Matrix units require the contracted dimension to be
 * contiguous in both operands; a weight stored the other way is transposed on the way. */
#include "cuda/kernels/fp8.cuh"

#include "cuda/kernels/e4m3.cuh"
#include "cuda/kernels/row_pieces.cuh"

enum {
    EIGHT = 8,     /* numbers in 16 bytes */
    PIECES = 8,    /* pieces of 16 bytes of a row per thread */
    THREADS = 256, /* of a block */
    WARP_ROW = 32 * PIECES * EIGHT,
    MOST = THREADS * PIECES * EIGHT, /* widest row; only the vocabulary has more columns */
    TURN_ROWS = 128,
    TURN_COLUMNS = 64, /* a tile transposed by a block: 4 x 8 numbers per thread */
    MOST_CHUNKS = 32   /* chunks of rows, to find the largest number of each column */
};

/* ---- conversion to e4m3 ------------------------------------------------------------------------ */

/* The factor of a row after a product. The smallest one keeps its reciprocal finite. A row with an infinity
 * has an infinite scale, and every product with it is NaN; so is one with a NaN. */
static __device__ __forceinline__ float scale_for(float most)
{
    return fmaxf(most / E4M3_MOST, 0x1p-126f);
}

static __device__ __forceinline__ float larger(const vec<float, EIGHT> &v, float most)
{
    for (int j = 0; j < EIGHT; j++)
        most = fmaxf(most, fabsf(v.at[j]));
    return most;
}

/* to (rows, cols) in e4m3 and scales (rows) of x. GROUP threads process a row: a warp or the whole block. */
template <class T, int GROUP>
__global__ void __launch_bounds__(THREADS)
    quantize_rows(const T *x, int64_t rows, int cols, uint8_t *to, float *scales)
{
    __shared__ float space[32];
    const int64_t row = (int64_t)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    const int first = (int)(threadIdx.x % GROUP) * EIGHT;
    packed<T, EIGHT> kept[PIECES];
    float most = 0;
    if (row >= rows)
        return;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (first + i * GROUP * EIGHT < cols)
            kept[i] = get_packed<EIGHT>(x + row * cols + first + i * GROUP * EIGHT);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (first + i * GROUP * EIGHT < cols) {
            most = larger(unpack(kept[i]), most);
            forget(kept[i]);
        }
    most = GROUP == 32 ? warp_max(most) : block_max(most, space);
    const float scale = scale_for(most), factor = 1 / scale;
    if (first == 0)
        scales[row] = scale;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (first + i * GROUP * EIGHT < cols) {
            const vec<float, EIGHT> v = unpack(kept[i]);
            uint2 out;
            out.x = pack_e4m3(v.at[0] * factor, v.at[1] * factor, v.at[2] * factor, v.at[3] * factor);
            out.y = pack_e4m3(v.at[4] * factor, v.at[5] * factor, v.at[6] * factor, v.at[7] * factor);
            *(uint2 *)(to + row * cols + first + i * GROUP * EIGHT) = out;
        }
}

/* parts (chunks, cols) = the largest number of each column in `per` rows of x (rows, cols). */
template <class T>
__global__ void __launch_bounds__(THREADS)
    column_maxima(const T *x, int rows, int cols, int per, float *parts)
{
    __shared__ float maxima[THREADS / 32][32 * EIGHT];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int begin = (int)blockIdx.x * 32 * EIGHT, col = begin + lane * EIGHT;
    const int from = (int)blockIdx.y * per, to = min(rows, from + per);
    float most[EIGHT] = {};
    if (col < cols) {
#pragma unroll 4
        for (int r = from + warp; r < to; r += THREADS / 32) {
            const vec<float, EIGHT> v = get<EIGHT>(x + (int64_t)r * cols + col);
            for (int j = 0; j < EIGHT; j++)
                most[j] = fmaxf(most[j], fabsf(v.at[j]));
        }
    }
    for (int j = 0; j < EIGHT; j++)
        maxima[warp][lane * EIGHT + j] = most[j];
    __syncthreads();
    const int c = (int)threadIdx.x; /* there are as many columns as threads */
    float total = 0;
    for (int w = 0; w < THREADS / 32; w++)
        total = fmaxf(total, maxima[w][c]);
    if (begin + c < cols)
        parts[(int64_t)blockIdx.y * cols + begin + c] = total;
}

/* to (cols, rows) in e4m3 and scales (cols) of the columns of x (rows, cols). A thread processes four rows of
 * eight columns; its part of a column is one word of the transposed tile. */
template <class T>
__global__ void __launch_bounds__(THREADS) quantize_turned(const T *x, int rows, int cols, const float *parts,
                                                           int chunks, uint8_t *to, float *scales)
{
    __shared__ float factors[TURN_COLUMNS];
    __shared__ uint32_t tile[TURN_COLUMNS][TURN_ROWS / 4 + 1];
    const int t = (int)threadIdx.x, begin = (int)blockIdx.x * TURN_COLUMNS, top = (int)blockIdx.y * TURN_ROWS;
    const int across = t % (TURN_COLUMNS / EIGHT) * EIGHT, down = t / (TURN_COLUMNS / EIGHT);
    if (t < TURN_COLUMNS && begin + t < cols) {
        float most = 0;
        for (int i = 0; i < chunks; i++)
            most = fmaxf(most, parts[(int64_t)i * cols + begin + t]);
        const float scale = scale_for(most);
        factors[t] = 1 / scale;
        if (blockIdx.y == 0)
            scales[begin + t] = scale;
    }
    __syncthreads();
    if (begin + across < cols && top + 4 * down < rows) {
        vec<float, EIGHT> v[4];
        for (int r = 0; r < 4; r++)
            v[r] = get<EIGHT>(x + (int64_t)(top + 4 * down + r) * cols + begin + across);
        for (int j = 0; j < EIGHT; j++) {
            const float f = factors[across + j];
            tile[across + j][down] =
                pack_e4m3(v[0].at[j] * f, v[1].at[j] * f, v[2].at[j] * f, v[3].at[j] * f);
        }
    }
    __syncthreads();
    for (int i = t; i < TURN_COLUMNS * TURN_ROWS / 16; i += THREADS) {
        const int c = i / (TURN_ROWS / 16), r = i % (TURN_ROWS / 16) * 16;
        if (begin + c >= cols || top + r >= rows)
            continue;
        const uint32_t *from = &tile[c][r / 4];
        *(uint4 *)(to + (int64_t)(begin + c) * rows + top + r) = uint4{from[0], from[1], from[2], from[3]};
    }
}

/* ---- working memory ---------------------------------------------------------------------------- */

/* Working memory of a product. The converted a comes first, so that the next product with the same a finds
 * it. */
typedef struct work {
    uint8_t *a, *b;
    float *a_scale, *b_scale, *parts;
} work;

static size_t place(size_t *at, size_t bytes)
{
    const size_t here = *at;
    *at += (bytes + 255) / 256 * 256;
    return here;
}

static work work_of(cuda_exec *x, const cuda_product *p)
{
    size_t bytes = 0;
    const size_t a = place(&bytes, (size_t)(p->m * p->k)), a_scale = place(&bytes, (size_t)p->m * 4),
                 b = place(&bytes, (size_t)(p->n * p->k)), b_scale = place(&bytes, (size_t)p->n * 4),
                 parts = place(&bytes, p->tb ? 0 : (size_t)p->n * 4 * MOST_CHUNKS);
    char *at = (char *)cuda_scratch(x, bytes);
    return work{(uint8_t *)at + a, (uint8_t *)at + b, (float *)(at + a_scale), (float *)(at + b_scale),
                (float *)(at + parts)};
}

/* ---- both operands ----------------------------------------------------------------------------- */

template <class T>
static by_status rows_to_e4m3(cuda_exec *x, const void *from, int64_t rows, int64_t cols, uint8_t *to,
                              float *scales)
{
    if (cols <= WARP_ROW) {
        BY_BRANCH("FP8, a row to a warp");
        return cuda_launch(x, quantize_rows<T, 32>, dim3(blocks_for(rows, THREADS / 32)), dim3(THREADS), 0,
                           (const T *)from, rows, (int)cols, to, scales);
    }
    BY_BRANCH("FP8, a row to a block");
    return cuda_launch(x, quantize_rows<T, THREADS>, dim3((unsigned)rows), dim3(THREADS), 0, (const T *)from,
                       rows, (int)cols, to, scales);
}

/* b is stored (k, n). */
template <class T> static by_status turned_to_e4m3(cuda_exec *x, const cuda_product *p, const work *w)
{
    const int k = (int)p->k, n = (int)p->n;
    const int per = BY_MAX((k + MOST_CHUNKS - 1) / MOST_CHUNKS, 64);
    const unsigned chunks = blocks_for(k, per);
    BY_BRANCH("FP8, a weight turned over");
    by_status s = cuda_launch(x, column_maxima<T>, dim3(blocks_for(n, 32 * EIGHT), chunks), dim3(THREADS), 0,
                              (const T *)p->b, k, n, per, w->parts);
    BY_TRY(s);
    return cuda_launch(x, quantize_turned<T>, dim3(blocks_for(n, TURN_COLUMNS), blocks_for(k, TURN_ROWS)),
                       dim3(THREADS), 0, (const T *)p->b, k, n, (const float *)w->parts, (int)chunks, w->b,
                       w->b_scale);
}

template <class T>
static by_status both_sides(cuda_exec *x, const cuda_product *p, const work *w, bool a_is_there)
{
    if (a_is_there)
        BY_BRANCH("FP8, the input is there already");
    else
        BY_TRY(rows_to_e4m3<T>(x, p->a, p->m, p->k, w->a, w->a_scale));
    return p->tb ? rows_to_e4m3<T>(x, p->b, p->n, p->k, w->b, w->b_scale) : turned_to_e4m3<T>(x, p, w);
}

by_status cuda_fp8_product(cuda_exec *x, const cuda_product *p, const by_tensor *a, cuda_lt_plan *plan)
{
    const bool there = x->in_scratch == a; /* tested before scratch is requested */
    const work w = work_of(x, p);
    BY_TRY(p->ab_type == BY_BF16 ? both_sides<bf16>(x, p, &w, there) : both_sides<f16>(x, p, &w, there));
    x->in_scratch = a;
    return cuda_lt_run_fp8(x, plan, w.a, w.a_scale, w.b, w.b_scale);
}

/* ---- when FP8 is faster ------------------------------------------------------------------------ */

/* Seconds on an H200 in a long run, where power limits both; in short runs 16 bits are faster than this, and
 * FP8 pays off from a width of 2048. The matrix units do 1350 TFLOP/s in FP8, and the result then goes to
 * memory; in 16 bits both together are about 700 TFLOP/s, and a fused activation costs as much as moving
 * three bytes of each number. */
static const double FLOPS_8 = 1350e12, FLOPS_16 = 700e12, BYTES = 4e12;

bool cuda_fp8_pays(int64_t m, int64_t n, int64_t k, bool turned, cuda_fp8_behind behind)
{
    const double flops = 2.0 * (double)m * (double)n * (double)k, result = (double)m * (double)n;
    const double made = 3.0 * (double)m * (double)k + (turned ? 5.0 : 3.0) * (double)n * (double)k;
    const double pass = behind == BY_FP8_SLOPE ? 6 : behind == BY_FP8_ACTIVATION ? 4 : 0;
    const double in_8 = flops / FLOPS_8 + (made + (2 + pass) * result) / BYTES;
    const double in_16 = flops / FLOPS_16 + (behind == BY_FP8_NOTHING ? 0 : 3) * result / BYTES;
    return in_16 >= 1.1 * in_8; /* for less, the lost precision is not worth it */
}

/* What the matrix units support. Only logits have gaps after their rows, and they stay in 16 bits. */
static bool fits(const cuda_product *p)
{
    return (p->ab_type == BY_BF16 || p->ab_type == BY_F16) && p->c_type == p->ab_type && !p->ta &&
           p->batch <= 1 && p->lda == p->k && p->ldc == p->n && p->n <= MOST && p->k <= MOST &&
           p->m % 16 == 0 && p->n % 16 == 0 && p->k % 16 == 0 && p->m > 0 && p->n > 0 && p->k > 0;
}

cuda_lt_plan *cuda_fp8_plan(cuda_context *c, const cuda_product *p, cuda_fp8_behind behind)
{
    if (!c->fp8 || !fits(p) || !(c->fp8_all || cuda_fp8_pays(p->m, p->n, p->k, !p->tb, behind)))
        return NULL;
    cuda_product in_8 = *p;
    in_8.fp8 = in_8.tb = true;
    in_8.ldb = p->k;
    in_8.a = in_8.b = NULL;
    cuda_lt_plan *plan = cuda_lt_plan_new(c, &in_8);
    if (!plan)
        base_error_clear();
    return plan;
}

by_status cuda_fp8_open(cuda_context *c, const char *card)
{
    enum { SIDE = 64 };
    const char *which = getenv("BANYAN_FP8");
    c->fp8_all = which && strcmp(which, "all") == 0;
    if (c->arch < 89)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "+fp8: %s has compute capability %d.%d; FP8 requires 8.9 (Ada) or later", card,
                         c->arch / 10, c->arch % 10);
    cuda_product p = {};
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = SIDE;
    p.tb = p.fp8 = true;
    p.ab_type = p.c_type = p.bias_type = BY_BF16;
    p.c = c->workspace;
    cuda_lt_plan *plan = cuda_lt_plan_new(c, &p);
    if (!plan)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "+fp8: cuBLASLt %d.%d has no FP8 products with a scale for each row on %s",
                         cuda_lt_version() / 10000, cuda_lt_version() / 100 % 100, card);
    cuda_lt_plan_free(plan);
    return BY_OK;
}
