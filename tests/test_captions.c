/* test_captions.c - models that write captions, by decoder: with a cache they compute what they compute over whole texts, a beam's
 * score is that of its tokens, a saved model is the same model, and two models of directories become one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "banyan/pass.h"
#include "base/file.h"
#include "generation.h"

enum { SIDE = 8, PICTURES = 2, PIXELS = PICTURES * 3 * SIDE * SIDE, VOCAB = 30, CONTEXT = 16, TEXT = 11 };
enum { START = 2, END, PAD };

static const char *const decoders[] = {"gpt2", "bert", "roberta", "xlm-roberta", "camembert"};
static by_device *device;
static char root[] = "/tmp/banyan-captions.XXXXXX";
static float pixels[PIXELS];

static void must(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (float)sin(i * 0.7) + (float)(i % 5) / 3;
    return device && mkdtemp(root) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : 1;
}

static by_model *new_model(const char *family, const by_model_shape *shape, by_task task)
{
    by_model *m = by_model_new(device, family, shape, &(by_model_spec){.seed = 7, .task = task});
    if (!m)
        fail_msg("%s", by_error_message());
    sharpen(m, 12);
    return m;
}

/* An encoder of 2 layers and a decoder of 3. */
static by_model *writer(const char *decoder)
{
    const by_model_shape shape = {.layers = 2,
                                  .decoder_layers = 3,
                                  .heads = 2,
                                  .width = 16,
                                  .context = CONTEXT,
                                  .vocab = VOCAB,
                                  .image = SIDE,
                                  .patch = 4,
                                  .channels = 3,
                                  .decoder = decoder};
    by_model *m = new_model("vision-encoder-decoder", &shape, BY_TASK_DEFAULT);
    by_model_set_start(m, START);
    by_model_set_eos(m, END);
    by_model_set_pad(m, PAD);
    return m;
}

static const by_picture_batch seen = {pixels, PICTURES, SIDE, SIDE};

/* Logits (PICTURES, length, VOCAB) of one pass over pictures and texts (PICTURES, length). */
static void whole(by_model *m, const int32_t *tokens, int length, float *out)
{
    by_batch b = by_batch_of_pictures(m, PICTURES, SIDE, SIDE, pixels);
    b.seq = length;
    by_batch_put_tokens(&b, "tokens", tokens);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    must(by_pass_run(p, &b));
    must(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), out));
    by_pass_free(p);
}

static void fill_text(int32_t *tokens)
{
    for (int i = 0; i < PICTURES * TEXT; i++)
        tokens[i] = i % TEXT ? PAD + 1 + (i * 7) % (VOCAB - PAD - 1) : START;
}

/* Tokens one by one, several at once, and of one row alone. */
static void test_cache(void **state)
{
    (void)state;
    static const int feeds[][PICTURES] = {{1, 1}, {3, 4}, {0, 1}, {1, 0}, {5, 2}, {1, 3}};
    int32_t tokens[PICTURES * TEXT];
    float expected[PICTURES * TEXT * VOCAB];
    fill_text(tokens);
    for (int k = 0; k < BY_COUNT(decoders); k++) {
        by_model *m = writer(decoders[k]);
        whole(m, tokens, TEXT, expected);
        by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = PICTURES});
        assert_non_null(g);
        must(by_generator_see(g, &seen));
        int held[PICTURES] = {0};
        for (int i = 0; i < BY_COUNT(feeds); i++) {
            const int32_t *next[PICTURES];
            for (int b = 0; b < PICTURES; b++)
                next[b] = tokens + b * TEXT + held[b];
            must(by_generator_feed(g, next, feeds[i]));
            for (int b = 0; b < PICTURES; b++) {
                held[b] += feeds[i][b];
                const float *want = expected + (b * TEXT + held[b] - 1) * VOCAB;
                const double error = nmse(by_generator_logits(g, b), want, VOCAB);
                if (!(error < 1e-10))
                    fail_msg("%s: row %d, %d tokens: %g", decoders[k], b, held[b], error);
            }
        }
        assert_int_equal(held[0], TEXT);
        assert_int_equal(held[1], TEXT);
        by_generator_free(g);
        by_model_free(m);
    }
}

