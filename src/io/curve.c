/* curve.c - loss curves. Ranges, ticks and the reduction of a million points to one pixel column each are
 * shared; what differs between the picture and the terminal is only the pen. */
#include "io/curve.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"

#define MAX_TICKS  32
#define HUGE_VALUE 1e300 /* beyond it, ranges would overflow */

/* ---- the points of a series ------------------------------------------------------------------ */

/* Walks a series once, leaving out what cannot be drawn and smoothing on the way. */
typedef struct cursor {
    const by_curve_series *s;
    bool log_x;
    size_t i;
    double weight,
        horizon; /* moving average: weight of the past, or with a horizon > 0 the points it reaches back */
    double mean, share, seen; /* share is the weight gathered so far, to undo the bias at the start */
    double x, raw, y;         /* the present point: raw and smoothed, NaN in a gap */
} cursor;

static cursor cursor_make(const by_curve_series *s, bool log_x)
{
    double w = s->style == BY_CURVE_LINE ? s->smoothing : 0;
    cursor c = {.s = s, .log_x = log_x, .weight = w > 0 && w < 1 ? w : 0, .x = -INFINITY};
    if (w == BY_CURVE_AUTO)
        c.horizon = 1 + (double)s->count / 50;
    return c;
}

static bool cursor_next(cursor *c)
{
    while (c->i < c->s->count) {
        double x = c->s->x[c->i], y = c->s->y[c->i];
        c->i++;
        if (!(x >= c->x) || !(fabs(x) < HUGE_VALUE) || (c->log_x && x < 1 / HUGE_VALUE))
            continue;
        c->x = x;
        c->raw = c->y = fabs(y) < HUGE_VALUE ? y : NAN;
        if (!isnan(c->raw)) {
            if (c->horizon > 0) /* short at first, so that the steep start is not blurred */
                c->weight = 1 - 1 / fmin(c->horizon, 1 + c->seen++ / 20);
            c->mean = c->weight * c->mean + (1 - c->weight) * y;
            c->share = c->weight * c->share + (1 - c->weight);
            c->y = c->mean / c->share;
        }
        return true;
    }
    return false;
}

/* The cursor at the last value that is drawn; its y is NaN when there is none. */
static cursor cursor_last(const by_curve_series *s, bool log_x)
{
    cursor last = {.y = NAN};
    for (cursor k = cursor_make(s, log_x); cursor_next(&k);)
        if (!isnan(k.y))
            last = k;
    return last;
}

/* How many series before this one have its style: what tells marks and lines of the terminal apart. */
static int style_rank(const by_curve *c, int i)
{
    int n = 0;
    for (int j = 0; j < i; j++)
        n += c->series[j].style == c->series[i].style;
    return n;
}

/* ---- ranges and ticks ------------------------------------------------------------------------ */

typedef struct axis {
    double lo, hi;
    bool log;
    double tick[MAX_TICKS];
    int ticks, decimals;
} axis;

static double axis_unit(const axis *a, double v) /* to [0, 1] inside the range */
{
    return a->log ? (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo)) : (v - a->lo) / (a->hi - a->lo);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Widen [lo, hi] by the values of a noisy series from its 1st to its 99th percentile, judged on a sample: one
 * spike should not flatten the picture. Short series count in full. */
static void widen_by_noise(const by_curve_series *s, bool log_x, double *lo, double *hi)
{
    double sample[2048];
    size_t stride = s->count / BY_COUNT(sample) + 1;
    int n = 0;
    for (cursor k = cursor_make(s, log_x); cursor_next(&k);)
        if (!isnan(k.raw) && k.i % stride == 0 && n < BY_COUNT(sample))
            sample[n++] = k.raw;
    if (n == 0)
        return;
    qsort(sample, (size_t)n, sizeof *sample, compare_doubles);
    int cut = n < 200 ? 0 : n / 100;
    *lo = fmin(*lo, sample[cut]);
    *hi = fmax(*hi, sample[n - 1 - cut]);
}

