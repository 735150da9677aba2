/* test_tokenizer_files.c - published tokenizers against ids that their reference libraries gave, the stages
 * one by one, and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "infer/stream.h"
#include "text/legacy/spiece.h"

static char shared[4096];

static int find_shared(void **state)
{
    (void)state;
    const char *dir = getenv("BANYAN_SHARED");
    snprintf(shared, sizeof(shared), "%s", dir ? dir : BY_SOURCE_DIR "/../shared");
    return 0;
}

/* A path below shared/data; NULL, with a note, when it is not there. */
static char *fixture(const char *name)
{
    char *path = base_sprintf("%s/data/%s", shared, name);
    assert_non_null(path);
    if (!base_file_exists(path) && !base_dir_exists(path)) {
        print_message("%s is not there: left out\n", path);
        base_free(path);
        return NULL;
    }
    return path;
}

static cJSON *read_json(const char *path)
{
    char *text = base_file_read(path, (size_t)1 << 28, NULL);
    assert_non_null(text);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    base_free(text);
    return root;
}

/* Ids that come one by one give the text of all of them, in whole characters. */
static void check_stream(const by_tokenizer *t, const int32_t *ids, size_t count)
{
    base_buf raw = {0}, whole = {0};
    gen_stream s = {.tokenizer = t};
    base_buf_puts(&raw, "");
    assert_int_equal(tok_decode(t, ids, count, &raw), BY_OK);
    tok_put_lossy(&whole, raw.data, raw.size);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(gen_stream_put(&s, ids[i]), BY_OK);
        assert_true(s.text.size <= whole.size);
        assert_true(s.text.size == 0 || memcmp(s.text.data, whole.data, s.text.size) == 0);
    }
    assert_int_equal(gen_stream_end(&s), BY_OK);
    assert_int_equal(s.text.size, whole.size);
    assert_true(whole.size == 0 || memcmp(s.text.data, whole.data, whole.size) == 0);
    gen_stream_free(&s);
    base_buf_free(&raw);
    base_buf_free(&whole);
}

static void check_case(const by_tokenizer *t, const cJSON *item, bool skip_special)
{
    const char *text = tok_stage_string(item, "text"), *decoded = tok_stage_string(item, "decoded");
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(item, "ids");
    for (int offsets = 0; offsets < 2; offsets++) {
        by_encoding e;
        by_encode_spec spec = {.special = true, .offsets = offsets};
        assert_int_equal(by_tokenizer_encode_with(t, text, strlen(text), &spec, &e), BY_OK);
        assert_int_equal(e.ids.count, (size_t)cJSON_GetArraySize(ids));
        size_t i = 0;
        for (const cJSON *id = ids->child; id; id = id->next, i++) {
            assert_int_equal(e.ids.data[i], id->valueint);
            assert_true(!offsets ||
                        (e.offsets[i].start <= e.offsets[i].end && e.offsets[i].end <= strlen(text)));
        }
        base_buf back = {0};
        base_buf_puts(&back, "");
        tok_decode_spec how = {.skip_special = skip_special, .lossy = true};
        assert_int_equal(tok_decode_with(t, e.ids.data, e.ids.count, &how, &back), BY_OK);
        assert_string_equal(back.data, decoded);
        base_buf_free(&back);
        check_stream(t, e.ids.data, e.ids.count);
        by_encoding_free(&e);
    }
}

/* Every id and every decoding of tokens/NAME.json with the tokenizer at tokenizers/PATH, also after saving
 * and loading. */
