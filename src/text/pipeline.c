/* pipeline.c - encoding and decoding with a tokenizer.json: added tokens, normalisers, splitters, model,
 * template, decoders. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* ---- scratch, shared between threads without a lock ------------------------------------------ */

static by_scratch *take_scratch(const by_pipeline *p)
{
    by_pipeline *owner = (by_pipeline *)p; /* the slots are a cache: they change nothing that can be seen */
    for (int i = 0; i < BY_SCRATCH_SLOTS; i++) {
        by_scratch *s = atomic_exchange(&owner->spare[i], NULL);
        if (s)
            return s;
    }
    return by_scratch_new();
}

static void return_scratch(const by_pipeline *p, by_scratch *s)
{
    by_pipeline *owner = (by_pipeline *)p;
    for (int i = 0; i < BY_SCRATCH_SLOTS && s; i++) {
        by_scratch *empty = NULL;
        if (atomic_compare_exchange_strong(&owner->spare[i], &empty, s))
            s = NULL;
    }
    by_scratch_free(s);
}

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
static void mark_origins(by_work *w, size_t size)
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
    (void)size;
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
    BY_TRY(by_work_open(w, text, size));
    if (w->at)
        mark_origins(w, size);
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

/* The ids of one text without special tokens, appended; on failure nothing is. */
static by_status encode_text(const by_pipeline *p, const char *text, size_t size, by_ids *out,
                             by_spans *spans)
{
    if (size == 0)
        return BY_OK;
    if (spans && size >= UINT32_MAX)
        return by_fail(BY_ERR_ARGUMENT, "a text of %zu bytes is too long to keep the places of its tokens",
                       size);
    by_scratch *s = take_scratch(p);
    if (!s)
        return BY_ERR_MEMORY;
    size_t before = out->count;
    by_status status = p->bytes_direct ? encode_direct(p, s, text, size, out, spans)
                                       : encode_stages(p, s, text, size, out, spans);
    return_scratch(p, s);
    if (status != BY_OK)
        out->count = before;
    return status;
}

static by_status pipeline_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return encode_text((const by_pipeline *)t, text, size, out, NULL);
}

/* ---- special tokens, pairs, truncation, padding ---------------------------------------------- */

/* Leave out the spaces at the ends of each token's place, as byte-level post-processors ask. */
static void trim_places(const by_pipeline *p, const char *text, const by_ids *ids, by_spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        by_at *at = &spans->data[i];
        const by_token *token = &p->texts[ids->data[i]];
        uint32_t c;
        size_t lead = 0, n = token->size;
        for (size_t k = 0; k < n; lead++) {
            size_t length = (size_t)by_utf8_next(token->text + k, n - k, &c);
            if (c != 0x120 && !by_is_space(c))
                break;
            k += length;
        }
        size_t trail = 0;
        for (size_t k = n; k > 0; trail++) {
            do
                k--;
            while (k > 0 && ((uint8_t)token->text[k] & 0xc0) == 0x80);
            by_utf8_next(token->text + k, n - k, &c);
            if (c != 0x120 && !by_is_space(c))
                break;
        }
        if (lead == 1 && p->post.trim_prefix_space && (i == 0 || at->start == 0) && text[at->start] != ' ')
            lead = 0;
        at->start = (uint32_t)BY_MIN(at->start + lead, (size_t)at->end);
        if (trail && at->end >= trail)
            at->end = (uint32_t)BY_MAX(at->end - trail, (size_t)at->start);
    }
}

typedef struct part {
    by_ids ids;
    by_spans spans;
    size_t first, count; /* what is left of it */
} part;

static void part_cut(part *v, size_t count, bool left)
{
    if (count >= v->count)
        return;
    if (left)
        v->first += v->count - count;
    v->count = count;
}

/* Room for `limit` ids in all: the longer text gives way first. */
static void truncate(part *a, part *b, size_t limit, bool left)
{
    if (a->count + b->count <= limit)
        return;
    size_t low = BY_MIN(a->count, b->count), high;
    if (low > limit)
        high = low;
    else
        high = BY_MAX(low, limit - low);
    if (low + high > limit) {
        low = limit / 2;
        high = low + limit % 2;
    }
    bool swap = a->count > b->count;
    part_cut(a, swap ? high : low, left);
    part_cut(b, swap ? low : high, left);
}

