/* encode.c - text to ids with a tokenizer.json: added tokens, normalisers, splitters, model. */
#include "text/pipeline.h"
#include "text/unicode.h"

#define CANCEL_PIECES 4096 /* pieces of a text between two checks for cancellation */

/* ---- spaces at the ends of tokens ------------------------------------------------------------ */

/* Returns true if trimming treats this character as a space. */
static bool is_trimmed(uint32_t c)
{
    return c == 0x120 || tok_is_space(c);
}

static uint32_t leading_spaces(const char *text, size_t size)
{
    uint32_t count = 0, c;
    for (size_t i = 0; i < size; count++) {
        i += (size_t)tok_utf8_next(text + i, size - i, &c);
        if (!is_trimmed(c))
            break;
    }
    return count;
}

static uint32_t trailing_spaces(const char *text, size_t size)
{
    uint32_t count = 0, c;
    for (size_t i = size; i > 0; count++) {
        do
            i--;
        while (i > 0 && ((uint8_t)text[i] & 0xc0) == 0x80);
        tok_utf8_next(text + i, size - i, &c);
        if (!is_trimmed(c))
            break;
    }
    return count;
}

static void count_spaces(tok_span_place *place, const char *text, size_t size)
{
    place->lead = leading_spaces(text, size);
    place->trail = trailing_spaces(text, size);
}

/* Counts the spaces of the last n tokens, whose ranges are still relative to the word. */
static void count_word_spaces(const tok_text_model *m, const char *word, const by_ids *ids, tok_spans *spans,
                              size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tok_span_place *place = &spans->data[spans->count - n + i];
        int32_t id = ids->data[ids->count - n + i];
        if (id + 1 == m->surface)
            count_spaces(place, word + place->start, place->end - place->start);
        else
            count_spaces(place, m->vocab.tokens[id].text, m->vocab.tokens[id].size);
    }
}

/* ---- direct path from bytes to ids ----------------------------------------------------------- */

/* Encodes one word, through the cache if no ranges are requested. */
static inline by_status encode_word(const tok_pipeline *p, tok_scratch *s, const char *word, size_t size,
                                    by_ids *out, tok_spans *spans)
{
    if (!spans) {
        size_t count, before = out->count;
        const int32_t *known = tok_cache_find(s, word, size, &count);
        if (known) {
            if (out->capacity - out->count < count)
                BY_TRY(tok_ids_reserve(out, count));
            for (size_t i = 0; i < count; i++)
                out->data[before + i] = known[i];
            out->count += count;
            return BY_OK;
        }
        BY_TRY(p->bytes_direct ? tok_bpe_encode_bytes(p->model, s, word, size, out, NULL)
                               : p->model->encode(p->model, s, word, size, out, NULL));
        tok_cache_put(s, word, size, out->data + before, out->count - before);
        return BY_OK;
    }
    size_t before = spans->count;
    BY_TRY(p->bytes_direct ? tok_bpe_encode_bytes(p->model, s, word, size, out, spans)
                           : p->model->encode(p->model, s, word, size, out, spans));
    if (p->post.trims)
        count_word_spaces(p->model, word, out, spans, spans->count - before);
    return BY_OK;
}

/* Appends an added token and its range, [start, end). */
static by_status put_added(int32_t id, const char *text, size_t start, size_t end, by_ids *out,
                           tok_spans *spans)
{
    BY_TRY(tok_ids_push(out, id));
    if (!spans)
        return BY_OK;
    BY_TRY(tok_spans_push(spans, start, end));
    count_spaces(&spans->data[spans->count - 1], text, end - start);
    return BY_OK;
}

/* Converts ranges in a word of bytes to ranges in the text. A token with part of a character gets the range
 * of the whole character. */
static void place_bytes(tok_spans *spans, size_t from, const char *text, size_t size, size_t base,
                        size_t word, size_t shift)
{
    for (size_t i = from; i < spans->count; i++) {
        size_t start = word + spans->data[i].start, end = word + spans->data[i].end;
        start = start > shift ? start - shift : 0;
        /* A prepended space has the range of the first character. */
        end = end > shift ? end - shift : BY_MIN((size_t)1, size);
        while (start > 0 && ((uint8_t)text[start] & 0xc0) == 0x80)
            start--;
        while (end < size && ((uint8_t)text[end] & 0xc0) == 0x80)
            end++;
        spans->data[i].start = (uint32_t)(base + start);
        spans->data[i].end = (uint32_t)(base + end);
    }
}

