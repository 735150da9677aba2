/* norm.cuh - how norm and norm_grad distribute the rows. A warp holds a row in registers, in pieces of 16
 * bytes, or a block if it is too wide for that; rows that do not divide into such pieces, and very wide ones,
 * are read again for every pass. */
#ifndef BY_CUDA_KERNELS_NORM_CUH
#define BY_CUDA_KERNELS_NORM_CUH

#include "cuda/kernels/row_pieces.cuh"

enum { ANY_THREADS = 256, MOST_THREADS = 1024 };

enum norm_way { BY_WARP, BY_BLOCK, BY_ELEMENT };

/* A sum over the threads of a row. */
template <bool WARP> static __device__ __forceinline__ float row_sum(float x, float *space)
{
    return WARP ? warp_sum(x) : block_sum(x, space);
}

#endif
