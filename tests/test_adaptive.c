/* test_adaptive.c - adaptive embedding and softmax with several tails: probabilities add up to 1, the loss is that of the
 * probabilities, lists of rows change no loss and no gradient, and tokens get the rows of their own tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "banyan/pass.h"
#include "folder.h"
#include "io/weights.h"
#include "models/models.h"

#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), ((int64_t[]){__VA_ARGS__})

static by_device *device;

static int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device && make_root("adaptive") ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    base_dir_remove(root);
    return 0;
}

enum { BATCH = 3, SEQ = 11, ROWS = BATCH * SEQ, VOCAB = 50, CHANNELS = 8 };

static const int32_t edges[] = {0, 9, 10, 19, 20, 34, 35, 49}; /* first and last of every cluster */

static arch_adaptive words(int div, int embed, bool reversed)
{
    return (arch_adaptive){.vocab = VOCAB,
                           .embed = embed,
                           .width = CHANNELS,
                           .div = div,
                           .count = 3,
                           .cutoffs = {10, 20, 35},
                           .ties = {false, true, true, false},
                           .reversed = reversed,
                           .std = 0.5f,
                           .projection_std = 0.5f};
}

typedef struct net {
    by_program *program;
    by_tensor *tokens, *targets, *loss, *logits;
    by_tensor *lists[ARCH_CUTOFFS];
} net;

/* Rows of the lists, 0: none. */
static net net_new(by_params *params, const arch_adaptive *a, const int64_t *rooms)
{
    net n = {0};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_model_io io = {.task = BY_TASK_LM};
    n.tokens = by_input(g, "tokens", BY_I32, SHAPE(BATCH, SEQ));
    n.targets = by_input(g, "targets", BY_I32, SHAPE(BATCH, SEQ));
    for (int i = 0; i < 3 && rooms; i++) {
        n.lists[i] = by_input(g, arch_adaptive_derived[i].name, BY_I32, SHAPE(2, rooms[i]));
        by_io_feed(&io, arch_adaptive_derived[i].name, n.lists[i]);
    }
    by_scope_push(g, "transformer");
    by_tensor *x = arch_adaptive_embedding(g, n.tokens, a);
    by_scope_pop(g);
    by_io_return(&io, "features", by_activation(g, x, BY_TANH));
    arch_adaptive_head(g, &io, a, false);
    n.logits = rooms ? NULL : by_output(g, "logits", by_io_output(&io, "logits"));
    n.loss = arch_adaptive_loss(g, &io, n.targets, a, false);
    if (!rooms) /* the first */
        assert_int_equal(by_params_freeze(params, true), BY_OK);
    n.program = by_compile(g, &(by_compile_spec){.loss = n.loss, .grads = BY_GRAD_STORE});
    if (!n.program)
        fail_msg("%s", by_error_message());
    return n;
}

static void fill_ids(int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = edges[i % BY_COUNT(edges)];
        targets[i] = i % 7 == 3 ? -100 : i % 2 ? edges[(i / 2) % BY_COUNT(edges)] : i * 13 % VOCAB;
    }
}

static double run(net *n, const arch_adaptive *a, const int32_t *tokens, const int32_t *targets)
{
    const arch_rows rows = {
        .task = BY_TASK_LM, .batch = BATCH, .seq = SEQ, .tokens = tokens, .given = targets, .count = ROWS};
    assert_int_equal(by_write(n->program, n->tokens, tokens, ROWS * sizeof *tokens), BY_OK);
    assert_int_equal(by_write(n->program, n->targets, targets, ROWS * sizeof *targets), BY_OK);
    for (int i = 0; i < 3 && n->lists[i]; i++) {
        const int64_t dim[2] = {2, by_dim(n->lists[i], 1)};
        int32_t list[2 * ROWS];
        arch_adaptive_derived[i].fill(a, &rows, dim, list);
        assert_int_equal(by_write(n->program, n->lists[i], list, 2 * (size_t)dim[1] * sizeof *list), BY_OK);
    }
    assert_int_equal(by_run(n->program), BY_OK);
    double loss;
    assert_int_equal(by_read(n->program, n->loss, &loss, sizeof loss), BY_OK);
    return loss;
}

