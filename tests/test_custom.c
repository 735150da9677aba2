/* test_custom.c - blocks with a gradient of their own: reversible layers have the gradients of the plain graph and
 * need the same memory however many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "graph_case.h"

enum { ROWS = 24, WIDTH = 16, MOST = 24 };

/* ---- a reversible layer (Gomez et al. 2017): y1 = x1 + f(x2), y2 = x2 + h(y1) ---------------- */

static by_tensor *branch(by_graph *g, by_tensor *x, const char *name)
{
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "w", SHAPE(WIDTH, WIDTH), (by_init){BY_INIT_NORMAL, 0.15f});
    by_tensor *gamma = by_param(g, "gamma", SHAPE(WIDTH), (by_init){BY_INIT_ONE, 0});
    by_tensor *b = by_param(g, "b", SHAPE(WIDTH), (by_init){BY_INIT_NORMAL, 0.1f});
    by_tensor *y = by_linear(g, by_rmsnorm(g, x, gamma, 1e-5f), w, b, &(by_linear_spec){.act = BY_GELU});
    y = by_dropout(g, y, 0.2f);
    by_scope_pop(g);
    return y;
}

static by_tensor *f_of(by_graph *g, void *user, by_tensor *x)
{
    (void)user;
    return branch(g, x, "f");
}

static by_tensor *h_of(by_graph *g, void *user, by_tensor *x)
{
    (void)user;
    return branch(g, x, "h");
}

static void forward(by_graph *g, void *user, by_tensor *const *in, by_tensor **out)
{
    out[0] = by_add(g, in[0], f_of(g, user, in[1]));
    out[1] = by_add(g, in[1], h_of(g, user, out[0]));
}

static void backward(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                     by_tensor **again)
{
    by_tensor *d;
    by_tensor *h = by_vjp(g, h_of, user, out[0], dout[1], &d);
    again[1] = by_sub(g, out[1], h);
    din[0] = by_add(g, dout[0], d);
    by_tensor *f = by_vjp(g, f_of, user, again[1], din[0], &d);
    again[0] = by_sub(g, out[0], f);
    din[1] = by_add(g, dout[1], d);
}

/* ---- a stack of them ------------------------------------------------------------------------- */

typedef struct net {
    by_params *params;
    by_program *program;
    by_tensor *x, *loss;
} net;

