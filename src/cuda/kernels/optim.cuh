/* optim.cuh - what the optimisers share. Every parameter is a segment of the flat buffers with its own share
 * of the learning rate; values of 16 bits have a float master, which is what is updated.
 *
 * What is computed is what src/cpu/kernels/optim.c says, with one difference: when the norm of the gradients
 * is not finite nothing is changed, and it is the host that finds out, from the norm. */
#ifndef BY_CUDA_KERNELS_OPTIM_CUH
#define BY_CUDA_KERNELS_OPTIM_CUH

#include "cuda/kernels/rows.cuh"

enum { THREADS = 256 };

/* The plan of a node: a table in device memory, made from the segments in the dry run, since captured
 * launches cannot read the host's. */
struct table_plan {
    by_cuda_plan base;
    void *table; /* device memory */
    int count;
    int64_t floats, pieces; /* Adafactor: scratch for columns; blocks for a segment */
};

static void forget_table(void *plan)
{
    cudaFree(((table_plan *)plan)->table);
    by_free(plan);
}

static by_status keep_table(by_node *n, const void *table, int count, size_t size, table_plan **out)
{
    table_plan *p = (table_plan *)by_alloc_zero(1, sizeof *p);
    if (!p)
        return BY_ERR_MEMORY;
    p->base.forget = forget_table;
    p->count = count;
    const size_t bytes = (size_t)count * size;
    by_status status = by_cuda_check(cudaMalloc(&p->table, bytes ? bytes : 1), "a table of parameters");
    if (status == BY_OK && bytes)
        status = by_cuda_check(cudaMemcpy(p->table, table, bytes, cudaMemcpyHostToDevice),
                               "a table of parameters");
    if (status != BY_OK) {
        forget_table(p);
        return status;
    }
    n->plan = *out = p;
    return BY_OK;
}

/* The buffers; inputs that are not given are NULL. */
template <class T> struct buffers {
    T *value;
    const float *grad;
    float *m, *v, *master;
    const float *norm, *hyper;
};

template <class V> static V *data_of(const by_tensor *t)
{
    return t ? (V *)t->data : NULL;
}

/* What the gradients are multiplied by; false: their norm is not a number to work with. */
static __device__ __forceinline__ bool clip_factor(const float *norm, const float *hyper, float *factor)
{
    const float max_norm = hyper[BY_HYPER_MAX_NORM], x = norm ? *norm : 0;
    *factor = norm && max_norm > 0 ? fminf(1, max_norm / (x + 1e-6f)) : 1;
    return fabsf(x) < INFINITY;
}

/* 1 - lr weight_decay, rounded once */
static __device__ __forceinline__ float keep_of(float lr, float weight_decay, bool decay)
{
    return decay ? fmaf(-lr, weight_decay, 1) : 1;
}

template <int N, class T>
static __device__ __forceinline__ vec<float, N> get_weight(const buffers<T> &b, int64_t at)
{
    return b.master ? get<N>(b.master + at) : get<N>(b.value + at);
}
template <class T, int N>
static __device__ __forceinline__ void put_weight(const buffers<T> &b, int64_t at, const vec<float, N> &w)
{
    if (b.master)
        put(b.master + at, w);
    put(b.value + at, w);
}

#endif
