/* chars.c - one id per Unicode character of the training text. Lookup uses a table of pages of 256 code
 * points: two loads for any character, and memory only for the pages in use. */
#include "base/input.h"
#include "text/kind.h"
#include "text/utf8.h"

#define PAGES (TOK_UTF8_POINTS / 256)

typedef struct chars {
    by_tokenizer base;
    uint32_t *points;        /* id -> code point */
    int32_t *pages;          /* (used + 1) x 256 ids; page 0 is all -1 */
    uint16_t page_of[PAGES]; /* code point / 256 -> page, 0 for unknown characters */
} chars;

static inline int32_t chars_find(const chars *c, uint32_t point)
{
    return c->pages[(size_t)c->page_of[point >> 8] * 256 + (point & 255)];
}

static void chars_free(by_tokenizer *t)
{
    chars *c = (chars *)t;
    base_free(c->points);
    base_free(c->pages);
    base_free(c);
}

/* Takes ownership of points (count code points, indexed by id), also on failure. A duplicate code point is an
 * error. */
static by_tokenizer *chars_make(uint32_t *points, int count)
{
    chars *c = base_alloc_zero(1, sizeof(*c));
    if (!c) {
        base_free(points);
        return NULL;
    }
    c->base = (by_tokenizer){.kind = &tok_text_chars, .vocab_size = count, .eos = -1};
    c->points = points;
    size_t used = 0;
    for (int id = 0; id < count; id++)
        if (c->page_of[points[id] >> 8] == 0)
            c->page_of[points[id] >> 8] = (uint16_t)++used;
    size_t bytes = (used + 1) * 256 * sizeof(*c->pages);
    c->pages = base_alloc(bytes);
    if (!c->pages)
        goto fail;
    memset(c->pages, 0xff, bytes);
    for (int id = 0; id < count; id++) {
        int32_t *slot = &c->pages[(size_t)c->page_of[points[id] >> 8] * 256 + (points[id] & 255)];
        if (*slot >= 0) {
            base_fail(BY_ERR_FORMAT, "duplicate character U+%04X in the vocabulary", (unsigned)points[id]);
            goto fail;
        }
        *slot = id;
    }
    return &c->base;
fail:
    chars_free(&c->base);
    return NULL;
}

/* Sets seen[p] for every code point p of the text. */
static by_status mark_seen(uint8_t *seen, const char *text, size_t size)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t i = 0; i < size;) {
        uint32_t point;
        int n = tok_utf8_decode(s + i, size - i, &point);
        if (n == 0)
            return base_fail(BY_ERR_FORMAT, "byte 0x%02x at offset %zu is not valid UTF-8", s[i], i);
        seen[point] = 1;
        i += (size_t)n;
    }
    return BY_OK;
}

/* Takes ownership of seen. */
static by_tokenizer *chars_seen(uint8_t *seen)
{
    uint32_t *points = NULL;
    int n = 0;
    for (int p = 0; p < TOK_UTF8_POINTS; p++)
        n += seen[p];
    if (n == 0) {
        base_fail(BY_ERR_ARGUMENT, "a character vocabulary requires a text that is not empty");
        goto done;
    }
    points = base_alloc_zero((size_t)n, sizeof(*points));
    if (!points)
        goto done;
    for (uint32_t p = 0, id = 0; p < TOK_UTF8_POINTS; p++)
        if (seen[p])
            points[id++] = p;
done:
    base_free(seen);
    return points ? chars_make(points, n) : NULL;
}

by_tokenizer *tok_new_chars(const char *const *texts, const size_t *sizes, int count)
{
    uint8_t *seen = base_alloc_zero(TOK_UTF8_POINTS, 1);
    for (int i = 0; seen && i < count; i++)
        if (mark_seen(seen, texts[i], sizes[i]) != BY_OK) {
            base_fail_context("text %d of %d", i + 1, count);
            base_free(seen);
            return NULL;
        }
    return seen ? chars_seen(seen) : NULL;
}

/* Reads line by line: no character spans two lines. */
static by_status mark_file(uint8_t *seen, base_lines *l)
{
    for (bool more = true;;) {
        BY_TRY(base_lines_raw(l, &more));
        if (!more)
            return BY_OK;
        if (mark_seen(seen, l->text, l->size) != BY_OK)
            return base_fail_context("%s, line %lld", l->path, (long long)l->number);
    }
}

by_tokenizer *tok_new_chars_of(const char *const *paths, int count)
{
    uint8_t *seen = base_alloc_zero(TOK_UTF8_POINTS, 1);
    by_status s = seen ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < count && s == BY_OK; i++) {
        base_lines l;
        s = base_lines_open(&l, paths[i]);
        if (s == BY_OK)
            s = mark_file(seen, &l);
        base_lines_close(&l);
    }
    if (s == BY_OK)
        return chars_seen(seen);
    base_free(seen);
    return NULL;
}

static bool chars_match(const cJSON *root)
{
    return tok_symbols_match(root, NULL);
}

static by_tokenizer *chars_read(const cJSON *root)
{
    const cJSON *added = cJSON_GetObjectItemCaseSensitive(root, "added_tokens");
    if (added && added->child) {
        base_fail(BY_ERR_UNSUPPORTED, "a vocabulary of characters with added tokens is not supported");
        return NULL;
    }
    int count = 0;
    uint32_t *points = tok_symbols_read(root, &count);
    return points ? chars_make(points, count) : NULL;
}

static void chars_write(const by_tokenizer *t, base_buf *out)
{
    tok_symbols_write(out, ((const chars *)t)->points, t->vocab_size, "[]", "null", "{ \"type\": \"Fuse\" }");
}

static by_status chars_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    const chars *c = (const chars *)t;
    const uint8_t *s = (const uint8_t *)text;
    BY_TRY(tok_ids_reserve(out, size));
    int32_t *next = out->data + out->count;
    for (size_t i = 0; i < size;) {
        uint32_t point;
        int n = tok_utf8_decode(s + i, size - i, &point);
        if (n == 0)
            return base_fail(BY_ERR_FORMAT, "byte 0x%02x at offset %zu is not valid UTF-8", s[i], i);
        int32_t id = chars_find(c, point);
        if (id < 0)
            return base_fail(BY_ERR_ARGUMENT,
                             "character U+%04X at offset %zu is not in the vocabulary of %d characters "
                             "(a model trained with --tokenizer byte accepts any text)",
                             (unsigned)point, i, t->vocab_size);
        *next++ = id;
        i += (size_t)n;
    }
    out->count = (size_t)(next - out->data);
    return BY_OK;
}

static by_status chars_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                           base_buf *out)
{
    char text[4];
    (void)state;
    if (!spec->skip_special || id != t->eos)
        base_buf_put(out, text, (size_t)tok_utf8_encode(((const chars *)t)->points[id], text));
    return BY_OK;
}

static size_t chars_cut(const by_tokenizer *t, const char *text, size_t size)
{
    (void)t;
    return tok_utf8_cut((const uint8_t *)text, size);
}

const tok_text_kind tok_text_chars = {
    .name = "char",
    .match = chars_match,
    .read = chars_read,
    .write = chars_write,
    .encode = chars_encode,
    .put = chars_put,
    .cut = chars_cut,
    .free = chars_free,
};
