/* train_symbols.c - which characters a vocabulary begins with, and the words spelled with them. */
#include <stdlib.h>

#include "text/train.h"

typedef struct letter {
    uint64_t count;
    uint32_t point;
} letter;

/* The most frequent first; of equally frequent ones the lower code point. */
static int by_count(const void *a, const void *b)
{
    const letter *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->point < y->point ? -1 : x->point > y->point;
}

static int by_point(const void *a, const void *b)
{
    const letter *x = a, *y = b;
    return x->point < y->point ? -1 : x->point > y->point;
}

/* *end: past the last code point that has a count. */
static by_status count_letters(const by_vocab_spec *spec, const by_words *words, uint64_t *counts,
                               uint32_t *end)
{
    uint32_t last = 0;
    for (size_t i = 0; i < words->count; i++) {
        size_t at = 0;
        for (int32_t c; (c = by_word_next(words, &words->items[i], &at)) >= 0;) {
            counts[c] += words->items[i].count;
            last = BY_MAX(last, (uint32_t)c);
        }
    }
    const char *more = spec->initial_alphabet ? spec->initial_alphabet : "";
    for (size_t at = 0, n = strlen(more); at < n;) {
        uint32_t c;
        int k = by_utf8_decode((const uint8_t *)more + at, n - at, &c);
        if (k == 0)
            return by_fail(BY_ERR_ARGUMENT, "the initial alphabet is not UTF-8 from byte %zu on", at);
        counts[c] = UINT64_MAX;
        last = BY_MAX(last, c);
        at += (size_t)k;
    }
    for (int b = 0; b < 256 && spec->byte_level; b++) {
        const uint32_t c = by_byte_char((uint8_t)b);
        counts[c] = UINT64_MAX;
        last = BY_MAX(last, c);
    }
    counts[0] = 0;
    *end = last + 1;
    return BY_OK;
}

uint32_t *by_alphabet(const by_vocab_spec *spec, const by_words *words, int *count)
{
    uint64_t *counts = by_alloc_zero(BY_UTF8_POINTS, sizeof(*counts));
    uint32_t end = 0;
    if (!counts || count_letters(spec, words, counts, &end) != BY_OK) {
        by_free(counts);
        return NULL;
    }
    size_t n = 0;
    for (uint32_t c = 0; c < end; c++)
        n += counts[c] != 0;
    letter *letters = by_alloc((n + 1) * sizeof(*letters));
    uint32_t *points = by_alloc((n + 1) * sizeof(*points));
    if (letters && points) {
        n = 0;
        for (uint32_t c = 0; c < end; c++)
            if (counts[c])
                letters[n++] = (letter){counts[c], c};
        if (spec->limit_alphabet > 0 && n > (size_t)spec->limit_alphabet) {
            qsort(letters, n, sizeof(*letters), by_count);
            n = (size_t)spec->limit_alphabet;
            qsort(letters, n, sizeof(*letters), by_point);
        }
        for (size_t i = 0; i < n; i++)
            points[i] = letters[i].point;
        *count = (int)n;
    } else {
        by_free(points);
        points = NULL;
    }
    by_free(letters);
    by_free(counts);
    return points;
}

/* ---- words spelled with symbols -------------------------------------------------------------- */

/* A character is one symbol where it begins a word and, with affixes, others behind it and at the end. */
enum { CONTINUES = 1, ENDS = 2, VARIANTS = 4 };
enum { UNKNOWN = -1, WANTED = -2 };

typedef struct symbols {
    int32_t
        *ids[VARIANTS]; /* by code point: id, UNKNOWN, or WANTED: used, and to be put into the vocabulary */
} symbols;

static by_status add_token(by_vocab *v, const char *text, size_t size, int32_t *id)
{
    *id = by_vocab_find(v, text, size);
    if (*id >= 0)
        return BY_OK;
    *id = v->count;
    return by_vocab_put(v, text, size, *id);
}

static by_status add_variant(symbols *s, int v)
{
    s->ids[v] = by_alloc(BY_UTF8_POINTS * sizeof(int32_t));
    if (!s->ids[v])
        return BY_ERR_MEMORY;
    memset(s->ids[v], 0xff, BY_UTF8_POINTS * sizeof(int32_t));
    return BY_OK;
}

/* Special tokens, then characters. A special token of one character serves as that character. */
static by_status add_alphabet(const by_vocab_spec *spec, const by_words *words, by_trained *out, symbols *s)
{
    by_vocab *v = &out->vocab;
    int32_t id;
    BY_TRY(add_variant(s, 0));
    for (int i = 0; i < spec->special_count; i++) {
        const char *text = spec->special[i];
        uint32_t c = 0;
        BY_TRY(add_token(v, text, strlen(text), &id));
        if (by_utf8_decode((const uint8_t *)text, strlen(text) + 1, &c) == (int)strlen(text))
            s->ids[0][c] = id;
    }
    uint32_t *points = by_alphabet(spec, words, &out->alphabet);
    by_status status = points ? BY_OK : by_error_status();
    for (int i = 0; i < out->alphabet && status == BY_OK; i++) {
        char text[4];
        status = add_token(v, text, (size_t)by_utf8_encode(points[i], text), &s->ids[0][points[i]]);
    }
    by_free(points);
    return status;
}

