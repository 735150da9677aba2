/* test_resident.c - decoding by one resident kernel against decoding node by node: the same logits to
 * rounding, step after step, on a GPU or an emulated one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "banyan/generate.h"
#include "generation.h"
#include "graph/graph.h"

enum { CONTEXT = 64, VOCAB = 67, PROMPT = 20, STEPS = 6, WIDTH = 128 };

/* cuda_context in src/cuda/cuda.h begins like this. */
typedef struct card {
    int index, arch;
    void (*planned)(const void *kernel);
} card;

static int kernels; /* planned */
static void count_kernel(const void *kernel)
{
    (void)kernel;
    kernels++;
}

/* Logits after each of STEPS tokens that follow a prompt, (STEPS, VOCAB). Returns the kernels that were
 * planned for the steps; -1 when there is no GPU. */
static int decode(const char *resident, by_dtype type, int width, int heads, float *logits)
{
    setenv("BANYAN_RESIDENT", resident, 1);
    by_device *d = by_device_open("cuda", 1);
    if (!d)
        return -1;
    by_model_shape shape = {.layers = 2, .heads = heads, .width = width, .context = CONTEXT, .vocab = VOCAB};
    by_model *m = by_model_new(d, "gpt2", &shape, &(by_model_spec){.seed = 5, .dtype = type});
    assert_non_null(m);
    sharpen(m, 4);
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 1});
    assert_non_null(g);
    int32_t tokens[PROMPT + STEPS];
    for (int i = 0; i < PROMPT + STEPS; i++)
        tokens[i] = (i * 29 + 11) % VOCAB;
    const int32_t *at = tokens;
    assert_int_equal(by_generator_feed(g, &at, &(int){PROMPT}), BY_OK);
    kernels = 0;
    ((card *)d->impl)->planned = count_kernel;
    for (int i = 0; i < STEPS; i++) {
        at = tokens + PROMPT + i;
        assert_int_equal(by_generator_feed(g, &at, &(int){1}), BY_OK);
        const float *now = by_generator_logits(g, 0);
        assert_non_null(now);
        memcpy(logits + i * VOCAB, now, VOCAB * sizeof *now);
    }
    by_generator_free(g);
    by_model_free(m);
    by_device_free(d);
    return kernels;
}

static void check_type(by_dtype type, int width, int heads, double most)
{
    static float alone[STEPS * VOCAB], together[STEPS * VOCAB];
    const int apart = decode("0", type, width, heads, alone);
    if (apart < 0)
        skip();
    const int planned = decode("all", type, width, heads, together);
    assert_true(planned > apart); /* the resident kernel is one more */
    const double error = nmse(together, alone, STEPS * VOCAB);
    if (!(error < most))
        fail_msg("%s, width %d: error %g", by_dtype_name(type), width, error);
}

static void test_f32(void **state)
{
    (void)state;
    check_type(BY_F32, WIDTH, 2, 1e-10);
}
static void test_bf16(void **state)
{
    (void)state;
    check_type(BY_BF16, WIDTH, 2, 1e-4);
    check_type(BY_BF16, 64, 2, 1e-4);
}
static void test_f16(void **state)
{
    (void)state;
    check_type(BY_F16, WIDTH, 2, 1e-6);
}

/* The width it is for; on a card, since the emulation would take minutes. */
static void test_large(void **state)
{
    (void)state;
    if (!getenv("BANYAN_TEST_LARGE"))
        skip();
    check_type(BY_BF16, 1600, 25, 1e-4);
    check_type(BY_F32, 1280, 20, 1e-10);
}

/* What it does not fit is done node by node. */
static void test_other_widths(void **state)
{
    (void)state;
    static float alone[STEPS * VOCAB], together[STEPS * VOCAB];
    const int apart = decode("0", BY_BF16, 40, 2, alone);
    if (apart < 0)
        skip();
    assert_int_equal(decode("all", BY_BF16, 40, 2, together), apart);
    assert_memory_equal(alone, together, sizeof alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_f16), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_other_widths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
