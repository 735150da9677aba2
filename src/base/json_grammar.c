/* json_grammar.c - checks whether a text is JSON, without allocating. cJSON reports malformed input and
 * exhausted memory alike, and an error must say which of them it was. */
#include <stdlib.h>

#include "base/json.h"

enum { DEEPEST = 1000 }; /* cJSON's own limit */

static const char *value(const char *s, int depth);

static const char *blank(const char *s)
{
    while (*s && (unsigned char)*s <= ' ')
        s++;
    return s;
}

/* Returns the code unit of "\uXXXX" at s, or -1. */
static long unit(const char *s)
{
    char hex[5] = {0};
    if (s[0] != '\\' || s[1] != 'u' || strspn(s + 2, "0123456789abcdefABCDEF") < 4)
        return -1;
    memcpy(hex, s + 2, 4);
    return strtol(hex, NULL, 16);
}

/* Returns the position after the escape at s, or NULL. Surrogates must be paired. */
static const char *escape(const char *s)
{
    if (s[1] != 'u')
        return s[1] && strchr("\"\\/bfnrt", s[1]) ? s + 2 : NULL;
    long high = unit(s);
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return NULL;
    if (high < 0xd800 || high > 0xdbff)
        return s + 6;
    long low = unit(s + 6);
    return low >= 0xdc00 && low <= 0xdfff ? s + 12 : NULL;
}

/* Returns the position after the string that starts at s, or NULL. */
static const char *string(const char *s)
{
    if (*s++ != '"')
        return NULL;
    while (s && *s && *s != '"')
        s = *s == '\\' ? escape(s) : s + 1;
    return s && *s == '"' ? s + 1 : NULL;
}

/* Returns the position after the array or object that starts at s, or NULL. */
static const char *list(const char *s, int depth)
{
    const char close = *s == '[' ? ']' : '}';
    s = blank(s + 1);
    if (*s == close)
        return s + 1;
    for (;;) {
        if (close == '}') {
            s = string(blank(s));
            s = s ? blank(s) : NULL;
            if (!s || *s++ != ':')
                return NULL;
        }
        s = value(blank(s), depth + 1);
        if (!s)
            return NULL;
        s = blank(s);
        if (*s == close)
            return s + 1;
        if (*s++ != ',')
            return NULL;
    }
}

/* Returns the position after the value that starts at s, or NULL. */
static const char *value(const char *s, int depth)
{
    static const char *const words[] = {"null", "true", "false"};
    if (*s == '[' || *s == '{')
        return depth < DEEPEST ? list(s, depth) : NULL;
    if (*s == '"')
        return string(s);
    for (int i = 0; i < BY_COUNT(words); i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0)
            return s + strlen(words[i]);
    size_t n = base_json_number(s);
    return n > 0 ? s + n : NULL;
}

bool base_json_well_formed(const char *text)
{
    if (strstr(text, BY_JSON_NUL)) /* invalid UTF-8 */
        return false;
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark, which cJSON skips */
    const char *end = value(blank(strncmp(text, mark, 3) == 0 ? text + 3 : text), 0);
    return end && *blank(end) == '\0';
}
