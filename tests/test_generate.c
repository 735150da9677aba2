/* test_generate.c - cached decoding against the whole forward pass, batches against single rows, the recorded
 * texts of the reference implementation, the ways a text ends, and text as it comes out of tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "banyan/generate.h"
#include "base/file.h"
#include "infer/generator.h"
#include "infer/stream.h"
#include "io/weights.h"
#include "generation.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

enum { CONTEXT = 80, VOCAB = 61 };

static by_device *device;
static by_model *model; /* small, random, and far enough from uniform that likeliest tokens are clear */

/* ---- a model to try things on ---------------------------------------------------------------- */

static int open_family(const char *family)
{
    char dir[512];
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/banyan-generate-XXXXXX", tmp ? tmp : "/tmp");
    device = by_device_open("cpu", 2);
    if (!device || !mkdtemp(dir))
        return -1;
    by_model_shape shape = {.layers = 2, .heads = 4, .width = 32, .context = CONTEXT, .vocab = VOCAB};
    by_model *fresh = by_model_new(device, family, &shape, &(by_model_spec){.seed = 3});
    assert_non_null(fresh);
    sharpen(fresh, 10);
    assert_int_equal(by_model_save(fresh, dir, BY_F32), BY_OK);
    by_model_free(fresh);
    model = by_model_open(device, dir, &(by_model_spec){.copy = true});
    if (!model)
        print_error("%s\n", by_error_message());
    return model && base_dir_remove(dir) == BY_OK ? 0 : -1;
}

static int open_model(void **state)
{
    (void)state;
    return open_family("gpt2");
}

/* Rotary positions and shared key/value heads. */
static int open_llama(void **state)
{
    (void)state;
    return open_family("llama");
}

/* Interleaved rotary positions in a part of each head, attention and feed-forward in parallel. */
static int open_gptj(void **state)
{
    (void)state;
    return open_family("gptj");
}

/* Positions of a pattern count from the start of the text. */
static int open_sparse(void **state)
{
    (void)state;
    return open_family("sparse-transformer");
}

static int close_model(void **state)
{
    (void)state;
    by_model_free(model);
    by_device_free(device);
    return 0;
}

static by_generator *open_generator(int batch, int capacity)
{
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = batch, .capacity = capacity});
    assert_non_null(g);
    return g;
}

/* Tokens 0 .. n - 1 of a fixed random text. */
static const int32_t *text_of(uint64_t which, int n)
{
    static int32_t texts[8][256];
    base_rng r = base_rng_make(21, which);
    for (int i = 0; i < n; i++)
        texts[which][i] = (int32_t)base_rng_below(&r, VOCAB);
    return texts[which];
}

