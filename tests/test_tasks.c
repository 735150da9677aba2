/* test_tasks.c - files of labelled cases: what is read from each format, and that bad ones are refused with
 * the line and the reason; targets, windows and answers that come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/spans.h"
#include "tiny_world.h"
#include "train/task_batches.h"

static int set_up(void **state)
{
    (void)state;
    return tiny_open("tasks");
}

static const char *write_file(const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(base_file_write(path, text, strlen(text)), BY_OK);
    return path;
}

static data_examples read_cases(const char *name, const char *text, by_examples_spec spec)
{
    data_examples c;
    if (data_examples_open(&c, write_file(name, text), &spec) != BY_OK)
        fail_msg("%s: %s", name, by_error_message());
    return c;
}

/* ---- formats --------------------------------------------------------------------------------- */

static void test_tables(void **state)
{
    (void)state;
    data_examples c = read_cases("a.tsv", "good film\t1\nbad \"film\t0\r\n", (by_examples_spec){0});
    assert_int_equal(c.count, 2);
    assert_string_equal(c.list[0].text, "good film");
    assert_string_equal(c.list[1].text, "bad \"film"); /* tabs know no quotes */
    assert_string_equal(c.list[1].labels[0], "0");
    assert_null(c.list[0].pair);
    assert_int_equal(c.list[1].line, 2);
    data_examples_close(&c);

    c = read_cases("b.csv",
                   "\xef\xbb\xbfid,label,sentence1,sentence2\n1,yes,\"a, b\",\"c \"\"d\"\"\ne\"\n2,no,f,g\n",
                   (by_examples_spec){0});
    assert_int_equal(c.count, 2);
    assert_string_equal(c.list[0].text, "a, b");
    assert_string_equal(c.list[0].pair, "c \"d\"\ne");
    assert_string_equal(c.list[0].labels[0], "yes");
    assert_int_equal(c.list[1].line, 4);
    assert_string_equal(c.list[1].pair, "g");
    data_examples_close(&c);

    c = read_cases("c.tsv", "x\ty\tz\nA\tB\tC\n", (by_examples_spec){.text = "z", .label = "x"});
    assert_int_equal(c.count, 1);
    assert_string_equal(c.list[0].text, "C");
    assert_string_equal(c.list[0].labels[0], "A");
    data_examples_close(&c);

    c = read_cases("d.tsv", "n\tA\t2.5\nm\tB\t-1\n",
                   (by_examples_spec){.kind = BY_EXAMPLE_REGRESS, .text = "2", .label = "3", .pair = ""});
    float value;
    assert_int_equal(c.count, 2);
    assert_null(c.list[0].pair);
    assert_int_equal(data_example_number(&c, &c.list[0], 0, &value), BY_OK);
    assert_true(value == 2.5f);
    data_examples_close(&c);

    c = read_cases("e.tsv", "one\tx, y\ntwo\t\nthree\ty\n", (by_examples_spec){.separator = ","});
    assert_int_equal(c.list[0].n_labels, 2);
    assert_string_equal(c.list[0].labels[1], "y");
    assert_int_equal(c.list[1].n_labels, 0);
    data_examples_close(&c);

    c = read_cases(
        "f.csv", "sent1,ending0,ending1,label\ns,a,b,1\n",
        (by_examples_spec){.kind = BY_EXAMPLE_CHOICE, .text = "sent1", .choices = "ending0,ending1"});
    assert_int_equal(c.list[0].n_choices, 2);
    assert_string_equal(c.list[0].choices[1], "b");
    data_examples_close(&c);
}

