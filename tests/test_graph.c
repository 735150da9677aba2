/* test_graph.c - differentiating and rewriting graphs: names, tied parameters, gradients that add up, recomputation,
 * fusion. Memory and traces are in test_graph_run.c, bad graphs in test_graph_errors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "decoder_case.h"

/* ---- names ----------------------------------------------------------------------------------- */

static void test_scopes(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, false);
    by_param(g, "wte", SHAPE(2), normal);
    by_scope_push(g, "h.%d", 3);
    by_scope_push(g, "attn");
    by_tensor *w = by_param(g, "weight", SHAPE(2, 2), normal);
    assert_ptr_equal(by_param(g, "weight", SHAPE(2, 2), normal),
                     w); /* one leaf however often it is asked for */
    by_scope_pop(g);
    by_scope_push(g, "%s", ""); /* adds nothing */
    by_param(g, "bias", SHAPE(2), normal);
    by_scope_pop(g);
    by_scope_pop(g);
    by_scope_pop(g); /* one too many is harmless */
    by_block_push(g, "block");
    by_param(g, "x", SHAPE(1), normal);
    by_block_pop(g);
    by_param(g, "last", 0, NULL, normal);
    for (int i = 0; i < 16; i++)
        by_scope_push(g, "d");
    assert_int_equal(by_graph_status(g), BY_OK);
    static const char *const names[] = {"wte", "h.3.attn.weight", "h.3.bias", "block.x", "last"};
    assert_int_equal(by_params_count(params), BY_COUNT(names));
    for (int i = 0; i < BY_COUNT(names); i++) {
        assert_string_equal(by_params_name(params, i), names[i]);
        assert_int_equal(by_params_find(params, names[i]), i);
    }
    assert_int_equal(by_params_find(params, "h.3"), -1);
    assert_int_equal(by_params_elements(params), 2 + 4 + 2 + 1 + 1);
    assert_int_equal(by_params_rank(params, 1), 2);
    assert_int_equal(by_params_shape(params, 1)[1], 2);
    by_graph_free(g);
    by_params_free(params);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The tied table's gradient is the sum of what two tables of the same values would get. */
static void test_tied(void **state)
{
    (void)state;
    float *grads[2][2];
    for (int tied = 0; tied < 2; tied++) {
        by_params *params = new_params(BY_F32);
        by_graph *g = new_graph(params, true);
        by_tensor *in = by_param(g, "in", SHAPE(V, C), normal);
        by_tensor *out = tied ? in : by_param(g, "out", SHAPE(V, C), normal);
        by_tensor *ids = by_input(g, "ids", BY_I32, SHAPE(5)),
                  *targets = by_input(g, "targets", BY_I32, SHAPE(5));
        by_tensor *logits = by_linear(g, by_gather(g, in, ids), out, NULL, NULL);
        by_tensor *loss = by_cross_entropy(g, logits, targets, NULL);
        freeze(params);
        if (!tied) {
            float values[V * C];
            assert_int_equal(by_params_get(params, 0, BY_SLOT_VALUE, values), BY_OK);
            assert_int_equal(by_params_set(params, 1, BY_SLOT_VALUE, values), BY_OK);
        }
        by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
        assert_int_equal(count_nodes(p, "add"), 0); /* the sum is made in place */
        write_i32(p, ids, (int32_t[]){1, 4, 4, 0, 10});
        write_i32(p, targets, (int32_t[]){2, 3, 1, 10, 0});
        run(p);
        grads[tied][0] = gradient(params, "in");
        grads[tied][1] = tied ? NULL : gradient(params, "out");
        by_program_free(p);
        by_params_free(params);
    }
    for (int i = 0; i < V * C; i++)
        grads[0][0][i] += grads[0][1][i];
    close_to(grads[1][0], grads[0][0], V * C, 1e-6);
    for (int i = 0; i < 4; i++)
        base_free(grads[i / 2][i % 2]);
}

