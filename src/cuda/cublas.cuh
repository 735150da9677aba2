/* cublas.cuh - one matrix product, planned once and run many times. */
#ifndef BY_CUDA_CUBLAS_CUH
#define BY_CUDA_CUBLAS_CUH

#include "cuda/cuda.h"

/* What is applied to the result. */
enum cuda_epilogue {
    BY_EPILOGUE_NONE,
    BY_EPILOGUE_BIAS,     /* c = ab + bias */
    BY_EPILOGUE_GELU,     /* extra = ab + bias (bias may be NULL); c = gelu_tanh(extra) */
    BY_EPILOGUE_DGELU,    /* c = ab * gelu_tanh'(extra) */
    BY_EPILOGUE_SUM_OF_A, /* bias (m) = sum over k of a: with ta, the sum of the columns that a is stored in
                           */
    BY_EPILOGUE_SUM_OF_B  /* bias (n) = sum over k of b */
};

/* c (m, n) = a (m, k) b (k, n) [+ c], row-major, as in src/cpu/gemm_select.h. */
typedef struct cuda_product {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, accumulate;
    int64_t batch, stride_a, stride_b, stride_c;
    by_dtype ab_type, c_type;
    cuda_epilogue epilogue;
    by_dtype bias_type;
    const void *a, *b; /* their addresses: alignment determines which kernels can be used */
    void *c, *bias, *extra;
    int64_t extra_ld;
    bool b_later; /* the address of b is given when it is run: cuda_lt_run_with */
    bool fp8;     /* a (m, k) and b (n, k) are e4m3, with tb; their addresses are given when it is run */
} cuda_product;

typedef struct cuda_lt_plan cuda_lt_plan;

/* Open and close cuBLASLt, which is loaded here: a machine without it can run everything else. */
by_status cuda_lt_open(cuda_context *c);
void cuda_lt_close(cuda_context *c);
int cuda_lt_version(void); /* 0 if not loaded */

/* Returns NULL and sets the error if cuBLASLt has no kernel for it (BY_ERR_UNSUPPORTED) or allocation
 * fails. */
cuda_lt_plan *cuda_lt_plan_new(cuda_context *c, const cuda_product *p);
void cuda_lt_plan_free(cuda_lt_plan *plan);
by_status cuda_lt_run(cuda_exec *x, cuda_lt_plan *plan);
/* The same with b elsewhere, at a multiple of 256 bytes. */
by_status cuda_lt_run_with(cuda_exec *x, cuda_lt_plan *plan, const void *b);
/* The same for a plan in FP8: a and b, and the scales of their rows, (m) and (n). */
by_status cuda_lt_run_fp8(cuda_exec *x, cuda_lt_plan *plan, const uint8_t *a, const float *a_scale,
                          const uint8_t *b, const float *b_scale);

#endif