static void test_json_lines(void **state)
{
    (void)state;
    data_examples c = read_cases(
        "a.jsonl", "{\"text\": \"caf\\u00e9\", \"label\": 3}\n{\"text\": \"b\", \"label\": true}\n",
        (by_examples_spec){0});
    assert_int_equal(c.count, 2);
    assert_string_equal(c.list[0].text, "caf\xc3\xa9");
    assert_string_equal(c.list[0].labels[0], "3");
    assert_string_equal(c.list[1].labels[0], "1");
    data_examples_close(&c);
    c = read_cases("b.jsonl", "{\"tokens\": [\"a\", \"bc\"], \"tags\": [\"O\", \"B-X\"]}\n",
                   (by_examples_spec){.kind = BY_EXAMPLE_TAG});
    assert_string_equal(c.list[0].text, "a bc");
    assert_int_equal(c.list[0].words[1].start, 2);
    assert_int_equal(c.list[0].words[1].end, 4);
    data_examples_close(&c);
    c = read_cases(
        "c.jsonl",
        "{\"id\": \"q\", \"question\": \"who\", \"context\": \"\\u00e9 he did\", \"answers\": {\"text\": "
        "[\"he\"], \"answer_start\": [2]}}\n",
        (by_examples_spec){.kind = BY_EXAMPLE_ANSWER});
    assert_string_equal(c.list[0].id, "q");
    assert_int_equal(c.list[0].answers[0].start, 3); /* bytes */
    assert_int_equal(c.list[0].answers[0].end, 5);
    data_examples_close(&c);
    c = read_cases("d.jsonl", "{\"text\": \"a\", \"choices\": [\"b\", \"c\", \"d\"], \"label\": 2}\n",
                   (by_examples_spec){.kind = BY_EXAMPLE_CHOICE});
    assert_int_equal(c.list[0].n_choices, 3);
    data_examples_close(&c);
}

static void test_conll(void **state)
{
    (void)state;
    data_examples c =
        read_cases("a.conll", "-DOCSTART- -X- O\n\n# id = 1\nEU NNP B-ORG\nrejects VBZ O\n\n\n# O O\nx y O\n",
                   (by_examples_spec){.kind = BY_EXAMPLE_TAG});
    assert_int_equal(c.count, 2);
    assert_string_equal(c.list[0].text, "EU rejects");
    assert_int_equal(c.list[0].n_labels, 2);
    assert_string_equal(c.list[0].labels[0], "B-ORG");
    assert_string_equal(c.list[1].text, "# x");
    data_examples_close(&c);
}

static const char squad[] = "{\"version\": \"v2\", \"data\": [{\"paragraphs\": [{\"context\": \"The cat "
                            "sat.\", \"qas\": [{\"id\": \"1\", "
                            "\"question\": \"what sat\", \"answers\": [{\"text\": \"cat\", \"answer_start\": "
                            "4}, {\"text\": \"The cat\", "
                            "\"answer_start\": 0}]}, {\"id\": \"2\", \"question\": \"who ran\", "
                            "\"is_impossible\": true, \"answers\": []}]}]}]}";

static void test_squad(void **state)
{
    (void)state;
    data_examples c = read_cases("a.json", squad, (by_examples_spec){.kind = BY_EXAMPLE_ANSWER});
    assert_int_equal(c.count, 2);
    assert_int_equal(c.list[0].n_answers, 2);
    assert_int_equal(c.list[0].answers[0].start, 4);
    assert_int_equal(c.list[1].n_answers, 0);
    assert_string_equal(c.list[1].id, "2");
    data_examples_close(&c);
}

static void test_labels(void **state)
{
    (void)state;
    data_labels labels;
    data_examples c = read_cases("l.tsv", "a\t10\nb\t9\nc\t10\n", (by_examples_spec){0});
    assert_int_equal(data_examples_labels(&c, &labels), BY_OK);
    assert_int_equal(labels.count, 2);
    assert_string_equal(labels.names[0], "9"); /* numbers by value */
    assert_int_equal(data_examples_number(&c, &labels), BY_OK);
    assert_int_equal(c.list[0].values[0], 1);
    base_free(labels.names);
    data_examples_close(&c);
    c = read_cases("l.tsv", "a\tpos\nb\tneg\nc\t1\n", (by_examples_spec){0});
    data_labels known = {(const char *[]){"neg", "pos"}, 2};
    assert_int_equal(data_examples_number(&c, &known), BY_OK);
    assert_int_equal(c.list[0].values[0], 1);
    assert_int_equal(c.list[2].values[0], 1); /* a number stands for itself */
    data_examples_close(&c);
    c = read_cases("l.tsv", "a\tpos\nb\tmeh\n", (by_examples_spec){0});
    assert_int_equal(data_examples_number(&c, &known), BY_ERR_FORMAT);
    assert_non_null(strstr(by_error_message(), "l.tsv, line 2"));
    assert_non_null(strstr(by_error_message(), "meh"));
    data_examples_close(&c);
}

