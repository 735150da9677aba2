/* curve.c - see curve.h. The picture and the terminal share axes and lines; each has its own pen. */
#include "report/curve.h"

#include <math.h>

#include "base/file.h"
#include "report/page.h"

#define MOST 1e300 /* beyond it, ranges would overflow */

/* ---- points ---------------------------------------------------------------------------------- */

/* Iterates over the drawable points of a series. Initialise as {.s = series}. */
typedef struct walk {
    const report_curve_series *s;
    bool logarithmic; /* the points are log2 of the values */
    size_t next, seen;
    double x, raw, y; /* the current point; y is the moving average */
} walk;

static bool walk_next(walk *w)
{
    for (const report_curve_series *s = w->s; w->next < s->count;) {
        const double x = w->logarithmic ? log2(s->x[w->next]) : s->x[w->next];
        const double y = w->logarithmic ? log2(s->y[w->next]) : s->y[w->next];
        w->next++;
        if (!(fabs(x) < MOST && fabs(y) < MOST))
            continue;
        /* The average covers few points at first, so that the steep start of a run is not blurred. */
        const double reach = s->exact ? 1 : 1 + fmin((double)s->count / 50, (double)w->seen / 20);
        w->x = x;
        w->raw = y;
        w->y += (y - w->y) / reach;
        w->seen++;
        return true;
    }
    return false;
}

/* ---- axes ------------------------------------------------------------------------------------ */

typedef struct axis {
    double lo, hi;
    double first, step; /* ticks are at (first + i) * step */
    int ticks;
} axis;

/* The position of a panel, in pixels or dots, y downwards. */
typedef struct frame {
    axis x, y;
    bool logarithmic;
    double left, top, width, height;
} frame;

static double tick_at(const axis *a, int i)
{
    return (a->first + i) * a->step + 0.0; /* + 0.0 turns -0 into 0 */
}

typedef struct label {
    char text[32];
} label;

/* 0.25, 500, 20k, 1.5M */
static label label_of(double v, int digits)
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T"};
    label l = {0};
    int i = 0;
    for (; i < BY_COUNT(suffixes) - 1 && fabs(v) >= 1000 * (1 - 1e-9); i++)
        v /= 1000;
    base_format(l.text, sizeof l.text, "%.*g%s", digits, v, suffixes[i]);
    return l;
}

/* 2^v: 0.25, 512, 1k for 1024 */
static label label_power(double v)
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T"};
    label l = {0};
    int i = 0;
    for (; i < BY_COUNT(suffixes) - 1 && v >= 10 - 1e-9; i++)
        v -= 10;
    base_format(l.text, sizeof l.text, "%.3g%s", exp2(v), suffixes[i]);
    return l;
}

static label label_tick(const frame *f, const axis *a, int i)
{
    return f->logarithmic ? label_power(tick_at(a, i)) : label_of(tick_at(a, i), 6);
}

static label label_last(const frame *f, const report_curve_series *s)
{
    walk w = {.s = s, .logarithmic = f->logarithmic};
    while (walk_next(&w))
        ;
    return w.seen ? label_of(f->logarithmic ? exp2(w.y) : w.y, f->logarithmic ? 3 : 4) : (label){"-"};
}

static void widen(axis *a, double lo, double hi)
{
    a->lo = fmin(a->lo, lo);
    a->hi = fmax(a->hi, hi);
}

static void fit_series(bool logarithmic, axis *x, axis *y, const report_curve_series *s)
{
    axis line = {.lo = INFINITY, .hi = -INFINITY}, raw = line;
    double noise = 0, count = 0;
    for (walk w = {.s = s, .logarithmic = logarithmic}; walk_next(&w); count++) {
        widen(x, w.x, w.x);
        widen(&line, w.y, w.y);
        widen(&raw, w.raw, w.raw);
        noise += fabs(w.raw - w.y);
    }
    noise *= 3 / fmax(count, 1); /* three times its mean: one spike does not flatten the picture */
    widen(y, fmax(raw.lo, line.lo - noise), fmin(raw.hi, line.hi + noise));
    widen(y, line.lo, line.hi);
}

