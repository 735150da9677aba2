/* vit_forward.c - how long a Vision Transformer takes to classify a batch of random pictures, for bench/vit.sh.
 *   cc -O2 -Iinclude bench/vit_forward.c -o vit_forward -L build -lbanyan -lm
 *   ./vit_forward MODEL BATCH THREADS STEPS
 * One JSON line: milliseconds (median, least), least processor milliseconds of all threads, and the sum of the absolute logits, by which the
 * peer's result is compared. */
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(bool ok)
{
    if (ok)
        return;
    fprintf(stderr, "vit_forward: %s\n", by_error_message());
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The peer draws the same pixels, from -1 to 1. */
static void fill(float *x, size_t n)
{
    uint64_t random = 1;
    for (size_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(random >> 40) / 8388608.0f - 1;
    }
}

int main(int argc, char **argv)
{
    by_pictures size;
    if (argc != 5) {
        fprintf(stderr, "usage: vit_forward MODEL BATCH THREADS STEPS\n");
        return 2;
    }
    const int batch = atoi(argv[2]), steps = atoi(argv[4]), warm = 3;
    by_device *device = by_device_open("cpu", atoi(argv[3]));
    check(device != NULL);
    by_model *model = by_model_open(device, argv[1], &(by_model_spec){0});
    check(model && by_model_pictures(model, &size));
    const size_t n = (size_t)batch * (size_t)size.channels * (size_t)size.height * (size_t)size.width;
    float *pixels = malloc(n * sizeof *pixels);
    double *wall = malloc((size_t)steps * sizeof *wall), least = INFINITY, sum = 0;
    if (!pixels || !wall)
        return 1;
    fill(pixels, n);
    const by_batch b = by_batch_of_pictures(model, batch, size.height, size.width, pixels);
    by_pass *pass = by_pass_new(model, &b, &(by_pass_spec){0});
    check(pass != NULL);
    for (int i = -warm; i < steps; i++) {
        const double begin = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        check(by_pass_run(pass, &b) == BY_OK);
        if (i < 0)
            continue;
        wall[i] = seconds(CLOCK_MONOTONIC) - begin;
        least = fmin(least, seconds(CLOCK_PROCESS_CPUTIME_ID) - used);
    }
    const int labels = by_model_labels(model);
    float *logits = malloc((size_t)batch * (size_t)labels * sizeof *logits);
    check(logits && by_pass_read(pass, by_io_output(by_pass_io(pass), "logits"), logits) == BY_OK);
    for (int i = 0; i < batch * labels; i++)
        sum += fabs((double)logits[i]);
    qsort(wall, (size_t)steps, sizeof *wall, ascending);
    printf("{\"ms\":%.2f,\"ms_least\":%.2f,\"cpu_ms_least\":%.2f,\"sum\":%.6g}\n", 1e3 * wall[steps / 2],
           1e3 * wall[0], 1e3 * least, sum);
    free(logits);
    free(wall);
    free(pixels);
    by_pass_free(pass);
    by_model_free(model);
    by_device_free(device);
}
