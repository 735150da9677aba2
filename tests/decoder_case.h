/* decoder_case.h - a device, short ways to build and run graphs, and a small decoder. Included after cmocka.h. */
#ifndef BY_TESTS_DECODER_CASE_H
#define BY_TESTS_DECODER_CASE_H

#include <math.h>
#include <stdio.h>

#include "cpu/cpu.h"

#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), ((int64_t[]){__VA_ARGS__})

static const by_init normal = {BY_INIT_NORMAL, 1};
static by_device *device;

/* ---- helpers --------------------------------------------------------------------------------- */

static inline by_params *new_params(by_dtype type)
{
    by_params *p = by_params_new(device, type);
    assert_non_null(p);
    return p;
}

static inline by_graph *new_graph(by_params *p, bool training)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = p, .training = training});
    assert_non_null(g);
    return g;
}

static inline void freeze(by_params *p)
{
    assert_int_equal(by_params_freeze(p, true), BY_OK);
    assert_int_equal(by_params_init(p, 5), BY_OK);
}

static inline by_program *compile(by_graph *g, by_compile_spec spec)
{
    by_program *p = by_compile(g, &spec);
    if (!p)
        fail_msg("compile: %s", by_error_message());
    return p;
}

static inline void run(by_program *p)
{
    if (by_run(p) != BY_OK)
        fail_msg("run: %s", by_error_message());
}

static inline void write_i32(by_program *p, by_tensor *t, const int32_t *values)
{
    assert_int_equal(by_write(p, t, values, (size_t)by_elements(t) * sizeof *values), BY_OK);
}

/* The gradient of a parameter, on the heap. */
static inline float *gradient(const by_params *p, const char *name)
{
    int i = by_params_find(p, name);
    assert_true(i >= 0);
    float *out = base_alloc((size_t)p->list[i].count * sizeof *out);
    assert_non_null(out);
    assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, out), BY_OK);
    return out;
}

static inline void close_to(const float *x, const float *y, int64_t n, double tolerance)
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

static inline by_tensor *f32_input(by_graph *g, const char *name, int rank, const int64_t *shape)
{
    return by_input(g, name, BY_F32, rank, shape);
}

/* Nodes of an op in a program's text. */
static inline int count_nodes(const by_program *p, const char *op)
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

static inline by_tensor *norm(by_graph *g, const char *name, by_tensor *x)
{
    by_scope_push(g, "%s", name);
    by_tensor *gamma = by_param(g, "weight", SHAPE(C), normal), *beta = by_param(g, "bias", SHAPE(C), normal);
    by_scope_pop(g);
    return by_layernorm(g, x, gamma, beta, 1e-5f);
}

static inline by_tensor *dense(by_graph *g, const char *name, by_tensor *x, int64_t out, by_act act)
{
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "weight", SHAPE(by_dim(x, -1), out), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *b = by_param(g, "bias", SHAPE(out), normal);
    by_scope_pop(g);
    return by_linear(g, x, w, b, &(by_linear_spec){.w_is_kn = true, .act = act});
}

static inline decoder build_decoder(by_graph *g, float p)
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
static inline by_program *decoder_program(by_params *params, float p, by_compile_spec spec, decoder *d)
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
static inline float *all_gradients(const by_params *p)
{
    float *copy = base_alloc((size_t)p->trained * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, p->grad, (size_t)p->trained * sizeof *copy);
    return copy;
}

/* Run a decoder once with the given options and give its gradients. */
static inline float *decoder_gradients(by_params *params, float p, by_compile_spec spec, size_t *bytes,
                                       float *loss)
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

static inline int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : -1;
}

static inline int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

#endif
