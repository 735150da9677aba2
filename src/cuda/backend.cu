/* backend.cu - an NVIDIA GPU as a device: opens it, manages its memory, and runs programs. The first run of a
 * program launches its kernels one by one; from the second on, they are launched together as one CUDA
 * graph. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cuda/cublas.cuh"
#include "cuda/kernels/fp8.cuh"
#include "cuda/kernels/resident.cuh"
#include "cuda/tune.cuh"

extern "C" {
by_status gr_cuda_open(by_device *d, const char *which, int threads);
}

/* The size of the product that measures the speed of the device. */
#ifdef BY_CUDA_EMULATE
enum { PROBE = 32 };
#else
enum { PROBE = 8192 };
#endif
enum { RESIDENT_LEAST = 1 << 30 }; /* bytes of weights */
enum { WORKSPACE = 64 << 20 };

by_status cuda_check(cudaError_t error, const char *what)
{
    return error == cudaSuccess
               ? BY_OK
               : base_fail(BY_ERR_DEVICE, "%s: the GPU reports \"%s\"", what, cudaGetErrorString(error));
}

static cuda_context *cuda_of(by_device *d)
{
    return (cuda_context *)d->impl;
}

/* by_program.plan */
typedef struct program_plan {
    struct program_plan *next; /* list of cuda_context.programs */
    const by_program *program;
    int first;           /* number of its first node */
    uint64_t *random;    /* device memory: seed, step */
    uint64_t seed, step; /* their current values */
    bool random_set;
    cuda_resident resident; /* nodes that one kernel does; from == to: none */
    int runs, generation;
    cudaGraphExec_t graph;
} program_plan;

/* ---- memory ------------------------------------------------------------------------------------ */

static by_status cuda_alloc(by_device *d, size_t bytes, void **out)
{
    cuda_context *c = cuda_of(d);
    cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error != cudaSuccess) {
        size_t unused = 0, total = 0;
        const double gib = 1 << 30;
        *out = NULL;
        (void)cudaGetLastError();
        cudaMemGetInfo(&unused, &total);
        return base_fail(
            BY_ERR_MEMORY,
            "out of GPU memory: %.2f GiB of %.2f are free, but %.2f GiB are needed, %.2f GiB more",
            (double)unused / gib, (double)total / gib, (double)bytes / gib,
            bytes > unused ? (double)(bytes - unused) / gib : 0.0);
    }
    return cuda_check(cudaMemsetAsync(*out, 0, bytes, c->stream), "clearing memory");
}

static void cuda_release(by_device *d, void *memory)
{
    if (!memory)
        return;
    cudaStreamSynchronize(cuda_of(d)->stream);
    cudaFree(memory);
}

/* Returns the node with this number, or NULL if its program no longer exists. */
static const gr_node *node_numbered(const cuda_context *c, int number)
{
    for (const program_plan *p = c->programs; p; p = p->next)
        if (number >= p->first && number - p->first < p->program->graph->n_nodes)
            return p->program->graph->nodes[number - p->first];
    return NULL;
}

/* Waits, and reports errors recorded by kernels since the last check. */
static by_status look_for_faults(cuda_context *c)
{
    const cuda_fault f = *c->fault;
    if (!f.set)
        return BY_OK;
    c->fault->set = 0;
    BY_TRY(cuda_check(cudaMemsetAsync(f.claim, 0, sizeof *f.claim, c->stream), "clearing memory"));
    const gr_node *n = node_numbered(c, f.node);
    const by_tensor *t = n && f.input < n->n_in ? n->in[f.input] : NULL;
    return base_fail(BY_ERR_ARGUMENT, "%s: element %lld is %d, outside [0, %lld)",
                     t ? gr_tensor_label(t) : "an index", (long long)f.place, (int)f.value,
                     (long long)f.limit);
}

static by_status wait_for(cuda_context *c, const char *what)
{
    c->busy = false;
    return cuda_check(cudaStreamSynchronize(c->stream), what);
}

static by_status cuda_download(by_device *d, void *to, const void *from, size_t bytes)
{
    cuda_context *c = cuda_of(d);
    BY_TRY(cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream),
                      "copying from the GPU"));
    BY_TRY(wait_for(c, "the GPU's work"));
    return look_for_faults(c);
}

