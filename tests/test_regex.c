/* test_regex.c - the regular expressions of tokenizer.json: as Oniguruma reads them, within bounds of time,
 * or refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "text/pipeline.h"
#include "text/regex.h"
#include "text/utf8.h"

/* A text and its pieces, with "|" between them, as tokenizers 0.23.3 splits it ("Isolated"). */
static const struct {
    const char *pattern, *text, *pieces;
} splits[] = {
    /* clang-format off */
    {"\\p{Arabic}+", "\331\205\330\261\330\255\330\250\330\247\330\214 \331\203\331\212\331\201\330\237", "\331\205\330\261\330\255\330\250\330\247|\330\214 |\331\203\331\212\331\201|\330\237"},
    {" ?[^(\\s|[.,!?\342\200\246\343\200\202\357\274\214\343\200\201\340\245\244\333\224\330\214])]+", "Hello, world (x) [y] a|b", "Hello|,| world| (|x|)| [y]| a|||b"},
    {"^.", "ab\012cd", "a|b\012|c|d"},
    {".$", "ab\012cd\012", "a|b|\012c|d|\012"},
    {"\\p{Han}+", "\343\200\214\346\235\261\344\272\254\343\200\215\343\202\277\343\203\257\343\203\274\343\200\205\343\200\206\343\200\207", "\343\200\214|\346\235\261\344\272\254|\343\200\215\343\202\277\343\203\257\343\203\274|\343\200\205|\343\200\206|\343\200\207"},
    {"[\\p{Hiragana}\\p{Katakana}]+", "\343\202\211\343\203\274\343\202\201\343\202\223\343\202\277\343\203\257\343\203\274\343\200\202", "\343\202\211|\343\203\274|\343\202\201\343\202\223\343\202\277\343\203\257|\343\203\274\343\200\202"},
    {"[\\p{L}&&[^a-z]]+", "abcDEFghi", "abc|DEF|ghi"},
    {"[a-c[x-z]&&[^b]]", "abcxyz", "a|b|c|x|y|z"},
    {"[^a[b-d]]+", "abcdefa", "abcd|ef|a"},
    {"\\x{1F600}|\\u0041", "x\360\237\230\200AB", "x|\360\237\230\200|A|B"},
    {"a{1,2}+b", "aaaab", "aaaab"},
    {"a{2}?b", "aab b", "aab| |b"},
    {"ab(?i)c|D", "abCxabdD", "abC|x|abd|D"},
    {"(?m:a.)b", "a\012b", "a\012b"},
    {"\\h+", "xyzfaced09", "xyz|faced09"},
    {"\\s", "a\341\240\216b\342\200\213c\013d\034e\302\205f\357\273\277g\342\200\250h", "a\341\240\216b\342\200\213c|\013|d\034e|\302\205|f\357\273\277g|\342\200\250|h"},
    {"\\w+", "a\302\262b\302\275 x_\303\251 \340\244\250\340\245\215", "a\302\262b\302\275| |x_\303\251| |\340\244\250\340\245\215"},
    {"[\\w]+", "a\302\262b\302\275 x_\303\251 \340\244\250\340\245\215", "a|\302\262|b|\302\275 |x_\303\251| |\340\244\250\340\245\215"},
    {"\\b", "caf\303\251, \340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207", "caf\303\251|, |\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207"},
    {"\\p{L}+", "1\360\236\227\220\341\262\212\360\256\257\260a2", "1|\360\236\227\220\341\262\212\360\256\257\260a|2"},
    {"[[:punct:]]+", "a+b$c!d", "a|+|b|$|c|!|d"},
    {"\\p{Punct}+", "a+b$c!d", "a+b$c|!|d"},
    {"[[:^alpha:]]", "a\303\2511", "a\303\251|1"},
    {"\\R", "a\015\012b\342\200\250c", "a|\015\012|b|\342\200\250|c"},
    {"a++a|b", "aaab", "aaa|b"},
    {"(?i:'s|'k)", "it'S it'\305\277 it'K", "it|'S| it|'\305\277| it|'K"},
    {"[]a]", "b]a", "b|]|a"},
    {"(.)\\1", "abbccd", "a|bb|cc|d"},
    {"(?x) a b # c", "xaby", "x|ab|y"},
    {"\\p{^Lu}+", "abCD", "ab|CD"},
    {"[\\W\\d]+", "ab1 2c", "ab|1 2|c"},
    /* clang-format on */
};