/* Leaves a fraction of the range free on both sides, and places about `want` ticks at multiples of 1, 2 or 5
 * times a power of ten. A range that almost begins at 0 begins there. */
static void finish(axis *a, bool logarithmic, double share, double want)
{
    if (a->lo > a->hi)
        *a = (axis){.lo = 0, .hi = 1};
    const double span = a->hi - a->lo;
    const double room = span > 1e-9 * fabs(a->hi) ? share * span
                        : a->hi != 0              ? fmax(fabs(a->hi) * 0.1, 1 / MOST)
                                                  : 1;
    a->lo = !logarithmic && a->lo >= 0 && a->lo <= 0.05 * a->hi ? 0 : a->lo - room;
    a->hi += room;
    const double rough = (a->hi - a->lo) / fmax(want, 1), power = pow(10, floor(log10(rough)));
    a->step = power * (rough < 1.5 * power ? 1 : rough < 3.5 * power ? 2 : rough < 7.5 * power ? 5 : 10);
    if (logarithmic)
        a->step = fmax(ceil(rough - 1e-9), 1);
    a->first = ceil(a->lo / a->step - 1e-9);
    a->ticks = 1 + (int)(floor(a->hi / a->step + 1e-9) - a->first);
}

/* Sets the axes of a panel. Returns false if there is nothing to draw. */
static bool fit(frame *f, const report_curve *c, int panel, double want_x, double want_y)
{
    const axis none = {.lo = INFINITY, .hi = -INFINITY};
    f->x = f->y = none;
    f->logarithmic = c->logarithmic;
    for (int p = 0; p < c->count; p++)
        for (int i = 0; i < c->panels[p].count; i++)
            fit_series(c->logarithmic, &f->x, p == panel ? &f->y : &(axis){0}, &c->panels[p].series[i]);
    const bool any = f->y.lo <= f->y.hi;
    finish(&f->x, c->logarithmic, 0, want_x);
    finish(&f->y, c->logarithmic, 0.05, want_y);
    return any;
}

static double place_x(const frame *f, double x)
{
    return f->left + f->width * (x - f->x.lo) / (f->x.hi - f->x.lo);
}

