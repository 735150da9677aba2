/* gemv.cuh - products of one row with a large matrix, bound by reading the matrix. */
#ifndef BY_CUDA_KERNELS_GEMV_CUH
#define BY_CUDA_KERNELS_GEMV_CUH

#include "cuda/cublas.cuh"

bool cuda_gemv_takes(const cuda_context *c, const cuda_product *p);
/* c = act(a b + bias) */
by_status cuda_gemv(cuda_exec *x, const cuda_product *p, by_act act);

#endif
