/* test_beam.c - rows that change places in the cache, the highest logits, and beam search: against searching
 * by hand over whole forward passes, against results recorded from the reference implementation, wide beams
 * against narrow ones, batches against single texts. */
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
#include "base/json.h"
#include "generation.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

enum { CONTEXT = 48, VOCAB = 61 };

static by_device *device;
static by_model *model; /* small, random, and far enough from uniform that the order of tokens is clear */

/* ---- a model to try things on ---------------------------------------------------------------- */

static int open_model(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    by_model_shape shape = {.layers = 2, .heads = 4, .width = 32, .context = CONTEXT, .vocab = VOCAB};
    model = device ? by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 3}) : NULL;
    if (!model)
        return -1;
    sharpen(model, 10);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    by_model_free(model);
    by_device_free(device);
    return 0;
}

static int32_t *text_of(uint64_t which, int n)
{
    static int32_t texts[16][CONTEXT];
    base_rng r = base_rng_make(21, which);
    for (int i = 0; i < n; i++)
        texts[which][i] = (int32_t)base_rng_below(&r, VOCAB);
    return texts[which];
}

/* ---- the cache ------------------------------------------------------------------------------- */

enum { ROWS = 8, BEAMS = 2 };

/* Eight rows and what each of them holds. */
typedef struct herd {
    by_generator *generator;
    int32_t text[ROWS][CONTEXT];
    int count[ROWS];
} herd;

/* Feed n[b] further tokens to every row. */
static void feed(herd *h, const int *n, uint64_t which)
{
    const int32_t *next[ROWS];
    for (int b = 0; b < ROWS; b++) {
        int32_t *end = h->text[b] + h->count[b];
        base_rng r = base_rng_make(which, (uint64_t)b);
        for (int i = 0; i < n[b]; i++)
            end[i] = (int32_t)base_rng_below(&r, VOCAB);
        next[b] = end;
        h->count[b] += n[b];
    }
    if (by_generator_feed(h->generator, next, n) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void reorder(herd *h, const int32_t *from)
{
    herd old = *h;
    if (by_generator_reorder(h->generator, from) != BY_OK)
        fail_msg("%s", by_error_message());
    for (int b = 0; b < ROWS; b++) {
        memcpy(h->text[b], old.text[from[b]], sizeof h->text[b]);
        h->count[b] = old.count[from[b]];
        assert_int_equal(by_generator_length(h->generator, b), h->count[b]);
        assert_null(by_generator_logits(h->generator, b));
    }
}

/* The rows that were fed know what a whole pass over their text gives. */
static void check_rows(herd *h, const int *n)
{
    float expected[VOCAB];
    for (int b = 0; b < ROWS; b++)
        if (n[b]) {
            row_logits(model, h->text[b], h->count[b], expected);
            assert_true(nmse(by_generator_logits(h->generator, b), expected, VOCAB) < 1e-10);
        }
}

/* Hypotheses change places within their groups, any groups are fed, and every row goes on as if it had always
 * been there. */
static void rows_change_places(void **state)
{
    (void)state;
    for (int top = 0; top <= 5; top += 5) {
        herd h = {.generator = by_generator_new(model, &(by_generator_spec){.batch = ROWS, .beams = BEAMS})};
        assert_non_null(h.generator);
        assert_int_equal(by_generator_keep_top(h.generator, top), BY_OK);
        const int all[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1}, ragged[ROWS] = {3, 9, 1, 17, 20, 2, 5, 4};
        const int six[ROWS] = {1, 1, 0, 0, 2, 1, 1, 1}, four[ROWS] = {0, 0, 1, 1, 0, 0, 1, 3};
        const int two[ROWS] = {0, 0, 0, 0, 1, 1}, one[ROWS] = {0, 0, 0, 1};
        feed(&h, ragged, 1);
        check_rows(&h, ragged);
        reorder(&h, (int32_t[]){1, 0, 2, 2, 5, 4, 7, 6});
        feed(&h, all, 2);
        check_rows(&h, all);
        reorder(&h, (int32_t[]){1, 1, 2, 3, 5, 4, 7, 6});
        feed(&h, six, 3);
        check_rows(&h, six);
        reorder(&h, (int32_t[]){0, 1, 3, 2, 4, 5, 6, 6});
        feed(&h, four, 4);
        check_rows(&h, four);
        reorder(&h, (int32_t[]){0, 1, 2, 3, 5, 4, 6, 7});
        feed(&h, two, 5);
        check_rows(&h, two);
        feed(&h, one, 6);
        check_rows(&h, one);
        feed(&h, all, 7);
        check_rows(&h, all);
        by_generator_free(h.generator);
    }
}

/* Prompts are fed to the first rows of their groups alone; the others take them over. */
static void leaders_are_followed(void **state)
{
    (void)state;
    herd h = {.generator = by_generator_new(model, &(by_generator_spec){.batch = ROWS, .beams = BEAMS})};
    const int prompts[ROWS] = {19, 0, 3, 0, 30, 0, 1, 0}, all[ROWS] = {1, 2, 1, 1, 3, 1, 1, 1};
    const int32_t lead[ROWS] = {0, 0, 2, 2, 4, 4, 6, 6};
    const int more[ROWS] = {2, 0, 0, 0, 1, 0, 0, 0};
    assert_non_null(h.generator);
    feed(&h, prompts, 1);
    check_rows(&h, prompts);
    feed(&h, more, 2);
    check_rows(&h, more);
    reorder(&h, lead);
    feed(&h, all, 3);
    check_rows(&h, all);
    by_generator_free(h.generator);
}

static void impossible_orders_are_refused(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = ROWS, .beams = BEAMS});
    const int32_t bad[][ROWS] = {{0, 1, 2, 3, 4, 5, 6, 8}, {0, 1, 2, 3, 4, 5, 6, -1},
                                 {0, 2, 2, 3, 4, 5, 6, 7}, {0, 1, 0, 1, 4, 5, 6, 7},
                                 {2, 3, 2, 3, 4, 5, 6, 7}, {0, 1, 3, 3, 4, 5, 7, 6}};
    const bool wrong[] = {true, true, true, true, true, false};
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(by_generator_reorder(g, bad[i]), wrong[i] ? BY_ERR_ARGUMENT : BY_OK);
    assert_int_equal(by_generator_reorder(g, bad[5]), BY_ERR_ARGUMENT); /* twice without a feed */
    by_generator_free(g);
    g = by_generator_new(model, &(by_generator_spec){.batch = 2});
    assert_int_equal(by_generator_reorder(g, (int32_t[]){1, 0}), BY_ERR_ARGUMENT);
    by_generator_free(g);
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = 3, .beams = 2}));
    assert_null(by_generator_new(model, &(by_generator_spec){.batch = 130, .beams = 65}));
}

