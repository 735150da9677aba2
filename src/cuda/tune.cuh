/* tune.cuh - which of cuBLASLt's kernels is the fastest for a product: found out once on a card, and
 * remembered in a file, so that the same command takes the same kernels, and gives the same bits, every time.
 */
#ifndef BY_CUDA_TUNE_CUH
#define BY_CUDA_TUNE_CUH

#include "cuda/cuda.h"

enum { BY_TUNE_KEY = 128, BY_TUNE_WORDS = 8 };

typedef struct cuda_tuned {
    char key[BY_TUNE_KEY]; /* describes the product; no spaces */
    uint64_t algo[BY_TUNE_WORDS];
    uint64_t workspace;
} cuda_tuned;

typedef struct cuda_tuner cuda_tuner;

/* What is known of this card and library version. NULL when there is no file to remember it in: then nothing
 * is tried out. BANYAN_TUNE=0 asks for that. */
cuda_tuner *cuda_tuner_open(const char *card, int version);
void cuda_tuner_close(cuda_tuner *t);
const cuda_tuned *cuda_tuner_find(const cuda_tuner *t, const char *key);
/* Remembers also when the file cannot be written any more: for this process. */
by_status cuda_tuner_add(cuda_tuner *t, const cuda_tuned *found);

#endif
