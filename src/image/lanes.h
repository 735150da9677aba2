/* lanes.h - pixels as vectors. */
#ifndef BY_IMAGE_LANES_H
#define BY_IMAGE_LANES_H

#include "base/base.h"
#include "base/vectors.h"

/* A pixel is a vector of IMAGE_LANES numbers: its channels and unused lanes. */
enum { IMAGE_LANES = 4 };
typedef int32_t image_pixel
    __attribute__((vector_size(IMAGE_LANES * sizeof(int32_t)), aligned(sizeof(int32_t)), may_alias));

BASE_INLINE void image_widen_each(const uint8_t *from, int n, const int channels, int32_t *to)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < channels; c++)
            to[i * IMAGE_LANES + c] = from[i * channels + c];
}

static inline void image_widen(const uint8_t *from, int n, int channels, int32_t *to)
{
    if (channels == 3) /* constants optimise better */
        image_widen_each(from, n, 3, to);
    else
        image_widen_each(from, n, channels, to);
}

BASE_INLINE void image_narrow_each(const int32_t *from, int n, const int channels, uint8_t *to)
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
