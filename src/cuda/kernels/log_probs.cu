/* log_probs.cu - log-probabilities of tokens and divergences between two rows of logits, with their gradients, one block per row.
 * Probabilities are never stored: each row keeps log-sum-exps, and the gradients overwrite the logits. */
#include "cuda/kernels/softmax.cuh"

/* Rows of logits. */
template <class T> struct log_rows {
    const T *x, *z; /* (rows, cols) with pitches; z: the teacher's, or NULL */
    T *dx;          /* likewise; may be x */
    int64_t x_pitch, z_pitch, dx_pitch;
    const int32_t *target;
    float *y, *lse, *entropy; /* (rows); lse of divergences (2, rows) */
    const float *dy;          /* (rows) */
    int64_t rows;
    int cols, whole, ignore;
    float scale;
};

/* As sum_row, of scale x. */
template <class T>
static __device__ __forceinline__ float row_lse(const T *x, int whole, int cols, float scale, float *space)
{
    exp_sum s = no_exps();
    each_piece(x, whole, cols, [&](int, auto &v) {
        for (float &e : v.at)
            e *= scale;
        add_exps(s, v, false);
    });
    s = join_exps(s, false, space);
    return s.max + logf(s.sum);
}

/* The mean of scale (x - y) under the probabilities exp(scale x - lse); y NULL: of scale x. */
template <class T>
static __device__ __forceinline__ float row_mean(const T *x, const T *y, int whole, int cols, float scale,
                                                 float lse, float *space)
{
    float sum = 0;
    each_piece(x, whole, cols, [&](int i, auto &v) {
        enum { N = sizeof v.at / sizeof *v.at };
        auto w = get<N>((y ? y : x) + i);
        for (int j = 0; j < N; j++) {
            const float at = v.at[j] * scale, p = exp_above(at, lse);
            sum += p > 0 ? p * (y ? at - w.at[j] * scale : at) : 0;
        }
    });
    return block_sum(sum, space);
}

/* The gap after a row of gradients takes part in the products that read it. */
template <class T> static __device__ __forceinline__ void zero_from(const log_rows<T> &a, T *dx, int from)
{
    for (int i = from + (int)threadIdx.x; i < (int)a.dx_pitch; i += (int)blockDim.x)
        dx[i] = from_float<T>(0);
}

