/* sentencepiece.c - a SentencePiece model by itself (Kudo and Richardson 2018): its normaliser, its unigram
 * or BPE search, its way of decoding, in the arithmetic of the library, so that near ties fall the same way.
 */
#include <math.h>

#include "text/spiece.h"
#include "text/trie.h"
#include "text/utf8.h"

#define SPACE       "\xe2\x96\x81" /* U+2581 stands for a space */
#define UNK_PENALTY 10.0f

typedef struct sp {
    by_tokenizer base;
    by_spiece m;
    by_trie trie;  /* pieces that can be found in a text */
    by_trie users; /* user-defined pieces, which the normaliser leaves alone */
    bool has_users;
    by_charsmap *map;
    float least; /* score of normal pieces */
    int32_t bytes[256];
    bool plain[256]; /* bytes that normalising leaves alone when ASCII or nothing follows */
    bool words;      /* no piece goes on behind a space: words can be encoded one by one */
    float largest;   /* of all scores, by magnitude */
    by_scratch_pool pool;
} sp;

/* ---- normalising ----------------------------------------------------------------------------- */

/* The longest user-defined piece that begins text, in bytes; 0 when none does. */
static size_t user_prefix(const sp *t, const char *text, size_t size)
{
    size_t found = 0;
    int32_t node = 0;
    for (size_t i = 0;
         t->has_users && i < size && (node = by_trie_step(&t->users, node, (uint8_t)text[i])) >= 0; i++)
        if (t->users.nodes[node].id >= 0)
            found = i + 1;
    return found;
}

/* What the beginning of text becomes: *size bytes, for *used bytes of text. */
static const char *normalize_prefix(const sp *t, const char *text, size_t rest, size_t *size, size_t *used)
{
    *used = user_prefix(t, text, rest);
    if (*used) {
        *size = *used;
        return text;
    }
    const char *mapped = t->map ? by_charsmap_find(t->map, text, rest, true, used) : NULL;
    if (mapped) {
        *size = strlen(mapped);
        return mapped;
    }
    uint32_t c;
    int n = by_utf8_decode((const uint8_t *)text, rest, &c);
    *used = n ? (size_t)n : 1;
    *size = n ? (size_t)n : 3;
    return n ? text : "\xef\xbf\xbd";
}

static void put_space(const sp *t, by_work *out, by_at at)
{
    by_work_put(out, t->m.escape_spaces ? SPACE : " ", t->m.escape_spaces ? 3 : 1, at);
}

static void put_normalized(const sp *t, by_work *out, const char *text, size_t n, by_at at)
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
        by_work_put(out, text + i, end - i, at);
        i = end;
    }
}

/* How many bytes from here on stay as they are and are no space. */
static inline size_t plain_run(const sp *t, const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && t->plain[(uint8_t)text[n]] && text[n] != ' ' &&
           (n + 1 == size || (uint8_t)text[n + 1] < 0x80))
        n++;
    return n;
}

static void normalize(const sp *t, const char *text, size_t size, by_work *out)
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
        put_space(t, out, (by_at){(uint32_t)i, (uint32_t)i});
    by_work_reserve(out, size + size / 4);
    for (; i < size && !out->failed; i += used) {
        used = out->offsets ? 0 : plain_run(t, text + i, size - i);
        if (used) {
            by_work_put(out, text + i, used, (by_at){0, 0});
            spaced = false;
            continue;
        }
        const char *s = normalize_prefix(t, text + i, size - i, &n, &used);
        for (; spaced && n && *s == ' '; s++)
            n--;
        if (n) {
            put_normalized(t, out, s, n, (by_at){(uint32_t)i, (uint32_t)(i + used)});
            spaced = squeeze && s[n - 1] == ' ';
        }
    }
    size_t k = t->m.escape_spaces ? 3 : 1;
    while (squeeze && out->size >= k &&
           memcmp(out->text + out->size - k, t->m.escape_spaces ? SPACE : " ", k) == 0)
        out->size -= k;
    if (t->m.space_as_suffix && t->m.dummy_prefix)
        put_space(t, out, (by_at){(uint32_t)size, (uint32_t)size});
}

