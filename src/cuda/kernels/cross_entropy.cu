/* cross_entropy.cu - the cross-entropy of logits and its gradient, one block per row. Probabilities are never
 * stored: the loss keeps one log-sum-exp per row, and the gradient overwrites the logits.
 *
 * If a cross_entropy node and its gradient are partners, the kernel of the gradient does the work of both,
 * and reads the logits from memory once. */
#include "cuda/kernels/mma.cuh"
#include "cuda/kernels/softmax.cuh"

enum { ALONE = 1024 }; /* threads of kernels with a single block */

/* ---- kernels --------------------------------------------------------------------------------- */

template <class T> struct loss_args {
    const T *x; /* (rows, cols) with a pitch */
    T *dx;      /* likewise; may be x */
    int64_t x_pitch, dx_pitch;
    const int32_t *target;
    const float *weights;       /* (cols), class weights; NULL: uniform */
    float *lse;                 /* (rows + 1); NULL: not wanted, in the forward pass */
    float *loss;                /* (rows) of each row */
    const float *count, *dloss; /* one number each */
    int cols, whole, ignore;
    float smoothing;
};

/* Rows with a bad target, which has been reported, are treated as ignored. */
static __device__ __forceinline__ bool is_class(int target, int ignore, int cols)
{
    return target != ignore && target >= 0 && target < cols;
}

/* Counts the rows that are not ignored, or sums their weights. Reports targets that are neither classes nor
 * ignore_index. */
static __global__ void count_targets(float *count, const int32_t *target, const float *weights, int64_t rows,
                                     int cols, int ignore, cuda_fault *fault, int node)
{
    __shared__ float space[32];
    float counted = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        if (is_class(target[r], ignore, cols))
            counted += weights ? weights[target[r]] : 1;
        else if (target[r] != ignore)
            report_fault(fault, node, 1, target[r], r, cols);
    }
    const float all = block_sum(counted, space);
    if (threadIdx.x == 0)
        *count = all;
}

/* loss = sum(losses of the rows) / count, in a fixed order on every device. */
static __global__ void mean_loss(float *loss, const float *each, int64_t rows, const float *count)
{
    __shared__ double space[32];
    double sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
        sum += each[r];
    sum = block_sum_double(sum, space);
    if (threadIdx.x == 0)
        *loss = *count > 0 ? (float)(sum / *count) : 0;
}

/* The loss of a row is (1 - s) (lse - x[target]) + s (lse - mean(x)), where s is the label smoothing, times
 * its weight. Returns the lse of the row, and stores what the forward pass needs. */
template <class T>
static __device__ __forceinline__ float finish_row(const loss_args<T> &a, int64_t row, const exp_sum &s,
                                                   bool counts, float at_target)
{
    const float log_sum = logf(s.sum), lse = s.max + log_sum;
    if (threadIdx.x == 0) {
        float loss = 0;
        if (counts) /* two small differences instead of one of large numbers */
            loss = (1 - a.smoothing) * (log_sum + (s.max - at_target));
        if (counts && a.smoothing > 0)
            loss += a.smoothing * (log_sum + (s.max - s.total / (float)a.cols));
        a.loss[row] = counts && a.weights ? loss * a.weights[a.target[row]] : loss;
        if (a.lse)
            a.lse[row] = lse;
    }
    return lse;
}

/* The gap after a row of gradients takes part in the products that read it. */
template <class T> static __device__ __forceinline__ void zero_gap(const loss_args<T> &a, T *dx)
{
    for (int i = a.cols + (int)threadIdx.x; i < (int)a.dx_pitch; i += (int)blockDim.x)
        dx[i] = from_float<T>(0);
}

template <class T> static __device__ __forceinline__ void zero_row(const loss_args<T> &a, T *dx)
{
    zero_gap(a, dx);
    each_piece(dx, a.whole, a.cols, [&](int i, auto &v) {
        for (float &e : v.at)
            e = 0;
        put(dx + i, v);
    });
}

/* The factor of the gradients is dloss / count. Both are requested before the row, otherwise they would have
 * to be waited for separately. */
struct loss_scale {
    float dloss, count;
};
template <class T> static __device__ __forceinline__ loss_scale scale_of(const loss_args<T> &a)
{
    return loss_scale{*a.dloss, *a.count};
}

/* dlogits = (softmax - (1 - s) onehot - s / V) dloss / counted, times the weight of the row. `from` is the
 * row of logits, in memory (possibly where dx is) or kept in shared memory. */
