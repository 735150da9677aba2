/* test_objective.c - objectives: which tokens are hidden and how often, which texts stand side by side, that
 * rows depend on nothing but seed, step and number, and text that they cannot be made from.
 *
 * The text of these tests tells where it is from: sentence s of document d is made of the words Dd and Ss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/train.h"
#include "child.h"
#include "data/objective.h"
#include "folder.h"

enum { DOCS = 40, SENTENCES = 12, LINES = 20 };
enum {
    PAD,
    UNK,
    FIRST,
    SEP,
    MASK,
    D0,
    S0 = D0 + DOCS,
    UN = S0 + SENTENCES,
    GO = UN + 4,
    E0,
    G0 = E0 + LINES,
    VOCAB = G0 + LINES
};

static by_tokenizer *words; /* WordPiece with the ids above */

static void put_words(base_buf *b, const char *letter, int first, int count)
{
    for (int i = 0; i < count; i++)
        base_buf_printf(b, ", \"%s%d\": %d", letter, i, first + i);
}

static void make_tokenizer(void)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    base_buf b = {0};
    base_buf_puts(&b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int i = 0; i < BY_COUNT(special); i++)
        base_buf_printf(&b,
                        "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                        "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                        i ? ", " : "", i, special[i]);
    base_buf_puts(&b,
                  "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
                  "\"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", "
                  "\"cleanup\": false}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
                  "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": {");
    for (int i = 0; i < BY_COUNT(special); i++)
        base_buf_printf(&b, "%s\"%s\": %d", i ? ", " : "", special[i], i);
    put_words(&b, "D", D0, DOCS);
    put_words(&b, "S", S0, SENTENCES);
    base_buf_printf(&b, ", \"un\": %d, \"##der\": %d, \"##stand\": %d, \"##ing\": %d, \"go\": %d", UN, UN + 1,
                    UN + 2, UN + 3, GO);
    put_words(&b, "E", E0, LINES);
    put_words(&b, "G", G0, LINES);
    base_buf_puts(&b, "}}}");
    assert_int_equal(base_dir_make(in_root("words")), BY_OK);
    write_text("words/tokenizer.json", b.data);
    base_buf_free(&b);
    words = by_tokenizer_load(in_root("words"));
    if (!words)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_tokenizer_vocab_size(words), VOCAB);
}

/* Documents of 2 to SENTENCES sentences, each of `pairs` times "Dd Ss" at most. */
static void write_documents(const char *name, int documents, int pairs)
{
    base_buf b = {0};
    for (int d = 0; d < documents; d++) {
        for (int s = 0; s < 2 + d % (SENTENCES - 1); s++) {
            for (int k = 0; k < 1 + (s + d) % pairs; k++)
                base_buf_printf(&b, "%sD%d S%d", k ? " " : "", d, s);
            base_buf_puts(&b, "\n");
        }
        base_buf_puts(&b, "\n");
    }
    write_text(name, b.data);
    base_buf_free(&b);
}

static int set_up(void **state)
{
    (void)state;
    if (!make_root("objective"))
        return -1;
    make_tokenizer();
    write_documents("docs.txt", DOCS, 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    by_tokenizer_free(words);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- an objective over files ------------------------------------------------------------------ */

typedef struct bench {
    data_docs docs;
    data_docs_part train, held;
    data_objective *o;
} bench;

static by_status open_docs(bench *b, const data_docs_spec *spec, double fraction)
{
    int64_t bytes, tokens;
    *b = (bench){0};
    BY_TRY(data_docs_build(words, spec, in_root("t.bin"), in_root("t.docs"), &bytes, &tokens));
    BY_TRY(data_docs_open(&b->docs, in_root("t.bin"), in_root("t.docs"), VOCAB));
    assert_int_equal(data_tokens_count(b->docs.tokens), tokens);
    return data_docs_split(&b->docs, fraction, spec->parallel, &b->train, &b->held);
}

static void open_bench(bench *b, const char *file, data_objective_spec spec)
{
    const data_docs_file files[] = {{in_root(file), 0}};
    if (open_docs(b, &(data_docs_spec){files, 1, false}, 0) != BY_OK)
        fail_msg("%s", by_error_message());
    b->o = data_objective_new(&b->train, words, &spec);
    if (!b->o)
        fail_msg("%s", by_error_message());
}

static void close_bench(bench *b)
{
    data_objective_free(b->o);
    data_docs_part_free(&b->train);
    data_docs_part_free(&b->held);
    data_docs_close(&b->docs);
}

static data_objective_spec spec_of(data_objective_kind kind, int seq, int rows)
{
    return (data_objective_spec){
        .kind = kind, .seq = seq, .step_rows = rows, .seed = 7, .masking = data_masking_usual(kind)};
}

static data_samples samples_of(const data_objective *o, int count, int batch)
{
    data_samples s;
    assert_int_equal(data_samples_make(&s, o, count, batch), BY_OK);
    return s;
}

static void get(const data_objective *o, int64_t step, data_samples *s)
{
    if (data_objective_get(o, step, s) != BY_OK)
        fail_msg("%s", by_error_message());
}

/* Put back what was hidden in row r; batches of one row. */
static void restore(data_samples *s, int r)
{
    for (int k = 0; k < s->picks; k++)
        if (s->targets[r * s->picks + k] >= 0)
            s->tokens[r * s->seq + s->pick[r * s->picks + k]] = s->targets[r * s->picks + k];
}

/* ---- hiding ----------------------------------------------------------------------------------- */

static double chi_square(const int64_t *seen, const double *expected, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += ((double)seen[i] - expected[i]) * ((double)seen[i] - expected[i]) / expected[i];
    return sum;
}

/* 15 % are chosen; of them 80 % masked, 10 % replaced by any ordinary token, 10 % kept. The bounds are the
 * 0.1 % points of chi-square with 2, 7 and VOCAB - 6 degrees of freedom. */
static void test_proportions(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, 50, 16));
    data_samples s = samples_of(b.o, 16, 1);
    int64_t ordinary = 0, chosen = 0, rows = 0, how[3] = {0}, place[8] = {0}, places[8] = {0};
    int64_t replaced[VOCAB] = {0};
    for (int64_t step = 0; step < 600; step++) {
        get(b.o, step, &s);
        for (int r = 0; r < s.count; r++, rows++) {
            int32_t before[50];
            memcpy(before, s.tokens + r * s.seq, sizeof before);
            restore(&s, r);
            const int32_t *row = s.tokens + r * s.seq;
            for (int t = 0; t < s.seq; t++) {
                ordinary += row[t] > MASK;
                places[t * 8 / s.seq] += row[t] > MASK;
            }
            for (int k = 0; k < s.picks; k++) {
                int32_t was = s.targets[r * s.picks + k], at = s.pick[r * s.picks + k];
                if (was == -100)
                    continue;
                assert_true(was > MASK); /* never a special token */
                assert_true(before[at] > MASK || before[at] == MASK);
                chosen++;
                place[at * 8 / s.seq]++;
                how[before[at] == MASK ? 0 : before[at] != was ? 1 : 2]++;
                if (before[at] != MASK && before[at] != was)
                    replaced[before[at]]++;
            }
        }
    }
    assert_true(chosen > 20000);
    /* the number of each row is rounded at random: variance 1/4 at most */
    assert_true(fabs((double)chosen - 0.15 * (double)ordinary) < 4 * sqrt((double)rows / 4));
    const double n = (double)chosen, any = VOCAB - 5, same = 1 / any;
    const double expected[3] = {0.8 * n, 0.1 * n * (1 - same), 0.1 * n * (1 + same)};
    assert_true(chi_square(how, expected, 3) < 13.82);
    double expected_place[8], expected_id[VOCAB - 5];
    for (int i = 0; i < 8; i++)
        expected_place[i] = n * (double)places[i] / (double)ordinary;
    assert_true(chi_square(place, expected_place, 8) < 24.32);
    for (int i = 0; i < VOCAB - 5; i++)
        expected_id[i] = (double)how[1] / any;
    assert_int_equal(replaced[0] + replaced[1] + replaced[2] + replaced[3] + replaced[4], 0);
    assert_true(chi_square(replaced + 5, expected_id, VOCAB - 5) < 160); /* 97 degrees: 147 */
    data_samples_free(&s);
    close_bench(&b);
}

