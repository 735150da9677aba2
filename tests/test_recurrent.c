/* test_recurrent.c - recurrent models: a text that is read in pieces, in a stream, in a batch or by a beam gives what one pass over it
 * gives, for every cell and every attention; scheduled sampling replaces the tokens that the model predicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "banyan/pass.h"
#include "banyan/stream.h"
#include "banyan/train.h"
#include "generation.h"

enum { VOCAB = 37, LENGTH = 23, SOURCE = 9 };

static const char *const families[] = {"rnn", "lstm", "gru"};
static const char *const cells[] = {"rnn", "lstm", "gru"};
static const char *const attentions[] = {"none", "additive", "dot", "general", "concat"};

static by_device *device;

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

static by_model *model_of(const char *family, const char *cell, const char *attention, bool training)
{
    by_model_shape shape = {
        .layers = 2, .width = 24, .context = 32, .vocab = VOCAB, .cell = cell, .attention = attention};
    by_model *m = by_model_new(device, family, &shape, &(by_model_spec){.seed = 3, .training = training});
    if (!m)
        fail_msg("%s", by_error_message());
    sharpen(m, 2);
    return m;
}

static const int32_t *text_of(uint64_t which, int n)
{
    static int32_t texts[8][64];
    base_rng r = base_rng_make(5, which);
    for (int i = 0; i < n; i++)
        texts[which][i] = (int32_t)base_rng_below(&r, VOCAB - 2) + 2;
    return texts[which];
}

static void assert_near(const float *a, const float *b, int count)
{
    assert_non_null(a);
    if (!(nmse(a, b, count) < 1e-10))
        fail_msg("the logits differ: %g", nmse(a, b, count));
}

/* ---- language models --------------------------------------------------------------------------- */

static void pieces_equal_one_pass(by_model *m)
{
    const int pieces[][5] = {{1}, {7}, {23}, {5, 1, 1}, {1, 1, 12, 9}};
    for (int c = 0; c < BY_COUNT(pieces); c++) {
        by_generator *g = by_generator_new(m, &(by_generator_spec){0});
        const int32_t *text = text_of(0, LENGTH);
        float expected[VOCAB];
        assert_non_null(g);
        for (int i = 0, n = 0; i < 5 && pieces[c][i]; i++) {
            assert_int_equal(by_generator_feed(g, &(const int32_t *){text + n}, &pieces[c][i]), BY_OK);
            n += pieces[c][i];
            row_logits(m, text, n, expected);
            assert_near(by_generator_logits(g, 0), expected, VOCAB);
        }
        by_generator_free(g);
    }
}

/* Four rows in groups of two, each at its own pace; hypotheses change places. */
static void rows_change_places(by_model *m)
{
    enum { ROWS = 4 };
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = ROWS, .beams = 2});
    const int counts[][ROWS] = {{3, 8, 1, 5}, {1, 1, 1, 1}, {0, 0, 2, 1}, {1, 1, 1, 1}};
    const int32_t orders[][ROWS] = {{0, 1, 2, 3}, {1, 0, 2, 2}, {0, 1, 3, 2}, {1, 1, 2, 3}};
    int32_t text[ROWS][64], old[ROWS][64];
    int length[ROWS] = {0}, before[ROWS];
    float expected[VOCAB];
    assert_non_null(g);
    for (int step = 0; step < BY_COUNT(counts); step++) {
        const int32_t *next[ROWS];
        memcpy(old, text, sizeof old);
        memcpy(before, length, sizeof before);
        if (step)
            assert_int_equal(by_generator_reorder(g, orders[step]), BY_OK);
        for (int b = 0; b < ROWS; b++) {
            length[b] = before[orders[step][b]];
            memcpy(text[b], old[orders[step][b]], sizeof *text);
            next[b] = memcpy(text[b] + length[b], text_of((uint64_t)(b + step), 16),
                             sizeof(int32_t) * (size_t)counts[step][b]);
            length[b] += counts[step][b];
        }
        if (by_generator_feed(g, next, counts[step]) != BY_OK)
            fail_msg("%s", by_error_message());
        for (int b = 0; b < ROWS; b++)
            if (counts[step][b]) {
                row_logits(m, text[b], length[b], expected);
                assert_near(by_generator_logits(g, b), expected, VOCAB);
            }
    }
    by_generator_free(g);
}

/* The last logits of a text that a stream reads in segments. */
static void segments_equal_one_pass(by_model *m)
{
    const int32_t *text = text_of(1, LENGTH);
    static float logits[LENGTH * VOCAB];
    float expected[VOCAB];
    row_logits(m, text, LENGTH, expected);
    for (int segment = 1; segment <= LENGTH; segment += 5) {
        by_stream *s = by_stream_new(m, 1);
        by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 0);
        int n = 0;
        for (int at = 0; at < LENGTH; at += n) {
            n = BY_MIN(segment, LENGTH - at);
            by_batch b = by_batch_of(1, n, text + at);
            b.stream = s;
            by_pass *p = by_passes_get(passes, &b);
            if (!p || by_pass_run(p, &b) != BY_OK)
                fail_msg("%s", by_error_message());
            assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), logits), BY_OK);
        }
        assert_near(logits + (ptrdiff_t)(n - 1) * VOCAB, expected, VOCAB);
        by_passes_free(passes);
        by_stream_free(s);
    }
}

