/* tune.cuh - the fastest cuBLASLt kernel for each product: measured once per card and remembered in a file,
 * so that the same command uses the same kernels, and gives the same bits, every time. */
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

/* Opens the timings for this card and library version. Returns NULL if they cannot be stored in a file: then
 * nothing is timed. BANYAN_TUNE=0 requests that. */
cuda_tuner *cuda_tuner_open(const char *card, int version);
void cuda_tuner_close(cuda_tuner *t);
const cuda_tuned *cuda_tuner_find(const cuda_tuner *t, const char *key);
/* Remembers for this process even if the file can no longer be written. */
by_status cuda_tuner_add(cuda_tuner *t, const cuda_tuned *found);

#endif