template <class T>
static __device__ __forceinline__ void gradient_row(const loss_args<T> &a, T *dx, const T *from, float lse,
                                                    int target, float at_target, loss_scale scale)
{
    const float spread = a.smoothing / (float)a.cols, hit = 1 - a.smoothing + spread;
    const float weight = a.weights ? a.weights[target] : 1;
    const float factor = scale.count > 0 ? scale.dloss / scale.count * weight : 0, less = -spread * factor;
    zero_gap(a, dx);
    each_piece(from, a.whole, a.cols, [&](int i, auto &v) {
        for (float &e : v.at)
            e = fmaf(exp_above(e, lse), factor, less);
        put(dx + i, v);
    });
    __syncthreads(); /* another thread has written the element at the target */
    if (threadIdx.x == 0)
        dx[target] = from_float<T>((exp_above(at_target, lse) - hit) * factor);
}

template <class T> static __global__ void __launch_bounds__(ROW_THREADS) loss_row(loss_args<T> a)
{
    __shared__ float space[32];
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch;
    const int target = a.target[row];
    const bool counts = is_class(target, a.ignore, a.cols), smooth = a.smoothing > 0;
    if (!counts && !a.lse) {
        if (threadIdx.x == 0)
            a.loss[row] = 0;
        return;
    }
    const float at_target = counts ? to_float(x[target]) : 0;
    const exp_sum s = join_exps(sum_row(x, a.whole, a.cols, smooth), smooth, space);
    finish_row(a, row, s, counts, at_target);
}

template <class T> static __global__ void __launch_bounds__(ROW_THREADS) loss_grad_row(loss_args<T> a)
{
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch;
    T *dx = a.dx + row * a.dx_pitch;
    const int target = a.target[row];
    if (!is_class(target, a.ignore, a.cols)) {
        zero_row(a, dx);
        return;
    }
    const loss_scale scale = scale_of(a);
    const float at_target = to_float(x[target]);
    __syncthreads(); /* may be overwritten from here on */
    gradient_row(a, dx, x, a.lse[row], target, at_target, scale);
}

/* As sum_row, keeping a copy of the row in shared memory. All copies of 16 bytes are in flight before the
 * first is waited for; every thread then reads only those that it requested itself. */
template <class T>
static __device__ __forceinline__ exp_sum sum_and_keep(T *kept, const T *x, int whole, int cols,
                                                       bool with_total)
{
    enum { N = wide<T>::N, PARTS = 4 };
    const int thread = (int)threadIdx.x * N, step = (int)blockDim.x * N;
    const int part = (whole + PARTS * step - 1) / (PARTS * step) * step;
    exp_sum s = no_exps();
    for (int p = 0; p < PARTS; p++) {
        for (int i = p * part + thread; i < min((p + 1) * part, whole); i += step)
            copy_async(kept + i, x + i, true);
        copy_commit();
    }
    for (int i = whole + (int)threadIdx.x; i < cols; i += (int)blockDim.x) {
        kept[i] = x[i];
        add_exps(s, get<1>(x + i), with_total);
    }
    auto take = [&](int p) {
        for (int i = p * part + thread; i < min((p + 1) * part, whole); i += step)
            add_exps(s, get<N>(kept + i), with_total);
    };
    copy_wait<3>();
    take(0);
    copy_wait<2>();
    take(1);
    copy_wait<1>();
    take(2);
    copy_wait<0>();
    take(3);
    return s;
}

