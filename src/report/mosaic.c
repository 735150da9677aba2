/* mosaic.c - see mosaic.h. */
#include "report/mosaic.h"

#include <math.h>

#include "image/picture.h"
#include "report/png.h"

enum { MARGIN = 16, GAP = 8, TITLE = 15, SMALL = 11, PAGE = 960, MOST_SIDE = 16000, MOST_PIXELS = 1 << 26 };

typedef struct page {
    report_picture kind;
    int width, height;
    by_image *canvas; /* PNG */
    base_buf svg;
} page;

/* ---- drawing ------------------------------------------------------------------------------------- */

/* A letter of the PNG: each dot is a square of k pixels; (x, y) is the left end of the baseline. */
static void put_letter(by_image *m, int x, int y, int k, const uint8_t *rgb, uint64_t glyph)
{
    for (int i = 0; i < 45; i++)
        for (int d = 0; glyph >> (44 - i) & 1 && d < k * k; d++) {
            const int px = x + i % 5 * k + d % k, py = y - (7 - i / 5) * k + d / k;
            if (px >= 0 && px < m->width && py >= 0 && py < m->height)
                memcpy(image_row(m, py) + 3 * px, rgb, 3);
        }
}

static void put_text(page *p, int x, int y, int size, bool strong, int limit, const char *text)
{
    static const uint8_t inks[2][3] = {{107, 118, 136}, {24, 32, 44}};
    if (p->kind == REPORT_PICTURE_SVG) {
        base_buf_printf(&p->svg, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"#%02x%02x%02x\">", x, y,
                        size, inks[strong][0], inks[strong][1], inks[strong][2]);
        report_put_xml(&p->svg, text, limit);
        base_buf_puts(&p->svg, "</text>\n");
        return;
    }
    const int k = size > 14 ? 2 : 1;
    for (int i = 0; *text && i < limit; i++)
        put_letter(p->canvas, x + 6 * k * i, y, k, inks[strong], report_glyph(&text));
}

static void put_base64(base_buf *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (i + k < n ? bytes[i + k] : 0);
        for (int k = 0; k < 4; k++)
            four[k] = i + (size_t)k > n ? '=' : digits[group >> (18 - 6 * k) & 63];
        base_buf_put(out, four, 4);
    }
}

/* In an SVG pictures keep their own pixels. */
static by_status embed(page *p, const by_image *m, report_box at)
{
    base_buf png = {0};
    BY_TRY(image_png_encode(m, &png));
    base_buf_printf(&p->svg,
                    "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" style=\"image-rendering:pixelated\" "
                    "href=\"data:image/png;base64,",
                    at.x, at.y, at.width, at.height);
    put_base64(&p->svg, (const uint8_t *)png.data, png.size);
    base_buf_puts(&p->svg, "\"/>\n");
    base_buf_free(&png);
    return BY_OK;
}

static by_status paste(page *p, const by_image *m, report_box at)
{
    const by_filter filter = at.width < m->width ? BY_FILTER_LANCZOS : BY_FILTER_NEAREST;
    by_image *fit = by_image_resize(m, at.width, at.height, filter);
    if (!fit)
        return base_error_status();
    for (int y = 0; y < at.height; y++)
        for (int x = 0; x < at.width; x++)
            for (int c = 0; c < 3; c++)
                image_row(p->canvas, at.y + y)[3 * (at.x + x) + c] =
                    image_row(fit, y)[fit->channels * x + (fit->channels < 3 ? 0 : c)];
    by_image_free(fit);
    return BY_OK;
}

/* ---- layout -------------------------------------------------------------------------------------- */

static report_box box_of(const by_image *m, int side)
{
    const int longer = BY_MAX(m->width, m->height);
    return (report_box){.width = BY_MAX((int)lround((double)m->width * side / longer), 1),
                        .height = BY_MAX((int)lround((double)m->height * side / longer), 1)};
}

