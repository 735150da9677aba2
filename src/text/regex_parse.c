/* regex_parse.c - translates Oniguruma syntax (the dialect that `tokenizers` uses) to PCRE2. The differences:
 *
 *   ^ $           Oniguruma matches at every line; "\n" alone ends one
 *   (?m)          lets "." match "\n"
 *   a(?i)b|c      the option opens a group up to the end of the enclosing one: a(?i:b|c)
 *   a{2}+ a{2}?   repeat the repetition; neither is possessive or lazy
 *   [a[bc]&&d]    nested classes and intersections
 *   \h \u0041     a hexadecimal digit; a character by its number
 *   \w \b \s \p{} by Oniguruma's tables
 *
 * PCRE2 compiles the result with PCRE2_MULTILINE and "\n" as its newline. An expression whose translation is
 * not certain is rejected. */
#include <stdio.h>

#include "text/regex_parser.h"

#define MAX_REPEAT 65535u

static void put_char(base_buf *out, uint32_t c)
{
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain)
        base_buf_printf(out, "%c", (int)c);
    else
        base_buf_printf(out, "\\x{%x}", c);
}

/* ---- items ------------------------------------------------------------------------------------ */

/* Two literals that Oniguruma folds together under (?i): there, "ss" also matches one character. */
static bool folds_together(uint32_t a, uint32_t b)
{
    static const char pairs[][3] = {"ss", "ff", "fi", "fl", "st"};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if ((a | 0x20) == (uint32_t)pairs[i][0] && (b | 0x20) == (uint32_t)pairs[i][1])
            return true;
    return false;
}

static bool put_literal(tok_parser *s, uint32_t c, base_buf *out)
{
    if (s->fold && c >= 0x80) {
        char room[TOK_HINT_ROOM];
        tok_charset letters = {0};
        tok_charset_cased(&letters);
        tok_charset marks = {0};
        tok_charset_named(TOK_SET_PROPERTY, "M", 1, &marks, room);
        bool bad = tok_charset_has(&letters, c) || tok_charset_has(&marks, c);
        tok_charset_free(&letters);
        tok_charset_free(&marks);
        if (bad)
            return tok_parser_refuse(
                s, "letters above ASCII under (?i), which Oniguruma folds by its own tables");
    }
    if (s->fold && folds_together(s->literal, c))
        return tok_parser_refuse(s, "two letters under (?i) that Oniguruma can also match to one character");
    s->literal = c;
    put_char(out, c);
    return true;
}

/* \b and \B: defined by the characters of \w on both sides. */
static void put_boundary(tok_parser *s, bool inside, base_buf *out)
{
    tok_charclass word = {0};
    base_buf w = {0};
    tok_charclass_add_named(&word, s->natives, TOK_SET_ALONE, "word", 4, false);
    tok_charclass_write(&word, false, s->exact, &w);
    tok_charset_unite(s->doubt, &word.doubt);
    base_buf_printf(out, inside ? "(?:(?<=%s)(?=%s)|(?<!%s)(?!%s))" : "(?:(?<=%s)(?!%s)|(?<!%s)(?=%s))",
                    w.data ? w.data : "", w.data ? w.data : "", w.data ? w.data : "", w.data ? w.data : "");
    out->failed = out->failed || w.failed;
    tok_charclass_free(&word);
    base_buf_free(&w);
}

typedef enum item_kind { ITEM_ONE, ITEM_ANCHOR, ITEM_REST } item_kind;

/* After "\". */
static bool read_escape(tok_parser *s, base_buf *out, item_kind *kind)
{
    tok_charclass set = {0};
    bool negate = false;
    int found = tok_parser_set(s, &negate, &set);
    bool good = found > 0 && tok_parser_put_class(s, &set, negate, out);
    tok_charclass_free(&set);
    if (found != 0)
        return good;
    if (s->p >= s->end)
        return tok_parser_refuse(s, "trailing \"\\\"");
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
        base_buf_printf(out, "\\%c", letter);
        return true;
    case 'R':
        base_buf_puts(out, "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])");
        return true;
    case 'N':
        base_buf_puts(out, "[^\\n]");
        return true;
    case 'O':
        base_buf_puts(out, "(?s:.)");
        return true;
    case 'X':
    case 'y':
    case 'Y':
        return tok_parser_refuse(s, "\\X, \\y and \\Y (graphemes) are not supported");
    case 'G':
    case 'K':
        return tok_parser_refuse(s, "\\G and \\K are not supported");
    case 'k':
    case 'g':
        return tok_parser_refuse(s, "references by name and calls of groups are not supported");
    default:
        break;
    }
    if (letter >= '1' && letter <= '9' && letter - '0' <= s->groups && !s->named && !s->fold &&
        !(s->p < s->end && *s->p >= '0' && *s->p <= '9')) {
        base_buf_printf(out, "(?:\\%c)", letter);
        return true;
    }
    uint32_t c;
    return tok_parser_escaped(s, letter, &c) && put_literal(s, c, out);
}

