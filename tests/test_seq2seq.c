/* test_seq2seq.c - what encoder-decoders and models that fill in are trained on: the original text can be put
 * together again from every row; pairs of texts come once an epoch, in batches that keep to their budget and
 * depend on nothing but seed and step; files that are wrong are named with their line.
 *
 * The words of the text are w0, w1, ... in that order, so that each word tells where it is from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/train.h"
#include "child.h"
#include "data/fim.h"
#include "data/objective.h"
#include "data/parallel_text.h"
#include "folder.h"
#include "train/checkpoint.h"
#include "train/vocabulary.h"

enum { WORDS = 2400, SENTENCE = 6, SENTINELS = 40 };
enum {
    PAD,
    EOS,
    UNK,
    FIRST,
    MASK,
    PREFIX,
    SUFFIX,
    MIDDLE,
    DE,
    EN,
    X0,
    W0 = X0 + SENTINELS,
    VOCAB = W0 + WORDS
};

static by_tokenizer *words;

static void token_name(int id, char letter, char *name, size_t room)
{
    static const char *const special[] = {"<pad>",  "</s>",           "<unk>",          "<s>",
                                          "<mask>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                          ">>de<<", ">>en<<"};
    if (id < X0)
        snprintf(name, room, "%s", special[id]);
    else if (id < W0)
        snprintf(name, room, "<extra_id_%d>", id - X0);
    else
        snprintf(name, room, "%c%d", letter, id - W0);
}

/* A tokenizer.json of so many tokens, whose words begin with this letter. */
static void write_tokenizer(const char *file, char letter, int size)
{
    base_buf b = {0};
    char name[32];
    base_buf_puts(&b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int i = 0; i < W0; i++) {
        token_name(i, letter, name, sizeof name);
        base_buf_printf(&b,
                        "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                        "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                        i ? ", " : "", i, name);
    }
    base_buf_puts(
        &b, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
            "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
            "\"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}], \"pair\": "
            "[{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", "
            "\"type_id\": 0}}], \"special_tokens\": {\"</s>\": {\"id\": \"</s>\", \"ids\": [1], "
            "\"tokens\": [\"</s>\"]}}}, \"decoder\": null, \"model\": {\"type\": \"WordLevel\", "
            "\"unk_token\": \"<unk>\", \"vocab\": {");
    for (int i = 0; i < size; i++) {
        token_name(i, letter, name, sizeof name);
        base_buf_printf(&b, "%s\"%s\": %d", i ? ", " : "", name, i);
    }
    base_buf_puts(&b, "}}}");
    write_text(file, b.data);
    base_buf_free(&b);
}

static void make_tokenizer(void)
{
    assert_int_equal(base_dir_make(in_root("words")), BY_OK);
    write_tokenizer("words/tokenizer.json", 'w', VOCAB);
    words = by_tokenizer_load(in_root("words"));
    if (!words)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_tokenizer_vocab_size(words), VOCAB);
    assert_int_equal(by_tokenizer_eos(words), EOS);
}

/* One document of all words, a line for each sentence; or documents of so many sentences. */
static void write_words(const char *name, int sentences)
{
    base_buf b = {0};
    for (int i = 0; i < WORDS; i++) {
        bool end = (i + 1) % SENTENCE == 0;
        base_buf_printf(&b, "w%d%s", i, end ? "\n" : " ");
        if (end && sentences && (i + 1) % (SENTENCE * sentences) == 0)
            base_buf_puts(&b, "\n");
    }
    write_text(name, b.data);
    base_buf_free(&b);
}