/* The pieces of "understanding" are hidden together or not at all. */
static void test_whole_words(void **state)
{
    (void)state;
    base_buf b = {0};
    for (int i = 0; i < 200; i++)
        base_buf_puts(&b, i % 3 ? "understanding go understanding under go\n" : "go go understand\n");
    write_text("whole.txt", b.data);
    base_buf_free(&b);
    for (int whole = 0; whole < 2; whole++) {
        data_objective_spec spec = spec_of(DATA_OBJECTIVE_MLM, 64, 8);
        spec.masking.whole_words = whole;
        bench w;
        open_bench(&w, "whole.txt", spec);
        data_samples s = samples_of(w.o, 8, 1);
        int64_t torn = 0, hidden = 0;
        for (int64_t step = 0; step < 100; step++) {
            get(w.o, step, &s);
            for (int r = 0; r < s.count; r++) {
                bool hides[64] = {false};
                for (int k = 0; k < s.picks; k++)
                    if (s.targets[r * s.picks + k] >= 0)
                        hides[s.pick[r * s.picks + k]] = true;
                restore(&s, r);
                for (int t = 1; t < s.seq; t++) {
                    int32_t id = s.tokens[r * s.seq + t];
                    hidden += hides[t];
                    torn += id > UN && id < GO && hides[t] != hides[t - 1]; /* a continuation */
                }
            }
        }
        assert_true(hidden > 5000);
        assert_true(whole ? torn == 0 : torn > 1000);
        data_samples_free(&s);
        close_bench(&w);
    }
}

/* Runs of hidden words: one by one they touch by chance; three at once they mostly do. */
static void test_several_words(void **state)
{
    (void)state;
    double touching[2];
    for (int i = 0; i < 2; i++) {
        data_objective_spec spec = spec_of(DATA_OBJECTIVE_MLM, 64, 8);
        spec.masking.longest = i ? 3 : 1;
        bench b;
        open_bench(&b, "docs.txt", spec);
        data_samples s = samples_of(b.o, 8, 1);
        int64_t all = 0, next = 0;
        for (int64_t step = 0; step < 200; step++) {
            get(b.o, step, &s);
            for (int k = 1; k < 8 * s.picks; k++) {
                all += s.targets[k] >= 0;
                next += s.targets[k] >= 0 && k % s.picks && s.pick[k] == s.pick[k - 1] + 1;
            }
        }
        touching[i] = (double)next / (double)all;
        data_samples_free(&s);
        close_bench(&b);
    }
    assert_true(touching[0] < 0.2 && touching[1] > 0.35);
}

/* ---- epochs ----------------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
    return memcmp(a, b, 40 * sizeof(int32_t));
}

/* An epoch's rows in an order of their own; what was hidden put back when `whole`. */
static int32_t *epoch_rows(const data_objective *o, int64_t epoch, bool whole)
{
    const int n = (int)data_objective_rows(o);
    data_samples s = samples_of(o, n, 1);
    get(o, epoch, &s);
    for (int r = 0; r < n && whole; r++)
        restore(&s, r);
    qsort(s.tokens, (size_t)n, 40 * sizeof(int32_t), compare_rows);
    int32_t *rows = s.tokens;
    s.tokens = NULL;
    data_samples_free(&s);
    return rows;
}

