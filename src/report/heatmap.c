/* heatmap.c - see heatmap.h. */
#include "report/heatmap.h"

#include <math.h>
#include <stdio.h>

enum { PAGE = 960, TALL = 900, MARGIN = 24, GAP = 14, NAME_SHOWN = 16 };
/* Maximum squares per side; total over all small maps. */
enum { LARGE_MOST = 192, SMALL_MOST = 48, SMALL_CELLS = 400000 };
enum { HINTS_MOST = 4096 }; /* maximum number of squares with a tooltip */
enum { NUMBERED = 28 };     /* minimum size of a square that shows its number */

static const report_font heading = {.size = 17, .colour = REPORT_INK, .limit = 100},
                         small_print = {.size = 11, .colour = REPORT_GREY};

/* ---- captions -------------------------------------------------------------------------------- */

/* The mean weight that rows give to the column `shift` after their own or, with `first`, to the first column.
 * Rows that see only one column carry no information and are skipped. */
static double share_of(const report_heatmap *m, int shift, bool first)
{
    double sum = 0;
    int counted = 0;
    for (int r = 1; r < m->rows; r++) {
        const int c = first ? 0 : r + shift;
        if (c < 0 || c >= m->cols)
            continue;
        sum += (double)m->weights[(size_t)r * (size_t)m->cols + (size_t)c];
        counted++;
    }
    return counted ? sum / counted : 0;
}

/* Number of columns that a row can see. */
static int seen_by(const report_heatmap *m, int row)
{
    int n = 0;
    for (int c = 0; c < m->cols; c++)
        n += m->weights[(size_t)row * (size_t)m->cols + (size_t)c] > 0;
    return BY_MAX(n, 1);
}

/* Finds the cell whose weight most exceeds both the mean of its column and a uniform share of its row. A
 * column that all rows look at, and a row that sees only one column, carry no information. */
static size_t strongest(const report_heatmap *m)
{
    size_t best = 0;
    double most = -INFINITY;
    for (int r = 0; r < m->rows; r++) {
        const double even = 1.0 / seen_by(m, r);
        for (int c = 0; c < m->cols; c++) {
            const size_t at = (size_t)r * (size_t)m->cols + (size_t)c;
            double mean = 0;
            /* Skip the mean, which is slower. */
            if ((m->dull && m->dull[c]) || (double)m->weights[at] - even <= most)
                continue;
            for (int i = 0; i < m->rows; i++)
                mean += (double)m->weights[(size_t)i * (size_t)m->cols + (size_t)c] / m->rows;
            const double excess = (double)m->weights[at] - fmax(mean, even);
            if (excess > most) {
                most = excess;
                best = at;
            }
        }
    }
    return best;
}

/* A name without surrounding spaces, at most n characters. */
static void put_name(base_buf *out, const char *s, int n)
{
    s += strspn(s, " ");
    for (; *s && (n > 0 || ((uint8_t)*s & 0xc0) == 0x80); s++) {
        n -= ((uint8_t)s[1] & 0xc0) != 0x80;
        base_buf_put(out, s, 1);
    }
    base_buf_puts(out, *s ? "…" : "");
}

char *report_heatmap_caption(const report_heatmap *m)
{
    static const struct {
        const char *name;
        int shift;
        bool first;
    } ways[] = {{"first token", 0, true},
                {"previous token", -1, false},
                {"itself", 0, false},
                {"next token", 1, false}};
    for (int i = 0; m->same && m->rows > 2 && i < BY_COUNT(ways); i++) {
        const double share = share_of(m, ways[i].shift, ways[i].first);
        if (share > 0.5)
            return base_sprintf("%s %.0f %%", ways[i].name, 100 * share);
    }
    const size_t best = strongest(m);
    base_buf out = {0};
    put_name(&out, m->row_names[best / (size_t)m->cols], 7);
    base_buf_puts(&out, " → ");
    put_name(&out, m->col_names[best % (size_t)m->cols], 7);
    base_buf_printf(&out, " %.2f", (double)m->weights[best]);
    if (out.failed)
        base_buf_free(&out);
    return out.data;
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* A map in squares of `step` by `step` tokens. */
typedef struct squares {
    uint8_t *levels;
    int rows, cols, step;
} squares;

static int coarser(int n, int step)
{
    return (n + step - 1) / step;
}

static by_status make_squares(const report_heatmap *m, int most, squares *out)
{
    const int step = coarser(BY_MAX(m->rows, m->cols), most);
    *out = (squares){.rows = coarser(m->rows, step), .cols = coarser(m->cols, step), .step = step};
    out->levels = base_alloc_zero((size_t)out->rows, (size_t)out->cols);
    if (!out->levels)
        return BY_ERR_MEMORY;
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->cols; c++) {
            uint8_t *to = &out->levels[r / step * out->cols + c / step];
            const int level = report_level_of((double)m->weights[(size_t)r * (size_t)m->cols + (size_t)c]);
            *to = (uint8_t)BY_MAX(*to, level);
        }
    return BY_OK;
}

