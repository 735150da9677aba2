/* attention_hopper.cu - attention on Hopper's matrix units (Dao et al. 2022; the overlap of products and
 * softmax follows Shah et al. 2024). 16-bit types, heads of 64 or 128, no mask except causal and key masks;
 * the general kernels do the rest. */
#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/hopper_views.cuh"

namespace
{

#if BY_HOPPER_CODE
/* The score of a masked key: a query with only masked keys has equal weights. A power of 2, whose product
 * with the scale is exact: the difference of two such products is 0 even if one of them is part of a
 * multiply-add. */
static constexpr float HIDDEN_SCORE = -0x1p100f;

/* The running softmax of two rows: approximately the largest score, and this lane's part of the sum of
 * e^(scale (s - top)). The top follows the largest score only if that exceeds it by more than SLACK powers of
 * two: within them nothing overflows, and earlier sums need no rescaling. */
struct running {
    float top[2], sum[2];
};
enum { SLACK = 8 };
/* Scores to e^(...); fix: the factor by which earlier sums shrink. Returns whether any shrink, in this
 * warp. */
template <int N>
static __device__ __forceinline__ bool running_softmax(float (&s)[N / 2], running &run, float (&fix)[2],
                                                       float scale_log2)
{
    bool raised = false;
    BY_UNROLL
    for (int r = 0; r < 2; r++) {
        float top = run.top[r];
        BY_UNROLL
        for (int i = 2 * r; i < N / 2; i += 4)
            top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = quad_max(top);
        const bool raise = (top - run.top[r]) * scale_log2 > SLACK;
        raised = raised || raise;
        fix[r] = raise ? exp2_fast((run.top[r] - top) * scale_log2) : 1;
        run.top[r] = raise ? top : run.top[r];
        /* Nothing attended to so far. */
        const float less = run.top[r] == -INFINITY ? 0 : run.top[r] * scale_log2;
        float sum = run.sum[r] * fix[r];
        BY_UNROLL
        for (int i = 2 * r; i < N / 2; i += 4) {
            s[i] = exp2_fast(s[i] * scale_log2 - less);
            s[i + 1] = exp2_fast(s[i + 1] * scale_log2 - less);
            sum += s[i] + s[i + 1];
        }
        run.sum[r] = sum;
    }
    return __any_sync(0xffffffffu, raised);
}

template <int PARTS>
static __device__ __forceinline__ void shrink(float (&d)[PARTS][32], const float (&fix)[2])
{
    BY_UNROLL
    for (int i = 0; i < PARTS * 32; i++)
        d[i / 32][i % 32] *= fix[i / 2 % 2];
}

/* The end of a tile in a band, whose sums are y and run: writes y and the log-sum-exp, or combines them with
 * those of other keys that are already there. A query that attends to nothing gives zeros. */
template <class J>
static __device__ __forceinline__ void put_band(const hopper_args &a, const walk &w, int row,
                                                const running &run, float (&y)[J::PARTS][32])
{
    const int b = w.head / a.heads, h = w.head % a.heads;
    float factor[2], old[2] = {0, 0}, lse[2];
    for (int i = 0; i < 2; i++) {
        const float own = run.sum[i] == 0 ? -INFINITY : run.top[i] * a.scale + logf(run.sum[i]);
        const float there =
            a.layout.add && has_query<J>(a, w, row + 8 * i) ? a.lse[lse_at<J>(a, w, row + 8 * i)] : -INFINITY;
        const float most = fmaxf(own, there), less = most == -INFINITY ? 0 : most;
        const float sum = expf(own - less) + expf(there - less);
        lse[i] = less + logf(sum);
        factor[i] = run.sum[i] == 0 ? 0 : expf(own - less) / (sum * run.sum[i]);
        old[i] = sum == 0 ? 0 : expf(there - less) / sum;
    }
    __syncwarp(); /* all lanes of a row have read what one of them overwrites */
    for (int i = 0; i < 2 && a.lse; i++)
        if (threadIdx.x % 4 == 0 && has_query<J>(a, w, row + 8 * i))
            a.lse[lse_at<J>(a, w, row + 8 * i)] = lse[i];
    if (!a.out[0].at)
        return;
    const row_pair<typename J::T> to = band_at<J>(a, a.out[0], b, h, row, a.queries);
    shrink(y, factor);
    if (a.layout.add)
        add_stored<typename J::T>(to, y, old[0], old[1]);
    store_band<typename J::T>(to, y, 1);
}

/* Two warpgroups start their products by turns: then the softmax of one runs during those of the other. They
 * do so in the blocks that both of them process, which are the last ones of a tile. */
template <class J> static __device__ __forceinline__ constexpr bool takes_turns()
{
    return J::GROUPS == 2 && !J::BANDED;
}
template <class J> static __device__ __forceinline__ int blocks_of_both(const hopper_args &a, int row)
{
    if (!takes_turns<J>())
        return 0;
    return min(passage_of<J>(a, row, 64).left, passage_of<J>(a, row + 64, 64).left);
}

template <class J>
static __device__ __forceinline__ void forward(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4;
    ring r = {0, 0}, slot = {0, 0};
    if (takes_turns<J>() && group == 1)
        turn_give(0);
    for (walk w = {}; settle<J>(a, w); go_on(w), step<J::SLOTS>(slot)) {
        const int both = blocks_of_both<J>(a, w.tile * J::ROWS);
        const int b = w.head / a.heads, h = w.head % a.heads, place = place_of<J>(w, group);
        const int row0 = w.tile * J::ROWS + 64 * place, row = row0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        operand<J> q;
        running run = {{-INFINITY, -INFINITY}, {0, 0}};
        float score[J::BLOCK / 2], y[J::PARTS][32], fix[2];
        uint32_t weights[J::BLOCK / 16][4];
        edges edge;
        int values;
        bool add = false;
        find_edges<J>(a, b, row0, row, edge);
        passage p = enter_tile<J>(a, s, w, row0, r);
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        take_operand(q, s.fixed + slot.at * J::SLOT_BYTES, place);
        if (J::KEEP)
            release(s.fixed_empty + slot.at);

        if (seek<J>(a, s, p, r)) {
            wgmma_fence();
            scores(score, q, moving_at<J>(s, r.at));
            wgmma_commit();
            wgmma_wait<0>();
            hold(score);
            if (cuts<J>(a, row0, p.block, edge))
                hide_cut<J>(a, score, p.block * J::BLOCK + 2 * c, edge);
            if (J::MASKED)
                hide_masked<J>(a, score, b, p.block, c, HIDDEN_SCORE);
            running_softmax<J::BLOCK>(score, run, fix, a.scale_log2);
            to_operand<T, J::BLOCK>(weights, score);
            values = r.at;
            step<J::STAGES>(r);
            bool more = seek<J>(a, s, p, r);
            /* The next scores and the current values are multiplied while the softmax proceeds. */
            while (more) {
                const int stage = r.at;
                const bool turns = takes_turns<J>() && p.left + 1 < both;
                hold(weights);
                if (turns)
                    turn_wait(group);
                wgmma_fence();
                scores(score, q, moving_at<J>(s, stage));
                wgmma_commit();
                add_rows<J>(y, weights, moving_at<J>(s, values) + J::MOVING_BYTES / 16, add);
                wgmma_commit();
                if (turns)
                    turn_give(1 - group);
                wgmma_wait<1>();
                hold(score);
                if (cuts<J>(a, row0, p.block, edge))
                    hide_cut<J>(a, score, p.block * J::BLOCK + 2 * c, edge);
                if (J::MASKED)
                    hide_masked<J>(a, score, b, p.block, c, HIDDEN_SCORE);
                const bool raised = running_softmax<J::BLOCK>(score, run, fix, a.scale_log2);
                hold(score);
                step<J::STAGES>(r);
                more = seek<J>(a, s, p, r); /* here, because the compiler moves no work past a loop */
                wgmma_wait<0>();
                hold_parts(y);
                release(s.empty + values);
                if (raised)
                    shrink(y, fix);
                to_operand<T, J::BLOCK>(weights, score);
                values = stage;
                add = true;
            }
            hold(weights);
            wgmma_fence();
            add_rows<J>(y, weights, moving_at<J>(s, values) + J::MOVING_BYTES / 16, add);
            wgmma_commit();
            wgmma_wait<0>();
            hold_parts(y);
            release(s.empty + values);

            run.sum[0] = quad_sum(run.sum[0]);
            run.sum[1] = quad_sum(run.sum[1]);
            leave_tile<J>(s, p, r);
            if constexpr (J::BANDED)
                put_band<J>(a, w, row, run, y);
            if (!J::BANDED && a.lse && c == 0)
                for (int i = 0; i < 2; i++)
                    if (row + 8 * i < a.queries)
                        a.lse[(int64_t)w.head * a.queries + row + 8 * i] =
                            J::MASKED && run.top[i] <= HIDDEN_SCORE ? -INFINITY
                                                                    : run.top[i] * a.scale + logf(run.sum[i]);
            if (!J::BANDED && a.out[0].at)
                store_rows<T>(a.out[0], b, h, row, a.queries, y, 1 / run.sum[0], 1 / run.sum[1]);
        } else if constexpr (J::BANDED) {
            float none[J::PARTS][32] = {};
            if (!a.layout.add)
                put_band<J>(a, w, row, run, none);
        }
        if (!J::KEEP)
            release(s.fixed_empty + slot.at);
    }
    if (takes_turns<J>() && group == 0)
        turn_wait(0); /* the last turn given */
}
#endif

struct forward_work {
    static constexpr job_kind KIND = FORWARD;
#if BY_HOPPER_CODE
    template <class J>
    static __device__ __forceinline__ void run(const hopper_args &a, const space &s, int group)
    {
        forward<J>(a, s, group);
    }
#endif
};

template <class T, bool M> using forward_of_64 = job<T, forward_work, 64, 4, 64, 8, false, 2, true, M>;
template <class T, bool M> using forward_of_128 = job<T, forward_work, 128, 2, 128, 3, true, 1, true, M>;

template <class T, bool MASKED> static by_status run_forward(cuda_exec *x, const attention_node &m)
{
    BY_TRY(make_bits(x, m));
    return m.attr->head_dim == 64 ? run_job<forward_of_64<T, MASKED>>(x, m)
                                  : run_job<forward_of_128<T, MASKED>>(x, m);
}

/* ---- patterns ---------------------------------------------------------------------------------- */

template <class T, int D, int GROUPS, int STAGES>
using forward_band = job<T, forward_work, D, GROUPS, 64, STAGES, false, 2, true, false, true>;

template <class T> static by_status run_forward_view(cuda_exec *x, const attention_node &m)
{
    if (m.attr->head_dim == 128)
        return run_job<forward_band<T, 128, 2, 5>>(x, m);
    return m.queries <= 128 ? run_job<forward_band<T, 64, 2, 8>>(x, m)
                            : run_job<forward_band<T, 64, 4, 8>>(x, m);
}

template <class T> static by_status run_forward_views(cuda_exec *x, attention_node &m)
{
    const view_list v = views_of(m);
    const size_t lse = m.lse ? 0 : sizeof(float) * (size_t)(m.batch * m.attr->spec.heads) * (size_t)m.queries;
    const bool far = v.at[0].kind == SUMMARIES;
    char *space = (char *)cuda_scratch(x, (far ? 2 * summary_bytes(m) : 0) + lse);
    if (!m.lse && v.count > 1)
        m.lse = (float *)(space + (far ? 2 * summary_bytes(m) : 0));
    for (int i = 0; i < v.count; i++) {
        const attention_node heads = node_of_heads(m, v.at[i]), one = node_of_view(heads, v.at[i], space);
        if (v.at[i].kind == SUMMARIES)
            BY_TRY(copy_summaries(x, heads, one));
        BY_TRY(run_forward_view<T>(x, one));
    }
    return BY_OK;
}

/* Names the branch that the views of a node take. */
static void mark_views(const attention_node &m)
{
    const view_list v = views_of(m);
    if (v.at[0].kind == COLUMNS)
        BY_BRANCH("warpgroups, columns");
    if (v.at[0].kind == SUMMARIES)
        BY_BRANCH("warpgroups, summaries");
    if (v.count == 3)
        BY_BRANCH("warpgroups, columns of two lengths");
    if (v.at[v.count - 1].kind == NEAR)
        BY_BRANCH("warpgroups, near keys");
}

} // namespace