/* A gradient that reaches two parameters through an addition belongs to both: adding more to one must leave
 * the other alone. */
static void test_shared_gradient(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3, 2), normal), *u = by_param(g, "u", SHAPE(3, 2), normal);
    by_tensor *first = by_input(g, "first", BY_I32, SHAPE(2)),
              *second = by_input(g, "second", BY_I32, SHAPE(2));
    by_tensor *direct = by_gather(g, w, first);
    by_tensor *both = by_gather(g, by_add(g, w, u), second);
    by_tensor *loss = by_sum(g, by_sum(g, by_add(g, direct, both), 0), 0);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    write_i32(p, first, (int32_t[]){0, 0});
    write_i32(p, second, (int32_t[]){2, 0});
    run(p);
    float *dw = gradient(params, "w"), *du = gradient(params, "u");
    static const float want_w[] = {3, 3, 0, 0, 1, 1}, want_u[] = {1, 1, 0, 0, 1, 1};
    for (int i = 0; i < 6; i++) {
        assert_true(dw[i] == want_w[i]);
        assert_true(du[i] == want_u[i]);
    }
    base_free(dw);
    base_free(du);
    by_program_free(p);
    by_params_free(params);
}

/* A parameter that one op reads twice: gamma and beta are the same. */
static void test_read_twice(void **state)
{
    (void)state;
    static const by_grad_mode modes[] = {BY_GRAD_STORE, BY_GRAD_ADD};
    for (int k = 0; k < BY_COUNT(modes); k++) {
        by_params *params = new_params(BY_F32);
        by_graph *g = new_graph(params, true);
        by_tensor *w = by_param(g, "w", SHAPE(2), normal), *x = f32_input(g, "x", SHAPE(1, 2));
        by_tensor *loss = by_sum(g, by_sum(g, by_layernorm(g, x, w, w, 0), 0), 0);
        freeze(params);
        by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = modes[k]});
        by_write(p, x, (float[]){3, 1}, 2 * sizeof(float));
        run(p);
        float *d = gradient(params, "w");
        assert_true(fabsf(d[0] - 2) < 1e-6f &&
                    fabsf(d[1]) < 1e-6f); /* normed x is 1, -1; beta's gradient 1, 1 */
        base_free(d);
        by_program_free(p);
        by_params_free(params);
    }
}

/* One tensor, many ways to the loss; operands of equal size and other shape; parameters that are seen through
 * views. */
static void test_fan_out(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *a = by_param(g, "a", SHAPE(1, 4), normal), *b = by_param(g, "b", SHAPE(4), normal);
    by_tensor *x = by_add(g, a, b), *y = by_mul(g, x, b), *view = by_reshape(g, b, SHAPE(2, 2));
    by_tensor *z = by_add(g, y, by_reshape(g, by_mul(g, view, view), SHAPE(1, 4)));
    by_tensor *loss = by_sum(g, by_reshape(g, z, SHAPE(4)), 0); /* sum of (a + b) b + b b */
    freeze(params);
    float va[4], vb[4];
    by_params_get(params, 0, BY_SLOT_VALUE, va);
    by_params_get(params, 1, BY_SLOT_VALUE, vb);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    run(p);
    float *da = gradient(params, "a"), *db = gradient(params, "b");
    for (int i = 0; i < 4; i++) {
        assert_true(fabsf(da[i] - vb[i]) < 1e-6f);
        assert_true(fabsf(db[i] - (va[i] + 4 * vb[i])) < 1e-5f);
    }
    base_free(da);
    base_free(db);
    by_program_free(p);
    by_params_free(params);
}

/* What a program stores is its whole gradient: 0 where a parameter does not lead to the loss, whatever was
 * there before. */
