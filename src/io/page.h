/* page.h - a picture of rectangles and text, as SVG or as PNG. Coordinates are whole units from the upper
 * left corner, one CSS pixel each; a PNG has two pixels to a unit where that is not too large. Failures are
 * kept until by_page_close. */
#ifndef BY_IO_PAGE_H
#define BY_IO_PAGE_H

#include "base/base.h"

typedef enum by_picture { BY_PICTURE_SVG, BY_PICTURE_PNG } by_picture;
/* By the ending of a file's name, .svg or .png. */
by_status by_picture_of(const char *path, by_picture *out);

/* Colours: levels of a scale from white to dark blue, and a few more. */
enum { BY_LEVELS = 64, BY_INK = BY_LEVELS, BY_GREY, BY_LINE, BY_COLOURS };
/* The level of a weight from 0 to 1, and the weight of a level. Small weights are spread (a square root). */
int by_level_of(double weight);
double by_level_weight(int level);

typedef struct by_page {
    by_picture kind;
    int width, height, scale; /* scale: pixels of a unit */
    by_buf svg;
    uint8_t *pixels; /* (height * scale, width * scale) colours */
} by_page;

/* A page that would be too large is refused, and then needs no closing. */
by_status by_page_open(by_page *p, by_picture kind, int width, int height);
/* The file is appended to out. The page is freed, also on failure. */
by_status by_page_close(by_page *p, by_buf *out);

typedef struct by_box {
    int x, y, width, height;
} by_box;
/* hint: shown while the pointer rests on the rectangle (SVG), or NULL. */
void by_page_rect(by_page *p, by_box at, int colour, const char *hint);
void by_page_frame(by_page *p, by_box at, int colour); /* one unit wide, around the box */
/* Squares of `cell` units, (rows, cols) levels. */
void by_page_cells(by_page *p, int x, int y, int cell, const uint8_t *levels, int rows, int cols);

typedef enum by_align { BY_LEFT, BY_MIDDLE, BY_RIGHT } by_align;
typedef struct by_font {
    int size;
    int colour;
    by_align align;
    bool upwards; /* turned by a quarter: the text rises from its place */
    int limit;    /* characters; 0: all */
} by_font;
/* x and y are of the baseline. A PNG has the letters of ASCII; it drops accents and shows other characters as
 * boxes. */
void by_page_text(by_page *p, int x, int y, const by_font *font, const char *text);
int by_text_width(int size, int characters); /* about */

/* Append XML text, cut after `limit` characters (0: never). Control characters are left out; line ends, tabs
 * and spaces that XML would drop are kept. */
void by_put_xml(by_buf *out, const char *s, int limit);

#endif
