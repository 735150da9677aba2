/* columns.cuh - sums of columns: x (outer, rows, cols) summed over its rows, for reduce and for the gradient
 * of a bias. The shape and the device alone determine how rows are split into pieces, and the sums of the
 * pieces are added in a fixed order, so every run gives the same bits. */
#ifndef BY_CUDA_KERNELS_COLUMNS_CUH
#define BY_CUDA_KERNELS_COLUMNS_CUH

#include "cuda/kernels/each.cuh"

enum { SUM_COLUMNS = 32, SUM_ROWS = 8 }; /* threads of a block, across and down */

struct columns {
    int64_t outer, rows, cols, pitch; /* pitch: elements from one row to the next */
    int64_t bands, parts, per;        /* blocks across; pieces of the rows; rows per piece */
    bool cuda_vectors;                /* 16 bytes at once */
};

static columns columns_of(const cuda_context *c, by_dtype type, int64_t outer, int64_t rows, int64_t cols,
                          int64_t pitch)
{
    const int64_t wide = 16 / (int64_t)by_dtype_size(type);
    columns s = {outer, rows, cols, pitch, 0, 0, 0, pitch % wide == 0 && cols % wide == 0};
    s.bands = blocks_for(cols, SUM_COLUMNS * (s.cuda_vectors ? wide : 1));
    const int64_t wanted = BY_MAX(1, 4 * c->sms / BY_MAX(1, outer * s.bands));
    s.per = BY_MAX((rows + wanted - 1) / wanted, 64);
    s.parts = BY_MAX(1, (int64_t)blocks_for(rows, s.per));
    return s;
}

/* y (outer, parts, cols) = scale times the sums of `per` rows each. A block has VEC adjacent columns for each
 * of its threads across. Six blocks per multiprocessor leave registers for four loads at once. */
template <class T, class Y, int VEC>
static __global__ void __launch_bounds__(SUM_COLUMNS *SUM_ROWS, 6)
    column_sums(Y *y, const T *x, columns s, float scale)
{
    __shared__ float sums[SUM_ROWS][SUM_COLUMNS * VEC + 1];
    const int across = threadIdx.x % SUM_COLUMNS, down = threadIdx.x / SUM_COLUMNS;
    int64_t band, part;
    const int64_t o = divide(divide(blockIdx.x, s.bands, &band), s.parts, &part);
    const int64_t first = band * SUM_COLUMNS * VEC, col = first + across * VEC;
    const int64_t from = part * s.per, to = min(s.rows, from + s.per);
    const T *rows = x + o * s.rows * s.pitch + col;
    float sum[VEC] = {};
    if (col < s.cols) {
#ifndef BY_CUDA_EMULATE
#pragma unroll 4
#endif
        for (int64_t r = from + down; r < to; r += SUM_ROWS) {
            const vec<T, VEC> v = load<T, VEC>(rows + r * s.pitch);
            for (int i = 0; i < VEC; i++)
                sum[i] += to_float(v.at[i]);
        }
    }
    for (int i = 0; i < VEC; i++)
        sums[down][across * VEC + i] = sum[i];
    __syncthreads();
    for (int c = threadIdx.x; c < SUM_COLUMNS * VEC && first + c < s.cols; c += SUM_COLUMNS * SUM_ROWS) {
        float total = 0;
        for (int d = 0; d < SUM_ROWS; d++)
            total += sums[d][c];
        y[(o * s.parts + part) * s.cols + first + c] = from_float<Y>(total * scale);
    }
}

/* y (outer, cols) [+]= the sums of the pieces. A block of (32, JOIN) threads has 32 columns: with one thread,
 * a column processes its pieces in order, which is best for many columns; with 32 they share them. */
template <class Y, int JOIN>
static __global__ void __launch_bounds__(32 * JOIN)
    join_parts(Y *y, const float *x, int64_t parts, int64_t cols, float scale, bool add)
{
    __shared__ float space[JOIN][33];
    int64_t band;
    const int64_t o = divide(blockIdx.x, (cols + 31) / 32, &band), mine = band * 32 + threadIdx.x;
    float sum = JOIN == 1 && add && mine < cols ? to_float(y[o * cols + mine]) : 0;
    for (int64_t p = threadIdx.y; p < parts && mine < cols; p += JOIN)
        sum += x[(o * parts + p) * cols + mine];
    if (JOIN == 1) {
        if (mine < cols)
            y[o * cols + mine] = from_float<Y>(sum * scale);
        return;
    }
    space[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    const int64_t column = band * 32 + threadIdx.y; /* now one warp per column */
    sum = warp_sum(space[threadIdx.x][threadIdx.y]);
    if (threadIdx.x == 0 && column < cols)
        y[o * cols + column] = from_float<Y>(sum * scale);
}

template <class T, class Y>
static by_status start_sums(cuda_exec *x, Y *y, const T *from, const columns &s, float scale)
{
    return cuda_launch(x, s.cuda_vectors ? column_sums<T, Y, wide<T>::N> : column_sums<T, Y, 1>,
                       (unsigned)(s.outer * s.parts * s.bands), SUM_COLUMNS * SUM_ROWS, 0, y, from, s, scale);
}

/* y = scale times the sums, or, for JOIN 1 and a scale of 1, y += them. */
template <int JOIN, class T, class Y>
static by_status sum_columns(cuda_exec *x, Y *y, const T *from, const columns &s, float scale, bool add)
{
    if (s.parts == 1 && !add)
        return start_sums(x, y, from, s, scale);
    float *parts = (float *)cuda_scratch(x, (size_t)(s.outer * s.parts * s.cols) * sizeof *parts);
    BY_TRY(start_sums(x, parts, from, s, 1.0f));
    return cuda_launch(x, join_parts<Y, JOIN>, (unsigned)(s.outer * blocks_for(s.cols, 32)), dim3(32, JOIN),
                       0, y, (const float *)parts, s.parts, s.cols, scale, add);
}

#endif
