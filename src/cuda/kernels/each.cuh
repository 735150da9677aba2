/* each.cuh - for elementwise kernels: a few adjacent elements at a time, of which the last may be missing. */
#ifndef BY_CUDA_KERNELS_EACH_CUH
#define BY_CUDA_KERNELS_EACH_CUH

#include "cuda/kernels/kernel.cuh"

#ifdef BY_CUDA_EMULATE
#define BY_UNROLL
#define BY_NO_UNROLL
#else
#define BY_UNROLL    _Pragma("unroll")
#define BY_NO_UNROLL _Pragma("unroll 1")
#endif

/* Returns i / d and sets the remainder. 64-bit divisions take several times as long and are rarely needed. */
static __device__ __forceinline__ int64_t divide(int64_t i, int64_t d, int64_t *rest)
{
    if ((uint64_t)(i | d) >> 32 == 0) {
        uint32_t q = (uint32_t)i / (uint32_t)d;
        *rest = (uint32_t)i - q * (uint32_t)d;
        return q;
    }
    int64_t q = i / d;
    *rest = i - q * d;
    return q;
}

/* Elements [at, at + V) of x, zeros from `count` on; at is a multiple of V. */
template <class T, int V>
static __device__ __forceinline__ vec<T, V> load_some(const T *x, int64_t at, int64_t count)
{
    if (at + V <= count)
        return load<T, V>(x + at);
    vec<T, V> v = {};
    for (int k = 0; k < V; k++)
        if (at + k < count)
            v.at[k] = x[at + k];
    return v;
}

template <class T, int V>
static __device__ __forceinline__ void store_some(T *y, int64_t at, int64_t count, const vec<T, V> &v)
{
    if (at + V <= count) {
        store<T, V>(y + at, v);
        return;
    }
    for (int k = 0; k < V; k++)
        if (at + k < count)
            y[at + k] = v.at[k];
}

template <class T, int V> static __device__ __forceinline__ void unpack(float *to, const vec<T, V> &from)
{
    BY_UNROLL
    for (int k = 0; k < V; k++)
        to[k] = to_float(from.at[k]);
}

/* Rounds in pairs, which takes half the instructions. */
template <class T, int V> static __device__ __forceinline__ vec<T, V> packed(const float *from)
{
    vec<T, V> v;
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        uint32_t pairs[V / 2];
        BY_UNROLL
        for (int k = 0; k < V / 2; k++)
            pairs[k] = pack2<T>(from[2 * k], from[2 * k + 1]);
        memcpy(&v, pairs, sizeof v);
    } else {
        BY_UNROLL
        for (int k = 0; k < V; k++)
            v.at[k] = from_float<T>(from[k]);
    }
    return v;
}

static inline int64_t elements_of(const by_tensor *t)
{
    return gr_tensor_rows(t) * gr_tensor_cols(t);
}

#endif
