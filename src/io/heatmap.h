/* heatmap.h - weights as a picture (SVG): one map with its rows and columns named, and many small ones. */
#ifndef BY_IO_HEATMAP_H
#define BY_IO_HEATMAP_H

#include "base/base.h"

typedef struct by_heatmap {
    const float *weights; /* (rows, cols), from 0 to 1 */
    int rows, cols;
    const char *const *row_names, *const *col_names;
    const uint8_t *dull; /* (cols) 1: not worth naming as the strongest, such as special tokens; or NULL */
} by_heatmap;

/* Maps of one size, side by side: `across` of them in a line. Names are "layer 3", "head 5". */
typedef struct by_heatmap_grid {
    by_heatmap first; /* the others follow in its memory, rows * cols apart */
    int down, across;
    const char *down_name, *across_name;
} by_heatmap_grid;

/* A whole SVG file: the large map under its title, and the grid below it unless that is NULL. */
by_status by_heatmap_write(by_buf *out, const char *title, const by_heatmap *large,
                           const by_heatmap_grid *grid);

#endif
