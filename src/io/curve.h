/* curve.h - a loss curve as a picture (SVG) and as text for a terminal. */
#ifndef BY_IO_CURVE_H
#define BY_IO_CURVE_H

#include "base/base.h"

#define BY_CURVE_AUTO (-1.0) /* smoothing over up to one fiftieth of the points, fewer at the start */

typedef enum by_curve_style {
    BY_CURVE_LINE = 0, /* many noisy values: a line */
    BY_CURVE_POINTS    /* few exact values: marks, joined by a thin line in the picture */
} by_curve_style;

/* One named series. A y that is not finite leaves a gap. x is to rise: a point that falls back is left out,
 * and so is one that has no place on a logarithmic axis. Everything is borrowed during the call. */
typedef struct by_curve_series {
    const char *name;
    const double *x, *y;
    size_t count;
    by_curve_style style;
    double smoothing; /* lines: 0 draws the values; 0 < w < 1 their moving average, w being the weight of the
                         past, with the values faint behind it (in the picture); or BY_CURVE_AUTO */
} by_curve_series;

typedef struct by_curve {
    const char *title, *x_label, *y_label; /* NULL for none */
    const by_curve_series *series;
    int count;
    bool log_x;
    int width, height; /* of the picture, in pixels; 0 for 960 x 540 */
} by_curve;

/* Write the picture, replacing the file atomically. Follows the viewer's light or dark theme. Any number of
 * points and series is fine, none included; the size of the file depends on the width, not on the number of
 * points. */
by_status by_curve_svg(const char *path, const by_curve *c);

/* A plot of width x height characters (at least 24 x 8), lines ended by '\n': braille dots when unicode is
 * set, else ASCII. The caller's to by_free; NULL on failure. */
char *by_curve_text(const by_curve *c, int width, int height, bool unicode);

#endif
