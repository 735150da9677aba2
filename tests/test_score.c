/* test_score.c - BLEU, chrF and ROUGE against figures of sacreBLEU 2.6.0 and rouge_score 0.1.2, which
 * tools/score_equal.py recorded in tests/data/score for texts of its own. Counts must be equal, scores to
 * 1e-12. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "banyan/score.h"
#include "base/file.h"
#include "score/score.h"

enum { FILES = 4, MOST_LINES = 256 };

typedef struct texts {
    char *file[FILES];
    char *line[FILES][MOST_LINES]; /* hypotheses, then three references */
    int count;
} texts;

static void read_texts(texts *t)
{
    static const char *const names[] = {"hypotheses", "references1", "references2", "references3"};
    for (int f = 0; f < FILES; f++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tests/data/score/%s.txt", BY_SOURCE_DIR, names[f]);
        char *at = t->file[f] = base_file_read(path, 1 << 20, NULL);
        assert_non_null(at);
        int n = 0;
        for (char *end; (end = strchr(at, '\n')); at = end + 1) {
            *end = '\0';
            assert_true(n < MOST_LINES);
            t->line[f][n++] = at;
        }
        assert_true(f == 0 || n == t->count);
        t->count = n;
    }
    assert_true(t->count > 100);
}

static void free_texts(texts *t)
{
    for (int f = 0; f < FILES; f++)
        base_free(t->file[f]);
}

static void near(const char *row, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%s\n%.17g, not %.17g", row, got, want);
}

/* The numbers of a row; returns how many. */
static int numbers(const char *row, double *out, int most)
{
    int n = 0;
    for (char *end; n < most; n++, row = end) {
        out[n] = strtod(row, &end);
        if (end == row)
            break;
    }
    return n;
}

typedef by_status (*add_fn)(void *metric, const char *hypothesis, const char *const *references, int count);

/* One line, or all of them when it is -1. */
static void add(const texts *t, int line, int references, add_fn fn, void *metric)
{
    for (int i = line < 0 ? 0 : line; i < (line < 0 ? t->count : line + 1); i++) {
        const char *r[] = {t->line[1][i], t->line[2][i], t->line[3][i]};
        assert_int_equal(fn(metric, t->line[0][i], r, references), BY_OK);
    }
}

static by_status add_bleu(void *m, const char *h, const char *const *r, int n)
{
    return by_bleu_add(m, h, r, n);
}

static by_status add_chrf(void *m, const char *h, const char *const *r, int n)
{
    return by_chrf_add(m, h, r, n);
}

static char *broken(const char *line)
{
    char *s = base_strdup(line);
    assert_non_null(s);
    for (char *at; (at = strstr(s, "<n>"));) {
        *at = '\n';
        memmove(at + 1, at + 3, strlen(at + 3) + 1);
    }
    return s;
}

static by_status add_rouge(void *m, const char *h, const char *const *r, int n)
{
    char *text = broken(h), *refs[3] = {NULL};
    for (int i = 0; i < n; i++)
        refs[i] = broken(r[i]);
    by_status s = by_rouge_add(m, text, (const char *const *)refs, n);
    base_free(text);
    for (int i = 0; i < n; i++)
        base_free(refs[i]);
    return s;
}

static void check_bleu(const texts *t, const char *row, const double *v)
{
    by_bleu *b = by_bleu_new(&(by_bleu_spec){.words = (by_bleu_words)v[0],
                                             .smooth = (by_bleu_smooth)v[1],
                                             .lowercase = v[2] != 0,
                                             .effective_order = v[3] != 0});
    assert_non_null(b);
    add(t, (int)v[5], (int)v[4], add_bleu, b);
    by_bleu_score s;
    by_bleu_read(b, &s);
    near(row, s.score, v[6]);
    for (int n = 0; n < BY_BLEU_ORDER; n++)
        near(row, s.precision[n], v[7 + n]);
    near(row, s.brevity, v[11]);
    assert_int_equal(s.hypothesis_words, (int64_t)v[12]);
    assert_int_equal(s.reference_words, (int64_t)v[13]);
    by_bleu_free(b);
}

static void check_chrf(const texts *t, const char *row, const double *v)
{
    by_chrf *c = by_chrf_new(&(by_chrf_spec){
        .word_order = (int)v[0], .lowercase = v[1] != 0, .whitespace = v[2] != 0, .eps_smooth = v[3] != 0});
    assert_non_null(c);
    add(t, (int)v[5], (int)v[4], add_chrf, c);
    near(row, by_chrf_read(c), v[6]);
    by_chrf_free(c);
}

static void check_rouge(const texts *t, const char *row, const double *v)
{
    by_rouge *r = by_rouge_new(&(by_rouge_spec){.stem = v[0] != 0});
    assert_non_null(r);
    add(t, (int)v[2], (int)v[1], add_rouge, r);
    by_rouge_score s[BY_ROUGE_COUNT];
    by_rouge_read(r, s);
    for (int k = 0; k < BY_ROUGE_COUNT; k++) {
        near(row, s[k].precision, v[3 + 3 * k]);
        near(row, s[k].recall, v[4 + 3 * k]);
        near(row, s[k].f1, v[5 + 3 * k]);
    }
    by_rouge_free(r);
}

