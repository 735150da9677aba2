/* test_tokenizer.c - characters and bytes: exact round trips, the files they are kept in, damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/kind.h"
#include "text/unicode.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/banyan-tokenizer-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

/* A corpus of the shared folder, or NULL (said on stderr) where that folder is not there. */
static char *read_corpus(const char *name, size_t *size)
{
    const char *shared = getenv("BANYAN_SHARED");
    char path[1024];
    snprintf(path, sizeof(path), "%s/data/corpora/%s", shared ? shared : BY_SOURCE_DIR "/../shared", name);
    if (!base_file_exists(path)) {
        print_message("%s is not there: skipped\n", path);
        return NULL;
    }
    char *text = base_file_read(path, (size_t)1 << 30, size);
    assert_non_null(text);
    return text;
}

static by_tokenizer *chars_of(const char *text, size_t size)
{
    return tok_new_chars(&text, &size, 1);
}

static void assert_round_trip(const by_tokenizer *t, const char *text, size_t size)
{
    by_ids ids = {0};
    base_buf back = {0};
    assert_int_equal(tok_encode(t, text, size, &ids), BY_OK);
    assert_int_equal(tok_decode(t, ids.data, ids.count, &back), BY_OK);
    assert_int_equal(back.size, size);
    if (size)
        assert_memory_equal(back.data, text, size);
    tok_ids_free(&ids);
    base_buf_free(&back);
}

/* Same kind, and the same ids for the text. */
static void assert_same(const by_tokenizer *a, const by_tokenizer *b, const char *text, size_t size)
{
    by_ids x = {0}, y = {0};
    assert_string_equal(tok_kind(a), tok_kind(b));
    assert_int_equal(by_tokenizer_vocab_size(a), by_tokenizer_vocab_size(b));
    assert_int_equal(by_tokenizer_eos(a), by_tokenizer_eos(b));
    assert_int_equal(tok_encode(a, text, size, &x), BY_OK);
    assert_int_equal(tok_encode(b, text, size, &y), BY_OK);
    assert_int_equal(x.count, y.count);
    if (x.count)
        assert_memory_equal(x.data, y.data, x.count * sizeof(*x.data));
    tok_ids_free(&x);
    tok_ids_free(&y);
}

static void assert_failed(by_status expected, const char *part)
{
    assert_int_equal(base_error_status(), expected);
    if (!strstr(by_error_message(), part))
        fail_msg("\"%s\" is not in the message \"%s\"", part, by_error_message());
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

static void test_utf8_every_code_point(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < TOK_UTF8_POINTS; p++) {
        char text[4];
        uint32_t back = ~p;
        int n = tok_utf8_encode(p, text);
        bool surrogate = p >= 0xd800 && p <= 0xdfff;
        int decoded = tok_utf8_decode((const uint8_t *)text, (size_t)n, &back);
        if (decoded != (surrogate ? 0 : n) || (!surrogate && back != p))
            fail_msg("U+%04X does not come back", (unsigned)p);
        for (int cut = 1; cut < n; cut++) {
            if (tok_utf8_decode((const uint8_t *)text, (size_t)cut, &back) != 0)
                fail_msg("U+%04X was decoded from %d of its %d bytes", (unsigned)p, cut, n);
            if (tok_utf8_cut((const uint8_t *)text, (size_t)cut) != 0)
                fail_msg("U+%04X was cut after %d of its %d bytes", (unsigned)p, cut, n);
        }
        if (tok_utf8_cut((const uint8_t *)text, (size_t)n) != (size_t)n)
            fail_msg("U+%04X is complete", (unsigned)p);
    }
}

static void test_utf8_malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2\x41",
                                      "\xe0\x80\x80",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xe1\x80\xc0",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xfe",
                                      "\xff"};
    for (int i = 0; i < BY_COUNT(bad); i++) {
        uint32_t p;
        assert_int_equal(tok_utf8_decode((const uint8_t *)bad[i], strlen(bad[i]), &p), 0);
    }
}

/* ---- characters ------------------------------------------------------------------------------ */

