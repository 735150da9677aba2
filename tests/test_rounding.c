/* test_rounding.c - training bf16 parameters without f32 masters, on the CPU (rounding.c; test_cuda.c does
 * the same on a GPU): chances, memory, what is refused, and that a model learns as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "banyan/banyan.h"
#include "child.h"
#include "graph/graph.h"
#include "rounding.c"

static by_device *device;

static void test_chances(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:avx512bf16"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        by_device *d = by_device_open(names[i], 2);
        if (!d) {
            print_message("not tested: %s (%s)\n", names[i], by_error_message());
            continue;
        }
        check_rounding(d, device);
        by_device_free(d);
    }
}

/* What needs no rounding stays what it is, up to the largest number; what is none stays none. */
static void test_ends(void **state)
{
    (void)state;
    const float w[] = {0x1.fep127f, -0x1.fep127f, 0, -0.0f, 0x1p-133f, NAN}, g[6] = {0};
    for (int64_t step = 1; step < 20; step++) {
        float *out = updated(device, BY_SGD, 1, step, 1, 1, 6, w, g);
        for (int i = 0; i < 5; i++)
            assert_true(out[i] == w[i]);
        assert_true(isnan(out[5]));
        free(out);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_F16, BY_F64};
    by_model_shape shape = {.layers = 1, .heads = 1, .width = 8, .context = 4, .vocab = 5};
    for (int i = 0; i < BY_COUNT(types); i++) {
        by_model_spec spec = {.dtype = types[i], .training = true, .stochastic_rounding = true};
        assert_null(by_model_new(device, "gpt2", &shape, &spec));
        assert_int_equal(base_error_status(), BY_ERR_UNSUPPORTED);
        assert_contains(by_error_message(), "stochastic rounding is for parameters of bf16, not of");
        assert_contains(by_error_message(), by_dtype_name(types[i]));
    }
    by_params *p = vector_of(device, 3, (float[]){1, 2, 3});
    assert_int_equal(by_params_without_masters(p), BY_ERR_ARGUMENT);
    by_params_free(p);
}

/* The mean loss of the last of 300 steps on rows whose tokens follow from each other. */
static double learn(by_dtype type, bool gr_stochastic, size_t *bytes)
{
    enum { V = 17, T = 12, B = 8, STEPS = 300 };
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 32, .context = T, .vocab = V};
    by_model *m = by_model_new(
        device, "gpt2", &shape,
        &(by_model_spec){.dtype = type, .training = true, .stochastic_rounding = gr_stochastic, .seed = 3});
    assert_non_null(m);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.seed = 4});
    assert_non_null(t);
    *bytes = by_trainer_state_bytes(t);
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[B * T], targets[B * T];
        for (int r = 0; r < B; r++)
            for (int i = 0, x = (step + 5 * r) % V; i < T; i++) {
                tokens[r * T + i] = x;
                targets[r * T + i] = x = (3 * x + 1 + i) % V;
            }
        by_batch b = by_batch_of(B, T, tokens);
        by_batch_put_tokens(&b, "targets", targets);
        double loss;
        assert_int_equal(by_trainer_backward(t, &b, true, &loss), BY_OK);
        assert_int_equal(by_trainer_update(t, 1e-3, NULL), BY_OK);
        sum += step >= STEPS - 20 ? loss / 20 : 0;
    }
    by_trainer_free(t);
    by_model_free(m);
    return sum;
}

static void test_learns(void **state)
{
    (void)state;
    size_t wide, mastered, alone;
    const double f32 = learn(BY_F32, false, &wide), masters = learn(BY_BF16, false, &mastered),
                 chance = learn(BY_BF16, true, &alone);
    print_message("loss %.4f in f32, %.4f in bf16 with masters, %.4f by chance\n", f32, masters, chance);
    assert_true(masters < 0.5 && chance < 0.5); /* log(17) is 2.83 */
    assert_true(chance < masters + 0.1);
    assert_int_equal(wide % 16, 0); /* 4 bytes each for value, gradient and two moments */
    assert_int_equal(mastered, wide / 16 * 18);
    assert_int_equal(alone, wide / 16 * 14);
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chances),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_learns),
    };
    return cmocka_run_group_tests_name("rounding", tests, set_up, tear_down);
}
