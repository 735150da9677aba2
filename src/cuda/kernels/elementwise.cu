/* elementwise.cu - elementwise ops: add, sub, mul, scale, activations and their gradients, dropout. The
 * output may overlap an input, so a thread reads its elements before it writes them. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/each.cuh"
#include "graph/spread.h"

enum { THREADS = 256, UNROLL = 2 }; /* 16 bytes of each input, UNROLL times, are in flight per thread */

/* ---- one input: f(v, at) changes V numbers in place, the first of which is element `at` ------ */

template <class T, class F>
static __global__ void __launch_bounds__(THREADS) each_of_one(T *y, const T *x, int64_t count, F f)
{
    enum { V = wide<T>::N };
    const int64_t first = ((int64_t)blockIdx.x * UNROLL * THREADS + threadIdx.x) * V;
    vec<T, V> in[UNROLL];
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++)
        in[u] = load_some<T, V>(x, first + u * THREADS * V, count);
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        const int64_t at = first + u * THREADS * V;
        float v[V];
        unpack<T, V>(v, in[u]);
        if (at < count)
            f(v, at);
        store_some<T, V>(y, at, count, packed<T, V>(v));
    }
}

template <class T, class F> static by_status one_input(cuda_exec *x, gr_node *n, F f)
{
    const int64_t count = elements_of(n->out[0]);
    return cuda_launch(x, each_of_one<T, F>, blocks_for(count, THREADS * UNROLL * wide<T>::N), THREADS, 0,
                       (T *)n->out[0]->data, (const T *)n->in[0]->data, count, f);
}

template <class T> struct scaled {
    float factor;
    __device__ __forceinline__ void operator()(float *v, int64_t) const
    {
        BY_UNROLL
        for (int k = 0; k < wide<T>::N; k++)
            v[k] *= factor;
    }
};

static __device__ __forceinline__ float clip(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x; /* propagates NaN */
}

/* tanh(softplus(x)) by e = e^x: ((1 + e)^2 - 1) / ((1 + e)^2 + 1). From 20 on it is 1. */
static __device__ __forceinline__ float mish_gate(float x)
{
    float e = expf(x > 20 ? 20.0f : x), n = e * (e + 2);
    return x > 20 ? 1.0f : n / (n + 2);
}

static __device__ __forceinline__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Rarely used activations and their derivatives: one kernel for all of them. */
static __device__ __noinline__ float activate_rare(by_act act, float x)
{
    switch (act) {
    case BY_QUICK_GELU:
        return x / (1 + expf(-1.702f * x));
    case BY_GELU_10:
        return clip(0.5f * x * (1 + erff(x * 0.70710678f)), -10, 10);
    case BY_RELU2:
        return x < 0 ? 0 : x * x;
    case BY_RELU6:
        return clip(x, 0, 6);
    case BY_LEAKY_RELU:
        return x < 0 ? 0.01f * x : x;
    case BY_HARD_SWISH:
        return x * clip(x + 3, 0, 6) / 6;
    case BY_MISH:
        return x * mish_gate(x);
    case BY_LAPLACE:
        return 0.5f * (1 + erff((x - 0.707107f) / 0.282095f * 0.70710678f));
    case BY_SQRT_SOFTPLUS:
        return sqrtf(softplus(x));
    case BY_EXP:
        return expf(x);
    case BY_LOG:
        return logf(x);
    case BY_SQRT:
        return sqrtf(x);
    default:
        return x;
    }
}

static __device__ __noinline__ float activate_rare_slope(by_act act, float x)
{
    float s;
    switch (act) {
    case BY_QUICK_GELU:
        s = 1 / (1 + expf(-1.702f * x));
        return s * (1 + 1.702f * x * (1 - s));
    case BY_GELU_10: /* flat below -10 */
        return x > 10 ? 0 : 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    case BY_RELU2:
        return x > 0 ? 2 * x : 0;
    case BY_RELU6:
        return x > 0 && x < 6 ? 1.0f : 0.0f;
    case BY_LEAKY_RELU:
        return x > 0 ? 1.0f : 0.01f;
    case BY_HARD_SWISH:
        return x < -3 ? 0 : x <= 3 ? x / 3 + 0.5f : 1;
    case BY_MISH:
        s = mish_gate(x);
        return s + x * (1 - s * s) / (1 + expf(-x));
    case BY_LAPLACE:
        s = (x - 0.707107f) / 0.282095f;
        return 0.39894228f / 0.282095f * expf(-0.5f * s * s);
    case BY_SQRT_SOFTPLUS:
        s = softplus(x);
        return s > 0 ? 1 / (1 + expf(-x)) / (2 * sqrtf(s)) : 0;
    case BY_EXP:
        return expf(x);
    case BY_LOG:
        return 1 / x;
    case BY_SQRT:
        return 0.5f / sqrtf(x);
    default:
        return 1;
    }
}

