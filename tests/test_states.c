/* test_states.c - states that are read, written and read again in one graph: every read sees the version that
 * was there when it was built, also in the backward pass, in blocks that are computed again, through views
 * and in fused nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "graph_case.h"

enum { ROWS = 3, WIDTH = 8, COUNT = ROWS * WIDTH };

static void fill(by_memory *m, float first)
{
    float v[COUNT];
    for (int i = 0; i < COUNT; i++)
        v[i] = first + 0.125f * (float)i;
    assert_int_equal(by_memory_write(m, 0, v, sizeof v), BY_OK);
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

static int copies(const by_program *p)
{
    int n = 0;
    for (int i = 0; i < p->graph->n_nodes; i++)
        n += p->graph->nodes[i]->op == GR_OP_COPY;
    return n;
}

/* ---- versions in the forward pass ------------------------------------------------------------ */

/* read, write, read, write, read: 1, 2, 4 times the first value. Two leaves are the same state. */
static void test_read_write_read(void **state)
{
    (void)state;
    by_params *params = new_params();
    by_graph *g = new_graph(params, false);
    by_memory *m = by_memory_new(device, COUNT * sizeof(float));
    by_tensor *s = by_state(g, "s", BY_F32, SHAPE(ROWS, WIDTH), m);
    by_tensor *same = by_state(g, "same", BY_F32, SHAPE(COUNT), m);
    by_tensor *view = by_reshape(g, s, SHAPE(COUNT)); /* of the first version, read at the end */
    by_tensor *out[4];
    out[0] = by_scale(g, s, 1);
    by_store(g, by_scale(g, s, 2), s);
    out[1] = by_scale(g, same, 1);
    by_store(g, by_scale(g, same, 2), same);
    out[2] = by_scale(g, s, 1);
    out[3] = by_scale(g, view, 1);
    for (int i = 0; i < 4; i++)
        by_output(g, NULL, out[i]);
    by_output(g, "view", view);
    assert_int_equal(by_params_freeze(params, false), BY_OK);
    by_program *p = compile(g, (by_compile_spec){0});
    fill(m, 1);
    run(p);
    float first[COUNT], got[COUNT];
    static const float times[] = {1, 2, 4, 1};
    assert_int_equal(by_read_f32(p, view, first), BY_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(by_read_f32(p, out[i], got), BY_OK);
        for (int k = 0; k < COUNT; k++)
            assert_true(first[k] == 1 + 0.125f * (float)k && got[k] == times[i] * first[k]);
    }
    assert_int_equal(by_memory_read(m, 0, got, sizeof got), BY_OK);
    for (int k = 0; k < COUNT; k++)
        assert_true(got[k] == 4 * first[k]);
    assert_int_equal(copies(p), 1); /* the view; nothing else is read late */
    by_program_free(p);
    by_memory_free(m);
    by_params_free(params);
}

/* The sum is read by a norm after the state that it reads was overwritten: the fused node reads a copy. */
static void test_fused(void **state)
{
    (void)state;
    float got[2][COUNT];
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        by_params *params = new_params();
        by_graph *g = new_graph(params, false);
        by_memory *m = by_memory_new(device, COUNT * sizeof(float));
        by_tensor *s = by_state(g, "s", BY_F32, SHAPE(ROWS, WIDTH), m);
        by_tensor *gamma = by_fill(g, BY_F32, SHAPE(WIDTH), 1.5), *x = by_scale(g, s, 0.5);
        by_tensor *sum = by_add(g, s, by_mul(g, x, x));
        by_store(g, x, s);
        by_tensor *y = by_output(g, "y", by_rmsnorm(g, sum, gamma, 1e-5f));
        assert_int_equal(by_params_freeze(params, false), BY_OK);
        by_program *p = compile(g, (by_compile_spec){.no_fusion = no_fusion});
        fill(m, -1);
        run(p);
        assert_int_equal(by_read_f32(p, y, got[no_fusion]), BY_OK);
        assert_int_equal(copies(p), no_fusion ? 0 : 1);
        by_program_free(p);
        by_memory_free(m);
        by_params_free(params);
    }
    for (int k = 0; k < COUNT; k++)
        assert_true(fabsf(got[0][k] - got[1][k]) < 1e-6f);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A layer with a memory: it reads the rows of the last run, and leaves its own for the next. Where `inputs`
 * is there, what the state holds before and after the write are inputs, and the state itself is not read. */
