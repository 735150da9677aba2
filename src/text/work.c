/* work.c - text on its way through the stages: bytes, where each comes from, and the pieces they are cut
 * into. */
#include "text/pipeline.h"
#include "text/unicode.h"
#include "text/utf8.h"

void by_work_free(by_work *w)
{
    by_free(w->text);
    by_free(w->at);
    by_free(w->pieces);
    *w = (by_work){0};
}

/* Memory is kept for the next text, except after an unusually long one. */
void by_work_clear(by_work *w, bool offsets)
{
    if (w->failed || w->capacity > ((size_t)64 << 20))
        by_work_free(w);
    if (!offsets) {
        by_free(w->at);
        w->at = NULL;
    } else if (!w->at) {
        by_free(w->text);
        w->text = NULL;
        w->capacity = 0;
    }
    w->offsets = offsets;
    w->size = w->count = 0;
}

void by_work_reserve(by_work *w, size_t extra)
{
    if (w->failed || (w->text && w->capacity - w->size >= extra))
        return;
    size_t capacity = BY_MAX(w->size + extra, w->capacity + w->capacity / 2);
    capacity = BY_MAX(capacity, (size_t)256);
    char *text = by_resize(w->text, capacity, 1);
    if (text)
        w->text = text;
    by_at *at = w->offsets ? by_resize(w->at, capacity, sizeof(*at)) : NULL;
    if (at)
        w->at = at;
    w->failed = !text || (w->offsets && !at);
    if (!w->failed)
        w->capacity = capacity;
}

void by_work_put(by_work *w, const char *bytes, size_t n, by_at at)
{
    by_work_reserve(w, n);
    if (w->failed)
        return;
    memcpy(w->text + w->size, bytes, n);
    if (w->at)
        for (size_t i = 0; i < n; i++)
            w->at[w->size + i] = at;
    w->size += n;
}

void by_work_put_char(by_work *w, uint32_t c, by_at at)
{
    char text[4];
    by_work_put(w, text, (size_t)by_utf8_encode(c, text), at);
}

/* Lower case of one character: the only one that becomes two is capital I with dot. */
void by_work_put_lower(by_work *out, uint32_t c, by_at at)
{
    if (c == 0x130) {
        by_work_put(out, "i\xcc\x87", 3, at);
        return;
    }
    by_work_put_char(out, c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : by_lower(c), at);
}

void by_work_copy(by_work *w, const by_work *from, size_t start, size_t size)
{
    by_work_reserve(w, size);
    if (w->failed)
        return;
    memcpy(w->text + w->size, from->text + start, size);
    if (w->at)
        memcpy(w->at + w->size, from->at + start, size * sizeof(*w->at));
    w->size += size;
}

void by_work_piece(by_work *w, size_t start, size_t size, int32_t id)
{
    if (w->failed || (size == 0 && id < 0))
        return;
    if (w->count == w->piece_capacity) {
        size_t capacity = BY_MAX(w->piece_capacity * 2, (size_t)64);
        by_piece *pieces = by_resize(w->pieces, capacity, sizeof(*pieces));
        if (!pieces) {
            w->failed = true;
            return;
        }
        w->pieces = pieces;
        w->piece_capacity = capacity;
    }
    w->pieces[w->count++] = (by_piece){.start = start, .size = size, .id = id};
}