static int set_up(void **state)
{
    (void)state;
    if (!make_root("seq2seq"))
        return -1;
    make_tokenizer();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    by_tokenizer_free(words);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- an objective over a file ----------------------------------------------------------------- */

typedef struct bench {
    data_docs docs;
    data_docs_part train, held;
    data_objective *o;
    data_samples rows;
} bench;

static void open_objective(bench *b, data_objective_spec spec, int batch)
{
    spec.seed = 7;
    spec.start = spec.kind == DATA_OBJECTIVE_INFILL ? EOS : PAD;
    if (spec.masking.share == 0)
        spec.masking = data_masking_usual(spec.kind);
    b->o = data_objective_new(&b->train, words, &spec);
    if (!b->o)
        fail_msg("%s", by_error_message());
    assert_int_equal(data_samples_make(&b->rows, b->o, spec.step_rows, batch), BY_OK);
}

static void open_bench(bench *b, const char *file, data_objective_spec spec)
{
    int64_t bytes, tokens;
    const data_docs_file files[] = {{in_root(file), 0}};
    *b = (bench){0};
    assert_int_equal(data_docs_build(words, &(data_docs_spec){files, 1, false}, in_root("t.bin"),
                                     in_root("t.docs"), &bytes, &tokens),
                     BY_OK);
    assert_int_equal(data_docs_open(&b->docs, in_root("t.bin"), in_root("t.docs"), VOCAB), BY_OK);
    assert_int_equal(data_docs_split(&b->docs, 0, false, &b->train, &b->held), BY_OK);
    open_objective(b, spec, spec.step_rows);
}

static void close_bench(bench *b)
{
    data_samples_free(&b->rows);
    data_objective_free(b->o);
    data_docs_part_free(&b->train);
    data_docs_part_free(&b->held);
    data_docs_close(&b->docs);
}

/* What the decoder reads is what it writes, one place later. */
static void check_shift(const int32_t *tokens, const int32_t *targets, int seq, int32_t start)
{
    assert_int_equal(tokens[0], start);
    for (int t = 1; t < seq; t++)
        assert_int_equal(tokens[t], targets[t - 1] == -100 ? PAD : targets[t - 1]);
}

static int used(const int32_t *ids, int n, int32_t filler)
{
    while (n > 0 && ids[n - 1] == filler)
        n--;
    return n;
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* The text of a row: each sentinel of the source gives way to what the target has behind the same one. */
static int mend(const int32_t *source, int n, const int32_t *target, int m, int32_t *out)
{
    int count = 0, at = 0, next = X0;
    for (int t = 0; t < n - 1; t++) {
        if (source[t] >= W0) {
            out[count++] = source[t];
            continue;
        }
        assert_int_equal(source[t], next);
        assert_int_equal(target[at++], next++);
        assert_true(target[at] >= W0); /* no span is empty */
        while (target[at] >= W0)
            out[count++] = target[at++];
    }
    assert_int_equal(source[n - 1], EOS);
    assert_int_equal(target[at], next);
    assert_int_equal(target[at + 1], EOS);
    assert_int_equal(at + 2, m);
    return count;
}

static void spans_give_the_text_back(void **state)
{
    (void)state;
    bench b;
    int64_t hidden = 0, all = 0, spans = 0;
    static bool seen[WORDS];
    write_words("text", 0);
    open_bench(&b, "text", (data_objective_spec){.kind = DATA_OBJECTIVE_SPANS, .seq = 64, .step_rows = 4});
    int rows = (int)data_objective_rows(b.o), n = b.rows.source_seq, m = b.rows.seq, short_ones = 0;
    assert_int_equal(n, 64);
    for (int step = 0; step < rows / 4; step++) {
        assert_int_equal(data_objective_get(b.o, step, &b.rows), BY_OK);
        for (int r = 0; r < 4; r++) {
            const int32_t *source = b.rows.source + r * n, *target = b.rows.targets + r * m;
            int32_t text[256];
            int size = used(source, n, PAD), written = used(target, m, -100);
            check_shift(b.rows.tokens + r * m, target, m, PAD);
            for (int t = 0; t < n; t++)
                assert_int_equal(b.rows.source_mask[r * n + t], t < size);
            int count = mend(source, size, target, written, text);
            for (int i = 0; i < count; i++) {
                assert_int_equal(text[i], text[0] + i); /* the words in their order */
                assert_false(seen[text[i] - W0]);
                seen[text[i] - W0] = true;
            }
            assert_true(source[0] >= W0); /* what comes first is not hidden */
            short_ones += size < n;
            for (int t = 0; t < written; t++) {
                hidden += target[t] >= W0;
                spans += target[t] >= X0 && target[t] < W0;
            }
            spans--; /* the closing one */
            all += count;
        }
    }
    assert_true(short_ones <= 1); /* what is left over at the end */
    assert_true(fabs((double)hidden / (double)all - 0.15) < 0.01);
    assert_true(fabs((double)hidden / (double)spans - 3) < 0.4);
    close_bench(&b);
}

static void spans_are_seekable(void **state)
{
    (void)state;
    bench b;
    write_words("text", 0);
    open_bench(&b, "text", (data_objective_spec){.kind = DATA_OBJECTIVE_SPANS, .seq = 32, .step_rows = 3});
    data_samples other;
    assert_int_equal(data_samples_make(&other, b.o, 3, 1), BY_OK);
    const size_t bytes = (size_t)(3 * b.rows.source_seq) * sizeof(int32_t);
    assert_int_equal(data_objective_get(b.o, 5, &b.rows), BY_OK);
    assert_int_equal(data_objective_get(b.o, 1000, &other), BY_OK);
    assert_memory_not_equal(b.rows.source, other.source, bytes);
    assert_int_equal(data_objective_get(b.o, 5, &other), BY_OK);
    assert_memory_equal(b.rows.source, other.source, bytes);
    by_batch second = data_samples_batch(&other, 1);
    assert_ptr_equal(by_batch_ids(&second, "source"), other.source + other.source_seq);
    assert_ptr_equal(by_batch_ids(&second, "targets"), other.targets + other.seq);
    assert_int_equal(data_objective_held(b.o, data_objective_rows(b.o) - 1, &b.rows), BY_OK);
    for (int t = 0; t < b.rows.seq; t++) /* behind the last one: a row that asks for nothing */
        assert_int_equal(b.rows.targets[b.rows.seq + t], -100);
    assert_int_equal(b.rows.source_mask[b.rows.source_seq], 1);
    data_samples_free(&other);
    close_bench(&b);
}

/* ---- infilling ------------------------------------------------------------------------------- */

static void infilling_keeps_what_is_not_hidden(void **state)
{
    (void)state;
    bench b;
    int64_t hidden = 0, all = 0, masks = 0, moved = 0, inserted = 0;
    write_words("text", 3);
    open_bench(&b, "text", (data_objective_spec){.kind = DATA_OBJECTIVE_INFILL, .seq = 40, .step_rows = 5});
    const int n = b.rows.source_seq, m = b.rows.seq;
    for (int step = 0; step < data_objective_rows(b.o) / 5; step++) {
        assert_int_equal(data_objective_get(b.o, step, &b.rows), BY_OK);
        for (int r = 0; r < 5; r++) {
            const int32_t *source = b.rows.source + r * n, *target = b.rows.targets + r * m;
            int size = used(source, n, PAD), written = used(target, m, -100), kept = 0, holes = 0;
            check_shift(b.rows.tokens + r * m, target, m, EOS);
            assert_int_equal(source[0], FIRST);
            assert_int_equal(target[0], FIRST);
            assert_int_equal(source[size - 1], EOS);
            assert_int_equal(target[written - 1], EOS);
            for (int t = 2; t < written - 1; t++)
                assert_int_equal(target[t], target[t - 1] + 1);
            int before = -1;
            bool gap = false;
            for (int t = 1; t < size - 1; t++) {
                if (source[t] == MASK) {
                    holes++;
                    gap = true;
                    continue;
                }
                const int at = source[t] - target[1]; /* of the original */
                assert_true(at >= 0 && at < written - 2);
                kept++;
                if (before >= 0 && (target[1] + before - W0) / SENTENCE == (source[t] - W0) / SENTENCE) {
                    assert_true(at > before); /* inside of a sentence they stay in order */
                    inserted += gap && at == before + 1;
                } else {
                    moved += before >= 0 && at < before;
                }
                before = at;
                gap = false;
            }
            hidden += written - 2 - kept;
            all += written - 2;
            masks += holes;
        }
    }
    assert_true(fabs((double)hidden / (double)all - 0.3) < 0.015);
    assert_true(masks < hidden / 2 && masks > hidden / 5); /* a mask for about three tokens */
    assert_true(moved > 100);
    assert_true(inserted > 5); /* masks where nothing was */
    close_bench(&b);
}

/* ---- filling in the middle ------------------------------------------------------------------- */

/* The document that begins at place t, in its order; returns the place behind its end. */
static int unfold(const int32_t *row, int t, int end, int32_t *out, int *count, bool *cut)
{
    *count = 0;
    *cut = row[t] == PREFIX;
    if (!*cut) {
        for (; t < end && row[t] != EOS; t++)
            out[(*count)++] = row[t];
        return t + 1;
    }
    int suffix = t, middle, stop;
    while (row[suffix] != SUFFIX)
        suffix++;
    for (middle = suffix; row[middle] != MIDDLE;)
        middle++;
    for (stop = middle; row[stop] != EOS;)
        stop++;
    const int parts[3][2] = {{t + 1, suffix}, {middle + 1, stop}, {suffix + 1, middle}};
    for (int p = 0; p < 3; p++)
        for (int i = parts[p][0]; i < parts[p][1]; i++)
            out[(*count)++] = row[i];
    return stop + 1;
}

static void check_filling_in(bool suffix_first)
{
    bench b;
    int64_t documents = 0, cuts = 0;
    static bool seen[WORDS];
    memset(seen, 0, sizeof seen);
    write_words("text", 2);
    open_bench(&b, "text",
               (data_objective_spec){
                   .kind = DATA_OBJECTIVE_FIM, .seq = 50, .step_rows = 4, .suffix_first = suffix_first});
    for (int64_t step = 0; step < (data_objective_rows(b.o) + 3) / 4; step++) {
        assert_int_equal(data_objective_get(b.o, step, &b.rows), BY_OK);
        for (int r = 0; r < 4 && step * 4 + r < data_objective_rows(b.o); r++) {
            const int32_t *row = b.rows.tokens + r * 50, *mask = b.rows.mask + r * 50;
            int end = used(mask, 50, 0);
            for (int t = 0; t < 50; t++)
                assert_int_equal(b.rows.targets[r * 50 + t], t + 1 < end ? row[t + 1] : -100);
            for (int t = 0; t < end;) {
                int32_t text[64];
                int count;
                bool cut;
                t = unfold(row, t, end, text, &count, &cut);
                documents++;
                cuts += cut;
                for (int i = 0; i < count; i++) {
                    assert_int_equal(text[i], text[0] + i);
                    assert_false(seen[text[i] - W0]);
                    seen[text[i] - W0] = true;
                }
            }
        }
    }
    for (int i = 0; i < WORDS; i++)
        assert_true(seen[i]);
    assert_true(fabs((double)cuts / (double)documents - 0.5) <
                0.12); /* of 200: three and a half deviations */
    close_bench(&b);
}

static void filling_in_gives_the_text_back(void **state)
{
    (void)state;
    check_filling_in(false);
    check_filling_in(true);
}

static void prompts_for_filling_in(void **state)
{
    (void)state;
    by_ids ids = {0};
    const int32_t expected[] = {PREFIX, W0 + 1, W0 + 2, SUFFIX, W0 + 5, MIDDLE};
    assert_int_equal(data_fim_prompt(words, "w1 w2", "w5", &ids), BY_OK);
    assert_int_equal(ids.count, BY_COUNT(expected));
    assert_memory_equal(ids.data, expected, sizeof expected);
    by_tokenizer *bytes = tok_new_bytes();
    assert_int_equal(data_fim_prompt(bytes, "a", "b", &ids), BY_ERR_UNSUPPORTED);
    assert_contains(by_error_message(), "<|fim_prefix|>");
    by_tokenizer_free(bytes);
    tok_ids_free(&ids);
}

/* ---- pairs of texts -------------------------------------------------------------------------- */

enum { PAIRS = 300 };

/* Pair i: word i some times, and word PAIRS + i some times. Pair 7 has an empty side, pair 9 is long. */
static int source_words(int i)
{
    return i == 9 ? 90 : 1 + i * 7 % 37;
}

static int target_words(int i)
{
    return i == 7 ? 0 : 1 + i * 11 % 29;
}

static void write_pairs(const char *a, const char *b)
{
    base_buf text[2] = {{0}, {0}};
    for (int i = 0; i < PAIRS; i++) {
        for (int k = 0; k < source_words(i); k++)
            base_buf_printf(&text[0], "%sw%d", k ? " " : "", i);
        for (int k = 0; k < target_words(i); k++)
            base_buf_printf(&text[1], "%sw%d", k ? " " : "", PAIRS + i);
        base_buf_puts(&text[0], "\n");
        base_buf_puts(&text[1], "\n");
    }
    write_text(a, text[0].data);
    write_text(b, text[1].data);
    base_buf_free(&text[0]);
    base_buf_free(&text[1]);
}

static void open_pairs(bench *b, data_objective_spec spec, int batch)
{
    int64_t bytes, tokens;
    const data_parallel_item items[] = {{in_root("a"), in_root("b"), "", NULL}};
    *b = (bench){0};
    write_pairs("a", "b");
    if (data_parallel_build(words, &(data_parallel_spec){.items = items, .count = 1}, in_root("p.bin"),
                            in_root("p.docs"), &bytes, &tokens) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(data_docs_open(&b->docs, in_root("p.bin"), in_root("p.docs"), VOCAB), BY_OK);
    assert_int_equal(data_docs_split(&b->docs, 0, true, &b->train, &b->held), BY_OK);
    open_objective(b, spec, batch);
}

static int source_seq(const by_batch *x)
{
    return (int)by_batch_find(x, "source")->shape[1];
}

/* A row of a batch is whole; returns its pair, -1 for one that fills up. */
static int check_pair(const by_batch *x, int r)
{
    const int length = source_seq(x);
    const int32_t *source = by_batch_ids(x, "source") + r * length,
                  *mask = by_batch_ids(x, "source_mask") + r * length,
                  *targets = by_batch_ids(x, "targets") + r * x->seq;
    int n = used(mask, length, 0), m = used(targets, x->seq, -100);
    check_shift(by_batch_ids(x, "tokens") + r * x->seq, targets, x->seq, PAD);
    for (int t = 0; t < length; t++) {
        assert_int_equal(mask[t], t < n);
        assert_int_equal(source[t] == PAD, t >= n);
    }
    assert_int_equal(source[n - 1], EOS);
    if (m == 0) {
        assert_int_equal(n, 1);
        return -1;
    }
    int i = source[0] - W0;
    assert_int_equal(n, source_words(i) + 1);
    assert_int_equal(m, target_words(i) + 1);
    assert_int_equal(targets[m - 1], EOS);
    for (int t = 0; t < n - 1; t++)
        assert_int_equal(source[t], W0 + i);
    for (int t = 0; t < m - 1; t++)
        assert_int_equal(targets[t], W0 + PAIRS + i);
    return i;
}

/* How often each pair comes in so many batches. */
static void count_pairs(const bench *b, data_samples *rows, int64_t first, int64_t batches, bool held,
                        int *seen)
{
    const int micro = rows->count / rows->batch;
    memset(seen, 0, PAIRS * sizeof *seen);
    for (int64_t i = first; i < first + batches; i += micro) {
        if (held)
            assert_int_equal(data_objective_held_batch(b->o, i, rows), BY_OK);
        else
            assert_int_equal(data_objective_get(b->o, i / micro, rows), BY_OK);
        for (int k = 0; k < micro; k++) {
            by_batch x = data_samples_batch(rows, k);
            assert_true(x.batch * BY_MAX(x.seq, source_seq(&x)) <= 256);
            for (int r = 0; r < x.batch; r++) {
                int pair = check_pair(&x, r);
                if (pair >= 0)
                    seen[pair]++;
            }
        }
    }
}

static void pairs_come_once_an_epoch(void **state)
{
    (void)state;
    bench b;
    int seen[PAIRS];
    int64_t empty, longer;
    open_pairs(
        &b, (data_objective_spec){.kind = DATA_OBJECTIVE_TRANSLATE, .seq = 64, .step_rows = 1, .budget = 256},
        1);
    const int64_t batches = (int64_t)data_objective_batches(b.o, 1);
    data_objective_dropped(b.o, &empty, &longer);
    assert_int_equal(empty, 1);
    assert_int_equal(longer, 1);
    assert_int_equal(data_objective_rows(b.o), PAIRS - 2);
    assert_int_equal(data_objective_held_batches(b.o, &b.rows), batches);
    for (int epoch = 0; epoch < 3; epoch++) { /* the last: in order, as for evaluation */
        count_pairs(&b, &b.rows, epoch == 2 ? 0 : epoch * batches, batches, epoch == 2, seen);
        for (int i = 0; i < PAIRS; i++)
            assert_int_equal(seen[i], i != 7 && i != 9);
    }
    close_bench(&b);
}

static void batches_follow_from_seed_and_step(void **state)
{
    (void)state;
    bench b;
    data_samples two, again;
    int shapes = 0;
    struct data_shape known[64];
    open_pairs(
        &b, (data_objective_spec){.kind = DATA_OBJECTIVE_TRANSLATE, .seq = 64, .step_rows = 1, .budget = 256},
        1);
    data_objective_spec spec = *data_objective_settings(b.o);
    spec.step_rows = 2;
    data_objective *twice = data_objective_new(&b.train, words, &spec);
    assert_non_null(twice);
    assert_int_equal(data_samples_make(&two, twice, 2, 1), BY_OK);
    assert_int_equal(data_samples_make(&again, b.o, 1, 1), BY_OK);
    bool other_order = false;
    const int64_t epoch = (int64_t)data_objective_batches(b.o, 1);
    for (int64_t i = 0; i < 2 * epoch; i++) {
        assert_int_equal(data_objective_get(b.o, i, &b.rows), BY_OK);
        assert_int_equal(data_objective_get(twice, i / 2, &two), BY_OK);
        by_batch x = data_samples_batch(&b.rows, 0), y = data_samples_batch(&two, (int)(i % 2));
        assert_int_equal(x.batch, y.batch);
        assert_int_equal(x.seq, y.seq);
        assert_memory_equal(by_batch_ids(&x, "source"), by_batch_ids(&y, "source"),
                            (size_t)(x.batch * source_seq(&x)) * sizeof(int32_t));
        assert_memory_equal(by_batch_ids(&x, "targets"), by_batch_ids(&y, "targets"),
                            (size_t)(x.batch * x.seq) * sizeof(int32_t));
        assert_int_equal(data_objective_get(b.o, i + epoch, &again), BY_OK);
        other_order = other_order || again.shapes[0].seq != x.seq;
        int k = 0;
        while (k < shapes && memcmp(&known[k], &b.rows.shapes[0], sizeof known[k]) != 0)
            k++;
        if (k == shapes)
            known[shapes++] = b.rows.shapes[0];
    }
    assert_true(other_order);
    assert_true(shapes <= 8); /* 8, 12, 16, 20, 24, 32, 40 */
    data_samples_free(&two);
    data_samples_free(&again);
    data_objective_free(twice);
    close_bench(&b);
}

/* Rows that fill up a batch change neither the loss nor, as their gradients are zero, the gradients. */
static void rows_that_fill_up_are_harmless(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    by_model *m = by_model_new(
        d, "transformer", &(by_model_shape){.layers = 1, .heads = 2, .width = 16, .context = 16, .vocab = 32},
        &(by_model_spec){.training = true, .seed = 3});
    assert_non_null(m);
    const int32_t source[] = {9, 8, 1, 0, 1, 0, 0, 0}, mask[] = {1, 1, 1, 0, 1, 0, 0, 0};
    const int32_t tokens[] = {0, 5, 6, 0, 0, 0}, targets[] = {5, 6, 1, -100, -100, -100};
    by_batch batches[2];
    for (int i = 0; i < 2; i++) {
        batches[i] = by_batch_of(1 + i, 3, tokens);
        by_batch_put_source(&batches[i], 4, source, mask);
        by_batch_put_tokens(&batches[i], "targets", targets);
    }
    float loss[2], grads[2][64];
    by_params *p = by_model_params(m);
    int at = by_params_find(p, "model.encoder.layers.0.fc1.bias");
    assert_true(at >= 0);
    for (int i = 0; i < 2; i++) {
        by_model_set_dropout(m, 0);
        by_pass *pass = by_pass_new(m, &batches[i], &(by_pass_spec){.grads = BY_GRAD_STORE});
        assert_non_null(pass);
        assert_int_equal(by_pass_run(pass, &batches[i]), BY_OK);
        assert_int_equal(by_pass_read(pass, by_pass_loss(pass), &loss[i]), BY_OK);
        assert_int_equal(by_params_get(p, at, BY_SLOT_GRAD, grads[i]), BY_OK);
        by_pass_free(pass);
    }
    assert_true(isfinite(loss[0]));
    assert_true(fabs(loss[0] - loss[1]) < 1e-6);
    for (int i = 0; i < 64; i++)
        assert_true(fabs(grads[0][i] - grads[1][i]) < 1e-6);
    by_model_free(m);
    by_device_free(d);
}

/* ---- files ----------------------------------------------------------------------------------- */

static by_status build(const char *source, const char *target)
{
    int64_t bytes, tokens;
    const data_parallel_item items[] = {{in_root(source), target ? in_root(target) : NULL, "", NULL}};
    return data_parallel_build(words, &(data_parallel_spec){.items = items, .count = 1}, in_root("q.bin"),
                               in_root("q.docs"), &bytes, &tokens);
}

static void refuse(const char *source, const char *target, const char *file, const char *why)
{
    base_error_clear();
    assert_int_not_equal(build(source, target), BY_OK);
    assert_contains(by_error_message(), file);
    assert_contains(by_error_message(), why);
    assert_false(base_file_exists(in_root("q.docs")));
}

static void bad_files_are_named(void **state)
{
    (void)state;
    write_text("three", "w1\nw2\nw3\n");
    write_text("two", "w1\nw2\n");
    write_text("none", "");
    write_text("latin", "w1\nw2 \xe4\nw3\n");
    write_text("one.tsv", "w1\nw2\n");
    write_text("ragged.tsv", "source\ttarget\nw1\tw2\nw3\n");
    write_text("empty.tsv", "source\ttarget\nw1\tw2\n \tw3\n");
    write_text("no.jsonl", "{\"source\": \"w1\", \"target\": \"w2\"}\n{\"source\": \"w1\"}\n");
    write_text("half.jsonl", "{\"translation\": {\"en\": \"w1\"}}\n");
    write_text("broken.jsonl", "{\"source\": \"w1\", \"target\": \"w2\"}\n{\"source\n");
    refuse("three", "two", "three has 3 lines", "two has 2");
    refuse("two", "three", "two has 2 lines", "three has 3");
    refuse("none", "none", "none", "no text");
    refuse("latin", "three", "latin, line 2", "UTF-8");
    refuse("three", "latin", "latin, line 2", "UTF-8");
    refuse("gone", "three", "gone", "");
    refuse("one.tsv", NULL, "one.tsv, line 1", "1 column");
    refuse("ragged.tsv", NULL, "ragged.tsv, line 3", "1 columns, but the first line has 2");
    refuse("empty.tsv", NULL, "empty.tsv, line 3", "empty");
    refuse("no.jsonl", NULL, "no.jsonl, line 2", "target");
    refuse("half.jsonl", NULL, "half.jsonl, line 1", "translation");
    refuse("broken.jsonl", NULL, "broken.jsonl", "line 2");
}

/* All ways to write the same pairs give the same tokens. */
static void formats_agree(void **state)
{
    (void)state;
    write_text("x.en", "\xef\xbb\xbfw1 w2\r\n w3 \n");
    write_text("x.de", "w4\nw5 w6");
    write_text("x.tsv", "w1 w2\tw4\nw3\tw5 w6\n");
    write_text("y.tsv", "id\ttarget\tsource\n1\tw4\tw1 w2\n2\tw5 w6\tw3\n");
    write_text("x.csv", "source,target\n\"w1 w2\",w4\nw3,\"w5 w6\"\n");
    write_text("x.jsonl",
               "{\"source\": \"w1 w2\", \"target\": \"w4\"}\n{\"source\": \"w3\", \"target\": \"w5 w6\"}\n");
    write_text("y.jsonl", "{\"translation\": {\"en\": \"w1 w2\", \"de\": \"w4\"}}\n"
                          "{\"translation\": {\"en\": \"w3\", \"de\": \"w5 w6\"}}\n");
    const int32_t expected[] = {W0 + 1, W0 + 2, EOS, W0 + 4, EOS, W0 + 3, EOS, W0 + 5, W0 + 6, EOS};
    const char *files[][2] = {{"x.en", "x.de"}, {"x.tsv", NULL},   {"y.tsv", NULL},
                              {"x.csv", NULL},  {"x.jsonl", NULL}, {"y.jsonl", NULL}};
    for (int i = 0; i < BY_COUNT(files); i++) {
        data_docs d;
        int32_t ids[16];
        if (build(files[i][0], files[i][1]) != BY_OK)
            fail_msg("%s", by_error_message());
        assert_int_equal(data_docs_open(&d, in_root("q.bin"), in_root("q.docs"), VOCAB), BY_OK);
        assert_int_equal(d.count, 2);
        assert_int_equal(data_tokens_count(d.tokens), BY_COUNT(expected));
        assert_int_equal(data_tokens_read(d.tokens, 0, BY_COUNT(expected), ids), BY_OK);
        assert_memory_equal(ids, expected, sizeof expected);
        data_docs_close(&d);
        assert_int_equal(remove(in_root("q.docs")), 0);
    }
}

static void directions_and_prefixes(void **state)
{
    (void)state;
    write_text("x.en", "w1 w2\n");
    write_text("x.de", "w4\n");
    write_text("x.tsv", "w1\tw4\n");
    char *paths[] = {(char *)in_root("x.en"), (char *)in_root("x.de"), (char *)in_root("x.tsv")};
    by_run_spec spec = {.objective = {.both_directions = true}};
    train_items items;
    assert_int_equal(train_items_make(&items, &spec, paths, 2), BY_OK);
    assert_int_equal(items.spec.count, 1);
    assert_string_equal(items.spec.items[0].prefix, ">>de<< ");
    assert_string_equal(items.spec.items[0].back, ">>en<< ");
    int64_t bytes, tokens;
    int32_t ids[16];
    data_docs d;
    const int32_t expected[] = {DE, W0 + 1, W0 + 2, EOS, W0 + 4, EOS, EN, W0 + 4, EOS, W0 + 1, W0 + 2, EOS};
    assert_int_equal(
        data_parallel_build(words, &items.spec, in_root("r.bin"), in_root("r.docs"), &bytes, &tokens), BY_OK);
    assert_int_equal(tokens, BY_COUNT(expected));
    assert_int_equal(data_docs_open(&d, in_root("r.bin"), in_root("r.docs"), VOCAB), BY_OK);
    assert_int_equal(data_tokens_read(d.tokens, 0, tokens, ids), BY_OK);
    assert_memory_equal(ids, expected, sizeof expected);
    assert_int_equal(d.list[1].language, 1);
    data_docs_close(&d);
    train_items_free(&items);

    assert_int_equal(train_items_make(&items, &spec, paths, 3),
                     BY_ERR_ARGUMENT); /* a table does not say which */
    assert_contains(by_error_message(), "languages");
    train_items_free(&items);
    assert_int_equal(train_items_make(&items, &spec, paths, 1), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "x.en");
    train_items_free(&items);
    const char *const prefixes[] = {"one: ", "two: "};
    spec.objective = (by_objective_choice){.prefixes = prefixes, .prefix_count = 2};
    assert_int_equal(train_items_make(&items, &spec, paths, 3), BY_OK);
    assert_string_equal(items.spec.items[1].prefix, "two: ");
    assert_null(items.spec.items[1].back);
    train_items_free(&items);
    assert_int_equal(train_items_make(&items, &spec, paths, 2), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "2 prefixes");
    train_items_free(&items);
}

/* ---- two vocabularies ------------------------------------------------------------------------ */

static void check_two(const by_tokenizer *t, int target_size)
{
    assert_int_equal(by_tokenizer_vocab_size(t), VOCAB);
    assert_int_equal(by_tokenizer_target_vocab_size(t), target_size);
    assert_int_equal(by_tokenizer_eos(t), EOS);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_PAD), PAD);
    const int32_t expected[2][3] = {{W0 + 1, UNK, EOS}, {UNK, W0 + 2, EOS}};
    const char *const read[2][2] = {{"w1", "u1"}, {"w2", "u2"}};
    for (int side = 0; side < 2; side++) {
        by_encoding e;
        const by_encode_spec spec = {.special = true, .whole = true, .target = side};
        assert_int_equal(by_tokenizer_encode_with(t, "w1 u2", 5, &spec, &e), BY_OK);
        assert_int_equal(e.ids.count, 3);
        assert_memory_equal(e.ids.data, expected[side], sizeof expected[side]);
        by_encoding_free(&e);
        base_buf text = {0};
        const int32_t id = W0 + 1 + side;
        assert_int_equal(tok_decode_with(t, &id, 1, &(tok_decode_spec){.source = true}, &text), BY_OK);
        base_buf_puts(&text, " ");
        assert_int_equal(tok_decode(t, &id, 1, &text), BY_OK);
        assert_memory_equal(text.data, read[side][0], 2);
        assert_memory_equal(text.data + text.size - 2, read[side][1], 2);
        base_buf_free(&text);
    }
    base_buf text = {0};
    assert_int_equal(tok_decode(t, &(int32_t){target_size}, 1, &text), BY_ERR_ARGUMENT);
    base_buf_free(&text);
}

static void two_tokenizers_are_one(void **state)
{
    (void)state;
    enum { SMALL = W0 + 9 };
    base_dir_make(in_root("sides"));
    write_tokenizer("sides/tokenizer.json", 'w', VOCAB);
    write_tokenizer("sides/target_tokenizer.json", 'u', SMALL);
    by_tokenizer *t = by_tokenizer_load(in_root("sides"));
    if (!t)
        fail_msg("%s", by_error_message());
    check_two(t, SMALL);
    assert_int_equal(by_tokenizer_save(t, in_root("saved")), BY_OK);
    assert_int_not_equal(by_tokenizer_write(t, in_root("alone.json")), BY_OK);
    by_tokenizer *again = by_tokenizer_load(in_root("saved"));
    assert_non_null(again);
    check_two(again, SMALL);
    assert_true(tok_hash(again) == tok_hash(t));
    assert_true(tok_hash(again) != tok_hash(words));

    train_items items = {0};
    char *paths[] = {(char *)in_root("two.en"), (char *)in_root("two.de")};
    int64_t bytes, tokens;
    int32_t ids[8];
    data_docs d;
    const int32_t expected[] = {W0 + 1, UNK, EOS, UNK, W0 + 3, EOS};
    write_text("two.en", "w1 u2\n");
    write_text("two.de", "w1 u3\n");
    assert_int_equal(train_items_make(&items, &(by_run_spec){0}, paths, 2), BY_OK);
    assert_int_equal(
        data_parallel_build(t, &items.spec, in_root("s.bin"), in_root("s.docs"), &bytes, &tokens), BY_OK);
    assert_int_equal(tokens, BY_COUNT(expected));
    assert_int_equal(data_docs_open(&d, in_root("s.bin"), in_root("s.docs"), VOCAB), BY_OK);
    assert_int_equal(data_tokens_read(d.tokens, 0, tokens, ids), BY_OK);
    assert_memory_equal(ids, expected, sizeof expected);
    data_docs_close(&d);
    train_items_free(&items);
    by_tokenizer_free(again);
    by_tokenizer_free(t);

    /* one saved over two leaves none of the other */
    assert_int_equal(by_tokenizer_save(words, in_root("saved")), BY_OK);
    t = by_tokenizer_load(in_root("saved"));
    assert_non_null(t);
    assert_int_equal(by_tokenizer_target_vocab_size(t), 0);
    by_tokenizer_free(t);
}

/* Three tokens, all special, with these ids. */
static void write_three(const char *file, int pad, int end, int unknown)
{
    const char *const names[] = {"<pad>", "</s>", "<unk>"};
    const int ids[] = {pad, end, unknown};
    base_buf b = {0};
    base_buf_puts(&b, "{\"added_tokens\": [");
    for (int id = 0; id < 3; id++)
        for (int i = 0; i < 3; i++)
            if (ids[i] == id)
                base_buf_printf(&b, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", id ? ", " : "",
                                id, names[i]);
    base_buf_printf(&b,
                    "], \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", \"vocab\": {"
                    "\"<pad>\": %d, \"</s>\": %d, \"<unk>\": %d}}}",
                    pad, end, unknown);
    write_text(file, b.data);
    base_buf_free(&b);
}

static void tokenizers_that_do_not_agree(void **state)
{
    (void)state;
    static const struct {
        int pad, end, unknown;
        const char *message;
    } cases[] = {{1, 0, 2, "padding token has id 0 in the source and 1 in the target"},
                 {0, 2, 1, "unknown token has id 2 in the source and 1 in the target"},
                 {0, 1, 2, NULL}};
    base_dir_make(in_root("differ"));
    write_three("differ/tokenizer.json", 0, 1, 2);
    for (int i = 0; i < BY_COUNT(cases); i++) {
        write_three("differ/target_tokenizer.json", cases[i].pad, cases[i].end, cases[i].unknown);
        by_tokenizer *t = by_tokenizer_load(in_root("differ"));
        assert_true((t != NULL) == !cases[i].message);
        if (!t) {
            assert_contains(by_error_message(), cases[i].message);
            assert_contains(by_error_message(), "differ/target_tokenizer.json");
        }
        by_tokenizer_free(t);
    }
    write_text("differ/target_tokenizer.json",
               "{\"added_tokens\": [{\"id\": 0, \"content\": \"<pad>\", \"special\": true}, {\"id\": 2, "
               "\"content\": \"<unk>\", "
               "\"special\": true}, {\"id\": 3, \"content\": \"</s>\", \"special\": true}], \"model\": "
               "{\"type\": \"WordLevel\", "
               "\"unk_token\": \"<unk>\", \"vocab\": {\"<pad>\": 0, \"x\": 1, \"<unk>\": 2, \"</s>\": 3}}}");
    by_tokenizer *own = by_tokenizer_load(in_root("differ")); /* each side closes a text in its own way */
    assert_non_null(own);
    assert_int_equal(by_tokenizer_eos(own), 3);
    assert_int_equal(by_tokenizer_source_eos(own), 1);
    by_tokenizer_free(own);
    write_text("differ/target_tokenizer.json", "{\"model\"");
    assert_null(by_tokenizer_load(in_root("differ")));
    assert_contains(by_error_message(), "differ/target_tokenizer.json");

    by_tokenizer *inner = by_tokenizer_load(in_root("sides"));
    assert_non_null(inner);
    assert_null(tok_pair(inner, by_tokenizer_load(in_root("words"))));
    assert_contains(by_error_message(), "cannot be one of two");
}

/* ---- training -------------------------------------------------------------------------------- */

static by_model *small_model(by_device *d)
{
    by_model *m = by_model_new(
        d, "transformer", &(by_model_shape){.layers = 1, .heads = 2, .width = 8, .context = 64, .vocab = 16},
        &(by_model_spec){.training = true, .seed = 3});
    assert_non_null(m);
    by_model_set_dropout(m, 0);
    return m;
}

/* Micro-batches of different sizes: each target counts the same. */
static void shares_weigh_micro_batches(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    by_model *m = small_model(d);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.accumulate = 2, .many_shapes = true});
    assert_non_null(t);
    const int32_t source[] = {9, 8, 7, 1}, mask[] = {1, 1, 1, 1}, tokens[] = {0, 5, 6, 7},
                  targets[2][4] = {{5, 6, 7, 1}, {4, -100, -100, -100}};
    by_batch x[2];
    double sum[2] = {0, 0}, loss;
    int64_t count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        x[i] = by_batch_of(1, i ? 1 : 4, tokens);
        by_batch_put_source(&x[i], 4, source, mask);
        by_batch_put_tokens(&x[i], "targets", targets[i]);
        assert_int_equal(by_trainer_evaluate(t, &x[i], &sum[i], &count[i]), BY_OK);
    }
    for (int i = 0; i < 2; i++) {
        by_trainer_share(t, (double)count[i] / 5);
        assert_int_equal(by_trainer_backward(t, &x[i], i == 0, NULL), BY_OK);
    }
    assert_int_equal(by_trainer_loss(t, &loss), BY_OK);
    assert_true(fabs(loss - (sum[0] + sum[1]) / 5) < 1e-6);
    assert_true(fabs(loss - (sum[0] / 4 + sum[1]) / 2) > 1e-3); /* what the mean of means would be */
    by_trainer_free(t);
    by_model_free(m);
    by_device_free(d);
}

