/* fuzz_shard.c - any bytes as a token shard. Whatever is accepted must be readable to its last token. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_batches(const data_tokens *t, int64_t count)
{
    int32_t inputs[4 * 5], targets[4 * 5];
    data_lm_batches d = {.tokens = t, .begin = 0, .end = count, .batch = 4, .seq = 5, .seed = 1};
    if (data_lm_batches_check(&d) == BY_OK)
        for (int64_t step = 0; step < 8; step++)
            require(data_lm_batches_get(&d, step * 1000003, inputs, targets) == BY_OK);
    int64_t windows = data_lm_eval_windows(&d);
    if (windows > 0)
        require(data_lm_eval_get(&d, windows - 1, 4, inputs, targets) == BY_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("shard", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return 0;
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const char *paths[] = {path, path};
    int64_t vocab = size ? data[size - 1] * 300 : 0;
    data_tokens *t = data_tokens_open(paths, 2, vocab);
    close(fd);
    if (!t)
        return 0;
    int64_t count = data_tokens_count(t);
    int32_t *ids = malloc((size_t)count * sizeof(*ids) + 1);
    require(ids && data_tokens_read(t, 0, count, ids) == BY_OK);
    for (int64_t i = 0; i < count; i++)
        require(ids[i] >= 0 && (vocab == 0 || ids[i] < vocab));
    data_tokens_prefetch(t, 0, count);
    check_batches(t, count);
    free(ids);
    data_tokens_free(t);
    return 0;
}
