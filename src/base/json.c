/* json.c - parses JSON with errors that name file and position, reads typed members of configuration files,
 * and prints the same bytes for the same tree. It validates strictly around cJSON, which truncates strings at
 * NUL, accepts malformed numbers and prints doubles inconsistently. */
#include "base/json.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

#define EXACT 9007199254740992.0 /* 2^53: below it a double holds every integer */

/* ---- reading --------------------------------------------------------------------------------- */

size_t base_json_utf8(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

static by_status fail_at(const char *what, const char *text, size_t at, const char *problem)
{
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return base_fail(BY_ERR_FORMAT, "%s: %s at byte %zu (line %zu, column %zu)", what, problem, at, line,
                     at - start + 1);
}

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

/* cJSON also takes 01, 1. and -.5 . */
size_t base_json_number(const char *s)
{
    const char *p = s + (*s == '-');
    size_t n = digits(p);
    if (n == 0 || (n > 1 && *p == '0'))
        return 0;
    p += n;
    if (*p == '.') {
        n = digits(p + 1);
        if (n == 0)
            return 0;
        p += 1 + n;
    }
    if (*p == 'e' || *p == 'E') {
        p += p[1] == '-' || p[1] == '+' ? 2 : 1;
        n = digits(p);
        if (n == 0)
            return 0;
        p += n;
    }
    return (size_t)(p - s);
}

/* Returns true if printing the value of this number would change its type for a reader that distinguishes
 * integers from floats: 1.0, 1e5, and integers with more digits than a double holds. */
static bool needs_text(const char *s, size_t n)
{
    const char *point = memchr(s, '.', n);
    if (memchr(s, 'e', n) || memchr(s, 'E', n))
        return true;
    if (!point)
        return n > 15;
    size_t zeros = strspn(point + 1, "0");
    return point + 1 + zeros == s + n;
}

/* Rejects input that cJSON accepts and this library does not: invalid UTF-8, control characters, an escaped
 * NUL, malformed numbers. text[size] is NUL. *texts is set if a number needs its text. */
static by_status check_text(const char *text, size_t size, const char *what, bool *texts)
{
    bool quoted = false;
    *texts = false;
    for (size_t i = 0; i < size;) {
        char c = text[i];
        if ((unsigned char)c < 0x20 && (quoted || !strchr("\n\r\t", c) || c == '\0'))
            return fail_at(what, text, i, "control character in JSON");
        if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
            size_t n = base_json_number(text + i);
            if (n == 0)
                return fail_at(what, text, i, "malformed number in JSON");
            *texts = *texts || needs_text(text + i, n);
            i += n;
            continue;
        }
        if (c == '"')
            quoted = !quoted;
        if (c == '\\' && i + 1 < size) {
            if (strncmp(text + i, "\\u0000", 6) == 0)
                return fail_at(what, text, i, "NUL character in JSON string");
            i++; /* the next byte belongs to the escape: \" ends no string, \\u0000 contains no NUL */
        }
        size_t len = base_json_utf8(text + i, size - i);
        if (len == 0)
            return fail_at(what, text, i, "invalid UTF-8 in JSON");
        i += len;
    }
    return BY_OK;
}

cJSON *base_json_tree(const char *text, size_t size, const char **end, bool whole)
{
    base_locale before = base_locale_enter();
    cJSON *root = cJSON_ParseWithLengthOpts(text, size + 1, end, whole);
    base_locale_leave(before);
    return root;
}

/* Returns the position of the next escaped NUL at or after `at`, or NULL. */
static const char *find_nul(const char *at, const char *end)
{
    while ((at = memchr(at, '\\', (size_t)(end - at))) && end - at >= 6) {
        if (memcmp(at, "\\u0000", 6) == 0)
            return at;
        at += 2;
    }
    return NULL;
}