static void check_fixture(const char *name, const char *path, bool skip_special, bool saves)
{
    char *file = base_sprintf("tokens/%s.json", name), *dir = base_sprintf("tokenizers/%s", path);
    char *tokens = fixture(file), *place = fixture(dir);
    if (tokens && place) {
        by_tokenizer *t = by_tokenizer_load(place);
        if (!t)
            fail_msg("%s", by_error_message());
        cJSON *root = read_json(tokens);
        const cJSON *cases = cJSON_GetObjectItemCaseSensitive(root, "cases");
        assert_true(cJSON_GetArraySize(cases) > 0);
        for (const cJSON *item = cases->child; item; item = item->next)
            check_case(t, item, skip_special);
        base_buf json = {0};
        assert_int_equal(tok_format(t, &json), saves ? BY_OK : BY_ERR_UNSUPPORTED);
        by_tokenizer *again = saves ? tok_parse(json.data, json.size, "again") : NULL;
        assert_true(!saves || again);
        for (const cJSON *item = saves ? cases->child : NULL; item; item = item->next)
            check_case(again, item, skip_special);
        base_buf_free(&json);
        by_tokenizer_free(again);
        by_tokenizer_free(t);
        cJSON_Delete(root);
    }
    base_free(file);
    base_free(dir);
    base_free(tokens);
    base_free(place);
}

static void test_published(void **state)
{
    (void)state;
    check_fixture("gpt2", "gpt2", false, true);
    check_fixture("roberta", "roberta", false, true);
    check_fixture("openai-gpt", "openai-gpt", false, true);
    check_fixture("bert-base-uncased", "bert-base-uncased", true, true);
    check_fixture("bert-base-cased", "bert-base-cased", true, true);
    check_fixture("bert-base-multilingual-cased", "bert-base-multilingual-cased", true, true);
    check_fixture("t5", "t5", false, true);
    check_fixture("albert", "albert", false, true);
    check_fixture("xlnet", "xlnet", false, true);
}

static void test_bare_sentencepiece(void **state)
{
    (void)state;
    check_fixture("t5-spiece", "t5/spiece.model", false, false);
    check_fixture("albert-spiece", "albert/spiece.model", false, false);
    check_fixture("xlnet-spiece", "xlnet/spiece.model", false, false);
}

/* Ids at random: runs of bytes, parts of characters, special tokens anywhere. */
static void test_stream(void **state)
{
    (void)state;
    static const char *const paths[] = {"gpt2",
                                        "roberta",
                                        "openai-gpt",
                                        "bert-base-uncased",
                                        "bert-base-cased",
                                        "bert-base-multilingual-cased",
                                        "t5",
                                        "albert",
                                        "xlnet",
                                        "xlm",
                                        "t5/spiece.model",
                                        "xlnet/spiece.model"};
    base_rng rng = base_rng_make(11, 0);
    for (int k = 0; k < BY_COUNT(paths); k++) {
        char *name = base_sprintf("tokenizers/%s", paths[k]), *place = fixture(name);
        by_tokenizer *t = place ? by_tokenizer_load(place) : NULL;
        assert_true(!place || t);
        for (int round = 0; t && round < 300; round++) {
            int32_t ids[40];
            size_t count = base_rng_below(&rng, 40);
            for (size_t i = 0; i < count; i++)
                ids[i] =
                    (int32_t)base_rng_below(&rng, round % 3 ? (uint32_t)by_tokenizer_vocab_size(t) : 300);
            check_stream(t, ids, count);
        }
        by_tokenizer_free(t);
        base_free(place);
        base_free(name);
    }
}

