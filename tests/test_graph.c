/* test_graph.c - differentiating, rewriting, planning and running graphs: tied parameters, gradients that add
 * up, recomputation, fusion, the memory plan, states, traces and texts. Bad graphs are in
 * test_graph_errors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "child.h"
#include "cpu/cpu.h"

#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), ((int64_t[]){__VA_ARGS__})

static const by_init normal = {BY_INIT_NORMAL, 1};
static by_device *device;

/* ---- helpers --------------------------------------------------------------------------------- */

static by_params *new_params(by_dtype type)
{
    by_params *p = by_params_new(device, type);
    assert_non_null(p);
    return p;
}

static by_graph *new_graph(by_params *p, bool training)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = p, .training = training});
    assert_non_null(g);
    return g;
}

static void freeze(by_params *p)
{
    assert_int_equal(by_params_freeze(p, true), BY_OK);
    assert_int_equal(by_params_init(p, 5), BY_OK);
}

static by_program *compile(by_graph *g, by_compile_spec spec)
{
    by_program *p = by_compile(g, &spec);
    if (!p)
        fail_msg("compile: %s", by_error_message());
    return p;
}

static void run(by_program *p)
{
    if (by_run(p) != BY_OK)
        fail_msg("run: %s", by_error_message());
}

static void write_i32(by_program *p, by_tensor *t, const int32_t *values)
{
    assert_int_equal(by_write(p, t, values, (size_t)by_elements(t) * sizeof *values), BY_OK);
}

/* The gradient of a parameter, on the heap. */
static float *gradient(const by_params *p, const char *name)
{
    int i = by_params_find(p, name);
    assert_true(i >= 0);
    float *out = base_alloc((size_t)p->list[i].count * sizeof *out);
    assert_non_null(out);
    assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, out), BY_OK);
    return out;
}

static void close_to(const float *x, const float *y, int64_t n, double tolerance)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    assert_true(size > 0);
    if (!(error <= tolerance * tolerance * size))
        fail_msg("relative error %g, more than %g", sqrt(error / size), tolerance);
}

static by_tensor *f32_input(by_graph *g, const char *name, int rank, const int64_t *shape)
{
    return by_input(g, name, BY_F32, rank, shape);
}

/* Nodes of an op in a program's text. */
static int count_nodes(const by_program *p, const char *op)
{
    char *text = by_program_text(p, false);
    assert_non_null(text);
    int n = 0;
    for (char *line = text; *line;) {
        char name[32];
        assert_int_equal(sscanf(line, "%*d %*c %31s", name), 1);
        n += strcmp(name, op) == 0;
        line = strchr(line, '\n') + 1;
    }
    by_string_free(text);
    return n;
}

/* ---- a small decoder ------------------------------------------------------------------------- */

enum { B = 2, T = 12, C = 16, H = 2, V = 11, LAYERS = 3 };

typedef struct decoder {
    by_tensor *ids, *targets, *loss;
} decoder;

static by_tensor *norm(by_graph *g, const char *name, by_tensor *x)
{
    by_scope_push(g, "%s", name);
    by_tensor *gamma = by_param(g, "weight", SHAPE(C), normal), *beta = by_param(g, "bias", SHAPE(C), normal);
    by_scope_pop(g);
    return by_layernorm(g, x, gamma, beta, 1e-5f);
}

static by_tensor *dense(by_graph *g, const char *name, by_tensor *x, int64_t out, by_act act)
{
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "weight", SHAPE(by_dim(x, -1), out), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *b = by_param(g, "bias", SHAPE(out), normal);
    by_scope_pop(g);
    return by_linear(g, x, w, b, &(by_linear_spec){.w_is_kn = true, .act = act});
}