/* ---- the large map --------------------------------------------------------------------------- */

/* Positions of the parts. */
typedef struct layout {
    int width, height;
    int gutter_x, gutter_y, cell; /* of the large map */
    int large_y;
    int side, small_most, grid_y; /* of a small map */
} layout;

static int gutter(const char *const *names, int count, int size)
{
    int longest = 1;
    for (int i = 0; i < count; i++) {
        int n = 0;
        for (const char *s = names[i]; *s && n <= NAME_SHOWN; s++)
            n += ((uint8_t)*s & 0xc0) != 0x80;
        longest = BY_MAX(longest, n);
    }
    return report_text_width(size, longest) + 14;
}

static int name_size(int cell)
{
    return BY_MIN(BY_MAX(cell * 6 / 10, 9), 14);
}

static void put_hints(report_page *p, const report_heatmap *m, const squares *s, const layout *l, int x,
                      int y)
{
    const report_font number = {.size = BY_MIN(l->cell * 3 / 8, 14), .align = REPORT_MIDDLE};
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->cols; c++) {
            const float w = m->weights[(size_t)r * (size_t)m->cols + (size_t)c];
            const int level = s->levels[r * s->cols + c], at_x = x + c * l->cell, at_y = y + r * l->cell;
            char *hint = base_sprintf("%s → %s: %.3f", m->row_names[r], m->col_names[c], (double)w);
            report_page_rect(p, (report_box){at_x, at_y, l->cell - 1, l->cell - 1}, level, hint);
            base_free(hint);
            if (l->cell < NUMBERED || level == 0)
                continue;
            char text[16];
            report_font f = number;
            f.colour = level > REPORT_LEVELS * 2 / 5 ? 0 : REPORT_INK;
            base_format(text, sizeof text, "%d", (int)lround(100 * (double)w));
            report_page_text(p, at_x + l->cell / 2, at_y + l->cell / 2 + number.size / 3, &f, text);
        }
}

static by_status put_large(report_page *p, const report_heatmap *m, const layout *l, int *together)
{
    squares s;
    BY_TRY(make_squares(m, LARGE_MOST, &s));
    *together = s.step;
    const int x = MARGIN + l->gutter_x, y = l->large_y + l->gutter_y, size = name_size(l->cell);
    const int every = coarser(size + 1, l->cell); /* avoid touching names */
    report_font name = {.size = size, .colour = REPORT_INK, .limit = NAME_SHOWN, .upwards = true};
    for (int c = 0; c < s.cols; c += every)
        report_page_text(p, x + c * l->cell + (l->cell + size * 2 / 3) / 2, y - 6, &name,
                         m->col_names[c * s.step]);
    name.upwards = false;
    name.align = REPORT_RIGHT;
    for (int r = 0; r < s.rows; r += every)
        report_page_text(p, x - 6, y + r * l->cell + (l->cell + size * 2 / 3) / 2, &name,
                         m->row_names[r * s.step]);
    report_page_frame(p, (report_box){x, y, s.cols * l->cell, s.rows * l->cell}, REPORT_LINE);
    if (s.step == 1 && s.rows * s.cols <= HINTS_MOST)
        put_hints(p, m, &s, l, x, y);
    else
        report_page_cells(p, x, y, l->cell, s.levels, s.rows, s.cols);
    base_free(s.levels);
    return BY_OK;
}

/* ---- the small maps -------------------------------------------------------------------------- */

enum { CAPTION_LINE = 13 };

static int characters(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((uint8_t)*s & 0xc0) != 0x80;
    return n;
}

/* A caption of up to two lines, broken at the last space that leaves the first line whole, but not before "%". */
static void put_caption(report_page *p, int x, int y, int width, char *words)
{
    report_font font = small_print;
    font.limit = width * 2 / 11; /* letters that fit */
    char *second = NULL;
    if (characters(words) > font.limit)
        for (char *at = strchr(words, ' '); at; at = strchr(at + 1, ' ')) {
            *at = '\0';
            if (at[1] != '%' && (!second || characters(words) <= font.limit))
                second = at;
            *at = ' ';
        }
    if (second)
        *second++ = '\0';
    report_page_text(p, x, y, &font, words);
    if (second)
        report_page_text(p, x, y + CAPTION_LINE, &font, second);
}

static by_status put_small(report_page *p, const report_heatmap *m, const layout *l, int x, int y,
                           const char *name)
{
    squares s;
    BY_TRY(make_squares(m, l->small_most, &s));
    const int cell = l->side / BY_MAX(s.rows, s.cols);
    char *words = report_heatmap_caption(m);
    report_page_text(p, x, y - 5, &(report_font){.size = 11, .colour = REPORT_INK}, name);
    report_page_cells(p, x, y, cell, s.levels, s.rows, s.cols);
    report_page_frame(p, (report_box){x, y, s.cols * cell, s.rows * cell}, REPORT_LINE);
    if (words)
        put_caption(p, x, y + s.rows * cell + CAPTION_LINE, l->side, words);
    base_free(words);
    base_free(s.levels);
    return words ? BY_OK : BY_ERR_MEMORY;
}

