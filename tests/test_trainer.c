/* test_trainer.c - steps of training: accumulation, recomputation, threads, clipping, schedules, bad steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),          cmocka_unit_test(test_learns_labels),
        cmocka_unit_test(test_accumulation),    cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_recompute_steps), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_clipping),        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_bad_steps),
    };
    return cmocka_run_group_tests_name("trainer", tests, set_up, tear_down);
}
