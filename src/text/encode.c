/* encode.c - from text to ids with a tokenizer.json: added tokens, normalisers, splitters, model. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* ---- straight from bytes to ids -------------------------------------------------------------- */

/* One word, through the cache when no places are asked for. */
static inline by_status encode_word(const by_pipeline *p, by_scratch *s, const char *word, size_t size,
                                    by_ids *out, by_spans *spans)
{
    if (!spans) {
        size_t count, before = out->count;
        const int32_t *known = by_cache_find(s, word, size, &count);
        if (known) {
            if (out->capacity - out->count < count)
                BY_TRY(by_ids_reserve(out, count));
            for (size_t i = 0; i < count; i++)
                out->data[before + i] = known[i];
            out->count += count;
            return BY_OK;
        }
        BY_TRY(p->bytes_direct ? by_bpe_encode_bytes(p->model, s, word, size, out, NULL)
                               : p->model->encode(p->model, s, word, size, out, NULL));
        by_cache_put(s, word, size, out->data + before, out->count - before);
        return BY_OK;
    }
    return p->bytes_direct ? by_bpe_encode_bytes(p->model, s, word, size, out, spans)
                           : p->model->encode(p->model, s, word, size, out, spans);
}

/* Places inside a word of bytes to places in the text; a token that holds part of a character has the place
 * of all of it. */
static void place_bytes(by_spans *spans, size_t from, const char *text, size_t size, size_t base, size_t word,
                        size_t shift)
{
    for (size_t i = from; i < spans->count; i++) {
        size_t start = word + spans->data[i].start, end = word + spans->data[i].end;
        start = start > shift ? start - shift : 0;
        end = end > shift
                  ? end - shift
                  : BY_MIN((size_t)1, size); /* a space put in front has the place of the first character */
        while (start > 0 && ((uint8_t)text[start] & 0xc0) == 0x80)
            start--;
        while (end < size && ((uint8_t)text[end] & 0xc0) == 0x80)
            end++;
        spans->data[i] = (by_at){(uint32_t)(base + start), (uint32_t)(base + end)};
    }
}

static by_status encode_bytes(const by_pipeline *p, by_scratch *s, const char *text, size_t base, size_t size,
                              by_ids *out, by_spans *spans)
{
    const char *all = text + base;
    size_t n = size, shift = 0;
    by_buf joined = {0};
    by_status status = BY_OK;
    if (p->prefix_space && size && all[0] != ' ') {
        by_buf_puts(&joined, " ");
        by_buf_put(&joined, all, size);
        if (joined.failed) {
            by_buf_free(&joined);
            return by_fail(BY_ERR_MEMORY, "out of memory encoding a text");
        }
        all = joined.data;
        n++;
        shift = 1;
    }
    for (size_t i = 0, end; i < n && status == BY_OK; i = end) {
        end = p->words ? by_gpt2_word((const uint8_t *)all, i, n) : n;
        size_t before = spans ? spans->count : 0;
        status = encode_word(p, s, all + i, end - i, out, spans);
        if (spans && status == BY_OK)
            place_bytes(spans, before, text + base, size, base, i, shift);
    }
    by_buf_free(&joined);
    return status;
}

/* Pieces of the text between added tokens, both kinds; the text itself stays where it is. */
static by_status split_added(const by_pipeline *p, by_scratch *s, const char *text, size_t size)
{
    by_work_clear(&s->work, false);
    BY_TRY(by_added_split(&p->added, false, text, 0, size, &s->work));
    if (!p->added.normalized)
        return BY_OK;
    by_work_clear(&s->spare, false);
    for (size_t i = 0; i < s->work.count; i++) {
        by_piece piece = s->work.pieces[i];
        if (piece.id >= 0)
            by_work_piece(&s->spare, piece.start, piece.size, piece.id);
        else
            BY_TRY(by_added_split(&p->added, true, text, piece.start, piece.size, &s->spare));
    }
    by_work t = s->work;
    s->work = s->spare;
    s->spare = t;
    return s->work.failed ? by_fail(BY_ERR_MEMORY, "out of memory encoding a text") : BY_OK;
}

static by_status encode_direct(const by_pipeline *p, by_scratch *s, const char *text, size_t size,
                               by_ids *out, by_spans *spans)
{
    BY_TRY(split_added(p, s, text, size));
    BY_TRY(by_ids_reserve(out, size / 3 + 16));
    for (size_t i = 0; i < s->work.count; i++) {
        by_piece piece = s->work.pieces[i];
        if (piece.id < 0) {
            BY_TRY(encode_bytes(p, s, text, piece.start, piece.size, out, spans));
            continue;
        }
        BY_TRY(by_ids_push(out, piece.id));
        if (spans)
            BY_TRY(by_spans_push(spans, piece.start, piece.start + piece.size));
    }
    return BY_OK;
}

