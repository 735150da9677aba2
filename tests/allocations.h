/* allocations.h - the C allocation functions wrapped at link time (-Wl,--wrap=malloc and so on): they count
 * what is alive and fail on request. */
#ifndef BY_TESTS_ALLOCATIONS_H
#define BY_TESTS_ALLOCATIONS_H

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

static long until_failure = -1; /* allocations that still succeed; negative: all of them */
static long alive;
static long bytes_alive, bytes_peak; /* what the blocks hold, and the most since bytes_peak was set */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void __wrap_free(void *p);

static bool refuse(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

static void add_bytes(long n)
{
    bytes_alive += n;
    if (bytes_alive > bytes_peak)
        bytes_peak = bytes_alive;
}

static void *counted(void *p)
{
    alive += p != NULL;
    add_bytes(p ? (long)malloc_usable_size(p) : 0);
    return p;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refuse() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (refuse())
        return NULL;
    long before = old ? (long)malloc_usable_size(old) : 0;
    void *p = __real_realloc(old, size);
    alive += p && !old;
    if (p)
        add_bytes((long)malloc_usable_size(p) - before);
    return p;
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    int rc = refuse() ? ENOMEM : __real_posix_memalign(out, alignment, size);
    alive += rc == 0;
    add_bytes(rc == 0 ? (long)malloc_usable_size(*out) : 0);
    return rc;
}

void __wrap_free(void *p)
{
    alive -= p != NULL;
    add_bytes(p ? -(long)malloc_usable_size(p) : 0);
    __real_free(p);
}

#endif
