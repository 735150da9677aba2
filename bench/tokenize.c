/* tokenize.c - how fast a tokenizer encodes the lines of a text: tokenize PATH TEXT THREADS ROUNDS. Prints
 * the megabytes per second of the best round. Uses the public API alone; bench/tokenize.sh builds and runs
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/tokenizer.h"

/* One thread is measured by its own time, so that other work on the machine does not count. */
static double seconds(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "out of memory, or: %s\n", by_error_message());
        exit(1);
    }
    return memory;
}

/* The lines of a file; by_texts points into one block that is never freed. */
static by_texts read_lines(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = need(malloc(*bytes + 1));
    if (fread(text, 1, *bytes, f) != *bytes)
        exit(1);
    fclose(f);
    const char **starts = need(malloc((*bytes + 1) * sizeof(*starts)));
    size_t *sizes = need(malloc((*bytes + 1) * sizeof(*sizes))), count = 0;
    for (size_t i = 0; i < *bytes; count++) {
        const char *end = memchr(text + i, '\n', *bytes - i);
        starts[count] = text + i;
        sizes[count] = end ? (size_t)(end - (text + i)) : *bytes - i;
        i += sizes[count] + 1;
    }
    return (by_texts){.texts = starts, .sizes = sizes, .count = count};
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: tokenize PATH TEXT THREADS ROUNDS\n");
        return 2;
    }
    size_t bytes = 0, tokens = 0;
    by_tokenizer *t = need(by_tokenizer_load(argv[1]));
    by_texts texts = read_lines(argv[2], &bytes);
    by_encoding *out = need(calloc(texts.count + 1, sizeof(*out)));
    double best = 1e300;
    int threads = atoi(argv[3]);
    for (int round = 0; round < atoi(argv[4]); round++) {
        double start = seconds(threads);
        if (by_tokenizer_encode_many(t, &texts, &(by_encode_spec){.special = true}, threads, out) != BY_OK) {
            fprintf(stderr, "%s\n", by_error_message());
            return 1;
        }
        double took = seconds(threads) - start;
        best = took < best ? took : best;
        tokens = 0;
        for (size_t i = 0; i < texts.count; i++) {
            tokens += out[i].ids.count;
            by_encoding_free(&out[i]);
        }
    }
    printf("%.2f %zu\n", (double)bytes / best / 1e6, tokens);
    by_tokenizer_free(t);
    return 0;
}
