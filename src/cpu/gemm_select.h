/* gemm_select.h - matrix products by any provider: oneDNN, OpenBLAS, or our own kernels. A product is
 * described once, when the program is compiled, and run many times. */
#ifndef BY_CPU_GEMM_SELECT_H
#define BY_CPU_GEMM_SELECT_H

#include "cpu/cpu.h"

/* c (m, n) = a (m, k) b (k, n) [+ bias (n)] [+ c], row-major. ta: a is stored (k, m); tb: b is stored (n, k).
 * lda, ldb, ldc are strides in elements between stored rows; 0: dense. The products of a batch are stride_a,
 * stride_b, stride_c elements apart (0: dense). */
typedef struct cpu_gemm_desc {
    int64_t m, n, k;
    bool ta, tb;
    int64_t lda, ldb, ldc;
    int64_t batch; /* 0 means 1 */
    int64_t stride_a, stride_b, stride_c;
    by_dtype ab_type, c_type; /* c_type is ab_type or its accumulation type */
    by_dtype b_type;    /* how b is stored, where that is another type: blocks, or narrower; 0: ab_type */
    by_dtype bias_type; /* when bias */
    bool bias, accumulate;
    /* B is the same in every run, except for changes counted by by_device.changes: worth packing. */
    bool fixed;
    by_act act; /* applied to the result; not together with accumulate */
} cpu_gemm_desc;

typedef struct cpu_gemm cpu_gemm;
cpu_gemm *cpu_gemm_new(by_device *d, const cpu_gemm_desc *desc); /* NULL on failure */
void cpu_gemm_free(cpu_gemm *g);
by_status cpu_gemm_run(cpu_gemm *g, const void *a, const void *b, const void *bias, void *c);
/* Make the plan of a node, a cpu_gemm: kernels/matmul.c when e->planning. */
by_status cpu_plan_linear(by_device *d, gr_node *n);
by_status cpu_plan_linear_dx(by_device *d, gr_node *n);
by_status cpu_plan_linear_dw(by_device *d, gr_node *n);
by_status cpu_plan_matmul(by_device *d, gr_node *n);
/* "oneDNN 2.6.3", "OpenBLAS", "own kernels"; NULL if not in this build. */
const char *cpu_gemm_library(int provider);

/* ---- the providers, used only by gemm_select.c; strides and batch of descriptions are resolved -- */

/* Our own, one per instruction set (kernels/gemm.c). They support every description; f64 only in the generic
 * set. */
typedef struct cpu_gemm_own {
    size_t (*scratch)(const cpu_gemm_desc *d, int threads); /* bytes of working memory for run */
    void (*run)(const cpu_gemm_desc *d, int threads, const void *a, const void *b, const void *bias, void *c,
                void *scratch);
    void (*finish)(const cpu_gemm_desc *d, int threads, const void *bias,
                   void *c); /* c = act(c + bias), c of type f32 */
    const struct cpu_gemm_stored *stored;
} cpu_gemm_own;
extern const cpu_gemm_own cpu_gemm_own_generic, cpu_gemm_own_avx2, cpu_gemm_own_avx512,
    cpu_gemm_own_avx512bf16;

/* b of another type (kernels/stored.c). run: few rows of a in f32, bf16 or f16, rows of b in whole blocks;
 * nothing is added to c. unpack: rows of `count` values, from_bytes apart, become dense rows of a float type.
 */
typedef struct cpu_gemm_stored {
    size_t (*scratch)(const cpu_gemm_desc *d);
    void (*run)(const cpu_gemm_desc *d, int threads, const void *a, const void *b, const void *bias, void *c,
                void *scratch);
    void (*unpack)(int threads, int64_t rows, int64_t count, const void *from, by_dtype from_type,
                   size_t from_bytes, void *to, by_dtype to_type);
} cpu_gemm_stored;
extern const cpu_gemm_stored cpu_gemm_stored_generic, cpu_gemm_stored_avx2, cpu_gemm_stored_avx512,
    cpu_gemm_stored_avx512bf16;

/* So few rows that the product is a reading of b: ours runs at the speed of memory, libraries at half of it.
 */
#define BY_GEMM_SKINNY_ROWS 8
static inline bool cpu_gemm_is_skinny(const cpu_gemm_desc *d)
{
    return d->m <= BY_GEMM_SKINNY_ROWS && !d->ta && d->batch == 1;
}

/* oneDNN (gemm_dnnl.c). new returns BY_ERR_UNSUPPORTED, without a message, if there is no fast code. */
typedef struct cpu_dnnl_gemm cpu_dnnl_gemm;
by_status cpu_dnnl_open(struct cpu_dnnl **out);
void cpu_dnnl_close(struct cpu_dnnl *d);
by_status cpu_dnnl_gemm_new(struct cpu_dnnl *library, int isa, const cpu_gemm_desc *d, cpu_dnnl_gemm **out);
void cpu_dnnl_gemm_free(cpu_dnnl_gemm *g);
size_t cpu_dnnl_gemm_scratch(const cpu_dnnl_gemm *g);
/* changes: see by_device */
by_status cpu_dnnl_gemm_run(cpu_dnnl_gemm *g, const void *a, const void *b, const void *bias, void *c,
                            void *scratch, uint64_t changes);
const char *cpu_dnnl_name(void);

/* OpenBLAS (gemm_blas.c): c = a b [+ c] in f32, without bias and activation. */
bool cpu_blas_takes(const cpu_gemm_desc *d);
void cpu_blas_run(const cpu_gemm_desc *d, int threads, const void *a, const void *b, void *c);

#endif
