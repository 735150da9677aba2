/* draw.c - samples from softmax(x / temperature): the first index where the running sum of the weights
 * exceeds a random fraction of their total. Sums are in double. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

/* The number of a row's place, which then grows by one. */
static double next_uniform(int32_t *draws)
{
    const uint64_t seed = (uint64_t)(uint32_t)draws[1] << 32 | (uint32_t)draws[0];
    const uint64_t stream = (uint64_t)(uint32_t)draws[3] << 32 | (uint32_t)draws[2];
    return base_uniform_at(seed, stream, (uint32_t)draws[4]++);
}

#define BY_TEMPLATE "cpu/kernels/draw.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(draw)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, draw, e, n)
}

#else /* ---- once per element type ---- */

/* Infinity where a logit is NaN. */
static R FN(highest_logit)(const T *x, int64_t count)
{
    R top = (R)-INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const R v = LD(x[i]);
        top = v > top ? v : top;
        if (!(v < (R)INFINITY))
            return (R)INFINITY;
    }
    return top;
}

static int32_t FN(draw_row)(const T *x, int64_t count, R temperature, double u)
{
    const R top = FN(highest_logit)(x, count);
    double total = 0, sum = 0;
    int64_t last = 0;
    if (!(top > (R)-INFINITY && top < (R)INFINITY))
        return -1;
    for (int64_t i = 0; i < count; i++)
        total += (double)R_EXP((LD(x[i]) - top) / temperature);
    for (int64_t i = 0; i < count && sum <= u * total; i++) {
        const R weight = R_EXP((LD(x[i]) - top) / temperature);
        sum += (double)weight;
        last = weight > 0 ? i : last;
    }
    return (int32_t)last;
}

static by_status FN(draw)(gr_exec *e, gr_node *n)
{
    const T *x = n->in[0]->data;
    const float *temperature = n->in[1]->data;
    int32_t *draws = n->in[2]->data, *y = n->out[0]->data;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]),
                  pitch = gr_tensor_pitch(n->in[0]);
    BY_BRANCH("draw " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (rows > 1 && rows * cols >= BY_FORK_ELEMENTS / 8)
    for (int64_t r = 0; r < rows; r++)
        y[r] = FN(draw_row)(x + r * pitch, cols, (R)temperature[r], next_uniform(draws + 5 * r));
    return BY_OK;
}
#endif
