/* picture.h - shared by the image decoders, and PNG encoding in memory. Files are untrusted: sizes are
 * checked before memory is allocated. */
#ifndef BY_IMAGE_PICTURE_H
#define BY_IMAGE_PICTURE_H

#include "banyan/image.h"
#include "base/base.h"

typedef struct image_source {
    const uint8_t *bytes;
    size_t size;
    int64_t max_pixels;
    bool alpha; /* RGBA is requested: apply transparent palette entries and keys */
} image_source;

/* A decoder. It recognises its format by the first bytes and decodes to native pixels. */
typedef struct image_format {
    const char *name;
    bool (*begins)(const image_source *s);
    by_image *(*decode)(const image_source *s); /* NULL on failure; a NULL function: not in this build */
    const char *package;                        /* the Debian package that it needs */
} image_format;

bool image_png_begins(const image_source *s);
bool image_jpeg_begins(const image_source *s);
bool image_webp_begins(const image_source *s);
bool image_gif_begins(const image_source *s);
by_image *image_png_decode(const image_source *s);
by_image *image_jpeg_decode(const image_source *s);
by_image *image_webp_decode(const image_source *s);
by_image *image_gif_decode(const image_source *s);

/* Appends a PNG file of 8-bit grey, grey with alpha, RGB or RGBA pixels. */
by_status image_png_encode(const by_image *m, base_buf *out);

/* The EXIF orientation in an APP1 segment or eXIf chunk that begins with the TIFF header; 1 if there is
 * none. */
int image_exif_orientation(const uint8_t *tiff, size_t size);

/* Takes ownership of m. Returns it, or a copy in another format: RGB, RGBA or grey. NULL on failure. */
by_image *image_convert(by_image *m, by_pixels format);

int image_channels(by_pixels format);
size_t image_sample_bytes(by_pixels format);
/* BY_ERR_FORMAT if the picture is empty or has more pixels than allowed. */
by_status image_check_size(int64_t width, int64_t height, int64_t max_pixels);
/* ITU-R 601-2 in 16-bit fixed point. */
static inline uint8_t image_luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

static inline uint8_t *image_row(const by_image *m, int y)
{
    return (uint8_t *)m->pixels +
           (size_t)y * (size_t)m->width * (size_t)m->channels * image_sample_bytes(m->format);
}

/* Whether a directory has settings that by_processor_open reads. */
bool image_processor_exists(const char *dir);

#endif
