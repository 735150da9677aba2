/* test_rewrite.c - texts out of texts: encoder-decoders of every family, small and random. Decoding through
 * the cache against recomputing everything, batches against single texts, saved models against what they were
 * saved from; and by_rewriter, which turns strings into strings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "banyan/pass.h"
#include "banyan/rewrite.h"
#include "base/json.h"
#include "child.h"
#include "io/weights.h"
#include "tiny.h"
#include "generation.h"

enum { CONTEXT = 100, VOCAB = TINY_VOCAB, START = 2, EOS = 3, SOURCES = 9, NEW = 14 };

/* Initial values are too even to tell tokens apart; larger matrices do. */
static const struct family {
    const char *name, *preset;
    float sharper;
    bool pre_norm;
} families[] = {{"transformer", "tiny", 3, false}, {"transformer", "tiny", 3, true},
                {"marian", "tiny", 12, false},     {"t5", "tiny", 1.5f, false},
                {"t5", "v1.1-tiny", 1.5f, false},  {"bart", "tiny", 12, false}};

static by_device *device;
static char root[300];
static by_tokenizer *letters;

static const char *in_root(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-rewrite-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    device = by_device_open("cpu", 2);
    if (!device || !mkdtemp(root) || tiny_tokenizer_write(in_root("letters")) != BY_OK)
        return -1;
    letters = by_tokenizer_load(in_root("letters"));
    return letters ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_tokenizer_free(letters);
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- models ---------------------------------------------------------------------------------- */

static int64_t elements(const by_params *p, int i)
{
    int64_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= by_params_shape(p, i)[k];
    return n;
}

static by_model *make_model(const struct family *f)
{
    const by_model_shape shape = {.preset = f->preset,
                                  .layers = 2,
                                  .decoder_layers = 3,
                                  .heads = 2,
                                  .width = 16,
                                  .inner = 32,
                                  .context = CONTEXT,
                                  .vocab = VOCAB,
                                  .pre_norm = f->pre_norm};
    by_model *m = by_model_new(device, f->name, &shape, &(by_model_spec){.seed = 11});
    if (!m)
        fail_msg("%s: %s", f->name, by_error_message());
    by_model_set_pad(m, 0);
    by_model_set_start(m, START);
    by_model_set_eos(m, EOS);
    sharpen(m, f->sharper);
    return m;
}

static int32_t *source_of(int which, int n)
{
    static int32_t texts[16][CONTEXT];
    base_rng r = base_rng_make(5, (uint64_t)which);
    for (int i = 0; i < n; i++)
        texts[which][i] = TINY_LETTERS + (int32_t)base_rng_below(&r, VOCAB - TINY_LETTERS);
    return texts[which];
}

/* Sources of many lengths, two of them left out. */
static void make_sources(const int32_t **sources, int *lengths)
{
    for (int i = 0; i < SOURCES; i++) {
        lengths[i] = 1 + 23 * i % 17;
        sources[i] = i == 0 || i == 5 ? NULL : source_of(i, lengths[i]);
    }
}

/* Logits after the last of n tokens, from one pass over both texts without a cache. */
static void full_logits(by_model *m, const int32_t *source, int length, const int32_t *tokens, int n,
                        float *out)
{
    by_batch b = by_batch_of(1, n, tokens);
    by_batch_put_source(&b, length, source, NULL);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    const size_t vocab = (size_t)by_model_vocab(m);
    float *all = malloc(sizeof *all * vocab * (size_t)n);
    if (!p || !all || by_pass_run(p, &b) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_elements(by_io_output(by_pass_io(p), "logits")), (int64_t)vocab * n);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), all), BY_OK);
    memcpy(out, all + (size_t)(n - 1) * vocab, sizeof *out * vocab);
    free(all);
    by_pass_free(p);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Every token is the likeliest of a whole pass over what stands before it. */