/* Ranges that hold everything worth seeing; [0, 1] (or [1, 10]) when there is nothing. False then. */
static bool find_ranges(const by_curve *c, axis *x, axis *y)
{
    *x = (axis){.lo = INFINITY, .hi = -INFINITY, .log = c->log_x};
    *y = (axis){.lo = INFINITY, .hi = -INFINITY};
    for (int i = 0; i < c->count; i++) {
        for (cursor k = cursor_make(&c->series[i], c->log_x); cursor_next(&k);) {
            if (isnan(k.y))
                continue;
            x->lo = fmin(x->lo, k.x);
            x->hi = fmax(x->hi, k.x);
            y->lo = fmin(y->lo, k.y);
            y->hi = fmax(y->hi, k.y);
        }
        if (c->series[i].smoothing != 0)
            widen_by_noise(&c->series[i], c->log_x, &y->lo, &y->hi);
    }
    bool any = x->lo <= x->hi;
    if (!any) {
        *x = (axis){.lo = c->log_x ? 1 : 0, .hi = c->log_x ? 10 : 1, .log = c->log_x};
        *y = (axis){.lo = 0, .hi = 1};
        return false;
    }
    if (x->log) {
        if (x->hi < x->lo * 1.001) {
            x->lo /= 2;
            x->hi *= 2;
        }
    } else {
        if (x->lo > 0 && x->lo < 0.05 * x->hi)
            x->lo = 0; /* a run that starts at step 1 or at the first log line */
        if (x->hi - x->lo <= 1e-9 * fabs(x->hi)) {
            double pad = fmax(fabs(x->hi) * 0.1, 1);
            x->lo -= pad;
            x->hi += pad;
        }
    }
    double low = y->lo, span = y->hi - y->lo;
    double pad =
        span <= 1e-9 * fabs(y->hi) ? (y->hi != 0 ? fmax(fabs(y->hi) * 0.1, 1 / HUGE_VALUE) : 1) : 0.05 * span;
    y->lo = low >= 0 && low < pad ? 0 : low - pad;
    y->hi += pad;
    return true;
}

/* Ticks at multiples of 1, 2 or 5 times a power of ten, about `want` of them. */
static void linear_ticks(axis *a, double want)
{
    double rough = (a->hi - a->lo) / fmax(want, 1), power = pow(10, floor(log10(rough)));
    double step = power * (rough < 1.5 * power ? 1 : rough < 3.5 * power ? 2 : rough < 7.5 * power ? 5 : 10);
    double first = ceil(a->lo / step - 1e-9);
    a->decimals = (int)fmax(0, -floor(log10(step * 1.0000001)));
    for (int i = 0; i < MAX_TICKS && (first + i) * step <= a->hi + 1e-9 * step; i++)
        a->tick[a->ticks++] = (first + i) * step + 0.0; /* + 0.0 turns -0 into 0 */
}

/* Powers of ten with 2 and 5 between them where there is room; a range inside one decade falls back to even
 * steps. */
static void log_ticks(axis *a, double want)
{
    double decades = log10(a->hi) - log10(a->lo);
    if (decades < 1) {
        linear_ticks(a, fmin(want, 5));
        return;
    }
    int skip = (int)ceil(decades / fmax(want, 2)), per_decade = 3 * decades <= want + 1 ? 3 : 1;
    for (int e = (int)floor(log10(a->lo)); e <= (int)ceil(log10(a->hi)); e += skip) {
        static const double mantissa[] = {1, 2, 5};
        for (int m = 0; m < per_decade && a->ticks < MAX_TICKS; m++) {
            double v = mantissa[m] * pow(10, e);
            if (v >= a->lo * (1 - 1e-9) && v <= a->hi * (1 + 1e-9))
                a->tick[a->ticks++] = v;
        }
    }
}

typedef struct label {
    char text[32];
} label;

/* Steps and tokens: 500, 20k, 1.5M. */
static label label_x(double v)
{
    static const struct {
        double unit;
        const char *suffix;
    } scales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    label l;
    int i = 0;
    while (i < BY_COUNT(scales) - 1 && fabs(v) < scales[i].unit * (1 - 1e-9))
        i++;
    snprintf(l.text, sizeof l.text, "%.6g%s", v / scales[i].unit, scales[i].suffix);
    return l;
}

static label label_y(const axis *a, double v)
{
    label l;
    double most = fmax(fabs(a->lo), fabs(a->hi));
    if (most >= 1e7 || most < 1e-4)
        snprintf(l.text, sizeof l.text, "%.3g", v);
    else
        snprintf(l.text, sizeof l.text, "%.*f", BY_MIN(a->decimals, 9), v);
    return l;
}

