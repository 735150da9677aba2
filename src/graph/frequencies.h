/* frequencies.h - frequencies of rotary positions as the published models compute them, in f32; for the backends,
 * and for the blocks that fill by_rotary_spec. */
#ifndef BY_GRAPH_FREQUENCIES_H
#define BY_GRAPH_FREQUENCIES_H

#include <math.h>

#include "graph/graph.h"

#ifdef __CUDACC__
#define GR_ROTARY static __host__ __device__ __forceinline__
#else
#define GR_ROTARY static inline
#endif

/* theta^(-2i / width). */
GR_ROTARY float gr_rotary_frequency(double theta, int i, int width)
{
    return 1.0f / (float)pow((double)(float)theta, (double)((float)(2 * i) / (float)width));
}

/* The base of dynamic NTK for a text of `length` positions, more than a->trained. */
GR_ROTARY double gr_rotary_theta(const gr_rotary_attr *a, int64_t length)
{
    const double stretch = (double)a->stretch, ratio = stretch * (double)length / (double)a->trained;
    return (double)a->theta * pow(ratio - (stretch - 1), (double)a->width / (double)(a->width - 2));
}

#endif
