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
    BY_PIXELS_NATIVE,     /* the format of the file, one of the others; palettes become RGB */
    BY_PIXELS_GREY,       /* 1 byte */
    BY_PIXELS_GREY_ALPHA, /* 2 bytes */
    BY_PIXELS_RGBA,       /* 4 bytes; without an alpha channel or a transparent colour, alpha is 255 */
    BY_PIXELS_CMYK,       /* 4 bytes; 0 is no ink */
    BY_PIXELS_GREY16      /* 1 uint16_t of the machine's byte order */
} by_pixels;

typedef struct by_image {
    int width, height;
    by_pixels format;
    int channels;    /* samples of a pixel */
    int orientation; /* EXIF: 1 is upright, 2 to 8 are mirrored or rotated; see `upright` below */
    void *pixels;    /* (height, width, channels) */
} by_image;

typedef struct by_image_spec {
    by_pixels format;   /* BY_PIXELS_RGB, BY_PIXELS_RGBA, BY_PIXELS_GREY or BY_PIXELS_NATIVE */
    bool upright;       /* apply the EXIF orientation */
    int64_t max_pixels; /* more pixels are an error before memory is allocated; 0: 89,478,485 */
} by_image_spec;

/* Decodes PNG, JPEG, WebP and the first frame of GIF, recognised by their first bytes. The pixels equal those
 * of Pillow, which uses libjpeg-turbo's accurate transform and fancy upsampling. spec NULL: RGB.
 * BY_ERR_UNSUPPORTED for formats whose library was missing when Banyan was built. Returns NULL on failure;
 * free the result with by_image_free. */
BY_API by_image *by_image_decode(const void *bytes, size_t size, const by_image_spec *spec);
/* The same for a file. Error messages name its path. */
BY_API by_image *by_image_open(const char *path, const by_image_spec *spec);
BY_API by_image *by_image_new(int width, int height, by_pixels format); /* black */
BY_API void by_image_free(by_image *m);
/* The formats that this build decodes: "png jpeg webp gif". */
BY_API const char *by_image_formats(void);

/* Writes a PNG file of 8-bit grey, grey with alpha, RGB or RGBA pixels, replaced atomically. */
BY_API by_status by_image_write_png(const by_image *m, const char *path);

/* Arranges pictures of one size, grey or RGB, in a grid of `columns` on a white page, with pixels enlarged
 * `scale` times. Returns NULL on failure. */
BY_API by_image *by_image_grid(const by_image *const *list, int count, int columns, int scale);

/* Resampling filters with the numbers of Pillow and preprocessor_config.json. All but the first widen when a
 * picture shrinks (antialiasing). */
typedef enum by_filter {
    BY_FILTER_NEAREST,
    BY_FILTER_LANCZOS,
    BY_FILTER_BILINEAR,
    BY_FILTER_BICUBIC, /* a = -0.5 */
    BY_FILTER_BOX,
    BY_FILTER_HAMMING
} by_filter;

/* Resizes a picture of 8-bit samples. Every byte equals Image.resize of Pillow 13. Earlier versions differ by
 * rounding when a picture shrinks and loses more than twice as many rows as columns. NULL on failure. */
BY_API by_image *by_image_resize(const by_image *m, int width, int height, by_filter filter);
/* The part (left, top, width, height). It is black outside the picture. */
BY_API by_image *by_image_crop(const by_image *m, int left, int top, int width, int height);

/* Resizes `planes` planes of floats (height, width) as PyTorch's interpolate does with align_corners=False:
 * bilinear or bicubic (a = -0.75; -0.5 with antialias). Position embeddings are interpolated this way. */
BY_API by_status by_interpolate(const float *in, int planes, int height, int width, float *out,
                                int out_height, int out_width, by_filter filter, bool antialias);

/* ---- palettes --------------------------------------------------------------------------------- */

enum { BY_MAX_COLOURS = 65535 };
typedef struct by_palette_spec {
    int colours;   /* at most */
    uint64_t seed; /* for the first centres */
    int threads;   /* 0: all cores. The result does not depend on the number */
} by_palette_spec;
/* Learns a palette from `count` RGB pixels by k-means. *colours receives its size, which is smaller than
 * requested if there are fewer distinct pixels. The palette is (colours, 3) in [-1, 1], darkest first, and
 * `palette` has room for spec->colours. */
BY_API by_status by_palette_learn(const uint8_t *rgb, int64_t count, const by_palette_spec *spec,
                                  float *palette, int *colours);

/* ---- processors ------------------------------------------------------------------------------- */

/* The settings of preprocessor_config.json: resize, crop, rescale and normalise, or quantise to a palette.
 * Any number of threads may use a processor. */
typedef struct by_processor by_processor;
/* Opens preprocessor_config.json of a model directory, in current and older formats. Returns NULL on
 * failure. */
BY_API by_processor *by_processor_open(const char *dir);
/* A processor that resizes as ViT's does and scales values to [-1, 1], or quantises to a palette as
 * ImageGPT's does. The palette is copied. Returns NULL on failure. */
typedef struct by_processor_spec {
    int channels; /* 1 or 3 */
    int height, width;
    const float *palette; /* (colours, 3) in [-1, 1]; NULL: none */
    int colours;
    const char *type; /* "ViT", "DeiT" or "CLIP": the processor whose steps it follows; NULL: "ViT" */
} by_processor_spec;
BY_API by_processor *by_processor_new(const by_processor_spec *spec);
BY_API void by_processor_free(by_processor *p);
/* Writes preprocessor_config.json, replaced atomically. */
BY_API by_status by_processor_save(const by_processor *p, const char *dir);
/* The size of preprocessed pictures; 0 and 0 if it depends on the picture (no fixed size and no crop). */
BY_API void by_processor_size(const by_processor *p, int *height, int *width);
/* Changes that size. The size before a crop is scaled by the same factor. */
BY_API by_status by_processor_set_size(by_processor *p, int height, int width);
BY_API int by_processor_channels(const by_processor *p); /* 3, or 1 if image_mean has one number */
BY_API by_filter by_processor_filter(const by_processor *p);
BY_API void by_processor_fill(const by_processor *p, uint8_t out[3]); /* the colour that normalises to 0 */
BY_API int by_processor_colours(const by_processor *p);               /* palette entries; 0: none */

/* A preprocessed picture: `values` (channels, height, width), or with a palette `ids` (height * width). */
typedef struct by_prepared {
    int channels, height, width;
    float *values;
    int32_t *ids;
} by_prepared;
/* Preprocesses an RGB or grey picture. */
BY_API by_status by_processor_apply(const by_processor *p, const by_image *m, by_prepared *out);
BY_API void by_prepared_free(by_prepared *x); /* resets it to zero */
/* The two halves of by_processor_apply. Training pictures are augmented between them. shape: a new picture
 * with the processor's channels and size (NULL on failure). values: its normalised values (channels, height,
 * width). */
BY_API by_image *by_processor_shape(const by_processor *p, const by_image *m);
BY_API by_status by_processor_values(const by_processor *p, const by_image *m, float *out);

/* For pixel models: the tokens of a picture in raster order. They are palette colours, or without a palette
 * the channel values of each pixel, side by side. */
BY_API int64_t by_processor_tokens(const by_processor *p); /* tokens per picture; 0: not fixed */
BY_API by_status by_processor_encode(const by_processor *p, const by_image *m, int32_t *tokens);
/* The picture for such tokens. Returns NULL on failure. */
BY_API by_image *by_processor_decode(const by_processor *p, const int32_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