/* Call fn with the place in ids of each known character of each word. */
typedef void symbol_fn(by_spelling *out, int32_t *id);
static void each_symbol(const by_vocab_spec *spec, const by_words *words, const symbols *s, symbol_fn *fn,
                        by_spelling *out)
{
    for (size_t w = 0; w < words->count; w++) {
        const by_word *word = &words->items[w];
        size_t at = 0;
        bool first = true;
        out->starts[w] = out->count;
        for (int32_t c; (c = by_word_next(words, word, &at)) >= 0; first = false) {
            int v = (spec->prefix && !first ? CONTINUES : 0) | (spec->suffix && at == word->size ? ENDS : 0);
            if (s->ids[0][c] >= 0)
                fn(out, &s->ids[v][c]);
        }
    }
    out->starts[words->count] = out->count;
}

static void want_symbol(by_spelling *out, int32_t *id)
{
    out->count++;
    if (*id < 0)
        *id = WANTED;
}

static void put_symbol(by_spelling *out, int32_t *id)
{
    out->symbols[out->count++] = (uint32_t)*id;
}

typedef struct wanted {
    char *text;
    int32_t *id;
} wanted;

static int by_text(const void *a, const void *b)
{
    return strcmp(((const wanted *)a)->text, ((const wanted *)b)->text);
}

static by_status list_wanted(const by_vocab_spec *spec, symbols *s, by_arena *arena, wanted **list,
                             size_t *count)
{
    size_t capacity = 0;
    for (int v = 1; v < VARIANTS; v++)
        for (uint32_t c = 0; c < BY_UTF8_POINTS && s->ids[v]; c++) {
            if (s->ids[v][c] != WANTED)
                continue;
            if (*count == capacity) {
                capacity = capacity * 2 + 256;
                wanted *more = by_resize(*list, capacity, sizeof(*more));
                if (!more)
                    return BY_ERR_MEMORY;
                *list = more;
            }
            char point[5] = {0};
            by_utf8_encode(c, point);
            char *text = by_arena_sprintf(arena, "%s%s%s", v & CONTINUES ? spec->prefix : "", point,
                                          v & ENDS ? spec->suffix : "");
            if (!text)
                return BY_ERR_MEMORY;
            (*list)[(*count)++] = (wanted){text, &s->ids[v][c]};
        }
    return BY_OK;
}

/* Symbols with affixes come after the characters, in the order of their bytes. (The reference numbers them in
 * the order of a hash table, differently each time.) */
static by_status add_wanted(const by_vocab_spec *spec, symbols *s, by_vocab *v)
{
    wanted *list = NULL;
    size_t count = 0;
    by_arena *arena = by_arena_new();
    by_status status = arena ? list_wanted(spec, s, arena, &list, &count) : BY_ERR_MEMORY;
    if (status == BY_OK && count)
        qsort(list, count, sizeof(*list), by_text);
    for (size_t i = 0; i < count && status == BY_OK; i++)
        status = add_token(v, list[i].text, strlen(list[i].text), list[i].id);
    by_free(list);
    by_arena_free(arena);
    return status;
}

static by_status spell(const by_vocab_spec *spec, const by_words *words, by_trained *out, symbols *s,
                       by_spelling *spelling)
{
    BY_TRY(add_alphabet(spec, words, out, s));
    for (int v = 1; v < VARIANTS; v++)
        if ((!(v & CONTINUES) || spec->prefix) && (!(v & ENDS) || spec->suffix))
            BY_TRY(add_variant(s, v));
    spelling->starts = by_alloc((words->count + 1) * sizeof(*spelling->starts));
    if (!spelling->starts)
        return BY_ERR_MEMORY;
    each_symbol(spec, words, s, want_symbol, spelling);
    BY_TRY(add_wanted(spec, s, &out->vocab));
    if (out->vocab.count > spec->size)
        return by_fail(
            BY_ERR_ARGUMENT,
            "a vocabulary of %d is too small: %d special tokens and characters are needed in any case",
            spec->size, out->vocab.count);
    spelling->symbols = by_alloc((spelling->count + 1) * sizeof(*spelling->symbols));
    if (!spelling->symbols)
        return BY_ERR_MEMORY;
    spelling->count = 0;
    each_symbol(spec, words, s, put_symbol, spelling);
    return BY_OK;
}

by_status by_spell_words(const by_vocab_spec *spec, const by_words *words, by_trained *out,
                         by_spelling *spelling)
{
    symbols s = {{0}};
    by_status status = spell(spec, words, out, &s, spelling);
    for (int v = 0; v < VARIANTS; v++)
        by_free(s.ids[v]);
    return status;
}

void by_spelling_free(by_spelling *s)
{
    by_free(s->symbols);
    by_free(s->starts);
    *s = (by_spelling){0};
}
