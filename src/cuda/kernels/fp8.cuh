/* fp8.cuh - products of 16-bit matrices taken in FP8 (devices "cuda+fp8"). */
#ifndef BY_CUDA_KERNELS_FP8_CUH
#define BY_CUDA_KERNELS_FP8_CUH

#include "cuda/cublas.cuh"

/* What follows a product: nothing; an activation, or a multiplication by the derivative of one, that in 16
 * bits is fused into the product and in FP8 is a separate pass. */
enum cuda_fp8_behind { BY_FP8_NOTHING, BY_FP8_ACTIVATION, BY_FP8_SLOPE };

extern "C" {
/* Returns true if FP8 is clearly faster, as measured on an H200. c (m, n) = a (m, k) b; `turned`: b is stored
 * (k, n). */
bool cuda_fp8_pays(int64_t m, int64_t n, int64_t k, bool turned, cuda_fp8_behind behind);
}

/* Returns BY_ERR_UNSUPPORTED if the card or the library has no such products. */
by_status cuda_fp8_open(cuda_context *c, const char *card);

/* Returns a plan for p in FP8, or NULL if it should stay in 16 bits, which is not an error. */
cuda_lt_plan *cuda_fp8_plan(cuda_context *c, const cuda_product *p, cuda_fp8_behind behind);

/* Converts both operands to FP8 and multiplies; a is the tensor of p->a. */
by_status cuda_fp8_product(cuda_exec *x, const cuda_product *p, const by_tensor *a, cuda_lt_plan *plan);

#endif
