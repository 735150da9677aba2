/* test_xlnet.c - XLNet: a prediction does not depend on its own token nor on those that come later in the order, the two ways
 * to name an order give the same, and rows of the objective "plm". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/generate.h"
#include "banyan/pass.h"
#include "data/objective.h"
#include "folder.h"
#include "tiny.h"

static by_device *device;

enum { T = 12, MEMORY = 8, WIDTH = 16, TARGETS = 5 };

/* Two halves of six; places 1, 3, 4 and 7, 10 are predicted. */
static const int32_t order[T] = {0, 3, 0, 1, 5, 0, 7, 12, 7, 7, 9, 13};
static const int32_t picked[TARGETS] = {1, 3, 4, 7, 10};
static const int32_t segments[T] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2};

static void fill_tokens(int32_t *tokens, int first)
{
    for (int i = 0; i < T; i++)
        tokens[i] = first + i; /* each its own row of the table */
}

static by_model *new_model(void)
{
    by_model *m = tiny_model(device, "xlnet", BY_TASK_LM, 0, T);
    if (!m)
        fail_msg("%s", by_error_message());
    by_model_set_dropout(m, 0);
    assert_int_equal(by_model_set_memory(m, MEMORY), BY_OK);
    return m;
}

/* ---- no leak --------------------------------------------------------------------------------- */

/* A number that depends on every element of what the query stream holds for one target. */
static by_tensor *look_at_target(void *user, by_graph *g, by_model_io *io)
{
    const int64_t k = *(const int *)user, width = WIDTH;
    by_tensor *row = by_slice(g, by_io_output(io, "features"), 0, k, 1); /* (1, C) */
    by_tensor *ramp = by_cast(g, by_range(g, 1, &width), BY_F32);
    return by_sum(g, by_reshape(g, by_mul(g, row, by_mul(g, ramp, ramp)), 1, (int64_t[]){-1}), 0);
}

static by_batch ordered_batch(const int32_t *tokens, by_stream *stream)
{
    by_batch b = by_batch_of(1, T, tokens);
    by_batch_put_tokens(&b, "segments", segments);
    by_batch_put_tokens(&b, "order", order);
    by_batch_put_ids(&b, "pick", TARGETS, picked);
    b.stream = stream;
    return b;
}

/* The largest gradient of a row of the table of tokens. */
static float gradient_of(const by_model *m, int32_t token)
{
    const by_params *p = by_model_params(m);
    const int i = by_params_find(p, "transformer.word_embedding.weight");
    float all[TINY_VOCAB * WIDTH], most = 0;
    assert_true(i >= 0);
    assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, all), BY_OK);
    for (int k = 0; k < WIDTH; k++)
        most = fmaxf(most, fabsf(all[token * WIDTH + k]));
    return most;
}