/* ---- unigram --------------------------------------------------------------------------------- */

typedef struct best {
    float score;
    uint32_t start; /* UINT32_MAX: not reached */
    int32_t id;
} best;

static inline void improve(best *b, float score, size_t start, int32_t id)
{
    if (b->start == UINT32_MAX || score > b->score)
        *b = (best){score, (uint32_t)start, id};
}

/* Length of the character at s by its first byte alone, as the library has it. */
static inline size_t char_length(uint8_t s)
{
    return s < 0xc0 ? 1 : s < 0xe0 ? 2 : s < 0xf0 ? 3 : 4;
}

/* User-defined pieces win over all others. */
static inline float score_of(const sp *t, int32_t id)
{
    return t->m.types[id] == BY_PIECE_USER ? 0 : t->m.scores[id];
}

/* Scores add up in single precision, from that of all the text before. */
static void search_unigram(const sp *t, const char *text, size_t size, float before, best *b)
{
    float unk_score = t->least - UNK_PENALTY;
    for (size_t i = 0; i <= size; i++)
        b[i] = (best){before, UINT32_MAX, -1};
    for (size_t i = 0, n; i < size; i += n) {
        n = BY_MIN(char_length((uint8_t)text[i]), size - i);
        float here = b[i].score;
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < size && (node = by_trie_step(&t->trie, node, (uint8_t)text[k])) >= 0; k++) {
            int32_t id = t->trie.nodes[node].id;
            if (id < 0)
                continue;
            size_t length = k + 1 - i;
            improve(&b[k + 1], score_of(t, id) + here, i, id);
            single = single || length == n;
        }
        if (!single)
            improve(&b[i + n], unk_score + here, i, t->m.unk);
    }
}

/* Turn the links around: b[i].start becomes the end of the piece that starts at i, b[i].id that piece. */
static void turn_links(best *b, size_t size)
{
    size_t next = size;
    int32_t id = -1;
    for (size_t at = size;;) {
        best own = b[at];
        b[at].start = (uint32_t)next;
        b[at].id = id;
        if (at == 0)
            break;
        next = at;
        id = own.id;
        at = own.start;
    }
}

/* ---- BPE ------------------------------------------------------------------------------------- */

typedef struct pair {
    float score;
    uint32_t left, right, size;
} pair;

typedef struct symbol {
    uint32_t start, size, prev, next; /* UINT32_MAX: none */
    bool frozen;
} symbol;

typedef struct joiner {
    const sp *t;
    const char *text;
    symbol *symbols;
    pair *heap;
    size_t heap_count;
} joiner;

/* The greater score first, then the one further left. */
static bool pair_before(const pair *a, const pair *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void pair_push(joiner *j, pair p)
{
    size_t i = j->heap_count++;
    for (; i > 0 && pair_before(&p, &j->heap[(i - 1) / 2]); i = (i - 1) / 2)
        j->heap[i] = j->heap[(i - 1) / 2];
    j->heap[i] = p;
}

static pair pair_pop(joiner *j)
{
    pair top = j->heap[0], last = j->heap[--j->heap_count];
    size_t i = 0, n = j->heap_count;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && pair_before(&j->heap[child + 1], &j->heap[child]))
            child++;
        if (!pair_before(&j->heap[child], &last))
            break;
        j->heap[i] = j->heap[child];
    }
    j->heap[i] = last;
    return top;
}

static bool is_findable(const sp *t, int32_t id)
{
    return id >= 0 && (t->m.types[id] == BY_PIECE_NORMAL || t->m.types[id] == BY_PIECE_USER);
}