static bool same_epochs(const data_objective *o, int64_t a, int64_t b, bool whole)
{
    int32_t *x = epoch_rows(o, a, whole), *y = epoch_rows(o, b, whole);
    bool same = memcmp(x, y, (size_t)data_objective_rows(o) * 40 * sizeof *x) == 0;
    base_free(x);
    base_free(y);
    return same;
}

static void test_static_and_dynamic(void **state)
{
    (void)state;
    bench probe;
    open_bench(&probe, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, 40, 1));
    const int rows = (int)data_objective_rows(probe.o);
    close_bench(&probe);
    for (int copies = 0; copies < 3; copies++) {
        data_objective_spec spec = spec_of(DATA_OBJECTIVE_MLM, 40, rows);
        spec.masking.copies = copies;
        bench b;
        open_bench(&b, "docs.txt", spec);
        for (int64_t epoch = 1; epoch < 4; epoch++) {
            assert_true(same_epochs(b.o, 0, epoch, true)); /* the same text */
            bool expected = copies > 0 && epoch % copies == 0;
            assert_int_equal(same_epochs(b.o, 0, epoch, false), expected);
        }
        close_bench(&b);
    }
    assert_int_equal(data_masking_usual(DATA_OBJECTIVE_NSP).copies, 1);
    assert_int_equal(data_masking_usual(DATA_OBJECTIVE_SOP).copies, 1);
    assert_int_equal(data_masking_usual(DATA_OBJECTIVE_MLM).copies, 0);
}

/* The rows of an epoch are the text, each token once. */
static void test_nothing_is_lost(void **state)
{
    (void)state;
    bench probe;
    open_bench(&probe, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, 40, 1));
    const int rows = (int)data_objective_rows(probe.o);
    close_bench(&probe);
    for (int seq = 8; seq <= 40; seq += 16) { /* sentences of up to ten tokens: some are cut at 8 */
        bench b;
        open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, seq, 1));
        int64_t n = data_objective_rows(b.o), seen[VOCAB] = {0}, all[VOCAB] = {0};
        data_samples s = samples_of(b.o, 1, 1);
        for (int64_t i = 0; i < n; i++) {
            get(b.o, i, &s);
            restore(&s, 0);
            assert_int_equal(s.tokens[0], FIRST);
            for (int t = 1; t < seq; t++) {
                int32_t id = s.tokens[t], before = s.tokens[t - 1];
                seen[id] += id > MASK;
                assert_int_equal(s.mask[t], id != PAD);
                if (id >= D0 && id < S0 && before >= S0) /* "Ss Dd": of another document behind a separator */
                    assert_int_equal(s.tokens[t - 2], id);
            }
        }
        for (int64_t i = 0; i < data_tokens_count(b.docs.tokens); i++) {
            int32_t id;
            assert_int_equal(data_tokens_read(b.docs.tokens, i, 1, &id), BY_OK);
            all[id]++;
        }
        assert_memory_equal(seen, all, sizeof seen);
        data_samples_free(&s);
        close_bench(&b);
    }
    assert_true(rows > 0);
}

/* ---- pairs ------------------------------------------------------------------------------------ */

typedef struct side {
    int doc, first, last, tokens; /* sentences */
} side;

/* Read text number k of a restored row back; all of it must be of one document. */
static side read_side(const data_samples *s, int r, int k)
{
    side x = {-1, -1, -1, 0};
    for (int t = 1; t < s->seq; t++) {
        int32_t id = s->tokens[r * s->seq + t];
        if (s->segments[r * s->seq + t] != k || id <= MASK)
            continue;
        x.tokens++;
        if (id < S0) {
            assert_true(x.doc < 0 || x.doc == id - D0);
            x.doc = id - D0;
        } else {
            x.first = x.first < 0 ? id - S0 : x.first;
            assert_true(id - S0 >= x.last);
            x.last = id - S0;
        }
    }
    return x;
}

static void check_pairs(data_objective_kind kind, void (*check)(side a, side b, int label))
{
    data_objective_spec spec = spec_of(kind, 40, 16);
    spec.masking.copies = 0;
    bench b;
    open_bench(&b, "docs.txt", spec);
    data_samples s = samples_of(b.o, 16, 1);
    int64_t labels[2] = {0, 0};
    for (int64_t step = 0; step < 400; step++) {
        get(b.o, step, &s);
        for (int r = 0; r < s.count; r++) {
            restore(&s, r);
            const int32_t *row = s.tokens + r * s.seq;
            side one = read_side(&s, r, 0), two = read_side(&s, r, 1);
            assert_true(one.tokens > 0 && two.tokens > 0);
            /* [CLS] A [SEP] B [SEP], padding */
            int used = one.tokens + two.tokens + 3;
            assert_int_equal(row[0], FIRST);
            assert_int_equal(row[one.tokens + 1], SEP);
            assert_int_equal(row[used - 1], SEP);
            for (int t = 0; t < s.seq; t++) {
                assert_int_equal(s.mask[r * s.seq + t], t < used);
                assert_int_equal(s.segments[r * s.seq + t], t > one.tokens + 1 && t < used);
                assert_true(t < used || row[t] == PAD);
            }
            labels[s.second[r]]++;
            if (one.first >= 0 && two.first >= 0 && one.doc >= 0 && two.doc >= 0)
                check(one, two, s.second[r]);
        }
    }
    const double half[2] = {3200, 3200};
    assert_true(chi_square(labels, half, 2) < 10.83);
    data_samples_free(&s);
    close_bench(&b);
}

