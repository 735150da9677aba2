/* jinja_lexer.c - splits a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks: removes
 * one newline after a block or comment, and blanks before one at the start of its line. */
#include <errno.h>
#include <stdlib.h>

#include "chat/jinja_node.h"
#include "text/unicode.h"

typedef struct lexer {
    chat_parser *p;
    const char *s;
    size_t size, at;
    bool line_starting; /* the last tag ended with a newline */
    char open[CHAT_PARSE_DEEPEST];
    int opened;
} lexer;

static by_status fail(const lexer *l, size_t at, const char *problem)
{
    return chat_fail_at(l->p->tree, (uint32_t)at, BY_ERR_FORMAT, "%s", problem);
}

static bool starts(const lexer *l, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return l->size - at >= n && memcmp(l->s + at, text, n) == 0;
}

static by_status add(lexer *l, int type, size_t at, chat_value value)
{
    chat_parser *p = l->p;
    if (p->count == p->capacity) {
        const size_t room = p->capacity ? p->capacity * 2 : 256;
        chat_token *tokens = chat_alloc(&p->tree->heap, room, sizeof *tokens);
        if (!tokens)
            return base_error_status();
        if (p->count)
            memcpy(tokens, p->tokens, p->count * sizeof *tokens);
        p->tokens = tokens;
        p->capacity = room;
    }
    p->tokens[p->count++] = (chat_token){(uint8_t)type, (uint32_t)at, value};
    return BY_OK;
}

static size_t skip_space(const lexer *l, size_t at)
{
    return at + chat_strip_left(l->s + at, l->size - at);
}

/* ---- text between tags -------------------------------------------------------------------------- */

/* Adds the text before a tag. sign is - or + after the opening of the tag, or 0. */
static by_status add_data(lexer *l, size_t begin, size_t end, char sign, bool block)
{
    if (sign == '-') {
        end = begin + chat_strip_right(l->s + begin, end - begin);
    } else if (sign != '+' && block) {
        size_t line = end;
        while (line > begin && l->s[line - 1] != '\n')
            line--;
        if ((line > begin || l->line_starting) && skip_space(l, line) >= end)
            end = line;
    }
    return end > begin ? add(l, CHAT_TOKEN_DATA, begin, chat_bytes(l->s + begin, end - begin)) : BY_OK;
}

static char sign_at(const lexer *l, size_t at)
{
    return at < l->size && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : '\0';
}

/* After a tag that ends at l->at: skips white space for -, or one newline without a sign. */
static void trim_after(lexer *l, char sign, bool newline)
{
    if (sign == '-')
        l->at = skip_space(l, l->at);
    else if (sign != '+' && newline && l->at < l->size && l->s[l->at] == '\n')
        l->at++;
    l->line_starting = l->s[l->at - 1] == '\n';
}

static by_status skip_comment(lexer *l, size_t begin)
{
    const size_t close = chat_find_bytes(l->s, l->size, "#}", 2, l->at);
    if (close == SIZE_MAX)
        return fail(l, begin, "the comment is never closed");
    const char sign = close > l->at ? sign_at(l, close - 1) : '\0';
    l->at = close + 2;
    trim_after(l, sign, true);
    return BY_OK;
}

/* Whether a tag with only this word follows. If so, l->at becomes its end. */
static bool take_word_tag(lexer *l, size_t at, const char *word, char *sign)
{
    at = skip_space(l, at);
    if (!starts(l, at, word))
        return false;
    at = skip_space(l, at + strlen(word));
    *sign = sign_at(l, at);
    if (!starts(l, at + (*sign != 0), "%}"))
        return false;
    l->at = at + (*sign != 0) + 2;
    return true;
}