/* Any bytes survive a byte-level tokenizer, and a text in two parts gives the ids of the whole. */
static void test_bytes_and_parts(void **state)
{
    (void)state;
    char *dir = fixture("tokenizers/gpt2");
    if (!dir)
        return;
    by_tokenizer *t = by_tokenizer_load(dir);
    assert_non_null(t);
    base_rng rng = base_rng_make(7, 0);
    static const char *const words[] = {"the ",         " a", "\n\n", "<|endoftext|>", "'s", "caf\xc3\xa9",
                                        "\xe2\x80\x83", "12", "  ",   "\xff"};
    for (int round = 0; round < 300; round++) {
        base_buf text = {0}, back = {0};
        by_ids whole = {0}, parts = {0};
        for (int i = 0; i < 60; i++)
            base_buf_puts(&text, words[base_rng_below(&rng, 10)]);
        assert_int_equal(tok_encode(t, text.data, text.size, &whole), BY_OK);
        assert_int_equal(tok_decode(t, whole.data, whole.count, &back), BY_OK);
        assert_int_equal(back.size, text.size);
        assert_memory_equal(back.data, text.data, text.size);
        size_t cut = tok_cut(t, text.data, text.size / 2);
        assert_int_equal(tok_encode(t, text.data, cut, &parts), BY_OK);
        assert_int_equal(tok_encode(t, text.data + cut, text.size - cut, &parts), BY_OK);
        assert_int_equal(parts.count, whole.count);
        assert_memory_equal(parts.data, whole.data, whole.count * 4);
        base_buf_free(&text);
        base_buf_free(&back);
        tok_ids_free(&whole);
        tok_ids_free(&parts);
    }
    by_tokenizer_free(t);
    base_free(dir);
}

/* A "word" of one letter: a megabyte takes about thirty times what 32 kB take, not a thousand times. */
static void test_long_word(void **state)
{
    (void)state;
    char *dir = fixture("tokenizers/gpt2");
    if (!dir)
        return;
    by_tokenizer *t = by_tokenizer_load(dir);
    assert_non_null(t);
    size_t size = (size_t)1 << 20;
    char *text = base_alloc(size);
    assert_non_null(text);
    memset(text, 'a', size);
    double times[2];
    for (int k = 0; k < 2; k++) {
        by_ids ids = {0};
        double start = base_seconds();
        assert_int_equal(tok_encode(t, text, k ? size : size / 32, &ids), BY_OK);
        times[k] = base_seconds() - start;
        assert_true(ids.count > 0);
        tok_ids_free(&ids);
    }
    assert_true(times[1] < 200 * times[0] + 0.5);
    base_free(text);
    by_tokenizer_free(t);
    base_free(dir);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* A WordLevel tokenizer with these stages, its vocabulary the words of `words`; NULL is "null". */
static by_tokenizer *with_post(const char *normalizer, const char *splitter, const char *decoder,
                               const char *vocab, const char *post)
{
    char *json = base_sprintf(
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":99,\"content\":"
        "\"[X]\","
        "\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
        "\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,%s}}}",
        normalizer ? normalizer : "null", splitter ? splitter : "null", post ? post : "null",
        decoder ? decoder : "null", vocab);
    assert_non_null(json);
    by_tokenizer *t = tok_parse(json, strlen(json), "stages");
    if (!t)
        fail_msg("%s", by_error_message());
    base_free(json);
    return t;
}

static by_tokenizer *with_stages(const char *normalizer, const char *splitter, const char *decoder,
                                 const char *vocab)
{
    return with_post(normalizer, splitter, decoder, vocab, NULL);
}

/* pair: a second text, or NULL. Frees the tokenizer. */
static void check_post(by_tokenizer *t, const char *text, const char *pair, bool special,
                       const char *expected)
{
    by_encoding e;
    by_encode_spec spec = {
        .offsets = true, .special = special, .pair = pair, .pair_size = pair ? strlen(pair) : 0};
    assert_int_equal(by_tokenizer_encode_with(t, text, strlen(text), &spec, &e), BY_OK);
    base_buf out = {0};
    base_buf_puts(&out, "");
    for (size_t i = 0; i < e.ids.count; i++)
        base_buf_printf(&out, "%d[%u,%u]", e.ids.data[i], e.offsets[i].start, e.offsets[i].end);
    assert_string_equal(out.data, expected);
    base_buf_free(&out);
    by_encoding_free(&e);
    by_tokenizer_free(t);
}

static void check_ids(by_tokenizer *t, const char *text, const char *expected)
{
    check_post(t, text, NULL, false, expected);
}

/* Ids and places in the original bytes. */
static void test_stages(void **state)
{
    (void)state;
    check_ids(with_stages("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":"
                          "\"StripAccents\"},{\"type\":"
                          "\"Lowercase\"}]}",
                          "{\"type\":\"WhitespaceSplit\"}", NULL, "\"cafe\":1,\"ok\":2"),
              "Caf\xc3\xa9  OK", "1[0,5]2[7,9]");
    check_ids(with_stages("{\"type\":\"NFC\"}", NULL, NULL, "\"\xc3\xa9\":1"), "e\xcc\x81", "1[0,1]");
    check_ids(with_stages("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\d+\"},\"content\":\"0\"}",
                          "{\"type\":\"Whitespace\"}", NULL, "\"0\":1,\"a\":2,\"!\":3"),
              "a 123!", "2[0,1]1[4,5]3[5,6]");
    check_ids(with_stages(NULL, "{\"type\":\"Digits\",\"individual_digits\":true}", NULL,
                          "\"a\":1,\"\xf0\x9c\xb3\xb0\":2"),
              "a\xf0\x9c\xb3\xb0", "1[0,1]2[1,5]"); /* U+1CCF0, a digit since Unicode 16 */
    check_ids(with_stages(NULL, "{\"type\":\"Digits\",\"individual_digits\":true}", NULL,
                          "\"1\":1,\"2\":2,\"ab\":3"),
              "ab12", "3[0,2]1[2,3]2[3,4]");
    check_ids(with_stages(NULL, "{\"type\":\"Punctuation\",\"behavior\":\"MergedWithPrevious\"}", NULL,
                          "\"a.\":1,\".\":2,\"b\":3"),
              "a..b", "1[0,2]2[2,3]3[3,4]");
    check_ids(with_stages(NULL,
                          "{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":"
                          "\"MergedWithNext\",\"invert\":false}",
                          NULL, "\"a\":1,\"-b\":2,\"-\":3"),
              "a--b", "1[0,1]3[1,2]2[2,4]");
    check_ids(
        with_stages(
            NULL,
            "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":true}",
            NULL, "\"_a\":1,\"_b\":2,\"b\":3"),
        "a b [X]b", "1[0,1]2[1,3]99[3,7]3[7,8]");
}

