/* reduce.c - sums over an axis and their gradient, the largest element of a row, the 2-norm of a whole
 * buffer. The order of sums depends only on the shape, never on the number of threads. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define COLUMNS     128   /* columns per task */
#define BLOCK       256   /* terms added in R before they join a sum of sums: limits the rounding error */
#define NORM2_CHUNK 65536 /* elements of one partial sum of squares */

#define BY_TEMPLATE "cpu/kernels/reduce.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(reduce)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, reduce, e, n)}

by_status KERNEL(broadcast)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, broadcast, e, n)}

by_status KERNEL(argmax)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, argmax, e, n)}

by_status KERNEL(norm2)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, norm2, e, n)
}

#else /* ---- once per element type ---- */

/* ---- reduce --------------------------------------------------------------------------------- */

static R FN(row_sum)(const T *x, int64_t count)
{
    R total = 0;
    for (int64_t from = 0; from < count; from += 16 * BLOCK) {
        const int64_t to = BY_MIN(from + 16 * BLOCK, count);
        R sum = 0;
        R_SIMD_SUM(sum)
        for (int64_t i = from; i < to; i++)
            sum += LD(x[i]);
        total += sum;
    }
    return total;
}

/* sum[j] = the sum of x[i * stride + j] over i < count, for j < width <= COLUMNS */
static void FN(column_sums)(R *restrict sum, const T *restrict x, int64_t count, int64_t stride,
                            int64_t width)
{
    for (int64_t j = 0; j < width; j++)
        sum[j] = 0;
    for (int64_t from = 0; from < count; from += BLOCK) {
        R part[COLUMNS] = {0};
        for (int64_t i = from; i < BY_MIN(from + BLOCK, count); i++) {
            const T *row = x + i * stride;
            R_SIMD
            for (int64_t j = 0; j < width; j++)
                part[j] += LD(row[j]);
        }
        R_SIMD
        for (int64_t j = 0; j < width; j++)
            sum[j] += part[j];
    }
}

/* y has the type of x or the accumulation type. */
static inline void FN(put)(void *y, bool wide, int64_t i, R value)
{
    if (wide)
        ((R *)y)[i] = value;
    else
        ((T *)y)[i] = ST(value);
}

static by_status FN(reduce)(gr_exec *e, gr_node *n)
{
    const gr_reduce_attr a = *(const gr_reduce_attr *)n->attr;
    const T *x = n->in[0]->data;
    void *y = n->out[0]->data;
    const bool wide = n->out[0]->type != T_ID, fork = a.outer * a.count * a.inner >= BY_FORK_ELEMENTS;
    const R scale = (R)a.scale;
    if (a.inner == 1) {
        BY_BRANCH("reduce " BY_STRING(T_NAME) ", rows");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (fork)
        for (int64_t o = 0; o < a.outer; o++)
            FN(put)(y, wide, o, FN(row_sum)(x + o * a.count, a.count) * scale);
        return BY_OK;
    }
    BY_BRANCH("reduce " BY_STRING(T_NAME) ", columns");
    const int64_t bands = (a.inner + COLUMNS - 1) / COLUMNS, tasks = a.outer * bands;
#pragma omp parallel for schedule(static) num_threads(e->threads) if (fork)
    for (int64_t t = 0; t < tasks; t++) {
        const int64_t o = t / bands, j = t % bands * COLUMNS, width = BY_MIN(COLUMNS, a.inner - j);
        R sum[COLUMNS];
        FN(column_sums)(sum, x + o * a.count * a.inner + j, a.count, a.inner, width);
        for (int64_t i = 0; i < width; i++)
            FN(put)(y, wide, o * a.inner + j + i, sum[i] * scale);
    }
    return BY_OK;
}

/* ---- broadcast ------------------------------------------------------------------------------ */

/* x has the type of y or the accumulation type. */
static inline R FN(get)(const void *x, bool wide, int64_t i)
{
    return wide ? ((const R *)x)[i] : LD(((const T *)x)[i]);
}

