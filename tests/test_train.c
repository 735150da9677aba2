/* test_train.c - training: what a step computes, what a run does. Resuming is tested by
 * tests/scripts/resume.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

static const char *in_root(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static by_model *make_on(by_device *d, by_dtype type, int layers, double dropout)
{
    by_model_shape shape = {
        .layers = layers, .heads = 2, .width = 16, .context = T, .vocab = V, .dropout = dropout};
    by_model *m =
        by_model_new(d, "gpt2", &shape, &(by_model_spec){.dtype = type, .training = true, .seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_model *make(by_dtype type, int layers, double dropout)
{
    return make_on(device, type, layers, dropout);
}

static by_trainer *trainer_of(by_model *m, by_trainer_spec spec)
{
    by_trainer *t = by_trainer_new(m, &spec);
    if (!t)
        fail_msg("%s", by_error_message());
    return t;
}

/* Rows in which every token follows from the one before it: x -> 3 x + 1 mod V. Each row starts elsewhere. */
static void lesson(int32_t *inputs, int32_t *targets, int rows, int first)
{
    for (int r = 0; r < rows; r++)
        for (int t = 0, x = (first + 5 * r) % V; t < T; t++) {
            inputs[r * T + t] = x;
            targets[r * T + t] = x = (3 * x + 1) % V;
        }
}

/* Tokens without any rule. */
static void noise(int32_t *tokens, int n, uint64_t seed)
{
    base_rng r = base_rng_make(seed, 0);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)base_rng_below(&r, V);
}

static by_batch batch_of(int rows, int seq, const int32_t *inputs, const int32_t *targets)
{
    by_batch b = by_batch_of(rows, seq, inputs);
    by_batch_put_tokens(&b, "targets", targets);
    return b;
}

static double backward(by_trainer *t, by_batch batch, bool first)
{
    double loss;
    if (by_trainer_backward(t, &batch, first, &loss) != BY_OK)
        fail_msg("%s", by_error_message());
    return loss;
}

static double update(by_trainer *t, double rate)
{
    double norm;
    assert_int_equal(by_trainer_update(t, rate, &norm), BY_OK);
    return norm;
}

/* One buffer of the whole parameter list, padding included; the CPU's addresses are ours. */
static const void *flat(const by_model *m, by_slot slot, size_t *bytes)
{
    const by_params *p = by_model_params(m);
    by_dtype type = slot == BY_SLOT_VALUE ? p->type : gr_acc_type(p->type);
    const void *buffers[] = {p->value, p->grad, p->moment1, p->moment2};
    *bytes = (size_t)p->trained * by_dtype_size(type);
    return buffers[slot];
}

static void same_bits(const by_model *a, const by_model *b, by_slot slot)
{
    size_t n, m;
    const void *x = flat(a, slot, &n), *y = flat(b, slot, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
}

/* |x - y| / |y| over a whole buffer. */
static double difference(const by_model *a, const by_model *b, by_slot slot)
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

/* ---- steps ----------------------------------------------------------------------------------- */

/* Every optimiser learns the rule. */
static void test_learns(void **state)
{
    (void)state;
    static const struct {
        by_optimizer_spec optimizer;
        double rate;
        int steps;
    } cases[] = {{{.kind = BY_ADAMW, .weight_decay = 0.01}, 1e-2, 150},
                 {{.kind = BY_SGD, .momentum = 0.9, .max_grad_norm = 1}, 0.3, 300},
                 {{.kind = BY_ADAFACTOR}, 1e-2, 250}};
    int32_t inputs[B * T], targets[B * T];
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *m = make(BY_F32, 1, 0);
        by_trainer *t = trainer_of(m, (by_trainer_spec){.optimizer = cases[i].optimizer});
        double first = 0, last = 0;
        for (int s = 0; s < cases[i].steps; s++) {
            lesson(inputs, targets, B, s);
            last = backward(t, batch_of(B, T, inputs, targets), true);
            first = s ? first : last;
            update(t, cases[i].rate);
        }
        assert_true(fabs(first - log(V)) < 0.1); /* knows nothing */
        if (!(last < 0.1))
            fail_msg("optimiser %d: the loss went from %g to %g", i, first, last);
        assert_int_equal(by_trainer_steps(t), cases[i].steps);
        by_trainer_free(t);
        by_model_free(m);
    }
}

/* A model that classifies: is the first token, at which the head does not look, a small one? */
static void test_learns_labels(void **state)
{
    (void)state;
    by_model_shape shape = {.layers = 1, .heads = 2, .width = 16, .context = T, .vocab = V};
    by_model_spec spec = {.training = true, .seed = 4, .task = BY_TASK_CLASSIFY, .labels = 2};
    by_model *m = by_model_new(device, "gpt2", &shape, &spec);
    assert_non_null(m);
    by_trainer *t = trainer_of(m, (by_trainer_spec){0});
    int32_t tokens[32], labels[16];
    by_batch all = by_batch_of(16, 2, tokens);
    by_batch_put_ids(&all, "targets", 16, labels);
    double last = 0, sum = 0;
    int64_t count = 0;
    for (int s = 0; s < 400; s++) {
        noise(tokens, 32, 1000 + (uint64_t)s);
        for (int i = 0; i < 16; i++)
            labels[i] = tokens[2 * i] < V / 2;
        last = backward(t, all, true);
        update(t, 5e-3);
    }
    if (!(last < 0.1))
        fail_msg("the loss is still %g", last);
    assert_int_equal(by_trainer_evaluate(t, &all, &sum, &count), BY_OK);
    assert_int_equal(count, 16);
    assert_true(sum / 16 < 0.1);
    by_trainer_free(t);
    by_model_free(m);
}

