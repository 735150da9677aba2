/* stage_buffer.c - text between stages: bytes, their origins, and the pieces they are split into. */
#include "text/pipeline.h"
#include "text/unicode.h"
#include "text/utf8.h"

void tok_buffer_free(tok_buffer *w)
{
    base_free(w->text);
    base_free(w->at);
    base_free(w->pieces);
    *w = (tok_buffer){0};
}

/* Keeps the memory for the next text, except after an unusually long one. */
void tok_buffer_clear(tok_buffer *w, bool offsets)
{
    if (w->failed || w->capacity > ((size_t)64 << 20))
        tok_buffer_free(w);
    if (!offsets) {
        base_free(w->at);
        w->at = NULL;
    } else if (!w->at) {
        base_free(w->text);
        w->text = NULL;
        w->capacity = 0;
    }
    w->offsets = offsets;
    w->size = w->count = 0;
}

void tok_buffer_reserve(tok_buffer *w, size_t extra)
{
    if (w->failed || (w->text && w->capacity - w->size >= extra))
        return;
    size_t capacity = BY_MAX(w->size + extra, w->capacity + w->capacity / 2);
    capacity = BY_MAX(capacity, (size_t)256);
    char *text = base_resize(w->text, capacity, 1);
    if (text)
        w->text = text;
    tok_at *at = w->offsets ? base_resize(w->at, capacity, sizeof(*at)) : NULL;
    if (at)
        w->at = at;
    w->failed = !text || (w->offsets && !at);
    if (!w->failed)
        w->capacity = capacity;
}

void tok_buffer_put(tok_buffer *w, const char *bytes, size_t n, tok_at at)
{
    tok_buffer_reserve(w, n);
    if (w->failed)
        return;
    memcpy(w->text + w->size, bytes, n);
    if (w->at)
        for (size_t i = 0; i < n; i++)
            w->at[w->size + i] = at;
    w->size += n;
}

void tok_buffer_put_char(tok_buffer *w, uint32_t c, tok_at at)
{
    char text[4];
    tok_buffer_put(w, text, (size_t)tok_utf8_encode(c, text), at);
}

/* Lower case of one character. The only one that becomes two is capital I with dot above. */
void tok_buffer_put_lower(tok_buffer *out, uint32_t c, tok_at at)
{
    if (c == 0x130) {
        tok_buffer_put(out, "i\xcc\x87", 3, at);
        return;
    }
    tok_buffer_put_char(out, c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : tok_lower(c), at);
}

void tok_buffer_copy(tok_buffer *w, const tok_buffer *from, size_t start, size_t size)
{
    tok_buffer_reserve(w, size);
    if (w->failed)
        return;
    memcpy(w->text + w->size, from->text + start, size);
    if (w->at)
        memcpy(w->at + w->size, from->at + start, size * sizeof(*w->at));
    w->size += size;
}

void tok_buffer_piece(tok_buffer *w, size_t start, size_t size, int32_t id)
{
    if (w->failed || (size == 0 && id < 0))
        return;
    if (w->count == w->piece_capacity) {
        size_t capacity = BY_MAX(w->piece_capacity * 2, (size_t)64);
        tok_piece *pieces = base_resize(w->pieces, capacity, sizeof(*pieces));
        if (!pieces) {
            w->failed = true;
            return;
        }
        w->pieces = pieces;
        w->piece_capacity = capacity;
    }
    w->pieces[w->count++] = (tok_piece){.start = start, .size = size, .id = id};
}