static int32_t full_argmax(by_model *m, const int32_t *tokens, int n)
{
    float logits[VOCAB];
    int32_t best = 0;
    row_logits(m, tokens, n, logits);
    for (int i = 1; i < VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static by_generate_result generate(by_generator *g, const int32_t *const *prompts, const int *lengths,
                                   const by_generate_spec *spec)
{
    by_generate_result r;
    if (by_generate(g, prompts, lengths, spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    return r;
}

static void assert_same_text(const by_generation *a, const by_generation *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Whatever pieces a text is fed in, the logits after it are those of one pass over the whole. */
static void feeding_in_pieces_equals_one_pass(void **state)
{
    (void)state;
    const int pieces[][6] = {
        {1}, {5}, {16}, {17}, {33, 1, 1}, {64, 10}, {80}, {1, 1, 1, 40, 20}, {3, 16, 2, 16, 43}};
    for (int c = 0; c < BY_COUNT(pieces); c++) {
        by_generator *g = open_generator(1, 0);
        const int32_t *text = text_of(0, CONTEXT);
        float expected[VOCAB];
        int n = 0;
        assert_null(by_generator_logits(g, 0));
        for (int i = 0; i < 6 && pieces[c][i]; i++) {
            assert_int_equal(by_generator_feed(g, &(const int32_t *){text + n}, &pieces[c][i]), BY_OK);
            n += pieces[c][i];
            assert_int_equal(by_generator_length(g, 0), n);
            row_logits(model, text, n, expected);
            assert_true(nmse(by_generator_logits(g, 0), expected, VOCAB) < 1e-10);
        }
        by_generator_free(g);
    }
}

/* Steps that never come back to the host choose what the logits say, also beside a row that rests. */
static void greedy_runs_choose_the_likeliest(void **state)
{
    (void)state;
    enum { STEPS = 20, HELD = 9 };
    by_generator *g = open_generator(3, 0);
    const int counts[3] = {HELD, 4, 30};
    const bool active[3] = {true, false, true};
    const int32_t *next[3];
    int32_t text[3][CONTEXT], first[3], out[STEPS * 3];
    for (int b = 0; b < 3; b++) {
        memcpy(text[b], text_of((uint64_t)b, CONTEXT), sizeof text[b]);
        next[b] = text[b];
    }
    assert_int_equal(by_generator_feed(g, next, counts), BY_OK);
    for (int run = 0; run < 2; run++) {
        for (int b = 0; b < 3; b++)
            first[b] = text[b][counts[b] + run * STEPS];
        assert_int_equal(by_generator_greedy(g, first, active, STEPS, out), BY_OK);
        for (int b = 0; b < 3; b += 2)
            for (int s = 0; s < STEPS; s++) {
                int n = counts[b] + run * STEPS + s + 1;
                assert_int_equal(out[s * 3 + b], full_argmax(model, text[b], n));
                text[b][n] = out[s * 3 + b];
            }
        assert_int_equal(by_generator_length(g, 0), HELD + (run + 1) * STEPS);
        assert_int_equal(by_generator_length(g, 1), counts[1]);
        assert_null(by_generator_logits(g, 0));
    }
    assert_int_equal(by_generator_greedy(g, first, active, 33, out), BY_ERR_ARGUMENT);
    first[0] = VOCAB;
    assert_int_equal(by_generator_greedy(g, first, active, 1, out), BY_ERR_ARGUMENT);
    by_generator_free(g);
}

/* Steps that never come back to the host draw what by_generate draws, whatever row a text has, and beside one that rests. */
static void drawn_runs_are_those_of_the_host(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    by_generator *g = open_generator(3, 0);
    const int counts[3] = {9, 0, 30};
    const int32_t samples[3] = {5, 0, 1};
    const int32_t *prompts[3] = {text_of(0, CONTEXT), NULL, text_of(2, CONTEXT)};
    const by_generate_spec spec = {.sampling = {.temperature = 0.8, .seed = 0x123456789abcdef0},
                                   .samples = samples,
                                   .max_new_tokens = STEPS + 1,
                                   .ignore_eos = true};
    by_generate_result r = generate(g, prompts, counts, &spec);
    by_draw_spec draws[3] = {{0}};
    int32_t first[3] = {0}, out[STEPS * 3];
    for (int b = 0; b < 3; b += 2) {
        by_generator_rewind(g, b, counts[b]);
        first[b] = r.rows[b].tokens[counts[b]];
        draws[b] = (by_draw_spec){spec.sampling.seed, (uint64_t)samples[b], 1, 0.8f};
    }
    const bool active[3] = {true, false, true};
    assert_int_equal(by_generator_draw(g, first, active, draws, STEPS, out), BY_OK);
    for (int b = 0; b < 3; b += 2)
        for (int s = 0; s < STEPS; s++)
            assert_int_equal(out[s * 3 + b], r.rows[b].tokens[counts[b] + 1 + s]);
    draws[0].temperature = 0;
    assert_int_equal(by_generator_draw(g, first, active, draws, 1, out), BY_ERR_ARGUMENT);
    by_generate_result_free(&r);
    by_generator_free(g);
}

static void rows_grow_at_their_own_pace(void **state)
{
    (void)state;
    by_generator *g = open_generator(3, 0);
    const int counts[][3] = {{20, 0, 3}, {0, 7, 40}, {1, 1, 1}, {2, 70, 0}};
    int at[3] = {0};
    float expected[VOCAB];
    for (int step = 0; step < BY_COUNT(counts); step++) {
        const int32_t *next[3];
        for (int b = 0; b < 3; b++)
            next[b] = counts[step][b] ? text_of((uint64_t)b, CONTEXT) + at[b] : NULL;
        assert_int_equal(by_generator_feed(g, next, counts[step]), BY_OK);
        for (int b = 0; b < 3; b++) {
            at[b] += counts[step][b];
            if (!at[b]) {
                assert_null(by_generator_logits(g, b));
                continue;
            }
            row_logits(model, text_of((uint64_t)b, CONTEXT), at[b], expected);
            assert_true(nmse(by_generator_logits(g, b), expected, VOCAB) < 1e-10);
        }
    }
    by_generator_free(g);
}

static void a_rewound_row_forgets(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 0);
    const int32_t *old = text_of(1, 30), *fresh = text_of(2, 10);
    int32_t mixed[20];
    float expected[VOCAB];
    assert_int_equal(by_generator_feed(g, &old, &(int){30}), BY_OK);
    by_generator_rewind(g, 0, 40);
    assert_non_null(by_generator_logits(g, 0));
    by_generator_rewind(g, 0, 10);
    assert_null(by_generator_logits(g, 0));
    assert_int_equal(by_generator_length(g, 0), 10);
    assert_int_equal(by_generator_feed(g, &fresh, &(int){10}), BY_OK);
    memcpy(mixed, old, sizeof *old * 10);
    memcpy(mixed + 10, fresh, sizeof *fresh * 10);
    row_logits(model, mixed, 20, expected);
    assert_true(nmse(by_generator_logits(g, 0), expected, VOCAB) < 1e-10);
    by_generator_free(g);
}

/* Rows that get the same tokens at first have the same logits, and go on alone from there. */
static void rows_that_begin_alike_are_fed_once(void **state)
{
    (void)state;
    enum { ROWS = 6, HELD = 20 };
    const int which[ROWS] = {0, 0, 0, 1, 2, 2};
    const int counts[ROWS] = {HELD, HELD, HELD, HELD, HELD, HELD}, one[ROWS] = {1, 1, 1, 1, 1, 1};
    float expected[VOCAB];
    for (int top = 0; top <= 3; top += 3) {
        by_generator *g = open_generator(ROWS, 0);
        const int32_t *next[ROWS];
        int32_t text[ROWS][HELD + 1];
        for (int b = 0; b < ROWS; b++) {
            memcpy(text[b], text_of((uint64_t)which[b], HELD), HELD * sizeof **text);
            text[b][HELD] = b;
            next[b] = text[b];
        }
        assert_int_equal(by_generator_keep_top(g, top), BY_OK);
        assert_int_equal(by_generator_feed(g, next, counts), BY_OK);
        assert_non_null(g->share.program);
        for (int b = 0; b < ROWS; b++) {
            row_logits(model, text[b], HELD, expected);
            assert_int_equal(by_generator_length(g, b), HELD);
            assert_true(nmse(by_generator_logits(g, b), expected, VOCAB) < 1e-10);
            if (top)
                assert_int_equal(by_generator_top(g, b)->ids[0], full_argmax(model, text[b], HELD));
            next[b] = text[b] + HELD;
        }
        assert_int_equal(by_generator_feed(g, next, one), BY_OK);
        for (int b = 0; b < ROWS; b++) {
            row_logits(model, text[b], HELD + 1, expected);
            assert_true(nmse(by_generator_logits(g, b), expected, VOCAB) < 1e-10);
        }
        by_generator_free(g);
    }
}

/* Rows of other lengths, rows that hold something, and rows behind others are fed themselves. */
static void rows_that_differ_are_fed_themselves(void **state)
{
    (void)state;
    const int32_t *texts[3] = {text_of(0, 30), text_of(1, 30), text_of(0, 30)}, *same[3];
    const int counts[3] = {20, 20, 20}, lengths[3] = {20, 20, 19};
    float expected[VOCAB];
    by_generator *g = open_generator(3, 0);
    for (int turn = 0; turn < 3; turn++) {
        for (int b = 0; b < 3; b++)
            same[b] = texts[0];
        for (int b = 0; turn < 2 && b < 3; b++)
            by_generator_rewind(g, b, 0);
        assert_int_equal(by_generator_feed(g, turn == 0 ? texts : same, turn == 1 ? lengths : counts), BY_OK);
        assert_true((g->share.program != NULL) == (turn > 0)); /* the first two rows of the second turn */
    }
    assert_int_equal(by_generator_length(g, 1), 40);
    assert_int_equal(by_generator_length(g, 2), 39);
    int32_t twice[40];
    memcpy(twice, texts[0], 20 * sizeof *twice);
    memcpy(twice + 20, texts[0], 20 * sizeof *twice);
    row_logits(model, twice, 40, expected);
    assert_true(nmse(by_generator_logits(g, 1), expected, VOCAB) < 1e-10);
    by_generator_free(g);
}

static void wrong_food_is_refused(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 8);
    const int32_t good[8] = {1, 2, 3, 4, 5, 6, 7, 8}, bad[2] = {1, VOCAB}, negative[1] = {-1};
    assert_int_equal(by_generator_feed(g, &(const int32_t *){bad}, &(int){2}), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_feed(g, &(const int32_t *){negative}, &(int){1}), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_feed(g, &(const int32_t *){good}, &(int){-1}), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_length(g, 0), 0);
    assert_int_equal(by_generator_feed(g, &(const int32_t *){good}, &(int){8}), BY_OK);
    assert_int_equal(by_generator_feed(g, &(const int32_t *){good}, &(int){1}), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "capacity of 8"));
    by_generator_free(g);
    assert_null(by_generator_new(model, &(by_generator_spec){.capacity = CONTEXT + 1}));
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = -1}));
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void cached_greedy_equals_full_forward(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 0);
    int32_t text[CONTEXT + 1];
    int n = 5;
    memcpy(text, text_of(0, n), sizeof *text * (size_t)n);
    while (n <= CONTEXT) {
        text[n] = full_argmax(model, text, n);
        n++;
    }
    by_generate_result r = generate(g, &(const int32_t *){text}, &(int){5}, &(by_generate_spec){0});
    assert_int_equal(r.rows[0].finish, BY_FINISH_LENGTH);
    assert_int_equal(r.rows[0].prompt, 5);
    assert_int_equal(r.rows[0].count, CONTEXT + 1);
    assert_int_equal(r.new_tokens, CONTEXT + 1 - 5);
    assert_int_equal(r.prompt_tokens, 5);
    assert_memory_equal(r.rows[0].tokens, text, sizeof text);
    by_generate_result_free(&r);
    by_generator_free(g);
}

