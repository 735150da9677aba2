/* sort.cuh - positions sorted by the indices they hold, for sums that need a fixed order. */
#ifndef BY_CUDA_KERNELS_SORT_CUH
#define BY_CUDA_KERNELS_SORT_CUH

#include "cuda/kernels/kernel.cuh"

typedef struct cuda_sorted {
    /* (count): ascending indices, and their original positions; equal ones keep their order. */
    const int32_t *id, *place;
    const int32_t *bounds; /* (rows, 2): start and end of an index in these; 0 and 0: absent */
    int64_t count, rows;
} cuda_sorted;

/* Bytes of scratch needed to sort `count` indices below `rows`; a multiple of 256. */
size_t cuda_sort_bytes(int64_t count, int64_t rows);
/* Sort input `input` of a node, i32. Indices out of range are reported and taken for 0. With several batches each
 * has its share of the indices, which count within its share of the rows. */
by_status cuda_sort(cuda_exec *x, const gr_node *n, int input, int64_t rows, int64_t batches, void *scratch,
                    cuda_sorted *out);

#endif
