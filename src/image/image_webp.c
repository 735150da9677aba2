/* image_webp.c - WebP with libwebp, lossy and lossless: still pictures, and the first frame of animations. */
#ifdef BY_HAVE_WEBP
#include <webp/decode.h>

#include "image/picture.h"

/* A chunk of an extended file. */
typedef struct webp_chunk {
    const uint8_t *bytes;
    size_t size;
} webp_chunk;

/* The frame in the canvas. */
typedef struct webp_frame {
    webp_chunk data;
    int left, top, width, height;
} webp_frame;

enum { HAS_EXIF = 0x08 }; /* flag of an extended file */

static size_t number(const uint8_t *p, int bytes)
{
    size_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (size_t)p[i] << 8 * i;
    return v;
}

/* Finds the first chunk with this name. Returns false if there is none. */
static bool find_chunk(const image_source *s, const char name[4], webp_chunk *out)
{
    if (s->size < 30 || memcmp(s->bytes + 12, "VP8X", 4) != 0)
        return false;
    for (size_t at = 12; s->size - at >= 8;) {
        const uint8_t *p = s->bytes + at;
        const size_t n = number(p + 4, 4), left = s->size - at - 8;
        if (n > left)
            return false;
        *out = (webp_chunk){p + 8, n};
        if (memcmp(p, name, 4) == 0)
            return true;
        at += 8 + BY_MIN(n + (n & 1), left);
    }
    return false;
}

/* The orientation, if the header flags EXIF. Some writers add the prefix of JPEG files. */
static int orientation_of(const image_source *s)
{
    static const char prefix[] = "Exif\0"; /* and a zero byte */
    webp_chunk c;
    if (!find_chunk(s, "EXIF", &c) || !(s->bytes[20] & HAS_EXIF))
        return 1;
    const size_t skip =
        c.size >= sizeof prefix && memcmp(c.bytes, prefix, sizeof prefix) == 0 ? sizeof prefix : 0;
    return image_exif_orientation(c.bytes + skip, c.size - skip);
}

static by_status fail_damaged(void)
{
    return base_fail(BY_ERR_FORMAT, "the file is damaged or truncated");
}

/* The whole file, or the first frame of an animation. */
static by_status find_frame(const image_source *s, const WebPBitstreamFeatures *f, webp_frame *out)
{
    enum { HEADER = 16 };
    WebPBitstreamFeatures own;
    webp_chunk c;
    *out = (webp_frame){{s->bytes, s->size}, 0, 0, f->width, f->height};
    if (!f->has_animation)
        return BY_OK;
    if (!find_chunk(s, "ANMF", &c) || c.size < HEADER)
        return fail_damaged();
    out->data = (webp_chunk){c.bytes + HEADER, c.size - HEADER};
    out->left = 2 * (int)number(c.bytes, 3);
    out->top = 2 * (int)number(c.bytes + 3, 3);
    out->width = 1 + (int)number(c.bytes + 6, 3);
    out->height = 1 + (int)number(c.bytes + 9, 3);
    return WebPGetFeatures(out->data.bytes, out->data.size, &own) == VP8_STATUS_OK && !own.has_animation &&
                   own.width == out->width && own.height == out->height &&
                   out->left + out->width <= f->width && out->top + out->height <= f->height
               ? BY_OK
               : fail_damaged();
}

by_image *image_webp_decode(const image_source *s)
{
    WebPBitstreamFeatures f;
    webp_frame frame;
    const VP8StatusCode status = WebPGetFeatures(s->bytes, s->size, &f);
    if (status != VP8_STATUS_OK) {
        base_fail(BY_ERR_FORMAT, "%s",
                  status == VP8_STATUS_NOT_ENOUGH_DATA ? "the file is truncated" : "the file is damaged");
        return NULL;
    }
    if (image_check_size(f.width, f.height, s->max_pixels) != BY_OK || find_frame(s, &f, &frame) != BY_OK)
        return NULL;
    by_image *m = by_image_new(f.width, f.height, f.has_alpha ? BY_PIXELS_RGBA : BY_PIXELS_RGB);
    if (!m)
        return NULL;
    m->orientation = orientation_of(s);
    const int row = m->width * m->channels;
    uint8_t *to = image_row(m, frame.top) + (size_t)frame.left * (size_t)m->channels;
    const size_t room = (size_t)row * (size_t)(frame.height - 1) + (size_t)frame.width * (size_t)m->channels;
    const uint8_t *done = f.has_alpha ? WebPDecodeRGBAInto(frame.data.bytes, frame.data.size, to, room, row)
                                      : WebPDecodeRGBInto(frame.data.bytes, frame.data.size, to, room, row);
    if (done)
        return m;
    by_image_free(m);
    fail_damaged();
    return NULL;
}
#endif
