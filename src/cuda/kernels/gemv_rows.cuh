/* gemv_rows.cuh - products with a few rows, bound by reading the weights. */
#ifndef BY_CUDA_KERNELS_GEMV_ROWS_CUH
#define BY_CUDA_KERNELS_GEMV_ROWS_CUH

#include "cuda/cublas.cuh"

bool cuda_gemv_rows_take(const cuda_product *p);
/* c = act(a b + bias) */
by_status cuda_gemv_rows(cuda_exec *x, const cuda_product *p, by_act act);

#endif
