/* regex.c - the regular expressions of tokenizer.json, in Oniguruma syntax: translated (regex_parse.c) and
 * run by PCRE2's just-in-time compiler, with limits on time and memory that grow with the text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <time.h>

#include "text/pipeline.h"
#include "text/regex.h"
#include "text/unicode.h"

#define PATTERN_LIMIT 65536
#define FIRST_LIMIT   20000 /* steps of a match from one start; more are tried while time is left */
#define WINDOW        4096  /* starts between two checks of the clock */
#define FINDS         1024  /* matches between two checks of the clock */
#define STACK_LIMIT   ((size_t)1 << 28) /* memory limit of backtracking, in bytes */
#define BASE_SECONDS  1.0
#define BYTE_SECONDS  4e-6 /* hundreds of times what published expressions need */

/* Ambiguous characters, indexed by block. */
#define BLOCK_BITS 7
#define BLOCKS     (0x110000 >> BLOCK_BITS)

struct tok_regex {
    pcre2_code *exact, *fast; /* for texts without ambiguous characters, or NULL */
    pcre2_match_context *context;
    tok_charset doubt;
    uint8_t *blocks; /* 1: the block has an ambiguous character */
};

static pcre2_code *compile(const char *text, size_t size, uint32_t extra, int *error)
{
    PCRE2_SIZE where = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return NULL;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *code = pcre2_compile(
        (PCRE2_SPTR)text, size, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | extra,
        error, &where, context);
    pcre2_compile_context_free(context);
    /* Without it matching is slower but not different. */
    if (code)
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

/* ---- PCRE2's own properties ------------------------------------------------------------------- */

/* Returns the next character to test. Those skipped are like the one before in every version of Unicode:
 * ideographs, Hangul syllables, private use and empty planes. */
static uint32_t next_asked(uint32_t c)
{
    static const uint32_t inside[][2] = {
        {0x3500, 0x4d00},   {0x4f00, 0x9f00},   {0xad00, 0xd700},   {0xd800, 0xdfff},   {0xe100, 0xf800},
        {0x17100, 0x18700}, {0x20100, 0x2a600}, {0x2b900, 0x2ce00}, {0x2cf00, 0x2eb00}, {0x30100, 0x31300},
        {0x31400, 0x32300}, {0x34000, 0xdffff}, {0xe0200, 0xeffff}, {0xf0001, 0xffffd}, {0x100001, 0x10fffd},
    };
    c++;
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
        if (c == inside[i][0])
            return inside[i][1] + 1;
    return c;
}

static bool fill_text(tok_natives *n)
{
    for (uint32_t c = 0; c < 0x110000; c = next_asked(c)) {
        char bytes[4];
        base_buf_put(&n->text, bytes, (size_t)tok_utf8_encode(c, bytes));
        base_buf_put(&n->points, &c, sizeof(c));
    }
    return !n->text.failed && !n->points.failed;
}

static size_t utf8_size(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/* Walks along the text and the matches of "[hint]+". */
static void read_native(const tok_natives *n, const pcre2_code *code, pcre2_match_data *data,
                        tok_charset *out)
{
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
    const uint32_t *points = (const uint32_t *)(const void *)n->points.data;
    size_t at = 0, i = 0;
    while (pcre2_match(code, (PCRE2_SPTR)n->text.data, n->text.size, at, PCRE2_NO_UTF_CHECK, data, NULL) >
           0) {
        for (; at < v[0]; i++)
            at += utf8_size(points[i]);
        size_t first = i;
        for (; at < v[1]; i++)
            at += utf8_size(points[i]);
        tok_charset_add(out, points[first], next_asked(points[i - 1]) - 1);
    }
}

const tok_charset *tok_natives_find(tok_natives *n, const char *hint)
{
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->items[i].hint, hint) == 0)
            return n->items[i].known ? &n->items[i].set : NULL;
    if (n->count == (int)(sizeof(n->items) / sizeof(n->items[0])) || (!n->text.size && !fill_text(n)))
        return NULL;
    struct tok_native *item = &n->items[n->count++];
    *item = (struct tok_native){.known = false};
    base_format(item->hint, sizeof(item->hint), "%s", hint);
    char pattern[TOK_HINT_ROOM + 8];
    base_format(pattern, sizeof(pattern), "[%s]+", hint);
    int error = 0;
    pcre2_code *code = compile(pattern, strlen(pattern), 0, &error);
    pcre2_match_data *data = code ? pcre2_match_data_create(1, NULL) : NULL;
    if (data) {
        read_native(n, code, data, &item->set);
        item->known = !item->set.failed;
    }
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return item->known ? &item->set : NULL;
}

