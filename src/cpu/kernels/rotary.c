/* rotary.c - rotary positions (Su et al. 2021): rotates pairs of elements of every head by angles
 * proportional to the position. */
#ifndef T_NAME
#include <math.h>

#include "cpu/kernels/kernel.h"
#include "graph/frequencies.h"

#define BY_TEMPLATE "cpu/kernels/rotary.c"
#include "cpu/kernels/each_type.h"

/* The frequencies of this run: those of the attributes, or those for a text longer than the trained
 * length. */
static const float *frequencies(const gr_rotary_attr *a, const by_tensor *positions, float *space)
{
    const int32_t *p = positions->data;
    int64_t most = -1;
    if (a->trained <= 0)
        return a->frequency;
    for (int64_t i = 0; i < by_elements(positions); i++)
        most = BY_MAX(most, p[i]);
    if (most < a->trained)
        return a->frequency;
    BY_BRANCH("rotary, longer than trained");
    const double theta = gr_rotary_theta(a, most + 1);
    for (int i = 0; i < a->width / 2; i++)
        space[i] = gr_rotary_frequency(theta, i, a->width);
    return space;
}

by_status KERNEL(rotary)(gr_exec *e, gr_node *n)
{
    float space[BY_MAX_ROTARY / 2];
    const float *frequency = frequencies(n->attr, n->in[1], space);
    BY_DISPATCH(n->out[0]->type, rotary, e, n, frequency)
}

#else /* ---- once per element type ---- */

/* Rotates one head. Sines and cosines are those of f32 angles, as in the published models. */
static void FN(turn)(const gr_rotary_attr *a, const float *restrict cosine, const float *restrict sine,
                     const T *x, T *y)
{
    const int half = a->width / 2, step = a->interleaved ? 2 : 1, apart = a->interleaved ? 1 : half;
    for (int i = 0; i < half; i++) {
        const int at = i * step;
        const R one = LD(x[at]), two = LD(x[at + apart]), c = (R)cosine[i], s = (R)sine[i];
        y[at] = ST(one * c - two * s);
        y[at + apart] = ST(two * c + one * s);
    }
    for (int i = a->width; i < a->head_dim && x != y; i++)
        y[i] = x[i];
}

static by_status FN(rotary)(gr_exec *e, gr_node *n, const float *frequency)
{
    const gr_rotary_attr *a = n->attr;
    const int64_t rows = gr_tensor_rows(n->in[0]), width = gr_tensor_cols(n->in[0]),
                  heads = width / a->head_dim;
    const int64_t count = by_elements(n->in[1]);
    const int32_t *p = n->in[1]->data;
    const T *x = n->in[0]->data;
    T *y = n->out[0]->data;
    BY_BRANCH("rotary " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * width >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        float cosine[BY_MAX_ROTARY / 2], sine[BY_MAX_ROTARY / 2];
        for (int i = 0; i < a->width / 2; i++) {
            const float angle = (float)p[r % count] * frequency[i];
            cosine[i] = cosf(angle) * a->factor;
            sine[i] = (a->inverse ? -sinf(angle) : sinf(angle)) * a->factor;
        }
        for (int64_t h = 0; h < heads; h++)
            FN(turn)(a, cosine, sine, x + r * width + h * a->head_dim, y + r * width + h * a->head_dim);
    }
    return BY_OK;
}
#endif
