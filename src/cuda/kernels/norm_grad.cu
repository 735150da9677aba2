/* norm_grad.cu - the gradients of LayerNorm and RMSNorm.
 *
 * With z = (x - mean) / std and g = dy gamma: dx = (g - mean(g) - z mean(g z)) / std, plus dsum; for RMSNorm
 * without mean(g). dgamma and dbeta are the sums of dy z and of dy over the rows. A fixed number of blocks
 * shares the rows; each leaves its part of these sums, and a second kernel adds up the parts. */
#include "cuda/kernels/norm.cuh"

enum { GRAD_THREADS = 128 };

template <class T> struct norm_grad_args {
    const T *dy, *x, *gamma, *dsum; /* dsum may be NULL */
    const float *stats;
    T *dx;       /* may be NULL */
    float *part; /* (blocks, 2, cols); NULL: not wanted */
    int64_t rows;
    int cols;
    bool rms;
};

/* dx of N elements. */
template <class T, int N>
static __device__ __forceinline__ packed<T, N> dx_of(const packed<T, N> &dy, const packed<T, N> &x,
                                                     const packed<T, N> &gamma, const packed<T, N> &dsum,
                                                     float mean, float inverse, float g_mean, float gz_mean)
{
    vec<float, N> d = unpack(dy), v = unpack(x), weight = unpack(gamma), more = unpack(dsum);
    for (int j = 0; j < N; j++) {
        const float z = (v.at[j] - mean) * inverse;
        d.at[j] = (d.at[j] * weight.at[j] - g_mean - z * gz_mean) * inverse + more.at[j];
    }
    return pack<T, N>(d);
}

/* Adds the sums of the threads of a warp, or of the block, to the block's part: one warp after the other. */
template <int VECS, int N, bool WARP>
static __device__ __forceinline__ void leave_part(float *part, int cols, float *shared,
                                                  const vec<float, N> *dgamma, const vec<float, N> *dbeta)
{
    const int width = WARP ? 32 : (int)blockDim.x, lane = (int)threadIdx.x % width;
    const int groups = (int)blockDim.x / width, group = (int)threadIdx.x / width;
    for (int w = 0; w < groups; w++) {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int i = (k * width + lane) * N;
            if (w != group || i >= cols)
                continue;
            for (int j = 0; j < N; j += 4)
                for (int half = 0; half < 2; half++) {
                    const float *mine = (half ? dbeta : dgamma)[k].at + j;
                    float *sum = shared + half * cols + i + j;
                    vec<float, 4> s = {{mine[0], mine[1], mine[2], mine[3]}};
                    if (w > 0) {
                        const vec<float, 4> before = load<float, 4>(sum);
                        for (int q = 0; q < 4; q++)
                            s.at[q] += before.at[q];
                    }
                    store(w == groups - 1 ? part + half * cols + i + j : sum, s);
                }
        }
        __syncthreads();
    }
}

/* Blocks that are on a multiprocessor together, and hence in the grid for each of them. */
template <class T> static constexpr int blocks_per_sm(int vecs, bool warp)
{
    return !warp ? 1 : vecs * wide<T>::N > 24 ? 3 : 4;
}

template <class T, int VECS, bool WARP>
static __global__ void __launch_bounds__(WARP ? GRAD_THREADS : MOST_THREADS, blocks_per_sm<T>(VECS, WARP))
    norm_grad_rows(norm_grad_args<T> a)
{
    enum { N = wide<T>::N };
    BY_SHARED(float, shared);
    __shared__ float space[32];
    const int width = WARP ? 32 : (int)blockDim.x, lane = (int)threadIdx.x % width;
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / width,
                  step = (int64_t)gridDim.x * blockDim.x / width;
    packed<T, N> gamma[VECS], dy[VECS], x[VECS], dsum[VECS];
    vec<float, N> dgamma[VECS], dbeta[VECS];
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        dgamma[k] = dbeta[k] = vec<float, N>{};
        dsum[k] = packed<T, N>{}; /* zeros if there is none */
        if ((k * width + lane) * N < a.cols)
            gamma[k] = get_packed<N>(a.gamma + (k * width + lane) * N);
    }
    for (int64_t row = first; row < a.rows; row += step) {
        const int64_t at = row * a.cols + lane * N;
#pragma unroll
        for (int k = 0; k < VECS; k++)
            if ((k * width + lane) * N < a.cols) {
                dy[k] = get_packed<N>(a.dy + at + k * width * N);
                x[k] = get_packed<N>(a.x + at + k * width * N);
                if (a.dsum)
                    dsum[k] = get_packed<N>(a.dsum + at + k * width * N);
            }
        const vec<float, 2> stats = load<float, 2>(a.stats + 2 * row);
        const float mean = stats.at[0], inverse = stats.at[1];
        float g_sum = 0, gz_sum = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if ((k * width + lane) * N >= a.cols)
                continue;
            const vec<float, N> d = unpack(dy[k]), v = unpack(x[k]), weight = unpack(gamma[k]);
            for (int j = 0; j < N; j++) {
                const float z = (v.at[j] - mean) * inverse, g = d.at[j] * weight.at[j];
                g_sum += g;
                gz_sum += g * z;
                dgamma[k].at[j] += d.at[j] * z;
                dbeta[k].at[j] += d.at[j];
            }
            forget(dy[k]);
            forget(x[k]);
            forget(gamma[k]);
        }
        if (!a.dx)
            continue;
        const float g_mean = a.rms ? 0 : row_sum<WARP>(g_sum, space) / (float)a.cols;
        const float gz_mean = row_sum<WARP>(gz_sum, space) / (float)a.cols;
