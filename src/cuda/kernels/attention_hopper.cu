/* attention_hopper.cu - attention on Hopper's matrix units (Dao et al. 2022; the overlap of products and
 * softmax after Shah et al. 2024). 16-bit types, heads of 64 or 128, no mask but the causal one; what else
 * there is goes to the general kernels. */
#include "cuda/kernels/attention_hopper.cuh"
#include "cuda/kernels/hopper_node.cuh"

namespace
{

#if BY_HOPPER_CODE
/* The running softmax of two rows: the largest score, and this lane's part of the sum of e^(scale (s - top)).
 */
struct running {
    float top[2], sum[2];
};
/* Scores to e^(...); fix: by how much what was summed before shrinks. */
template <int N>
static __device__ __forceinline__ void running_softmax(float (&s)[N / 2], running &run, float (&fix)[2],
                                                       float scale_log2)
{
    BY_UNROLL
    for (int r = 0; r < 2; r++) {
        float top = run.top[r];
        BY_UNROLL
        for (int i = 2 * r; i < N / 2; i += 4)
            top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = quad_max(top);
        const float less = top == -INFINITY ? 0 : top * scale_log2; /* nothing seen so far */
        fix[r] = exp2_fast(run.top[r] * scale_log2 - less);
        run.top[r] = top;
        float sum = run.sum[r] * fix[r];
        BY_UNROLL
        for (int i = 2 * r; i < N / 2; i += 4) {
            s[i] = exp2_fast(s[i] * scale_log2 - less);
            s[i + 1] = exp2_fast(s[i + 1] * scale_log2 - less);
            sum += s[i] + s[i + 1];
        }
        run.sum[r] = sum;
    }
}

template <int PARTS>
static __device__ __forceinline__ void shrink(float (&d)[PARTS][32], const float (&fix)[2])
{
    BY_UNROLL
    for (int i = 0; i < PARTS * 32; i++)
        d[i / 32][i % 32] *= fix[i / 2 % 2];
}

template <class J>
static __device__ __forceinline__ void forward(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4;
    ring r = {0, 0};
    int turn = 0;
    for (walk w = {(int)blockIdx.x, 0, 0, 0}; settle(a, w); w.half++, turn ^= 1) {
        const int b = w.head / a.heads, h = w.head % a.heads;
        const int row0 = w.tile * J::ROWS + 64 * group, row = row0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        passage<J> p = passage_of<J>(a, w.tile, group);
        operand<J> q;
        running run = {{-INFINITY, -INFINITY}, {0, 0}};
        float score[J::BLOCK / 2], y[J::PARTS][32], fix[2];
        uint32_t weights[J::BLOCK / 16][4];
        int last[2], values;
        bool add = false;
        last_keys(a, row, last);
        barrier_wait(s.fixed_full, turn);
        take_operand(q, s.fixed, group);
        if (J::KEEP)
            release(s.fixed_empty);

        if (seek(p, r, s)) {
            take_turn<J>(group);
            wgmma_fence();
            scores(score, q, moving_at<J>(s, r.stage));
            wgmma_commit();
            pass_turn<J>(group);
            wgmma_wait<0>();
            hold(score);
            if (is_cut<J>(a, row0, p.block))
                hide_keys<J::BLOCK>(score, p.block * J::BLOCK + 2 * c, last);
            running_softmax<J::BLOCK>(score, run, fix, a.scale_log2);
            to_operand<T, J::BLOCK>(weights, score);
            values = r.stage;
            step<J>(r);
            bool more = seek(p, r, s);
            /* The next scores and the present values are multiplied while the softmax goes on. */
            while (more) {
                const int stage = r.stage;
                hold(weights);
                take_turn<J>(group);
                wgmma_fence();
                scores(score, q, moving_at<J>(s, stage));
                wgmma_commit();
                add_rows<J>(y, weights, moving_at<J>(s, values) + J::MOVING_BYTES / 16, add);
                wgmma_commit();
                pass_turn<J>(group);
                wgmma_wait<1>();
                hold(score);
                if (is_cut<J>(a, row0, p.block))
                    hide_keys<J::BLOCK>(score, p.block * J::BLOCK + 2 * c, last);
                running_softmax<J::BLOCK>(score, run, fix, a.scale_log2);
                hold(score);
                step<J>(r);
                more = seek(p, r, s); /* here, as the compiler moves no work past a loop */
                wgmma_wait<0>();
                hold_parts(y);
                release(s.empty + values);
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
            if (a.lse && c == 0)
                for (int i = 0; i < 2; i++)
                    if (row + 8 * i < a.queries)
                        a.lse[(int64_t)w.head * a.queries + row + 8 * i] =
                            run.top[i] * a.scale + logf(run.sum[i]);
            if (a.out[0].at)
                store_rows<T>(a.out[0], b, h, row, a.queries, y, 1 / run.sum[0], 1 / run.sum[1]);
        }
        if (!J::KEEP)
            release(s.fixed_empty);
    }
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

template <class T> static by_status run_forward(by_cuda_exec *x, const attention_node &m)
{
    if (m.attr->head_dim == 64)
        return run_job<job<T, forward_work, 64, 2, 128, 4>>(x, m);
    return run_job<job<T, forward_work, 128, 2, 128, 3>>(x, m);
}

} // namespace

bool by_hopper_attention_takes(const by_cuda *c, const by_node *n)
{
    return takes<job<bf16, forward_work, 64, 2, 128, 4>>(c, n) && !n->out[2];
}

by_status by_hopper_attention(by_cuda_exec *x, by_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->out[0], 0);
    m.lse = n->out[1] ? (float *)n->out[1]->data : NULL;
    BY_BRANCH("warpgroups");
    return n->in[0]->type == BY_BF16 ? run_forward<bf16>(x, m) : run_forward<f16>(x, m);
}
