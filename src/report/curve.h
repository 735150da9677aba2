/* curve.h - curves of a run over its steps, as a picture (SVG) and as text for a terminal. */
#ifndef BY_REPORT_CURVE_H
#define BY_REPORT_CURVE_H

#include "base/base.h"

/* One named series, borrowed for the call. x must not decrease. Points that are not finite are omitted. */
typedef struct report_curve_series {
    const char *name; /* NULL: it has the colour of the first panel's series of the same place */
    const double *x, *y;
    size_t count;
    /* True: few exact values, drawn as marks. false: noisy values, drawn as a line, their moving average over
     * up to one fiftieth of the points; the picture also shows the values faintly. */
    bool exact;
} report_curve_series;

/* Series that share a vertical axis. */
typedef struct report_curve_panel {
    const char *y_label;
    const report_curve_series *series;
    int count;
} report_curve_panel;

/* Panels are stacked over the same horizontal axis. The first is the largest. */
typedef struct report_curve {
    const char *title; /* NULL: none */
    const char *x_label;
    const report_curve_panel *panels;
    int count;        /* at least 1 */
    bool logarithmic; /* both axes, with ticks at powers of two; points that are not positive are omitted */
} report_curve;

/* Writes the picture, replacing the file atomically. It follows the viewer's light or dark theme. Any number
 * of points is allowed, including none: the size of the file does not grow with it. */
by_status report_curve_svg(const char *path, const report_curve *c);

/* Renders the curves for a terminal, `width` characters wide (24 to 1000), without the title. Free the result
 * with base_free. Returns NULL on failure. */
char *report_curve_text(const report_curve *c, int width);

#endif