#pragma unroll
        for (int k = 0; k < VECS; k++)
            if ((k * width + lane) * N < a.cols)
                put_packed(a.dx + at + k * width * N,
                           dx_of(dy[k], x[k], gamma[k], dsum[k], mean, inverse, g_mean, gz_mean));
    }
    if (a.part)
        leave_part<VECS, N, WARP>(a.part + (int64_t)blockIdx.x * 2 * a.cols, a.cols, shared, dgamma, dbeta);
}

/* dx of rows of any width, one block each. */
template <class T> static __global__ void __launch_bounds__(ANY_THREADS) norm_dx_any(norm_grad_args<T> a)
{
    __shared__ float space[32];
    const int64_t row = blockIdx.x, at = row * a.cols;
    const float mean = a.stats[2 * row], inverse = a.stats[2 * row + 1];
    float g_sum = 0, gz_sum = 0;
    for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x) {
        const float g = to_float(a.dy[at + i]) * to_float(a.gamma[i]);
        g_sum += g;
        gz_sum += g * (to_float(a.x[at + i]) - mean) * inverse;
    }
    const float g_mean = a.rms ? 0 : block_sum(g_sum, space) / (float)a.cols;
    const float gz_mean = block_sum(gz_sum, space) / (float)a.cols;
    for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x) {
        const packed<T, 1> dsum = a.dsum ? get_packed<1>(a.dsum + at + i) : packed<T, 1>{};
        put_packed(a.dx + at + i, dx_of(get_packed<1>(a.dy + at + i), get_packed<1>(a.x + at + i),
                                        get_packed<1>(a.gamma + i), dsum, mean, inverse, g_mean, gz_mean));
    }
}

/* Parts of dgamma and dbeta of rows of any width: one thread per column, grid (columns, parts). */
template <class T> static __global__ void __launch_bounds__(ANY_THREADS) norm_part_any(norm_grad_args<T> a)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float dgamma = 0, dbeta = 0;
    if (i >= a.cols)
        return;
    for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const float d = to_float(a.dy[row * a.cols + i]);
        dgamma += d * ((to_float(a.x[row * a.cols + i]) - a.stats[2 * row]) * a.stats[2 * row + 1]);
        dbeta += d;
    }
    float *part = a.part + (int64_t)blockIdx.y * 2 * a.cols + i;
    part[0] = dgamma;
    part[a.cols] = dbeta;
}

/* out (cols) = the sum of the parts, added to out if `add`: grid (columns / 32, 2), block (32, at most 32).
 * The second row of the grid does dbeta. */
static __global__ void __launch_bounds__(1024) norm_join(float *dgamma, float *dbeta, const float *part,
                                                         int parts, int cols, bool add_dgamma, bool add_dbeta)
{
    __shared__ float sums[32][32];
    const int i = (int)(blockIdx.x * 32 + threadIdx.x), y = (int)threadIdx.y, height = (int)blockDim.y;
    float *out = blockIdx.y ? dbeta : dgamma, sum = 0;
    if (!out)
        return;
    for (int p = y; i < cols && p < parts; p += height)
        sum += part[((int64_t)p * 2 + blockIdx.y) * cols + i];
    sums[y][threadIdx.x] = sum;
    __syncthreads();
    if (y > 0 || i >= cols)
        return;
    for (int k = 1; k < height; k++)
        sum += sums[k][threadIdx.x];
    out[i] = (blockIdx.y ? add_dbeta : add_dgamma) ? out[i] + sum : sum;
}