bool cuda_hopper_views_takes(const cuda_context *c, const gr_node *n)
{
    return takes<forward_band<bf16, 64, 4, 8>>(c, n, true) && !n->out[2] && has_views(n);
}

by_status cuda_hopper_views(cuda_exec *x, gr_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->out[0], 0);
    m.lse = n->out[1] ? (float *)n->out[1]->data : NULL;
    mark_views(m);
    return n->in[0]->type == BY_BF16 ? run_forward_views<bf16>(x, m) : run_forward_views<f16>(x, m);
}

bool cuda_hopper_attention_takes(const cuda_context *c, const gr_node *n)
{
    return takes<forward_of_64<bf16, false>>(c, n) && !n->out[2];
}

by_status cuda_hopper_attention(cuda_exec *x, gr_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->out[0], 0);
    m.lse = n->out[1] ? (float *)n->out[1]->data : NULL;
    const bool is_bf16 = n->in[0]->type == BY_BF16;
    if (m.mask) {
        BY_BRANCH("warpgroups, masked");
        m.seen = (uint64_t *)cuda_scratch(x, mask_bytes(m));
        return is_bf16 ? run_forward<bf16, true>(x, m) : run_forward<f16, true>(x, m);
    }
    BY_BRANCH("warpgroups");
    return is_bf16 ? run_forward<bf16, false>(x, m) : run_forward<f16, false>(x, m);
}
