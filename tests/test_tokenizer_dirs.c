/* test_tokenizer_dirs.c - directories of older kinds (Marian, Llama, XLM-RoBERTa, XLM) with ids and texts
 * that their reference library gave, truncation and padding as the reference does it, chat templates, and
 * many texts at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/legacy/spiece.h"

#define MARK "\xe2\x96\x81"

/* ---- a small SentencePiece model ------------------------------------------------------------- */

typedef struct piece {
    const char *text;
    float score;
    int type;
} piece;

static void put_varint(base_buf *out, size_t n)
{
    for (; n >= 128; n >>= 7)
        base_buf_put(out, &(char){(char)(n | 128)}, 1);
    base_buf_put(out, &(char){(char)n}, 1);
}

static void put_field(base_buf *out, int number, const char *bytes, size_t n)
{
    put_varint(out, (size_t)number << 3 | 2);
    put_varint(out, n);
    base_buf_put(out, bytes, n);
}

static void put_piece(base_buf *out, piece p)
{
    base_buf body = {0};
    put_field(&body, 1, p.text, strlen(p.text));
    base_buf_put(&body, "\x15", 1);
    base_buf_put(&body, &p.score, 4);
    base_buf_put(&body, (char[2]){0x18, (char)p.type}, 2);
    put_field(out, 1, body.data, body.size);
    base_buf_free(&body);
}

/* bytes: with all byte pieces behind the third, and falling back to them. */
static base_buf make_model(const piece *pieces, int count, int model, bool bytes)
{
    base_buf out = {0};
    for (int i = 0; i < count; i++) {
        for (int b = 0; bytes && i == 3 && b < 256; b++) {
            char text[8];
            snprintf(text, sizeof(text), "<0x%02X>", (unsigned)b);
            put_piece(&out, (piece){text, 0, TOK_PIECE_BYTE});
        }
        put_piece(&out, pieces[i]);
    }
    put_field(&out, 2, (char[]){0x18, (char)model, (char)0x98, 2, 1}, bytes ? 5 : 2);
    put_field(&out, 3, "\x18\x01\x20\x01\x28\x01", 6);
    assert_false(out.failed);
    return out;
}

static const piece source_pieces[] = {
    {"<unk>", 0, 2}, {"<s>", 0, 3},   {"</s>", 0, 3},      {MARK, -2, 1},        {"a", -3, 1}, {"b", -4, 1},
    {"c", -5, 1},    {"ab", -3.5, 1}, {MARK "a", -2.5, 1}, {MARK "ab", -4.5, 1}, {"bc", -6, 1}};
static const piece target_pieces[] = {{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}, {MARK, -2, 1},
                                      {"a", -3, 1},    {"b", -4, 1},  {"c", -2, 1},   {MARK "c", -1.5, 1}};
static const piece bpe_pieces[] = {{"<unk>", 0, 2}, {"<s>", 0, 3},      {"</s>", 0, 3}, {MARK "a", 0, 1},
                                   {"ab", -1, 1},   {MARK "ab", -2, 1}, {"abc", -3, 1}, {MARK, -4, 1},
                                   {"a", -5, 1},    {"b", -6, 1},       {"c", -7, 1}};

/* ---- directories ----------------------------------------------------------------------------- */

static char dir[4096];

static int make_dir(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/banyan-dirs-XXXXXX", base ? base : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"source.spm",
                                        "target.spm",
                                        "vocab.json",
                                        "tokenizer.model",
                                        "sentencepiece.bpe.model",
                                        "tokenizer_config.json",
                                        "merges.txt",
                                        "vocab_words.txt",
                                        "chat_template.jinja",
                                        "tokenizer.json",
                                        "special_tokens_map.json"};
    (void)state;
    for (int i = 0; i < BY_COUNT(names); i++)
        for (int k = 0; k < 2; k++) {
            char *path = base_sprintf("%s/%s%s", dir, k ? "saved/" : "", names[i]);
            unlink(path);
            base_free(path);
        }
    char *saved = base_sprintf("%s/saved", dir);
    rmdir(saved);
    base_free(saved);
    return rmdir(dir);
}

