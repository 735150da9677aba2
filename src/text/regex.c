/* regex.c - the regular expressions of tokenizer.json, which are Oniguruma's, run by PCRE2 with its compiler.
 * What the two read differently in published files is rewritten: \w and \W, and \h, which there is a
 * hexadecimal digit. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/pipeline.h"

#define PATTERN_LIMIT 65536
#define MATCH_LIMIT   10000000 /* steps of one match; patterns that backtrack without end are stopped here */

struct by_regex {
    pcre2_code *code;
    pcre2_match_context *context;
};

/* Translate into PCRE2's dialect. */
static void translate(const char *pattern, by_buf *out)
{
    bool in_class = false;
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            if (*p == 'w')
                by_buf_puts(out, in_class ? "\\p{L}\\p{M}\\p{Nd}\\p{Pc}" : "[\\p{L}\\p{M}\\p{Nd}\\p{Pc}]");
            else if (*p == 'W' && !in_class)
                by_buf_puts(out, "[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]");
            else if (*p == 'h')
                by_buf_puts(out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
            else
                by_buf_put(out, p - 1, 2);
            continue;
        }
        if (*p == '[' && !in_class) {
            in_class = true;
            by_buf_put(out, p, 1);
            if (p[1] == '^')
                by_buf_put(out, ++p, 1);
            if (p[1] == ']')
                by_buf_put(out, ++p, 1);
            continue;
        }
        if (*p == ']')
            in_class = false;
        by_buf_put(out, p, 1);
    }
}

by_regex *by_regex_new(const char *pattern)
{
    if (strlen(pattern) > PATTERN_LIMIT) {
        by_fail(BY_ERR_FORMAT, "a regular expression is longer than %d bytes", PATTERN_LIMIT);
        return NULL;
    }
    by_buf text = {0};
    translate(pattern, &text);
    by_regex *r = by_alloc_zero(1, sizeof(*r));
    int error = 0;
    PCRE2_SIZE where = 0;
    if (r && !text.failed) {
        r->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.size,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, NULL);
        r->context = pcre2_match_context_create(NULL);
    }
    if (!r || !r->code || !r->context) {
        char message[120] = "out of memory";
        if (error)
            pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message));
        by_fail(error ? BY_ERR_UNSUPPORTED : BY_ERR_MEMORY,
                "the regular expression \"%.200s\" is not understood: %s", pattern, message);
        by_regex_free(r);
        r = NULL;
    } else {
        pcre2_set_match_limit(r->context, MATCH_LIMIT);
        pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
    }
    by_buf_free(&text);
    return r;
}

void by_regex_free(by_regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->context);
    by_free(r);
}

int by_regex_find(const by_regex *r, const char *text, size_t size, size_t from, size_t *start, size_t *end)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    if (!data) {
        by_fail(BY_ERR_MEMORY, "out of memory matching a regular expression");
        return -1;
    }
    int found = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, data, r->context);
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
    *start = v[0];
    *end = v[1];
    pcre2_match_data_free(data);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0 || *end < *start) {
        by_fail(BY_ERR_UNSUPPORTED, "a regular expression gave up at byte %zu of a text (PCRE2 error %d)",
                from, found);
        return -1;
    }
    return 1;
}