static bool read_alternatives(tok_parser *s, base_buf *out);

/* Reads the contents and the end of a group whose opening has been written. */
static bool read_group(tok_parser *s, base_buf *out)
{
    if (!read_alternatives(s, out))
        return false;
    base_buf_puts(out, ")");
    return tok_parser_take(s, ")") || tok_parser_refuse(s, "a group without \")\"");
}

/* Called after "(?", at the letters of options. */
static bool read_options(tok_parser *s, base_buf *out, item_kind *kind)
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
            return tok_parser_refuse(s, "an unsupported group that starts with \"(?\"");
    }
    if (s->p >= s->end)
        return tok_parser_refuse(s, "a group without \")\"");
    bool old_fold = s->fold, old_dotall = s->dotall, old_extended = s->extended;
    s->fold = fold;
    s->dotall = dotall;
    s->extended = extended;
    base_buf_puts(out, fold == old_fold ? "(?:" : fold ? "(?i:" : "(?-i:");
    bool good;
    if (*s->p++ == ':') {
        good = read_group(s, out);
    } else { /* up to the end of the enclosing group */
        *kind = ITEM_REST;
        good = read_alternatives(s, out);
        base_buf_puts(out, ")");
    }
    s->fold = old_fold;
    s->dotall = old_dotall;
    s->extended = old_extended;
    return good;
}

/* After "(". */
static bool read_paren(tok_parser *s, base_buf *out, item_kind *kind)
{
    static const struct {
        const char *open;
        bool anchor;
    } same[] = {{"?:", false}, {"?>", false}, {"?=", true}, {"?!", true}, {"?<=", true}, {"?<!", true}};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        if (!tok_parser_take(s, same[i].open))
            continue;
        *kind = same[i].anchor ? ITEM_ANCHOR : ITEM_ONE;
        base_buf_printf(out, "(%s", same[i].open);
        return read_group(s, out);
    }
    if (tok_parser_peek(s, "*"))
        return tok_parser_refuse(s, "callouts (*...) are not supported");
    if (tok_parser_take(s, "?<") || tok_parser_take(s, "?'")) {
        char close = s->p[-1] == '<' ? '>' : '\'';
        const char *end = memchr(s->p, close, (size_t)(s->end - s->p));
        if (!end || end == s->p)
            return tok_parser_refuse(s, "a group with an unterminated name");
        s->p = end + 1;
        s->named = true;
        base_buf_puts(out, "(?:");
        return read_group(s, out);
    }
    if (tok_parser_take(s, "?"))
        return read_options(s, out, kind);
    s->groups++;
    base_buf_puts(out, "(");
    return read_group(s, out);
}

static bool read_item(tok_parser *s, base_buf *out, item_kind *kind)
{
    uint32_t c, literal = s->literal;
    *kind = ITEM_ONE;
    s->literal = 0;
    if (tok_parser_take(s, "\\")) {
        s->literal = literal;
        const char *before = s->p;
        bool good = read_escape(s, out, kind);
        if (s->literal == literal && s->p != before) /* it was not a literal */
            s->literal = 0;
        return good;
    }
    if (tok_parser_take(s, "(")) {
        bool good = read_paren(s, out, kind);
        s->literal = 0;
        return good;
    }
    if (tok_parser_take(s, "[")) {
        bool negate = tok_parser_take(s, "^");
        tok_charclass class = {0};
        bool good = tok_parser_class(s, &class) && tok_parser_put_class(s, &class, negate, out);
        tok_charclass_free(&class);
        return good;
    }
    if (tok_parser_take(s, ".")) {
        base_buf_puts(out, s->dotall ? "(?s:.)" : "[^\\n]");
        return true;
    }
    if (tok_parser_take(s, "^") || tok_parser_take(s, "$")) {
        *kind = ITEM_ANCHOR;
        base_buf_printf(out, "%c", s->p[-1]);
        return true;
    }
    s->literal = literal;
    return tok_parser_next(s, &c) && put_literal(s, c, out);
}

/* ---- repetition ------------------------------------------------------------------------------- */