static void check_next(side a, side b, int label)
{
    if (label)
        assert_int_not_equal(a.doc, b.doc);
    else
        assert_true(a.doc == b.doc && b.first >= a.last && b.first <= a.last + 1 + SENTENCES);
}

static void test_next_sentence(void **state)
{
    (void)state;
    check_pairs(DATA_OBJECTIVE_NSP, check_next);
    assert_string_equal(data_objective_label(DATA_OBJECTIVE_NSP, 0), "next");
    assert_string_equal(data_objective_label(DATA_OBJECTIVE_NSP, 1), "random");
}

static void check_order(side a, side b, int label)
{
    assert_int_equal(a.doc, b.doc);
    assert_true(label ? b.last < a.first : a.last < b.first);
}

static void test_sentence_order(void **state)
{
    (void)state;
    check_pairs(DATA_OBJECTIVE_SOP, check_order);
}

/* ---- translations and languages ----------------------------------------------------------------- */

static void write_lines(const char *name, char letter, int lines, int without)
{
    base_buf b = {0};
    for (int i = 0; i < lines; i++)
        if (i == without)
            base_buf_puts(&b, "\n");
        else
            base_buf_printf(&b, "%c%d %c%d%s\n", letter, i, letter, i, letter == 'G' ? " un" : "");
    write_text(name, b.data);
    base_buf_free(&b);
}

static void test_translations(void **state)
{
    (void)state;
    write_lines("en.txt", 'E', LINES, -1);
    write_lines("de.txt", 'G', LINES, 4);
    const data_docs_file files[] = {{in_root("en.txt"), 0}, {in_root("de.txt"), 1}};
    bench b;
    assert_int_equal(open_docs(&b, &(data_docs_spec){files, 2, true}, 0.1), BY_OK);
    assert_int_equal(b.train.count, 2 * 18);
    assert_int_equal(b.held.count, 2 * 2);
    data_objective_spec spec = spec_of(DATA_OBJECTIVE_TLM, 16, 17);
    spec.languages = 2;
    spec.language_ids = true;
    spec.first_position = 3;
    b.o = data_objective_new(&b.train, words, &spec);
    assert_non_null(b.o);
    assert_int_equal(data_objective_rows(b.o), 17); /* without the line that one language does not have */
    data_samples s = samples_of(b.o, 17, 1);
    int first[2] = {0, 0}, seen[LINES] = {0};
    get(b.o, 0, &s);
    for (int r = 0; r < 17; r++) {
        restore(&s, r);
        const int32_t *row = s.tokens + r * 16, *language = s.segments + r * 16, *at = s.positions + r * 16;
        int one = language[0], line = row[1] - (one ? G0 : E0), used = 4 + 5;
        first[one]++;
        seen[line]++;
        const int size = one ? 5 : 4; /* of the first text, with its special tokens */
        assert_int_equal(row[size] == FIRST && row[size - 1] == SEP && row[used - 1] == SEP, 1);
        assert_int_equal(row[size + 1] - (one ? E0 : G0), line);
        for (int t = 0; t < used; t++) {
            assert_int_equal(language[t], t < size ? one : !one);
            assert_int_equal(at[t], 3 + (t < size ? t : t - size));
        }
        assert_int_equal(row[used], PAD);
    }
    assert_true(first[0] > 2 && first[1] > 2);
    for (int i = 0; i < LINES; i++)
        assert_int_equal(seen[i], i < 18 && i != 4);
    data_samples_free(&s);
    close_bench(&b);
}

/* Rows of one language each; the next token is what is predicted; what is held out is of both languages. */
static void test_languages(void **state)
{
    (void)state;
    write_lines("en.txt", 'E', LINES, -1);
    write_lines("de.txt", 'G', LINES, -1);
    const data_docs_file files[] = {{in_root("en.txt"), 0}, {in_root("de.txt"), 1}};
    bench b;
    assert_int_equal(open_docs(&b, &(data_docs_spec){files, 2, false}, 0.25), BY_OK);
    assert_int_equal(b.train.tokens + b.held.tokens, LINES * 5);
    assert_int_equal(b.held.tokens, LINES / 4 * 5);
    data_objective_spec spec = spec_of(DATA_OBJECTIVE_CLM, 16, 8);
    spec.languages = 2;
    spec.language_ids = true;
    b.o = data_objective_new(&b.train, words, &spec);
    assert_non_null(b.o);
    data_samples s = samples_of(b.o, 8, 4);
    get(b.o, 0, &s);
    assert_null(s.pick);
    int rows[2] = {0, 0};
    for (int r = 0; r < 8; r++) {
        int language = s.segments[r * 16];
        rows[language]++;
        for (int t = 0; t < 16; t++) {
            int32_t id = s.tokens[r * 16 + t], next = t < 15 ? s.tokens[r * 16 + t + 1] : PAD;
            assert_int_equal(s.targets[r * 16 + t], next == PAD ? -100 : next);
            assert_int_equal(s.segments[r * 16 + t], id == PAD ? 0 : language);
            assert_true(id <= MASK || id == UN || (id >= G0) == language);
        }
    }
    assert_true(rows[0] && rows[1]);
    data_samples_free(&s);
    close_bench(&b);
}

/* ---- rows are functions of seed, step and number --------------------------------------------------- */

static void assert_same(const data_samples *a, const data_samples *b, int from, int to, int rows)
{
    const size_t cells = (size_t)(rows * a->seq), picks = (size_t)(rows * a->picks);
    assert_memory_equal(a->tokens + from * a->seq, b->tokens + to * a->seq, cells * 4);
    assert_memory_equal(a->mask + from * a->seq, b->mask + to * a->seq, cells * 4);
    assert_memory_equal(a->segments + from * a->seq, b->segments + to * a->seq, cells * 4);
    assert_memory_equal(a->targets + from * a->picks, b->targets + to * a->picks, picks * 4);
    assert_memory_equal(a->second + from, b->second + to, (size_t)rows * 4);
}

