/* sorter.c - external sorting of records of fixed size (see ngram.h).
 *
 * Records gather in one block, which is sorted when it is full (block.c) and written to a file as a run, if
 * more records come. Without a file the block itself is the result; otherwise reading merges all runs with a
 * heap. */
#include <errno.h>
#include <unistd.h>

#include "ngram/ngram.h"
#include "ngram/sort_block.h"

enum { READ_BYTES = 1 << 18, AHEAD = 16, FIRST_SLOTS = 12 /* bits */ };

/* A sorted run in the file. */
typedef struct run {
    const char *at, *end; /* records in memory, the next one first */
    int64_t from, to;     /* bytes left in the file */
    char *buffer;
} run;

/* Of ngram_sorter_count: where a record is, and its hash, so that most others need not be looked at. */
typedef struct slot {
    uint32_t record, hash; /* record + 1; 0: free */
} slot;

/* A record waiting for its slot to be fetched from memory. */
typedef struct waiting {
    uint32_t hash;
    uint32_t record[NGRAM_RECORD_WORDS];
} waiting;

struct ngram_sorter {
    ngram_sorter_spec spec;
    char *block, *spare; /* (room) records each; the spare one serves sorting */
    size_t count, room;
    slot *slots;
    size_t slot_count; /* 2^(32 - shift) */
    int shift;
    waiting queue[AHEAD];
    uint64_t queued, taken; /* in all */
    FILE *file;
    run *runs;
    int n_runs;
    int *heap, heap_size;
    char *merged; /* the record that was returned last */
    size_t read;  /* records of the block that were returned */
};

/* ---- merging runs ---------------------------------------------------------------------------------- */

static int compare(const ngram_sorter *s, const char *a, const char *b)
{
    const uint32_t *x = (const uint32_t *)(const void *)a, *y = (const uint32_t *)(const void *)b;
    for (int i = 0; i < s->spec.words; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
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

/* Reads more of a run. */
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
    s->heap = base_alloc_zero((size_t)s->n_runs + 1, sizeof *s->heap);
    if (!s->heap)
        return BY_ERR_MEMORY;
    for (int i = 0; i < s->n_runs; i++) {
        BY_TRY(refill(s, &s->runs[i]));
        s->heap[s->heap_size++] = i;
    }
    for (int i = s->heap_size / 2 - 1; i >= 0; i--)
        sift(s, i);
    return BY_OK;
}

/* Takes the least record. */
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
    if (s->block) {
        if (s->read < s->count)
            *record = s->block + s->read++ * s->spec.record;
        return BY_OK;
    }
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

static by_status sort_block(ngram_sorter *s)
{
    return ngram_sort_block(&(ngram_block){.records = s->block,
                                           .spare = s->spare,
                                           .count = s->count,
                                           .record = s->spec.record,
                                           .words = s->spec.words,
                                           .threads = s->spec.threads});
}

/* Writes the sorted block to the file as one run. */
static by_status spill(ngram_sorter *s)
{
    if (!s->file && !(s->file = ngram_temporary(s->spec.dir)))
        return base_error_status();
    BY_TRY(sort_block(s));
    run *runs = base_resize(s->runs, (size_t)s->n_runs + 1, sizeof *runs);
    if (!runs)
        return BY_ERR_MEMORY;
    s->runs = runs;
    const int64_t from = s->n_runs ? runs[s->n_runs - 1].to : 0;
    runs[s->n_runs++] = (run){.from = from, .to = from + (int64_t)(s->count * s->spec.record)};
    ngram_big_forget(s->spare, s->room * s->spec.record);
    if (fwrite(s->block, s->spec.record, s->count, s->file) != s->count)
        return ngram_temporary_fail(s->spec.dir);
    s->count = 0;
    if (s->slots)
        memset(s->slots, 0, s->slot_count * sizeof *s->slots);
    return BY_OK;
}

by_status ngram_sorter_place(ngram_sorter *s, void **record)
{
    if (s->count == s->room)
        BY_TRY(spill(s));
    *record = s->block + s->count++ * s->spec.record;
    return BY_OK;
}

/* ---- counting ---------------------------------------------------------------------------------------- */

static uint32_t hash_words(const uint32_t *words, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++)
        h = (h ^ words[i]) * 0x9ddfea08eb382d69ull + 0x165667b19e3779f9ull;
    return (uint32_t)(h >> 32);
}

/* Slots are in the order of hashes, as far as there is room. */
static slot *home_of(const ngram_sorter *s, uint32_t hash)
{
    return &s->slots[hash >> s->shift];
}

static slot *next_slot(const ngram_sorter *s, slot *at)
{
    return ++at == s->slots + s->slot_count ? s->slots : at;
}