static label label_value(double v)
{
    label l;
    if (isnan(v))
        strcpy(l.text, "-");
    else
        snprintf(l.text, sizeof l.text, "%.4g", v);
    return l;
}

/* ---- lines, one pixel column at a time ------------------------------------------------------- */

typedef void pen_fn(void *to, double x, double y,
                    bool move); /* pixels, y downwards; move starts a new stroke */

typedef struct frame {
    axis x, y;
    double left, top, width, height; /* of the plot area, in pixels */
} frame;

typedef struct vertex {
    size_t order;
    double x, y;
} vertex;

/* Of the points in one pixel column only the first, lowest, highest and last can be told apart. */
typedef struct column {
    long at;
    bool used, joined; /* joined: a stroke leads here from the column before */
    vertex first, low, high, last;
} column;

static void column_draw(column *c, pen_fn *pen, void *to)
{
    if (!c->used)
        return;
    bool low_first = c->low.order < c->high.order;
    vertex v[4] = {c->first, low_first ? c->low : c->high, low_first ? c->high : c->low, c->last};
    for (int i = 0; i < 4; i++)
        if (i == 0 || v[i].order > v[i - 1].order)
            pen(to, v[i].x, v[i].y, i == 0 && !c->joined);
    c->used = false;
    c->joined = true;
}

static void draw_line(const frame *f, const by_curve_series *s, bool smooth, pen_fn *pen, void *to)
{
    column c = {0};
    for (cursor k = cursor_make(s, f->x.log); cursor_next(&k);) {
        double value = smooth ? k.y : k.raw;
        if (isnan(value)) {
            column_draw(&c, pen, to);
            c.joined = false;
            continue;
        }
        double unit_y = fmin(fmax(axis_unit(&f->y, value), -1), 2); /* far outside is as good as outside */
        vertex v = {k.i, f->left + f->width * axis_unit(&f->x, k.x), f->top + f->height * (1 - unit_y)};
        if (c.used && (long)floor(v.x) != c.at)
            column_draw(&c, pen, to);
        if (!c.used) {
            c.at = (long)floor(v.x);
            c.used = true;
            c.first = c.low = c.high = v;
        }
        if (v.y > c.low.y)
            c.low = v;
        if (v.y < c.high.y)
            c.high = v;
        c.last = v;
    }
    column_draw(&c, pen, to);
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* One colour per series, on a light and on a dark ground. */
static const char *const COLOURS[][2] = {{"#2866d8", "#79aeff"}, {"#e0602b", "#ff9c66"},
                                         {"#0c8f6e", "#45d3a8"}, {"#9a3fb5", "#d992ec"},
                                         {"#b98209", "#f2c65b"}, {"#55657c", "#a7b5ca"}};

static void put_xml(by_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '&')
            by_buf_puts(b, "&amp;");
        else if (*s == '<')
            by_buf_puts(b, "&lt;");
        else if (*s == '>')
            by_buf_puts(b, "&gt;");
        else if ((unsigned char)*s >= 0x20)
            by_buf_put(b, s, 1);
    }
}

