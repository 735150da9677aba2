/* gemm_select.c - who computes a matrix product: our own kernels for few rows, oneDNN or OpenBLAS where they have
 * fast code, and our own for everything else. */
#include "cpu/gemm_select.h"

#ifdef _OPENMP
#include <omp.h>
#endif

struct cpu_gemm {
    by_device *device;
    cpu_gemm_desc desc; /* complete */
    const cpu_gemm_own *own;
    int provider;
    int threads; /* for which it is planned */
    cpu_dnnl_gemm *dnnl;
    size_t scratch;
};

const char *cpu_gemm_library(int provider)
{
    switch (provider) {
    case BY_GEMM_OWN:
        return "own kernels";
#ifdef BY_HAVE_OPENBLAS
    case BY_GEMM_OPENBLAS:
        return "OpenBLAS";
#endif
#ifdef BY_HAVE_DNNL
    case BY_GEMM_ONEDNN:
        return cpu_dnnl_name();
#endif
    default:
        return NULL;
    }
}

/* The libraries ask OpenMP how many threads to use. The number is a property of the calling thread: lent, and
 * put back. */
static int threads_lend(int threads)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
#else
    return threads;
#endif
}

static void threads_restore(int before, int threads)
{
#ifdef _OPENMP
    if (before != threads)
        omp_set_num_threads(before);
#else
    (void)before;
    (void)threads;
#endif
}

/* Fill in what was left to its default. */
static cpu_gemm_desc complete(const cpu_gemm_desc *desc)
{
    cpu_gemm_desc d = *desc;
    d.lda = d.lda ? d.lda : BY_MAX(d.ta ? d.m : d.k, 1);
    d.ldb = d.ldb ? d.ldb : BY_MAX(d.tb ? d.k : d.n, 1);
    d.ldc = d.ldc ? d.ldc : BY_MAX(d.n, 1);
    d.batch = d.batch ? d.batch : 1;
    d.stride_a = d.stride_a ? d.stride_a : d.lda * (d.ta ? d.k : d.m);
    d.stride_b = d.stride_b ? d.stride_b : d.ldb * (d.tb ? d.n : d.k);
    d.stride_c = d.stride_c ? d.stride_c : d.ldc * d.m;
    return d;
}

static by_status check(const cpu_gemm_desc *d)
{
    bool sizes = d->m >= 0 && d->n >= 0 && d->k >= 0 && d->batch >= 0;
    bool strides = d->lda >= (d->ta ? d->m : d->k) && d->ldb >= (d->tb ? d->k : d->n) && d->ldc >= d->n;
    bool types = by_dtype_is_float(d->ab_type) &&
                 (d->c_type == d->ab_type || d->c_type == gr_acc_type(d->ab_type)) &&
                 (!d->bias || by_dtype_is_float(d->bias_type));
    if (sizes && strides && types && !(d->accumulate && d->act != BY_ACT_NONE))
        return BY_OK;
    return base_fail(BY_ERR_ARGUMENT,
                     "no product of (%lld, %lld) and (%lld, %lld), %s to %s, with strides %lld, %lld, %lld",
                     (long long)d->m, (long long)d->k, (long long)d->k, (long long)d->n,
                     by_dtype_name(d->ab_type), by_dtype_name(d->c_type), (long long)d->lda,
                     (long long)d->ldb, (long long)d->ldc);
}

/* Sets g->provider, and makes the library's plan. */
static by_status choose(cpu_gemm *g)
{
    const cpu_context *cpu = g->device->impl;
    (void)cpu;
    g->provider = BY_GEMM_OWN;
    if (cpu_gemm_is_skinny(&g->desc))
        return BY_OK;
#ifdef BY_HAVE_DNNL
    if (cpu->gemm == BY_GEMM_ONEDNN) {
        by_status s = cpu_dnnl_gemm_new(cpu->dnnl, cpu->isa, &g->desc, &g->dnnl);
        if (s == BY_OK)
            g->provider = BY_GEMM_ONEDNN;
        return s == BY_ERR_UNSUPPORTED ? BY_OK : s;
    }
#endif
#ifdef BY_HAVE_OPENBLAS
    if (cpu->gemm == BY_GEMM_OPENBLAS && cpu_blas_takes(&g->desc))
        g->provider = BY_GEMM_OPENBLAS;
#endif
    return BY_OK;
}

