/* test_beam_draws.c - draws within a beam search: as the temperature falls they become the search without
 * draws; frequencies of what is found against probabilities that are computed by going through all draws; a
 * text depends on its number alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "generation.h"

enum { VOCAB = 6, WIDTH = 2, KEEP = 4, STOP = 3, NONE = VOCAB, PROMPT = 3 };

static by_device *device;
static by_model *model;
static const int32_t prompt[PROMPT] = {1, 4, 2};

static int open_model(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    by_model_shape shape = {.layers = 1, .heads = 2, .width = 16, .context = 32, .vocab = VOCAB};
    model = device ? by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 8}) : NULL;
    if (!model)
        return -1;
    sharpen(model, 8);
    by_model_set_eos(model, -1);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    by_model_free(model);
    by_device_free(device);
    return 0;
}

/* ---- cold ------------------------------------------------------------------------------------ */

static void cold_draws_are_the_search(void **state)
{
    (void)state;
    const double cold = 1e-4;
    for (int width = 2; width <= 5; width++)
        for (int way = 0; way < 3; way++) {
            const int32_t texts[3][4] = {{0, 1, 2, 3}, {5, 5, 1, 0}, {2, 4, 4, 1}};
            const int32_t *prompts[] = {texts[0], texts[1], texts[2]};
            const int32_t stop = STOP;
            by_generate_spec spec = {.max_new_tokens = 12,
                                     .stop_tokens = &stop,
                                     .stop_count = way > 0,
                                     .sampling.no_repeat_ngram = way == 2 ? 2 : 0,
                                     .beam = {.width = width,
                                              .length_penalty = 1,
                                              .returned = 2,
                                              .early_stopping = (by_early_stopping)way}};
            by_generate_result plain = find(model, prompts, (int[]){4, 3, 4}, 3, &spec);
            spec.sampling.temperature = cold;
            spec.sampling.seed = 5;
            by_generate_result drawn = find(model, prompts, (int[]){4, 3, 4}, 3, &spec);
            assert_int_equal(plain.count, 6);
            for (int i = 0; i < plain.count; i++) {
                const by_generation *a = &plain.rows[i], *b = &drawn.rows[i];
                assert_int_equal(a->count, b->count);
                assert_int_equal(a->finish, b->finish);
                assert_memory_equal(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count);
                assert_true(fabs((double)a->score / cold / (double)b->score - 1) < 1e-3);
            }
            by_generate_result_free(&plain);
            by_generate_result_free(&drawn);
        }
}

/* ---- all draws, one after the other ----------------------------------------------------------- */

/* log-probabilities of what follows the prompt and `count` tokens of `more`, by temperature; a filter keeps
 * the `top` likeliest */
static void cooled(const int32_t *more, int count, double temperature, int top, double out[VOCAB])
{
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = 1});
    int32_t text[PROMPT + 2];
    for (int i = 0; i < PROMPT + count; i++)
        text[i] = i < PROMPT ? prompt[i] : more[i - PROMPT];
    assert_int_equal(by_generator_feed(g, (const int32_t *[]){text}, (int[]){PROMPT + count}), BY_OK);
    const float *logits = by_generator_logits(g, 0);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    for (int i = 0; i < VOCAB; i++) {
        int higher = 0;
        for (int k = 0; k < VOCAB; k++)
            higher += logits[k] > logits[i];
        out[i] = higher >= top ? -INFINITY : ((double)logits[i] - log(sum)) / temperature;
    }
    by_generator_free(g);
}

typedef struct option {
    int beam, token;
    double total;
} option;

/* A search of two steps by two hypotheses, and the probability of every text it can find. */
typedef struct search {
    double first[VOCAB], second[VOCAB][VOCAB];
    bool stops;
    double found[VOCAB + 1][VOCAB + 1]; /* by the two tokens, NONE: there is none */
} search;

/* The best of what is finished: at most one text of one token, and two of two. */
static void conclude(search *s, int first, double first_score, const int *live, const option *a,
                     const option *b, double probability)
{
    const option *better = b && b->total > a->total ? b : a;
    const double score = better->total / 2; /* a stop token counts in the length */
    const int token = s->stops && better->token == STOP ? NONE : better->token;
    if (first_score > score)
        s->found[first][NONE] += probability;
    else
        s->found[live[better->beam]][token] += probability;
}

/* The second step is the last: the first two that are drawn are finished. */
static void second_step(search *s, int first, double first_score, const int *live, const double *totals,
                        double p)
{
    option o[2 * VOCAB];
    double weight = 0;
    int n = 0;
    for (int beam = 0; beam < 2; beam++)
        for (int k = 0; k < VOCAB; k++)
            if (s->second[live[beam]][k] > -INFINITY) {
                o[n] = (option){beam, k, totals[beam] + s->second[live[beam]][k]};
                weight += exp(o[n++].total);
            }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (i != k) {
                const double a = exp(o[i].total), b = exp(o[k].total);
                conclude(s, first, first_score, live, &o[i], &o[k], p * a / weight * b / (weight - a));
            }
}

/* Four are drawn in the first step, all orders of them; a stop among the first two is finished, the two
 * highest of the others go on. */
static void first_step(search *s, const int *drawn, double p)
{
    int live[2] = {-1, -1};
    double totals[2] = {-INFINITY, -INFINITY};
    bool finished = false;
    for (int i = 0; i < KEEP; i++) {
        const int k = drawn[i];
        if (s->stops && k == STOP) {
            finished = finished || i < WIDTH;
            continue;
        }
        const int at = s->first[k] > totals[0] ? 0 : s->first[k] > totals[1] ? 1 : 2;
        if (at == 0) {
            live[1] = live[0];
            totals[1] = totals[0];
        }
        if (at < 2) {
            live[at] = k;
            totals[at] = s->first[k];
        }
    }
    second_step(s, NONE, finished ? s->first[STOP] : -INFINITY, live, totals, p);
}

