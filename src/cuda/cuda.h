/* cuda.h - the NVIDIA GPU as a device, shared by the backend and the kernels. Everything in this folder is
 * compiled by nvcc; with BY_CUDA_EMULATE it is compiled by the C++ compiler instead, and runs on the CPU,
 * block by block, thread by thread (emulate.h): slow, but any machine can test the kernels. */
#ifndef BY_CUDA_CUDA_H
#define BY_CUDA_CUDA_H

#include <stdint.h>

#ifdef BY_CUDA_EMULATE
#include "cuda/emulate.h"
#else
#include <cuda_runtime.h>
#endif

extern "C" {
#include "graph/graph.h"
}

/* The report of a kernel that meets a bad index, in host memory that the device can write. The thread that
 * changes *claim, in device memory, from 0 to 1 writes the rest. */
typedef struct cuda_fault {
    int *claim;
    int32_t set;   /* 0: nothing happened */
    int32_t node;  /* see cuda_number */
    int32_t input; /* index of the input with the bad element */
    int32_t value; /* the bad value */
    int64_t place; /* its index */
    int64_t limit; /* values are in [0, limit) */
} cuda_fault;

enum { BY_CUDA_COUNTERS = 4096 };

/* Copies from the host: upload.cu. */
typedef struct cuda_uploads {
    char *staging; /* pinned memory, used in two halves */
    size_t at;
    cudaEvent_t left[2]; /* recorded when the host switches to the other half */
    cudaStream_t stream; /* for large copies during running programs; NULL: none so far */
    char *pinned;        /* likewise, in two halves, */
    cudaEvent_t read[2]; /* recorded after the copy out of each */
    void *landing;       /* device memory where such a copy arrives */
    size_t landing_bytes;
    size_t refused;             /* bytes that there was no room for; the smallest such request */
    cudaEvent_t arrived, taken; /* it is complete; it was copied to its place */
} cuda_uploads;

/* by_device.impl */
typedef struct cuda_context {
    int index, arch; /* which card; 90 for compute capability 9.0 */
    /* Called with every kernel in a dry run; for tests, otherwise NULL. */
    void (*planned)(const void *kernel);
    int sms;            /* multiprocessors */
    int shared_limit;   /* maximum shared memory of a block, in bytes */
    size_t l2, total;   /* bytes of L2 cache, of memory */
    bool tf32;          /* products of f32 in TF32 */
    bool fp8, fp8_all;  /* 16-bit products in FP8: if it is faster; wherever possible, for tests */
    int64_t gemv_least; /* minimum elements of a matrix for which gemv.cu computes its product with one row */
    int64_t resident_least; /* minimum bytes of 16-bit weights for which resident.cu takes a run; -1: never */
    cudaStream_t stream;
    cuda_fault *fault;        /* host memory, mapped */
    cuda_fault *device_fault; /* its device address */
    void *lt;                 /* cuBLASLt's handle */
    struct cuda_tuner *tuner; /* see tune.cuh; NULL: use the library's first choice */
    void *workspace;          /* cuBLASLt's workspace, device memory */
    size_t workspace_bytes;
    cuda_uploads uploads;
    bool busy;     /* programs were started since the host last waited */
    void *scratch; /* working memory of the kernels, shared by all programs, which run in order */
    size_t scratch_bytes;
    int generation; /* number of times scratch has moved */
    int *counters;  /* (BY_CUDA_COUNTERS) device memory, all 0 between kernels */
    bool no_graphs; /* launch kernels one by one, for debugging (environment variable BANYAN_NO_GRAPHS) */
    struct program_plan *programs; /* all compiled programs: backend.cu */
    int numbered;                  /* number of nodes that have been numbered */
} cuda_context;

/* The argument of a kernel: a gr_exec with additional fields. */
typedef struct cuda_exec {
    gr_exec base;
    cuda_context *cuda;
    cudaStream_t stream;
    const uint64_t *random;      /* device memory: seed, step */
    bool dry;                    /* plan only: launch nothing, record the scratch size */
    size_t scratch_needed;       /* the most that a kernel has requested */
    int first_node;              /* the number of the program's first node */
    const by_tensor *in_scratch; /* tensor whose FP8 form is still in scratch (fp8.cu), or NULL */
} cuda_exec;

static inline cuda_exec *cuda_exec_of(gr_exec *e)
{
    return (cuda_exec *)e; /* base is its first member */
}

/* The number by which a fault identifies its node: the host may have started other programs before it learns
 * of the fault. */
static inline int cuda_number(const cuda_exec *x, const gr_node *n)
{
    return x->first_node + n->index;
}

by_status cuda_uploads_open(cuda_context *c);
void cuda_uploads_close(cuda_context *c);
by_status cuda_upload(by_device *d, void *to, const void *from, size_t bytes);

/* Returns BY_OK, or BY_ERR_DEVICE with CUDA's message. */
by_status cuda_check(cudaError_t error, const char *what);

/* Returns working memory for one kernel call, 256-byte aligned, uninitialised. The address is always the
 * same, so a kernel calls this only once. In a dry run only the size is recorded, and the result must not be
 * used. */
void *cuda_scratch(cuda_exec *x, size_t bytes);

/* A kernel may keep what it planned in n->plan: a struct that begins with this. Where it can do the work of
 * n->partner too, it sets `absorbed` there in the dry run. */
typedef struct cuda_plan {
    void (*forget)(void *plan);
} cuda_plan;

