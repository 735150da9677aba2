/* page.c - see page.h. */
#include "report/page.h"

#include <math.h>
#include <strings.h>

#include "report/png.h"

enum { MOST_PIXELS = 1 << 26, SHARP_PIXELS = 1 << 24, MOST_SIDE = 32000 };

by_status report_picture_of(const char *path, report_picture *out)
{
    const char *dot = strrchr(path, '.');
    if (dot && strcasecmp(dot, ".png") == 0)
        *out = REPORT_PICTURE_PNG;
    else if (dot && strcasecmp(dot, ".svg") == 0)
        *out = REPORT_PICTURE_SVG;
    else
        return base_fail(BY_ERR_ARGUMENT, "%s: the name of a picture must end in .svg or .png", path);
    return BY_OK;
}

/* ---- colours --------------------------------------------------------------------------------- */

int report_level_of(double weight)
{
    return weight > 0 ? (int)lround(sqrt(fmin(weight, 1)) * (REPORT_LEVELS - 1)) : 0;
}

double report_level_weight(int level)
{
    const double depth = (double)level / (REPORT_LEVELS - 1);
    return depth * depth;
}

static void colour_of(int colour, uint8_t rgb[3])
{
    static const uint8_t dark[3] = {8, 48, 107},
                         others[][3] = {{24, 32, 44}, {107, 118, 136}, {180, 188, 201}};
    for (int i = 0; i < 3; i++)
        rgb[i] = colour >= REPORT_LEVELS
                     ? others[colour - REPORT_LEVELS][i]
                     : (uint8_t)lround(255 - (255 - dark[i]) * (double)colour / (REPORT_LEVELS - 1));
}

static void put_colour(base_buf *out, int colour)
{
    uint8_t c[3];
    colour_of(colour, c);
    base_buf_printf(out, " fill=\"#%02x%02x%02x\"", c[0], c[1], c[2]);
}

/* ---- pages ----------------------------------------------------------------------------------- */

by_status report_page_open(report_page *p, report_picture kind, int width, int height)
{
    *p = (report_page){.kind = kind, .width = width, .height = height, .scale = 1};
    const int64_t area = (int64_t)width * height;
    if (width > MOST_SIDE || height > MOST_SIDE || area > MOST_PIXELS)
        return base_fail(BY_ERR_ARGUMENT, "a picture of %d x %d pixels is too large", width, height);
    if (kind == REPORT_PICTURE_SVG) {
        base_buf_printf(
            &p->svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\">\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
            "<g shape-rendering=\"crispEdges\">\n",
            width, height, width, height, width, height);
        return BY_OK;
    }
    p->scale = 4 * area <= SHARP_PIXELS ? 2 : 1;
    p->pixels = base_alloc_zero((size_t)area, (size_t)(p->scale * p->scale));
    return p->pixels ? BY_OK : BY_ERR_MEMORY;
}

by_status report_page_close(report_page *p, base_buf *out)
{
    if (p->kind == REPORT_PICTURE_PNG) {
        uint8_t palette[REPORT_COLOURS][3];
        for (int i = 0; i < REPORT_COLOURS; i++)
            colour_of(i, palette[i]);
        report_png_put(out, p->pixels, p->width * p->scale, p->height * p->scale,
                       (const uint8_t(*)[3])palette, REPORT_COLOURS);
    } else {
        base_buf_puts(&p->svg, "</g>\n</svg>\n");
        out->failed |= p->svg.failed;
        if (!out->failed)
            base_buf_put(out, p->svg.data, p->svg.size);
    }
    base_buf_free(&p->svg);
    base_free(p->pixels);
    *p = (report_page){0};
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while drawing") : BY_OK;
}

/* ---- rectangles ------------------------------------------------------------------------------ */

/* In pixels. */
static void fill(report_page *p, int x, int y, int width, int height, int colour)
{
    const int across = p->width * p->scale, down = p->height * p->scale;
    const int left = BY_MAX(x, 0), right = BY_MIN(x + width, across);
    for (int row = BY_MAX(y, 0); row < BY_MIN(y + height, down) && left < right; row++)
        memset(p->pixels + (size_t)row * (size_t)across + left, colour, (size_t)(right - left));
}

void report_put_xml(base_buf *out, const char *s, int limit)
{
    const char *begin = s;
    for (int shown = 0; *s; s++) {
        if (((uint8_t)*s & 0xc0) != 0x80 && limit > 0 && shown++ == limit) { /* first byte of a character */
            base_buf_puts(out, "…");
            return;
        }
        if (*s == '&' || *s == '<' || *s == '>' || *s == '"')
            base_buf_printf(out, "&#%d;", *s);
        else if (*s == '\n' || *s == '\t' || *s == '\r')
            base_buf_puts(out, *s == '\n' ? "↵" : "→");
        else if (*s == ' ' && (s == begin || s[-1] == ' ' || !s[1]))
            base_buf_puts(out, "\xc2\xa0");
        else if ((uint8_t)*s >= 32 && *s != 127)
            base_buf_put(out, s, 1);
    }
}

