/* growth.c - how the time and the memory of attention for long texts grow with the length: forward and backward,
 * 12 heads of 64, one text, bf16 on a GPU. Uses the public API alone.
 *
 *     cc -O2 -Iinclude bench/growth.c -o growth -Lbuild -lbanyan -lm && ./growth [DEVICE]
 *
 * Prints, by kind and length, milliseconds and bytes, and the exponent that fits the times best. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "banyan/graph.h"

enum {
    HEADS = 12,
    WIDTH = 768,
    PROJECTED = 256,
    WINDOW = 512,
    GLOBALS = 16,
    BLOCK = 64,
    RANDOM = 3,
    RUNS = 10
};

static by_device *device;

static void fail(const char *what)
{
    fprintf(stderr, "growth: %s: %s\n", what, by_error_message());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static by_tensor *rows(by_graph *g, const char *name, int64_t n)
{
    return by_param(g, name, 3, (int64_t[]){1, n, WIDTH}, (by_init){BY_INIT_NORMAL, 1});
}

static by_tensor *dense(by_graph *g, int64_t n)
{
    return by_attention(g, rows(g, "q", n), rows(g, "k", n), rows(g, "v", n),
                        &(by_attention_spec){.heads = HEADS});
}

static by_tensor *linformer(by_graph *g, int64_t n)
{
    by_tensor *e = by_param(g, "e", 2, (int64_t[]){PROJECTED, n}, (by_init){BY_INIT_NORMAL, 0.01f});
    by_tensor *f = by_param(g, "f", 2, (int64_t[]){PROJECTED, n}, (by_init){BY_INIT_NORMAL, 0.01f});
    by_tensor *k = by_matmul(g, e, rows(g, "k", n), false, false);
    by_tensor *v = by_matmul(g, f, rows(g, "v", n), false, false);
    return by_attention(g, rows(g, "q", n), k, v, &(by_attention_spec){.heads = HEADS});
}

static by_tensor *window(by_graph *g, int64_t n)
{
    const by_pattern pattern = {BY_PATTERN_WINDOW, .before = WINDOW / 2, .after = WINDOW / 2};
    return by_attention(g, rows(g, "q", n), rows(g, "k", n), rows(g, "v", n),
                        &(by_attention_spec){.heads = HEADS, .pattern = pattern, .empty_zero = true});
}

static by_tensor *longformer(by_graph *g, int64_t n)
{
    const by_pattern pattern = {BY_PATTERN_SINKS, .length = GLOBALS, .before = WINDOW / 2,
                                .after = WINDOW / 2};
    return by_attention(g, rows(g, "q", n), rows(g, "k", GLOBALS + n), rows(g, "v", GLOBALS + n),
                        &(by_attention_spec){.heads = HEADS, .pattern = pattern, .empty_zero = true});
}

static by_tensor *blocks; /* the mask, which is filled before the run */

static by_tensor *bigbird(by_graph *g, int64_t n)
{
    const int64_t shape[] = {1, HEADS, n / BLOCK, n / BLOCK};
    blocks = by_input(g, "blocks", BY_I32, 4, shape);
    return by_attention(
        g, rows(g, "q", n), rows(g, "k", n), rows(g, "v", n),
        &(by_attention_spec){.heads = HEADS, .pair_mask = blocks, .pair_block = BLOCK, .empty_zero = true});
}

static void fill_blocks(by_program *p)
{
    const int64_t n = by_dim(blocks, 2);
    int32_t *mask = calloc((size_t)by_elements(blocks), sizeof *mask);
    uint32_t bits = 1;
    for (int64_t row = 0; mask && row < HEADS * n; row++) {
        const int64_t i = row % n;
        for (int64_t j = 0; j < n; j++)
            mask[row * n + j] = i == 0 || i == n - 1 || j == 0 || j == n - 1 || llabs(i - j) <= 1;
        for (int k = 0; k < RANDOM; k++)
            mask[row * n + (bits = bits * 1664525u + 1013904223u) / 65536 % n] = 1;
    }
    if (!mask || by_write(p, blocks, mask, (size_t)by_elements(blocks) * sizeof *mask) != BY_OK)
        fail("blocks");
    free(mask);
}

/* Milliseconds of a forward and backward pass. */
static double measure(by_tensor *(*build)(by_graph *g, int64_t n), int64_t n, size_t *bytes)
{
    by_params *params = by_params_new(device, BY_BF16);
    by_program *p = NULL;
    blocks = NULL;
    for (int turn = 0; turn < 2; turn++) { /* declare the parameters, then compile */
        by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
        by_tensor *y = by_reshape(g, by_cast(g, build(g, n), BY_F32), 1, (int64_t[]){-1});
        by_tensor *loss = by_mean(g, y, 0);
        if (turn == 1)
            p = by_compile(g, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
        else
            by_graph_free(g);
        if (turn == 0 && (by_params_freeze(params, true) != BY_OK || by_params_init(params, 1) != BY_OK))
            fail("parameters");
    }
    if (!p)
        fail("compile");
    if (blocks)
        fill_blocks(p);
    for (int i = 0; i < 3; i++)
        by_run(p);
    if (by_device_wait(device) != BY_OK)
        fail("run");
    const double start = now();
    for (int i = 0; i < RUNS; i++)
        by_run(p);
    if (by_device_wait(device) != BY_OK)
        fail("run");
    const double ms = 1e3 * (now() - start) / RUNS;
    *bytes = by_program_bytes(p);
    by_program_free(p);
    by_params_free(params);
    return ms;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        by_tensor *(*build)(by_graph *g, int64_t n);
    } kinds[] = {{"dense", dense},
                 {"linformer", linformer},
                 {"window", window},
                 {"longformer", longformer},
                 {"bigbird", bigbird}};
    const int64_t least = argc > 2 ? atoll(argv[2]) : 8192;
    device = by_device_open(argc > 1 ? argv[1] : "cuda", 0);
    if (!device)
        fail("device");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        double sx = 0, sy = 0, sxx = 0, sxy = 0;
        for (int i = 0; i < 4; i++) {
            const int64_t n = least << i;
            size_t bytes;
            const double ms = measure(kinds[k].build, n, &bytes), x = log((double)n), y = log(ms);
            printf("%-11s %6lld  %9.3f ms  %8.1f MB\n", kinds[k].name, (long long)n, ms, (double)bytes / 1e6);
            fflush(stdout);
            sx += x, sy += y, sxx += x * x, sxy += x * y;
        }
        printf("%-11s time grows as n^%.3f\n", kinds[k].name, (4 * sxy - sx * sy) / (4 * sxx - sx * sx));
    }
    by_device_free(device);
    return 0;
}
