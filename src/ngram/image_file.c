/* image_file.c - writes the binary of an n-gram model from beginning to end.
 *
 * The home of a key in its table grows with the key. N-grams that are sorted by the highest bits of their
 * keys therefore come in the order of the parts of the table. A part is filled in memory and written; what
 * finds its place taken at the end of a part goes into the next one. So a table of any size takes little
 * memory, and the file is written once. */
#include "ngram/ngram.h"
#include "text/tokenizer.h"

enum { PARTS = 1 << NGRAM_PARTS_BITS, PIECE = 1024 /* first words in a record of their spool */ };

/* ---- n-grams on their way ---------------------------------------------------------------------------- */

by_status ngram_hash_make(ngram_job *j, int n, size_t budget)
{
    j->hashed[n - 1] = ngram_sorter_new(&(ngram_sorter_spec){
        .words = 1, .record = sizeof(ngram_hashed), .budget = budget, .threads = j->threads, .dir = j->dir});
    return j->hashed[n - 1] ? BY_OK : base_error_status();
}

by_status ngram_hash_put(ngram_job *j, int n, const uint32_t *reversed, ngram_value value)
{
    uint64_t key = 0;
    void *place;
    for (int i = 0; i < n; i++)
        key = ngram_key(key, reversed[i]);
    key += key == 0;
    BY_TRY(ngram_sorter_place(j->hashed[n - 1], &place));
    ngram_hashed *h = place;
    h->part = (uint32_t)(key >> (64 - NGRAM_PARTS_BITS));
    memcpy(h->key, &key, sizeof key);
    h->value = value;
    h->first = reversed[n - 1];
    return BY_OK;
}

/* ---- one table --------------------------------------------------------------------------------------- */

typedef struct table {
    base_writer *out;
    ngram_job *job;
    const ngram_header *header;
    int n;
    uint64_t homes, slots;
    uint64_t begin;     /* slot of the table that slots[0] is */
    uint64_t room;      /* slots in memory */
    uint64_t used;      /* slots from the beginning that may not be free */
    ngram_slot *memory; /* (room) */
    uint32_t *firsts;   /* (room) */
    ngram_spool spool;  /* of pieces of first words */
    uint32_t piece[PIECE];
    int in_piece;
} table;

/* The first home of a part. */
static uint64_t part_begin(const table *t, uint32_t part)
{
    return ((uint64_t)part << (32 - NGRAM_PARTS_BITS)) * t->homes >> 32;
}

static by_status put_first(table *t, uint32_t word)
{
    t->piece[t->in_piece++] = word;
    if (t->in_piece < PIECE)
        return BY_OK;
    t->in_piece = 0;
    return ngram_spool_put(&t->spool, t->piece);
}

/* Slots before `end` are complete: they are written, and what lies behind them moves to the beginning. */
static by_status flush(table *t, uint64_t end)
{
    const uint64_t count = end - t->begin, left = t->used > count ? t->used - count : 0;
    BY_TRY(base_writer_put(t->out, t->memory, count * sizeof *t->memory));
    for (uint64_t i = 0; i < count && t->n < t->job->order; i++)
        BY_TRY(put_first(t, t->firsts[i]));
    memmove(t->memory, t->memory + count, left * sizeof *t->memory);
    memmove(t->firsts, t->firsts + count, left * sizeof *t->firsts);
    if (t->used > left) {
        memset(t->memory + left, 0, (t->used - left) * sizeof *t->memory);
        memset(t->firsts + left, 0, (t->used - left) * sizeof *t->firsts);
    }
    t->used = left;
    t->begin = end;
    return BY_OK;
}

static by_status insert(table *t, const ngram_hashed *h)
{
    uint64_t key;
    memcpy(&key, h->key, sizeof key);
    uint64_t at = ngram_home(t->homes, key) - t->begin;
    while (at < t->room && t->memory[at].key && t->memory[at].key != key)
        at++;
    if (at + 1 >= t->room || t->begin + at + 1 >= t->slots)
        return base_fail(BY_ERR_FORMAT, "the keys of order %d are too near to each other", t->n);
    if (t->memory[at].key)
        return base_fail(BY_ERR_FORMAT, "two n-grams of order %d have the same key", t->n);
    t->memory[at] = (ngram_slot){key, h->value};
    if (t->n == t->job->order)
        t->memory[at].value.weight = h->first;
    t->firsts[at] = h->first;
    t->used = BY_MAX(t->used, at + 1);
    return BY_OK;
}

static by_status fill(table *t)
{
    ngram_sorter *s = t->job->hashed[t->n - 1];
    const void *record;
    uint32_t part = 0;
    BY_TRY(ngram_sorter_finish(s));
    for (int64_t i = 0;; i++) {
        BY_TRY(ngram_poll(t->job, i));
        BY_TRY(ngram_sorter_next(s, &record));
        const uint32_t next = record ? ((const ngram_hashed *)record)->part : PARTS;
        for (; part < next; part++)
            BY_TRY(flush(t, part + 1 < PARTS ? part_begin(t, part + 1) : t->homes));
        if (!record)
            return flush(t, t->slots);
        BY_TRY(insert(t, record));
    }
}

