/* row_pieces.cuh - shared by kernels that process whole rows: rows in pieces of 16 bytes, sums in double. */
#ifndef BY_CUDA_KERNELS_ROW_PIECES_CUH
#define BY_CUDA_KERNELS_ROW_PIECES_CUH

#include "cuda/kernels/kernel.cuh"

/* ---- pieces of a row ------------------------------------------------------------------------- */

/* N adjacent elements as stored in memory, in whole registers (a vec<bf16, 8> would take eight). */
template <class T, int N, bool WORDS = (N * sizeof(T) >= 4)> struct alignas(N * sizeof(T)) packed {
    uint32_t word[N * sizeof(T) / 4];
};
template <class T, int N> struct packed<T, N, false> {
    T one;
};

template <class T, int N> static __device__ __forceinline__ vec<float, N> unpack(const packed<T, N> &p)
{
    vec<float, N> f;
    if constexpr (sizeof(T) == 4) {
        for (int j = 0; j < N; j++)
            f.at[j] = __uint_as_float(p.word[j]);
    } else if constexpr (N == 1) {
        f.at[0] = to_float(p.one);
    } else {
        for (int j = 0; j < N; j++)
            f.at[j] = to_float(T{(uint16_t)(p.word[j / 2] >> (16 * (j % 2)))});
    }
    return f;
}

template <class T, int N> static __device__ __forceinline__ packed<T, N> pack(const vec<float, N> &f)
{
    packed<T, N> p;
    if constexpr (sizeof(T) == 4) {
        for (int j = 0; j < N; j++)
            p.word[j] = __float_as_uint(f.at[j]);
    } else if constexpr (N == 1) {
        p.one = from_float<T>(f.at[0]);
    } else {
        for (int j = 0; j < N / 2; j++)
            p.word[j] = pack2<T>(f.at[2 * j], f.at[2 * j + 1]);
    }
    return p;
}

template <int N, class T> static __device__ __forceinline__ packed<T, N> get_packed(const T *p)
{
    return *(const packed<T, N> *)p;
}
template <class T, int N> static __device__ __forceinline__ void put_packed(T *p, const packed<T, N> &v)
{
    *(packed<T, N> *)p = v;
}

/* Makes the compiler forget that it has unpacked this before: unpacking again is cheaper than keeping it. */
template <class T, int N> static __device__ __forceinline__ void forget(packed<T, N> &p)
{
#ifdef BY_CUDA_EMULATE
    (void)p;
#else
    for (size_t j = 0; j < sizeof p.word / sizeof *p.word; j++)
        asm volatile("" : "+r"(p.word[j]));
#endif
}

template <int N, class T> static __device__ __forceinline__ vec<float, N> get(const T *p)
{
    return unpack(get_packed<N>(p));
}
template <class T, int N> static __device__ __forceinline__ void put(T *p, const vec<float, N> &f)
{
    put_packed(p, pack<T, N>(f));
}

/* Calls f(i, v) for this thread's share of a row: v, which f may change, starts at element i; it has 16 bytes
 * in the first `whole` elements, then one element. The assignment of pieces to threads depends only on the
 * sizes. */
template <class T, class F>
static __device__ __forceinline__ void each_piece(const T *x, int whole, int cols, F f)
{
    enum { N = wide<T>::N };
    const int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int i = thread * N; i < whole; i += threads * N) {
        auto v = get<N>(x + i);
        f(i, v);
    }
    for (int i = whole + thread; i < cols; i += threads) {
        auto v = get<1>(x + i);
        f(i, v);
    }
}

/* ---- on the host ----------------------------------------------------------------------------- */

/* Returns true if all rows start at multiples of 16 bytes. An absent tensor counts as aligned. */
static inline bool rows_aligned(const by_tensor *t)
{
    return !t ||
           ((uintptr_t)t->data % 16 == 0 && (size_t)gr_tensor_pitch(t) * by_dtype_size(t->type) % 16 == 0);
}

/* Threads for n pieces of work: whole warps, at most `most`. */
static inline int threads_for(int64_t n, int most)
{
    return n >= most ? most : n <= 32 ? 32 : (int)(n + 31) / 32 * 32;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* As block_sum, in double. */
static __device__ __forceinline__ double block_sum_double(double x, double *space)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    if (lane == 0)
        space[warp] = x;
    __syncthreads();
    x = lane < warps ? space[lane] : 0;
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    __syncthreads();
    return x;
}

#endif
