/* mixture.cu - the likelihood of pixels under a discretised mixture of logistics, and its gradient: one warp for each
 * row, a component or two for each lane. src/cpu/kernels/mixture.c has the formulas. */
#include "cuda/kernels/row_pieces.cuh"
#include "graph/mixture_layout.h"

enum { WARPS = 4, ALONE = 1024, MINE = GR_MIXTURE_MOST / 32 };

/* ---- one component --------------------------------------------------------------------------- */

static __device__ __forceinline__ float sigmoid(float z)
{
    return 1 / (1 + expf(-z));
}

static __device__ __forceinline__ float softplus(float z)
{
    return fmaxf(z, 0.0f) + logf(1 + expf(-fabsf(z)));
}

struct bin {
    float log, dmean, dscale;
};

static __device__ __forceinline__ bin bin_of(int v, float mean, float raw)
{
    const float least = (float)GR_MIXTURE_LEAST, scale = raw < least ? least : raw, inverse = expf(-scale);
    const float mid = inverse * ((float)v / 127.5f - 1 - mean), half = inverse / 255;
    const float a = mid + half, b = mid - half, live = raw < least ? 0.0f : 1.0f;
    if (v == 0 || v == GR_MIXTURE_VALUES - 1) { /* with the tail on its side */
        const float z = v == 0 ? a : -b, rest = sigmoid(-z);
        return bin{-softplus(-z), v == 0 ? -inverse * rest : inverse * rest, -z * rest * live};
    }
    const float above = sigmoid(a), below = sigmoid(b), after = sigmoid(-a), rest = sigmoid(-b);
    const float t = tanhf(half), gap = 2 * t / (1 + t), p = above * rest * gap;
    if (p > (float)GR_MIXTURE_SMALL)
        return bin{logf(p), -inverse * (after - below),
                   -(mid * (after - below) + half * (after / rest + below / above) / gap) * live};
    const float slope = 1 - 2 * sigmoid(mid);
    return bin{mid - scale - 2 * softplus(mid) - (float)GR_MIXTURE_LOG_WIDTH, -inverse * slope,
               -(mid * slope + 1) * live};
}

/* ln p of all channels of a pixel; GRADIENT: with the derivatives by its parameters. x: those of the component, `count`
 * apart. */
template <class T, int CHANNELS, bool GRADIENT>
static __device__ __forceinline__ float component(const T *x, int count, const int32_t *target,
                                                  float (&d)[GR_MIXTURE_PARTS])
{
    float sum = 0, value[3], turn[3] = {0, 0, 0}, dmean[3] = {0, 0, 0};
    for (int c = 0; c < CHANNELS; c++) {
        const int at = gr_mixture_at(c, CHANNELS);
        const T *own = x + at * count;
        float mean = to_float(own[0]);
        value[c] = (float)target[c] / 127.5f - 1;
        if (CHANNELS > 1)
            turn[c] = tanhf(to_float(own[2 * count]));
        if (c == 1)
            mean += turn[0] * value[0];
        if (c == 2)
            mean += turn[1] * value[0] + turn[2] * value[1];
        const bin b = bin_of(target[c], mean, to_float(own[count]));
        sum += b.log;
        if (GRADIENT) {
            dmean[c] = d[at] = b.dmean;
            d[at + 1] = b.dscale;
        }
    }
    if (GRADIENT && CHANNELS > 1) {
        d[gr_mixture_at(0, 3) + 2] = dmean[1] * value[0] * (1 - turn[0] * turn[0]);
        d[gr_mixture_at(1, 3) + 2] = dmean[2] * value[0] * (1 - turn[1] * turn[1]);
        d[gr_mixture_at(2, 3) + 2] = dmean[2] * value[1] * (1 - turn[2] * turn[2]);
    }
    return sum;
}

/* ---- kernels --------------------------------------------------------------------------------- */

template <class T> struct mixture {
    const T *x; /* (rows, parts * count) */
    T *dx;      /* may be x */
    const int32_t *target;
    float *each; /* (rows + 1) */
    const float *dloss;
    int64_t rows;
    int count, channels, ignore;
};

/* Rows with a bad target, which has been reported, are treated as ignored. */
template <class T> static __device__ __forceinline__ bool counts(const mixture<T> &a, int64_t row)
{
    bool all = true;
    for (int c = 0; c < a.channels; c++) {
        const int v = a.target[row * a.channels + c];
        all = all && v != a.ignore && v >= 0 && v < GR_MIXTURE_VALUES;
    }
    return all;
}

/* Counts the rows; reports targets that are neither values nor ignored. */
template <class T> static __global__ void count_rows(mixture<T> a, float *count, cuda_fault *fault, int node)
{
    __shared__ float space[32];
    float counted = 0;
    for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) {
        counted += counts(a, r) ? 1.0f : 0.0f;
        for (int c = 0; c < a.channels; c++) {
            const int v = a.target[r * a.channels + c];
            if (v != a.ignore && (v < 0 || v >= GR_MIXTURE_VALUES))
                report_fault(fault, node, 1, v, r * a.channels + c, GR_MIXTURE_VALUES);
        }
    }
    const float all = block_sum(counted, space);
    if (threadIdx.x == 0)
        *count = all;
}