/* Four micro-batches, gradients added, are one batch of their size. */
static void test_accumulation(void **state)
{
    (void)state;
    static const struct {
        by_dtype type;
        double bound;
    } cases[] = {{BY_F64, 1e-13}, {BY_F32, 1e-6}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *parts = make(cases[i].type, 2, 0), *whole = make(cases[i].type, 2, 0);
        by_trainer *p = trainer_of(parts, (by_trainer_spec){.accumulate = 4});
        by_trainer *w = trainer_of(whole, (by_trainer_spec){0});
        int32_t inputs[8 * T], targets[8 * T];
        for (int s = 0; s < 3; s++) { /* the second time over gradients of the first */
            noise(inputs, 8 * T, 2 * (uint64_t)s);
            noise(targets, 8 * T, 2 * (uint64_t)s + 1);
            double sum = 0, loss = backward(w, batch_of(8, T, inputs, targets), true);
            for (int k = 0; k < 4; k++)
                sum += backward(p, batch_of(2, T, inputs + 2 * k * T, targets + 2 * k * T), k == 0);
            assert_true(fabs(sum / 4 - loss) < 1e-6 * loss); /* losses are read as floats */
            assert_true(difference(parts, whole, BY_SLOT_GRAD) < cases[i].bound);
            double a = update(p, 1e-2), b = update(w, 1e-2);
            assert_true(fabs(a - b) < 1e-6 * b);
            size_t bytes; /* the same parameters again, so that the next gradients can be compared */
            const void *from = flat(whole, BY_SLOT_VALUE, &bytes);
            memcpy(gr_params_address(by_model_params(parts), 0, BY_SLOT_VALUE), from, bytes);
        }
        by_trainer_free(p);
        by_trainer_free(w);
        by_model_free(parts);
        by_model_free(whole);
    }
}

/* The gradients of one batch, with or without keeping the activations of the inside of blocks. */
static void gradients(by_model *m, const by_compile_spec *how)
{
    int32_t inputs[B * T], targets[B * T];
    int64_t shape[] = {B, T};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(m), .training = true});
    by_tensor *x = by_input(g, "inputs", BY_I32, 2, shape), *y = by_input(g, "targets", BY_I32, 2, shape);
    by_model_io io = {0};
    by_io_feed(&io, "tokens", x);
    by_model_build(m, g, &io);
    by_compile_spec spec = *how;
    spec.loss = by_model_loss(m, g, &io, y, NULL);
    spec.grads = BY_GRAD_STORE;
    by_program *p = by_compile(g, &spec);
    assert_non_null(p);
    lesson(inputs, targets, B, 0);
    assert_int_equal(by_write(p, x, inputs, sizeof inputs), BY_OK);
    assert_int_equal(by_write(p, y, targets, sizeof targets), BY_OK);
    by_program_seed(p, 12, 34);
    assert_int_equal(by_run(p), BY_OK);
    by_program_free(p);
}

/* Computing activations again changes no bit, dropout included, where the same kernels compute them: without
 * fusion, which does not reach across blocks then, and without a library whose products with and without an
 * activation differ in rounding. */
static void test_recompute(void **state)
{
    (void)state;
    setenv("BANYAN_GEMM", "own", 1);
    by_device *d = by_device_open("cpu", 1);
    by_model *plain = make_on(d, BY_F32, 4, 0.2), *again = make_on(d, BY_F32, 4, 0.2);
    gradients(plain, &(by_compile_spec){.no_fusion = true});
    gradients(again, &(by_compile_spec){.no_fusion = true, .recompute = true});
    same_bits(plain, again, BY_SLOT_GRAD);
    by_model_free(plain);
    by_model_free(again);
    by_device_free(d);
    unsetenv("BANYAN_GEMM");
}

/* Everywhere else it is the same up to rounding, and in less memory. */
static void test_recompute_steps(void **state)
{
    (void)state;
    static const struct {
        by_dtype type;
        double bound; /* some units of the last place of the activations */
    } cases[] = {{BY_F64, 1e-13}, {BY_F32, 1e-6}, {BY_BF16, 0.03}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *plain = make(cases[i].type, 4, 0.2), *again = make(cases[i].type, 4, 0.2);
        by_trainer_spec spec = {.accumulate = 2, .seed = 11};
        by_trainer *p = trainer_of(plain, spec);
        spec.recompute = true;
        by_trainer *r = trainer_of(again, spec);
        int32_t inputs[B * T], targets[B * T];
        for (int k = 0; k < 2; k++) {
            lesson(inputs, targets, B, k);
            double a = backward(p, batch_of(B, T, inputs, targets), k == 0),
                   b = backward(r, batch_of(B, T, inputs, targets), k == 0);
            assert_true(fabs(a - b) <= 1e-6 * b + cases[i].bound * b);
            double off = difference(again, plain, BY_SLOT_GRAD);
            if (!(off < cases[i].bound))
                fail_msg("%s: the gradients are %g apart", by_dtype_name(cases[i].type), off);
        }
        assert_true(by_trainer_bytes(r) < by_trainer_bytes(p) * 3 / 4);
        by_trainer_free(p);
        by_trainer_free(r);
        by_model_free(plain);
        by_model_free(again);
    }
}

/* One thread or two: the same bits with our own matrix products, whose sums are cut by shape and not by
 * threads. The sizes are such that every kernel finds it worth its while to use both. */
