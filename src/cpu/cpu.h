/* cpu.h - the CPU device, shared by the backend (compiled once) and the kernels (compiled once per
 * instruction set). */
#ifndef BY_CPU_CPU_H
#define BY_CPU_CPU_H

#include "graph/graph.h"

/* Instruction sets, in increasing order. Kernels see theirs as BY_ISA (a name) and BY_ISA_LEVEL (a
 * number). */
enum { BY_ISA_GENERIC = 0, BY_ISA_AVX2 = 1, BY_ISA_AVX512 = 2, BY_ISA_AVX512BF16 = 3, BY_ISA_COUNT };

extern const cpu_kernel cpu_table_generic[GR_OP_COUNT];
extern const cpu_kernel cpu_table_avx2[GR_OP_COUNT];
extern const cpu_kernel cpu_table_avx512[GR_OP_COUNT];
extern const cpu_kernel cpu_table_avx512bf16[GR_OP_COUNT];

/* Providers of matrix products, in increasing order of preference. */
enum { BY_GEMM_OWN = 0, BY_GEMM_OPENBLAS = 1, BY_GEMM_ONEDNN = 2, BY_GEMM_COUNT };

/* by_device.impl */
typedef struct cpu_context {
    int isa;
    const cpu_kernel *table;        /* of that instruction set: f32, bf16, f16 */
    const cpu_kernel *reference;    /* the generic set, the only one with f64 */
    int gemm;                       /* the preferred provider */
    const struct cpu_gemm_own *own; /* our products for that instruction set, see gemm_select.h */
    const struct cpu_gemm_own *own_reference;
    struct cpu_dnnl *dnnl; /* oneDNN, or NULL */
    struct tok_scratch_pool *scratch;
} cpu_context;

extern const gr_backend cpu_backend;

/* Borrows working memory for one kernel: 64-byte aligned, uninitialised. The device keeps returned blocks for
 * reuse, so a steady run allocates nothing; runs on several host threads get separate blocks. Returns NULL on
 * failure. */
void *cpu_scratch_take(by_device *d, size_t bytes);
void cpu_scratch_give(by_device *d, void *memory); /* NULL is a no-op */

/* A branch in a kernel. The test of the op table fails if a branch was never taken: every branch needs a
 * sample that takes it. For use outside of parallel regions only. */
typedef struct cpu_branch {
    const char *label, *file, *isa;
    int hit;
} cpu_branch;

#define BY_BRANCH(text)                                                                       \
    do {                                                                                      \
        static cpu_branch by_branch_here_                                                     \
            __attribute__((section("by_branches"), used)) = {text, __FILE__, BY_ISA_NAME, 0}; \
        by_branch_here_.hit = 1;                                                              \
    } while (0)

#endif
