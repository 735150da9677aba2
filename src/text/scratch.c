/* scratch.c - working memory of an encoding, and a cache of the ids of words. The cache is a table of fixed
 * size: words of up to 16 bytes are stored in their entry, longer ones next to it. When it is full, it is
 * emptied. */
#include "text/pipeline.h"

#define CACHE_SIZE  ((size_t)1 << 15)
#define CACHE_LIMIT (CACHE_SIZE / 4 * 3)
#define CACHE_IDS   ((size_t)1 << 19)
#define CACHE_BYTES ((size_t)1 << 21)
#define LONGEST     256 /* maximum bytes of a cached word */

typedef struct tok_cache_entry {
    uint64_t key[2]; /* the word, zero padded; for words above 16 bytes, its hash and offset */
    uint32_t ids;    /* index into cache_ids */
    uint16_t size;   /* of the word; 0: free */
    uint16_t count;
} tok_cache_entry;

static tok_scratch *scratch_new(void)
{
    tok_scratch *s = base_alloc_zero(1, sizeof(*s));
    if (!s)
        return NULL;
    s->cache = base_alloc_zero(CACHE_SIZE, sizeof(*s->cache));
    s->cache_ids = base_alloc(CACHE_IDS * sizeof(*s->cache_ids));
    s->cache_keys = base_alloc(CACHE_BYTES);
    if (!s->cache || !s->cache_ids || !s->cache_keys) {
        tok_scratch_free(s);
        return NULL;
    }
    return s;
}

void tok_scratch_free(tok_scratch *s)
{
    if (!s)
        return;
    tok_buffer_free(&s->work);
    tok_buffer_free(&s->spare);
    base_free(s->cache);
    base_free(s->cache_ids);
    base_free(s->cache_keys);
    base_free(s->memory);
    base_free(s);
}

tok_scratch *tok_pool_take(const tok_scratch_pool *pool)
{
    tok_scratch_pool *owner = (tok_scratch_pool *)pool;
    for (int i = 0; i < TOK_SCRATCH_SLOTS; i++) {
        tok_scratch *s = atomic_exchange(&owner->spare[i], NULL);
        if (s)
            return s;
    }
    return scratch_new();
}

void tok_pool_return(const tok_scratch_pool *pool, tok_scratch *s)
{
    tok_scratch_pool *owner = (tok_scratch_pool *)pool;
    for (int i = 0; i < TOK_SCRATCH_SLOTS && s; i++) {
        tok_scratch *empty = NULL;
        if (atomic_compare_exchange_strong(&owner->spare[i], &empty, s))
            s = NULL;
    }
    tok_scratch_free(s);
}

void tok_pool_free(tok_scratch_pool *pool)
{
    for (int i = 0; i < TOK_SCRATCH_SLOTS; i++)
        tok_scratch_free(atomic_exchange(&pool->spare[i], NULL));
}

void *tok_scratch_memory(tok_scratch *s, size_t bytes)
{
    if (bytes > s->memory_size) {
        void *memory = base_resize(s->memory, bytes, 1);
        if (!memory)
            return NULL;
        s->memory = memory;
        s->memory_size = bytes;
    }
    return s->memory;
}

/* Computes the two words of an entry's key. Returns where to look first. */
static inline size_t make_key(const char *word, size_t size, uint64_t key[2])
{
    key[0] = key[1] = 0;
    if (size > 16) {
        key[0] = tok_bytes_hash(word, size);
        return (size_t)(key[0] ^ (key[0] >> 32));
    }
    if (size >= 8) {
        memcpy(&key[0], word, 8);
        memcpy(&key[1], word + 8, size - 8);
    } else {
        memcpy(&key[0], word, size);
    }
    uint64_t h = (key[0] ^ size) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ key[1]) * 0xd6e8feb86659fd93u;
    return (size_t)(h ^ (h >> 32));
}

static inline bool entry_is(const tok_scratch *s, const tok_cache_entry *e, const uint64_t key[2],
                            const char *word, size_t size)
{
    if (e->size != size || e->key[0] != key[0])
        return false;
    return size > 16 ? memcmp(s->cache_keys + e->key[1], word, size) == 0 : e->key[1] == key[1];
}

const int32_t *tok_cache_find(tok_scratch *s, const char *word, size_t size, size_t *count)
{
    uint64_t key[2];
    size_t at = make_key(word, size, key) & (CACHE_SIZE - 1);
    for (; s->cache[at].size; at = (at + 1) & (CACHE_SIZE - 1)) {
        if (entry_is(s, &s->cache[at], key, word, size)) {
            *count = s->cache[at].count;
            return s->cache_ids + s->cache[at].ids;
        }
    }
    return NULL;
}

void tok_cache_put(tok_scratch *s, const char *word, size_t size, const int32_t *ids, size_t count)
{
    if (size == 0 || size > LONGEST || count > UINT16_MAX)
        return;
    if (s->cache_used >= CACHE_LIMIT || s->cache_id_count + count > CACHE_IDS ||
        s->cache_key_count + size > CACHE_BYTES) {
        memset(s->cache, 0, CACHE_SIZE * sizeof(*s->cache));
        s->cache_used = s->cache_id_count = s->cache_key_count = 0;
    }
    uint64_t key[2];
    size_t at = make_key(word, size, key) & (CACHE_SIZE - 1);
    while (s->cache[at].size)
        at = (at + 1) & (CACHE_SIZE - 1);
    if (size > 16) {
        key[1] = s->cache_key_count;
        memcpy(s->cache_keys + s->cache_key_count, word, size);
        s->cache_key_count += size;
    }
    s->cache[at] =
        (tok_cache_entry){{key[0], key[1]}, (uint32_t)s->cache_id_count, (uint16_t)size, (uint16_t)count};
    if (count)
        memcpy(s->cache_ids + s->cache_id_count, ids, count * sizeof(*ids));
    s->cache_id_count += count;
    s->cache_used++;
}
