/* image_webp.c - WebP through libwebp: single pictures, lossy and lossless. */
#ifdef BY_HAVE_WEBP
#include <webp/decode.h>

#include "image/picture.h"

static const char *reason(VP8StatusCode s)
{
    return s == VP8_STATUS_NOT_ENOUGH_DATA ? "the file is truncated" : "the file is damaged";
}

/* The chunk EXIF of an extended file, if its header promises one. Some writers put the prefix of JPEG files before it. */
static int orientation_of(const image_source *s)
{
    static const char prefix[] = "Exif\0"; /* and a zero */
    if (s->size < 30 || memcmp(s->bytes + 12, "VP8X", 4) != 0 || !(s->bytes[20] & 0x08))
        return 1;
    for (size_t at = 12; s->size - at >= 8;) {
        const uint8_t *p = s->bytes + at;
        const size_t n = p[4] | (size_t)p[5] << 8 | (size_t)p[6] << 16 | (size_t)p[7] << 24;
        const size_t left = s->size - at - 8;
        if (n > left)
            return 1;
        if (memcmp(p, "EXIF", 4) == 0) {
            const size_t skip =
                n >= sizeof prefix && memcmp(p + 8, prefix, sizeof prefix) == 0 ? sizeof prefix : 0;
            return image_exif_orientation(p + 8 + skip, n - skip);
        }
        at += 8 + BY_MIN(n + (n & 1), left);
    }
    return 1;
}

by_image *image_webp_decode(const image_source *s)
{
    WebPBitstreamFeatures f;
    const VP8StatusCode status = WebPGetFeatures(s->bytes, s->size, &f);
    if (status != VP8_STATUS_OK) {
        base_fail(BY_ERR_FORMAT, "%s", reason(status));
        return NULL;
    }
    if (f.has_animation) {
        base_fail(BY_ERR_UNSUPPORTED, "animated pictures are not supported");
        return NULL;
    }
    if (image_check_size(f.width, f.height, s->max_pixels) != BY_OK)
        return NULL;
    by_image *m = by_image_new(f.width, f.height, f.has_alpha ? BY_PIXELS_RGBA : BY_PIXELS_RGB);
    if (!m)
        return NULL;
    m->orientation = orientation_of(s);
    const int row = m->width * m->channels;
    const size_t size = (size_t)row * (size_t)m->height;
    const uint8_t *done = f.has_alpha ? WebPDecodeRGBAInto(s->bytes, s->size, m->pixels, size, row)
                                      : WebPDecodeRGBInto(s->bytes, s->size, m->pixels, size, row);
    if (done)
        return m;
    by_image_free(m);
    base_fail(BY_ERR_FORMAT, "the file is damaged or truncated");
    return NULL;
}
#endif
