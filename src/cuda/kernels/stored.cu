/* stored.cu - see stored.cuh. Values are converted exactly and summed in f32, in a fixed order. */
#include "cuda/kernels/stored.cuh"
#include "cuda/kernels/act.cuh"

/* ---- conversion -------------------------------------------------------------------------------- */

enum { THREADS = 256 };

template <class T, by_dtype S>
__global__ void __launch_bounds__(THREADS) unpack_values(const void *from, T *to, int64_t count)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (i + 4 <= count) {
        const vec<float, 4> v = stored4<S>(from, i);
        vec<T, 4> y;
        for (int k = 0; k < 4; k++)
            y.at[k] = from_float<T>(v.at[k]);
        store(to + i, y);
        return;
    }
    for (int64_t k = i; k < count; k++) /* only 16-bit floats come in numbers that 4 does not divide */
        to[k] = from_float<T>(S == BY_BF16 ? to_float(((const bf16 *)from)[k])
                                           : to_float(((const f16 *)from)[k]));
}

template <class T, by_dtype S>
static by_status unpack(cuda_exec *x, const void *from, void *to, int64_t count)
{
    return cuda_launch(x, unpack_values<T, S>, dim3(blocks_for(count, 4 * THREADS)), dim3(THREADS), 0, from,
                       (T *)to, count);
}

by_status cuda_stored_unpack(cuda_exec *x, const void *from, by_dtype stored, void *to, by_dtype type,
                             int64_t count)
{
    if (count == 0)
        return BY_OK;
    CUDA_STORED_DISPATCH(stored, type, unpack, x, from, to, count);
}

/* ---- one row ------------------------------------------------------------------------------------ */

typedef struct row_args {
    const void *x, *w, *bias;
    void *y;
    int64_t n, k;
    by_act act;
} row_args;

template <class T> static __device__ __forceinline__ void finish(const row_args &a, int64_t n, float sum)
{
    if (a.bias)
        sum += to_float(((const T *)a.bias)[n]);
    ((T *)a.y)[n] = from_float<T>(activate_as<T>(a.act, sum));
}

/* w (N, K): a warp takes one row of it, a lane four neighbours at a time. */
template <class T, by_dtype S> __global__ void __launch_bounds__(THREADS) row_nk(row_args a)
{
    const int lane = threadIdx.x & 31;
    const int64_t n = ((int64_t)blockIdx.x * THREADS + threadIdx.x) >> 5;
    float sum = 0;
    if (n >= a.n) /* the whole warp */
        return;
    for (int64_t k = lane * 4; k < a.k; k += 128) {
        const vec<float, 4> w = stored4<S>(a.w, n * a.k + k);
        const vec<T, 4> x = load<T, 4>((const T *)a.x + k);
        for (int e = 0; e < 4; e++)
            sum += w.at[e] * to_float(x.at[e]);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        finish<T>(a, n, sum);
}

/* w (K, N): a block takes 128 columns, four for a lane, and every warp each WARPS-th row of w. */
enum { WARPS = 16, COLUMNS = 128 };

template <class T, by_dtype S> __global__ void __launch_bounds__(WARPS * 32) row_kn(row_args a)
{
    __shared__ float sums[WARPS][COLUMNS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t first = (int64_t)blockIdx.x * COLUMNS, n = first + lane * 4;
    float sum[4] = {};
    for (int64_t k = warp; k < a.k && n < a.n; k += WARPS) {
        const vec<float, 4> w = stored4<S>(a.w, k * a.n + n);
        const float x = to_float(((const T *)a.x)[k]);
        for (int e = 0; e < 4; e++)
            sum[e] += w.at[e] * x;
    }
    for (int e = 0; e < 4; e++)
        sums[warp][lane * 4 + e] = sum[e];
    __syncthreads();
    const int64_t mine = first + threadIdx.x;
    if (threadIdx.x >= COLUMNS || mine >= a.n)
        return;
    float all = 0;
    for (int i = 0; i < WARPS; i++)
        all += sums[i][threadIdx.x];
    finish<T>(a, mine, all);
}

template <class T, by_dtype S> static by_status one_row(cuda_exec *x, const cuda_product *p, by_act act)
{
    const row_args a = {p->a, p->b, p->epilogue == BY_EPILOGUE_BIAS ? p->bias : NULL, p->c, p->n, p->k, act};
    if (p->tb)
        return cuda_launch(x, row_nk<T, S>, dim3(blocks_for(p->n, THREADS / 32)), dim3(THREADS), 0, a);
    return cuda_launch(x, row_kn<T, S>, dim3(blocks_for(p->n, COLUMNS)), dim3(WARPS * 32), 0, a);
}

bool cuda_stored_row_takes(const cuda_product *p, by_dtype stored)
{
    return p->m == 1 && (p->tb ? p->k : p->n) % 4 == 0 && p->n > 0 && p->c_type == p->ab_type &&
           stored != p->ab_type;
}

by_status cuda_stored_row(cuda_exec *x, const cuda_product *p, by_dtype stored, by_act act)
{
    CUDA_STORED_DISPATCH(stored, p->ab_type, one_row, x, p, act);
}
