/* test_params.c - the values that parameters begin with, and values stored in other types: functions of seed
 * and name alone, whatever else there is and however many threads do it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "graph/graph.h"

#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), ((int64_t[]){__VA_ARGS__})

static by_params *new_params(by_device *d, by_dtype type)
{
    by_params *p = by_params_new(d, type);
    assert_non_null(p);
    return p;
}

/* Initial values depend on seed and name, not on what else there is. */
static void test_init(void **state)
{
    (void)state;
    float value[3][64];
    by_device *device = by_device_open("cpu", 1);
    assert_non_null(device);
    for (int k = 0; k < 3; k++) {
        by_params *params = new_params(device, BY_F32);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
        if (k)
            by_param(g, "before", SHAPE(7), (by_init){BY_INIT_UNIFORM, 0.5f});
        by_param(g, "w", SHAPE(64), (by_init){BY_INIT_NORMAL, 2});
        by_param(g, "ones", SHAPE(1), (by_init){BY_INIT_ONE, 0});
        assert_int_equal(by_params_freeze(params, false), BY_OK);
        assert_int_equal(by_params_freeze(params, false), BY_OK); /* once more is harmless */
        assert_int_equal(by_params_init(params, k == 2 ? 6 : 5), BY_OK);
        assert_int_equal(by_params_get(params, by_params_find(params, "w"), BY_SLOT_VALUE, value[k]), BY_OK);
        float one = 0, uniform[7] = {0};
        assert_int_equal(by_params_get(params, by_params_find(params, "ones"), BY_SLOT_VALUE, &one), BY_OK);
        assert_true(one == 1);
        if (k)
            assert_int_equal(by_params_get(params, 0, BY_SLOT_VALUE, uniform), BY_OK);
        for (int i = 0; i < 7; i++)
            assert_true(fabsf(uniform[i]) <= 0.5f);
        assert_int_equal(by_params_get(params, 0, BY_SLOT_GRAD, uniform), BY_ERR_ARGUMENT);
        by_graph_free(g);
        by_params_free(params);
    }
    assert_memory_equal(value[0], value[1], sizeof value[0]);
    assert_memory_not_equal(value[0], value[2], sizeof value[0]);
    by_device_free(device);
}

enum {
    ROWS = 3 * (1 << 16) / 7 + 1,
    COLS = 7,
    EACH = ROWS * COLS
}; /* enough for three threads, and not even */

static const by_init kinds[] = {
    {BY_INIT_NORMAL, 0.02f}, {BY_INIT_UNIFORM, 3}, {BY_INIT_SINES, 0}, {BY_INIT_ONE, 0}};
static const char *const names[] = {"normal", "uniform", "sines", "one"};

/* Parameters of every kind, made by so many threads; the values as floats. */
static float *values_by(int threads, by_dtype type)
{
    by_device *d = by_device_open("cpu", threads);
    assert_non_null(d);
    by_params *params = new_params(d, type);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
    float *all = base_alloc(BY_COUNT(kinds) * EACH * sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < BY_COUNT(kinds); i++)
        by_param(g, names[i], SHAPE(ROWS, COLS), kinds[i]);
    assert_int_equal(by_params_freeze(params, false), BY_OK);
    assert_int_equal(by_params_init(params, 77), BY_OK);
    for (int i = 0; i < BY_COUNT(kinds); i++)
        assert_int_equal(by_params_get(params, i, BY_SLOT_VALUE, all + i * EACH), BY_OK);
    by_graph_free(g);
    by_params_free(params);
    by_device_free(d);
    return all;
}

static void test_threads(void **state)
{
    (void)state;
    const size_t count = BY_COUNT(kinds) * EACH;
    float *one = values_by(1, BY_F32), *normal = base_alloc(EACH * sizeof *normal);
    assert_non_null(normal);
    base_rng_fill_normal(normal, EACH, 77, base_hash("normal", 6, 0), 0, 0.02f);
    assert_memory_equal(one, normal, EACH * sizeof *normal);
    base_rng r = base_rng_make(77, base_hash("uniform", 7, 0));
    for (size_t i = 0; i < EACH; i++)
        assert_true(one[EACH + i] == (float)((2 * base_rng_uniform(&r) - 1) * 3));
    assert_true(one[2 * EACH + COLS] == (float)sin(1) && one[3 * EACH] == 1);
    for (int threads = 2; threads <= 5; threads++) {
        float *more = values_by(threads, BY_F32), *narrow = values_by(threads, BY_BF16);
        assert_memory_equal(one, more, count * sizeof *one);
        for (size_t i = 0; i < count; i++)
            assert_true(narrow[i] == base_bf16_to_f32(base_f32_to_bf16(one[i])));
        base_free(more);
        base_free(narrow);
    }
    base_free(one);
    base_free(normal);
}

