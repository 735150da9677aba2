/* e4m3.cuh - 8-bit floats: a sign, 4 bits of exponent, 3 of mantissa. The largest is 448, the smallest normal
 * one 2^-6, and below that they are 2^-9 apart. 0x7f and 0xff are NaN; there is no infinity. */
#ifndef BY_CUDA_KERNELS_E4M3_CUH
#define BY_CUDA_KERNELS_E4M3_CUH

#include "cuda/kernels/kernel.cuh"

#define E4M3_MOST 448.0f

/* Rounds to nearest, ties to even; anything larger becomes 448 with its sign. */
static __device__ __forceinline__ uint32_t to_e4m3(float x)
{
    const uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
    const float size = fminf(fabsf(x), E4M3_MOST);
    if (x != x)
        return 0x7f;
    /* 8 of these steps are the smallest normal number. */
    if (size < 0x1p-6f)
        return sign | (uint32_t)rintf(size * 0x1p9f);
    const uint32_t bits = __float_as_uint(size);
    return sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)); /* exponents begin at 127 - 7 */
}

static __device__ __forceinline__ float from_e4m3(uint8_t b)
{
    const uint32_t size = b & 0x7f;
    const float x = size < 8 ? (float)size * 0x1p-9f : __uint_as_float((size + (120 << 3)) << 20);
    return size == 0x7f ? NAN : b & 0x80 ? -x : x;
}

/* Four in one register, the first lowest. Cards from 8.9 on have an instruction that converts two. */
static __device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (uint32_t)low | (uint32_t)high << 16;
#else
    return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | to_e4m3(d) << 24;
#endif
}

#endif
