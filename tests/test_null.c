/* test_null.c - NULL where something must be: a clear error, the first one kept, and no crash. What a call
 * that failed returned is handed on to the next, as careless programs do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "banyan/banyan.h"
#include "child.h"
#include "graph_case.h"

enum { BUILDERS = 34 };

/* Every builder, given g and x for all that it takes. */
static by_tensor *build_with(int which, by_graph *g, by_tensor *x)
{
    by_tensor *other;
    const by_attention_spec heads = {.heads = 1};
    int at = 0;
    /* clang-format off */
    if (which == at++) return by_sines(g, x, 4, BY_F32);
    if (which == at++) return by_rotary(g, x, x, &(by_rotary_spec){.head_dim = 4, .frequencies = (float[]){1, 1}});
    if (which == at++) return by_gather(g, x, x);
    if (which == at++) return by_gather_padded(g, x, x, 1);
    if (which == at++) return by_linear(g, x, x, x, NULL);
    if (which == at++) return by_matmul(g, x, x, false, true);
    if (which == at++) return by_activation(g, x, BY_RELU);
    if (which == at++) return by_dropout(g, x, 0.5f);
    if (which == at++) return by_layernorm(g, x, x, x, 1);
    if (which == at++) return by_rmsnorm(g, x, x, 1);
    if (which == at++) return by_softmax(g, x);
    if (which == at++) return by_attention(g, x, x, x, &heads);
    if (which == at++) return by_attention_cached(g, x, x, x, x, x, x, &heads);
    if (which == at++) return by_hash(g, x, x, x, 1, (int[]){2});
    if (which == at++) return by_chunked_attention(g, x, x, x, &(by_chunked_spec){.heads = 1, .chunk = 4});
    if (which == at++) return by_cross_entropy(g, x, x, NULL);
    if (which == at++) return by_add(g, x, x);
    if (which == at++) return by_sub(g, x, x);
    if (which == at++) return by_mul(g, x, x);
    if (which == at++) return by_scale(g, x, 2);
    if (which == at++) return by_sum(g, x, -1);
    if (which == at++) return by_mean(g, x, 0);
    if (which == at++) return by_reshape(g, x, SHAPE(1));
    if (which == at++) return by_permute_axes(g, x, (int[]){0});
    if (which == at++) return by_slice(g, x, -1, 0, 1);
    if (which == at++) return by_concat(g, (by_tensor *[]){x, x}, 2, -1);
    if (which == at++) return by_cast(g, x, BY_F16);
    if (which == at++) return by_argmax(g, x);
    if (which == at++) return by_draw(g, x, x, x);
    if (which == at++) return by_top(g, x, 1, &other, NULL);
    if (which == at++) return by_output(g, "y", x);
    if (which == at++) by_store(g, x, x);
    if (which == at++) by_reorder(g, x, x, x, x, x, 2);
    if (which == at++) by_advance(g, x, x, x, x, x, 3);
    /* clang-format on */
    assert_int_equal(at, BUILDERS);
    return by_graph_status(g) == BY_OK ? x : by_graph_fail(g, "again");
}

/* No operand: an error that names the op, and the tensor is poison, which is what the next one wants. */
static void test_null_operands(void **state)
{
    (void)state;
    for (int i = 0; i < BUILDERS; i++) {
        by_params *params = new_params();
        by_graph *g = new_graph(params, true);
        by_scope_push(g, "h.3");
        assert_ptr_equal(build_with(i, g, NULL), g->poison);
        assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
        assert_contains(by_error_message(), "missing");
        assert_contains(by_error_message(), "h.3");
        char *first = base_strdup(by_error_message());
        for (int k = 0; k < BUILDERS; k++)
            assert_ptr_equal(build_with(k, g, k % 2 ? NULL : g->poison), g->poison);
        by_scope_pop(g);
        assert_int_equal(by_params_freeze(params, false), BY_OK);
        assert_null(by_compile(g, NULL));
        assert_string_equal(by_error_message(), first);
        base_free(first);
        by_params_free(params);
    }
}