/* What a feed keeps are the highest of the logits, and their weight; the rest comes when it is asked for. */
static void the_highest_logits_are_kept(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 3});
    const int32_t *next[3] = {text_of(0, 30), text_of(1, 30), text_of(2, 30)};
    assert_int_equal(by_generator_keep_top(g, VOCAB + 1), BY_ERR_ARGUMENT);
    assert_int_equal(by_generator_keep_top(g, -1), BY_ERR_ARGUMENT);
    assert_null(by_generator_top(g, 0));
    for (int k = 1; k <= VOCAB; k += 20) {
        assert_int_equal(by_generator_keep_top(g, k), BY_OK);
        for (int b = 0; b < 3; b++)
            by_generator_rewind(g, b, 0);
        assert_null(by_generator_top(g, 0));
        assert_int_equal(by_generator_feed(g, next, (int[]){4, 29, 0}), BY_OK);
        assert_null(by_generator_top(g, 2));
        for (int b = 0; b < 2; b++) {
            const by_top_logits *top = by_generator_top(g, b);
            float logits[VOCAB];
            double sum = 0;
            row_logits(model, next[b], b ? 29 : 4, logits);
            for (int i = 0; i < VOCAB; i++)
                sum += exp((double)logits[i]);
            assert_int_equal(top->count, k);
            assert_true(fabs((double)top->lse - log(sum)) < 1e-4);
            assert_true(nmse(by_generator_logits(g, b), logits, VOCAB) < 1e-10);
            for (int i = 0; i < k; i++) {
                int best = 0;
                for (int v = 1; v < VOCAB; v++)
                    best = logits[v] > logits[best] ? v : best;
                assert_int_equal(top->ids[i], best);
                assert_true(fabs((double)(top->logits[i] - logits[best])) < 1e-4);
                logits[best] = -INFINITY;
            }
        }
    }
    by_generator_free(g);
}