/* ---- through all stages ---------------------------------------------------------------------- */

/* Where each byte of the fresh working buffer comes from: its character. */
static void mark_origins(by_work *w)
{
    size_t from = 0;
    for (size_t i = 0; i < w->size;) {
        if (w->at[i].end) { /* a replaced byte, marked when it was put */
            from = w->at[i].end;
            i += 3;
            continue;
        }
        uint32_t c;
        size_t n = (size_t)by_utf8_next(w->text + i, w->size - i, &c);
        for (size_t k = 0; k < n; k++)
            w->at[i + k] = (by_at){(uint32_t)from, (uint32_t)(from + n)};
        from += n;
        i += n;
    }
}

/* Cut added tokens out of the pieces that are text. */
static by_status cut_added(const by_added *a, bool normalized, by_work *work, by_work *spare)
{
    if (normalized ? !a->normalized : !a->raw)
        return BY_OK;
    spare->count = 0;
    for (size_t i = 0; i < work->count; i++) {
        by_piece piece = work->pieces[i];
        if (piece.id >= 0)
            by_work_piece(spare, piece.start, piece.size, piece.id);
        else
            BY_TRY(by_added_split(a, normalized, work->text, piece.start, piece.size, spare));
    }
    by_piece *pieces = work->pieces;
    size_t capacity = work->piece_capacity;
    work->pieces = spare->pieces;
    work->piece_capacity = spare->piece_capacity;
    work->count = spare->count;
    spare->pieces = pieces;
    spare->piece_capacity = capacity;
    spare->count = 0;
    return spare->failed ? by_fail(BY_ERR_MEMORY, "out of memory encoding a text") : BY_OK;
}

/* Places inside a piece to places in the text. */
static void place_piece(by_spans *spans, size_t from, const by_work *w, const by_piece *piece)
{
    for (size_t i = from; i < spans->count; i++) {
        by_at at = spans->data[i];
        size_t start = piece->start + at.start, end = piece->start + BY_MAX(at.end, at.start + 1);
        spans->data[i] = (by_at){w->at[start].start, w->at[end - 1].end};
    }
}

static by_status encode_stages(const by_pipeline *p, by_scratch *s, const char *text, size_t size,
                               by_ids *out, by_spans *spans)
{
    by_work *w = &s->work;
    by_work_clear(w, spans != NULL);
    by_work_clear(&s->spare, spans != NULL);
    BY_TRY(by_work_fill(w, text, size));
    if (w->at)
        mark_origins(w);
    by_work_piece(w, 0, w->size, -1);
    BY_TRY(cut_added(&p->added, false, w, &s->spare));
    BY_TRY(by_stages_run(&p->normalizers, w, &s->spare));
    BY_TRY(cut_added(&p->added, true, w, &s->spare));
    BY_TRY(by_stages_run(&p->splitters, w, &s->spare));
    BY_TRY(by_ids_reserve(out, w->count + w->count / 4 + 16));
    for (size_t i = 0; i < w->count; i++) {
        const by_piece *piece = &w->pieces[i];
        size_t before = spans ? spans->count : 0;
        if (piece->id < 0) {
            BY_TRY(encode_word(p, s, w->text + piece->start, piece->size, out, spans));
        } else {
            BY_TRY(by_ids_push(out, piece->id));
            if (spans)
                BY_TRY(by_spans_push(spans, 0, piece->size));
        }
        if (spans)
            place_piece(spans, before, w, piece);
    }
    return BY_OK;
}

by_status by_pipeline_encode(const by_pipeline *p, const char *text, size_t size, by_ids *out,
                             by_spans *spans)
{
    if (size == 0)
        return BY_OK;
    if (spans && size >= UINT32_MAX)
        return by_fail(BY_ERR_ARGUMENT, "a text of %zu bytes is too long to keep the places of its tokens",
                       size);
    by_scratch *s = by_pool_take(&p->pool);
    if (!s)
        return BY_ERR_MEMORY;
    size_t before = out->count;
    by_status status = p->bytes_direct ? encode_direct(p, s, text, size, out, spans)
                                       : encode_stages(p, s, text, size, out, spans);
    by_pool_return(&p->pool, s);
    if (status != BY_OK)
        out->count = before;
    return status;
}
