/* gemm_blas.c - f32 products by OpenBLAS, if oneDNN is not available. */
#ifdef BY_HAVE_OPENBLAS
#include <cblas.h>
#include <limits.h>

#include "cpu/gemm_select.h"
#include "cpu/kernels/team.h"

/* BLAS dimensions are of type int. */
bool cpu_blas_takes(const cpu_gemm_desc *d)
{
    bool fits = d->m <= INT_MAX && d->n <= INT_MAX && d->k <= INT_MAX && d->lda <= INT_MAX &&
                d->ldb <= INT_MAX && d->ldc <= INT_MAX;
    return d->ab_type == BY_F32 && d->c_type == BY_F32 && fits && d->m > 0 && d->n > 0 && d->k > 0;
}

/* Computes rows [i, i + m) and columns [j, j + n) of one product. */
static void part(const cpu_gemm_desc *d, const float *a, const float *b, float *c, int64_t i, int64_t m,
                 int64_t j, int64_t n)
{
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, d->ta ? CblasTrans : CblasNoTrans, d->tb ? CblasTrans : CblasNoTrans,
                    (int)m, (int)n, (int)d->k, 1.0f, a + (d->ta ? i : i * d->lda), (int)d->lda,
                    b + (d->tb ? j * d->ldb : j), (int)d->ldb, d->accumulate ? 1.0f : 0.0f,
                    c + i * d->ldc + j, (int)d->ldc);
}

/* The threads are ours, and each calls BLAS for a slice of c: inside a parallel region OpenBLAS starts no
 * threads, which it could only do safely if it was built with the same OpenMP library as this program. */
void cpu_blas_run(const cpu_gemm_desc *d, int threads, const void *a, const void *b, void *c)
{
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t id = cpu_team_thread(), team = cpu_team_size();
        for (int64_t q = 0; q < d->batch; q++) {
            const float *aq = (const float *)a + q * d->stride_a, *bq = (const float *)b + q * d->stride_b;
            float *cq = (float *)c + q * d->stride_c;
            const int64_t lines = d->m >= d->n ? d->m : d->n, lo = lines * id / team,
                          count = lines * (id + 1) / team - lo;
            if (d->m >= d->n)
                part(d, aq, bq, cq, lo, count, 0, d->n);
            else
                part(d, aq, bq, cq, 0, d->m, lo, count);
        }
    }
}

#else
typedef int cpu_no_openblas; /* ISO C forbids an empty file */
#endif