/* A list of objects is read as lines of them are, wherever its lines end. */
static void test_json_lists(void **state)
{
    (void)state;
    data_examples c =
        read_cases("list.json",
                   " [\n{\"text\": \"a ] , }\\\" {\",\n \"label\": 1},\n\n {\"text\": \"b\", \"label\": 0}]",
                   (by_examples_spec){0});
    assert_int_equal(c.count, 2);
    assert_string_equal(c.list[0].text, "a ] , }\" {");
    assert_int_equal(c.list[0].line, 2);
    assert_int_equal(c.list[1].line, 5);
    assert_string_equal(c.list[1].labels[0], "0");
    data_examples_close(&c);
    by_examples_spec answer = {.kind = BY_EXAMPLE_ANSWER};
    c = read_cases("list.json",
                   "[{\"question\": \"who\", \"context\": \"he did\", \"answers\": [{\"text\": \"he\", "
                   "\"answer_start\": 0}]}]",
                   answer);
    assert_int_equal(c.list[0].n_answers, 1);
    data_examples_close(&c);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* A header whose names are not known is not taken for an example. */
static void test_unknown_headers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        by_examples_spec spec;
        const char *says[3];
    } wrong[] = {
        {"review\tsentiment\nso good\tpos\nso bad\tneg\nfine too\tpos\nworse yet\tneg\n",
         {0},
         {"line 1", "--text \"review\" --label \"sentiment\"", "--header no"}},
        {"text\tsentiment\nso good\tpos\nso bad\tneg\n",
         {0},
         {"line 1", "\"text\", \"sentiment\"", "--label"}},
        {"review\tlabel\nso good\tpos\nso bad\tneg\n", {0}, {"line 1", "\"review\", \"label\"", "--text"}},
        {"phrase\tmark\nso good\t2.5\nso bad\t1\n",
         {.kind = BY_EXAMPLE_REGRESS},
         {"line 1", "header", "--header no"}},
        {"english\tgerman\na cat\teine Katze\na dog\tein Hund\n",
         {.kind = BY_EXAMPLE_SEQ2SEQ},
         {"line 1", "--source-column \"english\" --target-column \"german\"", "--header no"}},
        {"a\tb\nc\td\n", {.header = BY_HEADER_YES}, {"line 1", "\"a\", \"b\"", "--text"}},
    };
    data_examples c;
    for (int i = 0; i < BY_COUNT(wrong); i++) {
        assert_int_equal(data_examples_open(&c, write_file("h.tsv", wrong[i].text), &wrong[i].spec),
                         BY_ERR_FORMAT);
        data_examples_close(&c);
        for (int k = 0; k < 3; k++)
            if (!strstr(by_error_message(), wrong[i].says[k]))
                fail_msg("case %d: \"%s\" does not say %s", i, by_error_message(), wrong[i].says[k]);
    }
    /* The remedies work. */
    c = read_cases("h.tsv", wrong[0].text, (by_examples_spec){.text = "review", .label = "sentiment"});
    assert_int_equal(c.count, 4);
    data_examples_close(&c);
    c = read_cases("h.tsv", wrong[0].text,
                   (by_examples_spec){.text = "1", .label = "2", .header = BY_HEADER_YES});
    assert_int_equal(c.count, 4);
    data_examples_close(&c);
    c = read_cases("h.tsv", wrong[0].text, (by_examples_spec){.header = BY_HEADER_NO});
    assert_int_equal(c.count, 5);
    data_examples_close(&c);
    /* No header: a first label that occurs again, or a sentence. */
    c = read_cases("h.tsv", "fine\tpos\nso bad\tneg\nso good\tpos\nworse\tneg\n", (by_examples_spec){0});
    assert_int_equal(c.count, 4);
    data_examples_close(&c);
    c = read_cases("h.tsv", "Well, who knows?\trare\nso bad\tneg\nso good\tneg\nworse\tneg\n",
                   (by_examples_spec){0});
    assert_int_equal(c.count, 4);
    data_examples_close(&c);
}