/* Both at once. KEPT: the row stays in shared memory for the second pass. */
template <class T, bool KEPT>
static __global__ void __launch_bounds__(ROW_THREADS) loss_both_row(loss_args<T> a)
{
    BY_SHARED(T, kept);
    __shared__ float space[32];
    const int64_t row = blockIdx.x;
    const T *x = a.x + row * a.x_pitch;
    T *dx = a.dx + row * a.dx_pitch;
    const int target = a.target[row];
    const bool counts = is_class(target, a.ignore, a.cols), smooth = a.smoothing > 0;
    const loss_scale scale = scale_of(a);
    float at_target = 0;
    exp_sum s;
    if constexpr (KEPT)
        s = sum_and_keep(kept, x, a.whole, a.cols, smooth);
    else
        s = sum_row(x, a.whole, a.cols, smooth);
    if (!KEPT && counts)
        at_target = to_float(x[target]); /* before the barriers: dx may be x */
    s = join_exps(s, smooth, space);
    if (KEPT && counts)
        at_target = to_float(kept[target]); /* after them: another thread loaded it */
    const float lse = finish_row(a, row, s, counts, at_target);
    if (!counts)
        zero_row(a, dx);
    else if constexpr (KEPT)
        gradient_row(a, dx, kept, lse, target, at_target, scale);
    else
        gradient_row(a, dx, x, lse, target, at_target, scale);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* How the rows are read. */
enum loss_way { BY_ONE, BY_PIECE, KEEPING };

/* Shared by both directions; dx NULL: forward only. */
template <class T> static loss_args<T> loss_args_of(const gr_node *n, const by_tensor *dx, loss_way how)
{
    const gr_loss_attr *attr = (const gr_loss_attr *)n->attr;
    loss_args<T> a = {};
    a.x = (const T *)n->in[0]->data;
    a.x_pitch = gr_tensor_pitch(n->in[0]);
    a.dx = dx ? (T *)dx->data : NULL;
    a.dx_pitch = dx ? gr_tensor_pitch(dx) : 0;
    a.target = (const int32_t *)n->in[1]->data;
    a.cols = (int)gr_tensor_cols(n->in[0]);
    a.whole = how == BY_ONE ? 0 : a.cols / wide<T>::N * wide<T>::N;
    a.ignore = attr->ignore_index;
    a.smoothing = attr->label_smoothing;
    return a;
}

template <class T> static int loss_threads(const loss_args<T> &a)
{
    return threads_for(a.whole ? a.whole / wide<T>::N : a.cols, ROW_THREADS);
}

/* `forward` is the cross_entropy node, `backward` the one that follows it if both are done at once. */
template <class T>
static by_status loss_of(cuda_exec *x, const gr_node *forward, const gr_node *backward, loss_way how)
{
    const int64_t rows = gr_tensor_rows(forward->in[0]);
    loss_args<T> a = loss_args_of<T>(forward, backward ? backward->out[0] : NULL, how);
    float *own = (float *)cuda_scratch(x, (size_t)(rows + 1) * sizeof(float));
    a.loss = own;
    a.lse = forward->out[1] ? (float *)forward->out[1]->data : NULL;
    a.weights = forward->in[2] ? (const float *)forward->in[2]->data : NULL;
    float *count = (a.lse ? a.lse : own) + rows;
    a.count = count;
    a.dloss = backward ? (const float *)backward->in[3]->data : NULL;
    BY_TRY(cuda_launch(x, count_targets, 1, ALONE, 0, count, a.target, a.weights, rows, a.cols, a.ignore,
                       x->cuda->device_fault, cuda_number(x, forward)));
    const int threads = loss_threads(a);
    if (!backward)
        BY_TRY(cuda_launch(x, loss_row<T>, (unsigned)rows, threads, 0, a));
    else if (how == KEEPING)
        BY_TRY(
            cuda_launch(x, loss_both_row<T, true>, (unsigned)rows, threads, (size_t)a.cols * sizeof(T), a));
    else
        BY_TRY(cuda_launch(x, loss_both_row<T, false>, (unsigned)rows, threads, 0, a));
    return cuda_launch(x, mean_loss, 1, ALONE, 0, (float *)forward->out[0]->data, own, rows, count);
}

template <class T> static by_status loss_grad_of(cuda_exec *x, const gr_node *n, loss_way how)
{
    const int64_t rows = gr_tensor_rows(n->in[0]);
    loss_args<T> a = loss_args_of<T>(n, n->out[0], how);
    a.lse = (float *)n->in[2]->data;
    a.count = a.lse + rows;
    a.dloss = (const float *)n->in[3]->data;
    a.weights = n->in[4] ? (const float *)n->in[4]->data : NULL;
    float *own = (float *)cuda_scratch(x, sizeof(float)); /* for an unused count */
    BY_TRY(cuda_launch(x, count_targets, 1, ALONE, 0, own, a.target, a.weights, rows, a.cols, a.ignore,
                       x->cuda->device_fault, cuda_number(x, n)));
    return cuda_launch(x, loss_grad_row<T>, (unsigned)rows, loss_threads(a), 0, a);
}

extern "C" by_status cuda_cross_entropy(gr_exec *e, gr_node *n)
{
    if (n->partner) {
        BY_BRANCH("cross_entropy, left to its gradient");
        return BY_OK;
    }
    const loss_way how = rows_aligned(n->in[0]) ? BY_PIECE : BY_ONE;
    if (how == BY_PIECE)
        BY_BRANCH("cross_entropy, 16 bytes at once");
    else
        BY_BRANCH("cross_entropy, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, loss_of, cuda_exec_of(e), n, (const gr_node *)NULL, how)
}

extern "C" by_status cuda_cross_entropy_grad(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const size_t bytes = (size_t)gr_tensor_cols(n->in[0]) * by_dtype_size(n->in[0]->type);
    loss_way how = rows_aligned(n->in[0]) && rows_aligned(n->out[0]) ? BY_PIECE : BY_ONE;
    if (!n->partner) {
        if (how == BY_PIECE)
            BY_BRANCH("cross_entropy_grad, 16 bytes at once");
        else
            BY_BRANCH("cross_entropy_grad, one by one");
        BY_CUDA_DISPATCH(n->in[0]->type, loss_grad_of, x, n, how)
    }
    if (how == BY_PIECE && bytes + 1024 <= (size_t)x->cuda->shared_limit) {
        BY_BRANCH("cross_entropy with its gradient, read once");
        how = KEEPING;
    } else if (how == BY_PIECE)
        BY_BRANCH("cross_entropy with its gradient, read twice");
    else
        BY_BRANCH("cross_entropy with its gradient, one by one");
    BY_CUDA_DISPATCH(n->in[0]->type, loss_of, x, (const gr_node *)n->partner, n, how)
}
