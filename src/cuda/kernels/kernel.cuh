/* kernel.cuh - shared by all kernel files. Typed kernels are templates over float, bf16 and f16, computed in
 * float. All addresses of tensors are multiples of 32 bytes; those of rows only if their length is. */
#ifndef BY_CUDA_KERNELS_KERNEL_CUH
#define BY_CUDA_KERNELS_KERNEL_CUH

#include "cuda/cuda.h"

#ifndef BY_CUDA_EMULATE
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/* ---- element types --------------------------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
static __device__ __forceinline__ float to_float(f16 x)
{
#ifdef BY_CUDA_EMULATE
    return base_f16_to_f32(x.bits);
#else
    return __half2float(__ushort_as_half(x.bits));
#endif
}

template <class T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
#ifdef BY_CUDA_EMULATE
    return bf16{base_f32_to_bf16(x)};
#else
    return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#endif
}
template <> __device__ __forceinline__ f16 from_float<f16>(float x)
{
#ifdef BY_CUDA_EMULATE
    return f16{base_f32_to_f16(x)};
#else
    return f16{__half_as_ushort(__float2half_rn(x))};
#endif
}

/* Packs two numbers into one register, the first in the low half. */
template <class T> static __device__ __forceinline__ uint32_t pack2(float low, float high)
{
    return (uint32_t)from_float<T>(low).bits | (uint32_t)from_float<T>(high).bits << 16;
}
#ifndef BY_CUDA_EMULATE
template <> __device__ __forceinline__ uint32_t pack2<bf16>(float low, float high)
{
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
template <> __device__ __forceinline__ uint32_t pack2<f16>(float low, float high)
{
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
#endif

/* N adjacent elements, moved at once: vec<bf16, 8> is 16 bytes. */
template <class T, int N> struct alignas(sizeof(T) * N) vec {
    T at[N];
};
/* The number of elements in 16 bytes. */
template <class T> struct wide {
    enum { N = 16 / sizeof(T) };
    typedef vec<T, N> type;
};
template <class T, int N> static __device__ __forceinline__ vec<T, N> load(const T *p)
{
    return *(const vec<T, N> *)p;
}
template <class T, int N> static __device__ __forceinline__ void store(T *p, const vec<T, N> &v)
{
    *(vec<T, N> *)p = v;
}

/* Calls a template function for the element type of a tensor: BY_CUDA_DISPATCH(type, f, x, n) returns f<T>(x,
 * n). */
#define BY_CUDA_DISPATCH(type, f, ...)                                                                  \
    switch (type) {                                                                                     \
    case BY_F32:                                                                                        \
        return f<float>(__VA_ARGS__);                                                                   \
    case BY_BF16:                                                                                       \
        return f<bf16>(__VA_ARGS__);                                                                    \
    case BY_F16:                                                                                        \
        return f<f16>(__VA_ARGS__);                                                                     \
    default:                                                                                            \
        return base_fail(BY_ERR_UNSUPPORTED, #f ": the GPU has no kernel for %s", by_dtype_name(type)); \
    }

/* ---- work sharing ---------------------------------------------------------------------------- */

/* Number of blocks of `per` that cover n. */
static inline unsigned blocks_for(int64_t n, int64_t per)
{
    return (unsigned)((n + per - 1) / per);
}

/* The dynamic shared memory of a kernel. */
#ifdef BY_CUDA_EMULATE
#define BY_SHARED(type, name) type *name = (type *)cuda_emulated_now.shared
#else
#define BY_SHARED(type, name)                                       \
    extern __shared__ __align__(1024) unsigned char cuda_shared_[]; \
    type *name = (type *)cuda_shared_
#endif

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
static __device__ __forceinline__ float warp_max(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Over a block of whole warps (threadIdx.x); every thread gets the result, the same bits every time. `space`
 * has 32 elements and may be reused after the next barrier. */
static __device__ __forceinline__ float block_sum(float x, float *space)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    if (lane == 0)
        space[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? space[lane] : 0.0f);
    __syncthreads();
    return x;
}
static __device__ __forceinline__ float block_max(float x, float *space)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_max(x);
    if (lane == 0)
        space[warp] = x;
    __syncthreads();
    x = warp_max(lane < warps ? space[lane] : -INFINITY);
    __syncthreads();
    return x;
}

/* See cuda_launch_early(). Code after wait_for_previous() sees everything that earlier kernels have written.
 * After let_next_start() the next kernel may start, up to its own wait. A kernel that writes parameters
 * never calls it: products read weights before they wait. */
static __device__ __forceinline__ void wait_for_previous()
{
#if !defined(BY_CUDA_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Prefetches into the L2 cache: for parameters, before wait_for_previous(). */
static __device__ __forceinline__ void bring_near(const void *p)
{
#ifndef BY_CUDA_EMULATE
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}
static __device__ __forceinline__ void let_next_start()
{
#if !defined(BY_CUDA_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Reports a bad index: the first one is kept completely, and the host reports it at its next check. */
static __device__ __forceinline__ void report_fault(cuda_fault *f, int node, int input, int value,
                                                    int64_t place, int64_t limit)
{
    if (atomicCAS(f->claim, 0, 1) != 0)
        return;
    f->node = node;
    f->input = input;
    f->value = value;
    f->place = place;
    f->limit = limit;
#ifndef BY_CUDA_EMULATE
    __threadfence_system();
#endif
    f->set = 1;
}

/* ---- random numbers: the same as in src/base/rng.c ------------------------------------------- */

/* The numbers of elements 4 * index ... 4 * index + 3 of the node with this rng; random points to {seed,
 * step}. */
static __device__ __forceinline__ uint4 random4(const uint64_t *random, uint32_t rng, uint64_t index)
{
    uint32_t k0 = (uint32_t)random[0], k1 = (uint32_t)(random[0] >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = rng, c3 = (uint32_t)random[1];
#ifndef BY_CUDA_EMULATE
#pragma unroll
#endif
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = __umulhi(0xd2511f53u, c0), l0 = 0xd2511f53u * c0;
        uint32_t h1 = __umulhi(0xcd9e8d57u, c2), l1 = 0xcd9e8d57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return uint4{c0, c1, c2, c3};
}

/* Dropout: an element is kept if its number is >= the threshold, and then multiplied by the factor. */
struct drop {
    uint32_t threshold;
    float factor;
};
static inline drop drop_of(float p)
{
    double t = (double)p * 4294967296.0;
    return drop{t >= 4294967295.0 ? 4294967295u : (uint32_t)t, p < 1 ? (float)(1 / (1 - (double)p)) : 0.0f};
}

/* ---- activations ----------------------------------------------------------------------------- */

static __device__ __forceinline__ float activate(by_act act, float x)
{
    switch (act) {
    case BY_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case BY_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case BY_RELU:
        return x < 0 ? 0 : x; /* propagates NaN */
    case BY_SILU:
        return x / (1 + expf(-x));
    case BY_TANH:
        return tanhf(x);
    case BY_SIGMOID:
        return 1 / (1 + expf(-x));
    default:
        return x;
    }
}

/* The derivative at x. */
static __device__ __forceinline__ float activate_slope(by_act act, float x)
{
    switch (act) {
    case BY_GELU:
        return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    case BY_GELU_TANH: {
        float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 3 * 0.044715f * x * x);
    }
    case BY_RELU:
        return x > 0 ? 1.0f : 0.0f;
    case BY_SILU: {
        float s = 1 / (1 + expf(-x));
        return s * (1 + x * (1 - s));
    }
    case BY_TANH: {
        float t = tanhf(x);
        return 1 - t * t;
    }
    case BY_SIGMOID: {
        float s = 1 / (1 + expf(-x));
        return s * (1 - s);
    }
    default:
        return 1;
    }
}

#endif