/* The pictures matter: other ones give other logits. */
static void test_pictures_are_seen(void **state)
{
    (void)state;
    int32_t tokens[PICTURES * TEXT];
    float logits[PICTURES * TEXT * VOCAB];
    fill_text(tokens);
    memcpy(tokens + TEXT, tokens, TEXT * sizeof *tokens);
    for (int k = 0; k < BY_COUNT(decoders); k++) {
        by_model *m = writer(decoders[k]);
        whole(m, tokens, TEXT, logits);
        assert_true(nmse(logits, logits + TEXT * VOCAB, TEXT * VOCAB) > 1e-3);
        by_model_free(m);
    }
}

static double log_prob(const float *logits, int token)
{
    double sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v] - (double)logits[token]);
    return -log(sum);
}

/* The score of a text, from a pass over all of it. */
static double score_of(by_model *m, int picture, const by_generation *g)
{
    int32_t tokens[PICTURES * CONTEXT];
    float logits[PICTURES * CONTEXT * VOCAB];
    assert_true(g->count < CONTEXT);
    for (int b = 0; b < PICTURES; b++)
        memcpy(tokens + b * g->count, g->tokens, sizeof *tokens * (size_t)g->count);
    whole(m, tokens, g->count, logits);
    double sum = 0;
    for (int t = 1; t < g->count; t++)
        sum += log_prob(logits + (picture * g->count + t - 1) * VOCAB, g->tokens[t]);
    return sum / (g->count - 1);
}

static void test_beams(void **state)
{
    (void)state;
    const by_generate_spec spec = {.max_new_tokens = 9,
                                   .ignore_eos = true,
                                   .beam = {.width = 3, .returned = 2, .length_penalty = 1},
                                   .pictures = &seen};
    for (int k = 0; k < BY_COUNT(decoders); k++) {
        by_model *m = writer(decoders[k]);
        by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 3 * PICTURES, .beams = 3});
        by_generate_result r = {0};
        assert_non_null(g);
        must(by_generate(g, NULL, NULL, &spec, &r));
        assert_int_equal(r.count, 2 * PICTURES);
        for (int i = 0; i < r.count; i++) {
            assert_int_equal(r.rows[i].tokens[0], START);
            assert_int_equal(r.rows[i].count, 10);
            const double want = score_of(m, i / 2, &r.rows[i]), is = (double)r.rows[i].score;
            if (!(fabs(is - want) < 1e-4))
                fail_msg("%s: text %d scores %g, not %g", decoders[k], i, is, want);
        }
        by_generate_result_free(&r);
        by_generator_free(g);
        by_model_free(m);
    }
}