static by_status put_token(by_encoding *out, bool offsets, int32_t id, by_at at, int type, bool special)
{
    BY_TRY(by_ids_push(&out->ids, id));
    size_t i = out->ids.count - 1;
    if (i >= out->capacity) {
        size_t capacity = BY_MAX(out->capacity * 2, (size_t)64);
        uint8_t *types = by_resize(out->types, capacity, 1);
        if (types)
            out->types = types;
        uint8_t *mask = by_resize(out->special, capacity, 1);
        if (mask)
            out->special = mask;
        by_offset *places = offsets ? by_resize(out->offsets, capacity, sizeof(*places)) : NULL;
        if (places)
            out->offsets = places;
        if (!types || !mask || (offsets && !places))
            return BY_ERR_MEMORY;
        out->capacity = capacity;
    }
    out->types[i] = (uint8_t)type;
    out->special[i] = special;
    if (offsets)
        out->offsets[i] = (by_offset){at.start, at.end};
    return BY_OK;
}

static by_status put_part(by_encoding *out, bool offsets, const part *v, int type)
{
    for (size_t i = v->first; i < v->first + v->count; i++)
        BY_TRY(
            put_token(out, offsets, v->ids.data[i], offsets ? v->spans.data[i] : (by_at){0, 0}, type, false));
    return BY_OK;
}

static by_status put_template(const by_template *t, bool offsets, const part parts[2], by_encoding *out)
{
    for (int i = 0; i < t->count; i++) {
        const by_template_item *item = &t->items[i];
        if (item->sequence >= 0)
            BY_TRY(put_part(out, offsets, &parts[item->sequence], item->type_id));
        for (int k = 0; k < item->count; k++)
            BY_TRY(put_token(out, offsets, item->ids[k], (by_at){0, 0}, item->type_id, true));
    }
    return BY_OK;
}

/* Padding to a length that the file fixes; a batch is padded by whoever has it. */
static by_status put_padding(const by_pipeline *p, bool offsets, by_encoding *out)
{
    size_t target = BY_MAX(out->ids.count, (size_t)p->pad_to), multiple = (size_t)p->pad_multiple;
    if (multiple)
        target = (target + multiple - 1) / multiple * multiple;
    size_t missing = target - out->ids.count, own = out->ids.count;
    for (size_t i = 0; i < missing; i++)
        BY_TRY(put_token(out, offsets, p->pad_id, (by_at){0, 0}, p->pad_type_id, true));
    out->padding = missing;
    out->padded_left = p->pad_left;
    if (!missing || !p->pad_left || !own)
        return BY_OK;
    memmove(out->ids.data + missing, out->ids.data, own * sizeof(*out->ids.data));
    memmove(out->types + missing, out->types, own);
    memmove(out->special + missing, out->special, own);
    memset(out->special, 1, missing);
    memset(out->types, p->pad_type_id, missing);
    for (size_t i = 0; i < missing; i++)
        out->ids.data[i] = p->pad_id;
    if (offsets) {
        memmove(out->offsets + missing, out->offsets, own * sizeof(*out->offsets));
        memset(out->offsets, 0, missing * sizeof(*out->offsets));
    }
    return BY_OK;
}

