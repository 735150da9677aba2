/* tiny_world.h - what tests of tasks work in: a folder with the tokenizer of tiny.h, and a device of one
 * thread. */
#ifndef BY_TESTS_TINY_WORLD_H
#define BY_TESTS_TINY_WORLD_H

#include <stdio.h>
#include <stdlib.h>

#include "tiny.h"

static char folder[256];
static by_device *device;
static by_tokenizer *tokenizer;

static inline int tiny_open(const char *name)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/banyan-%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name);
    if (!mkdtemp(folder) || tiny_tokenizer_write(folder) != BY_OK)
        return -1;
    device = by_device_open("cpu", 1);
    tokenizer = by_tokenizer_load(folder);
    return device && tokenizer ? 0 : -1;
}

static inline int tiny_close(void **state)
{
    (void)state;
    by_tokenizer_free(tokenizer);
    by_device_free(device);
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

#endif
