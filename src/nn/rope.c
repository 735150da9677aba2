/* rope.c - frequencies of rotary positions, in f32 and in the order of operations of the published models. */
#include <math.h>

#include "graph/frequencies.h"
#include "nn/nn.h"

static const double turn = 6.283185307179586;

/* YaRN (Peng et al. 2023): the pair that makes `rotations` rotations within the trained length. */
static double turning_pair(const nn_rope *r, int width, double rotations)
{
    return width * log(r->trained / (rotations * turn)) / (2 * log(r->theta));
}

/* High frequencies are kept, low ones are divided by the factor, those in between are mixed. */
static void yarn(const nn_rope *r, int width, float *f)
{
    double low = turning_pair(r, width, r->fast), high = turning_pair(r, width, r->slow);
    if (!r->exact_range) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, width - 1);
    if (low == high)
        high += 0.001;
    for (int i = 0; i < width / 2; i++) {
        const float power = (float)pow((double)(float)r->theta, (double)((float)(2 * i) / (float)width));
        const float slow = 1 / ((float)r->factor * power);
        const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1), keep = 1 - ramp;
        f[i] = slow * (1 - keep) + f[i] * keep;
    }
}

/* Llama 3.1: by wavelength, against the trained length. */
static void bands(const nn_rope *r, int width, float *f)
{
    const float longest = (float)(r->trained / r->low), shortest = (float)(r->trained / r->high);
    for (int i = 0; i < width / 2; i++) {
        const float length = (float)turn / f[i], factor = (float)r->factor;
        const float smooth = ((float)r->trained / length - (float)r->low) / (float)(r->high - r->low);
        if (length > longest)
            f[i] /= factor;
        else if (length >= shortest)
            f[i] = (1 - smooth) * f[i] / factor + smooth * f[i];
    }
}

by_tensor *nn_rotary(by_graph *g, by_tensor *x, by_tensor *positions, int head_dim, const nn_rope *r)
{
    const int width = r->partial > 0 ? (int)(head_dim * r->partial) : head_dim;
    float f[BY_MAX_ROTARY / 2];
    if (width < 2 || width > BY_MAX_ROTARY || width % 2)
        return by_graph_fail(g, "rotary positions: width %d is not an even number up to %d", width,
                             BY_MAX_ROTARY);
    for (int i = 0; i < width / 2; i++)
        f[i] = gr_rotary_frequency(r->theta, i, width);
    for (int i = 0; i < width / 2 && r->kind == NN_ROPE_LINEAR; i++)
        f[i] /= (float)r->factor;
    if (r->kind == NN_ROPE_YARN)
        yarn(r, width, f);
    if (r->kind == NN_ROPE_LLAMA3)
        bands(r, width, f);
    return by_rotary(g, x, positions,
                     &(by_rotary_spec){.head_dim = head_dim,
                                       .width = width,
                                       .interleaved = r->interleaved,
                                       .frequencies = f,
                                       .factor = (float)r->attention,
                                       .trained = r->kind == NN_ROPE_DYNAMIC ? r->trained : 0,
                                       .theta = (float)r->theta,
                                       .stretch = (float)r->factor});
}
