/* sorter.c - external sorting of records of fixed size by radix (see ngram.h).
 *
 * Records gather in one block. When it is full, each thread sorts a part of it, word by word from the last to the first,
 * 11 bits at a time. The parts are runs. If more records come, runs are merged into one and written to the file of runs.
 * Reading merges all runs with a heap. */
#include <errno.h>
#include <unistd.h>

#include "ngram/ngram.h"

enum { DIGIT = 11, DIGITS = 1 << DIGIT, READ_BYTES = 1 << 18 };

/* A sorted run, in memory or in the file. */
typedef struct run {
    const char *at, *end; /* what is in memory: the next record first */
    int64_t from, to;     /* what is still in the file, in bytes */
    char *buffer;
} run;

struct ngram_sorter {
    ngram_sorter_spec spec;
    char *block, *spare; /* (room) records each; the spare one serves sorting */
    size_t count, room;
    uint32_t
        *slots; /* of ngram_sorter_count: record + 1; twice as many as the block has room for, rounded up */
    size_t slot_count;
    FILE *file;
    run *runs;
    int n_runs;
    int *heap, heap_size;
    char *merged;     /* the record that was returned last */
    uint32_t largest; /* word */
};

/* ---- sorting the block --------------------------------------------------------------------------- */

typedef struct part {
    ngram_sorter *sorter;
    int count;
    bool swapped; /* the result is in the spare block */
} part;

/* One stable pass over records [begin, end), by a digit of one word. */
static void pass_over(const ngram_sorter *s, const char *from, char *to, size_t count, int word, int shift)
{
    size_t starts[DIGITS] = {0};
    const size_t size = s->spec.record;
    for (size_t i = 0; i < count; i++) {
        uint32_t key;
        memcpy(&key, from + i * size + (size_t)word * 4, 4);
        starts[key >> shift & (DIGITS - 1)]++;
    }
    for (size_t d = 0, at = 0; d < DIGITS; d++) {
        const size_t n = starts[d];
        starts[d] = at;
        at += n;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t key;
        memcpy(&key, from + i * size + (size_t)word * 4, 4);
        memcpy(to + starts[key >> shift & (DIGITS - 1)]++ * size, from + i * size, size);
    }
}

static size_t part_begin(const ngram_sorter *s, int i, int parts)
{
    return s->count * (size_t)i / (size_t)parts;
}

static by_status sort_part(void *user, int index)
{
    part *p = user;
    ngram_sorter *s = p->sorter;
    const size_t begin = part_begin(s, index, p->count), count = part_begin(s, index + 1, p->count) - begin;
    char *from = s->block + begin * s->spec.record, *to = s->spare + begin * s->spec.record;
    for (int w = s->spec.words - 1; w >= 0; w--)
        for (int shift = 0; shift < 32 && s->largest >> shift; shift += DIGIT) {
            pass_over(s, from, to, count, w, shift);
            char *other = from;
            from = to;
            to = other;
        }
    if (from != s->block + begin * s->spec.record)
        memcpy(to, from, count * s->spec.record);
    return BY_OK;
}

static by_status add_run(ngram_sorter *s, run r)
{
    run *runs = base_resize(s->runs, (size_t)s->n_runs + 1, sizeof *runs);
    if (!runs)
        return BY_ERR_MEMORY;
    s->runs = runs;
    s->runs[s->n_runs++] = r;
    return BY_OK;
}

/* Sorts the block: a run for each thread. */
static by_status sort_block(ngram_sorter *s)
{
    part p = {.sorter = s, .count = s->count < 1 << 14 ? 1 : s->spec.threads};
    BY_TRY(base_parallel(p.count, sort_part, &p));
    for (int i = 0; i < p.count; i++)
        BY_TRY(add_run(s, (run){.at = s->block + part_begin(s, i, p.count) * s->spec.record,
                                .end = s->block + part_begin(s, i + 1, p.count) * s->spec.record}));
    return BY_OK;
}