static decoder build_decoder(by_graph *g, float p)
{
    decoder d;
    d.ids = by_input(g, "ids", BY_I32, SHAPE(B, T));
    d.targets = by_input(g, "targets", BY_I32, SHAPE(B, T));
    by_tensor *table = by_param(g, "wte", SHAPE(V, C), normal);
    by_tensor *x = by_gather(g, table, d.ids);
    for (int i = 0; i < LAYERS; i++) {
        by_block_push(g, "h.%d", i);
        by_tensor *h = dense(g, "c_attn", norm(g, "ln_1", x), 3 * C, BY_ACT_NONE);
        h = by_attention(g, h, NULL, NULL,
                         &(by_attention_spec){.heads = H, .mask = BY_MASK_CAUSAL, .dropout = p});
        x = by_add(g, x, by_dropout(g, dense(g, "c_proj", h, C, BY_ACT_NONE), p));
        h = dense(g, "mlp", norm(g, "ln_2", x), 4 * C, BY_GELU);
        x = by_add(g, x, by_dropout(g, dense(g, "mlp_proj", h, C, BY_ACT_NONE), p));
        by_block_pop(g);
    }
    by_tensor *logits = by_linear(g, norm(g, "ln_f", x), table, NULL, NULL); /* tied */
    d.loss = by_cross_entropy(g, logits, d.targets, NULL);
    return d;
}

/* A compiled decoder with its data, ready to run. */
static by_program *decoder_program(by_params *params, float p, by_compile_spec spec, decoder *d)
{
    by_graph *g = new_graph(params, true);
    *d = build_decoder(g, p);
    if (!params->frozen)
        freeze(params);
    spec.loss = d->loss;
    by_program *program = compile(g, spec);
    int32_t ids[B * T], targets[B * T];
    for (int i = 0; i < B * T; i++) {
        ids[i] = i * 7 % V;
        targets[i] = i * 5 % V;
    }
    write_i32(program, d->ids, ids);
    write_i32(program, d->targets, targets);
    by_program_seed(program, 3, 4);
    return program;
}

/* All gradients, flat, on the heap. */
static float *all_gradients(const by_params *p)
{
    float *copy = base_alloc((size_t)p->trained * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, p->grad, (size_t)p->trained * sizeof *copy);
    return copy;
}

/* Run a decoder once with the given options and give its gradients. */
static float *decoder_gradients(by_params *params, float p, by_compile_spec spec, size_t *bytes, float *loss)
{
    decoder d;
    spec.grads = BY_GRAD_STORE;
    by_program *program = decoder_program(params, p, spec, &d);
    run(program);
    *bytes = by_program_bytes(program);
    assert_int_equal(by_read_f32(program, d.loss, loss), BY_OK);
    by_program_free(program);
    return all_gradients(params);
}

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

/* ---- memory ---------------------------------------------------------------------------------- */

/* The nodes a tensor's memory is in use for: everything that shares it. */
static void extent(const by_graph *g, const by_tensor *root, int *first, int *last)
{
    *first = root->node ? g->n_nodes : -1;
    *last = root->node ? -1 : g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] && n->out[k]->root == root) {
                *first = BY_MIN(*first, i);
                *last = BY_MAX(*last, n->out[k]->is_output ? g->n_nodes : i);
            }
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && n->in[k]->root == root)
                *last = BY_MAX(*last, i);
    }
}

/* Roots that are alive at the same time do not overlap, and nothing lies outside; found out here from the
 * nodes alone. */
static void check_plan(const by_program *p, bool reuses)
{
    enum { MOST = 2000 };
    const by_graph *g = p->graph;
    static const by_tensor *roots[MOST];
    static int first[MOST], last[MOST];
    int count = 0, taken_over = 0;
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->place == GR_PLACE_INPUT)
            roots[count++] = g->leaves[i];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            const by_tensor *t = g->nodes[i]->out[k];
            taken_over += t && t->root != t && gr_ops[g->nodes[i]->op].over != 0;
            if (t && t->root == t && t->place == GR_PLACE_PLANNED)
                roots[count++] = t;
        }
    assert_true(count < MOST);
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        size_t begin = roots[i]->offset, end = begin + gr_tensor_bytes(roots[i]);
        extent(g, roots[i], &first[i], &last[i]);
        sum += gr_tensor_bytes(roots[i]);
        assert_true(begin % 64 == 0 && end <= p->bytes);
        assert_ptr_equal(roots[i]->data, (char *)p->memory + begin);
        for (int j = 0; j < i; j++) {
            size_t other = roots[j]->offset;
            if (first[i] <= last[j] && first[j] <= last[i] && begin < other + gr_tensor_bytes(roots[j]) &&
                other < end)
                fail_msg("%s (nodes %d to %d) and %s (nodes %d to %d) overlap", gr_tensor_label(roots[i]),
                         first[i], last[i], gr_tensor_label(roots[j]), first[j], last[j]);
        }
    }
    if (reuses) {
        assert_true(taken_over > 0);
        assert_true(p->bytes < sum);
    }
}

