/* page.h - a picture of rectangles and text, as SVG or as PNG. Coordinates are whole units from the upper
 * left corner, one CSS pixel each; a PNG has two pixels per unit unless that is too large. Errors are kept
 * until report_page_close. */
#ifndef BY_REPORT_PAGE_H
#define BY_REPORT_PAGE_H

#include "base/base.h"

typedef enum report_picture { REPORT_PICTURE_SVG, REPORT_PICTURE_PNG } report_picture;
/* Determines the format from the extension, .svg or .png. */
by_status report_picture_of(const char *path, report_picture *out);

/* Colours: levels of a scale from white to dark blue, and a few others. */
enum { REPORT_LEVELS = 64, REPORT_INK = REPORT_LEVELS, REPORT_GREY, REPORT_LINE, REPORT_COLOURS };
/* The level of a weight from 0 to 1, and the weight of a level. Small weights are spread out (square
 * root). */
int report_level_of(double weight);
double report_level_weight(int level);

typedef struct report_page {
    report_picture kind;
    int width, height, scale; /* scale: pixels per unit */
    base_buf svg;
    uint8_t *pixels; /* (height * scale, width * scale) colour indices */
} report_page;

/* A page that would be too large is an error; it then needs no closing. */
by_status report_page_open(report_page *p, report_picture kind, int width, int height);
/* Appends the file to out and frees the page, also on failure. */
by_status report_page_close(report_page *p, base_buf *out);

typedef struct report_box {
    int x, y, width, height;
} report_box;
/* hint: tooltip of the rectangle (SVG), or NULL. */
void report_page_rect(report_page *p, report_box at, int colour, const char *hint);
void report_page_frame(report_page *p, report_box at, int colour); /* a line of one unit around the box */
/* Draws squares of `cell` units for (rows, cols) levels. */
void report_page_cells(report_page *p, int x, int y, int cell, const uint8_t *levels, int rows, int cols);

typedef enum report_align { REPORT_LEFT, REPORT_MIDDLE, REPORT_RIGHT } report_align;
typedef struct report_font {
    int size;
    int colour;
    report_align align;
    bool upwards; /* rotated by 90 degrees: the text runs upwards */
    int limit;    /* maximum characters; 0: all */
} report_font;
/* x and y are on the baseline. A PNG has ASCII letters only; it drops accents and shows other characters as
 * boxes. */
void report_page_text(report_page *p, int x, int y, const report_font *font, const char *text);
int report_text_width(int size, int characters); /* approximate */

/* Appends XML text, cut after `limit` characters (0: never). Control characters are dropped; line ends, tabs
 * and spaces that XML would drop are preserved. */
void report_put_xml(base_buf *out, const char *s, int limit);

#endif
