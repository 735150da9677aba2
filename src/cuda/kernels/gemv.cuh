/* gemv.cuh - products of one row with a large matrix, whose time is that of reading the matrix. */
#ifndef BY_CUDA_KERNELS_GEMV_CUH
#define BY_CUDA_KERNELS_GEMV_CUH

#include "cuda/gemm.cuh"

bool by_gemv_takes(const by_cuda *c, const by_product *p);
/* c = act(a b + bias) */
by_status by_gemv(by_cuda_exec *x, const by_product *p, by_act act);

#endif
