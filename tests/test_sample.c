/* test_sample.c - what every penalty and filter leaves, exactly, and how often what is left is drawn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "generation.h"
#include "infer/sample.h"

#define NO (-INFINITY)

/* ---- rows by hand ---------------------------------------------------------------------------- */

static gen_sampler open_sampler(int vocab)
{
    gen_sampler s;
    assert_int_equal(gen_sampler_open(&s, vocab), BY_OK);
    return s;
}

static void assert_row(const float *row, const float *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(row[i] == expected[i] || fabsf(row[i] - expected[i]) <= 1e-6f * fabsf(expected[i])))
            fail_msg("logit %d is %g, not %g", i, (double)row[i], (double)expected[i]);
}

/* The tokens not ruled out, as a string of letters: 0 is a. */
static const char *left(const float *row, int n)
{
    static char text[32];
    int k = 0;
    for (int i = 0; i < n; i++)
        if (row[i] != NO)
            text[k++] = (char)('a' + i);
    text[k] = 0;
    return text;
}

static void repetition_divides_or_multiplies_once(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(5);
    float row[] = {2, -2, 3, 0, -1};
    gen_rule_repetition(&s, &(gen_scores){.value = row, .count = s.vocab}, (int32_t[]){0, 1, 0, 0, 3}, 5, 2);
    assert_row(row, (float[]){1, -4, 3, 0, -1}, 5);
    gen_rule_repetition(&s, &(gen_scores){.value = row, .count = s.vocab}, (int32_t[]){4}, 1,
                        2); /* the marks of the first call are gone */
    gen_rule_repetition(&s, &(gen_scores){.value = row, .count = s.vocab}, (int32_t[]){0}, 1, 2);
    assert_row(row, (float[]){0.5f, -4, 3, 0, -2}, 5);
    gen_sampler_close(&s);
}

static void presence_counts_once_frequency_always(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(4);
    float row[] = {1, 1, 1, NO};
    gen_rule_presence(&s, &(gen_scores){.value = row, .count = s.vocab}, (int32_t[]){0, 2, 2, 3}, 4, 0.5,
                      0.25);
    assert_row(row, (float[]){0.25f, 1, 0, NO}, 4);
    gen_sampler_close(&s);
}

static void no_repeat_rules_out_what_completes_a_run(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(6);
    const int32_t text[] = {1, 2, 3, 1, 2, 4, 1, 2};
    float row[6] = {0};
    gen_rule_no_repeat(&(gen_scores){.value = row, .count = s.vocab}, text, 8, text, 8,
                       3); /* 1 2 was followed by 3 and by 4 */
    assert_string_equal(left(row, 6), "abcf");
    float pairs[6] = {0};
    gen_rule_no_repeat(&(gen_scores){.value = pairs, .count = s.vocab}, text, 8, text, 8, 2);
    assert_string_equal(left(pairs, 6), "abcf");
    float singles[6] = {0};
    gen_rule_no_repeat(&(gen_scores){.value = singles, .count = s.vocab}, text, 8, text, 8, 1);
    assert_string_equal(left(singles, 6), "af");
    float none[6] = {0};
    gen_rule_no_repeat(&(gen_scores){.value = none, .count = s.vocab}, text, 2, text, 2, 3);
    gen_rule_no_repeat(&(gen_scores){.value = none, .count = s.vocab}, text, 0, text, 0, 1);
    gen_rule_no_repeat(&(gen_scores){.value = none, .count = s.vocab}, text, 8, text, 8, INT32_MAX);
    assert_string_equal(left(none, 6), "abcdef");
    float twice[6] = {0};
    gen_rule_no_repeat(&(gen_scores){.value = twice, .count = s.vocab}, (int32_t[]){5, 5, 5}, 3,
                       (int32_t[]){5, 5, 5}, 3, 3);
    assert_string_equal(left(twice, 6), "abcde");
    gen_sampler_close(&s);
}

static void temperature_scales_differences(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(3);
    float row[] = {1, 3, NO}, cold[] = {1, 3, 3};
    gen_sample_temperature(&s, row, 0.5);
    assert_row(row, (float[]){-4, 0, NO}, 3);
    gen_sample_temperature(&s, cold, 1e-300);
    assert_row(cold, (float[]){NO, 0, 0}, 3);
    gen_sampler_close(&s);
}

