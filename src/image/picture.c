/* picture.c - pictures in memory: allocation, format detection, conversion between pixel formats,
 * orientation, cropping. */
#include "base/file.h"
#include "image/picture.h"

enum { DEFAULT_MAX_PIXELS = 89478485 }; /* Pillow's limit */
#define MAX_FILE_BYTES ((size_t)1 << 30)

static const image_format formats[] = {
#ifdef BY_HAVE_PNG
    {"png", image_png_begins, image_png_decode, NULL},
#else
    {"png", image_png_begins, NULL, "libpng-dev"},
#endif
#ifdef BY_HAVE_JPEG
    {"jpeg", image_jpeg_begins, image_jpeg_decode, NULL},
#else
    {"jpeg", image_jpeg_begins, NULL, "libjpeg-dev"},
#endif
#ifdef BY_HAVE_WEBP
    {"webp", image_webp_begins, image_webp_decode, NULL},
#else
    {"webp", image_webp_begins, NULL, "libwebp-dev"},
#endif
    {"gif", image_gif_begins, image_gif_decode, NULL},
};

const char *by_image_formats(void)
{
    return
#ifdef BY_HAVE_PNG
        "png "
#endif
#ifdef BY_HAVE_JPEG
        "jpeg "
#endif
#ifdef BY_HAVE_WEBP
        "webp "
#endif
        "gif";
}

