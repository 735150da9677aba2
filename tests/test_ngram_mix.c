/* test_ngram_mix.c - an n-gram model beside a neural one against the definition: texts that are read, the choice of the weight, texts that
 * are sampled, and beam searches against all texts there are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "banyan/banyan.h"
#include "folder.h"
#include "generation.h"
#include "text/tokenizer.h"

enum { VOCAB = 6, CONTEXT = 12, TOKENS = 40, LONG = 3, START = 2 };

static by_device *device;
static by_tokenizer *tokenizer;
static by_model *model;
static by_ngram *ngram;
static const char *held_out;
static int32_t ids[TOKENS];

/* Letters that like to follow each other in one order. */
static void make_text(char *text, int n, uint64_t seed)
{
    base_rng r = base_rng_make(seed, 0);
    for (int i = 0; i < n; i++)
        text[i] = i && base_rng_below(&r, 3) ? (char)('a' + (text[i - 1] - 'a' + 1) % VOCAB)
                                             : (char)('a' + base_rng_below(&r, VOCAB));
    text[n] = '\0';
}

static by_model *model_of(const char *family)
{
    const by_model_shape shape = {
        .layers = 1, .heads = 2, .width = 16, .context = CONTEXT, .vocab = by_tokenizer_vocab_size(tokenizer)};
    by_model *m = by_model_new(device, family, &shape, &(by_model_spec){.seed = 5});
    assert_non_null(m);
    sharpen(m, 10);
    return m;
}

static by_ngram *ngram_of(const char *text, const by_tokenizer *t, const char *name)
{
    const by_ngram_spec spec = {.order = 3, .discount_fallback = true};
    const char *path = in_root(name);
    if (by_ngram_train(&text, 1, t, &spec, path, NULL, NULL) != BY_OK)
        fail_msg("%s", by_error_message());
    by_ngram *m = by_ngram_open(path);
    assert_non_null(m);
    return m;
}

