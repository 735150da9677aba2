/* test_cache.c - the continuous cache against its definition, in evaluation, tuning and generation; and texts that go on
 * beyond the context with attention sinks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/banyan.h"
#include "folder.h"
#include "generation.h"
#include "text/tokenizer.h"

enum { PART = 300, TOKENS = 2 * PART + 1, CONTEXT = 16, WIDTH = 16, STATE = 2 * WIDTH, VOCABULARY = 512 };

static by_device *device;
static by_tokenizer *tokenizer;
static by_model *model;
static const char *files[2];
static int32_t ids[TOKENS];

/* ---- the definition -------------------------------------------------------------------------- */

/* What the model says about each predicted token of a text. */
typedef struct reading {
    float states[TOKENS][STATE];
    double nats[TOKENS]; /* of ids[t + 1] */
    int count;
} reading;
static reading text;

/* Logits (n, V) and states (n, STATE) of some tokens in one pass. Zeros follow states that are narrower: all but Reformer's,
 * which are twice as wide as the model. */
static void run_pass(by_model *m, const int32_t *tokens, int n, float *z, float *h)
{
    static float states[CONTEXT * STATE];
    by_batch b = by_batch_of(1, n, tokens);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_NONE, .features = true});
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), z), BY_OK);
    const by_tensor *features = by_io_output(by_pass_io(p), "features");
    const size_t width = (size_t)by_dim(features, -1);
    assert_true(width <= STATE);
    assert_int_equal(by_pass_read(p, features, states), BY_OK);
    memset(h, 0, sizeof *h * STATE * (size_t)n);
    for (int t = 0; t < n; t++)
        memcpy(h + t * STATE, states + (size_t)t * width, sizeof *h * width);
    by_pass_free(p);
}

static double lse_of(const float *z, int n)
{
    double all = 0;
    for (int v = 0; v < n; v++)
        all += exp((double)z[v]);
    return log(all);
}

static void read_text(int count, int seq, int stride)
{
    static float z[CONTEXT * VOCABULARY], h[CONTEXT * STATE];
    const int vocab = by_model_vocab(model);
    text.count = 0;
    for (int begin = 0; text.count < count - 1; begin += stride) {
        const int n = BY_MIN(seq, count - 1 - begin), known = text.count - begin;
        run_pass(model, ids + begin, n, z, h);
        for (int t = known; t < n; t++) {
            memcpy(text.states[text.count], h + t * STATE, sizeof text.states[0]);
            text.nats[text.count++] =
                lse_of(z + t * vocab, vocab) - (double)z[t * vocab + ids[begin + t + 1]];
        }
    }
}

/* Weights of the pairs [from, t) for the state of t, in place of w. */
static void weigh(const float (*states)[STATE], int from, int t, double theta, double *w)
{
    double most = -INFINITY, sum = 0;
    for (int i = from; i < t; i++) {
        w[i] = 0;
        for (int c = 0; c < STATE; c++)
            w[i] += theta * (double)states[t][c] * (double)states[i][c];
        most = fmax(most, w[i]);
    }
    for (int i = from; i < t; i++)
        sum += w[i] = exp(w[i] - most);
    for (int i = from; i < t; i++)
        w[i] /= sum;
}