static by_status FN(broadcast)(gr_exec *e, gr_node *n)
{
    const gr_reduce_attr a = *(const gr_reduce_attr *)n->attr;
    const void *x = n->in[0]->data;
    T *y = n->out[0]->data;
    const bool wide = n->in[0]->type != T_ID, fork = a.outer * a.count * a.inner >= BY_FORK_ELEMENTS;
    const R scale = (R)a.scale;
    if (a.inner == 1) {
        BY_BRANCH("broadcast " BY_STRING(T_NAME) ", rows");
        const int64_t cuts = (a.count + NORM2_CHUNK - 1) / NORM2_CHUNK;
#pragma omp parallel for schedule(static) num_threads(e->threads) if (fork)
        for (int64_t t = 0; t < a.outer * cuts; t++) {
            const int64_t o = t / cuts, from = t % cuts * NORM2_CHUNK,
                          to = BY_MIN(from + NORM2_CHUNK, a.count);
            const T value = ST(FN(get)(x, wide, o) * scale);
            for (int64_t i = from; i < to; i++)
                y[o * a.count + i] = value;
        }
        return BY_OK;
    }
    BY_BRANCH("broadcast " BY_STRING(T_NAME) ", columns");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (fork)
    for (int64_t t = 0; t < a.outer * a.count; t++) {
        const int64_t from = t / a.count * a.inner;
        T *row = y + t * a.inner;
        R_SIMD
        for (int64_t i = 0; i < a.inner; i++)
            row[i] = ST(FN(get)(x, wide, from + i) * scale);
    }
    return BY_OK;
}

/* ---- argmax --------------------------------------------------------------------------------- */

/* The first of the largest; a NaN is larger than any number, as in PyTorch. Skips whole blocks in which
 * nothing exceeds the best so far. */
static int32_t FN(row_argmax)(const T *x, int64_t count)
{
    int64_t best = 0;
    R most = count > 0 ? LD(x[0]) : 0;
    for (int64_t from = 0; from < count && most == most; from += BLOCK) {
        const int64_t to = BY_MIN(from + BLOCK, count);
        int better = 0;
#pragma omp simd reduction(| : better)
        for (int64_t i = from; i < to; i++)
            better |= !(LD(x[i]) <= most);
        for (int64_t i = from; better && i < to && most == most; i++) {
            if (!(LD(x[i]) <= most)) {
                best = i;
                most = LD(x[i]);
            }
        }
    }
    return (int32_t)best;
}

static by_status FN(argmax)(gr_exec *e, gr_node *n)
{
    const T *x = n->in[0]->data;
    int32_t *y = n->out[0]->data;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    BY_BRANCH("argmax " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (rows > 1 && rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++)
        y[r] = FN(row_argmax)(x + r * cols, cols);
    return BY_OK;
}

/* ---- norm2 ---------------------------------------------------------------------------------- */

/* In double throughout: squares of floats cannot overflow, and the order within a chunk hardly matters. */
static double FN(sum_of_squares)(const T *x, int64_t count)
{
    double sum0 = 0, sum1 = 0;
    const int64_t half = count / 2;
#pragma omp simd reduction(+ : sum0, sum1)
    for (int64_t i = 0; i < half; i++) {
        const double a = LD(x[i]), b = LD(x[half + i]);
        sum0 += a * a;
        sum1 += b * b;
    }
    const double last = count % 2 ? LD(x[count - 1]) : 0;
    return sum0 + sum1 + last * last;
}

static by_status FN(norm2)(gr_exec *e, gr_node *n)
{
    const T *x = n->in[0]->data;
    const int64_t count = gr_tensor_rows(n->in[0]) * gr_tensor_cols(n->in[0]);
    const int64_t chunks = (count + NORM2_CHUNK - 1) / NORM2_CHUNK;
    double *partial = base_alloc((size_t)chunks * sizeof *partial);
    if (!partial)
        return BY_ERR_MEMORY;
    BY_BRANCH("norm2 " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (chunks > 1)
    for (int64_t c = 0; c < chunks; c++)
        partial[c] = FN(sum_of_squares)(x + c * NORM2_CHUNK, BY_MIN(NORM2_CHUNK, count - c * NORM2_CHUNK));
    double total = 0;
    for (int64_t c = 0; c < chunks; c++)
        total += partial[c];
    base_free(partial);
    *(R *)n->out[0]->data = (R)sqrt(total);
    return BY_OK;
}
#endif
