/* train_seeds.c - the candidates of a Unigram vocabulary (Kudo 2018): every string that occurs at least twice
 * and is not always followed by the same character. They are the inner nodes of a suffix tree, found by
 * sorting all suffixes of all words by their first characters. */
#include <math.h>
#include <stdlib.h>

#include "text/train/train.h"

typedef struct seeds {
    const tok_words *words;
    const uint32_t *points;
    int most;          /* maximum characters of a candidate */
    uint32_t *text;    /* all words, a character as 1 + its index in points, 0 after each word */
    uint64_t *before;  /* total count of the words before sorted suffix i */
    uint32_t *sorted;  /* starts of the suffixes */
    uint32_t *word_of; /* word of each sorted suffix */
    size_t count;      /* number of suffixes */
} seeds;

/* A range of the text as a candidate. */
typedef struct found {
    double score;
    uint32_t at, length;
    size_t order;
} found;

typedef struct found_list {
    found *items;
    size_t count, capacity;
} found_list;

/* ---- suffixes -------------------------------------------------------------------------------- */

/* Writes the words as rows of characters; a character that is not kept ends a row. */
static by_status open_text(seeds *s, int point_count)
{
    size_t size = 1;
    for (size_t i = 0; i < s->words->count; i++)
        size += s->words->items[i].size + 1;
    if (size >= UINT32_MAX)
        return base_fail(BY_ERR_MEMORY, "%zu bytes of distinct words are too many", size);
    uint32_t *index = base_alloc_zero(TOK_UTF8_POINTS, sizeof(*index));
    s->text = base_alloc(size * sizeof(*s->text));
    s->sorted = base_alloc(size * sizeof(*s->sorted));
    s->word_of = base_alloc(size * sizeof(*s->word_of));
    if (!index || !s->text || !s->sorted || !s->word_of) {
        base_free(index);
        return BY_ERR_MEMORY;
    }
    for (int i = 0; i < point_count; i++)
        index[s->points[i]] = (uint32_t)i + 1;
    size_t n = 0;
    for (size_t i = 0; i < s->words->count; i++) {
        size_t at = 0;
        for (int32_t c; (c = tok_word_next(s->words, &s->words->items[i], &at)) >= 0;) {
            s->word_of[n] = (uint32_t)i;
            s->text[n++] = index[c];
        }
        s->word_of[n] = (uint32_t)i;
        s->text[n++] = 0;
    }
    for (size_t i = 0; i < n; i++)
        if (s->text[i])
            s->sorted[s->count++] = (uint32_t)i;
    base_free(index);
    return BY_OK;
}