cJSON *base_json_text_tree(const char *text, size_t size, const char **end)
{
    const char *stop = text + size, *nul = find_nul(text, stop), *masked_end = NULL, *from = text;
    const char *broken = memmem(text, size, BY_JSON_NUL, 2);
    if (broken) { /* invalid UTF-8, hence not JSON */
        *end = broken;
        return NULL;
    }
    if (!nul)
        return base_json_tree(text, size, end, true);
    base_buf masked = {0};
    for (; nul; nul = find_nul(from, stop)) {
        base_buf_put(&masked, from, (size_t)(nul - from));
        base_buf_puts(&masked, BY_JSON_NUL);
        from = nul + 6;
    }
    base_buf_put(&masked, from, (size_t)(stop - from));
    cJSON *root = masked.failed ? NULL : base_json_tree(masked.data, masked.size, &masked_end, true);
    if (!root && masked_end) { /* the position in the original text */
        const char *at = masked.data;
        *end = text;
        for (; at < masked_end; at++, ++*end)
            if (masked_end - at >= 2 && memcmp(at, BY_JSON_NUL, 2) == 0) {
                at++;
                *end += 5;
            }
    }
    base_buf_free(&masked);
    return root;
}

char *base_json_unmask(const char *s, size_t *size)
{
    char *out = base_strdup(s), *to = out;
    if (!out)
        return NULL;
    for (const char *from = out; *from;) {
        bool nul = memcmp(from, BY_JSON_NUL, 1) == 0 && from[1] == BY_JSON_NUL[1];
        *to++ = nul ? '\0' : *from;
        from += nul ? 2 : 1;
    }
    *to = '\0';
    *size = (size_t)(to - out);
    return out;
}

/* Returns the next number at or after s, which is outside of any string, or NULL. */
static const char *next_number(const char *s)
{
    for (bool quoted = false; *s; s++) {
        if (!quoted && (*s == '-' || (*s >= '0' && *s <= '9')))
            return s;
        if (*s == '"')
            quoted = !quoted;
        else if (*s == '\\' && s[1])
            s++;
    }
    return NULL;
}

/* Stores the text of numbers that need it as valuestring, which cJSON copies and frees but never reads. *at
 * advances through the text, whose numbers are those of the tree in the same order. Returns false if
 * allocation fails. */
static bool attach_texts(cJSON *v, const char **at)
{
    if (cJSON_IsNumber(v) && *at && (*at = next_number(*at))) {
        const size_t n = base_json_number(*at);
        if (needs_text(*at, n)) {
            v->valuestring = cJSON_malloc(n + 1);
            if (!v->valuestring)
                return false;
            memcpy(v->valuestring, *at, n);
            v->valuestring[n] = '\0';
        }
        *at += n;
    }
    for (cJSON *c = cJSON_IsObject(v) || cJSON_IsArray(v) ? v->child : NULL; c; c = c->next)
        if (!attach_texts(c, at))
            return false;
    return true;
}

/* text[size] must be NUL: cJSON reads one byte past the end of some truncated inputs. */
static cJSON *parse_terminated(const char *text, size_t size, const char *what)
{
    bool texts;
    if (check_text(text, size, what, &texts) != BY_OK)
        return NULL;
    const char *end = text, *number = text;
    cJSON *root = base_json_tree(text, size, &end, false);
    size_t at = (size_t)(end - text);
    if (!root && base_json_well_formed(text)) {
        base_fail(BY_ERR_MEMORY, "%s: out of memory", what);
        return NULL;
    }
    if (!root) {
        fail_at(what, text, BY_MIN(at, size), at >= size ? "unexpected end of JSON" : "JSON syntax error");
        return NULL;
    }
    while (at < size && isspace((unsigned char)text[at]))
        at++;
    if (at < size) {
        cJSON_Delete(root);
        fail_at(what, text, at, "unexpected text after the JSON value");
        return NULL;
    }
    if (texts && !attach_texts(root, &number)) {
        cJSON_Delete(root);
        base_fail(BY_ERR_MEMORY, "%s: out of memory", what);
        return NULL;
    }
    return root;
}

