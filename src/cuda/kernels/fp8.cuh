/* fp8.cuh - products of 16-bit matrices taken in FP8 (devices "cuda+fp8"). */
#ifndef BY_CUDA_KERNELS_FP8_CUH
#define BY_CUDA_KERNELS_FP8_CUH

#include "cuda/gemm.cuh"

/* What else is done to a result: nothing; an activation, or multiplying with the slope of one, that in 16
 * bits is part of the product and in FP8 is a pass of its own. */
enum by_fp8_behind { BY_FP8_NOTHING, BY_FP8_ACTIVATION, BY_FP8_SLOPE };

extern "C" {
/* Whether FP8 is clearly faster, by what was measured on an H200. c (m, n) = a (m, k) b; `turned`: b is
 * stored (k, n). */
bool by_fp8_pays(int64_t m, int64_t n, int64_t k, bool turned, by_fp8_behind behind);
}

/* BY_ERR_UNSUPPORTED when the card or the library has no such products. */
by_status by_fp8_open(by_cuda *c, const char *card);

/* A plan for p in FP8; NULL, which is no error, when it is to stay in 16 bits. */
by_lt_plan *by_fp8_plan(by_cuda *c, const by_product *p, by_fp8_behind behind);

/* Make FP8 of both sides and multiply; a is the tensor of p->a. */
by_status by_fp8_product(by_cuda_exec *x, const by_product *p, const by_tensor *a, by_lt_plan *plan);

#endif
