/* spread.h - broadcasting as in NumPy: axes are aligned at the last one, and an axis of 1, or a missing one,
 * repeats. Shared by the shape rules and the kernels. */
#ifndef BY_GRAPH_SPREAD_H
#define BY_GRAPH_SPREAD_H

#include "graph/graph.h"

enum { GR_SPREAD_MOST = 3 }; /* operands */

/* The result with merged axes, and the step of each operand along each axis: 0 where it repeats. The last
 * axis of an operand has step 0 or 1. */
typedef struct gr_spread {
    int rank; /* 1 or more */
    int64_t dim[BY_MAX_RANK];
    int64_t step[GR_SPREAD_MOST][BY_MAX_RANK];
} gr_spread;

/* The step in x along axis i of y, in elements. */
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

/* Whether b repeats as a whole: its axes are the last axes of a, and a has the shape of y. */
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
