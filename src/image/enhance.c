/* enhance.c - see enhance.h: contrast, colours, sharpness. */
#include <math.h>

#include "image/enhance.h"
#include "image/lanes.h"

static size_t pixels_of(const by_image *m)
{
    return (size_t)m->width * (size_t)m->height;
}

static uint8_t clip(int v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Maps the samples of a channel through a table. */
static void look_up(by_image *m, int channel, const uint8_t table[256])
{
    uint8_t *p = (uint8_t *)m->pixels + channel;
    for (size_t i = 0, n = pixels_of(m); i < n; i++, p += m->channels)
        *p = table[*p];
}

static void look_up_all(by_image *m, const uint8_t table[256])
{
    for (int c = 0; c < m->channels; c++)
        look_up(m, c, table);
}

static void count(const by_image *m, int channel, int64_t counts[256])
{
    const uint8_t *p = (const uint8_t *)m->pixels + channel;
    memset(counts, 0, 256 * sizeof *counts);
    for (size_t i = 0, n = pixels_of(m); i < n; i++, p += m->channels)
        counts[*p]++;
}

void image_autocontrast(by_image *m)
{
    for (int c = 0; c < m->channels; c++) {
        int64_t counts[256];
        uint8_t table[256];
        int low = 0, high = 255;
        count(m, c, counts);
        while (low < 255 && !counts[low])
            low++;
        while (high > 0 && !counts[high])
            high--;
        if (high <= low)
            continue;
        const double scale = 255.0 / (high - low), offset = -low * scale;
        for (int i = 0; i < 256; i++)
            table[i] = clip((int)(i * scale + offset));
        look_up(m, c, table);
    }
}

void image_equalize(by_image *m)
{
    for (int c = 0; c < m->channels; c++) {
        int64_t counts[256], all = 0, last = 0;
        uint8_t table[256];
        count(m, c, counts);
        for (int i = 0; i < 256; i++) {
            all += counts[i];
            last = counts[i] ? counts[i] : last;
        }
        const int64_t step = (all - last) / 255;
        if (!step)
            continue;
        int64_t n = step / 2;
        for (int i = 0; i < 256; i++) {
            table[i] = clip((int)BY_MIN(n / step, 255));
            n += counts[i];
        }
        look_up(m, c, table);
    }
}

void image_invert(by_image *m)
{
    image_solarize(m, 0);
}

void image_posterize(by_image *m, int bits)
{
    uint8_t table[256];
    const int mask = bits >= 8 ? 255 : ~((1 << (8 - BY_MAX(bits, 0))) - 1);
    for (int i = 0; i < 256; i++)
        table[i] = (uint8_t)(i & mask);
    look_up_all(m, table);
}

void image_solarize(by_image *m, int threshold)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    look_up_all(m, table);
}

void image_solarize_add(by_image *m, int add)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = i < 128 ? clip(i + add) : (uint8_t)i;
    look_up_all(m, table);
}

/* ---- blends ------------------------------------------------------------------------------------ */

/* Interpolates from a to b in single precision and truncates, as Pillow's blend does. */
BASE_INLINE uint8_t blend(int a, int b, float factor)
{
    float v = (float)a + factor * (float)(b - a);
    v = v > 0 ? v : 0;
    v = v < 255 ? v : 255;
    return (uint8_t)(int)v;
}

enum { BLOCK = 64 };

/* Up to BLOCK pixels. */
BASE_VECTORS
static void saturate(uint8_t *p, int n, float factor)
{
    uint8_t grey[3 * BLOCK];
    for (int i = 0; i < n; i++)
        grey[3 * i] = grey[3 * i + 1] = grey[3 * i + 2] = image_luma(p + 3 * i);
    for (int i = 0; i < 3 * n; i++)
        p[i] = blend(grey[i], p[i], factor);
}

void image_saturation(by_image *m, double factor)
{
    uint8_t *p = m->pixels;
    const size_t n = pixels_of(m);
    for (size_t i = 0; m->channels == 3 && i < n; i += BLOCK)
        saturate(p + 3 * i, (int)BY_MIN(n - i, BLOCK), (float)factor);
}

static void blend_with(by_image *m, int value, double factor)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = blend(value, i, (float)factor);
    look_up_all(m, table);
}