static by_status copy_memory(by_device *d, void *to, const void *from, size_t bytes)
{
    return cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_of(d)->stream),
                      "copying on the GPU");
}

/* ---- working memory ---------------------------------------------------------------------------- */

void *cuda_scratch(cuda_exec *x, size_t bytes)
{
    x->scratch_needed = BY_MAX(x->scratch_needed, bytes);
    x->in_scratch = NULL;
    return x->cuda->scratch;
}

/* One block serves all programs, because they run one after the other. If it moves, the graphs that contain
 * its address are captured again. */
static by_status grow_scratch(by_device *d, size_t bytes)
{
    cuda_context *c = cuda_of(d);
    if (bytes <= c->scratch_bytes)
        return BY_OK;
    cuda_release(d, c->scratch);
    c->scratch = NULL;
    c->scratch_bytes = 0;
    c->generation++;
    BY_TRY(cuda_alloc(d, bytes, &c->scratch));
    c->scratch_bytes = bytes;
    return BY_OK;
}

/* ---- programs ---------------------------------------------------------------------------------- */

static by_status in_node(const gr_node *n)
{
    return base_fail_context("%s '%s'", gr_ops[n->op].name,
                             n->out[0]  ? gr_tensor_label(n->out[0])
                             : n->scope ? n->scope
                                        : "");
}

static by_status one_node(by_program *p, cuda_exec *x, int i)
{
    gr_node *n = p->graph->nodes[i];
    return n->absorbed || cuda_table[n->op](&x->base, n) == BY_OK ? BY_OK : in_node(n);
}

static by_status each_node(by_program *p, cuda_exec *x, bool dry)
{
    x->dry = dry;
    for (int i = 0; i < p->graph->n_nodes; i++) {
        const cuda_resident *r = &((program_plan *)p->plan)->resident;
        if (!dry && i == r->from && r->to > i) {
            BY_TRY(cuda_resident_run(x, r));
            i = r->to - 1;
            continue;
        }
        BY_TRY(one_node(p, x, i));
    }
    return BY_OK;
}

static cuda_exec exec_of(by_program *p)
{
    cuda_exec x = {};
    x.base.device = p->device;
    x.base.seed = p->seed;
    x.base.step = p->step;
    x.base.threads = 1;
    x.cuda = cuda_of(p->device);
    x.stream = x.cuda->stream;
    x.random = ((program_plan *)p->plan)->random;
    x.first_node = ((program_plan *)p->plan)->first;
    return x;
}

static void cuda_forget(by_program *p)
{
    program_plan *plan = (program_plan *)p->plan;
    if (!plan)
        return;
    cuda_context *c = cuda_of(p->device);
    cudaStreamSynchronize(c->stream);
    for (program_plan **at = &c->programs; *at; at = &(*at)->next)
        if (*at == plan) {
            *at = plan->next;
            break;
        }
    for (int i = 0; i < p->graph->n_nodes; i++) {
        gr_node *n = p->graph->nodes[i];
        if (n->plan)
            ((cuda_plan *)n->plan)->forget(n->plan);
        n->plan = NULL;
        n->absorbed = false;
    }
    if (plan->graph)
        cudaGraphExecDestroy(plan->graph);
    cuda_resident_forget(p, &plan->resident);
    cuda_release(p->device, plan->random);
    base_free(plan);
    p->plan = NULL;
}

static by_status prepare(by_program *p, program_plan *plan)
{
    void *random = NULL;
    BY_TRY(cuda_alloc(p->device, 2 * sizeof(uint64_t), &random));
    plan->random = (uint64_t *)random;
    cuda_exec x = exec_of(p);
    BY_TRY(each_node(p, &x, true));
    BY_TRY(cuda_resident_find(p, &x, &plan->resident));
    return grow_scratch(p->device, x.scratch_needed);
}

static by_status cuda_prepare(by_program *p)
{
    cuda_context *c = cuda_of(p->device);
    program_plan *plan = (program_plan *)base_alloc_zero(1, sizeof *plan);
    if (!plan)
        return BY_ERR_MEMORY;
    if (c->numbered > INT32_MAX - p->graph->n_nodes)
        c->numbered = 0;
    plan->program = p;
    plan->first = c->numbered;
    plan->next = c->programs;
    c->numbered += p->graph->n_nodes;
    c->programs = plan;
    p->plan = plan;
    return prepare(p, plan); /* forget() cleans up after a failure */
}

