/* test_objective.c - objectives on text: sentences and documents, masked tokens, epochs, pairs, translations, languages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "objective_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),       cmocka_unit_test(test_documents),
        cmocka_unit_test(test_split),           cmocka_unit_test(test_word_marks),
        cmocka_unit_test(test_proportions),     cmocka_unit_test(test_whole_words),
        cmocka_unit_test(test_several_words),   cmocka_unit_test(test_static_and_dynamic),
        cmocka_unit_test(test_nothing_is_lost), cmocka_unit_test(test_next_sentence),
        cmocka_unit_test(test_sentence_order),  cmocka_unit_test(test_translations),
        cmocka_unit_test(test_languages),
    };
    return cmocka_run_group_tests_name("objective", tests, set_up, tear_down);
}
