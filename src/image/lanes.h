/* lanes.h - functions over pixels that use the vectors of the machine. */
#ifndef BY_IMAGE_LANES_H
#define BY_IMAGE_LANES_H

#include "base/base.h"

/* The function is compiled for AVX2 besides, and the machine chooses. Both results are the same in every bit: there are no fused
 * multiplications. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define IMAGE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define IMAGE_VECTORS
#endif
/* What such functions call becomes a part of them. */
#define IMAGE_INLINE static inline __attribute__((always_inline))

/* Pixels as numbers, IMAGE_LANES for each: its channels, and others without meaning. */
enum { IMAGE_LANES = 4 };
typedef int32_t image_pixel __attribute__((vector_size(IMAGE_LANES * sizeof(int32_t))));

IMAGE_INLINE void image_widen_each(const uint8_t *from, int n, const int channels, int32_t *to)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < channels; c++)
            to[i * IMAGE_LANES + c] = from[i * channels + c];
}

static inline void image_widen(const uint8_t *from, int n, int channels, int32_t *to)
{
    if (channels == 3) /* the compiler makes more of a constant */
        image_widen_each(from, n, 3, to);
    else
        image_widen_each(from, n, channels, to);
}

IMAGE_INLINE void image_narrow_each(const int32_t *from, int n, const int channels, uint8_t *to)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < channels; c++)
            to[i * channels + c] = (uint8_t)from[i * IMAGE_LANES + c];
}

static inline void image_narrow(const int32_t *from, int n, int channels, uint8_t *to)
{
    if (channels == 3)
        image_narrow_each(from, n, 3, to);
    else
        image_narrow_each(from, n, channels, to);
}

#endif