static by_status pad(base_writer *out, uint64_t *at, uint64_t to)
{
    static const char zeros[16];
    if (to < *at || to - *at > sizeof zeros)
        return base_fail(BY_ERR_FORMAT, "the sections of the binary are inconsistent");
    BY_TRY(base_writer_put(out, zeros, to - *at));
    *at = to;
    return BY_OK;
}

static by_status write_firsts(table *t)
{
    const void *records;
    size_t count;
    BY_TRY(ngram_spool_rewind(&t->spool));
    for (;;) {
        BY_TRY(ngram_spool_next(&t->spool, &records, &count));
        if (count == 0)
            break;
        BY_TRY(base_writer_put(t->out, records, count * sizeof t->piece));
    }
    return base_writer_put(t->out, t->piece, (size_t)t->in_piece * sizeof *t->piece);
}

static by_status write_table(ngram_job *j, base_writer *out, const ngram_header *h, int n, uint64_t *at)
{
    table t = {.out = out,
               .job = j,
               .header = h,
               .n = n,
               .homes = h->homes[n - 1],
               .slots = h->slots[n - 1],
               .room = h->homes[n - 1] / PARTS + 2 + (h->slots[n - 1] - h->homes[n - 1])};
    t.memory = base_alloc_zero(t.room, sizeof *t.memory);
    t.firsts = base_alloc_zero(t.room, sizeof *t.firsts);
    by_status s = t.memory && t.firsts ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = ngram_spool_make(&t.spool, sizeof t.piece, ngram_share(j, 0.1, n), j->dir);
    if (s == BY_OK)
        s = pad(out, at, h->at[n - 1]);
    if (s == BY_OK)
        s = fill(&t);
    *at += t.slots * sizeof *t.memory;
    if (s == BY_OK && n < j->order) {
        s = pad(out, at, h->firsts[n - 1]);
        s = s == BY_OK ? write_firsts(&t) : s;
        *at += t.slots * sizeof *t.firsts;
    }
    base_free(t.memory);
    base_free(t.firsts);
    ngram_spool_free(&t.spool);
    ngram_sorter_free(j->hashed[n - 1]);
    j->hashed[n - 1] = NULL;
    return s;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Entries of unigrams come in the order of their words, all of them. */
static by_status write_unigrams(ngram_job *j, base_writer *out)
{
    const void *records;
    size_t count;
    uint32_t word = 0;
    BY_TRY(ngram_spool_rewind(&j->entries[0]));
    for (;;) {
        BY_TRY(ngram_spool_next(&j->entries[0], &records, &count));
        if (count == 0)
            break;
        const uint32_t *entry = records;
        for (size_t i = 0; i < count; i++, word++, entry += 3) {
            if (entry[2] != word)
                return base_fail(BY_ERR_FORMAT, "a unigram is missing");
            BY_TRY(base_writer_put(out, entry, sizeof(ngram_value)));
        }
    }
    return word == j->vocabulary->count ? BY_OK : base_fail(BY_ERR_FORMAT, "a unigram is missing");
}

static by_status write_words(ngram_job *j, base_writer *out, const ngram_header *h)
{
    char *words = base_alloc_zero(ngram_image_words_bytes(h), 1);
    if (!words)
        return BY_ERR_MEMORY;
    by_status s = ngram_image_copy_words(h, j->vocabulary, words);
    if (s == BY_OK)
        s = base_writer_put(out, words, ngram_image_words_bytes(h));
    base_free(words);
    return s;
}

static by_status write_all(ngram_job *j, base_writer *out, const ngram_header *h)
{
    uint64_t at = sizeof *h;
    BY_TRY(base_writer_put(out, h, sizeof *h));
    BY_TRY(pad(out, &at, h->at[0]));
    BY_TRY(write_unigrams(j, out));
    at += (uint64_t)h->words * sizeof(ngram_value);
    BY_TRY(pad(out, &at, h->starts));
    BY_TRY(write_words(j, out, h));
    at += ngram_image_words_bytes(h);
    for (int n = 2; n <= j->order; n++)
        BY_TRY(write_table(j, out, h, n, &at));
    return pad(out, &at, h->bytes);
}

by_status ngram_image_write(ngram_job *j, const char *path)
{
    ngram_header h;
    base_writer out;
    const ngram_traits traits = {.smoothing = j->spec->smoothing,
                                 .tokens = j->tokenizer ? by_tokenizer_vocab_size(j->tokenizer) : 0,
                                 .eos = j->tokenizer ? by_tokenizer_eos(j->tokenizer) : -1,
                                 .tokenizer = j->tokenizer ? tok_hash(j->tokenizer) : 0};
    BY_TRY(ngram_image_layout(&h, j->vocabulary, j->order, j->result->ngrams, traits));
    BY_TRY(base_writer_open(&out, path));
    const by_status s = write_all(j, &out, &h);
    if (s == BY_OK)
        return base_writer_finish(&out);
    base_writer_abort(&out);
    return s;
}