static void test_plan(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    for (int k = 0; k < 8; k++) {
        decoder d;
        by_compile_spec spec = {
            .grads = k & 1 ? BY_GRAD_ADD : BY_GRAD_STORE, .recompute = k & 2, .no_fusion = k & 4};
        by_program *p = decoder_program(params, 0.1f, spec, &d);
        check_plan(p, true);
        by_program_free(p);
    }
    by_params_free(params);
}

/* Planned memory gives what memory that is never used twice gives. */
static void test_reuse(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    float loss[2];
    float *grads[2];
    for (int keep = 0; keep < 2; keep++) {
        by_graph *g = new_graph(params, true);
        decoder d = build_decoder(g, 0.1f);
        for (int i = 0; keep && i < g->n_nodes; i++)
            for (int k = 0; k < g->nodes[i]->n_out; k++)
                if (g->nodes[i]->out[k])
                    by_output(g, NULL, g->nodes[i]->out[k]);
        if (!params->frozen)
            freeze(params);
        by_program *p =
            compile(g, (by_compile_spec){.loss = d.loss, .grads = BY_GRAD_STORE, .no_fusion = true});
        check_plan(p, !keep);
        int32_t ids[B * T];
        for (int i = 0; i < B * T; i++)
            ids[i] = i % V;
        write_i32(p, d.ids, ids);
        write_i32(p, d.targets, ids);
        run(p);
        run(p);
        by_read_f32(p, d.loss, &loss[keep]);
        grads[keep] = all_gradients(params);
        by_program_free(p);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(grads[0], grads[1], (size_t)params->trained * sizeof(float));
    base_free(grads[0]);
    base_free(grads[1]);
    by_params_free(params);
}

/* Views share memory, also with parameters and inputs, and keep it alive. */
static void test_views(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(2, 6)), *w = by_param(g, "w", SHAPE(12), normal);
    by_tensor *in_x = by_output(g, "in_x", by_reshape(g, x, SHAPE(3, -1)));
    by_tensor *in_w = by_output(g, "in_w", by_reshape(g, w, SHAPE(2, 2, 3)));
    by_tensor *y = by_scale(g, x, 2), *view = by_reshape(g, y, SHAPE(12));
    by_tensor *z = by_scale(g, y, 3); /* must not take over what the view still needs */
    by_tensor *both = by_output(g, "both", by_add(g, view, by_reshape(g, z, SHAPE(12))));
    assert_int_equal(by_dim(in_x, 1), 4);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    check_plan(p, false);
    assert_ptr_equal(in_x->data, x->data);
    assert_ptr_equal(in_w->data, w->data);
    float v[12], out[12];
    for (int i = 0; i < 12; i++)
        v[i] = (float)i;
    by_write(p, x, v, sizeof v);
    run(p);
    assert_int_equal(by_read_f32(p, in_x, out), BY_OK);
    assert_memory_equal(out, v, sizeof v);
    assert_int_equal(by_read_f32(p, both, out), BY_OK);
    for (int i = 0; i < 12; i++)
        assert_true(out[i] == 8 * v[i]);
    by_params_get(params, 0, BY_SLOT_VALUE, v);
    assert_int_equal(by_read_f32(p, in_w, out), BY_OK);
    assert_memory_equal(out, v, sizeof v);
    by_program_free(p);
    by_params_free(params);
}

