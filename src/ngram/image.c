/* image.c - the binary of an n-gram model: laid out and filled in place, checked when it is opened. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngram/ngram.h"

static const char magic[8] = {'b', 'y', 'n', 'g', 'r', 'a', 'm', '\n'};
enum {
    VERSION = 4,
    BEHIND = 1024 /* maximum slots after the homes of a table, for keys whose home is taken */
};

static uint64_t aligned(uint64_t n)
{
    return (n + 15) & ~(uint64_t)15;
}

static uint64_t homes_for(uint64_t count)
{
    return count + count / 2 + 1;
}

/* Homes and what lies behind them; the last slot stays free. */
static uint64_t slots_for(uint64_t count)
{
    return homes_for(count) + BY_MIN(count, BEHIND) + 1;
}

/* The tables of the orders above 1, and behind them the first words. */
static uint64_t place_tables(ngram_header *h, uint64_t at)
{
    const int order = (int)h->order;
    for (int n = 1; n < order; n++) {
        h->homes[n] = homes_for(h->counts[n]);
        h->slots[n] = slots_for(h->counts[n]);
        h->at[n] = at;
        at = aligned(at + h->slots[n] * sizeof(ngram_slot));
        h->firsts[n] = n + 1 < order ? at : 0;
        at = n + 1 < order ? aligned(at + h->slots[n] * sizeof(uint32_t)) : at;
    }
    return at;
}

by_status ngram_image_layout(ngram_header *h, const ngram_words *w, int order, const int64_t *counts,
                             ngram_traits traits)
{
    *h = (ngram_header){.version = VERSION,
                        .order = (uint32_t)order,
                        .words = w->count,
                        .missing = traits.smoothing == BY_SMOOTHING_STUPID ? (float)log10(NGRAM_STUPID) : 0,
                        .smoothing = traits.smoothing,
                        .tokens = (uint32_t)traits.tokens,
                        .eos = traits.eos,
                        .tokenizer = traits.tokenizer};
    memcpy(h->magic, magic, sizeof magic);
    for (int n = 0; n < order; n++)
        h->counts[n] = n ? (uint64_t)counts[n] : w->count;
    h->at[0] = aligned(sizeof *h);
    h->slots[0] = h->homes[0] = w->count;
    h->starts = aligned(h->at[0] + (uint64_t)w->count * sizeof(ngram_value));
    h->text = aligned(h->starts + (uint64_t)w->count * sizeof(uint64_t));
    h->text_bytes = w->size;
    h->index = aligned(h->text + w->size);
    h->index_homes = homes_for(w->count);
    h->index_slots = slots_for(w->count);
    h->bytes = place_tables(h, aligned(h->index + h->index_slots * sizeof(ngram_word_slot)));
    for (int n = 1; n < order; n++)
        if (h->slots[n] >= UINT32_MAX)
            return base_fail(BY_ERR_UNSUPPORTED, "too many n-grams: %llu of order %d",
                             (unsigned long long)h->counts[n], n + 1);
    return BY_OK;
}

