/* test_graph_errors.c - what a graph says to wrong shapes, types and uses: one clear message with names and
 * shapes, which sticks whatever is built afterwards, and no crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "child.h"
#include "graph_case.h"

static void bad_linear(by_graph *g)
{
    by_scope_push(g, "h.3");
    by_scope_push(g, "mlp");
    by_linear(g, f32_input(g, "hidden", SHAPE(2, 3)), by_param(g, "w", SHAPE(5, 4), normal), NULL, NULL);
}

static void bad_bias(by_graph *g)
{
    by_tensor *x = f32_input(g, "hidden", SHAPE(2, 3)), *w = f32_input(g, "w", SHAPE(5, 3));
    by_linear(g, x, w, f32_input(g, "bias", SHAPE(3)), NULL);
}

static void bad_add(by_graph *g)
{
    by_add(g, f32_input(g, "left", SHAPE(2, 3)), f32_input(g, "right", SHAPE(2)));
}

static void bad_types(by_graph *g)
{
    by_mul(g, f32_input(g, "left", SHAPE(3)), by_input(g, "right", BY_BF16, SHAPE(3)));
}

static void bad_matmul(by_graph *g)
{
    by_matmul(g, f32_input(g, "left", SHAPE(2, 3, 4)), f32_input(g, "right", SHAPE(2, 3, 4)), false, false);
}

static void bad_gather(by_graph *g)
{
    by_gather(g, by_param(g, "table", SHAPE(5, 4), normal), f32_input(g, "ids", SHAPE(7)));
}

static void bad_norm(by_graph *g)
{
    by_layernorm(g, f32_input(g, "x", SHAPE(2, 4)), f32_input(g, "gamma", SHAPE(4)),
                 f32_input(g, "beta", SHAPE(3)), 0);
}

static void bad_beta(by_graph *g)
{
    by_layernorm(g, f32_input(g, "x", SHAPE(2, 4)), f32_input(g, "gamma", SHAPE(4)),
                 by_input(g, "beta", BY_F16, SHAPE(4)), 0);
}

static void bad_heads(by_graph *g)
{
    by_attention(g, f32_input(g, "q", SHAPE(2, 3, 10)), NULL, NULL, &(by_attention_spec){.heads = 3});
}

static void bad_groups(by_graph *g)
{
    by_attention(g, f32_input(g, "q", SHAPE(2, 3, 21)), NULL, NULL,
                 &(by_attention_spec){.heads = 3, .kv_heads = 2});
}

static void bad_keys(by_graph *g)
{
    by_tensor *k = f32_input(g, "k", SHAPE(2, 5, 6));
    by_attention(g, f32_input(g, "q", SHAPE(1, 3, 6)), k, k, &(by_attention_spec){.heads = 2});
}

static void bad_key_mask(by_graph *g)
{
    by_tensor *mask = by_input(g, "padding", BY_I32, SHAPE(2, 5));
    by_attention(g, f32_input(g, "q", SHAPE(2, 4, 6)), NULL, NULL,
                 &(by_attention_spec){.heads = 1, .key_mask = mask});
}

static void bad_cache(by_graph *g)
{
    by_tensor *cache = f32_input(g, "cache", SHAPE(2, 8, 5)), *past = by_input(g, "past", BY_I32, SHAPE(2));
    by_attention_cached(g, f32_input(g, "q", SHAPE(2, 1, 12)), NULL, NULL, cache, cache, past,
                        &(by_attention_spec){.heads = 2});
}

/* Attention over 2 rows of 4 positions, 3 heads. */
static void attend(by_graph *g, by_attention_spec spec)
{
    spec.heads = 3;
    by_attention(g, f32_input(g, "q", SHAPE(2, 4, 18)), NULL, NULL, &spec);
}

static void no_prefix(by_graph *g)
{
    attend(g, (by_attention_spec){.mask = BY_MASK_PREFIX});
}

