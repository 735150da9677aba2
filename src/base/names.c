/* names.c - a hash table from names to small integers: open addressing with linear probing, at most half
 * full. Nothing is ever removed, so the keys live in an arena and no slot needs a tombstone. */
#include "base/base.h"

typedef struct slot {
    const char *key; /* NULL if free */
    uint64_t hash;
    int value;
} slot;

struct base_names {
    base_arena *keys;
    slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

uint64_t base_hash(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

base_names *base_names_new(void)
{
    base_names *t = base_alloc_zero(1, sizeof(*t));
    if (!t)
        return NULL;
    t->keys = base_arena_new();
    if (!t->keys) {
        base_free(t);
        return NULL;
    }
    return t;
}

void base_names_free(base_names *t)
{
    if (!t)
        return;
    base_arena_free(t->keys);
    base_free(t->slots);
    base_free(t);
}

/* Returns the slot that holds the key, or the free slot where it belongs. There is always a free one. */
static slot *probe(slot *slots, size_t capacity, const char *key, uint64_t hash)
{
    size_t i = (size_t)(hash ^ hash >> 32) & (capacity - 1); /* the low bits of FNV alone are the weakest */
    while (slots[i].key && (slots[i].hash != hash || strcmp(slots[i].key, key) != 0))
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}

static by_status grow(base_names *t)
{
    size_t capacity = t->capacity ? t->capacity * 2 : 64;
    slot *slots = base_alloc_zero(capacity, sizeof(slot));
    if (!slots)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i].key)
            *probe(slots, capacity, t->slots[i].key, t->slots[i].hash) = t->slots[i];
    base_free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return BY_OK;
}

int base_names_find(const base_names *t, const char *key)
{
    if (t->count == 0)
        return -1;
    const slot *s = probe(t->slots, t->capacity, key, base_hash(key, strlen(key), 0));
    return s->key ? s->value : -1;
}

by_status base_names_put(base_names *t, const char *key, int value)
{
    if (value < 0)
        return base_fail(BY_ERR_ARGUMENT, "name \"%s\": the value %d is negative", key, value);
    if (t->count >= t->capacity / 2)
        BY_TRY(grow(t));
    uint64_t hash = base_hash(key, strlen(key), 0);
    slot *s = probe(t->slots, t->capacity, key, hash);
    if (!s->key) {
        const char *copy = base_arena_strdup(t->keys, key);
        if (!copy)
            return BY_ERR_MEMORY;
        s->key = copy;
        s->hash = hash;
        t->count++;
    }
    s->value = value;
    return BY_OK;
}
