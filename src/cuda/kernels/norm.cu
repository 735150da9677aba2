/* norm.cu - LayerNorm and RMSNorm over the last axis, with an optional residual addition before them. */
#include "cuda/kernels/norm.cuh"

template <class T> struct norm_args {
    const T *x, *gamma, *beta, *h; /* beta, h may be NULL */
    T *y, *sum;                    /* sum may be NULL */
    float *stats;                  /* may be NULL */
    int64_t rows;
    int cols;
    bool rms, dropped;
    float eps;
    drop drops;
    const uint64_t *random;
    uint32_t rng;
};

/* x + dropout(h), rounded as stored, for N elements from `at` of the tensor. Four adjacent elements share one
 * call of the generator. */
template <class T, int N>
static __device__ __forceinline__ packed<T, N> add_residual(const norm_args<T> &a, int64_t at,
                                                            const packed<T, N> &x, const packed<T, N> &h)
{
    vec<float, N> s = unpack(x), d = unpack(h);
    if (a.dropped) {
        for (int j = 0; j < N; j += 4) {
            const uint4 r = random4(a.random, a.rng, (uint64_t)(at + j) / 4);
            const uint32_t word[4] = {r.x, r.y, r.z, r.w};
            for (int k = 0; k < (N < 4 ? N : 4); k++) {
                const uint32_t mine = N < 4 ? word[(at + j) % 4] : word[k];
                d.at[j + k] = mine >= a.drops.threshold ? d.at[j + k] * a.drops.factor : 0;
            }
        }
    }
    for (int j = 0; j < N; j++)
        s.at[j] += d.at[j];
    return pack<T, N>(s);
}

template <class T> static __device__ __forceinline__ float inverse_of(const norm_args<T> &a, float square)
{
    return 1 / sqrtf(square / (float)a.cols + a.eps);
}

template <class T, int N>
static __device__ __forceinline__ void apply(const norm_args<T> &a, T *y, vec<float, N> &v, int i, float mean,
                                             float inverse)
{
    const vec<float, N> gamma = get<N>(a.gamma + i);
    for (int j = 0; j < N; j++)
        v.at[j] = (v.at[j] - mean) * inverse * gamma.at[j];
    if (a.beta) {
        const vec<float, N> beta = get<N>(a.beta + i);
        for (int j = 0; j < N; j++)
            v.at[j] += beta.at[j];
    }
    put(y + i, v);
}

enum { DECODED = 64 }; /* up to this many rows, waiting for the parameters dominates the time */

/* A thread has VECS pieces of its row. Two passes over registers: no large squares cancel. */
template <class T, int VECS, bool WARP>
static __global__ void __launch_bounds__(WARP ? 256 : MOST_THREADS) norm_rows(norm_args<T> a)
{
    enum { N = wide<T>::N };
    __shared__ float space[32];
    const int width = WARP ? 32 : (int)blockDim.x, lane = (int)threadIdx.x % width;
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / width;
    let_next_start();
    for (int k = 0; k < VECS && a.rows <= DECODED; k++)
        if ((k * width + lane) * N < a.cols) {
            bring_near(a.gamma + (k * width + lane) * N);
            if (a.beta)
                bring_near(a.beta + (k * width + lane) * N);
        }
    wait_for_previous();
    if (row >= a.rows)
        return;
    const int64_t at = row * a.cols;
    packed<T, N> x[VECS], h[VECS];
#pragma unroll
    for (int k = 0; k < VECS; k++)
        if ((k * width + lane) * N < a.cols)
            x[k] = get_packed<N>(a.x + at + (k * width + lane) * N);
    if (a.h) {
#pragma unroll
        for (int k = 0; k < VECS; k++)
            if ((k * width + lane) * N < a.cols)
                h[k] = get_packed<N>(a.h + at + (k * width + lane) * N);
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int i = (k * width + lane) * N;
            if (i < a.cols) {
                x[k] = add_residual<T, N>(a, at + i, x[k], h[k]);
                if (a.sum)
                    put_packed(a.sum + at + i, x[k]);
            }
        }
    }
    vec<float, N> v[VECS];
    float total = 0, square = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++)
        if ((k * width + lane) * N < a.cols) {
            v[k] = unpack(x[k]);
            for (int j = 0; j < N; j++)
                total += v[k].at[j];
        }
    const float mean = a.rms ? 0 : row_sum<WARP>(total, space) / (float)a.cols;
#pragma unroll
    for (int k = 0; k < VECS; k++)
        if ((k * width + lane) * N < a.cols)
            for (int j = 0; j < N; j++)
                square += (v[k].at[j] - mean) * (v[k].at[j] - mean);
    const float inverse = inverse_of(a, row_sum<WARP>(square, space));
#pragma unroll
    for (int k = 0; k < VECS; k++)
        if ((k * width + lane) * N < a.cols)
            apply(a, a.y + at, v[k], (k * width + lane) * N, mean, inverse);
    if (a.stats && lane == 0)
        store(a.stats + 2 * row, vec<float, 2>{{mean, inverse}});
}

