/* sort_block.c - sorts a block of records by radix (see sort_block.h).
 *
 * One pass divides the block into about a thousand buckets by ranges of the first word, chosen so that they are of similar
 * size: frequent words have one of their own. A bucket fits in the cache and is sorted there by passes from the last word to
 * the first. Threads share the first pass by parts of the block and take buckets in turn. */
#include <stdatomic.h>

#include "ngram/ngram.h"
#include "ngram/sort_block.h"

enum {
    BUCKETS = 1 << 10, /* about as many; never more than twice that */
    EXACT = 1 << 18,   /* words below this are told apart when buckets are chosen; */
    COARSE = 1 << 18,  /* higher ones by as many ranges */
    DIGIT = 11,        /* bits of a pass at most */
    FEW = 24,          /* records that insertion sorts faster */
    ALONE = 1 << 14    /* records that are one bucket */
};

typedef struct sorting {
    const ngram_block *block;
    int threads, buckets, shift; /* shift: of words from EXACT on */
    uint32_t *counts;            /* (threads, EXACT + COARSE) records by word */
    uint16_t *bucket_of;         /* (EXACT + COARSE) */
    size_t *starts;              /* (threads, 2 * BUCKETS) where the next record of a thread goes */
    size_t begins[2 * BUCKETS + 1];
    uint32_t largest[256]; /* first word of each part */
    atomic_int next;
} sorting;

/* ---- copying: constant sizes become a few moves ------------------------------------------------------ */

#define SIZES(X) X(8) X(12) X(16) X(20) X(24) X(28) X(32) X(36) X(40) X(44) X(48)

static inline uint32_t word_of(const char *record, int word)
{
    uint32_t w;
    memcpy(&w, record + (size_t)word * 4, 4);
    return w;
}

/* ---- one bucket -------------------------------------------------------------------------------------- */

/* Bits in which a word of the records differs. */
static uint32_t differing(const char *from, size_t count, size_t size, int word)
{
    const uint32_t first = word_of(from, word);
    uint32_t bits = 0;
    for (size_t i = 1; i < count; i++)
        bits |= word_of(from + i * size, word) ^ first;
    return bits;
}

static inline __attribute__((always_inline)) void scatter(const char *from, char *to, size_t count,
                                                          size_t size, int word, int shift, uint32_t mask,
                                                          uint32_t *starts)
{
    for (size_t i = 0; i < count; i++) {
        const char *r = from + i * size;
        memcpy(to + (size_t)starts[word_of(r, word) >> shift & mask]++ * size, r, size);
    }
}

/* One stable pass by some bits of a word. */
static void pass_over(const char *from, char *to, size_t count, size_t size, int word, int shift, int bits)
{
    uint32_t starts[1 << DIGIT] = {0};
    const uint32_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < count; i++)
        starts[word_of(from + i * size, word) >> shift & mask]++;
    for (uint32_t d = 0, at = 0; d <= mask; d++) {
        const uint32_t n = starts[d];
        starts[d] = at;
        at += n;
    }
    switch (size) {
#define CASE(n)                                                 \
    case n:                                                     \
        scatter(from, to, count, n, word, shift, mask, starts); \
        break;
        SIZES(CASE)
#undef CASE
    default:
        scatter(from, to, count, size, word, shift, mask, starts);
    }
}

static int compare(const char *a, const char *b, int words)
{
    for (int i = 0; i < words; i++)
        if (word_of(a, i) != word_of(b, i))
            return word_of(a, i) < word_of(b, i) ? -1 : 1;
    return 0;
}

static void insert_all(char *records, size_t count, size_t size, int words)
{
    uint32_t held[NGRAM_RECORD_WORDS];
    for (size_t i = 1; i < count; i++) {
        size_t at = i;
        if (compare(records + (i - 1) * size, records + i * size, words) <= 0)
            continue;
        memcpy(held, records + i * size, size);
        for (; at > 0 && compare(records + (at - 1) * size, (const char *)held, words) > 0; at--)
            memcpy(records + at * size, records + (at - 1) * size, size);
        memcpy(records + at * size, held, size);
    }
}

/* Passes over the bits of a word that differ, in pieces of equal width. */
static void sort_by(char **from, char **to, size_t count, size_t size, int word)
{
    const uint32_t bits = differing(*from, count, size, word);
    const int low = bits ? __builtin_ctz(bits) : 0, high = bits ? 32 - __builtin_clz(bits) : 0;
    const int passes = (high - low + DIGIT - 1) / DIGIT;
    const int width = passes ? (high - low + passes - 1) / passes : 0;
    for (int shift = low; shift < high; shift += width) {
        pass_over(*from, *to, count, size, word, shift, width);
        char *other = *from;
        *from = *to;
        *to = other;
    }
}

/* The bucket is in the spare block. */
static void sort_bucket(const sorting *s, int bucket)
{
    const ngram_block *b = s->block;
    const size_t begin = s->begins[bucket], count = s->begins[bucket + 1] - begin;
    char *from = b->spare + begin * b->record, *to = b->records + begin * b->record, *result = to;
    if (count <= FEW) {
        memcpy(to, from, count * b->record);
        insert_all(to, count, b->record, b->words);
        return;
    }
    for (int word = b->words - 1; word >= 0; word--)
        sort_by(&from, &to, count, b->record, word);
    if (from != result)
        memcpy(result, from, count * b->record);
}

