/* mixture_layout.h - layout of a discretised mixture of logistics in a row of logits, for both backends: K
 * mixture logits, then for each channel K means and K log scales, and with three channels K coefficients. */
#ifndef BY_GRAPH_MIXTURE_LAYOUT_H
#define BY_GRAPH_MIXTURE_LAYOUT_H

#include "graph/reach.h"

enum {
    GR_MIXTURE_VALUES = 256, /* of a channel; value v stands for v / 127.5 - 1 */
    GR_MIXTURE_MOST = 64,    /* components */
    GR_MIXTURE_PARTS = 10,   /* maximum parameters of a component */
    GR_MIXTURE_ROW = GR_MIXTURE_MOST * GR_MIXTURE_PARTS
};
#define GR_MIXTURE_LEAST     -7.0 /* lower bound of log scales, below which there is no gradient */
#define GR_MIXTURE_SMALL     1e-5 /* below this probability, the density is used instead */
#define GR_MIXTURE_LOG_WIDTH 4.8481163504124015 /* ln 127.5 */

/* Numbers of a component. */
GR_REACH int gr_mixture_parts(int channels)
{
    return channels == 1 ? 3 : GR_MIXTURE_PARTS;
}

/* Index of the mean of a channel; the log scale and the coefficient follow. */
GR_REACH int gr_mixture_at(int channel, int channels)
{
    return 1 + channel * (channels == 1 ? 2 : 3);
}

/* Whether a row counts: whether none of its targets is ignored. */
GR_REACH bool gr_mixture_counts(const int32_t *target, int channels, int ignore)
{
    bool counts = true;
    for (int c = 0; c < channels; c++)
        counts = counts && target[c] != ignore;
    return counts;
}

#endif