static void test_description(void **state)
{
    (void)state;
    base_buf out = {0};
    data_examples c = read_cases("h.tsv", "id\tlabel\tsentence\n1\tneg\tso bad\n2\tpos\tfine\n3\tneg\tno\n",
                                 (by_examples_spec){0});
    data_examples_describe(&c, &out);
    assert_non_null(strstr(out.data,
                           "h.tsv: 3 rows; with a header, text column 3 \"sentence\", label column 2 "
                           "\"label\"\n  2 labels: neg (2), pos (1)"));
    base_buf_free(&out);
    data_examples_close(&c);
}

/* ---- bad files ------------------------------------------------------------------------------- */

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        by_examples_spec spec;
        const char *line, *reason;
    } cases[] = {
        {"a.tsv", "", {0}, "a.tsv", "no examples"},
        {"a.tsv", "a\t1\nb\n", {0}, "line 2", "1 columns, but the first line has 2"},
        {"a.tsv", "a\t1\n\nb\t1\n", {0}, "line 2", "empty"},
        {"a.tsv", "a\t1\n \t1\n", {0}, "line 2", "text is empty"},
        {"a.tsv", "a\t1\nb\t\n", {0}, "line 2", "label is empty"},
        {"a.tsv", "only\n", {0}, "line 1", "1 column"},
        {"a.tsv", "a\t1\nb\xff\t1\n", {0}, "line 2", "byte 2 (0xff) is not UTF-8"},
        {"a.tsv", "t\tu\na\t1\n", {.label = "mark"}, "line 1", "no column \"mark\""},
        {"a.tsv", "t\tu\na\t1\n", {.label = "7"}, "line 1", "no column 7"},
        {"a.csv", "a,\"b\nc\n", {0}, "line 1", "unterminated quote"},
        {"a.csv", "a,\"b\"c,1\n", {0}, "line 1", "closing quote"},
        {"a.csv", "a,1\n", {.kind = BY_EXAMPLE_CHOICE}, "a.csv", "choices"},
        {"a.tsv", "a\t1\n", {.kind = BY_EXAMPLE_ANSWER}, "a.tsv", "SQuAD"},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": 1}\n", {0}, "line 2", "no key \"text\""},
        {"a.jsonl", "{\"text\": \"a\"}\n", {0}, "line 1", "no key \"label\""},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\n", {0}, "line 2", "a.jsonl"},
        {"a.jsonl", "[1]\n", {0}, "line 1", "object"},
        {"a.json", "[{\"text\": \"a\", \"label\": 1},\n{\"text\": 1}]", {0}, "line 2", "no key \"text\""},
        {"a.json", "[{\"text\": \"a\", \"label\": 1}\n{\"text\": 1}]", {0}, "line 2", "comma"},
        {"a.json", "[{\"text\": \"a\", \"label\": 1},\n", {0}, "line 2", "a.json"},
        {"a.json", "[{\"text\": \"a\", \"label\": 1}\n", {0}, "line 2", "truncated"},
        {"a.jsonl",
         "{\"review\": \"a\", \"label\": 1}\n",
         {0},
         "line 1",
         "\"review\", \"label\"; name the right one with --text"},
        {"a.parquet", "PAR1\x15", {0}, "a.parquet is Parquet", "pandas.read_parquet"},
        {"a.xz", "\xfd\x37zXZ", {0}, "a.xz", "not UTF-8"},
        {"a.bz2", "BZh91", {0}, "a.bz2", "bunzip2 -k"},
        {"a.zip", "PK\x03\x04", {0}, "a.zip", "unzip"},
        {"a.jsonl", "{\"text\": \"a\", \"label\": [1]}\n", {0}, "line 1", "neither a string nor a number"},
        {"a.jsonl",
         "{\"tokens\": [\"a\"], \"tags\": []}\n",
         {.kind = BY_EXAMPLE_TAG},
         "line 1",
         "same length"},
        {"a.conll", "a O\nb\n", {.kind = BY_EXAMPLE_TAG}, "line 2", "1 column"},
        {"a.conll", "a O\n", {.kind = BY_EXAMPLE_TAG, .label = "tag"}, "a.conll", "numbered"},
        {"a.json", "{\"data\": 1}", {.kind = BY_EXAMPLE_ANSWER}, "a.json", "\"data\""},
        {"a.json", "{\"data\": [", {.kind = BY_EXAMPLE_ANSWER}, "a.json", "line 1"},
        {"a.json",
         "{\"data\": [{\"paragraphs\": [{\"context\": \"abc\", \"qas\": [{\"question\": \"q\", \"answers\": "
         "[{\"text\": \"b\", \"answer_start\": 2}]}]}]}]}",
         {.kind = BY_EXAMPLE_ANSWER},
         "question 1",
         "\"b\" is not in the text at character 2"},
        {"a.json",
         "{\"data\": [{\"paragraphs\": [{\"context\": \"abc\", \"qas\": [{\"question\": \"q\", \"answers\": "
         "[{\"text\": \"b\", \"answer_start\": 2000000000000}]}]}]}]}",
         {.kind = BY_EXAMPLE_ANSWER},
         "question 1",
         "not in the text"},
        {"a.json",
         "{\"data\": [{\"paragraphs\": [{\"context\": \"abc\", \"qas\": [{\"question\": \"q\", \"answers\": "
         "[]}]}]}]}",
         {.kind = BY_EXAMPLE_ANSWER},
         "question 1",
         "missing \"answers\""},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        data_examples c;
        base_error_clear();
        const char *path = write_file(cases[i].name, cases[i].text);
        assert_int_not_equal(data_examples_open(&c, path, &cases[i].spec), BY_OK);
        data_examples_close(&c);
        if (!strstr(by_error_message(), cases[i].name) || !strstr(by_error_message(), cases[i].line) ||
            !strstr(by_error_message(), cases[i].reason))
            fail_msg("case %d: \"%s\" does not say \"%s\" and \"%s\"", i, by_error_message(), cases[i].line,
                     cases[i].reason);
    }
    data_examples c;
    char path[512];
    snprintf(path, sizeof path, "%s/nowhere.tsv", folder);
    assert_int_equal(data_examples_open(&c, path, &(by_examples_spec){0}), BY_ERR_IO);
    data_examples_close(&c);
    snprintf(path, sizeof path, "%s/zero.tsv", folder);
    assert_int_equal(base_file_write(path, "a\0b\t1\n", 6), BY_OK);
    assert_int_equal(data_examples_open(&c, path, &(by_examples_spec){0}), BY_ERR_FORMAT);
    data_examples_close(&c);
}

