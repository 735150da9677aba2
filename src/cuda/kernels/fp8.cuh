/* fp8.cuh - products of 16-bit matrices taken in FP8 (devices "cuda+fp8"). */
#ifndef BY_CUDA_KERNELS_FP8_CUH
#define BY_CUDA_KERNELS_FP8_CUH

#include "cuda/cublas.cuh"

/* What else is done to a result: nothing; an activation, or multiplying with the slope of one, that in 16
 * bits is part of the product and in FP8 is a pass of its own. */
enum cuda_fp8_behind { BY_FP8_NOTHING, BY_FP8_ACTIVATION, BY_FP8_SLOPE };

extern "C" {
/* Whether FP8 is clearly faster, by what was measured on an H200. c (m, n) = a (m, k) b; `turned`: b is
 * stored (k, n). */
bool cuda_fp8_pays(int64_t m, int64_t n, int64_t k, bool turned, cuda_fp8_behind behind);
}

/* BY_ERR_UNSUPPORTED when the card or the library has no such products. */
by_status cuda_fp8_open(cuda_context *c, const char *card);

/* A plan for p in FP8; NULL, which is no error, when it is to stay in 16 bits. */
cuda_lt_plan *cuda_fp8_plan(cuda_context *c, const cuda_product *p, cuda_fp8_behind behind);

/* Make FP8 of both sides and multiply; a is the tensor of p->a. */
by_status cuda_fp8_product(cuda_exec *x, const cuda_product *p, const by_tensor *a, cuda_lt_plan *plan);

#endif