static void put_file(const char *name, const void *bytes, size_t size)
{
    char *path = base_path_join(dir, name);
    assert_int_equal(base_file_write(path, bytes, size), BY_OK);
    base_free(path);
}

static void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

static void put_model(const char *name, const piece *pieces, int count, int model, bool bytes)
{
    base_buf m = make_model(pieces, count, model, bytes);
    put_file(name, m.data, m.size);
    base_buf_free(&m);
}

static by_tokenizer *load(const char *path)
{
    by_tokenizer *t = by_tokenizer_load(path);
    if (!t)
        fail_msg("%s", by_error_message());
    return t;
}

static char *join_ids(const by_encoding *e)
{
    base_buf out = {0};
    base_buf_puts(&out, "");
    for (size_t i = 0; i < e->ids.count; i++)
        base_buf_printf(&out, i ? " %d" : "%d", (int)e->ids.data[i]);
    return out.data;
}

typedef struct known {
    const char *text, *ids, *decoded, *shown; /* shown: without special tokens */
} known;

static void check_known(const by_tokenizer *t, const known *cases, int count)
{
    for (int i = 0; i < count; i++) {
        by_encoding e;
        by_encode_spec spec = {.special = true, .offsets = i % 2};
        assert_int_equal(by_tokenizer_encode_with(t, cases[i].text, strlen(cases[i].text), &spec, &e), BY_OK);
        char *ids = join_ids(&e);
        assert_string_equal(ids, cases[i].ids);
        for (int skip = 0; skip < 2; skip++) {
            base_buf back = {0};
            base_buf_puts(&back, "");
            tok_decode_spec how = {.skip_special = skip};
            assert_int_equal(tok_decode_with(t, e.ids.data, e.ids.count, &how, &back), BY_OK);
            if (skip ? cases[i].shown : cases[i].decoded)
                assert_string_equal(back.data, skip ? cases[i].shown : cases[i].decoded);
            base_buf_free(&back);
        }
        base_free(ids);
        by_encoding_free(&e);
    }
}

/* As it is, and after saving and loading. */
static void check_dir(const known *cases, int count)
{
    by_tokenizer *t = load(dir);
    check_known(t, cases, count);
    char *saved = base_path_join(dir, "saved");
    assert_int_equal(by_tokenizer_save(t, saved), BY_OK);
    by_tokenizer *again = load(saved);
    check_known(again, cases, count);
    assert_true(tok_hash(again) == tok_hash(t));
    by_tokenizer_free(again);
    by_tokenizer_free(t);
    base_free(saved);
}

static void test_marian(void **state)
{
    (void)state;
    static const known cases[] = {
        {"abc a", "2 1 2 0", "a<unk> a</s>", "a a"},
        {"  ab\xc3\xa9\xc3\xa9 c", "5 1 6 4 0", "ab<unk> c</s>", "ab c"},
        {"c</s>ab", "6 4 0 5 0", "c</s> ab</s>", "c ab"},
        {">>fra<< ab", "7 5 0", ">>fra<< ab</s>", ">>fra<< ab"},
        {"\xf0\x9f\x98\x80"
         "a",
         "6 1 10 0", "<unk> a</s>", "a"},
    };
    put_model("source.spm", source_pieces, BY_COUNT(source_pieces), TOK_SPIECE_UNIGRAM, false);
    put_model("target.spm", target_pieces, BY_COUNT(target_pieces), TOK_SPIECE_UNIGRAM, false);
    put_text("vocab.json", "{\"</s>\":0,\"<unk>\":1,\"" MARK "a\":2,\"b\":3,\"c\":4,\"" MARK "ab\":5,\"" MARK
                           "\":6,\">>fra<<\":7,\"\xc3\xa9\":8,\"" MARK "c\":9,\"a\":10,\"<pad>\":11}");
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"MarianTokenizer\"}");
    check_dir(cases, BY_COUNT(cases));
    by_tokenizer *t = load(dir);
    by_encoding e;
    assert_int_equal(
        by_tokenizer_encode_with(t, "abc c", 5, &(by_encode_spec){.special = true, .target = true}, &e),
        BY_OK);
    char *ids = join_ids(&e);
    assert_string_equal(ids, "6 10 3 4 9 0");
    assert_int_equal(by_tokenizer_eos(t), 0);
    base_free(ids);
    by_encoding_free(&e);
    by_tokenizer_free(t);
}