/* From after {% raw %} to after {% endraw %}. */
static by_status lex_raw(lexer *l, size_t begin)
{
    const size_t data = l->at;
    char last;
    for (size_t tag = data; (tag = chat_find_bytes(l->s, l->size, "{%", 2, tag)) != SIZE_MAX; tag += 2) {
        const char sign = sign_at(l, tag + 2);
        if (!take_word_tag(l, tag + 2 + (sign != 0), "endraw", &last))
            continue;
        BY_TRY(add_data(l, data, tag, sign, true));
        trim_after(l, last, true);
        return BY_OK;
    }
    return fail(l, begin, "{% raw %} is never closed");
}

/* ---- inside tags -------------------------------------------------------------------------------- */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static by_status lex_name(lexer *l)
{
    const size_t begin = l->at;
    while (l->at < l->size && is_name_byte(l->s[l->at]))
        l->at++;
    return add(l, CHAT_TOKEN_NAME, begin, chat_bytes(l->s + begin, l->at - begin));
}

/* Copies digits and skips single underscores between them. */
static size_t take_digits(const lexer *l, size_t at, const char *set, char *to, size_t *n, size_t room)
{
    for (;; at++) {
        const bool gap = at < l->size && l->s[at] == '_' && at + 1 < l->size && strchr(set, l->s[at + 1]) &&
                         l->s[at + 1] && *n;
        if (gap)
            continue;
        if (at >= l->size || !l->s[at] || !strchr(set, l->s[at]) || *n + 1 >= room)
            return at;
        to[(*n)++] = l->s[at];
    }
}

static by_status lex_based(lexer *l, int base, const char *set)
{
    char digits[80];
    size_t n = 0;
    const size_t begin = l->at;
    l->at = take_digits(l, l->at + 2, set, digits, &n, sizeof digits);
    digits[n] = '\0';
    errno = 0;
    const long long value = strtoll(digits, NULL, base);
    if (!n || errno)
        return fail(l, begin, n ? "integer too large" : "malformed number");
    return add(l, CHAT_TOKEN_NUMBER, begin, chat_int(value));
}

static by_status lex_number(lexer *l)
{
    static const char decimal[] = "0123456789";
    char text[400];
    const size_t begin = l->at, room = sizeof text;
    const char mark = begin + 1 < l->size && l->s[begin] == '0' ? (char)(l->s[begin + 1] | 0x20) : '\0';
    size_t n = 0, at, k;
    bool real = false;
    if (mark == 'x' || mark == 'o' || mark == 'b')
        return mark == 'x'   ? lex_based(l, 16, "0123456789abcdefABCDEF")
               : mark == 'o' ? lex_based(l, 8, "01234567")
                             : lex_based(l, 2, "01");
    at = take_digits(l, begin, decimal, text, &n, room);
    const bool after_dot = begin > 0 && l->s[begin - 1] == '.'; /* a.0.1: an index */
    if (!after_dot && at + 1 < l->size && l->s[at] == '.' && l->s[at + 1] && strchr(decimal, l->s[at + 1])) {
        real = true;
        text[n++] = '.';
        at = take_digits(l, at + 1, decimal, text, &n, room - 1);
    }
    k = at + 1;
    if (!after_dot && at < l->size && (l->s[at] | 0x20) == 'e' && n + 2 < room) {
        const char sign = sign_at(l, k);
        k += sign != 0;
        if (k < l->size && l->s[k] && strchr(decimal, l->s[k])) {
            real = true;
            text[n++] = 'e';
            if (sign)
                text[n++] = sign;
            at = take_digits(l, k, decimal, text, &n, room);
        }
    }
    text[n] = '\0';
    l->at = at;
    if (real)
        return add(l, CHAT_TOKEN_NUMBER, begin, chat_float(base_strtod(text, NULL)));
    errno = 0;
    const long long value = strtoll(text, NULL, 10);
    return errno ? fail(l, begin, "integer too large") : add(l, CHAT_TOKEN_NUMBER, begin, chat_int(value));
}

