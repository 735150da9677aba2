/* peak.c - measures how fast the device multiplies matrices, the reference for every "share of peak", and how
 * fast it copies. */
#include <math.h>

#include "graph/graph.h"

#define ROUNDS  6
#define SECONDS 0.25 /* minimum duration, so that a short disturbance does not matter */

/* Random values: power-limited chips run faster on zeros than on real data. */
static by_status fill(by_program *p, by_tensor *t, uint64_t seed)
{
    const size_t n = (size_t)by_elements(t), bytes = gr_tensor_bytes(t);
    float *values = base_alloc(n * sizeof *values);
    void *typed = base_alloc(bytes);
    by_status s = BY_ERR_MEMORY;
    if (values && typed) {
        base_rng r = base_rng_make(seed, 0);
        uint32_t bits = base_rng_u32(&r);
        for (size_t i = 0; i < n; i++) {
            bits = bits * 1664525u + 1013904223u;
            values[i] = (float)(int32_t)bits * 0x1p-31f;
        }
        base_convert(typed, t->type, values, BY_F32, n);
        s = by_write(p, t, typed, bytes);
    }
    base_free(values);
    base_free(typed);
    return s;
}

static double measure(by_params *params, by_dtype type)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
    if (!g)
        return NAN;
    /* A GPU needs more work to reach its peak. */
    const int probe = params->device->backend->probe ? params->device->backend->probe : 1024;
    int64_t side = probe > 4096 && by_dtype_size(type) >= 4 ? 4096 : probe;
    int64_t square[2] = {side, side};
    by_tensor *a = by_input(g, "a", type, 2, square), *b = by_input(g, "b", type, 2, square);
    by_output(g, "product", by_linear(g, a, b, NULL, NULL));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    double best = INFINITY;
    const double start = base_seconds();
    if (p && (fill(p, a, 1) != BY_OK || fill(p, b, 2) != BY_OK))
        p = (by_program_free(p), NULL);
    for (int i = 0; p && (i < ROUNDS || base_seconds() - start < SECONDS); i++) {
        double begin = base_seconds();
        if (by_run(p) != BY_OK || by_device_wait(params->device) != BY_OK)
            break;
        if (i > 0) /* the first warms up */
            best = BY_MIN(best, base_seconds() - begin);
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

double by_device_bandwidth(by_device *d)
{
    const size_t bytes = (size_t)(by_device_runs_ahead(d) ? 1 << 30 : 1 << 28);
    by_memory *from = by_memory_new(d, bytes), *to = by_memory_new(d, bytes);
    double best = INFINITY;
    for (int i = 0; from && to && i < ROUNDS; i++) {
        if (by_device_wait(d) != BY_OK)
            break;
        double begin = base_seconds();
        /* the first copy goes the other way, to touch memory that was never written */
        if (d->backend->copy(d, (i ? to : from)->data, (i ? from : to)->data, bytes) != BY_OK ||
            by_device_wait(d) != BY_OK)
            break;
        if (i > 0)
            best = BY_MIN(best, base_seconds() - begin);
    }
    by_memory_free(from);
    by_memory_free(to);
    return isfinite(best) ? 2.0 * (double)bytes / best : NAN;
}
