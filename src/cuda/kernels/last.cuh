/* last.cuh - the last block to arrive finishes the work of all: one kernel instead of two. */
#ifndef BY_CUDA_KERNELS_LAST_CUH
#define BY_CUDA_KERNELS_LAST_CUH

#include "cuda/kernels/kernel.cuh"

/* Returns true if this block is the last of `blocks` to arrive, as counted in *arrived, which is 0 between
 * kernels (cuda_context.counters). The last one sees what the others wrote. */
static __device__ __forceinline__ bool is_last(int *arrived, int blocks)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == blocks - 1;
        if (last)
            *arrived = 0; /* for the next call */
    }
    __syncthreads();
    __threadfence();
    return last;
}

#endif
