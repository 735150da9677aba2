/* spread.h - operands of other shapes under one result, as NumPy does it: axes are matched from the last one,
 * and an axis of 1, or one that is missing, repeats. Shared by the shape rules and the kernels. */
#ifndef BY_GRAPH_SPREAD_H
#define BY_GRAPH_SPREAD_H

#include "graph/graph.h"

enum { GR_SPREAD_MOST = 3 }; /* operands */

/* The result as few axes, and how far apart neighbours along each lie in each operand: 0 where it repeats. The
 * last axis of an operand has step 0 or 1. */
typedef struct gr_spread {
    int rank; /* 1 or more */
    int64_t dim[BY_MAX_RANK];
    int64_t step[GR_SPREAD_MOST][BY_MAX_RANK];
} gr_spread;

/* Elements from one to the next along axis i of y, in x. */
static inline int64_t gr_spread_step(const by_tensor *y, const by_tensor *x, int i)
{
    const int axis = i - y->rank + x->rank;
    int64_t step = 1;
    if (by_elements(x) == 1 || axis < 0 || x->dim[axis] == 1)
        return 0;
    for (int k = axis + 1; k < x->rank; k++)
        step *= x->dim[k];
    return step;
}

/* Is b repeated as a whole under a: are its axes the last of a's, and a's those of y? */
static inline bool gr_repeats_whole(const by_tensor *y, const by_tensor *a, const by_tensor *b)
{
    int ones = 0;
    while (ones < b->rank && b->dim[ones] == 1)
        ones++;
    const int rank = b->rank - ones;
    if (by_elements(a) != by_elements(y))
        return false;
    return by_elements(b) == by_elements(a) ||
           (rank <= a->rank &&
            memcmp(a->dim + a->rank - rank, b->dim + ones, (size_t)rank * sizeof b->dim[0]) == 0);
}

static inline gr_spread gr_spread_of(const by_tensor *y, by_tensor *const *in, int count)
{
    gr_spread s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < y->rank; i++) {
        int64_t step[GR_SPREAD_MOST];
        bool joins = s.rank > 0; /* with the axis before it */
        if (y->dim[i] == 1)
            continue;
        for (int k = 0; k < count; k++) {
            step[k] = gr_spread_step(y, in[k], i);
            joins = joins && s.step[k][s.rank - 1] == step[k] * y->dim[i];
        }
        if (!joins)
            s.dim[s.rank++] = 1;
        s.dim[s.rank - 1] *= y->dim[i];
        for (int k = 0; k < count; k++)
            s.step[k][s.rank - 1] = step[k];
    }
    if (s.rank == 0)
        s.dim[s.rank++] = 1;
    return s;
}

#endif