by_status tok_buffer_fill(tok_buffer *w, const char *text, size_t size)
{
    const uint8_t *s = (const uint8_t *)text;
    tok_buffer_reserve(w, size + 8);
    size_t good = 0, i = 0;
    while (i < size && !w->failed) {
        uint32_t c;
        uint64_t eight;
        if (size - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int k = tok_utf8_decode(s + i, size - i, &c);
        if (k > 0) {
            i += (size_t)k;
            continue;
        }
        tok_buffer_put(w, text + good, i - good, (tok_at){0, 0});
        tok_buffer_put(w, "\xef\xbf\xbd", 3, (tok_at){(uint32_t)i, (uint32_t)i + 1});
        good = ++i;
    }
    tok_buffer_put(w, text + good, size - good, (tok_at){0, 0});
    return w->failed ? base_fail(BY_ERR_MEMORY, "out of memory for a text of %zu bytes", size) : BY_OK;
}

/* ---- rewriting a piece with the reference's origins ------------------------------------------ */

tok_at tok_buffer_before(const tok_buffer *in, const tok_piece *p, size_t i)
{
    return i > 0 ? tok_buffer_at(in, p->start + i - 1) : (tok_at){p->base, p->base};
}

tok_at tok_transform_step(tok_transform *t, int change)
{
    const tok_piece *p = t->piece;
    if (change > 0 || t->next >= p->size)
        return tok_buffer_before(t->in, p, t->next);
    tok_at at = tok_buffer_at(t->in, p->start + t->next);
    for (int k = 0; k <= -change && t->next < p->size; k++) {
        uint32_t c;
        t->next += (size_t)tok_utf8_next(t->in->text + p->start + t->next, p->size - t->next, &c);
    }
    return at;
}

void tok_transform_put(tok_transform *t, uint32_t c, int change)
{
    tok_buffer_put_char(t->out, c, tok_transform_step(t, change));
}

void tok_transform_copy(tok_transform *t, size_t size)
{
    tok_buffer_copy(t->out, t->in, t->piece->start + t->next, size);
    t->next += size;
}

/* ---- stages ---------------------------------------------------------------------------------- */

tok_stage *tok_stages_add(tok_stages *s, const char *type)
{
    if (s->count == s->capacity) {
        int capacity = BY_MAX(s->capacity * 2, 4);
        tok_stage *items = base_resize(s->items, (size_t)capacity, sizeof(*items));
        if (!items)
            return NULL;
        s->items = items;
        s->capacity = capacity;
    }
    tok_stage *stage = &s->items[s->count++];
    *stage = (tok_stage){.type = type};
    return stage;
}

void tok_stages_free(tok_stages *s)
{
    for (int i = 0; i < s->count; i++) {
        tok_regex_free(s->items[i].regex);
        tok_charsmap_free(s->items[i].map);
        tok_chars_free(&s->items[i].text);
        tok_chars_free(&s->items[i].content);
    }
    base_free(s->items);
    *s = (tok_stages){0};
}

static void swap_work(tok_buffer *a, tok_buffer *b)
{
    tok_buffer t = *a;
    *a = *b;
    *b = t;
}

static void swap_text(tok_buffer *a, tok_buffer *b)
{
    tok_buffer t = *a;
    a->text = b->text;
    a->at = b->at;
    a->size = b->size;
    a->capacity = b->capacity;
    b->text = t.text;
    b->at = t.at;
    b->size = t.size;
    b->capacity = t.capacity;
}

by_status tok_stages_run(const tok_stages *s, tok_buffer *work, tok_buffer *spare)
{
    for (int i = 0; i < s->count; i++) {
        const tok_stage *stage = &s->items[i];
        tok_buffer_clear(spare, work->offsets);
        if (stage->rewrite)
            tok_buffer_reserve(spare, work->size + work->size / 8 + 64);
        for (size_t p = 0; p < work->count; p++) {
            const tok_piece *piece = &work->pieces[p];
            size_t start = spare->size, first = spare->count;
            if (piece->id < 0) {
                BY_TRY((stage->rewrite ? stage->rewrite : stage->split)(stage, work, piece, spare));
                for (; first < spare->count; first++)
                    spare->pieces[first].base = piece->base;
                continue;
            }
            if (stage->rewrite)
                tok_buffer_copy(spare, work, piece->start, piece->size);
            tok_buffer_piece(spare, stage->rewrite ? start : piece->start, piece->size, piece->id);
        }
        if (work->failed || spare->failed)
            return base_fail(BY_ERR_MEMORY, "out of memory in the stage %s of a tokenizer", stage->type);
        if (stage->rewrite)
            swap_work(work, spare);
        else {
            swap_text(work, spare);
            swap_work(work, spare);
        }
    }
    return BY_OK;
}
