/* hopper_keys.cuh - the gradient of attention with the keys as the fixed side, everything transposed: (keys,
 * queries). Two warpgroups keep 64 keys each and compute dk and dv. In WHOLE_GRAD they also pass ds on
 * through shared memory, to the warpgroup that computes dq. */
#ifndef BY_CUDA_KERNELS_HOPPER_KEYS_CUH
#define BY_CUDA_KERNELS_HOPPER_KEYS_CUH

#include "cuda/kernels/hopper_products.cuh"

#if BY_HOPPER_CODE
namespace
{

/* Writes ds (64 keys, 64 queries) of this warpgroup into the tile that is passed on. */
template <class J>
static __device__ __forceinline__ void pass_on(const space &s, ring &passed, int place,
                                               const uint32_t (&ds)[J::BLOCK / 16][4])
{
    const int lane = threadIdx.x % 32, row = 64 * place + threadIdx.x / 32 % 4 * 16 + lane % 16;
    unsigned char *tile = s.passed + passed.at * J::PASSED_BYTES;
    barrier_wait(s.passed_empty + passed.at, passed.parity ^ 1);
    BY_UNROLL
    for (int k = 0; k < J::BLOCK / 16; k++)
        stmatrix4(tile + piece_at(row, 2 * k + lane / 16), ds[k]);
    written_fence();
    release(s.passed_full + passed.at);
    step<J::PASSED>(passed);
}

/* Before the first block of a tile that concerns this warpgroup: see enter_tile. For earlier blocks it passes
 * nothing on. */
template <class J>
static __device__ __forceinline__ passage enter_keys(const hopper_args &a, const space &s, const walk &w,
                                                     int row, ring &r, ring &passed)
{
    if constexpr (J::SUMMERS == 0) {
        (void)passed;
        return enter_tile<J>(a, s, w, row, r);
    } else {
        const passage all = passage_of<J>(a, w.tile * J::ROWS, J::ROWS), mine = passage_of<J>(a, row, 64);
        for (int i = mine.left; i < all.left; i++, step<J::STAGES>(r), step<J::PASSED>(passed)) {
            barrier_wait(s.full + r.at, r.parity);
            release(s.empty + r.at);
            barrier_wait(s.passed_empty + passed.at, passed.parity ^ 1);
            release(s.passed_full + passed.at);
        }
        return mine;
    }
}

template <class J>
static __device__ __forceinline__ void key_grad(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4;
    enum : bool { BOTH = J::KEEP && !J::SUMMERS }; /* otherwise there are not enough registers */
    ring r = {0, 0}, slot = {0, 0}, passed = {0, 0};
    for (walk w = {}; settle<J>(a, w); go_on(w), step<J::SLOTS>(slot)) {
        const int b = w.head / a.kv_heads, h = w.head % a.kv_heads, place = place_of<J>(w, group);
        const int row0 = w.tile * J::ROWS + 64 * place, row = row0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const unsigned char *fixed = s.fixed + slot.at * J::SLOT_BYTES;
        operand<J> k;
        operand<J, BOTH> v;
        float score[J::BLOCK / 2], dp[J::BLOCK / 2], dk[J::PARTS][32], dv[J::PARTS][32];
        uint32_t weights[J::BLOCK / 16][4], ds[J::BLOCK / 16][4];
        edges edge;
        int before = -1;
        find_edges<J>(a, b, row0, row, edge);
        passage p = enter_keys<J>(a, s, w, row0, r, passed);
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        take_operand(k, fixed, place);
        take_operand(v, fixed + J::FIXED_BYTES, place);
        if (BOTH)
            release(s.fixed_empty + slot.at);

        if (seek<J>(a, s, p, r)) {
            uint32_t queries = moving_at<J>(s, r.at);
            wgmma_fence();
            scores(score, k, queries);
            scores(dp, v, queries + J::MOVING_BYTES / 16);
            wgmma_commit();
            wgmma_commit(); /* an empty group; later it is the pending sums of the previous block */
            for (;;) {
                const int stage = r.at;
                if (J::OVERLAP)
                    wgmma_wait<1>();
                else
                    wgmma_wait<0>();
                hold(score);
                hold(dp);
                if (cuts<J>(a, row0, p.block, edge))
                    hide_cut<J>(a, score, p.block * J::BLOCK + 2 * c, edge);
                through_softmax_turned<J>(a, score, dp, stats_at<J>(s, stage));
                hold(score);
                hold(dp);
                step<J::STAGES>(r);
                const bool more = seek<J>(a, s, p, r);
                if (J::OVERLAP) {
                    wgmma_wait<0>();
                    hold_parts(dk);
                    hold_parts(dv);
                    if (before >= 0)
                        release(s.empty + before);
                }
                to_operand<T, J::BLOCK>(weights, score);
                to_operand<T, J::BLOCK>(ds, dp);
                hold(weights);
                hold(ds);
                if (!J::OVERLAP || !more) {
                    if constexpr (J::SUMMERS > 0)
                        pass_on<J>(s, passed, place, ds);
                    wgmma_fence();
                    add_rows<J>(dv, weights, queries + J::MOVING_BYTES / 16, before >= 0);
                    add_rows<J>(dk, ds, queries, before >= 0);
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold_parts(dk);
                    hold_parts(dv);
                    release(s.empty + stage);
                    if (!more)
                        break;
                }
                const uint32_t next = moving_at<J>(s, r.at);
                wgmma_fence();
                scores(score, k, next);
                scores(dp, v, next + J::MOVING_BYTES / 16);
                wgmma_commit();
                if constexpr (J::SUMMERS > 0) {
                    pass_on<J>(s, passed, place, ds);
                    wgmma_fence();
                }
                if (J::OVERLAP) {
                    add_rows<J>(dv, weights, queries + J::MOVING_BYTES / 16, before >= 0);
                    add_rows<J>(dk, ds, queries, before >= 0);
                    wgmma_commit();
                }
                queries = next;
                before = stage;
            }
            if (a.out[0].at)
                put_rows<J>(a, a.out[0], b, h, row, a.keys, dk, a.scale);
            if (a.out[1].at)
                put_rows<J>(a, a.out[1], b, h, row, a.keys, dv, 1);
            leave_tile<J>(s, p, r);
        } else if (J::BANDED) { /* no query attends to these keys */
            put_zeros<J>(a, a.out[0], b, h, row, a.keys);
            put_zeros<J>(a, a.out[1], b, h, row, a.keys);
        }
        if (!BOTH)
            release(s.fixed_empty + slot.at);
    }
}

} // namespace
#endif

#endif