/* Reports targets that are neither classes nor ignored; they count as ignored. */
static __device__ __forceinline__ bool is_class(int target, int ignore, int cols, int64_t row,
                                                cuda_fault *fault, int node)
{
    const bool known = target >= 0 && target < cols && target != ignore;
    if (!known && target != ignore && threadIdx.x == 0)
        report_fault(fault, node, 1, target, row, cols);
    return known;
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    log_probs_row(log_rows<T> a, cuda_fault *fault, int node)
{
    __shared__ float space[32];
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch;
    const int target = a.target[row];
    const bool counts = is_class(target, a.ignore, a.cols, row, fault, node);
    const float lse = row_lse(x, a.whole, a.cols, a.scale, space);
    if (threadIdx.x == 0 && a.y)
        a.y[row] = counts ? to_float(x[target]) * a.scale - lse : 0;
    if (threadIdx.x == 0 && a.lse)
        a.lse[row] = lse;
    if (!a.entropy)
        return;
    const float mean = row_mean(x, (const T *)NULL, a.whole, a.cols, a.scale, lse, space);
    if (threadIdx.x == 0)
        a.entropy[row] = lse - mean;
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    log_probs_grad_row(log_rows<T> a, cuda_fault *fault, int node)
{
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch;
    T *dx = a.dx + row * a.dx_pitch;
    const int target = a.target[row];
    if (!is_class(target, a.ignore, a.cols, row, fault, node)) {
        zero_from(a, dx, 0);
        return;
    }
    const float lse = a.lse[row], factor = a.scale * a.dy[row], at_target = to_float(x[target]) * a.scale;
    __syncthreads(); /* may be overwritten from here on */
    zero_from(a, dx, a.cols);
    each_piece(x, a.whole, a.cols, [&](int i, auto &v) {
        for (float &e : v.at)
            e = -exp_above(e * a.scale, lse) * factor;
        put(dx + i, v);
    });
    __syncthreads(); /* another thread has written the element at the target */
    if (threadIdx.x == 0)
        dx[target] = from_float<T>((1 - exp_above(at_target, lse)) * factor);
}

template <class T> static __global__ void __launch_bounds__(ROW_THREADS) kl_row(log_rows<T> a)
{
    __shared__ float space[32];
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch, *z = a.z + row * a.z_pitch;
    const float lse_x = row_lse(x, a.whole, a.cols, a.scale, space);
    const float lse_z = row_lse(z, a.whole, a.cols, a.scale, space);
    const float mean = row_mean(z, x, a.whole, a.cols, a.scale, lse_z, space);
    if (threadIdx.x != 0)
        return;
    if (a.y)
        a.y[row] = lse_x - lse_z + mean;
    if (a.lse) {
        a.lse[row] = lse_x;
        a.lse[a.rows + row] = lse_z;
    }
}

template <class T> static __global__ void __launch_bounds__(ROW_THREADS) kl_grad_row(log_rows<T> a)
{
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch, *z = a.z + row * a.z_pitch;
    T *dx = a.dx + row * a.dx_pitch;
    const float lse_x = a.lse[row], lse_z = a.lse[a.rows + row], factor = a.scale * a.dy[row];
    zero_from(a, dx, a.cols);
    each_piece(x, a.whole, a.cols, [&](int i, auto &v) {
        enum { N = sizeof v.at / sizeof *v.at };
        const auto w = get<N>(z + i);
        for (int j = 0; j < N; j++)
            v.at[j] = (exp_above(v.at[j] * a.scale, lse_x) - exp_above(w.at[j] * a.scale, lse_z)) * factor;
        put(dx + i, v);
    });
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static float *floats(const by_tensor *t)
{
    return t ? (float *)t->data : NULL;
}

template <class T> static log_rows<T> rows_of(const gr_node *n, const by_tensor *dx, bool pieces)
{
    log_rows<T> a = {};
    a.x = (const T *)n->in[0]->data;
    a.x_pitch = gr_tensor_pitch(n->in[0]);
    a.dx = dx ? (T *)dx->data : NULL;
    a.dx_pitch = dx ? gr_tensor_pitch(dx) : 0;
    a.rows = gr_tensor_rows(n->in[0]);
    a.cols = (int)gr_tensor_cols(n->in[0]);
    a.whole = pieces ? a.cols / wide<T>::N * wide<T>::N : 0;
    return a;
}

template <class T> static int row_threads(const log_rows<T> &a)
{
    return threads_for(a.whole ? a.whole / wide<T>::N : a.cols, ROW_THREADS);
}

template <class T> static by_status log_probs_of(cuda_exec *x, const gr_node *n, bool backward, bool pieces)
{
    const gr_log_probs_attr *attr = (const gr_log_probs_attr *)n->attr;
    log_rows<T> a = rows_of<T>(n, backward ? n->out[0] : NULL, pieces);
    a.target = (const int32_t *)n->in[1]->data;
    a.ignore = attr->ignore_index;
    a.scale = attr->scale;
    a.lse = floats(backward ? n->in[2] : n->out[1]);
    cuda_fault *fault = x->cuda->device_fault;
    if (backward) {
        a.dy = floats(n->in[3]);
        return cuda_launch(x, log_probs_grad_row<T>, (unsigned)a.rows, row_threads(a), 0, a, fault,
                           cuda_number(x, n));
    }
    a.y = floats(n->out[0]);
    a.entropy = floats(n->out[2]);
    return cuda_launch(x, log_probs_row<T>, (unsigned)a.rows, row_threads(a), 0, a, fault, cuda_number(x, n));
}

template <class T> static by_status kl_of(cuda_exec *x, const gr_node *n, bool backward, bool pieces)
{
    log_rows<T> a = rows_of<T>(n, backward ? n->out[0] : NULL, pieces);
    a.z = (const T *)n->in[1]->data;
    a.z_pitch = gr_tensor_pitch(n->in[1]);
    a.scale = ((const gr_kl_attr *)n->attr)->scale;
    a.lse = floats(backward ? n->in[2] : n->out[1]);
    if (backward) {
        a.dy = floats(n->in[3]);
        return cuda_launch(x, kl_grad_row<T>, (unsigned)a.rows, row_threads(a), 0, a);
    }
    a.y = floats(n->out[0]);
    return cuda_launch(x, kl_row<T>, (unsigned)a.rows, row_threads(a), 0, a);
}

extern "C" by_status cuda_log_probs(gr_exec *e, gr_node *n)
{
    const bool pieces = rows_aligned(n->in[0]);
    if (pieces)
        BY_BRANCH("log_probs, 16 bytes at once");
    else
        BY_BRANCH("log_probs, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, log_probs_of, cuda_exec_of(e), n, false, pieces)
}

extern "C" by_status cuda_log_probs_grad(gr_exec *e, gr_node *n)
{
    const bool pieces = rows_aligned(n->in[0]) && rows_aligned(n->out[0]);
    if (pieces)
        BY_BRANCH("log_probs_grad, 16 bytes at once");
    else
        BY_BRANCH("log_probs_grad, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, log_probs_of, cuda_exec_of(e), n, true, pieces)
}

extern "C" by_status cuda_kl_divergence(gr_exec *e, gr_node *n)
{
    const bool pieces = rows_aligned(n->in[0]) && rows_aligned(n->in[1]);
    if (pieces)
        BY_BRANCH("kl_divergence, 16 bytes at once");
    else
        BY_BRANCH("kl_divergence, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, kl_of, cuda_exec_of(e), n, false, pieces)
}

extern "C" by_status cuda_kl_divergence_grad(gr_exec *e, gr_node *n)
{
    const bool pieces = rows_aligned(n->in[0]) && rows_aligned(n->in[1]) && rows_aligned(n->out[0]);
    if (pieces)
        BY_BRANCH("kl_divergence_grad, 16 bytes at once");
    else
        BY_BRANCH("kl_divergence_grad, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, kl_of, cuda_exec_of(e), n, true, pieces)
}