/* ---- targets --------------------------------------------------------------------------------- */

static train_task open_work(data_examples *c, by_model *m, int limit, int overlap)
{
    train_task w;
    assert_int_equal(train_task_number(m, c), BY_OK);
    if (train_task_open(&w, c, m, tokenizer, &(by_row_spec){.limit = limit, .overlap = overlap}) != BY_OK)
        fail_msg("%s", by_error_message());
    return w;
}

/* A word has its label at its first piece, in one window only, where it is further inside. */
static void test_tag_targets(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_TAG, 8, 32);
    data_examples c = read_cases("t.conll", "ab 1\nc 2\ndef 3\ng 4\nh 5\ni 6\nj 7\n",
                                 (by_examples_spec){.kind = BY_EXAMPLE_TAG});
    train_task w = open_work(&c, m, 8, 4); /* [CLS] a b c d e f [SEP]; [CLS] d e f g h i [SEP]; ... */
    int seen[8] = {0}, row;
    int64_t counted;
    for (row = 0; row < w.rows.count; row++) {
        assert_int_equal(train_task_batch(&w, &row, 1, 1, 0, &counted), BY_OK);
        for (int t = 0; t < w.batch.batch.seq; t++)
            if (w.targets[t] != -100)
                seen[w.targets[t]]++;
    }
    assert_int_equal(w.rows.count, 3);
    for (int i = 1; i <= 7; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(train_task_word(&w, 0, &w.examples.list[0], 2), 4);
    train_task_close(&w);
    by_model_free(m);
}

