/* reserve.c - memory for libraries that abort when an allocation fails. Inside them, a failed allocation is
 * served from blocks that were allocated earlier. Afterwards the blocks are replaced; if that fails, the
 * caller reports that it is out of memory. Each block comes from posix_memalign, so that it can be passed to
 * free(). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"

enum {
    CLASSES = 5,
    SLOTS = 4096 + 256 + 64 + 8 + 2,
    PAGE = 4096,           /* alignment of every block */
    BALLAST = 8 * 1 << 20, /* address space for mappings that the library makes itself */
};

/* 2.6 MB. Creating one primitive of oneDNN 2.6 took up to 1,600 of the smallest blocks and 24, 18, 2 and 0
 * of the others. */
static const struct {
    size_t bytes;
    int count;
} classes[CLASSES] = {{128, 4096}, {1 << 10, 256}, {8 << 10, 64}, {64 << 10, 8}, {512 << 10, 2}};

static _Atomic(void *) blocks[SLOTS];
static atomic_int missing = SLOTS, inside, users;
static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;

static by_status fill(void)
{
    pthread_mutex_lock(&filling);
    bool whole = true;
    for (int c = 0, slot = 0; c < CLASSES; c++) {
        for (int i = 0; i < classes[c].count && whole; i++, slot++) {
            void *p = NULL, *none = NULL;
            if (atomic_load(&blocks[slot]))
                continue;
            whole = posix_memalign(&p, c == 0 ? 64 : PAGE, classes[c].bytes) == 0;
            if (whole && atomic_compare_exchange_strong(&blocks[slot], &none, p))
                atomic_fetch_sub(&missing, 1);
            else if (whole)
                free(p);
        }
    }
    pthread_mutex_unlock(&filling);
    return whole ? BY_OK : base_fail(BY_ERR_MEMORY, "out of memory: the reserve cannot be filled");
}

void base_reserve_open(void)
{
    atomic_fetch_add(&users, 1);
}

void base_reserve_close(void)
{
    if (atomic_fetch_sub(&users, 1) != 1)
        return;
    for (int i = 0; i < SLOTS; i++) {
        void *p = atomic_exchange(&blocks[i], NULL);
        if (p)
            atomic_fetch_add(&missing, 1);
        free(p);
    }
}

by_status base_reserve_enter(void)
{
    if (atomic_load(&missing) > 0)
        BY_TRY(fill());
    atomic_fetch_add(&inside, 1);
    return BY_OK;
}

by_status base_reserve_enter_to_map(void)
{
    void *p = mmap(NULL, BALLAST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return base_fail(BY_ERR_MEMORY, "out of memory: cannot map %d bytes", (int)BALLAST);
    munmap(p, BALLAST);
    return base_reserve_enter();
}

by_status base_reserve_leave(void)
{
    atomic_fetch_sub(&inside, 1);
    return atomic_load(&missing) > 0 ? fill() : BY_OK;
}

void *by_reserve_take(size_t bytes, size_t alignment)
{
    if (atomic_load(&inside) == 0 || alignment > PAGE)
        return NULL;
    for (int c = 0, slot = 0; c < CLASSES; slot += classes[c++].count) {
        if (bytes > classes[c].bytes || (c == 0 && alignment > 64))
            continue;
        for (int i = 0; i < classes[c].count; i++) {
            void *p = atomic_load(&blocks[slot + i]);
            if (p && atomic_compare_exchange_strong(&blocks[slot + i], &p, NULL)) {
                atomic_fetch_add(&missing, 1);
                return p;
            }
        }
    }
    return NULL;
}