static void idle_prefix(by_graph *g)
{
    attend(g, (by_attention_spec){.mask = BY_MASK_CAUSAL, .prefix = by_input(g, "prefix", BY_I32, SHAPE(2))});
}

static void bad_prefix(by_graph *g)
{
    attend(g, (by_attention_spec){.mask = BY_MASK_PREFIX, .prefix = by_input(g, "prefix", BY_I32, SHAPE(3))});
}

static void bad_pattern_length(by_graph *g)
{
    attend(g, (by_attention_spec){.pattern = {BY_PATTERN_STRIDED, .length = 0}});
}

static void bad_pattern_part(by_graph *g)
{
    attend(g, (by_attention_spec){.pattern = {BY_PATTERN_WINDOW, .before = 3, .part = 1}});
}

static void empty_pattern(by_graph *g)
{
    attend(g, (by_attention_spec){.pattern = {BY_PATTERN_WINDOW, .before = 3, .after = -4}});
}

static void huge_pattern(by_graph *g)
{
    attend(g, (by_attention_spec){.pattern = {BY_PATTERN_WINDOW, .before = INT32_MAX}});
}

static void bad_summary(by_graph *g)
{
    attend(g, (by_attention_spec){.pattern = {BY_PATTERN_FIXED, .length = 8, .after = 9}});
}

static void bad_score_bias(by_graph *g)
{
    attend(g, (by_attention_spec){.bias = f32_input(g, "bias", SHAPE(1, 2, 4, 4))});
}

static void bad_bias_entries(by_graph *g)
{
    attend(g, (by_attention_spec){.bias = f32_input(g, "bias", SHAPE(1, 3, 4, 5))});
}

static void bad_bias_type(by_graph *g)
{
    attend(g, (by_attention_spec){.relative = by_input(g, "bias", BY_BF16, SHAPE(1, 1, 1, 5))});
}

static void bad_pair_mask(by_graph *g)
{
    attend(g, (by_attention_spec){.pair_mask = by_input(g, "pairs", BY_I32, SHAPE(1, 1, 3, 4))});
}

static void bad_pair_type(by_graph *g)
{
    attend(g, (by_attention_spec){.pair_mask = f32_input(g, "pairs", SHAPE(1, 1, 1, 4))});
}

static void bad_loss(by_graph *g)
{
    by_cross_entropy(g, f32_input(g, "logits", SHAPE(4, 9)), by_input(g, "targets", BY_I32, SHAPE(5)), NULL);
}

static void bad_axis(by_graph *g)
{
    by_sum(g, f32_input(g, "x", SHAPE(2, 3)), 2);
}

static void bad_reshape(by_graph *g)
{
    by_reshape(g, f32_input(g, "x", SHAPE(2, 3)), SHAPE(4, -1));
}

static void bad_reshape_sign(by_graph *g)
{
    by_reshape(g, f32_input(g, "x", SHAPE(2, 3)), SHAPE(-2, -3));
}

static void bad_reshape_size(by_graph *g)
{
    by_reshape(g, f32_input(g, "x", SHAPE(2, 3)), SHAPE(INT64_MAX, INT64_MAX, 6));
}

static void bad_permute(by_graph *g)
{
    by_permute_axes(g, f32_input(g, "x", SHAPE(2, 3)), (int[]){0, 0});
}

static void bad_slice(by_graph *g)
{
    by_slice(g, f32_input(g, "x", SHAPE(2, 3)), 1, 2, 2);
}

static void bad_slice_size(by_graph *g)
{
    by_slice(g, f32_input(g, "x", SHAPE(2, 3)), 1, INT64_MAX, INT64_MAX);
}

static void bad_concat(by_graph *g)
{
    by_concat(g, (by_tensor *[]){f32_input(g, "left", SHAPE(2, 3)), f32_input(g, "right", SHAPE(3, 3))}, 2,
              1);
}