static void fill(by_model *m, float value)
{
    by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        float values[1024];
        for (int k = 0; k < BY_COUNT(values); k++)
            values[k] = value + (float)i;
        assert_int_equal(by_params_set(p, i, BY_SLOT_VALUE, values), BY_OK);
    }
}

static by_status write_model(void *user, const char *dir)
{
    return train_model_save(user, NULL, dir);
}

static void checkpoints_are_averaged(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    by_model *m = small_model(d);
    const float values[] = {100, 1, 5, 6};
    train_folder folder;
    assert_int_equal(train_folder_open(&folder, in_root("run")), BY_OK);
    for (int i = 0; i < 4; i++) {
        fill(m, values[i]);
        train_run_state s = {.step = 10 * (i + 1), .best_eval = NAN};
        assert_int_equal(train_checkpoint_save(&folder, &s, false, 4, write_model, m), BY_OK);
    }
    int used_ones;
    assert_int_equal(train_checkpoint_average(&folder, 3, m, &used_ones), BY_OK);
    assert_int_equal(used_ones, 3);
    float out[1024];
    by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, out), BY_OK);
        assert_float_equal(out[0], 4 + i, 1e-6);
    }
    assert_int_equal(train_checkpoint_average(&folder, 9, m, &used_ones), BY_OK);
    assert_int_equal(used_ones, 4);
    train_folder_close(&folder);
    by_model_free(m);
    by_device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_give_the_text_back),
        cmocka_unit_test(spans_are_seekable),
        cmocka_unit_test(infilling_keeps_what_is_not_hidden),
        cmocka_unit_test(filling_in_gives_the_text_back),
        cmocka_unit_test(prompts_for_filling_in),
        cmocka_unit_test(pairs_come_once_an_epoch),
        cmocka_unit_test(batches_follow_from_seed_and_step),
        cmocka_unit_test(rows_that_fill_up_are_harmless),
        cmocka_unit_test(bad_files_are_named),
        cmocka_unit_test(formats_agree),
        cmocka_unit_test(directions_and_prefixes),
        cmocka_unit_test(two_tokenizers_are_one),
        cmocka_unit_test(tokenizers_that_do_not_agree),
        cmocka_unit_test(shares_weigh_micro_batches),
        cmocka_unit_test(checkpoints_are_averaged),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