template <class T> struct activated_rarely {
    by_act act;
    __device__ __forceinline__ void operator()(float *v, int64_t) const
    {
        BY_UNROLL
        for (int k = 0; k < wide<T>::N; k++)
            v[k] = activate_rare(act, v[k]);
    }
};

template <class T, by_act ACT> struct activated {
    __device__ __forceinline__ void operator()(float *v, int64_t) const
    {
        BY_UNROLL
        for (int k = 0; k < wide<T>::N; k++)
            v[k] = activate_as<T>(ACT, v[k]);
    }
};

/* Four adjacent elements share one evaluation of the generator. */
template <class T> struct dropped {
    const uint64_t *random;
    uint32_t rng;
    drop d;
    __device__ __forceinline__ float kept(uint32_t r, float v) const
    {
        return r >= d.threshold ? v * d.factor : 0;
    }
    __device__ __forceinline__ void operator()(float *v, int64_t at) const
    {
        const uint64_t key[2] = {random[0], random[1]};
        BY_UNROLL
        for (int k = 0; k < wide<T>::N; k += 4) {
            const uint4 r = random4(key, rng, (uint64_t)(at + k) / 4);
            v[k] = kept(r.x, v[k]);
            v[k + 1] = kept(r.y, v[k + 1]);
            v[k + 2] = kept(r.z, v[k + 2]);
            v[k + 3] = kept(r.w, v[k + 3]);
        }
    }
};

template <class T> static by_status scale(cuda_exec *x, gr_node *n)
{
    return one_input<T>(x, n, scaled<T>{(float)((const gr_scale_attr *)n->attr)->factor});
}

template <class T> static by_status dropout(cuda_exec *x, gr_node *n)
{
    const float p = ((const gr_dropout_attr *)n->attr)->p;
    return one_input<T>(x, n, dropped<T>{x->random, n->rng, drop_of(p)});
}

/* ---- two inputs: a[k] = f(a[k], b[k]) -------------------------------------------------------- */

enum repeats { NOT, BY_VECTORS, ANYHOW }; /* how b, of `period` elements, is repeated */

template <class T, repeats HOW>
static __device__ __forceinline__ vec<T, wide<T>::N> load_repeated(const T *b, int64_t at, int64_t period,
                                                                   int64_t count)
{
    enum { V = wide<T>::N };
    if constexpr (HOW == NOT) {
        return load_some<T, V>(b, at, count);
    } else {
        vec<T, V> v = {};
        int64_t from;
        if (at >= count)
            return v;
        divide(at, period, &from);
        if constexpr (HOW == BY_VECTORS) {
            v = load<T, V>(b + from);
        } else {
            for (int k = 0; k < V; k++) {
                v.at[k] = b[from];
                from = from + 1 == period ? 0 : from + 1;
            }
        }
        return v;
    }
}

template <class T, repeats HOW, class F>
static __global__ void __launch_bounds__(THREADS)
    each_of_two(T *y, const T *a, const T *b, int64_t period, int64_t count, F f)
{
    enum { V = wide<T>::N };
    const int64_t first = ((int64_t)blockIdx.x * UNROLL * THREADS + threadIdx.x) * V;
    vec<T, V> in_a[UNROLL], in_b[UNROLL];
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        in_a[u] = load_some<T, V>(a, first + u * THREADS * V, count);
        in_b[u] = load_repeated<T, HOW>(b, first + u * THREADS * V, period, count);
    }
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        float v[V], w[V];
        unpack<T, V>(v, in_a[u]);
        unpack<T, V>(w, in_b[u]);
        BY_UNROLL
        for (int k = 0; k < V; k++)
            v[k] = f(v[k], w[k]);
        store_some<T, V>(y, first + u * THREADS * V, count, packed<T, V>(v));
    }
}

template <class T, repeats HOW, class F> static by_status two_inputs(cuda_exec *x, gr_node *n, F f)
{
    const int64_t count = elements_of(n->out[0]);
    return cuda_launch(x, each_of_two<T, HOW, F>, blocks_for(count, THREADS * UNROLL * wide<T>::N), THREADS,
                       0, (T *)n->out[0]->data, (const T *)n->in[0]->data, (const T *)n->in[1]->data,
                       elements_of(n->in[1]), count, f);
}

struct sum_of {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a + b;
    }
};
struct difference_of {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a - b;
    }
};
struct product_of {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a * b;
    }
};
/* What few models need: one kernel for all of it. */
struct combined {
    gr_binary kind;
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        switch (kind) {
        case GR_ADD:
            return a + b;
        case GR_SUB:
            return a - b;
        case GR_MUL:
            return a * b;
        case GR_DIV:
            return a / b;
        case GR_MAXIMUM: /* a NaN on either side stays */
            return a >= b || a != a ? a : b;
        case GR_MINIMUM:
            return a <= b || a != a ? a : b;
        case GR_NOT_LESS:
            return a >= b;
        default:
            return a < b;
        }
    }
};
struct activated_rarely_grad {
    by_act act;
    __device__ __forceinline__ float operator()(float x, float dy) const
    {
        return dy * activate_rare_slope(act, x);
    }
};
template <class T, by_act ACT> struct activated_grad {
    __device__ __forceinline__ float operator()(float x, float dy) const
    {
        return activate_grad_as<T>(ACT, x, dy);
    }
};