static size_t scratch_of(const cpu_gemm *g)
{
#ifdef BY_HAVE_DNNL
    if (g->provider == BY_GEMM_ONEDNN)
        return cpu_dnnl_gemm_scratch(g->dnnl);
#endif
    return g->provider == BY_GEMM_OWN ? g->own->scratch(&g->desc, g->device->threads) : 0;
}

/* Choose, and make the device's scratch memory large enough. */
static by_status plan(cpu_gemm *g)
{
    by_device *d = g->device;
    g->threads = d->threads;
    int before = threads_lend(d->threads);
    by_status s = choose(g);
    threads_restore(before, d->threads);
    if (s != BY_OK)
        return s;
    g->scratch = scratch_of(g);
    void *memory = g->scratch ? cpu_scratch_take(d, g->scratch) : NULL;
    if (g->scratch && !memory)
        s = BY_ERR_MEMORY;
    cpu_scratch_give(d, memory);
    return s;
}

/* Plan a product on a device that outlives it. The device's scratch memory is made large enough here, so that
 * a run does not fail for want of it. Release with cpu_gemm_free. */
cpu_gemm *cpu_gemm_new(by_device *d, const cpu_gemm_desc *desc)
{
    const cpu_context *cpu = d->impl;
    cpu_gemm_desc full = complete(desc);
    if (check(&full) != BY_OK)
        return NULL;
    cpu_gemm *g = base_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->device = d;
    g->desc = full;
    g->own = full.ab_type == BY_F64 ? cpu->own_reference : cpu->own;
    if (plan(g) != BY_OK) {
        cpu_gemm_free(g);
        return NULL;
    }
    return g;
}

static void unplan(cpu_gemm *g)
{
#ifdef BY_HAVE_DNNL
    cpu_dnnl_gemm_free(g->dnnl);
    g->dnnl = NULL;
#endif
}

void cpu_gemm_free(cpu_gemm *g)
{
    if (!g)
        return;
    unplan(g);
    base_free(g);
}

/* Not for two threads at once with the same plan. a, b and bias are only read; c may not overlap them. */
by_status cpu_gemm_run(cpu_gemm *g, const void *a, const void *b, const void *bias, void *c)
{
    by_status s = BY_OK;
    int threads = g->device->threads;
    void *scratch = NULL;
    if (g->threads != threads) { /* a child of fork() has fewer: the libraries plan for a number */
        unplan(g);
        BY_TRY(plan(g));
    }
    if (g->scratch && !(scratch = cpu_scratch_take(g->device, g->scratch)))
        return BY_ERR_MEMORY;
    if (g->provider == BY_GEMM_OWN) {
        g->own->run(&g->desc, threads, a, b, bias, c, scratch);
    } else {
        int before = threads_lend(threads);
#ifdef BY_HAVE_DNNL
        if (g->provider == BY_GEMM_ONEDNN)
            s = cpu_dnnl_gemm_run(g->dnnl, a, b, bias, c, scratch, g->device->changes);
#endif
#ifdef BY_HAVE_OPENBLAS
        if (g->provider == BY_GEMM_OPENBLAS) {
            cpu_blas_run(&g->desc, threads, a, b, c);
            if (g->desc.bias || g->desc.act != BY_ACT_NONE)
                g->own->finish(&g->desc, threads, bias, c);
        }
#endif
        threads_restore(before, threads);
    }
    cpu_scratch_give(g->device, scratch);
    return s;
}