static by_status send_seed(by_program *p, program_plan *plan)
{
    if (plan->random_set && plan->seed == p->seed && plan->step == p->step)
        return BY_OK;
    uint64_t now[2] = {p->seed, p->step};
    plan->seed = p->seed;
    plan->step = p->step;
    plan->random_set = true;
    return cuda_upload(p->device, plan->random, now, sizeof now);
}

#ifdef BY_CUDA_EMULATE
static by_status capture(by_program *, program_plan *)
{
    return BY_OK;
}
#else
static by_status capture(by_program *p, program_plan *plan)
{
    cuda_context *c = cuda_of(p->device);
    cudaGraph_t graph = NULL;
    if (plan->graph)
        cudaGraphExecDestroy(plan->graph);
    plan->graph = NULL;
    BY_TRY(cuda_check(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
                      "capturing a program"));
    cuda_exec x = exec_of(p);
    by_status s = each_node(p, &x, false);
    cudaError_t error = cudaStreamEndCapture(c->stream, &graph);
    if (s == BY_OK)
        s = cuda_check(error, "capturing a program");
    if (s == BY_OK)
        s = cuda_check(cudaGraphInstantiate(&plan->graph, graph, 0), "instantiating the graph of a program");
    if (graph)
        cudaGraphDestroy(graph);
    plan->generation = c->generation;
    return s;
}
#endif

/* ---- tracing: node by node, each examined on the host ------------------------------------------- */

static by_status examine(by_device *d, const by_tensor *t, by_trace_entry *entry)
{
    const int64_t rows = gr_tensor_rows(t), cols = gr_tensor_cols(t), pitch = gr_tensor_pitch(t);
    const size_t size = by_dtype_size(t->type);
    char *host = (char *)base_alloc(gr_tensor_bytes(t) + 1);
    double *row = (double *)base_alloc((size_t)cols * sizeof *row + 1), sum = 0;
    by_status s = host && row ? cuda_download(d, host, t->data, gr_tensor_bytes(t)) : BY_ERR_MEMORY;
    for (int64_t r = 0; r < rows && s == BY_OK; r++) {
        base_convert(row, BY_F64, host + (size_t)(r * pitch) * size, t->type, (size_t)cols);
        for (int64_t i = 0; i < cols; i++) {
            if (entry->first_bad < 0 && !isfinite(row[i]))
                entry->first_bad = r * cols + i;
            sum += row[i] * row[i];
        }
    }
    entry->norm = sqrt(sum);
    base_free(host);
    base_free(row);
    return s;
}

static by_status trace(by_program *p, const gr_node *n, double seconds)
{
    const by_tensor *y = n->out[0];
    const gr_cost cost = gr_ops[n->op].cost(n);
    char shape[128] = "";
    by_trace_entry entry = {};
    entry.index = n->index;
    entry.op = gr_ops[n->op].name;
    entry.name = y ? gr_tensor_label(y) : n->scope ? n->scope : "";
    entry.shape = y ? gr_shape_text(y, shape, sizeof shape) : "";
    entry.first_bad = -1;
    entry.norm = NAN;
    entry.seconds = seconds;
    entry.flops = cost.flops;
    entry.bytes = cost.bytes;
    if (y && !p->only_times)
        BY_TRY(examine(p->device, y, &entry));
    p->trace(p->trace_user, &entry);
    return BY_OK;
}

static by_status traced_run(by_program *p)
{
    cuda_context *c = cuda_of(p->device);
    cuda_exec x = exec_of(p);
    for (int i = 0; i < p->graph->n_nodes; i++) {
        BY_TRY(wait_for(c, "tracing"));
        const double start = base_seconds();
        BY_TRY(one_node(p, &x, i));
        BY_TRY(wait_for(c, gr_ops[p->graph->nodes[i]->op].name));
        BY_TRY(trace(p, p->graph->nodes[i], base_seconds() - start));
    }
    return BY_OK;
}