/* ---- the search ------------------------------------------------------------------------------ */

typedef struct guess {
    int32_t tokens[CONTEXT];
    double score;
} guess;

enum { GUESSES = 8 };

/* The width best texts of n + steps tokens of each group, groups one after the other, by whole passes over
 * every hypothesis. out (groups, width). */
static void search_naively(const int32_t *prompt, int n, int steps, int groups, int width, double diversity,
                           guess out[][GUESSES])
{
    int live = 1;
    for (int g = 0; g < groups; g++) {
        memcpy(out[g][0].tokens, prompt, sizeof *prompt * (size_t)n);
        out[g][0].score = 0;
    }
    for (int s = 0; s < steps; s++) {
        double taken[VOCAB] = {0};
        for (int g = 0; g < groups; g++) {
            guess best[GUESSES];
            int found = 0;
            for (int b = 0; b < live; b++) {
                float logits[VOCAB];
                double sum = 0;
                row_logits(model, out[g][b].tokens, n + s, logits);
                for (int v = 0; v < VOCAB; v++)
                    sum += exp((double)logits[v]);
                for (int v = 0; v < VOCAB; v++) {
                    guess next = out[g][b];
                    next.tokens[n + s] = v;
                    next.score += (double)logits[v] - log(sum) - diversity * taken[v];
                    int at = found;
                    while (at > 0 && best[at - 1].score < next.score)
                        at--;
                    found = BY_MIN(found + 1, width);
                    for (int k = found - 1; k > at; k--)
                        best[k] = best[k - 1];
                    if (at < width)
                        best[at] = next;
                }
            }
            memcpy(out[g], best, sizeof *best * (size_t)width);
            for (int b = 0; b < width; b++)
                taken[best[b].tokens[n + s]]++;
        }
        live = width;
    }
}

/* Cached, reordered, by the highest logits: the same as computing everything anew. */
static void a_search_equals_full_recomputation(void **state)
{
    (void)state;
    const struct {
        int groups, size;
        double diversity;
    } cases[] = {{1, 2, 0}, {1, 5, 0}, {1, 8, 0}, {2, 2, 0.7}, {3, 1, 4}, {2, 3, 0.2}};
    for (int c = 0; c < BY_COUNT(cases); c++) {
        enum { LENGTH = 6, STEPS = 9 };
        const int groups = cases[c].groups, size = cases[c].size, width = groups * size;
        const int32_t *prompt = text_of((uint64_t)c, LENGTH);
        guess right[3][GUESSES];
        search_naively(prompt, LENGTH, STEPS, groups, size, cases[c].diversity, right);
        by_generate_spec spec = {
            .max_new_tokens = STEPS,
            .ignore_eos = true,
            .beam = {.width = width, .groups = groups, .diversity = cases[c].diversity, .returned = width}};
        by_generate_result r = find(model, &prompt, &(int){LENGTH}, 1, &spec);
        assert_int_equal(r.count, width);
        for (int i = 0; i < width; i++) { /* each is the text of a group that was not there before */
            bool found = false;
            assert_int_equal(r.rows[i].count, LENGTH + STEPS);
            assert_true(i == 0 || r.rows[i].score <= r.rows[i - 1].score);
            for (int k = 0; k < width && !found; k++) {
                guess *g = &right[k / size][k % size];
                found = fabs(g->score - (double)r.rows[i].score) < 1e-3 &&
                        memcmp(g->tokens, r.rows[i].tokens, sizeof *prompt * (LENGTH + STEPS)) == 0;
                if (found)
                    g->score = -1e9;
            }
            assert_true(found);
        }
        by_generate_result_free(&r);
    }
}