static void test_answer_targets(void **state)
{
    (void)state;
    static const char text[] =
        "{\"question\": \"q\", \"context\": \"a b c d e f g h\", \"answers\": [{\"text\": \"e f\", "
        "\"answer_start\": 8}]}\n{\"question\": \"q\", \"context\": \"a b\", \"answers\": []}\n";
    by_model *m = tiny_model(device, "bert", BY_TASK_ANSWER, 0, 32);
    data_examples c = read_cases("q.jsonl", text, (by_examples_spec){.kind = BY_EXAMPLE_ANSWER});
    train_task w = open_work(&c, m, 9, 1); /* [CLS] q [SEP] a b c d e [SEP], ... d e f g h */
    assert_int_equal(w.rows.count, 3);
    assert_true(w.may_be_none);
    int64_t counted;
    static const int rows[] = {0, 1, 2}, start[] = {0, 3, 0}, end[] = {0, 4, 0};
    assert_int_equal(train_task_batch(&w, rows, 3, 4, 0, &counted), BY_OK);
    assert_int_equal(counted, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w.targets[i], start[i]);
        assert_int_equal(w.second[i], end[i]);
    }
    assert_int_equal(w.targets[3], -100);
    train_task_close(&w);
    by_model_free(m);
}

/* The best span over two windows, never in the question, never too long, and the lowest score of none. */
static void test_best_span(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_ANSWER, 0, 32);
    data_rows r;
    assert_int_equal(
        data_rows_init(&r, m, tokenizer,
                       &(data_rows_spec){.limit = 9, .windows = true, .overlap = 1, .offsets = true}),
        BY_OK);
    assert_int_equal(data_rows_add(&r, "q", "a b c d e f g h"), BY_OK);
    float start[2][9] = {{3, 99, 0, 1, 0, 0, 0, 0, 0}, {2, 99, 0, 0, 5, 0, 0, 0, 0}},
          end[2][9] = {{0, 99, 0, 0, 2, 0, 0, 0, 99}, {0, 99, 0, 0, 0, 1, 9, 99, 99}};
    data_best b = data_best_none();
    data_best_look(&b, &r, 0, start[0], end[0], 2);
    assert_int_equal(b.start, 0);
    assert_int_equal(b.end, 3);
    data_best_look(&b, &r, 1, start[1], end[1], 2);
    assert_int_equal(b.start, 12); /* "g h": 5 + 9 would be three tokens */
    assert_int_equal(b.end, 15);
    assert_true(b.score == 9 && b.none == 2);
    data_rows_free(&r);
    by_model_free(m);
}

/* Whatever the batch size, predictions and metrics are the same. */
static void test_judging(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 3, 32);
    static const char text[] = "a\t0\nbcd\t1\nefghijk lmn\t2\nop q\t1\nrst uvwxyz abc\t0\n";
    by_task_result v[2];
    for (int k = 0; k < 2; k++) {
        data_examples c = read_cases("j.tsv", text, (by_examples_spec){0});
        train_task w = open_work(&c, m, 0, 0);
        w.spec.batch = k ? 1 : 4;
        by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 0);
        char path[512];
        snprintf(path, sizeof path, "%s/p%d.jsonl", folder, k);
        assert_int_equal(train_task_evaluate(&w, passes, path, &v[k]), BY_OK);
        assert_int_equal(v[k].cases, 5);
        by_passes_free(passes);
        train_task_close(&w);
    }
    assert_true(v[0].metrics[0].value == v[1].metrics[0].value);
    assert_true(v[0].loss - v[1].loss < 1e-5 && v[1].loss - v[0].loss < 1e-5);
    by_model_free(m);
}

/* ---- learning -------------------------------------------------------------------------------- */

static int64_t size_of(const by_params *p, int i)
{
    int64_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= by_params_shape(p, i)[k];
    return n;
}

/* All parameters one after another; the caller frees them. */
static float *all_values(const by_params *p)
{
    float *out = base_alloc_zero((size_t)by_params_elements(p), sizeof *out), *at = out;
    for (int i = 0; i < by_params_count(p); at += size_of(p, i), i++)
        assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, at), BY_OK);
    return out;
}

