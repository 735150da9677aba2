/* bpe.c - byte-pair encoding (Sennrich et al. 2016): a word starts as its characters, and the adjacent pair
 * with the lowest rank is merged, leftmost first, until no known pair is left. Short words search their few
 * pairs; long words keep them in a heap, so that n characters take O(n log n). */
#include <stdio.h>

#include "text/pipeline.h"
#include "text/utf8.h"

#define SHORT   24 /* up to this many symbols, searching is faster than a heap */
#define NO_RANK UINT32_MAX

typedef struct merge {
    uint64_t pair; /* left id << 32 | right id; all ones: free */
    uint32_t rank;
    int32_t id;
} merge;

typedef struct bpe {
    tok_text_model base;
    merge *merges;
    size_t mask;
    tok_chars unk_token, prefix, suffix; /* data is NULL when absent or empty */
    int32_t unk;                         /* id of unk_token, or -1 */
    int32_t known; /* ids from here on are intermediate merges only and become unknown */
    bool fuse_unk, byte_fallback, ignore_merges;
    int32_t bytes[256];    /* id of "<0x..>", or -1 */
    int32_t alphabet[256]; /* id of the GPT-2 character of each byte, or -1 */
    bool whole_alphabet;
    tok_vocab raw; /* ignore_merges over bytes: tokens as the bytes they represent */
} bpe;

/* ---- the table of merges --------------------------------------------------------------------- */

static inline size_t merge_hash(uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ (h >> 32));
}

static inline const merge *merge_find(const bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = merge_hash(pair) & b->mask;
    while (b->merges[at].pair != pair) {
        if (b->merges[at].pair == UINT64_MAX)
            return NULL;
        at = (at + 1) & b->mask;
    }
    return &b->merges[at];
}

static void merge_put(bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = merge_hash(pair) & b->mask;
    while (b->merges[at].pair != pair && b->merges[at].pair != UINT64_MAX)
        at = (at + 1) & b->mask;
    b->merges[at] = (merge){pair, rank, id};
}

/* ---- merging --------------------------------------------------------------------------------- */

/* The symbols of one word, parallel arrays of capacity `count`. A symbol is merged into its left
 * neighbour. */
typedef struct word {
    size_t count;
    int32_t *id;
    uint32_t *size, *prev, *next, *rank; /* rank of the pair that starts here */
    int32_t *fresh;                      /* id of the merged pair */
    uint64_t *heap;                      /* rank << 32 | position */
    size_t heap_count;
} word;

static by_status word_open(word *w, tok_scratch *s, size_t capacity)
{
    if (capacity >= UINT32_MAX / 4)
        return base_fail(BY_ERR_ARGUMENT, "a word of %zu bytes is too long to encode", capacity);
    char *memory = tok_scratch_memory(s, capacity * (6 * 4 + 3 * 8));
    if (!memory)
        return BY_ERR_MEMORY;
    *w = (word){.heap = (uint64_t *)(void *)memory};
    w->id = (int32_t *)(void *)(w->heap + 3 * capacity);
    w->size = (uint32_t *)(w->id + capacity);
    w->prev = w->size + capacity;
    w->next = w->prev + capacity;
    w->rank = w->next + capacity;
    w->fresh = (int32_t *)(w->rank + capacity);
    return BY_OK;
}

static inline void word_add(word *w, int32_t id, size_t size)
{
    w->id[w->count] = id;
    w->size[w->count++] = (uint32_t)size;
}

static inline void rate(const bpe *b, word *w, size_t at, size_t right)
{
    const merge *m = merge_find(b, w->id[at], w->id[right]);
    w->rank[at] = m ? m->rank : NO_RANK;
    w->fresh[at] = m ? m->id : -1;
}

static void join_short(const bpe *b, word *w)
{
    size_t n = w->count;
    for (size_t i = 0; i + 1 < n; i++)
        rate(b, w, i, i + 1);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (w->rank[i] < w->rank[best])
                best = i;
        if (w->rank[best] == NO_RANK)
            break;
        w->id[best] = w->fresh[best];
        w->size[best] += w->size[best + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            w->id[i] = w->id[i + 1];
            w->size[i] = w->size[i + 1];
            w->rank[i] = w->rank[i + 1];
            w->fresh[i] = w->fresh[i + 1];
        }
        n--;
        if (best + 1 < n)
            rate(b, w, best, best + 1);
        if (best > 0)
            rate(b, w, best - 1, best);
    }
    w->count = n;
}