static void a_batch_equals_one_at_a_time(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    const int lengths[ROWS] = {1, 30, 7, 0, 17};
    const int32_t *prompts[ROWS];
    by_generate_spec greedy = {.max_new_tokens = 20}, drawn = greedy;
    drawn.sampling = (by_sampling){.temperature = 1, .top_p = 0.95, .repetition_penalty = 1.2, .seed = 4};
    for (int b = 0; b < ROWS; b++)
        prompts[b] = lengths[b] ? text_of((uint64_t)b, lengths[b]) : NULL;
    by_generator *all = open_generator(ROWS, 0), *one = open_generator(1, 0);
    for (int way = 0; way < 2; way++) {
        by_generate_spec spec = way ? drawn : greedy;
        by_generate_result together = generate(all, prompts, lengths, &spec);
        for (int b = 0; b < ROWS; b++) {
            if (!prompts[b]) {
                assert_null(together.rows[b].tokens);
                continue;
            }
            spec.first_sample = b;
            by_generate_result alone = generate(one, &prompts[b], &lengths[b], &spec);
            assert_same_text(&together.rows[b], &alone.rows[0]);
            by_generate_result_free(&alone);
        }
        by_generate_result_free(&together);
    }
    by_generator_free(all);
    by_generator_free(one);
}

