/* heatmap.c - weights as a picture. A small map is an image inside the drawing, one pixel to a weight: a
 * thousand rectangles for each of a hundred heads would be more than a browser likes. */
#include "io/heatmap.h"

#include <math.h>
#include <stdio.h>

enum { LABEL = 110, CELL = 22, SMALL = 132, GAP = 12, CAPTION = 16, MARGIN = 24, HEADING = 40 };
enum { NAME_SHOWN = 16 }; /* characters of a name at an axis */

/* ---- colours: white to dark blue ------------------------------------------------------------- */

static void colour_of(float w, uint8_t rgb[3])
{
    static const double dark[3] = {8, 48, 107};
    double depth = w > 0 ? sqrt(fmin((double)w, 1)) : 0; /* small weights can be told apart */
    for (int i = 0; i < 3; i++)
        rgb[i] = (uint8_t)lround(255 - depth * (255 - dark[i]));
}

/* ---- a PNG of truecolour pixels, not compressed ---------------------------------------------- */

static void put_u32(by_buf *b, uint32_t x)
{
    char bytes[4] = {(char)(x >> 24), (char)(x >> 16), (char)(x >> 8), (char)x};
    by_buf_put(b, bytes, 4);
}

static uint32_t crc_of(const char *data, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= (uint8_t)data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_chunk(by_buf *png, const char *type, const by_buf *body)
{
    size_t start = png->size + 4;
    put_u32(png, (uint32_t)body->size);
    by_buf_put(png, type, 4);
    if (body->size)
        by_buf_put(png, body->data, body->size);
    put_u32(png, png->failed ? 0 : crc_of(png->data + start, png->size - start));
}

/* The bytes as a zlib stream of stored blocks. */
static void put_stored(by_buf *out, const by_buf *raw)
{
    uint32_t a = 1, b = 0;
    by_buf_put(out, "\x78\x01", 2);
    for (size_t at = 0; at < raw->size;) {
        size_t n = BY_MIN(raw->size - at, (size_t)65535);
        char head[5] = {at + n == raw->size, (char)n, (char)(n >> 8), (char)~n, (char)(~n >> 8)};
        by_buf_put(out, head, sizeof head);
        by_buf_put(out, raw->data + at, n);
        at += n;
    }
    for (size_t i = 0; i < raw->size; i++) {
        a = (a + (uint8_t)raw->data[i]) % 65521;
        b = (b + a) % 65521;
    }
    put_u32(out, b << 16 | a);
}

static void put_png(by_buf *out, const by_heatmap *m)
{
    by_buf head = {0}, raw = {0}, body = {0}, none = {0};
    put_u32(&head, (uint32_t)m->cols);
    put_u32(&head, (uint32_t)m->rows);
    by_buf_put(&head, "\x08\x02\x00\x00\x00", 5); /* eight bits each of red, green, blue */
    for (int r = 0; r < m->rows; r++) {
        by_buf_put(&raw, "\0", 1); /* no filter */
        for (int c = 0; c < m->cols; c++) {
            uint8_t rgb[3];
            colour_of(m->weights[(size_t)r * (size_t)m->cols + (size_t)c], rgb);
            by_buf_put(&raw, (const char *)rgb, 3);
        }
    }
    put_stored(&body, &raw);
    by_buf_put(out, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(out, "IHDR", &head);
    put_chunk(out, "IDAT", &body);
    put_chunk(out, "IEND", &none);
    out->failed |= head.failed | raw.failed | body.failed;
    by_buf_free(&head);
    by_buf_free(&raw);
    by_buf_free(&body);
}

static void put_base64(by_buf *out, const by_buf *in)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < in->size; i += 3) {
        uint32_t x = 0;
        size_t n = BY_MIN(in->size - i, (size_t)3);
        for (size_t k = 0; k < 3; k++)
            x = x << 8 | (k < n ? (uint8_t)in->data[i + k] : 0);
        char four[4];
        for (size_t k = 0; k < 4; k++)
            four[k] = k <= n ? digits[x >> (18 - 6 * k) & 63] : '=';
        by_buf_put(out, four, 4);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

/* XML text: what cannot stand there is left out, white space is made visible. */
static void put_text(by_buf *out, const char *s, int limit)
{
    for (int shown = 0; *s; s++) {
        if (((uint8_t)*s & 0xc0) != 0x80 && shown++ == limit) { /* the beginning of a character */
            by_buf_puts(out, "…");
            return;
        }
        if (*s == '&' || *s == '<' || *s == '>' || *s == '"')
            by_buf_printf(out, "&#%d;", *s);
        else if (*s == '\n' || *s == '\t' || *s == '\r')
            by_buf_puts(out, *s == '\n' ? "↵" : "→");
        else if (*s == ' ')
            by_buf_puts(out, "\xc2\xa0");
        else if ((uint8_t)*s >= 32 && *s != 127)
            by_buf_put(out, s, 1);
    }
}

static void put_label(by_buf *out, double x, double y, const char *more, const char *text)
{
    by_buf_printf(out, "<text x=\"%g\" y=\"%g\" %s>", x, y, more);
    put_text(out, text, NAME_SHOWN);
    by_buf_puts(out, "</text>\n");
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void put_large(by_buf *out, const by_heatmap *m, double x, double y)
{
    for (int c = 0; c < m->cols; c++) {
        char turned[96];
        double at = x + LABEL + (c + 0.65) * CELL;
        snprintf(turned, sizeof turned, "transform=\"rotate(-55 %g %g)\"", at, y + LABEL - 6.0);
        put_label(out, at, y + LABEL - 6, turned, m->col_names[c]);
    }
    for (int r = 0; r < m->rows; r++) {
        put_label(out, x + LABEL - 6, y + LABEL + (r + 0.7) * CELL, "text-anchor=\"end\"", m->row_names[r]);
        for (int c = 0; c < m->cols; c++) {
            float w = m->weights[(size_t)r * (size_t)m->cols + (size_t)c];
            uint8_t rgb[3];
            colour_of(w, rgb);
            by_buf_printf(
                out, "<rect x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"><title>",
                x + LABEL + c * CELL, y + LABEL + r * CELL, CELL - 1, CELL - 1, rgb[0], rgb[1], rgb[2]);
            put_text(out, m->row_names[r], 64);
            by_buf_puts(out, " → ");
            put_text(out, m->col_names[c], 64);
            by_buf_printf(out, ": %.3f</title></rect>\n", (double)w);
        }
    }
}

/* One of the small ones, and under it the strongest pair. */
static void put_small(by_buf *out, const by_heatmap *m, double x, double y, const char *name)
{
    by_buf png = {0};
    int best = -1;
    for (int i = 0; i < m->rows * m->cols; i++)
        if ((!m->dull || !m->dull[i % m->cols]) && (best < 0 || m->weights[i] > m->weights[best]))
            best = i;
    best = best < 0 ? 0 : best;
    put_png(&png, m);
    by_buf_printf(out,
                  "<image x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" "
                  "style=\"image-rendering:pixelated\" href=\"data:image/png;base64,",
                  x, y, SMALL, SMALL);
    put_base64(out, &png);
    by_buf_printf(out, "\"><title>%s</title></image>\n", name);
    by_buf_printf(out, "<rect x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#bbb\"/>\n",
                  x, y, SMALL, SMALL);
    by_buf_printf(out, "<text x=\"%g\" y=\"%g\" class=\"s\">", x, y + SMALL + 11);
    put_text(out, m->row_names[best / m->cols], 9);
    by_buf_puts(out, " → ");
    put_text(out, m->col_names[best % m->cols], 9);
    by_buf_printf(out, " %.2f</text>\n", (double)m->weights[best]);
    out->failed |= png.failed;
    by_buf_free(&png);
}

static void put_grid(by_buf *out, const by_heatmap_grid *g, double x, double y)
{
    const size_t step = (size_t)g->first.rows * (size_t)g->first.cols;
    for (int d = 0; d < g->down; d++)
        for (int a = 0; a < g->across; a++) {
            char name[96];
            by_heatmap m = g->first;
            m.weights += ((size_t)d * (size_t)g->across + (size_t)a) * step;
            snprintf(name, sizeof name, "%s %d, %s %d", g->down_name, d, g->across_name, a);
            put_small(out, &m, x + 64 + a * (SMALL + GAP), y + 20 + d * (SMALL + GAP + CAPTION), name);
        }
    for (int d = 0; d < g->down; d++)
        by_buf_printf(out, "<text x=\"%g\" y=\"%g\" class=\"s\">%s %d</text>\n", x,
                      y + 20 + d * (SMALL + GAP + CAPTION) + SMALL / 2.0, g->down_name, d);
    for (int a = 0; a < g->across; a++)
        by_buf_printf(out, "<text x=\"%g\" y=\"%g\" class=\"s\">%s %d</text>\n", x + 64 + a * (SMALL + GAP),
                      y + 12, g->across_name, a);
}

by_status by_heatmap_write(by_buf *out, const char *title, const by_heatmap *m, const by_heatmap_grid *g)
{
    double width = LABEL + m->cols * CELL + LABEL / 2.0, height = HEADING + LABEL + m->rows * CELL;
    if (g) {
        width = fmax(width, 64 + g->across * (SMALL + GAP));
        height += MARGIN + 20 + g->down * (SMALL + GAP + CAPTION);
    }
    by_buf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<style>.s{font-size:10px;fill:#555}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"%d\" font-size=\"15\">",
        width + 2 * MARGIN, height + 2 * MARGIN, MARGIN, MARGIN + 12);
    put_text(out, title, 120);
    by_buf_puts(out, "</text>\n");
    put_large(out, m, MARGIN, MARGIN + HEADING);
    if (g)
        put_grid(out, g, MARGIN, MARGIN + HEADING + LABEL + m->rows * CELL + MARGIN);
    by_buf_puts(out, "</svg>\n");
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory while drawing") : BY_OK;
}