static void test_threads(void **state)
{
    (void)state;
    enum { ROWS = 32, LONG = 32 };
    static const struct {
        const char *device;
        by_dtype type;
        by_optimizer optimizer;
    } cases[] = {{"cpu", BY_F32, BY_ADAMW},
                 {"cpu", BY_BF16, BY_SGD},
                 {"cpu:generic", BY_F32, BY_ADAFACTOR},
                 {"cpu:generic", BY_BF16, BY_ADAMW}};
    static int32_t inputs[ROWS * LONG], targets[ROWS * LONG];
    by_model_shape shape = {
        .layers = 1, .heads = 4, .width = 64, .context = LONG, .vocab = V, .dropout = 0.1};
    setenv("BANYAN_GEMM", "own", 1);
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *m[2];
        by_device *d[2];
        for (int k = 0; k < 2; k++) {
            d[k] = by_device_open(cases[i].device, k + 1);
            assert_non_null(d[k]);
            by_model_spec spec = {.dtype = cases[i].type, .training = true, .seed = 5};
            m[k] = by_model_new(d[k], "gpt2", &shape, &spec);
            assert_non_null(m[k]);
            by_optimizer_spec optimizer = {.kind = cases[i].optimizer, .momentum = 0.9, .max_grad_norm = 0.5};
            by_trainer *t = trainer_of(m[k], (by_trainer_spec){.optimizer = optimizer});
            for (int s = 0; s < 2; s++) {
                noise(inputs, ROWS * LONG, 100 + (uint64_t)s);
                noise(targets, ROWS * LONG, 200 + (uint64_t)s);
                backward(t, batch_of(ROWS, LONG, inputs, targets), true);
                update(t, 1e-3);
            }
            by_trainer_free(t);
        }
        by_slot slots[] = {BY_SLOT_GRAD, BY_SLOT_MOMENT1, BY_SLOT_MOMENT2, BY_SLOT_VALUE};
        for (int k = 0; k < BY_COUNT(slots); k++)
            same_bits(m[0], m[1], slots[k]);
        for (int k = 0; k < 2; k++) {
            by_model_free(m[k]);
            by_device_free(d[k]);
        }
    }
    unsetenv("BANYAN_GEMM");
}

/* Plain SGD at rate 1 moves by the gradient, clipped to the norm asked for; the norm reported is the one
 * before. */
static void test_clipping(void **state)
{
    (void)state;
    int32_t inputs[B * T], targets[B * T];
    lesson(inputs, targets, B, 0);
    for (int clipped = 0; clipped < 2; clipped++) {
        by_model *m = make(BY_F32, 1, 0), *before = make(BY_F32, 1, 0);
        by_optimizer_spec sgd = {.kind = BY_SGD, .max_grad_norm = clipped ? 0.125 : 0};
        by_trainer *t = trainer_of(m, (by_trainer_spec){.optimizer = sgd});
        backward(t, batch_of(B, T, inputs, targets), true);
        size_t bytes;
        const float *g = flat(m, BY_SLOT_GRAD, &bytes);
        double norm = 0, moved = 0;
        for (size_t i = 0; i < bytes / 4; i++)
            norm += (double)g[i] * (double)g[i];
        norm = sqrt(norm);
        assert_true(norm > 0.2);
        double reported = update(t, 1);
        assert_true(fabs(reported - norm) < 1e-5 * norm);
        const float *x = flat(m, BY_SLOT_VALUE, &bytes), *y = flat(before, BY_SLOT_VALUE, &bytes);
        for (size_t i = 0; i < bytes / 4; i++)
            moved += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        double expected = clipped ? 0.125 : norm;
        assert_true(fabs(sqrt(moved) - expected) < 1e-4 * expected);
        by_trainer_free(t);
        by_model_free(m);
        by_model_free(before);
    }
}

static void test_schedules(void **state)
{
    (void)state;
    const double rate = 0.8, low = 0.2;
    static const struct {
        by_schedule kind;
        int64_t warmup, step;
        double share; /* of the way from low to rate; inverse square root: of the rate */
    } cases[] = {
        {BY_SCHEDULE_CONSTANT, 0, 0, 1},
        {BY_SCHEDULE_CONSTANT, 0, 1000, 1},
        {BY_SCHEDULE_LINEAR, 0, 0, 1},
        {BY_SCHEDULE_LINEAR, 0, 25, 0.75},
        {BY_SCHEDULE_LINEAR, 0, 100, 0},
        {BY_SCHEDULE_LINEAR, 0, 1000, 0},
        {BY_SCHEDULE_LINEAR, 20, 20, 1},
        {BY_SCHEDULE_LINEAR, 20, 60, 0.5},
        {BY_SCHEDULE_LINEAR, 20, 100, 0},
        {BY_SCHEDULE_COSINE, 0, 0, 1},
        {BY_SCHEDULE_COSINE, 0, 50, 0.5},
        {BY_SCHEDULE_COSINE, 20, 40, 0.853553390593273762},
        {BY_SCHEDULE_COSINE, 20, 60, 0.5},
        {BY_SCHEDULE_COSINE, 20, 80, 0.146446609406726238},
        {BY_SCHEDULE_COSINE, 20, 100, 0},
        {BY_SCHEDULE_COSINE, 20, 5000, 0},
        {BY_SCHEDULE_INVERSE_SQRT, 16, 15, 1},
        {BY_SCHEDULE_INVERSE_SQRT, 16, 63, 0.5},
        {BY_SCHEDULE_INVERSE_SQRT, 16, 1599, 0.1},
        {BY_SCHEDULE_INVERSE_SQRT, 0, 3, 0.5},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_schedule_spec s = {
            .kind = cases[i].kind, .rate = rate, .min_rate = low, .warmup = cases[i].warmup, .steps = 100};
        bool falls = s.kind == BY_SCHEDULE_LINEAR || s.kind == BY_SCHEDULE_COSINE;
        double expected = falls ? low + (rate - low) * cases[i].share : rate * cases[i].share;
        if (fabs(by_schedule_rate(&s, cases[i].step) - expected) > 1e-15)
            fail_msg("case %d: %.17g, expected %.17g", i, by_schedule_rate(&s, cases[i].step), expected);
    }
    for (int kind = BY_SCHEDULE_CONSTANT; kind <= BY_SCHEDULE_INVERSE_SQRT; kind++) {
        by_schedule_spec s = {.kind = (by_schedule)kind, .rate = rate, .warmup = 20, .steps = 100};
        for (int64_t step = 0; step < 20; step++)
            assert_true(fabs(by_schedule_rate(&s, step) - rate * (double)(step + 1) / 20) < 1e-15);
        for (int64_t step = 20; step < 200; step++) /* from the top on it never rises */
            assert_true(by_schedule_rate(&s, step) <= by_schedule_rate(&s, step - 1) + 1e-15);
    }
}