static void test_language_models(void **state)
{
    (void)state;
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = model_of(families[f], NULL, NULL, false);
        pieces_equal_one_pass(m);
        rows_change_places(m);
        segments_equal_one_pass(m);
        by_model_free(m);
    }
}

/* A new network is bidirectional unless it writes text; then it can be no language model. */
static void test_directions(void **state)
{
    (void)state;
    const by_model_shape shape = {.layers = 1, .width = 8, .vocab = VOCAB};
    by_model *m = by_model_new(device, "gru", &shape, &(by_model_spec){.task = BY_TASK_MLM});
    assert_non_null(m);
    assert_string_equal(by_model_class(m), "GRUForMaskedLM");
    by_batch b = by_batch_of(1, 4, text_of(0, 4));
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    assert_non_null(p);
    assert_int_equal(by_dim(by_io_output(by_pass_io(p), "features"), 2), 16);
    float first[4 * VOCAB], second[4 * VOCAB];
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), first), BY_OK);
    int32_t other[4];
    memcpy(other, text_of(0, 4), sizeof other);
    other[3] = other[3] == 5 ? 6 : 5;
    by_batch_put_tokens(&b, "tokens", other);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), second), BY_OK);
    assert_true(nmse(first, second, VOCAB) > 0); /* the first position sees the last token */
    by_pass_free(p);
    by_model_free(m);
}

/* ---- encoder-decoders -------------------------------------------------------------------------- */

/* Logits (T, V) of one pass over a pair. */
static void pair_logits(by_model *m, const int32_t *source, int size, const int32_t *text, int n, float *out)
{
    by_batch b = by_batch_of(1, n, text);
    by_batch_put_source(&b, size, source, NULL);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p || by_pass_run(p, &b) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), out), BY_OK);
    by_pass_free(p);
}

/* Two sources of different lengths, two hypotheses of each, fed token by token and in pieces. */
static void decoding_equals_one_pass(by_model *m)
{
    enum { ROWS = 4 };
    by_generator *g =
        by_generator_new(m, &(by_generator_spec){.batch = ROWS, .beams = 2, .source_capacity = SOURCE});
    const int32_t *sources[] = {text_of(6, SOURCE), text_of(7, SOURCE)};
    const int sizes[] = {SOURCE, 4}, counts[][ROWS] = {{1, 1, 1, 1}, {3, 1, 1, 6}, {1, 2, 1, 1}};
    static float expected[32 * VOCAB];
    int length[ROWS] = {0};
    assert_non_null(g);
    if (by_generator_encode(g, sources, sizes) != BY_OK)
        fail_msg("%s", by_error_message());
    for (int step = 0; step < BY_COUNT(counts); step++) {
        const int32_t *next[ROWS];
        for (int b = 0; b < ROWS; b++)
            next[b] = text_of((uint64_t)b, 16) + length[b];
        if (by_generator_feed(g, next, counts[step]) != BY_OK)
            fail_msg("%s", by_error_message());
        for (int b = 0; b < ROWS; b++) {
            length[b] += counts[step][b];
            pair_logits(m, sources[b / 2], sizes[b / 2], text_of((uint64_t)b, 16), length[b], expected);
            assert_near(by_generator_logits(g, b), expected + (ptrdiff_t)(length[b] - 1) * VOCAB, VOCAB);
        }
    }
    by_generator_free(g);
}

/* A batch with padding gives what its rows give alone. */
static void padding_changes_nothing(by_model *m)
{
    enum { T = 6 };
    int32_t source[2 * SOURCE], mask[2 * SOURCE], tokens[2 * T];
    static float together[2 * T * VOCAB], alone[T * VOCAB];
    const int sizes[] = {SOURCE, 4};
    for (int b = 0; b < 2; b++) {
        memcpy(tokens + b * T, text_of((uint64_t)b, T), sizeof(int32_t) * T);
        memcpy(source + b * SOURCE, text_of((uint64_t)(6 + b), SOURCE), sizeof(int32_t) * SOURCE);
        for (int s = 0; s < SOURCE; s++) {
            mask[b * SOURCE + s] = s < sizes[b];
            source[b * SOURCE + s] = s < sizes[b] ? source[b * SOURCE + s] : 0;
        }
    }
    by_batch x = by_batch_of(2, T, tokens);
    by_batch_put_source(&x, SOURCE, source, mask);
    by_pass *p = by_pass_new(m, &x, &(by_pass_spec){.attention = true});
    if (!p || by_pass_run(p, &x) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), together), BY_OK);
    for (int b = 0; b < 2; b++) {
        pair_logits(m, source + b * SOURCE, sizes[b], tokens + b * T, T, alone);
        assert_near(together + b * T * VOCAB, alone, T * VOCAB);
    }
    by_tensor *weights = by_io_output(by_pass_io(p), "cross_attention");
    if (weights) {
        static float w[2 * T * SOURCE];
        assert_int_equal(by_pass_read(p, weights, w), BY_OK);
        for (int i = 0; i < 2 * T; i++) {
            double sum = 0;
            for (int s = 0; s < SOURCE; s++) {
                sum += w[i * SOURCE + s];
                assert_true(mask[i / T * SOURCE + s] || w[i * SOURCE + s] == 0);
            }
            assert_true(fabs(sum - 1) < 1e-5);
        }
    }
    by_pass_free(p);
}