static void test_seeking(void **state)
{
    (void)state;
    bench a;
    open_bench(&a, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 6));
    data_objective_spec wide = spec_of(DATA_OBJECTIVE_NSP, 32, 12),
                        other = spec_of(DATA_OBJECTIVE_NSP, 32, 6);
    other.seed = 8;
    data_objective *twice = data_objective_new(&a.train, words, &wide);
    data_objective *foreign = data_objective_new(&a.train, words, &other);
    data_samples walk = samples_of(a.o, 6, 6), jump = samples_of(a.o, 6, 2), big = samples_of(twice, 12, 12),
                 else_ = samples_of(foreign, 6, 6);
    for (int64_t step = 0; step < 40; step++)
        get(a.o, step, &walk);
    get(a.o, 39, &jump);
    assert_same(&walk, &jump, 0, 0, 6); /* however a step is cut */
    for (int i = 0; i < 6 * walk.picks; i++)
        assert_int_equal(walk.pick[i] - i / walk.picks * 32, jump.pick[i] - i / walk.picks % 2 * 32);
    get(twice, 19, &big); /* rows 228 to 239: the second half is step 39 of 6 */
    assert_same(&walk, &big, 0, 6, 6);
    get(foreign, 39, &else_);
    assert_memory_not_equal(walk.tokens, else_.tokens, 6 * 32 * 4);
    data_samples micro = samples_of(a.o, 6, 2);
    get(a.o, 39, &micro);
    by_batch second = data_samples_batch(&micro, 1);
    assert_int_equal(second.batch, 2);
    const int32_t *pick = by_batch_ids(&second, "pick");
    assert_int_equal(by_batch_find(&second, "pick")->shape[0], 2 * micro.picks);
    assert_ptr_equal(by_batch_ids(&second, "tokens"), micro.tokens + 2 * 32);
    assert_ptr_equal(by_batch_ids(&second, "second_targets"), micro.second + 2);
    for (int i = 0; i < 2 * micro.picks; i++)
        assert_true(pick[i] >= 0 && pick[i] < 64);
    assert_int_equal(data_objective_get(a.o, -1, &walk), BY_ERR_ARGUMENT);
    assert_int_equal(data_objective_get(a.o, INT64_MAX, &walk), BY_ERR_ARGUMENT);
    data_samples *all[] = {&walk, &jump, &big, &else_, &micro};
    for (int i = 0; i < BY_COUNT(all); i++)
        data_samples_free(all[i]);
    data_objective_free(twice);
    data_objective_free(foreign);
    close_bench(&a);
}

typedef struct worker {
    const data_objective *o;
    data_samples rows[50];
    int first;
    by_status status;
} worker;

static void *fill(void *user)
{
    worker *w = user;
    for (int i = 0; i < 50 && w->status == BY_OK; i++)
        w->status = data_objective_get(w->o, w->first + i, &w->rows[i]);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 8));
    static worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.o = b.o, .first = i * 25};
        for (int k = 0; k < 50; k++)
            workers[i].rows[k] = samples_of(b.o, 8, 8);
        assert_int_equal(pthread_create(&threads[i], NULL, fill, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    data_samples s = samples_of(b.o, 8, 8);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(workers[i].status, BY_OK);
        for (int k = 0; k < 50; k++) {
            get(b.o, i * 25 + k, &s);
            assert_same(&s, &workers[i].rows[k], 0, 0, 8);
            data_samples_free(&workers[i].rows[k]);
        }
    }
    data_samples_free(&s);
    close_bench(&b);
}

static void test_held_rows(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 4));
    int64_t rows = data_objective_held_rows(b.o);
    data_samples one = samples_of(b.o, 4, 4), two = samples_of(b.o, 4, 4);
    assert_true(rows > 8);
    assert_int_equal(data_objective_held(b.o, rows - 2, &one), BY_OK);
    assert_int_equal(data_objective_held(b.o, 0, &two), BY_OK);
    assert_int_equal(data_objective_held(b.o, rows - 2, &two), BY_OK);
    assert_same(&one, &two, 0, 0, 4);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(one.second[r] == -100, r >= 2);
        assert_int_equal(one.mask[r * 32], 1); /* somebody to look at */
        for (int k = 0; k < one.picks && r >= 2; k++)
            assert_int_equal(one.targets[r * one.picks + k], -100);
    }
    data_samples_free(&one);
    data_samples_free(&two);
    close_bench(&b);
}

/* ---- the loss over hidden tokens alone ------------------------------------------------------------- */

static double loss_of(by_model *m, const by_batch *b)
{
    float loss = 0;
    by_pass *p = by_pass_new(m, b, &(by_pass_spec){.grads = BY_GRAD_STORE});
    if (!p || by_pass_run(p, b) != BY_OK || by_pass_read(p, by_pass_loss(p), &loss) != BY_OK)
        fail_msg("%s", by_error_message());
    by_pass_free(p);
    return loss;
}

static float *gradients(const by_model *m, int64_t *n)
{
    by_params *p = by_model_params(m);
    int64_t at = 0;
    float *out = base_alloc_zero((size_t)by_params_elements(p), sizeof *out);
    for (int i = 0; i < by_params_count(p); i++) {
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, out + at), BY_OK);
        int64_t size = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            size *= by_params_shape(p, i)[k];
        at += size;
    }
    *n = at;
    return out;
}