static void cached_greedy_equals_full_passes(void **state)
{
    (void)state;
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        const by_generate_spec spec = {.max_new_tokens = NEW, .ignore_eos = true};
        int32_t first[2][NEW];
        for (int i = 0; i < 2; i++) {
            const int length = 3 + 9 * i;
            const int32_t *source = source_of(i, length);
            by_generate_result r = find(m, &source, &length, 1, &spec);
            assert_int_equal(r.rows[0].prompt, 1);
            assert_int_equal(r.rows[0].tokens[0], START);
            assert_int_equal(r.rows[0].count, 1 + NEW);
            for (int n = 1; n <= NEW; n++) {
                float logits[VOCAB];
                int best = 0;
                full_logits(m, source, length, r.rows[0].tokens, n, logits);
                for (int v = 1; v < VOCAB; v++)
                    best = logits[v] > logits[best] ? v : best;
                assert_int_equal(r.rows[0].tokens[n], best);
            }
            memcpy(first[i], r.rows[0].tokens + 1, sizeof first[i]);
            by_generate_result_free(&r);
        }
        assert_memory_not_equal(first[0], first[1], sizeof first[0]); /* the source matters */
        by_model_free(m);
    }
}

/* The generator's logits themselves, when tokens come one by one and when several come at once. */
static void cached_logits_equal_full_passes(void **state)
{
    (void)state;
    enum { LENGTH = 11, TOKENS = 20 };
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 1});
        const int32_t *source = source_of(3, LENGTH), *tokens = source_of(4, TOKENS);
        static const int steps[] = {1, 1, 5, 1, 12}; /* TOKENS in all */
        assert_non_null(g);
        assert_int_equal(by_generator_encode(g, &source, &(int){LENGTH}), BY_OK);
        for (int i = 0, n = 0; i < BY_COUNT(steps); i++) {
            const int32_t *next = tokens + n;
            float right[VOCAB];
            double error = 0, power = 0;
            n += steps[i];
            assert_int_equal(by_generator_feed(g, &next, &steps[i]), BY_OK);
            full_logits(m, source, LENGTH, tokens, n, right);
            for (int v = 0; v < VOCAB; v++) {
                error += pow((double)by_generator_logits(g, 0)[v] - (double)right[v], 2);
                power += pow((double)right[v], 2);
            }
            assert_true(power > 0 && error / power < 1e-10);
        }
        by_generator_free(g);
        by_model_free(m);
    }
}

/* Texts of many lengths, some left out, which end at different times and are squeezed out: each as if it were
 * alone. */
static void a_ragged_batch_equals_one_at_a_time(void **state)
{
    (void)state;
    const int32_t *sources[SOURCES];
    int lengths[SOURCES];
    int32_t stops[VOCAB / 3];
    for (int i = 0; i < BY_COUNT(stops); i++)
        stops[i] = 3 * i + 1;
    int varied = 0; /* searches whose texts are of different lengths */
    make_sources(sources, lengths);
    const by_generate_spec specs[] = {
        {.max_new_tokens = NEW},
        {.max_new_tokens = NEW, .sampling = {.temperature = 1, .top_k = 20, .seed = 4}},
        {.max_new_tokens = NEW, .beam = {.width = 4, .length_penalty = 1, .returned = 3}},
        {.max_new_tokens = NEW,
         .beam = {.width = 4, .early_stopping = BY_STOP_EARLY, .returned = 1},
         .sampling = {.no_repeat_ngram = 2}}};
    for (int k = 0; k < BY_COUNT(families) * BY_COUNT(specs); k++) {
        by_generate_spec spec = specs[k % BY_COUNT(specs)];
        by_model *m = make_model(&families[k / BY_COUNT(specs)]);
        const int returned = BY_MAX(spec.beam.returned, 1);
        int lived[NEW + 2] = {0}, different = 0;
        spec.stop_tokens = stops;
        spec.stop_count = BY_COUNT(stops);
        by_generate_result all = find(m, sources, lengths, SOURCES, &spec);
        assert_int_equal(all.count, SOURCES * returned);
        for (int i = 0; i < SOURCES; i++) {
            if (!sources[i]) {
                assert_null(all.rows[i * returned].tokens);
                continue;
            }
            spec.first_sample = i;
            by_generate_result alone = find(m, &sources[i], &lengths[i], 1, &spec);
            for (int j = 0; j < returned; j++)
                assert_same(&all.rows[i * returned + j], &alone.rows[j]);
            different += lived[alone.rows[0].count]++ == 0;
            by_generate_result_free(&alone);
        }
        varied += different > 1;
        by_generate_result_free(&all);
        by_model_free(m);
    }
    assert_true(varied > BY_COUNT(families) * BY_COUNT(specs) / 2);
}

