/* test_stream.c - streams: a segment after another equals what the definition of the memory says, with gradients and with
 * recomputation; streams of micro-batches are apart; what does not fit is explained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "banyan/generate.h"
#include "banyan/pass.h"
#include "banyan/reader.h"
#include "banyan/train.h"
#include "base/base.h"
#include "models/models.h"
#include "model/model.h"

enum { VOCAB = 29, WIDTH = 16, LAYERS = 2, BATCH = 2, MEMORY = 6, LENGTH = 24 };

static by_device *device;

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

static by_model *model_of(int memory, bool training)
{
    by_model_shape shape = {.layers = LAYERS,
                            .heads = 2,
                            .width = WIDTH,
                            .inner = 32,
                            .context = 8,
                            .vocab = VOCAB,
                            .memory = memory,
                            .dropout = 0};
    by_model *m =
        by_model_new(device, "transfo-xl", &shape, &(by_model_spec){.seed = 3, .training = training});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Sets a field of the configuration by its key: same_length, clamp_len. */
static void set_field(by_model *m, const char *key, int value)
{
    const arch_family *a = m->arch;
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)m->config + a->fields[i].offset;
        if (strcmp(a->fields[i].key, key) != 0)
            continue;
        if (a->fields[i].kind == ARCH_FIELD_BOOL)
            *(bool *)at = value != 0;
        else
            *(int *)at = value;
        return;
    }
    fail_msg("no field %s", key);
}

static void fill_tokens(int32_t *out, int count, int seed)
{
    for (int i = 0; i < count; i++)
        out[i] = (int32_t)((uint32_t)(i * 7919 + seed * 104729 + i * i * 31) % VOCAB);
}

/* Columns [from, from + length) of (BATCH, LENGTH) tokens. */
static void cut(const int32_t *tokens, int from, int length, int32_t *out)
{
    for (int b = 0; b < BATCH; b++)
        memcpy(out + (ptrdiff_t)b * length, tokens + (ptrdiff_t)b * LENGTH + from,
               (size_t)length * sizeof *out);
}

/* Logits (BATCH, LENGTH, VOCAB) of a text that is read in segments. */
static void read_in_segments(by_model *m, const int32_t *tokens, int segment, float *out)
{
    int32_t part[BATCH * LENGTH];
    float logits[BATCH * LENGTH * VOCAB];
    by_stream *s = by_stream_new(m, BATCH);
    by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 0);
    for (int at = 0, n; at < LENGTH; at += n) {
        n = BY_MIN(segment, LENGTH - at);
        cut(tokens, at, n, part);
        by_batch b = by_batch_of(BATCH, n, part);
        b.stream = s;
        by_pass *p = by_passes_get(passes, &b);
        if (!p || by_pass_run(p, &b) != BY_OK)
            fail_msg("%s", by_error_message());
        assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), logits), BY_OK);
        for (int r = 0; r < BATCH; r++)
            memcpy(out + ((ptrdiff_t)r * LENGTH + at) * VOCAB, logits + (ptrdiff_t)r * n * VOCAB,
                   (size_t)n * VOCAB * sizeof *out);
    }
    by_passes_free(passes);
    by_stream_free(s);
}

