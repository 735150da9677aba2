/* gemm_dnnl.c - matrix products by oneDNN: one matmul primitive per product, with bias, activation and
 * accumulation fused. Works with the C interfaces of oneDNN 2 and 3; the first section hides their
 * differences. */
#ifdef BY_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cpu/gemm_select.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *cpu_dnnl_name(void)
{
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

/* ---- oneDNN 2 and 3: memory descriptors are structs in the former and handles in the latter ---- */

typedef struct layouts {
    dnnl_memory_desc_t a, b, bias, c;
    bool has_bias;
} layouts;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_ref, memory_layout; /* the second as returned by a memory object */
#define REF(layout) (layout)

static dnnl_status_t layout_set(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type,
                                const int64_t *strides)
{
    return dnnl_memory_desc_create_with_strides(l, rank, dims, type, strides);
}

static dnnl_status_t layout_any(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type)
{
    return dnnl_memory_desc_create_with_tag(l, rank, dims, type, dnnl_format_tag_any);
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
typedef const dnnl_memory_desc_t *layout_ref, *memory_layout; /* the second as returned by a memory object */
#define REF(layout) (&(layout))

static dnnl_status_t layout_set(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type,
                                const int64_t *strides)
{
    return dnnl_memory_desc_init_by_strides(l, rank, dims, type, strides);
}

static dnnl_status_t layout_any(dnnl_memory_desc_t *l, int rank, const int64_t *dims, dnnl_data_type_t type)
{
    return dnnl_memory_desc_init_by_tag(l, rank, dims, type, dnnl_format_tag_any);
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

/* ---- the guard: if an allocation fails, oneDNN throws through our frames or writes to NULL ---- */

static dnnl_status_t leave(dnnl_status_t s)
{
    return base_reserve_leave() == BY_OK || s != dnnl_success ? s : dnnl_out_of_memory;
}

/* Calls oneDNN with memory in reserve. PLAN is for calls that may also generate code, which is mapped. */
#define CALL(call) (base_reserve_enter() == BY_OK ? leave(call) : dnnl_out_of_memory)
#define PLAN(call) (base_reserve_enter_to_map() == BY_OK ? leave(call) : dnnl_out_of_memory)

/* ---- products -------------------------------------------------------------------------------- */

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARG_COUNT };
static const int arg_ids[ARG_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                       DNNL_ARG_SCRATCHPAD};

/* A matrix b in the layout that oneDNN prefers, shared by the products that use it. */
typedef struct packed {
    struct packed *next;
    const void *from;
    void *data;
    dnnl_memory_t memory; /* wraps data */
    uint64_t changes;     /* by_device.changes when it was packed */
    int users;
} packed;

/* oneDNN on the CPU, shared by every product of a device. */
struct cpu_dnnl {
    dnnl_engine_t engine;
    pthread_mutex_t lock; /* protects the list */
    packed *list;
};

/* A primitive with its memory objects, whose addresses are set at each run. */
typedef struct way {
    dnnl_primitive_t primitive;      /* NULL: not available */
    dnnl_memory_t memory[ARG_COUNT]; /* NULL: no such argument */
    size_t scratch;
} way;

struct cpu_dnnl_gemm {
    struct cpu_dnnl *library;
    dnnl_stream_t stream;
    way plain, fast; /* with b as stored, and with b packed: for products that run repeatedly */
    packed *b;       /* packed b of the fast way; NULL: not yet */
    int runs;        /* counts up to PACK_AFTER */
};

enum { PACK_AFTER = 3 }; /* runs before a matrix is packed, which needs a copy and takes longer than a run */

/* Linux grants the tile registers (AMX) only to processes that request them, and some virtual machines have
 * them without their description (CPUID leaf 0x1d), from which oneDNN configures them. In both cases its tile
 * kernels would kill the process; without tiles it uses AVX-512. */
static void ask_for_tiles(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST = 0x1023, TILE_DATA = 18, FEATURES = 7, TILES = 0x1d, HAS_TILES = 1 << 24 };
    unsigned a, b, c, d, palettes = 0;
    if (!__get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) || !(d & HAS_TILES))
        return;
    __get_cpuid_count(TILES, 0, &palettes, &b, &c, &d);
    if (palettes == 0 || syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
}

by_status cpu_dnnl_open(struct cpu_dnnl **out)
{
    struct cpu_dnnl *d = base_alloc_zero(1, sizeof *d);
    if (!d)
        return BY_ERR_MEMORY;
    base_reserve_open();
    ask_for_tiles();
    dnnl_status_t s = PLAN(dnnl_engine_create(&d->engine, dnnl_cpu, 0));
    if (s != dnnl_success || pthread_mutex_init(&d->lock, NULL) != 0) {
        if (d->engine)
            dnnl_engine_destroy(d->engine);
        base_reserve_close();
        base_free(d);
        return s == dnnl_out_of_memory
                   ? base_fail(BY_ERR_MEMORY, "%s: out of memory", cpu_dnnl_name())
                   : base_fail(BY_ERR_UNSUPPORTED, "%s: no CPU engine (status %d)", cpu_dnnl_name(), (int)s);
    }
    *out = d;
    return BY_OK;
}

void cpu_dnnl_close(struct cpu_dnnl *d)
{
    if (!d)
        return;
    dnnl_engine_destroy(d->engine);
    pthread_mutex_destroy(&d->lock);
    base_reserve_close();
    base_free(d);
}

static dnnl_data_type_t type_of(by_dtype t)
{
    return t == BY_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Accepts only types with fast code: f32, and bf16 if the processor has 16-bit instructions of 512 bits. */
static bool takes(const cpu_gemm_desc *d, int isa)
{
    bool f32 = d->ab_type == BY_F32 && d->c_type == BY_F32;
    bool bf16 =
        d->ab_type == BY_BF16 && (d->c_type == BY_BF16 || d->c_type == BY_F32) && isa >= BY_ISA_AVX512;
    bool bias = !d->bias || d->bias_type == BY_F32 || (bf16 && d->bias_type == BY_BF16);
    return (f32 || bf16) && bias && d->m > 0 && d->n > 0 && d->k > 0;
}

/* Matrices as (rows, cols), or (batch, rows, cols) when there is more than one. */
static dnnl_status_t matrix(dnnl_memory_desc_t *l, const cpu_gemm_desc *d, int64_t rows, int64_t cols,
                            int64_t row_stride, int64_t col_stride, int64_t batch_stride, by_dtype type)
{
    dnnl_dims_t dims = {d->batch, rows, cols}, strides = {batch_stride, row_stride, col_stride};
    int skip = d->batch == 1;
    return layout_set(l, 3 - skip, dims + skip, type_of(type), strides + skip);
}

static dnnl_status_t layouts_set(layouts *l, const cpu_gemm_desc *d, bool any)
{
    dnnl_status_t s =
        matrix(&l->a, d, d->m, d->k, d->ta ? 1 : d->lda, d->ta ? d->lda : 1, d->stride_a, d->ab_type);
    if (s == dnnl_success && any)
        s = layout_any(&l->b, 2, (dnnl_dims_t){d->k, d->n}, type_of(d->ab_type));
    else if (s == dnnl_success)
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

/* Sets the attributes. Scratch memory is ours, because oneDNN's own belongs to the thread that created the
 * primitive, and programs may run on a different thread than they were compiled on. */
static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, const cpu_gemm_desc *d)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = CALL(dnnl_primitive_attr_create(attr));
    if (s == dnnl_success)
        s = CALL(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
    if (s == dnnl_success)
        s = CALL(dnnl_post_ops_create(&ops));
    if (s == dnnl_success && d->accumulate)
        s = CALL(append_sum(ops));
    if (s == dnnl_success)
        s = CALL(append_act(ops, d->act));
    if (s == dnnl_success)
        s = CALL(dnnl_primitive_attr_set_post_ops(*attr, ops));
    dnnl_post_ops_destroy(ops);
    return s;
}

static void way_free(way *w)
{
    for (int i = 0; i < ARG_COUNT; i++)
        if (w->memory[i])
            dnnl_memory_destroy(w->memory[i]);
    if (w->primitive)
        dnnl_primitive_destroy(w->primitive);
    *w = (way){0};
}

static dnnl_status_t way_fill(way *w, dnnl_engine_t engine, const layouts *l, dnnl_primitive_desc_t pd)
{
    layout_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    layout_ref b = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    layout_ref refs[ARG_COUNT] = {REF(l->a), b, REF(l->c), l->has_bias ? REF(l->bias) : NULL, scratch};
    w->scratch = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (w->scratch == 0)
        refs[ARG_SCRATCH] = NULL;
    dnnl_status_t s = PLAN(dnnl_primitive_create(&w->primitive, pd));
    for (int i = 0; i < ARG_COUNT && s == dnnl_success; i++)
        if (refs[i])
            s = CALL(dnnl_memory_create(&w->memory[i], refs[i], engine, DNNL_MEMORY_NONE));
    return s;
}

/* One implementation of a product. any: oneDNN may choose the layout of b. */
static dnnl_status_t way_new(way *w, dnnl_engine_t engine, const cpu_gemm_desc *d, bool any)
{
    layouts l = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    const char *code = "";
    dnnl_status_t s = CALL(layouts_set(&l, d, any));
    if (s == dnnl_success)
        s = attributes(&attr, d);
    if (s == dnnl_success)
        s = PLAN(matmul_desc(&pd, engine, &l, attr));
    if (s == dnnl_success)
        s = PLAN(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &code));
    /* Its reference loops are slower than our kernels. */
    if (s == dnnl_success && strncmp(code, "ref", 3) == 0)
        s = dnnl_unimplemented;
    if (s == dnnl_success)
        s = way_fill(w, engine, &l, pd);
    if (s != dnnl_success)
        way_free(w);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    layouts_free(&l);
    return s;
}

static bool same_layout(dnnl_memory_t a, dnnl_memory_t b)
{
    memory_layout x, y;
    return dnnl_memory_get_memory_desc(a, &x) == dnnl_success &&
           dnnl_memory_get_memory_desc(b, &y) == dnnl_success && dnnl_memory_desc_equal(x, y);
}

/* Plans the fast way, if there is one and it differs. */
static void plan_packed(cpu_dnnl_gemm *g, const cpu_gemm_desc *d)
{
    if (way_new(&g->fast, g->library->engine, d, true) == dnnl_success &&
        same_layout(g->plain.memory[ARG_B], g->fast.memory[ARG_B]))
        way_free(&g->fast);
}

by_status cpu_dnnl_gemm_new(struct cpu_dnnl *library, int isa, const cpu_gemm_desc *d, cpu_dnnl_gemm **out)
{
    if (!takes(d, isa))
        return BY_ERR_UNSUPPORTED;
    cpu_dnnl_gemm *g = base_alloc_zero(1, sizeof *g);
    if (!g)
        return BY_ERR_MEMORY;
    g->library = library;
    dnnl_status_t s = way_new(&g->plain, library->engine, d, false);
    if (s == dnnl_success)
        s = CALL(dnnl_stream_create(&g->stream, library->engine, dnnl_stream_default_flags));
    if (s == dnnl_success && d->fixed && d->batch == 1)
        plan_packed(g, d);
    if (s != dnnl_success) {
        cpu_dnnl_gemm_free(g);
        if (s == dnnl_out_of_memory)
            return base_fail(BY_ERR_MEMORY, "%s: out of memory for a product of %lld x %lld x %lld",
                             cpu_dnnl_name(), (long long)d->m, (long long)d->k, (long long)d->n);
        return BY_ERR_UNSUPPORTED;
    }
    *out = g;
    return BY_OK;
}

size_t cpu_dnnl_gemm_scratch(const cpu_dnnl_gemm *g)
{
    return BY_MAX(g->plain.scratch, g->fast.scratch);
}

/* ---- packed matrices ------------------------------------------------------------------------- */

/* Copies b into the other layout. */
static dnnl_status_t pack(cpu_dnnl_gemm *g, const void *b, dnnl_memory_t to)
{
    memory_layout from_layout, to_layout;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t copy = NULL;
    dnnl_memory_t from = g->plain.memory[ARG_B];
    dnnl_status_t s = CALL(dnnl_memory_set_data_handle(from, (void *)(uintptr_t)b));
    if (s == dnnl_success)
        s = dnnl_memory_get_memory_desc(from, &from_layout);
    if (s == dnnl_success)
        s = dnnl_memory_get_memory_desc(to, &to_layout);
    if (s == dnnl_success)
        s = PLAN(dnnl_reorder_primitive_desc_create(&pd, from_layout, g->library->engine, to_layout,
                                                    g->library->engine, NULL));
    if (s == dnnl_success)
        s = PLAN(dnnl_primitive_create(&copy, pd));
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    if (s == dnnl_success)
        s = CALL(dnnl_primitive_execute(copy, g->stream, 2, args));
    if (s == dnnl_success)
        s = CALL(dnnl_stream_wait(g->stream));
    if (copy)
        dnnl_primitive_destroy(copy);
    dnnl_primitive_desc_destroy(pd);
    return s;
}

static void packed_free(packed *p)
{
    if (p->memory)
        dnnl_memory_destroy(p->memory);
    base_free(p->data);
    base_free(p);
}

static packed *packed_new(cpu_dnnl_gemm *g, const void *b)
{
    memory_layout layout;
    packed *p = base_alloc_zero(1, sizeof *p);
    dnnl_status_t s = p ? dnnl_memory_get_memory_desc(g->fast.memory[ARG_B], &layout) : dnnl_out_of_memory;
    if (s == dnnl_success && !(p->data = base_alloc_aligned(dnnl_memory_desc_get_size(layout))))
        s = dnnl_out_of_memory;
    if (s == dnnl_success)
        s = CALL(dnnl_memory_create(&p->memory, layout, g->library->engine, p->data));
    if (s == dnnl_success)
        s = pack(g, b, p->memory);
    if (s == dnnl_success) {
        p->from = b;
        return p;
    }
    if (p)
        packed_free(p);
    return NULL;
}

static void packed_release(struct cpu_dnnl *library, packed *p)
{
    pthread_mutex_lock(&library->lock);
    if (--p->users == 0) {
        packed **at = &library->list;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        packed_free(p);
    }
    pthread_mutex_unlock(&library->lock);
}

/* Returns the packed form of b, repacked if b has changed, or NULL if it is not available. */
static packed *packed_take(cpu_dnnl_gemm *g, const void *b, uint64_t changes)
{
    struct cpu_dnnl *library = g->library;
    pthread_mutex_lock(&library->lock);
    packed *p = library->list;
    while (p && (p->from != b || p->changes != changes || !same_layout(p->memory, g->fast.memory[ARG_B])))
        p = p->next;
    if (!p && (p = packed_new(g, b))) {
        p->changes = changes;
        p->next = library->list;
        library->list = p;
    }
    if (p)
        p->users++;
    pthread_mutex_unlock(&library->lock);
    return p;
}

/* Selects the implementation for this run: b is packed after a few uses. */
static way *choose_way(cpu_dnnl_gemm *g, const void *b, uint64_t changes)
{
    if (!g->fast.primitive || g->runs++ < PACK_AFTER)
        return &g->plain;
    g->runs = PACK_AFTER;
    if (g->b && (g->b->from != b || g->b->changes != changes)) {
        packed_release(g->library, g->b);
        g->b = NULL;
    }
    if (!g->b && !(g->b = packed_take(g, b, changes))) {
        way_free(&g->fast); /* not enough memory for it */
        return &g->plain;
    }
    return &g->fast;
}

void cpu_dnnl_gemm_free(cpu_dnnl_gemm *g)
{
    if (!g)
        return;
    if (g->b)
        packed_release(g->library, g->b);
    way_free(&g->plain);
    way_free(&g->fast);
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    base_free(g);
}

by_status cpu_dnnl_gemm_run(cpu_dnnl_gemm *g, const void *a, const void *b, const void *bias, void *c,
                            void *scratch, uint64_t changes)
{
    const void *address[ARG_COUNT] = {a, b, c, bias, scratch};
    dnnl_exec_arg_t args[ARG_COUNT];
    way *w = choose_way(g, b, changes);
    int n = 0;
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < ARG_COUNT && s == dnnl_success; i++) {
        if (!w->memory[i])
            continue;
        if (w == &g->fast && i == ARG_B) {
            args[n++] = (dnnl_exec_arg_t){arg_ids[i], g->b->memory};
            continue;
        }
        /* Inputs are only read. */
        s = CALL(dnnl_memory_set_data_handle(w->memory[i], (void *)(uintptr_t)address[i]));
        args[n++] = (dnnl_exec_arg_t){arg_ids[i], w->memory[i]};
    }
    if (s == dnnl_success)
        s = CALL(dnnl_primitive_execute(w->primitive, g->stream, n, args));
    if (s == dnnl_success)
        s = CALL(dnnl_stream_wait(g->stream));
    if (s == dnnl_out_of_memory)
        return base_fail(BY_ERR_MEMORY, "%s: out of memory in a product", cpu_dnnl_name());
    return s == dnnl_success
               ? BY_OK
               : base_fail(BY_ERR_UNSUPPORTED, "%s: matmul failed (status %d)", cpu_dnnl_name(), (int)s);
}

#else
typedef int cpu_no_dnnl; /* ISO C forbids an empty file */
#endif