static void consider(joiner *j, uint32_t left, uint32_t right)
{
    if (left == UINT32_MAX || right == UINT32_MAX || j->symbols[left].frozen || j->symbols[right].frozen)
        return;
    uint32_t size = j->symbols[left].size + j->symbols[right].size;
    int32_t id = by_vocab_find(&j->t->m.vocab, j->text + j->symbols[left].start, size);
    if (is_findable(j->t, id))
        pair_push(j, (pair){j->t->m.scores[id], left, right, size});
}

/* Fills b as turn_links leaves it. */
static by_status search_bpe(const sp *t, by_scratch *s, const char *text, size_t size, best **out)
{
    size_t bytes = (size + 1) * (sizeof(best) + sizeof(symbol) + 3 * sizeof(pair));
    char *memory = by_scratch_memory(s, bytes);
    if (!memory)
        return BY_ERR_MEMORY;
    best *b = (best *)(void *)memory;
    joiner j = {.t = t, .text = text};
    j.symbols = (symbol *)(void *)(b + size + 1);
    j.heap = (pair *)(void *)(j.symbols + size + 1);
    uint32_t n = 0;
    for (size_t i = 0; i < size; n++) {
        size_t user = user_prefix(t, text + i, size - i);
        size_t length = user ? user : BY_MIN(char_length((uint8_t)text[i]), size - i);
        j.symbols[n] = (symbol){(uint32_t)i, (uint32_t)length, n ? n - 1 : UINT32_MAX, n + 1, user > 0};
        i += length;
    }
    j.symbols[n - 1].next = UINT32_MAX;
    for (uint32_t i = 1; i < n; i++)
        consider(&j, i - 1, i);
    while (j.heap_count) {
        pair p = pair_pop(&j);
        symbol *left = &j.symbols[p.left], *right = &j.symbols[p.right];
        if (!left->size || !right->size || left->size + right->size != p.size)
            continue;
        left->size += right->size;
        right->size = 0;
        left->next = right->next;
        if (right->next != UINT32_MAX)
            j.symbols[right->next].prev = p.left;
        consider(&j, left->prev, p.left);
        consider(&j, p.left, left->next);
    }
    for (uint32_t i = 0; i != UINT32_MAX; i = j.symbols[i].next) {
        const symbol *y = &j.symbols[i];
        int32_t id = by_vocab_find(&t->m.vocab, text + y->start, y->size);
        b[y->start] = (best){0, y->start + y->size, is_findable(t, id) ? id : t->m.unk};
    }
    *out = b;
    return BY_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Where the pieces go: ids with or without places, or somebody who wants their text. */
typedef struct sink {
    by_ids *ids;
    by_spans *spans;
    by_piece_each *each;
    void *context;
} sink;

static by_status put_piece(const sp *t, const by_work *w, size_t start, size_t end, int32_t id,
                           const sink *out)
{
    by_at at = w->at ? (by_at){w->at[start].start, w->at[end - 1].end} : (by_at){0, 0};
    if (out->each)
        return out->each(out->context, w->text + start, end - start, at);
    bool bytes = id == t->m.unk && t->m.byte_fallback;
    for (size_t i = start; bytes && i < end; i++)
        BY_TRY(by_ids_push(out->ids, t->bytes[(uint8_t)w->text[i]]));
    if (!bytes)
        BY_TRY(by_ids_push(out->ids, id));
    for (size_t i = 0; out->spans && i < (bytes ? end - start : 1); i++)
        BY_TRY(by_spans_push(out->spans, at.start, at.end));
    return BY_OK;
}

static by_status encode_work(const sp *t, by_scratch *s, const sink *out)
{
    const by_work *w = &s->work;
    best *b = NULL;
    if (w->size == 0)
        return BY_OK;
    if (t->m.model == BY_SPIECE_BPE) {
        BY_TRY(search_bpe(t, s, w->text, w->size, &b));
    } else {
        b = by_scratch_memory(s, (w->size + 1) * sizeof(*b));
        if (!b)
            return BY_ERR_MEMORY;
        search_unigram(t, w->text, w->size, 0, b);
        turn_links(b, w->size);
    }
    for (size_t at = 0, end; at < w->size; at = end) {
        int32_t id = b[at].id;
        end = b[at].start;
        while (id == t->m.unk && !t->m.byte_fallback && end < w->size && b[end].id == id)
            end = b[end].start;
        BY_TRY(put_piece(t, w, at, end, id, out));
    }
    return BY_OK;
}

static inline bool is_mark(const char *s, size_t n)
{
    return s[0] == SPACE[0] && n >= 3 && s[1] == SPACE[1] && s[2] == SPACE[2];
}

/* ---- word by word ---------------------------------------------------------------------------- */

/* The search adds up scores over the whole text in single precision, so what wins inside a word depends,
 * where it is close, on how much came before. A word's spelling is kept together with the least distance
 * between a winner and what it beat; where rounding could make up for that, the word is searched again with
 * the sum as it is. */

typedef struct exact {
    double score;
    uint32_t start; /* UINT32_MAX: not reached */
    int32_t id;
    double margin; /* to the second best */
} exact;

static inline void improve_exact(exact *e, double score, size_t start, int32_t id)
{
    if (e->start == UINT32_MAX) {
        *e = (exact){score, (uint32_t)start, id, HUGE_VAL};
    } else if (score > e->score) {
        *e = (exact){score, (uint32_t)start, id, score - e->score};
    } else {
        e->margin = BY_MIN(e->margin, e->score - score);
    }
}

/* The spelling of a word alone, as ids behind the bits of its margin in out. */
static by_status spell_word(const sp *t, by_scratch *s, const char *text, size_t size, by_ids *out)
{
    exact *e = by_scratch_memory(s, (size + 1) * sizeof(*e));
    if (!e)
        return BY_ERR_MEMORY;
    double unk_score = (double)(t->least - UNK_PENALTY);
    for (size_t i = 0; i <= size; i++)
        e[i] = (exact){0, UINT32_MAX, -1, 0};
    for (size_t i = 0, n; i < size; i += n) {
        n = BY_MIN(char_length((uint8_t)text[i]), size - i);
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < size && (node = by_trie_step(&t->trie, node, (uint8_t)text[k])) >= 0; k++) {
            int32_t id = t->trie.nodes[node].id;
            if (id < 0)
                continue;
            improve_exact(&e[k + 1], (double)score_of(t, id) + e[i].score, i, id);
            single = single || k + 1 - i == n;
        }
        if (!single)
            improve_exact(&e[i + n], unk_score + e[i].score, i, t->m.unk);
    }
    float margin = HUGE_VALF;
    size_t count = 1;
    for (size_t at = size; at > 0; at = e[at].start, count++)
        margin = BY_MIN(margin, (float)e[at].margin);
    BY_TRY(by_ids_reserve(out, count));
    memcpy(out->data, &margin, sizeof(margin));
    out->count = count;
    for (size_t at = size; at > 0; at = e[at].start)
        out->data[--count] = e[at].id;
    return BY_OK;
}