static by_tensor *no_loss(void *user, by_graph *g, by_model_io *io)
{
    (void)user, (void)g, (void)io;
    return NULL;
}

static void test_bad_steps(void **state)
{
    (void)state;
    int32_t inputs[B * T], targets[B * T];
    lesson(inputs, targets, B, 0);
    by_model *m = make(BY_F32, 1, 0);
    assert_null(by_trainer_new(m, &(by_trainer_spec){.accumulate = -1}));
    double loss, sum = 0;
    int64_t count = 0;
    by_trainer *t = trainer_of(m, (by_trainer_spec){0});
    const by_batch batch = batch_of(B, T, inputs, targets), empty = batch_of(0, T, inputs, targets),
                   longer = batch_of(1, T + 1, inputs, targets); /* than the context */
    by_batch misspelt = batch;
    by_batch_put_tokens(&misspelt, "sgments", inputs);
    assert_null(by_trainer_program(t, &misspelt));
    assert_contains(by_error_message(), "does not read an array called \"sgments\"");
    assert_null(by_trainer_program(t, &longer));
    assert_contains(by_error_message(), "13 positions exceed the model's context of 12");
    assert_int_equal(by_trainer_backward(t, &longer, true, &loss), BY_ERR_ARGUMENT);
    assert_int_equal(by_trainer_backward(t, &empty, true, &loss), BY_ERR_ARGUMENT);
    const by_batch bare = by_batch_of(B, T, inputs);
    assert_int_equal(by_trainer_backward(t, &bare, true, &loss), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no targets");
    by_trainer_free(t);
    t = trainer_of(m, (by_trainer_spec){.loss = no_loss});
    assert_int_equal(by_trainer_backward(t, &batch, true, &loss), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "the caller's loss is NULL");
    by_trainer_free(t);
    t = trainer_of(m, (by_trainer_spec){0});
    int32_t outside[] = {V, -1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < BY_COUNT(outside); i++) { /* a token, then a target outside the vocabulary */
        int32_t kept = inputs[7];
        inputs[7] = outside[i];
        assert_int_equal(by_trainer_backward(t, &batch, true, &loss), BY_ERR_ARGUMENT);
        assert_int_equal(by_trainer_evaluate(t, &batch, &sum, &count), BY_ERR_ARGUMENT);
        inputs[7] = kept;
        kept = targets[7];
        targets[7] = outside[i];
        assert_int_equal(by_trainer_backward(t, &batch, true, &loss), BY_ERR_ARGUMENT);
        assert_int_equal(by_trainer_evaluate(t, &batch, &sum, &count), BY_ERR_ARGUMENT);
        targets[7] = kept;
    }
    assert_int_equal(count, 0);
    backward(t, batch_of(B, T, inputs, targets), true); /* and all is well again */
    by_trainer_free(t);
    by_model_free(m);
    by_model_shape shape = {.layers = 1, .heads = 1, .width = 8, .context = T, .vocab = V};
    m = by_model_new(device, "gpt2", &shape, &(by_model_spec){0});
    assert_null(by_trainer_new(m, &(by_trainer_spec){0}));
    assert_contains(by_error_message(), "not frozen for training");
    by_model_free(m);
}

double __wrap_by_device_peak(by_device *d, by_dtype type);

/* In place of the real one (test_train.link), which takes longer than all the rest here. */
double __wrap_by_device_peak(by_device *d, by_dtype type)
{
    (void)d, (void)type;
    return 1e15;
}

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct watch {
    int64_t last, steps, evaluations, saved, notes, nodes;
    double eval_loss;
} watch;

static void on_report(void *user, const by_report *r)
{
    watch *w = user;
    if (r->note) {
        w->notes++;
        return;
    }
    assert_int_equal(r->step, w->last + 1);
    w->last = r->step;
    w->steps++;
    w->saved += r->saved;
    assert_true(isfinite(r->loss) && isfinite(r->grad_norm) && r->ms > 0 && r->tokens_per_s > 0);
    assert_true(r->peak_share > 0 && r->peak_share <= 1);
    assert_true(r->evaluated == isfinite(r->eval_loss));
    w->evaluations += r->evaluated;
    if (r->evaluated)
        w->eval_loss = r->eval_loss;
}

static void on_node(void *user, const by_trace_entry *entry)
{
    assert_int_equal(entry->first_bad, -1);
    ((watch *)user)->nodes++;
}

static const char *text_file(void)
{
    const char *path = in_root("text");
    if (!base_file_exists(path)) {
        base_buf b = {0};
        for (int i = 0; i < 120; i++)
            base_buf_printf(&b, "%d times %d is %d; ", i, i + 1, i * (i + 1));
        assert_int_equal(base_file_write(path, b.data, b.size), BY_OK);
        base_buf_free(&b);
    }
    return path;
}

static by_run_spec run_spec(const char *out, const char **data, watch *w)
{
    *data = text_file();
    return (by_run_spec){.family = "gpt2",
                         .shape = {.layers = 1, .heads = 2, .width = 16, .context = T},
                         .data = data,
                         .data_count = 1,
                         .eval_fraction = 0.1,
                         .batch = B,
                         .steps = 20,
                         .schedule = {.kind = BY_SCHEDULE_CONSTANT, .rate = 1e-2},
                         .eval_every = 10,
                         .save_every = 20,
                         .seed = 6,
                         .out = out,
                         .report = on_report,
                         .user = w};
}

static by_run_result train(const by_run_spec *spec)
{
    by_run_result r;
    if (by_train_run(device, spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    return r;
}

static void test_run(void **state)
{
    (void)state;
    watch w = {0};
    const char *data, *out = in_root("run");
    by_run_spec spec = run_spec(out, &data, &w);
    spec.trace = on_node;
    by_run_result r = train(&spec);
    assert_int_equal(r.steps, 20);
    assert_int_equal(r.resumed_from, 0);
    assert_int_equal(w.steps, 20);
    assert_int_equal(w.notes, 1);
    assert_int_equal(w.evaluations, 2);
    assert_true(w.saved >= 1);
    assert_true(w.nodes > 10 && w.nodes < 200); /* of the first step alone */
    assert_true(r.eval_loss == w.eval_loss && r.best_eval_loss <= r.eval_loss);
    assert_true(r.best_step == 10 || r.best_step == 20);
    assert_true(r.state_bytes > 0 && r.activation_bytes > 0 && r.parameters > 1000);
    static const char *const files[] = {"run/metrics.jsonl",
                                        "run/run.json",
                                        "run/loss.svg",
                                        "run/last/config.json",
                                        "run/last/tokenizer.json",
                                        "run/best/model.safetensors"};
    for (int i = 0; i < BY_COUNT(files); i++)
        assert_true(base_file_exists(in_root(files[i])));
    w = (watch){.last = 20};
    r = train(&spec); /* nothing is left to do */
    assert_int_equal(r.resumed_from, 20);
    assert_int_equal(w.steps, 0);

    watch other = {0}; /* from those weights on: the first loss is not that of a model that knows nothing */
    by_run_spec tuned = run_spec(in_root("tuned"), &data, &other);
    tuned.init_from = in_root("run/last");
    tuned.steps = 1;
    assert_true(train(&tuned).loss < 0.9 * log(20));

    spec.eval_every = 0; /* epochs: 2250 of the 2500 characters or so, 48 a step */
    spec.steps = 0;
    spec.epochs = 2;
    spec.out = in_root("epochs");
    w = (watch){0};
    size_t size;
    base_free(base_file_read(text_file(), 1 << 20, &size));
    int64_t kept = (int64_t)floor((double)size * 0.9);
    assert_int_equal(train(&spec).steps, (int64_t)(2.0 * (double)kept / (B * T)));
}

/* Tokens of a run's own shard are the same run. */
static void test_shards(void **state)
{
    (void)state;
    const char *data, *shard = in_root("text-run/data/train.bin");
    watch w = {0};
    by_run_spec spec = run_spec(in_root("text-run"), &data, &w);
    double loss = train(&spec).loss;
    w = (watch){0};
    spec.data = &shard;
    spec.tokenizer = in_root("text-run/last");
    spec.out = in_root("shard-run");
    assert_true(train(&spec).loss == loss);
    w = (watch){0};
    spec.tokenizer = NULL; /* without one, the vocabulary must be given */
    spec.out = in_root("bare-run");
    spec.shape.vocab = 100;
    assert_true(isfinite(train(&spec).loss));
    spec.shape.vocab = 5;
    spec.out = in_root("small-vocab");
    by_run_result r;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_FORMAT);
    assert_contains(by_error_message(), "outside the vocabulary of 5");
}

/* At a rate too small to change a number nothing gets better: the first evaluation is the best, and patience
 * runs out. */
static void test_early_stop(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_spec spec = run_spec(in_root("patient"), &data, &w);
    spec.schedule.rate = 1e-30;
    spec.eval_every = 2;
    spec.steps = 100;
    spec.patience = 3;
    by_run_result r = train(&spec);
    assert_true(r.stopped_early);
    assert_int_equal(r.steps, 2 * (1 + 3));
    assert_int_equal(r.best_step, 2);
    w = (watch){.last = 8};
    r = train(&spec); /* it has not become more patient */
    assert_int_equal(r.steps, 8);
    assert_int_equal(w.steps, 0);
    spec.patience = 5;
    r = train(&spec);
    assert_int_equal(r.steps, 12);
}

/* -log softmax(logits)[target], in double. */
static double surprise(const float *logits, int n, int32_t target)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = BY_MAX(top, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[target];
}

/* The held-out loss is the mean over every token but the first, each predicted once from what its window
 * holds before it. Computed here one window at a time from the saved model. */
static void test_eval_loss(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_spec spec = run_spec(in_root("eval"), &data, &w);
    spec.eval_fraction = 0.14;
    spec.shape.dropout = 0.3; /* off in evaluation */
    double eval = train(&spec).eval_loss;
    by_model *m = by_model_open(device, in_root("eval/last"), &(by_model_spec){0});
    const char *bin = in_root("eval/data/train.bin");
    data_tokens *tokens = data_tokens_open(&bin, 1, 0);
    assert_true(m && tokens);
    int64_t n = data_tokens_count(tokens), begin = (int64_t)floor((double)n * (1 - 0.14)), windows = 0,
            count = 0;
    int vocab = by_model_vocab(m);
    float *logits = base_alloc(sizeof *logits * T * (size_t)vocab);
    double sum = 0;
    for (int64_t at = begin; at < n - 1; at += T, windows++) {
        int32_t ids[T + 1];
        int length = (int)BY_MIN(T, n - 1 - at);
        assert_int_equal(data_tokens_read(tokens, at, length + 1, ids), BY_OK);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(m)});
        by_model_io io = {0};
        by_io_feed(&io, "tokens", by_input(g, "tokens", BY_I32, 2, (int64_t[]){1, length}));
        by_model_build(m, g, &io);
        by_output(g, "logits", by_io_output(&io, "logits"));
        by_program *p = by_compile(g, &(by_compile_spec){0});
        assert_non_null(p);
        assert_int_equal(by_write(p, by_io_input(&io, "tokens"), ids, sizeof *ids * (size_t)length), BY_OK);
        assert_int_equal(by_run(p), BY_OK);
        assert_int_equal(by_read_f32(p, by_io_output(&io, "logits"), logits), BY_OK);
        for (int t = 0; t < length; t++, count++)
            sum += surprise(logits + t * vocab, vocab, ids[t + 1]);
        by_program_free(p);
    }
    assert_true(windows % B != 0 &&
                (n - 1 - begin) % T != 0); /* the last batch and the last window are not full */
    assert_int_equal(count, n - 1 - begin);
    if (!(fabs(sum / (double)count - eval) < 1e-5 * eval))
        fail_msg("the run says %.9g, by hand it is %.9g", eval, sum / (double)count);
    base_free(logits);
    data_tokens_free(tokens);
    by_model_free(m);
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void test_bad_runs(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_result r;
    const by_run_spec good = run_spec(in_root("bad"), &data, &w);
    by_run_spec spec = good;
    spec.data_count = 0;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no data");
    spec = good;
    const char *missing = in_root("no such text"), *mixed[] = {text_file(), in_root("run/data/train.bin")};
    spec.data = &missing;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_IO);
    assert_contains(by_error_message(), "no such text");
    spec.data = mixed;
    spec.data_count = 2;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "mixed");
    spec = good;
    spec.family = "gpt-17";
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_UNSUPPORTED);
    assert_contains(by_error_message(), "gpt-17");
    spec = good;
    spec.seq = T + 1;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "13 tokens exceed the model's context of 12");
    spec = good;
    spec.shape.context = 4000;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "too few for one window of 4000");
    spec = good;
    spec.tokenizer = in_root("no tokenizer");
    assert_int_not_equal(by_train_run(device, &spec, &r), BY_OK);
    assert_contains(by_error_message(), "no tokenizer");
    spec = good;
    spec.cancelled = at_once;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_CANCELLED);
    assert_contains(by_error_message(), "stopped at step 0");
    spec = good;
    spec.schedule.rate = 1e30;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_NUMERIC);
    assert_contains(by_error_message(), "at step");
    assert_false(base_file_exists(in_root("bad/last/config.json")));
    base_free(base_file_read(in_root("bad/run.json"), 1 << 20, NULL));
    spec = good;
    spec.out = text_file(); /* not a folder */
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_IO);
    assert_contains(by_error_message(), text_file());
}