static int open_all(void **state)
{
    (void)state;
    char text[3001];
    if (!make_root("mix"))
        return -1;
    tokenizer = tok_new_chars(&(const char *){"abcdef"}, &(size_t){VOCAB}, 1);
    device = by_device_open("cpu", 1);
    make_text(text, 3000, 1);
    ngram = ngram_of(write_text("text", text), tokenizer, "model.bin");
    make_text(text, TOKENS, 2);
    held_out = write_text("held-out", text);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = text[i] - 'a';
    model = model_of("gpt2");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    by_ngram_free(ngram);
    by_model_free(model);
    by_device_free(device);
    by_tokenizer_free(tokenizer);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* Probabilities of the neural model after some tokens. */
static void neural(const int32_t *tokens, int n, double *out)
{
    float z[VOCAB];
    double all = 0;
    row_logits(model, tokens, n, z);
    for (int v = 0; v < VOCAB; v++)
        all += out[v] = exp((double)z[v]);
    for (int v = 0; v < VOCAB; v++)
        out[v] /= all;
}

/* Those of the n-gram model after tokens from the beginning of a text on, token by token. */
static void counted(const int32_t *tokens, int n, double *out)
{
    by_ngram_state s = by_ngram_begin(ngram);
    for (int i = 0; i < n; i++)
        by_ngram_token_score(ngram, &s, tokens[i], &s);
    for (int v = 0; v < VOCAB; v++)
        out[v] = exp(by_ngram_token_score(ngram, &s, v, NULL));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Nats of the held-out text in windows without overlap; the n-gram model sees everything before. */
static double expected_nats(int seq, double weight)
{
    double nats = 0, p[VOCAB], q[VOCAB];
    for (int t = 1; t < TOKENS; t++) {
        const int begin = (t - 1) / seq * seq;
        neural(ids + begin, t - begin, p);
        counted(ids, t, q);
        nats -= log((1 - weight) * p[ids[t]] + weight * q[ids[t]]);
    }
    return nats;
}

static void test_reading(void **state)
{
    (void)state;
    static const double weights[] = {0, 0.3, 1};
    for (int i = 0; i < BY_COUNT(weights); i++)
        for (int seq = 5; seq <= CONTEXT; seq += 7) {
            by_perplexity_result r;
            const by_perplexity_spec spec = {.seq = seq, .batch = 3, .ngram = {ngram, weights[i]}};
            assert_int_equal(by_perplexity(model, tokenizer, &held_out, 1, &spec, &r), BY_OK);
            assert_int_equal(r.tokens, TOKENS - 1);
            assert_true(fabs(r.nats - expected_nats(seq, weights[i])) < 1e-3);
            assert_true(fabs(r.plain_nats - expected_nats(seq, 0)) < 1e-3);
        }
}

/* No weight of a grid is better than the chosen one. */
static void test_tuning(void **state)
{
    (void)state;
    const by_perplexity_spec spec = {.ngram = {.model = ngram}};
    by_perplexity_result r;
    double weight, best = 0, least = INFINITY;
    assert_int_equal(by_ngram_tune(model, tokenizer, &held_out, 1, &spec, &weight, &r), BY_OK);
    for (double w = 0; w < 1; w += 0.02) {
        const double nats = expected_nats(CONTEXT, w);
        best = nats < least ? w : best;
        least = fmin(least, nats);
    }
    assert_true(best > 0 && best < 1); /* the case says something */
    assert_true(fabs(weight - best) <= 0.02);
    assert_true(r.nats <= least + 1e-3);
}

/* ---- generation ------------------------------------------------------------------------------ */

/* Greedy texts are the argmax of the mixture, step by step. */
static void test_sampling(void **state)
{
    (void)state;
    int different = 0;
    for (int i = 0; i <= 4; i++) {
        const by_generate_spec spec = {.max_new_tokens = 8, .ngram = {ngram, i * 0.25}};
        by_generate_result r = find(model, &(const int32_t *){ids}, &(int){2}, 1, &spec);
        int32_t text[10] = {ids[0], ids[1]};
        for (int n = 2; n < 10; n++) {
            double p[VOCAB], q[VOCAB], most = -1;
            neural(text, n, p);
            counted(text, n, q);
            for (int v = 0; v < VOCAB; v++) {
                const double mixed = (1 - spec.ngram.weight) * p[v] + spec.ngram.weight * q[v];
                text[n] = mixed > most ? v : text[n];
                most = fmax(most, mixed);
            }
        }
        assert_int_equal(r.rows[0].count, 10);
        assert_memory_equal(r.rows[0].tokens, text, sizeof text);
        const by_generate_spec alone = {.max_new_tokens = 8};
        by_generate_result plain = find(model, &(const int32_t *){ids}, &(int){2}, 1, &alone);
        different += memcmp(plain.rows[0].tokens, text, sizeof text) != 0;
        assert_true(i > 0 || different == 0);
        by_generate_result_free(&plain);
        by_generate_result_free(&r);
    }
    assert_true(different > 0);
}

/* The best of all texts of LONG tokens after a prompt. */
static double search_all(double weight, int32_t best[LONG])
{
    double most = -INFINITY;
    for (int k = 0; k < VOCAB * VOCAB * VOCAB; k++) {
        int32_t text[2 + LONG] = {ids[0], ids[1], k / VOCAB / VOCAB, k / VOCAB % VOCAB, k % VOCAB};
        double sum = 0, p[VOCAB], q[VOCAB];
        for (int n = 2; n < 2 + LONG; n++) {
            neural(text, n, p);
            counted(text, n, q);
            sum += log(p[text[n]]) + weight * log(q[text[n]]);
        }
        if (sum > most) {
            most = sum;
            memcpy(best, text + 2, LONG * sizeof *best);
        }
    }
    return most;
}

/* A beam that leaves nothing out finds it, and so do narrow ones here or a worse text. */
static void test_fusion(void **state)
{
    (void)state;
    static const double weights[] = {0, 0.5, 2};
    for (int i = 0; i < BY_COUNT(weights); i++) {
        int32_t best[LONG];
        const double most = search_all(weights[i], best);
        for (int width = 4; width <= 64; width *= 16) {
            const by_generate_spec spec = {
                .max_new_tokens = LONG, .beam = {.width = width}, .ngram = {ngram, weights[i]}};
            by_generate_result r = find(model, &(const int32_t *){ids}, &(int){2}, 1, &spec);
            assert_true((double)r.rows[0].score <= most + 1e-4);
            if (width == 64) {
                assert_true(fabs((double)r.rows[0].score - most) < 1e-4);
                assert_memory_equal(r.rows[0].tokens + 2, best, sizeof best);
            }
            by_generate_result_free(&r);
        }
    }
}

/* The log-probability of a text under an encoder-decoder and, from its beginning on, under the n-gram model. */
static double pair_score(by_generator *g, const int32_t *source, int n, const int32_t *text, double weight)
{
    double sum = 0, q[VOCAB];
    int32_t fed[1 + LONG] = {START};
    memcpy(fed + 1, text, LONG * sizeof *text);
    assert_int_equal(by_generator_encode(g, &source, &n), BY_OK);
    for (int i = 0; i < LONG; i++) {
        double all = 0;
        assert_int_equal(by_generator_feed(g, &(const int32_t *){fed + i}, &(int){1}), BY_OK);
        const float *z = by_generator_logits(g, 0);
        for (int v = 0; v < VOCAB; v++)
            all += exp((double)z[v]);
        counted(text, i, q);
        sum += (double)z[text[i]] - log(all) + weight * log(q[text[i]]);
    }
    return sum;
}

/* Of an encoder-decoder the n-gram model sees what is generated, not the start token. */
static void test_fusion_of_pairs(void **state)
{
    (void)state;
    by_model *m = model_of("transformer");
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 1});
    assert_non_null(g);
    const by_generate_spec spec = {
        .max_new_tokens = LONG, .start = &(int32_t){START}, .beam = {.width = 64}, .ngram = {ngram, 0.7}};
    by_generate_result r = find(m, &(const int32_t *){ids}, &(int){5}, 1, &spec);
    double most = -INFINITY;
    for (int k = 0; k < VOCAB * VOCAB * VOCAB; k++) {
        const int32_t text[LONG] = {k / VOCAB / VOCAB, k / VOCAB % VOCAB, k % VOCAB};
        most = fmax(most, pair_score(g, ids, 5, text, 0.7));
    }
    assert_int_equal(r.rows[0].count, r.rows[0].prompt + LONG);
    assert_true(fabs((double)r.rows[0].score - most) < 1e-4);
    assert_true(fabs(pair_score(g, ids, 5, r.rows[0].tokens + r.rows[0].prompt, 0.7) - most) < 1e-4);
    by_generate_result_free(&r);
    by_generator_free(g);
    by_model_free(m);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    by_tokenizer *bytes = tok_new_bytes(),
                 *other = tok_new_chars(&(const char *){"abcdeg"}, &(size_t){VOCAB}, 1);
    by_ngram *words = ngram_of(held_out, NULL, "words.bin"), *large = ngram_of(held_out, bytes, "bytes.bin");
    const by_ngram_mix wrong[] = {{words, 0.3}, {large, 0.3}, {ngram, -0.1}, {ngram, 1.1}, {ngram, NAN}};
    for (int i = 0; i < BY_COUNT(wrong); i++) {
        by_perplexity_result r;
        by_generate_result g;
        const by_perplexity_spec read = {.ngram = wrong[i]};
        assert_int_equal(by_perplexity(model, tokenizer, &held_out, 1, &read, &r), BY_ERR_ARGUMENT);
        by_generator *generator = by_generator_new(model, &(by_generator_spec){.batch = 1});
        const by_generate_spec write = {.max_new_tokens = 3, .ngram = wrong[i]};
        assert_int_equal(by_generate(generator, &(const int32_t *){ids}, &(int){2}, &write, &g),
                         BY_ERR_ARGUMENT);
        by_generate_result_free(&g);
        by_generator_free(generator);
    }
    assert_int_equal(by_ngram_check_tokenizer(ngram, tokenizer), BY_OK);
    assert_int_equal(by_ngram_check_tokenizer(ngram, other), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "another tokenizer"));
    assert_int_equal(by_ngram_check_tokenizer(words, tokenizer), BY_ERR_ARGUMENT);
    by_ngram_free(words);
    by_ngram_free(large);
    by_tokenizer_free(bytes);
    by_tokenizer_free(other);
}

