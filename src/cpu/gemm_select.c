/* gemm_select.c - selects the provider of a matrix product: our own kernels for few rows, oneDNN or OpenBLAS
 * if they have fast code, and our own for everything else. */
#include "cpu/gemm_select.h"

#ifdef _OPENMP
#include <omp.h>
#endif

struct cpu_gemm {
    by_device *device;
    cpu_gemm_desc desc; /* with defaults resolved */
    const cpu_gemm_own *own;
    int provider;
    int threads; /* the number it is planned for */
    cpu_dnnl_gemm *dnnl;
    size_t scratch;
    /* b of another type: */
    bool direct;   /* our own kernels read it as it is; else it is converted, `panel` columns at a time */
    int64_t panel; /* a multiple of the block */
    cpu_gemm *parts[2]; /* the products of a panel, and of what is left after the last whole one */
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

/* The libraries ask OpenMP how many threads to use. The number is a property of the calling thread: set it
 * temporarily, then restore it. */
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

/* Resolves the defaults. */
static cpu_gemm_desc complete(const cpu_gemm_desc *desc)
{
    cpu_gemm_desc d = *desc;
    d.lda = d.lda ? d.lda : BY_MAX(d.ta ? d.m : d.k, 1);
    d.ldb = d.ldb ? d.ldb : BY_MAX(d.tb ? d.k : d.n, 1);
    d.ldc = d.ldc ? d.ldc : BY_MAX(d.n, 1);
    d.batch = d.batch ? d.batch : 1;
    d.b_type = d.b_type ? d.b_type : d.ab_type;
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
    types = types && (d->b_type == d->ab_type || (d->batch == 1 && !d->ta && !d->accumulate));
    if (sizes && strides && types && !(d->accumulate && d->act != BY_ACT_NONE))
        return BY_OK;
    return base_fail(
        BY_ERR_ARGUMENT,
        "no matrix product of (%lld, %lld) and (%lld, %lld), %s to %s, with strides %lld, %lld, %lld",
        (long long)d->m, (long long)d->k, (long long)d->k, (long long)d->n, by_dtype_name(d->ab_type),
        by_dtype_name(d->c_type), (long long)d->lda, (long long)d->ldb, (long long)d->ldc);
}

/* Sets g->provider, and creates the library's plan. */
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

/* ---- b of another type ----------------------------------------------------------------------- */

static bool is_stored(const cpu_gemm_desc *d)
{
    return d->b_type != d->ab_type;
}

/* Few rows read b once: converting it first would read and write it twice more. */
static by_status plan_stored(cpu_gemm *g)
{
    enum { PANEL = 1 << 20 }; /* elements converted at a time, which a cache holds */
    const cpu_gemm_desc *d = &g->desc;
    g->direct = cpu_gemm_is_skinny(d) && d->ab_type != BY_F64 && (d->tb ? d->k : d->n) % BASE_BLOCK == 0;
    if (g->direct) {
        g->scratch = g->own->stored->scratch(d);
        return BY_OK;
    }
    const int64_t most = BY_MAX(PANEL / BY_MAX(d->k, 1) / BASE_BLOCK, 1) * BASE_BLOCK;
    g->panel = BY_MAX(BY_MIN(d->n, most), 1);
    cpu_gemm_desc part = *d;
    part.b_type = d->ab_type;
    part.fixed = false;
    part.ldb = part.stride_a = part.stride_b = part.stride_c = 0;
    for (int i = 0; i < 2; i++) {
        part.n = i ? d->n % g->panel : g->panel;
        g->parts[i] = part.n && d->n ? cpu_gemm_new(g->device, &part) : NULL;
        if (!g->parts[i] && part.n && d->n)
            return base_error_status();
    }
    g->scratch = (size_t)(g->panel * d->k) * by_dtype_size(d->ab_type);
    return BY_OK;
}

/* b stored (n, k): columns of c are rows of b. Stored (k, n): columns of b too. */
static by_status run_panels(cpu_gemm *g, const void *a, const void *b, const void *bias, void *c, void *dense)
{
    const cpu_gemm_desc *d = &g->desc;
    const size_t row = by_dtype_bytes(d->b_type, (size_t)d->ldb);
    by_status s = BY_OK;
    for (int64_t at = 0; at < d->n && s == BY_OK; at += g->panel) {
        const int64_t n = BY_MIN(g->panel, d->n - at);
        const char *from =
            (const char *)b + (d->tb ? (size_t)at * row : by_dtype_bytes(d->b_type, (size_t)at));
        g->own->stored->unpack(g->device->threads, d->tb ? n : d->k, d->tb ? d->k : n, from, d->b_type, row,
                               dense, d->ab_type);
        s = cpu_gemm_run(g->parts[n < g->panel], a, dense,
                         bias ? (const char *)bias + (size_t)at * by_dtype_size(d->bias_type) : NULL,
                         (char *)c + (size_t)at * by_dtype_size(d->c_type));
    }
    return s;
}

static by_status run_stored(cpu_gemm *g, const void *a, const void *b, const void *bias, void *c)
{
    void *scratch = cpu_scratch_take(g->device, g->scratch);
    if (!scratch)
        return BY_ERR_MEMORY;
    by_status s = BY_OK;
    if (g->direct)
        g->own->stored->run(&g->desc, g->device->threads, a, b, bias, c, scratch);
    else
        s = run_panels(g, a, b, bias, c, scratch);
    cpu_scratch_give(g->device, scratch);
    return s;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Choose, and make the device's scratch memory large enough. */
static by_status plan(cpu_gemm *g)
{
    by_device *d = g->device;
    g->threads = d->threads;
    int before = threads_lend(d->threads);
    by_status s = is_stored(&g->desc) ? plan_stored(g) : choose(g);
    threads_restore(before, d->threads);
    if (s != BY_OK)
        return s;
    if (!is_stored(&g->desc))
        g->scratch = scratch_of(g);
    void *memory = g->scratch ? cpu_scratch_take(d, g->scratch) : NULL;
    if (g->scratch && !memory)
        s = BY_ERR_MEMORY;
    cpu_scratch_give(d, memory);
    return s;
}

/* Plans a product on a device, which must outlive it. Makes the device's scratch memory large enough, so that
 * a run cannot fail for lack of it. Release with cpu_gemm_free. */
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
    cpu_gemm_free(g->parts[0]);
    cpu_gemm_free(g->parts[1]);
    unplan(g);
    base_free(g);
}

/* A plan must not be run by two threads at once. a, b and bias are only read; c must not overlap them. */
by_status cpu_gemm_run(cpu_gemm *g, const void *a, const void *b, const void *bias, void *c)
{
    by_status s = BY_OK;
    int threads = g->device->threads;
    void *scratch = NULL;
    if (is_stored(&g->desc))
        return run_stored(g, a, b, bias, c);
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

/* ---- the products of nodes ------------------------------------------------------------------- */

/* x (R, K), w, [b] -> y (R, N). If `pre` is wanted, it is written first: the result without the
 * activation. */
static cpu_gemm_desc linear_desc(const gr_node *n)
{
    const gr_linear_attr *attr = n->attr;
    const by_tensor *x = n->in[0], *bias = n->in[2], *to = n->out[1] ? n->out[1] : n->out[0];
    return (cpu_gemm_desc){.m = gr_tensor_rows(x),
                           .n = gr_tensor_cols(to),
                           .k = gr_tensor_cols(x),
                           .tb = !attr->w_is_kn,
                           .ab_type = x->type,
                           .b_type = n->in[1]->type,
                           .c_type = to->type,
                           .bias = bias != NULL,
                           .bias_type = bias ? bias->type : x->type,
                           .act = n->out[1] ? BY_ACT_NONE : attr->act};
}

/* dy (R, N), w -> dx (R, K) */
static cpu_gemm_desc linear_dx_desc(const gr_node *n)
{
    const gr_linear_attr *attr = n->attr;
    return (cpu_gemm_desc){.m = gr_tensor_rows(n->in[0]),
                           .n = gr_tensor_cols(n->out[0]),
                           .k = gr_tensor_cols(n->in[0]),
                           .tb = attr->w_is_kn,
                           .ab_type = n->in[0]->type,
                           .b_type = n->in[1]->type,
                           .c_type = n->out[0]->type};
}

/* x (R, K), dy (R, N) -> dw: x^T dy (K, N), or dy^T x (N, K) */
static cpu_gemm_desc linear_dw_desc(const gr_node *n)
{
    const gr_linear_attr *attr = n->attr;
    int64_t wide_x = gr_tensor_cols(n->in[0]), wide_dy = gr_tensor_cols(n->in[1]);
    return (cpu_gemm_desc){.m = attr->w_is_kn ? wide_x : wide_dy,
                           .n = attr->w_is_kn ? wide_dy : wide_x,
                           .k = gr_tensor_rows(n->in[0]),
                           .ta = true,
                           .ab_type = n->in[0]->type,
                           .c_type = n->out[0]->type,
                           .accumulate = n->in[2] != NULL};
}

static cpu_gemm_desc matmul_desc(const gr_node *n)
{
    const gr_matmul_attr *attr = n->attr;
    const by_tensor *a = n->in[0], *y = n->out[0];
    int64_t batch = 1;
    for (int i = 0; i < y->rank - 2; i++)
        batch *= y->dim[i];
    return (cpu_gemm_desc){.m = y->dim[y->rank - 2],
                           .n = y->dim[y->rank - 1],
                           .k = a->dim[a->rank - (attr->ta ? 2 : 1)],
                           .ta = attr->ta,
                           .tb = attr->tb,
                           .batch = batch,
                           .ab_type = a->type,
                           .c_type = y->type};
}

static by_status plan_node(by_device *d, gr_node *n, const cpu_gemm_desc *desc)
{
    n->plan = cpu_gemm_new(d, desc);
    return n->plan ? BY_OK : base_error_status();
}

/* A weight that is not trained is worth packing, but not under an adapter that is: a copy of the body is what
 * adapters avoid. */
by_status cpu_plan_linear(by_device *d, gr_node *n)
{
    cpu_gemm_desc desc = linear_desc(n);
    desc.fixed = n->in[1]->place == GR_PLACE_PARAM && !n->in[1]->params->training && !n->graph->training;
    return plan_node(d, n, &desc);
}

by_status cpu_plan_linear_dx(by_device *d, gr_node *n)
{
    const cpu_gemm_desc desc = linear_dx_desc(n);
    return plan_node(d, n, &desc);
}

by_status cpu_plan_linear_dw(by_device *d, gr_node *n)
{
    if (!n->out[0])
        return BY_OK;
    const cpu_gemm_desc desc = linear_dw_desc(n);
    return plan_node(d, n, &desc);
}

by_status cpu_plan_matmul(by_device *d, gr_node *n)
{
    const cpu_gemm_desc desc = matmul_desc(n);
    return plan_node(d, n, &desc);
}