void tok_natives_free(tok_natives *n)
{
    for (int i = 0; i < n->count; i++)
        tok_charset_free(&n->items[i].set);
    base_buf_free(&n->text);
    base_buf_free(&n->points);
    *n = (tok_natives){.count = 0};
}

/* ---- making ----------------------------------------------------------------------------------- */

static pcre2_code *make_code(const char *pattern, size_t size, bool exact, tok_natives *natives,
                             tok_charset *doubt)
{
    base_buf text = {0};
    pcre2_code *code = NULL;
    int error = 0;
    if (tok_regex_translate(pattern, size, exact, natives, &text, doubt) == BY_OK) {
        code = compile(text.data ? text.data : "", text.size, PCRE2_USE_OFFSET_LIMIT, &error);
        char message[120] = "";
        if (error)
            pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message));
        if (!code && error)
            tok_regex_refuse(pattern, size, message);
        else if (!code)
            base_fail(BY_ERR_MEMORY, "out of memory while reading a regular expression");
    }
    base_buf_free(&text);
    return code;
}

/* Marks the ambiguous blocks. ASCII is never ambiguous, otherwise there is no fast code. */
static bool mark_blocks(tok_regex *r)
{
    r->blocks = base_alloc_zero(BLOCKS, 1);
    for (size_t i = 0; r->blocks && i < r->doubt.count; i++)
        for (uint32_t k = r->doubt.ranges[i].first >> BLOCK_BITS; k <= r->doubt.ranges[i].last >> BLOCK_BITS;
             k++)
            r->blocks[k] = 1;
    return r->blocks != NULL;
}

tok_regex *tok_regex_new(const char *pattern, size_t size)
{
    if (size > PATTERN_LIMIT) {
        base_fail(BY_ERR_FORMAT, "a regular expression is longer than %d bytes", PATTERN_LIMIT);
        return NULL;
    }
    tok_natives natives = {.count = 0};
    tok_regex *r = base_alloc_zero(1, sizeof(*r));
    if (r) {
        r->exact = make_code(pattern, size, true, &natives, &r->doubt);
        r->context = pcre2_match_context_create(NULL);
    }
    bool good = r && r->exact && r->context;
    if (good && r->doubt.count && r->doubt.ranges[0].first >= 0x80) {
        r->fast = make_code(pattern, size, false, &natives, &r->doubt);
        good = r->fast && mark_blocks(r);
    }
    tok_natives_free(&natives);
    if (good) {
        pcre2_set_match_limit(r->context, FIRST_LIMIT);
        pcre2_set_heap_limit(r->context, STACK_LIMIT / 1024);
        return r;
    }
    if (!r || (r->exact && (!r->context || r->fast)))
        base_fail(BY_ERR_MEMORY, "out of memory while reading a regular expression");
    tok_regex_free(r);
    return NULL;
}

void tok_regex_free(tok_regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->exact);
    pcre2_code_free(r->fast);
    pcre2_match_context_free(r->context);
    tok_charset_free(&r->doubt);
    base_free(r->blocks);
    base_free(r);
}

/* ---- matching --------------------------------------------------------------------------------- */

/* Returns true if the text has an ambiguous character. */
static bool has_doubt(const tok_regex *r, const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint64_t eight;
        while (i + 8 <= size) {
            memcpy(&eight, text + i, 8);
            if (eight & 0x8080808080808080u)
                break;
            i += 8;
        }
        if (i == size)
            break;
        uint32_t c = (uint8_t)text[i];
        i += c < 0x80 ? 1 : (size_t)tok_utf8_next(text + i, size - i, &c);
        if (r->blocks[c >> BLOCK_BITS] && tok_charset_has(&r->doubt, c))
            return true;
    }
    return false;
}

