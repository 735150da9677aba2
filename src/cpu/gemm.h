/* gemm.h - matrix products, whoever computes them: oneDNN, OpenBLAS, or kernels of our own. A product is
 * described once, at compile time of the program, and run many times. */
#ifndef BY_CPU_GEMM_H
#define BY_CPU_GEMM_H

#include "cpu/cpu.h"

/* c (m, n) = a (m, k) b (k, n) [+ bias (n)] [+ c], row-major. ta: a is stored (k, m); tb: b is stored (n, k).
 * lda, ldb, ldc are strides in elements between stored rows; 0 means dense. batch products lie at stride_a,
 * stride_b, stride_c elements (0: dense). */
typedef struct by_gemm_desc {
    int64_t m, n, k;
    bool ta, tb;
    int64_t lda, ldb, ldc;
    int64_t batch; /* 0 means 1 */
    int64_t stride_a, stride_b, stride_c;
    by_dtype ab_type, c_type; /* c_type is ab_type or its accumulation type */
    by_dtype bias_type;       /* when bias */
    bool bias, accumulate;
    bool fixed; /* b is the same in every run, but for what by_device.changes counts: worth rearranging */
    by_act act; /* applied to the result; not together with accumulate */
} by_gemm_desc;

typedef struct by_gemm by_gemm;
by_gemm *by_gemm_new(by_device *d, const by_gemm_desc *desc); /* NULL on failure */
void by_gemm_free(by_gemm *g);
by_status by_gemm_run(by_gemm *g, const void *a, const void *b, const void *bias, void *c);
const char *
by_gemm_library(int provider); /* "oneDNN 2.6.3", "OpenBLAS", "own kernels"; NULL when not in this build */

/* ---- the providers, used by gemm.c alone; in what they are given, strides and batch are filled in -- */

/* Our own, one per instruction set (kernels/matmul.c). They do every description; f64 in the generic set
 * only. */
typedef struct by_gemm_own {
    size_t (*scratch)(const by_gemm_desc *d, int threads); /* bytes of working memory for run */
    void (*run)(const by_gemm_desc *d, int threads, const void *a, const void *b, const void *bias, void *c,
                void *scratch);
    void (*finish)(const by_gemm_desc *d, int threads, const void *bias,
                   void *c); /* c = act(c + bias), c of type f32 */
} by_gemm_own;
extern const by_gemm_own by_gemm_own_generic, by_gemm_own_avx2, by_gemm_own_avx512, by_gemm_own_avx512bf16;

/* So few rows that the product is a reading of b: ours runs at the speed of memory, libraries at half of it.
 */
#define BY_GEMM_SKINNY_ROWS 8
static inline bool by_gemm_is_skinny(const by_gemm_desc *d)
{
    return d->m <= BY_GEMM_SKINNY_ROWS && !d->ta && d->batch == 1;
}

/* oneDNN (gemm_dnnl.c). new returns BY_ERR_UNSUPPORTED, with no message, for what it has no fast code for. */
typedef struct by_dnnl_gemm by_dnnl_gemm;
by_status by_dnnl_open(struct by_dnnl **out);
void by_dnnl_close(struct by_dnnl *d);
by_status by_dnnl_gemm_new(struct by_dnnl *library, int isa, const by_gemm_desc *d, by_dnnl_gemm **out);
void by_dnnl_gemm_free(by_dnnl_gemm *g);
size_t by_dnnl_gemm_scratch(const by_dnnl_gemm *g);
/* changes: see by_device */
by_status by_dnnl_gemm_run(by_dnnl_gemm *g, const void *a, const void *b, const void *bias, void *c,
                           void *scratch, uint64_t changes);
const char *by_dnnl_name(void);

/* OpenBLAS (gemm_blas.c): c = a b [+ c] in f32, without bias and activation. */
bool by_blas_takes(const by_gemm_desc *d);
void by_blas_run(const by_gemm_desc *d, int threads, const void *a, const void *b, void *c);

#endif