static by_status pipeline_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                      const by_encode_spec *spec, by_encoding *out)
{
    const by_pipeline *p = (const by_pipeline *)t;
    part parts[2] = {{{0}, {0}, 0, 0}, {{0}, {0}, 0, 0}};
    bool paired = spec->pair != NULL, offsets = spec->offsets;
    const by_template *template = paired ? &p->post.pair : &p->post.single;
    bool templated = p->post.has_template && spec->special;
    by_status status = BY_OK;
    for (int i = 0; i <= paired && status == BY_OK; i++) {
        const char *s = i ? spec->pair : text;
        status =
            encode_text(p, s, i ? spec->pair_size : size, &parts[i].ids, offsets ? &parts[i].spans : NULL);
        if (status == BY_OK && offsets && p->post.trim)
            trim_places(p, s, &parts[i].ids, &parts[i].spans);
        parts[i].count = parts[i].ids.count;
    }
    if (status == BY_OK && p->truncate && !spec->whole) {
        size_t added = 0;
        for (int i = 0; templated && i < template->count; i++)
            added += (size_t) template->items[i].count;
        truncate(&parts[0], &parts[1], (size_t)p->truncate > added ? (size_t)p->truncate - added : 0,
                 p->truncate_left);
    }
    if (status == BY_OK && templated) {
        status = put_template(template, offsets, parts, out);
    } else if (status == BY_OK) {
        status = put_part(out, offsets, &parts[0], 0);
        if (status == BY_OK)
            status = put_part(out, offsets, &parts[1], 1);
    }
    if (status == BY_OK && p->pad && !spec->whole)
        status = put_padding(p, offsets, out);
    for (int i = 0; i < 2; i++) {
        by_ids_free(&parts[i].ids);
        by_free(parts[i].spans.data);
    }
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static by_status pipeline_decode_with(const by_tokenizer *t, const int32_t *ids, size_t count,
                                      const by_decode_spec *spec, by_buf *out)
{
    const by_pipeline *p = (const by_pipeline *)t;
    by_token *tokens = by_alloc((count + 1) * sizeof(*tokens));
    size_t n = 0;
    if (!tokens)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const by_token *token = &p->texts[ids[i]];
        if (token->text && !(spec->skip_special && p->specials[ids[i]]))
            tokens[n++] = *token;
    }
    by_status status = by_decoders_run(p->decoders, tokens, n, spec->lossy, out);
    by_free(tokens);
    return status;
}

static void pipeline_decode(const by_tokenizer *t, const int32_t *ids, size_t count, by_buf *out)
{
    if (pipeline_decode_with(t, ids, count, &(by_decode_spec){0}, out) != BY_OK)
        out->failed = true;
}

/* ---- cutting a text that comes in parts ------------------------------------------------------ */

/* May an added token lie across text[i], or reach over the spaces that follow it? */
static bool token_across(const by_added *a, const char *text, size_t size, size_t i)
{
    for (int k = 0; k < a->count; k++) {
        const by_added_token *t = &a->items[k];
        if (t->rstrip && i >= t->size && memcmp(text + i - t->size, t->content, t->size) == 0)
            return true;
        if (!memchr(t->content, ' ', t->size))
            continue;
        for (size_t before = 1; before < t->size && before <= i; before++) {
            size_t n = BY_MIN((size_t)t->size, size - (i - before));
            if (memcmp(text + i - before, t->content, n) == 0)
                return true;
        }
    }
    return false;
}

/* Does the first splitter start a new piece at every space behind a character that is none? Regular
 * expressions may keep punctuation with what follows it. */
static bool splits_at_spaces(const by_pipeline *p)
{
    static const char *const types[] = {"ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit",
                                        "Metaspace"};
    for (int i = 0; i < BY_COUNT(types) && p->splitters.count; i++)
        if (strcmp(p->splitters.items[0].type, types[i]) == 0)
            return true;
    return false;
}

/* Before a space that begins a new piece; behind letters and numbers it does so in every published splitter.
 * A text without such a place is cut between characters, which splits one word of the size of a chunk. */
static size_t pipeline_cut(const by_tokenizer *t, const char *text, size_t size)
{
    const by_pipeline *p = (const by_pipeline *)t;
    bool any = splits_at_spaces(p);
    for (size_t i = size; i-- > 1;) {
        if (text[i] != ' ')
            continue;
        size_t before = i - 1;
        while (before > 0 && i - before < 4 && ((uint8_t)text[before] & 0xc0) == 0x80)
            before--;
        uint32_t c;
        by_utf8_next(text + before, i - before, &c);
        bool word = c < 0x80 && by_class(c) != BY_CHAR_OTHER && by_class(c) != BY_CHAR_SPACE;
        if ((word || (any && !by_is_space(c))) && !token_across(&p->added, text, size, i))
            return i;
    }
    return by_utf8_cut((const uint8_t *)text, size);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void pipeline_free(by_tokenizer *t)
{
    by_pipeline *p = (by_pipeline *)t;
    for (int i = 0; i < BY_SCRATCH_SLOTS; i++)
        by_scratch_free(atomic_exchange(&p->spare[i], NULL));
    by_free(p->json);
    by_free(p->texts);
    by_free(p->specials);
    by_added_free(&p->added);
    by_stages_free(&p->normalizers);
    by_stages_free(&p->splitters);
    by_text_model_free(p->model);
    by_post_free(&p->post);
    by_decoders_free(p->decoders);
    by_free(p);
}

static by_status read_size(const cJSON *json, const char *key, int fallback, int *out)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(json, key);
    *out = fallback;
    if (!n || cJSON_IsNull(n))
        return BY_OK;
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0 && n->valuedouble < (1 << 30)))
        return by_fail(BY_ERR_FORMAT, "\"%s\" is not a whole number", key);
    *out = (int)n->valuedouble;
    return BY_OK;
}