void report_page_rect(report_page *p, report_box at, int colour, const char *hint)
{
    if (p->kind == REPORT_PICTURE_PNG) {
        const int k = p->scale;
        fill(p, at.x * k, at.y * k, at.width * k, at.height * k, colour);
        return;
    }
    base_buf_printf(&p->svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", at.x, at.y, at.width,
                    at.height);
    put_colour(&p->svg, colour);
    if (hint) {
        base_buf_puts(&p->svg, "><title>");
        report_put_xml(&p->svg, hint, 0);
        base_buf_puts(&p->svg, "</title></rect>\n");
    } else {
        base_buf_puts(&p->svg, "/>\n");
    }
}

void report_page_frame(report_page *p, report_box at, int colour)
{
    report_page_rect(p, (report_box){at.x - 1, at.y - 1, at.width + 2, 1}, colour, NULL);
    report_page_rect(p, (report_box){at.x - 1, at.y + at.height, at.width + 2, 1}, colour, NULL);
    report_page_rect(p, (report_box){at.x - 1, at.y, 1, at.height}, colour, NULL);
    report_page_rect(p, (report_box){at.x + at.width, at.y, 1, at.height}, colour, NULL);
}

/* Writes one path per level, made of runs along the rows: a rectangle per cell would make a large file. */
static void put_level(report_page *p, int x, int y, int cell, const uint8_t *levels, int rows, int cols,
                      int level)
{
    bool any = false;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            const uint8_t *row = levels + (size_t)r * (size_t)cols;
            int run = 0;
            while (c + run < cols && row[c + run] == level)
                run++;
            if (run == 0)
                continue;
            if (!any) {
                base_buf_puts(&p->svg, "<path");
                put_colour(&p->svg, level);
                base_buf_puts(&p->svg, " d=\"");
                any = true;
            }
            base_buf_printf(&p->svg, "M%d %dh%dv%dh-%dz", x + c * cell, y + r * cell, run * cell, cell,
                            run * cell);
            c += run;
        }
    base_buf_puts(&p->svg, any ? "\"/>\n" : "");
}

void report_page_cells(report_page *p, int x, int y, int cell, const uint8_t *levels, int rows, int cols)
{
    for (int level = 1; p->kind == REPORT_PICTURE_SVG && level < REPORT_LEVELS; level++)
        put_level(p, x, y, cell, levels, rows, cols, level);
    for (int i = 0; p->kind == REPORT_PICTURE_PNG && i < rows * cols; i++)
        report_page_rect(p, (report_box){x + i % cols * cell, y + i / cols * cell, cell, cell}, levels[i],
                         NULL);
}

/* ---- text ------------------------------------------------------------------------------------ */

int report_text_width(int size, int characters)
{
    return characters * size * 11 / 20;
}

static int characters_of(const char *s, int limit)
{
    int n = 0;
    for (; *s; s++)
        n += ((uint8_t)*s & 0xc0) != 0x80;
    return limit > 0 && n > limit ? limit + 1 : n;
}

/* Draws a glyph with the left end of its baseline at (x, y); each dot is a square of k pixels. */
static void put_glyph(report_page *p, int x, int y, int k, const report_font *f, uint64_t glyph)
{
    for (int row = 0; row < 9; row++)
        for (int col = 0; col < 5; col++)
            if (glyph >> ((8 - row) * 5 + 4 - col) & 1) {
                const int up = 7 - row; /* height of the dot's upper edge above the baseline */
                if (f->upwards)
                    fill(p, x - up * k, y - (col + 1) * k, k, k, f->colour);
                else
                    fill(p, x + col * k, y - up * k, k, k, f->colour);
            }
}

static void draw_text(report_page *p, int x, int y, const report_font *f, const char *text)
{
    const int k = BY_MAX((f->size * p->scale * 72 / 7 + 50) / 100, 1), n = characters_of(text, f->limit);
    const int back = f->align == REPORT_LEFT ? 0 : (n * 6 - 1) * k / (f->align == REPORT_MIDDLE ? 2 : 1);
    x = x * p->scale - (f->upwards ? 0 : back);
    y = y * p->scale + (f->upwards ? back : 0);
    for (int i = 0; i < n; i++) {
        const char *dots = "…";
        put_glyph(p, x, y, k, f, report_glyph(f->limit > 0 && i == f->limit ? &dots : &text));
        x += f->upwards ? 0 : 6 * k;
        y -= f->upwards ? 6 * k : 0;
    }
}

void report_page_text(report_page *p, int x, int y, const report_font *f, const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    if (p->kind == REPORT_PICTURE_PNG) {
        draw_text(p, x, y, f, text);
        return;
    }
    base_buf_printf(&p->svg, "<text x=\"%d\" y=\"%d\" font-size=\"%d\"%s", x, y, f->size, anchors[f->align]);
    if (f->upwards)
        base_buf_printf(&p->svg, " transform=\"rotate(-90 %d %d)\"", x, y);
    put_colour(&p->svg, f->colour);
    base_buf_puts(&p->svg, ">");
    report_put_xml(&p->svg, text, f->limit);
    base_buf_puts(&p->svg, "</text>\n");
}