static float *gradients(const by_params *p)
{
    float *all = base_alloc_zero((size_t)by_params_elements(p), sizeof *all);
    size_t at = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        size_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= (size_t)by_params_shape(p, i)[k];
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, all + at), BY_OK);
        at += n;
    }
    return all;
}

/* The mean of -log p from the logits, which are logarithms of probabilities. */
static double expected(const net *n, const int32_t *targets)
{
    static double log_p[ROWS * VOCAB];
    double sum = 0;
    int counted = 0;
    assert_int_equal(by_read(n->program, n->logits, log_p, sizeof log_p), BY_OK);
    for (int r = 0; r < ROWS; r++) {
        double all = 0;
        for (int v = 0; v < VOCAB; v++)
            all += exp(log_p[r * VOCAB + v]);
        assert_true(fabs(all - 1) < 1e-9);
        if (targets[r] >= 0) {
            sum -= log_p[r * VOCAB + targets[r]];
            counted++;
        }
    }
    return sum / counted;
}

static void try_words(arch_adaptive a)
{
    int32_t tokens[ROWS], targets[ROWS];
    by_params *params = by_params_new(device, BY_F64);
    fill_ids(tokens, targets);
    const arch_rows rows = {
        .task = BY_TASK_LM, .batch = BATCH, .seq = SEQ, .tokens = tokens, .given = targets, .count = ROWS};
    int64_t rooms[3], dim[2];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(arch_adaptive_derived[i].shape(&a, &rows, dim), 2);
        rooms[i] = dim[1];
        assert_true(rooms[i] < ROWS); /* fewer than all */
    }
    assert_int_equal(arch_adaptive_derived[3].shape(&a, &rows, dim), 0);
    net all = net_new(params, &a, NULL);
    assert_int_equal(by_params_init(params, 5), BY_OK);
    const double loss = run(&all, &a, tokens, targets);
    assert_true(fabs(loss - expected(&all, targets)) < 1e-10);
    float *one = gradients(params);
    net some = net_new(params, &a, rooms);
    assert_true(fabs(loss - run(&some, &a, tokens, targets)) < 1e-12);
    float *two = gradients(params);
    for (int64_t i = 0; i < by_params_elements(params); i++)
        assert_true(fabs((double)one[i] - (double)two[i]) < 1e-6);
    base_free(one);
    base_free(two);
    by_program_free(all.program);
    by_program_free(some.program);
    by_params_free(params);
}

static void test_clusters(void **state)
{
    (void)state;
    try_words(words(2, CHANNELS, false));
    try_words(words(2, 2 * CHANNELS, true));
    try_words(words(1, CHANNELS, false));
    try_words(words(1, 4, true));
}

/* All targets are ignored: the loss is 0. All are in one tail: its list has room for all. */
static void test_edges(void **state)
{
    (void)state;
    const arch_adaptive a = words(2, CHANNELS, false);
    int32_t tokens[ROWS], targets[ROWS];
    int64_t dim[2];
    by_params *params = by_params_new(device, BY_F64);
    fill_ids(tokens, targets);
    net n = net_new(params, &a, NULL);
    assert_int_equal(by_params_init(params, 6), BY_OK);
    for (int i = 0; i < ROWS; i++)
        targets[i] = -100;
    assert_true(run(&n, &a, tokens, targets) == 0);
    for (int i = 0; i < ROWS; i++)
        targets[i] = VOCAB - 1;
    const arch_rows rows = {
        .task = BY_TASK_LM, .batch = BATCH, .seq = SEQ, .tokens = tokens, .given = targets, .count = ROWS};
    assert_int_equal(arch_adaptive_derived[2].shape(&a, &rows, dim), 2);
    assert_int_equal(dim[1], ROWS);
    const double loss = run(&n, &a, tokens, targets);
    assert_true(fabs(loss - expected(&n, targets)) < 1e-10);
    by_program_free(n.program);
    by_params_free(params);
}