static void the_seed_decides(void **state)
{
    (void)state;
    by_generator *g = open_generator(2, 0);
    const int32_t *prompts[] = {text_of(0, 4), text_of(0, 4)};
    const int lengths[] = {4, 4};
    by_generate_spec spec = {.max_new_tokens = 30, .sampling = {.temperature = 1, .seed = 1}};
    by_generate_result a = generate(g, prompts, lengths, &spec), again = generate(g, prompts, lengths, &spec);
    spec.sampling.seed = 2;
    by_generate_result b = generate(g, prompts, lengths, &spec);
    assert_same_text(&a.rows[0], &again.rows[0]);
    assert_same_text(&a.rows[1], &again.rows[1]);
    assert_memory_not_equal(a.rows[0].tokens, a.rows[1].tokens,
                            sizeof(int32_t) * 34); /* two samples of one prompt */
    assert_memory_not_equal(a.rows[0].tokens, b.rows[0].tokens, sizeof(int32_t) * 34);
    by_generate_result_free(&a);
    by_generate_result_free(&again);
    by_generate_result_free(&b);
    by_generator_free(g);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    const int32_t *prompt = text_of(2, 12);
    by_generate_spec spec = {.max_new_tokens = 40, .sampling = {.temperature = 1, .seed = 9}};
    by_generate_result r[2];
    for (int i = 0; i < 2; i++) {
        by_device *d = by_device_open("cpu", 1 + 2 * i);
        by_model_shape shape = {.layers = 1, .heads = 2, .width = 32, .context = CONTEXT, .vocab = VOCAB};
        by_model *m = by_model_new(d, "gpt2", &shape, &(by_model_spec){.seed = 5});
        assert_non_null(m);
        by_generator *g = by_generator_new(m, &(by_generator_spec){0});
        assert_non_null(g);
        r[i] = generate(g, &prompt, &(int){12}, &spec);
        by_generator_free(g);
        by_model_free(m);
        by_device_free(d);
    }
    assert_same_text(&r[0].rows[0], &r[1].rows[0]);
    by_generate_result_free(&r[0]);
    by_generate_result_free(&r[1]);
}

/* ---- pages, and sequences that come and go --------------------------------------------------- */

/* Where positions lie in memory changes no bit of the logits. */
static void pages_change_nothing(void **state)
{
    (void)state;
    const int feeds[][3] = {{5, 33, 1}, {1, 1, 1}, {0, 3, 0}, {20, 0, 1}, {0, 0, 1}, {17, 1, 40}};
    by_generator *g[2] = {by_generator_new(model, &(by_generator_spec){.batch = 3}),
                          by_generator_new(model, &(by_generator_spec){.batch = 3, .page = 16})};
    assert_true(g[0] && g[1]);
    for (int round = 0; round < 2; round++) {
        int held[3] = {0};
        for (int i = 0; i < BY_COUNT(feeds); i++) {
            const int32_t *next[3];
            for (int b = 0; b < 3; b++) {
                next[b] = text_of((uint64_t)b, CONTEXT) + held[b];
                held[b] += feeds[i][b];
            }
            for (int k = 0; k < 2; k++)
                assert_int_equal(by_generator_feed(g[k], next, feeds[i]), BY_OK);
            for (int b = 0; b < 3; b++)
                if (feeds[i][b])
                    assert_memory_equal(by_generator_logits(g[0], b), by_generator_logits(g[1], b),
                                        sizeof(float) * VOCAB);
        }
        const int32_t first[3] = {1, 2, 3};
        const bool active[3] = {round == 0, true, round == 1};
        int32_t out[2][3 * 8] = {{0}};
        for (int k = 0; k < 2; k++)
            assert_int_equal(by_generator_greedy(g[k], first, active, 8, out[k]), BY_OK);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        for (int k = 0; k < 2; k++)
            for (int b = 0; b < 3; b++)
                by_generator_rewind(g[k], b, 0);
    }
    by_generator_free(g[0]);
    by_generator_free(g[1]);
}

/* Rows take pages as they grow and give them back; what does not fit is refused, and nothing is lost. */
static void pages_run_out(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 3, .page = 16, .pages = 4});
    assert_non_null(g);
    assert_int_equal(by_generator_room(g), 64);
    const int32_t *next[3] = {text_of(0, 40), text_of(1, 40), text_of(2, 40)};
    assert_int_equal(by_generator_feed(g, next, (int[]){17, 16, 0}), BY_OK);
    assert_int_equal(by_generator_room(g), 16);
    assert_int_equal(by_generator_feed(g, next, (int[]){0, 1, 1}), BY_ERR_MEMORY);
    assert_int_equal(by_generator_length(g, 1), 16);
    assert_int_equal(by_generator_room(g), 16);
    by_generator_rewind(g, 0, 16);
    assert_int_equal(by_generator_room(g), 32);
    assert_int_equal(by_generator_feed(g, next, (int[]){0, 1, 1}), BY_OK);
    assert_int_equal(by_generator_room(g), 0);
    float expected[VOCAB];
    int32_t text[17];
    memcpy(text, next[1], 16 * sizeof *text);
    text[16] = next[1][0];
    row_logits(model, text, 17, expected);
    assert_true(nmse(by_generator_logits(g, 1), expected, VOCAB) < 1e-10);
    by_generator_free(g);
    /* rows that fit into one page take it, and there may be fewer pages than rows */
    g = by_generator_new(model, &(by_generator_spec){.batch = 3, .capacity = 8, .page = 64, .pages = 2});
    assert_non_null(g);
    assert_int_equal(by_generator_feed(g, next, (int[]){4, 4, 4}), BY_ERR_MEMORY);
    assert_int_equal(by_generator_feed(g, next, (int[]){4, 0, 4}), BY_OK);
    row_logits(model, next[2], 4, expected);
    assert_true(nmse(by_generator_logits(g, 2), expected, VOCAB) < 1e-10);
    by_generator_free(g);
    assert_null(by_generator_new(model, &(by_generator_spec){.page = 24}));
    assert_null(by_generator_new(model, &(by_generator_spec){.page = 512}));
    assert_null(by_generator_new(model, &(by_generator_spec){.pages = 3}));
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = 2, .beams = 2, .page = 16}));
}