/* ---- string literals ---------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    const char *at = c ? strchr("0123456789abcdef", c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at ? (int)(at - "0123456789abcdef") : -1;
}

/* Reads `count` digits at s of \xNN, \uNNNN or \UNNNNNNNN. */
static by_status take_hex(const lexer *l, const char **s, const char *end, int count, base_buf *out)
{
    uint32_t point = 0;
    for (int i = 0; i < count; i++, ++*s) {
        const int digit = *s < end ? hex_digit(**s) : -1;
        if (digit < 0)
            return fail(l, (size_t)(*s - l->s), "truncated escape in a string");
        point = point * 16 + (uint32_t)digit;
    }
    if (point >= TOK_UTF8_POINTS || (point >= 0xd800 && point <= 0xdfff))
        return fail(l, (size_t)(*s - l->s), "a string contains a surrogate or an illegal character");
    char bytes[4];
    base_buf_put(out, bytes, (size_t)tok_utf8_encode(point, bytes));
    return BY_OK;
}

/* Reads one escape; *s is after the backslash. Unknown escapes stay as they are. */
static by_status take_escape(const lexer *l, const char **s, const char *end, base_buf *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *(*s)++;
    const char *hit = c ? strchr(from, c) : NULL;
    if (c == '\n')
        return BY_OK; /* line continuation */
    if (hit) {
        base_buf_put(out, &to[hit - from], 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        return take_hex(l, s, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    } else if (c >= '0' && c <= '7') {
        uint32_t point = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *s < end && **s >= '0' && **s <= '7'; i++)
            point = point * 8 + (uint32_t)(*(*s)++ - '0');
        chat_put_point(out, point);
    } else if (c == 'N') {
        return fail(l, (size_t)(*s - l->s), "\\N{...} in a string is not supported");
    } else {
        base_buf_put(out, "\\", 1);
        base_buf_put(out, &c, 1);
    }
    return BY_OK;
}

static by_status unescape(lexer *l, const char *s, const char *end, chat_value *out)
{
    base_buf text = {0};
    by_status status = BY_OK;
    while (s < end && status == BY_OK) {
        const char *run = s;
        while (s < end && *s != '\\')
            s++;
        base_buf_put(&text, run, (size_t)(s - run));
        if (s < end) {
            s++;
            status = take_escape(l, &s, end, &text);
        }
    }
    if (status == BY_OK && text.failed)
        status = base_error_status();
    if (status == BY_OK)
        status = chat_copy_bytes(&l->p->tree->heap, text.data ? text.data : "", text.size, out);
    base_buf_free(&text);
    return status;
}

static by_status lex_string(lexer *l)
{
    const size_t begin = l->at;
    size_t end = begin + 1;
    bool escaped = false;
    for (; end < l->size && l->s[end] != l->s[begin]; end++)
        if (l->s[end] == '\\') {
            escaped = true;
            end++;
        }
    if (end >= l->size)
        return fail(l, begin, "the string is never closed");
    chat_value v = chat_bytes(l->s + begin + 1, end - begin - 1);
    if (escaped)
        BY_TRY(unescape(l, l->s + begin + 1, l->s + end, &v));
    l->at = end + 1;
    return add(l, CHAT_TOKEN_STRING, begin, v);
}

/* ---- operators ---------------------------------------------------------------------------------- */

static by_status track_brackets(lexer *l, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open && l->opened == CHAT_PARSE_DEEPEST)
        return fail(l, l->at, "brackets nest too deeply");
    if (open)
        l->open[l->opened++] = closing[open - opening];
    if (close && (!l->opened || l->open[--l->opened] != c))
        return fail(l, l->at, "unbalanced bracket");
    return BY_OK;
}