template <class T, int VECS, bool WARP>
static by_status launch_grad(cuda_exec *x, const norm_grad_args<T> &a, int parts, int threads)
{
    const size_t shared = WARP && a.part ? 2 * (size_t)a.cols * sizeof(float) : 0;
    return cuda_launch(x, norm_grad_rows<T, VECS, WARP>, parts, threads, shared, a);
}

/* Number of blocks that share the rows. */
template <class T> static int parts_of(const cuda_exec *x, norm_way how, int pieces, int64_t rows)
{
    int64_t most = rows; /* a block for every row */
    int per_sm = 4;
    if (how == BY_WARP) {
        most = blocks_for(rows, GRAD_THREADS / 32);
        per_sm = blocks_per_sm<T>(pieces > 3 * 32 ? 4 : 3, true);
    } else if (how == BY_BLOCK)
        per_sm = BY_MIN(4, MOST_THREADS / threads_for(pieces, MOST_THREADS));
    return (int)BY_MIN(most, (int64_t)per_sm * x->cuda->sms);
}

template <class T> static by_status norm_grad_of(cuda_exec *x, gr_node *n, norm_way how, int pieces)
{
    norm_grad_args<T> a = {};
    a.dy = (const T *)n->in[0]->data;
    a.x = (const T *)n->in[1]->data;
    a.stats = (const float *)n->in[2]->data;
    a.gamma = (const T *)n->in[3]->data;
    a.dsum = n->in[4] ? (const T *)n->in[4]->data : NULL;
    a.dx = n->out[0] ? (T *)n->out[0]->data : NULL;
    a.rows = gr_tensor_rows(n->in[0]);
    a.cols = (int)gr_tensor_cols(n->in[0]);
    a.rms = ((const gr_norm_attr *)n->attr)->rms;
    float *dgamma = n->out[1] ? (float *)n->out[1]->data : NULL;
    float *dbeta = n->out[2] ? (float *)n->out[2]->data : NULL;
    const int parts = parts_of<T>(x, how, pieces, a.rows);
    const bool joined = dgamma || dbeta;
    if (joined)
        a.part = (float *)cuda_scratch(x, (size_t)parts * 2 * (size_t)a.cols * sizeof(float));
    if (how == BY_ELEMENT) {
        const int threads = threads_for(a.cols, ANY_THREADS);
        if (a.dx)
            BY_TRY(cuda_launch(x, norm_dx_any<T>, (unsigned)a.rows, threads, 0, a));
        if (joined)
            BY_TRY(cuda_launch(x, norm_part_any<T>, dim3(blocks_for(a.cols, threads), (unsigned)parts),
                               threads, 0, a));
    } else if (how == BY_BLOCK)
        BY_TRY((launch_grad<T, 1, false>(x, a, parts, threads_for(pieces, MOST_THREADS))));
    else if (pieces <= 32)
        BY_TRY((launch_grad<T, 1, true>(x, a, parts, GRAD_THREADS)));
    else if (pieces <= 3 * 32)
        BY_TRY((launch_grad<T, 3, true>(x, a, parts, GRAD_THREADS)));
    else
        BY_TRY((launch_grad<T, 4, true>(x, a, parts, GRAD_THREADS)));
    if (!joined)
        return BY_OK;
    return cuda_launch(x, norm_join, dim3(blocks_for(a.cols, 32), 2), dim3(32, (unsigned)BY_MIN(parts, 32)),
                       0, dgamma, dbeta, a.part, parts, a.cols, n->in[5] != NULL, n->in[6] != NULL);
}

extern "C" by_status cuda_norm_grad(gr_exec *e, gr_node *n)
{
    const bool aligned = rows_aligned(n->in[0]) && rows_aligned(n->in[1]) && rows_aligned(n->in[3]) &&
                         rows_aligned(n->in[4]) && rows_aligned(n->out[0]);
    const int pieces = (int)((size_t)gr_tensor_cols(n->in[0]) * by_dtype_size(n->in[0]->type) / 16);
    norm_way how = BY_ELEMENT;
    if (!aligned || pieces > MOST_THREADS)
        BY_BRANCH("norm_grad, one by one");
    else if (pieces > 4 * 32) {
        BY_BRANCH("norm_grad, a block a row");
        how = BY_BLOCK;
    } else {
        how = BY_WARP;
        if (pieces <= 32)
            BY_BRANCH("norm_grad, a warp a row, 1 piece");
        else if (pieces <= 3 * 32)
            BY_BRANCH("norm_grad, a warp a row, 3 pieces");
        else
            BY_BRANCH("norm_grad, a warp a row, 4 pieces");
    }
    BY_CUDA_DISPATCH(n->in[0]->type, norm_grad_of, cuda_exec_of(e), n, how, pieces)
}
