/* heatmap.h - attention weights as a picture: one map that fills the page, with its rows and columns named,
 * and many small ones below it. */
#ifndef BY_REPORT_HEATMAP_H
#define BY_REPORT_HEATMAP_H

#include "report/page.h"

typedef struct report_heatmap {
    const float *weights; /* (rows, cols), from 0 to 1 */
    int rows, cols;
    const char *const *row_names, *const *col_names;
    const uint8_t *dull; /* (cols) 1: not worth naming as the strongest, such as special tokens; or NULL */
    bool same; /* rows and columns are the same tokens: a row may look at itself and its neighbours */
} report_heatmap;

/* Maps of one size, `across` of them in a line, called "layer 3, head 5". */
typedef struct report_heatmap_grid {
    report_heatmap first; /* the others follow in its memory, rows * cols apart */
    int down, across;
    int first_down; /* the number of the first line */
    const char *down_name, *across_name;
} report_heatmap_grid;

typedef struct report_heatmap_page {
    const char *title, *subtitle;
    report_heatmap large;
    const report_heatmap_grid *grid; /* or NULL */
} report_heatmap_page;

/* Append a whole file to out. Maps with more rows or columns than can be seen are drawn coarser, each square
 * the largest weight of several tokens; *together is the number of tokens of a square of the large map. */
by_status report_heatmap_write(base_buf *out, report_picture kind, const report_heatmap_page *page,
                               int *together);

/* What a head does, in a few words: "previous token 85 %" where more than half of the weight goes one way,
 * else the pair that stands out most from what the other rows look at, "cat → mat 0.62". Heap string. */
char *report_heatmap_caption(const report_heatmap *m);

#endif
