/* test_rules.c - constraints that speak of a source, biases, numbers that are not finite, the order of forced
 * and suppressed tokens, and strings that end a text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/sample.h"
#include "infer/stop_strings.h"
#include "text/tokenizer.h"

enum { V = 6 };

/* Constrain a row of equal logits, or of given ones. */
static void constrain(const by_sampling *spec, const gen_sample_at *at, float *row)
{
    gen_sampler s;
    assert_int_equal(gen_sampler_open(&s, V), BY_OK);
    gen_constrain(&s, spec, at, &(gen_scores){.value = row, .count = V}, NULL);
    gen_sampler_close(&s);
}

static void assert_scores(const float *row, const float *wanted)
{
    for (int i = 0; i < V; i++)
        if (isinf(wanted[i]))
            assert_true(row[i] == wanted[i]);
        else
            assert_float_equal(row[i], wanted[i], 1e-6);
}

static void test_source_penalty(void **state)
{
    (void)state;
    const int32_t source[] = {1, 3, 1}, text[] = {0};
    const gen_sample_at at = {.tokens = text, .count = 1, .prompt = 1, .source = source, .source_count = 3};
    float row[V] = {1, 1, 1, -1, -1, -1};
    constrain(&(by_sampling){.source_penalty = 2}, &at, row);
    assert_scores(row, (float[]){1, 2, 1, -0.5f, -1, -1}); /* likelier, once each */
    float less[V] = {1, 1, 1, -1, -1, -1};
    constrain(&(by_sampling){.source_penalty = 0.5}, &at, less);
    assert_scores(less, (float[]){1, 0.5f, 1, -2, -1, -1});
}

static void test_source_ngrams(void **state)
{
    (void)state;
    const int32_t source[] = {1, 3, 1, 4}, text[] = {0, 1};
    const gen_sample_at at = {.tokens = text, .count = 2, .prompt = 1, .source = source, .source_count = 4};
    float pairs[V] = {0}, singles[V] = {0}, triples[V] = {0};
    constrain(&(by_sampling){.no_source_ngram = 2}, &at, pairs); /* 1 is followed by 3 and 4 there */
    assert_scores(pairs, (float[]){0, 0, 0, -INFINITY, -INFINITY, 0});
    constrain(&(by_sampling){.no_source_ngram = 1}, &at, singles);
    assert_scores(singles, (float[]){0, -INFINITY, 0, -INFINITY, -INFINITY, 0});
    constrain(&(by_sampling){.no_source_ngram = 3}, &at, triples);
    assert_scores(triples, (float[V]){0});
}

static void test_biases(void **state)
{
    (void)state;
    const int32_t one[] = {2}, two[] = {1, 5}, other[] = {3, 4}, longer[] = {0, 0, 1, 3}, text[] = {0, 1};
    const by_bias biases[] = {{one, 1, -1.5}, {two, 2, 2}, {other, 2, 7}, {longer, 4, 9}};
    const gen_sample_at at = {.tokens = text, .count = 2, .prompt = 1};
    float row[V] = {0};
    constrain(&(by_sampling){.biases = biases, .bias_count = 4}, &at, row);
    assert_scores(row, (float[]){0, 0, -1.5f, 0, 0, 2});
    assert_true(gen_is_raised(&(by_sampling){.biases = biases, .bias_count = 2}));
    assert_false(gen_is_raised(&(by_sampling){.biases = biases, .bias_count = 1}));
}

static void test_not_finite(void **state)
{
    (void)state;
    gen_sampler s;
    assert_int_equal(gen_sampler_open(&s, V), BY_OK);
    const int32_t text[] = {0};
    const gen_sample_at at = {.tokens = text, .count = 1, .prompt = 1};
    const float row[V] = {-1, NAN, -2, -INFINITY, -3, -4};
    int32_t token;
    float logprob;
    assert_int_equal(gen_sample(&s, &(by_sampling){0}, &at, row, &token, &logprob, NULL), BY_ERR_NUMERIC);
    assert_int_equal(gen_sample(&s, &(by_sampling){.remove_invalid = true}, &at, row, &token, &logprob, NULL),
                     BY_OK);
    assert_int_equal(token, 1); /* NaN counts as 0 */
    const float high[V] = {-1, NAN, INFINITY, -INFINITY, -3, -4};
    assert_int_equal(
        gen_sample(&s, &(by_sampling){.remove_invalid = true}, &at, high, &token, &logprob, NULL), BY_OK);
    assert_int_equal(token, 2);
    gen_sampler_close(&s);
}

