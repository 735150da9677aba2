/* enhance.h - operations on 8-bit grey and RGB pictures, in place. Every byte equals that of Pillow's
 * ImageOps, ImageEnhance and Image.transform. */
#ifndef BY_IMAGE_ENHANCE_H
#define BY_IMAGE_ENHANCE_H

#include "image/picture.h"

void image_autocontrast(by_image *m);
void image_equalize(by_image *m);
void image_invert(by_image *m);
void image_posterize(by_image *m, int bits); /* keeps the highest bits of 8 */
void image_solarize(by_image *m, int threshold);
void image_solarize_add(by_image *m, int add); /* to samples below 128 */

/* Blends with a version without colour, contrast, brightness or sharpness. 0 is that version, 1 the original;
 * above 1 the effect is enhanced. */
void image_saturation(by_image *m, double factor);
void image_contrast(by_image *m, double factor);
void image_brightness(by_image *m, double factor);
by_status image_sharpness(by_image *m, double factor);
void image_hue(by_image *m, double turn); /* in turns of the circle, -0.5 to 0.5 */

void image_mirror(by_image *m); /* left and right */

/* Pixel (x, y) of the result is taken from a (x, y, 1), or is `fill` if that is outside. Bilinear or bicubic
 * (a = -1), without antialiasing. */
by_status image_affine(by_image *m, const double a[6], by_filter filter, const uint8_t fill[3]);
by_status image_rotate(by_image *m, double degrees, by_filter filter, const uint8_t fill[3]);

#endif
