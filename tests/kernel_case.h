/* kernel_case.h - nodes built by hand for tests of single kernels: tensors between guard bytes, every
 * instruction set this machine has, runs on one, two and three threads that must agree bit by bit. */
#ifndef KERNEL_CASE_H
#define KERNEL_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/cpu.h"

typedef struct kernel_set {
    const char *name;
    const cpu_kernel *table;
} kernel_set;

/* The instruction sets that this build and this machine both have; the generic one is first and alone has
 * f64. */
static inline int kernel_sets(kernel_set out[BY_ISA_COUNT])
{
    int n = 0;
    out[n++] = (kernel_set){"generic", cpu_table_generic};
#ifdef BY_HAVE_ISA_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = (kernel_set){"avx2", cpu_table_avx2};
#endif
#ifdef BY_HAVE_ISA_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        out[n++] = (kernel_set){"avx512", cpu_table_avx512};
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
    if (__builtin_cpu_supports("avx512bf16"))
        out[n++] = (kernel_set){"avx512bf16", cpu_table_avx512bf16};
#endif
    return n;
}

/* ---- a pool: what a case allocates, freed together, looking at the guards of tensors --------- */

#define GUARD 64

typedef struct block {
    struct block *next;
    size_t bytes; /* of a tensor's data, 0 for plain memory */
    void *memory;
} block;

typedef struct pool {
    block *blocks;
    base_rng rng;
} pool;

static inline void *pool_alloc(pool *p, size_t bytes)
{
    block *b = test_calloc(1, sizeof *b);
    b->memory = test_calloc(1, bytes ? bytes : 1);
    b->next = p->blocks;
    p->blocks = b;
    return b->memory;
}

static inline void pool_free(pool *p)
{
    while (p->blocks) {
        block *b = p->blocks;
        const unsigned char *m = b->memory;
        for (size_t i = 0; b->bytes && i < GUARD; i++)
            if (m[i] != 0xa5 || m[GUARD + b->bytes + i] != 0xa5)
                fail_msg("bytes beside a tensor of %zu bytes were changed", b->bytes);
        p->blocks = b->next;
        test_free(b->memory);
        test_free(b);
    }
}

static inline int64_t count_of(const by_tensor *t)
{
    return gr_tensor_rows(t) * gr_tensor_cols(t);
}

static inline by_tensor *tensor_of(pool *p, by_dtype type, int rank, const int64_t *dim)
{
    by_tensor *t = pool_alloc(p, sizeof *t);
    t->type = type;
    t->rank = rank;
    for (int i = 0; i < rank; i++)
        t->dim[i] = dim[i];
    t->root = t;
    size_t bytes = (size_t)count_of(t) * by_dtype_size(type);
    char *m = pool_alloc(p, bytes + 2 * GUARD);
    p->blocks->bytes = bytes;
    memset(m, 0xa5, bytes + 2 * GUARD);
    t->data = m + GUARD;
    return t;
}

#define SHAPE(...)                                    \
    BY_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]) \
    {                                                 \
        __VA_ARGS__                                   \
    }
#define TENSOR(pool_, type_, ...) tensor_of(pool_, type_, SHAPE(__VA_ARGS__))

static inline double *values_of(pool *p, const by_tensor *t)
{
    double *v = pool_alloc(p, (size_t)count_of(t) * sizeof *v);
    base_convert(v, BY_F64, t->data, t->type, (size_t)count_of(t));
    return v;
}

/* Fill with normal values, and give back what they became in the tensor's type. */
static inline double *randomise(pool *p, by_tensor *t, double scale)
{
    const size_t n = (size_t)count_of(t);
    float *v = pool_alloc(p, n * sizeof *v);
    base_rng_fill_normal(v, n, base_rng_u64(&p->rng), 1, 0, (float)scale);
    base_convert(t->data, t->type, v, BY_F32, n);
    return values_of(p, t);
}

/* ---- running -------------------------------------------------------------------------------- */

