/* norm.c - LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last axis, with an
 * optional residual addition before them. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

/* Maximum number of partial sums of dgamma and dbeta, independent of the number of threads. */
#define CHUNKS 32

#define BY_TEMPLATE "cpu/kernels/norm.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(norm)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, norm, e, n)}

by_status KERNEL(norm_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, norm_grad, e, n)
}

#else /* ---- once per element type ---- */

/* ---- forward -------------------------------------------------------------------------------- */

/* sum = x + dropout(h), for elements [first, first + count) of the tensor, to which x, h and sum point. The
 * mask is that of a dropout node with the same rng. */
static void FN(add_dropped)(const gr_exec *e, const gr_node *n, T *restrict sum, const T *restrict x,
                            const T *restrict h, int64_t first, int64_t count)
{
    const float p = ((const gr_norm_attr *)n->attr)->p;
    const uint32_t threshold = cpu_drop_threshold(p);
    const R factor = (R)cpu_drop_factor(p);
    for (int64_t from = 0; from < count; from += BY_RANDOM_SPAN) {
        const int64_t part = BY_MIN(BY_RANDOM_SPAN, count - from);
        uint32_t buffer[BY_RANDOM_PLACES];
        const uint32_t *random = cpu_random_span(e, n, (uint64_t)(first + from), part, buffer);
        R_SIMD
        for (int64_t i = from; i < from + part; i++)
            sum[i] = ST(LD(x[i]) + (random[i - from] >= threshold ? LD(h[i]) * factor : 0));
    }
}

static void FN(add_plain)(T *restrict sum, const T *restrict x, const T *restrict h, int64_t count)
{
    R_SIMD
    for (int64_t i = 0; i < count; i++)
        sum[i] = ST(LD(x[i]) + LD(h[i]));
}

/* stats = {mean, 1 / std}, or {0, 1 / rms}. Two passes: the row is in the cache, and no large squares
 * cancel. */
static void FN(row_stats)(R stats[2], const T *x, int64_t count, bool rms, R eps)
{
    R mean = 0, square = 0;
    if (!rms) {
        R_SIMD_SUM(mean)
        for (int64_t i = 0; i < count; i++)
            mean += LD(x[i]);
        mean /= (R)count;
    }
    R_SIMD_SUM(square)
    for (int64_t i = 0; i < count; i++)
        square += (LD(x[i]) - mean) * (LD(x[i]) - mean);
    stats[0] = mean;
    stats[1] = 1 / R_SQRT(square / (R)count + eps);
}

/* y may be x. */
static void FN(row_apply)(T *y, const T *x, const R stats[2], const T *gamma, const T *beta, int64_t count)
{
    const R mean = stats[0], inverse = stats[1];
    if (beta) {
        R_SIMD
        for (int64_t i = 0; i < count; i++)
            y[i] = ST((LD(x[i]) - mean) * inverse * LD(gamma[i]) + LD(beta[i]));
    } else {
        R_SIMD
        for (int64_t i = 0; i < count; i++)
            y[i] = ST((LD(x[i]) - mean) * inverse * LD(gamma[i]));
    }
}

/* Statistics are those of the stored, rounded sum, so that the backward pass sees the same values. If the sum
 * is not wanted, it is computed in the memory of y. */
