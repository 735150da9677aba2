/* softmax.cu - softmax over the last axis and its gradient, one block per row. */
#include "cuda/kernels/softmax.cuh"

/* y may be x: a thread writes only what it alone has read. */
template <class T> static __global__ void softmax_row(T *y_all, const T *x_all, int whole, int cols)
{
    __shared__ float space[32];
    const T *x = x_all + (int64_t)blockIdx.x * cols;
    T *y = y_all + (int64_t)blockIdx.x * cols;
    const exp_sum s = join_exps(sum_row(x, whole, cols, false), false, space);
    const float inverse = 1 / s.sum;
    each_piece(x, whole, cols, [&](int i, auto &v) {
        for (float &e : v.at)
            e = exp_above(e, s.max) * inverse;
        put(y + i, v);
    });
}

/* dx = y (dy - sum(y dy)) */
template <class T>
static __global__ void softmax_grad_row(T *dx_all, const T *y_all, const T *dy_all, int whole, int cols)
{
    __shared__ float space[32];
    const int64_t at = (int64_t)blockIdx.x * cols;
    const T *y = y_all + at, *dy = dy_all + at;
    T *dx = dx_all + at;
    float dot = 0;
    each_piece(y, whole, cols, [&](int i, auto &v) {
        const auto d = get<sizeof v.at / sizeof *v.at>(dy + i);
        for (size_t j = 0; j < sizeof v.at / sizeof *v.at; j++)
            dot += v.at[j] * d.at[j];
    });
    dot = block_sum(dot, space);
    each_piece(y, whole, cols, [&](int i, auto &v) {
        auto d = get<sizeof v.at / sizeof *v.at>(dy + i);
        for (size_t j = 0; j < sizeof v.at / sizeof *v.at; j++)
            d.at[j] = v.at[j] * (d.at[j] - dot);
        put(dx + i, d);
    });
}

template <class T> static by_status softmax(cuda_exec *x, gr_node *n, bool wide_rows)
{
    const int64_t rows = gr_tensor_rows(n->in[0]);
    const int cols = (int)gr_tensor_cols(n->in[0]), whole = wide_rows ? cols : 0;
    return cuda_launch(x, softmax_row<T>, (unsigned)rows,
                       threads_for(wide_rows ? cols / wide<T>::N : cols, ROW_THREADS), 0,
                       (T *)n->out[0]->data, (const T *)n->in[0]->data, whole, cols);
}

template <class T> static by_status softmax_grad(cuda_exec *x, gr_node *n, bool wide_rows)
{
    const int64_t rows = gr_tensor_rows(n->in[0]);
    const int cols = (int)gr_tensor_cols(n->in[0]), whole = wide_rows ? cols : 0;
    return cuda_launch(x, softmax_grad_row<T>, (unsigned)rows,
                       threads_for(wide_rows ? cols / wide<T>::N : cols, ROW_THREADS), 0,
                       (T *)n->out[0]->data, (const T *)n->in[0]->data, (const T *)n->in[1]->data, whole,
                       cols);
}

extern "C" by_status cuda_softmax(gr_exec *e, gr_node *n)
{
    const bool wide_rows = rows_aligned(n->in[0]) && rows_aligned(n->out[0]);
    if (wide_rows)
        BY_BRANCH("softmax, 16 bytes at once");
    else
        BY_BRANCH("softmax, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, softmax, cuda_exec_of(e), n, wide_rows)
}

extern "C" by_status cuda_softmax_grad(gr_exec *e, gr_node *n)
{
    const bool wide_rows = rows_aligned(n->in[0]) && rows_aligned(n->in[1]) && rows_aligned(n->out[0]);
    if (wide_rows)
        BY_BRANCH("softmax_grad, 16 bytes at once");
    else
        BY_BRANCH("softmax_grad, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, softmax_grad, cuda_exec_of(e), n, wide_rows)
}