static double difference(const float *a, const float *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* ---- what a memory is ------------------------------------------------------------------------ */

/* A memory that holds the whole text: segments give what one pass over the text gives. */
static void test_whole_text(void **state)
{
    (void)state;
    int32_t tokens[BATCH * LENGTH];
    static float whole[BATCH * LENGTH * VOCAB], parts[BATCH * LENGTH * VOCAB];
    by_model *m = model_of(LENGTH, false);
    fill_tokens(tokens, BATCH * LENGTH, 1);
    read_in_segments(m, tokens, LENGTH, whole);
    for (int segment = 1; segment < LENGTH; segment += 3) {
        read_in_segments(m, tokens, segment, parts);
        assert_true(difference(whole, parts, BATCH * LENGTH * VOCAB) < 1e-5);
    }
    by_model_free(m);
}

/* Where every query sees equally many keys, the segments do not matter, though the memory is short. */
static void test_same_length(void **state)
{
    (void)state;
    int32_t tokens[BATCH * LENGTH];
    static float one[BATCH * LENGTH * VOCAB], parts[BATCH * LENGTH * VOCAB];
    for (int clamp = -1; clamp <= 3; clamp += 4) {
        by_model *m = model_of(MEMORY, false);
        set_field(m, "same_length", true);
        set_field(m, "clamp_len", clamp);
        set_field(m, "pre_lnorm", clamp > 0);
        fill_tokens(tokens, BATCH * LENGTH, 2);
        read_in_segments(m, tokens, 1, one);
        for (int segment = 2; segment <= LENGTH; segment += 5) {
            read_in_segments(m, tokens, segment, parts);
            assert_true(difference(one, parts, BATCH * LENGTH * VOCAB) < 1e-5);
        }
        /* Without it they do: later queries of a segment see more. */
        set_field(m, "same_length", false);
        read_in_segments(m, tokens, 7, parts);
        assert_true(difference(one, parts, BATCH * LENGTH * VOCAB) > 1e-4);
        by_model_free(m);
    }
}

/* The parts hold the last rows that each layer read, and the mask which of them there are. */
static void test_parts(void **state)
{
    (void)state;
    int32_t tokens[BATCH * 4], held[BATCH * MEMORY];
    by_model *m = model_of(MEMORY, false);
    by_stream *s = by_stream_new(m, BATCH);
    fill_tokens(tokens, BATCH * 4, 3);
    by_batch b = by_batch_of(BATCH, 4, tokens);
    b.stream = s;
    assert_int_equal(by_stream_count(s), 0);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.hidden = true});
    assert_non_null(p);
    assert_int_equal(by_stream_count(s), 1 + LAYERS + 1);
    const by_stream_part *first = by_stream_find(s, "mems.0"), *mask = by_stream_find(s, "memory.held");
    assert_non_null(first);
    assert_int_equal(first->shape[1], MEMORY);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_memory_read(mask->memory, 0, held, sizeof held), BY_OK);
    for (int i = 0; i < BATCH * MEMORY; i++)
        assert_int_equal(held[i], i % MEMORY >= MEMORY - 4);
    float rows[BATCH * MEMORY * WIDTH], hidden[BATCH * 4 * WIDTH];
    assert_int_equal(by_memory_read(first->memory, 0, rows, sizeof rows), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "hidden"), hidden), BY_OK);
    for (int r = 0; r < BATCH; r++)
        assert_memory_equal(rows + (r * MEMORY + MEMORY - 4) * WIDTH, hidden + r * 4 * WIDTH,
                            4 * WIDTH * sizeof(float));
    assert_int_equal(by_stream_reset(s), BY_OK);
    assert_int_equal(by_memory_read(mask->memory, 0, held, sizeof held), BY_OK);
    for (int i = 0; i < BATCH * MEMORY; i++)
        assert_int_equal(held[i], 0);
    assert_true(by_stream_bytes(s) >= sizeof held + 3 * sizeof rows);
    by_pass_free(p);
    by_stream_free(s);
    by_model_free(m);
}

/* ---- training -------------------------------------------------------------------------------- */

static float *gradients(const by_model *m, size_t *count)
{
    const by_params *p = by_model_params(m);
    float *all = base_alloc_zero((size_t)by_params_elements(p), sizeof *all);
    *count = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        size_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= (size_t)by_params_shape(p, i)[k];
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, all + *count), BY_OK);
        *count += n;
    }
    return all;
}

/* Gradients of the second of two segments, with and without recomputation. */
static float *second_segment(by_model *m, bool recompute, size_t *count)
{
    int32_t tokens[BATCH * LENGTH], part[BATCH * 8], next[BATCH * 8];
    fill_tokens(tokens, BATCH * LENGTH, 4);
    by_stream *s = by_stream_new(m, BATCH);
    by_pass *p = NULL;
    for (int at = 0; at < 16; at += 8) {
        cut(tokens, at, 8, part);
        cut(tokens, at + 1, 8, next);
        by_batch b = by_batch_of(BATCH, 8, part);
        by_batch_put_tokens(&b, "targets", next);
        b.stream = s;
        if (!p)
            p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_STORE, .recompute = recompute});
        if (!p || by_pass_run(p, &b) != BY_OK)
            fail_msg("%s", by_error_message());
    }
    by_pass_free(p);
    by_stream_free(s);
    return gradients(m, count);
}

