/* cast.cu - converts element types, rounding once. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256, UNROLL = 4 };

/* from(x): x as a T, rounded once. */
template <class T> struct converted {
    template <class S> static __device__ __forceinline__ T from(S x)
    {
        return from_float<T>(to_float(x));
    }
    /* Going through f32 to 16 bits would round twice, so bits beyond 24 are first folded into the last. */
    static __device__ __forceinline__ T from(int32_t x)
    {
        uint32_t size = x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
        if (sizeof(T) == 2 && size >> 24)
            size = (size & ~0xffu) | (size & 0xffu ? 0x100u : 0u);
        return from_float<T>(x < 0 ? -(float)size : (float)size);
    }
};
/* Rounds to nearest, ties to even; out of range becomes the nearest bound, NaN becomes 0. */
template <> struct converted<int32_t> {
    template <class S> static __device__ __forceinline__ int32_t from(S s)
    {
        const float x = to_float(s);
        return x != x ? 0 : x >= 2147483648.f ? INT32_MAX : x < -2147483648.f ? INT32_MIN : (int32_t)rintf(x);
    }
    static __device__ __forceinline__ int32_t from(int32_t x)
    {
        return x;
    }
};

/* f64 is for reading results: nothing here computes in it. */
template <> struct converted<double> {
    template <class S> static __device__ __forceinline__ double from(S x)
    {
        return (double)to_float(x);
    }
    static __device__ __forceinline__ double from(int32_t x)
    {
        return (double)x;
    }
};

enum { CAST = 4 }; /* elements a thread reads at a time */

template <class T, class S>
static __global__ void __launch_bounds__(THREADS) cast_each(T *y, const S *x, int64_t count)
{
    const int64_t first = ((int64_t)blockIdx.x * UNROLL * THREADS + threadIdx.x) * CAST;
    vec<S, CAST> in[UNROLL];
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++)
        in[u] = load_some<S, CAST>(x, first + u * THREADS * CAST, count);
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        vec<T, CAST> out;
        BY_UNROLL
        for (int k = 0; k < CAST; k++)
            out.at[k] = converted<T>::from(in[u].at[k]);
        store_some<T, CAST>(y, first + u * THREADS * CAST, count, out);
    }
}

template <class T, class S> static by_status cast_between(cuda_exec *x, gr_node *n)
{
    const int64_t count = elements_of(n->in[0]);
    return cuda_launch(x, cast_each<T, S>, blocks_for(count, THREADS * UNROLL * CAST), THREADS, 0,
                       (T *)n->out[0]->data, (const S *)n->in[0]->data, count);
}

template <class S> static by_status cast_from(cuda_exec *x, gr_node *n)
{
    switch (n->out[0]->type) {
    case BY_F32:
        return cast_between<float, S>(x, n);
    case BY_BF16:
        return cast_between<bf16, S>(x, n);
    case BY_F16:
        return cast_between<f16, S>(x, n);
    case BY_F64:
        return cast_between<double, S>(x, n);
    case BY_I32:
        return cast_between<int32_t, S>(x, n);
    default:
        return base_fail(BY_ERR_UNSUPPORTED, "cast: the GPU has no kernel for %s",
                         by_dtype_name(n->out[0]->type));
    }
}

extern "C" by_status cuda_cast(gr_exec *e, gr_node *n)
{
    BY_BRANCH("cast");
    if (n->in[0]->type == BY_I32)
        return cast_from<int32_t>(cuda_exec_of(e), n);
    BY_CUDA_DISPATCH(n->in[0]->type, cast_from, cuda_exec_of(e), n)
}
