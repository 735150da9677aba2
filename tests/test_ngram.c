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

#include "banyan/evaluate.h"
#include "banyan/generate.h"
#include "banyan/ngram.h"
#include "base/file.h"
#include "text/tokenizer.h"

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

static const char *at(const char *name) /* the last sixteen are valid */
{
    static char paths[16][512];
    static int next;
    char *path = paths[next++ % 16];
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

static void assert_same_files(const char *a, const char *b)
{
    size_t size[2];
    char *all[2] = {contents(a, &size[0]), contents(b, &size[1])};
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(all[0], all[1], size[0]);
    base_free(all[0]);
    base_free(all[1]);
}

/* The same bytes whether everything fits in memory or goes through sorted runs on disk, for any number of threads. */
static void test_budget(void **state)
{
    (void)state;
    const char *text = at("corpus");
    write_corpus(text, 20000);
    const by_ngram_spec specs[] = {{.order = 4, .discount_fallback = true, .threads = 1},
                                   {.order = 4, .discount_fallback = true, .memory = 1, .threads = 2}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            train(text, specs[i], at(i ? "spilled" : "plain"), at(i ? "spilled.arpa" : "plain.arpa")), BY_OK);
    assert_same_files(at("plain"), at("spilled"));
    assert_same_files(at("plain.arpa"), at("spilled.arpa"));
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
    assert_int_equal(by_ngram_convert(at("a.arpa"), at("again.bin")), BY_OK);
    const char *names[] = {"model", "a.arpa", "again.bin"};
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
                 ":2: the text contains the reserved symbol <unk>");
    write_text(at("tiny"), "a b\n");
    expect_error(train(at("tiny"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_FORMAT, "fallback");
    expect_error(train(at("tiny"), (by_ngram_spec){.order = 21}, at("never"), NULL), BY_ERR_ARGUMENT,
                 "order 21");
    expect_error(
        train(at("tiny"), (by_ngram_spec){.prune = (int[]){0, 0, 1, 1}, .prune_count = 4}, at("never"), NULL),
        BY_ERR_ARGUMENT, "4 pruning thresholds; the order is 3");
    expect_error(train(at("absent"), (by_ngram_spec){0}, at("never"), NULL), BY_ERR_IO, "absent");
    expect_error(train(at("tiny"), (by_ngram_spec){.smoothing = BY_SMOOTHING_UNKNOWN}, at("never"), NULL),
                 BY_ERR_ARGUMENT, "smoothing");
    expect_error(train(at("tiny"),
                       (by_ngram_spec){.temporary = at("absent"), .discount_fallback = true, .memory = 1},
                       at("absent/never"), NULL),
                 BY_ERR_IO, "absent");
    expect_error(
        train(at("tiny"), (by_ngram_spec){.prune = (int[]){0, 2, 1}, .prune_count = 3}, at("never"), NULL),
        BY_ERR_ARGUMENT, "decrease");
    assert_false(base_file_exists(at("never"))); /* nothing is left of what failed */
}

static void test_bad_arpa(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "the file is empty"},
        {"hello\n", "\\data\\ is missing"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1 a\n", "ends before"},
        {"\\data\\\nngram 1=2\n\\1-grams:\n-1 a\n\\end\\\n", "fewer n-grams"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1 a\n-1 b\n\\end\\\n", "more n-grams"},
        {"\\data\\\nngram 1=1\n\\1-grams:\nx a\n\\end\\\n", "not a number"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n0.5 a\n\\end\\\n", "above 0"},
        {"\\data\\\nngram 1=2\n\\1-grams:\n-1 a\n-1 a\n\\end\\\n", "listed twice"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1\ta b c\n\\end\\\n",
         "a probability, a word and optionally a weight"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1\n\\end\\\n", "a probability, a word and optionally a weight"},
        {"\\data\\\nngram 1=1\n\\1-grams:\n-1 a x\n\\end\\\n", "not a number"},
        {"\\data\\\nngram 2=1\n\\1-grams:\n-1 a\n\\end\\\n", "an invalid count"},
        {"\\data\\\nngram 1=-1\n\\1-grams:\n-1 a\n\\end\\\n", "an invalid count"},
        {"\\data\\\nngram 1=1x\n\\1-grams:\n-1 a\n\\end\\\n", "an invalid count"},
        {"\\data\\\n\\1-grams:\n-1 a\n\\end\\\n", "no counts"},
        {"\\data\\\nngram 1=1\nngram 2=1\nngram 3=1\nngram 4=1\nngram 5=1\nngram 6=1\nngram 7=1\nngram 8=1\n"
         "ngram 9=1\nngram 10=1\nngram 11=1\nngram 12=1\nngram 13=1\nngram 14=1\nngram 15=1\nngram 16=1\n"
         "ngram 17=1\nngram 18=1\nngram 19=1\nngram 20=1\nngram 21=1\n",
         "order 21; the highest order is 20"},
        {"\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1 a\n\\2-grams:\n-1 a a a\n\\end\\\n",
         "too many words"},
        {"\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1 a\n\\2-grams:\n-1 a\n\\end\\\n", "too few words"},
        {"\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1 a\n\\3-grams:\n-1 a a\n\\end\\\n",
         "expected the next order"},
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

static void expect_numbers(const char *path)
{
    by_ngram *m = by_ngram_open(path);
    by_ngram_state s = by_ngram_begin(m);
    for (int w = 0; w < by_ngram_words(m); w++)
        assert_false(isnan(by_ngram_score(m, &s, w, &s, NULL)));
    by_ngram_free(m);
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
    for (size_t i = 300 / 4 * 4; i + 4 <= size; i += 4 * (1 + size / 1000)) { /* floats that are no numbers */
        char kept[4];
        memcpy(kept, all + i, 4);
        memset(all + i, 0xff, 4);
        assert_int_equal(base_file_write(at("damaged"), all, size), BY_OK);
        expect_numbers(at("damaged"));
        memcpy(all + i, kept, 4);
    }
    base_free(all);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of a file in order; *text holds them. */
static char **sorted_lines(const char *path, char **text, int *count)
{
    size_t size;
    char **lines = NULL;
    *count = 0;
    *text = contents(path, &size);
    for (char *line = strtok(*text, "\n"); line; line = strtok(NULL, "\n")) {
        lines = realloc(lines, sizeof *lines * (size_t)(*count + 1));
        assert_non_null(lines);
        lines[(*count)++] = line;
    }
    qsort(lines, (size_t)*count, sizeof *lines, by_text);
    return lines;
}

/* The ARPA file of a binary has the lines of the one that was written with it. */
static void test_back_to_arpa(void **state)
{
    (void)state;
    char *text[2], **lines[2];
    int count[2];
    write_corpus(at("corpus"), 3000);
    assert_int_equal(train(at("corpus"), (by_ngram_spec){.order = 4, .discount_fallback = true}, at("model"),
                           at("a.arpa")),
                     BY_OK);
    assert_int_equal(by_ngram_convert(at("model"), at("b.arpa")), BY_OK);
    for (int i = 0; i < 2; i++)
        lines[i] = sorted_lines(at(i ? "b.arpa" : "a.arpa"), &text[i], &count[i]);
    assert_int_equal(count[0], count[1]);
    for (int i = 0; i < count[0]; i++)
        assert_string_equal(lines[0][i], lines[1][i]);
    for (int i = 0; i < 2; i++) {
        free(lines[i]);
        base_free(text[i]);
    }
}

static double sum_of(const float *logs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += exp((double)logs[i]);
    return sum;
}

static by_ngram *bytes_model(by_tokenizer *t, by_smoothing smoothing)
{
    const char *text = at("corpus");
    const by_ngram_spec spec = {.order = 4, .smoothing = smoothing, .k = 0.1, .discount_fallback = true};
    write_corpus(text, 2000);
    assert_int_equal(by_ngram_train(&text, 1, t, &spec, at("bytes"), NULL, NULL), BY_OK);
    by_ngram *m = by_ngram_open(at("bytes"));
    assert_non_null(m);
    assert_int_equal(by_ngram_tokens(m), by_tokenizer_vocab_size(t));
    return m;
}

/* Tokens that never occur have a share too, and the shares of all tokens add up to 1 in every context; the score of one
 * token is that of the distribution. */
static void test_tokens(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    assert_non_null(t);
    for (int k = 0; k < 2; k++) {
        by_ngram *m = bytes_model(t, k ? BY_SMOOTHING_ADD_K : BY_SMOOTHING_KNESER_NEY);
        const int vocab = by_ngram_tokens(m);
        float *row = base_alloc_zero((size_t)vocab, sizeof *row);
        by_ngram_state s = by_ngram_begin(m);
        for (const char *c = "w12 w3\nw9 \x01zw1"; *c; c++) {
            by_ngram_token_distribution(m, &s, row);
            assert_true(fabs(sum_of(row, vocab) - 1) < 1e-5);
            const double p = by_ngram_token_score(m, &s, (unsigned char)*c, &s);
            assert_true(fabs(p - (double)row[(unsigned char)*c]) < 1e-5);
        }
        base_free(row);
        by_ngram_free(m);
    }
    by_tokenizer_free(t);
}

/* Perplexity of a stream is the sum of the scores of its tokens but the first; all bytes but one are predicted. */
static void test_evaluate(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    by_ngram *m = bytes_model(t, BY_SMOOTHING_KNESER_NEY);
    static const char text[] = "w1 w2\nw17 w3\n";
    const char *path = at("held-out");
    double nats = 0;
    by_perplexity_result r;
    by_ngram_state s = by_ngram_begin(m);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        const double p = by_ngram_token_score(m, &s, (unsigned char)text[i], &s);
        nats -= i ? p : 0;
    }
    assert_int_equal(base_file_write(path, text, strlen(text)), BY_OK);
    assert_int_equal(by_ngram_evaluate(m, t, &path, 1, &(by_perplexity_spec){0}, NULL, &r, NULL), BY_OK);
    assert_true(fabs(r.nats - nats) < 1e-9);
    assert_int_equal(r.bytes, (int)strlen(text) - 1);
    assert_int_equal(by_ngram_evaluate(m, NULL, &path, 1, &(by_perplexity_spec){0}, NULL, &r, NULL),
                     BY_ERR_ARGUMENT);
    by_ngram_free(m);
    by_tokenizer_free(t);
}

/* The same seed gives the same text, another one another; a model of words never writes <unk> or <s>. */
static void test_generate(void **state)
{
    (void)state;
    write_corpus(at("corpus"), 2000);
    assert_int_equal(
        train(at("corpus"), (by_ngram_spec){.order = 3, .discount_fallback = true}, at("model"), NULL),
        BY_OK);
    by_ngram *m = by_ngram_open(at("model"));
    by_generate_result r[3];
    by_generation *g[3];
    for (int i = 0; i < 3; i++) {
        const by_generate_spec spec = {
            .max_new_tokens = 50, .ignore_eos = true, .sampling = {.temperature = 1, .seed = i < 2 ? 5 : 6}};
        assert_int_equal(by_ngram_generate(m, &(const int32_t *){&(int32_t){0}}, &(int){0}, 1, &spec, &r[i]),
                         BY_OK);
        assert_int_equal(r[i].new_tokens, 50);
        g[i] = r[i].rows;
        assert_int_equal(g[i]->count, 50);
        assert_int_equal(g[i]->finish, BY_FINISH_LENGTH);
        for (int k = 0; k < g[i]->count; k++)
            assert_int_equal(by_ngram_word(m, g[i]->tokens[k])[0], 'w');
    }
    assert_memory_equal(g[0]->tokens, g[1]->tokens, 50 * sizeof *g[0]->tokens);
    assert_memory_not_equal(g[0]->tokens, g[2]->tokens, 50 * sizeof *g[0]->tokens);
    for (int i = 0; i < 3; i++)
        by_generate_result_free(&r[i]);
    by_ngram_free(m);
}

/* A sentence, whose words are looked up together, has the scores of its words one by one. */
static void test_sentence(void **state)
{
    (void)state;
    write_corpus(at("corpus"), 2000);
    for (int order = 1; order <= 6; order++)
        for (int kind = 0; kind < 2; kind++) {
            const by_ngram_spec spec = {.order = order,
                                        .smoothing = kind ? BY_SMOOTHING_STUPID : BY_SMOOTHING_KNESER_NEY,
                                        .discount_fallback = true};
            assert_int_equal(train(at("corpus"), spec, at("model"), NULL), BY_OK);
            by_ngram *m = by_ngram_open(at("model"));
            char text[4096] = "";
            double known = 0; /* unknown words are impossible under stupid back-off */
            by_ngram_state s = by_ngram_begin(m);
            for (int i = 0; i < 150; i++) {
                char word[16];
                snprintf(word, sizeof word, "w%d", i % 7 ? 1 + i * i % 40 : 100000 + i);
                snprintf(text + strlen(text), sizeof text - strlen(text), "\t%s ", word);
                const double p = by_ngram_score(m, &s, by_ngram_find(m, word, strlen(word)), &s, NULL);
                known += i % 7 ? p : 0;
            }
            known += by_ngram_score(m, &s, by_ngram_find(m, "</s>", 4), NULL, NULL);
            by_ngram_sum sum = {0};
            assert_int_equal(by_ngram_sentence(m, text, strlen(text), &sum), BY_OK);
            assert_int_equal(sum.words, 151);
            assert_int_equal(sum.unknown, 22);
            assert_true(isfinite(known) && fabs(sum.log10_known - known) < 1e-6);
            by_ngram_free(m);
        }
}

/* Contexts of <s> alone, where the order is above the length of every sentence, are distributions too. */
static void check_order(int order)
{
    assert_int_equal(
        train(at("short"), (by_ngram_spec){.order = order, .discount_fallback = true}, at("model"), NULL),
        BY_OK);
    by_ngram *m = by_ngram_open(at("model"));
    assert_int_equal(by_ngram_order(m), order);
    by_ngram_state s = by_ngram_begin(m);
    for (int32_t next = 0; next < by_ngram_words(m); next++) {
        double sum = 0;
        for (int32_t w = 0; w < by_ngram_words(m); w++)
            sum += w == 1 ? 0 : pow(10, by_ngram_score(m, &s, w, NULL, NULL));
        assert_true(fabs(sum - 1) < 1e-6);
        by_ngram_score(m, &s, next, &s, NULL);
    }
    by_ngram_free(m);
}

static void test_high_order(void **state)
{
    (void)state;
    write_text(at("short"), "a b\na\nb a\n\n");
    check_order(9);
    write_text(at("short"), "a b a b a b a b a b a b a b a b a b a b a b a b\na\nb a\n\n");
    check_order(BY_NGRAM_MAX_ORDER);
}

/* Lines of tokens are texts of their own: the ends of lines are predicted. */
static void test_lines(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    const char *text = at("lines");
    by_ngram_result r;
    write_text(text, "ab\nab\nac\n");
    const by_ngram_spec spec = {.order = 2, .smoothing = BY_SMOOTHING_MLE, .lines = true};
    assert_int_equal(by_ngram_train(&text, 1, t, &spec, at("model"), NULL, &r), BY_OK);
    assert_int_equal(r.sentences, 3);
    assert_int_equal(r.tokens, 6);
    by_ngram *m = by_ngram_open(at("model"));
    by_ngram_state s = by_ngram_begin(m);
    assert_true(fabs(by_ngram_token_score(m, &s, 'a', &s)) < 1e-6);
    assert_true(fabs(by_ngram_token_score(m, &s, 'b', &s) - log(2.0 / 3)) < 1e-6);
    assert_true(fabs(by_ngram_token_score(m, &s, by_tokenizer_eos(t), &s)) < 1e-6);
    by_ngram_free(m);
    by_tokenizer_free(t);
}

/* Words of a model as the tokens of a tokenizer, also after it was saved and read as an ordinary one. */
static void test_words_as_tokens(void **state)
{
    (void)state;
    write_corpus(at("corpus"), 200);
    assert_int_equal(
        train(at("corpus"), (by_ngram_spec){.order = 2, .discount_fallback = true}, at("model"), NULL),
        BY_OK);
    by_ngram *m = by_ngram_open(at("model"));
    by_tokenizer *t = by_ngram_tokenizer(m, NULL);
    assert_non_null(t);
    assert_int_equal(by_tokenizer_save(t, at("words")), BY_OK);
    by_tokenizer *read = by_tokenizer_load(at("words"));
    assert_non_null(read);
    static const char line[] = " w1 w2\tnever w3\n w1";
    for (int i = 0; i < 2; i++) {
        size_t n;
        int32_t *ids = by_encode(i ? read : t, line, strlen(line), &n);
        assert_int_equal(n, 5);
        assert_int_equal(ids[0], by_ngram_find(m, "w1", 2));
        assert_int_equal(ids[2], by_ngram_find(m, "<unk>", 5));
        char *back = by_decode(i ? read : t, ids, n, NULL);
        assert_string_equal(back, "w1 w2 <unk> w3 w1");
        by_release(ids);
        by_release(back);
    }
    by_tokenizer_free(read);
    by_tokenizer_free(t);
    by_ngram_free(m);
}

/* A directory is a model when it is complete, is not replaced unasked, and what an earlier call left is removed. */
static void test_folder(void **state)
{
    (void)state;
    const char *text = at("corpus"), *dir = at("dir");
    const by_ngram_spec spec = {.order = 2, .discount_fallback = true};
    write_corpus(text, 200);
    assert_int_equal(base_dir_make(dir), BY_OK);
    assert_int_equal(base_file_write(at("dir/ngram.bin.tmp-99999999"), "x", 1), BY_OK);
    assert_int_equal(base_file_write(at("dir/ngram.bin.tmp-1"), "x", 1), BY_OK);
    assert_false(by_ngram_is(dir));
    assert_int_equal(by_ngram_train_folder(&text, 1, NULL, &spec, dir, at("dir/model.arpa"), false, NULL),
                     BY_OK);
    assert_true(by_ngram_is(dir) && by_ngram_is(at("dir/ngram.bin")) && by_ngram_is(at("dir/model.arpa")));
    assert_false(base_file_exists(at("dir/ngram.bin.tmp-99999999")));
    assert_true(base_file_exists(at("dir/ngram.bin.tmp-1"))); /* of a process that runs */
    by_ngram *m = by_ngram_open(dir);
    assert_int_equal(by_ngram_order(m), 2);
    by_ngram_free(m);
    assert_int_equal(by_ngram_train_folder(&text, 1, NULL, &spec, dir, NULL, false, NULL), BY_ERR_ARGUMENT);
    assert_true(by_ngram_is(dir));
    assert_int_equal(by_ngram_train_folder(&text, 1, NULL, &spec, dir, NULL, true, NULL), BY_OK);
    assert_int_equal(base_file_write(at("dir/config.json"), "{\"model_type\": \"gpt2\"}", 22), BY_OK);
    assert_int_equal(by_ngram_train_folder(&text, 1, NULL, &spec, dir, NULL, true, NULL), BY_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_bad_corpora),
        cmocka_unit_test(test_bad_arpa),
        cmocka_unit_test(test_bad_binary),
        cmocka_unit_test(test_back_to_arpa),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_sentence),
        cmocka_unit_test(test_high_order),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_words_as_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