/* Places of characters that normalisers move or replace, as the reference has them. */
static void test_places(void **state)
{
    (void)state;
    const char *chars = "{\"type\":\"FixedLength\",\"length\":1}";
    /* marks change places, their places do not; a mark that a decomposition adds has the one before it */
    check_ids(with_stages("{\"type\":\"NFD\"}", chars, NULL, "\"a\":1,\"\xcc\xa3\":2,\"\xcc\x81\":3"),
              "a\xcc\x81\xcc\xa3", "1[0,1]2[1,3]3[3,5]");
    check_ids(with_stages("{\"type\":\"NFD\"}", chars, NULL, "\"a\":1,\"\xcc\xa3\":2,\"\xcc\x81\":3"),
              "\xc3\xa1\xcc\xa3", "1[0,2]2[2,4]3[2,4]");
    check_ids(with_stages("{\"type\":\"NFC\"}", chars, NULL, "\"\xe1\xba\xa1\":1,\"\xcc\x81\":2,\"b\":3"),
              "a\xcc\x81\xcc\xa3"
              "b",
              "1[0,1]2[3,5]3[5,6]");
    /* a replacement has the last character's place */
    check_ids(with_stages("{\"type\":\"Replace\",\"pattern\":{\"String\":\"bc\"},\"content\":\"xy\"}", chars,
                          NULL, "\"a\":1,\"x\":2,\"y\":3,\"d\":4"),
              "abcd", "1[0,1]2[2,3]3[2,3]4[3,4]");
    check_ids(with_stages("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?=a)\"},\"content\":\"x\"}", chars,
                          NULL, "\"a\":1,\"x\":2"),
              "aa", "2[0,0]1[0,1]2[0,1]1[1,2]");
    /* characters new in Unicode 16 make words too */
    check_ids(with_stages(NULL, "{\"type\":\"Whitespace\"}", NULL, "\"a\xf0\x93\xae\xad\":1"),
              "a\xf0\x93\xae\xad", "1[0,5]");
    /* only a piece that begins the text is the first, with places and without */
    by_tokenizer *t = with_stages(
        NULL,
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
        "\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":true}]}",
        NULL, "\"_a\":1,\"a\":2");
    by_ids ids = {0};
    assert_int_equal(tok_encode(t, " a", 2, &ids), BY_OK);
    assert_int_equal(ids.data[0], 2);
    tok_ids_free(&ids);
    check_ids(t, " a", "2[1,2]");
}