/* Axes of size 0 are legal where a batch may be empty. */
static void test_empty(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *x = f32_input(g, "x", SHAPE(0, 3, 8)), *gamma = by_param(g, "gamma", SHAPE(8), normal);
    by_tensor *ids = by_input(g, "ids", BY_I32, SHAPE(0, 3)),
              *table = by_param(g, "table", SHAPE(5, 8), normal);
    by_tensor *h = by_add(g, x, by_gather(g, table, ids));
    h = by_layernorm(g, by_add(g, by_mul(g, h, gamma), x), gamma, gamma, 1e-5f);
    h = by_linear(g, h, by_param(g, "w", SHAPE(24, 8), normal), by_param(g, "b", SHAPE(24), normal),
                  &(by_linear_spec){.act = BY_GELU});
    h = by_attention(g, h, NULL, NULL, &(by_attention_spec){.heads = 2, .mask = BY_MASK_CAUSAL});
    h = by_concat(g, (by_tensor *[]){h, by_slice(g, h, 2, 1, 2)}, 2, 2);
    h = by_permute_axes(g, by_softmax(g, by_dropout(g, h, 0.5f)), (int[]){1, 0, 2});
    by_output(g, "argmax", by_argmax(g, h));
    by_output(g, "sum", by_sum(g, h, 0));
    h = by_reshape(g, by_permute_axes(g, h, (int[]){1, 0, 2}), SHAPE(0, 10));
    by_tensor *loss = by_cross_entropy(g, h, by_reshape(g, ids, SHAPE(0)), NULL);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    run(p);
    float out = 1;
    assert_int_equal(by_read_f32(p, loss, &out), BY_OK);
    assert_true(out == 0);
    for (int i = 0; i < params->count; i++) {
        float *d = gradient(params, by_params_name(params, i));
        for (int64_t k = 0; k < params->list[i].count; k++)
            assert_true(d[k] == 0);
        base_free(d);
    }
    by_program_free(p);
    by_params_free(params);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Attention over a cache, two programs sharing it: three positions at once, then one, against all four
 * without a cache. */
static by_program *cached(by_params *params, by_memory *const *memory, int64_t count, by_tensor **x,
                          by_tensor **past, by_tensor **y)
{
    by_graph *g = new_graph(params, false);
    by_tensor *k = by_state(g, "k", BY_F32, SHAPE(1, 5, 4), memory[0]),
              *v = by_state(g, "v", BY_F32, SHAPE(1, 5, 4), memory[1]);
    *x = f32_input(g, "x", SHAPE(1, count, 12));
    *past = by_input(g, "past", BY_I32, SHAPE(1));
    by_tensor *out = by_attention_cached(g, *x, NULL, NULL, k, v, *past, &(by_attention_spec){.heads = 2});
    if (y)
        *y = by_output(g, "y", out);
    return compile(g, (by_compile_spec){0});
}

static void test_states(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    freeze(params);
    by_memory *memory[2] = {by_memory_new(device, 80), by_memory_new(device, 80)};
    assert_true(memory[0] && memory[1]);
    float x[4 * 12], full[16], last[4];
    base_rng_fill_normal(x, BY_COUNT(x), 1, 2, 0, 1);
    by_tensor *in[3], *past[2], *out[2];
    by_program *fill =
        cached(params, memory, 3, &in[0], &past[0], NULL); /* its result interests nobody, its caches do */
    by_program *step = cached(params, memory, 1, &in[1], &past[1], &out[1]);
    by_write(fill, in[0], x, 3 * 12 * sizeof *x);
    write_i32(fill, past[0], (int32_t[]){0});
    run(fill);
    by_program_free(fill);
    by_write(step, in[1], x + 36, 12 * sizeof *x);
    write_i32(step, past[1], (int32_t[]){3});
    run(step);
    assert_int_equal(by_read_f32(step, out[1], last), BY_OK);
    write_i32(step, past[1], (int32_t[]){5}); /* the cache is full */
    assert_int_equal(by_run(step), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "past");
    by_program_free(step);

    by_graph *g = new_graph(params, false);
    in[2] = f32_input(g, "x", SHAPE(1, 4, 12));
    by_attention_spec spec = {.heads = 2, .mask = BY_MASK_CAUSAL};
    out[0] = by_output(g, "y", by_attention(g, in[2], NULL, NULL, &spec));
    by_program *p = compile(g, (by_compile_spec){0});
    by_write(p, in[2], x, sizeof x);
    run(p);
    by_read_f32(p, out[0], full);
    close_to(last, full + 12, 4, 1e-6);
    by_program_free(p);
    by_memory_free(memory[0]);
    by_memory_free(memory[1]);
    by_params_free(params);
}

/* ---- looking inside -------------------------------------------------------------------------- */

typedef struct seen {
    int count, bad_at;
    int64_t first_bad;
    double norm, flops;
    char op[32], name[32], shape[32];
} seen;

static void look(void *user, const by_trace_entry *e)
{
    seen *s = user;
    assert_int_equal(e->index, s->count++);
    assert_true(e->op && e->name && e->shape && e->seconds >= 0 && e->bytes >= 0);
    s->flops += e->flops;
    if (e->first_bad >= 0 && s->bad_at < 0) {
        s->bad_at = e->index;
        s->first_bad = e->first_bad;
        snprintf(s->op, sizeof s->op, "%s", e->op);
        snprintf(s->name, sizeof s->name, "%s", e->name);
        snprintf(s->shape, sizeof s->shape, "%s", e->shape);
    }
    if (strcmp(e->name, "product") == 0)
        s->norm = e->norm;
}

static void test_trace(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(2, 3)), *y = f32_input(g, "y", SHAPE(2, 3));
    by_tensor *product = by_name(by_mul(g, x, y), "%s", "product");
    by_tensor *w = by_fill(g, BY_F32, SHAPE(4, 3), 1);
    by_output(g, "out", by_linear(g, product, w, NULL, NULL));
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    assert_true(by_program_flops(p) >= 2 * 2 * 3 * 4);
    float v[6] = {1, 2, 3, 4, 5, 6}, ones[6] = {1, 1, 1, 1, 1, 1};
    by_write(p, x, v, sizeof v);
    by_write(p, y, ones, sizeof ones);
    seen s = {.bad_at = -1};
    by_program_trace(p, look, &s);
    run(p);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.bad_at, -1);
    assert_true(fabs(s.norm - sqrt(91)) < 1e-6);
    assert_true(s.flops == by_program_flops(p));

    ones[4] = NAN;
    by_write(p, y, ones, sizeof ones);
    s = (seen){.bad_at = -1};
    run(p);
    assert_string_equal(s.op, "mul");
    assert_string_equal(s.name, "product");
    assert_string_equal(s.shape, "(2, 3) f32");
    assert_int_equal(s.first_bad, 4);

    by_program_trace(p, NULL, NULL);
    s.count = 0;
    run(p);
    assert_int_equal(s.count, 0);
    by_program_free(p);
    by_params_free(params);
}