by_status tok_regex_begin(tok_regex_scan *s, const tok_regex *r, const char *text, size_t size)
{
    *s = (tok_regex_scan){.regex = r, .text = text, .size = size, .limit = FIRST_LIMIT};
    s->code = r->fast && !has_doubt(r, text, size) ? r->fast : r->exact;
    s->data = pcre2_match_data_create(1, NULL);
    return s->data ? BY_OK : base_fail(BY_ERR_MEMORY, "out of memory while matching a regular expression");
}

void tok_regex_end(tok_regex_scan *s)
{
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (tok_regex_scan){.size = 0};
}

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns true if there is time left for this text and the caller has not cancelled. The clock starts with
 * the first call. */
static bool has_time(tok_regex_scan *s)
{
    if (base_cancel_check() != BY_OK)
        return false;
    double now = thread_seconds();
    if (s->deadline == 0)
        s->deadline = now + BASE_SECONDS + BYTE_SECONDS * (double)s->size;
    return now < s->deadline;
}

/* Returns a context private to this scan, whose limits can be changed. */
static pcre2_match_context *own_context(tok_regex_scan *s)
{
    if (!s->context) {
        s->context = pcre2_match_context_copy(s->regex->context);
    }
    return s->context;
}

/* Gives the compiled code a growing stack. Returns true if it had none yet. */
static bool add_stack(tok_regex_scan *s)
{
    if (s->stack || !own_context(s))
        return false;
    s->stack = pcre2_jit_stack_create((size_t)1 << 17, STACK_LIMIT, NULL);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s->stack != NULL;
}

/* As pcre2_match, with the match starting at `last` at the latest. */
static int match(tok_regex_scan *s, size_t from, size_t last)
{
    for (;;) {
        pcre2_match_context *context = s->context ? s->context : s->regex->context;
        if (s->context || last < s->size) {
            context = own_context(s);
            if (!context)
                return PCRE2_ERROR_NOMEMORY;
            pcre2_set_offset_limit(context, last < s->size ? last : PCRE2_UNSET);
        }
        int found =
            pcre2_match(s->code, (PCRE2_SPTR)s->text, s->size, from, PCRE2_NO_UTF_CHECK, s->data, context);
        if (found != PCRE2_ERROR_JIT_STACKLIMIT || !add_stack(s))
            return found;
    }
}

static bool set_limit(tok_regex_scan *s, uint32_t limit)
{
    if (limit == s->limit)
        return true;
    s->limit = limit;
    return own_context(s) && pcre2_set_match_limit(s->context, limit) == 0;
}

static bool is_inside(const char *text, size_t i)
{
    return ((uint8_t)text[i] & 0xc0) == 0x80;
}

int tok_regex_next(tok_regex_scan *s, size_t from, size_t *start, size_t *end)
{
    int found = PCRE2_ERROR_NOMATCH;
    bool timely = ++s->finds % FINDS != 0 || has_time(s);
    while (timely) { /* the more steps a start may take, the fewer starts are tried at a time */
        size_t span = BY_MAX(WINDOW / (s->limit / FIRST_LIMIT), 1);
        size_t last = s->size - from > span ? from + span : s->size;
        found = match(s, from, last);
        if (found == PCRE2_ERROR_MATCHLIMIT) {
            if (s->limit > UINT32_MAX / 2 || !set_limit(s, s->limit * 2))
                break;
        } else if (found != PCRE2_ERROR_NOMATCH || last == s->size) {
            break;
        } else {
            for (from = last + 1; from < s->size && is_inside(s->text, from);)
                from++;
        }
        timely = has_time(s);
    }
    set_limit(s, FIRST_LIMIT);
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
    *start = v[0];
    *end = v[1];
    if (timely && found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (timely && found >= 0 && *end >= *start)
        return 1;
    if (!timely && base_cancel_check() != BY_OK)
        return -1;
    if (!timely || found == PCRE2_ERROR_MATCHLIMIT)
        base_fail(BY_ERR_UNSUPPORTED,
                  "a regular expression takes too long: gave up at byte %zu of a text of %zu", from, s->size);
    else if (found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        base_fail(BY_ERR_UNSUPPORTED,
                  "a regular expression needs more than %zu MB of memory at byte %zu of a text of %zu",
                  STACK_LIMIT >> 20, from, s->size);
    else
        base_fail(BY_ERR_UNSUPPORTED, "a regular expression failed at byte %zu of a text (PCRE2 error %d)",
                  from, found);
    return -1;
}