static void test_figures(void **state)
{
    (void)state;
    texts t = {0};
    read_texts(&t);
    char *rows = base_file_read(BY_SOURCE_DIR "/tests/data/score/figures.txt", 1 << 20, NULL);
    assert_non_null(rows);
    int seen[3] = {0};
    char *at = rows;
    for (char *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        double v[16];
        int n = numbers(strchr(at, ' '), v, 16);
        if (strncmp(at, "bleu ", 5) == 0) {
            assert_int_equal(n, 14);
            check_bleu(&t, at, v);
            seen[0]++;
        } else if (strncmp(at, "chrf ", 5) == 0) {
            assert_int_equal(n, 7);
            check_chrf(&t, at, v);
            seen[1]++;
        } else {
            assert_int_equal(n, 15);
            check_rouge(&t, at, v);
            seen[2]++;
        }
    }
    assert_true(seen[0] > 250 && seen[1] > 150 && seen[2] > 200);
    base_free(rows);
    free_texts(&t);
}

static void test_stems(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"caresses", "caress"},  {"dies", "die"},       {"flies", "fli"},
        {"spied", "spi"},        {"died", "die"},       {"agreed", "agre"},
        {"feed", "feed"},        {"hopping", "hop"},    {"falling", "fall"},
        {"filing", "file"},      {"sing", "sing"},      {"enjoy", "enjoy"},
        {"happy", "happi"},      {"sky", "sky"},        {"dying", "die"},
        {"relational", "relat"}, {"geology", "geolog"}, {"carefully", "care"},
        {"radically", "radic"},  {"adoption", "adopt"}, {"controlling", "control"},
        {"rate", "rate"},        {"cease", "ceas"},     {"news", "news"},
        {"syzygy", "syzygi"},    {"ousness", "ous"}};
    for (int i = 0; i < BY_COUNT(pairs); i++) {
        char word[32];
        snprintf(word, sizeof word, "%s", pairs[i][0]);
        word[score_porter_stem(word, strlen(word))] = '\0';
        assert_string_equal(word, pairs[i][1]);
    }
}

static void test_signatures(void **state)
{
    (void)state;
    const char *two[] = {"a b", "c d"};
    by_bleu *b = by_bleu_new(NULL);
    assert_int_equal(by_bleu_add(b, "a b", two, 1), BY_OK);
    assert_string_equal(by_bleu_signature(b),
                        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:banyan-" BY_VERSION);
    assert_int_equal(by_bleu_add(b, "a b", two, 2), BY_OK);
    assert_string_equal(by_bleu_signature(b),
                        "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:banyan-" BY_VERSION);
    by_bleu_free(b);
    b = by_bleu_new(&(by_bleu_spec){
        .words = BY_BLEU_INTL, .smooth = BY_BLEU_FLOOR, .lowercase = true, .effective_order = true});
    assert_int_equal(by_bleu_add(b, "a b", two, 2), BY_OK);
    assert_string_equal(by_bleu_signature(b),
                        "nrefs:2|case:lc|eff:yes|tok:intl|smooth:floor[0.10]|version:banyan-" BY_VERSION);
    by_bleu_free(b);
    by_chrf *c = by_chrf_new(&(by_chrf_spec){.word_order = 2});
    assert_int_equal(by_chrf_add(c, "a b", two, 2), BY_OK);
    assert_string_equal(by_chrf_name(c), "chrF2++");
    assert_string_equal(by_chrf_signature(c),
                        "nrefs:2|case:mixed|eff:yes|nc:6|nw:2|space:no|version:banyan-" BY_VERSION);
    by_chrf_free(c);
}

/* What fails leaves no trace, and a cleared object is as new. */
static void test_errors(void **state)
{
    (void)state;
    const char *good[] = {"the cat sat on the mat"}, *bad[] = {"the \xff cat"};
    by_bleu *b = by_bleu_new(NULL);
    by_bleu_score before, after;
    assert_int_equal(by_bleu_add(b, good[0], good, 1), BY_OK);
    by_bleu_read(b, &before);
    assert_true(fabs(before.score - 100) < 1e-9);
    assert_int_equal(by_bleu_add(b, good[0], bad, 1), BY_ERR_FORMAT);
    assert_string_equal(by_error_message(), "reference 1: invalid UTF-8 at byte 5");
    assert_int_equal(by_bleu_add(b, bad[0], good, 1), BY_ERR_FORMAT);
    assert_int_equal(by_bleu_add(b, good[0], good, 0), BY_ERR_ARGUMENT);
    assert_int_equal(by_bleu_add(b, NULL, good, 1), BY_ERR_ARGUMENT);
    by_bleu_read(b, &after);
    assert_memory_equal(&before, &after, sizeof before);
    by_bleu_clear(b);
    by_bleu_read(b, &after);
    assert_true(after.score == 0 && after.hypothesis_words == 0);
    by_bleu_free(b);
    assert_null(by_bleu_new(&(by_bleu_spec){.words = (by_bleu_words)9}));
    assert_null(by_chrf_new(&(by_chrf_spec){.char_order = 1000}));
    by_chrf *c = by_chrf_new(NULL);
    assert_int_equal(by_chrf_add(c, good[0], bad, 1), BY_ERR_FORMAT);
    assert_true(by_chrf_read(c) == 0);
    by_chrf_free(c);
    by_rouge *r = by_rouge_new(NULL);
    assert_int_equal(by_rouge_add(r, bad[0], good, 1), BY_ERR_FORMAT);
    by_rouge_score s[BY_ROUGE_COUNT];
    by_rouge_read(r, s);
    assert_true(s[BY_ROUGE_1].f1 == 0);
    by_rouge_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_stems),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