enum { REQUESTS = 9 };

/* What a request asks for: greedy, or drawn with a seed of its own. */
static by_sequence_spec request_of(int i)
{
    by_sequence_spec s = {.max_new_tokens = 5 + 7 * (i % 4), .sample = i};
    if (i % 2)
        s.sampling = (by_sampling){.temperature = 1, .top_p = 0.95, .seed = (uint64_t)i};
    if (i % 3 == 1)
        s.sampling.repetition_penalty = 1.3;
    return s;
}

static const int request_lengths[REQUESTS] = {3, 40, 1, 17, 9, 30, 5, 2, 12};

static void assert_alone(int i, const int32_t *tokens, int count)
{
    by_generator *g = open_generator(1, 0);
    const by_sequence_spec s = request_of(i);
    const by_generate_spec spec = {
        .sampling = s.sampling, .max_new_tokens = s.max_new_tokens, .first_sample = s.sample};
    const int32_t *prompt = text_of((uint64_t)i % 8, request_lengths[i]);
    by_generate_result r = generate(g, &prompt, &request_lengths[i], &spec);
    assert_int_equal(count, r.rows[0].count - r.rows[0].prompt);
    assert_memory_equal(tokens, r.rows[0].tokens + r.rows[0].prompt, sizeof *tokens * (size_t)count);
    by_generate_result_free(&r);
    by_generator_free(g);
}

/* Requests enter as soon as there is a row, at different times, and get the tokens that they get alone. The
 * fifth is removed half-way. */
static void serve(const by_generator_spec *shape)
{
    by_generator *g = by_generator_new(model, shape);
    int32_t tokens[REQUESTS][64];
    int counts[REQUESTS] = {0}, owner[4] = {-1, -1, -1, -1}, next = 0, done = 0;
    assert_non_null(g);
    for (int step = 0; done < REQUESTS; step++) {
        by_sequence_token out[4];
        int n, row;
        const int32_t *prompt = next < REQUESTS ? text_of((uint64_t)next % 8, request_lengths[next]) : NULL;
        if (next < REQUESTS && (step % 3 != 1 || next == done)) {
            const by_sequence_spec spec = request_of(next);
            if (by_generator_add(g, prompt, request_lengths[next], &spec, &row) == BY_OK)
                owner[row] = next++;
        }
        assert_int_equal(by_generator_step(g, out, &n), BY_OK);
        for (int i = 0; i < n; i++) {
            const int who = owner[out[i].sequence];
            if (out[i].finish != BY_FINISH_STOP)
                tokens[who][counts[who]++] = out[i].token;
            if (out[i].finish == BY_FINISH_NONE && !(who == 4 && counts[4] == 3))
                continue;
            by_generator_remove(g, out[i].sequence);
            done++;
        }
        assert_true(step < 500);
    }
    for (int i = 0; i < REQUESTS; i++)
        if (i != 4)
            assert_alone(i, tokens[i], counts[i]);
    by_generator_free(g);
}

static void sequences_come_and_go(void **state)
{
    (void)state;
    serve(&(by_generator_spec){.batch = 4});
    serve(&(by_generator_spec){.batch = 4, .page = 16});
    serve(&(by_generator_spec){.batch = 4, .page = 32, .pages = 9});
}

/* A sequence that is extended goes on as if all of it had been its prompt. */
static void sequences_are_extended(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 2, .page = 16});
    const by_sequence_spec spec = {.max_new_tokens = 6, .ignore_eos = true};
    by_sequence_token out[2];
    int32_t text[64];
    int row, n, count = 7;
    memcpy(text, text_of(3, 7), 7 * sizeof *text);
    assert_int_equal(by_generator_add(g, text, 7, &spec, &row), BY_OK);
    for (int turn = 0; turn < 2; turn++) {
        while (by_generator_goes_on(g, row)) {
            assert_int_equal(by_generator_step(g, out, &n), BY_OK);
            assert_int_equal(n, 1);
            assert_int_equal(out[0].token, full_argmax(model, text, count));
            text[count++] = out[0].token;
        }
        assert_int_equal(out[0].finish, BY_FINISH_LENGTH);
        assert_int_equal(by_generator_step(g, out, &n), BY_OK);
        assert_int_equal(n, 0);
        if (turn == 0) {
            memcpy(text + count, text_of(4, 3), 3 * sizeof *text);
            assert_int_equal(by_generator_extend(g, row, text + count, 3), BY_OK);
            count += 3;
        }
    }
    assert_int_equal(by_generator_extend(g, row + 1, text, 1), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_extend(g, row, &(int32_t){VOCAB}, 1), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_add(g, text, CONTEXT + 1, &spec, &n), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_add(g, text, 2, &spec, &n), BY_OK);
    assert_int_equal(by_generator_add(g, text, 2, &spec, &n), BY_ERR_ARGUMENT); /* both rows are taken */
    by_generator_remove(g, row);
    assert_false(by_generator_goes_on(g, row));
    by_generator_free(g);
}