static void heap_push(word *w, uint64_t key)
{
    size_t i = w->heap_count++;
    for (; i > 0 && w->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = key;
}

static uint64_t heap_pop(word *w)
{
    uint64_t top = w->heap[0], last = w->heap[--w->heap_count];
    size_t i = 0, n = w->heap_count;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= last)
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static void rate_and_push(const bpe *b, word *w, size_t at)
{
    w->rank[at] = NO_RANK;
    if (w->next[at] >= w->count)
        return;
    rate(b, w, at, w->next[at]);
    if (w->rank[at] != NO_RANK)
        heap_push(w, (uint64_t)w->rank[at] << 32 | at);
}

static void join_long(const bpe *b, word *w)
{
    size_t n = w->count, kept = 0;
    for (size_t i = 0; i < n; i++) {
        w->prev[i] = i ? (uint32_t)(i - 1) : NO_RANK;
        w->next[i] = (uint32_t)(i + 1);
    }
    for (size_t i = 0; i < n; i++)
        rate_and_push(b, w, i);
    while (w->heap_count) {
        uint64_t top = heap_pop(w);
        size_t at = (uint32_t)top, right = w->next[at];
        /* Stale: a neighbour was merged since. */
        if (w->rank[at] != (uint32_t)(top >> 32) || w->size[at] == 0)
            continue;
        w->id[at] = w->fresh[at];
        w->size[at] += w->size[right];
        w->size[right] = 0;
        w->rank[right] = NO_RANK;
        w->next[at] = w->next[right];
        if (w->next[at] < n)
            w->prev[w->next[at]] = (uint32_t)at;
        rate_and_push(b, w, at);
        if (w->prev[at] != NO_RANK)
            rate_and_push(b, w, w->prev[at]);
    }
    for (size_t i = 0; i < n; i++)
        if (w->size[i]) {
            w->id[kept] = w->id[i];
            w->size[kept++] = w->size[i];
        }
    w->count = kept;
}

/* Merges and appends. */
static by_status word_finish(const bpe *b, word *w, by_ids *out, tok_spans *spans)
{
    if (w->count <= SHORT)
        join_short(b, w);
    else
        join_long(b, w);
    BY_TRY(tok_ids_reserve(out, w->count));
    for (size_t i = 0; i < w->count; i++)
        out->data[out->count++] = w->id[i] < b->known ? w->id[i] : b->unk;
    size_t at = 0;
    for (size_t i = 0; spans && i < w->count; i++) {
        BY_TRY(tok_spans_push(spans, at, at + w->size[i]));
        at += w->size[i];
    }
    return BY_OK;
}

/* ---- words of characters --------------------------------------------------------------------- */

/* Returns the id of a character with the affixes for its position, or -1. */
static int32_t find_symbol(const bpe *b, const char *text, size_t n, bool first, bool last)
{
    if ((first || !b->prefix.size) && (!last || !b->suffix.size))
        return tok_vocab_find(&b->base.vocab, text, n);
    char key[256];
    size_t before = first ? 0 : b->prefix.size, after = last ? b->suffix.size : 0;
    memcpy(key, b->prefix.data ? b->prefix.data : "", before);
    memcpy(key + before, text, n);
    memcpy(key + before + n, b->suffix.data ? b->suffix.data : "", after);
    return tok_vocab_find(&b->base.vocab, key, before + n + after);
}

/* Adds the bytes of an unknown character if the vocabulary has them all. Affixes are spelt out too, as in the
 * reference. */
static bool add_fallback(const bpe *b, word *w, const char *text, size_t n, bool first, bool last)
{
    const char *parts[3] = {b->prefix.data, text, b->suffix.data};
    size_t sizes[3] = {first ? 0 : b->prefix.size, n, last ? b->suffix.size : 0};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < sizes[k]; i++)
            if (b->bytes[(uint8_t)parts[k][i]] < 0)
                return false;
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < sizes[k]; i++)
            word_add(w, b->bytes[(uint8_t)parts[k][i]], 1);
    return true;
}

static by_status bpe_encode(const tok_text_model *m, tok_scratch *s, const char *text, size_t size,
                            by_ids *out, tok_spans *spans)
{
    const bpe *b = (const bpe *)m;
    if (b->ignore_merges) {
        int32_t id = tok_vocab_find(&m->vocab, text, size);
        if (id >= 0) {
            BY_TRY(tok_ids_push(out, id));
            return spans ? tok_spans_push(spans, 0, size) : BY_OK;
        }
    }
    size_t affixes = b->prefix.size + b->suffix.size;
    word w;
    BY_TRY(word_open(&w, s, b->byte_fallback ? size * (affixes + 1) + 1 : size + 1));
    size_t unknown = 0; /* bytes of the current run of unknown characters */
    for (size_t i = 0; i < size;) {
        uint32_t point;
        size_t n = BY_MAX((size_t)tok_utf8_decode((const uint8_t *)text + i, size - i, &point), (size_t)1);
        bool first = i == 0, last = i + n >= size;
        int32_t id = find_symbol(b, text + i, n, first, last);
        if (id >= 0) {
            if (unknown)
                word_add(&w, b->unk, unknown);
            unknown = 0;
            word_add(&w, id, n);
        } else if (!(b->byte_fallback && add_fallback(b, &w, text + i, n, first, last)) &&
                   b->unk_token.data) {
            if (b->unk < 0)
                return base_fail(BY_ERR_FORMAT, "the unknown token \"%.40s\" is not in the vocabulary",
                                 b->unk_token.data);
            if (unknown && !b->fuse_unk) {
                word_add(&w, b->unk, unknown);
                unknown = 0;
            }
            unknown += n;
        }
        i += n;
    }
    if (unknown)
        word_add(&w, b->unk, unknown);
    return word_finish(b, &w, out, spans);
}