/* Groups of one, and beams of one, are greedy; the score is the sum of log-probabilities. */
static void a_beam_of_one_is_greedy(void **state)
{
    (void)state;
    const int32_t *prompt = text_of(1, 5);
    by_generate_spec spec = {.max_new_tokens = 14, .ignore_eos = true};
    by_generate_result greedy = find(model, &prompt, &(int){5}, 1, &spec);
    spec.beam.width = 1;
    by_generate_result one = find(model, &prompt, &(int){5}, 1, &spec);
    assert_memory_equal(one.rows[0].tokens, greedy.rows[0].tokens, sizeof *prompt * 19);
    spec.beam = (by_beam){.width = 3, .groups = 3, .returned = 3};
    by_generate_result three = find(model, &prompt, &(int){5}, 1, &spec);
    double sum = 0;
    for (int n = 5; n < 19; n++) {
        float logits[VOCAB];
        double all = 0;
        row_logits(model, greedy.rows[0].tokens, n, logits);
        for (int v = 0; v < VOCAB; v++)
            all += exp((double)logits[v]);
        sum += (double)logits[greedy.rows[0].tokens[n]] - log(all);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(three.rows[i].count, 19);
        assert_memory_equal(three.rows[i].tokens, greedy.rows[0].tokens, sizeof *prompt * 19);
        assert_true(fabs((double)three.rows[i].score - sum) < 1e-3);
    }
    by_generate_result_free(&greedy);
    by_generate_result_free(&one);
    by_generate_result_free(&three);
}

/* Texts of many lengths, which end at different times and are squeezed out: each as if it were alone. */
static void a_ragged_batch_equals_one_at_a_time(void **state)
{
    (void)state;
    enum { TEXTS = 9 };
    const int32_t *prompts[TEXTS];
    int lengths[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        lengths[i] = 1 + 37 * i % 19;
        prompts[i] = text_of((uint64_t)i, lengths[i]);
    }
    prompts[4] = NULL; /* left out */
    const by_generate_spec specs[] = {
        {.max_new_tokens = 20, .beam = {.width = 4, .length_penalty = 1, .returned = 2}},
        {.max_new_tokens = 20,
         .sampling = {.no_repeat_ngram = 2, .min_new_tokens = 3, .repetition_penalty = 1.2},
         .beam = {.width = 3, .early_stopping = BY_STOP_EARLY, .returned = 3}},
        {.beam = {.width = 4, .groups = 2, .diversity = 1, .early_stopping = BY_STOP_EARLY, .returned = 2}}};
    for (int c = 0; c < BY_COUNT(specs); c++) {
        by_generate_spec spec = specs[c];
        const int32_t stops[] = {3, 11, 17, 29, 40, 51};
        spec.stop_tokens = stops;
        spec.stop_count = BY_COUNT(stops);
        by_generate_result all = find(model, prompts, lengths, TEXTS, &spec);
        int ends[CONTEXT] = {0}, different = 0;
        for (int i = 0; i < TEXTS; i++) {
            if (!prompts[i]) {
                assert_null(all.rows[i * spec.beam.returned].tokens);
                continue;
            }
            by_generate_result alone = find(model, &prompts[i], &lengths[i], 1, &spec);
            for (int k = 0; k < spec.beam.returned; k++)
                assert_same(&all.rows[i * spec.beam.returned + k], &alone.rows[k]);
            int fresh = alone.rows[0].count - alone.rows[0].prompt;
            different += ends[fresh]++ == 0;
            by_generate_result_free(&alone);
        }
        assert_true(different >= 3);
        by_generate_result_free(&all);
    }
}

static void open_shared(const char *name, char *dir, size_t size)
{
    char path[1100];
    const char *shared = getenv("BANYAN_SHARED");
    snprintf(dir, size, "%s/parity/%s", shared ? shared : BY_SOURCE_DIR "/../shared", name);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!base_file_exists(path)) {
        print_message("%s is not there\n", path);
        skip();
    }
}

