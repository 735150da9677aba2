/* test_data.c - token shards and the batches cut from them: what is read, in which order, and damaged files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "data/tokens.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/banyan-data-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

/* A path in the folder of this test; the last eight are valid. */
static const char *at(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    assert_int_equal(base_file_write(at(name), bytes, size), BY_OK);
}

/* A shard whose header says what it is told to say, with body bytes after it. */
static void write_shard(const char *name, int32_t magic, int32_t version, int32_t count, const void *body,
                        size_t size)
{
    base_buf b = {0};
    int32_t header[256] = {magic, version, count};
    base_buf_put(&b, header, sizeof(header));
    base_buf_put(&b, body, size);
    write_file(name, b.data, b.size);
    base_buf_free(&b);
}

static data_tokens *open_one(const char *name, int64_t vocab)
{
    const char *path = at(name);
    return data_tokens_open(&path, 1, vocab);
}

static void assert_failed(by_status expected, const char *part)
{
    assert_int_equal(base_error_status(), expected);
    if (!strstr(by_error_message(), part))
        fail_msg("\"%s\" is not in the message \"%s\"", part, by_error_message());
}

/* A headerless shard of the numbers first, first + 1, ... */
static void write_counting(const char *name, int first, int count)
{
    uint16_t *ids = base_alloc((size_t)count * 2);
    for (int i = 0; i < count; i++)
        ids[i] = (uint16_t)(first + i);
    write_file(name, ids, (size_t)count * 2);
    base_free(ids);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void test_three_formats_as_one_stream(void **state)
{
    (void)state;
    uint16_t a[] = {0, 1, 2}, c[] = {3, 65535};
    uint32_t b[] = {70000, 5, 6, 2147483647};
    write_shard("fmt-1.bin", 20240520, 1, 3, a, sizeof(a));
    write_shard("fmt-2.bin", 20240801, 7, 4, b, sizeof(b));
    write_file("fmt-3.bin", "", 0);
    write_file("fmt-4.bin", c, sizeof(c));
    write_shard("fmt-5.bin", 20240520, 1, 0, NULL, 0);
    const int32_t all[] = {0, 1, 2, 70000, 5, 6, 2147483647, 3, 65535};
    data_tokens *t = open_one("fmt-*.bin", 0);
    assert_non_null(t);
    assert_int_equal(data_tokens_count(t), 9);
    for (int start = 0; start <= 9; start++) {
        for (int count = 0; count <= 9 - start; count++) {
            int32_t out[10];
            memset(out, 0x55, sizeof(out));
            data_tokens_prefetch(t, start, count);
            assert_int_equal(data_tokens_read(t, start, count, out), BY_OK);
            assert_memory_equal(out, all + start, (size_t)count * sizeof(*out));
            assert_int_equal(out[count], 0x55555555);
        }
    }
    int32_t out[10];
    assert_int_equal(data_tokens_read(t, 5, 5, out), BY_ERR_ARGUMENT);
    assert_int_equal(data_tokens_read(t, -1, 2, out), BY_ERR_ARGUMENT);
    assert_int_equal(data_tokens_read(t, 2, -1, out), BY_ERR_ARGUMENT);
    assert_int_equal(data_tokens_read(t, INT64_MAX, INT64_MAX, out), BY_ERR_ARGUMENT);
    data_tokens_prefetch(t, 5, INT64_MAX);
    data_tokens_free(t);
    data_tokens_free(NULL);
}

static void test_bad_shards(void **state)
{
    (void)state;
    uint16_t ids[4] = {1, 2, 3, 4};
    uint32_t wide[2] = {1, 0x80000000u};
    write_shard("count-large", 20240520, 1, 5, ids, sizeof(ids));
    write_shard("count-small", 20240520, 1, 3, ids, sizeof(ids));
    write_shard("count-negative", 20240520, 1, -4, ids, sizeof(ids));
    write_shard("count-huge", 20240801, 7, INT32_MAX, ids, sizeof(ids));
    write_shard("body-odd", 20240520, 1, 3, ids, sizeof(ids) - 1);
    write_shard("version", 20240520, 2, 4, ids, sizeof(ids));
    write_shard("too-wide", 20240801, 7, 2, wide, sizeof(wide));
    int32_t header[255] = {20240520, 1, 0};
    write_file("header-short", header, sizeof(header));
    write_file("odd", "abc", 3);
    static const struct {
        const char *name;
        by_status status;
        const char *part;
    } cases[] = {
        {"count-large", BY_ERR_FORMAT, "declares 5 tokens"},
        {"count-small", BY_ERR_FORMAT, "declares 3 tokens"},
        {"count-negative", BY_ERR_FORMAT, "declares -4"},
        {"count-huge", BY_ERR_FORMAT, "declares 2147483647"},
        {"body-odd", BY_ERR_FORMAT, "7 bytes follow"},
        {"version", BY_ERR_UNSUPPORTED, "version 2"},
        {"too-wide", BY_ERR_FORMAT, "2147483648"},
        {"header-short", BY_ERR_FORMAT, "truncated"},
        {"odd", BY_ERR_FORMAT, "3 bytes"},
        {"absent", BY_ERR_IO, "absent"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        base_error_clear();
        assert_null(open_one(cases[i].name, 0));
        assert_failed(cases[i].status, cases[i].part);
        assert_failed(cases[i].status, cases[i].name);
    }
}

static void test_vocabulary_is_checked(void **state)
{
    (void)state;
    uint16_t narrow[] = {1, 2, 9, 4, 9};
    uint32_t wide[] = {1, 2, 3, 100000};
    write_file("narrow.bin", narrow, sizeof(narrow));
    write_shard("wide.bin", 20240801, 7, 4, wide, sizeof(wide));
    assert_null(open_one("narrow.bin", 9));
    assert_failed(BY_ERR_FORMAT, "token 2 has the id 9");
    assert_null(open_one("wide.bin", 100000));
    assert_failed(BY_ERR_FORMAT, "token 3 has the id 100000");
    data_tokens *a = open_one("narrow.bin", 10), *b = open_one("wide.bin", 100001);
    assert_non_null(a);
    assert_non_null(b);
    data_tokens_free(a);
    data_tokens_free(b);
}

/* ---- building -------------------------------------------------------------------------------- */

/* The ids of a shard must be those of the whole texts, though they were read in chunks. The text is longer
 * than a chunk, and the shifts put a chunk's end at every place inside its period, which holds characters of
 * all lengths and a special token. */
static void test_build_across_chunks(void **state)
{
    (void)state;
    static const char period[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb3 <|endoftext|>\n";
    base_buf text = {0};
    while (text.size < ((size_t)1 << 20) + 100)
        base_buf_puts(&text, period);
    const char *vocabulary = text.data;
    by_tokenizer *tokenizers[] = {tok_new_bytes(), tok_new_chars(&vocabulary, &text.size, 1)};
    for (int k = 0; k < 2; k++) {
        for (size_t shift = 0; shift < sizeof(period) - 1; shift++) {
            base_buf shifted = {0};
            for (size_t i = 0; i < shift; i++)
                base_buf_puts(&shifted, "a");
            base_buf_put(&shifted, text.data, text.size);
            write_file("long.txt", shifted.data, shifted.size);
            const char *path = at("long.txt");
            int64_t bytes = 0, tokens = 0;
            assert_int_equal(data_tokens_build(tokenizers[k], &path, 1, at("long.bin"), &bytes, &tokens),
                             BY_OK);
            assert_int_equal(bytes, shifted.size);
            by_ids ids = {0};
            assert_int_equal(tok_encode(tokenizers[k], shifted.data, shifted.size, &ids), BY_OK);
            assert_int_equal(tokens, ids.count);
            data_tokens *t = open_one("long.bin", by_tokenizer_vocab_size(tokenizers[k]));
            assert_non_null(t);
            assert_int_equal(data_tokens_count(t), ids.count);
            int32_t *read = base_alloc(ids.count * sizeof(*read));
            assert_int_equal(data_tokens_read(t, 0, (int64_t)ids.count, read), BY_OK);
            assert_memory_equal(read, ids.data, ids.count * sizeof(*read));
            base_free(read);
            data_tokens_free(t);
            tok_ids_free(&ids);
            base_buf_free(&shifted);
        }
        by_tokenizer_free(tokenizers[k]);
    }
    base_buf_free(&text);
}

static void test_build_separates_files(void **state)
{
    (void)state;
    write_file("sep-1.txt", "ab", 2);
    write_file("sep-2.txt", "", 0);
    write_file("sep-3.txt", "c", 1);
    const char *patterns[] = {at("sep-[12].txt"), at("sep-3.txt")};
    by_tokenizer *bytes = tok_new_bytes();
    int64_t tokens = 0;
    assert_int_equal(data_tokens_build(bytes, patterns, 2, at("sep.bin"), NULL, &tokens), BY_OK);
    data_tokens *t = open_one("sep.bin", 257);
    assert_non_null(t);
    const int32_t expected[] = {'a', 'b', 256, 256, 'c'};
    int32_t out[5];
    assert_int_equal(tokens, 5);
    assert_int_equal(data_tokens_count(t), 5);
    assert_int_equal(data_tokens_read(t, 0, 5, out), BY_OK);
    assert_memory_equal(out, expected, sizeof(out));
    data_tokens_free(t);
    by_tokenizer_free(bytes);
}

/* More than 65536 ids are written with 32 bits. */
static void test_build_wide(void **state)
{
    (void)state;
    base_buf text = {0};
    for (uint32_t p = 0x10000; p < 0x10000 + 65537; p++) {
        char c[4] = {(char)(0xf0 | p >> 18), (char)(0x80 | (p >> 12 & 63)), (char)(0x80 | (p >> 6 & 63)),
                     (char)(0x80 | (p & 63))};
        base_buf_put(&text, c, 4);
    }
    const char *vocabulary = text.data;
    by_tokenizer *chars = tok_new_chars(&vocabulary, &text.size, 1);
    assert_non_null(chars);
    write_file("wide.txt", text.data, text.size);
    const char *path = at("wide.txt");
    assert_int_equal(data_tokens_build(chars, &path, 1, at("built-wide.bin"), NULL, NULL), BY_OK);
    data_tokens *t = open_one("built-wide.bin", 65537);
    assert_non_null(t);
    assert_int_equal(data_tokens_count(t), 65537);
    for (int i = 0; i < 65537; i++) {
        int32_t id;
        assert_int_equal(data_tokens_read(t, i, 1, &id), BY_OK);
        assert_int_equal(id, i);
    }
    data_tokens_free(t);
    by_tokenizer_free(chars);
    base_buf_free(&text);
}

/* A failing build says where and leaves an older shard as it was. */
static void test_build_failure_keeps_the_old(void **state)
{
    (void)state;
    const char *vocabulary = "abc", *path = at("x.txt");
    size_t size = 3;
    by_tokenizer *chars = tok_new_chars(&vocabulary, &size, 1);
    write_file("x.txt", "cab", 3);
    assert_int_equal(data_tokens_build(chars, &path, 1, at("x.bin"), NULL, NULL), BY_OK);
    write_file("x.txt", "caZb", 4);
    assert_int_not_equal(data_tokens_build(chars, &path, 1, at("x.bin"), NULL, NULL), BY_OK);
    assert_failed(BY_ERR_ARGUMENT, "x.txt");
    assert_failed(BY_ERR_ARGUMENT, "offset 2");
    path = folder;
    assert_int_equal(data_tokens_build(chars, &path, 1, at("x.bin"), NULL, NULL), BY_ERR_IO);
    assert_failed(BY_ERR_IO, folder);
    data_tokens *t = open_one("x.bin", 3);
    assert_non_null(t);
    assert_int_equal(data_tokens_count(t), 3);
    data_tokens_free(t);
    by_tokenizer_free(chars);
    char **left = NULL;
    int count = 0;
    assert_int_equal(base_glob(at("x.bin*"), &left, &count), BY_OK);
    assert_int_equal(count, 1); /* no temporary file stays behind */
    base_paths_free(left, count);
}

static void test_build_tinyshakespeare(void **state)
{
    (void)state;
    const char *shared = getenv("BANYAN_SHARED");
    char file[1024];
    snprintf(file, sizeof(file), "%s/data/corpora/tinyshakespeare.txt",
             shared ? shared : BY_SOURCE_DIR "/../shared");
    if (!base_file_exists(file)) {
        print_message("%s is not there: skipped\n", file);
        skip();
    }
    base_map text;
    assert_int_equal(base_map_open(&text, file), BY_OK);
    const char *vocabulary = (const char *)text.data, *path = file;
    by_tokenizer *chars = tok_new_chars(&vocabulary, &text.size, 1);
    int64_t bytes = 0, tokens = 0;
    assert_int_equal(data_tokens_build(chars, &path, 1, at("play.bin"), &bytes, &tokens), BY_OK);
    assert_int_equal(bytes, text.size);
    data_tokens *t = open_one("play.bin", 65);
    assert_non_null(t);
    assert_int_equal(data_tokens_count(t), tokens);
    int32_t *ids = base_alloc((size_t)tokens * sizeof(*ids));
    base_buf back = {0};
    assert_int_equal(data_tokens_read(t, 0, tokens, ids), BY_OK);
    assert_int_equal(tok_decode(chars, ids, (size_t)tokens, &back), BY_OK);
    assert_int_equal(back.size, text.size);
    assert_memory_equal(back.data, text.data, text.size);
    base_buf_free(&back);
    base_free(ids);
    data_tokens_free(t);
    by_tokenizer_free(chars);
    base_map_close(&text);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* In a stream that counts, a row says where it was cut. Checks that it is a run of successive tokens inside
 * the region. */
static int64_t row_start(const data_lm_batches *d, const int32_t *inputs, const int32_t *targets)
{
    for (int i = 0; i < d->seq; i++) {
        assert_int_equal(inputs[i], inputs[0] + i);
        assert_int_equal(targets[i], inputs[i] + 1);
    }
    assert_true(inputs[0] >= d->begin);
    assert_true(targets[d->seq - 1] < d->end);
    return inputs[0];
}

static void test_every_window_once_per_epoch(void **state)
{
    (void)state;
    write_counting("count-a.bin", 0, 333);
    write_counting("count-b.bin", 333, 667);
    data_tokens *t = open_one("count-[ab].bin", 1000);
    assert_non_null(t);
    static const int sizes[] = {9, 10, 15, 16, 17, 18, 64, 500, 993};
    int32_t inputs[8], targets[8];
    for (int k = 0; k < BY_COUNT(sizes); k++) {
        data_lm_batches d = {t, 7, 7 + sizes[k], 1, 8, 42, false};
        int windows = BY_MAX(sizes[k] / 8 - 1, 1), shifts = 0;
        bool in_order = true;
        int64_t last_shift = -1;
        for (int epoch = 0; epoch < 20; epoch++) {
            int visits[1000] = {0};
            int64_t shift = -1, first = 1000;
            for (int i = 0; i < windows; i++) {
                assert_int_equal(data_lm_batches_get(&d, (int64_t)epoch * windows + i, inputs, targets),
                                 BY_OK);
                int64_t start = row_start(&d, inputs, targets) - d.begin;
                assert_true(shift < 0 || start % 8 == shift); /* one grid per epoch */
                shift = start % 8;
                first = BY_MIN(first, start);
                in_order = in_order && start / 8 == i;
                assert_int_equal(visits[start]++, 0);
            }
            assert_true(first < 8);
            shifts += last_shift >= 0 && shift != last_shift;
            last_shift = shift;
        }
        if (sizes[k] > 9)
            assert_true(shifts > 0);
        if (windows > 4)
            assert_false(in_order);
    }
    data_tokens_free(t);
}

/* Any step can be asked for alone, in any order, and the batch size only regroups the rows. */
static void test_seeking_is_stepping(void **state)
{
    (void)state;
    write_counting("seek.bin", 0, 2000);
    data_tokens *t = open_one("seek.bin", 0);
    assert_non_null(t);
    enum { STEPS = 60, BATCH = 6, SEQ = 16, SIZE = BATCH * SEQ };
    static int32_t inputs[STEPS][SIZE], targets[STEPS][SIZE];
    data_lm_batches d = {t, 0, 2000, BATCH, SEQ, 9, false};
    for (int s = 0; s < STEPS; s++)
        assert_int_equal(data_lm_batches_get(&d, s, inputs[s], targets[s]), BY_OK);
    for (int s = STEPS - 1; s >= 0; s -= 7) {
        int32_t x[SIZE], y[SIZE];
        assert_int_equal(data_lm_batches_get(&d, s, x, y), BY_OK);
        assert_memory_equal(x, inputs[s], sizeof(x));
        assert_memory_equal(y, targets[s], sizeof(y));
    }
    data_lm_batches single = d;
    single.batch = 1;
    for (int row = 0; row < STEPS * BATCH; row++) {
        int32_t x[SEQ], y[SEQ];
        assert_int_equal(data_lm_batches_get(&single, row, x, y), BY_OK);
        assert_memory_equal(x, inputs[row / BATCH] + row % BATCH * SEQ, sizeof(x));
        assert_memory_equal(y, targets[row / BATCH] + row % BATCH * SEQ, sizeof(y));
    }
    data_lm_batches other = d;
    other.seed++;
    int32_t x[SIZE], y[SIZE];
    assert_int_equal(data_lm_batches_get(&other, 0, x, y), BY_OK);
    assert_memory_not_equal(x, inputs[0], sizeof(x));
    assert_int_equal(data_lm_batches_get(&d, INT64_MAX / BATCH - 1, x, y), BY_OK);
    assert_int_equal(data_lm_batches_get(&d, INT64_MAX, x, y), BY_ERR_ARGUMENT);
    assert_int_equal(data_lm_batches_get(&d, -1, x, y), BY_ERR_ARGUMENT);
    data_tokens_free(t);
}

static void test_batches_that_do_not_fit(void **state)
{
    (void)state;
    write_counting("few.bin", 0, 20);
    data_tokens *t = open_one("few.bin", 0);
    assert_non_null(t);
    static const struct {
        int64_t begin, end;
        int batch, seq;
        bool fits;
    } cases[] = {
        {0, 20, 1, 19, true},   {0, 20, 1, 20, false},        {10, 20, 1, 9, true},
        {10, 20, 1, 10, false}, {0, 21, 1, 4, false},         {-1, 20, 1, 4, false},
        {15, 10, 1, 4, false},  {0, 20, 0, 4, false},         {0, 20, 1, 0, false},
        {0, 20, 1, -1, false},  {0, 20, 1, INT32_MAX, false}, {INT64_MIN, INT64_MAX, 1, 4, false},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        data_lm_batches d = {t, cases[i].begin, cases[i].end, cases[i].batch, cases[i].seq, 1, false};
        int32_t x[20], y[20];
        assert_int_equal(data_lm_batches_check(&d), cases[i].fits ? BY_OK : BY_ERR_ARGUMENT);
        assert_int_equal(data_lm_batches_get(&d, 0, x, y), cases[i].fits ? BY_OK : BY_ERR_ARGUMENT);
    }
    data_tokens_free(t);
}

static void test_eval_predicts_each_token_once(void **state)
{
    (void)state;
    write_counting("eval.bin", 0, 100);
    data_tokens *t = open_one("eval.bin", 0);
    assert_non_null(t);
    int32_t x[3 * 8], y[3 * 8];
    for (int count = 0; count <= 60; count++) {
        data_lm_batches d = {t, 30, 30 + count, 3, 8, 0, false};
        int64_t windows = data_lm_eval_windows(&d);
        assert_int_equal(windows, count < 2 ? 0 : (count - 1 + 7) / 8);
        int32_t next = 31;
        for (int64_t w = 0; w < windows; w += 3) {
            assert_int_equal(data_lm_eval_get(&d, w, 3, x, y), BY_OK);
            for (int i = 0; i < 3 * 8; i++) {
                if (next < d.end) {
                    assert_int_equal(x[i], next - 1);
                    assert_int_equal(y[i], next++);
                } else {
                    assert_int_equal(x[i], 0);
                    assert_int_equal(y[i], -100);
                }
            }
        }
        assert_int_equal(next, BY_MAX(d.end, 31));
        assert_int_equal(data_lm_eval_get(&d, windows, 1, x, y), BY_ERR_ARGUMENT);
        assert_int_equal(data_lm_eval_get(&d, -1, 1, x, y), BY_ERR_ARGUMENT);
    }
    data_lm_batches outside = {t, 90, 101, 1, 8, 0, false}, wild = {t, INT64_MIN, INT64_MAX, 1, 8, 0, false};
    assert_int_equal(data_lm_eval_windows(&outside), 0);
    assert_int_equal(data_lm_eval_windows(&wild), 0);
    data_tokens_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_formats_as_one_stream),
        cmocka_unit_test(test_bad_shards),
        cmocka_unit_test(test_vocabulary_is_checked),
        cmocka_unit_test(test_build_across_chunks),
        cmocka_unit_test(test_build_separates_files),
        cmocka_unit_test(test_build_wide),
        cmocka_unit_test(test_build_failure_keeps_the_old),
        cmocka_unit_test(test_build_tinyshakespeare),
        cmocka_unit_test(test_every_window_once_per_epoch),
        cmocka_unit_test(test_seeking_is_stepping),
        cmocka_unit_test(test_batches_that_do_not_fit),
        cmocka_unit_test(test_eval_predicts_each_token_once),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