/* The second of two: what is optional is still optional. */
static void test_null_second(void **state)
{
    (void)state;
    by_params *params = new_params();
    by_graph *g = new_graph(params, true);
    by_tensor *x = f32_input(g, "x", SHAPE(2, 4)), *gamma = f32_input(g, "gamma", SHAPE(4));
    by_linear(g, x, f32_input(g, "w", SHAPE(3, 4)), NULL, NULL);
    by_layernorm(g, x, gamma, NULL, 1);
    assert_int_equal(by_graph_status(g), BY_OK);
    by_mul(g, x, NULL);
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    assert_string_equal(by_error_message(), "mul: input 2 is missing");
    by_graph_free(g);
    by_params_free(params);
}

static void no_name(by_graph *g)
{
    by_input(g, NULL, BY_F32, SHAPE(2));
}

static void no_shape(by_graph *g)
{
    by_input(g, "x", BY_F32, 2, NULL);
}

static void no_param_name(by_graph *g)
{
    by_param(g, NULL, SHAPE(2), normal);
}

static void no_param_shape(by_graph *g)
{
    by_param_fixed(g, "w", 1, NULL, normal);
}

static void no_memory(by_graph *g)
{
    by_state(g, "cache", BY_F32, SHAPE(2), NULL);
}

static void no_fill_shape(by_graph *g)
{
    by_fill(g, BY_F32, 2, NULL, 1);
}

static void no_range_shape(by_graph *g)
{
    by_range(g, 1, NULL);
}

static void no_buckets(by_graph *g)
{
    by_buckets(g, 4, 2, false, 2, NULL);
}

static void no_heads(by_graph *g)
{
    by_attention(g, f32_input(g, "q", SHAPE(2, 4, 6)), NULL, NULL, NULL);
}

static void no_new_shape(by_graph *g)
{
    by_reshape(g, f32_input(g, "x", SHAPE(2)), 1, NULL);
}

static void no_order(by_graph *g)
{
    by_permute_axes(g, f32_input(g, "x", SHAPE(2)), NULL);
}

static void no_parts(by_graph *g)
{
    by_concat(g, NULL, 2, 0);
}

static void test_null_arguments(void **state)
{
    (void)state;
    void (*const cases[])(by_graph *) = {no_name,   no_shape,      no_param_name,  no_param_shape,
                                         no_memory, no_fill_shape, no_range_shape, no_buckets,
                                         no_heads,  no_new_shape,  no_order,       no_parts};
    by_params *params = new_params();
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_graph *g = new_graph(params, false);
        cases[i](g);
        assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
        by_graph_free(g);
    }
    assert_int_equal(by_params_count(params), 0);
    by_params_free(params);
}

/* No graph at all, as when by_graph_new() failed: nothing is built, and its error is the one that is told. */
static void test_null_graph(void **state)
{
    (void)state;
    base_error_clear();
    for (int i = 0; i < BUILDERS; i++) {
        assert_null(build_with(i, NULL, NULL));
        assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    }
    base_error_clear();
    assert_null(by_input(NULL, "x", BY_F32, SHAPE(2)));
    assert_null(by_param(NULL, "w", SHAPE(2), normal));
    assert_null(by_param_fixed(NULL, "w", SHAPE(2), normal));
    assert_null(by_state(NULL, "s", BY_F32, SHAPE(2), NULL));
    assert_null(by_fill(NULL, BY_F32, SHAPE(2), 1));
    assert_null(by_range(NULL, SHAPE(2)));
    assert_null(by_buckets(NULL, 4, 2, false, 1, (int[]){0}));
    by_scope_push(NULL, "h");
    by_scope_pop(NULL);
    by_block_push(NULL, "h");
    by_block_pop(NULL);
    assert_null(by_name(NULL, "x"));
    assert_string_equal(by_error_message(), "graph is NULL");
    assert_null(by_graph_new(NULL));
    assert_null(by_graph_new(&(by_graph_spec){.training = true}));
    base_fail(BY_ERR_MEMORY, "out of memory, once");
    assert_null(by_add(NULL, by_input(NULL, "x", BY_F32, SHAPE(2)), NULL));
    assert_null(by_compile(NULL, NULL));
    assert_string_equal(by_error_message(), "out of memory, once");
    assert_int_equal(by_graph_status(NULL), BY_ERR_MEMORY);
    assert_int_equal(by_rank(NULL) + by_dim(NULL, -1) + by_elements(NULL), 0);
    by_graph_free(NULL);
}

