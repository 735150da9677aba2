/* words.c - the vocabulary of an n-gram model: strings to ids by open addressing, all text in one block. */
#include "ngram/ngram.h"

enum { FIRST_SLOTS = 1 << 12 };

uint64_t ngram_words_hash(const char *word, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n;
    for (; n >= 8; n -= 8, word += 8) {
        uint64_t v;
        memcpy(&v, word, 8);
        h = (h ^ v) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    uint64_t rest = 0;
    memcpy(&rest, word, n);
    h = (h ^ rest) * 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 29;
}

const char *ngram_words_name(const ngram_words *w, uint32_t id)
{
    return w->text + w->starts[id];
}

/* The slot of a word, or the free one where it belongs. */
static ngram_word_slot *slot_of(const ngram_words *w, const char *word, size_t n, uint64_t hash)
{
    const size_t mask = w->slot_count - 1;
    const uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
        ngram_word_slot *s = &w->slots[at];
        const char *name = w->text + s->start;
        if (!s->id ||
            (s->tag == tag && s->start + n < w->size && memcmp(name, word, n) == 0 && name[n] == '\0'))
            return s;
    }
}

void ngram_words_fetch(const ngram_words *w, uint64_t hash)
{
    __builtin_prefetch(&w->slots[(size_t)hash & (w->slot_count - 1)]);
}

void ngram_words_fetch_text(const ngram_words *w, uint64_t hash)
{
    __builtin_prefetch(w->text + w->slots[(size_t)hash & (w->slot_count - 1)].start);
}

uint32_t ngram_words_find(const ngram_words *w, const char *word, size_t n)
{
    const uint32_t found = slot_of(w, word, n, ngram_words_hash(word, n))->id;
    return found ? found - 1 : NGRAM_UNK;
}

static by_status grow_slots(ngram_words *w)
{
    const size_t more = w->slot_count ? w->slot_count * 2 : FIRST_SLOTS;
    ngram_word_slot *slots = ngram_big_alloc(more * sizeof *slots);
    if (!slots)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < w->slot_count; i++) {
        if (!w->slots[i].id)
            continue;
        const char *name = w->text + w->slots[i].start;
        size_t at = (size_t)ngram_words_hash(name, strlen(name)) & (more - 1);
        while (slots[at].id)
            at = (at + 1) & (more - 1);
        slots[at] = w->slots[i];
    }
    ngram_big_free(w->slots, w->slot_count * sizeof *slots);
    w->slots = slots;
    w->slot_count = more;
    return BY_OK;
}

static by_status make_room(ngram_words *w, size_t n)
{
    if (w->size + n + 1 > w->room) {
        const size_t room = BY_MAX(w->room * 2, w->size + n + 4096);
        char *text = base_resize(w->text, room, 1);
        if (!text)
            return BY_ERR_MEMORY;
        w->text = text;
        w->room = room;
    }
    if (w->count == w->starts_room) {
        const uint32_t room = BY_MAX(w->starts_room * 2, 1024);
        uint64_t *starts = base_resize(w->starts, room, sizeof *starts);
        if (!starts)
            return BY_ERR_MEMORY;
        w->starts = starts;
        w->starts_room = room;
    }
    return (size_t)w->count * 2 >= w->slot_count ? grow_slots(w) : BY_OK;
}

by_status ngram_words_add(ngram_words *w, const char *word, size_t n, uint64_t hash, uint32_t *id)
{
    ngram_word_slot *s = w->slot_count ? slot_of(w, word, n, hash) : NULL;
    if (s && s->id) {
        *id = s->id - 1;
        return BY_OK;
    }
    if (w->count >= UINT32_MAX / 4)
        return base_fail(BY_ERR_UNSUPPORTED, "more than %u different words", UINT32_MAX / 4);
    BY_TRY(make_room(w, n));
    s = slot_of(w, word, n, hash); /* it may have moved */
    w->starts[w->count] = w->size;
    memcpy(w->text + w->size, word, n);
    w->text[w->size + n] = '\0';
    *id = w->count++;
    *s = (ngram_word_slot){.id = *id + 1, .tag = (uint32_t)(hash >> 32), .start = w->size};
    w->size += n + 1;
    return BY_OK;
}

by_status ngram_words_make(ngram_words *w)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    uint32_t id;
    *w = (ngram_words){0};
    for (int i = 0; i < NGRAM_SPECIAL; i++)
        BY_TRY(ngram_words_add(w, special[i], strlen(special[i]),
                               ngram_words_hash(special[i], strlen(special[i])), &id));
    return BY_OK;
}

size_t ngram_words_bytes(const ngram_words *w)
{
    return w->room + w->starts_room * sizeof *w->starts + w->slot_count * sizeof *w->slots;
}

void ngram_words_free(ngram_words *w)
{
    base_free(w->text);
    base_free(w->starts);
    ngram_big_free(w->slots, w->slot_count * sizeof *w->slots);
    *w = (ngram_words){0};
}
