/* resample.c - resizing. Bytes are resampled as in Pillow: one axis after the other, with 22-bit fixed-point
 * weights, rounded to bytes between the passes. Floats are resampled as in PyTorch's interpolate. */
#include <math.h>

#include "image/lanes.h"
#include "image/picture.h"

/* ---- filters ----------------------------------------------------------------------------------- */

typedef double (*kernel)(double x);

static double box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double hamming(double x)
{
    const double pi = 3.14159265358979323846;
    x = fabs(x);
    return x == 0 ? 1 : x >= 1 ? 0 : sin(x * pi) / (x * pi) * (0.54 + 0.46 * cos(x * pi));
}

/* Keys' cubic; its slope at 1 is a. */
static double cubic(double x, double a)
{
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double soft_cubic(double x)
{
    return cubic(x, -0.5);
}

static double sinc(double x)
{
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(x * pi) / (x * pi);
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    kernel at;
    double support;
} filters[] = {[BY_FILTER_LANCZOS] = {lanczos, 3},
               [BY_FILTER_BILINEAR] = {triangle, 1},
               [BY_FILTER_BICUBIC] = {soft_cubic, 2},
               [BY_FILTER_BOX] = {box, 0.5},
               [BY_FILTER_HAMMING] = {hamming, 1}};

/* ---- weights of one axis ----------------------------------------------------------------------- */

typedef struct axis {
    int from, to, width; /* input and output length, maximum number of weights per output */
    int *first, *count;  /* (to) first input of each output and its number of inputs */
    double *weight;      /* (to, width) the weights */
    int32_t *fixed;      /* (to, width) times 2^22 */
} axis;

enum { BITS = 32 - 8 - 2 };

static void axis_close(axis *a)
{
    base_free(a->first);
    base_free(a->count);
    base_free(a->weight);
    base_free(a->fixed);
}

/* Weights of output i: the filter, widened if the picture shrinks, at the centres of the inputs. */
static void weigh(axis *a, int i, by_filter filter)
{
    const double scale = (double)a->from / a->to, stretch = BY_MAX(scale, 1.0);
    const double support = filters[filter].support * stretch, centre = (i + 0.5) * scale;
    const double inverse = 1 / stretch;
    const int low = BY_MAX((int)(centre - support + 0.5), 0);
    const int high = BY_MIN((int)(centre + support + 0.5), a->from);
    double *w = a->weight + (size_t)i * (size_t)a->width, sum = 0;
    a->first[i] = low;
    a->count[i] = high - low;
    for (int k = 0; k < high - low; k++)
        sum += w[k] = filters[filter].at((k + low - centre + 0.5) * inverse);
    for (int k = 0; k < high - low; k++) {
        w[k] = sum != 0 ? w[k] / sum : w[k];
        const double f = w[k] * (1 << BITS);
        a->fixed[(size_t)i * (size_t)a->width + (size_t)k] = (int32_t)(f < 0 ? f - 0.5 : f + 0.5);
    }
}

static by_status axis_open(axis *a, int from, int to, by_filter filter)
{
    const double support = filters[filter].support * BY_MAX((double)from / to, 1.0);
    const size_t n = (size_t)to;
    size_t all;
    *a = (axis){.from = from, .to = to, .width = (int)ceil(support) * 2 + 1};
    if (!base_mul_size(n, (size_t)a->width, &all))
        return base_fail(BY_ERR_MEMORY, "%d x %d weights", to, a->width);
    a->first = base_alloc_zero(n, sizeof *a->first);
    a->count = base_alloc_zero(n, sizeof *a->count);
    a->weight = base_alloc_zero(all, sizeof *a->weight);
    a->fixed = base_alloc_zero(all, sizeof *a->fixed);
    if (!a->first || !a->count || !a->weight || !a->fixed)
        return BY_ERR_MEMORY;
    for (int i = 0; i < to; i++)
        weigh(a, i, filter);
    return BY_OK;
}

/* ---- bytes --------------------------------------------------------------------------------------- */

/* The right shift is arithmetic as in Pillow: negative sums round down. */
BASE_INLINE int32_t clip(int32_t sum)
{
    const int32_t v = sum >> BITS;
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* One row of a horizontal pass. */
BASE_VECTORS
static void blend_row(const axis *a, const image_pixel *from, image_pixel *out)
{
    for (int x = 0; x < a->to; x++) {
        const int32_t *w = a->fixed + (size_t)x * (size_t)a->width;
        const image_pixel *p = from + a->first[x];
        image_pixel sum = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
        for (int k = 0; k < a->count[x]; k++)
            sum += p[k] * w[k];
        sum >>= BITS;
        sum &= sum > 0;
        out[x] = sum | (sum > 255); /* the lowest byte of each counts */
    }
}

static by_status blend_across(const axis *a, const by_image *m, by_image *to)
{
    image_pixel *from = base_alloc_zero((size_t)a->from + (size_t)a->to, sizeof *from);
    image_pixel *out = from ? from + a->from : NULL;
    for (int y = 0; from && y < to->height; y++) {
        image_widen(image_row(m, y), m->width, m->channels, (int32_t *)from);
        blend_row(a, from, out);
        image_narrow((int32_t *)out, to->width, m->channels, image_row(to, y));
    }
    base_free(from);
    return from ? BY_OK : BY_ERR_MEMORY;
}

/* Row y of a vertical pass adds whole rows. */
BASE_VECTORS
static void blend_rows(const axis *a, const by_image *m, int y, int32_t *restrict sum, uint8_t *restrict out)
{
    const size_t n = (size_t)m->width * (size_t)m->channels;
    const int32_t *w = a->fixed + (size_t)y * (size_t)a->width;
    for (size_t i = 0; i < n; i++)
        sum[i] = 1 << (BITS - 1);
    for (int k = 0; k < a->count[y]; k++) {
        const uint8_t *from = image_row(m, a->first[y] + k);
        const int32_t weight = w[k];
        for (size_t i = 0; i < n; i++)
            sum[i] += from[i] * weight;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)clip(sum[i]);
}

static by_status blend_down(const axis *a, const by_image *m, by_image *to)
{
    int32_t *sum = base_alloc((size_t)m->width * (size_t)m->channels * sizeof *sum);
    for (int y = 0; sum && y < to->height; y++)
        blend_rows(a, m, y, sum, image_row(to, y));
    base_free(sum);
    return sum ? BY_OK : BY_ERR_MEMORY;
}

static by_image *pass(const by_image *m, int length, by_filter filter, bool vertical)
{
    axis a;
    by_image *to = by_image_new(vertical ? m->width : length, vertical ? length : m->height, m->format);
    by_status s = to ? axis_open(&a, vertical ? m->height : m->width, length, filter) : BY_ERR_MEMORY;
    if (!to)
        return NULL;
    if (s == BY_OK && vertical)
        s = blend_down(&a, m, to);
    else if (s == BY_OK)
        s = blend_across(&a, m, to);
    axis_close(&a);
    if (s != BY_OK) {
        by_image_free(to);
        return NULL;
    }
    return to;
}

static by_image *nearest(const by_image *m, int width, int height)
{
    by_image *to = by_image_new(width, height, m->format);
    const double step_x = (double)m->width / width, step_y = (double)m->height / height;
    const size_t pixel = (size_t)m->channels;
    double at_y = step_y * 0.5;
    for (int y = 0; to && y < height; y++, at_y += step_y) {
        double at_x = step_x * 0.5;
        for (int x = 0; x < width; x++, at_x += step_x)
            memcpy(image_row(to, y) + (size_t)x * pixel,
                   image_row(m, BY_MIN((int)at_y, m->height - 1)) +
                       (size_t)BY_MIN((int)at_x, m->width - 1) * pixel,
                   pixel);
    }
    return to;
}

/* Bytes are rounded between the passes, so their order matters. Pillow 13 does the vertical pass first if the
 * picture loses more than twice as many rows as columns. Earlier versions always do the horizontal pass
 * first. */
static bool is_down_first(const by_image *m, int width, int height)
{
    const int64_t rows = m->height - height, columns = m->width - width;
    return rows > 0 && rows > 2 * columns;
}

by_image *by_image_resize(const by_image *m, int width, int height, by_filter filter)
{
    if (!m) {
        base_fail_missing("picture");
        return NULL;
    }
    if (filter < 0 || filter > BY_FILTER_HAMMING || m->format == BY_PIXELS_GREY16) {
        base_fail(BY_ERR_ARGUMENT, filter < 0 || filter > BY_FILTER_HAMMING
                                       ? "no such filter"
                                       : "16-bit pictures are not resized");
        return NULL;
    }
    if (image_check_size(width, height, INT32_MAX) != BY_OK)
        return NULL;
    if (filter == BY_FILTER_NEAREST)
        return nearest(m, width, height);
    if (width == m->width && height == m->height)
        return by_image_crop(m, 0, 0, width, height);
    if (height == m->height)
        return pass(m, width, filter, false);
    if (width == m->width)
        return pass(m, height, filter, true);
    const bool down_first = is_down_first(m, width, height);
    by_image *half = pass(m, down_first ? height : width, filter, down_first);
    by_image *to = half ? pass(half, down_first ? width : height, filter, !down_first) : NULL;
    by_image_free(half);
    return to;
}

/* ---- floats -------------------------------------------------------------------------------------- */

/* Without antialiasing: the two or four neighbours of the centre, clamped at the border. */
static void weigh_plain(axis *a, int i, by_filter filter)
{
    const bool is_cubic = filter == BY_FILTER_BICUBIC;
    const float scale = (float)a->from / (float)a->to;
    float at = scale * ((float)i + 0.5f) - 0.5f;
    if (!is_cubic && at < 0)
        at = 0;
    const double whole = floor((double)at), part = (double)at - whole;
    double *w = a->weight + (size_t)i * (size_t)a->width;
    const int taps = is_cubic ? 4 : 2, back = is_cubic ? 1 : 0;
    a->first[i] = (int)whole - back;
    a->count[i] = taps;
    for (int k = 0; k < taps; k++)
        w[k] = is_cubic ? cubic(part - (k - back), -0.75) : triangle(part - k);
}

static void run(const axis *a, const float *in, size_t step, float *out, size_t out_step)
{
    for (int i = 0; i < a->to; i++) {
        const double *w = a->weight + (size_t)i * (size_t)a->width;
        double sum = 0;
        for (int k = 0; k < a->count[i]; k++)
            sum += w[k] * (double)in[(size_t)BY_MIN(BY_MAX(a->first[i] + k, 0), a->from - 1) * step];
        out[(size_t)i * out_step] = (float)sum;
    }
}

static by_status float_axis(axis *a, int from, int to, by_filter filter, bool antialias)
{
    const by_status s = axis_open(a, from, to, filter);
    for (int i = 0; s == BY_OK && !antialias && i < to; i++)
        weigh_plain(a, i, filter);
    return s;
}

by_status by_interpolate(const float *in, int planes, int height, int width, float *out, int out_height,
                         int out_width, by_filter filter, bool antialias)
{
    axis x = {0}, y = {0};
    if (!in || !out)
        return base_fail_missing(in ? "output" : "input");
    if (planes < 0 || (filter != BY_FILTER_BILINEAR && filter != BY_FILTER_BICUBIC))
        return base_fail(BY_ERR_ARGUMENT, "tables are interpolated bilinear or bicubic");
    BY_TRY(image_check_size(width, height, INT32_MAX));
    BY_TRY(image_check_size(out_width, out_height, INT32_MAX));
    const size_t plane = (size_t)height * (size_t)width, out_plane = (size_t)out_height * (size_t)out_width;
    float *rows = base_alloc_zero((size_t)height * (size_t)out_width, sizeof *rows);
    by_status s = rows ? float_axis(&x, width, out_width, filter, antialias) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = float_axis(&y, height, out_height, filter, antialias);
    for (int p = 0; s == BY_OK && p < planes; p++) {
        for (int i = 0; i < height; i++)
            run(&x, in + (size_t)p * plane + (size_t)i * (size_t)width, 1,
                rows + (size_t)i * (size_t)out_width, 1);
        for (int i = 0; i < out_width; i++)
            run(&y, rows + i, (size_t)out_width, out + (size_t)p * out_plane + i, (size_t)out_width);
    }
    axis_close(&x);
    axis_close(&y);
    base_free(rows);
    return s;
}
