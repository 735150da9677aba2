/* image.c - the binary of an n-gram model: laid out and filled in place, checked when it is opened. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngram/ngram.h"

static const char magic[8] = {'b', 'y', 'n', 'g', 'r', 'a', 'm', '\n'};
enum { VERSION = 1 };

static uint64_t aligned(uint64_t n)
{
    return (n + 15) & ~(uint64_t)15;
}

static uint64_t slots_for(uint64_t count)
{
    return count + count / 2 + 1;
}

/* Sizes and places; everything else is zero. */
static ngram_header layout(const ngram_words *w, int order, const int64_t *counts, double missing)
{
    ngram_header h = {
        .version = VERSION, .order = (uint32_t)order, .words = w->count, .missing = (float)missing};
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
    h.bytes = h.index + h.index_slots * sizeof(uint32_t);
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
                           const int64_t *counts, double missing)
{
    const ngram_header h = layout(w, order, counts, missing);
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
           h->words >= NGRAM_SPECIAL && lies_within(h->starts, h->words, 8, bytes) && h->starts % 8 == 0 &&
           h->text_bytes > 0 && lies_within(h->text, h->text_bytes, 1, bytes) && h->index_slots > h->words &&
           lies_within(h->index, h->index_slots, 4, bytes);
    for (uint32_t n = 0; n < h->order && good; n++)
        good = h->at[n] % 8 == 0 && lies_within(h->at[n], h->slots[n], n ? 16 : 8, bytes) &&
               (n ? h->slots[n] > h->counts[n] : h->slots[n] == h->words) && h->slots[n] < UINT32_MAX;
    if (good)
        good = ((const char *)h + h->text)[h->text_bytes - 1] == '\0';
    return good ? BY_OK : base_fail(BY_ERR_FORMAT, "the header is damaged");
}
