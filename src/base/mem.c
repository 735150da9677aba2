/* mem.c - all heap allocation. Every size is checked for overflow, and every failure leaves a message. The C
 * allocation functions are called by name, so that a test can wrap them and make any allocation fail. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

enum { ALIGNMENT = 64 }; /* a cache line, and the widest vector register */

static void *out_of_memory(size_t bytes)
{
    base_fail(BY_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
    return NULL;
}

static void *too_many(size_t count, size_t size)
{
    base_fail(BY_ERR_MEMORY, "out of memory: %zu elements of %zu bytes exceed the address space", count,
              size);
    return NULL;
}

bool base_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool base_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

void *base_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

void *base_alloc_zero(size_t count, size_t size)
{
    size_t bytes;
    if (!base_mul_size(count, size, &bytes))
        return too_many(count, size);
    void *p = calloc(1, bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

/* Never shrinks to zero: realloc(p, 0) means different things in different C libraries. */
void *base_resize(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (!base_mul_size(count, size, &bytes))
        return too_many(count, size);
    void *p = realloc(old, bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

void *base_alloc_aligned(size_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, ALIGNMENT, bytes ? bytes : 1) == 0 ? p : out_of_memory(bytes);
}

char *base_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = base_alloc(n);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *base_sprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = base_vformat(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        base_fail(BY_ERR_ARGUMENT, "cannot format \"%s\"", fmt);
        return NULL;
    }
    char *s = base_alloc((size_t)n + 1);
    if (s) {
        va_start(args, fmt);
        base_vformat(s, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    return s;
}

void base_free(void *p)
{
    free(p);
}
