/* gemm_skinny.cuh - products with more rows than those of gemv_rows.cuh that are still bound by reading the
 * weights. */
#ifndef BY_CUDA_KERNELS_GEMM_SKINNY_CUH
#define BY_CUDA_KERNELS_GEMM_SKINNY_CUH

#include "cuda/cublas.cuh"

bool cuda_gemm_skinny_take(const cuda_context *c, const cuda_product *p);
/* c = act(a b + bias) */
by_status cuda_gemm_skinny(cuda_exec *x, const cuda_product *p, by_act act);

#endif