static void test_recompute(void **state)
{
    (void)state;
    by_model *m = model_of(MEMORY, true);
    size_t n, same;
    float *plain = second_segment(m, false, &n), *again = second_segment(m, true, &same);
    double norm = 0;
    for (size_t i = 0; i < n; i++)
        norm = fmax(norm, fabs((double)plain[i]));
    assert_int_equal(n, same);
    assert_true(norm > 1e-3);
    assert_true(difference(plain, again, (int)n) < 1e-6 * norm + 1e-7);
    base_free(plain);
    base_free(again);
    by_model_free(m);
}

/* Two micro-batches with streams of their own do not see each other's memories; in one stream they would. */
static double last_loss(by_model *m, bool apart)
{
    int32_t tokens[2][BATCH * LENGTH], part[BATCH * 8], next[BATCH * 8];
    by_stream *s[2] = {by_stream_new(m, BATCH), by_stream_new(m, BATCH)};
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.accumulate = 2, .streams = true});
    double loss = 0;
    for (int k = 0; k < 2; k++)
        fill_tokens(tokens[k], BATCH * LENGTH, 5 + k);
    for (int at = 0; at < 16; at += 8)
        for (int k = 0; k < 2; k++) {
            cut(tokens[k], at, 8, part);
            cut(tokens[k], at + 1, 8, next);
            by_batch b = by_batch_of(BATCH, 8, part);
            by_batch_put_tokens(&b, "targets", next);
            b.stream = s[apart ? k : 0];
            if (by_trainer_backward(t, &b, k == 0, &loss) != BY_OK)
                fail_msg("%s", by_error_message());
        }
    by_trainer_free(t);
    by_stream_free(s[0]);
    by_stream_free(s[1]);
    return loss;
}

/* The last loss of the second text, when it is the only one. */
static double alone_loss(by_model *m)
{
    int32_t tokens[BATCH * LENGTH], part[BATCH * 8], next[BATCH * 8];
    by_stream *s = by_stream_new(m, BATCH);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.streams = true});
    double loss = 0;
    fill_tokens(tokens, BATCH * LENGTH, 6);
    for (int at = 0; at < 16; at += 8) {
        cut(tokens, at, 8, part);
        cut(tokens, at + 1, 8, next);
        by_batch b = by_batch_of(BATCH, 8, part);
        by_batch_put_tokens(&b, "targets", next);
        b.stream = s;
        if (by_trainer_backward(t, &b, true, &loss) != BY_OK)
            fail_msg("%s", by_error_message());
    }
    by_trainer_free(t);
    by_stream_free(s);
    return loss;
}

static void test_micro_batches(void **state)
{
    (void)state;
    by_model *m = model_of(MEMORY, true);
    const double alone = alone_loss(m);
    assert_float_equal(last_loss(m, true), alone, 1e-6);
    assert_true(fabs(last_loss(m, false) - alone) > 1e-5);
    by_model_free(m);
}

/* ---- reading and writing ----------------------------------------------------------------------- */

/* Pieces of any length give the log-probabilities of single tokens. */
static void test_reader(void **state)
{
    (void)state;
    int32_t tokens[BATCH * LENGTH], part[BATCH * LENGTH];
    float one[BATCH * LENGTH], some[BATCH * LENGTH], log_p[BATCH * LENGTH];
    by_model *m = model_of(MEMORY, false);
    set_field(m, "same_length", true);
    fill_tokens(tokens, BATCH * LENGTH, 7);
    by_reader *r = by_reader_new(m, BATCH, 0);
    assert_non_null(r);
    assert_null(by_reader_next(r));
    for (int piece = 1; piece <= 11; piece += 5) {
        for (int at = 0, n; at < LENGTH; at += n) {
            n = BY_MIN(piece, LENGTH - at);
            cut(tokens, at, n, part);
            assert_int_equal(by_reader_feed(r, part, n, log_p), BY_OK);
            for (int b = 0; b < BATCH; b++)
                memcpy((piece == 1 ? one : some) + b * LENGTH + at, log_p + b * n, (size_t)n * sizeof *log_p);
        }
        for (int b = 0; b < BATCH; b++) {
            assert_true(isnan(piece == 1 ? one[b * LENGTH] : some[b * LENGTH]));
            if (piece > 1)
                assert_true(difference(one + b * LENGTH + 1, some + b * LENGTH + 1, LENGTH - 1) < 1e-5);
        }
        double sum = 0;
        for (int i = 0; i < VOCAB; i++)
            sum += exp((double)by_reader_next(r)[i]);
        assert_float_equal(sum, 1, 1e-5);
        assert_int_equal(by_reader_reset(r), BY_OK);
        assert_null(by_reader_next(r));
    }
    assert_int_equal(by_reader_feed(r, (int32_t[]){0, VOCAB}, 1, NULL), BY_ERR_ARGUMENT);
    by_reader_free(r);
    by_model_free(m);
}