extern "C" {
extern const cpu_kernel cuda_table[GR_OP_COUNT];
#define GR_OP(ID, name, in, out, traits, gradient) by_status cuda_##name(gr_exec *e, gr_node *n);
#include "graph/ops.def"
#undef GR_OP
}

/* In a dry run: records the kernel that would be launched. */
static inline void cuda_plan_kernel(const cuda_exec *x, const void *kernel, dim3 grid)
{
    if (x->cuda->planned && grid.x && grid.y && grid.z)
        x->cuda->planned(kernel);
}

/* Launches a kernel: cuda_launch(x, kernel<T>, grid, block, shared bytes, arguments...). An empty grid is
 * legal. */
#ifdef BY_CUDA_EMULATE
template <class... P, class... A>
static by_status cuda_launch(cuda_exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                             A... args)
{
    if (x->dry)
        cuda_plan_kernel(x, (const void *)kernel, grid);
    else
        cuda_emulate(grid, block, shared, [&] { kernel(args...); });
    return BY_OK;
}
#define cuda_launch_early cuda_launch
/* In the emulation a cluster is one large block, with its parts of shared memory one after the other. */
template <class... P, class... A>
static by_status cuda_launch_clusters(cuda_exec *x, unsigned size, void (*kernel)(P...), dim3 grid,
                                      dim3 block, size_t shared, A... args)
{
    return cuda_launch(x, kernel, dim3(grid.x / size), dim3(block.x * size), shared * size, args...);
}
#else
/* Raises the shared memory limit of a kernel; never lowers it, because other programs may use it too. */
static inline by_status cuda_allow_shared(const void *kernel, size_t bytes)
{
    cudaFuncAttributes now;
    BY_TRY(cuda_check(cudaFuncGetAttributes(&now, kernel), "shared memory"));
    if ((size_t)now.maxDynamicSharedSizeBytes >= bytes)
        return BY_OK;
    return cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                      "shared memory");
}
template <class... P>
static cudaError_t cuda_launch_raw(cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block,
                                   size_t shared, P... args)
{
    void *list[] = {(void *)&args...};
    return cudaLaunchKernel((const void *)kernel, grid, block, list, shared, stream);
}
template <class... P, class... A>
static by_status cuda_launch(cuda_exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                             A... args)
{
    if (x->dry)
        cuda_plan_kernel(x, (const void *)kernel, grid);
    if (x->dry)
        return shared > 48 * 1024 ? cuda_allow_shared((const void *)kernel, shared) : BY_OK;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return BY_OK;
    return cuda_check(cuda_launch_raw<P...>(x->stream, kernel, grid, block, shared, (P)args...), "launch");
}
#endif

/* The same for a kernel that calls wait_for_previous() before it touches anything that another kernel writes:
 * it may start before the previous one has ended (compute capability 9.0 and later). */
#ifndef BY_CUDA_EMULATE
template <class... P>
static cudaError_t cuda_launch_early_raw(cudaStream_t stream, unsigned cluster, void (*kernel)(P...),
                                         dim3 grid, dim3 block, size_t shared, P... args)
{
    void *list[] = {(void *)&args...};
    cudaLaunchAttribute wishes[2] = {};
    wishes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    wishes[0].val.programmaticStreamSerializationAllowed = 1;
    wishes[1].id = cudaLaunchAttributeClusterDimension;
    wishes[1].val.clusterDim.x = cluster;
    wishes[1].val.clusterDim.y = wishes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = wishes;
    config.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelExC(&config, (const void *)kernel, list);
}
template <class... P, class... A>
static by_status cuda_launch_early(cuda_exec *x, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                   A... args)
{
    if (x->dry || x->cuda->arch < 90 || grid.x == 0 || grid.y == 0 || grid.z == 0)
        return cuda_launch(x, kernel, grid, block, shared, args...);
    return cuda_check(cuda_launch_early_raw<P...>(x->stream, 1, kernel, grid, block, shared, (P)args...),
                      "launch");
}

/* The same in clusters of `size` adjacent blocks (cluster.cuh): 1 before compute capability 9.0. The kernel
 * uses only this shared memory, and a different amount each time. */
template <class... P, class... A>
static by_status cuda_launch_clusters(cuda_exec *x, unsigned size, void (*kernel)(P...), dim3 grid,
                                      dim3 block, size_t shared, A... args)
{
    if (x->dry) {
        cuda_plan_kernel(x, (const void *)kernel, grid);
        BY_TRY(
            cuda_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            x->cuda->shared_limit),
                       "shared memory"));
        return cuda_check(cudaFuncSetAttribute((const void *)kernel,
                                               cudaFuncAttributePreferredSharedMemoryCarveout,
                                               (int)cudaSharedmemCarveoutMaxShared),
                          "shared memory");
    }
    if (x->cuda->arch < 90)
        return cuda_launch(x, kernel, grid, block, shared, args...);
    return cuda_check(cuda_launch_early_raw<P...>(x->stream, size, kernel, grid, block, shared, (P)args...),
                      "launch");
}
#endif

/* As in src/cpu/cpu.h: a branch in the host code of a kernel; tests check that every one is taken. */
typedef struct cuda_branch {
    const char *label, *file, *isa;
    int hit;
} cuda_branch;
#define BY_BRANCH(text)                                                                  \
    do {                                                                                 \
        static cuda_branch by_branch_here_                                               \
            __attribute__((section("by_branches"), used)) = {text, __FILE__, "cuda", 0}; \
        by_branch_here_.hit = 1;                                                         \
    } while (0)

#endif
