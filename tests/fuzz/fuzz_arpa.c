/* fuzz_arpa.c - any bytes as an ARPA file, and as the binary of an n-gram model. Whatever is accepted must answer queries. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "banyan/ngram.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void query(const by_ngram *m)
{
    by_ngram_state state = by_ngram_begin(m);
    const int words = by_ngram_words(m);
    for (int i = 0; i < 64; i++) {
        const int32_t word = words ? i * 7 % words : 0;
        const double p = by_ngram_score(m, &state, word, &state, NULL);
        const char *name = by_ngram_word(m, word);
        if (isnan(p) || !name || state.length >= BY_NGRAM_MAX_ORDER)
            abort();
        by_ngram_find(m, name, strlen(name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("arpa", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return 0;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    by_ngram *m = by_ngram_open(path);
    if (m)
        query(m);
    by_ngram_free(m);
    close(fd);
    return 0;
}