/* Beams of one, and groups of one, are greedy. */
static void a_beam_of_one_is_greedy(void **state)
{
    (void)state;
    const int32_t *sources[SOURCES];
    int lengths[SOURCES];
    make_sources(sources, lengths);
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        by_generate_spec spec = {.max_new_tokens = NEW};
        by_generate_result greedy = find(m, sources, lengths, SOURCES, &spec);
        spec.beam.width = 1;
        by_generate_result one = find(m, sources, lengths, SOURCES, &spec);
        spec.ignore_eos = true;
        by_generate_result endless = find(m, sources, lengths, SOURCES, &spec);
        spec.beam = (by_beam){.width = 3, .groups = 3, .returned = 3};
        by_generate_result three = find(m, sources, lengths, SOURCES, &spec);
        for (int i = 0; i < SOURCES; i++) {
            if (!sources[i])
                continue;
            assert_same(&one.rows[i], &greedy.rows[i]);
            for (int k = 0; k < 3; k++) {
                assert_int_equal(three.rows[3 * i + k].count, 1 + NEW);
                assert_memory_equal(three.rows[3 * i + k].tokens, endless.rows[i].tokens,
                                    sizeof(int32_t) * (1 + NEW));
            }
        }
        by_generate_result_free(&greedy);
        by_generate_result_free(&one);
        by_generate_result_free(&endless);
        by_generate_result_free(&three);
        by_model_free(m);
    }
}

/* One generator, short sources after long ones and the other way round: nothing is left of those before. */
static void sources_are_forgotten(void **state)
{
    (void)state;
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 6, .beams = 3});
        const by_generate_spec spec = {.max_new_tokens = NEW, .beam = {.width = 3, .length_penalty = 1}};
        static const int lengths[][2] = {{2, 3}, {30, 17}, {5, 1}, {40, 2}, {2, 3}};
        for (int k = 0; k < BY_COUNT(lengths); k++) {
            const int32_t *sources[] = {source_of(2 * k, lengths[k][0]), source_of(2 * k + 1, lengths[k][1])};
            by_generate_result r;
            if (by_generate(g, sources, lengths[k], &spec, &r) != BY_OK)
                fail_msg("%s", by_error_message());
            for (int i = 0; i < 2; i++) {
                by_generate_result alone = find(m, &sources[i], &lengths[k][i], 1, &spec);
                assert_same(&r.rows[i], &alone.rows[0]);
                by_generate_result_free(&alone);
            }
            by_generate_result_free(&r);
        }
        by_generator_free(g);
        by_model_free(m);
    }
}

