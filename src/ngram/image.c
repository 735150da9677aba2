/* image.c - the binary of an n-gram model: laid out and filled in place, checked when it is opened. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngram/ngram.h"

static const char magic[8] = {'b', 'y', 'n', 'g', 'r', 'a', 'm', '\n'};
enum { VERSION = 2 };

static uint64_t aligned(uint64_t n)
{
    return (n + 15) & ~(uint64_t)15;
}

static uint64_t slots_for(uint64_t count)
{
    return count + count / 2 + 1;
}

/* Sizes and places; everything else is zero. */
static ngram_header layout(const ngram_words *w, int order, const int64_t *counts, ngram_traits traits)
{
    ngram_header h = {.version = VERSION,
                      .order = (uint32_t)order,
                      .words = w->count,
                      .missing = traits.smoothing == BY_SMOOTHING_STUPID ? (float)log10(NGRAM_STUPID) : 0,
                      .smoothing = traits.smoothing,
                      .tokens = (uint32_t)traits.tokens,
                      .eos = traits.eos};
    uint64_t at = aligned(sizeof h);
    memcpy(h.magic, magic, sizeof magic);
    for (int n = 0; n < order; n++) {
        h.counts[n] = n ? (uint64_t)counts[n] : w->count;
        h.slots[n] = n ? slots_for(h.counts[n]) : w->count;
        h.at[n] = at;
        at = aligned(at + h.slots[n] * (n ? sizeof(ngram_slot) : sizeof(ngram_value)));
    }
    h.starts = at;
    h.text = aligned(at + (uint64_t)w->count * sizeof(uint64_t));
    h.text_bytes = w->size;
    h.index = aligned(h.text + w->size);
    h.index_slots = slots_for(w->count);
    at = aligned(h.index + h.index_slots * sizeof(uint32_t));
    for (int n = 1; n < order; n++) {
        h.firsts[n] = at;
        at = aligned(at + h.slots[n] * sizeof(uint32_t));
    }
    h.bytes = at;
    return h;
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

static void copy_words(ngram_header *h, const ngram_words *w)
{
    char *base = (char *)h;
    uint64_t *starts = (uint64_t *)(base + h->starts);
    uint32_t *index = (uint32_t *)(base + h->index);
    memcpy(base + h->text, w->text, w->size);
    for (uint32_t i = 0; i < w->count; i++) {
        const char *name = ngram_words_name(w, i);
        starts[i] = w->starts[i];
        uint64_t at = base_hash(name, strlen(name), 0) % h->index_slots;
        while (index[at])
            at = at + 1 < h->index_slots ? at + 1 : 0;
        index[at] = i + 1;
    }
}

by_status ngram_image_make(ngram_image *m, const char *path, const ngram_words *w, int order,
                           const int64_t *counts, ngram_traits traits)
{
    const ngram_header h = layout(w, order, counts, traits);
    void *at = MAP_FAILED;
    *m = (ngram_image){0};
    for (int n = 0; n < order; n++)
        if (h.slots[n] >= UINT32_MAX)
            return base_fail(BY_ERR_UNSUPPORTED, "%llu n-grams of order %d are more than a model can have",
                             (unsigned long long)h.counts[n], n + 1);
    if (path)
        BY_TRY(map_file(m, path, h.bytes, &at));
    else
        at = mmap(NULL, h.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return base_fail(BY_ERR_MEMORY, "no memory for a model of %llu bytes", (unsigned long long)h.bytes);
    m->header = at;
    *m->header = h;
    copy_words(m->header, w);
    return BY_OK;
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

static ngram_value *value_of(const ngram_image *m, int n, const uint32_t *words, bool make)
{
    ngram_header *h = m->header;
    char *base = (char *)h;
    if (n == 1)
        return (ngram_value *)(base + h->at[0]) + words[0];
    uint64_t key = 0;
    for (int i = n - 1; i >= 0; i--)
        key = ngram_key(key, words[i]);
    key += key == 0;
    ngram_slot *s = ngram_slot_of((ngram_slot *)(base + h->at[n - 1]), h->slots[n - 1], key);
    if (!make)
        return s->key ? &s->value : NULL;
    if (s->key) /* twice the same n-gram, or two with one key */
        return NULL;
    s->key = key;
    ((uint32_t *)(base + h->firsts[n - 1]))[s - (ngram_slot *)(base + h->at[n - 1])] = words[0];
    return &s->value;
}

by_status ngram_image_put(ngram_image *m, int n, const uint32_t *words, float probability, float weight)
{
    ngram_value *context = n > 1 ? value_of(m, n - 1, words, false) : NULL;
    ngram_value *suffix = n > 1 ? value_of(m, n - 1, words + 1, false) : NULL;
    if (n > 1 && (!context || !suffix))
        return base_fail(BY_ERR_FORMAT, "an n-gram of order %d is listed without its %s", n,
                         context ? "suffix" : "context");
    ngram_value *v = value_of(m, n, words, true);
    if (!v)
        return base_fail(BY_ERR_FORMAT, "an n-gram of order %d is listed twice", n);
    uint32_t bits[2];
    memcpy(&bits[0], &probability, 4);
    memcpy(&bits[1], &weight, 4);
    v->probability = bits[0] & 0x7fffffffu;
    v->weight = bits[1] & ~1u;
    if (n > 1) {
        context->weight |= 1u;
        suffix->probability |= 0x80000000u;
    }
    return BY_OK;
}

/* ---- checking ----------------------------------------------------------------------------------------- */

static bool lies_within(uint64_t at, uint64_t count, uint64_t size, uint64_t bytes)
{
    return at % 4 == 0 && at <= bytes && count <= (bytes - at) / size;
}

/* Places and sizes of a file from outside. */
by_status ngram_image_check(const ngram_header *h, size_t bytes)
{
    bool good = bytes >= sizeof *h && memcmp(h->magic, magic, sizeof magic) == 0;
    if (!good)
        return base_fail(BY_ERR_FORMAT, "not an n-gram model");
    if (h->version != VERSION)
        return base_fail(BY_ERR_UNSUPPORTED, "version %u of the format is not known", h->version);
    good = h->order >= 1 && h->order <= BY_NGRAM_MAX_ORDER && h->bytes == bytes &&
           h->words >= NGRAM_SPECIAL && h->smoothing <= BY_SMOOTHING_UNKNOWN &&
           (h->tokens == 0 || h->words == h->tokens + NGRAM_SPECIAL) && h->eos >= -1 &&
           (h->eos < 0 || (uint32_t)h->eos < h->tokens) && lies_within(h->starts, h->words, 8, bytes) &&
           h->starts % 8 == 0 && h->text_bytes > 0 && lies_within(h->text, h->text_bytes, 1, bytes) &&
           h->index_slots > h->words && lies_within(h->index, h->index_slots, 4, bytes);
    for (uint32_t n = 0; n < h->order && good; n++)
        good = h->at[n] % 8 == 0 && lies_within(h->at[n], h->slots[n], n ? 16 : 8, bytes) &&
               (n == 0 || lies_within(h->firsts[n], h->slots[n], 4, bytes)) &&
               (n ? h->slots[n] > h->counts[n] : h->slots[n] == h->words) && h->slots[n] < UINT32_MAX;
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

/* The key of an n-gram is a one-to-one function of its first word and the key of the rest. */
bool ngram_image_words(const ngram_header *h, int n, uint64_t slot, uint32_t *words)
{
    const char *base = (const char *)h;
    uint64_t key = ((const ngram_slot *)(base + h->at[n - 1]))[slot].key;
    for (int i = 0; i + 1 < n; i++) {
        const int left = n - i; /* words that the key stands for */
        union {
            const void *from;
            ngram_slot *table; /* only read */
        } at = {base + h->at[left - 1]};
        const ngram_slot *s = ngram_slot_of(at.table, h->slots[left - 1], key);
        if (!s->key)
            return false;
        words[i] = ((const uint32_t *)(base + h->firsts[left - 1]))[s - at.table];
        if (words[i] >= h->words)
            return false;
        key = key * inverse(NGRAM_SPREAD) ^ ((uint64_t)words[i] + 1) * NGRAM_MIX;
    }
    words[n - 1] = (uint32_t)((key * inverse(NGRAM_SPREAD)) * inverse(NGRAM_MIX)) - 1;
    return words[n - 1] < h->words;
}

static by_status begin_order(void *user, int n)
{
    (void)n;
    ((ngram_image_walk *)user)->at = 0;
    return BY_OK;
}

static void take_values(ngram_image_walk *w, const ngram_value *v)
{
    const uint32_t bits[2] = {v->probability | 0x80000000u, v->weight & ~1u};
    memcpy(w->now, bits, sizeof bits);
}

static by_status next_entry(void *user, int n, const ngram_entry **out)
{
    ngram_image_walk *w = user;
    const ngram_header *h = w->header;
    const char *table = (const char *)h + h->at[n - 1];
    *out = NULL;
    while (n > 1 && w->at < h->slots[n - 1] && !((const ngram_slot *)table)[w->at].key)
        w->at++;
    if (w->at >= h->slots[n - 1])
        return BY_OK;
    take_values(w, n > 1 ? &((const ngram_slot *)table)[w->at].value : (const ngram_value *)table + w->at);
    w->now[2] = (uint32_t)w->at;
    if (n > 1 && !ngram_image_words(h, n, w->at, w->now + 2))
        return base_fail(BY_ERR_FORMAT, "the tables are damaged");
    w->at++;
    *out = (const ngram_entry *)(const void *)w->now;
    return BY_OK;
}

ngram_listing ngram_image_listing(ngram_image_walk *w)
{
    const ngram_header *h = w->header;
    ngram_listing l = {.order = (int)h->order,
                       .text = (const char *)h + h->text,
                       .starts = (const uint64_t *)((const char *)h + h->starts),
                       .begin = begin_order,
                       .next = next_entry,
                       .user = w};
    for (int n = 0; n < l.order; n++)
        l.counts[n] = (int64_t)h->counts[n];
    return l;
}
