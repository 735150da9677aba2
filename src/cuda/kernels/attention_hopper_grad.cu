/* attention_hopper_grad.cu - the gradient of attention on Hopper's matrix units, in two jobs: one computes dq
 * (and delta, for the other), one dk and dv. That takes 7 products instead of 5, because s and dp are
 * computed twice, but any number of thread blocks can share the work. If there are enough heads for all of
 * them, attention_hopper_whole.cu does it in 5. */
#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/hopper_keys.cuh"
#include "cuda/kernels/hopper_views.cuh"

namespace
{

#if BY_HOPPER_CODE
/* ---- QUERY_GRAD ------------------------------------------------------------------------------ */

/* delta = rowsum(dy * y) of a thread's two rows. */
template <class J>
static __device__ __forceinline__ void deltas(const unsigned char *dy, const unsigned char *y, int row,
                                              float (&delta)[2])
{
    delta[0] = delta[1] = 0;
    BY_UNROLL
    for (int k = 0; k < J::D / 16; k++) {
        uint32_t u[4], v[4];
        read_operand<J>(u, dy, row, k);
        read_operand<J>(v, y, row, k);
        BY_UNROLL
        for (int i = 0; i < 8; i++) {
            typedef typename J::T T;
            const float x = to_float(T{(uint16_t)(u[i / 2] >> (i % 2 * 16))});
            delta[i / 2 % 2] += x * to_float(T{(uint16_t)(v[i / 2] >> (i % 2 * 16))});
        }
    }
    delta[0] = quad_sum(delta[0]);
    delta[1] = quad_sum(delta[1]);
}

/* s becomes ds. */
template <int N>
static __device__ __forceinline__ void through_softmax(float (&s)[N / 2], const float (&dp)[N / 2],
                                                       const float (&lse)[2], const float (&delta)[2],
                                                       float scale_log2)
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++) {
        const int r = i / 2 % 2;
        s[i] = exp2_fast(s[i] * scale_log2 - lse[r]) * (dp[i] - delta[r]);
    }
}

/* Scores of queries that attend to nothing: with a log-sum-exp of 0, those of equal weights on every key. */
template <int N>
static __device__ __forceinline__ void level_scores(const hopper_args &a, float (&s)[N / 2], int key,
                                                    const bool (&blind)[2])
{
    const float level = log2f(a.equal) / a.scale_log2;
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        if (blind[i / 2 % 2])
            s[i] = key + i / 4 * 8 + i % 2 < a.keys ? level : -INFINITY;
}

