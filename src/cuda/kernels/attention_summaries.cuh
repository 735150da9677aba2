/* attention_summaries.cuh - the summary positions of a fixed pattern (Child et al. 2019), the last `count` of
 * each block of `length`, as rows of their own. */
#ifndef BY_CUDA_KERNELS_ATTENTION_SUMMARIES_CUH
#define BY_CUDA_KERNELS_ATTENTION_SUMMARIES_CUH

#include "cuda/cuda.h"

/* Rows of `width` numbers of 16 bits: row t of batch row b is at b * batch + t * row. */
typedef struct summary_rows {
    void *at;
    int64_t row, batch;
} summary_rows;

typedef struct summaries {
    int batch, total; /* batch rows, and positions of each */
    int length, count;
    int width; /* a multiple of 8 */
} summaries;

/* The number of summary positions of a batch row. */
static inline int summaries_in(const summaries *s)
{
    const int rest = s->total % s->length - (s->length - s->count);
    return s->total / s->length * s->count + (rest > 0 ? rest : 0);
}

/* Copies the rows at summary positions of `from` to `to`. */
by_status cuda_take_summaries(cuda_exec *x, const summaries &s, summary_rows to, summary_rows from);
/* The reverse. add: adds them to what is there; otherwise all other rows of `to` become 0. */
by_status cuda_give_summaries(cuda_exec *x, const summaries &s, summary_rows to, summary_rows from, bool add,
                              by_dtype type);

#endif
