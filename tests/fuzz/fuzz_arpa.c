/* fuzz_arpa.c - any bytes as an ARPA file, and as the binary of an n-gram model. Whatever is accepted must answer queries. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngram/ngram.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MANY = 4096 };

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

/* Sentences, distributions, and tokens where it is a model of tokens. */
static void predict(const by_ngram *m)
{
    static const char text[] = "a b c a unknown b";
    static double words[MANY];
    static float tokens[MANY];
    by_ngram_sum sum = {0};
    by_ngram_state state = by_ngram_begin(m);
    if (by_ngram_sentence(m, text, strlen(text), &sum) != BY_OK || sum.words != 7 || isnan(sum.log10))
        abort();
    if (by_ngram_words(m) <= MANY)
        by_ngram_distribution(m, &state, words);
    if (by_ngram_tokens(m) <= MANY)
        by_ngram_token_distribution(m, &state, tokens);
}

/* All n-grams, as they are written to an ARPA file. */
static void list(const by_ngram *m)
{
    static ngram_image_walk walk;
    walk.header = ngram_model_header(m);
    const ngram_listing l = ngram_image_listing(&walk);
    for (int n = 1; n <= l.order; n++) {
        size_t count = 1;
        const void *entries;
        for (l.begin(l.user, n); count && l.next(l.user, n, &entries, &count) == BY_OK;)
            for (size_t i = 0; i < count; i++)
                for (int k = 0; k < n; k++)
                    if (((const uint32_t *)entries)[i * ((size_t)n + 2) + 2 + (size_t)k] >= l.words)
                        abort();
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
    if (m) {
        query(m);
        predict(m);
        list(m);
    }
    by_ngram_free(m);
    close(fd);
    return 0;
}
