/* attention_hopper_whole.cu - the gradient of attention with 5 products, by thread blocks that each process a
 * whole key head. Two warpgroups keep 64 keys each and compute dk and dv, as in KEY_GRAD. They pass ds on
 * through shared memory, and a third warpgroup multiplies it by the keys: one part of dq of a block of
 * queries for each tile of keys. Parts are added in memory by the threads that computed them, tile after
 * tile, always in the same order; nothing else reads them, so they are stored in the layout of the matrix
 * unit. The last tile that a query attends to turns the sum into dq. */
#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/hopper_keys.cuh"
#include "cuda/kernels/hopper_node.cuh"

namespace
{

enum { STATS_THREADS = 256, LANES = 8 /* threads that share a head of 64 */ };

/* stats = log2-sum-exp and delta = rowsum(dy * y): LANES threads for each query and head, including the
 * padding queries up to `pad`. */
template <class T>
static __global__ void __launch_bounds__(STATS_THREADS)
    query_stats(head_rows y, head_rows dy, const float *lse, float2 *stats, int queries, int pad, int heads,
                int batch)
{
    const int64_t at = ((int64_t)blockIdx.x * STATS_THREADS + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES, h = (int)(at % heads), t = (int)(at / heads % pad);
    const int b = (int)(at / heads / pad);
    const bool real = b < batch && t < queries;
    float sum = 0;
    if (real) {
        const vec<T, 8> u = load<T, 8>((const T *)y.at + b * y.batch + t * y.row + h * 64 + lane * 8);
        const vec<T, 8> v = load<T, 8>((const T *)dy.at + b * dy.batch + t * dy.row + h * 64 + lane * 8);
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

#if BY_HOPPER_CODE

/* ---- the warpgroup of the queries ------------------------------------------------------------ */

enum { PIECES = 8 }; /* pieces of four numbers that a thread has of (64, 64) */

static __device__ __forceinline__ void get_sum(float (&d)[32], const float4 *at)
{
    BY_UNROLL
    for (int i = 0; i < PIECES; i++) {
        const float4 v = __ldcg(at + i * WARPGROUP);
        d[4 * i] = v.x;
        d[4 * i + 1] = v.y;
        d[4 * i + 2] = v.z;
        d[4 * i + 3] = v.w;
    }
}
/* The sum of all parts up to this one; should stay in the cache. */
static __device__ __forceinline__ void put_sum(float4 *at, const float (&d)[32], bool add)
{
    const uint64_t keep = keep_in_cache();
    BY_UNROLL
    for (int i = 0; i < PIECES; i++)
        if (add)
            add_to_memory(at + i * WARPGROUP, d + 4 * i, keep);
        else
            put_in_memory(at + i * WARPGROUP, d + 4 * i, keep);
}

/* d (64 queries, 64) [+]= ds transposed, (64, 16 STEPS keys), times the keys */
template <class J, int STEPS>
static __device__ __forceinline__ void multiply(float (&d)[32], uint32_t ds, uint32_t keys, bool add)
{
    wgmma_fence();
    BY_UNROLL
    for (int k = 0; k < STEPS; k++)
        wgmma<typename J::T, 64, true, true>(d, operand_at(ds, k * (16 * TILE_ROW)),
                                             operand_at(keys, k * (16 * TILE_ROW)), add || k > 0);
    wgmma_commit();
    wgmma_wait<0>();
}

template <class J> static __device__ __forceinline__ void sum_queries(const hopper_args &a, const space &s)
{
    const int thread = threadIdx.x % WARPGROUP, row = thread / 32 * 16 + thread % 32 / 4;
    const int blocks = (a.queries + J::BLOCK - 1) / J::BLOCK;
    ring slot = {0, 0}, passed = {0, 0};
    for (walk w = {}; settle<J>(a, w); go_on(w), step<J::SLOTS>(slot)) {
        const int b = w.head / a.kv_heads, h = w.head % a.kv_heads * a.group;
        const uint32_t keys = operand_place(shared_address(s.fixed + slot.at * J::SLOT_BYTES));
        /* The second 64 keys may become visible later than the first, or be beyond the end. */
        const passage second = passage_of<J>(a, w.tile * J::ROWS + 64, 64);
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        for (passage p = passage_of<J>(a, w.tile * J::ROWS, J::ROWS); p.left > 0; step<J::PASSED>(passed)) {
            const uint32_t ds = operand_place(shared_address(s.passed + passed.at * J::PASSED_BYTES));
            const bool both = p.left <= second.left;
            float dq[1][32];
            next_block<J>(a, p);
            float4 *sum =
                a.sums + thread +
                (((int64_t)blockIdx.x * a.group + p.member) * blocks + p.block) * (PIECES * WARPGROUP);
            const int end = a.causal ? min(a.keys, a.keys - a.queries + (p.block + 1) * J::BLOCK) : a.keys;
            const bool last = w.tile == (end - 1) / J::ROWS, add = last && w.tile > 0;
            if (add)
                get_sum(dq[0], sum);
            barrier_wait(s.passed_full + passed.at, passed.parity);
            hold(dq[0]);
            if (both)
                multiply<J, 8>(dq[0], ds, keys, add);
            else
                multiply<J, 4>(dq[0], ds, keys, add);
            hold(dq[0]);
            release(s.passed_empty + passed.at);
            if (last) {
                store_rows<typename J::T>(a.out[2], b, h + p.member, p.block * J::BLOCK + row, a.queries, dq,
                                          a.scale, a.scale);
            } else {
                put_sum(sum, dq[0], w.tile > 0);
            }
        }
        release(s.fixed_empty + slot.at);
    }
}
#endif

struct whole_work {
    static constexpr job_kind KIND = WHOLE_GRAD;
#if BY_HOPPER_CODE
    template <class J>
    static __device__ __forceinline__ void run(const hopper_args &a, const space &s, int group)
    {
        key_grad<J>(a, s, group);
    }
    template <class J> static __device__ __forceinline__ void sum(const hopper_args &a, const space &s)
    {
        sum_queries<J>(a, s);
    }
#endif
};

template <class T, bool M> using whole_of_64 = job<T, whole_work, 64, 2, 64, 6, true, 2, true, M>;

template <class T, bool MASKED> static by_status run_whole(cuda_exec *x, const attention_node &m)
{
    const int pad = round_up(m.queries, 128);
    const int64_t threads = (int64_t)m.batch * pad * m.attr->spec.heads * LANES;
    BY_TRY(cuda_launch(x, query_stats<T>, dim3(blocks_for(threads, STATS_THREADS)), dim3(STATS_THREADS), 0,
                       m.y, m.dy, (const float *)m.lse, m.stats, m.queries, pad, m.attr->spec.heads,
                       m.batch));
    BY_TRY(make_bits(x, m));
    return run_job<whole_of_64<T, MASKED>>(x, m);
}

} // namespace

/* Thread blocks process whole heads. If the last round would leave many of them idle, two jobs that share
 * tiles are faster, although they take 7 products instead of 5. They are also as fast if there are so many
 * queries that the sums do not stay in the cache. Measured on an H200: 0.75 ms against 0.84 for 768 heads of
 * 1024 queries, 0.33 against 0.41 with 512. With one tile of keys there is nothing to share. */
bool cuda_hopper_whole_grad_takes(const cuda_context *c, const gr_node *n)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    if (at->head_dim != 64 || !n->out[0] || !(at->packed || n->out[1] || n->out[2]) ||
        !takes<whole_of_64<bf16, false>>(c, n))
        return false;
    const int64_t queries = n->in[0]->dim[1], keys = at->packed ? queries : n->in[1]->dim[1];
    const int64_t heads = n->in[0]->dim[0] * at->spec.kv_heads, rounds = (heads + c->sms - 1) / c->sms;
    return keys <= whole_of_64<bf16, false>::ROWS ||
           (heads * 4 >= rounds * c->sms * 3 && queries * (at->spec.heads / at->spec.kv_heads) <= 1024);
}

by_status cuda_hopper_whole_grad(cuda_exec *x, gr_node *n)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    const int64_t blocks = BY_MIN(n->in[0]->dim[0] * at->spec.kv_heads, (int64_t)x->cuda->sms);
    const int64_t queries = round_up((int)n->in[0]->dim[1], 64) * (at->spec.heads / at->spec.kv_heads);
    const attention_node m = grad_node_of(x, n, (size_t)(blocks * queries * 64) * sizeof(float));
    const bool is_bf16 = n->in[0]->type == BY_BF16;
    if (m.mask) {
        BY_BRANCH("gradient by whole heads, masked");
        return is_bf16 ? run_whole<bf16, true>(x, m) : run_whole<f16, true>(x, m);
    }
    BY_BRANCH("gradient by whole heads");
    return is_bf16 ? run_whole<bf16, false>(x, m) : run_whole<f16, false>(x, m);
}
