/* regex_parse.c - Oniguruma's syntax (its own dialect, which `tokenizers` uses) written as PCRE2's. The two
 * read differently: ^ $           Oniguruma matches at every line; "\n" alone ends one
 *   (?m)          lets "." match "\n"
 *   a(?i)b|c      the option opens a group up to the end of the enclosing one: a(?i:b|c)
 *   a{2}+ a{2}?   repeat the repetition; neither is possessive or lazy
 *   [a[bc]&&d]    nested classes and intersections
 *   \h \u0041     a hexadecimal digit; a character by its number
 *   \w \b \s \p{} by Oniguruma's tables
 * PCRE2 compiles the result with PCRE2_MULTILINE and "\n" as its newline. An expression whose translation is
 * not certain is refused. */
#include <stdio.h>

#include "text/regex_parser.h"

#define MAX_REPEAT 65535u

static void put_char(by_buf *out, uint32_t c)
{
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain)
        by_buf_printf(out, "%c", (int)c);
    else
        by_buf_printf(out, "\\x{%x}", c);
}

/* ---- items ------------------------------------------------------------------------------------ */

/* Two literals that Oniguruma folds together under (?i): "ss" also matches one character there. */
static bool folds_together(uint32_t a, uint32_t b)
{
    static const char pairs[][3] = {"ss", "ff", "fi", "fl", "st"};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if ((a | 0x20) == (uint32_t)pairs[i][0] && (b | 0x20) == (uint32_t)pairs[i][1])
            return true;
    return false;
}

static bool put_literal(by_parser *s, uint32_t c, by_buf *out)
{
    if (s->fold && c >= 0x80) {
        char room[BY_HINT_ROOM];
        by_charset letters = {0};
        by_charset_cased(&letters);
        by_charset marks = {0};
        by_charset_named(BY_SET_PROPERTY, "M", 1, &marks, room);
        bool bad = by_charset_has(&letters, c) || by_charset_has(&marks, c);
        by_charset_free(&letters);
        by_charset_free(&marks);
        if (bad)
            return by_parser_refuse(
                s, "letters above ASCII under (?i), which Oniguruma folds by its own tables");
    }
    if (s->fold && folds_together(s->literal, c))
        return by_parser_refuse(s, "two letters under (?i) that Oniguruma also lets match one character");
    s->literal = c;
    put_char(out, c);
    return true;
}

/* \b and \B: by the characters of \w on both sides. */
static void put_boundary(by_parser *s, bool inside, by_buf *out)
{
    by_charclass word = {0};
    by_buf w = {0};
    by_charclass_add_named(&word, s->natives, BY_SET_ALONE, "word", 4, false);
    by_charclass_write(&word, false, s->exact, &w);
    by_charset_unite(s->doubt, &word.doubt);
    by_buf_printf(out, inside ? "(?:(?<=%s)(?=%s)|(?<!%s)(?!%s))" : "(?:(?<=%s)(?!%s)|(?<!%s)(?=%s))",
                  w.data ? w.data : "", w.data ? w.data : "", w.data ? w.data : "", w.data ? w.data : "");
    out->failed = out->failed || w.failed;
    by_charclass_free(&word);
    by_buf_free(&w);
}

typedef enum item_kind { ITEM_ONE, ITEM_ANCHOR, ITEM_REST } item_kind;

/* After "\". */
static bool read_escape(by_parser *s, by_buf *out, item_kind *kind)
{
    by_charclass set = {0};
    bool negate = false;
    int found = by_parser_set(s, &negate, &set);
    bool good = found > 0 && by_parser_put_class(s, &set, negate, out);
    by_charclass_free(&set);
    if (found != 0)
        return good;
    if (s->p >= s->end)
        return by_parser_refuse(s, "it ends with \"\\\"");
    char letter = *s->p++;
    switch (letter) {
    case 'b':
    case 'B':
        *kind = ITEM_ANCHOR;
        put_boundary(s, letter == 'B', out);
        return true;
    case 'A':
    case 'Z':
    case 'z':
        *kind = ITEM_ANCHOR;
        by_buf_printf(out, "\\%c", letter);
        return true;
    case 'R':
        by_buf_puts(out, "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])");
        return true;
    case 'N':
        by_buf_puts(out, "[^\\n]");
        return true;
    case 'O':
        by_buf_puts(out, "(?s:.)");
        return true;
    case 'X':
    case 'y':
    case 'Y':
        return by_parser_refuse(s, "\\X, \\y and \\Y (graphemes) are not supported");
    case 'G':
    case 'K':
        return by_parser_refuse(s, "\\G and \\K are not supported");
    case 'k':
    case 'g':
        return by_parser_refuse(s, "references by name and calls of groups are not supported");
    default:
        break;
    }
    if (letter >= '1' && letter <= '9' && letter - '0' <= s->groups && !s->named && !s->fold &&
        !(s->p < s->end && *s->p >= '0' && *s->p <= '9')) {
        by_buf_printf(out, "(?:\\%c)", letter);
        return true;
    }
    uint32_t c;
    return by_parser_escaped(s, letter, &c) && put_literal(s, c, out);
}

