/* gemm.cuh - one matrix product, planned once and run many times. */
#ifndef BY_CUDA_GEMM_CUH
#define BY_CUDA_GEMM_CUH

#include "cuda/cuda.h"

/* What is done to the result on its way out. */
enum by_epilogue {
    BY_EPILOGUE_NONE,
    BY_EPILOGUE_BIAS,     /* c = ab + bias */
    BY_EPILOGUE_GELU,     /* extra = ab + bias (bias may be NULL); c = gelu_tanh(extra) */
    BY_EPILOGUE_DGELU,    /* c = ab * gelu_tanh'(extra) */
    BY_EPILOGUE_SUM_OF_A, /* bias (m) = sum over k of a: with ta, the sum of the columns that a is stored in
                           */
    BY_EPILOGUE_SUM_OF_B  /* bias (n) = sum over k of b */
};

/* c (m, n) = a (m, k) b (k, n) [+ c], row-major, as in src/cpu/gemm.h. */
typedef struct by_product {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, accumulate;
    int64_t batch, stride_a, stride_b, stride_c;
    by_dtype ab_type, c_type;
    by_epilogue epilogue;
    by_dtype bias_type;
    const void *a, *b; /* where they are: alignment decides which kernels can be used */
    void *c, *bias, *extra;
    int64_t extra_ld;
    bool fp8; /* a (m, k) and b (n, k) are e4m3, with tb; where they are is said when it is run */
} by_product;

typedef struct by_lt_plan by_lt_plan;

/* Open and close cuBLASLt, which is loaded now: a machine without it can run everything else. */
by_status by_lt_open(by_cuda *c);
void by_lt_close(by_cuda *c);
int by_lt_version(void); /* 0 when it is not loaded */

/* NULL, with the error set, when no kernel of cuBLASLt can do it (BY_ERR_UNSUPPORTED) or memory is out. */
by_lt_plan *by_lt_plan_new(by_cuda *c, const by_product *p);
void by_lt_plan_free(by_lt_plan *plan);
by_status by_lt_run(by_cuda_exec *x, by_lt_plan *plan);
/* The same for a plan in FP8: a and b, and what each of their rows is to be multiplied with, (m) and (n). */
by_status by_lt_run_fp8(by_cuda_exec *x, by_lt_plan *plan, const uint8_t *a, const float *a_scale,
                        const uint8_t *b, const float *b_scale);

#endif
