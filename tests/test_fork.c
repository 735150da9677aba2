/* test_fork.c - children of a process that has computed on several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "banyan/banyan.h"
#include "child.h"

enum { PROMPT = 40, NEW = 6 };

static const by_model_shape shape = {.layers = 2, .heads = 4, .width = 128, .context = 64, .vocab = 600};
static by_device *device;
static by_model *model;
static by_generator *generator;
static int32_t parents[NEW];

static by_status write_tokens(by_generator *g, int32_t *out)
{
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37) % 600;
    by_generate_result result;
    by_generate_spec spec = {.max_new_tokens = NEW};
    by_status s = by_generate(g, (const int32_t *const[]){prompt}, (const int[]){PROMPT}, &spec, &result);
    for (int i = 0; i < NEW && s == BY_OK; i++)
        out[i] = result.rows[0].tokens[i];
    by_generate_result_free(&result);
    return s;
}

/* The parent's own generator, whose plans are for two threads. */
static int go_on(const char *unused)
{
    (void)unused;
    int32_t tokens[NEW];
    alarm(60); /* a child that waits for threads it does not have is killed by it */
    CHECK(write_tokens(generator, tokens) == BY_OK);
    CHECK(memcmp(tokens, parents, sizeof tokens) == 0);
    CHECK(by_device_threads(device) == 1);
    return 0;
}

/* A device, a model and a step of training of the child's own. */
static int begin(const char *unused)
{
    (void)unused;
    int32_t tokens[2 * 32];
    double loss = 0, norm = 0;
    alarm(60);
    by_device *d = by_device_open("cpu", 2);
    by_model *m = by_model_new(d, "gpt2", &shape, &(by_model_spec){.training = true, .seed = 1});
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.accumulate = 1});
    CHECK(t);
    for (int i = 0; i < BY_COUNT(tokens); i++)
        tokens[i] = i;
    by_batch batch = by_batch_of(2, 32, tokens);
    by_batch_put_tokens(&batch, "targets", tokens);
    CHECK(by_trainer_backward(t, &batch, true, &loss) == BY_OK);
    CHECK(by_trainer_update(t, 1e-3, &norm) == BY_OK);
    CHECK(loss > 0 && norm > 0);
    by_trainer_free(t);
    by_model_free(m);
    by_device_free(d);
    return 0;
}

static void test_go_on(void **state)
{
    (void)state;
    assert_true(in_child(go_on, NULL));
    assert_int_equal(by_device_threads(device), 2); /* the parent keeps its own */
    int32_t again[NEW];
    assert_int_equal(write_tokens(generator, again), BY_OK);
    assert_memory_equal(again, parents, sizeof again);
}

static void test_begin(void **state)
{
    (void)state;
    assert_true(in_child(begin, NULL));
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    model = device ? by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 1}) : NULL;
    generator = model ? by_generator_new(model, &(by_generator_spec){.batch = 1}) : NULL;
    return generator && write_tokens(generator, parents) == BY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_generator_free(generator);
    by_model_free(model);
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_go_on), cmocka_unit_test(test_begin)};
    return cmocka_run_group_tests_name("fork", tests, set_up, tear_down);
}