cJSON *base_json_parse(const char *text, size_t size, const char *what)
{
    if (size > BY_JSON_MAX_BYTES) {
        base_fail(BY_ERR_FORMAT, "%s: %zu bytes of JSON, more than the limit of %zu", what, size,
                  BY_JSON_MAX_BYTES);
        return NULL;
    }
    char *copy = base_alloc(size + 1);
    if (!copy)
        return NULL;
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    cJSON *root = parse_terminated(copy, size, what);
    base_free(copy);
    return root;
}

cJSON *base_json_load(const char *path)
{
    size_t size = 0;
    char *text = base_file_read(path, BY_JSON_MAX_BYTES, &size);
    if (!text)
        return NULL;
    cJSON *root = parse_terminated(text, size, path);
    base_free(text);
    return root;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Returns the member, or NULL if it is absent or null. */
static const cJSON *member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return v && !cJSON_IsNull(v) ? v : NULL;
}

/* Reports a member of the wrong type or range, with the start of its value. */
static by_status fail_member(const char *key, const cJSON *v, const char *wanted)
{
    base_buf b = {0};
    if (base_json_print(&b, v, false) != BY_OK) {
        base_buf_free(&b);
        return base_fail(BY_ERR_FORMAT, "\"%s\" is not %s", key, wanted);
    }
    int n = (int)BY_MIN(b.size, 60);
    /* Never cut inside a UTF-8 character. */
    while ((size_t)n < b.size && n > 0 && ((unsigned char)b.data[n] & 0xc0) == 0x80)
        n--;
    by_status status = base_fail(BY_ERR_FORMAT, "\"%s\" is %.*s%s, expected %s", key, n, b.data,
                                 (size_t)n < b.size ? "..." : "", wanted);
    base_buf_free(&b);
    return status;
}

by_status base_json_int(const cJSON *o, const char *key, int64_t fallback, int64_t min, int64_t max,
                        int64_t *out)
{
    const cJSON *v = member(o, key);
    if (!v) {
        *out = fallback;
        return BY_OK;
    }
    double d = v->valuedouble;
    if (!cJSON_IsNumber(v) || d != floor(d) || fabs(d) >= EXACT)
        return fail_member(key, v, "an integer");
    if ((int64_t)d < min || (int64_t)d > max) {
        char wanted[80];
        base_format(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)min, (long long)max);
        return fail_member(key, v, wanted);
    }
    *out = (int64_t)d;
    return BY_OK;
}

by_status base_json_double(const cJSON *o, const char *key, double fallback, double min, double max,
                           double *out)
{
    const cJSON *v = member(o, key);
    if (!v) {
        *out = fallback;
        return BY_OK;
    }
    if (!cJSON_IsNumber(v))
        return fail_member(key, v, "a number");
    if (!(v->valuedouble >= min && v->valuedouble <= max)) {
        char wanted[80];
        base_format(wanted, sizeof wanted, "a number from %g to %g", min, max);
        return fail_member(key, v, wanted);
    }
    *out = v->valuedouble;
    return BY_OK;
}

by_status base_json_bool(const cJSON *o, const char *key, bool fallback, bool *out)
{
    const cJSON *v = member(o, key);
    if (v && !cJSON_IsBool(v))
        return fail_member(key, v, "true or false");
    *out = v ? cJSON_IsTrue(v) : fallback;
    return BY_OK;
}

by_status base_json_string(const cJSON *o, const char *key, const char *fallback, const char **out)
{
    const cJSON *v = member(o, key);
    if (v && !cJSON_IsString(v))
        return fail_member(key, v, "a string");
    *out = v ? v->valuestring : fallback;
    return BY_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

void base_json_put_number(base_buf *out, double value, int digits)
{
    if (isfinite(value))
        base_buf_printf(out, "%.*g", digits, value);
    else
        base_buf_puts(out, "null");
}

void base_json_quote(base_buf *out, const char *s)
{
    base_json_quote_bytes(out, s, strlen(s));
}

void base_json_quote_bytes(base_buf *out, const char *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *end = s + n;
    base_buf_puts(out, "\"");
    while (s < end) {
        const char *run = s;
        size_t len = 1;
        while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\' &&
               (len = base_json_utf8(s, (size_t)(end - s))) > 0)
            s += len;
        base_buf_put(out, run, (size_t)(s - run));
        if (s == end)
            break;
        const char *hit = *s ? strchr(from, *s) : NULL;
        if (len == 0)
            base_buf_puts(out, "\xef\xbf\xbd");
        else if (hit)
            base_buf_printf(out, "\\%c", to[hit - from]);
        else
            base_buf_printf(out, "\\u%04x", (unsigned)*s);
        s++;
    }
    base_buf_puts(out, "\"");
}

