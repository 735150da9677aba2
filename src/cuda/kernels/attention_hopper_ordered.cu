/* attention_hopper_ordered.cu - the gradient of causal attention with 5 products, by thread blocks that share
 * the heads and add their parts of dq in a fixed order: see hopper_ordered.cuh. */
#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/hopper_node.cuh"
#include "cuda/kernels/hopper_ordered.cuh"

namespace
{

enum { ORDERED_THREADS = 256 };

/* stats = log2-sum-exp and delta = rowsum(dy * y): D / 8 threads for each query and head, including the
 * padding queries up to `pad`. Also sets the counters to 0. */
template <class T, int D>
static __global__ void __launch_bounds__(ORDERED_THREADS)
    ordered_stats(head_rows y, head_rows dy, const float *lse, float2 *stats, int queries, int pad, int heads,
                  int batch, int *order, int counters)
{
    enum { LANES = D / 8 };
    const int64_t thread = (int64_t)blockIdx.x * ORDERED_THREADS + threadIdx.x, at = thread / LANES;
    const int lane = threadIdx.x % LANES, h = (int)(at % heads), t = (int)(at / heads % pad);
    const int b = (int)(at / heads / pad);
    const bool real = b < batch && t < queries;
    float sum = 0;
    if (thread < counters)
        order[thread] = 0;
    if (real) {
        const vec<T, 8> u = load<T, 8>((const T *)y.at + b * y.batch + t * y.row + h * D + lane * 8);
        const vec<T, 8> v = load<T, 8>((const T *)dy.at + b * dy.batch + t * dy.row + h * D + lane * 8);
        for (int i = 0; i < 8; i++)
            sum += to_float(u.at[i]) * to_float(v.at[i]);
    }
    for (int step = 1; step < LANES; step *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane != 0 || b >= batch)
        return;
    const int64_t row = (int64_t)b * heads + h;
    stats[row * pad + t] = real ? float2{lse[row * queries + t] * 1.44269504f, sum} : float2{INFINITY, 0};
}

/* Heads processed together, and heads that have sums at a time. */
struct ordered_plan {
    int batch_heads, sum_heads, counters;
    size_t sum_bytes;
};
static ordered_plan ordered_plan_of(int heads, int group, int queries, int d, int block, int batch_heads)
{
    ordered_plan p;
    const int blocks = (queries + block - 1) / block;
    p.batch_heads = BY_MIN(batch_heads, heads);
    p.sum_heads = BY_MIN(BY_MAX(8, 4 * p.batch_heads), heads);
    p.counters = round_up(1 + p.sum_heads * group * blocks, 64);
    p.sum_bytes = (size_t)p.sum_heads * (size_t)(group * blocks) * (size_t)(block * d) * sizeof(float);
    return p;
}

template <class J> static by_status run_plan(cuda_exec *x, const attention_node &m, const ordered_plan &plan)
{
    const gr_attention_attr *at = m.attr;
    const int h = at->spec.heads, hk = at->spec.kv_heads, pad = round_up(m.queries, 128);
    hopper_args a = {};
    BY_TRY(map_rows<J>(&a.fixed[0], m, m.in[1], m.keys, hk, J::ROWS));
    BY_TRY(map_rows<J>(&a.fixed[1], m, m.in[2], m.keys, hk, J::ROWS));
    BY_TRY(map_rows<J>(&a.moving[0], m, m.in[0], m.queries, h, J::BLOCK));
    BY_TRY(map_rows<J>(&a.moving[1], m, m.dy, m.queries, h, J::BLOCK));
    a.out[0] = m.grad[1];
    a.out[1] = m.grad[2];
    a.out[2] = m.grad[0];
    a.stats = m.stats;
    a.sums = m.sums;
    a.order = (int *)((char *)m.sums + plan.sum_bytes);
    a.batch_heads = plan.batch_heads;
    a.sum_heads = plan.sum_heads;
    a.pad = pad;
    a.queries = m.queries;
    a.keys = m.keys;
    a.heads = h;
    a.kv_heads = hk;
    a.group = h / hk;
    a.causal = true;
    a.scale = at->spec.scale;
    a.scale_log2 = (float)(at->spec.scale * 1.4426950408889634);
    a.all_heads = m.batch * hk;
    a.tiles = (m.keys + J::ROWS - 1) / J::ROWS;
    a.units = a.all_heads * a.tiles;
    const int64_t threads = (int64_t)m.batch * pad * h * (J::D / 8);
    BY_TRY(cuda_launch(x, ordered_stats<typename J::T, J::D>,
                       dim3(blocks_for(BY_MAX(threads, (int64_t)plan.counters), ORDERED_THREADS)),
                       dim3(ORDERED_THREADS), 0, m.y, m.dy, (const float *)m.lse, m.stats, m.queries, pad, h,
                       m.batch, a.order, plan.counters));
    return cuda_launch(x, hopper_ordered<J>, (unsigned)BY_MIN(a.units, x->cuda->sms), J::THREADS, J::SHARED,
                       a);
}

template <class T> using ordered_of_64 = ordered_job<T, 64, 128, 2, 2, true, 1>;
template <class T> using ordered_of_128 = ordered_job<T, 128, 64, 2, 1, false, 2>;

template <class J> static by_status ordered_grad_by(cuda_exec *x, gr_node *n, int batch_heads)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    const ordered_plan plan =
        ordered_plan_of((int)n->in[0]->dim[0] * at->spec.kv_heads, at->spec.heads / at->spec.kv_heads,
                        (int)n->in[0]->dim[1], J::D, J::BLOCK, batch_heads);
    const attention_node m = grad_node_of(x, n, plan.sum_bytes + (size_t)plan.counters * sizeof(int));
    return run_plan<J>(x, m, plan);
}

