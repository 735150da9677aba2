/* test_long.c - encoders for long texts: what each of them must equal where it can be computed in another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/pass.h"
#include "base/base.h"

static by_device *device;

static int set_up(void **state)
{
    (void)state;
    return (device = by_device_open("cpu", 2)) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

static by_model *make(const char *family, const char *preset, int context, by_task task)
{
    by_model_shape shape = {
        .preset = preset, .layers = 2, .heads = 2, .width = 16, .context = context, .vocab = 31};
    by_model *m = by_model_new(device, family, &shape,
                               &(by_model_spec){.seed = 3, .training = true, .task = task, .labels = 2});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static size_t size_of(const by_params *p, int i)
{
    size_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= (size_t)by_params_shape(p, i)[k];
    return n;
}

static float *slot_of(const by_params *p, int i, by_slot slot)
{
    float *x = calloc(size_of(p, i), sizeof *x);
    assert_int_equal(by_params_get(p, i, slot, x), BY_OK);
    return x;
}

/* Give every parameter of `to` the values of the one of its name; a larger one gets them repeatedly. */
static void copy_params(by_params *to, const by_params *from)
{
    for (int i = 0; i < by_params_count(to); i++) {
        const int at = by_params_find(from, by_params_name(to, i));
        assert_true(at >= 0);
        const size_t n = size_of(to, i), m = size_of(from, at);
        float *x = slot_of(from, at, BY_SLOT_VALUE), *y = calloc(n, sizeof *y);
        for (size_t k = 0; k < n; k++)
            y[k] = x[k % m];
        assert_int_equal(by_params_set(to, i, BY_SLOT_VALUE, y), BY_OK);
        free(x);
        free(y);
    }
}

static void expect_near(const float *a, const float *b, size_t n, double bound, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= bound * (1 + fabs((double)b[i]))))
            fail_msg("%s, element %zu: %g and %g", what, i, (double)a[i], (double)b[i]);
}

/* Run forward and backward; returns the logits, on the heap. */
static float *run(by_model *m, const by_batch *b)
{
    by_pass *p = by_pass_new(m, b, &(by_pass_spec){.grads = BY_GRAD_STORE});
    if (!p || by_pass_run(p, b) != BY_OK)
        fail_msg("%s", by_error_message());
    by_pass_free(p);
    p = by_pass_new(m, b, &(by_pass_spec){0});
    if (!p || by_pass_run(p, b) != BY_OK)
        fail_msg("%s", by_error_message());
    const by_tensor *t = by_io_output(by_pass_io(p), "logits");
    float *x = calloc((size_t)by_elements(t), sizeof *x);
    assert_int_equal(by_pass_read(p, t, x), BY_OK);
    by_pass_free(p);
    return x;
}

enum { ROWS = 2, LENGTH = 150, WORDS = 31 };

/* Two texts of different lengths, with targets. */
typedef struct texts {
    int32_t tokens[ROWS * LENGTH], mask[ROWS * LENGTH], targets[ROWS * LENGTH];
} texts;

static texts make_texts(int pad)
{
    texts x;
    base_rng r = base_rng_make(5, 0);
    for (int i = 0; i < ROWS * LENGTH; i++) {
        const bool real = i < LENGTH || i % LENGTH < LENGTH - 21;
        x.tokens[i] = real ? 4 + (int32_t)(base_rng_u32(&r) % (WORDS - 4)) : pad;
        x.mask[i] = real;
        x.targets[i] = real && i % 3 == 0 ? x.tokens[i] : -100;
    }
    return x;
}

static by_batch batch_of(const texts *x)
{
    const int64_t n = ROWS * LENGTH;
    by_batch b = by_batch_of(ROWS, LENGTH, x->tokens);
    by_batch_put_tokens(&b, "mask", x->mask);
    by_batch_put_ids(&b, "targets", n, x->targets);
    return b;
}

/* ---- Linformer ------------------------------------------------------------------------------- */

/* Heads that have projections of their own, all equal, give what heads give that share one; the gradient of
 * the shared one is the sum of theirs. */
static void test_own_projections(void **state)
{
    (void)state;
    by_model *shared = make("linformer", "tiny", 160, BY_TASK_MLM);
    by_model *own = make("linformer", "tiny-none", 160, BY_TASK_MLM);
    by_model_set_dropout(shared, 0);
    by_model_set_dropout(own, 0);
    by_params *p = by_model_params(shared), *q = by_model_params(own);
    copy_params(q, p);
    const texts x = make_texts(0);
    const by_batch b = batch_of(&x);
    float *a = run(shared, &b), *c = run(own, &b);
    expect_near(c, a, (size_t)ROWS * LENGTH * WORDS, 1e-5, "logits");
    free(a);
    free(c);
    int compared = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        const int at = by_params_find(q, by_params_name(p, i));
        const size_t n = size_of(p, i), m = size_of(q, at);
        a = slot_of(p, i, BY_SLOT_GRAD);
        c = slot_of(q, at, BY_SLOT_GRAD);
        for (size_t k = n; k < m; k++)
            c[k % n] += c[k];
        compared += m > n;
        expect_near(c, a, n, 1e-5, by_params_name(p, i));
        free(a);
        free(c);
    }
    assert_int_equal(compared, 4); /* E and F of two layers */
    by_model_free(shared);
    by_model_free(own);
}

/* Padding reaches nothing: a text alone gives what it gives beside a longer one. */
static void expect_no_padding_seen(const char *family, const char *preset, int pad)
{
    by_model *m = make(family, preset, 160, BY_TASK_MLM);
    by_model_set_dropout(m, 0);
    const texts x = make_texts(pad);
    const by_batch both = batch_of(&x);
    const int length = LENGTH - 21;
    by_batch alone = by_batch_of(1, length, x.tokens + LENGTH);
    by_batch_put_ids(&alone, "targets", length, x.targets + LENGTH);
    float *a = run(m, &both), *b = run(m, &alone);
    expect_near(a + (size_t)LENGTH * WORDS, b, (size_t)length * WORDS, 1e-5, family);
    free(a);
    free(b);
    by_model_free(m);
}

static void test_padding(void **state)
{
    (void)state;
    static const char *const presets[] = {"tiny", "tiny-none", "tiny-key-value", "tiny-layerwise"};
    for (int i = 0; i < BY_COUNT(presets); i++)
        expect_no_padding_seen("linformer", presets[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_projections),
        cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests_name("long", tests, set_up, tear_down);
}
