/* train_symbols.c - the initial characters of a vocabulary, and the words spelled with them. */
#include <stdlib.h>

#include "text/train/train.h"

typedef struct letter {
    uint64_t count;
    uint32_t point;
} letter;

/* Most frequent first; equally frequent ones by code point. */
static int compare_count(const void *a, const void *b)
{
    const letter *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->point < y->point ? -1 : x->point > y->point;
}

static int tok_point(const void *a, const void *b)
{
    const letter *x = a, *y = b;
    return x->point < y->point ? -1 : x->point > y->point;
}

/* *end: past the last code point with a count. */
static by_status count_letters(const by_vocab_spec *spec, const tok_words *words, uint64_t *counts,
                               uint32_t *end)
{
    uint32_t last = 0;
    for (size_t i = 0; i < words->count; i++) {
        size_t at = 0;
        for (int32_t c; (c = tok_word_next(words, &words->items[i], &at)) >= 0;) {
            counts[c] += words->items[i].count;
            last = BY_MAX(last, (uint32_t)c);
        }
    }
    const char *more = spec->initial_alphabet ? spec->initial_alphabet : "";
    for (size_t at = 0, n = strlen(more); at < n;) {
        uint32_t c;
        int k = tok_utf8_decode((const uint8_t *)more + at, n - at, &c);
        if (k == 0)
            return base_fail(BY_ERR_ARGUMENT, "the initial alphabet has invalid UTF-8 at byte %zu", at);
        counts[c] = UINT64_MAX;
        last = BY_MAX(last, c);
        at += (size_t)k;
    }
    for (int b = 0; b < 256 && spec->byte_level; b++) {
        const uint32_t c = tok_byte_char((uint8_t)b);
        counts[c] = UINT64_MAX;
        last = BY_MAX(last, c);
    }
    counts[0] = 0;
    *end = last + 1;
    return BY_OK;
}

uint32_t *tok_alphabet(const by_vocab_spec *spec, const tok_words *words, int *count)
{
    uint64_t *counts = base_alloc_zero(TOK_UTF8_POINTS, sizeof(*counts));
    uint32_t end = 0;
    if (!counts || count_letters(spec, words, counts, &end) != BY_OK) {
        base_free(counts);
        return NULL;
    }
    size_t n = 0;
    for (uint32_t c = 0; c < end; c++)
        n += counts[c] != 0;
    letter *letters = base_alloc((n + 1) * sizeof(*letters));
    uint32_t *points = base_alloc((n + 1) * sizeof(*points));
    if (letters && points) {
        n = 0;
        for (uint32_t c = 0; c < end; c++)
            if (counts[c])
                letters[n++] = (letter){counts[c], c};
        if (spec->limit_alphabet > 0 && n > (size_t)spec->limit_alphabet) {
            qsort(letters, n, sizeof(*letters), compare_count);
            n = (size_t)spec->limit_alphabet;
            qsort(letters, n, sizeof(*letters), tok_point);
        }
        for (size_t i = 0; i < n; i++)
            points[i] = letters[i].point;
        *count = (int)n;
    } else {
        base_free(points);
        points = NULL;
    }
    base_free(letters);
    base_free(counts);
    return points;
}

/* ---- words spelled with symbols -------------------------------------------------------------- */

/* A character is one symbol at the start of a word and, with affixes, other symbols after it and at the
 * end. */
enum { CONTINUES = 1, ENDS = 2, VARIANTS = 4 };
enum { UNKNOWN = -1, WANTED = -2 };

typedef struct symbols {
    /* By code point: id, UNKNOWN, or WANTED: used, and to be added to the vocabulary. */
    int32_t *ids[VARIANTS];
} symbols;

static by_status add_token(tok_vocab *v, const char *text, size_t size, int32_t *id)
{
    *id = tok_vocab_find(v, text, size);
    if (*id >= 0)
        return BY_OK;
    *id = v->count;
    return tok_vocab_put(v, text, size, *id);
}

static by_status add_variant(symbols *s, int v)
{
    s->ids[v] = base_alloc(TOK_UTF8_POINTS * sizeof(int32_t));
    if (!s->ids[v])
        return BY_ERR_MEMORY;
    memset(s->ids[v], 0xff, TOK_UTF8_POINTS * sizeof(int32_t));
    return BY_OK;
}

/* Adds special tokens, then characters. A special token of one character serves as that character. */
static by_status add_alphabet(const by_vocab_spec *spec, const tok_words *words, tok_trained *out, symbols *s)
{
    tok_vocab *v = &out->vocab;
    int32_t id;
    BY_TRY(add_variant(s, 0));
    for (int i = 0; i < spec->special_count; i++) {
        const char *text = spec->special[i];
        uint32_t c = 0;
        BY_TRY(add_token(v, text, strlen(text), &id));
        if (tok_utf8_decode((const uint8_t *)text, strlen(text) + 1, &c) == (int)strlen(text))
            s->ids[0][c] = id;
    }
    uint32_t *points = tok_alphabet(spec, words, &out->alphabet);
    by_status status = points ? BY_OK : base_error_status();
    for (int i = 0; i < out->alphabet && status == BY_OK; i++) {
        char text[4];
        status = add_token(v, text, (size_t)tok_utf8_encode(points[i], text), &s->ids[0][points[i]]);
    }
    base_free(points);
    return status;
}