static int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-train-XXXXXX", base && *base ? base : "/tmp");
    device = by_device_open("cpu", 1);
    return mkdtemp(root) && device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static by_model *tuned(const char *freeze)
{
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 16, .context = T, .vocab = V, .dropout = 0};
    by_model_spec spec = {.training = true,
                          .seed = 3,
                          .task = BY_TASK_CLASSIFY,
                          .labels = 2,
                          .freeze = freeze,
                          .dtype = BY_BF16};
    by_model *m = by_model_new(device, "gpt2", &shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_status write_model(void *user, const char *dir)
{
    return train_model_save(user, NULL, dir);
}

static by_status read_model(void *user, const char *dir)
{
    return train_model_load(user, dir);
}

/* A checkpoint with moments for everything, as versions before this one wrote them for frozen runs too, opens
 * with a frozen body; the next one holds the moments of the head alone. */
static void test_frozen_checkpoints(void **state)
{
    (void)state;
    train_folder folder;
    train_run_state s = {.step = 5, .best_eval = NAN};
    by_model *all = tuned(NULL), *some = tuned("body");
    const by_params *p = by_model_params(some), *before = by_model_params(all);
    assert_int_equal(train_folder_open(&folder, in_root("frozen")), BY_OK);
    float values[V * 16], back[V * 16];
    for (int i = 0; i < before->count; i++) {
        for (int k = 0; k < V * 16; k++)
            values[k] = (float)(i + k) / 3;
        if (before->list[i].count <= V * 16)
            assert_int_equal(by_params_set(by_model_params(all), i, BY_SLOT_MOMENT1, values), BY_OK);
    }
    assert_int_equal(train_checkpoint_save(&folder, &s, false, 4, write_model, all), BY_OK);
    assert_int_equal(train_checkpoint_load(in_root("frozen/last"), &s, read_model, some), BY_OK);
    s.step = 6;
    assert_int_equal(train_checkpoint_save(&folder, &s, false, 4, write_model, some), BY_OK);
    by_weights *w = by_weights_open(in_root("frozen/last/optimizer.safetensors"));
    assert_non_null(w);
    int trained = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->list[i].offset < 0)
            continue;
        trained++;
        assert_int_equal(by_params_get(p, i, BY_SLOT_MOMENT1, back), BY_OK);
        for (int64_t k = 0; k < p->list[i].count; k++)
            assert_true(back[k] == (float)(i + k) / 3);
    }
    assert_int_equal(trained, 3); /* ln_f and the head */
    assert_int_equal(by_weights_count(w), 2 * trained);
    assert_int_equal(train_checkpoint_load(in_root("frozen/last"), &s, read_model, all),
                     BY_ERR_FORMAT); /* not for all */
    by_weights_free(w);
    train_folder_close(&folder);
    by_model_free(all);
    by_model_free(some);
}

