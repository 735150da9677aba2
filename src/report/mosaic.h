/* mosaic.h - pictures with titles on one page, as SVG or PNG; and maps of attention over pictures. */
#ifndef BY_REPORT_MOSAIC_H
#define BY_REPORT_MOSAIC_H

#include "banyan/image.h"
#include "report/page.h"

typedef struct report_tile {
    by_image *picture; /* 8-bit grey or RGB, on the heap */
    char title[48];    /* above it; "" leaves no room for titles if all small tiles have none */
} report_tile;

typedef struct report_mosaic {
    const char *title, *subtitle; /* subtitle may be NULL */
    const report_tile *tiles;
    int count;
    int large;                  /* the first ones are large */
    int columns;                /* of the small ones; 0: as many as there is room for */
    int large_side, small_side; /* units of the longer side of a tile */
} report_mosaic;

/* Appends a complete file to out. */
by_status report_mosaic_write(base_buf *out, report_picture kind, const report_mosaic *m);
void report_tiles_free(report_tile *tiles, int count); /* with their pictures */

/* The picture, dark and grey, with a map over it in orange: the largest weight is brightest, the smallest leaves the picture as it is. map
 * (rows, columns) is stretched over the picture; smooth: without edges between its fields. NULL on failure. */
by_image *report_overlay(const by_image *picture, const float *map, int rows, int columns, bool smooth);
/* A map as a picture of one pixel for each field, white for `low` or less and dark blue for `high`. NULL on failure. */
by_image *report_map(const float *map, int rows, int columns, double low, double high);

#endif
