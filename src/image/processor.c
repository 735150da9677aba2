/* processor.c - applies a processor. The steps and their order are those of the transformers library: resize,
 * centre crop, rescale, normalise; for ImageGPT, quantise to a palette. */
#include <math.h>

#include "image/processor.h"

float image_processor_value(const by_processor *p, int byte, int c)
{
    float v = (float)(p->rescales ? byte * p->factor : byte);
    if (p->rescales && p->offset)
        v -= 1;
    return p->normalises ? (v - (float)p->mean[c]) / (float)p->std[c] : v;
}

/* ---- applying ------------------------------------------------------------------------------------ */

/* The size to resize to. The longer side is truncated to a whole number. If it has a limit, the shorter side
 * is rounded. */
static image_size target_size(const by_processor *p, const by_image *m)
{
    image_size s = p->size;
    if (!s.shortest)
        return s;
    const int64_t low = BY_MIN(m->width, m->height), high = BY_MAX(m->width, m->height);
    int64_t a = s.shortest, b = a * high / low;
    if (s.longest && (double)high / (double)low * s.shortest > s.longest) {
        const double exact = (double)s.longest * (double)low / (double)high;
        a = BY_MAX((int64_t)rint(exact), 1);
        b = a == low ? high : (int64_t)(exact * (double)high / (double)low);
    }
    s.width = (int)(m->width <= m->height ? a : b);
    s.height = (int)(m->width <= m->height ? b : a);
    return s;
}

/* Offsets round down. If the picture is smaller than the crop, the extra pixel of the border goes before
 * it. */
static int crop_offset(int size, int crop)
{
    return size >= crop ? (size - crop) / 2 : -((crop - size + 1) / 2);
}

/* A copy with the channels of the processor. */
static by_image *recolour(const by_processor *p, const by_image *m)
{
    by_image *copy = by_image_crop(m, 0, 0, m->width, m->height);
    return copy ? image_convert(copy, p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB) : NULL;
}

static by_image *shape(const by_processor *p, const by_image *m)
{
    by_image *sized;
    if (p->resizes) {
        const image_size s = target_size(p, m);
        sized = by_image_resize(m, s.width, s.height, p->filter);
    } else {
        sized = by_image_crop(m, 0, 0, m->width, m->height);
    }
    if (!sized || !p->crops)
        return sized;
    by_image *cut = by_image_crop(sized, crop_offset(sized->width, p->crop.width),
                                  crop_offset(sized->height, p->crop.height), p->crop.width, p->crop.height);
    by_image_free(sized);
    return cut;
}

by_status by_processor_values(const by_processor *p, const by_image *m, float *out)
{
    if (!p || !m || !out)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "memory for the values");
    if (m->format != (p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB))
        return base_fail(BY_ERR_ARGUMENT, "the picture does not have the %d channels of the processor",
                         p->channels);
    const size_t plane = (size_t)m->width * (size_t)m->height, channels = (size_t)p->channels;
    const uint8_t *pixels = m->pixels;
    float table[3][256];
    for (size_t c = 0; c < channels; c++)
        for (int b = 0; b < 256; b++)
            table[c][b] = image_processor_value(p, b, (int)c);
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++)
            out[c * plane + i] = table[c][pixels[channels * i + c]];
    return BY_OK;
}

static by_status put_values(const by_processor *p, const by_image *m, by_prepared *out)
{
    out->values =
        base_alloc_zero((size_t)p->channels * (size_t)m->width * (size_t)m->height, sizeof *out->values);
    return out->values ? by_processor_values(p, m, out->values) : BY_ERR_MEMORY;
}

static by_status put_ids(const by_processor *p, const by_image *m, by_prepared *out)
{
    const size_t plane = (size_t)m->width * (size_t)m->height;
    if (!(out->ids = base_alloc_zero(plane, sizeof *out->ids)))
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < plane; i++)
        out->ids[i] = image_palette_nearest(p->palette, (const uint8_t *)m->pixels + 3 * i);
    return BY_OK;
}

by_image *by_processor_shape(const by_processor *p, const by_image *m)
{
    if (!p || !m) {
        base_fail_missing(p ? "picture" : "processor");
        return NULL;
    }
    if (m->format != BY_PIXELS_RGB && m->format != BY_PIXELS_GREY) {
        base_fail(BY_ERR_ARGUMENT, "a processor takes RGB or grey pictures");
        return NULL;
    }
    if (m->channels == p->channels)
        return shape(p, m);
    by_image *own = recolour(p, m);
    by_image *out = own ? shape(p, own) : NULL;
    by_image_free(own);
    return out;
}

by_status by_processor_apply(const by_processor *p, const by_image *m, by_prepared *out)
{
    if (!p || !m || !out)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "result");
    by_image *shaped = by_processor_shape(p, m);
    *out = (by_prepared){0};
    if (!shaped)
        return base_error_status();
    out->channels = p->colours ? 1 : p->channels;
    out->height = shaped->height;
    out->width = shaped->width;
    const by_status s = p->colours ? put_ids(p, shaped, out) : put_values(p, shaped, out);
    by_image_free(shaped);
    return s;
}

void by_prepared_free(by_prepared *x)
{
    if (!x)
        return;
    base_free(x->values);
    base_free(x->ids);
    *x = (by_prepared){0};
}

/* ---- tokens -------------------------------------------------------------------------------------- */

int64_t by_processor_tokens(const by_processor *p)
{
    int height = 0, width = 0;
    if (p)
        by_processor_size(p, &height, &width);
    return (int64_t)height * width * (p && p->colours ? 1 : p ? p->channels : 0);
}

by_status by_processor_encode(const by_processor *p, const by_image *m, int32_t *tokens)
{
    if (!p || !m || !tokens)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "memory for the tokens");
    const int64_t count = by_processor_tokens(p);
    if (count == 0)
        return base_fail(BY_ERR_ARGUMENT, "the processor makes pictures of different sizes");
    by_image *shaped = by_processor_shape(p, m);
    if (!shaped)
        return base_error_status();
    const uint8_t *pixels = shaped->pixels;
    for (int64_t i = 0; i < count; i++)
        tokens[i] = p->colours ? image_palette_nearest(p->palette, pixels + 3 * i) : pixels[i];
    by_image_free(shaped);
    return BY_OK;
}

static uint8_t to_byte(float x)
{
    return (uint8_t)BY_MAX(0, BY_MIN(255, rint(127.5 * ((double)x + 1))));
}

by_image *by_processor_decode(const by_processor *p, const int32_t *tokens)
{
    int height = 0, width = 0;
    const int64_t count = by_processor_tokens(p);
    if (!p || !tokens || count == 0) {
        !p || !tokens ? base_fail_missing(p ? "tokens" : "processor")
                      : base_fail(BY_ERR_ARGUMENT, "the processor makes pictures of different sizes");
        return NULL;
    }
    by_processor_size(p, &height, &width);
    by_image *m = by_image_new(width, height, p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB);
    const int limit = p->colours ? p->colours : 256;
    for (int64_t i = 0; m && i < count; i++) {
        uint8_t *to = (uint8_t *)m->pixels + (p->colours ? 3 : 1) * i;
        const int32_t id = BY_MAX(0, BY_MIN(tokens[i], limit - 1));
        for (int c = 0; c < (p->colours ? 3 : 1); c++)
            to[c] = p->colours ? to_byte(p->clusters[3 * id + c]) : (uint8_t)id;
    }
    return m;
}
