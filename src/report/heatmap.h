/* heatmap.h - attention weights as a picture: one large map with labelled rows and columns, and many small
 * ones below it. */
#ifndef BY_REPORT_HEATMAP_H
#define BY_REPORT_HEATMAP_H

#include "report/page.h"

typedef struct report_heatmap {
    const float *weights; /* (rows, cols), from 0 to 1 */
    int rows, cols;
    const char *const *row_names, *const *col_names;
    const uint8_t *dull; /* (cols), 1: never report as the strongest, such as special tokens; or NULL */
    /* Rows and columns are the same tokens, so that a row may attend to itself and its neighbours. */
    bool same;
} report_heatmap;

/* Maps of one size, `across` of them per line, titled "layer 3, head 5". */
typedef struct report_heatmap_grid {
    report_heatmap first; /* the others follow in memory, rows * cols apart */
    int down, across;
    int first_down; /* number of the first line */
    const char *down_name, *across_name;
} report_heatmap_grid;

typedef struct report_heatmap_page {
    const char *title, *subtitle;
    report_heatmap large;
    const report_heatmap_grid *grid; /* or NULL */
} report_heatmap_page;

/* Appends a complete file to out. Maps with too many rows or columns are drawn coarser: each square is the
 * largest weight of several tokens. *together is the number of tokens per square of the large map. */
by_status report_heatmap_write(base_buf *out, report_picture kind, const report_heatmap_page *page,
                               int *together);

/* Describes a head in a few words: "previous token 85 %" if more than half of the weight follows one pattern,
 * otherwise the pair that stands out most from the other rows, "cat → mat 0.62". Returns a heap string. */
char *report_heatmap_caption(const report_heatmap *m);

#endif
