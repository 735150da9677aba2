/* sp_search.c - SentencePiece's segmentation: the best sum of scores (unigram) or the best merges first
 * (BPE), with the arithmetic of the library, so that near ties are resolved the same way. */
#include <math.h>

#include "text/legacy/sp.h"

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

/* Length of the character at s by its first byte alone, as in the library. */
static inline size_t char_length(uint8_t s)
{
    return s < 0xc0 ? 1 : s < 0xe0 ? 2 : s < 0xf0 ? 3 : 4;
}

/* User-defined pieces take precedence over all others. */
static inline float score_of(const tok_sp *t, int32_t id)
{
    return t->m.types[id] == TOK_PIECE_USER ? 0 : t->m.scores[id];
}

/* Below this, a sum restarts from 0, together with those of later positions that were already reached: their
 * differences are preserved, and small differences are not lost in long texts. */
#define LEAST_SUM (-100000.0f)

static void start_again(best *b, size_t i, size_t reached)
{
    for (size_t k = i + 1; k <= reached; k++)
        b[k].score -= b[k].start == UINT32_MAX ? 0 : b[i].score;
    b[i].score = 0;
}

/* Scores are added in single precision, starting from that of all preceding text. */
static void search_unigram(const tok_sp *t, const char *text, size_t size, float before, best *b)
{
    float unk_score = t->least - TOK_SP_PENALTY;
    for (size_t i = 0; i <= size; i++)
        b[i] = (best){before, UINT32_MAX, -1};
    for (size_t i = 0, n, reached = 0; i < size; i += n) {
        n = BY_MIN(char_length((uint8_t)text[i]), size - i);
        if (b[i].score < LEAST_SUM)
            start_again(b, i, reached);
        float here = b[i].score;
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < size && (node = tok_trie_step(&t->trie, node, (uint8_t)text[k])) >= 0; k++) {
            int32_t id = t->trie.nodes[node].id;
            if (id < 0)
                continue;
            size_t length = k + 1 - i;
            improve(&b[k + 1], score_of(t, id) + here, i, id);
            reached = BY_MAX(reached, k + 1);
            single = single || length == n;
        }
        if (!single)
            improve(&b[i + n], unk_score + here, i, t->m.unk);
        reached = BY_MAX(reached, i + n);
    }
}

/* Reverses the links: b[i].start becomes the end of the piece that starts at i, b[i].id that piece. */
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
    const tok_sp *t;
    const char *text;
    symbol *symbols;
    pair *heap;
    size_t heap_count;
} joiner;

/* Greater score first, then the one further left. */
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

static void consider(joiner *j, uint32_t left, uint32_t right)
{
    if (left == UINT32_MAX || right == UINT32_MAX || j->symbols[left].frozen || j->symbols[right].frozen)
        return;
    uint32_t size = j->symbols[left].size + j->symbols[right].size;
    int32_t id = tok_vocab_find(&j->t->m.vocab, j->text + j->symbols[left].start, size);
    if (tok_sp_findable(j->t, id))
        pair_push(j, (pair){j->t->m.scores[id], left, right, size});
}

/* Fills b in the format of turn_links. */
static by_status search_bpe(const tok_sp *t, tok_scratch *s, const char *text, size_t size, best **out)
{
    size_t bytes = (size + 1) * (sizeof(best) + sizeof(symbol) + 3 * sizeof(pair));
    char *memory = tok_scratch_memory(s, bytes);
    if (!memory)
        return BY_ERR_MEMORY;
    best *b = (best *)(void *)memory;
    joiner j = {.t = t, .text = text};
    j.symbols = (symbol *)(void *)(b + size + 1);
    j.heap = (pair *)(void *)(j.symbols + size + 1);
    uint32_t n = 0;
    for (size_t i = 0; i < size; n++) {
        size_t user = tok_sp_user(t, text + i, size - i);
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
        int32_t id = tok_vocab_find(&t->m.vocab, text + y->start, y->size);
        b[y->start] = (best){0, y->start + y->size, tok_sp_findable(t, id) ? id : t->m.unk};
    }
    *out = b;
    return BY_OK;
}

/* ---- the whole text at once ------------------------------------------------------------------ */