/* Unknown characters that stand together are one. */
static inline void put_word_id(const sp *t, by_ids *out, size_t first, int32_t id)
{
    if (id != t->m.unk || out->count == first || out->data[out->count - 1] != id)
        out->data[out->count++] = id;
}

static by_status encode_words(const sp *t, by_scratch *s, by_ids *out)
{
    const by_work *w = &s->work;
    size_t first = out->count;
    float sum = 0;
    by_ids word = {0};
    by_status status = BY_OK;
    for (size_t i = 0, end; i < w->size && status == BY_OK; i = end) {
        for (end = i + 1; end < w->size && !is_mark(w->text + end, w->size - end);)
            end++;
        size_t n = end - i, count;
        const int32_t *known = by_cache_find(s, w->text + i, n, &count);
        if (!known) {
            status = spell_word(t, s, w->text + i, n, &word);
            known = word.data;
            count = word.count;
            if (status == BY_OK)
                by_cache_put(s, w->text + i, n, known, count);
        }
        if (status == BY_OK)
            status = by_ids_reserve(out, n + 1);
        if (status != BY_OK)
            break;
        float margin;
        memcpy(&margin, known, sizeof(margin));
        /* Every sum on the way is off by at most half a unit in the last place of the largest. */
        float largest = (float)n * t->largest - sum, slip = (float)(n + 2) * 0x1p-22f * largest;
        if (margin > slip) {
            for (size_t k = 1; k < count; k++) {
                sum += known[k] == t->m.unk ? t->least - UNK_PENALTY
                                            : score_of(t, known[k]);
                put_word_id(t, out, first, known[k]);
            }
            continue;
        }
        best *b = by_scratch_memory(s, (n + 1) * sizeof(*b));
        if (!b) {
            status = BY_ERR_MEMORY;
            break;
        }
        search_unigram(t, w->text + i, n, sum, b);
        sum = b[n].score;
        turn_links(b, n);
        for (size_t at = 0; at < n; at = b[at].start)
            put_word_id(t, out, first, b[at].id);
    }
    by_ids_free(&word);
    return status;
}