/* ---- words of bytes -------------------------------------------------------------------------- */

bool tok_bpe_takes_bytes(const tok_text_model *m)
{
    const bpe *b = (const bpe *)m;
    return strcmp(m->type, "BPE") == 0 && b->whole_alphabet && !b->prefix.size && !b->suffix.size;
}

by_status tok_bpe_encode_bytes(const tok_text_model *m, tok_scratch *s, const char *text, size_t size,
                               by_ids *out, tok_spans *spans)
{
    const bpe *b = (const bpe *)m;
    if (b->ignore_merges) {
        int32_t id = tok_vocab_find(&b->raw, text, size);
        if (id >= 0) {
            BY_TRY(tok_ids_push(out, id));
            return spans ? tok_spans_push(spans, 0, size) : BY_OK;
        }
    }
    word w;
    BY_TRY(word_open(&w, s, size));
    for (size_t i = 0; i < size; i++)
        word_add(&w, b->alphabet[(uint8_t)text[i]], 1);
    return word_finish(b, &w, out, spans);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void bpe_free(tok_text_model *m)
{
    bpe *b = (bpe *)m;
    base_free(b->merges);
    tok_chars_free(&b->unk_token);
    tok_chars_free(&b->prefix);
    tok_chars_free(&b->suffix);
    tok_vocab_free(&b->raw);
}

static by_status read_merge(bpe *b, tok_chars left, tok_chars right, uint32_t rank, base_buf *joined)
{
    const tok_vocab *v = &b->base.vocab;
    int32_t l = tok_vocab_find(v, left.data, left.size), r = tok_vocab_find(v, right.data, right.size);
    size_t skip = BY_MIN(b->prefix.size, right.size);
    joined->size = 0;
    base_buf_put(joined, left.data, left.size);
    base_buf_put(joined, right.data + skip, right.size - skip);
    if (joined->failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading merges");
    int32_t id = tok_vocab_find(v, joined->data, joined->size);
    if (l < 0 || r < 0 || id < 0)
        return base_fail(
            BY_ERR_FORMAT,
            "merge %u joins \"%.*s\" and \"%.*s\", but not all of these tokens are in the vocabulary",
            (unsigned)rank, (int)BY_MIN(left.size, (size_t)40), left.data,
            (int)BY_MIN(right.size, (size_t)40), right.data);
    merge_put(b, l, r, rank, id);
    return BY_OK;
}

/* "a b", or ["a", "b"]. */
static by_status read_merge_item(bpe *b, const cJSON *item, uint32_t rank, base_buf *joined)
{
    const char *text = cJSON_GetStringValue(item), *space = text ? strchr(text, ' ') : NULL;
    if (text && (!space || strchr(space + 1, ' ')))
        return base_fail(BY_ERR_FORMAT, "merge %u is not a pair of tokens: \"%.40s\"", (unsigned)rank, text);
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL, *second = first ? first->next : NULL;
    if (!text && (!cJSON_IsString(first) || !cJSON_IsString(second) || second->next))
        return base_fail(BY_ERR_FORMAT, "merge %u is not a pair of tokens", (unsigned)rank);
    tok_chars left = {0}, right = {0};
    by_status status = tok_chars_set(&left, text ? text : first->valuestring);
    if (status == BY_OK)
        status = tok_chars_set(&right, text ? space + 1 : second->valuestring);
    if (status == BY_OK && text)
        left.size -= right.size + 1;
    if (status == BY_OK)
        status = read_merge(b, left, right, rank, joined);
    tok_chars_free(&left);
    tok_chars_free(&right);
    return status;
}

static by_status read_merges(bpe *b, const cJSON *json)
{
    if (!cJSON_IsArray(json))
        return base_fail(BY_ERR_FORMAT, "a BPE model has no \"merges\"");
    size_t size = 64, count = (size_t)cJSON_GetArraySize(json);
    while (size < count * 2 + 1)
        size *= 2;
    b->merges = base_alloc(size * sizeof(*b->merges));
    if (!b->merges)
        return BY_ERR_MEMORY;
    memset(b->merges, 0xff, size * sizeof(*b->merges));
    b->mask = size - 1;
    base_buf joined = {0};
    by_status status = BY_OK;
    uint32_t rank = 0;
    for (const cJSON *item = json->child; item && status == BY_OK; item = item->next)
        status = read_merge_item(b, item, rank++, &joined);
    base_buf_free(&joined);
    return status;
}

/* Finds the ids of single bytes, in both spellings. */
static void find_bytes(bpe *b)
{
    b->whole_alphabet = true;
    for (int i = 0; i < 256; i++) {
        char text[8];
        int n = base_format(text, sizeof(text), "<0x%02X>", (unsigned)i);
        b->bytes[i] = tok_vocab_find(&b->base.vocab, text, (size_t)n);
        n = tok_utf8_encode(tok_byte_char((uint8_t)i), text);
        b->alphabet[i] = tok_vocab_find(&b->base.vocab, text, (size_t)n);
        b->whole_alphabet = b->whole_alphabet && b->alphabet[i] >= 0;
    }
}

/* For ignore_merges: collects the tokens made of byte characters, as bytes. */
static by_status read_raw(bpe *b)
{
    base_buf bytes = {0};
    by_status status = BY_OK;
    for (int id = 0; id < b->base.vocab.count && status == BY_OK; id++) {
        const tok_token *t = &b->base.vocab.tokens[id];
        bool whole = t->text && t->size;
        bytes.size = 0;
        for (size_t i = 0; whole && i < t->size;) {
            uint32_t c = 0;
            int n = tok_utf8_decode((const uint8_t *)t->text + i, t->size - i, &c);
            int byte = n ? tok_char_byte(c) : -1;
            whole = byte >= 0;
            base_buf_put(&bytes, &(char){(char)byte}, 1);
            i += (size_t)BY_MAX(n, 1);
        }
        if (bytes.failed)
            status = base_fail(BY_ERR_MEMORY, "out of memory while reading a vocabulary");
        else if (whole)
            status = tok_vocab_put(&b->raw, bytes.data, bytes.size, id);
    }
    base_buf_free(&bytes);
    return status;
}

/* Reads an option that may be absent, null or "". */
static by_status read_affix(const cJSON *json, const char *key, tok_chars *out)
{
    BY_TRY(tok_chars_read(json, key, out));
    if (out->size > 64)
        return base_fail(BY_ERR_FORMAT, "\"%s\" of a BPE model is longer than 64 bytes", key);
    if (!out->size)
        tok_chars_free(out);
    return BY_OK;
}

static by_status read_options(bpe *b, const cJSON *json)
{
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "known",
                                       "vocab",
                                       "merges"};
    BY_TRY(tok_json_only(json, "a BPE model", keys, BY_COUNT(keys)));
    const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(json, "dropout");
    if (cJSON_IsNumber(dropout) && dropout->valuedouble != 0)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "BPE with dropout %g is not supported because encoding would be random",
                         dropout->valuedouble);
    BY_TRY(read_affix(json, "unk_token", &b->unk_token));
    BY_TRY(read_affix(json, "continuing_subword_prefix", &b->prefix));
    BY_TRY(read_affix(json, "end_of_word_suffix", &b->suffix));
    BY_TRY(tok_stage_bool(json, "fuse_unk", false, &b->fuse_unk));
    BY_TRY(tok_stage_bool(json, "byte_fallback", false, &b->byte_fallback));
    return tok_stage_bool(json, "ignore_merges", false, &b->ignore_merges);
}

tok_text_model *tok_bpe_read(const cJSON *json)
{
    bpe *b = base_alloc_zero(1, sizeof(*b));
    if (!b)
        return NULL;
    b->base = (tok_text_model){.type = "BPE", .encode = bpe_encode, .free = bpe_free};
    by_status status = read_options(b, json);
    if (status == BY_OK)
        status = tok_vocab_read(&b->base.vocab, cJSON_GetObjectItemCaseSensitive(json, "vocab"));
    if (status == BY_OK)
        status = read_merges(b, cJSON_GetObjectItemCaseSensitive(json, "merges"));
    if (status == BY_OK) {
        find_bytes(b);
        const cJSON *known = cJSON_GetObjectItemCaseSensitive(json, "known");
        b->known = cJSON_IsNumber(known) && b->unk_token.data ? (int32_t)known->valueint : INT32_MAX;
        b->unk =
            b->unk_token.data ? tok_vocab_find(&b->base.vocab, b->unk_token.data, b->unk_token.size) : -1;
        if (b->ignore_merges)
            status = read_raw(b);
    }
    if (status == BY_OK)
        return &b->base;
    tok_text_model_free(&b->base);
    return NULL;
}