static void draw_all(search *s, int *drawn, int count, double left, double p)
{
    if (count == KEEP) {
        first_step(s, drawn, p);
        return;
    }
    for (int k = 0; k < VOCAB; k++) {
        bool seen = s->first[k] == -INFINITY;
        for (int i = 0; i < count; i++)
            seen = seen || drawn[i] == k;
        if (seen)
            continue;
        const double w = exp(s->first[k]);
        drawn[count] = k;
        draw_all(s, drawn, count + 1, left - w, p * w / left);
    }
}

static void compute(search *s, double temperature, int top, bool stops)
{
    int drawn[KEEP];
    double all = 0;
    *s = (search){.stops = stops};
    cooled(NULL, 0, temperature, top, s->first);
    for (int32_t k = 0; k < VOCAB; k++) {
        all += exp(s->first[k]);
        cooled(&k, 1, temperature, top, s->second[k]);
    }
    draw_all(s, drawn, 0, all, 1);
}

/* ---- against frequencies ---------------------------------------------------------------------- */

enum { BATCH = 64, ROUNDS = 400, DRAWS = BATCH * ROUNDS };

static void count_texts(double temperature, int top, bool stops, int count[VOCAB + 1][VOCAB + 1])
{
    by_generator *g = by_generator_new(model, &(by_generator_spec){.batch = BATCH * WIDTH, .beams = WIDTH});
    const int32_t *prompts[BATCH], stop = STOP;
    int lengths[BATCH];
    for (int i = 0; i < BATCH; i++) {
        prompts[i] = prompt;
        lengths[i] = PROMPT;
    }
    by_generate_spec spec = {.max_new_tokens = 2,
                             .stop_tokens = &stop,
                             .stop_count = stops,
                             .sampling = {.temperature = temperature, .top_k = top, .seed = 99},
                             .beam = {.width = WIDTH, .length_penalty = 1}};
    for (int round = 0; round < ROUNDS; round++) {
        by_generate_result r;
        spec.first_sample = round * BATCH;
        assert_int_equal(by_generate(g, prompts, lengths, &spec, &r), BY_OK);
        for (int i = 0; i < BATCH; i++) {
            const int32_t *t = r.rows[i].tokens + PROMPT;
            const int n = r.rows[i].count - PROMPT;
            count[n > 0 ? t[0] : NONE][n > 1 ? t[1] : NONE]++;
        }
        by_generate_result_free(&r);
    }
    by_generator_free(g);
}

static void frequencies_are_the_probabilities(void **state)
{
    (void)state;
    const struct {
        double temperature;
        int top;
        bool stops;
    } cases[] = {{1, VOCAB, false}, {0.7, VOCAB, true}, {2.5, VOCAB, true}, {1.5, 5, false}, {2, 5, true}};
    for (int c = 0; c < BY_COUNT(cases); c++) {
        static search s;
        int count[VOCAB + 1][VOCAB + 1] = {{0}}, cells = 0;
        compute(&s, cases[c].temperature, cases[c].top, cases[c].stops);
        count_texts(cases[c].temperature, cases[c].top, cases[c].stops, count);
        double all = 0, chi = 0, rest = 0, rest_count = 0;
        for (int i = 0; i <= VOCAB; i++)
            for (int k = 0; k <= VOCAB; k++) {
                const double expected = DRAWS * s.found[i][k];
                all += s.found[i][k];
                if (expected == 0)
                    assert_int_equal(count[i][k], 0);
                if (expected < 10) { /* too rare to be counted alone */
                    rest += expected;
                    rest_count += count[i][k];
                    continue;
                }
                chi += pow(count[i][k] - expected, 2) / expected;
                cells++;
            }
        assert_true(fabs(all - 1) < 1e-9);
        if (rest >= 10) {
            chi += pow(rest_count - rest, 2) / rest;
            cells++;
        }
        assert_true(cells > 8);
        if (chi > chi_square_limit(cells - 1))
            fail_msg("case %d: chi-square %.2f of %d cells, limit %.2f", c, chi, cells,
                     chi_square_limit(cells - 1));
    }
}

/* ---- what a draw depends on ------------------------------------------------------------------- */

static void a_text_depends_on_its_number_alone(void **state)
{
    (void)state;
    const int32_t *prompts[] = {prompt, prompt, prompt, prompt};
    by_generate_spec spec = {.max_new_tokens = 10,
                             .first_sample = 7,
                             .sampling = {.temperature = 1.5, .top_p = 0.95, .seed = 3},
                             .beam = {.width = 3, .length_penalty = 1, .returned = 2}};
    by_generate_result all = find(model, prompts, (int[]){3, 3, 3, 3}, 4, &spec);
    bool differ = false;
    for (int i = 0; i < 4; i++) {
        by_generate_spec one = spec;
        one.samples = &(int){7 + i};
        by_generate_result r = find(model, prompts, (int[]){3}, 1, &one);
        assert_same(&r.rows[0], &all.rows[2 * i]);
        assert_same(&r.rows[1], &all.rows[2 * i + 1]);
        differ = differ || memcmp(r.rows[0].tokens, all.rows[0].tokens, sizeof(int32_t) * 13) != 0;
        by_generate_result_free(&r);
    }
    assert_true(differ);
    by_generate_result_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_draws_are_the_search),
        cmocka_unit_test(frequencies_are_the_probabilities),
        cmocka_unit_test(a_text_depends_on_its_number_alone),
    };
    return cmocka_run_group_tests_name("beam draws", tests, open_model, close_model);
}