static bool read_alternatives(by_parser *s, by_buf *out);

/* The contents of a group whose opening has been written, and its end. */
static bool read_group(by_parser *s, by_buf *out)
{
    if (!read_alternatives(s, out))
        return false;
    by_buf_puts(out, ")");
    return by_parser_take(s, ")") || by_parser_refuse(s, "a group without \")\"");
}

/* After "(?", at the letters of options. */
static bool read_options(by_parser *s, by_buf *out, item_kind *kind)
{
    bool on = true, fold = s->fold, dotall = s->dotall, extended = s->extended;
    for (; s->p < s->end && *s->p != ')' && *s->p != ':'; s->p++) {
        if (*s->p == '-')
            on = false;
        else if (*s->p == 'i')
            fold = on;
        else if (*s->p == 'm')
            dotall = on;
        else if (*s->p == 'x')
            extended = on;
        else
            return by_parser_refuse(s, "a group that begins with \"(?\" and is not supported");
    }
    if (s->p >= s->end)
        return by_parser_refuse(s, "a group without \")\"");
    bool old_fold = s->fold, old_dotall = s->dotall, old_extended = s->extended;
    s->fold = fold;
    s->dotall = dotall;
    s->extended = extended;
    by_buf_puts(out, fold == old_fold ? "(?:" : fold ? "(?i:" : "(?-i:");
    bool good;
    if (*s->p++ == ':') {
        good = read_group(s, out);
    } else { /* up to the end of the enclosing group */
        *kind = ITEM_REST;
        good = read_alternatives(s, out);
        by_buf_puts(out, ")");
    }
    s->fold = old_fold;
    s->dotall = old_dotall;
    s->extended = old_extended;
    return good;
}

/* After "(". */
static bool read_paren(by_parser *s, by_buf *out, item_kind *kind)
{
    static const struct {
        const char *open;
        bool anchor;
    } same[] = {{"?:", false}, {"?>", false}, {"?=", true}, {"?!", true}, {"?<=", true}, {"?<!", true}};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        if (!by_parser_take(s, same[i].open))
            continue;
        *kind = same[i].anchor ? ITEM_ANCHOR : ITEM_ONE;
        by_buf_printf(out, "(%s", same[i].open);
        return read_group(s, out);
    }
    if (by_parser_peek(s, "*"))
        return by_parser_refuse(s, "callouts (*...) are not supported");
    if (by_parser_take(s, "?<") || by_parser_take(s, "?'")) {
        char close = s->p[-1] == '<' ? '>' : '\'';
        const char *end = memchr(s->p, close, (size_t)(s->end - s->p));
        if (!end || end == s->p)
            return by_parser_refuse(s, "a group whose name has no end");
        s->p = end + 1;
        s->named = true;
        by_buf_puts(out, "(?:");
        return read_group(s, out);
    }
    if (by_parser_take(s, "?"))
        return read_options(s, out, kind);
    s->groups++;
    by_buf_puts(out, "(");
    return read_group(s, out);
}

static bool read_item(by_parser *s, by_buf *out, item_kind *kind)
{
    uint32_t c, literal = s->literal;
    *kind = ITEM_ONE;
    s->literal = 0;
    if (by_parser_take(s, "\\")) {
        s->literal = literal;
        const char *before = s->p;
        bool good = read_escape(s, out, kind);
        if (s->literal == literal && s->p != before) /* it was no literal */
            s->literal = 0;
        return good;
    }
    if (by_parser_take(s, "(")) {
        bool good = read_paren(s, out, kind);
        s->literal = 0;
        return good;
    }
    if (by_parser_take(s, "[")) {
        bool negate = by_parser_take(s, "^");
        by_charclass class = {0};
        bool good = by_parser_class(s, &class) && by_parser_put_class(s, &class, negate, out);
        by_charclass_free(&class);
        return good;
    }
    if (by_parser_take(s, ".")) {
        by_buf_puts(out, s->dotall ? "(?s:.)" : "[^\\n]");
        return true;
    }
    if (by_parser_take(s, "^") || by_parser_take(s, "$")) {
        *kind = ITEM_ANCHOR;
        by_buf_printf(out, "%c", s->p[-1]);
        return true;
    }
    s->literal = literal;
    return by_parser_next(s, &c) && put_literal(s, c, out);
}

/* ---- repetition ------------------------------------------------------------------------------- */

/* "{2}", "{2,}", "{,3}" or "{2,3}": 1, 0 when the "{" is a character, -1 after by_fail. */
static int read_interval(by_parser *s, by_buf *out, bool *fixed)
{
    const char *p = s->p + 1;
    unsigned low = 0, high = 0;
    bool has_low = false, has_high = false, comma = false;
    for (; p < s->end && *p >= '0' && *p <= '9'; p++, has_low = true)
        low = BY_MIN(low * 10 + (unsigned)(*p - '0'), MAX_REPEAT + 1);
    if (p < s->end && *p == ',') {
        comma = true;
        for (p++; p < s->end && *p >= '0' && *p <= '9'; p++, has_high = true)
            high = BY_MIN(high * 10 + (unsigned)(*p - '0'), MAX_REPEAT + 1);
    }
    if (p >= s->end || *p != '}' || (!has_low && !has_high))
        return 0;
    if (low > MAX_REPEAT || high > MAX_REPEAT || (has_high && low > high)) {
        by_parser_refuse(s, "a repetition {n,m} with n > m or above 65535");
        return -1;
    }
    s->p = p + 1;
    *fixed = !comma;
    if (!comma)
        by_buf_printf(out, "{%u}", low);
    else if (has_high)
        by_buf_printf(out, "{%u,%u}", low, high);
    else
        by_buf_printf(out, "{%u,}", low);
    return 1;
}