/* A frozen body of 124M under a trained head: no gradient, moment or master of the body. */
static void test_frozen_bytes(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_BF16};
    for (int i = 0; i < BY_COUNT(types); i++) {
        by_model_spec spec = {.training = true,
                              .blank = true,
                              .task = BY_TASK_CLASSIFY,
                              .labels = 2,
                              .freeze = "body",
                              .dtype = types[i]};
        by_model *m = by_model_new(device, "gpt2", &(by_model_shape){.preset = "124m", .dropout = -1}, &spec);
        if (!m)
            fail_msg("%s", by_error_message());
        const by_params *p = by_model_params(m);
        assert_int_equal(by_params_elements(p), 124441344);
        assert_int_equal(by_params_trained(p), 4 * 768); /* ln_f, score */
        assert_int_equal(by_params_bytes(p), i ? 124441344 * 2 + 3072 * 16 : 124441344 * 4 + 3072 * 12);
        by_model_free(m);
    }
}

/* Elements of GPT-2 124M that learn when all is frozen but these. */
static int64_t trained_of(by_task task, const char *freeze)
{
    by_model_spec spec = {.training = true, .blank = true, .task = task, .labels = 2, .freeze = freeze};
    by_model *m = by_model_new(device, "gpt2", &(by_model_shape){.preset = "124m", .dropout = -1}, &spec);
    const int64_t n = m ? by_params_trained(by_model_params(m)) : -1;
    if (m)
        assert_int_equal(by_params_bytes(by_model_params(m)) - by_params_value_bytes(by_model_params(m)),
                         n * 12);
    by_model_free(m);
    return n;
}