/* The sum of all losses, in a fixed order, by the channels that count. */
static __global__ void mean_rows(float *loss, const float *each, int64_t rows, int channels)
{
    __shared__ double space[32];
    double sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
        sum += each[r];
    sum = block_sum_double(sum, space);
    if (threadIdx.x == 0)
        *loss = each[rows] > 0 ? (float)(sum / (each[rows] * (double)channels)) : 0;
}

/* ln of the sum of e^x over the values of all lanes. */
static __device__ __forceinline__ float warp_sum_exp(const float (&x)[MINE])
{
    float most = x[0], sum = 0;
    for (int i = 1; i < MINE; i++)
        most = fmaxf(most, x[i]);
    most = warp_max(most);
    for (int i = 0; i < MINE; i++)
        sum += expf(x[i] - most);
    return most + logf(warp_sum(sum));
}

template <class T, int CHANNELS, bool GRADIENT> static __global__ void mixture_rows(mixture<T> a)
{
    enum { PARTS = CHANNELS == 1 ? 3 : GR_MIXTURE_PARTS };
    const int lane = threadIdx.x & 31, cols = a.count * PARTS;
    const int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= a.rows)
        return;
    const T *x = a.x + row * cols;
    T *dx = GRADIENT ? a.dx + row * cols : NULL;
    if (!counts(a, row)) {
        for (int i = lane; GRADIENT && i < cols; i += 32)
            dx[i] = from_float<T>(0);
        if (!GRADIENT && lane == 0)
            a.each[row] = 0;
        return;
    }
    float prior[MINE], p[MINE], d[MINE][GR_MIXTURE_PARTS];
    for (int i = 0; i < MINE; i++) {
        const int k = lane + 32 * i;
        prior[i] = p[i] = -INFINITY;
        if (k >= a.count)
            continue;
        prior[i] = to_float(x[k]);
        p[i] = prior[i] + component<T, CHANNELS, GRADIENT>(x + k, a.count, a.target + row * CHANNELS, d[i]);
    }
    const float before = warp_sum_exp(prior), after = warp_sum_exp(p);
    if (!GRADIENT) {
        if (lane == 0)
            a.each[row] = before - after;
        return;
    }
    const float all = a.each[a.rows], factor = all > 0 ? *a.dloss / (all * (float)a.channels) : 0;
    for (int i = 0; i < MINE; i++) {
        const int k = lane + 32 * i;
        if (k >= a.count)
            continue;
        const float share = expf(p[i] - after);
        dx[k] = from_float<T>((expf(prior[i] - before) - share) * factor);
        for (int j = 1; j < PARTS; j++)
            dx[j * a.count + k] = from_float<T>(-share * d[i][j] * factor);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

template <class T> static mixture<T> mixture_of(const gr_node *n)
{
    const gr_mixture_attr *at = (const gr_mixture_attr *)n->attr;
    mixture<T> a = {};
    a.x = (const T *)n->in[0]->data;
    a.target = (const int32_t *)n->in[1]->data;
    a.rows = gr_tensor_rows(n->in[0]);
    a.channels = at->channels;
    a.count = (int)gr_tensor_cols(n->in[0]) / gr_mixture_parts(at->channels);
    a.ignore = at->ignore_index;
    return a;
}

template <class T, bool GRADIENT> static by_status launch_rows(cuda_exec *x, const mixture<T> &a)
{
    const unsigned blocks = blocks_for(a.rows, WARPS);
    return a.channels == 1 ? cuda_launch(x, mixture_rows<T, 1, GRADIENT>, blocks, 32 * WARPS, 0, a)
                           : cuda_launch(x, mixture_rows<T, 3, GRADIENT>, blocks, 32 * WARPS, 0, a);
}

template <class T> static by_status loss_of(cuda_exec *x, const gr_node *n)
{
    mixture<T> a = mixture_of<T>(n);
    a.each =
        n->out[1] ? (float *)n->out[1]->data : (float *)cuda_scratch(x, (size_t)(a.rows + 1) * sizeof(float));
    BY_BRANCH("logistic_mixture");
    BY_TRY(cuda_launch(x, count_rows<T>, 1, ALONE, 0, a, a.each + a.rows, x->cuda->device_fault,
                       cuda_number(x, n)));
    BY_TRY((launch_rows<T, false>(x, a)));
    return cuda_launch(x, mean_rows, 1, ALONE, 0, (float *)n->out[0]->data, a.each, a.rows, a.channels);
}

template <class T> static by_status grad_of(cuda_exec *x, const gr_node *n)
{
    mixture<T> a = mixture_of<T>(n);
    a.dx = (T *)n->out[0]->data;
    a.each = (float *)n->in[2]->data;
    a.dloss = (const float *)n->in[3]->data;
    float *own = (float *)cuda_scratch(x, sizeof(float)); /* for an unused count */
    BY_BRANCH("logistic_mixture_grad");
    BY_TRY(cuda_launch(x, count_rows<T>, 1, ALONE, 0, a, own, x->cuda->device_fault, cuda_number(x, n)));
    return launch_rows<T, true>(x, a);
}

extern "C" by_status cuda_logistic_mixture(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[0]->type, loss_of, cuda_exec_of(e), n)
}

extern "C" by_status cuda_logistic_mixture_grad(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[0]->type, grad_of, cuda_exec_of(e), n)
}