static double expected_nats(const by_continuous_cache *c)
{
    static double w[TOKENS];
    double nats = 0;
    for (int t = 0, document = 0; t < text.count; t++) {
        if (c->per_document && ids[t] == by_tokenizer_eos(tokenizer))
            document = t;
        const int from = BY_MAX(BY_MAX(t - c->size, 0), document);
        double p = 0;
        weigh((const float(*)[STATE])text.states, from, t, c->theta, w);
        for (int i = from; i < t; i++)
            p += ids[i + 1] == ids[t + 1] ? w[i] : 0;
        nats += from == t ? text.nats[t] : -log((1 - c->lambda) * exp(-text.nats[t]) + c->lambda * p);
    }
    return nats;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static void text_is_read_with_the_cache(void **state)
{
    (void)state;
    static const by_perplexity_spec specs[] = {
        {.batch = 3, .cache = {.size = 40, .theta = 0.3, .lambda = 0.25}},
        {.batch = 8, .cache = {.size = 400, .theta = 0.05, .lambda = 0.6}},
        {.batch = 2, .cache = {.size = 1, .theta = 2, .lambda = 0.1}},
        {.seq = 10, .stride = 4, .batch = 2, .cache = {.size = 100, .theta = 0.3, .lambda = 0.25}},
        {.max_tokens = 33, .cache = {.size = 1000, .theta = 0, .lambda = 0.5}},
        {.batch = 3, .cache = {.size = 400, .theta = 0.3, .lambda = 0.4, .per_document = true}},
    };
    double carried = 0;
    for (int k = 0; k < BY_COUNT(specs); k++) {
        by_perplexity_result r;
        if (by_perplexity(model, tokenizer, files, 2, &specs[k], &r) != BY_OK)
            fail_msg("%s", by_error_message());
        read_text(specs[k].max_tokens ? (int)specs[k].max_tokens : TOKENS, r.seq, r.stride);
        assert_int_equal(r.tokens, text.count);
        double plain = 0, nats = expected_nats(&specs[k].cache);
        for (int t = 0; t < text.count; t++)
            plain += text.nats[t];
        assert_true(fabs(r.plain_nats - plain) < 1e-5 * plain);
        assert_true(fabs(r.nats - nats) < 1e-5 * nats);
        assert_true(fabs(nats - plain) > 1e-4 * plain); /* else the cache would not be tested */
        if (specs[k].cache.per_document) {
            by_continuous_cache other = specs[k].cache;
            other.per_document = false;
            carried = expected_nats(&other);
            assert_true(fabs(carried - nats) > 1e-4 * nats);
        }
    }
    assert_true(carried > 0);
}

static void tuning_finds_the_best(void **state)
{
    (void)state;
    by_cache_tuning t;
    by_perplexity_spec spec = {.batch = 4, .cache = {.size = 200}};
    assert_int_equal(by_cache_tune(model, tokenizer, files, 2, &spec, &t), BY_OK);
    read_text(TOKENS, CONTEXT, CONTEXT);
    assert_true(fabs(t.result.nats - expected_nats(&t.cache)) < 1e-4 * t.result.nats);
    assert_true(t.result.nats < 0.9 * t.result.plain_nats); /* the text repeats itself */
    assert_int_equal(t.cache.size, 200);
    by_continuous_cache near = t.cache; /* no neighbour of lambda is better, nor any theta that was tried */
    for (int k = -1; k <= 1; k += 2) {
        near.lambda = fmin(fmax(t.cache.lambda + 0.01 * k, 0), 0.999);
        assert_true(expected_nats(&near) > t.result.nats - 1e-6 * t.result.nats);
    }
    for (int k = 0; k < BY_COUNT(t.nats); k++)
        assert_true(t.nats[k] >= t.result.nats);
    spec.cache = t.cache;
    by_perplexity_result r;
    assert_int_equal(by_perplexity(model, tokenizer, files, 2, &spec, &r), BY_OK);
    assert_true(fabs(r.nats - t.result.nats) < 1e-5 * r.nats);
    spec.cache = (by_continuous_cache){0};
    assert_int_equal(by_cache_tune(model, tokenizer, files, 2, &spec, &t), BY_ERR_ARGUMENT);
    spec.cache = (by_continuous_cache){.size = 4, .lambda = 1};
    assert_int_equal(by_perplexity(model, tokenizer, files, 2, &spec, &r), BY_ERR_ARGUMENT);
}

/* ---- generation ------------------------------------------------------------------------------ */

/* A text written by the definitions: greedy, in a context of `room` that starts again with `sinks` and the last
 * tokens, with or without a cache. */
typedef struct writing {
    int32_t tokens[TOKENS];
    float logprobs[TOKENS];
    float states[TOKENS][STATE];
} writing;
static writing expected;

static void write_next(by_model *m, int n, const float *z, const by_continuous_cache *c)
{
    static double p[VOCABULARY], w[TOKENS];
    const int vocab = by_model_vocab(m), last = n - 1, from = BY_MAX(last - c->size, 0);
    const double lse = lse_of(z, vocab), lambda = c->size && from < last ? c->lambda : 0;
    for (int v = 0; v < vocab; v++)
        p[v] = (1 - lambda) * exp((double)z[v] - lse);
    if (lambda > 0)
        weigh((const float(*)[STATE])expected.states, from, last, c->theta, w);
    for (int i = from; i < last && lambda > 0; i++)
        p[expected.tokens[i + 1]] += lambda * w[i];
    int best = 0;
    for (int v = 0; v < vocab; v++)
        best = p[v] > p[best] ? v : best;
    expected.tokens[n] = best;
    expected.logprobs[n] = (float)log(p[best]);
}

static void write_expected(by_model *m, int prompt, int count, int room, int sinks,
                           const by_continuous_cache *c)
{
    static float z[CONTEXT * VOCABULARY], h[CONTEXT * STATE];
    int32_t now[CONTEXT];
    const int vocab = by_model_vocab(m);
    int n = prompt, held = 0, known = 0; /* tokens of the context, and of the text that have states */
    while (n < count) {
        if (held + n - known > room) {
            const int last = (room - sinks) / 2;
            memcpy(now, expected.tokens, sizeof *now * (size_t)sinks);
            memcpy(now + sinks, expected.tokens + n - last, sizeof *now * (size_t)last);
            held = sinks + last;
        } else {
            memcpy(now + held, expected.tokens + known, sizeof *now * (size_t)(n - known));
            held += n - known;
        }
        run_pass(m, now, held, z, h);
        for (int i = known; i < n; i++)
            memcpy(expected.states[i], h + (held - (n - i)) * STATE, sizeof expected.states[0]);
        known = n;
        write_next(m, n++, z + (held - 1) * vocab, c);
    }
}

static int heard;
static bool hear(void *user, int row, int32_t token, float logprob)
{
    (void)user;
    if (row == 0) {
        assert_int_equal(token, expected.tokens[heard]);
        assert_true(fabsf(logprob - expected.logprobs[heard]) < 1e-4F);
        heard++;
    }
    return true;
}

static void assert_writes(by_model *m, int prompt, int room, int sinks, const by_continuous_cache *c)
{
    enum { NEW = 60 };
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 2, .capacity = room});
    if (!g)
        fail_msg("%s", by_error_message());
    const int32_t *prompts[2] = {ids, ids + 40};
    by_generate_result r;
    memcpy(expected.tokens, ids, sizeof *ids * (size_t)prompt);
    write_expected(m, prompt, prompt + NEW, room, sinks, c);
    heard = prompt;
    by_generate_spec spec = {
        .max_new_tokens = NEW, .slide = true, .sinks = sinks, .cache = *c, .token = hear};
    if (by_generate(g, prompts, (int[]){prompt, 3}, &spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(heard, prompt + NEW);
    by_generate_result_free(&r);
    spec.token = NULL; /* where tokens are chosen on the device, they are the same */
    assert_int_equal(by_generate(g, prompts, (int[]){prompt, 3}, &spec, &r), BY_OK);
    assert_int_equal(r.rows[0].count, prompt + NEW);
    assert_memory_equal(r.rows[0].tokens, expected.tokens, sizeof *ids * (size_t)(prompt + NEW));
    by_generate_result_free(&r);
    by_generator_free(g);
}

static by_model *model_of(const char *family)
{
    by_model_shape shape = {.layers = 2,
                            .heads = 2,
                            .width = WIDTH,
                            .context = CONTEXT,
                            .vocab = by_tokenizer_vocab_size(tokenizer)};
    by_model *m = by_model_new(device, family, &shape, &(by_model_spec){.task = BY_TASK_LM, .seed = 5});
    assert_non_null(m);
    sharpen(m, 12);
    return m;
}

static void texts_go_on_with_sinks_and_caches(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt2", "llama", "reformer"};
    static const by_continuous_cache none = {0}, cache = {.size = 24, .theta = 0.2, .lambda = 0.5};
    for (int k = 0; k < BY_COUNT(families); k++) {
        by_model *m = model_of(families[k]);
        for (int sinks = 0; sinks <= 4; sinks += 2) {
            assert_writes(m, 5, 14, sinks, &none);
            assert_writes(m, 5, 14, sinks, &cache);
        }
        by_model_free(m);
    }
}

static void a_long_prompt_keeps_its_sinks(void **state)
{
    (void)state;
    enum { PROMPT = 30, SINKS = 3 };
    by_model *m = model_of("gpt2");
    by_generator *g = by_generator_new(m, &(by_generator_spec){.capacity = CONTEXT});
    const int last = (CONTEXT - SINKS) / 2;
    int32_t cut[CONTEXT];
    memcpy(cut, ids, SINKS * sizeof *ids);
    memcpy(cut + SINKS, ids + PROMPT - last, sizeof *ids * (size_t)last);
    by_generate_result a, b;
    by_generate_spec spec = {.max_new_tokens = 5, .slide = true, .sinks = SINKS};
    assert_int_equal(by_generate(g, &(const int32_t *){ids}, &(int){PROMPT}, &spec, &a), BY_OK);
    assert_int_equal(by_generate(g, &(const int32_t *){cut}, &(int){SINKS + last}, &spec, &b), BY_OK);
    assert_memory_equal(a.rows[0].tokens + PROMPT, b.rows[0].tokens + SINKS + last, 5 * sizeof *ids);
    by_generate_result_free(&a);
    by_generate_result_free(&b);
    by_generator_free(g);
    by_model_free(m);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 2, .beams = 2});
    const int32_t *prompts[2] = {ids, ids};
    const by_generate_spec specs[] = {
        {.max_new_tokens = 4, .slide = true, .sinks = CONTEXT - 1},
        {.max_new_tokens = 4, .sinks = 2},
        {.max_new_tokens = 4, .slide = true, .sinks = -1},
        {.max_new_tokens = 4, .beam = {.width = 2}, .cache = {.size = 4, .lambda = 0.1}},
        {.max_new_tokens = 4, .cache = {.size = 4, .lambda = 1.5}},
        {.max_new_tokens = 4, .cache = {.size = 4, .theta = NAN}},
    };
    for (int i = 0; i < BY_COUNT(specs); i++) {
        by_generate_result r;
        assert_int_not_equal(by_generate(g, prompts, (int[]){3, 3}, &specs[i], &r), BY_OK);
        by_generate_result_free(&r);
    }
    by_generator_free(g);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int open_all(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    tokenizer = tok_new_bytes();
    if (!make_root("cache") || !device || !tokenizer)
        return -1;
    for (int k = 0; k < 2; k++) {
        char part[PART + 1] = "";
        for (int i = 0; i < PART; i++) {
            part[i] = (char)('a' + (i * i + k * i) % 23);
            ids[k * (PART + 1) + i] = part[i];
        }
        files[k] = write_text(k ? "second.txt" : "first.txt", part);
    }
    ids[PART] = by_tokenizer_eos(tokenizer);
    model = model_of("gpt2");
    return ids[PART] >= 0 ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    by_model_free(model);
    by_tokenizer_free(tokenizer);
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_read_with_the_cache),       cmocka_unit_test(tuning_finds_the_best),
        cmocka_unit_test(texts_go_on_with_sinks_and_caches), cmocka_unit_test(a_long_prompt_keeps_its_sinks),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("cache", tests, open_all, close_all);
}