static void check_shown(const by_tokenizer *t, const int32_t *ids, size_t count, const char *expected)
{
    char *text = tok_decode_text(t, ids, count, &(tok_decode_spec){.skip_special = true}, NULL);
    assert_non_null(text);
    assert_string_equal(text, expected);
    by_release(text);
}

/* Marian's tokens without a role are special if a list of the directory has them. */
static void test_marian_lists(void **state)
{
    (void)state;
    static const int32_t ids[] = {4, 0, 1, 2, 3, 5, 2, 4};
    static const char *const configs[][2] = {
        {"", "<x> a<y> a<x>"},
        {",\"additional_special_tokens\":[\"<x>\"]", "a<y> a"},
        {",\"extra_special_tokens\":[\"<y>\"]", "<x> a a<x>"},
        {",\"added_tokens_decoder\":{\"4\":{\"content\":\"<x>\",\"special\":true}}", "<x> a<y> a<x>"}};
    put_model("source.spm", source_pieces, BY_COUNT(source_pieces), TOK_SPIECE_UNIGRAM, false);
    put_model("target.spm", source_pieces, BY_COUNT(source_pieces), TOK_SPIECE_UNIGRAM, false);
    put_text("vocab.json", "{\"</s>\":0,\"<unk>\":1,\"" MARK "a\":2,\"<y>\":3,\"<x>\":4,\"<pad>\":5}");
    for (int i = 0; i < BY_COUNT(configs); i++) {
        char *config = base_sprintf("{\"tokenizer_class\":\"MarianTokenizer\"%s}", configs[i][0]);
        put_text("tokenizer_config.json", config);
        by_tokenizer *t = load(dir);
        check_shown(t, ids, BY_COUNT(ids), configs[i][1]);
        by_tokenizer_free(t);
        base_free(config);
    }
}