static by_status encode_bytes(const tok_pipeline *p, tok_scratch *s, const char *text, size_t base,
                              size_t size, by_ids *out, tok_spans *spans)
{
    const char *all = text + base;
    size_t n = size, shift = 0;
    base_buf joined = {0};
    by_status status = BY_OK;
    if (p->prefix_space && size && all[0] != ' ') {
        base_buf_puts(&joined, " ");
        base_buf_put(&joined, all, size);
        if (joined.failed) {
            base_buf_free(&joined);
            return base_fail(BY_ERR_MEMORY, "out of memory while encoding a text");
        }
        all = joined.data;
        n++;
        shift = 1;
    }
    for (size_t i = 0, end, words = 0; i < n && status == BY_OK; i = end) {
        if (++words % CANCEL_PIECES == 0 && (status = base_cancel_check()) != BY_OK)
            break;
        end = p->words ? tok_gpt2_word((const uint8_t *)all, i, n) : n;
        size_t before = spans ? spans->count : 0;
        status = encode_word(p, s, all + i, end - i, out, spans);
        if (spans && status == BY_OK)
            place_bytes(spans, before, text + base, size, base, i, shift);
    }
    base_buf_free(&joined);
    return status;
}

/* Splits the text at added tokens of both kinds; the text itself is not copied. */
static by_status split_added(const tok_pipeline *p, tok_scratch *s, const char *text, size_t size)
{
    tok_buffer_clear(&s->work, false);
    BY_TRY(tok_added_split(&p->added, false, text, 0, size, &s->work));
    if (!p->added.normalized)
        return BY_OK;
    tok_buffer_clear(&s->spare, false);
    for (size_t i = 0; i < s->work.count; i++) {
        tok_piece piece = s->work.pieces[i];
        if (piece.id >= 0)
            tok_buffer_piece(&s->spare, piece.start, piece.size, piece.id);
        else
            BY_TRY(tok_added_split(&p->added, true, text, piece.start, piece.size, &s->spare));
    }
    tok_buffer t = s->work;
    s->work = s->spare;
    s->spare = t;
    return s->work.failed ? base_fail(BY_ERR_MEMORY, "out of memory while encoding a text") : BY_OK;
}

static by_status encode_direct(const tok_pipeline *p, tok_scratch *s, const char *text, size_t size,
                               by_ids *out, tok_spans *spans)
{
    BY_TRY(split_added(p, s, text, size));
    BY_TRY(tok_ids_reserve(out, size / 3 + 16));
    for (size_t i = 0; i < s->work.count; i++) {
        tok_piece piece = s->work.pieces[i];
        if (piece.id < 0) {
            BY_TRY(encode_bytes(p, s, text, piece.start, piece.size, out, spans));
            continue;
        }
        BY_TRY(put_added(piece.id, text + piece.start, piece.start, piece.start + piece.size, out, spans));
    }
    return BY_OK;
}

/* ---- through all stages ---------------------------------------------------------------------- */

/* Sets the origin of each byte of the fresh buffer: its character. */
static void mark_origins(tok_buffer *w)
{
    size_t from = 0;
    for (size_t i = 0; i < w->size;) {
        if (w->at[i].end) { /* a replaced byte, marked when it was put */
            from = w->at[i].end;
            i += 3;
            continue;
        }
        uint32_t c;
        size_t n = (size_t)tok_utf8_next(w->text + i, w->size - i, &c);
        for (size_t k = 0; k < n; k++)
            w->at[i + k] = (tok_at){(uint32_t)from, (uint32_t)(from + n)};
        from += n;
        i += n;
    }
}

/* Splits added tokens off the pieces that are text. */
static by_status cut_added(const tok_added *a, bool normalized, tok_buffer *work, tok_buffer *spare)
{
    if (normalized ? !a->normalized : !a->raw)
        return BY_OK;
    spare->count = 0;
    for (size_t i = 0; i < work->count; i++) {
        tok_piece piece = work->pieces[i];
        if (piece.id >= 0)
            tok_buffer_piece(spare, piece.start, piece.size, piece.id);
        else
            BY_TRY(tok_added_split(a, normalized, work->text, piece.start, piece.size, spare));
    }
    tok_piece *pieces = work->pieces;
    size_t capacity = work->piece_capacity;
    work->pieces = spare->pieces;
    work->piece_capacity = spare->piece_capacity;
    work->count = spare->count;
    spare->pieces = pieces;
    spare->piece_capacity = capacity;
    spare->count = 0;
    return spare->failed ? base_fail(BY_ERR_MEMORY, "out of memory while encoding a text") : BY_OK;
}

