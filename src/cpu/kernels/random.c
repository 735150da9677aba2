/* random.c - normal and uniform random numbers, four neighbours from one evaluation of the generator. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define TWO_PI 6.28318530717958647692

#define BY_TEMPLATE "cpu/kernels/random.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(random)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->out[0]->type, random, e, n)
}

#else /* ---- once per element type ---- */

/* The middle of one of 2^24 equal parts of (0, 1); exact in f32. */
static inline R FN(part)(uint32_t u)
{
    return ((R)(u >> 8) + (R)0.5) * (R)0x1p-24;
}

/* Two normal numbers from two uniform ones (Box and Muller 1958). */
static inline void FN(normal)(uint32_t u, uint32_t v, R *out)
{
    const R far = R_SQRT(-2 * R_LOG(FN(part)(u)));
    const double turn = TWO_PI * (double)FN(part)(v);
    out[0] = far * (R)cos(turn);
    out[1] = far * (R)sin(turn);
}

static by_status FN(random)(gr_exec *e, gr_node *n)
{
    const gr_random_attr *a = n->attr;
    const int64_t count = by_elements(n->out[0]);
    const R scale = (R)a->fill.value;
    const bool normal = a->kind == BY_RANDOM_NORMAL;
    T *y = n->out[0]->data;
    if (normal)
        BY_BRANCH("random " BY_STRING(T_NAME) ", normal");
    else
        BY_BRANCH("random " BY_STRING(T_NAME) ", uniform");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS / 8)
    for (int64_t i = 0; i < count; i += 4) {
        const base_philox r = cpu_random4(e, n, (uint64_t)i / 4);
        R v[4];
        for (int k = 0; k < 4 && !normal; k++)
            v[k] = 2 * FN(part)(r.v[k]) - 1;
        for (int k = 0; k < 4 && normal; k += 2)
            FN(normal)(r.v[k], r.v[k + 1], v + k);
        for (int64_t k = 0; k < BY_MIN(4, count - i); k++)
            y[i + k] = ST(v[k] * scale);
    }
    return BY_OK;
}
#endif