/* As many heads together as it takes to occupy the multiprocessors: more would need more of the cache. */
template <class J> static by_status run_ordered(cuda_exec *x, gr_node *n)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    const int64_t keys = (at->packed ? n->in[0] : n->in[1])->dim[1];
    return ordered_grad_by<J>(x, n, BY_MAX(1, x->cuda->sms / (int)((keys + J::ROWS - 1) / J::ROWS)));
}

} // namespace

/* 5 products are faster than the 7 of two jobs, if the thread blocks have several tiles each, since the longest
 * come last, and tiles are long enough. Measured on an H200: 7.2 ms against 10.3 for 48 heads of 64 and 16,384
 * queries, 2.0 against 2.5 for 192 of 4,096, but 0.77 against 0.83 for 768 of 1,024, where whole heads take
 * 0.75 to 0.80. */
bool cuda_hopper_ordered_grad_takes(const cuda_context *c, const gr_node *n)
{
    static int known;
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    if (at->spec.mask != BY_MASK_CAUSAL || !n->out[0] || !(at->packed || n->out[1] || n->out[2]) ||
        !covers(c, n, false) || !compiled((const void *)hopper_ordered<ordered_of_64<bf16>>, &known))
        return false;
    const int64_t rows = ordered_of_64<bf16>::ROWS, heads = n->in[0]->dim[0] * at->spec.kv_heads;
    const int64_t tiles = ((at->packed ? n->in[0] : n->in[1])->dim[1] + rows - 1) / rows;
    return tiles * (at->spec.heads / at->spec.kv_heads) > 8 && heads * (tiles + 1) >= 8 * c->sms;
}

by_status cuda_hopper_ordered_grad(cuda_exec *x, gr_node *n)
{
    const bool is_bf16 = n->in[0]->type == BY_BF16;
    BY_BRANCH("gradient in a fixed order");
    if (((const gr_attention_attr *)n->attr)->head_dim == 64)
        return is_bf16 ? run_ordered<ordered_of_64<bf16>>(x, n) : run_ordered<ordered_of_64<f16>>(x, n);
    return is_bf16 ? run_ordered<ordered_of_128<bf16>>(x, n) : run_ordered<ordered_of_128<f16>>(x, n);
}
