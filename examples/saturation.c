/* saturation.c - why attention divides by sqrt(D). Queries and keys are normal random vectors of D elements; scores are
 * their dot products, with and without the factor 1/sqrt(D). Without it the variance of the scores is D: softmax
 * becomes an argmax, and its gradient vanishes. Prints a table by D: the mean highest weight of a query, and the
 * median over the queries of the norm of the gradient of the scores, for a random linear loss of the weights.
 *
 *   saturation [DEVICE] */
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { QUERIES = 512, KEYS = 64 };

typedef struct result {
    double highest, gradient;
} result;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_norm(const float *gradient)
{
    double norms[QUERIES] = {0};
    for (int t = 0; t < QUERIES; t++) {
        for (int s = 0; s < KEYS; s++)
            norms[t] += (double)gradient[t * KEYS + s] * (double)gradient[t * KEYS + s];
        norms[t] = sqrt(norms[t]);
    }
    qsort(norms, QUERIES, sizeof *norms, by_value);
    return (norms[QUERIES / 2 - 1] + norms[QUERIES / 2]) / 2;
}

static double mean_highest(const float *weights)
{
    double sum = 0;
    for (int t = 0; t < QUERIES; t++) {
        float most = 0;
        for (int s = 0; s < KEYS; s++)
            most = weights[t * KEYS + s] > most ? weights[t * KEYS + s] : most;
        sum += (double)most;
    }
    return sum / QUERIES;
}

/* The parameter "probe" is zero and is added to the scores: its gradient is theirs. */
static by_program *compile(by_params *params, int64_t d, double scale, by_tensor **weights)
{
    const int64_t queries[] = {QUERIES, d}, keys[] = {KEYS, d};
    const int64_t pairs[] = {QUERIES, KEYS}, all[] = {QUERIES * KEYS};
    const by_init normal = {BY_INIT_NORMAL, 1}, zero = {BY_INIT_ZERO, 0};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_tensor *q = by_param(g, "q", 2, queries, normal), *k = by_param(g, "k", 2, keys, normal);
    by_tensor *scores = by_scale(g, by_matmul(g, q, k, false, true), scale); /* (QUERIES, KEYS) */
    *weights =
        by_output(g, "weights", by_softmax(g, by_add(g, scores, by_param(g, "probe", 2, pairs, zero))));
    by_tensor *loss = by_mul(g, *weights, by_param_fixed(g, "loss", 2, pairs, normal));
    loss = by_sum(g, by_reshape(g, loss, 1, all), 0);
    if (by_params_freeze(params, true) != BY_OK || by_params_init(params, 7) != BY_OK) {
        by_graph_free(g);
        return NULL;
    }
    return by_compile(g, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
}

static by_status measure(by_device *device, int64_t d, double scale, result *out)
{
    static float weights[QUERIES * KEYS], gradient[QUERIES * KEYS];
    by_tensor *kept;
    by_params *params = by_params_new(device, BY_F32);
    by_program *p = compile(params, d, scale, &kept);
    by_status s = p ? by_run(p) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_read_f32(p, kept, weights);
    if (s == BY_OK)
        s = by_params_get(params, by_params_find(params, "probe"), BY_SLOT_GRAD, gradient);
    *out = (result){mean_highest(weights), median_norm(gradient)};
    by_program_free(p);
    by_params_free(params);
    return s;
}

int main(int argc, char **argv)
{
    by_device *device = by_device_open(argc > 1 ? argv[1] : "cpu", 0);
    by_status s = device ? BY_OK : BY_ERR_ARGUMENT;
    printf("%6s  %22s  %22s\n", "", "scores / sqrt(D)", "scores as they are");
    printf("%6s  %10s  %10s  %10s  %10s\n", "D", "highest", "gradient", "highest", "gradient");
    for (int64_t d = 1; d <= 1024 && s == BY_OK; d *= 4) {
        result scaled, plain;
        s = measure(device, d, 1 / sqrt((double)d), &scaled);
        if (s == BY_OK)
            s = measure(device, d, 1, &plain);
        if (s == BY_OK)
            printf("%6d  %10.4f  %10.4f  %10.4f  %10.4f\n", (int)d, scaled.highest, scaled.gradient,
                   plain.highest, plain.gradient);
    }
    if (s != BY_OK)
        fprintf(stderr, "saturation: %s\n", by_error_message());
    by_device_free(device);
    return s == BY_OK ? 0 : 1;
}