/* Programs, devices, memories and parameters that are not there. */
static void test_null_objects(void **state)
{
    (void)state;
    float v[2] = {0};
    base_error_clear();
    by_params *params = new_params();
    assert_int_equal(by_params_freeze(params, false), BY_OK);
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(2));
    by_output(g, "y", by_scale(g, x, 2));
    by_program *p = by_compile(g, NULL); /* no spec is one of zeros */
    assert_non_null(p);
    const by_status bad[] = {
        by_write(p, x, NULL, sizeof v),
        by_write(p, NULL, v, sizeof v),
        by_write(NULL, x, v, sizeof v),
        by_read(p, x, NULL, sizeof v),
        by_read(p, NULL, v, sizeof v),
        by_read_f32(p, x, NULL),
        by_read_f32(p, NULL, v),
        by_read_row(p, x, 0, NULL),
        by_read_row(NULL, x, 0, v),
        by_keep(p, x, NULL, 0),
        by_keep(p, NULL, NULL, 0),
        by_run(NULL),
        by_device_wait(NULL),
        by_memory_write(NULL, 0, v, sizeof v),
        by_memory_read(NULL, 0, v, sizeof v),
        by_params_freeze(NULL, false),
        by_params_init(NULL, 1),
        by_params_without_masters(NULL),
        by_params_get(NULL, 0, BY_SLOT_VALUE, v),
        by_params_get(params, 0, BY_SLOT_VALUE, v),
        by_params_set(params, -1, BY_SLOT_VALUE, v),
        by_params_set(params, 0, BY_SLOT_VALUE, NULL),
    };
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(bad[i], BY_ERR_ARGUMENT);
    base_error_clear();
    assert_null(by_program_text(NULL, true));
    assert_null(by_params_new(NULL, BY_F32));
    assert_null(by_memory_new(NULL, 8));
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    assert_true(by_program_bytes(NULL) == 0 && by_program_flops(NULL) == 0);
    assert_true(isnan(by_device_peak(NULL, BY_F32)) && isnan(by_device_bandwidth(NULL)));
    assert_true(by_params_count(NULL) == 0 && by_params_elements(NULL) == 0 && by_params_bytes(NULL) == 0);
    assert_true(by_params_find(NULL, "w") == -1 && by_params_find(params, NULL) == -1);
    assert_true(!by_params_name(params, 0) && !by_params_shape(params, 7) && !by_params_rank(NULL, 0));
    by_params_set_rate(NULL, 0, 1);
    by_program_seed(NULL, 1, 1);
    by_program_time(NULL, NULL, NULL);
    by_program_free(p);
    by_params_free(params);
}