/* Twice as many slots. They keep their order, so that this reads and writes memory from its beginning to its
 * end. */
static by_status grow_slots(ngram_sorter *s)
{
    const size_t before = s->slot_count;
    slot *old = s->slots;
    if (!(s->slots = ngram_big_alloc(2 * before * sizeof *old))) {
        s->slots = old;
        return BY_ERR_MEMORY;
    }
    s->slot_count *= 2;
    s->shift--;
    for (size_t i = 0; i < before; i++) {
        slot *to = old[i].record ? home_of(s, old[i].hash) : NULL;
        while (to && to->record)
            to = next_slot(s, to);
        if (to)
            *to = old[i];
    }
    ngram_big_free(old, before * sizeof *old);
    return BY_OK;
}

/* The slot of a record, or the free one where it belongs. */
static slot *find_slot(const ngram_sorter *s, const waiting *w)
{
    slot *at = home_of(s, w->hash);
    for (; at->record; at = next_slot(s, at)) {
        const char *other = s->block + (at->record - 1) * s->spec.record;
        if (at->hash == w->hash && memcmp(other, w->record, (size_t)s->spec.words * 4) == 0)
            break;
    }
    return at;
}

/* The oldest record that waits becomes a record of the block, or is merged with an equal one. */
static by_status settle(ngram_sorter *s)
{
    const waiting *w = &s->queue[s->taken++ % AHEAD];
    slot *at = find_slot(s, w);
    if (at->record) {
        s->spec.merge(s->block + (at->record - 1) * s->spec.record, w->record, s->spec.words);
        return BY_OK;
    }
    if (s->count == s->room || s->count * 4 >= s->slot_count * 3) {
        BY_TRY(s->count == s->room ? spill(s) : grow_slots(s));
        at = find_slot(s, w);
    }
    *at = (slot){(uint32_t)s->count + 1, w->hash};
    memcpy(s->block + s->count++ * s->spec.record, w->record, s->spec.record);
    return BY_OK;
}

/* A record waits in a queue: half of it until its slot is there, the other half until the record in that slot
 * is. */
by_status ngram_sorter_count(ngram_sorter *s, const void *record)
{
    if (s->queued - s->taken == AHEAD)
        BY_TRY(settle(s));
    waiting *w = &s->queue[s->queued++ % AHEAD];
    memcpy(w->record, record, s->spec.record);
    w->hash = hash_words(w->record, s->spec.words);
    __builtin_prefetch(home_of(s, w->hash));
    if (s->queued - s->taken > AHEAD / 2) {
        const slot *other = home_of(s, s->queue[(s->queued - 1 - AHEAD / 2) % AHEAD].hash);
        if (other->record)
            __builtin_prefetch(s->block + (other->record - 1) * s->spec.record, 1);
    }
    return BY_OK;
}

static void free_slots(ngram_sorter *s)
{
    ngram_big_free(s->slots, s->slot_count * sizeof *s->slots);
    s->slots = NULL;
    s->slot_count = 0;
}

by_status ngram_sorter_finish(ngram_sorter *s)
{
    while (s->taken < s->queued)
        BY_TRY(settle(s));
    free_slots(s);
    if (s->n_runs && s->count) /* something is on disk: the rest goes there too, and the block is freed */
        BY_TRY(spill(s));
    else if (s->count)
        BY_TRY(sort_block(s));
    ngram_big_free(s->spare, s->room * s->spec.record);
    s->spare = NULL;
    if (!s->file)
        return BY_OK;
    ngram_big_free(s->block, s->room * s->spec.record);
    s->block = NULL;
    return fflush(s->file) == 0 ? begin_merge(s) : ngram_temporary_fail(s->spec.dir);
}

/* ---- making one -------------------------------------------------------------------------------------- */

ngram_sorter *ngram_sorter_new(const ngram_sorter_spec *spec)
{
    ngram_sorter *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->spec = *spec;
    const size_t each = 2 * spec->record + (spec->merge ? 4 * sizeof *s->slots : 0);
    s->room = BY_MIN(BY_MAX(spec->budget / each, (size_t)1 << 10), (size_t)1 << 31);
    s->shift = 32 - FIRST_SLOTS;
    s->slot_count = spec->merge ? (size_t)1 << FIRST_SLOTS : 0;
    s->block = ngram_big_alloc(s->room * spec->record);
    s->spare = ngram_big_alloc(s->room * spec->record);
    s->slots = spec->merge ? ngram_big_alloc(s->slot_count * sizeof *s->slots) : NULL;
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
    free_slots(s);
    ngram_big_free(s->block, s->room * s->spec.record);
    ngram_big_free(s->spare, s->room * s->spec.record);
    base_free(s);
}
