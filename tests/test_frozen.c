/* test_frozen.c - training with frozen parameters: buffers, gradients, checkpoints, stored weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen_checkpoints), cmocka_unit_test(test_frozen_bytes),
        cmocka_unit_test(test_frozen_weights),     cmocka_unit_test(test_bias_gradients),
        cmocka_unit_test(test_stored_weights),     cmocka_unit_test(test_trains_on_blocks),
    };
    return cmocka_run_group_tests_name("frozen", tests, set_up, tear_down);
}
