/* gemm_dnnl.c - matrix products by oneDNN: one matmul primitive per product, with bias, activation and
 * accumulation fused into it. Works with the C interface of oneDNN 2 and of 3, whose differences are kept in
 * the first section. */
#ifdef BY_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>

#include "cpu/gemm.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *by_dnnl_name(void)
{
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

/* ---- oneDNN 2 and 3: descriptors of memory are structs in the one and handles in the other ---- */

typedef struct layouts {
    dnnl_memory_desc_t a, b, bias, c;
    bool has_bias;
} layouts;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_ref;
#define REF(layout) (layout)

static dnnl_status_t layout_set(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type,
                                const int64_t *strides)
{
    return dnnl_memory_desc_create_with_strides(l, rank, dims, type, strides);
}

static void layouts_free(layouts *l)
{
    dnnl_memory_desc_destroy(l->a);
    dnnl_memory_desc_destroy(l->b);
    dnnl_memory_desc_destroy(l->bias);
    dnnl_memory_desc_destroy(l->c);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layouts *l,
                                 dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, l->a, l->b, l->has_bias ? l->bias : NULL, l->c,
                                             attr);
}

static dnnl_status_t append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, kind, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
#else
typedef const dnnl_memory_desc_t *layout_ref;
#define REF(layout) (&(layout))

static dnnl_status_t layout_set(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type,
                                const int64_t *strides)
{
    return dnnl_memory_desc_init_by_strides(l, rank, dims, type, strides);
}

static void layouts_free(layouts *l)
{
    (void)l;
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layouts *l,
                                 dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, &l->a, &l->b, l->has_bias ? &l->bias : NULL, &l->c);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static dnnl_status_t append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, kind, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}
#endif

/* ---- products -------------------------------------------------------------------------------- */

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARG_COUNT };
static const int arg_ids[ARG_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                       DNNL_ARG_SCRATCHPAD};

struct by_dnnl_gemm {
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[ARG_COUNT]; /* NULL: no such argument */
    size_t scratch;
};

/* An engine of the CPU, shared by every product of a device; close it with by_dnnl_close. */
by_status by_dnnl_open(void **engine)
{
    dnnl_engine_t e;
    dnnl_status_t s = dnnl_engine_create(&e, dnnl_cpu, 0);
    if (s != dnnl_success)
        return by_fail(BY_ERR_UNSUPPORTED, "%s: no CPU engine (status %d)", by_dnnl_name(), (int)s);
    *engine = e;
    return BY_OK;
}

void by_dnnl_close(void *engine)
{
    if (engine)
        dnnl_engine_destroy(engine);
}

static dnnl_data_type_t type_of(by_dtype t)
{
    return t == BY_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Only types that have fast code: f32, and bf16 where the processor has 16-bit instructions of 512 bits. */
static bool takes(const by_gemm_desc *d, int isa)
{
    bool f32 = d->ab_type == BY_F32 && d->c_type == BY_F32;
    bool bf16 =
        d->ab_type == BY_BF16 && (d->c_type == BY_BF16 || d->c_type == BY_F32) && isa >= BY_ISA_AVX512;
    bool bias = !d->bias || d->bias_type == BY_F32 || (bf16 && d->bias_type == BY_BF16);
    return (f32 || bf16) && bias && d->m > 0 && d->n > 0 && d->k > 0;
}

/* Matrices as (rows, cols), or (batch, rows, cols) when there is more than one. */
static dnnl_status_t matrix(dnnl_memory_desc_t *l, const by_gemm_desc *d, int64_t rows, int64_t cols,
                            int64_t row_stride, int64_t col_stride, int64_t batch_stride, by_dtype type)
{
    dnnl_dims_t dims = {d->batch, rows, cols}, strides = {batch_stride, row_stride, col_stride};
    int skip = d->batch == 1;
    return layout_set(l, 3 - skip, dims + skip, type_of(type), strides + skip);
}

static dnnl_status_t layouts_set(layouts *l, const by_gemm_desc *d)
{
    dnnl_status_t s =
        matrix(&l->a, d, d->m, d->k, d->ta ? 1 : d->lda, d->ta ? d->lda : 1, d->stride_a, d->ab_type);
    if (s == dnnl_success)
        s = matrix(&l->b, d, d->k, d->n, d->tb ? 1 : d->ldb, d->tb ? d->ldb : 1, d->stride_b, d->ab_type);
    if (s == dnnl_success)
        s = matrix(&l->c, d, d->m, d->n, d->ldc, 1, d->stride_c, d->c_type);
    if (s == dnnl_success && d->bias) {
        dnnl_dims_t dims = {1, 1, d->n}, strides = {d->n, d->n, 1};
        int skip = d->batch == 1;
        l->has_bias = true;
        s = layout_set(&l->bias, 3 - skip, dims + skip, type_of(d->bias_type), strides + skip);
    }
    return s;
}

static dnnl_status_t append_act(dnnl_post_ops_t ops, by_act act)
{
    switch (act) {
    case BY_GELU:
        return append_eltwise(ops, dnnl_eltwise_gelu_erf, 0.0f);
    case BY_GELU_TANH:
        return append_eltwise(ops, dnnl_eltwise_gelu_tanh, 0.0f);
    case BY_RELU:
        return append_eltwise(ops, dnnl_eltwise_relu, 0.0f);
    case BY_SILU:
        return append_eltwise(ops, dnnl_eltwise_swish, 1.0f);
    case BY_TANH:
        return append_eltwise(ops, dnnl_eltwise_tanh, 0.0f);
    case BY_SIGMOID:
        return append_eltwise(ops, dnnl_eltwise_logistic, 0.0f);
    default:
        return dnnl_success;
    }
}

/* The attributes: scratch memory is ours, since oneDNN's own belongs to the thread that created the
 * primitive, and programs may run on another than they were compiled on. */
static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, const by_gemm_desc *d)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success)
        s = dnnl_post_ops_create(&ops);
    if (s == dnnl_success && d->accumulate)
        s = append_sum(ops);
    if (s == dnnl_success)
        s = append_act(ops, d->act);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return s;
}