static void bad_concat_count(by_graph *g)
{
    by_concat(g, NULL, 0, 1);
}

static void bad_dropout(by_graph *g)
{
    by_dropout(g, f32_input(g, "x", SHAPE(2, 3)), 1);
}

static void bad_softmax(by_graph *g)
{
    by_softmax(g, by_input(g, "x", BY_I32, SHAPE(2, 3)));
}

static void bad_hash(by_graph *g)
{
    by_tensor *x = f32_input(g, "x", SHAPE(1, 4, 6)), *r = f32_input(g, "r", SHAPE(2, 3, 1, 5));
    by_hash(g, x, r, NULL, 1, (int[]){8});
}

static void odd_buckets(by_graph *g)
{
    by_tensor *x = f32_input(g, "x", SHAPE(1, 4, 6)), *r = f32_input(g, "r", SHAPE(2, 3, 1, 4));
    by_hash(g, x, r, NULL, 2, (int[]){3, 5});
}

static void bad_chunks(by_graph *g)
{
    by_tensor *x = f32_input(g, "x", SHAPE(1, 9, 6));
    by_chunked_attention(g, x, x, x, &(by_chunked_spec){.heads = 2, .chunk = 4, .length = 8});
}

static void bad_order(by_graph *g)
{
    by_tensor *x = f32_input(g, "x", SHAPE(1, 9, 6)),
              *order = by_input(g, "order", BY_I32, SHAPE(1, 2, 1, 8));
    by_chunked_attention(g, x, x, x, &(by_chunked_spec){.heads = 2, .chunk = 4, .order = order});
}

static void bad_argmax(by_graph *g)
{
    by_argmax(g, f32_input(g, "x", 0, NULL));
}

static void bad_rank(by_graph *g)
{
    f32_input(g, "x", SHAPE(1, 1, 1, 1, 1, 1, 1));
}

static void bad_size(by_graph *g)
{
    f32_input(g, "x", SHAPE(INT64_MAX / 20, 3));
}

static void bad_negative(by_graph *g)
{
    f32_input(g, "x", SHAPE(4, -3));
}

static void bad_param(by_graph *g)
{
    by_param(g, "w", SHAPE(2, 3), normal);
    by_param(g, "w", SHAPE(3, 2), normal);
}

static void bad_state(by_graph *g)
{
    by_memory *m = by_memory_new(device, 8);
    by_state(g, "cache", BY_F32, SHAPE(3), m);
    by_memory_free(m);
}

static void bad_depth(by_graph *g)
{
    for (int i = 0; i < 20; i++)
        by_scope_push(g, "s%d", i);
    for (int i = 0; i < 20; i++)
        by_scope_pop(g);
}