/* Reads "{2}", "{2,}", "{,3}" or "{2,3}". Returns 1, 0 if the "{" is a literal, or -1 after base_fail. */
static int read_interval(tok_parser *s, base_buf *out, bool *fixed)
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
        tok_parser_refuse(s, "a repetition {n,m} with n > m or above 65535");
        return -1;
    }
    s->p = p + 1;
    *fixed = !comma;
    if (!comma)
        base_buf_printf(out, "{%u}", low);
    else if (has_high)
        base_buf_printf(out, "{%u,%u}", low, high);
    else
        base_buf_printf(out, "{%u,}", low);
    return 1;
}

/* Reads one quantifier. Returns 1, 0 if there is none, or -1 after base_fail. */
static int read_quantifier(tok_parser *s, base_buf *out)
{
    bool fixed = false, interval = false;
    if (tok_parser_take(s, "*") || tok_parser_take(s, "+") || tok_parser_take(s, "?")) {
        base_buf_printf(out, "%c", s->p[-1]);
    } else if (tok_parser_peek(s, "{")) {
        int found = read_interval(s, out, &fixed);
        if (found <= 0)
            return found;
        interval = true;
    } else {
        return 0;
    }
    if (!fixed && tok_parser_take(s, "?"))
        base_buf_puts(out, "?");
    else if (!interval && tok_parser_take(s, "+"))
        base_buf_puts(out, "+");
    return 1;
}

/* Returns true if a quantifier is next. */
static bool begins_repeat(const tok_parser *s)
{
    tok_parser ahead = *s;
    base_buf out = {0};
    int found = read_quantifier(&ahead, &out);
    base_buf_free(&out);
    return found != 0;
}

/* Skips spaces and comments. */
static bool skip_blank(tok_parser *s)
{
    for (;;) {
        if (tok_parser_take(s, "(?#")) {
            const char *close = memchr(s->p, ')', (size_t)(s->end - s->p));
            if (!close)
                return tok_parser_refuse(s, "a comment without \")\"");
            s->p = close + 1;
        } else if (s->extended && s->p < s->end && strchr(" \t\n\r\f\v", *s->p) && *s->p) {
            s->p++;
        } else if (s->extended && tok_parser_peek(s, "#")) {
            while (s->p < s->end && *s->p != '\n')
                s->p++;
        } else {
            return true;
        }
    }
}

/* Reads an item with its quantifiers, each of which repeats everything before it. */
static bool read_repeated(tok_parser *s, base_buf *out, item_kind *kind)
{
    base_buf item = {0}, repeat = {0};
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
            good = tok_parser_refuse(s, "a repetition of something without width");
        else if (s->fold && folds_together(literal, literal) && repeat.data[0] == '{')
            good =
                tok_parser_refuse(s, "two letters under (?i) that Oniguruma can also match to one character");
        base_buf wrapped = {0};
        base_buf_printf(&wrapped, count ? "(?:%s)%s" : "%s%s", item.data ? item.data : "",
                        repeat.data ? repeat.data : "");
        wrapped.failed = wrapped.failed || item.failed || repeat.failed;
        base_buf_free(&item);
        base_buf_free(&repeat);
        item = wrapped;
    }
    base_buf_put(out, item.data ? item.data : "", item.size);
    out->failed = out->failed || item.failed || repeat.failed;
    base_buf_free(&item);
    base_buf_free(&repeat);
    return good;
}

/* Reads up to the end or a ")", which is not consumed. */
static bool read_alternatives(tok_parser *s, base_buf *out)
{
    if (++s->depth >= TOK_PARSER_DEPTH)
        return tok_parser_refuse(s, "nested too deeply");
    s->literal = 0;
    bool good = skip_blank(s);
    while (good && s->p < s->end && *s->p != ')') {
        item_kind kind = ITEM_ONE;
        if (tok_parser_take(s, "|")) {
            s->literal = 0;
            base_buf_puts(out, "|");
        } else if (begins_repeat(s)) {
            good = tok_parser_refuse(s, "a repetition of nothing");
        } else {
            good = read_repeated(s, out, &kind);
        }
        good = good && skip_blank(s);
    }
    s->depth--;
    return good;
}

by_status tok_regex_translate(const char *pattern, size_t size, bool exact, tok_natives *natives,
                              base_buf *out, tok_charset *doubt)
{
    tok_parser s = {.p = pattern,
                    .start = pattern,
                    .end = pattern + size,
                    .size = size,
                    .natives = natives,
                    .exact = exact,
                    .doubt = doubt};
    bool good = read_alternatives(&s, out);
    if (good && s.p < s.end)
        good = tok_parser_refuse(&s, "a \")\" that closes nothing");
    if (good && (out->failed || doubt->failed))
        return base_fail(BY_ERR_MEMORY, "out of memory while reading a regular expression");
    return good ? BY_OK : base_error_status();
}