#define BYTE_LEVEL(prefix) "{\"type\":\"ByteLevel\",\"trim_offsets\":true,\"add_prefix_space\":" prefix "}"
#define TEMPLATE                                                                                          \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\",\"type_id\":0}},"       \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}," \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[7],"   \
    "\"tokens\":[\"s\"]}}}"
#define BERT        "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",9],\"cls\":[\"[CLS]\",8]}"
#define POSTS(list) "{\"type\":\"Sequence\",\"processors\":[" list "]}"

static by_tokenizer *with_posts(const char *post)
{
    return with_post(NULL,
                     "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithNext\","
                     "\"invert\":false}",
                     NULL, "\" a\":1,\"\xc3\xa9\":2,\"  b\":3,\"a\":4,\"b\":5,\" \":6,\"  \":10,\" b\":11",
                     post);
}

/* Post-processors, one after another: each takes the sequences that the one before makes. */
static void test_posts(void **state)
{
    (void)state;
    /* trimming counts spaces in the token and characters in the text; an added token has those it took */
    check_ids(with_posts(BYTE_LEVEL("false")), " a b", "1[1,2]11[3,4]");
    check_ids(with_posts(BYTE_LEVEL("true")), " a b", "1[0,2]11[3,4]");
    check_ids(with_posts(BYTE_LEVEL("true")), "\xc3\xa9 [X] b", "2[0,2]99[3,6]11[7,8]");
    check_ids(with_posts(BYTE_LEVEL("true")), "a  ", "4[0,1]6[2,2]6[3,3]");
    /* one after another */
    check_post(with_posts(POSTS(BERT "," BERT)), "a b", "a", true,
               "8[0,0]8[0,0]4[0,1]11[1,3]9[0,0]9[0,0]4[0,1]9[0,0]9[0,0]");
    check_post(with_posts(POSTS(TEMPLATE "," BERT)), "a", NULL, true, "8[0,0]7[0,0]9[0,0]4[0,1]9[0,0]");
    check_post(with_posts(POSTS(BERT "," TEMPLATE)), "a", "b", true, "5[0,1]9[0,0]8[0,0]4[0,1]9[0,0]");
    check_post(with_posts(POSTS(TEMPLATE "," TEMPLATE)), "a", NULL, true, "4[0,1]7[0,0]");
    check_post(with_posts(POSTS(BYTE_LEVEL("false") "," BYTE_LEVEL("false"))), "a b", NULL, true,
               "4[0,1]11[3,3]");
    check_post(with_posts(TEMPLATE), "a", "b", false, "5[0,1]4[0,1]");
    /* a template of more than two sequences: the reference stops with an error */
    by_tokenizer *t = with_posts(
        POSTS("{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":"
              "{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}],\"pair\":[{\"Sequence\":{\"id\":\"B\"}}]}"
              "," TEMPLATE));
    by_encoding e;
    assert_int_equal(by_tokenizer_encode_with(t, "a", 1, &(by_encode_spec){.special = true}, &e),
                     BY_ERR_UNSUPPORTED);
    assert_non_null(strstr(by_error_message(), "TemplateProcessing"));
    by_encoding_free(&e);
    by_tokenizer_free(t);
}

