/* page.h - a picture of rectangles and text, as SVG or as PNG. Coordinates are whole units from the upper
 * left corner, one CSS pixel each; a PNG has two pixels to a unit where that is not too large. Failures are
 * kept until report_page_close. */
#ifndef BY_REPORT_PAGE_H
#define BY_REPORT_PAGE_H

#include "base/base.h"

typedef enum report_picture { REPORT_PICTURE_SVG, REPORT_PICTURE_PNG } report_picture;
/* By the ending of a file's name, .svg or .png. */
by_status report_picture_of(const char *path, report_picture *out);

/* Colours: levels of a scale from white to dark blue, and a few more. */
enum { REPORT_LEVELS = 64, REPORT_INK = REPORT_LEVELS, REPORT_GREY, REPORT_LINE, REPORT_COLOURS };
/* The level of a weight from 0 to 1, and the weight of a level. Small weights are spread (a square root). */
int report_level_of(double weight);
double report_level_weight(int level);

typedef struct report_page {
    report_picture kind;
    int width, height, scale; /* scale: pixels of a unit */
    base_buf svg;
    uint8_t *pixels; /* (height * scale, width * scale) colours */
} report_page;

/* A page that would be too large is refused, and then needs no closing. */
by_status report_page_open(report_page *p, report_picture kind, int width, int height);
/* The file is appended to out. The page is freed, also on failure. */
by_status report_page_close(report_page *p, base_buf *out);

typedef struct report_box {
    int x, y, width, height;
} report_box;
/* hint: shown while the pointer rests on the rectangle (SVG), or NULL. */
void report_page_rect(report_page *p, report_box at, int colour, const char *hint);
void report_page_frame(report_page *p, report_box at, int colour); /* one unit wide, around the box */
/* Squares of `cell` units, (rows, cols) levels. */
void report_page_cells(report_page *p, int x, int y, int cell, const uint8_t *levels, int rows, int cols);

typedef enum report_align { REPORT_LEFT, REPORT_MIDDLE, REPORT_RIGHT } report_align;
typedef struct report_font {
    int size;
    int colour;
    report_align align;
    bool upwards; /* turned by a quarter: the text rises from its place */
    int limit;    /* characters; 0: all */
} report_font;
/* x and y are of the baseline. A PNG has the letters of ASCII; it drops accents and shows other characters as
 * boxes. */
void report_page_text(report_page *p, int x, int y, const report_font *font, const char *text);
int report_text_width(int size, int characters); /* about */

/* Append XML text, cut after `limit` characters (0: never). Control characters are left out; line ends, tabs
 * and spaces that XML would drop are kept. */
void report_put_xml(base_buf *out, const char *s, int limit);

#endif