/* The primitive and its memory objects, whose addresses are set at each run. */
static dnnl_status_t fill(by_dnnl_gemm *g, dnnl_engine_t engine, const layouts *l, dnnl_primitive_desc_t pd)
{
    layout_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    layout_ref refs[ARG_COUNT] = {REF(l->a), REF(l->b), REF(l->c), l->has_bias ? REF(l->bias) : NULL,
                                  scratch};
    g->scratch = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (g->scratch == 0)
        refs[ARG_SCRATCH] = NULL;
    dnnl_status_t s = dnnl_primitive_create(&g->primitive, pd);
    if (s == dnnl_success)
        s = dnnl_stream_create(&g->stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < ARG_COUNT && s == dnnl_success; i++)
        if (refs[i])
            s = dnnl_memory_create(&g->memory[i], refs[i], engine, DNNL_MEMORY_NONE);
    return s;
}

static dnnl_status_t create(by_dnnl_gemm *g, dnnl_engine_t engine, const by_gemm_desc *d)
{
    layouts l = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    const char *code = "";
    dnnl_status_t s = layouts_set(&l, d);
    if (s == dnnl_success)
        s = attributes(&attr, d);
    if (s == dnnl_success)
        s = matmul_desc(&pd, engine, &l, attr);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &code);
    if (s == dnnl_success && strncmp(code, "ref", 3) == 0)
        s = dnnl_unimplemented; /* its reference loops are slower than our kernels */
    if (s == dnnl_success)
        s = fill(g, engine, &l, pd);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    layouts_free(&l);
    return s;
}

by_status by_dnnl_gemm_new(void *engine, int isa, const by_gemm_desc *d, by_dnnl_gemm **out)
{
    if (!takes(d, isa))
        return BY_ERR_UNSUPPORTED;
    by_dnnl_gemm *g = by_alloc_zero(1, sizeof *g);
    if (!g)
        return BY_ERR_MEMORY;
    dnnl_status_t s = create(g, engine, d);
    if (s != dnnl_success) {
        by_dnnl_gemm_free(g);
        if (s == dnnl_out_of_memory)
            return by_fail(BY_ERR_MEMORY, "%s: out of memory for a product of %lld x %lld x %lld",
                           by_dnnl_name(), (long long)d->m, (long long)d->k, (long long)d->n);
        return BY_ERR_UNSUPPORTED;
    }
    *out = g;
    return BY_OK;
}

void by_dnnl_gemm_free(by_dnnl_gemm *g)
{
    if (!g)
        return;
    for (int i = 0; i < ARG_COUNT; i++)
        if (g->memory[i])
            dnnl_memory_destroy(g->memory[i]);
    if (g->primitive)
        dnnl_primitive_destroy(g->primitive);
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    by_free(g);
}

size_t by_dnnl_gemm_scratch(const by_dnnl_gemm *g)
{
    return g->scratch;
}

by_status by_dnnl_gemm_run(by_dnnl_gemm *g, const void *a, const void *b, const void *bias, void *c,
                           void *scratch)
{
    const void *address[ARG_COUNT] = {a, b, c, bias, scratch};
    dnnl_exec_arg_t args[ARG_COUNT];
    int n = 0;
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < ARG_COUNT && s == dnnl_success; i++) {
        if (!g->memory[i])
            continue;
        s = dnnl_memory_set_data_handle(g->memory[i],
                                        (void *)(uintptr_t)address[i]); /* inputs are only read */
        args[n++] = (dnnl_exec_arg_t){arg_ids[i], g->memory[i]};
    }
    if (s == dnnl_success)
        s = dnnl_primitive_execute(g->primitive, g->stream, n, args);
    if (s == dnnl_success)
        s = dnnl_stream_wait(g->stream);
    return s == dnnl_success
               ? BY_OK
               : by_fail(BY_ERR_UNSUPPORTED, "%s: matmul failed (status %d)", by_dnnl_name(), (int)s);
}

#else
typedef int by_no_dnnl; /* ISO C wants something in a file */
#endif
