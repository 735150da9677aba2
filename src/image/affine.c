/* affine.c - see enhance.h: pictures that are mirrored, turned, sheared and moved. */
#include <math.h>

#include "image/enhance.h"

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

static int floor_of(double x) /* much faster than floor() */
{
    const int i = (int)x;
    return i - (x < i);
}

static double cubic(double a, double b, double c, double d, double at)
{
    const double p2 = c - a, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + at * (p2 + at * (p3 + at * p4));
}

/* One pixel of the picture at (x, y), whose centres of pixels are at halves. Rows beyond the edge repeat the one before. */
static void sample_bicubic(const by_image *m, double x, double y, uint8_t *out)
{
    const int left = floor_of(x) - 1, top = floor_of(y) - 1, channels = m->channels;
    const double dx = x - (left + 1), dy = y - (top + 1);
    const uint8_t *rows[4];
    int at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = within(left + i, m->width) * channels;
        const bool repeats = i > 0 && (top + i < 0 || top + i >= m->height);
        rows[i] = repeats ? rows[i - 1] : image_row(m, within(top + i, m->height));
    }
    for (int c = 0; c < channels; c++) {
        double v[4];
        for (int k = 0; k < 4; k++) {
            const uint8_t *p = rows[k] + c;
            v[k] = cubic(p[at[0]], p[at[1]], p[at[2]], p[at[3]], dx);
        }
        const double sum = cubic(v[0], v[1], v[2], v[3], dy);
        out[c] = (uint8_t)(sum <= 0 ? 0 : sum >= 255 ? 255 : sum);
    }
}

static void sample_bilinear(const by_image *m, double x, double y, uint8_t *out)
{
    const int left = floor_of(x), top = floor_of(y), channels = m->channels;
    const double dx = x - left, dy = y - top;
    const int a = within(left, m->width) * channels, b = within(left + 1, m->width) * channels;
    const uint8_t *above = image_row(m, within(top, m->height));
    const uint8_t *below = top + 1 < m->height ? image_row(m, top + 1) : above;
    for (int c = 0; c < channels; c++) {
        const double v = above[a + c] + (above[b + c] - above[a + c]) * dx;
        const double w = below[a + c] + (below[b + c] - below[a + c]) * dx;
        out[c] = (uint8_t)(v + (w - v) * dy);
    }
}

by_status image_affine(by_image *m, const double a[6], by_filter filter, const uint8_t fill[3])
{
    by_image *from = by_image_crop(m, 0, 0, m->width, m->height);
    if (!from)
        return base_error_status();
    for (int row = 0; row < m->height; row++)
        for (int column = 0; column < m->width; column++) {
            const double x = a[0] * (column + 0.5) + a[1] * (row + 0.5) + a[2];
            const double y = a[3] * (column + 0.5) + a[4] * (row + 0.5) + a[5];
            uint8_t *out = image_row(m, row) + column * m->channels;
            if (x < 0 || x >= m->width || y < 0 || y >= m->height)
                memcpy(out, fill, (size_t)m->channels);
            else if (filter == BY_FILTER_BICUBIC)
                sample_bicubic(from, x - 0.5, y - 0.5, out);
            else
                sample_bilinear(from, x - 0.5, y - 0.5, out);
        }
    by_image_free(from);
    return BY_OK;
}

/* Pillow rounds the matrix to 15 digits. */
static double rounded(double x)
{
    return rint(x * 1e15) / 1e15;
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