template <class J>
static __device__ __forceinline__ void query_grad(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4;
    ring r = {0, 0}, slot = {0, 0};
    for (walk w = {}; settle<J>(a, w); go_on(w), step<J::SLOTS>(slot)) {
        const int b = w.head / a.heads, h = w.head % a.heads, place = place_of<J>(w, group);
        const int rows = 64 * place + threadIdx.x / 32 % 4 * 16;
        const int row0 = w.tile * J::ROWS + 64 * place, row = w.tile * J::ROWS + rows + lane / 4;
        const unsigned char *fixed = s.fixed + slot.at * J::SLOT_BYTES;
        operand<J> q, dy;
        float score[J::BLOCK / 2], dp[J::BLOCK / 2], dq[J::PARTS][32], lse[2], delta[2];
        uint32_t ds[J::BLOCK / 16][4];
        edges edge;
        int before = -1;
        bool blind[2] = {false, false};
        find_edges<J>(a, b, row0, row, edge);
        for (int i = 0; i < 2; i++)
            lse[i] = has_query<J>(a, w, row + 8 * i) ? a.lse[lse_at<J>(a, w, row + 8 * i)] * 1.44269504f
                                                     : INFINITY;
        for (int i = 0; i < 2 && J::BANDED; i++) /* a query that attends to nothing has no weights */
            lse[i] = lse[i] == -INFINITY ? INFINITY : lse[i];
        passage p = enter_tile<J>(a, s, w, row0, r);
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        take_operand(q, fixed, place);
        take_operand(dy, fixed + J::FIXED_BYTES, place);
        const auto take_stats = [&] {
            deltas<J>(fixed + J::FIXED_BYTES, fixed + 2 * J::FIXED_BYTES, rows, delta);
            if (J::KEEP)
                release(s.fixed_empty + slot.at);
            for (int i = 0; i < 2; i++)
                if (c == 0 && row + 8 * i < a.pad)
                    a.stats[(int64_t)w.head * a.pad + row + 8 * i] = float2{lse[i], delta[i]};
            for (int i = 0; i < 2 && J::MASKED;
                 i++) { /* a query that attends to nothing has equal weights: see level_scores */
                blind[i] = lse[i] == -INFINITY;
                lse[i] = blind[i] ? 0 : lse[i];
            }
        };

        if (seek<J>(a, s, p, r)) {
            uint32_t keys = moving_at<J>(s, r.at);
            wgmma_fence();
            scores(score, q, keys);
            scores(dp, dy, keys + J::MOVING_BYTES / 16);
            wgmma_commit();
            wgmma_commit(); /* an empty group; later it is the pending sum of the previous block */
            take_stats();
            for (;;) {
                const int stage = r.at;
                wgmma_wait<1>();
                hold(score);
                hold(dp);
                if (cuts<J>(a, row0, p.block, edge))
                    hide_cut<J>(a, score, p.block * J::BLOCK + 2 * c, edge);
                if (J::MASKED)
                    hide_masked<J>(a, score, b, p.block, c, -INFINITY);
                if (J::MASKED && (blind[0] || blind[1]))
                    level_scores<J::BLOCK>(a, score, p.block * J::BLOCK + 2 * c, blind);
                through_softmax<J::BLOCK>(score, dp, lse, delta, a.scale_log2);
                hold(score);
                step<J::STAGES>(r);
                /* Here, because the compiler moves no work past a loop. */
                const bool more = seek<J>(a, s, p, r);
                wgmma_wait<0>();
                hold_parts(dq);
                if (before >= 0)
                    release(s.empty + before);
                to_operand<T, J::BLOCK>(ds, score);
                hold(ds);
                if (!more) {
                    wgmma_fence();
                    add_rows<J>(dq, ds, keys, before >= 0);
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold_parts(dq);
                    release(s.empty + stage);
                    break;
                }
                const uint32_t next = moving_at<J>(s, r.at);
                wgmma_fence();
                scores(score, q, next);
                scores(dp, dy, next + J::MOVING_BYTES / 16);
                wgmma_commit();
                add_rows<J>(dq, ds, keys, before >= 0);
                wgmma_commit();
                keys = next;
                before = stage;
            }
            if (a.out[0].at)
                put_rows<J>(a, a.out[0], b, h, row, a.queries, dq, a.scale);
            leave_tile<J>(s, p, r);
        } else {
            take_stats();
            if (J::BANDED)
                put_zeros<J>(a, a.out[0], b, h, row, a.queries);
        }
        if (!J::KEEP)
            release(s.fixed_empty + slot.at);
    }
}
#endif

struct query_work {
    static constexpr job_kind KIND = QUERY_GRAD;
#if BY_HOPPER_CODE
    template <class J>
    static __device__ __forceinline__ void run(const hopper_args &a, const space &s, int group)
    {
        query_grad<J>(a, s, group);
    }
#endif
};
struct key_work {
    static constexpr job_kind KIND = KEY_GRAD;
#if BY_HOPPER_CODE
    template <class J>
    static __device__ __forceinline__ void run(const hopper_args &a, const space &s, int group)
    {
        key_grad<J>(a, s, group);
    }
#endif
};

template <class T, bool M> using query_of_64 = job<T, query_work, 64, 2, 64, 6, true, 1, true, M>;
template <class T, bool M> using query_of_128 = job<T, query_work, 128, 2, 64, 4, false, 1, true, M>;
template <class T, bool M> using key_of_64 = job<T, key_work, 64, 2, 64, 6, true, 1, true, M>;
template <class T, bool M> using key_of_128 = job<T, key_work, 128, 2, 64, 4, false, 1, false, M>;

/* The query side first: it writes the statistics that the key side reads. */
template <class T, bool MASKED> static by_status run_backward(cuda_exec *x, const attention_node &m)
{
    const bool wide = m.attr->head_dim == 128, keys = m.grad[1].at || m.grad[2].at;
    BY_TRY(make_bits(x, m));
    BY_TRY((wide ? run_job<query_of_128<T, MASKED>>(x, m) : run_job<query_of_64<T, MASKED>>(x, m)));
    if (!keys)
        return BY_OK;
    return wide ? run_job<key_of_128<T, MASKED>>(x, m) : run_job<key_of_64<T, MASKED>>(x, m);
}

/* ---- patterns ---------------------------------------------------------------------------------- */

