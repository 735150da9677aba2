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
    expect_no_padding_seen("longformer", "tiny", 1);
}

/* ---- Longformer ------------------------------------------------------------------------------ */

/* Give the parameters of a Longformer the values of a RoBERTa: the projections of global tokens those of the
 * others. */
static void copy_as_longformer(by_params *to, const by_params *from)
{
    for (int i = 0; i < by_params_count(to); i++) {
        char name[160];
        const char *given = by_params_name(to, i), *rest = strstr(given, "longformer.");
        snprintf(name, sizeof name, "%s%s", rest ? "roberta." : "",
                 rest ? rest + strlen("longformer.") : given);
        char *own = strstr(name, "_global");
        if (own)
            memmove(own, own + strlen("_global"), strlen(own + strlen("_global")) + 1);
        const int at = by_params_find(from, name);
        assert_true(at >= 0);
        float *x = slot_of(from, at, BY_SLOT_VALUE);
        assert_int_equal(by_params_set(to, i, BY_SLOT_VALUE, x), BY_OK);
        free(x);
    }
}

static float *logits_of_real(float *x, const texts *t)
{
    for (int i = 0; i < ROWS * LENGTH; i++)
        for (int k = 0; k < WORDS && !t->mask[i]; k++)
            x[i * WORDS + k] = 0;
    return x;
}

/* With a window over the whole text, which tokens are global does not matter if their projections are the
 * others': all see all, once. */
static void test_wide_window(void **state)
{
    (void)state;
    by_model *roberta = make("roberta", NULL, 160, BY_TASK_MLM);
    by_model *longformer = make("longformer", "tiny", 8 * 2 * LENGTH, BY_TASK_MLM); /* a window of 2 LENGTH */
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 16, .context = 8 * 2 * LENGTH, .vocab = 31};
    by_model_free(roberta);
    roberta = by_model_new(device, "roberta", &shape, &(by_model_spec){.seed = 3, .training = true});
    assert_non_null(roberta);
    by_model_set_dropout(roberta, 0);
    by_model_set_dropout(longformer, 0);
    copy_as_longformer(by_model_params(longformer), by_model_params(roberta));
    const texts x = make_texts(1);
    by_batch b = batch_of(&x);
    float *want = logits_of_real(run(roberta, &b), &x);
    int32_t global[ROWS * LENGTH] = {0};
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < ROWS * LENGTH; i++) /* none; some; more in the first row, and one in padding */
            global[i] = kind == 1   ? i % 37 == 0
                        : kind == 2 ? (i < LENGTH && i % 2) || i % LENGTH == LENGTH - 1
                                    : 0;
        by_batch_put_tokens(&b, "global_attention_mask", kind ? global : NULL);
        float *got = logits_of_real(run(longformer, &b), &x);
        expect_near(got, want, (size_t)ROWS * LENGTH * WORDS, 2e-5, "logits");
        free(got);
    }
    free(want);
    by_model_free(roberta);
    by_model_free(longformer);
}

/* The first token of a text with labels is global: it reaches, and is reached by, tokens beyond any window. */
static void test_global_by_task(void **state)
{
    (void)state;
    by_model *m = make("longformer", "tiny", 160, BY_TASK_CLASSIFY);
    by_model_set_dropout(m, 0);
    texts x = make_texts(1);
    const int32_t labels[ROWS] = {0, 1};
    by_batch b = by_batch_of(1, LENGTH, x.tokens);
    by_batch_put_ids(&b, "targets", 1, labels);
    float *before = run(m, &b);
    x.tokens[LENGTH - 1] =
        x.tokens[LENGTH - 1] == 5 ? 6 : 5; /* 149 tokens away; two windows of 20 reach 20 */
    float *after = run(m, &b);
    assert_true(before[0] != after[0]);
    free(before);
    free(after);
    by_model_free(m);
}

/* ---- BigBird --------------------------------------------------------------------------------- */

/* What is drawn for a length is always the same, and may be given instead; a token beyond all blocks that the
 * first token's block or its own sees does not change it in the first layer but through the first block. */
static void test_random_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = LENGTH / 2 };
    by_model *m = make("big_bird", "tiny", 160, BY_TASK_MLM); /* blocks of 2 */
    by_model_set_dropout(m, 0);
    const texts x = make_texts(0);
    by_batch b = batch_of(&x);
    float *once = run(m, &b), *again = run(m, &b);
    assert_memory_equal(once, again, sizeof(float) * ROWS * LENGTH * WORDS);
    static int32_t table[2 * 2 * (BLOCKS - 2) * 3]; /* all the first block: seen anyway, counts once */
    by_batch_put(&b, "random_blocks", BY_I32, 4, (int64_t[]){2, 2, BLOCKS - 2, 3}, table);
    float *none = run(m, &b);
    assert_true(memcmp(once, none, sizeof(float) * ROWS * LENGTH * WORDS) != 0);
    table[0] = BLOCKS;
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    assert_non_null(p);
    assert_int_not_equal(by_pass_run(p, &b), BY_OK); /* there is no such block */
    by_pass_free(p);
    free(once);
    free(again);
    free(none);
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_projections), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_wide_window),     cmocka_unit_test(test_global_by_task),
        cmocka_unit_test(test_random_blocks),
    };
    return cmocka_run_group_tests_name("long", tests, set_up, tear_down);
}
