/* test_evaluate.c - perplexity of a language model: every token but the first is predicted once, however windows overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/banyan.h"
#include "folder.h"
#include "text/tokenizer.h"

enum { TOKENS = 75, CONTEXT = 16 };

static by_device *device;
static by_tokenizer *tokenizer;
static by_model *model;
static const char *file;

static void evaluate(const by_perplexity_spec *spec, by_perplexity_result *out)
{
    if (by_perplexity(model, tokenizer, &file, 1, spec, out) != BY_OK)
        fail_msg("%s", by_error_message());
}

/* Sum of -log p of ids[begin + 1 + known ..] in the window ids[begin .. begin + n). */
static double window(const int32_t *ids, int begin, int n, int known)
{
    by_batch b = by_batch_of(1, n, ids + begin);
    by_pass *p = by_pass_new(model, &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
    static float z[CONTEXT * 512];
    const int vocab = by_model_vocab(model);
    double sum = 0;
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), z), BY_OK);
    for (int t = known; t < n; t++) {
        double all = 0;
        for (int v = 0; v < vocab; v++)
            all += exp((double)z[t * vocab + v]);
        sum += log(all) - (double)z[t * vocab + ids[begin + t + 1]];
    }
    by_pass_free(p);
    return sum;
}

static void test_windows(void **state)
{
    (void)state;
    static const by_perplexity_spec specs[] = {{.batch = 3},
                                               {.seq = 10, .stride = 4, .batch = 2},
                                               {.seq = 16, .stride = 16, .max_tokens = 33},
                                               {.stride = 1}};
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = 'a' + i * i % 23;
    for (int k = 0; k < BY_COUNT(specs); k++) {
        by_perplexity_result r;
        evaluate(&specs[k], &r);
        const int count = specs[k].max_tokens ? (int)specs[k].max_tokens : TOKENS;
        assert_int_equal(r.tokens, count - 1);
        assert_int_equal(r.bytes, count - 1);
        double sum = 0;
        int64_t windows = 0;
        for (int begin = 0, done = 0; done < count - 1; begin += r.stride, windows++) {
            const int n = BY_MIN(r.seq, count - 1 - begin);
            sum += window(ids, begin, n, done - begin);
            done = begin + n;
        }
        assert_int_equal(r.windows, windows);
        assert_true(fabs(r.nats - sum) < 1e-4 * sum);
    }
}

static bool at_once(void *user)
{
    return ++*(int *)user > 1;
}

static void test_refusals(void **state)
{
    (void)state;
    by_perplexity_result r;
    int polls = 0;
    assert_int_equal(by_perplexity(model, tokenizer, &file, 1, &(by_perplexity_spec){.seq = 17}, &r),
                     BY_ERR_ARGUMENT);
    assert_int_equal(
        by_perplexity(model, tokenizer, &file, 1, &(by_perplexity_spec){.seq = 4, .stride = 5}, &r),
        BY_ERR_ARGUMENT);
    assert_int_equal(by_perplexity(model, NULL, &file, 1, &(by_perplexity_spec){0}, &r), BY_ERR_ARGUMENT);
    assert_int_equal(by_perplexity(NULL, tokenizer, &file, 1, &(by_perplexity_spec){0}, &r), BY_ERR_ARGUMENT);
    assert_int_equal(by_perplexity(model, tokenizer, &file, 1,
                                   &(by_perplexity_spec){.batch = 1, .cancelled = at_once, .user = &polls},
                                   &r),
                     BY_ERR_CANCELLED);
    assert_int_equal(r.tokens, CONTEXT); /* one window was done */
    by_text_result texts;
    assert_int_equal(
        by_text_evaluate(model, tokenizer, root, &file, 1, &(by_text_spec){.metrics = "bleu,ter"}, &texts),
        BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "bleu,ter"));
}

static void test_attention_maps(void **state)
{
    (void)state;
    by_attention_maps a;
    assert_int_equal(by_attention_maps_make(model, tokenizer, "abcab", &(by_attention_maps_spec){0}, &a),
                     BY_OK);
    assert_true(a.layers == 1 && a.heads == 2 && a.rows == 0 && a.columns == 0 && a.sides[0].tokens == 5);
    assert_string_equal(a.sides[0].names[2], "c");
    for (int r = 0; r < 5 * a.heads; r++) { /* each row is a distribution over what it may see */
        double sum = 0;
        for (int c = 0; c < 5; c++)
            sum += (double)a.weights[r * 5 + c];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(r % 5 == 4 || a.weights[r * 5 + r % 5 + 1] == 0);
    }
    by_attention_maps_free(&a);
    assert_int_equal(
        by_attention_maps_make(model, tokenizer, "abc", &(by_attention_maps_spec){.target = "x"}, &a),
        BY_ERR_ARGUMENT);
    by_attention_maps_free(&a);
}

static int open_all(void **state)
{
    (void)state;
    char text[TOKENS + 1] = "";
    for (int i = 0; i < TOKENS; i++)
        text[i] = (char)('a' + i * i % 23);
    device = by_device_open("cpu", 1);
    tokenizer = tok_new_bytes();
    if (!make_root("evaluate") || !device || !tokenizer)
        return -1;
    by_model_shape shape = {
        .layers = 1, .heads = 2, .width = 16, .context = CONTEXT, .vocab = by_tokenizer_vocab_size(tokenizer)};
    model = by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 5});
    file = write_text("text.txt", text);
    return model ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    by_model_free(model);
    by_tokenizer_free(tokenizer);
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* Plans of a model that was not made for training: it runs and decodes. */
static void test_plans(void **state)
{
    (void)state;
    by_plan p;
    by_plan_spec spec = {.batch = 2, .seq = 8, .text = BY_PLAN_LISTING};
    assert_int_equal(by_model_plan(model, &spec, &p), BY_OK);
    assert_int_equal(p.weights, by_params_value_bytes(by_model_params(model)));
    assert_true(p.activations > 0 && p.flops > 0 && p.cache == 0 && p.gradients == 0);
    assert_non_null(strstr(p.text, "attention"));
    by_string_free(p.text);
    spec = (by_plan_spec){.mode = BY_PLAN_DECODE, .batch = 2, .seq = 8};
    assert_int_equal(by_model_plan(model, &spec, &p), BY_OK);
    assert_int_equal(p.cache,
                     2 * 8 * 2 * sizeof(float) * (size_t)(by_model_layers(model) * by_model_width(model)));
    assert_null(p.text);
    spec.seq = 0;
    assert_int_equal(by_model_plan(model, &spec, &p), BY_ERR_ARGUMENT);
    assert_int_equal(by_model_plan(NULL, &spec, &p), BY_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_attention_maps),
        cmocka_unit_test(test_plans),
    };
    return cmocka_run_group_tests_name("evaluate", tests, open_all, close_all);
}