/* What is frozen when the buffers are made has values and nothing else; what is trained lies before it. */
static void test_frozen(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_BF16};
    by_device *d = by_device_open("cpu", 1);
    for (int t = 0; t < BY_COUNT(types); t++) {
        by_params *p = new_params(d, types[t]);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = p, .training = true});
        by_param(g, "body", SHAPE(100, 30), (by_init){BY_INIT_NORMAL, 1});
        by_param_fixed(g, "table", SHAPE(7, 6), (by_init){BY_INIT_SINES, 0});
        by_param(g, "head", SHAPE(30, 2), (by_init){BY_INIT_NORMAL, 1});
        assert_int_equal(by_params_set_rate(p, 0, 0), BY_OK);
        assert_int_equal(by_params_set_rate(p, 1, 1), BY_OK); /* stays fixed */
        assert_int_equal(by_params_freeze(p, true), BY_OK);
        assert_int_equal(by_params_trained(p), 60);
        const size_t value = by_dtype_size(types[t]), state_bytes = types[t] == BY_F32 ? 12 : 16;
        assert_int_equal(by_params_value_bytes(p), 3102 * value);
        assert_int_equal(by_params_bytes(p), 3102 * value + 60 * state_bytes);
        assert_int_equal(p->trained, gr_param_reserved(&p->list[2]));
        assert_int_equal(p->list[2].at, 0);
        assert_int_equal(by_params_init(p, 1), BY_OK);
        float out[3000];
        for (int slot = BY_SLOT_GRAD; slot <= BY_SLOT_MOMENT2; slot++)
            for (int i = 0; i < 3; i++)
                assert_int_equal(by_params_get(p, i, (by_slot)slot, out), i < 2 ? BY_ERR_ARGUMENT : BY_OK);
        assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, out), BY_OK);
        assert_true(out[0] != 0 && out[2999] != 0);
        assert_int_equal(by_params_set_rate(p, 0, 1), BY_ERR_ARGUMENT);
        assert_int_equal(by_params_set_rate(p, 2, 0), BY_OK);
        by_graph_free(g);
        by_params_free(p);
    }
    by_device_free(d);
}

/* Parameters of types of their own: what they take, what they hold, and what is refused. */
static void test_types(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_Q8_0, BY_Q4_0, BY_F16, BY_BF16, BY_F32};
    by_device *d = by_device_open("cpu", 2);
    for (int t = 0; t < BY_COUNT(types); t++) {
        by_params *p = new_params(d, BY_F32);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = p, .training = true});
        by_param(g, "w", SHAPE(100, 96), (by_init){BY_INIT_NORMAL, 1});
        by_param(g, "narrow", SHAPE(4, 30), (by_init){BY_INIT_NORMAL, 1});
        by_param(g, "head", SHAPE(30, 2), (by_init){BY_INIT_NORMAL, 1});
        assert_int_equal(by_params_set_type(p, 0, types[t]), BY_OK);
        assert_int_equal(by_params_set_type(p, 1, types[t]), t < 2 ? BY_ERR_UNSUPPORTED : BY_OK);
        assert_int_equal(by_params_set_type(p, 1, BY_I32), BY_ERR_ARGUMENT);
        if (types[t] != BY_F32) {
            assert_int_equal(by_params_freeze(p, true), BY_ERR_ARGUMENT);
            assert_non_null(strstr(by_error_message(), "cannot be trained"));
        }
        assert_int_equal(by_params_set_rate(p, 0, 0) | by_params_set_rate(p, 1, 0), BY_OK);
        assert_int_equal(by_params_freeze(p, true), BY_OK);
        assert_int_equal(by_params_set_type(p, 0, BY_F32), BY_ERR_ARGUMENT); /* too late */
        assert_int_equal(by_params_type(p, 0), types[t]);
        const size_t narrow = t < 2 ? 480 : by_dtype_bytes(types[t], 120);
        assert_int_equal(by_params_value_bytes(p), by_dtype_bytes(types[t], 9600) + narrow + 240);
        assert_int_equal(by_params_init(p, 1), BY_OK);
        static float out[9600], want[9600];
        static char small[9600 * 4];
        base_rng_fill_normal(want, 9600, 1, base_hash("w", 1, 0), 0, 1);
        base_convert(small, types[t], want, BY_F32, 9600);
        base_convert(want, BY_F32, small, types[t], 9600);
        assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, out), BY_OK);
        assert_memory_equal(out, want, sizeof out);
        assert_int_equal(gr_params_get_range(p, 0, BY_SLOT_VALUE, 64, 32, out), BY_OK);
        assert_memory_equal(out, want + 64, 32 * sizeof *out);
        by_graph_free(g);
        by_params_free(p);
    }
    by_device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
