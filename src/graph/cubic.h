/* cubic.h - the weights of cubic convolution (Keys 1981), for the backends. */
#ifndef BY_GRAPH_CUBIC_H
#define BY_GRAPH_CUBIC_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GR_CUBIC static __host__ __device__ __forceinline__
#else
#define GR_CUBIC static inline
#endif

GR_CUBIC double gr_cubic_kernel(double x)
{
    const double a = -0.75;
    x = fabs(x);
    return x <= 1  ? ((a + 2) * x - (a + 3)) * x * x + 1
           : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
                   : 0;
}

/* The weight of element i of `in` in element o of `out`. Elements are intervals of equal length over the same
 * range; end elements are repeated. */
GR_CUBIC double gr_cubic_weight(int64_t o, int64_t out, int64_t i, int64_t in)
{
    const double at = ((double)o + 0.5) * ((double)in / (double)out) - 0.5, left = floor(at);
    double sum = 0;
    for (int k = -1; k <= 2; k++) {
        const int64_t tap = (int64_t)left + k, inside = tap < 0 ? 0 : tap >= in ? in - 1 : tap;
        if (inside == i)
            sum += gr_cubic_kernel(at - (double)tap);
    }
    return sum;
}

#endif
