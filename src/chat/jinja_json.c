/* jinja_json.c - reads JSON into values of the same types as Python's json module: integers of any size,
 * floats, strings that may contain NUL, ordered dictionaries. */
#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "chat/jinja_value.h"
#include "text/utf8.h"

typedef struct reader {
    chat_heap *heap;
    const char *text, *at, *end;
    const char *what;
} reader;

static by_status read_value(reader *r, int depth, chat_value *out);

static by_status fail(const reader *r, const char *problem)
{
    size_t line = 1, column = 1;
    for (const char *s = r->text; s < r->at; s++) {
        column = *s == '\n' ? 1 : column + 1;
        line += *s == '\n';
    }
    return base_fail(BY_ERR_FORMAT, "%s: %s (line %zu, column %zu)", r->what,
                     r->at >= r->end ? "unexpected end of JSON" : problem, line, column);
}

static char next_mark(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

/* ---- strings ------------------------------------------------------------------------------------ */

/* Reads four hexadecimal digits. */
static by_status read_unit(reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digit = r->at < r->end && *r->at ? strchr("0123456789abcdef", *r->at | 0x20) : NULL;
        if (!digit || *r->at < '0')
            return fail(r, "malformed \\u escape in JSON");
        *out = *out * 16 + (uint32_t)(digit - "0123456789abcdef");
    }
    return BY_OK;
}

static by_status read_escape(reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    uint32_t point, low;
    const char c = r->at < r->end ? *r->at : '\0';
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        r->at++;
        *(*to)++ = bytes[hit - from];
        return BY_OK;
    }
    if (c != 'u')
        return fail(r, "malformed escape in JSON");
    r->at++;
    BY_TRY(read_unit(r, &point));
    if (point >= 0xd800 && point <= 0xdbff && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        BY_TRY(read_unit(r, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "unpaired surrogate in JSON");
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point >= 0xd800 && point <= 0xdfff)
        return fail(r, "unpaired surrogate in JSON");
    *to += tok_utf8_encode(point, *to);
    return BY_OK;
}

/* Finds the end of a string that starts at r->at, and whether it needs a copy. */
static by_status scan_string(reader *r, const char **end, bool *escaped)
{
    const char *s = r->at;
    *escaped = false;
    while (s < r->end && *s != '"') {
        const bool escape = *s == '\\';
        const size_t n = escape ? 1 : base_json_utf8(s, (size_t)(r->end - s));
        if ((unsigned char)*s < 0x20 || n == 0) {
            r->at = s;
            return fail(r, n ? "control character in JSON string" : "invalid UTF-8 in JSON");
        }
        *escaped = *escaped || escape;
        s += escape && r->end - s > 1 ? 2 : n;
    }
    if (s < r->end) {
        *end = s;
        return BY_OK;
    }
    r->at = r->end;
    return fail(r, "");
}

static by_status read_string(reader *r, chat_value *out)
{
    const char *end = r->at;
    bool escaped;
    r->at++;
    BY_TRY(scan_string(r, &end, &escaped));
    if (!escaped) {
        *out = chat_bytes(r->at, (size_t)(end - r->at));
        r->at = end + 1;
        return BY_OK;
    }
    char *copy = chat_alloc(r->heap, (size_t)(end - r->at) + 1, 1), *to = copy;
    if (!copy)
        return base_error_status();
    while (r->at < end) {
        if (*r->at != '\\') {
            *to++ = *r->at++;
            continue;
        }
        r->at++;
        BY_TRY(read_escape(r, &to));
    }
    if (r->at != end) /* an escape skipped the quote */
        return fail(r, "malformed escape in JSON");
    r->at = end + 1;
    *out = chat_bytes(copy, (size_t)(to - copy));
    return BY_OK;
}

/* ---- numbers and words -------------------------------------------------------------------------- */

static by_status read_number(reader *r, chat_value *out)
{
    char digits[400], *stop;
    const char *s = r->at;
    while (s < r->end && *s && strchr("+-.eE0123456789", *s))
        s++;
    const size_t n = (size_t)(s - r->at);
    if (n >= sizeof digits)
        return fail(r, "a number in JSON is too long");
    memcpy(digits, r->at, n);
    digits[n] = '\0';
    if (n == 0 || base_json_number(digits) != n)
        return fail(r, n ? "malformed number in JSON" : "JSON syntax error");
    if (strpbrk(digits, ".eE")) {
        *out = chat_float(base_strtod(digits, NULL));
    } else {
        errno = 0;
        *out = chat_int(strtoll(digits, &stop, 10));
        if (errno == ERANGE) {
            *out = chat_bytes(r->at, n);
            out->type = CHAT_BIG;
        }
    }
    r->at = s;
    return BY_OK;
}

static bool take_word(reader *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* ---- containers --------------------------------------------------------------------------------- */

static by_status read_pair(reader *r, int depth, chat_dict *d)
{
    chat_value key, value;
    if (next_mark(r) != '"')
        return fail(r, "a key of a JSON object must be a string");
    BY_TRY(read_string(r, &key));
    if (next_mark(r) != ':')
        return fail(r, "missing colon in JSON object");
    r->at++;
    BY_TRY(read_value(r, depth + 1, &value));
    return chat_put(r->heap, d, key, value);
}

static by_status read_container(reader *r, char close, int depth, chat_value *out)
{
    if (depth >= CHAT_DEEPEST)
        return fail(r, "JSON nested too deeply");
    BY_TRY(close == '}' ? chat_new_dict(r->heap, CHAT_DICT, out) : chat_new_list(r->heap, CHAT_LIST, 0, out));
    r->at++;
    if (next_mark(r) == close) {
        r->at++;
        return BY_OK;
    }
    for (;;) {
        chat_value item;
        if (close == '}') {
            BY_TRY(read_pair(r, depth, out->dict));
        } else {
            BY_TRY(read_value(r, depth + 1, &item));
            BY_TRY(chat_push(r->heap, out->list, item));
        }
        const char mark = next_mark(r);
        if (mark != close && mark != ',')
            return fail(r, "missing comma in JSON");
        r->at++;
        if (mark == close)
            return BY_OK;
    }
}

static by_status read_value(reader *r, int depth, chat_value *out)
{
    const char c = next_mark(r);
    if (c == '{' || c == '[')
        return read_container(r, c == '{' ? '}' : ']', depth, out);
    if (c == '"')
        return read_string(r, out);
    if (take_word(r, "true") || take_word(r, "false")) {
        *out = chat_bool(c == 't');
        return BY_OK;
    }
    if (take_word(r, "null")) {
        *out = chat_none();
        return BY_OK;
    }
    return read_number(r, out);
}

by_status chat_read_json_next(chat_heap *h, const char *text, size_t size, size_t *at, const char *what,
                              chat_value *out)
{
    reader r = {h, text, text + *at, text + size, what};
    BY_TRY(read_value(&r, 0, out));
    *at = (size_t)(r.at - text);
    return BY_OK;
}

by_status chat_read_json(chat_heap *h, const char *text, size_t size, const char *what, chat_value *out)
{
    reader r = {h, text, text, text + size, what};
    BY_TRY(read_value(&r, 0, out));
    if (next_mark(&r) || r.at < r.end)
        return fail(&r, "unexpected text after the JSON value");
    return BY_OK;
}
