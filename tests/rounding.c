/* rounding.c - bf16 parameters that have no f32 masters: every update is rounded up or down by chance.
 * Included by the tests of the CPU and of the GPU, behind cmocka.h and banyan.h. */
#include <math.h>

/* bf16 numbers are so far apart in [1, 2) and in [0.5, 1). */
static const double ULP = 0x1p-7, ULP_BELOW = 0x1p-8;

static const char *const optimizer_names[] = {"AdamW", "SGD", "Adafactor"};

/* A list of one vector of n values. */
static by_params *vector_of(by_device *d, int64_t n, const float *values)
{
    by_params *p = by_params_new(d, BY_BF16);
    assert_non_null(p);
    assert_int_equal(gr_params_declare(p, "w", 1, &n, (by_init){BY_INIT_ZERO, 0}), 0);
    assert_int_equal(by_params_without_masters(p), BY_OK);
    assert_int_equal(by_params_freeze(p, true), BY_OK);
    assert_int_equal(by_params_set(p, 0, BY_SLOT_VALUE, values), BY_OK);
    return p;
}

/* Steps first, first + 1, ... with the same gradients; the values afterwards, to be freed. */
static float *updated(by_device *d, by_optimizer kind, uint64_t seed, int64_t first, int steps, double rate,
                      int64_t n, const float *values, const float *grads)
{
    by_params *p = vector_of(d, n, values);
    by_update *u = by_update_new(p, &(by_optimizer_spec){.kind = kind, .seed = seed});
    assert_non_null(u);
    assert_int_equal(by_params_set(p, 0, BY_SLOT_GRAD, grads), BY_OK);
    for (int i = 0; i < steps; i++)
        assert_int_equal(by_update_run(u, rate, first + i, NULL), BY_OK);
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, out), BY_OK);
    by_update_free(u);
    by_params_free(p);
    return out;
}

static void fill(float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

/* One step from 1 to a place between two neighbours: as many go to each as it is near to the other. To the
 * nearest, all would go to one. With gradients of 1 the first step of each optimiser is `rate`. */
static void check_shares(by_device *d, by_optimizer kind, float sign)
{
    static const double fractions[] = {0.03, 0.3, 0.5, 0.9};
    enum { N = 20000 };
    float *w = malloc(N * sizeof *w), *g = malloc(N * sizeof *g);
    assert_true(w && g);
    fill(w, N, sign);
    fill(g, N, sign);
    for (int k = 0; k < BY_COUNT(fractions); k++) {
        const double f = fractions[k], exact = 1 - f * ULP_BELOW;
        float *out = updated(d, kind, 1, 1, 1, f * ULP_BELOW, N, w, g);
        int64_t far = 0;
        double mean = 0;
        for (int64_t i = 0; i < N; i++) {
            assert_true(out[i] == sign || out[i] == sign * (float)(1 - ULP_BELOW));
            far += out[i] != sign;
            mean += (double)(sign * out[i]) / N;
        }
        const double sigma = sqrt(f * (1 - f) / N);
        if (fabs((double)far / N - f) > 5 * sigma || fabs(mean - exact) > 5 * sigma * ULP_BELOW)
            fail_msg("%s, %g of the way to the next number: %g of all went there, the mean is %.9g, not %.9g",
                     optimizer_names[kind], f, (double)far / N, mean, exact);
        free(out);
    }
    free(w);
    free(g);
}

/* Many steps far smaller than the numbers are apart: the mean moves by their sum, and the elements spread as
 * independent throws do. To the nearest, nothing would ever move. */
static void check_walk(by_device *d)
{
    enum { N = 4000, STEPS = 300 };
    const double p = 0.02;
    float *w = malloc(N * sizeof *w), *g = malloc(N * sizeof *g);
    assert_true(w && g);
    fill(w, N, 1.5f);
    fill(g, N, 1);
    float *out = updated(d, BY_SGD, 7, 1, STEPS, p * ULP, N, w, g);
    double mean = 0, square = 0;
    for (int64_t i = 0; i < N; i++)
        mean += (1.5 - (double)out[i]) / ULP / N;
    for (int64_t i = 0; i < N; i++)
        square += pow((1.5 - (double)out[i]) / ULP - mean, 2) / N;
    const double variance = STEPS * p * (1 - p);
    if (fabs(mean - STEPS * p) > 5 * sqrt(variance / N) || fabs(square / variance - 1) > 5 * sqrt(2.0 / N))
        fail_msg("after %d steps of %g: moved by %g, variance %g instead of %g", STEPS, p, mean, square,
                 variance);
    free(out);
    free(w);
    free(g);
}

/* Noise that is the same everywhere: multiples of 2^-6 in (-2, 2), so that SGD with a rate of a power of 2 is
 * exact before it is rounded. */
static void noise_of(float *x, int64_t n, uint64_t stream)
{
    base_rng r = base_rng_make(11, stream);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)base_rng_below(&r, 255) - 127) * 0x1p-6f;
}

static int64_t differing(const float *x, const float *y, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += x[i] != y[i];
    return count;
}

/* The chances are a function of seed, step and place: the same again, others for others. `other`: a second
 * device, whose arithmetic may differ in the last bit of f32, which hardly ever decides. */
static void check_same(by_device *d, by_device *other, by_optimizer kind)
{
    enum { N = 30011 };
    float *w = malloc(N * sizeof *w), *g = malloc(N * sizeof *g);
    assert_true(w && g);
    noise_of(w, N, 1);
    noise_of(g, N, 2);
    const double rate = 0x1p-9;
    float *once = updated(d, kind, 5, 9, 1, rate, N, w, g), *again = updated(d, kind, 5, 9, 1, rate, N, w, g),
          *seed = updated(d, kind, 6, 9, 1, rate, N, w, g), *step = updated(d, kind, 5, 10, 1, rate, N, w, g),
          *there = updated(other, kind, 5, 9, 1, rate, N, w, g);
    assert_int_equal(differing(once, again, N), 0);
    assert_true(differing(once, seed, N) > N / 20);
    assert_true(differing(once, step, N) > N / 20);
    assert_in_range(differing(once, there, N), 0, kind == BY_SGD ? 0 : N / 1000);
    float *all[] = {once, again, seed, step, there, w, g};
    for (int i = 0; i < BY_COUNT(all); i++)
        free(all[i]);
}

static void check_rounding(by_device *d, by_device *other)
{
    for (int kind = 0; kind < BY_COUNT(optimizer_names); kind++) {
        check_shares(d, (by_optimizer)kind, 1);
        check_shares(d, (by_optimizer)kind, -1);
        check_same(d, other, (by_optimizer)kind);
    }
    check_walk(d);
}