static tok_regex *regex_of(const char *pattern)
{
    tok_regex *r = tok_regex_new(pattern, strlen(pattern));
    if (!r)
        print_error("%s\n", by_error_message());
    assert_non_null(r);
    return r;
}

/* Every stretch of text that is a match or lies between two, with "|" between them. */
static by_status split(const tok_regex *r, const char *text, size_t size, base_buf *out)
{
    tok_regex_scan scan;
    BY_TRY(tok_regex_begin(&scan, r, text, size));
    size_t done = 0, from = 0, start, end;
    int found;
    while (from <= size && (found = tok_regex_next(&scan, from, &start, &end)) > 0) {
        size_t cuts[2] = {start, end};
        for (int i = 0; i < 2; i++) {
            if (cuts[i] > done && cuts[i] < size) {
                base_buf_put(out, text + done, cuts[i] - done);
                base_buf_puts(out, "|");
            } else if (cuts[i] > done) {
                base_buf_put(out, text + done, cuts[i] - done);
            }
            done = cuts[i];
        }
        from = end;
        if (start == end)
            for (from++; from < size && ((uint8_t)text[from] & 0xc0) == 0x80;)
                from++;
    }
    tok_regex_end(&scan);
    if (from <= size && found < 0)
        return base_error_status();
    base_buf_put(out, text + done, size - done);
    return BY_OK;
}

static void test_splits(void **state)
{
    (void)state;
    for (int i = 0; i < BY_COUNT(splits); i++) {
        tok_regex *r = regex_of(splits[i].pattern);
        base_buf out = {0};
        assert_int_equal(split(r, splits[i].text, strlen(splits[i].text), &out), BY_OK);
        if (strcmp(out.data, splits[i].pieces) != 0)
            print_error("%s\n", splits[i].pattern);
        assert_string_equal(out.data, splits[i].pieces);
        base_buf_free(&out);
        tok_regex_free(r);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const patterns[][2] = {
        {"(?i:\303\237)", "above ASCII"},
        {"(?i:pass)", "two letters"},
        {"(?i:[\\p{L}])", "above ASCII"},
        {"\\X", "graphemes"},
        {"\\K", "\\K"},
        {"\\k<a>", "by name"},
        {"(?~a)", "\"(?\""},
        {"(*FAIL)", "callouts"},
        {"\\p{Foo}", "\\p{Foo}"},
        {"[[:foo:]]", "POSIX"},
        {"a{3,1}", "n > m"},
        {"[\\w-a]", "\"-\""},
        {"[a", "\"]\""},
        {"(a", "\")\""},
        {"a)", "closes nothing"},
        {"+a", "of nothing"},
        {"^*", "without width"},
        {"\\", "trailing"},
        {"\\xff", "\\x"},
        {"\\ud800", "\\u"},
    };
    for (int i = 0; i < BY_COUNT(patterns); i++) {
        tok_regex *r = tok_regex_new(patterns[i][0], strlen(patterns[i][0]));
        if (r)
            print_error("%s\n", patterns[i][0]);
        assert_null(r);
        assert_non_null(strstr(by_error_message(), patterns[i][1]));
    }
}

/* Words of 100,000 letters, in and outside ASCII, with and without a character in doubt. */
static void test_long_words(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        " ?[^(\\s|[.,!?\342\200\246\343\200\202])]+",
        "[\\p{Lu}\\p{Lo}&&[^\\p{Han}]]+|[\\p{Ll}&&[^x]]+",
        "(?:a|b|\303\251)+",
    };
    static const char *const letters[] = {"a", "\303\251"};
    for (int i = 0; i < BY_COUNT(patterns); i++)
        for (int k = 0; k < BY_COUNT(letters); k++)
            for (int doubt = 0; doubt < 2; doubt++) {
                tok_regex *r = regex_of(patterns[i]);
                base_buf text = {0}, out = {0};
                for (int n = 0; n < 100000; n++)
                    base_buf_puts(&text, letters[k]);
                size_t word = text.size;
                base_buf_puts(&text, doubt ? " \360\236\227\220" : " x");
                assert_int_equal(split(r, text.data, text.size, &out), BY_OK);
                assert_true(strcspn(out.data, "| ") == word);
                base_buf_free(&text);
                base_buf_free(&out);
                tok_regex_free(r);
            }
}