static by_status read_truncation(const cJSON *json, by_pipeline *p)
{
    static const char *const keys[] = {"direction", "max_length", "strategy", "stride"};
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    BY_TRY(by_json_only(json, "truncation", keys, BY_COUNT(keys)));
    const char *strategy = by_stage_string(json, "strategy"), *direction = by_stage_string(json, "direction");
    if (strategy && strcmp(strategy, "LongestFirst") != 0)
        return by_fail(BY_ERR_UNSUPPORTED, "truncation by the strategy \"%.40s\" is not supported", strategy);
    p->truncate_left = direction && strcmp(direction, "Left") == 0;
    return read_size(json, "max_length", 0, &p->truncate);
}

static by_status read_padding(const cJSON *json, by_pipeline *p)
{
    static const char *const keys[] = {"strategy", "direction",   "pad_to_multiple_of",
                                       "pad_id",   "pad_type_id", "pad_token"};
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    BY_TRY(by_json_only(json, "padding", keys, BY_COUNT(keys)));
    const char *direction = by_stage_string(json, "direction");
    p->pad = true;
    p->pad_left = direction && strcmp(direction, "Left") == 0;
    BY_TRY(read_size(cJSON_GetObjectItemCaseSensitive(json, "strategy"), "Fixed", 0, &p->pad_to));
    BY_TRY(read_size(json, "pad_to_multiple_of", 0, &p->pad_multiple));
    BY_TRY(read_size(json, "pad_type_id", 0, &p->pad_type_id));
    return read_size(json, "pad_id", 0, &p->pad_id);
}

/* Text and specialness of each id, for decoding; added tokens stand before the model's. */
static by_status collect_texts(by_pipeline *p)
{
    int count = p->model->vocab.count;
    for (int i = 0; i < p->added.count; i++)
        count = BY_MAX(count, p->added.items[i].id + 1);
    count = p->pad ? BY_MAX(count, p->pad_id + 1) : count;
    if (count > (1 << 24))
        return by_fail(BY_ERR_FORMAT, "a vocabulary of %d ids is too large", count);
    p->texts = by_alloc_zero((size_t)count + 1, sizeof(*p->texts));
    p->specials = by_alloc_zero((size_t)count + 1, 1);
    if (!p->texts || !p->specials)
        return BY_ERR_MEMORY;
    if (p->model->vocab.count)
        memcpy(p->texts, p->model->vocab.tokens, (size_t)p->model->vocab.count * sizeof(*p->texts));
    for (int i = 0; i < p->added.count; i++) {
        const by_added_token *t = &p->added.items[i];
        p->texts[t->id] = (by_token){t->pattern, t->pattern_size};
        p->specials[t->id] = t->special;
    }
    p->base.vocab_size = count;
    return BY_OK;
}

static by_status check_ids(const by_pipeline *p, const by_template *t)
{
    for (int i = 0; i < t->count; i++)
        for (int k = 0; k < t->items[i].count; k++)
            if (t->items[i].ids[k] >= p->base.vocab_size)
                return by_fail(BY_ERR_FORMAT, "a post-processor adds the id %d, which no token has",
                               t->items[i].ids[k]);
    return BY_OK;
}

/* Byte-level BPE with nothing before its splitter needs no stages. */
static void find_short_cut(by_pipeline *p)
{
    const by_stage *s = p->splitters.items;
    if (p->normalizers.count || p->splitters.count != 1 || strcmp(s->type, "ByteLevel") != 0)
        return;
    p->bytes_direct = by_bpe_takes_bytes(p->model);
    p->prefix_space = s->flags[0];
    p->words = s->flags[1];
}