/* Tiles [first, end), `columns` in a line, from `top` on. p NULL: only measures. Widens *width and returns the lower end. */
static by_status put_tiles(page *p, const report_mosaic *m, int first, int end, int columns, int side,
                           int *top, int *width)
{
    int title = 0, height = 0;
    for (int i = first; i < end; i++) {
        title = m->tiles[i].title[0] ? SMALL + 5 : title;
        height = BY_MAX(height, box_of(m->tiles[i].picture, side).height);
    }
    for (int i = first; i < end; i++) {
        report_box at = box_of(m->tiles[i].picture, side);
        at.x = MARGIN + (i - first) % columns * (side + GAP);
        at.y = *top + (i - first) / columns * (height + title + GAP) + title;
        *width = BY_MAX(*width, at.x + side + MARGIN);
        if (!p)
            continue;
        put_text(p, at.x, at.y - 4, SMALL, false, side / 6, m->tiles[i].title);
        BY_TRY(p->kind == REPORT_PICTURE_SVG ? embed(p, m->tiles[i].picture, at)
                                             : paste(p, m->tiles[i].picture, at));
    }
    if (end > first)
        *top += (end - first + columns - 1) / columns * (height + title + GAP) + GAP;
    return BY_OK;
}

static by_status put_all(page *p, const report_mosaic *m, int *height, int *width)
{
    const int room = PAGE - 2 * MARGIN + GAP, most = BY_MAX(room / (m->large_side + GAP), 1);
    const int columns = m->columns > 0 ? m->columns : BY_MAX(room / (m->small_side + GAP), 1);
    *height = MARGIN + TITLE + (m->subtitle ? 20 : 0) + GAP;
    const int below = m->subtitle ? (int)BY_MIN(6 * strlen(m->subtitle), (size_t)(PAGE - 2 * MARGIN)) : 0;
    *width = MARGIN + BY_MAX(12 * (int)strlen(m->title), below + MARGIN);
    if (p) {
        put_text(p, MARGIN, MARGIN + TITLE, TITLE, true, p->width / 12, m->title);
        put_text(p, MARGIN, MARGIN + TITLE + 18, SMALL, false, (p->width - MARGIN) / 6,
                 m->subtitle ? m->subtitle : "");
    }
    BY_TRY(put_tiles(p, m, 0, m->large, most, m->large_side, height, width));
    return put_tiles(p, m, m->large, m->count, columns, m->small_side, height, width);
}

static by_status open_page(page *p)
{
    if (p->width > MOST_SIDE || p->height > MOST_SIDE || (int64_t)p->width * p->height > MOST_PIXELS)
        return base_fail(BY_ERR_ARGUMENT, "a picture of %d x %d pixels is too large", p->width, p->height);
    if (p->kind == REPORT_PICTURE_PNG) {
        p->canvas = by_image_new(p->width, p->height, BY_PIXELS_RGB);
        if (p->canvas)
            memset(p->canvas->pixels, 255, (size_t)p->width * (size_t)p->height * 3);
        return p->canvas ? BY_OK : base_error_status();
    }
    base_buf_printf(
        &p->svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\">\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
        p->width, p->height, p->width, p->height, p->width, p->height);
    return BY_OK;
}

by_status report_mosaic_write(base_buf *out, report_picture kind, const report_mosaic *m)
{
    page p = {.kind = kind};
    BY_TRY(put_all(NULL, m, &p.height, &p.width));
    p.width = BY_MIN(p.width, MOST_SIDE);
    by_status s = open_page(&p);
    if (s == BY_OK)
        s = put_all(&p, m, &(int){0}, &(int){0});
    base_buf_puts(&p.svg, "</svg>\n");
    if (s == BY_OK && p.svg.failed)
        s = base_fail(BY_ERR_MEMORY, "out of memory while drawing");
    if (s == BY_OK && kind == REPORT_PICTURE_PNG)
        s = image_png_encode(p.canvas, out);
    else if (s == BY_OK)
        base_buf_put(out, p.svg.data, p.svg.size);
    by_image_free(p.canvas);
    base_buf_free(&p.svg);
    return s;
}

void report_tiles_free(report_tile *tiles, int count)
{
    for (int i = 0; tiles && i < count; i++)
        by_image_free(tiles[i].picture);
    base_free(tiles);
}