static int char_count(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_style(by_buf *b)
{
    by_buf_puts(
        b, "<style>\n"
           "text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif }\n"
           ".title { font-size: 18px; font-weight: 600 }\n"
           ".value { font-weight: 600 }\n"
           ".back { fill: #ffffff }\n"
           ".grid { stroke: #e9ecf1 }\n"
           ".axis { stroke: #b4bcc9 }\n"
           ".title, .value { fill: #18202c }\n"
           ".name { fill: #3d4859 }\n"
           ".tick, .label { fill: #6b7688 }\n");
    for (int i = 0; i < BY_COUNT(COLOURS); i++)
        by_buf_printf(b, ".s%d { color: %s }\n", i, COLOURS[i][0]);
    by_buf_puts(b, "@media (prefers-color-scheme: dark) {\n"
                   ".back { fill: #12161d }\n"
                   ".grid { stroke: #232a35 }\n"
                   ".axis { stroke: #4a5566 }\n"
                   ".title, .value { fill: #eef2f8 }\n"
                   ".name { fill: #c3ccd9 }\n"
                   ".tick, .label { fill: #8b97a9 }\n");
    for (int i = 0; i < BY_COUNT(COLOURS); i++)
        by_buf_printf(b, ".s%d { color: %s }\n", i, COLOURS[i][1]);
    by_buf_puts(b, "}\n</style>\n");
}

static void put_axes(by_buf *b, const by_curve *c, const frame *f)
{
    double bottom = f->top + f->height, right = f->left + f->width;
    by_buf_puts(b, "<g class=\"grid\">\n");
    for (int i = 0; i < f->y.ticks; i++) {
        double y = floor(f->top + f->height * (1 - axis_unit(&f->y, f->y.tick[i]))) + 0.5;
        by_buf_printf(b, "<path d=\"M%.1f %.1fH%.1f\"/>\n", f->left, y, right);
    }
    by_buf_puts(b, "</g>\n<g text-anchor=\"end\">\n");
    for (int i = 0; i < f->y.ticks; i++)
        by_buf_printf(b, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", f->left - 10,
                      f->top + f->height * (1 - axis_unit(&f->y, f->y.tick[i])) + 4.5,
                      label_y(&f->y, f->y.tick[i]).text);
    by_buf_puts(b, "</g>\n<g text-anchor=\"middle\">\n");
    for (int i = 0; i < f->x.ticks; i++) {
        double x = f->left + f->width * axis_unit(&f->x, f->x.tick[i]);
        by_buf_printf(b, "<path class=\"axis\" d=\"M%.1f %.1fv5\"/>", floor(x) + 0.5, bottom);
        by_buf_printf(b, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, bottom + 21,
                      label_x(f->x.tick[i]).text);
    }
    by_buf_printf(b, "</g>\n<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n", f->left, floor(bottom) + 0.5,
                  right);
    if (c->x_label) {
        by_buf_printf(b, "<text class=\"label\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                      f->left + f->width / 2, bottom + 44);
        put_xml(b, c->x_label);
        by_buf_puts(b, "</text>\n");
    }
    if (c->y_label) {
        by_buf_printf(
            b, "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(20 %.1f) rotate(-90)\">",
            f->top + f->height / 2);
        put_xml(b, c->y_label);
        by_buf_puts(b, "</text>\n");
    }
}

/* Swatch, name and last value of every series, wrapped to the width; returns the height taken. b may be NULL
 * to measure. */
static double put_legend(by_buf *b, const by_curve *c, double left, double top, double right)
{
    double x = left, y = top;
    for (int i = 0; i < c->count; i++) {
        const by_curve_series *s = &c->series[i];
        label value = label_value(cursor_last(s, c->log_x).y);
        double name_width = 7.0 * char_count(s->name ? s->name : ""), width = 28 + name_width + 62;
        if (x > left && x + width > right) {
            x = left;
            y += 22;
        }
        if (b) {
            by_buf_printf(
                b, "<g class=\"s%d\"><path d=\"M%.1f %.1fh18\" stroke=\"currentColor\" stroke-width=\"%s\"/>",
                i % BY_COUNT(COLOURS), x, y - 4.5, s->style == BY_CURVE_POINTS ? "1.5" : "3");
            if (s->style == BY_CURVE_POINTS)
                by_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"currentColor\"/>", x + 9,
                              y - 4.5);
            by_buf_printf(b, "</g><text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">", x + 26, y);
            put_xml(b, s->name ? s->name : "");
            by_buf_printf(b, "</tspan><tspan class=\"value\" dx=\"7\">%s</tspan></text>\n", value.text);
        }
        x += width;
    }
    return c->count > 0 ? y - top + 16 : 0;
}

static void svg_pen(void *to, double x, double y, bool move)
{
    by_buf_printf(to, move ? "M%.1f %.1fh0" : "L%.1f %.1f", x, y); /* h0: a lone point shows as a round dot */
}

/* Marks at least 9 pixels apart, the last one always. */
static void put_marks(by_buf *b, const frame *f, const by_curve_series *s)
{
    double drawn = -INFINITY, x = NAN, y = NAN;
    for (cursor k = cursor_make(s, f->x.log); cursor_next(&k);) {
        if (isnan(k.y))
            continue;
        x = f->left + f->width * axis_unit(&f->x, k.x);
        y = f->top + f->height * (1 - axis_unit(&f->y, k.y));
        if (x - drawn < 9)
            continue;
        drawn = x;
        by_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    }
    if (x > drawn)
        by_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
}

/* Where a line stands now. */
static void put_end(by_buf *b, const frame *f, const by_curve_series *s)
{
    cursor k = cursor_last(s, f->x.log);
    if (!isnan(k.y))
        by_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                      f->left + f->width * axis_unit(&f->x, k.x),
                      f->top + f->height * (1 - axis_unit(&f->y, k.y)));
}

static void put_path(by_buf *b, const frame *f, const by_curve *c, int i, bool smooth, const char *stroke)
{
    by_buf_printf(b, "<path class=\"s%d\" stroke=\"currentColor\" %s d=\"", i % BY_COUNT(COLOURS), stroke);
    draw_line(f, &c->series[i], smooth, svg_pen, b);
    by_buf_puts(b, "\"/>\n");
}

/* Faint values first, then lines, then marks, so that nothing important is covered. */
static void put_series(by_buf *b, const by_curve *c, const frame *f)
{
    by_buf_puts(
        b, "<g clip-path=\"url(#plot)\" fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\">\n");
    for (int i = 0; i < c->count; i++)
        if (c->series[i].style == BY_CURVE_LINE && c->series[i].smoothing != 0)
            put_path(b, f, c, i, false, "stroke-opacity=\".28\"");
    for (int i = 0; i < c->count; i++)
        put_path(b, f, c, i, true,
                 c->series[i].style == BY_CURVE_LINE ? "stroke-width=\"2.2\""
                                                     : "stroke-width=\"1.5\" stroke-opacity=\".6\"");
    by_buf_puts(b, "</g>\n");
    for (int i = 0; i < c->count; i++) {
        by_buf_printf(b, "<g class=\"s%d\" fill=\"currentColor\">", i % BY_COUNT(COLOURS));
        if (c->series[i].style == BY_CURVE_POINTS)
            put_marks(b, f, &c->series[i]);
        else
            put_end(b, f, &c->series[i]);
        by_buf_puts(b, "</g>\n");
    }
}

by_status by_curve_svg(const char *path, const by_curve *c)
{
    int width = c->width > 0 ? BY_MIN(BY_MAX(c->width, 240), 10000) : 960,
        height = c->height > 0 ? BY_MIN(BY_MAX(c->height, 200), 10000) : 540;
    frame f = {.left = c->y_label ? 84 : 64, .top = c->title ? 62 : 34};
    f.width = width - f.left - 30;
    double legend = f.top - 4;
    f.top += put_legend(NULL, c, f.left, legend, width - 30);
    f.height = fmax(height - f.top - (c->x_label ? 64 : 40), 40);
    bool any = find_ranges(c, &f.x, &f.y);
    linear_ticks(&f.y, f.height / 70);
    (c->log_x ? log_ticks : linear_ticks)(&f.x, f.width / 120);

    by_buf b = {0};
    by_buf_printf(
        &b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "role=\"img\">\n",
        width, height, width, height);
    if (c->title) {
        by_buf_puts(&b, "<title>");
        put_xml(&b, c->title);
        by_buf_puts(&b, "</title>\n");
    }
    put_style(&b);
    by_buf_printf(&b, "<rect class=\"back\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", width, height);
    by_buf_printf(
        &b, "<clipPath id=\"plot\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n",
        f.left - 2, f.top, f.width + 4, f.height);
    if (c->title) {
        by_buf_printf(&b, "<text class=\"title\" x=\"%.1f\" y=\"36\">", f.left);
        put_xml(&b, c->title);
        by_buf_puts(&b, "</text>\n");
    }
    put_legend(&b, c, f.left, legend, width - 30);
    put_axes(&b, c, &f);
    if (any)
        put_series(&b, c, &f);
    else
        by_buf_printf(
            &b, "<text class=\"label\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">no data yet</text>\n",
            f.left + f.width / 2, f.top + f.height / 2);
    by_buf_puts(&b, "</svg>\n");
    by_status status =
        b.failed ? by_fail(BY_ERR_MEMORY, "%s: out of memory", path) : by_file_write(path, b.data, b.size);
    by_buf_free(&b);
    return status;
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static const char *const MARKS[2][4] = {{"o", "O", "@", "%"}, {"●", "○", "◆", "◇"}};
static const char LINES[] = "*+x#";

typedef struct canvas {
    int columns, rows, dots_x, dots_y; /* size in characters; dots per character */
    uint8_t *dots;                     /* per character: braille bits, or in ASCII 1 + index into LINES */
    uint8_t *marks;                    /* per character: 0 or 1 + index into MARKS */
    int rank;                          /* of the series being drawn, among its style */
    double x, y;                       /* where the pen is, in dots */
} canvas;

static void canvas_dot(canvas *t, int x, int y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= t->columns * t->dots_x || y >= t->rows * t->dots_y)
        return;
    uint8_t *cell = &t->dots[(y / t->dots_y) * t->columns + x / t->dots_x];
    if (t->dots_x == 1)
        *cell = (uint8_t)(1 + t->rank % (BY_COUNT(LINES) - 1));
    else
        *cell |= bits[y % 4][x % 2];
}

static void text_pen(void *to, double x, double y, bool move)
{
    canvas *t = to;
    double from_x = move ? x : t->x, from_y = move ? y : t->y;
    int steps = (int)ceil(fmax(fabs(x - from_x), fabs(y - from_y)));
    for (int i = 0; i <= steps; i++) {
        double u = steps ? (double)i / steps : 1;
        canvas_dot(t, (int)lround(from_x + u * (x - from_x)), (int)lround(from_y + u * (y - from_y)));
    }
    t->x = x;
    t->y = y;
}

static void canvas_draw(canvas *t, const by_curve *c, const frame *f)
{
    for (int i = 0; i < c->count; i++) {
        const by_curve_series *s = &c->series[i];
        t->rank = style_rank(c, i);
        if (s->style == BY_CURVE_LINE) {
            draw_line(f, s, true, text_pen, t);
            continue;
        }
        for (cursor k = cursor_make(s, f->x.log); cursor_next(&k);) {
            if (isnan(k.y))
                continue;
            int x = (int)lround(f->width * axis_unit(&f->x, k.x)) / t->dots_x;
            int y = (int)lround(f->height * (1 - axis_unit(&f->y, k.y))) / t->dots_y;
            t->marks[y * t->columns + x] = (uint8_t)(1 + t->rank % 4);
        }
    }
}

/* At most n characters of s. */
static void put_cut(by_buf *b, const char *s, int n)
{
    const char *end = s;
    for (; *end && (n > 0 || ((unsigned char)*end & 0xc0) == 0x80); end++)
        n -= ((unsigned char)end[1] & 0xc0) != 0x80;
    by_buf_put(b, s, (size_t)(end - s));
}

static void put_cell(by_buf *b, const canvas *t, int cell, bool unicode)
{
    uint8_t dots = t->dots[cell], mark = t->marks[cell];
    if (mark)
        by_buf_puts(b, MARKS[unicode][mark - 1]);
    else if (!dots)
        by_buf_puts(b, " ");
    else if (unicode)
        by_buf_put(b, (char[]){(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 63))}, 3);
    else
        by_buf_put(b, &LINES[dots - 1], 1);
}