static by_status FN(norm)(gr_exec *e, gr_node *n)
{
    const gr_norm_attr a = *(const gr_norm_attr *)n->attr;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const T *x_all = n->in[0]->data, *gamma = n->in[1]->data;
    const T *beta = n->in[2] ? n->in[2]->data : NULL, *h_all = n->in[3] ? n->in[3]->data : NULL;
    T *y_all = n->out[0]->data, *sum_all = n->out[2] ? n->out[2]->data : y_all;
    R *stats_all = n->out[1] ? n->out[1]->data : NULL;
    if (!h_all)
        BY_BRANCH("norm " BY_STRING(T_NAME));
    else if (a.p > 0)
        BY_BRANCH("norm " BY_STRING(T_NAME) ", residual with dropout");
    else
        BY_BRANCH("norm " BY_STRING(T_NAME) ", residual");
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (rows > 1 && rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r * cols;
        const T *x = x_all + at;
        if (h_all) {
            if (a.p > 0)
                FN(add_dropped)(e, n, sum_all + at, x, h_all + at, at, cols);
            else
                FN(add_plain)(sum_all + at, x, h_all + at, cols);
            x = sum_all + at;
        }
        R stats[2];
        FN(row_stats)(stats, x, cols, a.rms, (R)a.eps);
        FN(row_apply)(y_all + at, x, stats, gamma, beta, cols);
        if (stats_all)
            memcpy(stats_all + 2 * r, stats, sizeof stats);
    }
    return BY_OK;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* With z = (x - mean) / std and g = dy gamma: dx = (g - mean(g) - z mean(g z)) / std, plus dsum; for RMSNorm
 * without mean(g). */
static void FN(row_dx)(T *restrict dx, const T *restrict dy, const T *restrict x, const R stats[2],
                       const T *restrict gamma, const T *restrict dsum, int64_t count, bool rms)
{
    const R mean = stats[0], inverse = stats[1];
    R g_sum = 0, gz_sum = 0;
    R_SIMD_SUM(g_sum, gz_sum)
    for (int64_t i = 0; i < count; i++) {
        const R g = LD(dy[i]) * LD(gamma[i]);
        g_sum += g;
        gz_sum += g * (LD(x[i]) - mean);
    }
    const R g_mean = rms ? 0 : g_sum / (R)count, gz_mean = gz_sum * inverse / (R)count;
#define DX ((LD(dy[i]) * LD(gamma[i]) - g_mean - (LD(x[i]) - mean) * inverse * gz_mean) * inverse)
    if (dsum) {
        R_SIMD
        for (int64_t i = 0; i < count; i++)
            dx[i] = ST(DX + LD(dsum[i]));
    } else {
        R_SIMD
        for (int64_t i = 0; i < count; i++)
            dx[i] = ST(DX);
    }
#undef DX
}

/* part[i] += dy z; part[count + i] += dy */
static void FN(row_dgamma)(R *restrict part, const T *restrict dy, const T *restrict x, const R stats[2],
                           int64_t count)
{
    const R mean = stats[0], inverse = stats[1];
    R *restrict dgamma = part, *restrict dbeta = part + count;
    R_SIMD
    for (int64_t i = 0; i < count; i++) {
        dgamma[i] += LD(dy[i]) * ((LD(x[i]) - mean) * inverse);
        dbeta[i] += LD(dy[i]);
    }
}

/* out (count) = the sum of `chunks` partial sums 2 * count apart, in order, added to out if `add`. */
static void FN(combine)(R *out, const R *part, int64_t chunks, int64_t count, bool add)
{
    if (!add)
        memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t c = 0; c < chunks; c++) {
        const R *restrict p = part + c * 2 * count;
        R_SIMD
        for (int64_t i = 0; i < count; i++)
            out[i] += p[i];
    }
}

static by_status FN(norm_grad)(gr_exec *e, gr_node *n)
{
    const bool rms = ((const gr_norm_attr *)n->attr)->rms;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const T *dy = n->in[0]->data, *x = n->in[1]->data, *gamma = n->in[3]->data;
    const R *stats = n->in[2]->data;
    const T *dsum = n->in[4] ? n->in[4]->data : NULL;
    T *dx = n->out[0] ? n->out[0]->data : NULL;
    const int64_t step = (rows + CHUNKS - 1) / CHUNKS, chunks = step > 0 ? (rows + step - 1) / step : 0;
    R *part = NULL;
    if (n->out[1] || n->out[2]) {
        BY_BRANCH("norm_grad " BY_STRING(T_NAME) ", with parameters");
        part = base_alloc_zero((size_t)(chunks * 2 * cols), sizeof *part);
        if (!part)
            return BY_ERR_MEMORY;
    } else {
        BY_BRANCH("norm_grad " BY_STRING(T_NAME) ", input only");
    }
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (rows > 1 && rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t c = 0; c < chunks; c++) {
        for (int64_t r = c * step; r < BY_MIN((c + 1) * step, rows); r++) {
            const int64_t at = r * cols;
            if (dx)
                FN(row_dx)
            (dx + at, dy + at, x + at, stats + 2 * r, gamma, dsum ? dsum + at : NULL, cols, rms);
            if (part)
                FN(row_dgamma)(part + c * 2 * cols, dy + at, x + at, stats + 2 * r, cols);
        }
    }
    if (n->out[1])
        FN(combine)(n->out[1]->data, part, chunks, cols, n->in[5] != NULL);
    if (n->out[2])
        FN(combine)(n->out[2]->data, part + cols, chunks, cols, n->in[6] != NULL);
    base_free(part);
    return BY_OK;
}
#endif