/* ---- how a text ends ------------------------------------------------------------------------- */

static void stop_tokens_end_a_row(void **state)
{
    (void)state;
    by_generator *g = open_generator(2, 0);
    const int32_t *prompts[] = {text_of(0, 6), text_of(1, 9)};
    const int lengths[] = {6, 9};
    by_generate_spec spec = {.max_new_tokens = 40, .sampling = {.temperature = 1, .seed = 3}};
    by_generate_result whole = generate(g, prompts, lengths, &spec);
    int32_t stop = whole.rows[0].tokens[6 + 10]; /* the eleventh new token, or where it came first */
    int first[2] = {40, 40};
    for (int b = 0; b < 2; b++)
        for (int i = 39; i >= 0; i--)
            first[b] = whole.rows[b].tokens[lengths[b] + i] == stop ? i : first[b];
    spec.stop_tokens = &stop;
    spec.stop_count = 1;
    for (int way = 0; way < 2; way++) { /* as a stop token of the caller's, then as the model's own */
        by_generate_result r = generate(g, prompts, lengths, &spec);
        for (int b = 0; b < 2; b++) {
            assert_int_equal(r.rows[b].count, lengths[b] + first[b]);
            assert_int_equal(r.rows[b].finish, first[b] < 40 ? BY_FINISH_STOP : BY_FINISH_LENGTH);
            assert_memory_equal(r.rows[b].tokens, whole.rows[b].tokens,
                                sizeof(int32_t) * (size_t)r.rows[b].count);
        }
        by_generate_result_free(&r);
        by_model_set_eos(model, stop);
        spec.stop_count = 0;
    }
    spec.ignore_eos = true;
    by_generate_result ignored = generate(g, prompts, lengths, &spec);
    assert_same_text(&ignored.rows[0], &whole.rows[0]);
    spec.ignore_eos = false;
    spec.sampling.min_new_tokens = 40;
    by_generate_result kept = generate(g, prompts, lengths, &spec);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(kept.rows[b].finish, BY_FINISH_LENGTH);
        for (int i = 0; i < 40; i++)
            assert_int_not_equal(kept.rows[b].tokens[lengths[b] + i], stop);
    }
    by_model_set_eos(model, -1);
    by_generate_result_free(&whole);
    by_generate_result_free(&ignored);
    by_generate_result_free(&kept);
    by_generator_free(g);
}

typedef struct listener {
    int32_t heard[64];
    int count, limit;
    double logprobs;
    bool cancel;
} listener;

static bool hear(void *user, int row, int32_t token, float logprob)
{
    listener *l = user;
    assert_int_equal(row, 0);
    l->heard[l->count++] = token;
    l->logprobs += (double)logprob;
    return l->count < l->limit;
}

static bool cancelled(void *user)
{
    const listener *l = user;
    return l->cancel && l->count >= 3;
}

static void the_callback_hears_and_ends(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 0);
    const int32_t *prompt = text_of(3, 4);
    listener l = {.limit = 7};
    by_generate_spec spec = {.max_new_tokens = 20,
                             .token = hear,
                             .cancelled = cancelled,
                             .user = &l,
                             .sampling = {.repetition_penalty = 1.5}};
    by_generate_result r = generate(g, &prompt, &(int){4}, &spec);
    assert_int_equal(r.rows[0].finish, BY_FINISH_CALLER);
    assert_int_equal(r.rows[0].count, 4 + 7);
    assert_memory_equal(r.rows[0].tokens + 4, l.heard, sizeof(int32_t) * 7);
    double expected = 0; /* log-probabilities are the model's own, whatever the penalties */
    for (int i = 0; i < 7; i++) {
        float logits[VOCAB];
        double sum = 0;
        row_logits(model, r.rows[0].tokens, 4 + i, logits);
        for (int k = 0; k < VOCAB; k++)
            sum += exp((double)logits[k]);
        expected += (double)logits[l.heard[i]] - log(sum);
    }
    assert_true(fabs(l.logprobs - expected) < 1e-4);
    by_generate_result_free(&r);

    l = (listener){.limit = 64, .cancel = true};
    assert_int_equal(by_generate(g, &prompt, &(int){4}, &spec, &r), BY_ERR_CANCELLED);
    assert_int_equal(r.rows[0].count, 4 + 3); /* what there was is there */
    assert_int_equal(r.rows[0].finish, BY_FINISH_NONE);
    by_generate_result_free(&r);
    by_generator_free(g);
}

