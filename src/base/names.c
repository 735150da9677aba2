/* names.c - a table from names to small integers: open addressing with linear probing, never more than half
 * full. Nothing is ever removed, so the keys live in an arena and no slot needs a tombstone. */
#include "base/base.h"

typedef struct slot {
    const char *key; /* NULL when free */
    uint64_t hash;
    int value;
} slot;

struct by_names {
    by_arena *keys;
    slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

uint64_t by_hash(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

by_names *by_names_new(void)
{
    by_names *t = by_alloc_zero(1, sizeof(*t));
    if (!t)
        return NULL;
    t->keys = by_arena_new();
    if (!t->keys) {
        by_free(t);
        return NULL;
    }
    return t;
}

void by_names_free(by_names *t)
{
    if (!t)
        return;
    by_arena_free(t->keys);
    by_free(t->slots);
    by_free(t);
}

/* The slot that holds the key, or the free one where it belongs. There is always a free one. */
static slot *probe(slot *slots, size_t capacity, const char *key, uint64_t hash)
{
    size_t i = (size_t)(hash ^ hash >> 32) & (capacity - 1); /* the low bits of FNV alone are the weakest */
    while (slots[i].key && (slots[i].hash != hash || strcmp(slots[i].key, key) != 0))
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}

static by_status grow(by_names *t)
{
    size_t capacity = t->capacity ? t->capacity * 2 : 64;
    slot *slots = by_alloc_zero(capacity, sizeof(slot));
    if (!slots)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i].key)
            *probe(slots, capacity, t->slots[i].key, t->slots[i].hash) = t->slots[i];
    by_free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return BY_OK;
}

int by_names_find(const by_names *t, const char *key)
{
    if (t->count == 0)
        return -1;
    const slot *s = probe(t->slots, t->capacity, key, by_hash(key, strlen(key), 0));
    return s->key ? s->value : -1;
}

by_status by_names_put(by_names *t, const char *key, int value)
{
    if (value < 0)
        return by_fail(BY_ERR_ARGUMENT, "name \"%s\": the value %d is negative", key, value);
    if (t->count >= t->capacity / 2)
        BY_TRY(grow(t));
    uint64_t hash = by_hash(key, strlen(key), 0);
    slot *s = probe(t->slots, t->capacity, key, hash);
    if (!s->key) {
        const char *copy = by_arena_strdup(t->keys, key);
        if (!copy)
            return BY_ERR_MEMORY;
        s->key = copy;
        s->hash = hash;
        t->count++;
    }
    s->value = value;
    return BY_OK;
}
