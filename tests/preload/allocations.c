/* allocations.c - an LD_PRELOAD that makes the allocations of a program fail: those of every library in it.
 * BANYAN_FAIL_AT=K: the Kth after the start of main, BANYAN_FAIL_FROM=K: all from the Kth on.
 * BANYAN_FAIL_COUNT=FILE: write at exit how many there were. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* glibc's own names: no search for the real functions, which would allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *memalign(size_t alignment, size_t bytes);

typedef int main_function(int argc, char **argv, char **env);
int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

static atomic_long count;
static long at = -1, from = -1;
static atomic_bool active;
static main_function *real_main;

static bool refuse(void)
{
    if (!atomic_load(&active))
        return false;
    long n = atomic_fetch_add(&count, 1);
    if (n != at && (from < 0 || n < from))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return refuse() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t bytes)
{
    return refuse() ? NULL : __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return refuse() ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *p = memalign(alignment, bytes);
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

static long number(const char *name)
{
    const char *s = getenv(name);
    return s ? atol(s) : -1;
}

static int counted_main(int argc, char **argv, char **env)
{
    at = number("BANYAN_FAIL_AT");
    from = number("BANYAN_FAIL_FROM");
    atomic_store(&active, true);
    int code = real_main(argc, argv, env);
    atomic_store(&active, false);
    const char *path = getenv("BANYAN_FAIL_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", (long)atomic_load(&count));
        fclose(file);
    }
    return code;
}

int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    union {
        void *address;
        int (*call)(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    } real = {dlsym(RTLD_NEXT, "__libc_start_main")};
    real_main = program;
    return real.call(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
