/* backend.c - the CPU device: selects the kernels for the processor, manages memory, and runs the nodes of a
 * program. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/gemm_select.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { MAX_THREADS = 1024, HUGE_FROM = 4 << 20 };

/* ---- scratch memory -------------------------------------------------------------------------- */

typedef struct block {
    struct block *next;
    size_t bytes; /* size of the data after the header */
} block;
enum { HEADER = 64 }; /* keeps the data after it aligned */

struct tok_scratch_pool {
    pthread_mutex_t lock;
    block *spare;
};

void *cpu_scratch_take(by_device *d, size_t bytes)
{
    struct tok_scratch_pool *pool = ((cpu_context *)d->impl)->scratch;
    pthread_mutex_lock(&pool->lock);
    block *b = pool->spare;
    if (b)
        pool->spare = b->next;
    pthread_mutex_unlock(&pool->lock);
    if (!b || b->bytes < bytes) {
        size_t all;
        base_free(b);
        if (!base_add_size(bytes, HEADER, &all)) {
            base_fail(BY_ERR_MEMORY, "out of memory: no scratch block of %zu bytes", bytes);
            return NULL;
        }
        b = base_alloc_aligned(all);
        if (!b)
            return NULL;
        b->bytes = bytes;
    }
    return (char *)b + HEADER;
}

void cpu_scratch_give(by_device *d, void *memory)
{
    if (!memory)
        return;
    struct tok_scratch_pool *pool = ((cpu_context *)d->impl)->scratch;
    block *b = (block *)((char *)memory - HEADER);
    pthread_mutex_lock(&pool->lock);
    b->next = pool->spare;
    pool->spare = b;
    pthread_mutex_unlock(&pool->lock);
}

static void pool_free(struct tok_scratch_pool *pool)
{
    if (!pool)
        return;
    while (pool->spare) {
        block *b = pool->spare;
        pool->spare = b->next;
        base_free(b);
    }
    pthread_mutex_destroy(&pool->lock);
    base_free(pool);
}

/* ---- memory of tensors ----------------------------------------------------------------------- */

/* The block comes from calloc, so that untouched pages cost nothing; its original address is stored before
 * the aligned one. */
static by_status cpu_alloc(by_device *d, size_t bytes, void **out)
{
    (void)d;
    size_t all;
    if (!base_add_size(bytes, HEADER + sizeof(void *), &all))
        return base_fail(BY_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
    char *raw = base_alloc_zero(1, all);
    if (!raw)
        return BY_ERR_MEMORY;
    uintptr_t at = ((uintptr_t)raw + sizeof(void *) + HEADER - 1) & ~(uintptr_t)(HEADER - 1);
    char *memory = raw + (at - (uintptr_t)raw);
    memcpy(memory - sizeof raw, &raw, sizeof raw);
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_FROM) { /* only advice: a failure changes nothing */
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (at + page - 1) / page * page,
                  end = (at + bytes) / page * page;
        (void)madvise(memory + (start - at), end - start, MADV_HUGEPAGE);
    }
#endif
    *out = memory;
    return BY_OK;
}

static void cpu_release(by_device *d, void *memory)
{
    (void)d;
    if (!memory)
        return;
    char *raw;
    memcpy(&raw, (char *)memory - sizeof raw, sizeof raw);
    base_free(raw);
}

static by_status cpu_copy(by_device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    if (bytes)
        memcpy(to, from, bytes);
    return BY_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool touches_f64(const gr_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && n->in[i]->type == BY_F64)
            return true;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] && n->out[i]->type == BY_F64)
            return true;
    return false;
}

static by_status in_node(const gr_node *n)
{
    return base_fail_context("%s '%s'", gr_ops[n->op].name,
                             n->out[0]  ? gr_tensor_label(n->out[0])
                             : n->scope ? n->scope
                                        : "");
}

static void cpu_forget(by_program *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        cpu_gemm_free(p->graph->nodes[i]->plan);
        p->graph->nodes[i]->plan = NULL;
    }
}

static cpu_kernel kernel_of(const by_program *p, const gr_node *n)
{
    const cpu_context *cpu = p->device->impl;
    return (touches_f64(n) ? cpu->reference : cpu->table)[n->op];
}