static int small_pitch(const layout *l)
{
    return l->side + 2 * GAP + 18 + CAPTION_LINE;
}

static by_status put_grid(report_page *p, const report_heatmap_grid *g, const layout *l)
{
    const size_t step = (size_t)g->first.rows * (size_t)g->first.cols;
    for (int d = 0; d < g->down; d++)
        for (int a = 0; a < g->across; a++) {
            char name[96];
            report_heatmap m = g->first;
            m.weights += ((size_t)d * (size_t)g->across + (size_t)a) * step;
            base_format(name, sizeof name, "%s %d, %s %d", g->down_name, g->first_down + d, g->across_name,
                        a);
            BY_TRY(put_small(p, &m, l, MARGIN + a * (l->side + GAP), l->grid_y + d * small_pitch(l), name));
        }
    return BY_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

static layout lay_out(const report_heatmap_page *page)
{
    const report_heatmap *m = &page->large;
    const report_heatmap_grid *g = page->grid;
    layout l = {.width = PAGE, .large_y = MARGIN + 84};
    if (g) {
        l.side = BY_MIN(BY_MAX((PAGE - 2 * MARGIN + GAP) / g->across - GAP, 96), 220);
        l.width = BY_MAX(PAGE, 2 * MARGIN + g->across * (l.side + GAP) - GAP);
        const double each = SMALL_CELLS / ((double)g->down * g->across);
        l.small_most = BY_MIN(BY_MAX((int)sqrt(each), 8), SMALL_MOST);
    }
    const int step = coarser(BY_MAX(m->rows, m->cols), LARGE_MOST);
    const int rows = coarser(m->rows, step), cols = coarser(m->cols, step);
    const int guess = BY_MIN((PAGE - 2 * MARGIN - 120) / cols, TALL / rows);
    l.gutter_x = gutter(m->row_names, m->rows, name_size(guess));
    l.gutter_y = gutter(m->col_names, m->cols, name_size(guess));
    l.cell = BY_MIN((PAGE - 2 * MARGIN - l.gutter_x) / cols, TALL / rows);
    l.cell = BY_MIN(BY_MAX(l.cell, 3), 120);
    l.height = l.large_y + l.gutter_y + rows * l.cell + MARGIN;
    if (g) {
        l.grid_y = l.height + 24;
        l.height = l.grid_y + g->down * small_pitch(&l) + MARGIN;
    }
    return l;
}

/* Draws the legend: the colours and their weights. */
static void put_scale(report_page *p, int x, int y, bool numbers)
{
    enum { WIDE = 4 };
    static const char *const ticks[] = {"0", "0.05", "0.25", "0.5", "1"};
    static const double at[] = {0, 0.05, 0.25, 0.5, 1};
    uint8_t levels[REPORT_LEVELS];
    for (int i = 0; i < REPORT_LEVELS; i++)
        levels[i] = (uint8_t)i;
    for (int row = 0; row < 3; row++)
        report_page_cells(p, x, y + row * WIDE, WIDE, levels, 1, REPORT_LEVELS);
    report_page_frame(p, (report_box){x, y, REPORT_LEVELS * WIDE, 3 * WIDE}, REPORT_LINE);
    report_font f = small_print;
    f.align = REPORT_MIDDLE;
    for (int i = 0; i < BY_COUNT(ticks); i++)
        report_page_text(p, x + report_level_of(at[i]) * WIDE + WIDE / 2, y + 3 * WIDE + 13, &f, ticks[i]);
    report_page_text(p, x + REPORT_LEVELS * WIDE + 14, y + 10, &small_print,
                     numbers ? "weight of a column for its row; numbers in percent"
                             : "weight of a column for its row");
}

by_status report_heatmap_write(base_buf *out, report_picture kind, const report_heatmap_page *page,
                               int *together)
{
    const layout l = lay_out(page);
    report_page p;
    BY_TRY(report_page_open(&p, kind, l.width, l.height));
    const report_font subtitle = {.size = 13, .colour = REPORT_GREY, .limit = 130};
    report_page_text(&p, MARGIN, MARGIN + 14, &heading, page->title);
    report_page_text(&p, MARGIN, MARGIN + 35, &subtitle, page->subtitle);
    put_scale(&p, MARGIN, MARGIN + 48, l.cell >= NUMBERED);
    by_status s = put_large(&p, &page->large, &l, together);
    if (s == BY_OK && page->grid)
        s = put_grid(&p, page->grid, &l);
    const by_status closed = report_page_close(&p, out);
    return s == BY_OK ? closed : s;
}