static void test_encoder_decoders(void **state)
{
    (void)state;
    for (int a = 0; a < BY_COUNT(attentions); a++)
        for (int c = 0; c < BY_COUNT(cells); c++) {
            by_model *m = model_of("rnn-seq2seq", cells[c], attentions[a], false);
            decoding_equals_one_pass(m);
            padding_changes_nothing(m);
            by_model_free(m);
        }
}

/* ---- scheduled sampling ------------------------------------------------------------------------ */

enum { BATCH = 2, STEPS = 7 };

static by_batch pairs_of(const int32_t *tokens, const int32_t *targets)
{
    static int32_t source[BATCH * SOURCE];
    for (int b = 0; b < BATCH; b++)
        memcpy(source + b * SOURCE, text_of((uint64_t)(6 + b), SOURCE), sizeof(int32_t) * SOURCE);
    by_batch x = by_batch_of(BATCH, STEPS, tokens);
    by_batch_put_source(&x, SOURCE, source, NULL);
    by_batch_put_tokens(&x, "targets", targets);
    return x;
}

/* Loss, and norm of the gradients, of a step that changes nothing. */
static void step(by_model *m, const by_batch *x, double *loss, double *norm)
{
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.optimizer = {.kind = BY_SGD}});
    assert_non_null(t);
    if (by_trainer_backward(t, x, true, loss) != BY_OK || by_trainer_update(t, 0, norm) != BY_OK)
        fail_msg("%s", by_error_message());
    by_trainer_free(t);
}

/* What the decoder reads: the first token, then what the model predicts from the given tokens, where it is asked for. */
static void replace(by_model *m, const by_batch *x, const int32_t *tokens, const int32_t *sampled,
                    int32_t *out)
{
    static float logits[BATCH * STEPS * VOCAB];
    by_pass *p = by_pass_new(m, x, &(by_pass_spec){0});
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, x), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), logits), BY_OK);
    by_pass_free(p);
    for (int i = 0; i < BATCH * STEPS; i++) {
        out[i] = tokens[i];
        if (i % STEPS == 0 || !sampled[i])
            continue;
        const float *row = logits + (ptrdiff_t)(i - 1) * VOCAB;
        int32_t best = 0;
        for (int v = 1; v < VOCAB; v++)
            best = row[v] > row[best] ? v : best;
        out[i] = best;
    }
}

static void test_scheduled_sampling(void **state)
{
    (void)state;
    by_model *m = model_of("rnn-seq2seq", "gru", "additive", true);
    by_model_set_dropout(m, 0);
    int32_t tokens[BATCH * STEPS], targets[BATCH * STEPS], sampled[BATCH * STEPS], own[BATCH * STEPS];
    for (int i = 0; i < BATCH * STEPS; i++) {
        tokens[i] = i % STEPS ? text_of(2, 30)[i] : 1;
        targets[i] = i % STEPS == STEPS - 1 ? -100 : text_of(2, 30)[i + 1];
        sampled[i] = i % 3 != 1;
    }
    const by_batch given = pairs_of(tokens, targets);
    replace(m, &given, tokens, sampled, own);
    assert_memory_not_equal(own, tokens, sizeof own);
    double expected[2], found[2];
    const by_batch replaced = pairs_of(own, targets);
    step(m, &replaced, &expected[0], &expected[1]);
    by_batch x = given;
    by_batch_put_tokens(&x, "sampled", sampled);
    step(m, &x, &found[0], &found[1]);
    assert_true(fabs(found[0] - expected[0]) < 1e-6);
    assert_true(fabs(found[1] - expected[1]) < 1e-5 * expected[1]);
    memset(sampled, 0, sizeof sampled);
    step(m, &given, &expected[0], &expected[1]);
    step(m, &x, &found[0], &found[1]);
    assert_true(fabs(found[0] - expected[0]) < 1e-6);
    assert_true(fabs(found[1] - expected[1]) < 1e-5 * expected[1]);
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_models),
        cmocka_unit_test(test_directions),
        cmocka_unit_test(test_encoder_decoders),
        cmocka_unit_test(test_scheduled_sampling),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