static repeats repeats_of(const gr_node *n)
{
    const int64_t period = elements_of(n->in[1]);
    if (period == elements_of(n->out[0])) {
        BY_BRANCH("binary, b as long as a");
        return NOT;
    }
    if (period % (16 / (int64_t)by_dtype_size(n->in[1]->type)) == 0) {
        BY_BRANCH("binary, b repeated by vectors");
        return BY_VECTORS;
    }
    BY_BRANCH("binary, b repeated by elements");
    return ANYHOW;
}

template <class T, class F> static by_status repeated(cuda_exec *x, gr_node *n, F f)
{
    switch (repeats_of(n)) {
    case NOT:
        return two_inputs<T, NOT>(x, n, f);
    case BY_VECTORS:
        return two_inputs<T, BY_VECTORS>(x, n, f);
    default:
        return two_inputs<T, ANYHOW>(x, n, f);
    }
}

/* Operands of other shapes. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    each_spread(T *y, const T *a, const T *b, gr_spread s, int64_t count, combined f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t rest = i, at, in_a = 0, in_b = 0;
    for (int k = s.rank - 1; k >= 0; k--) {
        rest = divide(rest, s.dim[k], &at);
        in_a += at * s.step[0][k];
        in_b += at * s.step[1][k];
    }
    y[i] = from_float<T>(f(to_float(a[in_a]), to_float(b[in_b])));
}

template <class T> static by_status binary(cuda_exec *x, gr_node *n, gr_binary kind)
{
    if (!gr_repeats_whole(n->out[0], n->in[0], n->in[1])) {
        const int64_t count = elements_of(n->out[0]);
        BY_BRANCH("binary, axes repeated");
        return cuda_launch(x, each_spread<T>, blocks_for(count, THREADS), THREADS, 0, (T *)n->out[0]->data,
                           (const T *)n->in[0]->data, (const T *)n->in[1]->data,
                           gr_spread_of(n->out[0], n->in, 2), count, combined{kind});
    }
    switch (kind) {
    case GR_ADD:
        return repeated<T>(x, n, sum_of());
    case GR_SUB:
        return repeated<T>(x, n, difference_of());
    case GR_MUL:
        return repeated<T>(x, n, product_of());
    default:
        return repeated<T>(x, n, combined{kind});
    }
}

/* ---- activations: a kernel for each common one ------------------------------------------------- */

#define EACH_ACT(CASE) \
    CASE(BY_ACT_NONE)  \
    CASE(BY_GELU)      \
    CASE(BY_GELU_TANH) \
    CASE(BY_RELU)      \
    CASE(BY_SILU)      \
    CASE(BY_TANH)      \
    CASE(BY_SIGMOID)

template <class T> static by_status activation(cuda_exec *x, gr_node *n)
{
    switch (((const gr_activation_attr *)n->attr)->act) {
#define CASE(ACT) \
    case ACT:     \
        return one_input<T>(x, n, activated<T, ACT>());
        EACH_ACT(CASE)
#undef CASE
    default:
        return one_input<T>(x, n, activated_rarely<T>{((const gr_activation_attr *)n->attr)->act});
    }
}

template <class T> static by_status activation_grad(cuda_exec *x, gr_node *n)
{
    switch (((const gr_activation_attr *)n->attr)->act) {
#define CASE(ACT) \
    case ACT:     \
        return two_inputs<T, NOT>(x, n, activated_grad<T, ACT>());
        EACH_ACT(CASE)
#undef CASE
    default:
        return two_inputs<T, NOT>(x, n, activated_rarely_grad{((const gr_activation_attr *)n->attr)->act});
    }
}

extern "C" by_status cuda_add(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, binary, cuda_exec_of(e), n, GR_ADD)
}

extern "C" by_status cuda_sub(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, binary, cuda_exec_of(e), n, GR_SUB)
}

extern "C" by_status cuda_mul(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, binary, cuda_exec_of(e), n, GR_MUL)
}

extern "C" by_status cuda_binary(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, binary, cuda_exec_of(e), n, ((const gr_binary_attr *)n->attr)->kind)
}

extern "C" by_status cuda_scale(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, scale, cuda_exec_of(e), n)
}

extern "C" by_status cuda_activation(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, activation, cuda_exec_of(e), n)
}

extern "C" by_status cuda_activation_grad(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, activation_grad, cuda_exec_of(e), n)
}

extern "C" by_status cuda_dropout(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, dropout, cuda_exec_of(e), n)
}