static void test_chars_ids_in_order(void **state)
{
    (void)state;
    const char *texts[] = {"cab\n", "\xc3\xa9\x61", "\xf0\x9f\x8c\xb3"};
    size_t sizes[] = {4, 3, 4};
    by_tokenizer *t = tok_new_chars(texts, sizes, 3);
    assert_non_null(t);
    assert_string_equal(tok_kind(t), "char");
    assert_int_equal(by_tokenizer_vocab_size(t), 6);
    assert_int_equal(by_tokenizer_eos(t), -1);
    by_ids ids = {0};
    assert_int_equal(tok_encode(t, "\xf0\x9f\x8c\xb3\xc3\xa9\x63\x62\x61\n", 10, &ids), BY_OK);
    const int32_t expected[] = {5, 4, 3, 2, 1, 0};
    assert_int_equal(ids.count, 6);
    assert_memory_equal(ids.data, expected, sizeof(expected));

    /* Failures name the character and the offset and leave the list as it was. */
    assert_int_equal(tok_encode(t, "ab\xe2\x82\xac", 5, &ids), BY_ERR_ARGUMENT);
    assert_failed(BY_ERR_ARGUMENT, "U+20AC at offset 2");
    assert_int_equal(tok_encode(t, "abc\xc3", 4, &ids), BY_ERR_FORMAT);
    assert_failed(BY_ERR_FORMAT, "0xc3 at offset 3");
    assert_int_equal(ids.count, 6);

    base_buf out = {0};
    assert_int_equal(tok_decode(t, (const int32_t[]){1, 6}, 2, &out), BY_ERR_ARGUMENT);
    assert_failed(BY_ERR_ARGUMENT, "id 6 at position 1");
    assert_int_equal(tok_decode(t, (const int32_t[]){-1}, 1, &out), BY_ERR_ARGUMENT);
    assert_int_equal(out.size, 0);
    base_buf_free(&out);
    tok_ids_free(&ids);
    by_tokenizer_free(t);
}

static void test_chars_bad_texts(void **state)
{
    (void)state;
    const char *texts[] = {"fine", "not\xff"};
    size_t sizes[] = {4, 4};
    assert_null(tok_new_chars(texts, sizes, 2));
    assert_failed(BY_ERR_FORMAT, "text 2 of 2");
    assert_failed(BY_ERR_FORMAT, "offset 3");
    assert_null(tok_new_chars(texts, sizes, 0));
    assert_failed(BY_ERR_ARGUMENT, "not empty");
}

/* Every code point there is: the largest vocabulary, with control characters, NUL, quotes and all planes. */
static void test_chars_all_of_unicode(void **state)
{
    (void)state;
    base_buf text = {0};
    for (uint32_t p = 0; p < TOK_UTF8_POINTS; p++) {
        char c[4];
        if (p < 0xd800 || p > 0xdfff)
            base_buf_put(&text, c, (size_t)tok_utf8_encode(p, c));
    }
    assert_false(text.failed);
    by_tokenizer *t = chars_of(text.data, text.size);
    assert_non_null(t);
    assert_int_equal(by_tokenizer_vocab_size(t), TOK_UTF8_POINTS - 2048);
    assert_round_trip(t, text.data, text.size);
    base_buf json = {0};
    assert_int_equal(tok_format(t, &json), BY_OK);
    by_tokenizer *back = tok_parse(json.data, json.size, "json");
    assert_non_null(back);
    assert_same(t, back, text.data, text.size);
    by_tokenizer_free(back);
    by_tokenizer_free(t);
    base_buf_free(&json);
    base_buf_free(&text);
}

static void test_chars_tinyshakespeare(void **state)
{
    (void)state;
    size_t size = 0;
    char *text = read_corpus("tinyshakespeare.txt", &size);
    if (!text)
        skip();
    by_tokenizer *t = chars_of(text, size);
    assert_non_null(t);
    assert_int_equal(by_tokenizer_vocab_size(t), 65);
    assert_round_trip(t, text, size);
    assert_int_equal(by_tokenizer_save(t, folder), BY_OK);
    by_tokenizer *back = by_tokenizer_load(folder);
    assert_non_null(back);
    assert_same(t, back, text, size);
    by_tokenizer_free(back);
    by_tokenizer_free(t);
    base_free(text);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void test_bytes_round_trip(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    assert_non_null(t);
    assert_string_equal(tok_kind(t), "byte");
    assert_int_equal(by_tokenizer_vocab_size(t), 257);
    assert_int_equal(by_tokenizer_eos(t), 256);
    base_rng r = base_rng_make(7, 0);
    char text[600];
    for (int round = 0; round < 500; round++) {
        size_t size = base_rng_below(&r, sizeof(text));
        for (size_t i = 0; i < size; i++)
            text[i] = (char)base_rng_u32(&r);
        assert_round_trip(t, text, size);
    }
    by_ids ids = {0};
    for (int b = 0; b < 256; b++) {
        text[0] = (char)b;
        ids.count = 0;
        assert_int_equal(tok_encode(t, text, 1, &ids), BY_OK);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.data[0], b);
    }
    tok_ids_free(&ids);
    by_tokenizer_free(t);
}