/* What one step of plain descent takes off each of them. */
static float *step_taken(by_model *m, train_task *w)
{
    const by_params *p = by_model_params(m);
    static const int rows[] = {0, 1, 2, 3};
    int64_t counted;
    by_model_set_dropout(m, 0);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.optimizer = {.kind = BY_SGD}});
    assert_non_null(t);
    float *step = all_values(p);
    assert_int_equal(train_task_batch(w, rows, 4, 4, 0, &counted), BY_OK);
    assert_int_equal(by_trainer_backward(t, &w->batch.batch, true, NULL), BY_OK);
    assert_int_equal(by_trainer_update(t, 10, NULL), BY_OK);
    float *after = all_values(p);
    for (int64_t i = 0; i < by_params_elements(p); i++)
        step[i] -= after[i];
    base_free(after);
    by_trainer_free(t);
    return step;
}

static float rate_of(const char *name)
{
    return strstr(name, "embeddings.") ? 0 : strstr(name, "layer.0.") ? 0.5f : 1;
}

/* Parameters learn at the rates they are given; what is frozen stays. */
static void test_rates(void **state)
{
    (void)state;
    static const char text[] = "a b\t0\nc d e\t1\nf\t1\ng h\t0\n";
    float *steps[2];
    for (int k = 0; k < 2; k++) {
        by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 2, 32);
        by_params *p = by_model_params(m);
        data_examples c = read_cases("r.tsv", text, (by_examples_spec){0});
        train_task w = open_work(&c, m, 0, 0);
        for (int i = 0; i < by_params_count(p) && k; i++)
            by_params_set_rate(p, i, (double)rate_of(by_params_name(p, i)));
        steps[k] = step_taken(m, &w);
        float *all = steps[0], *some = steps[k];
        double moved = 0;
        for (int i = 0; i < by_params_count(p) && k; i++) {
            const float scale = rate_of(by_params_name(p, i));
            for (int64_t n = size_of(p, i); n > 0; n--, all++, some++) {
                moved += (double)scale * (double)*all * (double)*all;
                if (!(*some - scale * *all < 1e-6f && scale * *all - *some < 1e-6f))
                    fail_msg("%s: %g is not %g of %g", by_params_name(p, i), (double)*some, (double)scale,
                             (double)*all);
            }
        }
        assert_true(k == 0 || moved > 1e-6);
        train_task_close(&w);
        by_model_free(m);
    }
    base_free(steps[0]);
    base_free(steps[1]);
}

/* sum(w loss) / sum(w), from the losses of the rows by themselves. */
static void test_class_weights(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 2, 32);
    data_examples c = read_cases("w.tsv", "a b\t0\nc d e\t1\nf\t1\ng h\t0\n", (by_examples_spec){0});
    train_task w = open_work(&c, m, 0, 0);
    by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 0);
    static const float weights[] = {0.25f, 3};
    static const int rows[] = {0, 1, 2, 3};
    double sum = 0, all = 0;
    float loss;
    int64_t counted;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(train_task_batch(&w, rows + i % 4, i < 4 ? 1 : 4, 0, 0, &counted), BY_OK);
        if (i == 4)
            by_batch_put(&w.batch.batch, "class_weights", BY_F32, 1, (int64_t[]){2}, weights);
        by_pass *p = by_passes_get(passes, &w.batch.batch);
        assert_non_null(p);
        assert_int_equal(by_pass_run(p, &w.batch.batch), BY_OK);
        assert_int_equal(by_pass_read(p, by_pass_loss(p), &loss), BY_OK);
        if (i < 4) {
            sum += (double)weights[w.targets[0]] * loss;
            all += (double)weights[w.targets[0]];
        }
    }
    assert_true(loss - sum / all < 1e-5 && sum / all - loss < 1e-5);
    by_passes_free(passes);
    train_task_close(&w);
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),         cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_json_lists),     cmocka_unit_test(test_unknown_headers),
        cmocka_unit_test(test_description),    cmocka_unit_test(test_conll),
        cmocka_unit_test(test_squad),          cmocka_unit_test(test_labels),
        cmocka_unit_test(test_bad_files),      cmocka_unit_test(test_tag_targets),
        cmocka_unit_test(test_answer_targets), cmocka_unit_test(test_best_span),
        cmocka_unit_test(test_judging),        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_class_weights),
    };
    return cmocka_run_group_tests(tests, set_up, tiny_close);
}