/* The same for sources: what the encoder made of them moves with the texts. */
static void sources_move_with_their_texts(void **state)
{
    (void)state;
    enum { SOURCES = 7, KEPT = 3 };
    char dir[1024];
    open_shared("marian", dir, sizeof dir);
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    assert_non_null(m);
    const int32_t *sources[SOURCES];
    int lengths[SOURCES], different = 0, ends[CONTEXT] = {0};
    for (int i = 0; i < SOURCES; i++) {
        lengths[i] = 1 + 5 * i % 9;
        sources[i] = text_of((uint64_t)i, lengths[i]);
    }
    sources[2] = NULL;
    int32_t stops[24];
    for (int i = 0; i < 24; i++)
        stops[i] = 3 * i;
    const by_generate_spec spec = {
        .max_new_tokens = 14,
        .stop_tokens = stops,
        .stop_count = 24,
        .beam = {.width = 3, .length_penalty = 1, .early_stopping = BY_STOP_EARLY, .returned = KEPT}};
    by_generate_result all = find(m, sources, lengths, SOURCES, &spec);
    for (int i = 0; i < SOURCES; i++) {
        if (!sources[i])
            continue;
        by_generate_result alone = find(m, &sources[i], &lengths[i], 1, &spec);
        for (int k = 0; k < KEPT; k++)
            assert_same(&all.rows[i * KEPT + k], &alone.rows[k]);
        different += ends[alone.rows[0].count]++ == 0;
        by_generate_result_free(&alone);
    }
    assert_true(different >= 2);
    by_generate_result_free(&all);
    by_model_free(m);
}

/* ---- recorded results ------------------------------------------------------------------------ */

enum { MOST = 8 };

/* Settings of the reference library, and the tokens they point to. */
typedef struct recorded {
    by_generate_spec spec;
    int32_t stops[CONTEXT], prefix[MOST], word_tokens[MOST][MOST], first, last;
    by_words words[MOST];
} recorded;

static int read_tokens(const cJSON *list, int32_t *out)
{
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, list)
    {
        assert_true(n < CONTEXT);
        out[n++] = item->valueint;
    }
    return n;
}

static void read_settings(const cJSON *json, recorded *out)
{
    by_generate_spec *spec = &out->spec;
    by_sampling *s = &spec->sampling;
    const cJSON *item;
    *out = (recorded){.spec = {.ignore_eos = true, .beam = {.length_penalty = 1, .returned = 1}}};
    cJSON_ArrayForEach(item, json)
    {
        const char *name = item->string;
        if (strcmp(name, "num_beams") == 0)
            spec->beam.width = item->valueint;
        else if (strcmp(name, "max_new_tokens") == 0)
            spec->max_new_tokens = item->valueint;
        else if (strcmp(name, "length_penalty") == 0)
            spec->beam.length_penalty = item->valuedouble;
        else if (strcmp(name, "early_stopping") == 0)
            spec->beam.early_stopping = cJSON_IsString(item) ? BY_STOP_NEVER
                                        : cJSON_IsTrue(item) ? BY_STOP_EARLY
                                                             : BY_STOP_HEURISTIC;
        else if (strcmp(name, "num_return_sequences") == 0)
            spec->beam.returned = item->valueint;
        else if (strcmp(name, "eos_token_id") == 0)
            spec->stop_count = read_tokens(item, out->stops);
        else if (strcmp(name, "min_new_tokens") == 0)
            s->min_new_tokens = item->valueint;
        else if (strcmp(name, "no_repeat_ngram_size") == 0)
            s->no_repeat_ngram = item->valueint;
        else if (strcmp(name, "repetition_penalty") == 0)
            s->repetition_penalty = item->valuedouble;
        else if (strcmp(name, "forced_bos_token_id") == 0)
            out->first = item->valueint, s->forced_first = &out->first;
        else if (strcmp(name, "forced_eos_token_id") == 0)
            out->last = item->valueint, s->forced_last = &out->last;
        else if (strcmp(name, "prefix") == 0)
            s->prefix_count = read_tokens(item, out->prefix);
        else if (strcmp(name, "bad_words_ids") == 0)
            s->word_count = cJSON_GetArraySize(item);
        else
            fail_msg("unknown setting %s", name);
    }
    for (int i = 0; i < s->word_count; i++) {
        const cJSON *words = cJSON_GetObjectItem(json, "bad_words_ids");
        out->words[i] =
            (by_words){out->word_tokens[i], read_tokens(cJSON_GetArrayItem(words, i), out->word_tokens[i])};
    }
    spec->stop_tokens = out->stops;
    s->prefix = out->prefix;
    s->words = out->words;
}