static void test_bytes_end_of_text(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    assert_non_null(t);
    const char text[] = "<<|endoftext|>a<|endoftext|<|endoftext|>";
    by_ids ids = {0};
    assert_int_equal(tok_encode(t, text, strlen(text), &ids), BY_OK);
    assert_int_equal(ids.count, 1 + 1 + 1 + 12 + 1);
    assert_int_equal(ids.data[0], '<');
    assert_int_equal(ids.data[1], 256);
    assert_int_equal(ids.data[2], 'a');
    assert_int_equal(ids.data[15], 256);
    assert_round_trip(t, text, strlen(text));
    tok_ids_free(&ids);
    by_tokenizer_free(t);
}

static void test_bytes_save_and_load(void **state)
{
    (void)state;
    char all[256];
    for (int b = 0; b < 256; b++)
        all[b] = (char)b;
    char *path = base_path_join(folder, "bytes");
    by_tokenizer *t = tok_new_bytes();
    assert_int_equal(by_tokenizer_save(t, path), BY_OK);
    by_tokenizer *back = by_tokenizer_load(path);
    assert_non_null(back);
    assert_same(t, back, all, sizeof(all));
    by_tokenizer_free(back);
    by_tokenizer_free(t);
    base_free(path);
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* Encoding the prefix that tok_cut() gives and then the rest must be encoding the whole, for every
 * size. */
static void assert_cuts(const by_tokenizer *t, const char *text, size_t size)
{
    by_ids whole = {0}, parts = {0};
    assert_int_equal(tok_encode(t, text, size, &whole), BY_OK);
    for (size_t n = 0; n <= size; n++) {
        size_t cut = tok_cut(t, text, n);
        assert_true(cut <= n && n - cut <= 12);
        parts.count = 0;
        assert_int_equal(tok_encode(t, text, cut, &parts), BY_OK);
        assert_int_equal(tok_encode(t, text + cut, size - cut, &parts), BY_OK);
        assert_int_equal(parts.count, whole.count);
        assert_memory_equal(parts.data, whole.data, whole.count * sizeof(*whole.data));
    }
    tok_ids_free(&whole);
    tok_ids_free(&parts);
}

static void test_cut(void **state)
{
    (void)state;
    const char text[] =
        "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb3 <|endoftext|><<|end\xf0\x9f\x8c\xb3<|endoftext|><|endoftext|";
    by_tokenizer *bytes = tok_new_bytes(), *chars = chars_of(text, strlen(text));
    assert_non_null(bytes);
    assert_non_null(chars);
    assert_cuts(bytes, text, strlen(text));
    assert_cuts(chars, text, strlen(text));
    by_tokenizer_free(bytes);
    by_tokenizer_free(chars);
}

/* ---- damaged files --------------------------------------------------------------------------- */

#define BPE(vocab, more) "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":[]" more "}}"

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        by_status status;
        const char *part;
    } cases[] = {
        {"", BY_ERR_FORMAT, "invalid JSON"},
        {"{\"model\":", BY_ERR_FORMAT, "invalid JSON"},
        {BPE("{\"a\":0}", "") "x", BY_ERR_FORMAT, "invalid JSON"},
        {"[]", BY_ERR_FORMAT, "not a JSON object"},
        {"{\"model\":[]}", BY_ERR_FORMAT, "no \"model\""},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", BY_ERR_FORMAT, "WordPiece"},
        {"{\"model\":{\"type\":\"Unigram\"}}", BY_ERR_FORMAT, "Unigram"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[\"a b\"]}}", BY_ERR_FORMAT, "merge 0"},
        {BPE("{}", ""), BY_ERR_FORMAT, "vocab"},
        {BPE("[]", ""), BY_ERR_FORMAT, "vocab"},
        {BPE("{\"a\":1}", ""), BY_ERR_FORMAT, "id of token"},
        {BPE("{\"a\":-1}", ""), BY_ERR_FORMAT, "id of token"},
        {BPE("{\"a\":0.5,\"b\":1}", ""), BY_ERR_FORMAT, "id of token"},
        {BPE("{\"a\":\"0\"}", ""), BY_ERR_FORMAT, "id of token"},
        {BPE("{\"a\":1e300}", ""), BY_ERR_FORMAT, "id of token"},
        {BPE("{\"a\":0,\"b\":0}", ""), BY_ERR_FORMAT, "two tokens"},
        {BPE("{\"a\":0,\"a\":1}", ""), BY_ERR_FORMAT, "duplicate"},
        {BPE("{\"\xff\":0}", ""), BY_ERR_FORMAT, "not UTF-8"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}}]"
         "},"
         "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BY_ERR_FORMAT, "special token"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
         "\"merges\":[]}}",
         BY_ERR_FORMAT, "Metaspace"},
        {"{\"added_tokens\":[{\"id\":1}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BY_ERR_FORMAT, "added token"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        base_error_clear();
        assert_null(tok_parse(cases[i].json, strlen(cases[i].json), "some.json"));
        assert_failed(cases[i].status, cases[i].part);
        assert_failed(cases[i].status, "some.json");
    }
    char *path = base_path_join(folder, "absent");
    assert_null(by_tokenizer_load(path));
    assert_failed(BY_ERR_IO, "absent");
    base_free(path);
    by_tokenizer_free(NULL);
}

