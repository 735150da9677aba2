/* confusion.c - see confusion.h. */
#include "report/confusion.h"

#include <math.h>

enum { MARGIN = 16, TITLE = 34, FONT = 12, NAME_LIMIT = 24, MOST_NUMBERS = 40, WHITE = 0 };

typedef struct layout {
    int cell, left, top; /* side of a square; where the squares begin */
    bool numbers;
} layout;

static layout lay_out(const report_confusion *c)
{
    size_t longest = 4;
    for (int i = 0; i < c->classes; i++)
        longest = BY_MAX(longest, BY_MIN(strlen(c->names[i]), (size_t)NAME_LIMIT));
    const int names = report_text_width(FONT, (int)longest), n = c->classes;
    return (layout){.cell = n <= 12             ? 46
                            : n <= MOST_NUMBERS ? 34
                            : n <= 200          ? FONT + 2
                                                : 4,
                    .left = MARGIN + FONT + 8 + names + 8,
                    .top = MARGIN + TITLE + FONT + 8 + names + 8,
                    .numbers = n <= MOST_NUMBERS};
}

static void draw_names(report_page *p, const report_confusion *c, const layout *l)
{
    const report_font row = {.size = FONT, .colour = REPORT_INK, .align = REPORT_RIGHT, .limit = NAME_LIMIT},
                      column = {.size = FONT, .colour = REPORT_INK, .upwards = true, .limit = NAME_LIMIT};
    for (int i = 0; i < c->classes && l->cell >= FONT; i++) {
        const int middle = i * l->cell + l->cell / 2 + FONT / 3;
        report_page_text(p, l->left - 8, l->top + middle, &row, c->names[i]);
        report_page_text(p, l->left + middle, l->top - 8, &column, c->names[i]);
    }
}

static void draw_row(report_page *p, const report_confusion *c, const layout *l, int i)
{
    const int64_t *counts = c->counts + (int64_t)i * c->classes;
    int64_t all = 0;
    for (int j = 0; j < c->classes; j++)
        all += counts[j];
    for (int j = 0; j < c->classes; j++) {
        const double share = all ? (double)counts[j] / (double)all : 0;
        const report_box at = {l->left + j * l->cell, l->top + i * l->cell, l->cell, l->cell};
        char text[32], hint[160];
        base_format(text, sizeof text, "%lld", (long long)counts[j]);
        base_format(hint, sizeof hint, "%.48s as %.48s: %lld (%.1f %%)", c->names[i], c->names[j],
                    (long long)counts[j], 100 * share);
        if (counts[j])
            report_page_rect(p, at, report_level_of(share), hint);
        if (counts[j] && l->numbers)
            report_page_text(p, at.x + l->cell / 2, at.y + l->cell / 2 + FONT / 3,
                             &(report_font){.size = FONT - 1,
                                            .colour = share > 0.3 ? WHITE : REPORT_INK,
                                            .align = REPORT_MIDDLE},
                             text);
    }
}

by_status report_confusion_write(base_buf *out, report_picture kind, const report_confusion *c)
{
    const layout l = lay_out(c);
    const int side = l.cell * c->classes;
    report_page p;
    BY_TRY(report_page_open(&p, kind, l.left + side + MARGIN, l.top + side + MARGIN));
    report_page_text(&p, MARGIN, MARGIN + 16, &(report_font){.size = 16, .colour = REPORT_INK},
                     c->title ? c->title : "confusion matrix");
    report_page_text(&p, l.left + side / 2, MARGIN + TITLE + 8,
                     &(report_font){.size = FONT, .colour = REPORT_GREY, .align = REPORT_MIDDLE},
                     "predicted");
    report_page_text(
        &p, MARGIN + FONT, l.top + side / 2,
        &(report_font){.size = FONT, .colour = REPORT_GREY, .align = REPORT_MIDDLE, .upwards = true},
        "actual");
    draw_names(&p, c, &l);
    for (int i = 0; i < c->classes; i++)
        draw_row(&p, c, &l, i);
    report_page_frame(&p, (report_box){l.left, l.top, side, side}, REPORT_LINE);
    return report_page_close(&p, out);
}