template <class T> using query_band_64 = job<T, query_work, 64, 2, 64, 6, true, 1, true, false, true>;
template <class T> using query_band_128 = job<T, query_work, 128, 2, 64, 4, false, 1, true, false, true>;
template <class T> using key_band_64 = job<T, key_work, 64, 2, 64, 6, true, 1, true, false, true>;
template <class T> using key_band_128 = job<T, key_work, 128, 2, 64, 4, false, 1, false, false, true>;

template <class T> static by_status run_backward_view(cuda_exec *x, attention_node &m, bool add_keys)
{
    const bool wide = m.attr->head_dim == 128;
    BY_TRY((wide ? run_job<query_band_128<T>>(x, m) : run_job<query_band_64<T>>(x, m)));
    if (!m.grad[1].at && !m.grad[2].at)
        return BY_OK;
    m.layout.add = add_keys;
    return wide ? run_job<key_band_128<T>>(x, m) : run_job<key_band_64<T>>(x, m);
}

/* Adds the gradients of the summaries to those of the positions, or writes these. */
static by_status give_summaries(cuda_exec *x, const attention_node &m, const attention_node &view, bool add,
                                by_dtype type)
{
    for (int i = 1; i < 3; i++)
        if (m.grad[i].at)
            BY_TRY(cuda_give_summaries(x, summaries_of(m), plain_rows(m.grad[i]), plain_rows(view.grad[i]),
                                       add, type));
    return BY_OK;
}

/* Room for the statistics of any of the views. */
static size_t stats_of_views(const attention_node &m, const view_list &v)
{
    int64_t most = 0;
    for (int i = 0; i < v.count; i++)
        most = BY_MAX(most, (int64_t)packs_of(v.at[i]) * round_up(v.at[i].rows * v.at[i].pack, 64));
    return sizeof(float2) * (size_t)(m.batch * m.attr->spec.heads) * (size_t)most;
}

template <class T> static by_status run_backward_views(cuda_exec *x, attention_node m, by_dtype type)
{
    const view_list v = views_of(m);
    const size_t stats = stats_of_views(m, v);
    const bool far = v.at[0].kind == SUMMARIES;
    char *space = (char *)cuda_scratch(x, stats + (far ? 4 * summary_bytes(m) : 0));
    m.stats = (float2 *)space;
    for (int i = 0; i < v.count; i++) {
        const attention_node heads = node_of_heads(m, v.at[i]);
        attention_node one = node_of_view(heads, v.at[i], space + stats);
        if (v.at[i].kind == SUMMARIES)
            BY_TRY(copy_summaries(x, heads, one));
        BY_TRY(run_backward_view<T>(x, one, v.at[i].add && !far));
    }
    if (!far)
        return BY_OK;
    const attention_node heads = node_of_heads(m, v.at[0]);
    return give_summaries(x, heads, node_of_view(heads, v.at[0], space + stats), v.at[v.count - 1].add, type);
}

} // namespace

bool cuda_hopper_views_grad_takes(const cuda_context *c, const gr_node *n)
{
    return takes<key_band_64<bf16>>(c, n, true) && has_views(n);
}

by_status cuda_hopper_views_grad(cuda_exec *x, gr_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->in[GR_ATT_Y], 0);
    m.lse = (float *)n->in[GR_ATT_LSE]->data;
    m.dy = rows_of(n->in[GR_ATT_DY], 0);
    rows_of_qkv(m.attr, n->out, m.grad);
    const view_list v = views_of(m);
    if (v.at[0].kind == COLUMNS)
        BY_BRANCH("gradient by warpgroups, columns");
    if (v.at[0].kind == SUMMARIES)
        BY_BRANCH("gradient by warpgroups, summaries");
    if (v.count == 1)
        BY_BRANCH("gradient by warpgroups, one view");
    const by_dtype type = n->in[0]->type;
    return type == BY_BF16 ? run_backward_views<bf16>(x, m, type) : run_backward_views<f16>(x, m, type);
}

bool cuda_hopper_attention_grad_takes(const cuda_context *c, const gr_node *n)
{
    return takes<key_of_64<bf16, false>>(c, n);
}

by_status cuda_hopper_attention_grad(cuda_exec *x, gr_node *n)
{
    const attention_node m = grad_node_of(x, n, 0);
    const bool is_bf16 = n->in[0]->type == BY_BF16;
    if (m.mask) {
        BY_BRANCH("gradient by warpgroups, masked");
        return is_bf16 ? run_backward<bf16, true>(x, m) : run_backward<f16, true>(x, m);
    }
    BY_BRANCH("gradient by warpgroups");
    return is_bf16 ? run_backward<bf16, false>(x, m) : run_backward<f16, false>(x, m);
}
