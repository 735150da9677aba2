/* peak.c - how fast this device multiplies matrices: the yardstick of every "share of peak". Measured, never
 * looked up. */
#include <math.h>

#include "graph/graph.h"

#define SIDE   1024
#define ROUNDS 6

static double measure(by_params *params, by_dtype type)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
    if (!g)
        return NAN;
    int64_t square[2] = {SIDE, SIDE};
    by_tensor *a = by_input(g, "a", type, 2, square),
              *b = by_input(g, "b", type, 2, square); /* zeros: as fast as any */
    by_output(g, "product", by_linear(g, a, b, NULL, NULL));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    double best = INFINITY;
    for (int i = 0; p && i < ROUNDS; i++) {
        double begin = by_seconds();
        if (by_run(p) != BY_OK)
            break;
        if (i > 0) /* the first warms up */
            best = BY_MIN(best, by_seconds() - begin);
    }
    double flops = p ? by_program_flops(p) : NAN;
    by_program_free(p);
    return isfinite(best) ? flops / best : NAN;
}

double by_device_peak(by_device *d, by_dtype type)
{
    by_params *none = by_params_new(d, type);
    double rate = none && by_params_freeze(none, false) == BY_OK ? measure(none, type) : NAN;
    by_params_free(none);
    return rate;
}