static void wrong_sources_are_refused(void **state)
{
    (void)state;
    by_model *m = make_model(&families[0]);
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 1, .source_capacity = 12});
    const int32_t *source = source_of(0, 13), bad[] = {5, VOCAB}, *wrong = bad, token = START;
    int32_t out[4];
    by_generate_result r;
    assert_int_equal(by_generator_feed(g, &source, &(int){1}), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no source");
    assert_int_equal(by_generator_greedy(g, &token, &(bool){true}, 4, out), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no source");
    assert_int_equal(by_generator_time(g, NULL, NULL), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no source");
    assert_int_equal(by_generator_encode(g, &source, &(int){13}), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "13 tokens");
    assert_int_equal(by_generator_encode(g, &source, &(int){0}), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "empty");
    assert_int_equal(by_generator_encode(g, &wrong, &(int){2}), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "outside the vocabulary");
    const by_generate_spec sliding = {.max_new_tokens = 2, .slide = true},
                           endless = {.max_new_tokens = CONTEXT + 1};
    assert_int_equal(by_generate(g, &source, &(int){3}, &sliding, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "slide");
    by_generate_result_free(&r);
    assert_int_equal(by_generate(g, &source, &(int){3}, &endless, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "101 new tokens");
    by_generate_result_free(&r);
    const int limits[][2] = {{3, 0}, {2, 1}}; /* more than max_new_tokens, and as many */
    by_generator *two = by_generator_new(m, &(by_generator_spec){.batch = 2});
    const int32_t *both[] = {source, NULL};
    for (int i = 0; i < 2; i++) {
        const by_generate_spec limited = {.max_new_tokens = 2, .limits = limits[i]};
        assert_int_equal(by_generate(two, both, (int[]){3, 0}, &limited, &r), i ? BY_OK : BY_ERR_ARGUMENT);
        by_generate_result_free(&r);
    }
    by_generator_free(two);
    by_model_set_start(m, -1);
    assert_int_equal(by_generate(g, &source, &(int){3}, &(by_generate_spec){.max_new_tokens = 2}, &r),
                     BY_ERR_FORMAT);
    assert_contains(by_error_message(), "decoder_start_token_id");
    by_generate_result_free(&r);
    by_generator_free(g);
    assert_null(by_generator_new(m, &(by_generator_spec){.source_capacity = CONTEXT + 1}));
    assert_contains(by_error_message(), "context");
    by_model_free(m);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void expect_equal_logits(by_model *a, by_model *b)
{
    const int32_t *source = source_of(1, 9), *tokens = source_of(2, 6);
    float x[VOCAB], y[VOCAB];
    assert_int_equal(by_model_vocab(a), by_model_vocab(b));
    full_logits(a, source, 9, tokens, 6, x);
    full_logits(b, source, 9, tokens, 6, y);
    assert_memory_equal(x, y, sizeof *x * (size_t)by_model_vocab(a));
}

static by_model *save_and_open(const by_model *m, const char *name)
{
    assert_int_equal(by_model_save(m, in_root(name), BY_F32), BY_OK);
    by_model *again = by_model_open(device, in_root(name), &(by_model_spec){0});
    if (!again)
        fail_msg("%s", by_error_message());
    return again;
}

static void a_saved_model_is_the_same(void **state)
{
    (void)state;
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]), *again = save_and_open(m, "saved");
        assert_string_equal(by_model_family(again), families[f].name);
        assert_int_equal(by_model_task(again), BY_TASK_SEQ2SEQ);
        assert_int_equal(by_model_context(again), CONTEXT);
        assert_int_equal(by_model_eos(again), EOS);
        assert_int_equal(by_model_pad(again), 0);
        assert_int_equal(by_model_start(again), START);
        expect_equal_logits(m, again);
        by_model_free(m);
        by_model_free(again);
        assert_int_equal(base_dir_remove(in_root("saved")), BY_OK);
    }
}

/* T5 1.1: what its head says is not its table. */
static void a_head_of_its_own_is_kept(void **state)
{
    (void)state;
    by_model *m = make_model(&families[4]);
    by_params *p = by_model_params(m);
    const int table = by_params_find(p, "shared.weight"), head = by_params_find(p, "lm_head.weight");
    assert_true(table >= 0 && head >= 0);
    const size_t n = (size_t)elements(p, head);
    float *values = malloc(sizeof *values * n), before[VOCAB], after[VOCAB];
    assert_non_null(values);
    full_logits(m, source_of(1, 9), 9, source_of(2, 6), 6, before);
    assert_int_equal(by_params_get(p, head, BY_SLOT_VALUE, values), BY_OK);
    for (size_t i = 0; i < n; i++)
        values[i] *= 2;
    assert_int_equal(by_params_set(p, head, BY_SLOT_VALUE, values), BY_OK);
    full_logits(m, source_of(1, 9), 9, source_of(2, 6), 6, after);
    for (int v = 0; v < VOCAB; v++)
        assert_true(fabsf(after[v] - 2 * before[v]) <= 1e-5f * fabsf(after[v]));
    by_model *again = save_and_open(m, "untied");
    expect_equal_logits(m, again);
    by_model_free(m);
    by_model_free(again);
    free(values);
}

/* A Marian of 57 tokens to read and 41 to write, put together from one that has a single table. */
enum { WRITTEN = 41 };
static by_model *make_separate(void)
{
    by_model *m = make_model(&families[2]);
    assert_int_equal(by_model_save(m, in_root("shared"), BY_F32), BY_OK);
    by_model_free(m);
    by_weights *file = by_weights_open(in_root("shared/model.safetensors"));
    assert_non_null(file);
    by_weight *entries = base_alloc_zero((size_t)by_weights_count(file) + 1, sizeof *entries);
    assert_non_null(entries);
    int n = 0;
    for (int i = 0; i < by_weights_count(file); i++) {
        by_weight e = *by_weights_at(file, i);
        if (strcmp(e.name, "model.shared.weight") == 0) {
            e.name = "model.encoder.embed_tokens.weight";
            entries[n++] = e;
            e.name = "model.decoder.embed_tokens.weight";
        }
        const int axis = strcmp(e.name, "final_logits_bias") == 0;
        if (axis || strcmp(e.name, "model.decoder.embed_tokens.weight") == 0) {
            e.bytes = e.bytes / VOCAB * WRITTEN;
            e.dim[axis] = WRITTEN;
        }
        entries[n++] = e;
    }
    assert_int_equal(n, by_weights_count(file) + 1);
    assert_int_equal(base_dir_make(in_root("separate")), BY_OK);
    assert_int_equal(by_weights_write(in_root("separate/model.safetensors"), entries, n, NULL), BY_OK);
    base_free(entries);
    by_weights_free(file);
    cJSON *json = base_json_load(in_root("shared/config.json"));
    cJSON_ReplaceItemInObject(json, "share_encoder_decoder_embeddings", cJSON_CreateFalse());
    cJSON_DeleteItemFromObject(json, "decoder_vocab_size");
    cJSON_AddNumberToObject(json, "decoder_vocab_size", WRITTEN);
    char *text = cJSON_Print(json);
    assert_int_equal(base_file_write(in_root("separate/config.json"), text, strlen(text)), BY_OK);
    cJSON_free(text);
    cJSON_Delete(json);
    m = by_model_open(device, in_root("separate"), &(by_model_spec){0});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static void two_vocabularies(void **state)
{
    (void)state;
    by_model *m = make_separate(), *again = save_and_open(m, "again");
    assert_int_equal(by_model_source_vocab(m), VOCAB);
    assert_int_equal(by_model_vocab(m), WRITTEN);
    assert_int_equal(by_model_source_vocab(again), VOCAB);
    assert_int_equal(by_model_vocab(again), WRITTEN);
    const int32_t source[] = {VOCAB - 1, WRITTEN, 7, EOS}, *sources = source;
    const by_generate_spec spec = {.max_new_tokens = NEW, .ignore_eos = true};
    by_generate_result r = find(m, &sources, &(int){4}, 1, &spec),
                       s = find(again, &sources, &(int){4}, 1, &spec);
    assert_int_equal(r.rows[0].count, 1 + NEW);
    assert_same(&r.rows[0], &s.rows[0]);
    for (int n = 1; n <= NEW; n++) {
        float logits[WRITTEN];
        int best = 0;
        full_logits(m, source, 4, r.rows[0].tokens, n, logits);
        for (int v = 1; v < WRITTEN; v++)
            best = logits[v] > logits[best] ? v : best;
        assert_int_equal(r.rows[0].tokens[n], best);
    }
    by_generate_result_free(&r);
    by_generate_result_free(&s);
    by_model_free(m);
    by_model_free(again);
}

/* ---- strings --------------------------------------------------------------------------------- */

static by_rewriting *rewrite(by_model *m, const by_rewriter_spec *spec, const char *const *texts, int count)
{
    by_rewriter *r = by_rewriter_new(m, letters, spec);
    by_rewriting *list = NULL;
    if (!r || by_rewriter_run(r, texts, count, &list) != BY_OK)
        fail_msg("%s", by_error_message());
    by_rewriter_free(r);
    return list;
}

/* Any batch size, any neighbours: the text is the same, also where it would go on for ever. */
static void neighbours_do_not_matter(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "a b c", "the quick brown fox jumps over it", "", "zz", "a b c", " \t ", "one two three four"};
    enum { TEXTS = BY_COUNT(texts) };
    const by_generate_spec specs[] = {
        {.ignore_eos = true},
        {.ignore_eos = true, .beam = {.width = 4, .length_penalty = 1}},
        {.max_new_tokens = 9, .beam = {.width = 3, .early_stopping = BY_STOP_NEVER}},
        {.ignore_eos = true, .sampling = {.forced_last = &(int32_t){EOS}}}};
    for (int k = 0; k < BY_COUNT(families) * BY_COUNT(specs); k++) {
        by_model *m = make_model(&families[k / BY_COUNT(specs)]);
        by_rewriter_spec spec = {.generate = specs[k % BY_COUNT(specs)], .batch = 3};
        by_rewriting *all = rewrite(m, &spec, texts, TEXTS);
        for (int i = 0; i < TEXTS; i++) {
            by_rewriting *alone = rewrite(m, &spec, texts + i, 1);
            assert_string_equal(all[i].text, alone->text);
            assert_int_equal(all[i].tokens, alone->tokens);
            assert_true(fabsf(all[i].score - alone->score) < 1e-4f);
            by_rewritings_free(alone, 1);
        }
        assert_string_equal(all[2].text, "");
        assert_int_equal(all[5].tokens, 0);
        assert_string_equal(all[0].text, all[4].text);
        by_rewritings_free(all, TEXTS);
        by_model_free(m);
    }
}

/* Drawn texts follow from the seed and their place among all texts, not from batches or lengths. */
static void every_text_draws_for_itself(void **state)
{
    (void)state;
    static const char *const texts[] = {"a b", "the quick brown fox", "a b", "zz", "a b"};
    enum { TEXTS = BY_COUNT(texts) };
    by_model *m = make_model(&families[3]);
    by_rewriter_spec spec = {
        .generate = {.max_new_tokens = 20, .ignore_eos = true, .sampling = {.temperature = 3, .seed = 8}}};
    by_rewriting *all = rewrite(m, &spec, texts, TEXTS), *next;
    assert_string_not_equal(all[0].text, all[2].text);
    assert_string_not_equal(all[0].text, all[4].text);
    spec.batch = 2;
    by_rewriter *r = by_rewriter_new(m, letters, &spec);
    for (int i = 0; i < TEXTS; i++) { /* one call each */
        assert_int_equal(by_rewriter_run(r, texts + i, 1, &next), BY_OK);
        assert_string_equal(next->text, all[i].text);
        by_rewritings_free(next, 1);
    }
    by_rewriter_free(r);
    by_rewritings_free(all, TEXTS);
    by_model_free(m);
}

static void long_texts_are_cut_or_refused(void **state)
{
    (void)state;
    char text[2 * CONTEXT + 1] = "", cut[2 * CONTEXT + 1] = "";
    for (int i = 0; i < CONTEXT; i++)
        strcat(text, "a ");
    for (int i = 0; i < CONTEXT - 2; i++) /* beside [CLS] and [SEP] */
        strcat(cut, "a ");
    const char *texts[] = {"short", text, cut};
    by_model *m = make_model(&families[0]);
    by_rewriter_spec spec = {.generate.max_new_tokens = 8};
    by_rewriter *r = by_rewriter_new(m, letters, &spec);
    by_rewriting *list = (by_rewriting[1]){0};
    assert_non_null(r);
    assert_int_equal(by_rewriter_run(r, texts, 2, &list), BY_ERR_ARGUMENT);
    assert_null(list);
    assert_contains(by_error_message(), "text 2 has 102 tokens; the limit of this model is 100");
    by_rewriter_free(r);
    spec.truncate = true;
    list = rewrite(m, &spec, texts, 3);
    assert_false(list[0].cut);
    assert_true(list[1].cut);
    assert_false(list[2].cut);
    assert_string_equal(list[1].text, list[2].text);
    by_rewritings_free(list, 3);
    by_model_free(m);
    m = make_model(&families[3]); /* T5 knows distances, not places: nothing is too long, */
    spec.truncate = false;
    list = rewrite(m, &spec, texts, 2);
    assert_false(list[1].cut);
    by_rewritings_free(list, 2);
    spec.max_source = CONTEXT; /* unless a limit is set, which needs no permission to cut */
    list = rewrite(m, &spec, texts, 3);
    assert_true(!list[0].cut && list[1].cut && !list[2].cut);
    assert_string_equal(list[1].text, list[2].text);
    by_rewritings_free(list, 3);
    by_model_free(m);
}

static void a_prefix_comes_before_every_text(void **state)
{
    (void)state;
    const char *without[] = {"abc", "d", ""}, *with[] = {"q: abc", "q: d", ""};
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        by_rewriter_spec spec = {.generate = {.max_new_tokens = 10, .beam = {.width = 2}}};
        by_rewriting *a = rewrite(m, &spec, with, 3);
        spec.prefix = "q: ";
        by_rewriting *b = rewrite(m, &spec, without, 3);
        for (int i = 0; i < 3; i++)
            assert_string_equal(a[i].text, b[i].text);
        by_rewritings_free(a, 3);
        by_rewritings_free(b, 3);
        by_model_free(m);
    }
}

static void several_texts_come_best_first(void **state)
{
    (void)state;
    enum { RETURNED = 4 };
    const char *texts[] = {"abc def", "", "x"};
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = make_model(&families[f]);
        by_rewriter_spec spec = {
            .generate = {.max_new_tokens = 10,
                         .beam = {.width = RETURNED, .length_penalty = 1, .returned = RETURNED}}};
        by_rewriting *all = rewrite(m, &spec, texts, 3);
        spec.generate.beam.returned = 0;
        by_rewriting *best = rewrite(m, &spec, texts, 3);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(all[i * RETURNED].text, best[i].text);
            for (int k = 1; k < RETURNED; k++)
                assert_true(all[i * RETURNED + k].score <= all[i * RETURNED + k - 1].score);
        }
        assert_true(all[0].score < 0 && all[0].score > all[RETURNED - 1].score);
        for (int k = 0; k < RETURNED; k++)
            assert_string_equal(all[RETURNED + k].text, "");
        by_rewritings_free(all, 3 * RETURNED);
        by_rewritings_free(best, 3);
        by_model_free(m);
    }
}

