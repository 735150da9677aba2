/* regex_items.c - characters, escapes and classes of Oniguruma syntax. */
#include "text/regex_parser.h"
#include "text/utf8.h"

by_status tok_regex_refuse(const char *pattern, size_t size, const char *why)
{
    size_t shown = BY_MIN(size, 200);
    while (shown < size && shown > 0 && ((uint8_t)pattern[shown] & 0xc0) == 0x80)
        shown--;
    return base_fail(BY_ERR_UNSUPPORTED, "regular expression \"%.*s\": %s", (int)shown, pattern, why);
}

bool tok_parser_refuse(const tok_parser *s, const char *why)
{
    tok_regex_refuse(s->start, s->size, why);
    return false;
}

bool tok_parser_peek(const tok_parser *s, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

bool tok_parser_take(tok_parser *s, const char *text)
{
    bool there = tok_parser_peek(s, text);
    s->p += there ? strlen(text) : 0;
    return there;
}

bool tok_parser_next(tok_parser *s, uint32_t *c)
{
    int n = s->p < s->end ? tok_utf8_decode((const uint8_t *)s->p, (size_t)(s->end - s->p), c) : 0;
    s->p += n;
    return n > 0 || tok_parser_refuse(s, "invalid UTF-8 or unexpected end");
}

/* ---- characters by escapes -------------------------------------------------------------------- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* Reads up to `most` hexadecimal digits. Returns their number. */
static int read_hex(tok_parser *s, int most, uint32_t *value)
{
    int n = 0;
    for (*value = 0; n < most && s->p < s->end && hex_value(*s->p) >= 0; n++)
        *value = *value * 16 + (uint32_t)hex_value(*s->p++);
    return n;
}

static bool is_scalar(uint32_t c)
{
    return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
}

/* After "\x" or "\u". */
static bool read_number(tok_parser *s, bool unicode, uint32_t *c)
{
    bool good;
    if (unicode)
        good = read_hex(s, 4, c) == 4;
    else if (tok_parser_take(s, "{"))
        good = read_hex(s, 7, c) > 0 && tok_parser_take(s, "}");
    else
        good = read_hex(s, 2, c) > 0 && *c < 0x80;
    return (good && is_scalar(*c)) || tok_parser_refuse(s, "a \\x or \\u that is not a valid character");
}

/* Returns the control character for a letter, or 0. */
static uint32_t control(char c)
{
    static const char letters[] = "tnrfvae", codes[] = "\t\n\r\f\v\a\x1b";
    const char *found = c ? strchr(letters, c) : NULL;
    return found ? (uint32_t)codes[found - letters] : 0;
}

bool tok_parser_escaped(tok_parser *s, char letter, uint32_t *c)
{
    if (control(letter)) {
        *c = control(letter);
        return true;
    }
    if (letter == 'x' || letter == 'u')
        return read_number(s, letter == 'u', c);
    if (letter == '0') {
        *c = 0;
        for (int n = 0; n < 2 && s->p < s->end && *s->p >= '0' && *s->p <= '7'; n++)
            *c = *c * 8 + (uint32_t)(*s->p++ - '0');
        return true;
    }
    if ((letter >= '1' && letter <= '9') || strchr("cCMo", letter))
        return tok_parser_refuse(s, "octal, control and meta escapes are not supported");
    s->p--; /* any other character represents itself */
    return tok_parser_next(s, c);
}

/* ---- sets ------------------------------------------------------------------------------------- */

/* Adds a set by name. Outside of a class, *alone is set if its complement is meant; inside, it is NULL. */
static bool add_set(tok_parser *s, tok_set_kind kind, const char *name, size_t size, bool negate, bool *alone,
                    tok_charclass *c)
{
    if (alone)
        *alone = negate;
    return tok_charclass_add_named(c, s->natives, kind, name, size, negate && !alone);
}

/* Called after "\p" or "\P"; "{" is next. */
static bool read_property(tok_parser *s, bool negate, bool *alone, tok_charclass *c)
{
    s->p++;
    bool other = tok_parser_take(s, "^");
    const char *close = memchr(s->p, '}', (size_t)(s->end - s->p));
    if (!close)
        return tok_parser_refuse(s, "a property without \"}\"");
    size_t size = (size_t)(close - s->p);
    if (!add_set(s, alone ? TOK_SET_ALONE : TOK_SET_PROPERTY, s->p, size, negate != other, alone, c)) {
        char why[120];
        base_format(why, sizeof(why), "unknown property \\p{%.*s}", (int)BY_MIN(size, 60), s->p);
        return tok_parser_refuse(s, why);
    }
    s->p = close + 1;
    return true;
}

int tok_parser_set(tok_parser *s, bool *alone, tok_charclass *c)
{
    static const char letters[] = "wdsh";
    static const char *const names[] = {"word", "digit", "space", "xdigit"};
    char letter = s->p < s->end ? *s->p : '\0', small = (char)(letter | 0x20);
    const char *found = letter ? strchr(letters, small) : NULL;
    if (found) {
        const char *name = names[found - letters];
        add_set(s, alone ? TOK_SET_ALONE : TOK_SET_POSIX, name, strlen(name), letter != small, alone, c);
        s->p++;
        return 1;
    }
    if (small != 'p' || s->p + 1 >= s->end || s->p[1] != '{')
        return 0;
    s->p++;
    return read_property(s, letter == 'P', alone, c) ? 1 : -1;
}

/* Reads "[:name:]"; "[" is next. Returns 1, 0 if it is not one, or -1 after base_fail. */
static int read_posix(tok_parser *s, tok_charclass *c)
{
    if (!tok_parser_peek(s, "[:"))
        return 0;
    const char *name = s->p + 2;
    bool negate = name < s->end && *name == '^';
    name += negate;
    const char *close = name;
    while (close < s->end && ((*close >= 'a' && *close <= 'z') || (*close >= 'A' && *close <= 'Z')))
        close++;
    if (close + 1 >= s->end || close[0] != ':' || close[1] != ']')
        return 0;
    if (!tok_charclass_add_named(c, s->natives, TOK_SET_POSIX, name, (size_t)(close - name), negate))
        return tok_parser_refuse(s, "a POSIX bracket with an unknown name") ? 1 : -1;
    s->p = close + 2;
    return 1;
}

/* Reads one character of a class, possibly escaped. */
static bool class_char(tok_parser *s, uint32_t *c)
{
    if (!tok_parser_take(s, "\\"))
        return tok_parser_next(s, c);
    if (s->p >= s->end)
        return tok_parser_refuse(s, "trailing \"\\\"");
    char letter = *s->p++;
    if (letter == 'b') {
        *c = '\b';
        return true;
    }
    return tok_parser_escaped(s, letter, c);
}

/* Reads a set, a nested class, a character or a range. */
static bool class_item(tok_parser *s, tok_charclass *c)
{
    int found = read_posix(s, c);
    if (found != 0)
        return found > 0;
    if (tok_parser_take(s, "[")) {
        bool negate = tok_parser_take(s, "^");
        tok_charclass inner = {0};
        bool good = tok_parser_class(s, &inner);
        tok_charclass_unite(c, &inner, negate);
        return good;
    }
    if (tok_parser_peek(s, "\\")) {
        s->p++;
        found = tok_parser_set(s, NULL, c);
        if (found > 0 && tok_parser_peek(s, "-") && !tok_parser_peek(s, "-]"))
            return tok_parser_refuse(s, "a \"-\" after a set in a class");
        if (found != 0)
            return found > 0;
        s->p--;
    }
    uint32_t first, last;
    if (!class_char(s, &first))
        return false;
    last = first;
    if (tok_parser_peek(s, "-") && !tok_parser_peek(s, "-]")) {
        s->p++;
        tok_charclass set = {0};
        bool bad = tok_parser_peek(s, "[") || tok_parser_peek(s, "&&");
        if (tok_parser_peek(s, "\\")) {
            s->p++;
            bad = tok_parser_set(s, NULL, &set) != 0;
            s->p--;
        }
        tok_charclass_free(&set);
        if (bad || !class_char(s, &last) || first > last ||
            (tok_parser_peek(s, "-") && !tok_parser_peek(s, "-]")))
            return tok_parser_refuse(s, "an ambiguous range in a class");
    }
    tok_charclass_add(c, first, last);
    return true;
}

bool tok_parser_class(tok_parser *s, tok_charclass *out)
{
    tok_charclass part = {0};
    bool good = ++s->depth < TOK_PARSER_DEPTH || tok_parser_refuse(s, "nested too deeply"), joined = false;
    if (good && tok_parser_peek(s, "]")) { /* a "]" that comes first is a character if another one follows */
        good = memchr(s->p + 1, ']', (size_t)(s->end - s->p - 1)) || tok_parser_refuse(s, "an empty class");
        tok_charclass_add(&part, ']', ']');
        s->p++;
    }
    while (good && !tok_parser_take(s, "]")) {
        if (s->p >= s->end) {
            good = tok_parser_refuse(s, "a class without \"]\"");
        } else if (tok_parser_take(s, "&&")) {
            if (joined)
                tok_charclass_intersect(out, &part);
            else
                tok_charclass_unite(out, &part, false);
            joined = true;
        } else {
            good = class_item(s, &part);
        }
    }
    if (joined)
        tok_charclass_intersect(out, &part);
    else
        tok_charclass_unite(out, &part, false);
    s->depth--;
    return good;
}

bool tok_parser_put_class(tok_parser *s, tok_charclass *c, bool negate, base_buf *out)
{
    if (c->exact.failed) {
        base_fail(BY_ERR_MEMORY, "out of memory while reading a regular expression");
        return false;
    }
    if (s->fold && !tok_charclass_fold(c))
        return tok_parser_refuse(
            s, "a class under (?i) with letters above ASCII, which Oniguruma can match to several "
               "characters");
    base_buf_puts(out, s->fold ? "(?-i:" : "");
    tok_charclass_write(c, negate, s->exact, out);
    tok_charset_unite(s->doubt, &c->doubt);
    base_buf_puts(out, s->fold ? ")" : "");
    return true;
}