static void print_number(base_buf *out, double d)
{
    char text[40];
    if (!isfinite(d)) {
        base_buf_puts(out, "null");
        return;
    }
    if (d == floor(d) && fabs(d) <= EXACT && !(d == 0 && signbit(d))) {
        base_buf_printf(out, "%.0f", d);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        base_format(text, sizeof text, "%.*g", digits, d);
        if (base_strtod(text, NULL) == d)
            break;
    }
    base_buf_puts(out, text);
}

static void newline(base_buf *out, bool pretty, int depth)
{
    if (pretty)
        base_buf_printf(out, "\n%*s", 2 * depth, "");
}

static by_status print_value(base_buf *out, const cJSON *v, bool pretty, int depth)
{
    bool object = cJSON_IsObject(v);
    if (cJSON_IsString(v)) {
        base_json_quote(out, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        if (v->valuestring)
            base_buf_puts(out, v->valuestring);
        else
            print_number(out, v->valuedouble);
    } else if (cJSON_IsRaw(v)) {
        base_buf_puts(out, v->valuestring);
    } else if (!object && !cJSON_IsArray(v)) {
        base_buf_puts(out, cJSON_IsTrue(v) ? "true" : cJSON_IsFalse(v) ? "false" : "null");
    } else if (depth >= BY_JSON_MAX_DEPTH) {
        return base_fail(BY_ERR_ARGUMENT, "JSON nested deeper than %d levels", BY_JSON_MAX_DEPTH);
    } else {
        base_buf_puts(out, object ? "{" : "[");
        for (const cJSON *c = v->child; c; c = c->next) {
            newline(out, pretty, depth + 1);
            if (object) {
                base_json_quote(out, c->string);
                base_buf_puts(out, pretty ? ": " : ":");
            }
            BY_TRY(print_value(out, c, pretty, depth + 1));
            if (c->next)
                base_buf_puts(out, ",");
        }
        if (v->child)
            newline(out, pretty, depth);
        base_buf_puts(out, object ? "}" : "]");
    }
    return BY_OK;
}

by_status base_json_print(base_buf *out, const cJSON *value, bool pretty)
{
    BY_TRY(print_value(out, value, pretty, 0));
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while printing JSON") : BY_OK;
}

bool base_json_put(cJSON *json, const char *key, cJSON *value)
{
    cJSON *old = cJSON_GetObjectItemCaseSensitive(json, key);
    /* Not cJSON_ReplaceItemInObject, which does not check whether copying the key failed. */
    if (value && old) {
        value->string = old->string;
        value->type |= old->type & cJSON_StringIsConst;
        old->string = NULL;
        return cJSON_ReplaceItemViaPointer(json, old, value);
    }
    if (value && cJSON_AddItemToObject(json, key, value))
        return true;
    cJSON_Delete(value);
    return false;
}

bool base_json_add_bytes(cJSON *json, const char *key, const char *s, size_t n)
{
    base_buf quoted = {0};
    base_json_quote_bytes(&quoted, s, n);
    bool ok = !quoted.failed && cJSON_AddRawToObject(json, key, quoted.data);
    base_buf_free(&quoted);
    return ok;
}

by_status base_json_write(const char *path, const cJSON *value)
{
    base_buf b = {0};
    by_status status = base_json_print(&b, value, true);
    if (status == BY_OK) {
        base_buf_puts(&b, "\n");
        status = b.failed ? base_fail(BY_ERR_MEMORY, "%s: out of memory", path)
                          : base_file_write(path, b.data, b.size);
    }
    base_buf_free(&b);
    return status;
}