/* forced_bos speaks of a prompt of one token; tokens that are banned at the beginning wait for it. */
static void test_forced_beginning(void **state)
{
    (void)state;
    const int32_t text[] = {0, 4, 2}, forced = 4, banned[] = {2};
    const by_sampling spec = {.forced_bos = &forced, .first_banned = banned, .first_banned_count = 1};
    const gen_sample_at first = {.tokens = text, .count = 1, .prompt = 1},
                        second = {.tokens = text, .count = 2, .prompt = 1},
                        longer = {.tokens = text, .count = 2, .prompt = 2};
    float row[V] = {1, 1, 1, 1, 1, 1}, next[V] = {0}, free[V] = {0};
    constrain(&spec, &first, row);
    assert_scores(row, (float[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0, -INFINITY});
    constrain(&spec, &second, next);
    assert_scores(next, (float[]){0, 0, -INFINITY, 0, 0, 0});
    constrain(&spec, &longer, free);
    assert_scores(free, (float[]){0, 0, -INFINITY, 0, 0, 0});
}

/* A token that is suppressed does not come even if it is forced. */
static void test_suppressed(void **state)
{
    (void)state;
    const int32_t text[] = {0}, token = 4;
    const gen_sample_at at = {.tokens = text, .count = 1, .prompt = 1};
    float row[V] = {0}, banned[V] = {0};
    constrain(&(by_sampling){.forced_first = &token, .suppressed = &token, .suppressed_count = 1}, &at, row);
    assert_true(row[4] == -INFINITY);
    constrain(&(by_sampling){.forced_first = &token, .banned = &token, .banned_count = 1}, &at, banned);
    assert_true(banned[4] == 0);
}

/* Where no token is left the first comes, as in the reference; nothing can be drawn. */
static void test_no_token(void **state)
{
    (void)state;
    gen_sampler s;
    assert_int_equal(gen_sampler_open(&s, V), BY_OK);
    const int32_t text[] = {0}, all[] = {0, 1, 2, 3, 4, 5};
    const gen_sample_at at = {.tokens = text, .count = 1, .prompt = 1};
    const float row[V] = {1, 2, 3, 4, 5, 6};
    by_sampling spec = {.suppressed = all, .suppressed_count = V};
    int32_t token = -1;
    float logprob;
    assert_int_equal(gen_sample(&s, &spec, &at, row, &token, &logprob, NULL), BY_OK);
    assert_int_equal(token, 0);
    spec.temperature = 1;
    assert_int_equal(gen_sample(&s, &spec, &at, row, &token, &logprob, NULL), BY_ERR_NUMERIC);
    assert_non_null(strstr(by_error_message(), "suppressed token"));
    gen_sampler_close(&s);
}

/* Bytes of the text below are tokens. */
static bool ends(const by_tokenizer *t, const char *text, int count, const char *const *strings, int n)
{
    int32_t ids[64];
    bool end;
    for (int i = 0; i < count; i++)
        ids[i] = (uint8_t)text[i];
    const by_generate_spec spec = {.stop_strings = strings, .stop_string_count = n, .tokenizer = t};
    assert_int_equal(gen_stop_strings_end(&spec, ids, count, &end), BY_OK);
    return end;
}

static void test_stop_strings(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    assert_non_null(t);
    const char *const strings[] = {"stop", "\n\n"};
    assert_true(ends(t, "a long text, then stop", 22, strings, 2));
    assert_true(ends(t, "stop", 4, strings, 2));
    assert_false(ends(t, "stop it", 7, strings, 2)); /* it ended before the last token */
    assert_false(ends(t, "sto", 3, strings, 2));
    assert_true(ends(t, "one\n\n", 5, strings, 2));
    assert_false(ends(t, "one\n\n", 5, strings, 1));
    assert_false(ends(t, "stop", 4, NULL, 0));
    by_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_penalty),   cmocka_unit_test(test_source_ngrams),
        cmocka_unit_test(test_biases),           cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_forced_beginning), cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_stop_strings),     cmocka_unit_test(test_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