static by_status map_file(ngram_image *m, const char *path, size_t bytes, void **at)
{
    m->path = base_strdup(path);
    m->temporary = base_sprintf("%s.tmp-%ld", path, (long)getpid());
    if (!m->path || !m->temporary)
        return BY_ERR_MEMORY;
    const int fd = open(m->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return base_fail(BY_ERR_IO, "%s: %s", path, strerror(errno));
    const int full = posix_fallocate(fd, 0, (off_t)bytes); /* a full disk shows now, not as SIGBUS */
    *at = full ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return *at != MAP_FAILED ? BY_OK : base_fail(BY_ERR_IO, "%s: %s", path, strerror(full ? full : errno));
}

by_status ngram_image_copy_words(const ngram_header *h, const ngram_words *w, char *to)
{
    ngram_word_slot *index = (ngram_word_slot *)(void *)(to + (h->index - h->starts));
    memcpy(to, w->starts, w->count * sizeof *w->starts);
    memcpy(to + (h->text - h->starts), w->text, w->size);
    for (uint32_t i = 0; i < w->count; i++) {
        const char *name = ngram_words_name(w, i);
        const uint64_t hash = ngram_words_hash(name, strlen(name));
        uint64_t at = ngram_home(h->index_homes, hash);
        while (at < h->index_slots && index[at].id)
            at++;
        if (at + 1 >= h->index_slots)
            return base_fail(BY_ERR_FORMAT, "the hashes of words are too near to each other");
        index[at] = (ngram_word_slot){.id = i + 1, .tag = (uint32_t)hash, .start = w->starts[i]};
    }
    return BY_OK;
}

by_status ngram_image_make(ngram_image *m, const char *path, const ngram_words *w, int order,
                           const int64_t *counts, ngram_traits traits)
{
    ngram_header h;
    void *at = MAP_FAILED;
    *m = (ngram_image){0};
    BY_TRY(ngram_image_layout(&h, w, order, counts, traits));
    if (path)
        BY_TRY(map_file(m, path, h.bytes, &at));
    else if (!(at = ngram_big_alloc(h.bytes)))
        return BY_ERR_MEMORY;
    m->header = at;
    *m->header = h;
    return ngram_image_copy_words(m->header, w, (char *)at + h.starts);
}

void ngram_image_abort(ngram_image *m)
{
    if (m->header)
        munmap(m->header, m->header->bytes);
    if (m->temporary)
        unlink(m->temporary);
    base_free(m->path);
    base_free(m->temporary);
    *m = (ngram_image){0};
}

by_status ngram_image_finish(ngram_image *m)
{
    if (!m->path)
        return BY_OK;
    by_status s = msync(m->header, m->header->bytes, MS_SYNC) == 0
                      ? base_rename(m->temporary, m->path)
                      : base_fail(BY_ERR_IO, "%s: %s", m->path, strerror(errno));
    if (s == BY_OK) {
        base_free(m->temporary);
        m->temporary = NULL;
    }
    ngram_image_abort(m);
    return s;
}

/* ---- filling --------------------------------------------------------------------------------------- */

/* The key of words, the first one first. */
static uint64_t key_of(const uint32_t *words, int n)
{
    uint64_t key = 0;
    for (int i = n - 1; i >= 0; i--)
        key = ngram_key(key, words[i]);
    return key + (key == 0);
}

static ngram_slot *table_of(const ngram_image *m, int n)
{
    return (ngram_slot *)(void *)((char *)m->header + m->header->at[n - 1]);
}

static ngram_value *find(const ngram_image *m, int n, const uint32_t *words)
{
    if (n == 1)
        return (ngram_value *)(void *)((char *)m->header + m->header->at[0]) + words[0];
    ngram_slot *s = ngram_slot_of(table_of(m, n), m->header->homes[n - 1], key_of(words, n));
    return s->key ? &s->value : NULL;
}

static by_status make(const ngram_image *m, int n, const uint32_t *words, ngram_value value)
{
    const ngram_header *h = m->header;
    const uint64_t key = key_of(words, n);
    ngram_slot *table = table_of(m, n), *s = ngram_slot_of(table, h->homes[n - 1], key);
    const uint64_t at = (uint64_t)(s - table);
    if (s->key) /* or two n-grams with one key, which does not happen */
        return base_fail(BY_ERR_FORMAT, "an n-gram of order %d is listed twice", n);
    if (at + 1 >= h->slots[n - 1])
        return base_fail(BY_ERR_FORMAT, "the keys of order %d are too near to each other", n);
    *s = (ngram_slot){key, value};
    if (n == (int)h->order)
        s->value.weight = words[0];
    else
        ((uint32_t *)(void *)((char *)m->header + h->firsts[n - 1]))[at] = words[0];
    return BY_OK;
}

by_status ngram_image_put(ngram_image *m, int n, const uint32_t *words, float probability, float weight)
{
    ngram_value value;
    memcpy(&value.probability, &probability, 4);
    memcpy(&value.weight, &weight, 4);
    value.probability &= ~NGRAM_EXTENDS;
    value.weight &= ~NGRAM_BEGINS;
    if (n == 1) {
        *find(m, 1, words) = value;
        return BY_OK;
    }
    ngram_value *context = find(m, n - 1, words), *suffix = find(m, n - 1, words + 1);
    if (!context || !suffix)
        return base_fail(BY_ERR_FORMAT, "an n-gram of order %d is listed without its %s", n,
                         context ? "suffix" : "context");
    BY_TRY(make(m, n, words, value));
    context->weight |= NGRAM_BEGINS;
    suffix->probability |= NGRAM_EXTENDS;
    return BY_OK;
}

/* ---- checking ----------------------------------------------------------------------------------------- */

static bool lies_within(uint64_t at, uint64_t count, uint64_t size, uint64_t bytes)
{
    return at % 4 == 0 && at <= bytes && count <= (bytes - at) / size;
}

/* The last slot of a table is free: every search ends. */
static bool check_table(const ngram_header *h, uint32_t n, size_t bytes)
{
    if (h->at[n] % 8 != 0 || h->slots[n] == 0 || h->slots[n] >= UINT32_MAX ||
        !lies_within(h->at[n], h->slots[n], n ? sizeof(ngram_slot) : sizeof(ngram_value), bytes))
        return false;
    if (n == 0)
        return h->slots[0] == h->words;
    const ngram_slot *table = (const ngram_slot *)(const void *)((const char *)h + h->at[n]);
    return h->homes[n] >= 1 && h->homes[n] < h->slots[n] && h->counts[n] < h->slots[n] &&
           (n + 1 == h->order || lies_within(h->firsts[n], h->slots[n], 4, bytes)) &&
           table[h->slots[n] - 1].key == 0;
}

/* Places and sizes of a file from outside. */
by_status ngram_image_check(const ngram_header *h, size_t bytes)
{
    bool good = bytes >= sizeof *h && memcmp(h->magic, magic, sizeof magic) == 0;
    if (!good)
        return base_fail(BY_ERR_FORMAT, "not an n-gram model");
    if (h->version != VERSION)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "unknown format version %u; convert the ARPA file or estimate the model again",
                         h->version);
    good = h->order >= 1 && h->order <= BY_NGRAM_MAX_ORDER && h->bytes == bytes &&
           h->words >= NGRAM_SPECIAL && h->smoothing <= BY_SMOOTHING_UNKNOWN &&
           (h->tokens == 0 || h->words == h->tokens + NGRAM_SPECIAL) && h->eos >= -1 &&
           (h->eos < 0 || (uint32_t)h->eos < h->tokens) && lies_within(h->starts, h->words, 8, bytes) &&
           h->starts % 8 == 0 && h->text_bytes > 0 && lies_within(h->text, h->text_bytes, 1, bytes) &&
           h->index % 8 == 0 && h->index_homes >= 1 && h->index_homes < h->index_slots &&
           h->index_homes < UINT32_MAX &&
           lies_within(h->index, h->index_slots, sizeof(ngram_word_slot), bytes);
    for (uint32_t n = 0; n < h->order && good; n++)
        good = check_table(h, n, bytes);
    if (good)
        good = ((const char *)h + h->text)[h->text_bytes - 1] == '\0';
    return good ? BY_OK : base_fail(BY_ERR_FORMAT, "the header is damaged");
}