/* Returns the start of the character that contains text[i], i < size. */
static size_t char_start(const char *text, size_t i)
{
    while (i > 0 && ((uint8_t)text[i] & 0xc0) == 0x80)
        i--;
    return i;
}

/* Handles a range beyond the end of its word, which the bytes of an affix have. The reference leaves it
 * unchanged and then interprets it as a range in the text. */
static void place_beyond(tok_span_place *at, const char *text, size_t size)
{
    size_t start = at->start, end = at->end;
    if (start >= size) {
        start = end = size;
    } else if (end < size) {
        start = char_start(text, start);
        end = char_start(text, end);
    } else {
        size_t chars = end > size ? 2 : 0;
        start = char_start(text, start);
        for (end = chars ? start : size; chars && end < size; chars--)
            end += (size_t)tok_utf8_next(text + end, size - end, &(uint32_t){0});
    }
    at->start = (uint32_t)start;
    at->end = (uint32_t)end;
}

/* Converts ranges in a piece to ranges in the text. */
static void place_piece(tok_spans *spans, size_t from, const tok_buffer *w, const tok_piece *piece,
                        const char *text, size_t size)
{
    for (size_t i = from; i < spans->count; i++) {
        tok_span_place *at = &spans->data[i];
        if (at->end > piece->size) {
            place_beyond(at, text, size);
            continue;
        }
        size_t start = piece->start + at->start, end = piece->start + BY_MAX(at->end, at->start + 1);
        at->start = w->at[start].start;
        at->end = w->at[end - 1].end;
    }
}

static by_status encode_stages(const tok_pipeline *p, tok_scratch *s, const char *text, size_t size,
                               by_ids *out, tok_spans *spans)
{
    tok_buffer *w = &s->work;
    const bool places = spans || p->keep_places;
    tok_buffer_clear(w, places);
    tok_buffer_clear(&s->spare, places);
    BY_TRY(tok_buffer_fill(w, text, size));
    if (w->at)
        mark_origins(w);
    tok_buffer_piece(w, 0, w->size, -1);
    BY_TRY(cut_added(&p->added, false, w, &s->spare));
    for (size_t i = 0; w->at && i < w->count; i++)
        w->pieces[i].base = w->at[w->pieces[i].start].start;
    BY_TRY(tok_stages_run(&p->normalizers, w, &s->spare));
    BY_TRY(cut_added(&p->added, true, w, &s->spare));
    BY_TRY(tok_stages_run(&p->splitters, w, &s->spare));
    BY_TRY(tok_ids_reserve(out, w->count + w->count / 4 + 16));
    for (size_t i = 0; i < w->count; i++) {
        const tok_piece *piece = &w->pieces[i];
        if (i % CANCEL_PIECES == 0)
            BY_TRY(base_cancel_check());
        size_t before = spans ? spans->count : 0;
        if (piece->id < 0)
            BY_TRY(encode_word(p, s, w->text + piece->start, piece->size, out, spans));
        else
            BY_TRY(put_added(piece->id, w->text + piece->start, 0, piece->size, out, spans));
        if (spans)
            place_piece(spans, before, w, piece, text, size);
    }
    return BY_OK;
}

by_status tok_pipeline_encode(const tok_pipeline *p, const char *text, size_t size, by_ids *out,
                              tok_spans *spans)
{
    if (size == 0)
        return BY_OK;
    if ((spans || p->keep_places) && size >= UINT32_MAX)
        return base_fail(BY_ERR_ARGUMENT, "a text of %zu bytes is too long to record token offsets", size);
    tok_scratch *s = tok_pool_take(&p->pool);
    if (!s)
        return BY_ERR_MEMORY;
    size_t before = out->count;
    by_status status = p->bytes_direct ? encode_direct(p, s, text, size, out, spans)
                                       : encode_stages(p, s, text, size, out, spans);
    tok_pool_return(&p->pool, s);
    if (status != BY_OK)
        out->count = before;
    return status;
}