/* Greedy texts, far longer than the memory and the ring of pages, equal those of a stream that is fed token by token. */
static void test_endless(void **state)
{
    (void)state;
    enum { NEW = 900 };
    by_model *m = model_of(MEMORY, false);
    const int32_t prompt[3] = {4, 9, 1};
    by_generator *g = by_generator_new(m, &(by_generator_spec){.capacity = NEW + 8, .endless = true});
    by_generator *whole = by_generator_new(m, &(by_generator_spec){.capacity = NEW + 8});
    by_reader *r = by_reader_new(m, 1, 1);
    if (!g || !whole || !r)
        fail_msg("%s", by_error_message());
    by_generate_result a, b;
    const by_generate_spec spec = {.max_new_tokens = NEW, .ignore_eos = true};
    assert_int_equal(by_generate(g, (const int32_t *const[]){prompt}, (int[]){3}, &spec, &a), BY_OK);
    assert_int_equal(by_generate(whole, (const int32_t *const[]){prompt}, (int[]){3}, &spec, &b), BY_OK);
    assert_int_equal(a.rows[0].count, b.rows[0].count);
    assert_memory_equal(a.rows[0].tokens, b.rows[0].tokens, (size_t)a.rows[0].count * sizeof(int32_t));
    for (int i = 0; i < 3; i++)
        assert_int_equal(by_reader_feed(r, prompt + i, 1, NULL), BY_OK);
    for (int i = 0; i < NEW; i++) {
        const float *next = by_reader_next(r);
        int32_t best = 0;
        for (int32_t k = 1; k < VOCAB; k++)
            best = next[k] > next[best] ? k : best;
        assert_int_equal(a.rows[0].tokens[3 + i], best);
        assert_int_equal(by_reader_feed(r, &best, 1, NULL), BY_OK);
    }
    by_generate_result_free(&a);
    by_generate_result_free(&b);
    by_generator_free(g);
    by_generator_free(whole);
    by_reader_free(r);
    by_model_free(m);
}

/* ---- errors ------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    int32_t tokens[BATCH * 4];
    fill_tokens(tokens, BATCH * 4, 8);
    by_model *m = model_of(MEMORY, false);
    by_stream *s = by_stream_new(m, BATCH);
    by_batch b = by_batch_of(1, 4, tokens);
    b.stream = s;
    assert_null(by_pass_new(m, &b, &(by_pass_spec){0}));
    assert_non_null(strstr(by_error_message(), "the batch has 1 rows, its stream 2"));
    b = by_batch_of(BATCH, 4, tokens);
    b.stream = s;
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    assert_non_null(p);
    b.stream = NULL; /* another kind of batch */
    assert_int_equal(by_pass_run(p, &b), BY_ERR_ARGUMENT);
    by_pass_free(p);
    assert_int_equal(by_model_set_memory(m, 2 * MEMORY), BY_OK);
    b.stream = s;
    assert_null(by_pass_new(m, &b, &(by_pass_spec){0}));
    assert_non_null(strstr(by_error_message(), "another type or length of memory"));
    assert_null(by_stream_new(m, 0));
    assert_int_equal(by_model_set_memory(m, -1), BY_ERR_ARGUMENT);
    assert_int_equal(by_model_set_memory(m, 0), BY_OK);
    assert_null(by_stream_new(m, 1));
    assert_non_null(strstr(by_error_message(), "carries no state"));
    by_stream_free(s);
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_text),    cmocka_unit_test(test_same_length),
        cmocka_unit_test(test_parts),         cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_micro_batches), cmocka_unit_test(test_reader),
        cmocka_unit_test(test_endless),       cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