/* Biases alone, or parameters by name: the rest has no buffers of training. */
static void test_frozen_weights(void **state)
{
    (void)state;
    const int64_t biases = 12 * (768 + 2304 + 768 + 768 + 3072 + 768), last = 2 * 768, head = 2 * 768;
    assert_int_equal(trained_of(BY_TASK_CLASSIFY, "weights"), biases + last + head);
    assert_int_equal(trained_of(BY_TASK_LM, "weights"), biases + 768);
    assert_int_equal(trained_of(BY_TASK_LM, "but:c_attn.bias"), 12 * 2304);
    assert_int_equal(trained_of(BY_TASK_LM, "but:h.3.ln_1,ln_f.bias"), 2 * 768 + 768);
    assert_int_equal(trained_of(BY_TASK_LM, "but:ln"), -1); /* whole parts alone */
    assert_non_null(strstr(by_error_message(), "has \"ln\" in its name"));
    assert_int_equal(trained_of(BY_TASK_LM, "but:"), -1);
    assert_int_equal(trained_of(BY_TASK_LM, "but:bias,,"), -1);
    by_model_spec spec = {.training = true, .freeze = "weights"};
    assert_null(by_model_new(device, "llama", &(by_model_shape){.dropout = -1}, &spec));
    assert_non_null(strstr(by_error_message(), "is a bias"));
}

/* A small classifier after one backward pass over so many rows of so many tokens. */
static by_model *after_backward(by_dtype type, const char *freeze, int rows, int seq)
{
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 16, .context = T, .vocab = V, .dropout = 0};
    by_model_spec spec = {
        .training = true, .seed = 3, .task = BY_TASK_CLASSIFY, .labels = 2, .freeze = freeze, .dtype = type};
    by_model *m = by_model_new(device, "bert", &shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    by_trainer *t = trainer_of(m, (by_trainer_spec){.optimizer = {.kind = BY_ADAMW}});
    int32_t tokens[B * T], targets[B];
    for (int i = 0; i < B * T; i++)
        tokens[i] = i * 7 % V;
    for (int i = 0; i < B; i++)
        targets[i] = i % 2;
    by_batch batch = by_batch_of(rows, seq, tokens);
    by_batch_put_ids(&batch, "targets", rows, targets);
    double loss;
    if (by_trainer_backward(t, &batch, true, &loss) != BY_OK)
        fail_msg("%s", by_error_message());
    by_trainer_free(t);
    return m;
}

/* Biases get the gradients that they have where weights learn too. */
static void test_bias_gradients(void **state)
{
    (void)state;
    static const struct {
        by_dtype type;
        int rows, seq;
        double apart;
    } ways[] = {{BY_F64, B, T, 1e-12}, {BY_F32, B, T, 1e-5}, {BY_F32, 1, 1, 1e-5}, {BY_BF16, 1, 1, 1e-5}};
    for (int k = 0; k < BY_COUNT(ways); k++) {
        by_model *all = after_backward(ways[k].type, NULL, ways[k].rows, ways[k].seq),
                 *some = after_backward(ways[k].type, "weights", ways[k].rows, ways[k].seq);
        const by_params *p = by_model_params(some);
        float x[V * 16], y[V * 16];
        int biases = 0;
        for (int i = 0; i < p->count; i++) {
            if (p->list[i].offset < 0 || !strstr(p->list[i].name, "bias"))
                continue;
            biases++;
            assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, x), BY_OK);
            assert_int_equal(by_params_get(by_model_params(all), i, BY_SLOT_GRAD, y), BY_OK);
            for (int64_t e = 0; e < p->list[i].count; e++)
                assert_true(fabs((double)x[e] - (double)y[e]) <=
                            ways[k].apart * BY_MAX(fabs((double)y[e]), 1e-2));
        }
        assert_int_equal(biases, 1 + 2 * (4 + 1 + 2 + 1) + 2); /* norms, products; pooler, head */
        by_model_free(all);
        by_model_free(some);
    }
}

