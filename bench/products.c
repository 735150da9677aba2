/* products.c - single linear layers on a GPU in bf16, by the clock: as they are, with +fp8, and with every
 * one in FP8, to see whether fp8.cu chooses right. Uses the public API alone; bench/fp8_gpu.sh builds and
 * runs it. products            the products of GPT-2 at widths of 768 to 4096, forward, and backward (w
 * stored (N, K)) products M K N      one product of M rows from K to N columns */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "banyan/graph.h"

enum { RUNS = 40, PATTERN = 1 << 20 };

static by_device *devices[3];

static void fail(const char *what)
{
    fprintf(stderr, "products: %s: %s\n", what, by_error_message());
    exit(1);
}

static void open_all(void)
{
    devices[0] = by_device_open("cuda", 0);
    devices[1] = by_device_open("cuda+fp8", 0);
    setenv("BANYAN_FP8", "all", 1);
    devices[2] = by_device_open("cuda+fp8", 0);
    if (!devices[0] || !devices[1] || !devices[2])
        fail("the GPU");
}

/* Noise between 0.5 and 1 of either sign, as bf16. */
static void fill(by_program *p, by_tensor *t, int64_t count)
{
    uint16_t *values = malloc((size_t)count * sizeof *values);
    uint32_t bits = 1;
    if (!values)
        fail("memory");
    for (int64_t i = 0; i < count; i++) {
        bits = bits * 1664525u + 1013904223u;
        values[i] = i < PATTERN ? (uint16_t)(0x3f00 | bits >> 25 | bits >> 9 << 15) : values[i - PATTERN];
    }
    if (by_write(p, t, values, (size_t)count * sizeof *values) != BY_OK)
        fail("input");
    free(values);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one product among many. */
static double seconds(by_device *d, int64_t m, int64_t k, int64_t n, bool kn, by_act act)
{
    by_params *none = by_params_new(d, BY_BF16);
    if (!none || by_params_freeze(none, false) != BY_OK)
        fail("parameters");
    by_graph *g = by_graph_new(&(by_graph_spec){.params = none});
    const int64_t rows[2] = {m, k}, weight[2] = {kn ? k : n, kn ? n : k};
    by_tensor *x = by_input(g, "x", BY_BF16, 2, rows), *w = by_input(g, "w", BY_BF16, 2, weight);
    by_tensor *b = by_input(g, "b", BY_BF16, 1, &n);
    by_output(g, "y", by_linear(g, x, w, b, &(by_linear_spec){.w_is_kn = kn, .act = act}));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    if (!p)
        fail("a product");
    fill(p, x, m * k);
    fill(p, w, k * n);
    fill(p, b, n);
    double begin = 0;
    for (int i = 0; i < 3 + RUNS; i++) {
        if (i == 3 && by_device_wait(d) == BY_OK)
            begin = now();
        if (by_run(p) != BY_OK)
            fail("a run");
    }
    if (by_device_wait(d) != BY_OK)
        fail("a run");
    const double took = (now() - begin) / RUNS;
    by_program_free(p);
    by_params_free(none);
    return took;
}

static void measure(int64_t m, int64_t k, int64_t n, bool kn, by_act act)
{
    double s[3];
    for (int i = 0; i < 3; i++)
        s[i] = seconds(devices[i], m, k, n, kn, act);
    printf("| %lld x %lld x %lld | %s%s | %.1f | %.0f | %.1f | %.1f | %.2f |\n", (long long)m, (long long)k,
           (long long)n, kn ? "(K, N)" : "(N, K)", act == BY_ACT_NONE ? "" : ", GELU", s[0] * 1e6,
           2e-12 * (double)m * (double)n * (double)k / s[0], s[1] * 1e6, s[2] * 1e6, s[0] / s[2]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int64_t widths[] = {768, 1024, 1600, 2048, 4096};
    open_all();
    printf("%s\n\n| M x K x N | w | bf16 us | TFLOP/s | +fp8 us | all in FP8 us | bf16 / all |\n",
           by_device_description(devices[1]));
    printf("|---|---|---|---|---|---|---|\n");
    if (argc == 4) {
        measure(atoll(argv[1]), atoll(argv[2]), atoll(argv[3]), true, BY_ACT_NONE);
        return 0;
    }
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int64_t c = widths[i], m = c < 1600 ? 32768 : 8192;
        measure(m, c, 3 * c, true, BY_ACT_NONE);
        measure(m, c, c, true, BY_ACT_NONE);
        measure(m, c, 4 * c, true, BY_GELU_TANH);
        measure(m, 4 * c, c, true, BY_ACT_NONE);
        measure(m, 3 * c, c, false, BY_ACT_NONE);
        measure(m, 4 * c, c, false, BY_ACT_NONE);
    }
    for (int i = 0; i < 3; i++)
        by_device_free(devices[i]);
    return 0;
}