static void test_picks_equal_all(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 24, 5));
    data_samples s = samples_of(b.o, 5, 5);
    by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .context = 24, .vocab = VOCAB, .dropout = 0};
    by_model *m =
        by_model_new(d, "bert", &shape, &(by_model_spec){.dtype = BY_F64, .training = true, .seed = 1});
    assert_non_null(m);
    by_model_set_pad(m, PAD);
    get(b.o, 3, &s);
    by_batch few = data_samples_batch(&s, 0), all = few;
    const int32_t *pick = by_batch_ids(&few, "pick"), *picked = by_batch_ids(&few, "targets");
    int32_t targets[5 * 24];
    for (int i = 0; i < 5 * 24; i++)
        targets[i] = -100;
    for (int i = 0; i < by_batch_find(&few, "pick")->shape[0]; i++)
        if (picked[i] >= 0)
            targets[pick[i]] = picked[i];
    by_batch_put_ids(&all, "pick", 0, NULL);
    by_batch_put_tokens(&all, "targets", targets);
    int64_t n;
    double loss[2];
    loss[0] = loss_of(m, &few);
    float *x = gradients(m, &n);
    loss[1] = loss_of(m, &all);
    float *y = gradients(m, &n);
    double above = 0, below = 0;
    for (int64_t i = 0; i < n; i++) {
        above += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        below += (double)y[i] * y[i];
    }
    assert_true(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-6 * loss[1]);
    assert_true(below > 0 && sqrt(above / below) < 1e-6);
    base_free(x);
    base_free(y);
    by_model_free(m);
    data_samples_free(&s);
    close_bench(&b);
    by_device_free(d);
}

/* ---- runs ------------------------------------------------------------------------------------------ */

static int stop_after = -1; /* polls */

static bool cancelled(void *user)
{
    (void)user;
    return stop_after >= 0 && stop_after-- == 0;
}

