/* image.h - pictures: decoded from files, resized, and prepared for a model. */
#ifndef BANYAN_IMAGE_H
#define BANYAN_IMAGE_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pictures --------------------------------------------------------------------------------- */

typedef enum by_pixels {
    BY_PIXELS_RGB,        /* 3 bytes; alpha is dropped, not blended */
    BY_PIXELS_NATIVE,     /* as the file has them: one of the others. Palettes become RGB */
    BY_PIXELS_GREY,       /* 1 byte */
    BY_PIXELS_GREY_ALPHA, /* 2 bytes */
    BY_PIXELS_RGBA,       /* 4 bytes; without an alpha channel or a transparent colour, alpha is 255 */
    BY_PIXELS_CMYK,       /* 4 bytes, 0 is no ink */
    BY_PIXELS_GREY16      /* 1 uint16_t of the machine's byte order */
} by_pixels;

typedef struct by_image {
    int width, height;
    by_pixels format;
    int channels; /* samples of a pixel */
    int orientation; /* EXIF: 1 is upright, 2 to 8 are mirrored or turned; pixels are as stored unless asked for */
    void *pixels; /* (height, width, channels) */
} by_image;

typedef struct by_image_spec {
    by_pixels format;   /* BY_PIXELS_RGB, BY_PIXELS_RGBA, BY_PIXELS_GREY or BY_PIXELS_NATIVE */
    bool upright;       /* turn the picture as its EXIF orientation says */
    int64_t max_pixels; /* larger pictures are refused before memory is allocated; 0: 89,478,485 */
} by_image_spec;

/* Decodes PNG, JPEG, WebP and the first frame of GIF, recognised by their first bytes. The pixels equal those of
 * Pillow, libjpeg-turbo's accurate transform and its fancy upsampling. spec NULL: RGB. Formats whose library was missing
 * when Banyan was built are BY_ERR_UNSUPPORTED. Returns NULL on failure; free the result with by_image_free. */
BY_API by_image *by_image_decode(const void *bytes, size_t size, const by_image_spec *spec);
/* The same for a file, whose path the error message names. */
BY_API by_image *by_image_open(const char *path, const by_image_spec *spec);
BY_API by_image *by_image_new(int width, int height, by_pixels format); /* black */
BY_API void by_image_free(by_image *m);
/* The formats that this build decodes: "png jpeg webp gif". */
BY_API const char *by_image_formats(void);

/* Writes a PNG file of 8-bit grey, grey with alpha, RGB or RGBA pixels, replaced atomically. */
BY_API by_status by_image_write_png(const by_image *m, const char *path);

/* Resampling filters with the numbers of Pillow and preprocessor_config.json. All but the first widen when a picture
 * shrinks (antialiasing). */
typedef enum by_filter {
    BY_FILTER_NEAREST,
    BY_FILTER_LANCZOS,
    BY_FILTER_BILINEAR,
    BY_FILTER_BICUBIC, /* a = -0.5 */
    BY_FILTER_BOX,
    BY_FILTER_HAMMING
} by_filter;

/* Resizes a picture of 8-bit samples. Every byte equals Pillow's Image.resize. NULL on failure. */
BY_API by_image *by_image_resize(const by_image *m, int width, int height, by_filter filter);
/* The part (left, top, width, height), black where it lies outside the picture. */
BY_API by_image *by_image_crop(const by_image *m, int left, int top, int width, int height);

/* Resizes `planes` planes of floats (height, width) as PyTorch's interpolate with align_corners=False does: bilinear or
 * bicubic (a = -0.75; -0.5 with antialias). This is how tables of position embeddings are stretched. */
BY_API by_status by_interpolate(const float *in, int planes, int height, int width, float *out,
                                int out_height, int out_width, by_filter filter, bool antialias);

/* ---- processors ------------------------------------------------------------------------------- */

/* What preprocessor_config.json says: resize, crop, rescale, normalise, or choose the nearest colour of a palette.
 * Any number of threads may use a processor. */
typedef struct by_processor by_processor;
/* Opens preprocessor_config.json of a model directory, in today's and earlier spellings. Returns NULL on failure. */
BY_API by_processor *by_processor_open(const char *dir);
BY_API void by_processor_free(by_processor *p);
/* The size of prepared pictures; 0 and 0: it depends on the picture (no fixed size and no crop). */
BY_API void by_processor_size(const by_processor *p, int *height, int *width);
BY_API int by_processor_colours(const by_processor *p); /* entries of the palette; 0: there is none */

/* A prepared picture: `values` (3, height, width), or with a palette `ids` (height * width). */
typedef struct by_prepared {
    int height, width;
    float *values;
    int32_t *ids;
} by_prepared;
BY_API by_status by_processor_apply(const by_processor *p, const by_image *m, by_prepared *out);
BY_API void by_prepared_free(by_prepared *x); /* resets it to zero */

#ifdef __cplusplus
}
#endif
#endif