static by_status put_piece(const tok_sp *t, const tok_buffer *w, size_t start, size_t end, int32_t id,
                           const tok_sink *out)
{
    tok_at at = w->at ? (tok_at){w->at[start].start, w->at[end - 1].end} : (tok_at){0, 0};
    if (out->each)
        return out->each(out->context, w->text + start, end - start, at);
    bool bytes = id == t->m.unk && t->m.byte_fallback;
    for (size_t i = start; bytes && i < end; i++)
        BY_TRY(tok_ids_push(out->ids, t->bytes[(uint8_t)w->text[i]]));
    if (!bytes)
        BY_TRY(tok_ids_push(out->ids, id));
    for (size_t i = 0; out->spans && i < (bytes ? end - start : 1); i++)
        BY_TRY(tok_spans_push(out->spans, at.start, at.end));
    return BY_OK;
}

static by_status encode_work(const tok_sp *t, tok_scratch *s, const tok_sink *out)
{
    const tok_buffer *w = &s->work;
    best *b = NULL;
    if (w->size == 0)
        return BY_OK;
    if (t->m.model == TOK_SPIECE_BPE) {
        BY_TRY(search_bpe(t, s, w->text, w->size, &b));
    } else {
        b = tok_scratch_memory(s, (w->size + 1) * sizeof(*b));
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

/* ---- word by word ---------------------------------------------------------------------------- */

/* The search adds scores over the whole text in single precision, so in close cases the winner inside a word
 * depends on how much precedes it. The segmentation of a word is cached together with the smallest margin
 * between a winner and its competitor. If rounding could exceed that margin, or the sum may restart, the word
 * is searched again with the actual sum. */

typedef struct exact {
    double score;
    uint32_t start; /* UINT32_MAX: not reached */
    int32_t id;
    double margin; /* margin to the second best */
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

/* Segments a word alone; out gets the bits of its margin, then the ids. */
static by_status spell_word(const tok_sp *t, tok_scratch *s, const char *text, size_t size, by_ids *out)
{
    exact *e = tok_scratch_memory(s, (size + 1) * sizeof(*e));
    if (!e)
        return BY_ERR_MEMORY;
    double unk_score = (double)(t->least - TOK_SP_PENALTY);
    for (size_t i = 0; i <= size; i++)
        e[i] = (exact){0, UINT32_MAX, -1, 0};
    for (size_t i = 0, n; i < size; i += n) {
        n = BY_MIN(char_length((uint8_t)text[i]), size - i);
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < size && (node = tok_trie_step(&t->trie, node, (uint8_t)text[k])) >= 0; k++) {
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
    BY_TRY(tok_ids_reserve(out, count));
    memcpy(out->data, &margin, sizeof(margin));
    out->count = count;
    for (size_t at = size; at > 0; at = e[at].start)
        out->data[--count] = e[at].id;
    return BY_OK;
}

/* Adjacent unknown characters are merged into one. */
static inline void put_word_id(const tok_sp *t, by_ids *out, size_t first, int32_t id)
{
    if (id != t->m.unk || out->count == first || out->data[out->count - 1] != id)
        out->data[out->count++] = id;
}

static by_status encode_words(const tok_sp *t, tok_scratch *s, by_ids *out)
{
    const tok_buffer *w = &s->work;
    size_t first = out->count;
    float sum = 0;
    by_ids word = {0};
    by_status status = BY_OK;
    for (size_t i = 0, end; i < w->size && status == BY_OK; i = end) {
        for (end = i + 1; end < w->size && !tok_sp_mark(w->text + end, w->size - end);)
            end++;
        size_t n = end - i, count;
        const int32_t *known = tok_cache_find(s, w->text + i, n, &count);
        if (!known) {
            status = spell_word(t, s, w->text + i, n, &word);
            known = word.data;
            count = word.count;
            if (status == BY_OK)
                tok_cache_put(s, w->text + i, n, known, count);
        }
        if (status == BY_OK)
            status = tok_ids_reserve(out, n + 1);
        if (status != BY_OK)
            break;
        float margin;
        memcpy(&margin, known, sizeof(margin));
        /* Every partial sum has an error of at most half a unit in the last place of the largest. */
        float largest = (float)n * t->largest - sum, slip = (float)(n + 2) * 0x1p-22f * largest;
        if (margin > slip && largest < -LEAST_SUM) {
            for (size_t k = 1; k < count; k++) {
                sum += known[k] == t->m.unk ? t->least - TOK_SP_PENALTY : score_of(t, known[k]);
                put_word_id(t, out, first, known[k]);
            }
            continue;
        }
        best *b = tok_scratch_memory(s, (n + 1) * sizeof(*b));
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
    tok_ids_free(&word);
    return status;
}

by_status tok_sp_encode(const tok_sp *t, tok_scratch *s, const tok_sink *out)
{
    return t->words && !out->spans && !out->each ? encode_words(t, s, out->ids) : encode_work(t, s, out);
}