static void wrong_models_are_refused(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "gpt2", BY_TASK_LM, 0, 16);
    assert_non_null(m);
    assert_null(by_rewriter_new(m, letters, &(by_rewriter_spec){0}));
    assert_contains(by_error_message(), "GPT2LMHeadModel");
    by_model_free(m);
    const by_model_shape shape = {.layers = 1, .heads = 2, .width = 8, .inner = 8, .vocab = VOCAB - 1};
    m = by_model_new(device, "transformer", &shape, &(by_model_spec){0});
    assert_non_null(m);
    assert_null(by_rewriter_new(m, letters, &(by_rewriter_spec){0}));
    assert_contains(by_error_message(), "57 tokens");
    by_model_free(m);
}

/* Special tokens are no part of a text, wherever they stand in it; the tokens still count. */
static void special_tokens_are_not_printed(void **state)
{
    (void)state;
    enum { PAD, UNKNOWN, CLS, SEP, MASK, A, B };
    static const int32_t written[] = {CLS, A, UNKNOWN, B, PAD, TINY_INSIDE, MASK, CLS, A};
    const char *const source = "abc";
    by_model *m = make_model(&families[0]);
    for (int beams = 1; beams <= 2; beams++) {
        const by_rewriter_spec spec = {
            .generate = {.max_new_tokens = BY_COUNT(written),
                         .ignore_eos = true,
                         .beam = {.width = beams},
                         .sampling = {.prefix = written, .prefix_count = BY_COUNT(written)}}};
        by_rewriting *list = rewrite(m, &spec, &source, 1);
        assert_string_equal(list->text, "a ba a");
        assert_int_equal(list->size, strlen("a ba a"));
        assert_int_equal(list->tokens, BY_COUNT(written));
        by_rewritings_free(list, 1);
    }
    by_model_free(m);
}