/* Where the reference has no more texts it fills up with copies of a score near -10^9. */
static void compare_case(by_model *m, int which, const cJSON *json)
{
    const cJSON *list = cJSON_GetObjectItem(json, "prompts"), *texts = cJSON_GetObjectItem(json, "texts");
    const int count = cJSON_GetArraySize(list);
    int32_t space[MOST][CONTEXT], expected[CONTEXT];
    const int32_t *prompts[MOST];
    int lengths[MOST];
    recorded settings;
    read_settings(cJSON_GetObjectItem(json, "settings"), &settings);
    for (int i = 0; i < count; i++) {
        prompts[i] = space[i];
        lengths[i] = read_tokens(cJSON_GetArrayItem(list, i), space[i]);
    }
    by_generate_result r = find(m, prompts, lengths, count, &settings.spec);
    assert_int_equal(r.count, cJSON_GetArraySize(texts));
    for (int i = 0; i < r.count; i++) {
        const cJSON *text = cJSON_GetArrayItem(texts, i);
        const by_generation *here = &r.rows[i];
        const double score = cJSON_GetObjectItem(text, "score")->valuedouble;
        const int n = read_tokens(cJSON_GetObjectItem(text, "tokens"), expected);
        if (score < -1e8) {
            assert_null(here->tokens);
            continue;
        }
        if (!here->tokens || fabs((double)here->score - score) > 1e-3 ||
            here->count - here->prompt + (here->finish == BY_FINISH_STOP) != n ||
            memcmp(here->tokens + here->prompt, expected,
                   sizeof *expected * (size_t)(here->count - here->prompt)) != 0)
            fail_msg("case %d, text %d: score %g, the reference has %g, or the tokens differ", which, i,
                     (double)here->score, score);
    }
    by_generate_result_free(&r);
}

static void searches_equal_the_reference(void **state)
{
    (void)state;
    char dir[1024];
    open_shared("gpt2-lm", dir, sizeof dir);
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    cJSON *cases = base_json_load(BY_SOURCE_DIR "/tests/data/beams.json");
    assert_non_null(m);
    assert_non_null(cases);
    assert_true(cJSON_GetArraySize(cases) >= 100);
    for (int i = 0; i < cJSON_GetArraySize(cases); i++)
        compare_case(m, i, cJSON_GetArrayItem(cases, i));
    cJSON_Delete(cases);
    by_model_free(m);
}

/* ---- explanations ---------------------------------------------------------------------------- */

typedef struct listener {
    int steps, finished, ruled_out;
    const char *end;
    float best;
    int32_t token[GUESSES]; /* that the hypotheses ended with after the last step */
} listener;

/* Every step follows from the one before, and adds up. */
static void listen(void *user, const by_explanation *why)
{
    listener *l = user;
    int next = 0;
    assert_int_equal(why->step, l->steps++);
    for (int i = 0; i < why->n_beams && why->step > 0; i++)
        assert_int_equal(why->beams[i].tokens[why->step - 1], l->token[i]);
    for (int i = 0; i < why->count; i++) {
        const by_candidate *c = &why->candidates[i];
        const double added =
            c->n_changes ? (double)c->changes[c->n_changes - 1].share : (double)c->probability;
        if (c->fate == BY_FATE_RULED_OUT) {
            l->ruled_out++;
            assert_true(added == 0);
            continue;
        }
        assert_true(fabs((double)why->beams[c->beam].score + log(added) - (double)c->total) < 1e-3);
        if (c->fate == BY_FATE_CHOSEN) {
            assert_int_equal(why->next[next].tokens[why->step], c->token);
            assert_true(why->next[next++].score == c->total);
        }
    }
    assert_int_equal(next, why->n_next);
    for (int i = 0; i < why->n_next; i++)
        l->token[i] = why->next[i].tokens[why->step];
    l->finished = why->n_finished;
    l->end = why->end;
    l->best = why->n_finished ? why->finished[0].score : 0;
}

