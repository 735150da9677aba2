/* null_device.c - see null_device.h. */
#include "graph/null_device.h"

#include <sys/mman.h>

#define GUARD ((size_t)1 << 16) /* header of a block: its size */

static by_status paper_alloc(by_device *d, size_t bytes, void **out)
{
    (void)d;
    size_t all;
    if (!base_add_size(bytes, GUARD, &all))
        return base_fail(BY_ERR_MEMORY, "%zu bytes are more than there are addresses", bytes);
    char *block = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        return base_fail(BY_ERR_MEMORY, "%zu bytes are more than there are addresses", bytes);
    if (mprotect(block, GUARD, PROT_READ | PROT_WRITE) != 0) {
        munmap(block, all);
        return base_fail(BY_ERR_MEMORY, "out of memory");
    }
    memcpy(block, &all, sizeof all);
    *out = block + GUARD;
    return BY_OK;
}

static void paper_release(by_device *d, void *memory)
{
    (void)d;
    if (!memory)
        return;
    char *block = (char *)memory - GUARD;
    size_t all;
    memcpy(&all, block, sizeof all);
    munmap(block, all);
}

static by_status paper_copy(by_device *d, void *to, const void *from, size_t bytes)
{
    (void)d, (void)to, (void)from, (void)bytes;
    return BY_OK;
}

static by_status paper_prepare(by_program *p)
{
    (void)p;
    return BY_OK;
}

static by_status paper_run(by_program *p)
{
    (void)p;
    return base_fail(BY_ERR_UNSUPPORTED, "the null device cannot compute");
}

static void paper_forget(by_program *p)
{
    (void)p;
}

static void paper_close(by_device *d)
{
    (void)d;
}

const gr_backend gr_null_backend = {.name = "paper",
                                    .alloc = paper_alloc,
                                    .release = paper_release,
                                    .upload = paper_copy,
                                    .download = paper_copy,
                                    .prepare = paper_prepare,
                                    .run = paper_run,
                                    .forget = paper_forget,
                                    .close = paper_close};
