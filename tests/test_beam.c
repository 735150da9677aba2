/* test_beam.c - rows that change places in the cache, the highest logits, and beam search: against searching
 * by hand over whole forward passes, against results recorded from the reference implementation, wide beams
 * against narrow ones, batches against single texts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "banyan/generate.h"
#include "base/base.h"

enum { CONTEXT = 48, VOCAB = 61 };

static by_device *device;
static by_model *model; /* small, random, and far enough from uniform that the order of tokens is clear */

/* ---- a model to try things on ---------------------------------------------------------------- */

static void sharpen(by_model *m)
{
    by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        int64_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= by_params_shape(p, i)[k];
        float *values = malloc(sizeof *values * (size_t)n);
        assert_non_null(values);
        assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, values), BY_OK);
        for (int64_t k = 0; by_params_rank(p, i) > 1 && k < n; k++)
            values[k] *= 10;
        assert_int_equal(by_params_set(p, i, BY_SLOT_VALUE, values), BY_OK);
        free(values);
    }
}

static int open_model(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    by_model_shape shape = {.layers = 2, .heads = 4, .width = 32, .context = CONTEXT, .vocab = VOCAB};
    model = device ? by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 3}) : NULL;
    if (!model)
        return -1;
    sharpen(model);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    by_model_free(model);
    by_device_free(device);
    return 0;
}

static int32_t *text_of(uint64_t which, int n)
{
    static int32_t texts[16][CONTEXT];
    by_rng r = by_rng_make(21, which);
    for (int i = 0; i < n; i++)
        texts[which][i] = (int32_t)by_rng_below(&r, VOCAB);
    return texts[which];
}

/* Logits after the last of n tokens, from one pass over all of them without a cache. */
static void full_logits(const int32_t *tokens, int n, float *out)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(model)});
    assert_non_null(graph);
    int32_t last = n - 1;
    by_model_io io = {.tokens = by_input(graph, "tokens", BY_I32, 2, (int64_t[]){1, n}),
                      .pick = by_input(graph, "pick", BY_I32, 1, (int64_t[]){1})};
    by_model_build(model, graph, &io);
    by_output(graph, "logits", io.logits);
    by_program *p = by_compile(graph, &(by_compile_spec){0});
    assert_non_null(p);
    assert_int_equal(by_write(p, io.tokens, tokens, sizeof *tokens * (size_t)n), BY_OK);
    assert_int_equal(by_write(p, io.pick, &last, sizeof last), BY_OK);
    assert_int_equal(by_run(p), BY_OK);
    assert_int_equal(by_read_f32(p, io.logits, out), BY_OK);
    by_program_free(p);
}

static double nmse(const float *a, const float *b, int n)
{
    double error = 0, power = 0;
    for (int i = 0; i < n; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        power += pow((double)b[i], 2);
    }
    return error / power;
}

/* ---- the cache ------------------------------------------------------------------------------- */

enum { ROWS = 8, BEAMS = 2 };

/* Eight rows and what each of them holds. */
typedef struct herd {
    by_generator *generator;
    int32_t text[ROWS][CONTEXT];
    int count[ROWS];
} herd;