/* Records an event after every node; the times between them are known at the end. */
static by_status timed_events(by_program *p, cudaEvent_t *events)
{
    cuda_context *c = cuda_of(p->device);
    cuda_exec x = exec_of(p);
    const int n = p->graph->n_nodes;
    for (int i = 0; i <= n; i++)
        BY_TRY(cuda_check(cudaEventCreate(&events[i]), "timing"));
    BY_TRY(cuda_check(cudaEventRecord(events[0], c->stream), "timing"));
    for (int i = 0; i < n; i++) {
        BY_TRY(one_node(p, &x, i));
        BY_TRY(cuda_check(cudaEventRecord(events[i + 1], c->stream), "timing"));
    }
    BY_TRY(wait_for(c, "timing"));
    for (int i = 0; i < n; i++) {
        float ms = 0;
        BY_TRY(cuda_check(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "timing"));
        BY_TRY(trace(p, p->graph->nodes[i], ms * 1e-3));
    }
    return BY_OK;
}

static by_status timed_run(by_program *p)
{
    const size_t n = (size_t)p->graph->n_nodes + 1;
    cudaEvent_t *events = (cudaEvent_t *)base_alloc_zero(n, sizeof *events);
    by_status s = events ? timed_events(p, events) : BY_ERR_MEMORY;
    for (size_t i = 0; events && i < n; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    base_free(events);
    return s;
}

static by_status cuda_run(by_program *p)
{
    program_plan *plan = (program_plan *)p->plan;
    cuda_context *c = cuda_of(p->device);
    BY_TRY(send_seed(p, plan));
    c->busy = true;
    if (p->trace)
        return p->only_times ? timed_run(p) : traced_run(p);
    if (plan->runs++ == 0 || c->no_graphs) {
        cuda_exec x = exec_of(p);
        return each_node(p, &x, false);
    }
    if (!plan->graph || plan->generation != c->generation)
        BY_TRY(capture(p, plan));
    return cuda_check(cudaGraphLaunch(plan->graph, c->stream), "starting a program");
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void cuda_close(by_device *d)
{
    cuda_context *c = cuda_of(d);
    if (!c)
        return;
    if (c->stream)
        cudaStreamSynchronize(c->stream);
    cuda_lt_close(c);
    cuda_tuner_close(c->tuner);
    cudaFree(c->scratch);
    cudaFree(c->workspace);
    cudaFree(c->counters);
    cuda_uploads_close(c);
    cudaFreeHost(c->fault);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    base_free(c);
    d->impl = NULL;
}

static by_status cuda_wait(by_device *d)
{
    cuda_context *c = cuda_of(d);
    BY_TRY(wait_for(c, "the GPU's work"));
    return look_for_faults(c);
}

static const gr_backend backend = {
    "cuda",        cuda_alloc,  cuda_release, cuda_upload,
    cuda_download, copy_memory, cuda_prepare, cuda_run,
    cuda_forget,   cuda_close,  cuda_wait,    128 /* alignment of padded rows of logits, in bytes */,
    true,          PROBE};

/* Explains why there is no GPU, and what to do. */
static by_status no_gpu(cudaError_t error)
{
    if (error == cudaErrorInsufficientDriver)
        return base_fail(BY_ERR_DEVICE, "no NVIDIA driver is loaded, or it is too old for CUDA %d.%d",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || error == cudaSuccess)
        return base_fail(BY_ERR_DEVICE,
                         "this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES excludes it");
    return base_fail(BY_ERR_DEVICE, "the GPU cannot be used: %s", cudaGetErrorString(error));
}

/* Removes a word from the front of a name. */
static bool take(const char **at, const char *word)
{
    const size_t n = strlen(word);
    const bool there = strncmp(*at, word, n) == 0;
    *at += there ? n : 0;
    return there;
}

/* "", "1", "+tf32", "1+fp8", "+tf32+fp8" and so on */
static by_status read_name(const char *which, int count, cuda_context *c)
{
    char *end = NULL;
    const char *at = which ? which : "";
    if (*at >= '0' && *at <= '9') {
        c->index = (int)BY_MIN(strtol(at, &end, 10), (long)INT32_MAX);
        at = end;
    }
    if (c->index >= count)
        return base_fail(BY_ERR_DEVICE, "there is no GPU %d: this machine has %d", c->index, count);
    c->tf32 = take(&at, "+tf32");
    c->fp8 = take(&at, "+fp8");
    c->tf32 = c->tf32 || take(&at, "+tf32"); /* in either order */
    if (*at)
        return base_fail(BY_ERR_ARGUMENT, "cuda%s%s: only +tf32 and +fp8 may follow cuda or cuda:NUMBER",
                         *which == '+' ? "" : ":", which);
    return BY_OK;
}

static by_status open_card(by_device *d, cuda_context *c)
{
    cudaDeviceProp card;
    BY_TRY(cuda_check(cudaSetDevice(c->index), "opening the GPU"));
    BY_TRY(cuda_check(cudaGetDeviceProperties(&card, c->index), "opening the GPU"));
    const char *pretend = getenv("BANYAN_CUDA_ARCH"); /* simulate an older card */
    c->arch = pretend && atoi(pretend) >= 80 ? atoi(pretend) : card.major * 10 + card.minor;
    const char *least = getenv("BANYAN_GEMV_LEAST"); /* for tests, whose matrices are small */
    c->gemv_least = least ? atoll(least) : 4500000;
    const char *resident = getenv("BANYAN_RESIDENT"); /* 0: off; all: also for small models, in tests */
    c->resident_least = !resident ? RESIDENT_LEAST : atoi(resident) == 0 && strcmp(resident, "all") ? -1 : 0;
    c->sms = card.multiProcessorCount;
    c->shared_limit = (int)card.sharedMemPerBlockOptin;
    c->l2 = (size_t)card.l2CacheSize;
    c->total = card.totalGlobalMem;
#ifdef BY_CUDA_EMULATE
    c->no_graphs = true;
#else
    c->no_graphs = getenv("BANYAN_NO_GRAPHS") != NULL;
#endif
    if (c->arch < 80)
        return base_fail(BY_ERR_DEVICE, "%s has compute capability %d.%d; 8.0 (Ampere) or later is required",
                         card.name, card.major, card.minor);
    BY_TRY(cuda_check(cudaStreamCreate(&c->stream), "opening the GPU"));
    BY_TRY(cuda_uploads_open(c));
    BY_TRY(cuda_check(cudaHostAlloc((void **)&c->fault, sizeof *c->fault, cudaHostAllocMapped),
                      "pinned memory"));
    memset(c->fault, 0, sizeof *c->fault);
    BY_TRY(cuda_check(cudaHostGetDevicePointer((void **)&c->device_fault, c->fault, 0), "pinned memory"));
    BY_TRY(cuda_lt_open(c));
    BY_TRY(cuda_alloc(d, WORKSPACE, &c->workspace));
    c->workspace_bytes = WORKSPACE;
    if (c->fp8)
        BY_TRY(cuda_fp8_open(c, card.name));
    void *counters; /* zeroed, like all memory */
    BY_TRY(cuda_alloc(d, (BY_CUDA_COUNTERS + 1) * sizeof(int), &counters));
    c->counters = (int *)counters;
    c->fault->claim = c->counters + BY_CUDA_COUNTERS;
    const int version = cuda_lt_version();
    c->tuner = version ? cuda_tuner_open(card.name, version) : NULL;
    snprintf(d->description, sizeof d->description, "cuda: %s, %.0f GiB, CUDA %d.%d, cuBLASLt %d.%d%s%s",
             card.name, (double)c->total / (1 << 30), CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
             version / 10000, version / 100 % 100, c->tf32 ? ", TF32" : "", c->fp8 ? ", FP8" : "");
    return BY_OK;
}

by_status gr_cuda_open(by_device *d, const char *which, int threads)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    (void)threads;
    d->impl = NULL;
    if (error != cudaSuccess || count == 0)
        return no_gpu(error);
    cuda_context *c = (cuda_context *)base_alloc_zero(1, sizeof *c);
    if (!c)
        return BY_ERR_MEMORY;
    d->backend = &backend;
    d->threads = 1;
    d->impl = c;
    by_status s = read_name(which, count, c);
    if (s == BY_OK)
        s = open_card(d, c);
    if (s != BY_OK)
        cuda_close(d);
    return s;
}

#ifdef BY_CUDA_EMULATE
/* A program linked with the emulation has a GPU. */
static const bool enabled = (gr_cuda_opener = gr_cuda_open, true);
#endif