static void top_k_keeps_k_and_their_equals(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(6);
    const struct {
        float row[6];
        int k;
        const char *left;
    } cases[] = {
        {{1, 5, 3, 2, 4, 0}, 1, "b"},       {{1, 5, 3, 2, 4, 0}, 3, "bce"},
        {{1, 5, 3, 2, 4, 0}, 5, "abcde"},   {{1, 5, 3, 2, 4, 0}, 6, "abcdef"},
        {{1, 5, 3, 2, 4, 0}, 99, "abcdef"}, {{1, 2, 2, 2, 0, 0}, 2, "bcd"},
        {{7, 7, 7, 7, 7, 7}, 1, "abcdef"},  {{NO, NO, 3, NO, 1, NO}, 4, "ce"},
        {{NO, NO, 3, NO, NO, NO}, 1, "c"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        float row[6];
        memcpy(row, cases[i].row, sizeof row);
        gen_sample_top_k(&s, row, cases[i].k);
        assert_string_equal(left(row, 6), cases[i].left);
    }
    gen_sampler_close(&s);
}

/* Probabilities 0.4, 0.1, 0.25, 0.05, 0.2. */
static void set_row(float *row)
{
    const double p[] = {0.4, 0.1, 0.25, 0.05, 0.2};
    for (int i = 0; i < 5; i++)
        row[i] = (float)(log(p[i]) + 3);
}

static void filters_by_probability(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(5);
    const struct {
        void (*filter)(gen_sampler *, float *, double);
        double p;
        const char *left;
    } cases[] = {
        {gen_sample_top_p, 0, "a"},
        {gen_sample_top_p, 0.3, "a"},
        {gen_sample_top_p, 0.41, "ac"},
        {gen_sample_top_p, 0.64, "ac"},
        {gen_sample_top_p, 0.66, "ace"},
        {gen_sample_top_p, 0.84, "ace"},
        {gen_sample_top_p, 0.9, "abce"},
        {gen_sample_top_p, 0.97, "abcde"},
        {gen_sample_top_p, 1, "abcde"},
        {gen_sample_min_p, 0, "abcde"},
        {gen_sample_min_p, 0.2, "abce"},
        {gen_sample_min_p, 0.26, "ace"},
        {gen_sample_min_p, 0.6, "ac"},
        {gen_sample_min_p, 1, "a"},
        /* entropy 1.415; distances: a 0.499, b 0.887, c 0.029, d 1.580, e 0.194 */
        {gen_sample_typical, 0, "c"},
        {gen_sample_typical, 0.2, "c"},
        {gen_sample_typical, 0.3, "ce"},
        {gen_sample_typical, 0.5, "ace"},
        {gen_sample_typical, 0.9, "abce"},
        {gen_sample_typical, 0.96, "abcde"},
        {gen_sample_typical, 1, "abcde"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        float row[5], before[5];
        set_row(row);
        memcpy(before, row, sizeof row);
        cases[i].filter(&s, row, cases[i].p);
        if (strcmp(left(row, 5), cases[i].left) != 0)
            fail_msg("case %d leaves %s, not %s", i, left(row, 5), cases[i].left);
        for (int k = 0; k < 5; k++) /* what stays is not touched */
            assert_true(row[k] == NO || row[k] == before[k]);
    }
    gen_sampler_close(&s);
}

static void equal_logits(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(6);
    float a[] = {1, 1, 1, 1, NO, NO}, b[] = {1, 1, 1, 1, NO, NO}, c[] = {NO, NO, 1, NO, NO, NO};
    gen_sample_top_p(&s, a, 0.5);
    assert_string_equal(left(a, 6), "ab");
    gen_sample_typical(&s, b, 0.5);
    assert_string_equal(left(b, 6), "abcd");
    gen_sample_top_p(&s, c, 0.01);
    gen_sample_typical(&s, c, 0.01);
    gen_sample_min_p(&s, c, 1);
    gen_sample_top_k(&s, c, 1);
    assert_string_equal(left(c, 6), "c");
    assert_int_equal(gen_sample_draw(&s, c, 0), 2);
    assert_int_equal(gen_sample_draw(&s, c, 0.999999999), 2);
    assert_int_equal(gen_sample_argmax(&s, c), 2);
    float ties[] = {0, 4, 1, 4, 4, 2};
    assert_int_equal(gen_sample_argmax(&s, ties), 1);
    gen_sampler_close(&s);
}

/* ---- against the definition, on random rows -------------------------------------------------- */

enum { MANY = 300 };

/* Softmax in doubles; 0 for what is ruled out. */
static void softmax(const float *row, int n, double *p)
{
    double top = -HUGE_VAL, sum = 0;
    for (int i = 0; i < n; i++)
        top = fmax(top, (double)row[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp((double)row[i] - top);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* What lies before token i when tokens are ordered by rising key, then id, must weigh less than mass for i to
 * stay. */
static void expect_mass(const double *p, const double *key, int n, double mass, bool *stays)
{
    for (int i = 0; i < n; i++) {
        double before = 0;
        for (int k = 0; k < n; k++)
            before += key[k] < key[i] || (key[k] == key[i] && k < i) ? p[k] : 0;
        stays[i] = p[i] > 0 && before < mass;
    }
}

static void assert_stays(const float *row, const bool *stays, const char *what, double p)
{
    for (int i = 0; i < MANY; i++)
        if ((row[i] != NO) != stays[i])
            fail_msg("%s %g: token %d should %s", what, p, i, stays[i] ? "stay" : "go");
}

static void filters_match_their_definitions(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(MANY);
    float row[MANY], work[MANY];
    double p[MANY], key[MANY];
    bool stays[MANY];
    for (int trial = 0; trial < 200; trial++) {
        base_rng_fill_normal(row, MANY, 5, (uint64_t)trial, 0, trial % 2 ? 1.0f : 4.0f);
        base_rng r = base_rng_make(6, (uint64_t)trial);
        for (int i = 0; i < MANY; i += 7)
            row[i] = NO;
        double mass = base_rng_uniform(&r), entropy = 0;
        int k = 1 + (int)base_rng_below(&r, 100);
        softmax(row, MANY, p);
        for (int i = 0; i < MANY; i++) {
            key[i] = -(double)row[i];
            entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
        }
        expect_mass(p, key, MANY, mass, stays);
        memcpy(work, row, sizeof row);
        gen_sample_top_p(&s, work, mass);
        assert_stays(work, stays, "top-p", mass);

        for (int i = 0; i < MANY; i++) {
            int above = 0;
            for (int o = 0; o < MANY; o++)
                above += row[o] > row[i];
            stays[i] = row[i] != NO && above < k;
        }
        memcpy(work, row, sizeof row);
        gen_sample_top_k(&s, work, k);
        assert_stays(work, stays, "top-k", k);

        for (int i = 0; i < MANY; i++)
            key[i] = p[i] > 0 ? fabs(-log(p[i]) - entropy) : HUGE_VAL;
        expect_mass(p, key, MANY, mass, stays);
        memcpy(work, row, sizeof row);
        gen_sample_typical(&s, work, mass);
        assert_stays(work, stays, "typical", mass);
    }
    gen_sampler_close(&s);
}

/* ---- frequencies ----------------------------------------------------------------------------- */

enum { SMALL = 12, DRAWS = 20000 };

/* Draw many samples and compare with the distribution; what has probability 0 must never come. */
static void assert_frequencies(const char *what, const by_sampling *spec, const gen_sample_at *where,
                               const float *row, const double *p)
{
    gen_sampler s = open_sampler(SMALL);
    int hits[SMALL] = {0}, degrees = -1;
    double chi = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t token;
        float logprob;
        gen_sample_at at = *where;
        at.sample = (uint64_t)i;
        assert_int_equal(gen_sample(&s, spec, &at, row, &token, &logprob, NULL), BY_OK);
        hits[token]++;
    }
    for (int i = 0; i < SMALL; i++) {
        if (p[i] == 0 && hits[i])
            fail_msg("%s: token %d came %d times and should not", what, i, hits[i]);
        if (p[i] > 0) {
            chi += (hits[i] - DRAWS * p[i]) * (hits[i] - DRAWS * p[i]) / (DRAWS * p[i]);
            degrees++;
        }
    }
    if (degrees > 0 && chi > chi_square_limit(degrees))
        fail_msg("%s: chi-square %.2f with %d degrees of freedom, limit %.2f", what, chi, degrees,
                 chi_square_limit(degrees));
    gen_sampler_close(&s);
}

static void samples_follow_the_distribution(void **state)
{
    (void)state;
    const double q[SMALL] = {0.22, 0.01, 0.13, 0.03, 0.17, 0.02, 0.09, 0.11, 0.05, 0.07, 0.06, 0.04};
    const struct {
        const char *what;
        by_sampling spec;
        unsigned left; /* bit i: token i may come */
        double power;  /* probabilities are q^power, made to sum to 1 */
    } cases[] = {
        {"plain", {.temperature = 1}, 0xfff, 1},
        {"temperature 0.5", {.temperature = 0.5}, 0xfff, 2},
        {"temperature 2", {.temperature = 2}, 0xfff, 0.5},
        {"top-k 4", {.temperature = 1, .top_k = 4}, 0x095, 1},     /* 0 2 4 7 */
        {"top-p 0.6", {.temperature = 1, .top_p = 0.6}, 0x095, 1}, /* 0.22 0.17 0.13 0.11 reach 0.63 */
        {"min-p 0.4", {.temperature = 1, .min_p = 0.4}, 0x0d5, 1}, /* at least 0.088: 0 2 4 6 7 */
        {"typical 0.3",
         {.temperature = 1, .typical_p = 0.3},
         0x0c4,
         1}, /* entropy 2.236, e^-2.236 = 0.107: 7, 6, 2 reach 0.33 */
        {"epsilon 0.08", {.temperature = 1, .epsilon_cutoff = 0.08}, 0x0d5, 1}, /* at least 0.08: 0 2 4 6 7 */
        {"epsilon 0.9", {.temperature = 1, .epsilon_cutoff = 0.9}, 0x001, 1},   /* the likeliest stays */
        /* entropy 2.236: sqrt(0.5) e^-2.236 = 0.0756; 0.4 of it is 0.894, the first terms are 0.333 0.301
           0.265 */
        {"eta 0.5", {.temperature = 1, .eta_cutoff = 0.5}, 0x0d5, 1},
        {"top-h 0.4", {.temperature = 1, .top_h = 0.4}, 0x011, 1},
        {"banned", {.temperature = 1, .banned = (int32_t[]){0, 4}, .banned_count = 2}, 0xfee, 1},
        /* at 0.5: 0.0484 0.0289 0.0169 0.0121 0.0081 of 0.1324; four reach 0.80, and 0.0121 is 0.25 of the
           first */
        {"together", {.temperature = 0.5, .top_k = 5, .top_p = 0.9, .min_p = 0.2}, 0x095, 2},
    };
    float row[SMALL];
    for (int i = 0; i < SMALL; i++)
        row[i] = (float)log(q[i]) - 1;
    for (int c = 0; c < BY_COUNT(cases); c++) {
        double p[SMALL], sum = 0;
        for (int i = 0; i < SMALL; i++)
            sum += p[i] = cases[c].left >> i & 1 ? pow(q[i], cases[c].power) : 0;
        for (int i = 0; i < SMALL; i++)
            p[i] /= sum;
        by_sampling spec = cases[c].spec;
        spec.seed = 11;
        assert_frequencies(cases[c].what, &spec, &(gen_sample_at){0}, row, p);
    }
}

/* Penalties and constraints after the text 3 | 0 4 0 4 2: each changes logits by hand here. */
static void samples_follow_the_penalties(void **state)
{
    (void)state;
    const double q[SMALL] = {0.22, 0.01, 0.13, 0.03, 0.17, 0.02, 0.09, 0.11, 0.05, 0.07, 0.06, 0.04};
    const int32_t text[] = {3, 0, 4, 0, 4, 2}, word[] = {2, 7}, other[] = {5, 6};
    const by_words words[] = {{word, 2}, {other, 2}};
    const gen_sample_at at = {
        .tokens = text, .count = 6, .prompt = 1, .limit = 6, .stops = &text[0], .stop_count = 1};
    const double times[SMALL] = {[0] = 2, [2] = 1, [4] = 2}; /* in the new text; token 3 is in the prompt */
    const struct {
        const char *what;
        by_sampling spec;
    } cases[] = {
        {"repetition", {.temperature = 1, .repetition_penalty = 1.5}},
        {"presence", {.temperature = 1, .presence_penalty = 0.7}},
        {"frequency", {.temperature = 1, .frequency_penalty = 0.7}},
        {"no repeat", {.temperature = 1, .no_repeat_ngram = 1}},
        {"words", {.temperature = 1, .words = words, .word_count = 2}},
        {"minimum", {.temperature = 1, .min_new_tokens = 6}},
        {"all",
         {.temperature = 2, .repetition_penalty = 1.5, .presence_penalty = 0.7, .frequency_penalty = 0.3}},
    };
    for (int c = 0; c < BY_COUNT(cases); c++) {
        const by_sampling *spec = &cases[c].spec;
        float row[SMALL];
        double p[SMALL], sum = 0;
        for (int i = 0; i < SMALL; i++) {
            const bool fresh = times[i] > 0, seen = fresh || i == 3;
            double x = log(q[i]) + 3; /* positive and negative ones */
            row[i] = (float)x;
            if (seen && spec->repetition_penalty > 0)
                x = x > 0 ? x / spec->repetition_penalty : x * spec->repetition_penalty;
            x -= fresh * spec->presence_penalty + times[i] * spec->frequency_penalty;
            const bool out = (seen && spec->no_repeat_ngram) || (i == 7 && spec->word_count) ||
                             (i == 3 && spec->min_new_tokens);
            sum += p[i] = out ? 0 : exp(x / spec->temperature);
        }
        for (int i = 0; i < SMALL; i++)
            p[i] /= sum;
        by_sampling seeded = *spec;
        seeded.seed = 5;
        assert_frequencies(cases[c].what, &seeded, &at, row, p);
    }
}

/* A few scores are treated as all of them are. */
static void short_lists_obey_the_rules(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(SMALL);
    const int32_t text[] = {3, 0, 4, 0, 4, 2}, banned[] = {1, 5}, word[] = {2, 7}, forced = 9, best = 7;
    const by_words words[] = {{word, 2}};
    const by_sampling specs[] = {
        {.repetition_penalty = 1.5, .presence_penalty = 1, .frequency_penalty = 0.5},
        {.no_repeat_ngram = 2, .banned = banned, .banned_count = 2, .words = words, .word_count = 1},
        {.no_repeat_ngram = 1, .min_new_tokens = 9},
        {.forced_last = &forced},
        {.forced_last = &forced, .suppressed = &best, .suppressed_count = 1}, /* its place goes to the other */
        {.forced_last = &best, .suppressed = &best, .suppressed_count = 1},
        {.forced_first = &forced},
    };
    for (int c = 0; c < BY_COUNT(specs); c++) {
        const gen_sample_at at = {.tokens = text,
                                  .count = 6,
                                  .prompt = specs[c].forced_first ? 6 : 1,
                                  .limit = 6,
                                  .stops = banned,
                                  .stop_count = 2};
        float all[SMALL], few[6];
        int32_t id[6] = {7, 0, 2, 5, 11, 4}, slot[SMALL] = {0};
        for (int i = 0; i < SMALL; i++)
            all[i] = (float)(i % 5) - 2.5f;
        for (int i = 0; i < 6; i++) {
            few[i] = all[id[i]];
            slot[id[i]] = i + 1;
        }
        gen_scores whole = {.value = all, .count = SMALL}, list = {few, id, slot, 6};
        gen_constrain(&s, &specs[c], &at, &whole, NULL);
        gen_constrain(&s, &specs[c], &at, &list, NULL);
        assert_int_equal(list.count, specs[c].forced_last || specs[c].forced_first ? 1 : 6);
        for (int i = 0; i < list.count; i++)
            assert_true(few[i] == all[id[i]]);
    }
    gen_sampler_close(&s);
}

/* An explanation says what was likely, who changed it, and what came. */
static void choices_are_explained(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(4);
    const float row[] = {1, 3, 2, 0};
    const int32_t text[] = {1}, banned[] = {2};
    const gen_sample_at at = {.tokens = text, .count = 1, .prompt = 1};
    const by_sampling spec = {
        .repetition_penalty = 6, .banned = banned, .banned_count = 1, .temperature = 0.5, .top_k = 1};
    int32_t token;
    float logprob;
    by_explanation why = {0};
    assert_int_equal(gen_sample(&s, &spec, &at, row, &token, &logprob, &why), BY_OK);
    assert_int_equal(token, 0);
    assert_int_equal(why.chosen, 0);
    assert_int_equal(why.left, 1);
    assert_true(why.draw >= 0);
    assert_int_equal(why.count, 4);
    const by_candidate *c = why.candidates; /* in the model's order: 1 2 0 3 */
    const double sum = exp(1) + exp(3) + exp(2) + exp(0), lowered = exp(1) + exp(0.5) + exp(2) + exp(0);
    assert_int_equal(c[0].token, 1);
    assert_true(fabs((double)c[0].probability - exp(3) / sum) < 1e-6);
    assert_string_equal(c[0].changes[0].rule, "repetition penalty");
    assert_true(fabs((double)c[0].changes[0].share - exp(0.5) / lowered) < 1e-6);
    assert_string_equal(c[0].changes[c[0].n_changes - 1].rule, "top-k");
    assert_int_equal(c[0].fate, BY_FATE_RULED_OUT);
    assert_string_equal(c[1].changes[0].rule, "banned token");
    assert_true(c[1].n_changes == 1 && c[1].changes[0].share == 0);
    assert_int_equal(c[2].fate, BY_FATE_CHOSEN);
    assert_true(fabs((double)c[2].share - 1) < 1e-6);
    gen_sampler_close(&s);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int32_t choose(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, const float *row)
{
    int32_t token = -1;
    float logprob;
    assert_int_equal(gen_sample(s, spec, at, row, &token, &logprob, NULL), BY_OK);
    return token;
}

static void temperature_zero_is_greedy(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(4);
    const float row[] = {1, 3, 3, 2};
    const gen_sample_at none = {0}, after = {.tokens = (int32_t[]){1, 2},
                                             .count = 2,
                                             .prompt = 1,
                                             .stops = (int32_t[]){1, 2},
                                             .stop_count = 2};
    int32_t token;
    float logprob;
    assert_int_equal(gen_sample(&s, &(by_sampling){0}, &none, row, &token, &logprob, NULL), BY_OK);
    assert_int_equal(token, 1);
    assert_float_equal(logprob, 3 - log(exp(1) + 2 * exp(3) + exp(2)), 1e-6);
    assert_int_equal(choose(&s, &(by_sampling){.repetition_penalty = 2}, &after, row), 3);
    assert_int_equal(choose(&s, &(by_sampling){.presence_penalty = 9}, &after, row),
                     1); /* 1 is in the prompt only */
    assert_int_equal(choose(&s, &(by_sampling){.no_repeat_ngram = 1}, &after, row), 3);
    assert_int_equal(choose(&s, &(by_sampling){.min_new_tokens = 2}, &after, row), 3);
    assert_int_equal(choose(&s, &(by_sampling){.min_new_tokens = 1}, &after, row), 1);
    assert_int_equal(choose(&s, &(by_sampling){.banned = (int32_t[]){1}, .banned_count = 1}, &none, row), 2);
    assert_int_equal(choose(&s, &(by_sampling){.temperature = 1e-30}, &none, (float[]){1, 2, 3, 1}), 2);
    gen_sampler_close(&s);
}

/* Of a long row, the token drawn is the first at which the running sum of the weights passes u; the first of equals is the likeliest, wherever
 * it stands. */
static void long_rows_are_inverted(void **state)
{
    (void)state;
    enum { LONG = 1000 };
    float row[LONG];
    gen_sampler s = open_sampler(LONG);
    base_rng r = base_rng_make(5, 1);
    for (int i = 0; i < LONG; i++)
        row[i] = i % 7 == 0 || i < 300 ? NO : (float)(3 * base_rng_uniform(&r));
    double total = 0, sum = 0;
    for (int i = 0; i < LONG; i++)
        total += exp((double)row[i]);
    for (int i = 0; i < LONG; i++) {
        const double weight = exp((double)row[i]);
        if (weight > 0) {
            assert_int_equal(gen_sample_draw(&s, row, (sum + 0.01 * weight) / total), i);
            assert_int_equal(gen_sample_draw(&s, row, (sum + 0.99 * weight) / total), i);
        }
        sum += weight;
    }
    assert_int_equal(gen_sample_draw(&s, row, 0), 300);
    for (int i = 0; i < LONG; i += 37) {
        const float before = row[i];
        row[i] = 5;
        assert_int_equal(gen_sample_argmax(&s, row), i);
        row[LONG - 1] = 5;
        assert_int_equal(gen_sample_argmax(&s, row), i);
        row[LONG - 1] = 0;
        row[i] = before;
    }
    gen_sampler_close(&s);
}

static void draws_depend_on_seed_sample_and_place(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(64);
    float row[64] = {0};
    int32_t text[8] = {0}, first[3][8];
    int same_sample = 0, same_seed = 0;
    for (int run = 0; run < 3; run++)
        for (int i = 0; i < 8; i++) {
            by_sampling spec = {.temperature = 1, .seed = run == 2 ? 2 : 1};
            first[run][i] =
                choose(&s, &spec, &(gen_sample_at){.tokens = text, .count = i, .sample = run == 1}, row);
        }
    for (int i = 7; i >= 0; i--) { /* in another order */
        gen_sample_at at = {.tokens = text, .count = i};
        assert_int_equal(choose(&s, &(by_sampling){.temperature = 1, .seed = 1}, &at, row), first[0][i]);
        same_sample += first[0][i] == first[1][i];
        same_seed += first[0][i] == first[2][i];
    }
    assert_true(same_sample < 4 && same_seed < 4);
    gen_sampler_close(&s);
}

static void bad_numbers_are_errors(void **state)
{
    (void)state;
    gen_sampler s = open_sampler(3);
    const gen_sample_at none = {0};
    int32_t token;
    float logprob;
    assert_int_equal(gen_sample(&s, &(by_sampling){0}, &none, (float[]){1, NAN, 2}, &token, &logprob, NULL),
                     BY_ERR_NUMERIC);
    assert_non_null(strstr(by_error_message(), "token 1"));
    assert_int_equal(
        gen_sample(&s, &(by_sampling){0}, &none, (float[]){1, 0, INFINITY}, &token, &logprob, NULL),
        BY_ERR_NUMERIC);
    assert_int_equal(gen_sample(&s, &(by_sampling){0}, &none, (float[]){NO, NO, NO}, &token, &logprob, NULL),
                     BY_ERR_NUMERIC);
    by_sampling all = {.temperature = 1, .banned = (int32_t[]){0, 1, 2}, .banned_count = 3};
    assert_int_equal(gen_sample(&s, &all, &none, (float[]){1, 2, 3}, &token, &logprob, NULL), BY_ERR_NUMERIC);
    assert_int_equal(
        gen_sample(&s, &(by_sampling){.temperature = 1}, &none, (float[]){NO, 3, NO}, &token, &logprob, NULL),
        BY_OK);
    assert_int_equal(token, 1);
    assert_float_equal(logprob, 0, 1e-6);

    const by_sampling wrong[] = {
        {.temperature = -1},
        {.temperature = NAN},
        {.top_p = 1.5},
        {.top_p = -0.1},
        {.min_p = 2},
        {.typical_p = NAN},
        {.top_k = -1},
        {.no_repeat_ngram = -3},
        {.min_new_tokens = -1},
        {.presence_penalty = INFINITY},
        {.repetition_penalty = -2},
        {.banned = (int32_t[]){3}, .banned_count = 1},
    };
    for (int i = 0; i < BY_COUNT(wrong); i++)
        assert_int_equal(gen_sampling_check(&wrong[i], 3), BY_ERR_ARGUMENT);
    assert_int_equal(
        gen_sampling_check(&(by_sampling){.temperature = 1, .top_p = 1, .min_p = 1, .top_k = 1 << 30}, 3),
        BY_OK);
    gen_sampler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetition_divides_or_multiplies_once),
        cmocka_unit_test(presence_counts_once_frequency_always),
        cmocka_unit_test(no_repeat_rules_out_what_completes_a_run),
        cmocka_unit_test(temperature_scales_differences),
        cmocka_unit_test(top_k_keeps_k_and_their_equals),
        cmocka_unit_test(filters_by_probability),
        cmocka_unit_test(equal_logits),
        cmocka_unit_test(filters_match_their_definitions),
        cmocka_unit_test(samples_follow_the_distribution),
        cmocka_unit_test(samples_follow_the_penalties),
        cmocka_unit_test(short_lists_obey_the_rules),
        cmocka_unit_test(choices_are_explained),
        cmocka_unit_test(temperature_zero_is_greedy),
        cmocka_unit_test(long_rows_are_inverted),
        cmocka_unit_test(draws_depend_on_seed_sample_and_place),
        cmocka_unit_test(bad_numbers_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