/* New tokens win over lengths that count the prompt, as in the reference. */
static void test_least_tokens(void **state)
{
    (void)state;
    const by_rewrite_defaults both = {.min_length = 6, .min_new = 1}, length = {.min_length = 6};
    assert_int_equal(by_rewrite_defaults_least(&both, 1), 1);
    assert_int_equal(by_rewrite_defaults_least(&length, 1), 5);
    assert_int_equal(by_rewrite_defaults_least(&length, 9), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_tokens),
        cmocka_unit_test(cached_greedy_equals_full_passes),
        cmocka_unit_test(cached_logits_equal_full_passes),
        cmocka_unit_test(a_ragged_batch_equals_one_at_a_time),
        cmocka_unit_test(a_beam_of_one_is_greedy),
        cmocka_unit_test(sources_are_forgotten),
        cmocka_unit_test(wrong_sources_are_refused),
        cmocka_unit_test(a_saved_model_is_the_same),
        cmocka_unit_test(a_head_of_its_own_is_kept),
        cmocka_unit_test(two_vocabularies),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(every_text_draws_for_itself),
        cmocka_unit_test(long_texts_are_cut_or_refused),
        cmocka_unit_test(a_prefix_comes_before_every_text),
        cmocka_unit_test(special_tokens_are_not_printed),
        cmocka_unit_test(several_texts_come_best_first),
        cmocka_unit_test(wrong_models_are_refused),
    };
    return cmocka_run_group_tests_name("rewrite", tests, set_up, tear_down);
}