/* The row of the character grid that a y tick belongs to, and the column of an x tick. */
static int tick_row(const canvas *t, const frame *f, double v)
{
    return (int)lround(f->height * (1 - axis_unit(&f->y, v))) / t->dots_y;
}

static int tick_column(const canvas *t, const frame *f, double v)
{
    return (int)lround(f->width * axis_unit(&f->x, v)) / t->dots_x;
}

static void put_rows(by_buf *b, const canvas *t, const frame *f, int gutter, bool unicode)
{
    for (int r = 0; r < t->rows; r++) {
        label l = {""};
        for (int i = 0; i < f->y.ticks; i++)
            if (tick_row(t, f, f->y.tick[i]) == r)
                l = label_y(&f->y, f->y.tick[i]);
        by_buf_printf(b, "%*s %s", gutter, l.text, unicode ? (*l.text ? "┤" : "│") : (*l.text ? "+" : "|"));
        int used = t->columns;
        while (used > 0 && !t->dots[r * t->columns + used - 1] && !t->marks[r * t->columns + used - 1])
            used--;
        for (int i = 0; i < used; i++)
            put_cell(b, t, r * t->columns + i, unicode);
        by_buf_puts(b, "\n");
    }
}

static void put_x_axis(by_buf *b, const canvas *t, const frame *f, int gutter, bool unicode)
{
    by_buf_printf(b, "%*s %s", gutter, "", unicode ? "└" : "+");
    for (int i = 0, next = 0; i < t->columns; i++) {
        bool tick = next < f->x.ticks && tick_column(t, f, f->x.tick[next]) == i;
        next += tick;
        by_buf_puts(b, unicode ? (tick ? "┬" : "─") : (tick ? "+" : "-"));
    }
    by_buf_puts(b, "\n");
    int at = 0, end = gutter + 2 + t->columns;
    for (int i = 0; i < f->x.ticks; i++) {
        label l = label_x(f->x.tick[i]);
        int n = (int)strlen(l.text), start = gutter + 2 + tick_column(t, f, f->x.tick[i]) - n / 2;
        start = BY_MIN(start, end - n);
        if (start < at + (at > 0))
            continue;
        by_buf_printf(b, "%*s%s", start - at, "", l.text);
        at = start + n;
    }
    by_buf_puts(b, "\n");
}