static void searches_are_explained(void **state)
{
    (void)state;
    const int32_t *prompt = text_of(2, 5), stops[] = {3, 11, 17, 29};
    listener l = {0};
    by_generate_spec spec = {.max_new_tokens = 9,
                             .stop_tokens = stops,
                             .stop_count = 4,
                             .sampling = {.no_repeat_ngram = 1, .repetition_penalty = 1.1},
                             .beam = {.width = 3, .length_penalty = 1},
                             .explain = listen,
                             .user = &l};
    by_generate_result r = find(model, &prompt, &(int){5}, 1, &spec);
    assert_true(l.steps >= 2 && l.finished == 3 && l.end && l.ruled_out > 0);
    assert_true(l.best == r.rows[0].score);
    by_generate_result_free(&r);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void impossible_searches_are_refused(void **state)
{
    (void)state;
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 4, .beams = 4});
    const int32_t *prompt = text_of(0, 5);
    int32_t all[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        all[i] = i;
    const struct {
        by_generate_spec spec;
        by_status status;
        const char *word;
    } cases[] = {
        {{.beam = {.width = 3}}, BY_ERR_ARGUMENT, "4 beams"},
        {{.beam = {.width = 65}}, BY_ERR_ARGUMENT, "64"},
        {{.beam = {.width = 4, .groups = 3}}, BY_ERR_ARGUMENT, "groups"},
        {{.beam = {.width = 4, .returned = 5}}, BY_ERR_ARGUMENT, "return 5"},
        {{.beam = {.width = 4, .diversity = 1}}, BY_ERR_ARGUMENT, "diversity"},
        {{.beam = {.width = 4, .groups = 2, .diversity = -1}}, BY_ERR_ARGUMENT, "diversity"},
        {{.beam = {.width = 4, .length_penalty = NAN}}, BY_ERR_ARGUMENT, "length_penalty"},
        {{.beam = {.width = 4, .groups = 2}, .sampling = {.temperature = 1}}, BY_ERR_ARGUMENT, "temperature"},
        {{.beam = {.width = 4}, .slide = true, .max_new_tokens = 5}, BY_ERR_ARGUMENT, "slide"},
        {{.beam = {.width = 4}, .max_new_tokens = CONTEXT}, BY_ERR_ARGUMENT, "fit"},
        {{.beam = {.width = 4}, .max_new_tokens = 3, .sampling = {.min_new_tokens = 4}},
         BY_ERR_ARGUMENT,
         "min_new_tokens 4"},
        {{.beam = {.width = 4}, .max_new_tokens = 1, .sampling = {.prefix = all, .prefix_count = 2}},
         BY_ERR_ARGUMENT,
         "prefix"},
        {{.beam = {.width = 4}, .sampling = {.words = &(by_words){all, 0}, .word_count = 1}},
         BY_ERR_ARGUMENT,
         "word"},
        {{.beam = {.width = 4}, .sampling = {.forced_first = &(int32_t){VOCAB}}}, BY_ERR_ARGUMENT, "forced"},
        {{.beam = {.width = 4}, .sampling = {.banned = all, .banned_count = VOCAB}},
         BY_ERR_NUMERIC,
         "no token"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_generate_result r;
        assert_int_equal(by_generate(g, &prompt, &(int){5}, &cases[i].spec, &r), cases[i].status);
        if (!strstr(by_error_message(), cases[i].word))
            fail_msg("case %d: %s", i, by_error_message());
        by_generate_result_free(&r);
    }
    by_generator_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_change_places),
        cmocka_unit_test(leaders_are_followed),
        cmocka_unit_test(impossible_orders_are_refused),
        cmocka_unit_test(the_highest_logits_are_kept),
        cmocka_unit_test(a_search_equals_full_recomputation),
        cmocka_unit_test(a_beam_of_one_is_greedy),
        cmocka_unit_test(a_ragged_batch_equals_one_at_a_time),
        cmocka_unit_test(sources_move_with_their_texts),
        cmocka_unit_test(searches_equal_the_reference),
        cmocka_unit_test(searches_are_explained),
        cmocka_unit_test(impossible_searches_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