/* Calls fn with the element of ids for each known character of each word. */
typedef void symbol_fn(tok_spelling *out, int32_t *id);
static void each_symbol(const by_vocab_spec *spec, const tok_words *words, const symbols *s, symbol_fn *fn,
                        tok_spelling *out)
{
    for (size_t w = 0; w < words->count; w++) {
        const tok_word *word = &words->items[w];
        size_t at = 0;
        bool first = true;
        out->starts[w] = out->count;
        for (int32_t c; (c = tok_word_next(words, word, &at)) >= 0; first = false) {
            int v = (spec->prefix && !first ? CONTINUES : 0) | (spec->suffix && at == word->size ? ENDS : 0);
            if (s->ids[0][c] >= 0)
                fn(out, &s->ids[v][c]);
        }
    }
    out->starts[words->count] = out->count;
}

static void want_symbol(tok_spelling *out, int32_t *id)
{
    out->count++;
    if (*id < 0)
        *id = WANTED;
}

static void put_symbol(tok_spelling *out, int32_t *id)
{
    out->symbols[out->count++] = (uint32_t)*id;
}

typedef struct wanted {
    char *text;
    int32_t *id;
} wanted;

static int tok_text(const void *a, const void *b)
{
    return strcmp(((const wanted *)a)->text, ((const wanted *)b)->text);
}

static by_status list_wanted(const by_vocab_spec *spec, symbols *s, base_arena *arena, wanted **list,
                             size_t *count)
{
    size_t capacity = 0;
    for (int v = 1; v < VARIANTS; v++)
        for (uint32_t c = 0; c < TOK_UTF8_POINTS && s->ids[v]; c++) {
            if (s->ids[v][c] != WANTED)
                continue;
            if (*count == capacity) {
                capacity = capacity * 2 + 256;
                wanted *more = base_resize(*list, capacity, sizeof(*more));
                if (!more)
                    return BY_ERR_MEMORY;
                *list = more;
            }
            char point[5] = {0};
            tok_utf8_encode(c, point);
            char *text = base_arena_sprintf(arena, "%s%s%s", v & CONTINUES ? spec->prefix : "", point,
                                            v & ENDS ? spec->suffix : "");
            if (!text)
                return BY_ERR_MEMORY;
            (*list)[(*count)++] = (wanted){text, &s->ids[v][c]};
        }
    return BY_OK;
}

/* Adds symbols with affixes after the characters, in the order of their bytes. (The reference numbers them in
 * the order of a hash table, which varies.) */
static by_status add_wanted(const by_vocab_spec *spec, symbols *s, tok_vocab *v)
{
    wanted *list = NULL;
    size_t count = 0;
    base_arena *arena = base_arena_new();
    by_status status = arena ? list_wanted(spec, s, arena, &list, &count) : BY_ERR_MEMORY;
    if (status == BY_OK && count)
        qsort(list, count, sizeof(*list), tok_text);
    for (size_t i = 0; i < count && status == BY_OK; i++)
        status = add_token(v, list[i].text, strlen(list[i].text), list[i].id);
    base_free(list);
    base_arena_free(arena);
    return status;
}

static by_status spell(const by_vocab_spec *spec, const tok_words *words, tok_trained *out, symbols *s,
                       tok_spelling *spelling)
{
    BY_TRY(add_alphabet(spec, words, out, s));
    for (int v = 1; v < VARIANTS; v++)
        if ((!(v & CONTINUES) || spec->prefix) && (!(v & ENDS) || spec->suffix))
            BY_TRY(add_variant(s, v));
    spelling->starts = base_alloc((words->count + 1) * sizeof(*spelling->starts));
    if (!spelling->starts)
        return BY_ERR_MEMORY;
    each_symbol(spec, words, s, want_symbol, spelling);
    BY_TRY(add_wanted(spec, s, &out->vocab));
    if (out->vocab.count > spec->size)
        return base_fail(BY_ERR_ARGUMENT,
                         "a vocabulary of %d is too small; special tokens and characters alone need %d",
                         spec->size, out->vocab.count);
    spelling->symbols = base_alloc((spelling->count + 1) * sizeof(*spelling->symbols));
    if (!spelling->symbols)
        return BY_ERR_MEMORY;
    spelling->count = 0;
    each_symbol(spec, words, s, put_symbol, spelling);
    return BY_OK;
}

by_status tok_spell_words(const by_vocab_spec *spec, const tok_words *words, tok_trained *out,
                          tok_spelling *spelling)
{
    symbols s = {{0}};
    by_status status = spell(spec, words, out, &s, spelling);
    for (int v = 0; v < VARIANTS; v++)
        base_free(s.ids[v]);
    return status;
}

void tok_spelling_free(tok_spelling *s)
{
    base_free(s->symbols);
    base_free(s->starts);
    *s = (tok_spelling){0};
}
