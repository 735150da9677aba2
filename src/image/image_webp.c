/* image_webp.c - WebP through libwebp: single pictures, lossy and lossless. */
#ifdef BY_HAVE_WEBP
#include <webp/decode.h>

#include "image/picture.h"

static const char *reason(VP8StatusCode s)
{
    return s == VP8_STATUS_NOT_ENOUGH_DATA ? "the file is truncated" : "the file is damaged";
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
