/* forms.c - the Unicode forms NFC, NFD, NFKC and NFKD as normalisers. The reference assigns origins to the
 * characters of a form in output order: a reordered mark gets the origin of the character that was there
 * before. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* A code point and its effect on the number of characters: 1 was added by a decomposition, -n has absorbed
 * the next n. */
typedef struct point {
    int32_t c;
    int change;
} point;

typedef struct points {
    point *data;
    size_t count, capacity;
} points;

static bool points_reserve(points *v, size_t extra)
{
    if (v->capacity - v->count >= extra)
        return true;
    size_t capacity = BY_MAX(v->capacity * 2, v->count + extra + 64);
    point *data = base_resize(v->data, capacity, sizeof(*data));
    if (!data)
        return false;
    v->data = data;
    v->capacity = capacity;
    return true;
}

static int combining_class(int32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering of marks: stable by combining class between starters. Runs are short in text and long in
 * attacks; both take linear time. */
static bool order_marks(points *v)
{
    for (size_t i = 0; i < v->count;) {
        size_t end = i;
        while (end < v->count && combining_class(v->data[end].c) != 0)
            end++;
        size_t n = end - i;
        if (n > 1) {
            points sorted = {0};
            if (!points_reserve(&sorted, n))
                return false;
            size_t starts[257] = {0};
            for (size_t k = i; k < end; k++)
                starts[combining_class(v->data[k].c) + 1]++;
            for (int k = 0; k < 256; k++)
                starts[k + 1] += starts[k];
            for (size_t k = i; k < end; k++)
                sorted.data[starts[combining_class(v->data[k].c)]++] = v->data[k];
            memcpy(v->data + i, sorted.data, n * sizeof(*v->data));
            base_free(sorted.data);
        }
        i = end + 1;
    }
    return true;
}

/* Returns true if this character can be composed with, or move past, an earlier one. */
static bool continues(uint32_t c)
{
    if (c < 0x300)
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    bool second = p->comb_index != UINT16_MAX && p->comb_index >= 0x8000;
    bool jamo = (c >= 0x1161 && c <= 0x1175) || (c >= 0x11a8 && c <= 0x11c2);
    return p->combining_class != 0 || second || jamo;
}

/* Returns the composition of two characters, or -1. */
static int32_t join(int32_t first, int32_t second)
{
    utf8proc_int32_t both[3] = {first, second, 0};
    if (!continues((uint32_t)second))
        return -1;
    return utf8proc_normalize_utf32(both, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE)) == 1
               ? both[0]
               : -1;
}

/* Composes each starter with the marks that are not blocked. */
static void compose(points *v)
{
    size_t kept = 0, starter = SIZE_MAX;
    int last = -1; /* class of the previous mark that was not composed; -1: none */
    for (size_t i = 0; i < v->count; i++) {
        point p = v->data[i];
        int class = combining_class(p.c);
        int32_t both = starter != SIZE_MAX && last < class ? join(v->data[starter].c, p.c) : -1;
        if (both >= 0) {
            v->data[starter].c = both;
            v->data[starter].change += p.change - 1;
            continue;
        }
        if (class == 0)
            starter = kept;
        last = class == 0 ? -1 : class;
        v->data[kept++] = p;
    }
    v->count = kept;
}

static bool decompose(const tok_stage *s, const tok_buffer *in, size_t start, size_t end, points *v)
{
    int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (s->behavior & 2 ? UTF8PROC_COMPAT : 0);
    v->count = 0;
    for (size_t i = start; i < end;) {
        uint32_t c;
        utf8proc_int32_t parts[32];
        int n = tok_utf8_next(in->text + i, end - i, &c), last = 0;
        if (!points_reserve(v, BY_COUNT(parts)))
            return false;
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, parts, BY_COUNT(parts),
                                                     (utf8proc_option_t)options, &last);
        if (k < 1 || k > BY_COUNT(parts) || (c >= 0x300 && tok_is_whole(c))) {
            parts[0] = (utf8proc_int32_t)c;
            k = 1;
        }
        for (int j = 0; j < k; j++)
            v->data[v->count++] = (point){parts[j], j > 0};
        i += (size_t)n;
    }
    return true;
}

/* Processes one stretch that nothing outside can affect: decompose, order, compose. */
static bool put_stretch(const tok_stage *s, tok_transform *t, size_t size, points *v)
{
    size_t start = t->piece->start + t->next;
    if (!decompose(s, t->in, start, start + size, v) || !order_marks(v))
        return false;
    if (s->behavior & 1)
        compose(v);
    for (size_t i = 0; i < v->count; i++) {
        uint32_t c = (uint32_t)v->data[i].c;
        tok_at at = tok_transform_step(t, v->data[i].change);
        if (c >= 0x300 && s->flags[TOK_FORM_STRIP] && tok_is_nonspacing(c))
            continue;
        if (s->flags[TOK_FORM_LOWER])
            tok_buffer_put_lower(t->out, c, at);
        else
            tok_buffer_put_char(t->out, c, at);
    }
    return true;
}

/* Copies ASCII, in lower case if requested. */
static void put_ascii(const tok_stage *s, tok_transform *t, size_t size)
{
    tok_buffer *out = t->out;
    size_t to = out->size;
    tok_transform_copy(t, size);
    for (; s->flags[TOK_FORM_LOWER] && !out->failed && to < out->size; to++)
        out->text[to] += out->text[to] >= 'A' && out->text[to] <= 'Z' ? 32 : 0;
}

by_status tok_form_run(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t start = out->size, i = p->start, end = p->start + p->size;
    tok_transform t = {.in = in, .piece = p, .out = out};
    points v = {0};
    bool ok = true;
    while (ok && i < end) {
        size_t from = i;
        uint32_t c;
        while (i < end && (uint8_t)in->text[i] < 0x80)
            i++;
        if (i > from && i < end) { /* the last one may have marks after it */
            tok_utf8_next(in->text + i, end - i, &c);
            i -= continues(c);
        }
        put_ascii(s, &t, i - from);
        if (i >= end)
            break;
        from = i;
        i += (size_t)tok_utf8_next(in->text + i, end - i, &c);
        while (i < end) {
            int n = tok_utf8_next(in->text + i, end - i, &c);
            if (!continues(c))
                break;
            i += (size_t)n;
        }
        ok = put_stretch(s, &t, i - from, &v);
    }
    base_free(v.data);
    tok_buffer_piece(out, start, out->size - start, -1);
    return ok ? BY_OK : base_fail(BY_ERR_MEMORY, "out of memory while normalising a text");
}