static void a_full_context_is_an_error_or_slides(void **state)
{
    (void)state;
    enum { ROOM = 16, PROMPT = 10, NEW = 40 };
    by_generator *g = open_generator(1, ROOM);
    const int32_t *prompt = text_of(4, 40);
    by_generate_result r;
    by_generate_spec spec = {.max_new_tokens = ROOM - PROMPT + 1};
    r = generate(g, &prompt, &(int){PROMPT}, &spec); /* just fits */
    assert_int_equal(r.rows[0].count, ROOM + 1);
    by_generate_result_free(&r);
    spec.max_new_tokens++;
    assert_int_equal(by_generate(g, &prompt, &(int){PROMPT}, &spec, &r), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "context of 16"));
    by_generate_result_free(&r);
    assert_int_equal(by_generate(g, &prompt, &(int){ROOM + 1}, &(by_generate_spec){0}, &r), BY_ERR_ARGUMENT);
    by_generate_result_free(&r);
    assert_int_equal(by_generate(g, &prompt, &(int){PROMPT}, &(by_generate_spec){.slide = true}, &r),
                     BY_ERR_ARGUMENT);
    by_generate_result_free(&r);

    for (int length = PROMPT; length <= 40; length += 30) { /* a prompt that fits, and one that does not */
        int32_t text[40 + NEW];
        int n = length, start = length > ROOM ? length - ROOM / 2 : 0;
        memcpy(text, prompt, sizeof *text * (size_t)n);
        while (n < length + NEW) {
            text[n] = full_argmax(model, text + start, n - start);
            n++;
            if (n - start > ROOM)
                start = n - ROOM / 2;
        }
        r = generate(g, &prompt, &length, &(by_generate_spec){.max_new_tokens = NEW, .slide = true});
        assert_int_equal(r.rows[0].count, length + NEW);
        assert_memory_equal(r.rows[0].tokens, text, sizeof *text * (size_t)n);
        by_generate_result_free(&r);
    }
    by_generator_free(g);
}

static void empty_prompts_start_at_the_end_of_text(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 0);
    const int32_t *nothing = (int32_t[]){0}, *end = (int32_t[]){7};
    by_generate_result r, expected;
    by_generate_spec spec = {.max_new_tokens = 5, .ignore_eos = true};
    assert_int_equal(by_generate(g, &nothing, &(int){0}, &spec, &r), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "empty"));
    by_generate_result_free(&r);
    by_model_set_eos(model, 7);
    r = generate(g, &nothing, &(int){0}, &spec);
    expected = generate(g, &end, &(int){1}, &spec);
    by_model_set_eos(model, -1);
    assert_int_equal(r.rows[0].prompt, 1);
    assert_same_text(&r.rows[0], &expected.rows[0]);
    by_generate_result_free(&r);
    by_generate_result_free(&expected);
    by_generator_free(g);
}

static void wrong_specs_are_refused(void **state)
{
    (void)state;
    by_generator *g = open_generator(1, 0);
    const int32_t *prompt = text_of(0, 3), *strange = (int32_t[]){1, VOCAB};
    const by_generate_spec wrong[] = {{.max_new_tokens = -1},
                                      {.sampling = {.top_p = 7}},
                                      {.stop_tokens = (int32_t[]){VOCAB}, .stop_count = 1},
                                      {.first_sample = -1}};
    by_generate_result r;
    for (int i = 0; i < BY_COUNT(wrong); i++) {
        assert_int_equal(by_generate(g, &prompt, &(int){3}, &wrong[i], &r), BY_ERR_ARGUMENT);
        by_generate_result_free(&r);
    }
    assert_int_equal(by_generate(g, &strange, &(int){2}, &(by_generate_spec){0}, &r), BY_ERR_ARGUMENT);
    by_generate_result_free(&r);
    int32_t hidden[3 * CONTEXT] = {
        VOCAB}; /* what a context that slides never sees is looked at all the same */
    by_generate_spec slides = {.max_new_tokens = 2, .slide = true, .sampling = {.repetition_penalty = 2}};
    assert_int_equal(by_generate(g, &(const int32_t *){hidden}, &(int){3 * CONTEXT}, &slides, &r),
                     BY_ERR_ARGUMENT);
    by_generate_result_free(&r);
    assert_int_equal(by_generate(g, &prompt, &(int){-2}, &(by_generate_spec){0}, &r), BY_ERR_ARGUMENT);
    by_generate_result_free(&r);
    by_generator_free(g);
}

/* ---- the reference implementation's texts ---------------------------------------------------- */

static void assert_recorded(by_generator *g, const by_weights *file, const char *name,
                            const by_generate_spec *spec, int prompt)
{
    const by_weight *e = by_weights_find(file, name);
    int32_t expected[64];
    assert_non_null(e);
    assert_true(e->rank == 2 && e->dim[0] == 1 && e->dim[1] <= 64);
    int n = (int)e->dim[1];
    base_convert(expected, BY_I32, e->data, e->dtype, (size_t)n);
    by_generate_spec all = *spec;
    all.max_new_tokens = n - prompt;
    by_generate_result r = generate(g, &(const int32_t *){expected}, &prompt, &all);
    assert_int_equal(r.rows[0].count, n);
    for (int i = 0; i < n; i++)
        if (r.rows[0].tokens[i] != expected[i])
            fail_msg("%s: token %d is %d, not %d", name, i, (int)r.rows[0].tokens[i], (int)expected[i]);
    by_generate_result_free(&r);
}

