/* sentencepiece.c - a bare SentencePiece model (Kudo and Richardson 2018): its normaliser, its unigram or BPE
 * search and its decoder, with the arithmetic of the library, so that near ties are resolved the same way. */
#include "text/legacy/sp.h"
#include "text/utf8.h"

/* ---- normalising ----------------------------------------------------------------------------- */

/* Returns the normalised form of the start of text: *size bytes, for *used bytes of text. */
static const char *normalize_prefix(const tok_sp *t, const char *text, size_t rest, size_t *size,
                                    size_t *used)
{
    *used = tok_sp_user(t, text, rest);
    if (*used) {
        *size = *used;
        return text;
    }
    const char *mapped = t->map ? tok_charsmap_find(t->map, text, rest, true, used) : NULL;
    if (mapped) {
        *size = strlen(mapped);
        return mapped;
    }
    uint32_t c;
    int n = tok_utf8_decode((const uint8_t *)text, rest, &c);
    *used = n ? (size_t)n : 1;
    *size = n ? (size_t)n : 3;
    return n ? text : "\xef\xbf\xbd";
}

static void put_space(const tok_sp *t, tok_buffer *out, tok_at at)
{
    tok_buffer_put(out, t->m.escape_spaces ? TOK_SP_SPACE : " ", t->m.escape_spaces ? 3 : 1, at);
}

static void put_normalized(const tok_sp *t, tok_buffer *out, const char *text, size_t n, tok_at at)
{
    for (size_t i = 0; i < n;) {
        if (text[i] == ' ') {
            put_space(t, out, at);
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < n && text[end] != ' ')
            end++;
        tok_buffer_put(out, text + i, end - i, at);
        i = end;
    }
}

/* Returns how many bytes from here on are unchanged and not spaces. */
static inline size_t plain_run(const tok_sp *t, const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && t->plain[(uint8_t)text[n]] && text[n] != ' ' &&
           (n + 1 == size || (uint8_t)text[n + 1] < 0x80))
        n++;
    return n;
}

static void normalize(const tok_sp *t, const char *text, size_t size, tok_buffer *out)
{
    bool squeeze = t->m.remove_spaces, spaced = squeeze;
    size_t i = 0, n, used;
    while (squeeze && i < size) {
        const char *s = normalize_prefix(t, text + i, size - i, &n, &used);
        if (n != 1 || s[0] != ' ')
            break;
        i += used;
    }
    if (i >= size)
        return;
    if (!t->m.space_as_suffix && t->m.dummy_prefix)
        put_space(t, out, (tok_at){(uint32_t)i, (uint32_t)i});
    tok_buffer_reserve(out, size + size / 4);
    for (; i < size && !out->failed; i += used) {
        used = out->offsets ? 0 : plain_run(t, text + i, size - i);
        if (used) {
            tok_buffer_put(out, text + i, used, (tok_at){0, 0});
            spaced = false;
            continue;
        }
        const char *s = normalize_prefix(t, text + i, size - i, &n, &used);
        for (; spaced && n && *s == ' '; s++)
            n--;
        if (n) {
            put_normalized(t, out, s, n, (tok_at){(uint32_t)i, (uint32_t)(i + used)});
            spaced = squeeze && s[n - 1] == ' ';
        }
    }
    size_t k = t->m.escape_spaces ? 3 : 1;
    while (squeeze && out->size >= k &&
           memcmp(out->text + out->size - k, t->m.escape_spaces ? TOK_SP_SPACE : " ", k) == 0)
        out->size -= k;
    if (t->m.space_as_suffix && t->m.dummy_prefix)
        put_space(t, out, (tok_at){(uint32_t)size, (uint32_t)size});
}

/* ---- encoding -------------------------------------------------------------------------------- */

static by_status encode_text(const tok_sp *t, const char *text, size_t size, bool offsets,
                             const tok_sink *out)
{
    if (size >= UINT32_MAX / 4)
        return base_fail(BY_ERR_ARGUMENT, "a text of %zu bytes is too long for a SentencePiece model", size);
    tok_scratch *s = tok_pool_take(&t->pool);
    if (!s)
        return BY_ERR_MEMORY;
    tok_buffer_clear(&s->work, offsets);
    normalize(t, text, size, &s->work);
    by_status status =
        s->work.failed ? base_fail(BY_ERR_MEMORY, "out of memory while encoding a text of %zu bytes", size)
                       : tok_sp_encode(t, s, out);
    tok_pool_return(&t->pool, s);
    return status;
}

by_status tok_spiece_each(const by_tokenizer *t, const char *text, size_t size, tok_piece_each *each,
                          void *context)
{
    return encode_text((const tok_sp *)t, text, size, true, &(tok_sink){.each = each, .context = context});
}

static by_status sp_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    size_t before = out->count;
    by_status status = encode_text((const tok_sp *)t, text, size, false, &(tok_sink){.ids = out});
    if (status != BY_OK)
        out->count = before;
    return status;
}