#define TEST_SEED 0x123456789abcdef0u
#define TEST_STEP 77u

/* Run with 1, 2 and 3 threads from the same start; every tensor must come out with the same bits. */
static inline by_status run_node(pool *p, const kernel_set *set, gr_node *n)
{
    by_tensor *all[GR_MAX_INPUTS + GR_MAX_OUTPUTS];
    void *before[BY_COUNT(all)], *after[BY_COUNT(all)];
    int count = 0;
    by_status status = BY_OK;
    n->n_in = GR_MAX_INPUTS;
    n->n_out = GR_MAX_OUTPUTS;
    for (int i = 0; i < GR_MAX_INPUTS; i++)
        if (n->in[i])
            all[count++] = n->in[i];
    for (int i = 0; i < GR_MAX_OUTPUTS; i++)
        if (n->out[i])
            all[count++] = n->out[i];
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)count_of(all[i]) * by_dtype_size(all[i]->type);
        before[i] = memcpy(pool_alloc(p, bytes), all[i]->data, bytes);
        after[i] = pool_alloc(p, bytes);
    }
    for (int threads = 1; threads <= 3; threads++) {
        gr_exec e = {.seed = TEST_SEED, .step = TEST_STEP, .threads = threads};
        for (int i = 0; i < count; i++)
            memcpy(all[i]->data, before[i], (size_t)count_of(all[i]) * by_dtype_size(all[i]->type));
        status = set->table[n->op](&e, n);
        for (int i = 0; i < count; i++) {
            size_t bytes = (size_t)count_of(all[i]) * by_dtype_size(all[i]->type);
            if (threads == 1)
                memcpy(after[i], all[i]->data, bytes);
            else if (memcmp(after[i], all[i]->data, bytes) != 0)
                fail_msg("op %d, %s: %d threads give other bits than 1", (int)n->op, set->name, threads);
        }
    }
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* The relative error of rounding to the stored type, and to the type computed in. For f64 the expected values
 * are no better than the kernel's: many roundings in both. */
static inline double store_epsilon(by_dtype t)
{
    return t == BY_BF16 ? 0x1p-8 : t == BY_F16 ? 0x1p-11 : t == BY_F32 ? 0x1p-24 : 0x1p-53;
}

static inline double compute_epsilon(by_dtype t)
{
    return t == BY_F64 ? 0x1p-47 : 0x1p-24;
}

/* Each element is within rounding of what was expected: 1.1 roundings to the stored type, and `roundings`
 * roundings of numbers of size `magnitude` before. Infinities and NaNs must be equal. */
static inline void expect(const kernel_set *set, const char *what, const by_tensor *t, const double *expected,
                          double magnitude, double roundings)
{
    for (int64_t i = 0; i < count_of(t); i++) {
        double got, want = expected[i];
        base_convert(&got, BY_F64, (const char *)t->data + (size_t)i * by_dtype_size(t->type), t->type, 1);
        double bound = 1.1 * store_epsilon(t->type) * fabs(want) + (t->type == BY_F16 ? 0x1p-25 : 0) +
                       roundings * compute_epsilon(t->type) * magnitude;
        if (got == want || (isnan(got) && isnan(want)))
            continue;
        if (!(fabs(got - want) <= bound))
            fail_msg("%s, %s, %s: element %lld is %.9g, expected %.9g within %.2g", what, set->name,
                     by_dtype_name(t->type), (long long)i, got, want, bound);
    }
}

/* Call check(set, type) for every instruction set and element type that has kernels. */
static inline void for_each_kernel(void (*check)(const kernel_set *set, by_dtype type))
{
    static const by_dtype types[] = {BY_F32, BY_BF16, BY_F16, BY_F64};
    kernel_set sets[BY_ISA_COUNT];
    int n = kernel_sets(sets);
    for (int s = 0; s < n; s++)
        for (int t = 0; t < BY_COUNT(types); t++)
            if (types[t] != BY_F64 || s == 0)
                check(&sets[s], types[t]);
}

#endif
