/* allocate.c - the program's operator new and posix_memalign, found before those of the C++ and C libraries.
 * oneDNN throws through C frames when the first fails and writes to NULL when the second does. If they fail
 * inside a guarded call, memory comes from the library's reserve; elsewhere nothing changes. */
#include <errno.h>

#include "banyan/base.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BY_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BY_SANITIZED
#endif
#endif

#if defined(BY_HAVE_DNNL) && defined(__LP64__) && !defined(BY_SANITIZED)
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The next definition of a symbol after the program's own. */
static void *next(_Atomic(void *) *cache, const char *symbol)
{
    void *p = atomic_load(cache);
    if (!p) {
        p = dlsym(RTLD_NEXT, symbol);
        atomic_store(cache, p);
    }
    return p;
}

BY_API int posix_memalign(void **out, size_t alignment, size_t bytes);
BY_API void *_Znwm(size_t bytes);

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    static _Atomic(void *) cache;
    union {
        void *address;
        int (*call)(void **, size_t, size_t);
    } real = {next(&cache, "posix_memalign")};
    int rc = real.address ? real.call(out, alignment, bytes) : ENOMEM;
    if (rc != ENOMEM)
        return rc;
    void *p = by_reserve_take(bytes, alignment);
    if (!p)
        return rc;
    *out = p;
    return 0;
}

/* operator new(size_t). The C++ library's own one throws, which C cannot. */
void *_Znwm(size_t bytes)
{
    static _Atomic(void *) cache;
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        p = by_reserve_take(bytes, sizeof(void *));
    if (p)
        return p;
    union {
        void *address;
        void *(*call)(size_t);
    } real = {next(&cache, "_Znwm")};
    return real.address ? real.call(bytes) : NULL;
}
#else
typedef int cli_no_allocate; /* ISO C wants something in a file */
#endif