static void put_text_legend(by_buf *b, const by_curve *c, int gutter, int width, bool unicode)
{
    by_buf line = {0};
    for (int i = 0; i < c->count; i++) {
        const by_curve_series *s = &c->series[i];
        int rank = style_rank(c, i);
        char ascii[2] = {LINES[rank % (BY_COUNT(LINES) - 1)], '\0'};
        const char *sign = s->style == BY_CURVE_POINTS ? MARKS[unicode][rank % 4] : unicode ? "⠤⠒" : ascii;
        by_buf_printf(&line, "%s%s %s %s", i ? "   " : "", sign, s->name ? s->name : "",
                      label_value(cursor_last(s, c->log_x).y).text);
    }
    if (c->x_label)
        by_buf_printf(&line, "%sx: %s%s", c->count ? "   " : "", c->x_label, c->log_x ? " (log)" : "");
    by_buf_printf(b, "%*s  ", gutter, "");
    put_cut(b, line.data ? line.data : "", width - gutter - 2);
    by_buf_puts(b, "\n");
    b->failed |= line.failed;
    by_buf_free(&line);
}

char *by_curve_text(const by_curve *c, int width, int height, bool unicode)
{
    width = BY_MIN(BY_MAX(width, 24), 1000);
    height = BY_MIN(BY_MAX(height, 8), 1000);
    canvas t = {
        .rows = height - 3 - (c->title != NULL), .dots_x = unicode ? 2 : 1, .dots_y = unicode ? 4 : 1};
    frame f = {0};
    bool any = find_ranges(c, &f.x, &f.y);
    linear_ticks(&f.y, t.rows / 3.0);
    int gutter = 0;
    for (int i = 0; i < f.y.ticks; i++)
        gutter = BY_MAX(gutter, (int)strlen(label_y(&f.y, f.y.tick[i]).text));
    t.columns = BY_MAX(width - gutter - 2, 4);
    (c->log_x ? log_ticks : linear_ticks)(&f.x, t.columns / 10.0);
    f.width = t.columns * t.dots_x - 1;
    f.height = t.rows * t.dots_y - 1;
    t.dots = by_alloc_zero((size_t)t.columns, (size_t)t.rows);
    t.marks = by_alloc_zero((size_t)t.columns, (size_t)t.rows);
    by_buf b = {0};
    if (t.dots && t.marks) {
        if (any)
            canvas_draw(&t, c, &f);
        if (c->title) {
            by_buf_printf(&b, "%*s  ", gutter, "");
            put_cut(&b, c->title, width - gutter - 2);
            by_buf_puts(&b, "\n");
        }
        put_rows(&b, &t, &f, gutter, unicode);
        put_x_axis(&b, &t, &f, gutter, unicode);
        put_text_legend(&b, c, gutter, width, unicode);
        if (b.failed)
            by_buf_free(&b);
    }
    by_free(t.dots);
    by_free(t.marks);
    return b.data;
}