/* Rows of any width, one block each. If the sum is not wanted, it is computed in the memory of y; a thread
 * returns only to its own elements. */
template <class T> static __global__ void __launch_bounds__(ANY_THREADS) norm_any(norm_args<T> a)
{
    __shared__ float space[32];
    const int64_t row = blockIdx.x, at = row * a.cols;
    const T *x = a.x + at;
    T *y = a.y + at;
    let_next_start();
    wait_for_previous();
    if (a.h) {
        T *sum = a.sum ? a.sum + at : y;
        for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x)
            put_packed(sum + i,
                       add_residual<T, 1>(a, at + i, get_packed<1>(x + i), get_packed<1>(a.h + at + i)));
        x = sum;
    }
    float mean = 0, square = 0;
    if (!a.rms) {
        for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x)
            mean += to_float(x[i]);
        mean = block_sum(mean, space) / (float)a.cols;
    }
    for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x)
        square += (to_float(x[i]) - mean) * (to_float(x[i]) - mean);
    const float inverse = inverse_of(a, block_sum(square, space));
    for (int i = (int)threadIdx.x; i < a.cols; i += (int)blockDim.x) {
        vec<float, 1> v = get<1>(x + i);
        apply(a, y, v, i, mean, inverse);
    }
    if (a.stats && threadIdx.x == 0)
        store(a.stats + 2 * row, vec<float, 2>{{mean, inverse}});
}

template <class T> static by_status norm_of(cuda_exec *x, gr_node *n, norm_way how, int pieces)
{
    const gr_norm_attr attr = *(const gr_norm_attr *)n->attr;
    norm_args<T> a = {};
    a.x = (const T *)n->in[0]->data;
    a.gamma = (const T *)n->in[1]->data;
    a.beta = n->in[2] ? (const T *)n->in[2]->data : NULL;
    a.h = n->in[3] ? (const T *)n->in[3]->data : NULL;
    a.y = (T *)n->out[0]->data;
    a.stats = n->out[1] ? (float *)n->out[1]->data : NULL;
    a.sum = n->out[2] ? (T *)n->out[2]->data : NULL;
    a.rows = gr_tensor_rows(n->in[0]);
    a.cols = (int)gr_tensor_cols(n->in[0]);
    a.rms = attr.rms;
    a.dropped = attr.p > 0;
    a.eps = attr.eps;
    a.drops = drop_of(attr.p);
    a.random = x->random;
    a.rng = n->rng;
    if (how == BY_ELEMENT)
        return cuda_launch_early(x, norm_any<T>, (unsigned)a.rows, threads_for(a.cols, ANY_THREADS), 0, a);
    if (how == BY_BLOCK)
        return cuda_launch_early(x, norm_rows<T, 1, false>, (unsigned)a.rows,
                                 threads_for(pieces, MOST_THREADS), 0, a);
    const unsigned grid = blocks_for(a.rows, 256 / 32);
    if (pieces <= 32)
        return cuda_launch_early(x, norm_rows<T, 1, true>, grid, 256, 0, a);
    if (pieces <= 3 * 32)
        return cuda_launch_early(x, norm_rows<T, 3, true>, grid, 256, 0, a);
    if (pieces <= 4 * 32)
        return cuda_launch_early(x, norm_rows<T, 4, true>, grid, 256, 0, a);
    return cuda_launch_early(x, norm_rows<T, 8, true>, grid, 256, 0, a);
}

extern "C" by_status cuda_norm(gr_exec *e, gr_node *n)
{
    bool aligned = true;
    for (int i = 0; i < 4; i++)
        aligned = aligned && rows_aligned(n->in[i]);
    aligned = aligned && rows_aligned(n->out[0]) && rows_aligned(n->out[2]);
    const int pieces = (int)((size_t)gr_tensor_cols(n->in[0]) * by_dtype_size(n->in[0]->type) / 16);
    norm_way how = BY_ELEMENT;
    if (!aligned || pieces > MOST_THREADS)
        BY_BRANCH("norm, one by one");
    /* A warp would take longer. */
    else if (pieces > 8 * 32 || (pieces > 32 && gr_tensor_rows(n->in[0]) <= 2)) {
        BY_BRANCH("norm, a block a row");
        how = BY_BLOCK;
    } else {
        how = BY_WARP;
        if (pieces <= 32)
            BY_BRANCH("norm, a warp a row, 1 piece");
        else if (pieces <= 3 * 32)
            BY_BRANCH("norm, a warp a row, 3 pieces");
        else if (pieces <= 4 * 32)
            BY_BRANCH("norm, a warp a row, 4 pieces");
        else
            BY_BRANCH("norm, a warp a row, 8 pieces");
    }
    BY_CUDA_DISPATCH(n->in[0]->type, norm_of, cuda_exec_of(e), n, how, pieces)
}
