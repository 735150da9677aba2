/* few.cuh - products with a few rows, which are a reading of the weights. */
#ifndef BY_CUDA_KERNELS_FEW_CUH
#define BY_CUDA_KERNELS_FEW_CUH

#include "cuda/gemm.cuh"

bool by_few_rows_take(const by_product *p);
/* c = act(a b + bias) */
by_status by_few_rows(by_cuda_exec *x, const by_product *p, by_act act);

#endif