static void find_end(by_pipeline *p)
{
    static const char *const names[] = {"<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>"};
    for (int k = 0; k < BY_COUNT(names); k++)
        for (int i = 0; i < p->added.count; i++)
            if (p->base.eos < 0 && strcmp(p->added.items[i].content, names[k]) == 0)
                by_tokenizer_set_eos(&p->base, names[k]);
}

static by_status read_parts(by_pipeline *p, const cJSON *root)
{
    static const char *const keys[] = {"version",        "truncation", "padding",
                                       "added_tokens",   "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder",    "model"};
    BY_TRY(by_json_only(root, "tokenizer.json", keys, BY_COUNT(keys)));
    const char *version = by_stage_string(root, "version");
    if (version && strcmp(version, "1.0") != 0)
        return by_fail(BY_ERR_UNSUPPORTED, "version \"%.20s\" of tokenizer.json is not supported", version);
    p->model = by_text_model_read(cJSON_GetObjectItemCaseSensitive(root, "model"));
    if (!p->model)
        return by_error_status();
    BY_TRY(by_normalizers_read(cJSON_GetObjectItemCaseSensitive(root, "normalizer"), &p->normalizers));
    BY_TRY(by_splitters_read(cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"), &p->splitters));
    BY_TRY(by_post_read(cJSON_GetObjectItemCaseSensitive(root, "post_processor"), &p->post));
    BY_TRY(by_added_read(cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), &p->added));
    BY_TRY(read_truncation(cJSON_GetObjectItemCaseSensitive(root, "truncation"), p));
    BY_TRY(read_padding(cJSON_GetObjectItemCaseSensitive(root, "padding"), p));
    p->decoders = by_decoders_read(cJSON_GetObjectItemCaseSensitive(root, "decoder"));
    if (!p->decoders)
        return by_error_status();
    BY_TRY(by_added_prepare(&p->added, &p->normalizers));
    BY_TRY(collect_texts(p));
    BY_TRY(check_ids(p, &p->post.single));
    return check_ids(p, &p->post.pair);
}

static by_tokenizer *pipeline_read(const cJSON *root)
{
    by_pipeline *p = by_alloc_zero(1, sizeof(*p));
    if (!p)
        return NULL;
    p->base = (by_tokenizer){.kind = &by_text_pipeline, .eos = -1};
    if (read_parts(p, root) != BY_OK) {
        pipeline_free(&p->base);
        return NULL;
    }
    find_short_cut(p);
    find_end(p);
    return &p->base;
}

static bool pipeline_match(const cJSON *root)
{
    return cJSON_IsObject(root);
}

static void pipeline_write(const by_tokenizer *t, by_buf *out)
{
    const by_pipeline *p = (const by_pipeline *)t;
    by_buf_put(out, p->json, p->json_size);
}

by_status by_pipeline_keep(by_tokenizer *t, const char *json, size_t size)
{
    by_pipeline *p = (by_pipeline *)t;
    p->json = by_alloc(size + 1);
    if (!p->json)
        return BY_ERR_MEMORY;
    memcpy(p->json, json, size);
    p->json_size = size;
    return BY_OK;
}

const char *by_pipeline_type(const by_tokenizer *t)
{
    return ((const by_pipeline *)t)->model->type;
}

/* The id of a token, added or of the model; -1 when there is none. */
static int32_t pipeline_find(const by_tokenizer *t, const char *token, const char **text)
{
    const by_pipeline *p = (const by_pipeline *)t;
    for (int i = 0; i < p->added.count; i++)
        if (strcmp(p->added.items[i].content, token) == 0) {
            *text = p->added.items[i].content;
            return p->added.items[i].id;
        }
    int32_t id = by_vocab_find(&p->model->vocab, token, strlen(token));
    *text = id >= 0 ? p->model->vocab.tokens[id].text : NULL;
    return id;
}

const by_text_kind by_text_pipeline = {
    .name = "pipeline",
    .match = pipeline_match,
    .read = pipeline_read,
    .write = pipeline_write,
    .encode = pipeline_encode,
    .encode_with = pipeline_encode_with,
    .decode = pipeline_decode,
    .decode_with = pipeline_decode_with,
    .cut = pipeline_cut,
    .find = pipeline_find,
    .free = pipeline_free,
};