static net net_new(int layers, bool custom, bool recompute)
{
    const by_custom_spec spec = {.forward = forward, .backward = backward};
    net n = {.params = new_params()};
    by_graph *g = new_graph(n.params, true);
    n.x = f32_input(g, "x", SHAPE(ROWS, WIDTH));
    by_tensor *w = by_param(g, "embed", SHAPE(WIDTH, WIDTH), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *x[2], *y[2];
    x[0] = x[1] = by_linear(g, n.x, w, NULL, NULL);
    for (int i = 0; i < layers; i++) {
        by_block_push(g, "layer.%d", i);
        if (custom)
            by_block_custom(g, &spec, x, 2, y, 2);
        else
            forward(g, NULL, x, y);
        by_block_pop(g);
        x[0] = y[0];
        x[1] = y[1];
    }
    by_tensor *all = by_mul(g, by_add(g, x[0], x[1]), x[1]);
    n.loss = by_mean(g, by_reshape(g, all, SHAPE(ROWS * WIDTH)), 0);
    if (by_params_freeze(n.params, true) != BY_OK || by_params_init(n.params, 3) != BY_OK)
        fail_msg("%s", by_error_message());
    n.program =
        by_compile(g, &(by_compile_spec){.loss = n.loss, .grads = BY_GRAD_STORE, .recompute = recompute});
    if (!n.program)
        fail_msg("%s", by_error_message());
    return n;
}

static void net_free(net *n)
{
    by_program_free(n->program);
    by_params_free(n->params);
}

/* The loss, and the gradients in `out`, of all parameters one after the other. */
static float run(net *n, float *out)
{
    float x[ROWS * WIDTH], loss;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = sinf(1.7f * (float)i);
    by_program_seed(n->program, 8, 1);
    assert_int_equal(by_write(n->program, n->x, x, sizeof x), BY_OK);
    if (by_run(n->program) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_read_f32(n->program, n->loss, &loss), BY_OK);
    for (int i = 0; i < by_params_count(n->params); i++) {
        assert_int_equal(by_params_get(n->params, i, BY_SLOT_GRAD, out), BY_OK);
        out += n->params->list[i].count;
    }
    return loss;
}

enum { FLOATS = WIDTH * WIDTH + MOST * 2 * (WIDTH * WIDTH + 2 * WIDTH) };

static void test_gradients(void **state)
{
    (void)state;
    static float a[FLOATS], b[FLOATS];
    for (int recompute = 0; recompute < 2; recompute++) {
        net plain = net_new(4, false, false), own = net_new(4, true, recompute);
        const float right = run(&plain, a), loss = run(&own, b);
        double error = 0, size = 0;
        assert_true(fabsf(loss - right) < 1e-6f * fabsf(right));
        for (int i = 0; i < WIDTH * WIDTH + 4 * 2 * (WIDTH * WIDTH + 2 * WIDTH); i++) {
            error += (double)(a[i] - b[i]) * (a[i] - b[i]);
            size += (double)a[i] * a[i];
        }
        if (!(size > 1e-3 && sqrt(error / size) < 1e-5))
            fail_msg("gradients differ by %.3g of %.3g", sqrt(error), sqrt(size));
        net_free(&plain);
        net_free(&own);
    }
}

static void test_memory(void **state)
{
    (void)state;
    size_t bytes[2], plain[2];
    for (int k = 0; k < 2; k++) {
        net n = net_new(k ? 24 : 6, true, false), p = net_new(k ? 24 : 6, false, false);
        bytes[k] = by_program_bytes(n.program);
        plain[k] = by_program_bytes(p.program);
        net_free(&n);
        net_free(&p);
    }
    print_message("6 and 24 layers: %zu and %zu bytes; plain %zu and %zu\n", bytes[0], bytes[1], plain[0],
                  plain[1]);
    assert_true((double)bytes[1] < 1.1 * (double)bytes[0]);
    assert_true(plain[1] > 2 * plain[0]);
}

/* ---- refused --------------------------------------------------------------------------------- */

static by_tensor *leaked;

static void leaking(by_graph *g, void *user, by_tensor *const *in, by_tensor **out)
{
    (void)user;
    leaked = by_scale(g, in[0], 2);
    out[0] = by_scale(g, leaked, 3);
}

static void give_back(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                      by_tensor **again)
{
    (void)user, (void)out, (void)again;
    din[0] = by_scale(g, dout[0], 6);
}

static void test_refused(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        by_params *params = new_params();
        by_graph *g = new_graph(params, true);
        by_tensor *w = by_param(g, "w", SHAPE(3), normal), *y;
        by_block_custom(g, &(by_custom_spec){.forward = leaking, .backward = give_back}, &w, 1, &y, 1);
        by_tensor *loss = by_sum(g, bad ? by_add(g, y, leaked) : y, 0);
        assert_int_equal(by_params_freeze(params, true), BY_OK);
        by_program *p = by_compile(g, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
        assert_int_equal(p == NULL, bad);
        if (bad) {
            assert_non_null(strstr(by_error_message(), "outside of its custom block"));
        } else {
            float d[3];
            assert_int_equal(by_run(p), BY_OK);
            assert_int_equal(by_params_get(params, 0, BY_SLOT_GRAD, d), BY_OK);
            assert_true(d[0] == 6 && d[2] == 6);
        }
        by_program_free(p);
        by_params_free(params);
    }
    by_params *params = new_params();
    by_graph *g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3), normal), *d;
    by_vjp(g, f_of, NULL, w, w, &d);
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    by_graph_free(g);
    by_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