static void run_pass(by_pass *p, const by_batch *b)
{
    if (!p || by_pass_run(p, b) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void check_no_leak(bool remembers)
{
    by_model *m = new_model();
    by_stream *s = remembers ? by_stream_new(m, 1) : NULL;
    int32_t before[T], tokens[T];
    fill_tokens(before, 5 + T);
    fill_tokens(tokens, 5);
    for (int k = 0; k < TARGETS; k++) {
        const by_pass_spec spec = {.grads = BY_GRAD_STORE, .loss = look_at_target, .loss_user = &k};
        by_batch first = ordered_batch(before, s), b = ordered_batch(tokens, s);
        by_pass *p = by_pass_new(m, &b, &spec);
        if (remembers)
            run_pass(p, &first);
        run_pass(p, &b);
        for (int t = 0; t < T; t++) {
            const float got = gradient_of(m, tokens[t]);
            if (order[t] < order[picked[k]])
                assert_true(got > 0);
            else if (got != 0)
                fail_msg("target %d depends on place %d: %g", picked[k], t, (double)got);
        }
        by_pass_free(p);
        if (s)
            assert_int_equal(by_stream_reset(s), BY_OK);
    }
    by_stream_free(s);
    by_model_free(m);
}

static void test_no_leak(void **state)
{
    (void)state;
    check_no_leak(false);
}

static void test_no_leak_with_memory(void **state)
{
    (void)state;
    check_no_leak(true);
}

/* What is remembered is read: without it the results are others. */
static void test_memory_counts(void **state)
{
    (void)state;
    by_model *m = new_model();
    by_stream *s = by_stream_new(m, 1);
    int32_t before[T], tokens[T];
    float alone[TARGETS * WIDTH], after[TARGETS * WIDTH], apart = 0;
    fill_tokens(before, 5 + T);
    fill_tokens(tokens, 5);
    by_batch first = ordered_batch(before, s), b = ordered_batch(tokens, s);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.hidden = true});
    run_pass(p, &b);
    const by_tensor *last = by_io_output_at(by_pass_io(p), "hidden", 5); /* g after the second layer */
    assert_int_equal(by_pass_read(p, last, alone), BY_OK);
    assert_int_equal(by_stream_reset(s), BY_OK);
    run_pass(p, &first);
    run_pass(p, &b);
    assert_int_equal(by_pass_read(p, last, after), BY_OK);
    for (int i = 0; i < TARGETS * WIDTH; i++)
        apart = fmaxf(apart, fabsf(alone[i] - after[i]));
    assert_true(apart > 1e-6f);
    by_pass_free(p);
    by_stream_free(s);
    by_model_free(m);
}

/* ---- the reference's inputs ------------------------------------------------------------------- */

/* perm_mask and target_mapping name the same order. */
static void test_mapping(void **state)
{
    (void)state;
    by_model *m = new_model();
    int32_t tokens[T];
    float hidden[T * T], map[TARGETS * T] = {0}, ours[TARGETS * WIDTH], theirs[TARGETS * WIDTH];
    fill_tokens(tokens, 5);
    for (int i = 0; i < T * T; i++)
        hidden[i] = order[i % T] > order[i / T] || i % T == i / T;
    for (int i = 0; i < T; i++)
        for (int k = 0; k < T; k++) /* unpredicted tokens see each other */
            if (order[i] == order[k] && i != k)
                hidden[i * T + k] = 0;
    for (int k = 0; k < TARGETS; k++)
        map[k * T + picked[k]] = 1;
    by_batch a = ordered_batch(tokens, NULL), b = by_batch_of(1, T, tokens);
    by_batch_put_tokens(&b, "segments", segments);
    by_batch_put(&b, "perm_mask", BY_F32, 3, (int64_t[]){1, T, T}, hidden);
    by_batch_put(&b, "target_mapping", BY_F32, 3, (int64_t[]){1, TARGETS, T}, map);
    const by_batch *both[] = {&a, &b};
    float *out[] = {ours, theirs};
    for (int i = 0; i < 2; i++) {
        by_pass *p = by_pass_new(m, both[i], &(by_pass_spec){.hidden = true});
        run_pass(p, both[i]);
        assert_int_equal(by_pass_read(p, by_io_output_at(by_pass_io(p), "hidden", 5), out[i]), BY_OK);
        by_pass_free(p);
    }
    for (int i = 0; i < TARGETS * WIDTH; i++)
        assert_true(fabsf(ours[i] - theirs[i]) < 1e-5f);
    by_model_free(m);
}

/* A reversed text with its distances turned is the text itself. */
static void test_reversed(void **state)
{
    (void)state;
    by_model *m = new_model();
    int32_t tokens[2 * T];
    const int32_t reversed[2] = {0, 1};
    float x[2 * T * WIDTH];
    fill_tokens(tokens, 5);
    for (int t = 0; t < T; t++)
        tokens[2 * T - 1 - t] = tokens[t];
    by_batch b = by_batch_of(2, T, tokens);
    by_batch_put_ids(&b, "reversed", 2, reversed);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.hidden = true});
    run_pass(p, &b);
    assert_int_equal(by_pass_read(p, by_io_output_at(by_pass_io(p), "hidden", 2), x), BY_OK);
    for (int t = 0; t < T; t++)
        for (int k = 0; k < WIDTH; k++)
            assert_true(fabsf(x[t * WIDTH + k] - x[(2 * T - 1 - t) * WIDTH + k]) < 1e-5f);
    by_pass_free(p);
    by_model_free(m);
}

