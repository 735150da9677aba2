/* palette.h - search for the nearest colour of a palette. */
#ifndef BY_IMAGE_PALETTE_H
#define BY_IMAGE_PALETTE_H

#include "banyan/image.h"
#include "base/base.h"

/* A palette (colours, 3) in [-1, 1], which is borrowed, prepared for searches. Any number of threads may use
 * it. */
typedef struct image_palette image_palette;
image_palette *image_palette_new(const float *at, int colours);
void image_palette_free(image_palette *p);
/* The nearest colour to an RGB pixel. Ties take the first. */
int32_t image_palette_nearest(const image_palette *p, const uint8_t *rgb);

#endif
