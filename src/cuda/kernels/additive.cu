/* additive.cu - scores of additive attention, v . tanh(q + k), and their gradients. The tanh of a pair is
 * computed again for each gradient instead of stored. */
#include "cuda/kernels/kernel.cuh"

enum { WARPS = 8, COLUMNS = 128 };

template <class T> struct additive {
    int queries, keys, width;
    const T *q, *k, *v, *dy;
};

/* One warp for each pair of query and key. */
template <class T> static __global__ void score_pairs(additive<T> a, T *y, int64_t count)
{
    const int lane = threadIdx.x & 31;
    const int64_t pair = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (pair >= count)
        return;
    const int64_t row = pair / a.keys, b = row / a.queries, key = b * a.keys + pair % a.keys;
    const T *q = a.q + row * a.width, *k = a.k + key * a.width;
    float sum = 0;
    for (int i = lane; i < a.width; i += 32)
        sum += to_float(a.v[i]) * tanhf(to_float(q[i]) + to_float(k[i]));
    sum = warp_sum(sum);
    if (lane == 0)
        y[pair] = from_float<T>(sum);
}

/* dq of one query, or dk of one key (`keys`): a block has COLUMNS columns, and goes over the other side. With
 * `parts`, also the sum of dy tanh, a row of it for each query. */
template <class T, bool keys> static __global__ void pair_grads(additive<T> a, T *d, float *parts)
{
    const int64_t mine = blockIdx.x, b = mine / (keys ? a.keys : a.queries);
    const int i = (int)blockIdx.y * COLUMNS + threadIdx.x, others = keys ? a.queries : a.keys;
    if (i >= a.width)
        return;
    const float own = to_float((keys ? a.k : a.q)[mine * a.width + i]), v = to_float(a.v[i]);
    const T *other = (keys ? a.q : a.k) + b * others * a.width + i;
    const T *dy = keys ? a.dy + b * a.queries * a.keys + mine % a.keys : a.dy + mine * a.keys;
    float sum = 0, dv = 0;
    for (int o = 0; o < others; o++) {
        const float t = tanhf(own + to_float(other[(int64_t)o * a.width]));
        const float e = to_float(dy[(int64_t)o * (keys ? a.keys : 1)]);
        sum += e * (1 - t * t);
        dv += e * t;
    }
    if (d)
        d[mine * a.width + i] = from_float<T>(sum * v);
    if (parts)
        parts[mine * a.width + i] = dv;
}

/* dv [+]= the sum of all rows, in order within each of 8 pieces. */
static __global__ void sum_parts(float *dv, const float *parts, int64_t rows, int width, bool add)
{
    __shared__ float sums[8][33];
    const int across = threadIdx.x % 32, down = threadIdx.x / 32, i = (int)blockIdx.x * 32 + across;
    float sum = 0;
    for (int64_t r = down; r < rows && i < width; r += 8)
        sum += parts[r * width + i];
    sums[down][across] = sum;
    __syncthreads();
    if (down > 0 || i >= width)
        return;
    float total = add ? dv[i] : 0.0f;
    for (int k = 0; k < 8; k++)
        total += sums[k][across];
    dv[i] = total;
}

template <class T> static additive<T> additive_of(const gr_node *n)
{
    const by_tensor *q = n->in[0], *k = n->in[1];
    return additive<T>{(int)q->dim[1],
                       (int)k->dim[1],
                       (int)q->dim[2],
                       (const T *)q->data,
                       (const T *)k->data,
                       (const T *)n->in[2]->data,
                       n->op == GR_OP_ADDITIVE_SCORES_GRAD ? (const T *)n->in[3]->data : NULL};
}

template <class T> static by_status scores(cuda_exec *x, gr_node *n)
{
    const int64_t count = by_elements(n->out[0]);
    return cuda_launch(x, score_pairs<T>, blocks_for(count, WARPS), WARPS * 32, 0, additive_of<T>(n),
                       (T *)n->out[0]->data, count);
}

template <class T> static by_status scores_grad(cuda_exec *x, gr_node *n)
{
    const additive<T> a = additive_of<T>(n);
    const int64_t queries = gr_tensor_rows(n->in[0]), keys = gr_tensor_rows(n->in[1]);
    const unsigned columns = blocks_for(a.width, COLUMNS);
    float *parts = NULL;
    if (n->out[2])
        parts = (float *)cuda_scratch(x, (size_t)by_elements(n->in[0]) * sizeof *parts);
    if (n->out[0] || n->out[2])
        BY_TRY(cuda_launch(x, pair_grads<T, false>, dim3((unsigned)queries, columns), COLUMNS, 0, a,
                           n->out[0] ? (T *)n->out[0]->data : (T *)NULL, parts));
    if (n->out[1])
        BY_TRY(cuda_launch(x, pair_grads<T, true>, dim3((unsigned)keys, columns), COLUMNS, 0, a,
                           (T *)n->out[1]->data, (float *)NULL));
    if (!n->out[2])
        return BY_OK;
    return cuda_launch(x, sum_parts, blocks_for(a.width, 32), 256, 0, (float *)n->out[2]->data,
                       (const float *)parts, queries, a.width, n->in[4] != NULL);
}

extern "C" by_status cuda_additive_scores(gr_exec *e, gr_node *n)
{
    BY_BRANCH("additive_scores");
    BY_CUDA_DISPATCH(n->in[0]->type, scores, cuda_exec_of(e), n)
}

extern "C" by_status cuda_additive_scores_grad(gr_exec *e, gr_node *n)
{
    BY_BRANCH("additive_scores_grad");
    BY_CUDA_DISPATCH(n->in[0]->type, scores_grad, cuda_exec_of(e), n)
}