static inline uint32_t middle(uint32_t a, uint32_t b, uint32_t c)
{
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

/* Quicksort by one character after the other (Bentley and Sedgewick 1997). */
static void sort_suffixes(const uint32_t *text, uint32_t *v, size_t n, uint32_t depth, uint32_t most)
{
    while (n > 1 && depth <= most) {
        uint32_t pivot = middle(text[v[0] + depth], text[v[n / 2] + depth], text[v[n - 1] + depth]);
        size_t low = 0, i = 0, high = n;
        while (i < high) {
            uint32_t c = text[v[i] + depth], swap = v[i];
            if (c == pivot) {
                i++;
            } else if (c < pivot) {
                v[i++] = v[low];
                v[low++] = swap;
            } else {
                v[i] = v[--high];
                v[high] = swap;
            }
        }
        sort_suffixes(text, v, low, depth, most);
        sort_suffixes(text, v + high, n - high, depth, most);
        if (pivot == 0)
            return; /* ends of words: nothing follows */
        v += low;
        n = high - low;
        depth++;
    }
}

/* Number of characters that two suffixes share, at most one more than the longest candidate. */
static inline uint32_t common(const seeds *s, uint32_t a, uint32_t b)
{
    uint32_t n = 0;
    while (n <= (uint32_t)s->most && s->text[a + n] && s->text[a + n] == s->text[b + n])
        n++;
    return n;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static by_status put_found(found_list *l, found f)
{
    if (l->count == l->capacity) {
        size_t capacity = BY_MAX(l->capacity * 2, (size_t)4096);
        found *items = base_resize(l->items, capacity, sizeof(*items));
        if (!items)
            return BY_ERR_MEMORY;
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->count++] = f;
    return BY_OK;
}

/* Walks over the sorted suffixes with a stack of the strings shared by the most recent ones: a string ends at
 * a suffix that does not start with it. */
/* Adds a word that occurs more than once, even if nothing else starts with it. */
static by_status put_word(const seeds *s, size_t i, uint32_t shared, found_list *out)
{
    uint32_t at = s->sorted[i], n = 0;
    uint64_t count = s->before[i + 1] - s->before[i];
    if (count < 2 || (at > 0 && s->text[at - 1]))
        return BY_OK;
    while (n <= (uint32_t)s->most && s->text[at + n])
        n++;
    if (n < 2 || n > (uint32_t)s->most || n <= shared)
        return BY_OK;
    return put_found(out, (found){(double)count * n, at, n, out->count});
}

static by_status find_repeated(const seeds *s, found_list *out)
{
    struct {
        uint32_t length;
        size_t first;
    } stack[TOK_UNIGRAM_LONGEST + 2];
    int top = 0;
    uint32_t last = 0;
    for (size_t i = 1; i <= s->count; i++) {
        uint32_t length = i < s->count ? common(s, s->sorted[i - 1], s->sorted[i]) : 0;
        size_t first = i - 1;
        BY_TRY(put_word(s, first, BY_MAX(last, length), out));
        last = length;
        while (top > 0 && stack[top - 1].length > length) {
            top--;
            first = stack[top].first;
            uint32_t n = stack[top].length;
            if (n >= 2 && n <= (uint32_t)s->most)
                BY_TRY(put_found(out, (found){(double)(s->before[i] - s->before[first]) * n, s->sorted[first],
                                              n, out->count}));
        }
        if (length > 0 && (top == 0 || stack[top - 1].length < length)) {
            stack[top].length = length;
            stack[top++].first = first;
        }
    }
    return BY_OK;
}

/* Highest score first; equal scores in the order of their text, in which they were found. */
static int compare_score(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static by_status put_candidate(const seeds *s, base_arena *keep, tok_candidate *out, const uint32_t *text,
                               uint32_t length, double score)
{
    char *copy = base_arena_alloc(keep, (size_t)length * 4 + 1);
    if (!copy)
        return BY_ERR_MEMORY;
    *out = (tok_candidate){copy, 0, score};
    for (uint32_t i = 0; i < length; i++)
        out->size += (uint32_t)tok_utf8_encode(s->points[text[i] - 1], copy + out->size);
    return BY_OK;
}

/* Lists all characters, then the best strings, with the log of their relative frequency as score. */
static by_status list_candidates(const seeds *s, int point_count, const found_list *l, size_t limit,
                                 base_arena *keep, tok_candidate *out, size_t *count)
{
    double *letters = base_alloc_zero((size_t)point_count + 1, sizeof(*letters)), sum = 0;
    by_status status = letters ? BY_OK : BY_ERR_MEMORY;
    for (size_t i = 0; i < s->count && status == BY_OK; i++)
        letters[s->text[s->sorted[i]] - 1] += (double)(s->before[i + 1] - s->before[i]);
    for (uint32_t i = 0; i < (uint32_t)point_count && status == BY_OK; i++) {
        uint32_t symbol = i + 1;
        if (letters[i] > 0) /* characters that only the initial alphabet has are added at the end */
            status = put_candidate(s, keep, &out[(*count)++], &symbol, 1, letters[i]);
    }
    base_free(letters);
    for (size_t i = 0; i < l->count && *count < limit && status == BY_OK; i++)
        status = put_candidate(s, keep, &out[(*count)++], s->text + l->items[i].at, l->items[i].length,
                               l->items[i].score);
    BY_TRY(status);
    for (size_t i = 0; i < *count; i++)
        sum += out[i].score;
    for (size_t i = 0; i < *count; i++)
        out[i].score = log(out[i].score) - log(sum);
    return BY_OK;
}

static by_status find_seeds(seeds *s, int point_count, size_t limit, found_list *l, base_arena *keep,
                            tok_candidate **out, size_t *count)
{
    BY_TRY(open_text(s, point_count));
    sort_suffixes(s->text, s->sorted, s->count, 0, (uint32_t)s->most);
    s->before = base_alloc((s->count + 1) * sizeof(*s->before));
    if (!s->before)
        return BY_ERR_MEMORY;
    s->before[0] = 0;
    for (size_t i = 0; i < s->count; i++)
        s->before[i + 1] = s->before[i] + s->words->items[s->word_of[s->sorted[i]]].count;
    BY_TRY(find_repeated(s, l));
    if (l->count)
        qsort(l->items, l->count, sizeof(*l->items), compare_score);
    *out = base_alloc(((size_t)point_count + BY_MIN(l->count, limit) + 1) * sizeof(**out));
    return *out ? list_candidates(s, point_count, l, limit, keep, *out, count) : BY_ERR_MEMORY;
}

by_status tok_unigram_seeds(const by_vocab_spec *spec, const tok_words *words, const uint32_t *points,
                            int point_count, base_arena *keep, tok_candidate **out, size_t *count)
{
    seeds s = {.words = words, .points = points, .most = spec->max_token_length};
    found_list l = {0};
    by_status status = find_seeds(&s, point_count, (size_t)spec->seed_size, &l, keep, out, count);
    base_free(l.items);
    base_free(s.text);
    base_free(s.sorted);
    base_free(s.word_of);
    base_free(s.before);
    return status;
}