static void test_unused(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3), normal), *idle = by_param(g, "idle", SHAPE(2), normal);
    by_tensor *loss = by_sum(g, w, 0);
    by_output(g, "shown", by_scale(g, idle, 2));
    freeze(params);
    assert_int_equal(by_params_set(params, 1, BY_SLOT_GRAD, (float[]){7, 8}), BY_OK);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    run(p);
    float *d = gradient(params, "idle");
    assert_true(d[0] == 0 && d[1] == 0);
    base_free(d);
    by_program_free(p);
    by_params_free(params);
}

static void test_grad_add(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    decoder d;
    by_program *store = decoder_program(params, 0.1f, (by_compile_spec){.grads = BY_GRAD_STORE}, &d);
    run(store);
    run(store); /* storing twice is storing once */
    float *once = all_gradients(params);
    by_program_free(store);
    by_program *add = decoder_program(params, 0.1f, (by_compile_spec){.grads = BY_GRAD_ADD}, &d);
    run(add);
    by_program_free(add);
    float *twice = all_gradients(params);
    for (int64_t i = 0; i < params->trained; i++)
        once[i] *= 2;
    for (int i = 0; i < params->count; i++) {
        const gr_param_info *info = &params->list[i];
        close_to(twice + info->offset, once + info->offset, info->count, 1e-5);
    }
    base_free(once);
    base_free(twice);
    by_params_free(params);
}

static void test_loss_scale(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3), normal), *scale = f32_input(g, "scale", 0, NULL);
    by_tensor *loss = by_sum(g, by_mul(g, w, w), 0);
    freeze(params);
    float value[3], out;
    by_params_get(params, 0, BY_SLOT_VALUE, value);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE, .loss_scale = scale});
    by_write(p, scale, (float[]){256}, sizeof(float));
    run(p);
    float *d = gradient(params, "w");
    for (int i = 0; i < 3; i++)
        assert_true(d[i] == 512 * value[i]);
    assert_int_equal(by_read_f32(p, loss, &out), BY_OK); /* the loss itself is not scaled */
    assert_true(fabsf(out - (value[0] * value[0] + value[1] * value[1] + value[2] * value[2])) < 1e-5f);
    base_free(d);
    by_program_free(p);
    by_params_free(params);
}

/* Gradients of a bf16 parameter are added up in f32, whatever leads to it. */
static void test_wide_sums(void **state)
{
    (void)state;
    by_params *params = new_params(BY_BF16);
    by_graph *g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(1), normal), *parts[2];
    by_tensor *x = by_input(g, "x", BY_BF16, SHAPE(1));
    parts[0] = by_mul(g, w, x); /* 256 */
    parts[1] = by_scale(g, w, 1);
    by_tensor *loss = by_cast(g, by_sum(g, by_concat(g, parts, 2, 0), 0), BY_F32);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    uint16_t big = base_f32_to_bf16(256);
    by_write(p, x, &big, sizeof big);
    run(p);
    float *d = gradient(params, "w");
    assert_true(d[0] == 257); /* which bf16 does not have */
    base_free(d);
    by_program_free(p);
    by_params_free(params);
}

/* ---- rewriting ------------------------------------------------------------------------------- */

/* With products of our own, since a library's activation inside a product (the first time, when nobody needs
 * what goes into it) has other bits than ours after one (the second time, for the backward pass). */
static void test_recompute(void **state)
{
    (void)state;
    static const float dropout[] = {0, 0.2f};
    cpu_context *cpu = device->impl;
    const int gemm = cpu->gemm;
    cpu->gemm = BY_GEMM_OWN;
    for (int k = 0; k < BY_COUNT(dropout); k++) {
        by_params *params = new_params(BY_F32);
        size_t kept, dropped, fused;
        float loss[3];
        float *a =
            decoder_gradients(params, dropout[k], (by_compile_spec){.no_fusion = true}, &kept, &loss[0]);
        float *b = decoder_gradients(
            params, dropout[k], (by_compile_spec){.no_fusion = true, .recompute = true}, &dropped, &loss[1]);
        float *c =
            decoder_gradients(params, dropout[k], (by_compile_spec){.recompute = true}, &fused, &loss[2]);
        assert_memory_equal(a, b, (size_t)params->trained * sizeof *a);
        assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
        assert_true(dropped < kept);
        assert_true(fused < kept);
        assert_true(fabsf(loss[2] - loss[0]) < 1e-5f);
        for (int i = 0; i < params->count; i++)
            close_to(c + params->list[i].offset, a + params->list[i].offset, params->list[i].count, 1e-5);
        base_free(a);
        base_free(b);
        base_free(c);
        by_params_free(params);
    }
    cpu->gemm = gemm;
}