static by_run_spec run_of(const char *out, const char *const *data, int count)
{
    return (by_run_spec){.family = "bert",
                         .shape = {.layers = 1, .heads = 2, .width = 16, .context = 32, .dropout = 0.1},
                         .data = data,
                         .data_count = count,
                         .eval_fraction = 0.2,
                         .tokenizer = in_root("words"),
                         .batch = 3,
                         .accumulate = 2,
                         .steps = 8,
                         .eval_every = 4,
                         .save_every = 4,
                         .schedule = {.kind = BY_SCHEDULE_COSINE, .rate = -1, .warmup = -1, .min_rate = -1},
                         .optimizer = {.weight_decay = 0.1, .max_grad_norm = 1},
                         .seed = 5,
                         .out = in_root(out),
                         .cancelled = cancelled};
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[2][500];
    char *bytes[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s/%s", root, i ? b : a, name);
        bytes[i] = base_file_read(path[i], (size_t)1 << 30, &size[i]);
        assert_non_null(bytes[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    base_free(bytes[0]);
    base_free(bytes[1]);
}

/* Interrupted or not, a run ends with the same bytes: nothing is remembered but the step. */
static void test_resume(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    static const struct {
        const char *family, *objective;
    } cases[] = {{"bert", NULL}, {"albert", NULL}, {"roberta", NULL}, {"xlm", "clm"}};
    const char *data[] = {in_root("docs.txt")};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_run_result whole, parts;
        char names[2][32];
        for (int k = 0; k < 2; k++)
            snprintf(names[k], sizeof names[k], "run-%d-%d", i, k);
        by_run_spec spec = run_of(names[0], data, 1);
        spec.family = cases[i].family;
        spec.objective.name = cases[i].objective;
        if (by_train_run(d, &spec, &whole) != BY_OK)
            fail_msg("%s: %s", cases[i].family, by_error_message());
        spec.out = in_root(names[1]);
        stop_after = 3;
        assert_int_equal(by_train_run(d, &spec, &parts), BY_ERR_CANCELLED);
        stop_after = -1;
        if (by_train_run(d, &spec, &parts) != BY_OK)
            fail_msg("%s: %s", cases[i].family, by_error_message());
        assert_int_equal(parts.resumed_from, 3);
        assert_same_file(names[0], names[1], "last/model.safetensors");
        assert_same_file(names[0], names[1], "last/optimizer.safetensors");
        assert_true(whole.eval_loss == parts.eval_loss);
        assert_int_equal(isfinite(whole.next_accuracy), i < 2);
        if (i < 2)
            assert_true(whole.next_accuracy == parts.next_accuracy && whole.next_accuracy <= 1);
        spec.objective.whole_words = true; /* a run goes on only as it began */
        assert_int_equal(by_train_run(d, &spec, &parts) == BY_ERR_ARGUMENT, i < 3);
        if (i < 3)
            assert_contains(by_error_message(), "whole_words");
    }
    by_device_free(d);
}

/* Learning: few documents, each with a word of its own, make hidden tokens and strange texts easy to find. */
static void test_learns(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    const char *data[] = {in_root("few.txt")};
    write_documents("few.txt", 8, 4);
    by_run_spec spec = run_of("learns", data, 1);
    by_run_result r;
    spec.shape = (by_model_shape){.layers = 1, .heads = 2, .width = 32, .context = 32, .dropout = 0};
    spec.eval_data = data;
    spec.eval_count = 1;
    spec.eval_fraction = 0;
    spec.objective.mask_copies = -1;
    spec.schedule = (by_schedule_spec){.kind = BY_SCHEDULE_CONSTANT, .rate = 3e-3, .warmup = 50};
    spec.batch = 16;
    spec.accumulate = 1;
    spec.steps = spec.eval_every = spec.save_every = 1000;
    if (by_train_run(d, &spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_true(r.eval_loss < 1.5); /* frequencies alone: log 8 or log 12 or so for the hidden word */
    assert_true(r.next_accuracy > 0.7);
    by_device_free(d);
}

/* ---- bad input ------------------------------------------------------------------------------------- */

static void refuse(by_run_spec spec, by_status status, const char *part)
{
    by_device *d = by_device_open("cpu", 1);
    by_run_result r;
    base_dir_remove(spec.out);
    assert_int_equal(by_train_run(d, &spec, &r), status);
    assert_contains(by_error_message(), part);
    by_device_free(d);
}

static void test_bad_runs(void **state)
{
    (void)state;
    write_text("one.txt", "D1 S1\nD1 S2\nD1 S3\n\n");
    write_text("two-blank.txt", "\n\n\nD1 S1\nD1 S2\n\n\n\n\n");
    write_text("lines.txt", "D1 S1\nD2 S2\nD3 S3\n");
    write_text("empty.txt", "");
    write_text("blank.txt", " \n\t\n\r\n\n");
    write_lines("en.txt", 'E', LINES, -1);
    write_lines("short.txt", 'G', LINES - 1, -1);
    write_text("t.bin", "ab");
    const char *one[] = {in_root("one.txt")}, *blank2[] = {in_root("two-blank.txt")},
               *lines[] = {in_root("lines.txt")}, *empty[] = {in_root("empty.txt")},
               *blank[] = {in_root("blank.txt")}, *docs[] = {in_root("docs.txt")};
    by_run_spec s;
    s = run_of("bad", one, 1);
    s.eval_fraction = 0;
    refuse(s, BY_ERR_FORMAT, "every line is a document"); /* no blank line between others */
    write_text("one.txt", "D1 S1\nD1 S2\nD1 S3\n\nD2 S1\n");
    refuse(s, BY_ERR_FORMAT, "at least two documents"); /* the other has one sentence */
    s.eval_fraction = 0;
    s.data = lines;
    refuse(s, BY_ERR_FORMAT, "two or more sentences");
    s.data = blank2;
    refuse(s, BY_ERR_FORMAT, "two or more sentences");
    s.data = empty;
    refuse(s, BY_ERR_FORMAT, "empty.txt: no text");
    s.data = blank;
    refuse(s, BY_ERR_FORMAT, "blank.txt: no text");
    s.data = docs;
    s.tokenizer = "byte";
    refuse(s, BY_ERR_UNSUPPORTED, "(byte) has no first");
    s.tokenizer = in_root("words");
    s.objective.name = "guess";
    refuse(s, BY_ERR_ARGUMENT, "unknown objective \"guess\"; available: lm, mlm");
    s.objective.name = "spans";
    refuse(s, BY_ERR_UNSUPPORTED, "has no head for the objective \"spans\"");
    s.objective.name = NULL;
    s.shape.context = 7;
    refuse(s, BY_ERR_ARGUMENT, "7 tokens are too short");
    s.shape.context = 32;
    s.objective.languages = (const char *const[]){"en", "de"};
    s.objective.language_count = 2;
    s.family = "xlm";
    refuse(s, BY_ERR_ARGUMENT, "2 languages require as many items of data");
    const char *both[] = {in_root("en.txt"), in_root("short.txt")};
    s.data = both;
    s.data_count = 2;
    s.objective.parallel = true;
    refuse(s, BY_ERR_FORMAT, "short.txt has 19");
    s.objective.name = "mlm";
    refuse(s, BY_ERR_ARGUMENT, "parallel text is for the objective \"tlm\"");
    s = run_of("bad", docs, 1);
    s.data = (const char *const[]){in_root("t.bin")};
    refuse(s, BY_ERR_ARGUMENT, "token shards have no sentence boundaries");
}

/* A tokenizer that has everything but a mask token. */
static void test_no_mask_token(void **state)
{
    (void)state;
    size_t size;
    char *json = base_file_read(in_root("words/tokenizer.json"), 1 << 20, &size), *at;
    for (int i = 0; i < 2 && (at = strstr(json, "[MASK]")); i++)
        memcpy(at, "[HIDE]", 6);
    assert_int_equal(base_dir_make(in_root("maskless")), BY_OK);
    write_text("maskless/tokenizer.json", json);
    base_free(json);
    const char *docs[] = {in_root("docs.txt")};
    by_run_spec s = run_of("bad", docs, 1);
    s.tokenizer = in_root("maskless");
    refuse(s, BY_ERR_UNSUPPORTED, "has no mask ([MASK], <mask>) token");
    /* which another file may name */
    write_text("maskless/tokenizer_config.json", "{\"mask_token\": {\"content\": \"[HIDE]\"}}");
    by_tokenizer *t = by_tokenizer_load(in_root("maskless"));
    assert_non_null(t);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_MASK), MASK);
    assert_int_equal(by_tokenizer_save(t, in_root("again")), BY_OK);
    by_tokenizer_free(t);
    t = by_tokenizer_load(in_root("again"));
    assert_non_null(t);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_MASK), MASK);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_SEP), SEP);
    by_tokenizer_free(t);
}

static void test_damaged_index(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, 32, 1));
    close_bench(&b);
    size_t size;
    char *good = base_file_read(in_root("t.docs"), 1 << 24, &size);
    assert_non_null(good);
    for (size_t n = 0; n < size; n += size / 50 + 1) { /* cut off */
        data_docs d;
        assert_int_equal(base_file_write(in_root("t.docs"), good, n), BY_OK);
        assert_int_equal(data_docs_open(&d, in_root("t.bin"), in_root("t.docs"), VOCAB), BY_ERR_FORMAT);
        assert_contains(by_error_message(), "t.docs");
    }
    base_rng random = base_rng_make(1, 2);
    for (int i = 0; i < 300; i++) { /* changed: refused, or as harmless as it looks */
        data_docs d;
        char *bad = base_alloc(size);
        memcpy(bad, good, size);
        bad[base_rng_below(&random, size)] ^= (char)(1 << base_rng_below(&random, 8));
        assert_int_equal(base_file_write(in_root("t.docs"), bad, size), BY_OK);
        if (data_docs_open(&d, in_root("t.bin"), in_root("t.docs"), VOCAB) == BY_OK) {
            for (int64_t s = 0; s < d.sentences; s++)
                assert_true(data_sentence_size(&d, s) >= 0);
            data_docs_close(&d);
        }
        base_free(bad);
    }
    base_free(good);
}