static by_status sp_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                const by_encode_spec *spec, by_encoding *out)
{
    tok_spans spans = {0};
    tok_sink to = {.ids = &out->ids, .spans = spec->offsets ? &spans : NULL};
    if (spec->pair)
        return base_fail(BY_ERR_UNSUPPORTED, "a bare SentencePiece model does not support pairs of texts");
    by_status status = encode_text((const tok_sp *)t, text, size, spec->offsets, &to);
    if (status == BY_OK)
        status = tok_encoding_fill(out, to.spans, out->ids.count);
    base_free(spans.data);
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void put_spaced(base_buf *out, const char *s, size_t n)
{
    size_t done = 0;
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(s + i, TOK_SP_SPACE, 3) == 0) {
            base_buf_put(out, s + done, i - done);
            base_buf_puts(out, " ");
            done = i + 3;
            i += 2;
        }
    base_buf_put(out, s + done, n - done);
}

static void put_byte_run(base_buf *out, const base_buf *bytes)
{
    for (size_t i = 0; i < bytes->size;) {
        uint32_t c;
        int n = tok_utf8_decode((const uint8_t *)bytes->data + i, bytes->size - i, &c);
        base_buf_put(out, n ? bytes->data + i : "\xef\xbf\xbd", n ? (size_t)n : 3);
        i += n ? (size_t)n : 1;
    }
}