/* ---- generation ------------------------------------------------------------------------------- */

/* The logits after a text are those of a pass over it with a mask that no token sees. */
static void test_generator(void **state)
{
    (void)state;
    enum { PROMPT = T - 1 };
    by_model *m = new_model();
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 2, .capacity = 2 * T});
    int32_t tokens[T], other = 9;
    float hidden[T * T] = {0}, map[T] = {0}, want[TINY_VOCAB];
    fill_tokens(tokens, 5);
    for (int i = 0; i < T; i++)
        hidden[i * T + PROMPT] = 1;
    map[PROMPT] = 1;
    by_batch b = by_batch_of(1, T, tokens);
    by_batch_put(&b, "perm_mask", BY_F32, 3, (int64_t[]){1, T, T}, hidden);
    by_batch_put(&b, "target_mapping", BY_F32, 3, (int64_t[]){1, 1, T}, map);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    run_pass(p, &b);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), want), BY_OK);
    const int32_t *first[] = {tokens, &other}, *second[] = {tokens + 6, NULL};
    assert_int_equal(by_generator_feed(g, first, (int[]){6, 1}), BY_OK);
    assert_int_equal(by_generator_feed(g, second, (int[]){PROMPT - 6, 0}), BY_OK);
    const float *got = by_generator_logits(g, 0);
    assert_non_null(got);
    for (int v = 0; v < TINY_VOCAB; v++)
        assert_true(fabsf(got[v] - want[v]) < 1e-5f);
    by_pass_free(p);
    by_generator_free(g);
    by_model_free(m);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { SEQ = 32, BATCH = 4 };

typedef struct bench {
    by_tokenizer *tokenizer;
    data_docs docs;
    data_docs_part train, held;
    data_objective *o;
} bench;

static void open_bench(bench *b, int reuse)
{
    base_buf text = {0};
    *b = (bench){0};
    for (int d = 0; d < 60; d++) {
        for (int s = 0; s < 2 + d % 3; s++)
            base_buf_printf(&text, "%c%c %c%c %c.\n", 'a' + d % 26, 'a' + s, 'b' + d % 25, 'c' + s,
                            'a' + d * 7 % 26);
        base_buf_puts(&text, "\n");
    }
    write_text("text", text.data);
    base_buf_free(&text);
    assert_int_equal(tiny_tokenizer_write(in_root("words")), BY_OK);
    b->tokenizer = by_tokenizer_load(in_root("words"));
    int64_t bytes, tokens;
    const data_docs_file files[] = {{in_root("text"), 0}};
    assert_int_equal(data_docs_build(b->tokenizer, &(data_docs_spec){files, 1, false}, in_root("t.bin"),
                                     in_root("t.docs"), &bytes, &tokens),
                     BY_OK);
    assert_int_equal(data_docs_open(&b->docs, in_root("t.bin"), in_root("t.docs"), TINY_VOCAB), BY_OK);
    assert_int_equal(data_docs_split(&b->docs, 0, false, &b->train, &b->held), BY_OK);
    b->o = data_objective_new(&b->train, b->tokenizer,
                              &(data_objective_spec){.kind = DATA_OBJECTIVE_PLM,
                                                     .seq = SEQ,
                                                     .step_rows = BATCH,
                                                     .batch = BATCH,
                                                     .reuse = reuse,
                                                     .seed = 3,
                                                     .follows = true,
                                                     .masking = data_masking_usual(DATA_OBJECTIVE_PLM)});
    if (!b->o)
        fail_msg("%s", by_error_message());
}

static void close_bench(bench *b)
{
    data_objective_free(b->o);
    data_docs_part_free(&b->train);
    data_docs_part_free(&b->held);
    data_docs_close(&b->docs);
    by_tokenizer_free(b->tokenizer);
}