/* A model that cannot be opened, and all that is then done with it: the reason it could not stays. */
static void test_null_model(void **state)
{
    (void)state;
    const by_model_spec spec = {.dtype = BY_F32};
    by_model *m = by_model_open(device, "no/such/model", &spec);
    assert_null(m);
    char *first = base_strdup(by_error_message());
    assert_contains(first, "no/such/model");
    int32_t ids[2] = {0};
    size_t count;
    by_generate_result result;
    by_rewriting *texts = NULL;
    by_rewrite_defaults defaults;
    double value;
    int64_t counted;
    const by_batch batch = by_batch_of(1, 2, ids);
    by_generator *generator = by_generator_new(m, &(by_generator_spec){.batch = 1});
    by_pass *pass = by_pass_new(m, &batch, &(by_pass_spec){0});
    by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 1);
    by_rewriter *rewriter = by_rewriter_new(m, NULL, &(by_rewriter_spec){0});
    by_predictor *predictor = by_predictor_new(m, NULL, &(by_predictor_spec){0});
    by_trainer *trainer = by_trainer_new(m, &(by_trainer_spec){0});
    by_update *update = by_update_new(NULL, &(by_optimizer_spec){0});
    assert_true(!generator && !pass && !passes && !rewriter && !predictor && !by_passes_get(passes, &batch));
    assert_true(!trainer && !update && !by_trainer_program(trainer, &batch) && !by_update_program(update));
    assert_int_equal(by_rewriter_returned(rewriter) + by_rewriter_most(rewriter), 0);
    const by_status bad[] = {
        by_model_save(m, "x", BY_F32),
        by_model_shift(m, ids, 1, 2, ids),
        by_pass_run(pass, &batch),
        by_pass_read(pass, NULL, NULL),
        by_generator_feed(generator, NULL, NULL),
        by_generator_encode(generator, NULL, NULL),
        by_generate(generator, NULL, NULL, &(by_generate_spec){.max_new_tokens = 1}, &result),
        by_rewriter_run(rewriter, NULL, 0, &texts),
        by_rewrite_defaults_load(m, "x", NULL, &defaults),
        by_trainer_backward(trainer, &batch, true, NULL),
        by_trainer_update(trainer, 1, NULL),
        by_trainer_loss(trainer, &value),
        by_trainer_norm(trainer, &value),
        by_trainer_read(trainer, 1, &value, &value),
        by_trainer_evaluate(trainer, &batch, &value, &counted),
        by_update_run(update, 1, 1, &value),
        by_update_norm(update, &value),
        by_update_keep(update, NULL, 0),
        by_train_run(NULL, NULL, NULL),
        by_finetune_run(NULL, NULL, NULL),
        by_embedder_run(NULL, NULL, 0, NULL),
        by_predictor_classify(predictor, NULL, NULL, 0, NULL),
        by_predictor_fill(predictor, NULL, 0, 1, NULL),
        by_predictor_tag(predictor, NULL, 0, NULL),
        by_predictor_answer(predictor, NULL, NULL, 0, &(by_answer_spec){0}, NULL),
        by_tokenizer_save(NULL, "x"),
        by_tokenizer_write(NULL, "x"),
        by_verify(NULL, "x", NULL, NULL),
        by_generator_keep_top(generator, 1),
        by_generator_reorder(generator, NULL),
        by_generator_add(generator, NULL, 0, NULL, NULL),
        by_generator_extend(generator, 0, NULL, 0),
        by_generator_step(generator, NULL, NULL),
        by_model_name_labels(m, NULL, 0),
    };
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(bad[i], base_error_status());
    assert_null(by_graph_new(&(by_graph_spec){.params = by_model_params(m)}));
    assert_true(!by_model_device(m) && by_model_task(m) == BY_TASK_DEFAULT && by_model_vocab(m) == 0);
    assert_true(by_model_context(m) == 0 && by_model_eos(m) == -1 && !by_model_is_limited(m));
    assert_true(!by_generator_logits(generator, 0) && !by_generator_top(generator, 0));
    assert_true(by_generator_batch(generator) == 0 && by_generator_bytes(generator) == 0);
    by_generator_rewind(generator, 0, 0);
    by_generator_remove(generator, 0);
    assert_true(!by_generator_goes_on(generator, 0) && by_generator_room(generator) == 0);
    assert_null(by_encode(NULL, "a", 1, &count));
    assert_null(by_decode(NULL, ids, 2, &count));
    assert_string_equal(by_error_message(), first);
    by_rewrite_defaults_free(&defaults);
    base_free(first);
}

/* Names and specs that are missing are the caller's fault. */
static void test_null_specs(void **state)
{
    (void)state;
    base_error_clear();
    const by_model_shape shape = {.preset = "tiny"};
    const by_model_spec spec = {.dtype = BY_F32};
    assert_null(by_model_new(device, NULL, &shape, &spec));
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    assert_string_equal(by_error_message(), "model family is NULL");
    base_error_clear();
    assert_null(by_model_new(NULL, "gpt2", &shape, &spec));
    assert_string_equal(by_error_message(), "device is NULL");
    assert_null(by_model_new(device, "gpt2", NULL, &spec));
    assert_null(by_model_new(device, "gpt2", &shape, NULL));
    assert_null(by_model_open(device, NULL, &spec));
    assert_null(by_model_open(device, "x", NULL));
    assert_null(by_weights_open(NULL));
    assert_null(by_tokenizer_load(NULL));
    assert_null(by_embedder_open(device, NULL, NULL));
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    by_params *params = new_params();
    by_graph *g = new_graph(params, false);
    by_model_build(NULL, g, NULL);
    assert_int_equal(by_graph_status(g), BY_ERR_ARGUMENT);
    by_graph_free(g);
    by_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_operands),  cmocka_unit_test(test_null_second),
        cmocka_unit_test(test_null_arguments), cmocka_unit_test(test_null_graph),
        cmocka_unit_test(test_null_objects),   cmocka_unit_test(test_null_model),
        cmocka_unit_test(test_null_specs),
    };
    return cmocka_run_group_tests_name("null", tests, open_device, close_device);
}