static void test_text(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    decoder d;
    by_program *p = decoder_program(params, 0.1f, (by_compile_spec){.grads = BY_GRAD_STORE}, &d);
    char *text = by_program_text(p, false), *dot = by_program_text(p, true);
    assert_true(text && dot);
    int lines = 0;
    for (char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, p->graph->n_nodes);
    assert_contains(text, "h.1.");
    assert_contains(text, "attention_grad");
    assert_contains(text, "(2, 12, 16) f32");
    assert_contains(text, "h.0.c_attn.weight");
    assert_memory_equal(dot, "digraph", 7);
    assert_contains(dot, "->");
    assert_contains(dot, "wte");
    assert_string_equal(dot + strlen(dot) - 2, "}\n");
    by_string_free(text);
    by_string_free(dot);
    by_program_free(p);

    by_program *nothing = compile(new_graph(params, false), (by_compile_spec){0});
    text = by_program_text(nothing, false);
    assert_string_equal(text, "");
    by_string_free(text);
    run(nothing);
    by_program_free(nothing);
    by_params_free(params);
}

/* What attention costs is what is seen: 2 products of head size 6 for each of so many keys, in 2 rows and 3
 * heads. And the text says what that is. */
static void test_attention_cost(void **state)
{
    (void)state;
    static const struct {
        by_mask mask;
        by_pattern pattern;
        double seen; /* by 8 queries of 8 keys */
        const char *text;
    } cases[] = {
        {BY_MASK_NONE, {.kind = BY_PATTERN_FULL}, 64, "x\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_FULL}, 36, "x causal\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_WINDOW, .before = 2}, 21, "x causal window -2 +0\n"},
        {BY_MASK_NONE, {.kind = BY_PATTERN_BLOCKS, .length = 3, .before = 1}, 37, "x blocks of 3 -1 +0\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_STRIDED, .length = 3}, 28, "x causal strided of 3\n"},
        {BY_MASK_CAUSAL,
         {.kind = BY_PATTERN_MEMORY, .length = 3, .before = 2},
         25,
         "x causal memory of 3 -2\n"},
        {BY_MASK_CAUSAL,
         {.kind = BY_PATTERN_FIXED, .length = 4, .after = 1, .part = 2},
         6,
         "x causal fixed of 4 to 1 part 2\n"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_params *params = new_params(BY_F32);
        by_graph *g = new_graph(params, false);
        by_attention_spec spec = {.heads = 3, .mask = cases[i].mask, .pattern = cases[i].pattern};
        by_output(g, "y", by_attention(g, by_input(g, "x", BY_F32, SHAPE(2, 8, 54)), NULL, NULL, &spec));
        freeze(params);
        by_program *p = compile(g, (by_compile_spec){0});
        char *text = by_program_text(p, false);
        assert_true(by_program_flops(p) == cases[i].seen * 4 * 6 * 2 * 3);
        assert_contains(text, cases[i].text);
        by_string_free(text);
        by_program_free(p);
        by_params_free(params);
    }
}

/* The mask depends on seed and step alone. */
static void test_seed(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *x = by_fill(g, BY_F32, SHAPE(400), 1);
    by_tensor *y = by_output(g, "y", by_dropout(g, x, 0.25f)),
              *z = by_output(g, "z", by_dropout(g, x, 0.25f));
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    static const uint64_t seeds[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 1}};
    float v[4][400], other[400];
    for (int k = 0; k < 4; k++) {
        by_program_seed(p, seeds[k][0], seeds[k][1]);
        run(p);
        by_read_f32(p, y, v[k]);
    }
    by_read_f32(p, z, other);
    assert_memory_equal(v[0], v[3], sizeof other);
    assert_memory_not_equal(v[0], v[1], sizeof other);
    assert_memory_not_equal(v[0], v[2], sizeof other);
    assert_memory_not_equal(v[0], other, sizeof other); /* two nodes, two masks */
    int zeros = 0;
    for (int i = 0; i < 400; i++) {
        zeros += v[0][i] == 0;
        assert_true(v[0][i] == 0 || fabsf(v[0][i] - 4.0f / 3) < 1e-6f);
    }
    assert_true(zeros > 60 && zeros < 140); /* 100 expected, standard deviation 8.7 */
    by_program_free(p);
    by_params_free(params);
}