/* The first `part` tokens of row r are text, the others A <sep> B <sep> <cls>. */
static void check_row(const data_samples *rows, int r, int part)
{
    const int32_t *tokens = rows->tokens + r * SEQ, *order_of = rows->order + r * SEQ,
                  *segment = rows->segments + r * SEQ;
    int predicted[SEQ] = {0}, late = 0;
    for (int k = 0; k < rows->picks; k++) {
        const int t = rows->pick[r * rows->picks + k] - r * SEQ;
        assert_true(t >= 0 && t < SEQ && !predicted[t]);
        assert_int_equal(rows->targets[r * rows->picks + k], tokens[t]);
        predicted[t] = 1;
        late += t >= part;
    }
    assert_int_equal(late, rows->picks / 2);
    assert_int_equal(rows->picks, SEQ / 6);
    assert_int_equal(tokens[SEQ - 1], 2); /* [CLS] */
    assert_int_equal(tokens[SEQ - 2], 3); /* [SEP] */
    assert_int_equal(segment[SEQ - 1], 2);
    bool seen[2 * SEQ] = {false};
    for (int t = 0; t < SEQ; t++) {
        const bool special = tokens[t] == 2 || tokens[t] == 3;
        const int first = t < part ? 0 : part + 1, length = t < part ? part : SEQ - part;
        if (!predicted[t] && !special) {
            assert_int_equal(order_of[t], first);
            continue;
        }
        assert_false(special && predicted[t]);
        assert_in_range(order_of[t], first + 1, first + length);
        assert_false(seen[order_of[t]]);
        seen[order_of[t]] = true;
    }
}

/* reuse 0: half a row. */
static void check_rows(int reuse)
{
    const int part = reuse ? reuse : SEQ / 2;
    bench b;
    open_bench(&b, reuse);
    data_samples rows, next, again;
    assert_int_equal(data_samples_make(&rows, b.o, BATCH, BATCH), BY_OK);
    assert_int_equal(data_samples_make(&next, b.o, BATCH, BATCH), BY_OK);
    assert_int_equal(data_samples_make(&again, b.o, BATCH, BATCH), BY_OK);
    assert_int_equal(rows.picks, SEQ / 6);
    assert_true(data_objective_follows(b.o) && data_objective_restarts(b.o, 0));
    assert_false(data_objective_restarts(b.o, 1));
    assert_int_equal(data_objective_get(b.o, 0, &rows), BY_OK);
    assert_int_equal(data_objective_get(b.o, 1, &next), BY_OK);
    assert_int_equal(data_objective_get(b.o, 0, &again), BY_OK);
    assert_memory_equal(rows.tokens, again.tokens, sizeof(int32_t) * BATCH * SEQ);
    assert_memory_equal(rows.order, again.order, sizeof(int32_t) * BATCH * SEQ);
    for (int r = 0; r < BATCH; r++) {
        check_row(&rows, r, part);
        assert_int_equal(rows.reversed[r], r >= BATCH / 2);
        /* A begins where the next row does, unless it has but one token. */
        assert_int_equal(rows.tokens[r * SEQ + part], next.tokens[r * SEQ]);
        assert_memory_not_equal(rows.order + r * SEQ, next.order + r * SEQ, sizeof(int32_t) * SEQ);
    }
    for (int step = 2; step < 200; step++) { /* several epochs: every row has exactly its targets */
        assert_int_equal(data_objective_get(b.o, step, &rows), BY_OK);
        for (int r = 0; r < BATCH; r++)
            check_row(&rows, r, part);
    }
    data_samples_free(&rows);
    data_samples_free(&next);
    data_samples_free(&again);
    close_bench(&b);
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(0);
    check_rows(9);
    check_rows(20);
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 0);
    return device && make_root("xlnet") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_leak),       cmocka_unit_test(test_no_leak_with_memory),
        cmocka_unit_test(test_memory_counts), cmocka_unit_test(test_mapping),
        cmocka_unit_test(test_reversed),      cmocka_unit_test(test_rows),
        cmocka_unit_test(test_generator),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
