/* test_moving_average.c - averaged parameters: their values in every type, in the place of the parameters and back, and in checkpoints. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/graph.h"
#include "folder.h"
#include "train/moving_average.h"

enum { ROWS = 5, COLS = 7, COUNT = ROWS * COLS };

/* A list of two parameters, the second frozen. */
static by_params *make_params(by_device *d, by_dtype type, bool without_masters)
{
    by_params *p = by_params_new(d, type);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = p});
    by_param(g, "w", 2, (int64_t[]){ROWS, COLS}, (by_init){BY_INIT_NORMAL, 1});
    by_param(g, "frozen", 1, (int64_t[]){3}, (by_init){BY_INIT_NORMAL, 1});
    by_graph_free(g);
    assert_int_equal(by_params_set_rate(p, 1, 0), BY_OK);
    if (without_masters)
        assert_int_equal(by_params_without_masters(p), BY_OK);
    assert_int_equal(by_params_freeze(p, true), BY_OK);
    assert_int_equal(by_params_init(p, 1), BY_OK);
    return p;
}

static void get(const by_params *p, float out[COUNT])
{
    assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, out), BY_OK);
}

static void set(by_params *p, double first)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(first + 0.01 * i);
    assert_int_equal(by_params_set(p, 0, BY_SLOT_VALUE, values), BY_OK);
}

static void check_type(by_dtype type, bool without_masters, double tolerance)
{
    by_device *d = by_device_open("cpu", 1);
    by_params *p = make_params(d, type, without_masters);
    float now[COUNT], back[COUNT], shown[COUNT], again[COUNT];
    double average[COUNT];
    train_average *a = train_average_new(p, 0.9);
    assert_non_null(a);
    get(p, now);
    for (int i = 0; i < COUNT; i++)
        average[i] = now[i];
    for (int step = 1; step <= 100; step++) {
        const double decay = fmin(0.9, (1.0 + step) / (10.0 + step));
        set(p, sin(step));
        assert_int_equal(train_average_update(a, step), BY_OK);
        get(p, now);
        for (int i = 0; i < COUNT; i++)
            average[i] += (now[i] - average[i]) * (1 - decay);
    }
    assert_int_equal(train_average_enter(a), BY_OK);
    get(p, shown);
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs(shown[i] - average[i]) <= tolerance);
    assert_int_equal(train_average_leave(a), BY_OK);
    get(p, back);
    assert_memory_equal(now, back, sizeof now);
    /* a checkpoint restores both */
    assert_int_equal(train_average_save(a, root), BY_OK);
    set(p, 17);
    assert_int_equal(train_average_update(a, 101), BY_OK);
    assert_int_equal(train_average_load(a, root), BY_OK);
    get(p, back);
    assert_memory_equal(now, back, sizeof now);
    assert_int_equal(train_average_enter(a), BY_OK);
    get(p, again);
    assert_memory_equal(shown, again, sizeof shown);
    train_average_free(a);
    by_params_free(p);
    by_device_free(d);
}

static void test_types(void **state)
{
    (void)state;
    check_type(BY_F32, false, 1e-6);
    check_type(BY_F64, false, 1e-6); /* values are read as floats */
    check_type(BY_BF16, false, 1e-6);
    check_type(BY_BF16, true, 1.0 / 256);
}

static void test_damaged(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    by_params *p = make_params(d, BY_F32, false);
    train_average *a = train_average_new(p, 0.9);
    char *elsewhere = base_strdup(in_root("elsewhere"));
    assert_int_equal(base_dir_make(elsewhere), BY_OK);
    assert_int_not_equal(train_average_load(a, elsewhere), BY_OK);
    assert_non_null(strstr(by_error_message(), "averaging.safetensors"));
    base_free(elsewhere);
    train_average_free(a);
    by_params_free(p);
    by_device_free(d);
}

static int make_folder(void **state)
{
    (void)state;
    return make_root("average") ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
