/* patterns.c - attention patterns by the clock, beside full causal attention: does the time follow the pairs
 * that are seen? Uses the public API alone.
 *   cc -O2 -Iinclude bench/patterns.c -o patterns -Lbuild -lbanyan -lm -Wl,-rpath,$PWD/build
 *   patterns [DEVICE [THREADS [HEADS [LONGEST [QUICK]]]]]     cpu, every core, 4 heads of 64, 16384 positions
 * With one thread the processor's time is taken, which other programs disturb less. A GPU is given many runs at once, so that
 * the time of starting one is not counted. "Both" is forward and backward, without the mean that is the loss. QUICK: 2,048
 * and the longest alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/graph.h"

enum { DIM = 64, ROUNDS = 5 };

static by_device *device;
static clockid_t watch = CLOCK_MONOTONIC;
static by_dtype type = BY_F32;
static int heads = 4, runs = 1; /* runs of a round */

static void fail(const char *what)
{
    fprintf(stderr, "patterns: %s: %s\n", what, by_error_message());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    if (by_device_wait(device) != BY_OK || clock_gettime(watch, &t) != 0)
        fail("the clock");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct cost {
    double forward, both, flops; /* seconds of the forward pass, of both passes; FLOP of the former */
} cost;

/* Seconds of a run in the best round. */
static double best_of(by_program *p)
{
    double best = INFINITY;
    for (int i = 0; i <= ROUNDS; i++) { /* the first captures a GPU's graph */
        const double begin = now();
        for (int k = 0; k < runs; k++)
            if (by_run(p) != BY_OK)
                fail("a run");
        const double took = (now() - begin) / runs;
        best = i > 0 ? fmin(best, took) : best;
    }
    return best;
}

/* Without a pattern: the loss alone, of a tensor as large as the result. */
static double seconds(int64_t n, const by_pattern *pattern, bool training, double *flops)
{
    const int64_t shape[3] = {1, n, (pattern ? 3 : 1) * (int64_t)heads * DIM};
    by_params *params = by_params_new(device, type);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = training});
    by_tensor *y = by_param(g, "qkv", 3, shape, (by_init){BY_INIT_NORMAL, 1});
    if (pattern)
        y = by_attention(g, y, NULL, NULL,
                         &(by_attention_spec){.heads = heads,
                                              .mask = BY_MASK_CAUSAL,
                                              .pattern = *pattern,
                                              .empty_zero = pattern->kind != BY_PATTERN_FULL});
    by_tensor *loss = y;
    for (int i = 0; i < 3 && training; i++)
        loss = by_mean(g, loss, -1);
    by_output(g, "y", loss);
    if (by_params_freeze(params, training) != BY_OK || by_params_init(params, 1) != BY_OK)
        fail("parameters");
    by_program *p = by_compile(g, &(by_compile_spec){.loss = training ? loss : NULL,
                                                     .grads = training ? BY_GRAD_STORE : BY_GRAD_NONE});
    if (!p)
        fail("a pattern");
    const double best = best_of(p);
    *flops = by_program_flops(p);
    by_program_free(p);
    by_params_free(params);
    return best;
}

static cost measure(int64_t n, const by_pattern *pattern)
{
    cost c;
    double ignored;
    c.forward = seconds(n, pattern, false, &c.flops);
    c.both = seconds(n, pattern, true, &ignored) - seconds(n, NULL, true, &ignored);
    return c;
}

static void show(int64_t n, const char *name, int length, const cost *c, const cost *full)
{
    const double share = c->flops / full->flops;
    printf("| %lld | %s %d | %.4f | %.3f | %.2f | %.3f | %.2f | %.3f |\n", (long long)n, name, length, share,
           c->forward * 1e3, c->forward / (share * full->forward), c->both * 1e3,
           c->both / (share * full->both), c->both / full->both);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int threads = argc > 2 ? atoi(argv[2]) : 0, longest = argc > 4 ? atoi(argv[4]) : 16384;
    const bool quick = argc > 5;
    device = by_device_open(argc > 1 ? argv[1] : "cpu", threads);
    if (!device)
        fail("the device");
    heads = argc > 3 ? atoi(argv[3]) : heads;
    watch = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    type = argc > 1 && strncmp(argv[1], "cuda", 4) == 0 ? BY_BF16 : BY_F32;
    runs = type == BY_BF16 ? 10 : 1;
    printf("%s\n\n| positions | pattern | share | forward ms | times full x share | both ms | times full x "
           "share | both, times full |\n",
           by_device_description(device));
    printf("|---|---|---|---|---|---|---|---|\n");
    for (int64_t n = 2048; n <= longest; n = quick && n < longest ? longest : 2 * n) {
        const int lengths[] = {64, 128, 512, 1024, 2048}; /* 64 and 128: about sqrt(n) */
        const cost full = measure(n, &(by_pattern){.kind = BY_PATTERN_FULL});
        show(n, "full", 0, &full, &full);
        for (int i = 0; i < 5 && lengths[i] < n; i++) {
            const int l = lengths[i];
            const by_pattern strided = {BY_PATTERN_STRIDED, .length = l};
            const by_pattern fixed = {BY_PATTERN_FIXED, .length = l, .after = 8};
            const by_pattern window = {BY_PATTERN_WINDOW, .before = l - 1};
            const cost a = measure(n, &strided), b = measure(n, &fixed), c = measure(n, &window);
            show(n, "strided", l, &a, &full);
            show(n, "fixed", l, &b, &full);
            show(n, "window", l, &c, &full);
        }
    }
    by_device_free(device);
    return 0;
}
