/* train_case.h - a device, a folder, a small model and short ways to train it. Included after cmocka.h. */
#ifndef BY_TESTS_TRAIN_CASE_H
#define BY_TESTS_TRAIN_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/banyan.h"
#include "base/file.h"
#include "child.h"
#include "data/tokens.h"
#include "graph/graph.h"
#include "base/json.h"
#include "io/weights.h"
#include "train/checkpoint.h"
#include "train/defaults.h"
#include "train/trainer_state.h"

enum { V = 17, T = 12, B = 4 };

static by_device *device;
static char root[300];

static inline const char *in_root(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static inline by_model *make_on(by_device *d, by_dtype type, int layers, double dropout)
{
    by_model_shape shape = {
        .layers = layers, .heads = 2, .width = 16, .context = T, .vocab = V, .dropout = dropout};
    by_model *m =
        by_model_new(d, "gpt2", &shape, &(by_model_spec){.dtype = type, .training = true, .seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static inline by_model *make(by_dtype type, int layers, double dropout)
{
    return make_on(device, type, layers, dropout);
}

static inline by_trainer *trainer_of(by_model *m, by_trainer_spec spec)
{
    by_trainer *t = by_trainer_new(m, &spec);
    if (!t)
        fail_msg("%s", by_error_message());
    return t;
}

/* Rows in which every token follows from the one before it: x -> 3 x + 1 mod V. Each row starts elsewhere. */
static inline void lesson(int32_t *inputs, int32_t *targets, int rows, int first)
{
    for (int r = 0; r < rows; r++)
        for (int t = 0, x = (first + 5 * r) % V; t < T; t++) {
            inputs[r * T + t] = x;
            targets[r * T + t] = x = (3 * x + 1) % V;
        }
}

/* Tokens without any rule. */
static inline void noise(int32_t *tokens, int n, uint64_t seed)
{
    base_rng r = base_rng_make(seed, 0);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)base_rng_below(&r, V);
}

static inline by_batch batch_of(int rows, int seq, const int32_t *inputs, const int32_t *targets)
{
    by_batch b = by_batch_of(rows, seq, inputs);
    by_batch_put_tokens(&b, "targets", targets);
    return b;
}

static inline double backward(by_trainer *t, by_batch batch, bool first)
{
    double loss;
    if (by_trainer_backward(t, &batch, first, &loss) != BY_OK)
        fail_msg("%s", by_error_message());
    return loss;
}

static inline double update(by_trainer *t, double rate)
{
    double norm;
    assert_int_equal(by_trainer_update(t, rate, &norm), BY_OK);
    return norm;
}

/* One buffer of the whole parameter list, padding included; the CPU's addresses are ours. */
static inline const void *flat(const by_model *m, by_slot slot, size_t *bytes)
{
    const by_params *p = by_model_params(m);
    by_dtype type = slot == BY_SLOT_VALUE ? p->type : gr_acc_type(p->type);
    const void *buffers[] = {p->value, p->grad, p->moment1, p->moment2};
    *bytes = (size_t)p->trained * by_dtype_size(type);
    return buffers[slot];
}

static inline void same_bits(const by_model *a, const by_model *b, by_slot slot)
{
    size_t n, m;
    const void *x = flat(a, slot, &n), *y = flat(b, slot, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
}

/* |x - y| / |y| over a whole buffer. */
static inline double difference(const by_model *a, const by_model *b, by_slot slot)
{
    size_t bytes;
    const void *x = flat(a, slot, &bytes), *y = flat(b, slot, &bytes);
    double above = 0, below = 0;
    bool wide = by_params_dtype(by_model_params(a)) == BY_F64;
    for (size_t i = 0; i < bytes / (wide ? 8 : 4); i++) {
        double u = wide ? ((const double *)x)[i] : (double)((const float *)x)[i];
        double v = wide ? ((const double *)y)[i] : (double)((const float *)y)[i];
        above += (u - v) * (u - v);
        below += v * v;
    }
    assert_true(below > 0);
    return sqrt(above / below);
}

static inline int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-train-XXXXXX", base && *base ? base : "/tmp");
    device = by_device_open("cpu", 1);
    return mkdtemp(root) && device ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

#endif
