/* test_ngram.c - n-gram models: estimation within a budget, files, and damage. That estimates equal KenLM's is checked by
 * `banyan verify` on recorded models (test_parity.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "banyan/ngram.h"
#include "base/file.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/banyan-ngram-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

static const char *at(const char *name) /* the last eight are valid */
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

/* Sentences of words that are drawn with falling probabilities. */
static void write_corpus(const char *path, int sentences)
{
    FILE *f = fopen(path, "w");
    base_rng r = base_rng_make(7, 1);
    assert_non_null(f);
    for (int i = 0; i < sentences; i++) {
        const int words = 3 + (int)base_rng_below(&r, 9);
        for (int k = 0; k < words; k++)
            fprintf(f, "%sw%d", k ? " " : "", (int)(exp(base_rng_uniform(&r) * 7)));
        fputc('\n', f);
    }
    fclose(f);
}

static by_status train(const char *text, by_ngram_spec spec, const char *binary, const char *arpa)
{
    return by_ngram_train(&text, 1, NULL, &spec, binary, arpa, NULL);
}

static char *contents(const char *path, size_t *size)
{
    char *text = base_file_read(path, (size_t)1 << 28, size);
    assert_non_null(text);
    return text;
}

/* The same bytes whether everything fits in memory or goes through sorted runs on disk, for any number of threads. */
static void test_budget(void **state)
{
    (void)state;
    const char *text = at("corpus");
    write_corpus(text, 20000);
    const by_ngram_spec specs[] = {{.order = 4, .discount_fallback = true, .threads = 1},
                                   {.order = 4, .discount_fallback = true, .memory = 1, .threads = 2}};
    const char *files[2] = {at("plain"), at("spilled")};
    size_t size[2];
    char *all[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(train(text, specs[i], at("model"), files[i]), BY_OK);
        all[i] = contents(files[i], &size[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(all[0], all[1], size[0]);
    base_free(all[0]);
    base_free(all[1]);
}

/* A model that went through an ARPA file, packed or not, gives the scores of its binary. */
static void test_files(void **state)
{
    (void)state;
    const char *text = at("corpus");
    write_corpus(text, 2000);
    assert_int_equal(
        train(text, (by_ngram_spec){.order = 3, .discount_fallback = true}, at("model"), at("a.arpa")),
        BY_OK);
    assert_int_equal(by_ngram_convert(at("a.arpa"), at("again")), BY_OK);
    const char *names[] = {"model", "a.arpa", "again"};
    by_ngram_sum sums[3] = {0};
    for (int i = 0; i < 3; i++) {
        by_ngram *m = by_ngram_open(at(names[i]));
        assert_non_null(m);
        assert_int_equal(by_ngram_order(m), 3);
        static const char line[] = "w1 w2 w999999 w3 w1";
        assert_int_equal(by_ngram_sentence(m, line, strlen(line), &sums[i]), BY_OK);
        by_ngram_free(m);
    }
    assert_int_equal(sums[0].unknown, 1);
    assert_int_equal(sums[0].words, 6);
    assert_true(fabs(sums[0].log10 - sums[1].log10) < 1e-5 && sums[1].log10 == sums[2].log10);
}

/* Every context, seen or not, gives a distribution. */
static void test_sums(void **state)
{
    (void)state;
    const char *text = at("corpus");
    write_corpus(text, 1000);
    const by_ngram_spec specs[] = {
        {.order = 3, .discount_fallback = true},
        {.order = 3, .discount_fallback = true, .prune = (int[]){0, 1}, .prune_count = 2},
        {.order = 3, .smoothing = BY_SMOOTHING_ADD_K, .k = 0.3},
        {.order = 1, .smoothing = BY_SMOOTHING_ADD_K, .k = 0.3}};
    for (int i = 0; i < BY_COUNT(specs); i++) {
        assert_int_equal(train(text, specs[i], at("model"), NULL), BY_OK);
        by_ngram *m = by_ngram_open(at("model"));
        assert_non_null(m);
        by_ngram_state s = by_ngram_begin(m);
        for (int32_t next = 3; next < 40; next++) {
            double sum = 0;
            for (int32_t w = 0; w < by_ngram_words(m); w++)
                if (w != by_ngram_find(m, "<s>", 3))
                    sum += pow(10, by_ngram_score(m, &s, w, NULL, NULL));
            assert_true(fabs(sum - 1) < 1e-6);
            by_ngram_score(m, &s, next * 5 % by_ngram_words(m), &s, NULL);
        }
        by_ngram_free(m);
    }
}

static void expect_error(by_status status, by_status wanted, const char *part)
{
    assert_int_equal(status, wanted);
    if (!strstr(by_error_message(), part))
        fail_msg("%s does not say %s", by_error_message(), part);
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(base_file_write(path, text, strlen(text)), BY_OK);
}

static void test_bad_corpora(void **state)
{
    (void)state;
    write_text(at("empty"), "");
    expect_error(train(at("empty"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_FORMAT, "no words");
    write_text(at("marked"), "a b\na <unk> b\n");
    expect_error(train(at("marked"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_FORMAT,
                 ":2: the text contains <unk>");
    write_text(at("tiny"), "a b\n");
    expect_error(train(at("tiny"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_FORMAT, "fallback");
    expect_error(train(at("tiny"), (by_ngram_spec){.order = 11}, at("never"), NULL), BY_ERR_ARGUMENT,
                 "order 11");
    expect_error(train(at("absent"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_IO, "absent");
    expect_error(
        train(at("tiny"), (by_ngram_spec){.prune = (int[]){0, 2, 1}, .prune_count = 3}, at("never"), NULL),
        BY_ERR_ARGUMENT, "fall");
    assert_false(base_file_exists(at("never"))); /* nothing is left of what failed */
}

static void test_bad_arpa(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "ends before"},
        {"hello\n", "\\data\\ is missing"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1 a\n", "ends before"},
        {"\\data\\\nngram 1=2\n\\1-grams:\n-1 a\n\\end\\\n", "fewer n-grams"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1 a\n-1 b\n\\end\\\n", "more n-grams"},
        {"\\data\\\nngram 1=1\n\\1-grams:\nx a\n\\end\\\n", "not a number"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n0.5 a\n\\end\\\n", "above 0"},
        {"\\data\\\nngram 1=2\n\\1-grams:\n-1 a\n-1 a\n\\end\\\n", "listed twice"},
        {"\\data\\\nngram 1=99999999999\n\\1-grams:\n-1 a\n\\end\\\n", "too short"},
        {"\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1 a\n\\2-grams:\n-1 a b\n\\end\\\n",
         "not among the unigrams"},
        {"\\data\\\nngram 1=2\nngram 2=2\n\\1-grams:\n-1 a\n-1 b\n\\2-grams:\n-1 a b\n-1 a b\n\\end\\\n",
         "listed twice"},
        {"\\data\\\nngram 1=2\nngram 2=0\nngram 3=1\n\\1-grams:\n-1 a\n-1 b\n\\2-grams:\n\\3-grams:\n-1 a b "
         "a\n\\end\\\n",
         "without its"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        write_text(at("bad.arpa"), cases[i].text);
        by_ngram *m = by_ngram_open(at("bad.arpa"));
        assert_null(m);
        if (!strstr(by_error_message(), cases[i].error))
            fail_msg("case %d: %s does not say %s", i, by_error_message(), cases[i].error);
    }
}

/* Every binary that is cut short or has a damaged byte in its header is refused or answers without harm. */
static void test_bad_binary(void **state)
{
    (void)state;
    size_t size;
    write_corpus(at("corpus"), 50);
    assert_int_equal(
        train(at("corpus"), (by_ngram_spec){.order = 2, .discount_fallback = true}, at("model"), NULL),
        BY_OK);
    char *all = contents(at("model"), &size);
    for (size_t cut = 0; cut < size; cut += 1 + size / 50) {
        assert_int_equal(base_file_write(at("cut"), all, cut), BY_OK);
        assert_null(by_ngram_open(at("cut")));
    }
    for (size_t i = 8; i < 300 && i < size; i++) {
        all[i] ^= 0x55;
        assert_int_equal(base_file_write(at("damaged"), all, size), BY_OK);
        by_ngram *m = by_ngram_open(at("damaged"));
        if (m) {
            by_ngram_state s = by_ngram_begin(m);
            for (int w = 0; w < 30; w++)
                by_ngram_score(m, &s, w, &s, NULL);
        }
        by_ngram_free(m);
        all[i] ^= 0x55;
    }
    base_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_bad_corpora),
        cmocka_unit_test(test_bad_arpa), cmocka_unit_test(test_bad_binary),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