/* ---- merging runs ---------------------------------------------------------------------------------- */

static int compare(const ngram_sorter *s, const char *a, const char *b)
{
    for (int i = 0; i < s->spec.words; i++) {
        uint32_t x, y;
        memcpy(&x, a + 4 * i, 4);
        memcpy(&y, b + 4 * i, 4);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

/* Whether run a goes before run b; of equals, the earlier run. */
static bool before(const ngram_sorter *s, int a, int b)
{
    const int c = compare(s, s->runs[a].at, s->runs[b].at);
    return c < 0 || (c == 0 && a < b);
}

static void sift(ngram_sorter *s, int at)
{
    for (int child; (child = 2 * at + 1) < s->heap_size; at = child) {
        if (child + 1 < s->heap_size && before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (before(s, s->heap[at], s->heap[child]))
            return;
        const int other = s->heap[at];
        s->heap[at] = s->heap[child];
        s->heap[child] = other;
    }
}

/* Reads more of a run that lies in the file. */
static by_status refill(ngram_sorter *s, run *r)
{
    if (r->from == r->to)
        return BY_OK;
    const size_t whole = READ_BYTES / s->spec.record * s->spec.record;
    const size_t n = (size_t)BY_MIN((int64_t)whole, r->to - r->from);
    if (!r->buffer && !(r->buffer = base_alloc(whole)))
        return BY_ERR_MEMORY;
    errno = 0;
    if (pread(fileno(s->file), r->buffer, n, (off_t)r->from) != (ssize_t)n)
        return ngram_temporary_fail(s->spec.dir);
    r->at = r->buffer;
    r->end = r->buffer + n;
    r->from += (int64_t)n;
    return BY_OK;
}

static by_status begin_merge(ngram_sorter *s)
{
    base_free(s->heap);
    s->heap = base_alloc_zero((size_t)s->n_runs + 1, sizeof *s->heap);
    s->heap_size = 0;
    if (!s->heap)
        return BY_ERR_MEMORY;
    for (int i = 0; i < s->n_runs; i++) {
        if (s->runs[i].at == s->runs[i].end)
            BY_TRY(refill(s, &s->runs[i]));
        if (s->runs[i].at != s->runs[i].end)
            s->heap[s->heap_size++] = i;
    }
    for (int i = s->heap_size / 2 - 1; i >= 0; i--)
        sift(s, i);
    return BY_OK;
}

/* Takes the least record into s->merged. */
static by_status take(ngram_sorter *s, void *out)
{
    run *r = &s->runs[s->heap[0]];
    memcpy(out, r->at, s->spec.record);
    r->at += s->spec.record;
    if (r->at == r->end)
        BY_TRY(refill(s, r));
    if (r->at == r->end)
        s->heap[0] = s->heap[--s->heap_size];
    sift(s, 0);
    return BY_OK;
}

by_status ngram_sorter_next(ngram_sorter *s, const void **record)
{
    *record = NULL;
    if (s->heap_size == 0)
        return BY_OK;
    BY_TRY(take(s, s->merged));
    while (s->spec.merge && s->heap_size && compare(s, s->merged, s->runs[s->heap[0]].at) == 0) {
        char *other = s->merged + s->spec.record;
        BY_TRY(take(s, other));
        s->spec.merge(s->merged, other, s->spec.words);
    }
    *record = s->merged;
    return BY_OK;
}

/* ---- filling ----------------------------------------------------------------------------------------- */

static by_status open_file(ngram_sorter *s)
{
    if (!s->file)
        s->file = ngram_temporary(s->spec.dir);
    return s->file ? BY_OK : base_error_status();
}

/* Writes the sorted block to the file as one run, merged. */
static by_status spill(ngram_sorter *s)
{
    const int first = s->n_runs;
    run *kept = s->runs;
    BY_TRY(open_file(s));
    s->runs = NULL; /* merge the runs of the block alone */
    s->n_runs = 0;
    by_status status = sort_block(s);
    if (status == BY_OK)
        status = begin_merge(s);
    const int64_t from = first ? kept[first - 1].to : 0;
    int64_t to = from;
    const void *record = NULL;
    while (status == BY_OK && (status = ngram_sorter_next(s, &record)) == BY_OK && record) {
        if (fwrite(record, s->spec.record, 1, s->file) != 1)
            status = ngram_temporary_fail(s->spec.dir);
        to += (int64_t)s->spec.record;
    }
    base_free(s->runs);
    s->runs = kept;
    s->n_runs = first;
    s->count = 0;
    if (s->slots)
        memset(s->slots, 0, s->slot_count * sizeof *s->slots);
    return status == BY_OK ? add_run(s, (run){.from = from, .to = to}) : status;
}

by_status ngram_sorter_add(ngram_sorter *s, const void *record)
{
    if (s->count == s->room)
        BY_TRY(spill(s));
    const uint32_t *words = record;
    for (int i = 0; i < s->spec.words; i++)
        s->largest = BY_MAX(s->largest, words[i]);
    memcpy(s->block + s->count++ * s->spec.record, record, s->spec.record);
    return BY_OK;
}

static uint64_t hash_words(const uint32_t *words, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++)
        h = (h ^ words[i]) * 0x9ddfea08eb382d69ull + 0x165667b19e3779f9ull;
    return h ^ h >> 31;
}

by_status ngram_sorter_count(ngram_sorter *s, const void *record)
{
    const size_t mask = s->slot_count - 1;
    if (s->count == s->room)
        BY_TRY(spill(s));
    size_t at = (size_t)hash_words(record, s->spec.words) & mask;
    for (; s->slots[at]; at = (at + 1) & mask) {
        char *other = s->block + (s->slots[at] - 1) * s->spec.record;
        if (memcmp(other, record, (size_t)s->spec.words * 4) == 0) {
            s->spec.merge(other, record, s->spec.words);
            return BY_OK;
        }
    }
    s->slots[at] = (uint32_t)s->count + 1;
    return ngram_sorter_add(s, record);
}

by_status ngram_sorter_finish(ngram_sorter *s)
{
    if (s->n_runs && s->count) /* something is on disk: the rest goes there too, and the block is freed */
        BY_TRY(spill(s));
    else if (s->count)
        BY_TRY(sort_block(s));
    base_free(s->slots);
    base_free(s->spare);
    s->slots = NULL;
    s->spare = NULL;
    if (s->file) {
        base_free(s->block);
        s->block = NULL;
        if (fflush(s->file) != 0)
            return ngram_temporary_fail(s->spec.dir);
    }
    return begin_merge(s);
}

/* ---- making one -------------------------------------------------------------------------------------- */

static size_t power_above(size_t n)
{
    size_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

ngram_sorter *ngram_sorter_new(const ngram_sorter_spec *spec)
{
    ngram_sorter *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->spec = *spec;
    const size_t each = 2 * spec->record + (spec->merge ? 4 * sizeof *s->slots : 0);
    s->room = BY_MIN(BY_MAX(spec->budget / each, (size_t)1 << 10), (size_t)UINT32_MAX - 1);
    s->slot_count = spec->merge ? power_above(s->room * 3 / 2) : 0;
    s->block = base_alloc(s->room * spec->record);
    s->spare = base_alloc(s->room * spec->record);
    s->slots = spec->merge ? base_alloc_zero(s->slot_count, sizeof *s->slots) : NULL;
    s->merged = base_alloc(2 * spec->record);
    if (!s->block || !s->spare || !s->merged || (spec->merge && !s->slots)) {
        ngram_sorter_free(s);
        return NULL;
    }
    return s;
}

void ngram_sorter_free(ngram_sorter *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_runs; i++)
        base_free(s->runs[i].buffer);
    if (s->file)
        fclose(s->file);
    base_free(s->runs);
    base_free(s->heap);
    base_free(s->merged);
    base_free(s->slots);
    base_free(s->block);
    base_free(s->spare);
    base_free(s);
}