/* The same with a text of n bytes, which may hold NUL; it decodes to `back`. */
static void check_nul(by_tokenizer *t, const char *text, size_t n, const char *expected, const char *back,
                      size_t back_size)
{
    by_encoding e;
    assert_int_equal(by_tokenizer_encode_with(t, text, n, &(by_encode_spec){.offsets = true}, &e), BY_OK);
    base_buf out = {0};
    for (size_t i = 0; i < e.ids.count; i++)
        base_buf_printf(&out, "%d[%u,%u]", e.ids.data[i], e.offsets[i].start, e.offsets[i].end);
    assert_string_equal(out.data, expected);
    out.size = 0;
    assert_int_equal(tok_decode(t, e.ids.data, e.ids.count, &out), BY_OK);
    assert_int_equal(out.size, back_size);
    assert_memory_equal(out.data, back, back_size);
    base_buf_free(&out);
    by_encoding_free(&e);
    by_tokenizer_free(t);
}

static by_tokenizer *parsed(const char *json)
{
    by_tokenizer *t = tok_parse(json, strlen(json), "file");
    if (!t)
        fail_msg("%s", by_error_message());
    return t;
}

/* NUL is a character like any other in every string of the file. */
static void test_nul(void **state)
{
    (void)state;
    check_nul(with_stages(NULL, "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\\u0000\"}", NULL,
                          "\"a\":1,\"b\":2"),
              "a\0b", 3, "1[0,1]2[2,3]", "a b", 3);
    check_nul(
        with_stages(NULL,
                    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\u0000+\"},\"behavior\":\"Isolated\","
                    "\"invert\":false}",
                    "{\"type\":\"Fuse\"}", "\"a\":1,\"\\u0000\\u0000\":2,\"\\\\u0000\":3"),
        "a\0\0a", 4, "1[0,1]2[1,3]1[3,4]", "a\0\0a", 4);
    check_nul(with_stages("{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"\\u0000b\"}",
                          NULL,
                          "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u0000\"},\"content\":\"-\"}",
                          "\"a\\u0000b\":1,\"a\":2"),
              "ax", 2, "1[0,2]", "a-b", 3);
    check_nul(
        parsed(
            "{\"added_tokens\":[{\"id\":5,\"content\":\"<\\u0000>\",\"single_word\":false,\"lstrip\":false,"
            "\"rstrip\":false,\"normalized\":false,\"special\":false}],\"decoder\":{\"type\":\"Fuse\"},"
            "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0000\":1,\"a\\u0000\":2,\"b\":3,"
            "\"\\u0000b\":4},\"merges\":[[\"a\",\"\\u0000\"],\"\\u0000 b\"]}}"),
        "a\0\0b<\0>", 7, "2[0,2]4[2,4]5[4,7]", "a\0\0b<\0>", 7);
    check_nul(parsed("{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
                     "\"vocab\":[[\"?\",-9],"
                     "[\"\\u0000\",-1],[\"a\",-1]]}}"),
              "a\0", 2, "2[0,1]1[1,2]", "a\0", 2);
    assert_null(tok_parse("{\"version\":\"\xc0\x80\"}", 16, "file")); /* not UTF-8 */
    assert_non_null(strstr(by_error_message(), "invalid JSON"));
}

static void check_decoded(const char *decoder, const char *expected)
{
    by_tokenizer *t =
        with_stages(NULL, NULL, decoder, "\"_a\":1,\"##b\":2,\"c</w>\":3,\"<0xC3>\":4,\"<0xA9>\":5");
    base_buf out = {0};
    assert_int_equal(tok_decode(t, (const int32_t[]){1, 2, 3, 4, 5, 99}, 6, &out), BY_OK);
    assert_string_equal(out.data, expected);
    base_buf_free(&out);
    check_stream(t, (const int32_t[]){1, 2, 3, 4, 5, 99, 4, 1, 3}, 9);
    check_stream(t, (const int32_t[]){5, 4, 5, 3, 3, 1, 4}, 7);
    by_tokenizer_free(t);
}