by_status by_work_fill(by_work *w, const char *text, size_t size)
{
    const uint8_t *s = (const uint8_t *)text;
    by_work_reserve(w, size + 8);
    size_t good = 0, i = 0;
    while (i < size && !w->failed) {
        uint32_t c;
        uint64_t eight;
        if (size - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int k = by_utf8_decode(s + i, size - i, &c);
        if (k > 0) {
            i += (size_t)k;
            continue;
        }
        by_work_put(w, text + good, i - good, (by_at){0, 0});
        by_work_put(w, "\xef\xbf\xbd", 3, (by_at){(uint32_t)i, (uint32_t)i + 1});
        good = ++i;
    }
    by_work_put(w, text + good, size - good, (by_at){0, 0});
    return w->failed ? by_fail(BY_ERR_MEMORY, "out of memory holding a text of %zu bytes", size) : BY_OK;
}

/* ---- rewriting a piece with the reference's places ------------------------------------------- */

by_at by_work_before(const by_work *in, const by_piece *p, size_t i)
{
    return i > 0 ? by_work_at(in, p->start + i - 1) : (by_at){p->base, p->base};
}

by_at by_transform_step(by_transform *t, int change)
{
    const by_piece *p = t->piece;
    if (change > 0 || t->next >= p->size)
        return by_work_before(t->in, p, t->next);
    by_at at = by_work_at(t->in, p->start + t->next);
    for (int k = 0; k <= -change && t->next < p->size; k++) {
        uint32_t c;
        t->next += (size_t)by_utf8_next(t->in->text + p->start + t->next, p->size - t->next, &c);
    }
    return at;
}

void by_transform_put(by_transform *t, uint32_t c, int change)
{
    by_work_put_char(t->out, c, by_transform_step(t, change));
}

void by_transform_copy(by_transform *t, size_t size)
{
    by_work_copy(t->out, t->in, t->piece->start + t->next, size);
    t->next += size;
}

/* ---- stages ---------------------------------------------------------------------------------- */

by_stage *by_stages_add(by_stages *s, const char *type)
{
    if (s->count == s->capacity) {
        int capacity = BY_MAX(s->capacity * 2, 4);
        by_stage *items = by_resize(s->items, (size_t)capacity, sizeof(*items));
        if (!items)
            return NULL;
        s->items = items;
        s->capacity = capacity;
    }
    by_stage *stage = &s->items[s->count++];
    *stage = (by_stage){.type = type};
    return stage;
}

void by_stages_free(by_stages *s)
{
    for (int i = 0; i < s->count; i++) {
        by_regex_free(s->items[i].regex);
        by_charsmap_free(s->items[i].map);
        by_chars_free(&s->items[i].text);
        by_chars_free(&s->items[i].content);
    }
    by_free(s->items);
    *s = (by_stages){0};
}

static void swap_work(by_work *a, by_work *b)
{
    by_work t = *a;
    *a = *b;
    *b = t;
}

static void swap_text(by_work *a, by_work *b)
{
    by_work t = *a;
    a->text = b->text;
    a->at = b->at;
    a->size = b->size;
    a->capacity = b->capacity;
    b->text = t.text;
    b->at = t.at;
    b->size = t.size;
    b->capacity = t.capacity;
}

by_status by_stages_run(const by_stages *s, by_work *work, by_work *spare)
{
    for (int i = 0; i < s->count; i++) {
        const by_stage *stage = &s->items[i];
        by_work_clear(spare, work->offsets);
        if (stage->rewrite)
            by_work_reserve(spare, work->size + work->size / 8 + 64);
        for (size_t p = 0; p < work->count; p++) {
            const by_piece *piece = &work->pieces[p];
            size_t start = spare->size, first = spare->count;
            if (piece->id < 0) {
                BY_TRY((stage->rewrite ? stage->rewrite : stage->split)(stage, work, piece, spare));
                for (; first < spare->count; first++)
                    spare->pieces[first].base = piece->base;
                continue;
            }
            if (stage->rewrite)
                by_work_copy(spare, work, piece->start, piece->size);
            by_work_piece(spare, stage->rewrite ? start : piece->start, piece->size, piece->id);
        }
        if (work->failed || spare->failed)
            return by_fail(BY_ERR_MEMORY, "out of memory in the stage %s of a tokenizer", stage->type);
        if (stage->rewrite)
            swap_work(work, spare);
        else {
            swap_text(work, spare);
            swap_work(work, spare);
        }
    }
    return BY_OK;
}