/* Whether the file starts like this format, even if its library is missing. */
bool image_png_begins(const image_source *s)
{
    return s->size >= 8 && memcmp(s->bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

bool image_jpeg_begins(const image_source *s)
{
    return s->size >= 3 && memcmp(s->bytes, "\xff\xd8\xff", 3) == 0;
}

bool image_webp_begins(const image_source *s)
{
    return s->size >= 12 && memcmp(s->bytes, "RIFF", 4) == 0 && memcmp(s->bytes + 8, "WEBP", 4) == 0;
}

bool image_gif_begins(const image_source *s)
{
    return s->size >= 6 && (memcmp(s->bytes, "GIF87a", 6) == 0 || memcmp(s->bytes, "GIF89a", 6) == 0);
}

/* ---- memory ------------------------------------------------------------------------------------ */

int image_channels(by_pixels format)
{
    return format == BY_PIXELS_RGB                                ? 3
           : format == BY_PIXELS_GREY_ALPHA                       ? 2
           : format == BY_PIXELS_RGBA || format == BY_PIXELS_CMYK ? 4
                                                                  : 1;
}

size_t image_sample_bytes(by_pixels format)
{
    return format == BY_PIXELS_GREY16 ? 2 : 1;
}

by_status image_check_size(int64_t width, int64_t height, int64_t max_pixels)
{
    if (width < 1 || height < 1)
        return base_fail(BY_ERR_FORMAT, "the picture has no pixels (%lld x %lld)", (long long)width,
                         (long long)height);
    if (width > INT32_MAX || height > INT32_MAX || width > max_pixels / height)
        return base_fail(BY_ERR_FORMAT, "the picture has %lld x %lld pixels; at most %lld are allowed",
                         (long long)width, (long long)height, (long long)max_pixels);
    return BY_OK;
}

by_image *by_image_new(int width, int height, by_pixels format)
{
    if (format == BY_PIXELS_NATIVE || format < 0 || format > BY_PIXELS_GREY16) {
        base_fail(BY_ERR_ARGUMENT, "%d is no pixel format", (int)format);
        return NULL;
    }
    if (image_check_size(width, height, INT32_MAX) != BY_OK)
        return NULL;
    const int channels = image_channels(format);
    by_image *m = base_alloc_zero(1, sizeof *m);
    void *pixels =
        base_alloc_zero((size_t)width * (size_t)height, (size_t)channels * image_sample_bytes(format));
    if (!m || !pixels) {
        base_free(m);
        base_free(pixels);
        return NULL;
    }
    *m = (by_image){.width = width,
                    .height = height,
                    .format = format,
                    .channels = channels,
                    .orientation = 1,
                    .pixels = pixels};
    return m;
}

void by_image_free(by_image *m)
{
    if (!m)
        return;
    base_free(m->pixels);
    base_free(m);
}

/* ---- pixel formats ------------------------------------------------------------------------------- */

/* x y / 255, rounded to nearest, for bytes. */
static unsigned mul255(unsigned x, unsigned y)
{
    const unsigned t = x * y + 128;
    return ((t >> 8) + t) >> 8;
}

/* One pixel of any format as RGBA. 16-bit grey is clipped to 255, as Pillow and therefore the processors of
 * published models do. */
static void pixel_rgba(const by_image *m, size_t i, uint8_t out[4])
{
    const uint8_t *p = (const uint8_t *)m->pixels + i * (size_t)m->channels;
    out[3] = 255;
    switch (m->format) {
    case BY_PIXELS_GREY16: {
        const unsigned v = ((const uint16_t *)m->pixels)[i];
        out[0] = out[1] = out[2] = (uint8_t)BY_MIN(v, 255);
        break;
    }
    case BY_PIXELS_GREY_ALPHA:
        out[3] = p[1]; /* fall through */
    case BY_PIXELS_GREY:
        out[0] = out[1] = out[2] = p[0];
        break;
    case BY_PIXELS_CMYK:
        for (int c = 0; c < 3; c++) {
            const unsigned white = 255u - p[3];
            out[c] = (uint8_t)(white - mul255(p[c], white));
        }
        break;
    default:
        memcpy(out, p, (size_t)m->channels);
    }
}

by_image *image_convert(by_image *m, by_pixels format)
{
    if (format == BY_PIXELS_NATIVE || format == m->format)
        return m;
    by_image *to = by_image_new(m->width, m->height, format);
    const size_t count = (size_t)m->width * (size_t)m->height;
    for (size_t i = 0; to && i < count; i++) {
        uint8_t rgba[4], *out = (uint8_t *)to->pixels + i * (size_t)to->channels;
        pixel_rgba(m, i, rgba);
        if (format == BY_PIXELS_GREY)
            *out = rgba[0] == rgba[1] && rgba[1] == rgba[2] ? rgba[0] : image_luma(rgba);
        else
            memcpy(out, rgba, (size_t)to->channels);
    }
    if (to)
        to->orientation = m->orientation;
    by_image_free(m);
    return to;
}

/* ---- orientation ------------------------------------------------------------------------------- */

static unsigned tiff_number(const uint8_t *p, int bytes, bool big)
{
    unsigned v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (unsigned)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

int image_exif_orientation(const uint8_t *tiff, size_t size)
{
    if (size < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 1;
    const bool big = tiff[0] == 'M';
    const size_t at = tiff_number(tiff + 4, 4, big);
    if (at > size - 2 || at < 8)
        return 1;
    const unsigned entries = tiff_number(tiff + at, 2, big);
    for (size_t i = 0; i < entries && at + 2 + 12 * (i + 1) <= size; i++) {
        const uint8_t *entry = tiff + at + 2 + 12 * i;
        if (tiff_number(entry, 2, big) ==
            0x112) { /* the orientation is a SHORT, or a LONG from some writers */
            const unsigned type = tiff_number(entry + 2, 2, big);
            const bool is_short = type == 3 || type == 8, is_long = type == 4 || type == 9;
            const unsigned v = is_short || is_long ? tiff_number(entry + 8, is_long ? 4 : 2, big) : 1;
            return v >= 1 && v <= 8 ? (int)v : 1;
        }
    }
    return 1;
}

/* Orientations 5 to 8 swap rows and columns. Finds where pixel (x, y) of the upright picture is stored. */
static void stored_place(const by_image *m, int x, int y, int *from_x, int *from_y)
{
    const int o = m->orientation, w = m->width - 1, h = m->height - 1;
    const int a = o >= 5 ? y : x, b = o >= 5 ? x : y;
    *from_x = o == 2 || o == 3 || o == 7 || o == 8 ? w - a : a;
    *from_y = o == 3 || o == 4 || o == 6 || o == 7 ? h - b : b;
}

static by_image *turn(by_image *m)
{
    const bool swaps = m->orientation >= 5;
    if (m->orientation <= 1)
        return m;
    by_image *to = by_image_new(swaps ? m->height : m->width, swaps ? m->width : m->height, m->format);
    const size_t pixel = (size_t)m->channels * image_sample_bytes(m->format);
    for (int y = 0; to && y < to->height; y++)
        for (int x = 0; x < to->width; x++) {
            int from_x, from_y;
            stored_place(m, x, y, &from_x, &from_y);
            memcpy(image_row(to, y) + (size_t)x * pixel, image_row(m, from_y) + (size_t)from_x * pixel,
                   pixel);
        }
    by_image_free(m);
    return to;
}

/* ---- decoding ---------------------------------------------------------------------------------- */

static by_status check_spec(const by_image_spec *spec)
{
    const by_pixels f = spec->format;
    if (f != BY_PIXELS_RGB && f != BY_PIXELS_RGBA && f != BY_PIXELS_GREY && f != BY_PIXELS_NATIVE)
        return base_fail(BY_ERR_ARGUMENT, "pictures are decoded as RGB, RGBA, grey or as they are");
    return spec->max_pixels < 0 ? base_fail(BY_ERR_ARGUMENT, "max_pixels is negative") : BY_OK;
}

by_image *by_image_decode(const void *bytes, size_t size, const by_image_spec *spec)
{
    static const by_image_spec plain = {0};
    spec = spec ? spec : &plain;
    if (!bytes && size > 0) {
        base_fail_missing("picture");
        return NULL;
    }
    if (check_spec(spec) != BY_OK)
        return NULL;
    const image_source s = {.bytes = bytes,
                            .size = size,
                            .max_pixels = spec->max_pixels ? spec->max_pixels : DEFAULT_MAX_PIXELS,
                            .alpha = spec->format == BY_PIXELS_RGBA};
    for (int i = 0; i < BY_COUNT(formats); i++) {
        if (!formats[i].begins(&s))
            continue;
        if (!formats[i].decode) {
            base_fail(BY_ERR_UNSUPPORTED, "this build does not read %s files; it needs %s", formats[i].name,
                      formats[i].package);
            return NULL;
        }
        by_image *m = formats[i].decode(&s);
        if (!m) {
            base_fail_context("%s", formats[i].name);
            return NULL;
        }
        m = image_convert(m, spec->format);
        return m && spec->upright ? turn(m) : m;
    }
    base_fail(BY_ERR_FORMAT, "not a PNG, JPEG, WebP or GIF file");
    return NULL;
}

by_image *by_image_open(const char *path, const by_image_spec *spec)
{
    size_t size;
    if (!path) {
        base_fail_missing("path");
        return NULL;
    }
    char *bytes = base_file_read(path, MAX_FILE_BYTES, &size);
    if (!bytes)
        return NULL;
    by_image *m = by_image_decode(bytes, size, spec);
    base_free(bytes);
    if (!m)
        base_fail_context("%s", path);
    return m;
}

/* ---- cropping ---------------------------------------------------------------------------------- */

by_image *by_image_crop(const by_image *m, int left, int top, int width, int height)
{
    by_image *to = m ? by_image_new(width, height, m->format) : NULL;
    if (!m)
        base_fail_missing("picture");
    if (!to)
        return NULL;
    const size_t pixel = (size_t)m->channels * image_sample_bytes(m->format);
    const int64_t first = BY_MAX(left, 0), end = BY_MIN((int64_t)left + width, m->width);
    for (int y = 0; y < height && first < end; y++) {
        const int64_t from = (int64_t)top + y;
        if (from >= 0 && from < m->height)
            memcpy(image_row(to, y) + (size_t)(first - left) * pixel,
                   image_row(m, (int)from) + (size_t)first * pixel, (size_t)(end - first) * pixel);
    }
    return to;
}