static void test_decoders(void **state)
{
    (void)state;
    check_decoded(NULL, "_a ##b c</w> <0xC3> <0xA9> [X]");
    check_decoded("{\"type\":\"Fuse\"}", "_a##bc</w><0xC3><0xA9>[X]");
    check_decoded("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
                  "_ab c</w> <0xC3> <0xA9> [X]");
    check_decoded("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", "_a##bc <0xC3><0xA9>[X]");
    check_decoded("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Replace\","
                  "\"pattern\":{\"String\":\"_\"},"
                  "\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                  "\",\"start\":1,\"stop\":0}]}",
                  "a##bc</w>\xc3\xa9[X]");
}

/* Pairs, segments and the mask of special tokens, as BERT has them. */
static void test_pair(void **state)
{
    (void)state;
    char *dir = fixture("tokenizers/bert-base-uncased");
    if (!dir)
        return;
    by_tokenizer *t = by_tokenizer_load(dir);
    assert_non_null(t);
    by_encoding e;
    by_encode_spec spec = {.special = true, .offsets = true, .pair = "World", .pair_size = 5};
    assert_int_equal(by_tokenizer_encode_with(t, "Hello", 5, &spec, &e), BY_OK);
    static const int32_t ids[] = {101, 7592, 102, 2088, 102};
    assert_int_equal(e.ids.count, 5);
    assert_memory_equal(e.ids.data, ids, sizeof(ids));
    assert_memory_equal(e.types, ((const uint8_t[]){0, 0, 0, 1, 1}), 5);
    assert_memory_equal(e.special, ((const uint8_t[]){1, 0, 1, 0, 1}), 5);
    assert_int_equal(e.offsets[3].end, 5);
    by_encoding_free(&e);
    by_tokenizer_free(t);
    base_free(dir);
}

/* ---- damaged files --------------------------------------------------------------------------- */

/* Anything unknown is named, never ignored. */
static void test_unknown_is_named(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"{\"model\":{\"type\":\"Magic\"}}", "Magic"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]],\"novelty\":1}}",
         "novelty"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[[\"a\",\"b\"]]}}", "merge 0"},
        {"{\"normalizer\":{\"type\":\"Upside\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
         "\"vocab\":{\"?\":0}}}",
         "Upside"},
        {"{\"pre_tokenizer\":{\"type\":\"Chop\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
         "\"vocab\":{\"?\":0}}}",
         "Chop"},
        {"{\"decoder\":{\"type\":\"Glue\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{"
         "\"?\":0}}}",
         "Glue"},
        {"{\"extra\":1,\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}}", "extra"},
    };
    for (int i = 0; i < BY_COUNT(files); i++) {
        assert_null(tok_parse(files[i][0], strlen(files[i][0]), "file"));
        assert_non_null(strstr(by_error_message(), files[i][1]));
    }
}

/* A SentencePiece file cut short or with a byte changed is an error or a model, never a crash. */
static void test_damaged_spiece(void **state)
{
    (void)state;
    char *path = fixture("tokenizers/t5/spiece.model");
    if (!path)
        return;
    size_t size = 0;
    char *bytes = base_file_read(path, (size_t)1 << 28, &size);
    assert_non_null(bytes);
    base_rng rng = base_rng_make(3, 0);
    for (int round = 0; round < 30; round++) {
        tok_spiece m;
        size_t n = base_rng_below(&rng, size), at = base_rng_below(&rng, size);
        if (tok_spiece_parse(&m, bytes, n) == BY_OK)
            tok_spiece_free(&m);
        char saved = bytes[at];
        bytes[at] = (char)base_rng_u32(&rng);
        if (tok_spiece_parse(&m, bytes, size) == BY_OK)
            by_tokenizer_free(tok_spiece_tokenizer(&m));
        bytes[at] = saved;
    }
    base_free(bytes);
    base_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_bare_sentencepiece),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_bytes_and_parts),
        cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_posts),
        cmocka_unit_test(test_nul),
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_pair),
        cmocka_unit_test(test_unknown_is_named),
        cmocka_unit_test(test_damaged_spiece),
    };
    return cmocka_run_group_tests(tests, find_shared, NULL);
}