static by_model *open_as(const char *dir, by_dtype weights)
{
    by_model *m = by_model_open(device, dir, &(by_model_spec){.weights = weights});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Weights stored in blocks: those of products and the tied table, nothing else. A save writes the rounded
 * values, and what was rounded once stays as it is. */
static void test_stored_weights(void **state)
{
    (void)state;
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 32, .context = T, .vocab = V, .dropout = 0};
    by_model *m = by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 3});
    assert_non_null(m);
    assert_int_equal(by_model_save(m, in_root("plain"), BY_F32), BY_OK);
    static float values[2][32 * 128];
    static const by_dtype types[] = {BY_Q8_0, BY_Q4_0, BY_BF16, BY_F16};
    for (int t = 0; t < BY_COUNT(types); t++) {
        by_model *small = open_as(in_root("plain"), types[t]);
        by_params *p = by_model_params(small);
        assert_int_equal(by_model_save(small, in_root("rounded"), BY_F32), BY_OK);
        by_model *again = open_as(in_root("rounded"), types[t]), *wide = open_as(in_root("rounded"), BY_F32);
        for (int i = 0; i < p->count; i++) {
            const char *name = p->list[i].name;
            const bool weight = p->list[i].rank == 2 && !strstr(name, "wpe");
            assert_int_equal(by_params_type(p, i), weight ? types[t] : BY_F32);
            assert_int_equal(by_params_type(by_model_params(wide), i), BY_F32);
            assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, values[0]), BY_OK);
            assert_int_equal(by_params_get(by_model_params(again), i, BY_SLOT_VALUE, values[1]), BY_OK);
            assert_memory_equal(values[0], values[1], (size_t)p->list[i].count * sizeof(float));
            assert_int_equal(by_params_get(by_model_params(wide), i, BY_SLOT_VALUE, values[1]), BY_OK);
            assert_memory_equal(values[0], values[1], (size_t)p->list[i].count * sizeof(float));
        }
        by_model_free(small);
        by_model_free(again);
        by_model_free(wide);
    }
    assert_null(by_model_open(device, in_root("plain"), &(by_model_spec){.weights = BY_F64}));
    by_model_free(m);
}

/* A head learns on top of a frozen body of blocks: gradients go through them, and they stay as they are. */
static void test_trains_on_blocks(void **state)
{
    (void)state;
    by_model_shape shape = {.layers = 2, .heads = 2, .width = 32, .context = T, .vocab = V, .dropout = 0};
    by_model_spec spec = {
        .training = true, .seed = 3, .task = BY_TASK_CLASSIFY, .labels = 2, .freeze = "1", .weights = BY_Q4_0};
    by_model *m = by_model_new(device, "gpt2", &shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    by_params *p = by_model_params(m);
    int blocks = 0;
    for (int i = 0; i < p->count; i++)
        blocks += by_params_type(p, i) == BY_Q4_0;
    assert_int_equal(blocks, 4); /* the products of the first layer */
    static float before[V * 32], after[V * 32];
    assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, before), BY_OK);
    by_trainer *t = trainer_of(m, (by_trainer_spec){.optimizer = {.kind = BY_ADAMW}});
    int32_t tokens[B * T], targets[B];
    for (int i = 0; i < B * T; i++)
        tokens[i] = i * 7 % V;
    for (int i = 0; i < B; i++)
        targets[i] = i % 2;
    by_batch batch = by_batch_of(B, T, tokens);
    by_batch_put_ids(&batch, "targets", B, targets);
    double first = 0, loss = 0;
    for (int i = 0; i < 60; i++) {
        if (by_trainer_backward(t, &batch, true, &loss) != BY_OK || by_trainer_update(t, 1e-2, NULL) != BY_OK)
            fail_msg("%s", by_error_message());
        first = i ? first : loss;
    }
    assert_true(loss < 0.1 * first);
    assert_int_equal(by_params_get(p, 0, BY_SLOT_VALUE, after), BY_OK);
    assert_memory_equal(before, after, sizeof before);
    by_trainer_free(t);
    by_model_free(m);
}

/* What a family is trained with is in its record: a user of the library gets what the program takes. */
static void test_defaults(void **state)
{
    (void)state;
    const by_run_spec gpt2 = by_run_defaults("gpt2", NULL, NULL), t5 = by_run_defaults("t5", NULL, NULL),
                      pairs = by_run_defaults("transformer", NULL, NULL),
                      other = by_run_defaults("t5", "translate", NULL),
                      old = by_run_defaults("t5", NULL, root);
    assert_int_equal(gpt2.optimizer.kind, BY_ADAMW);
    assert_true(gpt2.shape.dropout == 0 && gpt2.optimizer.weight_decay == 0.1 && gpt2.label_smoothing == 0);
    assert_int_equal(t5.optimizer.kind, BY_ADAFACTOR);
    assert_true(t5.shape.dropout < 0 && !t5.shape.pre_norm && t5.label_smoothing == 0);
    assert_true(pairs.shape.pre_norm && pairs.label_smoothing == 0.1 && pairs.optimizer.beta2 == 0.98);
    assert_true(other.optimizer.kind == BY_ADAFACTOR && other.label_smoothing == 0.1);
    assert_true(old.optimizer.kind == BY_ADAMW && old.shape.dropout < 0 && old.init_from == root);
    assert_true(by_finetune_defaults().schedule.rate < 0);
    assert_true(train_default_tuning_rate(768) == 3e-5 && train_default_tuning_rate(1024) == 3e-5);
    assert_true(fabs(train_default_tuning_rate(128) - 1.8e-4) < 1e-9 &&
                train_default_tuning_rate(16) == 3e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_learns_labels),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_recompute_steps),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_bad_steps),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_early_stop),
        cmocka_unit_test(test_eval_loss),
        cmocka_unit_test(test_bad_runs),
        cmocka_unit_test(test_frozen_bytes),
        cmocka_unit_test(test_frozen_weights),
        cmocka_unit_test(test_bias_gradients),
        cmocka_unit_test(test_frozen_checkpoints),
        cmocka_unit_test(test_stored_weights),
        cmocka_unit_test(test_trains_on_blocks),
    };
    return cmocka_run_group_tests_name("train", tests, set_up, tear_down);
}