static by_status encode_text(const sp *t, const char *text, size_t size, bool offsets, const sink *out)
{
    if (size >= UINT32_MAX / 4)
        return by_fail(BY_ERR_ARGUMENT, "a text of %zu bytes is too long for a SentencePiece model", size);
    by_scratch *s = by_pool_take(&t->pool);
    if (!s)
        return BY_ERR_MEMORY;
    by_work_clear(&s->work, offsets);
    normalize(t, text, size, &s->work);
    by_status status = s->work.failed
                           ? by_fail(BY_ERR_MEMORY, "out of memory encoding a text of %zu bytes", size)
                       : t->words && !offsets && !out->each ? encode_words(t, s, out->ids)
                                                            : encode_work(t, s, out);
    by_pool_return(&t->pool, s);
    return status;
}

by_status by_spiece_each(const by_tokenizer *t, const char *text, size_t size, by_piece_each *each,
                         void *context)
{
    return encode_text((const sp *)t, text, size, true, &(sink){.each = each, .context = context});
}

static by_status sp_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    size_t before = out->count;
    by_status status = encode_text((const sp *)t, text, size, false, &(sink){.ids = out});
    if (status != BY_OK)
        out->count = before;
    return status;
}

static by_status sp_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                const by_encode_spec *spec, by_encoding *out)
{
    by_spans spans = {0};
    sink to = {.ids = &out->ids, .spans = spec->offsets ? &spans : NULL};
    if (spec->pair)
        return by_fail(BY_ERR_UNSUPPORTED, "a bare SentencePiece model has no pairs of texts");
    by_status status = encode_text((const sp *)t, text, size, spec->offsets, &to);
    if (status == BY_OK)
        status = by_encoding_fill(out, to.spans, out->ids.count);
    by_free(spans.data);
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void put_spaced(by_buf *out, const char *s, size_t n)
{
    size_t done = 0;
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(s + i, SPACE, 3) == 0) {
            by_buf_put(out, s + done, i - done);
            by_buf_puts(out, " ");
            done = i + 3;
            i += 2;
        }
    by_buf_put(out, s + done, n - done);
}

static void put_byte_run(by_buf *out, const by_buf *bytes)
{
    for (size_t i = 0; i < bytes->size;) {
        uint32_t c;
        int n = by_utf8_decode((const uint8_t *)bytes->data + i, bytes->size - i, &c);
        by_buf_put(out, n ? bytes->data + i : "\xef\xbf\xbd", n ? (size_t)n : 3);
        i += n ? (size_t)n : 1;
    }
}

