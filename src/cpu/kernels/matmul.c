/* matmul.c - linear layers, their gradients and batched products. The products themselves are planned when
 * the program is compiled (n->plan, a cpu_gemm). */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "cpu/gemm_select.h"

enum {
    CHUNK = 512,   /* elements of an activation processed at a time, in R */
    COLUMNS = 256, /* columns of a sum over rows per task */
    BUNDLE = 64    /* rows summed before they are added to the total, which limits the error of long sums */
};

#define BY_TEMPLATE "cpu/kernels/matmul.c"
#include "cpu/kernels/each_type.h"

/* If `pre` is wanted for the backward pass, the activation is a separate pass; otherwise it is fused into the
 * product. */
by_status KERNEL(linear)(gr_exec *e, gr_node *n)
{
    by_tensor *bias = n->in[2], *y = n->out[0], *pre = n->out[1];
    if (e->planning)
        return cpu_plan_linear(e->device, n);
    if (!pre) {
        BY_BRANCH("linear, activation inside");
        return cpu_gemm_run(n->plan, n->in[0]->data, n->in[1]->data, bias ? bias->data : NULL, y->data);
    }
    BY_BRANCH("linear, activation after");
    BY_TRY(cpu_gemm_run(n->plan, n->in[0]->data, n->in[1]->data, bias ? bias->data : NULL, pre->data));
    if (!y)
        return BY_OK;
    BY_DISPATCH(pre->type, activation_pass, e, n);
}

by_status KERNEL(linear_dx)(gr_exec *e, gr_node *n)
{
    if (e->planning)
        return cpu_plan_linear_dx(e->device, n);
    BY_BRANCH("linear_dx");
    return cpu_gemm_run(n->plan, n->in[0]->data, n->in[1]->data, NULL, n->out[0]->data);
}

by_status KERNEL(linear_dw)(gr_exec *e, gr_node *n)
{
    by_tensor *x = n->in[0], *dy = n->in[1];
    if (e->planning)
        return cpu_plan_linear_dw(e->device, n);
    if (n->out[0]) {
        bool w_is_kn = ((const gr_linear_attr *)n->attr)->w_is_kn;
        BY_BRANCH("linear_dw, weight");
        BY_TRY(cpu_gemm_run(n->plan, w_is_kn ? x->data : dy->data, w_is_kn ? dy->data : x->data, NULL,
                            n->out[0]->data));
    }
    if (!n->out[1])
        return BY_OK;
    BY_DISPATCH(dy->type, column_sums, e, n);
}

by_status KERNEL(matmul)(gr_exec *e, gr_node *n)
{
    if (e->planning)
        return cpu_plan_matmul(e->device, n);
    BY_BRANCH("matmul");
    return cpu_gemm_run(n->plan, n->in[0]->data, n->in[1]->data, NULL, n->out[0]->data);
}

#else /* ---- typed ----------------------------------------------------------------------------------- */

#include "cpu/kernels/act.h"

/* linear: out[0] = act(out[1]). */
static by_status FN(activation_pass)(gr_exec *e, gr_node *n)
{
    const by_act act = ((const gr_linear_attr *)n->attr)->act;
    const int64_t count = gr_tensor_rows(n->out[1]) * gr_tensor_cols(n->out[1]);
    const T *pre = n->out[1]->data;
    T *y = n->out[0]->data;
    (void)e; /* without OpenMP */
    BY_BRANCH("linear, activation pass");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count > BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < count; i += CHUNK) {
        R v[CHUNK];
        const int64_t w = BY_MIN(CHUNK, count - i);
        for (int64_t q = 0; q < w; q++)
            v[q] = LD(pre[i + q]);
        FN(activate)(act, w, v, v);
        for (int64_t q = 0; q < w; q++)
            y[i + q] = ST(v[q]);
    }
    return BY_OK;
}

/* linear_dw: out[1] (N) = sum over the rows of in[1] (R, N) [+ itself]. One thread sums a column, from top to
 * bottom. */
static by_status FN(column_sums)(gr_exec *e, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[1]), cols = gr_tensor_cols(n->in[1]);
    const T *dy = n->in[1]->data;
    R *db = n->out[1]->data;
    const bool add = n->in[3] != NULL;
    (void)e; /* without OpenMP */
    BY_BRANCH("linear_dw, bias");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols > BY_FORK_ELEMENTS)
    for (int64_t j = 0; j < cols; j += COLUMNS) {
        const int64_t w = BY_MIN(COLUMNS, cols - j);
        R total[COLUMNS], part[COLUMNS];
        for (int64_t q = 0; q < w; q++)
            total[q] = add ? db[j + q] : 0;
        for (int64_t r0 = 0; r0 < rows; r0 += BUNDLE) {
            memset(part, 0, sizeof part);
            for (int64_t r = r0; r < BY_MIN(r0 + BUNDLE, rows); r++)
                for (int64_t q = 0; q < w; q++)
                    part[q] += LD(dy[r * cols + j + q]);
            for (int64_t q = 0; q < w; q++)
                total[q] += part[q];
        }
        memcpy(db + j, total, (size_t)w * sizeof(R));
    }
    return BY_OK;
}

#endif