static double place_y(const frame *f, double y) /* values outside the range are drawn at the edge */
{
    return f->top + f->height * (1 - fmin(fmax((y - f->y.lo) / (f->y.hi - f->y.lo), 0), 1));
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef void pen_fn(void *to, double x, double y, bool move); /* move: start a new line */

/* A column of pixels gets at most four points: its first, lowest, highest and last. */
static void draw(const frame *f, const report_curve_series *s, bool raw, bool dots, pen_fn *pen, void *to)
{
    double x = NAN, y[4] = {0};
    bool more = true, move = true;
    for (walk w = {.s = s, .logarithmic = f->logarithmic}; more;) {
        more = walk_next(&w);
        const double px = place_x(f, w.x), py = place_y(f, raw ? w.raw : w.y);
        if (more && floor(px) == floor(x)) {
            y[1] = fmax(y[1], py);
            y[2] = fmin(y[2], py);
            y[3] = py;
            continue;
        }
        for (int i = 0; !isnan(x) && i < (y[1] > y[2] ? 4 : 1); i++, move = dots)
            pen(to, x, y[i], move);
        x = px;
        y[0] = y[1] = y[2] = y[3] = py;
    }
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* In pixels. */
enum { WIDTH = 960, LEFT = 84, RIGHT = 930, TOP = 78, LARGE = 398, SMALL = 180, GAP = 60, BOTTOM = 64 };
enum { COLOURS = 8, LINE = 20 }; /* LINE: height of a line of names */

static const char STYLE[] =
    "<style>\n"
    "text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif }\n"
    ".title { font-size: 18px } .title, .value { font-weight: 600; fill: #18202c } .name { fill: #3d4859 }\n"
    ".tick, .label { fill: #6b7688; text-anchor: middle } .left { text-anchor: end }\n"
    ".back { fill: #ffffff } .grid { stroke: #e9ecf1 } .axis { stroke: #b4bcc9 }\n"
    "g { fill: none; stroke: currentColor; stroke-linejoin: round; stroke-linecap: round }\n"
    "text { stroke: none }\n"
    ".s0 { color: #2866d8 } .s1 { color: #e0602b } .s2 { color: #0c8f6e } .s3 { color: #9a3fb5 }\n"
    ".s4 { color: #b8860b } .s5 { color: #c2305a } .s6 { color: #5a7d1e } .s7 { color: #6b7688 }\n"
    ".faint { stroke-opacity: .28 } .line { stroke-width: 2.2px } .dots { stroke-width: 8px }\n"
    ".thin { stroke-opacity: .6; stroke-width: 1.5px }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ".title, .value { fill: #eef2f8 } .name { fill: #c3ccd9 } .tick, .label { fill: #8b97a9 }\n"
    ".back { fill: #12161d } .grid { stroke: #232a35 } .axis { stroke: #4a5566 }\n"
    ".s0 { color: #79aeff } .s1 { color: #ff9c66 } .s2 { color: #45d3a8 } .s3 { color: #d992ec }\n"
    ".s4 { color: #e8c15a } .s5 { color: #ff86a8 } .s6 { color: #a9d36a } .s7 { color: #a8b3c4 }\n"
    "}\n</style>\n";

static void put_text(base_buf *b, const char *class, double x, double y, const char *text)
{
    /* In the margin. */
    base_buf_printf(b, "<text class=\"%s\" transform=\"translate(%.1f %.1f)%s\">", class, x, y,
                    x < 24 ? " rotate(-90)" : "");
    report_put_xml(b, text ? text : "", 0);
    base_buf_puts(b, "</text>\n");
}

static void svg_pen(void *to, double x, double y, bool move)
{
    /* h0: a dot, because the line ends are round. */
    base_buf_printf(to, move ? "M%.1f %.1fh0" : "L%.1f %.1f", x, y);
}

static void put_line(base_buf *b, const frame *f, const report_curve_series *s, const char *class, bool raw,
                     bool dots)
{
    base_buf_printf(b, "<path class=\"%s\" d=\"", class);
    draw(f, s, raw, dots, svg_pen, b);
    base_buf_puts(b, "\"/>\n");
}

/* The width that the name and last value of a series take. */
static double name_width(const report_curve_series *s)
{
    return 90 + report_text_width(13, (int)strlen(s->name));
}

/* Lines of names above a panel. */
static int name_lines(const report_curve_panel *p)
{
    double x = LEFT;
    int lines = 1;
    for (int i = 0; i < p->count && p->series[i].name; i++) {
        const double width = name_width(&p->series[i]);
        lines += x > LEFT && x + width > WIDTH;
        x = x > LEFT && x + width > WIDTH ? LEFT + width : x + width;
    }
    return lines;
}

/* The name and last value of a series next to a sample at (x, y). */
static void put_name(base_buf *b, const frame *f, const report_curve_series *s, double x, double y)
{
    base_buf_printf(b, "<path class=\"%s\" d=\"M%.1f %.1fh18\"/>", s->exact ? "thin" : "line", x, y - 4.5);
    if (s->exact)
        base_buf_printf(b, "<path class=\"dots\" d=\"M%.1f %.1fh0\"/>", x + 9, y - 4.5);
    base_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">", x + 26, y);
    report_put_xml(b, s->name, 0);
    base_buf_printf(b, "</tspan><tspan class=\"value\" dx=\"7\">%s</tspan></text>\n", label_last(f, s).text);
}

/* Draws a series, then its name at (*x, *y), which is advanced. */
static void put_series(base_buf *b, const frame *f, const report_curve_series *s, int colour, double *x,
                       double *y)
{
    base_buf_printf(b, "<g class=\"s%d\">\n", colour % COLOURS);
    put_line(b, f, s, s->exact ? "thin" : "faint", true, false);
    put_line(b, f, s, s->exact ? "dots" : "line", false, s->exact);
    if (s->name) {
        if (*x > LEFT && *x + name_width(s) > WIDTH) {
            *x = LEFT;
            *y += LINE;
        }
        put_name(b, f, s, *x, *y);
        *x += name_width(s);
    }
    base_buf_puts(b, "</g>\n");
}

static void put_panel(base_buf *b, const frame *f, const report_curve_panel *p, int colour)
{
    const double bottom = f->top + f->height;
    for (int i = 0; i < f->y.ticks; i++) {
        const double y = place_y(f, tick_at(&f->y, i));
        base_buf_printf(b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, floor(y) + 0.5, RIGHT);
        put_text(b, "tick left", LEFT - 10, y + 4.5, label_tick(f, &f->y, i).text);
    }
    base_buf_printf(b, "<path class=\"axis\" d=\"M%d %.1fH%d", LEFT, bottom + 0.5, RIGHT);
    for (int i = 0; i < f->x.ticks; i++)
        base_buf_printf(b, "M%.1f %.1fv5", floor(place_x(f, tick_at(&f->x, i))) + 0.5, bottom);
    base_buf_puts(b, "\"/>\n");
    put_text(b, "label", 20, f->top + f->height / 2, p->y_label);
    double x = LEFT, y = f->top - 20 - LINE * (name_lines(p) - 1);
    for (int i = 0; i < p->count; i++)
        put_series(b, f, &p->series[i], p->series[i].name ? colour + i : i, &x, &y);
}

by_status report_curve_svg(const char *path, const report_curve *c)
{
    const int top = TOP + LINE * (name_lines(&c->panels[0]) - 1);
    const int height = top + LARGE + (c->count - 1) * (GAP + SMALL) + BOTTOM;
    frame f = {.left = LEFT, .top = top, .width = RIGHT - LEFT, .height = LARGE};
    base_buf b = {0};
    base_buf_printf(
        &b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "role=\"img\">\n<title>",
        WIDTH, height, WIDTH, height);
    report_put_xml(&b, c->title ? c->title : "", 0);
    base_buf_printf(&b, "</title>\n%s<rect class=\"back\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", STYLE,
                    WIDTH, height);
    put_text(&b, "title", LEFT, 36, c->title);
    for (int i = 0, colour = 0; i < c->count; colour += c->panels[i++].count) {
        f.top += i > 0 ? f.height + GAP : 0;
        f.height = i > 0 ? SMALL : LARGE;
        const bool any = fit(&f, c, i, f.width / 120, f.height / 70);
        put_panel(&b, &f, &c->panels[i], colour);
        if (!any)
            put_text(&b, "label", LEFT + f.width / 2, f.top + f.height / 2, "no data yet");
    }
    for (int i = 0; i < f.x.ticks; i++)
        put_text(&b, "tick", place_x(&f, tick_at(&f.x, i)), height - BOTTOM + 21,
                 label_tick(&f, &f.x, i).text);
    put_text(&b, "label", LEFT + f.width / 2, height - BOTTOM + 44, c->x_label);
    base_buf_puts(&b, "</svg>\n");
    by_status status = b.failed ? base_fail(BY_ERR_MEMORY, "%s: out of memory", path)
                                : base_file_write(path, b.data, b.size);
    base_buf_free(&b);
    return status;
}

/* ---- the terminal ---------------------------------------------------------------------------- */

enum { GUTTER = 7, TALL = 10, SHORT = 6 }; /* in characters */
enum { ACROSS = 2, DOWN = 4, MARK = 256 }; /* dots per character */

typedef struct canvas {
    int columns, rows;
    uint16_t *cells; /* (rows, columns): braille dots, and MARK */
    bool marks;      /* draw marks instead of dots */
    double x, y;     /* current position */
} canvas;

static void text_pen(void *to, double x, double y, bool move)
{
    static const uint8_t bits[DOWN][ACROSS] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    canvas *t = to;
    const double dx = move ? 0 : x - t->x, dy = move ? 0 : y - t->y;
    const int steps = (int)ceil(fmax(fabs(dx), fabs(dy)));
    for (int i = 0; i <= steps; i++) {
        const double back = steps ? 1 - (double)i / steps : 0;
        const long px = lround(x - back * dx), py = lround(y - back * dy);
        t->cells[py / DOWN * t->columns + px / ACROSS] |= t->marks ? MARK : bits[py % DOWN][px % ACROSS];
    }
    t->x = x;
    t->y = y;
}

static void put_cell(base_buf *b, unsigned cell)
{
    if (cell >= MARK)
        base_buf_puts(b, "●");
    else if (cell)
        base_buf_put(b, (char[]){(char)0xe2, (char)(0xa0 | cell >> 6), (char)(0x80 | (cell & 63))}, 3);
    else
        base_buf_puts(b, " ");
}

static void put_rows(base_buf *b, canvas *t, const frame *f, const report_curve_panel *p)
{
    base_buf_printf(b, "%*s  %s", GUTTER, "", p->y_label ? p->y_label : "");
    memset(t->cells, 0, sizeof *t->cells * (size_t)(t->rows * t->columns));
    for (int i = 0; i < p->count; i++) {
        const report_curve_series *s = &p->series[i];
        base_buf_printf(b, "   %s %s %s", s->exact ? "●" : "⠤⠒", s->name ? s->name : "",
                        label_last(f, s).text);
        t->marks = s->exact;
        draw(f, s, false, s->exact, text_pen, t);
    }
    for (int r = 0; r < t->rows; r++) {
        label l = {""};
        for (int i = 0; i < f->y.ticks; i++)
            if (lround(place_y(f, tick_at(&f->y, i))) / DOWN == r)
                l = label_tick(f, &f->y, i);
        base_buf_printf(b, "\n%*s %s", GUTTER, l.text, *l.text ? "┤" : "│");
        int used = t->columns;
        while (used > 0 && !t->cells[r * t->columns + used - 1])
            used--;
        for (int i = 0; i < used; i++)
            put_cell(b, t->cells[r * t->columns + i]);
    }
    base_buf_puts(b, "\n");
}

static void put_steps(base_buf *b, const frame *f, int columns, const char *name)
{
    base_buf labels = {0};
    base_buf_printf(b, "%*s └", GUTTER, "");
    for (int i = 0, next = 0; i < columns; i++) {
        const bool tick = next < f->x.ticks && lround(place_x(f, tick_at(&f->x, next))) / ACROSS == i;
        base_buf_puts(b, tick ? "┬" : "─");
        if (!tick)
            continue;
        const label l = label_tick(f, &f->x, next++);
        const int n = (int)strlen(l.text), at = BY_MIN(i - n / 2, columns - n) + GUTTER + 2;
        base_buf_printf(&labels, "%*s%s", BY_MAX(at - (int)labels.size, labels.size > 0), "", l.text);
    }
    base_buf_printf(b, "\n%s\n%*s\n", labels.data ? labels.data : "",
                    GUTTER + 2 + (columns + (int)strlen(name)) / 2, name);
    b->failed |= labels.failed;
    base_buf_free(&labels);
}

char *report_curve_text(const report_curve *c, int width)
{
    canvas t = {.columns = BY_MIN(BY_MAX(width, 24), 1000) - GUTTER - 2};
    frame f = {.width = t.columns * ACROSS - 1};
    base_buf b = {0};
    t.cells = base_alloc_zero((size_t)t.columns * TALL, sizeof *t.cells);
    if (!t.cells)
        return NULL;
    for (int i = 0; i < c->count; i++) {
        t.rows = i > 0 ? SHORT : TALL;
        f.height = t.rows * DOWN - 1;
        fit(&f, c, i, t.columns / 10.0, t.rows / 3.0);
        put_rows(&b, &t, &f, &c->panels[i]);
    }
    put_steps(&b, &f, t.columns, c->x_label ? c->x_label : "");
    base_free(t.cells);
    if (b.failed)
        base_buf_free(&b);
    return b.data;
}
