/* overlay.c - maps of attention over pictures (see mosaic.h). */
#include <math.h>

#include "image/picture.h"
#include "report/mosaic.h"

/* Stretches a map over (height, width); nearest fields unless smooth. NULL on failure. */
static float *stretch(const float *map, int rows, int columns, const by_image *m, bool smooth)
{
    float *out = base_alloc_zero((size_t)m->height * (size_t)m->width, sizeof *out);
    if (out && smooth &&
        by_interpolate(map, 1, rows, columns, out, m->height, m->width, BY_FILTER_BILINEAR, false) != BY_OK) {
        base_free(out);
        return NULL;
    }
    for (int y = 0; out && !smooth && y < m->height; y++)
        for (int x = 0; x < m->width; x++) {
            const size_t row = (size_t)y * (size_t)rows / (size_t)m->height;
            const size_t column = (size_t)x * (size_t)columns / (size_t)m->width;
            out[(size_t)y * (size_t)m->width + (size_t)x] = map[row * (size_t)columns + column];
        }
    return out;
}

by_image *report_overlay(const by_image *picture, const float *map, int rows, int columns, bool smooth)
{
    static const int orange[3] = {255, 140, 0};
    by_image *m = by_image_new(picture->width, picture->height, BY_PIXELS_RGB);
    float least = map[0], most = map[0], *over = m ? stretch(map, rows, columns, picture, smooth) : NULL;
    const size_t pixels = (size_t)picture->width * (size_t)picture->height;
    for (int i = 0; i < rows * columns; i++) {
        least = fminf(least, map[i]);
        most = fmaxf(most, map[i]);
    }
    for (size_t i = 0; over && i < pixels; i++) {
        const uint8_t *from = (const uint8_t *)picture->pixels + i * (size_t)picture->channels;
        const double x = most > least ? (double)((over[i] - least) / (most - least)) : 0;
        const double ground = 0.35 * (picture->channels < 3 ? from[0] : image_luma(from));
        for (int c = 0; c < 3; c++)
            ((uint8_t *)m->pixels)[3 * i + (size_t)c] = (uint8_t)(ground + x * (orange[c] - ground));
    }
    if (!over) {
        by_image_free(m);
        m = NULL;
    }
    base_free(over);
    return m;
}

by_image *report_map(const float *map, int rows, int columns, double low, double high)
{
    static const int dark[3] = {8, 48, 107};
    by_image *m = by_image_new(columns, rows, BY_PIXELS_RGB);
    for (int i = 0; m && i < rows * columns; i++) {
        const double x = high > low ? fmin(fmax(((double)map[i] - low) / (high - low), 0), 1) : 0;
        for (int c = 0; c < 3; c++)
            ((uint8_t *)m->pixels)[3 * i + c] = (uint8_t)lround(255 + x * (dark[c] - 255));
    }
    return m;
}