void image_brightness(by_image *m, double factor)
{
    blend_with(m, 0, factor);
}

void image_contrast(by_image *m, double factor)
{
    const uint8_t *p = m->pixels;
    const size_t n = pixels_of(m);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++, p += m->channels)
        sum += m->channels == 3 ? image_luma(p) : *p;
    blend_with(m, (int)((double)sum / (double)n + 0.5), factor);
}

/* Smooths one row. The neighbours of a sample are `channels` before and after it. */
BASE_VECTORS
static void sharpen(const uint8_t *restrict p, int row, int n, int channels, float factor,
                    uint8_t *restrict out)
{
    const uint8_t *above = p - row, *below = p + row;
    for (int i = 0; i < n; i++) {
        const int sum = above[i - channels] + above[i] + above[i + channels] + p[i - channels] + 5 * p[i] +
                        p[i + channels] + below[i - channels] + below[i] + below[i + channels];
        out[i] = blend((2 * sum + 13) / 26, p[i], factor);
    }
}

/* Blends with a smoothed picture: the mean of each pixel and its neighbours, with weight 5 for the pixel
 * itself. Border pixels stay. */
by_status image_sharpness(by_image *m, double factor)
{
    const int channels = m->channels, row = m->width * channels;
    uint8_t *from = base_alloc((size_t)row * (size_t)m->height);
    if (!from)
        return BY_ERR_MEMORY;
    memcpy(from, m->pixels, (size_t)row * (size_t)m->height);
    for (int y = 1; y + 1 < m->height; y++)
        sharpen(from + (size_t)y * (size_t)row + channels, row, row - 2 * channels, channels, (float)factor,
                image_row(m, y) + channels);
    base_free(from);
    return BY_OK;
}

/* ---- hue --------------------------------------------------------------------------------------- */

/* Hue, saturation and value as bytes. */
static void to_hsv(const uint8_t *rgb, uint8_t hsv[3])
{
    const int high = BY_MAX(rgb[0], BY_MAX(rgb[1], rgb[2])), low = BY_MIN(rgb[0], BY_MIN(rgb[1], rgb[2]));
    hsv[0] = hsv[1] = 0;
    hsv[2] = (uint8_t)high;
    if (high == low)
        return;
    const float range = (float)(high - low), s = range / (float)high;
    const float r = (float)(high - rgb[0]) / range, g = (float)(high - rgb[1]) / range,
                b = (float)(high - rgb[2]) / range;
    const double h = rgb[0] == high   ? (double)(b - g)
                     : rgb[1] == high ? 2.0 + (double)r - (double)b
                                      : 4.0 + (double)g - (double)r;
    const float turned = (float)fmod((double)(float)h / 6.0 + 1.0, 1.0);
    hsv[0] = clip((int)((double)turned * 255.0));
    hsv[1] = clip((int)((double)s * 255.0));
}

static void to_rgb(const uint8_t *hsv, uint8_t *rgb)
{
    const int v = hsv[2];
    if (!hsv[1]) {
        rgb[0] = rgb[1] = rgb[2] = (uint8_t)v;
        return;
    }
    const int i = (int)floor((double)hsv[0] * 6.0 / 255.0);
    const double f = (double)(float)((double)hsv[0] * 6.0 / 255.0 - i),
                 s = (double)(float)((double)hsv[1] / 255.0);
    const uint8_t p = clip((int)round(v * (1.0 - s))), q = clip((int)round(v * (1.0 - s * f))),
                  t = clip((int)round(v * (1.0 - s * (1.0 - f)))), w = (uint8_t)v;
    const uint8_t out[6][3] = {{w, t, p}, {q, w, p}, {p, w, t}, {p, q, w}, {t, p, w}, {w, p, q}};
    memcpy(rgb, out[i % 6], 3);
}

void image_hue(by_image *m, double turn)
{
    uint8_t *p = m->pixels, hsv[3];
    for (size_t i = 0, n = pixels_of(m); m->channels == 3 && i < n; i++, p += 3) {
        to_hsv(p, hsv);
        hsv[0] = (uint8_t)(hsv[0] + (int)(turn * 255));
        to_rgb(hsv, p);
    }
}
