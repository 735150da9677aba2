/* softmax.c - softmax over the last axis and the cross-entropy of logits, with their gradients. Probabilities
 * are never kept: the loss stores one log-sum-exp per row, and the gradient is written over the logits. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/targets.h"

#define BY_TEMPLATE "cpu/kernels/softmax.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(softmax)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, softmax, e, n)}

by_status KERNEL(softmax_grad)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, softmax_grad, e, n)}

by_status KERNEL(cross_entropy)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, cross_entropy, e, n)}

by_status KERNEL(cross_entropy_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, cross_entropy_grad, e, n)
}

#else /* ---- once per element type ---- */

#include "cpu/kernels/row_exp.h"
#include "cpu/kernels/row_max.h"

/* ---- softmax -------------------------------------------------------------------------------- */

static by_status FN(softmax)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const T *x_all = n->in[0]->data;
    T *y_all = n->out[0]->data;
    BY_BRANCH("softmax " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols;
        T *y = y_all + r * cols;
        const R max = FN(row_max)(x, cols), inverse = (R)(1 / FN(row_sum_exp)(x, 1, max, cols));
        R_SIMD
        for (int64_t i = 0; i < cols; i++)
            y[i] = ST(R_EXP(LD(x[i]) - max) * inverse);
    }
    return BY_OK;
}

/* dx = y (dy - sum(y dy)) */
static by_status FN(softmax_grad)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const T *y_all = n->in[0]->data, *dy_all = n->in[1]->data;
    T *dx_all = n->out[0]->data;
    BY_BRANCH("softmax_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const T *y = y_all + r * cols, *dy = dy_all + r * cols;
        T *dx = dx_all + r * cols;
        R dot = 0;
        R_SIMD_SUM(dot)
        for (int64_t i = 0; i < cols; i++)
            dot += LD(y[i]) * LD(dy[i]);
        R_SIMD
        for (int64_t i = 0; i < cols; i++)
            dx[i] = ST(LD(y[i]) * (LD(dy[i]) - dot));
    }
    return BY_OK;
}

/* ---- cross-entropy -------------------------------------------------------------------------- */

static double FN(row_total)(const T *x, int64_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += LD(x[i]);
    return sum;
}

/* The loss of a row is (1 - s) (lse - x[target]) + s (lse - mean(x)), where s is the label smoothing. The
 * result is the mean over the counted rows, added in order; with weights, each row has the weight of its
 * target class. lse gets rows + 1 elements. */
static by_status FN(cross_entropy)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const gr_loss_attr a = *(const gr_loss_attr *)n->attr;
    const T *x_all = n->in[0]->data;
    const int32_t *target = n->in[1]->data;
    int64_t counted;
    BY_TRY(check_targets(n, rows, cols, a.ignore_index, &counted));
    double *loss = base_alloc((size_t)rows * sizeof *loss);
    if (!loss)
        return BY_ERR_MEMORY;
    R *lse = n->out[1] ? n->out[1]->data : NULL;
    const R *weights = n->in[2] ? n->in[2]->data : NULL;
    if (weights)
        BY_BRANCH("cross_entropy weighted " BY_STRING(T_NAME));
    else
        BY_BRANCH("cross_entropy " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols;
        const bool counts = target[r] != a.ignore_index;
        loss[r] = 0;
        if (!counts && !lse)
            continue;
        const R max = FN(row_max)(x, cols);
        const double sum = max + log(FN(row_sum_exp)(x, 1, max, cols));
        if (lse)
            lse[r] = (R)sum;
        if (counts)
            loss[r] = (1 - (double)a.label_smoothing) * (sum - (double)LD(x[target[r]]));
        if (counts && a.label_smoothing > 0)
            loss[r] += a.label_smoothing * (sum - FN(row_total)(x, cols) / (double)cols);
    }
    double total = 0, all = weights ? 0 : (double)counted;
    for (int64_t r = 0; r < rows; r++) {
        const double weight = weights && target[r] != a.ignore_index ? (double)weights[target[r]] : 1;
        total += weight * loss[r];
        all += weights && target[r] != a.ignore_index ? weight : 0;
    }
    base_free(loss);
    if (lse)
        lse[rows] = (R)all;
    *(R *)n->out[0]->data = (R)(all > 0 ? total / all : 0);
    return BY_OK;
}

/* dlogits = (softmax - (1 - s) onehot - s / V) dloss / counted, times the weight of the target class; 0 in
 * ignored rows. */
static by_status FN(cross_entropy_grad)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const gr_loss_attr a = *(const gr_loss_attr *)n->attr;
    const T *x_all = n->in[0]->data;
    const int32_t *target = n->in[1]->data;
    const R *lse = n->in[2]->data;
    T *dx_all = n->out[0]->data;
    int64_t counted;
    BY_TRY(check_targets(n, rows, cols, a.ignore_index, &counted));
    const R *weights = n->in[4] ? n->in[4]->data : NULL;
    const R whole = lse[rows] > 0 ? *(const R *)n->in[3]->data / lse[rows] : 0;
    const R spread = (R)((double)a.label_smoothing / (double)cols), hit = 1 - (R)a.label_smoothing + spread;
    if (weights)
        BY_BRANCH("cross_entropy_grad weighted " BY_STRING(T_NAME));
    else
        BY_BRANCH("cross_entropy_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 2)
    for (int64_t r = 0; r < rows; r++) {
        const T *x = x_all + r * cols;
        T *dx = dx_all + r * cols;
        if (target[r] == a.ignore_index) {
            memset(dx, 0, (size_t)cols * sizeof *dx);
            continue;
        }
        const R shift = lse[r], factor = weights ? whole * weights[target[r]] : whole;
        const R at_target = R_EXP(LD(x[target[r]]) - shift) - hit; /* read before dx may overwrite it */
        R_SIMD
        for (int64_t i = 0; i < cols; i++)
            dx[i] = ST((R_EXP(LD(x[i]) - shift) - spread) * factor);
        dx[target[r]] = ST(at_target * factor);
    }
    return BY_OK;
}
#endif
