/* optim.cu - the gradient norm, AdamW and SGD over the flat buffers. */
#include "cuda/kernels/optim.cuh"

/* ---- norm2 ----------------------------------------------------------------------------------- */

enum { AT_ONCE = 4 }; /* loads of 16 bytes in flight per thread */

template <class T>
static __device__ __forceinline__ void add_squares(double &sum, const packed<T, wide<T>::N> &p)
{
    const auto v = unpack(p);
    for (float e : v.at)
        sum += (double)e * (double)e;
}

/* In double, where squares of floats cannot overflow. A block leaves one sum; the order of additions depends
 * only on the count and the number of blocks. */
template <class T>
static __global__ void __launch_bounds__(THREADS) square_parts(double *part, const T *x, int64_t count)
{
    enum { N = wide<T>::N };
    __shared__ double space[32];
    const int64_t pieces = count / N, threads = (int64_t)gridDim.x * THREADS;
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum[2] = {0, 0};
    int64_t i = thread;
    for (; i + (AT_ONCE - 1) * threads < pieces; i += AT_ONCE * threads) {
        packed<T, N> p[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            p[k] = get_packed<N>(x + (i + k * threads) * N);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            add_squares<T>(sum[k % 2], p[k]);
    }
    for (; i < pieces; i += threads)
        add_squares<T>(sum[0], get_packed<N>(x + i * N));
    for (i = pieces * N + thread; i < count; i += threads)
        sum[1] += (double)to_float(x[i]) * (double)to_float(x[i]);
    const double all = block_sum_double(sum[0] + sum[1], space);
    if (threadIdx.x == 0)
        part[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(THREADS) square_root(float *y, const double *part, int parts)
{
    __shared__ double space[32];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < parts; i += THREADS)
        sum += part[i];
    sum = block_sum_double(sum, space);
    if (threadIdx.x == 0)
        *y = (float)sqrt(sum);
}

template <class T> static by_status norm2(cuda_exec *x, gr_node *n)
{
    const int64_t count = by_elements(n->in[0]);
    const int parts =
        (int)BY_MIN((int64_t)8 * x->cuda->sms, (int64_t)blocks_for(count, THREADS * AT_ONCE * wide<T>::N));
    double *part = (double *)cuda_scratch(x, (size_t)parts * sizeof *part);
    BY_TRY(cuda_launch(x, square_parts<T>, parts, THREADS, 0, part, (const T *)n->in[0]->data, count));
    return cuda_launch(x, square_root, 1, THREADS, 0, (float *)n->out[0]->data, part, parts);
}

extern "C" by_status cuda_norm2(gr_exec *e, gr_node *n)
{
    BY_BRANCH("norm2");
    BY_CUDA_DISPATCH(n->in[0]->type, norm2, cuda_exec_of(e), n)
}

/* ---- AdamW and SGD: element by element --------------------------------------------------------- */

enum { STRETCH = 8192 }; /* maximum elements per block */

/* A part of a segment that is not frozen; offsets are multiples of 16. */
struct stretch {
    int64_t offset;
    int32_t count;
    float lr_scale;
    bool decay;
};

static by_status stretches_of(gr_node *n, table_plan **out)
{
    const gr_optim_attr *a = (const gr_optim_attr *)n->attr;
    if (n->plan) {
        *out = (table_plan *)n->plan;
        return BY_OK;
    }
    int64_t count = 0;
    for (int s = 0; s < a->n_segments; s++)
        if (a->segments[s].lr_scale != 0)
            count += (a->segments[s].count + STRETCH - 1) / STRETCH;
    stretch *table = (stretch *)base_alloc_zero((size_t)count + 1, sizeof *table), *next = table;
    if (!table)
        return BY_ERR_MEMORY;
    for (int s = 0; s < a->n_segments; s++) {
        const gr_segment *g = &a->segments[s];
        for (int64_t at = 0; g->lr_scale != 0 && at < g->count; at += STRETCH)
            *next++ = stretch{g->offset + at, (int32_t)BY_MIN((int64_t)STRETCH, g->count - at), g->lr_scale,
                              g->decay};
    }
    const by_status status = keep_table(n, table, (int)count, sizeof *table, out);
    base_free(table);
    return status;
}

/* Calls f(at, count as a type) for this thread's share of a stretch: four elements at once, the rest one by
 * one. */
template <int N> struct many {
    enum { COUNT = N };
};
template <class F> static __device__ __forceinline__ void each_of(const stretch &s, F f)
{
    const int whole = s.count & ~3;
    for (int i = (int)threadIdx.x * 4; i < whole; i += THREADS * 4)
        f(s.offset + i, many<4>{});
    for (int i = whole + (int)threadIdx.x; i < s.count; i += THREADS)
        f(s.offset + i, many<1>{});
}

struct adamw_numbers {
    float clip, beta1, beta2, eps, keep, rate, root; /* rate: lr / corr1; root: 1 / sqrt(corr2) */
};

template <int N, class T>
static __device__ __forceinline__ void adamw_at(const buffers<T> &b, int64_t at, const adamw_numbers &k)
{
    vec<float, N> g = get<N>(b.grad + at), m = get<N>(b.m + at), v = get<N>(b.v + at);
    vec<float, N> w = get_weight<N>(b, at);
    for (int j = 0; j < N; j++) {
        g.at[j] *= k.clip;
        m.at[j] = k.beta1 * m.at[j] + (1 - k.beta1) * g.at[j];
        v.at[j] = k.beta2 * v.at[j] + (1 - k.beta2) * (g.at[j] * g.at[j]);
        w.at[j] = w.at[j] * k.keep - k.rate * m.at[j] / (sqrtf(v.at[j]) * k.root + k.eps);
    }
    put(b.m + at, m);
    put(b.v + at, v);
    put_weight(b, at, w);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    adamw_stretch(buffers<T> b, const stretch *table, float beta1, float beta2, float eps, float weight_decay)
{
    const stretch s = table[blockIdx.x];
    adamw_numbers k;
    if (!clip_factor(b.norm, b.hyper, &k.clip))
        return;
    const float lr = b.hyper[GR_HYPER_LR] * s.lr_scale;
    k.beta1 = beta1;
    k.beta2 = beta2;
    k.eps = eps;
    k.keep = keep_of(lr, weight_decay, s.decay);
    k.rate = lr / b.hyper[GR_HYPER_CORR1];
    k.root = 1 / sqrtf(b.hyper[GR_HYPER_CORR2]);
    each_of(s, [&](int64_t at, auto n) { adamw_at<decltype(n)::COUNT>(b, at, k); });
}

/* g += wd w;  m = mu m + g;  w -= lr m. Without m, or with mu 0: w -= lr g. */
template <int N, class T>
static __device__ __forceinline__ void sgd_at(const buffers<T> &b, int64_t at, float clip, float mu,
                                              float decay, float lr)
{
    vec<float, N> g = get<N>(b.grad + at), w = get_weight<N>(b, at);
    for (int j = 0; j < N; j++)
        g.at[j] = g.at[j] * clip + decay * w.at[j];
    if (b.m && mu > 0) {
        const vec<float, N> m = get<N>(b.m + at);
        for (int j = 0; j < N; j++)
            g.at[j] += mu * m.at[j];
        put(b.m + at, g);
    }
    for (int j = 0; j < N; j++)
        w.at[j] -= lr * g.at[j];
    put_weight(b, at, w);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    sgd_stretch(buffers<T> b, const stretch *table, float weight_decay)
{
    const stretch s = table[blockIdx.x];
    float clip;
    if (!clip_factor(b.norm, b.hyper, &clip))
        return;
    const float lr = b.hyper[GR_HYPER_LR] * s.lr_scale, mu = b.hyper[GR_HYPER_MOMENTUM];
    const float decay = s.decay ? weight_decay : 0;
    each_of(s, [&](int64_t at, auto n) { sgd_at<decltype(n)::COUNT>(b, at, clip, mu, decay, lr); });
}

template <class T> static by_status adamw(cuda_exec *x, gr_node *n)
{
    const gr_optim_attr *a = (const gr_optim_attr *)n->attr;
    const buffers<T> b = buffers_of<T>(x, n);
    table_plan *p;
    BY_TRY(stretches_of(n, &p));
    return cuda_launch(x, adamw_stretch<T>, p->count, THREADS, 0, b, (const stretch *)p->table, a->beta1,
                       a->beta2, a->eps, a->weight_decay);
}

template <class T> static by_status sgd(cuda_exec *x, gr_node *n)
{
    const gr_optim_attr *a = (const gr_optim_attr *)n->attr;
    const buffers<T> b = {data_of<T>(n->in[0]),
                          data_of<float>(n->in[1]),
                          data_of<float>(n->in[2]),
                          NULL,
                          data_of<float>(n->in[3]),
                          data_of<float>(n->in[4]),
                          data_of<float>(n->in[5]),
                          rounds_by_chance(n, n->in[3]) ? x->random : NULL,
                          n->rng};
    table_plan *p;
    BY_TRY(stretches_of(n, &p));
    return cuda_launch(x, sgd_stretch<T>, p->count, THREADS, 0, b, (const stretch *)p->table,
                       a->weight_decay);
}

extern "C" by_status cuda_adamw(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[4]))
        BY_BRANCH("adamw, stochastic rounding");
    else
        BY_BRANCH("adamw");
    BY_CUDA_DISPATCH(n->in[0]->type, adamw, cuda_exec_of(e), n)
}

extern "C" by_status cuda_sgd(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[3]))
        BY_BRANCH("sgd, stochastic rounding");
    else
        BY_BRANCH("sgd");
    BY_CUDA_DISPATCH(n->in[0]->type, sgd, cuda_exec_of(e), n)
}