static void test_frees(void **state)
{
    (void)state;
    by_device_free(NULL);
    by_params_free(NULL);
    by_graph_free(NULL);
    by_program_free(NULL);
    by_memory_free(NULL);
    by_string_free(NULL);

    by_device *d = by_device_open("cpu", 1); /* programs, then parameters, then the device */
    assert_non_null(d);
    assert_int_equal(by_device_threads(d), 1);
    assert_string_equal(by_device_name(d), "cpu");
    assert_contains(by_device_description(d), "1 thread");
    by_params *params = by_params_new(d, BY_BF16);
    by_graph *unused = new_graph(params, true), *g = new_graph(params, true);
    by_output(g, "y", by_scale(g, by_param(g, "w", SHAPE(3), normal), 2));
    by_param(unused, "v", SHAPE(3), normal);
    freeze(params);
    by_program *one = compile(g, (by_compile_spec){0});
    g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3), normal);
    by_program *two = compile(g, (by_compile_spec){.loss = by_sum(g, w, 0), .grads = BY_GRAD_STORE});
    run(two);
    by_program_free(one);
    run(two);
    by_graph_free(unused);
    by_program_free(two);
    by_params_free(params);
    by_device_free(d);
}

static int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_shared_gradient),
        cmocka_unit_test(test_read_twice),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_grad_add),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_wide_sums),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_fusion),
        cmocka_unit_test(test_no_fusion),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_attention_cost),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_frees),
    };
    return cmocka_run_group_tests_name("graph", tests, open_device, close_device);
}
