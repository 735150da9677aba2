/* rank.cuh - floats and their indices as one comparable number. */
#ifndef BY_CUDA_KERNELS_RANK_CUH
#define BY_CUDA_KERNELS_RANK_CUH

#include "cuda/kernels/kernel.cuh"

/* A number that is larger for larger x and, among equal x, for the first. A NaN is larger than any number.
 * Never 0. */
static __device__ __forceinline__ uint64_t rank_of(float x, int64_t i)
{
    const uint32_t bits = __float_as_uint(x + 0.0f); /* -0 is 0 */
    const uint32_t order = x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | (0xffffffffu - (uint32_t)i);
}

/* The inverse. */
static __device__ __forceinline__ int32_t place_of(uint64_t rank)
{
    return (int32_t)(0xffffffffu - (uint32_t)rank);
}
static __device__ __forceinline__ float value_of(uint64_t rank)
{
    const uint32_t order = (uint32_t)(rank >> 32);
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

#endif