static int hex_byte(const char *s)
{
    const char *digits = "0123456789ABCDEF", *high = memchr(digits, s[3], 16),
               *low = memchr(digits, s[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : 0;
}

/* Bytes that stood together, as far as they are known. */
static void flush_bytes(by_piece_state *s, by_buf *out)
{
    if (s->bytes.size) {
        put_byte_run(out, &s->bytes);
        s->any = true;
    }
    s->bytes.size = 0;
}

by_status by_spiece_put(const by_tokenizer *base, by_piece_state *s, int32_t id, const by_token *piece,
                        by_buf *out)
{
    const sp *t = (const sp *)base;
    int type = id >= 0 ? t->m.types[id] : BY_PIECE_NORMAL;
    if (type == BY_PIECE_BYTE && piece->size == 6) {
        by_buf_put(&s->bytes, &(char){(char)hex_byte(piece->text)}, 1);
        return BY_OK;
    }
    flush_bytes(s, out);
    bool begin = !s->any && !s->dropped; /* is a space at the beginning still to be dropped? */
    if (type == BY_PIECE_CONTROL) {
        s->any = s->any || s->dropped;
        return BY_OK;
    }
    if (type == BY_PIECE_UNKNOWN) {
        by_buf_puts(out, t->m.unk_surface);
        s->any = true;
        return BY_OK;
    }
    bool drop = begin && (t->m.dummy_prefix || t->m.remove_spaces) && piece->size >= 3 &&
                memcmp(piece->text, SPACE, 3) == 0;
    s->any = s->any || s->dropped || piece->size > (drop ? 3u : 0u);
    s->dropped = drop && !t->m.remove_spaces;
    put_spaced(out, piece->text + (drop ? 3 : 0), piece->size - (drop ? 3 : 0));
    return BY_OK;
}

by_status by_spiece_end(by_piece_state *s, by_buf *out)
{
    flush_bytes(s, out);
    bool failed = s->bytes.failed || out->failed;
    by_buf_free(&s->bytes);
    *s = (by_piece_state){0};
    return failed ? by_fail(BY_ERR_MEMORY, "out of memory decoding") : BY_OK;
}

/* Control pieces are never shown, so there is nothing to skip. */
static by_status sp_put(const by_tokenizer *t, void *state, const by_decode_spec *spec, int32_t id,
                        by_buf *out)
{
    (void)spec;
    return by_spiece_put(t, state, id, &((const sp *)t)->m.vocab.tokens[id], out);
}

static by_status sp_end(const by_tokenizer *t, void *state, by_buf *out)
{
    (void)t;
    return by_spiece_end(state, out);
}

/* ---- the rest of the kind -------------------------------------------------------------------- */

/* Text in parts is cut at a space, of which the second part keeps one: leading spaces and the space put in
 * front are the same. */
static size_t sp_cut(const by_tokenizer *t, const char *text, size_t size)
{
    (void)t;
    for (size_t i = size; i-- > 1;)
        if (text[i] == ' ' && text[i - 1] > ' ')
            return i;
    return by_utf8_cut((const uint8_t *)text, size);
}

static bool sp_match(const cJSON *root)
{
    (void)root;
    return false; /* these are not kept as tokenizer.json */
}

static by_tokenizer *sp_read(const cJSON *root)
{
    (void)root;
    by_fail(BY_ERR_UNSUPPORTED, "a bare SentencePiece model is not a tokenizer.json");
    return NULL;
}

static void sp_write(const by_tokenizer *t, by_buf *out)
{
    const sp *s = (const sp *)t;
    for (int id = 0; id < s->m.count; id++) {
        by_buf_put(out, s->m.vocab.tokens[id].text, s->m.vocab.tokens[id].size);
        by_buf_printf(out, " %d %.9g\n", s->m.types[id], (double)s->m.scores[id]);
    }
}

static int32_t sp_find(const by_tokenizer *t, const char *token, const char **text)
{
    const sp *s = (const sp *)t;
    int32_t id = by_vocab_find(&s->m.vocab, token, strlen(token));
    *text = id >= 0 ? s->m.vocab.tokens[id].text : NULL;
    return id;
}

static void sp_free(by_tokenizer *t)
{
    sp *s = (sp *)t;
    by_trie_free(&s->trie);
    by_trie_free(&s->users);
    by_pool_free(&s->pool);
    by_charsmap_free(s->map);
    by_spiece_free(&s->m);
    by_free(s);
}

/* Tries, extremes of the scores, byte pieces. */
static by_status prepare(sp *t)
{
    by_spiece *m = &t->m;
    bool *keep = by_alloc_zero((size_t)m->count * 2 + 1, sizeof(*keep)),
         *users = keep ? keep + m->count : NULL;
    if (!keep)
        return BY_ERR_MEMORY;
    t->least = 3e38f;
    bool unused = false;
    for (int id = 0; id < m->count; id++) {
        keep[id] = is_findable(t, id);
        users[id] = m->types[id] == BY_PIECE_USER;
        t->has_users = t->has_users || users[id];
        unused = unused || m->types[id] == BY_PIECE_UNUSED;
        if (m->types[id] == BY_PIECE_NORMAL)
            t->least = BY_MIN(t->least, m->scores[id]);
    }
    by_status status = by_trie_build(&t->trie, &m->vocab, keep);
    if (status == BY_OK)
        status = by_trie_build(&t->users, &m->vocab, users);
    by_free(keep);
    if (status == BY_OK && unused && m->model == BY_SPIECE_BPE)
        status = by_fail(BY_ERR_UNSUPPORTED, "a BPE model with unused pieces is not supported");
    for (int i = 0; i < 256 && status == BY_OK && m->byte_fallback; i++) {
        char text[8] = {'<', '0', 'x', "0123456789ABCDEF"[i >> 4], "0123456789ABCDEF"[i & 15], '>', 0, 0};
        t->bytes[i] = by_vocab_find(&m->vocab, text, 6);
        if (t->bytes[i] < 0)
            status = by_fail(BY_ERR_FORMAT, "byte fallback is on, but there is no piece %s", text);
    }
    if (status == BY_OK && m->charsmap.size) {
        t->map = by_charsmap_new((const uint8_t *)m->charsmap.data, m->charsmap.size);
        status = t->map ? BY_OK : by_error_status();
    }
    return status;
}

/* Words by themselves: scores that cannot rise, spaces that are marked, and only at the beginning of a piece.
 */
static void find_short_cuts(sp *t)
{
    const by_spiece *m = &t->m;
    t->largest = UNK_PENALTY - BY_MIN(t->least, 0.0f);
    t->words = m->model == BY_SPIECE_UNIGRAM && !m->byte_fallback && m->escape_spaces &&
               !m->space_as_suffix && t->least < 0;
    for (int id = 0; id < m->count && t->words; id++) {
        const by_token *p = &m->vocab.tokens[id];
        for (size_t i = 1; i < p->size && is_findable(t, id); i++)
            t->words = t->words && !is_mark(p->text + i, p->size - i);
        t->words = t->words && !(is_findable(t, id) && m->scores[id] > 0);
    }
    for (int c = 1; c < 0x80; c++)
        t->plain[c] = (!t->map || by_charsmap_plain(t->map)[c]) &&
                      !(t->has_users && by_trie_step(&t->users, 0, (uint8_t)c) >= 0);
}

by_tokenizer *by_spiece_tokenizer(by_spiece *m)
{
    sp *t = by_alloc_zero(1, sizeof(*t));
    if (!t) {
        by_spiece_free(m);
        return NULL;
    }
    t->m = *m;
    *m = (by_spiece){0};
    t->base = (by_tokenizer){.kind = &by_text_spiece, .vocab_size = t->m.count, .eos = -1};
    if (prepare(t) != BY_OK) {
        sp_free(&t->base);
        return NULL;
    }
    find_short_cuts(t);
    by_tokenizer_set_eos(&t->base, "</s>");
    return &t->base;
}

const by_text_kind by_text_spiece = {
    .name = "SentencePiece",
    .match = sp_match,
    .read = sp_read,
    .write = sp_write,
    .encode = sp_encode,
    .encode_with = sp_encode_with,
    .state_size = sizeof(by_piece_state),
    .put = sp_put,
    .end = sp_end,
    .cut = sp_cut,
    .find = sp_find,
    .free = sp_free,
};