static int hex_byte(const char *s)
{
    const char *digits = "0123456789ABCDEF", *high = memchr(digits, s[3], 16),
               *low = memchr(digits, s[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : 0;
}

/* Emits adjacent byte pieces as far as they are known. */
static void flush_bytes(tok_piece_state *s, base_buf *out)
{
    if (s->bytes.size) {
        put_byte_run(out, &s->bytes);
        s->any = true;
    }
    s->bytes.size = 0;
}

by_status tok_spiece_put(const by_tokenizer *base, tok_piece_state *s, int32_t id, const tok_token *piece,
                         base_buf *out)
{
    const tok_sp *t = (const tok_sp *)base;
    int type = id >= 0 ? t->m.types[id] : TOK_PIECE_NORMAL;
    if (type == TOK_PIECE_BYTE && piece->size == 6) {
        base_buf_put(&s->bytes, &(char){(char)hex_byte(piece->text)}, 1);
        return BY_OK;
    }
    flush_bytes(s, out);
    bool begin = !s->any && !s->dropped; /* a leading space is still to be dropped */
    if (type == TOK_PIECE_CONTROL) {
        s->any = s->any || s->dropped;
        return BY_OK;
    }
    if (type == TOK_PIECE_UNKNOWN) {
        base_buf_puts(out, t->m.unk_surface);
        s->any = true;
        return BY_OK;
    }
    bool drop = begin && (t->m.dummy_prefix || t->m.remove_spaces) && piece->size >= 3 &&
                memcmp(piece->text, TOK_SP_SPACE, 3) == 0;
    s->any = s->any || s->dropped || piece->size > (drop ? 3u : 0u);
    s->dropped = drop && !t->m.remove_spaces;
    put_spaced(out, piece->text + (drop ? 3 : 0), piece->size - (drop ? 3 : 0));
    return BY_OK;
}

by_status tok_spiece_end(tok_piece_state *s, base_buf *out)
{
    flush_bytes(s, out);
    bool failed = s->bytes.failed || out->failed;
    base_buf_free(&s->bytes);
    *s = (tok_piece_state){0};
    return failed ? base_fail(BY_ERR_MEMORY, "out of memory while decoding") : BY_OK;
}

/* Control pieces are never shown, so there is nothing to skip. */
static by_status sp_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                        base_buf *out)
{
    (void)spec;
    return tok_spiece_put(t, state, id, &((const tok_sp *)t)->m.vocab.tokens[id], out);
}

static by_status sp_end(const by_tokenizer *t, void *state, base_buf *out)
{
    (void)t;
    return tok_spiece_end(state, out);
}

/* ---- the rest of the kind -------------------------------------------------------------------- */

/* Splits a stream of text at a space, of which the second part keeps one: leading spaces and the prepended
 * space are the same. */
static size_t sp_cut(const by_tokenizer *t, const char *text, size_t size)
{
    (void)t;
    for (size_t i = size; i-- > 1;)
        if (text[i] == ' ' && text[i - 1] > ' ')
            return i;
    return tok_utf8_cut((const uint8_t *)text, size);
}

static bool sp_match(const cJSON *root)
{
    (void)root;
    return false; /* these are not saved as tokenizer.json */
}

static by_tokenizer *sp_read(const cJSON *root)
{
    (void)root;
    base_fail(BY_ERR_UNSUPPORTED, "a bare SentencePiece model cannot be written as tokenizer.json");
    return NULL;
}

static void sp_write(const by_tokenizer *t, base_buf *out)
{
    const tok_sp *s = (const tok_sp *)t;
    for (int id = 0; id < s->m.count; id++) {
        base_buf_put(out, s->m.vocab.tokens[id].text, s->m.vocab.tokens[id].size);
        base_buf_printf(out, " %d %.9g\n", s->m.types[id], (double)s->m.scores[id]);
    }
}

static int32_t sp_find(const by_tokenizer *t, const char *token, const char **text)
{
    const tok_sp *s = (const tok_sp *)t;
    int32_t id = tok_vocab_find(&s->m.vocab, token, strlen(token));
    *text = id >= 0 ? s->m.vocab.tokens[id].text : NULL;
    return id;
}

static void sp_free(by_tokenizer *t)
{
    tok_sp *s = (tok_sp *)t;
    tok_trie_free(&s->trie);
    tok_trie_free(&s->users);
    tok_pool_free(&s->pool);
    tok_charsmap_free(s->map);
    tok_spiece_free(&s->m);
    base_free(s);
}

/* Builds tries, extremes of the scores, byte pieces. */
static by_status prepare(tok_sp *t)
{
    tok_spiece *m = &t->m;
    bool *keep = base_alloc_zero((size_t)m->count * 2 + 1, sizeof(*keep)),
         *users = keep ? keep + m->count : NULL;
    if (!keep)
        return BY_ERR_MEMORY;
    t->least = 3e38f;
    bool unused = false;
    for (int id = 0; id < m->count; id++) {
        keep[id] = tok_sp_findable(t, id);
        users[id] = m->types[id] == TOK_PIECE_USER;
        t->has_users = t->has_users || users[id];
        unused = unused || m->types[id] == TOK_PIECE_UNUSED;
        if (m->types[id] == TOK_PIECE_NORMAL)
            t->least = BY_MIN(t->least, m->scores[id]);
    }
    by_status status = tok_trie_build(&t->trie, &m->vocab, keep);
    if (status == BY_OK)
        status = tok_trie_build(&t->users, &m->vocab, users);
    base_free(keep);
    if (status == BY_OK && unused && m->model == TOK_SPIECE_BPE)
        status = base_fail(BY_ERR_UNSUPPORTED, "a BPE model with unused pieces is not supported");
    for (int i = 0; i < 256 && status == BY_OK && m->byte_fallback; i++) {
        char text[8] = {'<', '0', 'x', "0123456789ABCDEF"[i >> 4], "0123456789ABCDEF"[i & 15], '>', 0, 0};
        t->bytes[i] = tok_vocab_find(&m->vocab, text, 6);
        if (t->bytes[i] < 0)
            status = base_fail(BY_ERR_FORMAT, "byte fallback is on, but the piece %s is missing", text);
    }
    if (status == BY_OK && m->charsmap.size) {
        t->map = tok_charsmap_new((const uint8_t *)m->charsmap.data, m->charsmap.size);
        status = t->map ? BY_OK : base_error_status();
    }
    return status;
}

/* Words can be encoded independently if scores cannot increase, spaces are marked, and only at the start of a
 * piece. */
static void find_short_cuts(tok_sp *t)
{
    const tok_spiece *m = &t->m;
    t->largest = TOK_SP_PENALTY - BY_MIN(t->least, 0.0f);
    t->words = m->model == TOK_SPIECE_UNIGRAM && !m->byte_fallback && m->escape_spaces &&
               !m->space_as_suffix && t->least < 0;
    for (int id = 0; id < m->count && t->words; id++) {
        const tok_token *p = &m->vocab.tokens[id];
        for (size_t i = 1; i < p->size && tok_sp_findable(t, id); i++)
            t->words = t->words && !tok_sp_mark(p->text + i, p->size - i);
        t->words = t->words && !(tok_sp_findable(t, id) && m->scores[id] > 0);
    }
    for (int c = 1; c < 0x80; c++)
        t->plain[c] = (!t->map || tok_charsmap_plain(t->map)[c]) &&
                      !(t->has_users && tok_trie_step(&t->users, 0, (uint8_t)c) >= 0);
}

by_tokenizer *tok_spiece_tokenizer(tok_spiece *m)
{
    tok_sp *t = base_alloc_zero(1, sizeof(*t));
    if (!t) {
        tok_spiece_free(m);
        return NULL;
    }
    t->m = *m;
    *m = (tok_spiece){0};
    t->base = (by_tokenizer){.kind = &tok_text_spiece, .vocab_size = t->m.count, .eos = -1};
    if (prepare(t) != BY_OK) {
        sp_free(&t->base);
        return NULL;
    }
    find_short_cuts(t);
    tok_set_eos(&t->base, "</s>");
    return &t->base;
}

const tok_text_kind tok_text_spiece = {
    .name = "SentencePiece",
    .match = sp_match,
    .read = sp_read,
    .write = sp_write,
    .encode = sp_encode,
    .encode_with = sp_encode_with,
    .state_size = sizeof(tok_piece_state),
    .put = sp_put,
    .end = sp_end,
    .cut = sp_cut,
    .find = sp_find,
    .free = sp_free,
};
