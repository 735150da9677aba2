/* reduce.cuh - sums of columns, for kernels that need them beside something else. */
#ifndef BY_CUDA_KERNELS_REDUCE_CUH
#define BY_CUDA_KERNELS_REDUCE_CUH

#include "cuda/kernels/kernel.cuh"

/* x (outer, count, inner), rows `pitch` elements apart, summed over the middle: how the work is cut. */
typedef struct by_column_sums {
    int64_t outer, count, inner, pitch;
    int64_t bands, parts, chunk; /* pieces of a row, of the rows; rows to a piece */
    bool by_vectors;
} by_column_sums;

by_column_sums by_cuda_plan_column_sums(const by_cuda *c, by_dtype type, int64_t outer, int64_t count,
                                        int64_t inner, int64_t pitch);
/* Bytes of scratch that the sums need. */
size_t by_cuda_column_sums_bytes(const by_column_sums *s);
/* y (outer, inner) = scale times the sums, in f32; with `add`, added to what y holds. */
by_status by_cuda_column_sums(by_cuda_exec *x, const by_column_sums *s, by_dtype type, const void *from,
                              float *y, float scale, bool add, void *scratch);

#endif