/* Feed n[b] further tokens to every row. */
static void feed(herd *h, const int *n, uint64_t which)
{
    const int32_t *next[ROWS];
    for (int b = 0; b < ROWS; b++) {
        int32_t *end = h->text[b] + h->count[b];
        by_rng r = by_rng_make(which, (uint64_t)b);
        for (int i = 0; i < n[b]; i++)
            end[i] = (int32_t)by_rng_below(&r, VOCAB);
        next[b] = end;
        h->count[b] += n[b];
    }
    if (by_generator_feed(h->generator, next, n) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void reorder(herd *h, const int32_t *from)
{
    herd old = *h;
    if (by_generator_reorder(h->generator, from) != BY_OK)
        fail_msg("%s", by_error_message());
    for (int b = 0; b < ROWS; b++) {
        memcpy(h->text[b], old.text[from[b]], sizeof h->text[b]);
        h->count[b] = old.count[from[b]];
        assert_int_equal(by_generator_length(h->generator, b), h->count[b]);
        assert_null(by_generator_logits(h->generator, b));
    }
}

/* The rows that were fed know what a whole pass over their text gives. */
static void check_rows(herd *h, const int *n)
{
    float expected[VOCAB];
    for (int b = 0; b < ROWS; b++)
        if (n[b]) {
            full_logits(h->text[b], h->count[b], expected);
            assert_true(nmse(by_generator_logits(h->generator, b), expected, VOCAB) < 1e-10);
        }
}

/* Hypotheses change places, groups move to the front, and every row goes on as if it had always been there.
 */
static void rows_change_places(void **state)
{
    (void)state;
    for (int top = 0; top <= 5; top += 5) {
        herd h = {.generator = by_generator_new(model, &(by_generator_spec){.batch = ROWS, .beams = BEAMS})};
        assert_non_null(h.generator);
        assert_int_equal(by_generator_keep_top(h.generator, top), BY_OK);
        const int all[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1}, ragged[ROWS] = {3, 9, 1, 17, 20, 2, 5, 4};
        const int six[ROWS] = {1, 1, 1, 1, 2, 1}, four[ROWS] = {1, 1, 1, 1}, two[ROWS] = {1, 1};
        feed(&h, ragged, 1);
        check_rows(&h, ragged);
        reorder(&h, (int32_t[]){1, 0, 2, 2, 5, 4, 7, 6});
        feed(&h, all, 2);
        check_rows(&h, all);
        reorder(&h, (int32_t[]){1, 1, 4, 5, 7, 6, 6, 7}); /* the second group is squeezed out */
        feed(&h, six, 3);
        check_rows(&h, six);
        reorder(&h, (int32_t[]){0, 1, 5, 4, 4, 5, 6, 7});
        feed(&h, four, 4);
        check_rows(&h, four);
        reorder(&h, (int32_t[]){3, 2, 2, 3, 4, 5, 6, 7});
        feed(&h, two, 5);
        check_rows(&h, two);
        by_generator_free(h.generator);
    }
}

static void impossible_orders_are_refused(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = ROWS, .beams = BEAMS});
    const int32_t bad[][ROWS] = {{0, 1, 2, 3, 4, 5, 6, 8}, {0, 1, 2, 3, 4, 5, 6, -1},
                                 {0, 2, 2, 3, 4, 5, 6, 7}, {0, 1, 0, 1, 4, 5, 6, 7},
                                 {2, 2, 3, 2, 4, 5, 6, 7}, {2, 3, 2, 3, 4, 5, 6, 7},
                                 {4, 5, 4, 5, 4, 5, 6, 7}};
    const bool wrong[] = {true, true, true, true, true, false, true};
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(by_generator_reorder(g, bad[i]), wrong[i] ? BY_ERR_ARGUMENT : BY_OK);
    assert_int_equal(by_generator_reorder(g, bad[5]), BY_ERR_ARGUMENT); /* twice without a feed */
    by_generator_free(g);
    g = by_generator_new(model, &(by_generator_spec){.batch = 2});
    assert_int_equal(by_generator_reorder(g, (int32_t[]){1, 0}), BY_ERR_ARGUMENT);
    by_generator_free(g);
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = 3, .beams = 2}));
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = 130, .beams = 65}));
}

/* What a feed keeps are the highest of the logits, and their weight; the rest comes when it is asked for. */
static void the_highest_logits_are_kept(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 3});
    const int32_t *next[3] = {text_of(0, 30), text_of(1, 30), text_of(2, 30)};
    assert_int_equal(by_generator_keep_top(g, VOCAB + 1), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_keep_top(g, -1), BY_ERR_ARGUMENT);
    assert_null(by_generator_top(g, 0));
    for (int k = 1; k <= VOCAB; k += 20) {
        assert_int_equal(by_generator_keep_top(g, k), BY_OK);
        for (int b = 0; b < 3; b++)
            by_generator_rewind(g, b, 0);
        assert_null(by_generator_top(g, 0));
        assert_int_equal(by_generator_feed(g, next, (int[]){4, 29, 0}), BY_OK);
        assert_null(by_generator_top(g, 2));
        for (int b = 0; b < 2; b++) {
            const by_top_logits *top = by_generator_top(g, b);
            float logits[VOCAB];
            double sum = 0;
            full_logits(next[b], b ? 29 : 4, logits);
            for (int i = 0; i < VOCAB; i++)
                sum += exp((double)logits[i]);
            assert_int_equal(top->count, k);
            assert_true(fabs((double)top->lse - log(sum)) < 1e-4);
            assert_true(nmse(by_generator_logits(g, b), logits, VOCAB) < 1e-10);
            for (int i = 0; i < k; i++) {
                int best = 0;
                for (int v = 1; v < VOCAB; v++)
                    best = logits[v] > logits[best] ? v : best;
                assert_int_equal(top->ids[i], best);
                assert_true(fabs((double)(top->logits[i] - logits[best])) < 1e-4);
                logits[best] = -INFINITY;
            }
        }
    }
    by_generator_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_change_places),
        cmocka_unit_test(impossible_orders_are_refused),
        cmocka_unit_test(the_highest_logits_are_kept),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
