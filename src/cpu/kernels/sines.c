/* sines.c - sinusoidal positions (Vaswani et al. 2017). */
#ifndef T_NAME
#include <math.h>

#include "cpu/kernels/kernel.h"

#define BY_TEMPLATE "cpu/kernels/sines.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(sines)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->out[0]->type, sines, e, n)
}

#else /* ---- once per element type ---- */

/* The angle requires f64: at position 500, f32 has an error of 3e-5. */
static by_status FN(sines)(gr_exec *e, gr_node *n)
{
    const int64_t width = ((const gr_sines_attr *)n->attr)->width, half = width / 2, cosines = width - half;
    const int64_t count = gr_tensor_rows(n->out[0]);
    const int32_t *p = n->in[0]->data;
    T *y = n->out[0]->data;
    BY_BRANCH("sines " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count * width >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < cosines; i++) {
        const double slow = pow(10000.0, 2.0 * (double)i / (double)width);
        for (int64_t r = 0; r < count; r++) {
            y[r * width + i] = ST((R)sin((double)p[r] / slow));
            if (i < half)
                y[r * width + cosines + i] = ST((R)cos((double)p[r] / slow));
        }
    }
    return BY_OK;
}
#endif
