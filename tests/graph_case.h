/* graph_case.h - what the tests of graphs that cannot be built share: a device and short ways to make things
 * on it. Included after cmocka.h. */
#ifndef BY_TESTS_GRAPH_CASE_H
#define BY_TESTS_GRAPH_CASE_H

#include "graph/graph.h"

#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), ((int64_t[]){__VA_ARGS__})

static const by_init normal = {BY_INIT_NORMAL, 1};
static by_device *device;

static by_params *new_params(void)
{
    by_params *p = by_params_new(device, BY_F32);
    assert_non_null(p);
    return p;
}

static by_graph *new_graph(by_params *p, bool training)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = p, .training = training});
    assert_non_null(g);
    return g;
}

static by_tensor *f32_input(by_graph *g, const char *name, int rank, const int64_t *shape)
{
    return by_input(g, name, BY_F32, rank, shape);
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

#endif