static by_status lex_operator(lexer *l)
{
    static const struct {
        char text[3];
        uint8_t type;
    } pairs[] = {{"==", CHAT_TOKEN_EQUAL},      {"!=", CHAT_TOKEN_DIFFERENT},
                 {"<=", CHAT_TOKEN_LESS_EQUAL}, {">=", CHAT_TOKEN_GREATER_EQUAL},
                 {"//", CHAT_TOKEN_FLOOR},      {"**", CHAT_TOKEN_POWER}};
    const size_t begin = l->at;
    for (int i = 0; i < BY_COUNT(pairs); i++)
        if (starts(l, begin, pairs[i].text)) {
            l->at += 2;
            return add(l, pairs[i].type, begin, chat_none());
        }
    const char c = l->s[begin];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return fail(l, begin, "unexpected character");
    BY_TRY(track_brackets(l, c));
    l->at++;
    return add(l, c, begin, chat_none());
}

/* The length and the sign of a tag end at l->at; 0: no tag end. */
static size_t tag_end(const lexer *l, const char *close, char *sign)
{
    *sign = sign_at(l, l->at);
    if (starts(l, l->at, close)) {
        *sign = '\0';
        return 2;
    }
    if (*sign == '+' && close[0] == '}') /* only blocks have +%} */
        return 0;
    return *sign && starts(l, l->at + 1, close) ? 3 : 0;
}

static by_status lex_inside(lexer *l, size_t begin, bool block)
{
    const char *close = block ? "%}" : "}}";
    const int last = block ? CHAT_TOKEN_BLOCK_END : CHAT_TOKEN_OUTPUT_END;
    char sign;
    l->opened = 0;
    while (l->at < l->size) {
        const size_t end = l->opened ? 0 : tag_end(l, close, &sign), space = skip_space(l, l->at);
        if (end) {
            BY_TRY(add(l, last, l->at, chat_none()));
            l->at += end;
            trim_after(l, sign, block);
            return BY_OK;
        }
        const char c = l->s[l->at];
        if (space > l->at)
            l->at = space;
        else if (c >= '0' && c <= '9')
            BY_TRY(lex_number(l));
        else if (is_name_byte(c))
            BY_TRY(lex_name(l));
        else if (c == '"' || c == '\'')
            BY_TRY(lex_string(l));
        else
            BY_TRY(lex_operator(l));
    }
    return fail(l, begin, block ? "{% is never closed" : "{{ is never closed");
}

/* ---- main loop ---------------------------------------------------------------------------------- */

static size_t next_tag(const lexer *l)
{
    for (size_t at = l->at; at + 1 < l->size; at++)
        if (l->s[at] == '{' && (l->s[at + 1] == '{' || l->s[at + 1] == '%' || l->s[at + 1] == '#'))
            return at;
    return SIZE_MAX;
}

static by_status lex_tag(lexer *l, size_t tag)
{
    const char kind = l->s[tag + 1], sign = sign_at(l, tag + 2);
    const size_t inside = tag + 2 + (sign != 0);
    char last;
    BY_TRY(add_data(l, l->at, tag, sign, kind != '{'));
    l->at = inside;
    if (kind == '#')
        return skip_comment(l, tag);
    if (kind == '%' && take_word_tag(l, inside, "raw", &last) && last != '+') {
        trim_after(l, last, false);
        return lex_raw(l, tag);
    }
    l->at = inside;
    BY_TRY(add(l, kind == '%' ? CHAT_TOKEN_BLOCK_BEGIN : CHAT_TOKEN_OUTPUT_BEGIN, tag, chat_none()));
    return lex_inside(l, tag, kind == '%');
}

by_status chat_tokenize(chat_parser *p)
{
    lexer l = {.p = p, .s = p->tree->source, .size = p->tree->size, .line_starting = true};
    for (size_t tag; (tag = next_tag(&l)) != SIZE_MAX;)
        BY_TRY(lex_tag(&l, tag));
    if (l.at < l.size)
        BY_TRY(add(&l, CHAT_TOKEN_DATA, l.at, chat_bytes(l.s + l.at, l.size - l.at)));
    return add(&l, CHAT_TOKEN_END, l.size, chat_none());
}