/* ---- listing ------------------------------------------------------------------------------------------ */

/* 1 / a modulo 2^64, of an odd number: each round doubles the number of right bits. */
static uint64_t inverse(uint64_t a)
{
    uint64_t x = a;
    for (int i = 0; i < 6; i++)
        x *= 2 - a * x;
    return x;
}

/* The first word of the n-gram in a slot. */
static uint32_t first_of(const ngram_header *h, int n, const ngram_slot *table, const ngram_slot *s)
{
    if (n == (int)h->order)
        return s->value.weight;
    return ((const uint32_t *)(const void *)((const char *)h + h->firsts[n - 1]))[s - table];
}

/* The key of an n-gram is a one-to-one function of its first word and the key of the rest. */
bool ngram_image_words(const ngram_header *h, int n, uint64_t slot, uint32_t *words)
{
    const uint64_t spread = inverse(NGRAM_SPREAD), mix = inverse(NGRAM_MIX);
    union {
        const void *from;
        char *base; /* tables are only read */
    } image = {h};
    uint64_t key = ((const ngram_slot *)(void *)(image.base + h->at[n - 1]))[slot].key;
    for (int i = 0; i + 1 < n; i++) {
        const int left = n - i; /* words that the key stands for */
        ngram_slot *table = (ngram_slot *)(void *)(image.base + h->at[left - 1]);
        const ngram_slot *s = ngram_slot_of(table, h->homes[left - 1], key);
        if (!s->key)
            return false;
        words[i] = first_of(h, left, table, s);
        if (words[i] >= h->words)
            return false;
        key = key * spread ^ ((uint64_t)words[i] + 1) * NGRAM_MIX;
    }
    words[n - 1] = (uint32_t)(key * spread * mix) - 1;
    return words[n - 1] < h->words;
}

static by_status begin_order(void *user, int n)
{
    (void)n;
    ((ngram_image_walk *)user)->at = 0;
    return BY_OK;
}

/* The n-gram in a slot, as an ngram_entry. */
static by_status take(const ngram_header *h, int n, uint64_t slot, uint32_t *entry)
{
    const char *table = (const char *)h + h->at[n - 1];
    ngram_value v;
    memcpy(&v,
           n > 1 ? &((const ngram_slot *)(const void *)table)[slot].value : (const void *)(table + 8 * slot),
           8);
    entry[0] = v.probability;
    entry[1] = n == (int)h->order && n > 1 ? 0 : v.weight;
    entry[2] = (uint32_t)slot;
    return n == 1 || ngram_image_words(h, n, slot, entry + 2)
               ? BY_OK
               : base_fail(BY_ERR_FORMAT, "the tables are damaged");
}

static by_status next_entries(void *user, int n, const void **entries, size_t *count)
{
    ngram_image_walk *w = user;
    const ngram_header *h = w->header;
    const ngram_slot *table = (const ngram_slot *)(const void *)((const char *)h + h->at[n - 1]);
    *entries = w->now;
    *count = 0;
    for (; w->at < h->slots[n - 1] && *count < NGRAM_WALK; w->at++)
        if (n == 1 || table[w->at].key)
            BY_TRY(take(h, n, w->at, w->now + (*count)++ * ((size_t)n + 2)));
    return BY_OK;
}

ngram_listing ngram_image_listing(ngram_image_walk *w)
{
    const ngram_header *h = w->header;
    ngram_listing l = {.order = (int)h->order,
                       .threads = 1,
                       .text = (const char *)h + h->text,
                       .starts = (const uint64_t *)(const void *)((const char *)h + h->starts),
                       .text_bytes = h->text_bytes,
                       .words = h->words,
                       .begin = begin_order,
                       .next = next_entries,
                       .user = w};
    for (int n = 0; n < l.order; n++)
        l.counts[n] = (int64_t)h->counts[n];
    return l;
}
