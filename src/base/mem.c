/* mem.c - the one door to the heap. Every size is checked for overflow, every failure leaves a message. The C
 * allocation functions are called by name, so that a test can wrap them and make any allocation fail. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

enum { ALIGNMENT = 64 }; /* a cache line, and the widest vector register */

static void *out_of_memory(size_t bytes)
{
    by_fail(BY_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
    return NULL;
}

static void *too_many(size_t count, size_t size)
{
    by_fail(BY_ERR_MEMORY, "out of memory: %zu elements of %zu bytes exceed the address space", count, size);
    return NULL;
}

bool by_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool by_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

void *by_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

void *by_alloc_zero(size_t count, size_t size)
{
    size_t bytes;
    if (!by_mul_size(count, size, &bytes))
        return too_many(count, size);
    void *p = calloc(1, bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

/* Never shrinks to nothing: realloc(p, 0) means different things in different C libraries. */
void *by_resize(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (!by_mul_size(count, size, &bytes))
        return too_many(count, size);
    void *p = realloc(old, bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

void *by_alloc_aligned(size_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, ALIGNMENT, bytes ? bytes : 1) == 0 ? p : out_of_memory(bytes);
}

char *by_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = by_alloc(n);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *by_sprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = by_vformat(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        by_fail(BY_ERR_ARGUMENT, "cannot format \"%s\"", fmt);
        return NULL;
    }
    char *s = by_alloc((size_t)n + 1);
    if (s) {
        va_start(args, fmt);
        by_vformat(s, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    return s;
}

void by_free(void *p)
{
    free(p);
}