static const char marked[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":2,\"content\":\"</"
    "s>\","
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":"
    "8,"
    "\"content\":\"<plain>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
    "\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true},\"post_processor\":null,\"decoder\":{"
    "\"type\":\"Metaspace\","
    "\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true},\"model\":{\"type\":"
    "\"WordLevel\",\"unk_token\":\"<unk>\","
    "\"vocab\":{\"<pad>\":0,\"<s>\":1,\"</s>\":2,\"<unk>\":3,\"" MARK "\":4,\"" MARK "a\":5,\"" MARK
    "b\":6,\"<mask>\":7,\"<plain>\":8,\"en_XX\":9,\"<x>\":10}}}";

/* What the reference drops of a text: the special tokens of tokenizer.json, and those that the other files
 * name. A saved copy drops the same. */
static void test_special_of_other_files(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 3, 6, 0, 5, 9, 6, 8, 5, 10, 6, 7, 5, 1, 6, 2};
    static const char none[] = "a<unk> b<pad> aen_XX b<plain> a<x> b<mask> a<s> b";
    static const struct {
        const char *config, *map, *shown;
    } cases[] = {
        {"{}", "{}", none},
        {"{\"unk_token\":\"<unk>\",\"pad_token\":{\"content\":\"<pad>\"}}", "{}",
         "a b aen_XX b<plain> a<x> b<mask> a<s> b"},
        {"{\"additional_special_tokens\":[\"en_XX\",\"<x>\"]}", "{}",
         "a<unk> b<pad> a b<plain> a b<mask> a<s> b"},
        {"{\"extra_special_tokens\":[\"en_XX\",\"<x>\"]}", "{}", "a<unk> b<pad> a b<plain> a b<mask> a<s> b"},
        {"{\"added_tokens_decoder\":{\"9\":{\"content\":\"en_XX\",\"special\":true},\"8\":{\"content\":\"<"
         "plain>\","
         "\"special\":false}}}",
         "{}", "a<unk> b<pad> a b<plain> a<x> b<mask> a<s> b"},
        {"{}", "{\"unk_token\":\"<unk>\",\"additional_special_tokens\":[\"<x>\"]}",
         "a b<pad> aen_XX b<plain> a b<mask> a<s> b"},
        {"{\"extra_special_tokens\":{\"image_token\":\"<plain>\"}}", "{}",
         "a<unk> b<pad> aen_XX b a<x> b<mask> a<s> b"}};
    put_text("tokenizer.json", marked);
    for (int i = 0; i < BY_COUNT(cases); i++) {
        put_text("tokenizer_config.json", cases[i].config);
        put_text("special_tokens_map.json", cases[i].map);
        by_tokenizer *t = load(dir);
        check_shown(t, ids, BY_COUNT(ids), cases[i].shown);
        char *saved = base_path_join(dir, "saved"), *all = by_decode(t, ids, BY_COUNT(ids), NULL);
        assert_int_equal(by_tokenizer_save(t, saved), BY_OK);
        by_tokenizer *again = load(saved);
        check_shown(again, ids, BY_COUNT(ids), cases[i].shown);
        assert_memory_equal(all, none, strlen(none));
        assert_string_equal(all + strlen(none), "</s>");
        by_tokenizer_free(again);
        by_tokenizer_free(t);
        by_release(all);
        base_free(saved);
    }
}

static void test_llama(void **state)
{
    (void)state;
    static const known cases[] = {
        {"abc a", "1 261 266 259", "<s> abc a", "abc a"},
        {"  ab\xc3\xa9\xc3\xa9 c", "1 263 261 198 172 198 172 263 266", "<s>  ab\xc3\xa9\xc3\xa9 c",
         " ab\xc3\xa9\xc3\xa9 c"},
        {"c</s>ab", "1 263 266 2 260", "<s> c</s>ab", "cab"},
        {">>fra<< ab", "1 263 65 65 105 117 264 63 63 261", "<s> >>fra<< ab", ">>fra<< ab"},
        {"\xf0\x9f\x98\x80"
         "a",
         "1 263 243 162 155 131 264",
         "<s> \xf0\x9f\x98\x80"
         "a",
         "\xf0\x9f\x98\x80"
         "a"},
    };
    put_model("tokenizer.model", bpe_pieces, BY_COUNT(bpe_pieces), TOK_SPIECE_BPE, true);
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true}");
    check_dir(cases, BY_COUNT(cases));
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"XLNetTokenizer\"}");
    assert_null(by_tokenizer_load(dir));
    assert_non_null(strstr(by_error_message(), "requires a unigram model"));
}

static void test_xlm_roberta(void **state)
{
    (void)state;
    static const known cases[] = {
        {"abc a", "0 9 11 9 2", "<s> abc a</s>", "abc a"},
        {"  ab\xc3\xa9\xc3\xa9 c", "0 10 3 4 7 2", "<s> ab<unk> c</s>", "ab c"},
        {"c</s>ab", "0 4 7 2 10 2", "<s> c</s> ab</s>", "c ab"},
        {">>fra<< ab", "0 4 3 5 3 10 2", "<s> <unk>a<unk> ab</s>", "a ab"},
    };
    put_model("sentencepiece.bpe.model", source_pieces, BY_COUNT(source_pieces), TOK_SPIECE_UNIGRAM, false);
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}");
    check_dir(cases, BY_COUNT(cases));
}

