/* log_probs.c - log-probabilities of tokens and divergences between two rows of logits, with their gradients. Probabilities are
 * never kept: each row stores log-sum-exps, and the gradients are written over the logits. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/targets.h"

#define BY_TEMPLATE "cpu/kernels/log_probs.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(log_probs)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, log_probs, e, n)}

by_status KERNEL(log_probs_grad)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, log_probs_grad, e, n)}

by_status KERNEL(kl_divergence)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, kl_divergence, e, n)}

by_status KERNEL(kl_divergence_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, kl_divergence_grad, e, n)
}

#else /* ---- once per element type ---- */

#include "cpu/kernels/row_exp.h"
#include "cpu/kernels/row_max.h"

/* The logarithm of the sum of exp(scale x). */
static double FN(row_lse)(const T *x, R scale, int64_t count)
{
    const R max = FN(row_max)(x, count) * scale;
    return (double)max + log(FN(row_sum_exp)(x, scale, max, count));
}

/* The mean of scale (x - y) under the probabilities exp(scale x - lse); y NULL: of scale x. Where the probability is 0, nothing is added. */
static double FN(row_mean)(const T *x, const T *y, R scale, R lse, int64_t count)
{
    double total = 0;
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = BY_MIN(from + BLOCK, count);
        R sum = 0;
        R_SIMD_SUM(sum)
        for (int64_t i = from; i < to; i++) {
            const R v = LD(x[i]) * scale, p = R_EXP(v - lse), w = y ? v - LD(y[i]) * scale : v;
            sum += p > 0 ? p * w : 0;
        }
        total += sum;
    }
    return total;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static by_status FN(log_probs)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const gr_log_probs_attr a = *(const gr_log_probs_attr *)n->attr;
    const T *x_all = n->in[0]->data;
    const int32_t *target = n->in[1]->data;
    R *y = n->out[0] ? n->out[0]->data : NULL, *lse = n->out[1] ? n->out[1]->data : NULL;
    R *entropy = n->out[2] ? n->out[2]->data : NULL;
    int64_t counted;
    BY_TRY(check_targets(n, rows, cols, a.ignore_index, &counted));
    if (entropy)
        BY_BRANCH("log_probs with entropy " BY_STRING(T_NAME));
    else
        BY_BRANCH("log_probs " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols;
        const bool counts = target[r] != a.ignore_index;
        const double sum = counts || lse || entropy ? FN(row_lse)(x, (R)a.scale, cols) : 0;
        if (y)
            y[r] = counts ? (R)((double)LD(x[target[r]]) * (double)a.scale - sum) : 0;
        if (lse)
            lse[r] = (R)sum;
        if (entropy)
            entropy[r] = (R)(sum - FN(row_mean)(x, NULL, (R)a.scale, (R)sum, cols));
    }
    return BY_OK;
}

/* dx = scale (onehot - softmax) dy; 0 in ignored rows. */
static by_status FN(log_probs_grad)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const gr_log_probs_attr a = *(const gr_log_probs_attr *)n->attr;
    const T *x_all = n->in[0]->data;
    const int32_t *target = n->in[1]->data;
    const R *lse = n->in[2]->data, *dy = n->in[3]->data;
    T *dx_all = n->out[0]->data;
    int64_t counted;
    BY_TRY(check_targets(n, rows, cols, a.ignore_index, &counted));
    BY_BRANCH("log_probs_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols;
        T *dx = dx_all + r * cols;
        if (target[r] == a.ignore_index) {
            memset(dx, 0, (size_t)cols * sizeof *dx);
            continue;
        }
        const R shift = lse[r], scale = (R)a.scale, factor = scale * dy[r];
        const R hit = 1 - R_EXP(LD(x[target[r]]) * scale - shift); /* read before dx may overwrite it */
        R_SIMD
        for (int64_t i = 0; i < cols; i++)
            dx[i] = ST(-R_EXP(LD(x[i]) * scale - shift) * factor);
        dx[target[r]] = ST(hit * factor);
    }
    return BY_OK;
}

/* ---- divergences ----------------------------------------------------------------------------- */

/* y = sum over v of q (log q - log p), where q is softmax(scale z) and p softmax(scale x). */
static by_status FN(kl_divergence)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const R scale = (R)((const gr_kl_attr *)n->attr)->scale;
    const T *x_all = n->in[0]->data, *z_all = n->in[1]->data;
    R *y = n->out[0] ? n->out[0]->data : NULL, *lse = n->out[1] ? n->out[1]->data : NULL;
    BY_BRANCH("kl_divergence " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 4)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols, *z = z_all + r * cols;
        const double lse_x = FN(row_lse)(x, scale, cols), lse_z = FN(row_lse)(z, scale, cols);
        if (y)
            y[r] = (R)(lse_x - lse_z + FN(row_mean)(z, x, scale, (R)lse_z, cols));
        if (lse) {
            lse[r] = (R)lse_x;
            lse[rows + r] = (R)lse_z;
        }
    }
    return BY_OK;
}

/* dx = scale (p - q) dy */
static by_status FN(kl_divergence_grad)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const R scale = (R)((const gr_kl_attr *)n->attr)->scale;
    const T *x_all = n->in[0]->data, *z_all = n->in[1]->data;
    const R *lse = n->in[2]->data, *dy = n->in[3]->data;
    T *dx_all = n->out[0]->data;
    BY_BRANCH("kl_divergence_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols, *z = z_all + r * cols;
        T *dx = dx_all + r * cols;
        const R lse_x = lse[r], lse_z = lse[rows + r], factor = scale * dy[r];
        R_SIMD
        for (int64_t i = 0; i < cols; i++)
            dx[i] = ST((R_EXP(LD(x[i]) * scale - lse_x) - R_EXP(LD(z[i]) * scale - lse_z)) * factor);
    }
    return BY_OK;
}
#endif
