/* words.c - the vocabulary of an n-gram model: strings to ids by open addressing, all text in one block. */
#include "ngram/ngram.h"

enum { FIRST_SLOTS = 1 << 12 };

static uint64_t hash_of(const char *word, size_t n)
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

static bool is_word(const ngram_words *w, uint32_t id, const char *word, size_t n)
{
    const char *name = ngram_words_name(w, id);
    return memcmp(name, word, n) == 0 && name[n] == '\0';
}

/* The slot of a word, or the free one where it belongs. Text ends with enough zeros for memcmp. */
static uint32_t slot_of(const ngram_words *w, const char *word, size_t n)
{
    uint32_t at = (uint32_t)hash_of(word, n) & (w->slot_count - 1);
    while (w->slots[at] &&
           !(w->starts[w->slots[at] - 1] + n < w->size && is_word(w, w->slots[at] - 1, word, n)))
        at = (at + 1) & (w->slot_count - 1);
    return at;
}

uint32_t ngram_words_find(const ngram_words *w, const char *word, size_t n)
{
    const uint32_t found = w->slots[slot_of(w, word, n)];
    return found ? found - 1 : NGRAM_UNK;
}

static by_status grow_slots(ngram_words *w)
{
    const uint32_t more = w->slot_count ? w->slot_count * 2 : FIRST_SLOTS;
    uint32_t *slots = base_alloc_zero(more, sizeof *slots);
    if (!slots)
        return BY_ERR_MEMORY;
    base_free(w->slots);
    w->slots = slots;
    w->slot_count = more;
    for (uint32_t i = 0; i < w->count; i++) {
        const char *name = ngram_words_name(w, i);
        w->slots[slot_of(w, name, strlen(name))] = i + 1;
    }
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
        const uint32_t room = BY_MAX(w->starts_room * 2, 1024u);
        uint64_t *starts = base_resize(w->starts, room, sizeof *starts);
        if (!starts)
            return BY_ERR_MEMORY;
        w->starts = starts;
        w->starts_room = room;
    }
    return w->count * 2 >= w->slot_count ? grow_slots(w) : BY_OK;
}

by_status ngram_words_add(ngram_words *w, const char *word, size_t n, uint32_t *id)
{
    uint32_t at = w->slot_count ? slot_of(w, word, n) : 0;
    if (w->slot_count && w->slots[at]) {
        *id = w->slots[at] - 1;
        return BY_OK;
    }
    if (w->count >= UINT32_MAX / 4)
        return base_fail(BY_ERR_UNSUPPORTED, "more than %u different words", UINT32_MAX / 4);
    BY_TRY(make_room(w, n));
    at = slot_of(w, word, n);
    w->starts[w->count] = w->size;
    memcpy(w->text + w->size, word, n);
    w->text[w->size + n] = '\0';
    w->size += n + 1;
    *id = w->count++;
    w->slots[at] = *id + 1;
    return BY_OK;
}

by_status ngram_words_make(ngram_words *w)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    uint32_t id;
    *w = (ngram_words){0};
    for (int i = 0; i < NGRAM_SPECIAL; i++)
        BY_TRY(ngram_words_add(w, special[i], strlen(special[i]), &id));
    return BY_OK;
}

void ngram_words_free(ngram_words *w)
{
    base_free(w->text);
    base_free(w->starts);
    base_free(w->slots);
    *w = (ngram_words){0};
}
