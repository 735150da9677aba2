/* affine.c - see enhance.h: mirrored, rotated, sheared and translated pictures. */
#include <math.h>

#include "image/enhance.h"
#include "image/lanes.h"

void image_mirror(by_image *m)
{
    const size_t pixel = (size_t)m->channels;
    for (int y = 0; y < m->height; y++)
        for (uint8_t *a = image_row(m, y), *b = a + (size_t)(m->width - 1) * pixel; a < b;
             a += pixel, b -= pixel)
            for (size_t c = 0; c < pixel; c++) {
                const uint8_t t = a[c];
                a[c] = b[c];
                b[c] = t;
            }
}

static int within(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static int floor_of(double x) /* faster than floor() */
{
    const int i = (int)x;
    return i - (x < i);
}

enum { BORDER = 2, LANES = IMAGE_LANES, BLOCK = 64 };

static size_t bordered_row(const by_image *m)
{
    return ((size_t)m->width + 2 * BORDER) * LANES;
}

/* A copy with a border that repeats the edge pixels. */
static int32_t *with_border(const by_image *m)
{
    const size_t pixel = LANES * sizeof(int32_t), row = bordered_row(m);
    int32_t *out = base_alloc_zero((size_t)m->height + 2 * BORDER, row * sizeof *out), *to = out;
    for (int y = -BORDER; out && y < m->height + BORDER; y++, to += row) {
        int32_t *first = to + BORDER * LANES, *last = first + (size_t)(m->width - 1) * LANES;
        image_widen(image_row(m, within(y, m->height)), m->width, m->channels, first);
        for (int i = 1; i <= BORDER; i++) {
            memcpy(first - i * LANES, first, pixel);
            memcpy(last + i * LANES, last, pixel);
        }
    }
    return out;
}

/* A cubic through b at 0 and c at 1. The caller passes their differences. */
BASE_INLINE double cubic(double b, double p2, double p3, double p4, double at)
{
    return b + at * (p2 + at * (p3 + at * p4));
}

/* One pixel, at (dx, dy) from the second pixel of the second of four rows, which start at p. Differences of
 * bytes are exact in integers, which are faster. */
BASE_INLINE void sample_bicubic(const int32_t *p, size_t row, double dx, double dy, int32_t out[LANES])
{
    double v[4][LANES];
    for (int k = 0; k < 4; k++, p += row)
        for (int i = 0; i < LANES; i++) {
            const int a = p[i], b = p[LANES + i], c = p[2 * LANES + i], d = p[3 * LANES + i];
            v[k][i] = cubic(b, c - a, 2 * (a - b) + c - d, -a + b - c + d, dx);
        }
    for (int i = 0; i < LANES; i++) {
        const double a = v[0][i], b = v[1][i], c = v[2][i], d = v[3][i];
        const int sum = (int)cubic(b, c - a, 2 * (a - b) + c - d, -a + b - c + d, dy);
        out[i] = sum < 0 ? 0 : sum > 255 ? 255 : sum;
    }
}

/* One pixel, at (dx, dy) from p. */
BASE_INLINE void sample_bilinear(const int32_t *p, size_t row, double dx, double dy, int32_t out[LANES])
{
    for (int c = 0; c < LANES; c++) {
        const double v = p[c] + (p[LANES + c] - p[c]) * dx;
        const double w = p[row + c] + (p[row + LANES + c] - p[row + c]) * dx;
        out[c] = (int)(v + (w - v) * dy);
    }
}

/* The source of a pixel of the result. */
typedef struct place {
    ptrdiff_t at; /* in a copy with a border; -1: outside */
    double dx, dy;
} place;

BASE_INLINE place find(const by_image *m, const double a[6], int x, int y)
{
    const double at_x = a[0] * (x + 0.5) + a[1] * (y + 0.5) + a[2];
    const double at_y = a[3] * (x + 0.5) + a[4] * (y + 0.5) + a[5];
    if (!(at_x >= 0 && at_x < m->width && at_y >= 0 && at_y < m->height))
        return (place){.at = -1};
    const int left = floor_of(at_x - 0.5), top = floor_of(at_y - 0.5);
    return (place){(top + BORDER) * (ptrdiff_t)bordered_row(m) + (left + BORDER) * LANES, at_x - 0.5 - left,
                   at_y - 0.5 - top};
}

/* Pixels x to end - 1 of a row, at most BLOCK, from a copy with a border. All sources are computed first, so
 * that the processor can overlap the loads. */
BASE_VECTORS
static void transform(const by_image *m, const int32_t *from, int x, int end, int y, const double a[6],
                      bool is_cubic, const uint8_t fill[3])
{
    const int n = end - x;
    const int32_t outside[LANES] = {fill[0], fill[1], fill[2]};
    const size_t row = bordered_row(m);
    place places[BLOCK];
    int32_t pixels[BLOCK][LANES];
    for (int i = 0; i < n; i++)
        places[i] = find(m, a, x + i, y);
    for (int i = 0; i < n; i++) {
        const place *p = &places[i];
        if (p->at < 0)
            memcpy(pixels[i], outside, sizeof outside);
        else if (is_cubic)
            sample_bicubic(from + p->at - row - LANES, row, p->dx, p->dy, pixels[i]);
        else
            sample_bilinear(from + p->at, row, p->dx, p->dy, pixels[i]);
    }
    image_narrow(pixels[0], n, m->channels, image_row(m, y) + (size_t)x * (size_t)m->channels);
}

by_status image_affine(by_image *m, const double a[6], by_filter filter, const uint8_t fill[3])
{
    int32_t *from = with_border(m);
    for (int y = 0; from && y < m->height; y++)
        for (int x = 0; x < m->width; x += BLOCK)
            transform(m, from, x, BY_MIN(x + BLOCK, m->width), y, a, filter == BY_FILTER_BICUBIC, fill);
    base_free(from);
    return from ? BY_OK : BY_ERR_MEMORY;
}

/* Pillow rounds the matrix to 15 digits. Multiplication would add a rounding before that. */
static double rounded(double x)
{
    char text[32];
    base_format(text, sizeof text, "%.15f", x);
    return base_strtod(text, NULL);
}

by_status image_rotate(by_image *m, double degrees, by_filter filter, const uint8_t fill[3])
{
    const double angle = -degrees * 3.14159265358979323846 / 180, x = m->width / 2.0, y = m->height / 2.0;
    const double c = rounded(cos(angle)), s = rounded(sin(angle));
    if (degrees == 0)
        return BY_OK;
    return image_affine(m, (const double[]){c, s, c * -x + s * -y + x, -s, c, -s * -x + c * -y + y}, filter,
                        fill);
}