static void texts_equal_the_reference(void **state)
{
    (void)state;
    static const char dir[] = BY_SOURCE_DIR "/tests/data/verify/gpt2";
    static const char path[] = BY_SOURCE_DIR "/tests/data/verify/gpt2/reference.safetensors";
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    by_weights *file = by_weights_open(path);
    assert_non_null(m);
    assert_non_null(file);
    by_generator *g = by_generator_new(m, &(by_generator_spec){0});
    assert_non_null(g);
    const int prompt = 5; /* 9 new tokens of 14 in all (case.json) */
    assert_recorded(g, file, "generate.greedy", &(by_generate_spec){.ignore_eos = true}, prompt);
    assert_recorded(g, file, "generate.greedy_repetition_penalty",
                    &(by_generate_spec){.ignore_eos = true, .sampling = {.repetition_penalty = 1.3}}, prompt);
    assert_recorded(g, file, "generate.greedy_no_repeat_3gram",
                    &(by_generate_spec){.ignore_eos = true, .sampling = {.no_repeat_ngram = 3}}, prompt);
    by_generator_free(g);
    by_weights_free(file);
    by_model_free(m);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Put bytes one by one and check what may be shown after each of them. */
static void assert_stream(const char *bytes, const char *const *stops, int stop_count, const int *shown,
                          const char *text, bool stopped)
{
    by_tokenizer *t = tok_new_bytes();
    assert_non_null(t);
    gen_stream s = {.tokenizer = t, .stops = stops, .stop_count = stop_count};
    for (int i = 0; bytes[i]; i++) {
        assert_int_equal(gen_stream_put(&s, (unsigned char)bytes[i]), BY_OK);
        if (shown)
            assert_int_equal(s.text.size, shown[i]);
    }
    assert_int_equal(gen_stream_end(&s), BY_OK);
    assert_string_equal(s.text.data ? s.text.data : "", text);
    assert_int_equal(s.stopped, stopped);
    gen_stream_free(&s);
    by_tokenizer_free(t);
}

static void streams_show_whole_characters_and_no_stop_string(void **state)
{
    (void)state;
    const char *const stops[] = {"END", "\xc3\xa9!", ""};
    assert_stream("a\xc3\xa9"
                  "b\xe2\x82\xac",
                  NULL, 0, (int[]){1, 1, 3, 4, 4, 4, 7},
                  "a\xc3\xa9"
                  "b\xe2\x82\xac",
                  false);
    assert_stream("xEND yz", stops, 3, (int[]){1, 1, 1, 1, 1, 1, 1}, "x", true);
    assert_stream("EENxEN", stops, 3, (int[]){0, 1, 1, 4, 4, 4}, "EENxEN",
                  false); /* what only looked like it comes later */
    assert_stream("ENEND", stops, 3, (int[]){0, 0, 2, 2, 2}, "EN", true);
    assert_stream("o\xc3\xa9?\xc3\xa9!", stops, 3, (int[]){1, 1, 1, 4, 4, 4, 4}, "o\xc3\xa9?", true);
    assert_stream("a\xff"
                  "b\xe2\x82",
                  NULL, 0, NULL,
                  "a\xef\xbf\xbd"
                  "b\xef\xbf\xbd",
                  false);
    assert_stream("", stops, 3, NULL, "", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feeding_in_pieces_equals_one_pass),
        cmocka_unit_test(greedy_runs_choose_the_likeliest),
        cmocka_unit_test(drawn_runs_are_those_of_the_host),
        cmocka_unit_test(rows_grow_at_their_own_pace),
        cmocka_unit_test(a_rewound_row_forgets),
        cmocka_unit_test(rows_that_begin_alike_are_fed_once),
        cmocka_unit_test(rows_that_differ_are_fed_themselves),
        cmocka_unit_test(wrong_food_is_refused),
        cmocka_unit_test(cached_greedy_equals_full_forward),
        cmocka_unit_test(a_batch_equals_one_at_a_time),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(pages_change_nothing),
        cmocka_unit_test(pages_run_out),
        cmocka_unit_test(sequences_come_and_go),
        cmocka_unit_test(sequences_are_extended),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(stop_tokens_end_a_row),
        cmocka_unit_test(the_callback_hears_and_ends),
        cmocka_unit_test(a_full_context_is_an_error_or_slides),
        cmocka_unit_test(empty_prompts_start_at_the_end_of_text),
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(texts_equal_the_reference),
        cmocka_unit_test(streams_show_whole_characters_and_no_stop_string),
    };
    const struct CMUnitTest rotary[] = {
        cmocka_unit_test(feeding_in_pieces_equals_one_pass),
        cmocka_unit_test(greedy_runs_choose_the_likeliest),
        cmocka_unit_test(drawn_runs_are_those_of_the_host),
        cmocka_unit_test(rows_grow_at_their_own_pace),
        cmocka_unit_test(a_rewound_row_forgets),
        cmocka_unit_test(rows_that_begin_alike_are_fed_once),
        cmocka_unit_test(rows_that_differ_are_fed_themselves),
        cmocka_unit_test(cached_greedy_equals_full_forward),
        cmocka_unit_test(a_batch_equals_one_at_a_time),
        cmocka_unit_test(threads_do_not_matter),
    };
    int failed = cmocka_run_group_tests(tests, open_model, close_model);
    failed += cmocka_run_group_tests(rotary, open_llama, close_model);
    failed += cmocka_run_group_tests(rotary, open_gptj, close_model);
    return failed + cmocka_run_group_tests(rotary, open_sparse, close_model);
}
