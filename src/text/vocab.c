/* vocab.c - tokens by id and ids by token: an array and an open-addressing hash table over it. */
#include "text/vocab.h"

#define MAX_ID (1 << 24) /* the largest published vocabularies have about 2^18 tokens */

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd6e8feb86659fd93u);
    return x ^ (x >> 32);
}

uint64_t tok_bytes_hash(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = n * 0x2545f4914f6cdd1du;
    for (; n >= 8; n -= 8, p += 8)
        h = mix(h ^ load64(p), h >> 29);
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    h = mix(h ^ tail, h >> 29);
    return h ^ (h >> 29);
}

void tok_vocab_free(tok_vocab *v)
{
    base_arena_free(v->arena);
    base_free(v->tokens);
    base_free(v->slots);
    *v = (tok_vocab){0};
}

/* Returns the slot of this token, or the empty slot where it belongs. */
static size_t find_slot(const tok_vocab *v, const char *text, size_t size)
{
    size_t at = tok_bytes_hash(text, size) & v->mask;
    for (; v->slots[at]; at = (at + 1) & v->mask) {
        const tok_token *t = &v->tokens[v->slots[at] - 1];
        if (t->size == size && memcmp(t->text, text, size) == 0)
            break;
    }
    return at;
}

static by_status grow_slots(tok_vocab *v)
{
    size_t size = v->slots ? (v->mask + 1) * 2 : 1024;
    int32_t *old = v->slots, *slots = base_alloc_zero(size, sizeof(*slots));
    size_t old_size = old ? v->mask + 1 : 0;
    if (!slots)
        return BY_ERR_MEMORY;
    v->slots = slots;
    v->mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (!old[i])
            continue;
        const tok_token *t = &v->tokens[old[i] - 1];
        v->slots[find_slot(v, t->text, t->size)] = old[i];
    }
    base_free(old);
    return BY_OK;
}

static by_status grow_ids(tok_vocab *v, int id)
{
    if (id < v->capacity)
        return BY_OK;
    int capacity = BY_MAX(id + 1, BY_MAX(v->capacity * 2, 256));
    tok_token *tokens = base_resize(v->tokens, (size_t)capacity, sizeof(*tokens));
    if (!tokens)
        return BY_ERR_MEMORY;
    memset(tokens + v->capacity, 0, (size_t)(capacity - v->capacity) * sizeof(*tokens));
    v->tokens = tokens;
    v->capacity = capacity;
    return BY_OK;
}

by_status tok_vocab_put(tok_vocab *v, const char *text, size_t size, int id)
{
    if (id < 0 || id >= MAX_ID || size > INT32_MAX)
        return base_fail(BY_ERR_FORMAT, "token \"%.40s\" has the id %d, outside 0 to %d", text, id,
                         MAX_ID - 1);
    if (!v->arena && !(v->arena = base_arena_new()))
        return BY_ERR_MEMORY;
    BY_TRY(grow_ids(v, id));
    if (v->tokens[id].text)
        return base_fail(BY_ERR_FORMAT, "the id %d is used by both \"%.40s\" and \"%.40s\"", id,
                         v->tokens[id].text, text);
    if (!v->slots || (size_t)v->used * 2 >= v->mask)
        BY_TRY(grow_slots(v));
    char *copy = base_arena_alloc(v->arena, size + 1);
    if (!copy)
        return BY_ERR_MEMORY;
    memcpy(copy, text, size);
    size_t slot = find_slot(v, copy, size);
    v->tokens[id] = (tok_token){copy, (uint32_t)size};
    v->slots[slot] = id + 1;
    v->used++;
    v->count = BY_MAX(v->count, id + 1);
    v->longest = BY_MAX(v->longest, (uint32_t)size);
    return BY_OK;
}

int32_t tok_vocab_find(const tok_vocab *v, const char *text, size_t size)
{
    return v->slots ? v->slots[find_slot(v, text, size)] - 1 : -1;
}
