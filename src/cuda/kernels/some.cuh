/* some.cuh - products with more rows than few.cuh's that are still a reading of the weights. */
#ifndef BY_CUDA_KERNELS_SOME_CUH
#define BY_CUDA_KERNELS_SOME_CUH

#include "cuda/gemm.cuh"

bool by_some_rows_take(const by_cuda *c, const by_product *p);
/* c = act(a b + bias) */
by_status by_some_rows(by_cuda_exec *x, const by_product *p, by_act act);

#endif