static const char *in_root(const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    base_format(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static by_model *reopen(const char *dir)
{
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static void test_saved(void **state)
{
    (void)state;
    int32_t tokens[PICTURES * TEXT];
    float expected[PICTURES * TEXT * VOCAB], logits[PICTURES * TEXT * VOCAB];
    fill_text(tokens);
    for (int k = 0; k < BY_COUNT(decoders); k++) {
        by_model *m = writer(decoders[k]);
        whole(m, tokens, TEXT, expected);
        must(by_model_save(m, in_root(decoders[k]), BY_F32));
        by_model *again = reopen(in_root(decoders[k]));
        assert_string_equal(by_model_title(again), by_model_title(m));
        assert_int_equal(by_model_context(again), by_model_context(m));
        assert_int_equal(by_model_start(again), START);
        assert_int_equal(by_model_eos(again), END);
        assert_int_equal(by_model_pad(again), PAD);
        whole(again, tokens, TEXT, logits);
        assert_memory_equal(logits, expected, sizeof logits);
        by_model_free(again);
        by_model_free(m);
    }
}

/* The values of the parameters of a part, but those of a head over the first position, which no decoder has. */
static void assert_part(const by_model *both, const by_model *part, const char *prefix)
{
    const by_params *p = by_model_params(both), *q = by_model_params(part);
    int same = 0;
    for (int i = 0; i < by_params_count(q); i++) {
        char name[256];
        base_format(name, sizeof name, "%s%s", prefix, by_params_name(q, i));
        const int k = by_params_find(p, name);
        if (k < 0 && (strstr(name, "bert.pooler") || strstr(name, "seq_relationship")))
            continue;
        if (k < 0)
            fail_msg("there is no %s", name);
        int64_t n = 1;
        for (int a = 0; a < by_params_rank(q, i); a++)
            n *= by_params_shape(q, i)[a];
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        assert_true(x && y);
        must(by_params_get(q, i, BY_SLOT_VALUE, x));
        must(by_params_get(p, k, BY_SLOT_VALUE, y));
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
        same++;
    }
    assert_true(same > 20);
}

static const by_model_shape eye = {
    .layers = 2, .heads = 2, .width = 24, .image = SIDE, .patch = 4, .channels = 3};

static void make_parts(const char *family)
{
    const by_model_shape text = {.layers = 2, .heads = 2, .width = 16, .context = CONTEXT, .vocab = VOCAB};
    by_model *m = new_model("vit", &eye, BY_TASK_FEATURES);
    must(by_model_save(m, in_root("eye"), BY_F32));
    by_model_free(m);
    m = new_model(family, &text, BY_TASK_DEFAULT);
    if (strcmp(family, "gpt2") != 0)
        by_model_set_pad(m, PAD);
    if (strcmp(family, "bert") != 0)
        by_model_set_eos(m, END);
    must(by_model_save(m, in_root("text"), BY_F32));
    by_model_free(m);
}

/* Both halves have their values; tokens are those of the decoder's configuration. */
static void test_joined(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        int start, end, pad;
    } cases[] = {{"gpt2", END, END, END},
                 {"bert", -1, -1, PAD},
                 {"roberta", END, END, PAD},
                 {"xlm-roberta", END, END, PAD}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        make_parts(cases[i].family);
        by_model *both = by_model_join(device, in_root("eye"), in_root("text"), 3);
        if (!both)
            fail_msg("%s", by_error_message());
        by_model *text = reopen(in_root("text"));
        assert_part(both, text, "decoder.");
        assert_true(by_params_find(by_model_params(both), "enc_to_dec_proj.weight") >= 0);
        assert_int_equal(by_model_start(both), cases[i].start);
        assert_int_equal(by_model_eos(both), cases[i].end);
        assert_int_equal(by_model_pad(both), cases[i].pad);
        by_model_free(text);
        by_model_free(both);
    }
}

static void test_refused(void **state)
{
    (void)state;
    const by_model_shape wrong = {.decoder = "bart"}, none = {.decoder = "bert"};
    assert_null(by_model_new(device, "vision-encoder-decoder", &wrong, &(by_model_spec){0}));
    assert_non_null(strstr(by_error_message(), "unknown decoder \"bart\"; available: gpt2, bert, roberta"));
    assert_null(by_model_new(device, "vit", &none, &(by_model_spec){0}));
    assert_non_null(strstr(by_error_message(), "no choice of decoders"));
    make_parts("albert");
    assert_null(by_model_join(device, in_root("eye"), in_root("text"), 3));
    assert_non_null(strstr(by_error_message(), "unknown decoder \"albert\""));
    assert_null(by_model_join(device, in_root("eye"), in_root("eye"), 3));
    assert_non_null(strstr(by_error_message(), "not a language model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),  cmocka_unit_test(test_pictures_are_seen),
        cmocka_unit_test(test_beams),  cmocka_unit_test(test_saved),
        cmocka_unit_test(test_joined), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
