/* hopper_plain.cuh - attention and its gradient computed plainly: a thread for each row, in f32. */
#ifndef BY_TESTS_HOPPER_PLAIN_CUH
#define BY_TESTS_HOPPER_PLAIN_CUH

#include "cuda/kernels/kernel.cuh"

struct plain_args {
    const uint16_t *q, *k, *v, *dy;        /* rows of heads */
    int64_t q_row, kv_row, y_row;          /* elements from one row to the next */
    float *y, *lse, *delta, *dq, *dk, *dv; /* (B, H, T, D) and (B, H, T); dk, dv (B, Hk, S, D) */
    int batch, heads, kv_heads, queries, keys, dim;
    bool causal, is_bf16;
    float scale;
};

static __device__ float plain_value(const plain_args &a, uint16_t bits)
{
    return a.is_bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
}
static __device__ float plain_dot(const plain_args &a, const uint16_t *x, const uint16_t *y)
{
    float sum = 0;
    for (int d = 0; d < a.dim; d++)
        sum += plain_value(a, x[d]) * plain_value(a, y[d]);
    return sum;
}

static __global__ void plain_queries(plain_args a)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (int64_t)a.batch * a.heads * a.queries)
        return;
    const int t = (int)(row % a.queries), h = (int)(row / a.queries % a.heads),
              b = (int)(row / a.queries / a.heads);
    const int seen = a.causal ? a.keys - a.queries + t + 1 : a.keys, hk = h / (a.heads / a.kv_heads);
    const uint16_t *q = a.q + ((int64_t)b * a.queries + t) * a.q_row + h * a.dim;
    const uint16_t *k = a.k + (int64_t)b * a.keys * a.kv_row + hk * a.dim, *v = a.v + (k - a.k);
    const uint16_t *dy = a.dy + ((int64_t)b * a.queries + t) * a.y_row + h * a.dim;
    float *y = a.y + row * a.dim, *dq = a.dq + row * a.dim;
    float top = -INFINITY, sum = 0, delta = 0;
    for (int s = 0; s < seen; s++)
        top = fmaxf(top, plain_dot(a, q, k + s * a.kv_row) * a.scale);
    for (int d = 0; d < a.dim; d++)
        y[d] = dq[d] = 0;
    for (int s = 0; s < seen; s++) {
        const float p = expf(plain_dot(a, q, k + s * a.kv_row) * a.scale - top);
        sum += p;
        for (int d = 0; d < a.dim; d++)
            y[d] += p * plain_value(a, v[s * a.kv_row + d]);
    }
    for (int d = 0; d < a.dim; d++) {
        y[d] /= sum;
        delta += y[d] * plain_value(a, dy[d]);
    }
    a.lse[row] = top + logf(sum);
    a.delta[row] = delta;
    for (int s = 0; s < seen; s++) {
        const float p = expf(plain_dot(a, q, k + s * a.kv_row) * a.scale - a.lse[row]);
        const float ds = p * (plain_dot(a, dy, v + s * a.kv_row) - delta) * a.scale;
        for (int d = 0; d < a.dim; d++)
            dq[d] += ds * plain_value(a, k[s * a.kv_row + d]);
    }
}

static __global__ void plain_keys(plain_args a)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (int64_t)a.batch * a.kv_heads * a.keys)
        return;
    const int s = (int)(row % a.keys), hk = (int)(row / a.keys % a.kv_heads),
              b = (int)(row / a.keys / a.kv_heads);
    const int group = a.heads / a.kv_heads;
    const uint16_t *k = a.k + ((int64_t)b * a.keys + s) * a.kv_row + hk * a.dim, *v = a.v + (k - a.k);
    float *dk = a.dk + row * a.dim, *dv = a.dv + row * a.dim;
    for (int d = 0; d < a.dim; d++)
        dk[d] = dv[d] = 0;
    for (int h = hk * group; h < (hk + 1) * group; h++)
        for (int t = a.causal ? max(0, s - (a.keys - a.queries)) : 0; t < a.queries; t++) {
            const int64_t at = ((int64_t)b * a.heads + h) * a.queries + t;
            const uint16_t *q = a.q + ((int64_t)b * a.queries + t) * a.q_row + h * a.dim;
            const uint16_t *dy = a.dy + ((int64_t)b * a.queries + t) * a.y_row + h * a.dim;
            const float p = expf(plain_dot(a, q, k) * a.scale - a.lse[at]);
            const float ds = p * (plain_dot(a, dy, v) - a.delta[at]) * a.scale;
            for (int d = 0; d < a.dim; d++) {
                dk[d] += ds * plain_value(a, q[d]);
                dv[d] += p * plain_value(a, dy[d]);
            }
        }
}

#endif