/* The state after a text is that of its last tokens, also where end-of-text tokens stand. */
static void test_states(void **state)
{
    (void)state;
    by_tokenizer *bytes = tok_new_bytes();
    by_ngram *m = ngram_of(held_out, bytes, "bytes.bin");
    int32_t text[30];
    base_rng r = base_rng_make(9, 0);
    for (int i = 0; i < 30; i++)
        text[i] = base_rng_below(&r, 4) ? 'a' + (int32_t)base_rng_below(&r, VOCAB) : by_tokenizer_eos(bytes);
    by_ngram_state s = by_ngram_begin(m);
    for (int n = 0; n < 30; n++) {
        const by_ngram_state after = by_ngram_after(m, text, n);
        float few[2];
        by_ngram_token_scores(m, &after, (const int32_t[]){'b', 400}, 2, few);
        assert_true(fabs(by_ngram_token_score(m, &s, 'b', NULL) - (double)few[0]) < 1e-5);
        assert_true(few[1] == -INFINITY);
        by_ngram_token_score(m, &s, text[n], &s);
    }
    by_ngram_free(m);
    by_tokenizer_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),         cmocka_unit_test(test_tuning),
        cmocka_unit_test(test_sampling),        cmocka_unit_test(test_fusion),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_states),
        cmocka_unit_test(test_fusion_of_pairs),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