/* ---- the authors' files ----------------------------------------------------------------------- */

static by_status put(void *user, base_writer *w, const by_weight *e)
{
    (void)user;
    return base_writer_put(w, e->data, e->bytes);
}

/* A tensor as the authors name it. Rows of the tails' columns stand in falling order. */
static by_weight renamed(const by_weight *e, float *space, size_t *used)
{
    by_weight y = *e;
    const char *body = "transformer.";
    if (strncmp(e->name, body, strlen(body)) == 0)
        y.name = e->name + strlen(body);
    if (strncmp(e->name, "crit.cluster", 12) == 0) {
        const size_t rows = (size_t)e->dim[0], width = e->bytes / sizeof(float) / rows;
        const float *from = e->data;
        float *to = space + *used;
        for (size_t r = 0; r < rows; r++)
            memcpy(to + r * width, from + (rows - 1 - r) * width, width * sizeof *to);
        *used += rows * width;
        y.data = to;
    }
    return y;
}

static void write_as_authors(const char *from, const char *to)
{
    enum { MOST = 128 };
    by_weights *file = by_weights_open(from);
    assert_non_null(file);
    by_weight list[MOST];
    static float space[4096];
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < by_weights_count(file); i++) {
        const by_weight *e = by_weights_at(file, i);
        list[n++] = renamed(e, space, &used);
        if (strcmp(e->name, "transformer.word_emb.emb_layers.1.weight") == 0) { /* what is tied, once more */
            list[n] = *e;
            list[n++].name = "crit.out_layers.1.weight";
        }
        if (strcmp(e->name, "transformer.word_emb.emb_projs.2") == 0) {
            list[n] = *e;
            list[n++].name = "crit.out_projs.2";
        }
    }
    static const float frequencies[8] = {1};
    list[n++] = (by_weight){
        .name = "pos_emb.inv_freq", .dtype = BY_F32, .rank = 1, .dim = {8}, .data = frequencies, .bytes = 32};
    assert_int_equal(io_safetensors_write(to, list, n, NULL, put, NULL), BY_OK);
    by_weights_free(file);
}

static float *logits_of(const char *dir)
{
    int32_t tokens[24];
    for (int i = 0; i < 24; i++)
        tokens[i] = i * 11 % 257;
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    if (!m)
        fail_msg("%s", by_error_message());
    by_batch b = by_batch_of(2, 12, tokens);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    float *logits = base_alloc_zero(24 * 257, sizeof *logits);
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), logits), BY_OK);
    by_pass_free(p);
    by_model_free(m);
    return logits;
}

static void test_authors_file(void **state)
{
    (void)state;
    by_model_shape shape = {.preset = "tiny-adaptive", .layers = 1, .heads = 2, .width = 16, .vocab = 257};
    by_model *m = by_model_new(device, "transfo-xl", &shape, &(by_model_spec){.seed = 2});
    assert_non_null(m);
    assert_int_equal(by_model_save(m, in_root("a"), BY_F32), BY_OK);
    assert_int_equal(by_model_save(m, in_root("b"), BY_F32), BY_OK);
    by_model_free(m);
    write_as_authors(in_root("a"), in_root("b/model.safetensors"));
    float *one = logits_of(in_root("a")), *two = logits_of(in_root("b"));
    assert_memory_equal(one, two, 24 * 257 * sizeof *one);
    /* Saved again, it has the prefix, and its configuration says how the tails are numbered. */
    m = by_model_open(device, in_root("b"), &(by_model_spec){0});
    assert_int_equal(by_model_save(m, in_root("c"), BY_F32), BY_OK);
    by_model_free(m);
    base_free(two);
    two = logits_of(in_root("c"));
    assert_memory_equal(one, two, 24 * 257 * sizeof *one);
    base_free(one);
    base_free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clusters), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_authors_file)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