static void bad_model(by_graph *g)
{
    by_scope_push(g, "h.1");
    by_graph_fail(g, "there are %d heads", 7);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        void (*build)(by_graph *g);
        const char *says[3];
    } cases[] = {
        {bad_linear, {"h.3.mlp.linear", "hidden (2, 3) f32", "h.3.mlp.w (5, 4) f32"}},
        {bad_bias, {"linear", "w (5, 3) f32", "bias (3) f32"}},
        {bad_add, {"add", "left (2, 3) f32", "right (2) f32"}},
        {bad_types, {"mul", "left (3) f32", "right (3) bf16"}},
        {bad_matmul, {"matmul", "left (2, 3, 4) f32", "right (2, 3, 4) f32"}},
        {bad_gather, {"gather", "table (5, 4) f32", "ids (7) f32"}},
        {bad_norm, {"norm", "x (2, 4) f32", "beta (3) f32"}},
        {bad_beta, {"norm", "gamma (4) f32", "beta (4) f16"}},
        {bad_heads, {"attention", "q (2, 3, 10) f32"}},
        {bad_groups, {"attention", "3 heads", "2 key/value heads"}},
        {bad_keys, {"attention", "q (1, 3, 6) f32", "k (2, 5, 6) f32"}},
        {bad_key_mask, {"attention", "q (2, 4, 6) f32", "padding (2, 5) i32"}},
        {no_prefix, {"attention", "requires a prefix"}},
        {idle_prefix, {"attention", "requires BY_MASK_PREFIX"}},
        {bad_prefix, {"attention", "a prefix (B)", "prefix (3) i32"}},
        {bad_pattern_length, {"attention", "length 0"}},
        {bad_pattern_part, {"attention", "invalid part 1"}},
        {empty_pattern, {"attention", "3 before", "-4 after"}},
        {huge_pattern, {"attention", "2147483647", "too large"}},
        {bad_summary, {"attention", "9 of 8 columns"}},
        {bad_score_bias, {"attention", "a bias (B or 1", "bias (1, 2, 4, 4) f32"}},
        {bad_bias_entries, {"attention", "T or 1, S)", "bias (1, 3, 4, 5) f32"}},
        {bad_bias_type, {"attention", "T or 1, L)", "bias (1, 1, 1, 5) bf16"}},
        {bad_pair_mask, {"attention", "pair mask", "pairs (1, 1, 3, 4) i32"}},
        {bad_pair_type, {"attention", "i32 or u8", "pairs (1, 1, 1, 4) f32"}},
        {bad_cache, {"attention_cached", "q (2, 1, 12) f32", "cache (2, 8, 5) f32"}},
        {bad_loss, {"cross_entropy", "logits (4, 9) f32", "targets (5) i32"}},
        {bad_axis, {"sum", "axis"}},
        {bad_reshape, {"reshape", "x (2, 3) f32"}},
        {bad_reshape_sign, {"reshape", "x (2, 3) f32"}},
        {bad_reshape_size, {"reshape", "x (2, 3) f32"}},
        {bad_permute, {"permute", "x (2, 3) f32"}},
        {bad_slice, {"slice", "x (2, 3) f32"}},
        {bad_slice_size, {"slice", "x (2, 3) f32"}},
        {bad_concat, {"concat", "left (2, 3) f32", "right (3, 3) f32"}},
        {bad_concat_count, {"concat", "0 inputs"}},
        {bad_dropout, {"dropout", "1"}},
        {bad_softmax, {"softmax", "x (2, 3) i32"}},
        {bad_hash, {"hash", "rotations", "r (2, 3, 1, 5) f32"}},
        {odd_buckets, {"hash", "3"}},
        {bad_chunks, {"chunked_attention", "length 8"}},
        {bad_order, {"chunked_attention", "order"}},
        {bad_argmax, {"argmax", "x () f32"}},
        {bad_rank, {"7 axes", "6"}},
        {bad_size, {"axis 1", "3"}},
        {bad_negative, {"axis 1", "-3"}},
        {bad_param, {"w", "shape"}},
        {bad_state, {"cache", "12 bytes", "8"}},
        {bad_depth, {"16"}},
        {bad_model, {"h.1", "there are 7 heads"}},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_params *params = new_params();
        by_graph *g = new_graph(params, true);
        cases[i].build(g);
        assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
        /* what is built on it changes nothing, whatever it is */
        by_tensor *x =
            by_name(by_add(g, by_param(g, "later", SHAPE(3), normal), f32_input(g, "y", SHAPE(4))), "sum");
        x = by_reshape(g, by_slice(g, by_permute_axes(g, x, (int[]){1, 0}), 4, 5, 6), SHAPE(-1));
        x = by_concat(g, (by_tensor *[]){by_cast(g, x, BY_F16), by_scale(g, x, 2)}, 2, -1);
        by_attention(g, x, NULL, NULL, &(by_attention_spec){.heads = 3, .weights = (by_tensor *[]){NULL}});
        by_output(g, "loss", by_mean(g, x, 0));
        assert_int_equal(by_params_freeze(params, true), BY_OK);
        assert_null(by_compile(g, &(by_compile_spec){.loss = x, .grads = BY_GRAD_STORE}));
        assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
        for (int k = 0; k < 3 && cases[i].says[k]; k++)
            assert_contains(by_error_message(), cases[i].says[k]);
        by_params_free(params);
    }
}