/* One quantifier: 1, 0 when there is none, -1 after by_fail. */
static int read_quantifier(by_parser *s, by_buf *out)
{
    bool fixed = false, interval = false;
    if (by_parser_take(s, "*") || by_parser_take(s, "+") || by_parser_take(s, "?")) {
        by_buf_printf(out, "%c", s->p[-1]);
    } else if (by_parser_peek(s, "{")) {
        int found = read_interval(s, out, &fixed);
        if (found <= 0)
            return found;
        interval = true;
    } else {
        return 0;
    }
    if (!fixed && by_parser_take(s, "?"))
        by_buf_puts(out, "?");
    else if (!interval && by_parser_take(s, "+"))
        by_buf_puts(out, "+");
    return 1;
}

/* Is a quantifier next? */
static bool begins_repeat(const by_parser *s)
{
    by_parser ahead = *s;
    by_buf out = {0};
    int found = read_quantifier(&ahead, &out);
    by_buf_free(&out);
    return found != 0;
}

/* Spaces and comments that mean nothing. */
static bool skip_blank(by_parser *s)
{
    for (;;) {
        if (by_parser_take(s, "(?#")) {
            const char *close = memchr(s->p, ')', (size_t)(s->end - s->p));
            if (!close)
                return by_parser_refuse(s, "a comment without \")\"");
            s->p = close + 1;
        } else if (s->extended && s->p < s->end && strchr(" \t\n\r\f\v", *s->p) && *s->p) {
            s->p++;
        } else if (s->extended && by_parser_peek(s, "#")) {
            while (s->p < s->end && *s->p != '\n')
                s->p++;
        } else {
            return true;
        }
    }
}

/* An item with its quantifiers, each of which repeats everything before it. */
static bool read_repeated(by_parser *s, by_buf *out, item_kind *kind)
{
    by_buf item = {0}, repeat = {0};
    bool good = read_item(s, &item, kind);
    for (int count = 0; good && *kind != ITEM_REST; count++) {
        good = skip_blank(s);
        uint32_t literal = s->literal;
        int found = good ? read_quantifier(s, &repeat) : 0;
        if (found <= 0) {
            good = good && found == 0;
            break;
        }
        s->literal = 0;
        if (*kind == ITEM_ANCHOR)
            good = by_parser_refuse(s, "a repetition of something that has no width");
        else if (s->fold && folds_together(literal, literal) && repeat.data[0] == '{')
            good = by_parser_refuse(s, "two letters under (?i) that Oniguruma also lets match one character");
        by_buf wrapped = {0};
        by_buf_printf(&wrapped, count ? "(?:%s)%s" : "%s%s", item.data ? item.data : "",
                      repeat.data ? repeat.data : "");
        wrapped.failed = wrapped.failed || item.failed || repeat.failed;
        by_buf_free(&item);
        by_buf_free(&repeat);
        item = wrapped;
    }
    by_buf_put(out, item.data ? item.data : "", item.size);
    out->failed = out->failed || item.failed || repeat.failed;
    by_buf_free(&item);
    by_buf_free(&repeat);
    return good;
}

/* Up to the end or a ")", which stays. */
static bool read_alternatives(by_parser *s, by_buf *out)
{
    if (++s->depth >= BY_PARSER_DEPTH)
        return by_parser_refuse(s, "it is nested too deeply");
    s->literal = 0;
    bool good = skip_blank(s);
    while (good && s->p < s->end && *s->p != ')') {
        item_kind kind = ITEM_ONE;
        if (by_parser_take(s, "|")) {
            s->literal = 0;
            by_buf_puts(out, "|");
        } else if (begins_repeat(s)) {
            good = by_parser_refuse(s, "a repetition of nothing");
        } else {
            good = read_repeated(s, out, &kind);
        }
        good = good && skip_blank(s);
    }
    s->depth--;
    return good;
}

by_status by_regex_translate(const char *pattern, size_t size, bool exact, by_natives *natives, by_buf *out,
                             by_charset *doubt)
{
    by_parser s = {.p = pattern,
                   .start = pattern,
                   .end = pattern + size,
                   .size = size,
                   .natives = natives,
                   .exact = exact,
                   .doubt = doubt};
    bool good = read_alternatives(&s, out);
    if (good && s.p < s.end)
        good = by_parser_refuse(&s, "a \")\" that closes nothing");
    if (good && (out->failed || doubt->failed))
        return by_fail(BY_ERR_MEMORY, "out of memory reading a regular expression");
    return good ? BY_OK : by_error_status();
}