/* What the reference library makes of such a file when it saves it again: other order, a template that does
 * nothing. */
static void test_resaved_by_reference(void **state)
{
    (void)state;
    const char json[] =
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_"
        "processor\":"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
        "],"
        "\"special_tokens\":{}},\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
        "\"unk_token\":null,\"byte_fallback\":false,\"vocab\":{\"b\":1,\"\\u00e9\":2,\"\\ud83c\\udf33\":0},"
        "\"merges\":[]}}";
    by_tokenizer *t = tok_parse(json, strlen(json), "json");
    assert_non_null(t);
    base_buf out = {0};
    assert_int_equal(tok_decode(t, (const int32_t[]){2, 1, 0}, 3, &out), BY_OK);
    assert_string_equal(out.data, "\xc3\xa9\x62\xf0\x9f\x8c\xb3");
    base_buf_free(&out);
    by_tokenizer_free(t);
}

/* A file cut short anywhere is an error, never a smaller vocabulary. */
static void test_truncated_files(void **state)
{
    (void)state;
    by_tokenizer *t = tok_new_bytes();
    base_buf json = {0};
    assert_int_equal(tok_format(t, &json), BY_OK);
    for (size_t n = 0; n + 1 < json.size; n++) { /* the last byte is a newline */
        char saved = json.data[n];
        json.data[n] = '\0';
        assert_null(tok_parse(json.data, n, "short"));
        json.data[n] = saved;
    }
    base_buf_free(&json);
    by_tokenizer_free(t);
}

/* Where the reference library ends graphemes: seen from what its character map of T5 leaves of them. */
static void test_graphemes(void **state)
{
    (void)state;
    static const struct {
        uint32_t c[6];
        const char *begins; /* 1 for each character that begins a grapheme */
    } rows[] = {
        {{'e', 0x301, 'e'}, "101"},
        {{'e', 0x301, 0x10d6b}, "100"},                  /* a mark of Unicode 16 */
        {{'e', 0x301, 0x10d6e}, "101"},                  /* not a mark */
        {{0x11a3a, 'e'}, "11"},                          /* no longer goes before others */
        {{0x600, 'e'}, "10"},                            /* does */
        {{0x915, 0x94d, 0x958, 0x301}, "1000"},          /* consonants joined by a linker */
        {{0x915, 0x958, 0x301}, "110"},                  /* and without one */
        {{0x915, 0x200c, 0x94d, 0x958, 0x301}, "10010"}, /* nothing joins across this */
        {{0x915, 0x94d, 0x200d, 0x958}, "1000"},
        {{0x2122, 0x301, 0x200d, 0x2122}, "1000"}, /* pictographs */
        {{0x2122, 0x200d, 0x200d, 0x2122}, "1001"},
        {{0x2605, 0x200d, 0x2122}, "101"},              /* no pictograph any more */
        {{0x1f1e6, 0x1f1e7, 0x1f1e8, 0x1f1e9}, "1010"}, /* flags */
        {{0x1112, 0x1161, 0x11ab, 0x1112}, "1001"},
        {{0xac00, 0x11ab, 0xac01, 0x1161}, "1011"},
        {{'\r', '\n', 0x301}, "101"},
    };
    for (int i = 0; i < BY_COUNT(rows); i++) {
        tok_grapheme g;
        tok_grapheme_begin(&g, rows[i].c[0]);
        for (int k = 1; rows[i].begins[k]; k++) {
            bool begins = !tok_grapheme_goes_on(&g, rows[i].c[k]);
            if (begins)
                tok_grapheme_begin(&g, rows[i].c[k]);
            if (begins != (rows[i].begins[k] == '1'))
                fail_msg("row %d, character %d", i, k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_every_code_point),
        cmocka_unit_test(test_utf8_malformed),
        cmocka_unit_test(test_graphemes),
        cmocka_unit_test(test_chars_ids_in_order),
        cmocka_unit_test(test_chars_bad_texts),
        cmocka_unit_test(test_chars_all_of_unicode),
        cmocka_unit_test(test_chars_tinyshakespeare),
        cmocka_unit_test(test_bytes_round_trip),
        cmocka_unit_test(test_bytes_end_of_text),
        cmocka_unit_test(test_bytes_save_and_load),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_resaved_by_reference),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