/* ---- dividing the block ------------------------------------------------------------------------------ */

static size_t part_begin(const sorting *s, int i)
{
    return s->block->count * (size_t)i / (size_t)s->threads;
}

static uint32_t range_of(const sorting *s, uint32_t word)
{
    return word < EXACT ? word : EXACT + ((word - EXACT) >> s->shift);
}

static by_status find_largest(void *user, int index)
{
    sorting *s = user;
    const ngram_block *b = s->block;
    uint32_t largest = 0;
    for (size_t i = part_begin(s, index); i < part_begin(s, index + 1); i++)
        largest = BY_MAX(largest, word_of(b->records + i * b->record, 0));
    s->largest[index] = largest;
    return BY_OK;
}

static by_status count_words(void *user, int index)
{
    sorting *s = user;
    const ngram_block *b = s->block;
    uint32_t *counts = s->counts + (size_t)index * (EXACT + COARSE);
    for (size_t i = part_begin(s, index); i < part_begin(s, index + 1); i++)
        counts[range_of(s, word_of(b->records + i * b->record, 0))]++;
    return BY_OK;
}

/* Where the records of each thread go: to each bucket those of the first part first. */
static void choose_buckets(sorting *s, uint32_t ranges)
{
    const size_t enough = s->block->count / BUCKETS + 1;
    size_t at = 0, in_bucket = 0;
    for (uint32_t r = 0; r < ranges; r++) {
        size_t count = 0;
        for (int t = 0; t < s->threads; t++)
            count += s->counts[(size_t)t * (EXACT + COARSE) + r];
        if (in_bucket && in_bucket + count > enough) {
            s->begins[++s->buckets] = at;
            in_bucket = 0;
        }
        for (int t = 0; t < s->threads; t++)
            s->starts[(size_t)t * 2 * BUCKETS + (size_t)s->buckets] +=
                s->counts[(size_t)t * (EXACT + COARSE) + r];
        s->bucket_of[r] = (uint16_t)s->buckets;
        in_bucket += count;
        at += count;
    }
    s->begins[++s->buckets] = at;
    for (int k = 0; k < s->buckets; k++) {
        size_t begin = s->begins[k];
        for (int t = 0; t < s->threads; t++) {
            size_t *start = &s->starts[(size_t)t * 2 * BUCKETS + (size_t)k];
            const size_t n = *start;
            *start = begin;
            begin += n;
        }
    }
}

static inline __attribute__((always_inline)) void deal(const sorting *s, int index, size_t size)
{
    const ngram_block *b = s->block;
    size_t *starts = s->starts + (size_t)index * 2 * BUCKETS;
    for (size_t i = part_begin(s, index), end = part_begin(s, index + 1); i < end; i++) {
        const char *r = b->records + i * size;
        memcpy(b->spare + starts[s->bucket_of[range_of(s, word_of(r, 0))]]++ * size, r, size);
    }
}

static by_status deal_part(void *user, int index)
{
    const sorting *s = user;
    switch (s->block->record) {
#define CASE(n)            \
    case n:                \
        deal(s, index, n); \
        break;
        SIZES(CASE)
#undef CASE
    default:
        deal(s, index, s->block->record);
    }
    return BY_OK;
}

static by_status sort_buckets(void *user, int index)
{
    sorting *s = user;
    (void)index;
    for (int bucket; (bucket = atomic_fetch_add(&s->next, 1)) < s->buckets;)
        sort_bucket(s, bucket);
    return BY_OK;
}

static by_status sort_all(sorting *s)
{
    uint32_t largest = 0;
    BY_TRY(base_parallel(s->threads, find_largest, s));
    for (int i = 0; i < s->threads; i++)
        largest = BY_MAX(largest, s->largest[i]);
    while (largest >= EXACT && ((largest - EXACT) >> s->shift) >= COARSE)
        s->shift++;
    BY_TRY(base_parallel(s->threads, count_words, s));
    choose_buckets(s, range_of(s, largest) + 1);
    BY_TRY(base_parallel(s->threads, deal_part, s));
    return base_parallel(s->threads, sort_buckets, s);
}

by_status ngram_sort_block(const ngram_block *b)
{
    if (b->words == 0 || b->count < 2)
        return BY_OK;
    sorting *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return BY_ERR_MEMORY;
    s->block = b;
    if (b->count < ALONE) {
        memcpy(b->spare, b->records, b->count * b->record);
        s->begins[1] = b->count;
        sort_bucket(s, 0);
        base_free(s);
        return BY_OK;
    }
    s->threads = BY_MAX(1, BY_MIN(b->threads, BY_COUNT(s->largest)));
    s->counts = base_alloc_zero((size_t)s->threads * (EXACT + COARSE), sizeof *s->counts);
    s->bucket_of = base_alloc_zero(EXACT + COARSE, sizeof *s->bucket_of);
    s->starts = base_alloc_zero((size_t)s->threads * 2 * BUCKETS, sizeof *s->starts);
    by_status status = s->counts && s->bucket_of && s->starts ? sort_all(s) : BY_ERR_MEMORY;
    base_free(s->counts);
    base_free(s->bucket_of);
    base_free(s->starts);
    base_free(s);
    return status;
}
