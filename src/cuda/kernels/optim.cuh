/* optim.cuh - shared by the optimisers. Every parameter is a segment of the flat buffers with its own factor
 * of the learning rate. 16-bit values have a float master, which is updated. bf16 values may do without a
 * master: updates are then rounded stochastically.
 *
 * The computation is that of src/cpu/kernels/optim.c, with one difference: if the norm of the gradients is
 * not finite nothing is changed, and the host detects it from the norm. */
#ifndef BY_CUDA_KERNELS_OPTIM_CUH
#define BY_CUDA_KERNELS_OPTIM_CUH

#include "cuda/kernels/row_pieces.cuh"

enum { THREADS = 256 };

/* The plan of a node: a table in device memory, made from the segments in the dry run, because captured
 * launches cannot read host memory. */
struct table_plan {
    cuda_plan base;
    void *table; /* device memory */
    int count;
    int64_t floats, pieces; /* Adafactor: scratch for columns; blocks per segment */
};

static void forget_table(void *plan)
{
    cudaFree(((table_plan *)plan)->table);
    base_free(plan);
}

static by_status keep_table(gr_node *n, const void *table, int count, size_t size, table_plan **out)
{
    table_plan *p = (table_plan *)base_alloc_zero(1, sizeof *p);
    if (!p)
        return BY_ERR_MEMORY;
    p->base.forget = forget_table;
    p->count = count;
    const size_t bytes = (size_t)count * size;
    by_status status = cuda_check(cudaMalloc(&p->table, bytes ? bytes : 1), "a table of parameters");
    if (status == BY_OK && bytes)
        status =
            cuda_check(cudaMemcpy(p->table, table, bytes, cudaMemcpyHostToDevice), "a table of parameters");
    if (status != BY_OK) {
        forget_table(p);
        return status;
    }
    n->plan = *out = p;
    return BY_OK;
}

/* The buffers; absent inputs are NULL. */
template <class T> struct buffers {
    T *value;
    const float *grad;
    float *m, *v, *master;
    const float *norm, *hyper;
    const uint64_t *random; /* for stochastic rounding: seed and step; NULL: round to nearest */
    uint32_t rng;
};

static inline bool rounds_by_chance(const gr_node *n, const by_tensor *master)
{
    return n->in[0]->type == BY_BF16 && ((const gr_optim_attr *)n->attr)->gr_stochastic && !master;
}

/* Stochastic rounding: away from 0 with a probability equal to the truncated fraction, so that the mean is
 * x. */
static __device__ __forceinline__ bf16 round_stochastic(float x, uint32_t random)
{
    const uint32_t u = __float_as_uint(x);
    return (u & 0x7f800000u) == 0x7f800000u ? from_float<bf16>(x)
                                            : bf16{(uint16_t)((u + (random >> 16)) >> 16)};
}
template <int N>
static __device__ __forceinline__ void put_by_chance(const buffers<bf16> &b, int64_t at,
                                                     const vec<float, N> &w)
{
    const uint4 four = random4(b.random, b.rng, (uint64_t)at / 4); /* `at` is a multiple of 4 if N is 4 */
    const uint32_t random[4] = {four.x, four.y, four.z, four.w};
    vec<bf16, N> v;
    for (int j = 0; j < N; j++)
        v.at[j] = round_stochastic(w.at[j], random[N == 4 ? j : at % 4]);
    store(b.value + at, v);
}

template <class V> static V *data_of(const by_tensor *t)
{
    return t ? (V *)t->data : NULL;
}

/* For nodes with two moments. */
template <class T> static inline buffers<T> buffers_of(const cuda_exec *x, const gr_node *n)
{
    return {data_of<T>(n->in[0]),
            data_of<float>(n->in[1]),
            data_of<float>(n->in[2]),
            data_of<float>(n->in[3]),
            data_of<float>(n->in[4]),
            data_of<float>(n->in[5]),
            data_of<float>(n->in[6]),
            rounds_by_chance(n, n->in[4]) ? x->random : NULL,
            n->rng};
}

/* Computes the factor of the gradients. Returns false if their norm is not finite. */
static __device__ __forceinline__ bool clip_factor(const float *norm, const float *hyper, float *factor)
{
    const float max_norm = hyper[GR_HYPER_MAX_NORM], x = norm ? *norm : 0;
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
static __device__ __forceinline__ void put_nearest(const buffers<T> &b, int64_t at, const vec<float, N> &w)
{
    if (b.master)
        put(b.master + at, w);
    put(b.value + at, w);
}
template <class T, int N>
static __device__ __forceinline__ void put_weight(const buffers<T> &b, int64_t at, const vec<float, N> &w)
{
    put_nearest(b, at, w);
}
template <int N>
static __device__ __forceinline__ void put_weight(const buffers<bf16> &b, int64_t at, const vec<float, N> &w)
{
    if (b.random)
        put_by_chance(b, at, w);
    else
        put_nearest(b, at, w);
}

#endif
