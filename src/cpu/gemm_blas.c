/* gemm_blas.c - f32 products by OpenBLAS, where oneDNN is not there. */
#ifdef BY_HAVE_OPENBLAS
#include <cblas.h>
#include <limits.h>

#include "cpu/gemm.h"

/* BLAS counts in int. */
bool by_blas_takes(const by_gemm_desc *d)
{
    bool fits = d->m <= INT_MAX && d->n <= INT_MAX && d->k <= INT_MAX && d->lda <= INT_MAX && d->ldb <= INT_MAX &&
                d->ldc <= INT_MAX;
    return d->ab_type == BY_F32 && d->c_type == BY_F32 && fits && d->m > 0 && d->n > 0 && d->k > 0;
}

void by_blas_run(const by_gemm_desc *d, const void *a, const void *b, void *c)
{
    for (int64_t i = 0; i < d->batch; i++)
        cblas_sgemm(CblasRowMajor, d->ta ? CblasTrans : CblasNoTrans, d->tb ? CblasTrans : CblasNoTrans, (int)d->m, (int)d->n,
                    (int)d->k, 1.0f, (const float *)a + i * d->stride_a, (int)d->lda, (const float *)b + i * d->stride_b,
                    (int)d->ldb, d->accumulate ? 1.0f : 0.0f, (float *)c + i * d->stride_c, (int)d->ldc);
}

#else
typedef int by_no_openblas; /* ISO C wants something in a file */
#endif