/* XLM's own vocabulary and codes: "@@" goes on, merges through tokens the vocabulary does not have. */
static void test_xlm_files(void **state)
{
    (void)state;
    static const known cases[] = {
        {"Abc, ab", "0 14 17 15 1", "<s>abc , ab </s>", "abc , ab"},
        {"acb", "0 16 3 3 1", NULL, NULL},
        {"<special1>ab", "0 5 15 1", "<s><special1>ab </s>", "ab"},
    };
    put_text("vocab_words.txt", "abc 9\nab 5\na@@ 3\n, 2\n");
    put_text("merges.txt", "a b 9\nab c</w> 7\na b</w> 3\n");
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"XLMTokenizer\"}");
    check_dir(cases, BY_COUNT(cases));
    put_text("vocab_words.txt", "abc nine\n");
    assert_null(by_tokenizer_load(dir));
    assert_non_null(strstr(by_error_message(), "line 1 is not a token and its count"));
}

/* The published vocabulary of fifteen languages. */
static void test_xlm_published(void **state)
{
    (void)state;
    static const known cases[] = {
        {"Mr. O'Neill said: \"It's 5,300.50 (about 10 %) ... really?\" No. 5, e.g. pp. 7.",
         "0 37763 80 32678 359 8462 38173 42 17 458 41333 4415 6688 3046 1039 22 37104 286 124 21 719 70800 "
         "1898 17 470 15 249 14 6875 6569 2588 15 351 15 1",
         NULL, "mr. o 'neill said : \" it 's 5,300.50 ( about 10 % ) ... really ? \" no. 5 , e.g. pp. 7 ."},
        {"L'\xc3\xa9t\xc3\xa9 \xc3\xa0 la plage \xe2\x80\x94 c'est \xc2\xab"
         "chaud\xc2\xbb!",
         "0 315 32678 181 23 18 27681 38 393 32678 47 17 6349 246 17 950 1", NULL,
         "l 'ete a la plage - c 'est \" chaud \" !"},
        {"\xce\x9f\xce\x94\xce\x9f\xce\xa3 \xc4\xb0stanbul DOTMULTI a,b,,c 'tis rock'n'roll's",
         "0 50393 8016 15 23 14 361 14 14 393 77 5517 2712 32678 171 32678 19796 41333 1", NULL,
         "\xce\xbf\xce\xb4\xce\xbf\xcf\x82 istanbul . a , b , , c ' tis rock 'n'roll 's"},
    };
    const char *shared = getenv("BANYAN_SHARED");
    char *path = base_sprintf("%s/data/tokenizers/xlm", shared ? shared : BY_SOURCE_DIR "/../shared");
    if (base_dir_exists(path)) {
        by_tokenizer *t = load(path);
        check_known(t, cases, BY_COUNT(cases));
        by_tokenizer_free(t);
    } else {
        print_message("%s is not there: left out\n", path);
    }
    base_free(path);
}

/* ---- truncation and padding ------------------------------------------------------------------ */

