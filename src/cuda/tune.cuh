/* tune.cuh - which of cuBLASLt's kernels is the fastest for a product: found out once on a card, and
 * remembered in a file, so that the same command takes the same kernels, and gives the same bits, every time.
 */
#ifndef BY_CUDA_TUNE_CUH
#define BY_CUDA_TUNE_CUH

#include "cuda/cuda.h"

enum { BY_TUNE_KEY = 128, BY_TUNE_WORDS = 8 };

typedef struct by_tuned {
    char key[BY_TUNE_KEY]; /* describes the product; no spaces */
    uint64_t algo[BY_TUNE_WORDS];
    uint64_t workspace;
} by_tuned;

typedef struct by_tuner by_tuner;

/* What is known of this card and library version. NULL when there is no file to remember it in: then nothing
 * is tried out. BANYAN_TUNE=0 asks for that. */
by_tuner *by_tuner_open(const char *card, int version);
void by_tuner_close(by_tuner *t);
const by_tuned *by_tuner_find(const by_tuner *t, const char *key);
/* Remembers also when the file cannot be written any more: for this process. */
by_status by_tuner_add(by_tuner *t, const by_tuned *found);

#endif