static by_tensor *layer(by_graph *g, by_tensor *x, by_memory *m, by_tensor **inputs, int i)
{
    by_block_push(g, "h.%d", i);
    by_tensor *memory = by_state(g, "memory", BY_F32, SHAPE(ROWS, WIDTH), m),
              *s = inputs ? inputs[0] : memory;
    by_tensor *w = by_param(g, "w", SHAPE(WIDTH, WIDTH), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *u = by_param(g, "u", SHAPE(WIDTH, WIDTH), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *before = by_linear(g, s, w, NULL, &(by_linear_spec){.act = BY_TANH});
    by_tensor *y = by_dropout(g, by_mul(g, by_add(g, x, before), s), 0.25f);
    by_store(g, y, memory);
    by_tensor *after = by_linear(g, inputs ? inputs[1] : s, u, NULL, NULL);
    y = by_mul(g, by_add(g, y, after), inputs ? inputs[1] : s);
    by_block_pop(g);
    return y;
}

typedef struct net {
    by_params *params;
    by_program *program;
    by_memory *memory[2];
    by_tensor *x, *loss, *inputs[4];
} net;

static net net_new(bool with_inputs, bool recompute)
{
    net n = {.params = new_params()};
    by_graph *g = new_graph(n.params, true);
    n.x = f32_input(g, "x", SHAPE(ROWS, WIDTH));
    by_tensor *h = n.x;
    for (int i = 0; i < 2; i++) {
        n.memory[i] = by_memory_new(device, COUNT * sizeof(float));
        for (int k = 0; k < 2; k++)
            n.inputs[2 * i + k] = with_inputs ? f32_input(g, "s", SHAPE(ROWS, WIDTH)) : NULL;
        h = layer(g, h, n.memory[i], with_inputs ? n.inputs + 2 * i : NULL, i);
    }
    n.loss = by_mean(g, by_reshape(g, by_mul(g, h, h), SHAPE(COUNT)), 0);
    assert_int_equal(by_params_freeze(n.params, true), BY_OK);
    assert_int_equal(by_params_init(n.params, 9), BY_OK);
    n.program = compile(g, (by_compile_spec){.loss = n.loss, .grads = BY_GRAD_STORE, .recompute = recompute});
    return n;
}

static void net_free(net *n)
{
    by_program_free(n->program);
    for (int i = 0; i < 2; i++)
        by_memory_free(n->memory[i]);
    by_params_free(n->params);
}

/* The loss and all gradients of two runs in a row: the second reads what the first has written. */
static void two_runs(net *n, float *out, float written[2][COUNT])
{
    float x[COUNT];
    for (int k = 0; k < COUNT; k++)
        x[k] = sinf((float)k);
    for (int i = 0; i < 2; i++)
        fill(n->memory[i], (float)i - 1);
    for (int r = 0; r < 2; r++) {
        by_program_seed(n->program, 4, (uint64_t)r);
        assert_int_equal(by_write(n->program, n->x, x, sizeof x), BY_OK);
        for (int i = 0; i < 2; i++)
            assert_int_equal(by_memory_read(n->memory[i], 0, written[i], sizeof written[i]), BY_OK);
        run(n->program);
    }
    assert_int_equal(by_read_f32(n->program, n->loss, out), BY_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(by_params_get(n->params, i, BY_SLOT_GRAD, out + 1 + i * WIDTH * WIDTH), BY_OK);
}

enum { FIGURES = 1 + 4 * WIDTH * WIDTH };

static void test_recomputed(void **state)
{
    (void)state;
    net plain = net_new(false, false), again = net_new(false, true), without = net_new(true, false);
    float a[FIGURES], b[FIGURES], c[FIGURES], before[2][COUNT], x[COUNT];
    two_runs(&plain, a, before);
    two_runs(&again, b, before);
    assert_memory_equal(a, b, sizeof a);
    assert_true(copies(plain.program) > 0 && copies(again.program) > 0);
    /* the second run with its memories as inputs */
    by_program_seed(without.program, 4, 1);
    for (int k = 0; k < COUNT; k++)
        x[k] = sinf((float)k);
    assert_int_equal(by_write(without.program, without.x, x, sizeof x), BY_OK);
    for (int i = 0; i < 2; i++) {
        float after[COUNT];
        assert_int_equal(by_memory_read(plain.memory[i], 0, after, sizeof after), BY_OK);
        assert_int_equal(by_write(without.program, without.inputs[2 * i], before[i], sizeof after), BY_OK);
        assert_int_equal(by_write(without.program, without.inputs[2 * i + 1], after, sizeof after), BY_OK);
    }
    run(without.program);
    assert_int_equal(by_read_f32(without.program, without.loss, c), BY_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(by_params_get(without.params, i, BY_SLOT_GRAD, c + 1 + i * WIDTH * WIDTH), BY_OK);
    double norm = 0;
    for (int i = 0; i < FIGURES; i++) {
        norm += fabs(c[i]);
        assert_true(fabsf(a[i] - c[i]) <= 1e-6f * (1 + fabsf(c[i])));
    }
    assert_true(norm > 1);
    net_free(&plain);
    net_free(&again);
    net_free(&without);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    by_params *params = new_params();
    by_graph *g = new_graph(params, false);
    by_memory *m = by_memory_new(device, COUNT * sizeof(float));
    by_tensor *s = by_state(g, "s", BY_F32, SHAPE(ROWS, WIDTH), m);
    by_store(g, by_fill(g, BY_F32, SHAPE(4), 1), by_reshape(g, s, SHAPE(COUNT)));
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "view"));
    by_graph_free(g);
    g = new_graph(params, false); /* more parts, and inputs, than the table has */
    by_tensor *part[GR_MAX_INPUTS + 1];
    for (int i = 0; i <= GR_MAX_INPUTS; i++)
        part[i] = by_fill(g, BY_F32, SHAPE(1), i);
    by_concat(g, part, GR_MAX_INPUTS, 0);
    assert_int_equal(by_graph_status(g), BY_OK);
    by_concat(g, part, GR_MAX_INPUTS + 1, 0);
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    by_graph_free(g);
    g = new_graph(params, false);
    by_tensor *one = by_fill(g, BY_F32, SHAPE(1), 1);
    gr_node_make(g, GR_OP_ADD, &one, 1, NULL, 0);
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "input 2 is missing"));
    by_graph_free(g);
    by_memory_free(m);
    by_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_write_read),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_recomputed),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
