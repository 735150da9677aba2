/* interpolation.c - the matrix that resizes a table of positions. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "graph/cubic.h"

#define BY_TEMPLATE "cpu/kernels/interpolation.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(interpolation)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->out[0]->type, interpolation, e, n)
}

#else /* ---- once per element type ---- */

static by_status FN(interpolation)(gr_exec *e, gr_node *n)
{
    const gr_interpolation_attr a = *(const gr_interpolation_attr *)n->attr;
    T *y = n->out[0]->data;
    (void)e;
    BY_BRANCH("interpolation " BY_STRING(T_NAME));
    for (int64_t o = 0; o < a.out; o++)
        for (int64_t i = 0; i < a.in; i++)
            y[o * a.in + i] = ST((R)gr_cubic_weight(o, a.out, i, a.in));
    return BY_OK;
}
#endif
