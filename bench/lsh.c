/* lsh.c - how the cost of attention within buckets grows with the length of the text: hashing, sorting, attention and its
 * gradient for one text of 8 heads of 64, chunks of 64 that see the chunk before.
 *   cc -O2 -Iinclude bench/lsh.c -o lsh -L build -lbanyan -lm
 *   ./lsh [DEVICE [TYPE [ROUNDS [SHORTEST [LONGEST]]]]] */
#define _POSIX_C_SOURCE 200809L
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 8, DIM = 64, WIDTH = HEADS * DIM, CHUNK = 64, RUNS = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static by_program *build(by_params *params, int64_t n, int rounds)
{
    const by_init normal = {BY_INIT_NORMAL, 1};
    const int64_t shape[] = {1, n, WIDTH}, heads[] = {1, n, HEADS, DIM}, dim = DIM;
    const int factors[] = {32, 64};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_tensor *qk = by_param(g, "qk", 3, shape, normal), *v = by_param(g, "v", 3, shape, normal);
    by_tensor *turn = by_random(g, BY_RANDOM_NORMAL, BY_F32, 4, (int64_t[]){HEADS, DIM, rounds, 48}, 1);
    by_tensor *order = by_argsort(g, by_hash(g, qk, turn, NULL, 2, factors), false);
    by_tensor *k = by_rmsnorm(g, by_reshape(g, qk, 4, heads), by_fill(g, by_type(qk), 1, &dim, 1), 1e-6f);
    by_tensor *y = by_chunked_attention(
        g, qk, by_reshape(g, k, 3, shape), v,
        &(by_chunked_spec){
            .heads = HEADS, .chunk = CHUNK, .before = 1, .causal = true, .avoid_self = true, .order = order});
    by_tensor *loss = by_mean(g, by_reshape(g, y, 1, (int64_t[]){n * WIDTH}), 0);
    if (by_params_freeze(params, true) || by_params_init(params, 1))
        return NULL;
    return by_compile(g, &(by_compile_spec){.loss = by_cast(g, loss, BY_F32), .grads = BY_GRAD_STORE});
}

/* Seconds of one run, negative on failure; *bytes: planned activations. */
static double measure(by_device *device, by_dtype type, int64_t n, int rounds, size_t *bytes)
{
    by_params *params = by_params_new(device, type);
    by_program *p = params ? build(params, n, rounds) : NULL;
    double best = -1;
    for (int i = 0; p && i < 3 + RUNS; i++) {
        const double start = now();
        if (by_run(p) || by_device_wait(device))
            break;
        const double took = now() - start;
        best = i < 3 ? best : best < 0 || took < best ? took : best;
    }
    *bytes = p ? by_program_bytes(p) : 0;
    by_program_free(p);
    by_params_free(params);
    return best;
}

int main(int argc, char **argv)
{
    const char *type = argc > 2 ? argv[2] : "bf16";
    const int rounds = argc > 3 ? atoi(argv[3]) : 1;
    const int64_t least = argc > 4 ? atoll(argv[4]) : 8192, most = argc > 5 ? atoll(argv[5]) : 65536;
    by_device *device = by_device_open(argc > 1 ? argv[1] : "auto", 0);
    const by_dtype kind = strcmp(type, "f32") == 0 ? BY_F32 : strcmp(type, "f16") == 0 ? BY_F16 : BY_BF16;
    double x = 0, y = 0, xx = 0, xy = 0, count = 0;
    for (int64_t n = least; device && n <= most; n *= 2, count++) {
        size_t bytes;
        const double took = measure(device, kind, n, rounds, &bytes), a = log((double)n), b = log(took);
        if (took < 0)
            break;
        printf("%s, %d rounds, %6lld tokens: %8.3f ms, %7.1f MiB\n", type, rounds, (long long)n, 1e3 * took,
               (double)bytes / 1048576);
        x += a, y += b, xx += a * a, xy += a * b;
    }
    if (count < 1)
        return fprintf(stderr, "%s\n", by_error_message()), 1;
    printf("exponent %.3f\n", (count * xy - x * y) / (count * xx - x * x));
    by_device_free(device);
    return 0;
}