static void refused(by_graph *g, by_compile_spec spec, const char *says)
{
    assert_null(by_compile(g, &spec));
    assert_contains(by_error_message(), says);
}

static void test_compile_errors(void **state)
{
    (void)state;
    by_params *params = new_params();
    by_graph *g = new_graph(params, true);
    by_param(g, "w", SHAPE(3), normal);
    refused(g, (by_compile_spec){0}, "frozen");

    assert_int_equal(by_params_freeze(params, false), BY_OK);
    g = new_graph(params, true);
    by_param(g, "unknown", SHAPE(3), normal);
    refused(g, (by_compile_spec){0}, "unknown");

    g = new_graph(params, true); /* the parameters have no gradient buffer */
    by_tensor *w = by_param(g, "w", SHAPE(3), normal);
    refused(g, (by_compile_spec){.loss = by_sum(g, by_mul(g, w, w), 0), .grads = BY_GRAD_STORE},
            "not frozen for training");

    g = new_graph(params, true);
    w = by_name(by_scale(g, by_param(g, "w", SHAPE(3), normal), 2), "twice");
    refused(g, (by_compile_spec){.loss = w, .grads = BY_GRAD_STORE},
            "twice cannot be differentiated: it is not a scalar");

    g = new_graph(params, false); /* not for training */
    w = by_param(g, "w", SHAPE(3), normal);
    refused(g, (by_compile_spec){.loss = by_sum(g, w, 0), .grads = BY_GRAD_STORE}, "no trainable parameter");

    g = new_graph(params, true); /* weights of attention are for looking at */
    by_tensor *weights, *q = by_reshape(g, by_param(g, "w", SHAPE(3), normal), SHAPE(1, 1, 3));
    by_attention(g, q, NULL, NULL, &(by_attention_spec){.heads = 1, .weights = &weights});
    by_tensor *loss = by_sum(g, by_reshape(g, weights, SHAPE(1)), 0);
    refused(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE}, "weights");

    assert_null(by_params_new(device, BY_I32));
    assert_null(by_device_open("abacus", 1));
    assert_contains(by_error_message(), "abacus");
    assert_null(by_device_open("cpu:abacus", 1));
    assert_contains(by_error_message(), "abacus");
    assert_null(by_device_open("cpu", -1));
    by_params_free(params);
}

static void test_access(void **state)
{
    (void)state;
    by_params *params = new_params();
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(3)), *mid = by_name(by_scale(g, x, 2), "mid");
    by_tensor *y = by_output(g, "y", by_softmax(g, by_scale(g, mid, 3)));
    assert_int_equal(by_params_freeze(params, true), BY_OK);
    by_program *p = by_compile(g, &(by_compile_spec){0});
    assert_non_null(p);
    float v[4] = {1, 2, 3, 4};
    assert_int_equal(by_write(p, x, v, 4 * sizeof *v), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "x holds 12 bytes, not 16");
    assert_int_equal(by_write(p, x, v, 3 * sizeof *v), BY_OK);
    assert_int_equal(by_run(p), BY_OK);
    assert_int_equal(by_read_f32(p, mid, v), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "mid is not readable");
    assert_int_equal(by_read_f32(p, y, v), BY_OK);
    assert_true(fabsf(v[0] + v[1] + v[2] - 1) < 1e-6f);
    assert_int_equal(by_read_f32(p, x, v), BY_OK); /* inputs stay what they were */
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 3);
    by_program_free(p);
    by_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_compile_errors),
        cmocka_unit_test(test_access),
    };
    return cmocka_run_group_tests_name("graph errors", tests, open_device, close_device);
}