/* ---- text ------------------------------------------------------------------------------------------ */

static void test_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t end;
    } cases[] = {
        {"One. Two.", 4},
        {"One.", 4},
        {"One two", 7},
        {"Is it? Yes.", 6},
        {"Oh!!! Yes.", 5},
        {"\"Go.\" He went.", 5},
        {"3.5 Volts", 9},
        {"e.g. this one. Next", 14},
        {"J. Smith came. He", 14},
        {"(So.) Then", 5},
        {"End ... and more", 16},
        {"Wait... What", 7},
        {"Er ging. \xc3\x9c"
         "ber",
         8},
        {"A . B", 3},
        {"He ended . It", 10},
        {"", 0},
    };
    for (int i = 0; i < BY_COUNT(cases); i++)
        assert_int_equal(data_sentence_end(cases[i].text, strlen(cases[i].text), 0), cases[i].end);
}

static void test_documents(void **state)
{
    (void)state;
    /* blank lines, also with spaces, and \r\n; two sentences in a line; one that is no text at the end */
    write_text("d.txt", "\xef\xbb\xbf"
                        "D1 S1. S2 go\r\n \r\n\r\nD2\r\n\n\nD3 S3\nD4! Go\n\n   ");
    const data_docs_file files[] = {{in_root("d.txt"), 0}, {in_root("lines2.txt"), 0}};
    write_text("lines2.txt", "D5\nD6 S1? D6 S2\nD7");
    bench b;
    assert_int_equal(open_docs(&b, &(data_docs_spec){files, 2, false}, 0), BY_OK);
    static const int64_t sizes[] = {2, 1, 3, 1, 2, 1}; /* sentences of each document */
    assert_int_equal(b.docs.count, BY_COUNT(sizes));
    for (int i = 0; i < BY_COUNT(sizes); i++)
        assert_int_equal(b.docs.list[i].end - b.docs.list[i].first, sizes[i]);
    double nats;
    assert_int_equal(data_docs_entropy(&b.train, VOCAB, &nats), BY_OK);
    assert_true(nats > 2 && nats < log(data_tokens_count(b.docs.tokens)));
    close_bench(&b);
    write_text("even.txt", "D1 D2 D3 D4 D1 D2 D3 D4");
    const data_docs_file even[] = {{in_root("even.txt"), 0}};
    assert_int_equal(open_docs(&b, &(data_docs_spec){even, 1, false}, 0), BY_OK);
    assert_int_equal(data_docs_entropy(&b.train, VOCAB, &nats), BY_OK);
    assert_true(fabs(nats - log(4)) < 1e-12);
    close_bench(&b);
}

/* What is held out is the end, cut between sentences, and nothing is in both. */
static void test_split(void **state)
{
    (void)state;
    const data_docs_file files[] = {{in_root("docs.txt"), 0}};
    for (int tenths = 0; tenths <= 9; tenths += 3) {
        bench b;
        assert_int_equal(open_docs(&b, &(data_docs_spec){files, 1, false}, tenths / 10.0), BY_OK);
        int64_t all = data_tokens_count(b.docs.tokens), at = 0;
        assert_int_equal(b.train.tokens + b.held.tokens, all);
        assert_true(fabs((double)b.held.tokens - (double)all * tenths / 10) < 12);
        for (int part = 0; part < 2; part++) {
            const data_docs_part *p = part ? &b.held : &b.train;
            for (int64_t i = 0; i < p->count; i++) {
                assert_int_equal(b.docs.starts[p->list[i].first], at);
                at = b.docs.starts[p->list[i].end];
            }
        }
        assert_int_equal(at, all);
        close_bench(&b);
    }
}

static void test_word_marks(void **state)
{
    (void)state;
    uint8_t parts[VOCAB];
    assert_true(tok_parts(words, parts));
    for (int id = 0; id < VOCAB; id++)
        assert_int_equal(parts[id], id <= MASK ? TOK_ID_SPECIAL : id > UN && id < GO ? 0 : TOK_ID_BEGINS);
    by_tokenizer *bytes = tok_new_bytes();
    uint8_t own[257];
    assert_false(tok_parts(bytes, own));
    assert_int_equal(own[65], TOK_ID_BEGINS | TOK_ID_ENDS);
    assert_int_equal(own[256], TOK_ID_SPECIAL);
    assert_int_equal(by_tokenizer_special(bytes, BY_SPECIAL_MASK), -1);
    by_tokenizer_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),       cmocka_unit_test(test_documents),
        cmocka_unit_test(test_split),           cmocka_unit_test(test_word_marks),
        cmocka_unit_test(test_proportions),     cmocka_unit_test(test_whole_words),
        cmocka_unit_test(test_several_words),   cmocka_unit_test(test_static_and_dynamic),
        cmocka_unit_test(test_nothing_is_lost), cmocka_unit_test(test_next_sentence),
        cmocka_unit_test(test_sentence_order),  cmocka_unit_test(test_translations),
        cmocka_unit_test(test_languages),       cmocka_unit_test(test_seeking),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_held_rows),
        cmocka_unit_test(test_picks_equal_all), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_learns),          cmocka_unit_test(test_bad_runs),
        cmocka_unit_test(test_no_mask_token),   cmocka_unit_test(test_damaged_index),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