/* Expressions that backtrack without end are an error, and soon. */
static void test_bounded(void **state)
{
    (void)state;
    tok_regex *r = regex_of("(?:a|aa)+$");
    base_buf text = {0}, out = {0};
    for (int n = 0; n < 1000; n++)
        base_buf_puts(&text, "a");
    base_buf_puts(&text, "!");
    clock_t begin = clock();
    assert_int_equal(split(r, text.data, text.size, &out), BY_ERR_UNSUPPORTED);
    assert_non_null(strstr(by_error_message(), "takes too long"));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 20);
    base_buf_free(&text);
    base_buf_free(&out);
    tok_regex_free(r);
}

/* A property's set is what PCRE2 matches for its exact translation, character by character. */
static void test_exact(void **state)
{
    (void)state;
    static const char *const names[] = {"L",   "Lu",     "N",          "M",    "P",
                                        "Han", "Arabic", "Alphabetic", "Word", "Graph"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        char pattern[64], room[TOK_HINT_ROOM];
        snprintf(pattern, sizeof(pattern), "\\p{%s}", names[i]);
        tok_charset set = {0};
        assert_true(tok_charset_named(TOK_SET_ALONE, names[i], strlen(names[i]), &set, room));
        tok_regex *r = regex_of(pattern);
        for (uint32_t c = 0; c < 0x33000; c += c < 0x3000 || c > 0xa000 ? 1 : 7) {
            char bytes[4];
            if (c >= 0xd800 && c <= 0xdfff)
                continue;
            size_t n = (size_t)tok_utf8_encode(c, bytes), start, end;
            tok_regex_scan scan;
            assert_int_equal(tok_regex_begin(&scan, r, bytes, n), BY_OK);
            if ((tok_regex_next(&scan, 0, &start, &end) == 1) != tok_charset_has(&set, c))
                fail_msg("%s of U+%04X", pattern, (unsigned)c);
            tok_regex_end(&scan);
        }
        tok_regex_free(r);
        tok_charset_free(&set);
    }
}

/* CharDelimiterSplit and FixedLength: as many pieces as tokenizers 0.23.3 makes. */
static void test_plain_splitters(void **state)
{
    (void)state;
    static const struct {
        const char *splitter, *text;
        size_t pieces;
    } cases[] = {
        {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"-\"}", "-a--b\303\251-c", 3},
        {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\303\251\"}", "a\303\251b", 2},
        {"{\"type\":\"FixedLength\",\"length\":3}", "ab\303\251de\303\251f", 3},
        {"{\"type\":\"FixedLength\",\"length\":5}", "abc", 1},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        base_buf json = {0};
        base_buf_printf(
            &json,
            "{\"version\":\"1.0\",\"added_tokens\":[],\"pre_tokenizer\":%s,\"model\":{\"type\":\"WordLevel\","
            "\"vocab\":{\"?\":0},\"unk_token\":\"?\"}}",
            cases[i].splitter);
        by_tokenizer *t = tok_parse(json.data, json.size, "json");
        by_ids ids = {0};
        assert_non_null(t);
        assert_int_equal(tok_encode(t, cases[i].text, strlen(cases[i].text), &ids), BY_OK);
        assert_int_equal(ids.count, cases[i].pieces);
        tok_ids_free(&ids);
        by_tokenizer_free(t);
        base_buf_free(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_plain_splitters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