static const char stages[] =
    "{\"truncation\":%s,\"padding\":%s,\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
    "\"WhitespaceSplit\"},\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":["
    "\"[CLS]\",1]},\"decoder\":null,\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"[UNK]\",\"vocab\":{"
    "\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"[PAD]\":3,\"a\":4,\"b\":5,\"c\":6,\"d\":7,\"e\":8,\"f\":9,\"g\":"
    "10,\"h\":11,\"i\":12,\"j\":13,\"x\":14,\"y\":15,\"z\":16,\"u\":17,\"v\":18,\"w\":19}}}";

static by_tokenizer *letters(const char *truncation, const char *padding)
{
    char *json = base_sprintf(stages, truncation, padding);
    by_tokenizer *t = tok_parse(json, strlen(json), "letters");
    base_free(json);
    return t;
}

/* The ids, then what did not fit, with "|" between them. */
static void check_cut(const by_tokenizer *t, const char *pair, const by_truncation *how, bool special,
                      const char *expected)
{
    by_encode_spec spec = {.special = special,
                           .offsets = true,
                           .pair = pair,
                           .pair_size = pair ? strlen(pair) : 0,
                           .truncation = how};
    by_encoding e;
    base_buf out = {0};
    by_status status = by_tokenizer_encode_with(t, "a b c d e f g h i j", 19, &spec, &e);
    if (!expected) {
        assert_int_equal(status, BY_ERR_ARGUMENT);
    } else {
        assert_int_equal(status, BY_OK);
        for (size_t i = 0; i <= e.overflow_count; i++) {
            char *ids = join_ids(i ? &e.overflow[i - 1] : &e);
            base_buf_printf(&out, "%s%s", i ? "|" : "", ids);
            base_free(ids);
        }
        assert_string_equal(out.data, expected);
    }
    base_buf_free(&out);
    by_encoding_free(&e);
}

static void test_truncation(void **state)
{
    (void)state;
    static const char pair[] = "x y z u v w";
    by_tokenizer *t = letters("null", "null");
    assert_non_null(t);
    check_cut(t, NULL, &(by_truncation){.max_length = 6, .stride = 1}, true,
              "1 4 5 6 7 2|1 7 8 9 10 2|1 10 11 12 13 2");
    check_cut(t, NULL, &(by_truncation){.max_length = 6, .stride = 1, .left = true}, true,
              "1 10 11 12 13 2|1 7 8 9 10 2|1 4 5 6 7 2");
    check_cut(t, NULL, &(by_truncation){.max_length = 2}, true, "1 2|1 4 5 6 7 8 9 10 11 12 13 2");
    check_cut(t, NULL, &(by_truncation){.max_length = 1}, true, "1 4 5 6 7 8 9 10 11 12 13 2");
    check_cut(t, NULL, &(by_truncation){.max_length = 6, .stride = 4}, true, NULL);
    check_cut(t, NULL, &(by_truncation){.max_length = 9, .stride = 1}, false, "4 5 6 7 8 9 10 11 12|12 13");
    check_cut(t, NULL, &(by_truncation){.max_length = 6, .strategy = BY_TRUNCATE_SECOND}, true, NULL);
    check_cut(t, pair, &(by_truncation){.max_length = 12, .stride = 1, .strategy = BY_TRUNCATE_FIRST}, true,
              "1 4 5 6 2 14 15 16 17 18 19 2|1 6 7 8 2 14 15 16 17 18 19 2|1 8 9 10 2 14 15 16 17 18 19 2|"
              "1 10 11 12 2 14 15 16 17 18 19 2|1 12 13 2 14 15 16 17 18 19 2");
    check_cut(t, pair, &(by_truncation){.max_length = 15, .stride = 1, .strategy = BY_TRUNCATE_SECOND}, false,
              "4 5 6 7 8 9 10 11 12 13 14 15 16 17 18|4 5 6 7 8 9 10 11 12 13 18 19");
    check_cut(t, pair, &(by_truncation){.max_length = 8, .stride = 2, .strategy = BY_TRUNCATE_FIRST}, true,
              NULL);
    check_cut(t, pair, &(by_truncation){.max_length = 9, .stride = 1}, false,
              "4 5 6 7 8 14 15 16 17|8 9 10 11 12 14 15 16 17|8 9 10 11 12 17 18 19|12 13 14 15 16 17|"
              "12 13 17 18 19|4 5 6 7 8 17 18 19");
    check_cut(t, pair, &(by_truncation){.max_length = 3}, true,
              "1 2 2|1 4 5 6 7 8 9 10 11 12 13 2 2|1 4 5 6 7 8 9 10 11 12 13 2 14 15 16 17 18 19 2|"
              "1 2 14 15 16 17 18 19 2");
    by_tokenizer_free(t);
}

/* As the file says; what it does not know is named. */
static void test_padding(void **state)
{
    (void)state;
    by_tokenizer *t =
        letters("{\"direction\":\"Right\",\"max_length\":6,\"strategy\":\"LongestFirst\","
                "\"stride\":1}",
                "{\"strategy\":{\"Fixed\":8},\"direction\":\"Left\",\"pad_to_multiple_of\":null,"
                "\"pad_id\":3,\"pad_type_id\":2,\"pad_token\":\"[PAD]\"}");
    assert_non_null(t);
    check_cut(t, NULL, NULL, true, "3 3 1 4 5 6 7 2|3 3 1 7 8 9 10 2|3 3 1 10 11 12 13 2");
    by_encoding e;
    by_padding padding = {.multiple = 8, .id = 3};
    by_truncation longer = {.max_length = 100};
    by_encode_spec spec = {.special = true, .padding = &padding, .truncation = &longer};
    assert_int_equal(by_tokenizer_encode_with(t, "a", 1, &spec, &e), BY_OK);
    char *ids = join_ids(&e);
    assert_string_equal(ids, "1 4 2 3 3 3 3 3");
    assert_int_equal(e.padding, 5);
    base_free(ids);
    by_encoding_free(&e);
    by_tokenizer_free(t);
    static const char *const bad[][3] = {
        {"{\"strategy\":\"Shortest\"}", "null", "Shortest"},
        {"{\"direction\":\"Up\"}", "null", "Up"},
        {"null", "{\"strategy\":\"Longest\"}", "Longest"},
        {"null", "{\"strategy\":{\"Loose\":3}}", "Loose"},
    };
    for (int i = 0; i < BY_COUNT(bad); i++) {
        assert_null(letters(bad[i][0], bad[i][1]));
        assert_non_null(strstr(by_error_message(), bad[i][2]));
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void test_chat_template(void **state)
{
    (void)state;
    char *json = base_sprintf(stages, "null", "null");
    put_text("tokenizer.json", json);
    put_text("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"no\"},"
                                      "{\"name\":\"default\",\"template\":\"{{ \\\"x\\\" }}\\n\"}]}");
    put_text("special_tokens_map.json", "{\"eos_token\":\"[SEP]\"}");
    by_tokenizer *t = load(dir);
    assert_string_equal(by_tokenizer_chat_template(t), "{{ \"x\" }}\n");
    assert_int_equal(by_tokenizer_eos(t), 2);
    char *saved = base_path_join(dir, "saved");
    assert_int_equal(by_tokenizer_save(t, saved), BY_OK);
    by_tokenizer *again = load(saved);
    assert_string_equal(by_tokenizer_chat_template(again), "{{ \"x\" }}\n");
    by_tokenizer_free(again);
    by_tokenizer_free(t);
    put_text("chat_template.jinja", "{{ file }}");
    t = load(dir);
    assert_string_equal(by_tokenizer_chat_template(t), "{{ file }}");
    by_tokenizer_free(t);
    base_free(saved);
    base_free(json);
}

/* Any number of threads gives what one text after the other gives; the first bad text is the one reported. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    by_tokenizer *t = letters("null", "null"), *chars;
    const char *texts[COUNT], *pairs[COUNT];
    size_t sizes[COUNT], pair_sizes[COUNT];
    by_encoding out[COUNT], one;
    for (int i = 0; i < COUNT; i++) {
        texts[i] = &"a b c d e f g h i j"[2 * (i % 10)];
        sizes[i] = strlen(texts[i]);
        pairs[i] = i % 3 ? "x y z" : NULL;
        pair_sizes[i] = i % 3 ? 5 : 0;
    }
    by_texts many = {texts, pairs, sizes, pair_sizes, COUNT};
    for (int threads = 0; threads < 6; threads++) {
        assert_int_equal(by_tokenizer_encode_many(t, &many, &(by_encode_spec){.special = true}, threads, out),
                         BY_OK);
        for (int i = 0; i < COUNT; i++) {
            by_encode_spec spec = {.special = true, .pair = pairs[i], .pair_size = pair_sizes[i]};
            assert_int_equal(by_tokenizer_encode_with(t, texts[i], sizes[i], &spec, &one), BY_OK);
            assert_int_equal(one.ids.count, out[i].ids.count);
            assert_memory_equal(one.ids.data, out[i].ids.data, one.ids.count * 4);
            assert_memory_equal(one.types, out[i].types, one.ids.count);
            by_encoding_free(&one);
            by_encoding_free(&out[i]);
        }
    }
    by_tokenizer_free(t);
    chars = tok_new_chars(&(const char *){"a bcdef"}, &(size_t){7}, 1);
    many.pairs = NULL;
    assert_int_equal(by_tokenizer_encode_many(chars, &many, &(by_encode_spec){0}, 4, out), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "text 1: character U+0067 at offset 12"));
    for (int i = 0; i < COUNT; i++)
        by_encoding_free(&out[i]);
    by_tokenizer_free(chars);
}

/* A "word" of one letter, half a megabyte of it, takes little more than its share of what 16 kB take. */
static void check_long_word(const by_tokenizer *t)
{
    size_t size = (size_t)1 << 19;
    char *text = base_alloc(size);
    double times[2];
    assert_non_null(text);
    memset(text, 'a', size);
    for (int k = 0; k < 2; k++) {
        by_ids ids = {0};
        double start = base_seconds();
        assert_int_equal(tok_encode(t, text, k ? size : size / 32, &ids), BY_OK);
        times[k] = base_seconds() - start;
        tok_ids_free(&ids);
    }
    assert_true(times[1] < 200 * times[0] + 0.5);
    base_free(text);
}

static void test_long_words(void **state)
{
    (void)state;
    base_buf unigram = make_model(source_pieces, BY_COUNT(source_pieces), TOK_SPIECE_UNIGRAM, false),
             bpe = make_model(bpe_pieces, BY_COUNT(bpe_pieces), TOK_SPIECE_BPE, true);
    base_buf *models[] = {&unigram, &bpe};
    for (int i = 0; i < 2; i++) {
        tok_spiece m;
        assert_int_equal(tok_spiece_parse(&m, models[i]->data, models[i]->size), BY_OK);
        by_tokenizer *t = tok_spiece_tokenizer(&m);
        assert_non_null(t);
        check_long_word(t);
        by_tokenizer_free(t);
        base_buf_free(models[i]);
    }
    static const char json[] =
        "{\"pre_tokenizer\":null,\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"max_input_chars_per_"
        "word\":100000000,\"vocab\":{\"?\":0,\"a\":1,\"##a\":2,\"##aa\":3}}}";
    by_tokenizer *t = tok_parse(json, strlen(json), "wordpiece");
    assert_non_null(t);
    check_long_word(t);
    by_tokenizer_free(t);
}

/* Script by script, as the reference splits. */
static void test_scripts(void **state)
{
    (void)state;
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
        "\"?\",\"vocab\":{\"?\":0,\"Hello\":1,\", \":2,\"\xe4\xbd\xa0\xe3\x81\xb2\xe3\x83\xbc\":3,"
        "\"\xce\xb1 \xce\xb2\":4,\"b \":5,\"12\":6}}}";
    by_tokenizer *t = tok_parse(json, strlen(json), "scripts");
    assert_non_null(t);
    static const char *const cases[][2] = {
        {"Hello, \xe4\xbd\xa0\xe3\x81\xb2\xe3\x83\xbc", "1 2 3"},
        {" b \xce\xb1 \xce\xb2"
         "12",
         "5 4 6"},
        {"  ", ""},
        {"a\xcc\x81", "0 0"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_encoding e;
        assert_int_equal(
            by_tokenizer_encode_with(t, cases[i][0], strlen(cases[i][0]), &(by_encode_spec){0}, &e), BY_OK);
        char *ids = join_ids(&e);
        assert_string_equal(ids, cases[i][1]);
        base_free(ids);
        by_encoding_free(&e);
    }
    by_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_marian, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_marian_lists, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_special_of_other_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_llama, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_xlm_roberta, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_xlm_files, make_dir, remove_dir),
        cmocka_unit_test(test_xlm_published),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_padding),
        cmocka_unit_test_setup_teardown(test_chat_template, make_dir, remove_dir),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_scripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