static by_status cpu_prepare(by_program *p)
{
    gr_exec e = {.device = p->device, .threads = p->device->threads, .planning = true};
    for (int i = 0; i < p->graph->n_nodes; i++) {
        gr_node *n = p->graph->nodes[i];
        if (gr_ops[n->op].product && kernel_of(p, n)(&e, n) != BY_OK) {
            by_status s = in_node(n);
            cpu_forget(p);
            return s;
        }
    }
    return BY_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Computes the 2-norm and the index of the first NaN or infinity of a tensor of any type. */
static void examine(const by_tensor *t, by_trace_entry *entry)
{
    double chunk[256], sum = 0;
    const int64_t count = gr_tensor_rows(t) * gr_tensor_cols(t), size = (int64_t)by_dtype_size(t->type);
    for (int64_t i = 0; i < count; i += BY_COUNT(chunk)) {
        int64_t w = BY_MIN(BY_COUNT(chunk), count - i);
        base_convert(chunk, BY_F64, (const char *)t->data + i * size, t->type, (size_t)w);
        for (int64_t j = 0; j < w; j++) {
            if (entry->first_bad < 0 && !isfinite(chunk[j]))
                entry->first_bad = i + j;
            sum += chunk[j] * chunk[j];
        }
    }
    entry->norm = sqrt(sum);
}

static void trace(by_program *p, const gr_node *n, double seconds)
{
    char shape[128] = "";
    const by_tensor *y = n->out[0];
    gr_cost cost = gr_ops[n->op].cost(n);
    by_trace_entry entry = {.index = n->index,
                            .op = gr_ops[n->op].name,
                            .name = y          ? gr_tensor_label(y)
                                    : n->scope ? n->scope
                                               : "",
                            .shape = y ? gr_shape_text(y, shape, sizeof shape) : "",
                            .first_bad = -1,
                            .seconds = seconds,
                            .flops = cost.flops,
                            .bytes = cost.bytes};
    if (p->only_times)
        entry.norm = NAN;
    else if (y)
        examine(y, &entry);
    p->trace(p->trace_user, &entry);
}

static by_status cpu_run(by_program *p)
{
    p->device->threads = base_team(p->device->threads);
    gr_exec e = {.device = p->device, .seed = p->seed, .step = p->step, .threads = p->device->threads};
    for (int i = 0; i < p->graph->n_nodes; i++) {
        gr_node *n = p->graph->nodes[i];
        double start = p->trace ? base_seconds() : 0;
        if (kernel_of(p, n)(&e, n) != BY_OK)
            return in_node(n);
        if (p->trace)
            trace(p, n, base_seconds() - start);
    }
    return BY_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The kernel sets of this build; a set that it lacks has no table. */
static const struct isa {
    const char *name;
    const cpu_kernel *table;
    const cpu_gemm_own *own;
} isas[BY_ISA_COUNT] = {
    [BY_ISA_GENERIC] = {"generic", cpu_table_generic, &cpu_gemm_own_generic},
#ifdef BY_HAVE_ISA_AVX2
    [BY_ISA_AVX2] = {"avx2", cpu_table_avx2, &cpu_gemm_own_avx2},
#else
    [BY_ISA_AVX2] = {"avx2", NULL, NULL},
#endif
#ifdef BY_HAVE_ISA_AVX512
    [BY_ISA_AVX512] = {"avx512", cpu_table_avx512, &cpu_gemm_own_avx512},
#else
    [BY_ISA_AVX512] = {"avx512", NULL, NULL},
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
    [BY_ISA_AVX512BF16] = {"avx512bf16", cpu_table_avx512bf16, &cpu_gemm_own_avx512bf16},
#else
    [BY_ISA_AVX512BF16] = {"avx512bf16", NULL, NULL},
#endif
};

/* Returns the highest set that both the processor and this build support. Every processor with AVX2 and FMA
 * has F16C. */
static int best_isa(void)
{
    int best = BY_ISA_GENERIC;
#if defined(__x86_64__)
    bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
    best = bf16 ? BY_ISA_AVX512BF16 : avx512 ? BY_ISA_AVX512 : avx2 ? BY_ISA_AVX2 : BY_ISA_GENERIC;
#endif
    while (!isas[best].table)
        best--;
    return best;
}

/* Selects the instruction set: by name, otherwise by the environment variable BANYAN_ISA, otherwise the best
 * one. */
static by_status choose_isa(const char *asked, int *out)
{
    *out = best_isa();
    if (!asked)
        asked = getenv("BANYAN_ISA");
    if (!asked || !*asked)
        return BY_OK;
    for (int i = 0; i < BY_ISA_COUNT; i++)
        if (strcmp(asked, isas[i].name) == 0) {
            if (i > *out || !isas[i].table)
                return base_fail(BY_ERR_UNSUPPORTED,
                                 "no %s kernels: this processor or build supports up to %s", asked,
                                 isas[*out].name);
            *out = i;
            return BY_OK;
        }
    return base_fail(BY_ERR_ARGUMENT,
                     "unknown instruction set %s; available: generic, avx2, avx512, avx512bf16", asked);
}

/* BANYAN_GEMM=own|openblas|onednn selects a provider of matrix products other than the best of this build. */
static by_status choose_gemm(int *out)
{
    static const char *const names[BY_GEMM_COUNT] = {"own", "openblas", "onednn"};
    const char *asked = getenv("BANYAN_GEMM");
    *out = BY_GEMM_COUNT - 1;
    while (!cpu_gemm_library(*out))
        --*out;
    if (!asked || !*asked)
        return BY_OK;
    for (int i = 0; i < BY_GEMM_COUNT; i++)
        if (strcmp(asked, names[i]) == 0) {
            *out = i;
            return cpu_gemm_library(i)
                       ? BY_OK
                       : base_fail(BY_ERR_UNSUPPORTED, "BANYAN_GEMM=%s: not in this build", asked);
        }
    return base_fail(BY_ERR_ARGUMENT, "BANYAN_GEMM=%s: not one of own, openblas, onednn", asked);
}

static by_status choose_threads(int asked, int *out)
{
    if (asked < 0 || asked > MAX_THREADS)
        return base_fail(BY_ERR_ARGUMENT, "%d threads: not between 0 (every core) and %d", asked,
                         MAX_THREADS);
#ifdef _OPENMP
    *out = asked ? asked : BY_MIN(omp_get_num_procs(), MAX_THREADS);
#else
    *out = 1;
#endif
    return BY_OK;
}

static void cpu_close(by_device *d)
{
    cpu_context *cpu = d->impl;
    if (!cpu)
        return;
#ifdef BY_HAVE_DNNL
    cpu_dnnl_close(cpu->dnnl);
#endif
    pool_free(cpu->scratch);
    base_free(cpu);
    d->impl = NULL;
}

const gr_backend cpu_backend = {.name = "cpu",
                                .alloc = cpu_alloc,
                                .release = cpu_release,
                                .upload = cpu_copy,
                                .download = cpu_copy,
                                .copy = cpu_copy,
                                .prepare = cpu_prepare,
                                .run = cpu_run,
                                .forget = cpu_forget,
                                .close = cpu_close};

/* Initialises d as the CPU: backend, threads (0: one per core), description and impl; isa may be NULL. On
 * failure d->impl is NULL and nothing is allocated. */
by_status gr_cpu_open(by_device *d, const char *isa, int threads)
{
    cpu_context cpu = {0};
    d->impl = NULL;
    BY_TRY(choose_isa(isa, &cpu.isa));
    BY_TRY(choose_gemm(&cpu.gemm));
    BY_TRY(choose_threads(threads, &d->threads));
    cpu.table = isas[cpu.isa].table;
    cpu.own = isas[cpu.isa].own;
    cpu.reference = isas[BY_ISA_GENERIC].table;
    cpu.own_reference = isas[BY_ISA_GENERIC].own;
    cpu.scratch = base_alloc_zero(1, sizeof *cpu.scratch);
    if (!cpu.scratch)
        return BY_ERR_MEMORY;
    if (pthread_mutex_init(&cpu.scratch->lock, NULL) != 0) {
        base_free(cpu.scratch);
        return base_fail(BY_ERR_MEMORY, "cannot create a mutex");
    }
    d->impl = base_alloc_zero(1, sizeof cpu);
    if (!d->impl) {
        pool_free(cpu.scratch);
        return BY_ERR_MEMORY;
    }
    memcpy(d->impl, &cpu, sizeof cpu);
#ifdef BY_HAVE_DNNL
    if (cpu.gemm == BY_GEMM_ONEDNN && cpu_dnnl_open(&((cpu_context *)d->impl)->dnnl) != BY_OK) {
        cpu_close(d);
        return base_error_status();
    }
#endif
    d->backend = &cpu_backend;
    d->on_host = true;
    base_format(d->description, sizeof d->description, "cpu: %s, %s, %d thread%s", isas[cpu.isa].name,
                cpu_gemm_library(cpu.gemm), d->threads, d->threads == 1 ? "" : "s");
    return BY_OK;
}
