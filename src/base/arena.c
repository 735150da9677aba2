/* arena.c - many small allocations with one lifetime: a chain of blocks, filled from the front. */
#include <stdio.h>

#include "base/base.h"

enum { BLOCK_SIZE = 64 * 1024, GRAIN = 16 };

typedef struct block {
    struct block *next;
    size_t used, capacity; /* data bytes; multiples of GRAIN */
    _Alignas(GRAIN) unsigned char data[];
} block;

struct base_arena {
    block *head; /* the block being filled */
};

base_arena *base_arena_new(void)
{
    return base_alloc_zero(1, sizeof(base_arena));
}

void base_arena_free(base_arena *a)
{
    if (!a)
        return;
    for (block *b = a->head, *next; b; b = next) {
        next = b->next;
        base_free(b);
    }
    base_free(a);
}

/* Blocks are zeroed when allocated and their memory is handed out once, so nothing needs clearing here. A
 * large request gets its own block after the head, so that the rest of the head stays in use. */
void *base_arena_alloc(base_arena *a, size_t bytes)
{
    size_t need;
    if (!base_add_size(bytes ? bytes : 1, sizeof(block) + GRAIN - 1, &need)) {
        base_fail(BY_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
        return NULL;
    }
    need = (need - sizeof(block)) / GRAIN * GRAIN;

    block *b = a->head;
    if (!b || b->capacity - b->used < need) {
        bool large = need > BLOCK_SIZE / 4;
        size_t capacity = large ? need : BLOCK_SIZE - sizeof(block);
        b = base_alloc_zero(1, sizeof(block) + capacity);
        if (!b)
            return NULL;
        b->capacity = capacity;
        if (large && a->head) {
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    void *p = b->data + b->used;
    b->used += need;
    return p;
}

char *base_arena_strdup(base_arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = base_arena_alloc(a, n);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *base_arena_vsprintf(base_arena *a, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = base_vformat(NULL, 0, fmt, args);
    char *s = NULL;
    if (n < 0)
        base_fail(BY_ERR_ARGUMENT, "cannot format \"%s\"", fmt);
    else
        s = base_arena_alloc(a, (size_t)n + 1);
    if (s)
        base_vformat(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

char *base_arena_sprintf(base_arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *s = base_arena_vsprintf(a, fmt, args);
    va_end(args);
    return s;
}