static void test_fusion(void **state)
{
    (void)state;
    static const float dropout[] = {0, 0.2f};
    for (int k = 0; k < BY_COUNT(dropout); k++) {
        by_params *params = new_params(BY_F32);
        decoder d;
        by_program *plain = decoder_program(params, dropout[k], (by_compile_spec){.no_fusion = true}, &d);
        float loss[2];
        run(plain);
        by_read_f32(plain, d.loss, &loss[0]);
        assert_int_equal(count_nodes(plain, "add"), 2 * LAYERS);
        assert_int_equal(count_nodes(plain, "dropout"), k ? 2 * LAYERS : 0);
        assert_int_equal(count_nodes(plain, "norm"), 2 * LAYERS + 1);
        by_program_free(plain);
        by_program *fused = decoder_program(params, dropout[k], (by_compile_spec){0}, &d);
        run(fused);
        by_read_f32(fused, d.loss, &loss[1]);
        assert_int_equal(count_nodes(fused, "add"), 0); /* every one is followed by a norm */
        assert_int_equal(count_nodes(fused, "dropout"), 0);
        assert_int_equal(count_nodes(fused, "norm"), 2 * LAYERS + 1);
        by_program_free(fused);
        assert_true(fabsf(loss[0] - loss[1]) < 1e-5f);

        size_t bytes;
        float *a =
            decoder_gradients(params, dropout[k], (by_compile_spec){.no_fusion = true}, &bytes, &loss[0]);
        float *b = decoder_gradients(params, dropout[k], (by_compile_spec){0}, &bytes, &loss[1]);
        for (int i = 0; i < params->count; i++)
            close_to(b + params->list[i].offset, a + params->list[i].offset, params->list[i].count, 1e-5);
        base_free(a);
        base_free(b);
        by_params_free(params);
    }
}

/* Fusion must keep its hands off a sum that somebody reads before the norm, and off one with a repeated
 * operand. */
static void test_no_fusion(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *x = by_param(g, "x", SHAPE(3, 4), normal), *h = by_param(g, "h", SHAPE(3, 4), normal);
    by_tensor *gamma = by_param(g, "gamma", SHAPE(4), normal);
    by_tensor *sum = by_add(g, x, h);
    by_output(g, "early", by_scale(g, sum, 2));
    by_output(g, "late", by_rmsnorm(g, sum, gamma, 1e-5f));
    by_output(g, "short", by_rmsnorm(g, by_add(g, x, gamma), gamma, 1e-5f));
    by_tensor *dropped = by_output(g, "dropped", by_dropout(g, h, 0.5f)); /* read from outside */
    by_output(g, "kept", by_rmsnorm(g, by_add(g, x, dropped), gamma, 1e-5f));
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    assert_int_equal(count_nodes(p, "add"), 2);
    assert_int_equal(count_nodes(p, "dropout"), 1);
    run(p);
    by_program_free(p);
    by_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes),          cmocka_unit_test(test_tied),
        cmocka_unit_test(test_shared_gradient), cmocka_unit_test(test_read_twice),
        cmocka_unit_test(test_fan_out),         cmocka_unit_test(test_unused),
        cmocka_unit_test(test_grad_add),        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_wide_sums),       cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_fusion),          cmocka_unit_test(test_no_fusion),
    };
    return cmocka_run_group_tests_name("graph", tests, open_device, close_device);
}
