/* hopper_ordered.cuh - the gradient of causal attention with 5 products, by thread blocks that share the
 * heads. Two warpgroups keep 64 keys each and compute dk and dv; ds goes through shared memory, and each of
 * them multiplies half of it by the keys. So each tile of keys contributes one part of dq to every block of
 * queries that attends to it. The copy engine adds the parts in memory.
 *
 * Floating-point sums depend on their order, so the parts of a block of queries are added in a fixed one:
 * from the last tile of keys that the block attends to down to the first. A counter in memory for each block
 * of queries says how many parts it has. The tiles of a head start from the last one, each at its first
 * block of queries. Since tile i + 1 starts one tile of queries after tile i, it is done with a block before
 * tile i needs it, and nobody waits. The first tile of keys, which adds the last part, stores dq. */
#ifndef BY_CUDA_KERNELS_HOPPER_ORDERED_CUH
#define BY_CUDA_KERNELS_HOPPER_ORDERED_CUH

#include "cuda/kernels/hopper_products.cuh"

namespace
{

/* The configuration of a block: two warpgroups of keys, and BLOCK queries in each of the STAGES. KEEP: the
 * keys are in registers. SLOTS: number of tiles whose keys and values fit. PASSED: number of blocks whose ds
 * fits. */
template <class T_, int D_, int BLOCK_, int STAGES_, int SLOTS_, bool KEEP_, int PASSED_> struct ordered_job {
    typedef T_ T;
    enum : bool { TURNED = true, KEEP = KEEP_, MASKED = false, BANDED = false };
    static constexpr int D = D_, GROUPS = 2, BLOCK = BLOCK_, STAGES = STAGES_, SLOTS = SLOTS_;
    enum : int { PARTS = D_ / TILE_COLS };
    static constexpr int ROWS = 64 * GROUPS, HALVES = BLOCK / 64;
    static_assert(HALVES * PARTS == GROUPS, "each warpgroup computes (64, 64) of dq");
    static constexpr int THREADS = WARPGROUP * (1 + GROUPS);
    static constexpr int FIXED_BYTES = ROWS * D * 2, MOVING_BYTES = BLOCK * D * 2;
    static constexpr int SLOT_BYTES = 2 * FIXED_BYTES;
    static constexpr int STATS_BYTES = BLOCK * (int)sizeof(float2);
    static constexpr int STAGE_BYTES = 2 * MOVING_BYTES + (STATS_BYTES + 1023) / 1024 * 1024;
    static constexpr int PASSED = PASSED_, PASSED_BYTES = ROWS * BLOCK * 2, SUM_BYTES = BLOCK * D * 4;
    static constexpr int BARRIERS = 2 * SLOTS + 2 * STAGES + 2 * PASSED + 2;
    static constexpr int SHARED = 1024 + SLOTS * SLOT_BYTES + STAGES * STAGE_BYTES + PASSED * PASSED_BYTES +
                                  SUM_BYTES + 8 * BARRIERS + 4 * SLOTS;
    static_assert(SHARED <= 227 * 1024, "what a block can have");
};

#if BY_HOPPER_CODE

struct ordered_space {
    unsigned char *fixed, *stages, *passed, *sum;
    uint64_t *fixed_full, *fixed_empty, *full, *empty, *passed_full, *passed_empty, *sum_full, *sum_empty;
    int *unit; /* of each slot, or -1 at the end */
};
template <class J> static __device__ __forceinline__ ordered_space ordered_space_of(unsigned char *shared)
{
    ordered_space s;
    s.fixed = shared + (1024 - shared_address(shared) % 1024) % 1024;
    s.stages = s.fixed + J::SLOTS * J::SLOT_BYTES;
    s.passed = s.stages + J::STAGES * J::STAGE_BYTES;
    s.sum = s.passed + J::PASSED * J::PASSED_BYTES;
    s.fixed_full = (uint64_t *)(s.sum + J::SUM_BYTES);
    s.fixed_empty = s.fixed_full + J::SLOTS;
    s.full = s.fixed_empty + J::SLOTS;
    s.empty = s.full + J::STAGES;
    s.passed_full = s.empty + J::STAGES;
    s.passed_empty = s.passed_full + J::PASSED;
    s.sum_full = s.passed_empty + J::PASSED;
    s.sum_empty = s.sum_full + 1;
    s.unit = (int *)(s.sum_empty + 1);
    return s;
}

/* A tile of keys of a head. Units are in the order of batches of heads, of tiles from the last to the first,
 * and of the heads of the batch. */
struct ordered_tile {
    int head, tile;
};
static __device__ __forceinline__ ordered_tile ordered_tile_of(const hopper_args &a, int unit)
{
    const int batch = unit / (a.batch_heads * a.tiles), rest = unit % (a.batch_heads * a.tiles);
    const int heads = min(a.batch_heads, a.all_heads - batch * a.batch_heads);
    return ordered_tile{batch * a.batch_heads + rest % heads, a.tiles - 1 - rest / heads};
}

/* The part of dq that a tile contributes to the current block of queries. */
struct part {
    int before; /* number of parts that come before this one */
    int *count; /* parts so far, and those of earlier heads that used the same sum */
    int target; /* what it counts when this part's turn has come */
    float4 *sum;
};
template <class J>
static __device__ __forceinline__ part part_of(const hopper_args &a, const ordered_tile &w, const passage &p)
{
    const int blocks = (a.queries + J::BLOCK - 1) / J::BLOCK;
    const int end = min(a.keys, a.keys - a.queries + (p.block + 1) * J::BLOCK);
    const int last = (end - 1) / J::ROWS, at = w.head % a.sum_heads, round = w.head / a.sum_heads;
    const int64_t place = ((int64_t)at * a.group + p.member) * blocks + p.block;
    const int before = last - w.tile;
    return part{before, a.order + 1 + place, round * (last + 1) + before,
                a.sums + place * (J::SUM_BYTES / 16)};
}

/* ---- the warp that loads the tiles: one thread of it ----------------------------------------- */

template <class J>
static __device__ __forceinline__ void ordered_blocks(const hopper_args &a, const ordered_space &s,
                                                      const ordered_tile &w, ring &r)
{
    const int b = w.head / a.kv_heads, h = w.head % a.kv_heads;
    for (passage p = passage_of<J>(a, w.tile * J::ROWS, J::ROWS); p.left > 0; step<J::STAGES>(r)) {
        next_block<J>(a, p);
        const int row = p.block * J::BLOCK, other = h * a.group + p.member;
        unsigned char *to = s.stages + r.at * J::STAGE_BYTES;
        barrier_wait(s.empty + r.at, r.parity ^ 1);
        barrier_expect(s.full + r.at, 2 * J::MOVING_BYTES + J::STATS_BYTES);
        for (int m = 0; m < 2; m++)
            for (int c = 0; c < J::PARTS; c++)
                load_tile(to + m * J::MOVING_BYTES + c * J::BLOCK * TILE_ROW, &a.moving[m], s.full + r.at,
                          c * TILE_COLS, row, other, b);
        load_bytes(to + 2 * J::MOVING_BYTES, a.stats + (int64_t)(b * a.heads + other) * a.pad + row,
                   J::STATS_BYTES, s.full + r.at);
    }
}

template <class J>
static __device__ __forceinline__ void ordered_produce(const hopper_args &a, const ordered_space &s)
{
    ring r = {0, 0}, slot = {0, 0};
    for (;; step<J::SLOTS>(slot)) {
        const int unit = atomicAdd(a.order, 1);
        barrier_wait(s.fixed_empty + slot.at, slot.parity ^ 1);
        s.unit[slot.at] = unit < a.units ? unit : -1;
        if (unit >= a.units) {
            barrier_arrive(s.fixed_full + slot.at);
            return;
        }
        const ordered_tile w = ordered_tile_of(a, unit);
        unsigned char *fixed = s.fixed + slot.at * J::SLOT_BYTES;
        barrier_expect(s.fixed_full + slot.at, J::SLOT_BYTES);
        for (int f = 0; f < 2; f++)
            for (int p = 0; p < J::PARTS; p++)
                load_tile(fixed + f * J::FIXED_BYTES + p * J::ROWS * TILE_ROW, &a.fixed[f],
                          s.fixed_full + slot.at, p * TILE_COLS, w.tile * J::ROWS, w.head % a.kv_heads,
                          w.head / a.kv_heads);
        ordered_blocks<J>(a, s, w, r);
    }
}

/* ---- the warp that adds the parts of dq: one thread of it ------------------------------------ */

static __device__ __forceinline__ void wait_for_turn(const part &d)
{
    while (count_get(d.count) != d.target)
        __nanosleep(20);
}

/* The last part is not added in memory: loads the sum of all others for the warpgroups, which store dq. */
template <class J>
static __device__ __forceinline__ void ordered_load(const ordered_space &s, const part &d, int parity)
{
    wait_for_turn(d);
    if (d.before > 0) {
        barrier_expect(s.sum_empty, J::SUM_BYTES);
        load_bytes(s.sum, d.sum, J::SUM_BYTES, s.sum_empty);
    } else {
        barrier_arrive(s.sum_empty);
    }
    barrier_wait(s.sum_full, parity);
}
/* Adds the part that the warpgroups have written. more: another one follows that is added. */
template <class J>
static __device__ __forceinline__ void ordered_store(const ordered_space &s, const part &d, int parity,
                                                     bool more)
{
    const uint64_t keep = keep_in_cache();
    barrier_wait(s.sum_full, parity);
    wait_for_turn(d);
    if (d.before > 0)
        add_bytes(d.sum, s.sum, J::SUM_BYTES, keep);
    else
        store_bytes(d.sum, s.sum, J::SUM_BYTES, keep);
    bytes_read();
    if (more)
        barrier_arrive(s.sum_empty);
    bytes_wait();
}
template <class J>
static __device__ __forceinline__ void ordered_add(const hopper_args &a, const ordered_space &s)
{
    ring slot = {0, 0};
    int parity = 0;
    for (;; step<J::SLOTS>(slot)) {
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        const int unit = *(volatile int *)(s.unit + slot.at);
        if (unit < 0)
            return;
        barrier_arrive(s.fixed_empty + slot.at);
        const ordered_tile w = ordered_tile_of(a, unit);
        if (w.tile > 0)
            barrier_arrive(s.sum_empty);
        for (passage p = passage_of<J>(a, w.tile * J::ROWS, J::ROWS); p.left > 0; parity ^= 1) {
            next_block<J>(a, p);
            const part d = part_of<J>(a, w, p);
            if (w.tile == 0)
                ordered_load<J>(s, d, parity);
            else
                ordered_store<J>(s, d, parity, p.left > 0);
            count_set(d.count, d.target + 1);
        }
    }
}

/* ---- the warpgroups -------------------------------------------------------------------------- */

/* s becomes p. */
template <class J>
static __device__ __forceinline__ void ordered_weights(const hopper_args &a, float (&s)[J::BLOCK / 2],
                                                       const float2 *stats)
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int j = 0; j < J::BLOCK / 8; j++) {
        const float4 two = *(const float4 *)(stats + 8 * j + 2 * c);
        BY_UNROLL
        for (int i = 4 * j; i < 4 * j + 4; i++)
            s[i] = exp2_fast(s[i] * a.scale_log2 - (i % 2 ? two.z : two.x));
    }
}
/* dp becomes ds. */
template <class J>
static __device__ __forceinline__ void ordered_through(const float (&p)[J::BLOCK / 2],
                                                       float (&dp)[J::BLOCK / 2], const float2 *stats)
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int j = 0; j < J::BLOCK / 8; j++) {
        const float4 two = *(const float4 *)(stats + 8 * j + 2 * c);
        BY_UNROLL
        for (int i = 4 * j; i < 4 * j + 4; i++)
            dp[i] = p[i] * (dp[i] - (i % 2 ? two.w : two.y));
    }
}

/* Writes ds (64 keys, BLOCK queries) of this warpgroup for both: as (128 keys, 64 queries), once or twice. */
template <class J>
static __device__ __forceinline__ void ordered_pass(const ordered_space &s, const ring &passed, int group,
                                                    const uint32_t (&ds)[J::BLOCK / 16][4])
{
    const int lane = threadIdx.x % 32, row = 64 * group + threadIdx.x / 32 % 4 * 16 + lane % 16;
    unsigned char *to = s.passed + passed.at * J::PASSED_BYTES;
    barrier_wait(s.passed_empty + passed.at, passed.parity ^ 1);
    BY_UNROLL
    for (int k = 0; k < J::BLOCK / 16; k++)
        stmatrix4(to + k / 4 * (J::ROWS * TILE_ROW) + piece_at(row, k % 4 * 2 + lane / 16), ds[k]);
    written_fence();
    release(s.passed_full + passed.at);
}

/* d (64 queries, 64) = ds transposed, (64, 128 keys), times the keys */
template <class J>
static __device__ __forceinline__ void ordered_multiply(float (&d)[32], uint32_t ds, uint32_t keys)
{
    BY_UNROLL
    for (int k = 0; k < J::ROWS / 16; k++)
        wgmma<typename J::T, 64, true, true>(d, operand_at(ds, k * (16 * TILE_ROW)),
                                             operand_at(keys, k * (16 * TILE_ROW)), k > 0);
}

/* Hands the part of dq over, or stores dq if it is the last one. */
template <class J>
static __device__ __forceinline__ void ordered_hand_over(const hopper_args &a, const ordered_space &s,
                                                         const ordered_tile &w, const passage &p, int group,
                                                         float (&dq)[1][32])
{
    float4 *at = (float4 *)s.sum + group * (8 * WARPGROUP) + threadIdx.x % WARPGROUP;
    if (w.tile > 0) {
        BY_UNROLL
        for (int i = 0; i < 8; i++)
            at[i * WARPGROUP] = float4{dq[0][4 * i], dq[0][4 * i + 1], dq[0][4 * i + 2], dq[0][4 * i + 3]};
        written_fence();
        release(s.sum_full);
        return;
    }
    if (part_of<J>(a, w, p).before > 0) {
        BY_UNROLL
        for (int i = 0; i < 8; i++) {
            const float4 v = at[i * WARPGROUP];
            dq[0][4 * i] += v.x;
            dq[0][4 * i + 1] += v.y;
            dq[0][4 * i + 2] += v.z;
            dq[0][4 * i + 3] += v.w;
        }
    }
    release(s.sum_full);
    const int h = w.head % a.kv_heads * a.group + p.member, lane = threadIdx.x % 32;
    const int row = p.block * J::BLOCK + group % J::HALVES * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    uint32_t word[4][4];
    to_words<typename J::T>(word, dq[0], a.scale, a.scale);
    store_words<typename J::T>(a.out[2], w.head / a.kv_heads, (h * J::PARTS + group % J::PARTS) * 64, row,
                               a.queries, word);
}

/* See moving_at. */
template <class J> static __device__ __forceinline__ uint32_t ordered_at(const ordered_space &s, int stage)
{
    return __shfl_sync(0xffffffffu, operand_place(shared_address(s.stages + stage * J::STAGE_BYTES)), 0);
}

/* Register contents of a warpgroup. */
template <class J> struct ordered_work {
    operand<J> k;
    operand<J, false> v;
    float score[J::BLOCK / 2], dp[J::BLOCK / 2], dk[J::PARTS][32], dv[J::PARTS][32], dq[1][32];
    uint32_t weights[J::BLOCK / 16][4], ds[J::BLOCK / 16][4];
};

/* The scores have been committed, and dp after them: to weights and ds. */
template <class J>
static __device__ __forceinline__ void ordered_softmax(const hopper_args &a, ordered_work<J> &o,
                                                       const float2 *stats, int row0, int block,
                                                       const int (&first)[2])
{
    wgmma_wait<1>();
    hold(o.score);
    if (is_cut_turned<J>(a, row0, block))
        hide_queries<J::BLOCK>(o.score, block * J::BLOCK + 2 * (threadIdx.x % 4), first);
    ordered_weights<J>(a, o.score, stats);
    hold(o.score);
    wgmma_wait<0>();
    hold(o.dp);
    ordered_through<J>(o.score, o.dp, stats);
    to_operand<typename J::T, J::BLOCK>(o.weights, o.score);
    to_operand<typename J::T, J::BLOCK>(o.ds, o.dp);
    hold(o.weights);
    hold(o.ds);
}

/* One tile of keys. dv and dk need nothing from the other warpgroup: while they are computed, its ds arrives.
 * The next scores are computed while dq is handed over. All waits in loops come before the product whose
 * result is read next: the compiler does not follow products across a loop. */
template <class J>
static __device__ __forceinline__ void ordered_tile_grad(const hopper_args &a, const ordered_space &s,
                                                         const ordered_tile &w, const unsigned char *fixed,
                                                         int group, ring &r, ring &passed, int &parity)
{
    const int row0 = w.tile * J::ROWS + 64 * group;
    const int row = row0 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    /* The tile of ds and the columns of the keys that make this warpgroup's part of dq. */
    const int ds_at = group % J::HALVES * (J::ROWS * TILE_ROW);
    const uint32_t keys = operand_place(shared_address(fixed)) + group % J::PARTS * (J::ROWS * TILE_ROW) / 16;
    enum { DY = J::MOVING_BYTES / 16 };
    ordered_work<J> o;
    int first[2];
    bool add = false, more = true;
    first_queries<J>(a, 0, row, first);
    take_operand(o.k, fixed, group);
    take_operand(o.v, fixed + J::FIXED_BYTES, group);
    passage p = passage_of<J>(a, w.tile * J::ROWS, J::ROWS);
    next_block<J>(a, p);
    barrier_wait(s.full + r.at, r.parity);
    uint32_t queries = ordered_at<J>(s, r.at);
    wgmma_fence();
    scores(o.score, o.k, queries);
    wgmma_commit();
    scores(o.dp, o.v, queries + DY);
    wgmma_commit();
    for (;; add = true) {
        const int stage = r.at, pass = passed.at;
        const passage here = p;
        const float2 *stats = (const float2 *)(s.stages + stage * J::STAGE_BYTES + 2 * J::MOVING_BYTES);
        ordered_softmax<J>(a, o, stats, row0, p.block, first);
        wgmma_fence();
        add_rows<J>(o.dv, o.weights, queries + DY, add);
        wgmma_commit();
        ordered_pass<J>(s, passed, group, o.ds);
        add_rows<J>(o.dk, o.ds, queries, add);
        wgmma_commit();
        barrier_wait(s.passed_full + pass, passed.parity);
        step<J::PASSED>(passed);
        barrier_wait(s.sum_empty, parity);
        parity ^= 1;
        step<J::STAGES>(r);
        more = p.left > 0;
        if (more) {
            next_block<J>(a, p);
            barrier_wait(s.full + r.at, r.parity);
        }
        const uint32_t ds = operand_place(shared_address(s.passed + pass * J::PASSED_BYTES) + ds_at);
        if (!more) { /* a branch between products would make the compiler wait for each of them */
            wgmma_fence();
            ordered_multiply<J>(o.dq[0], ds, keys);
            wgmma_commit();
            wgmma_wait<0>();
            hold_parts(o.dv);
            hold_parts(o.dk);
            hold_parts(o.dq);
            release(s.passed_empty + pass);
            release(s.empty + stage);
            ordered_hand_over<J>(a, s, w, here, group, o.dq);
            break;
        }
        queries = ordered_at<J>(s, r.at);
        wgmma_fence();
        ordered_multiply<J>(o.dq[0], ds, keys);
        wgmma_commit();
        wgmma_wait<1>(); /* weights and ds are free */
        hold_parts(o.dv);
        hold_parts(o.dk);
        release(s.empty + stage);
        wgmma_fence();
        scores(o.score, o.k, queries);
        wgmma_commit();
        wgmma_wait<1>();
        hold_parts(o.dq);
        release(s.passed_empty + pass);
        ordered_hand_over<J>(a, s, w, here, group, o.dq);
        wgmma_fence();
        scores(o.dp, o.v, queries + DY);
        wgmma_commit();
    }
    const int b = w.head / a.kv_heads, h = w.head % a.kv_heads;
    if (a.out[0].at)
        store_rows<typename J::T>(a.out[0], b, h, row, a.keys, o.dk, a.scale, a.scale);
    if (a.out[1].at)
        store_rows<typename J::T>(a.out[1], b, h, row, a.keys, o.dv, 1, 1);
}

template <class J>
static __device__ __forceinline__ void ordered_grad(const hopper_args &a, const ordered_space &s, int group)
{
    ring r = {0, 0}, slot = {0, 0}, passed = {0, 0};
    int parity = 0;
    for (;; step<J::SLOTS>(slot)) {
        barrier_wait(s.fixed_full + slot.at, slot.parity);
        const int unit = __shfl_sync(0xffffffffu, *(volatile int *)(s.unit + slot.at), 0);
        if (unit < 0)
            return;
        ordered_tile_grad<J>(a, s, ordered_tile_of(a, unit), s.fixed + slot.at * J::SLOT_BYTES, group, r,
                             passed, parity);
        release(s.fixed_empty + slot.at);
    }
}
#endif

template <class J>
__global__ __launch_bounds__(J::THREADS, 1) void hopper_ordered(const __grid_constant__ hopper_args a)
{
#if BY_HOPPER_CODE
    BY_SHARED(unsigned char, shared);
    const ordered_space s = ordered_space_of<J>(shared);
    if (threadIdx.x == 0) {
        const int readers = 4 * J::GROUPS;
        for (int i = 0; i < J::SLOTS; i++) {
            barrier_init(s.fixed_full + i, 1);
            barrier_init(s.fixed_empty + i, readers + 1);
        }
        for (int i = 0; i < J::STAGES; i++) {
            barrier_init(s.full + i, 1);
            barrier_init(s.empty + i, readers);
        }
        for (int i = 0; i < J::PASSED; i++) {
            barrier_init(s.passed_full + i, readers);
            barrier_init(s.passed_empty + i, readers);
        }
        barrier_init(s.sum_full, readers);
        barrier_init(s.sum_empty, 1);
        barrier_fence();
    }
    __syncthreads();
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARPGROUP, 0) - 1;
    if (group < 0) {
        registers_down<24>();
        if (threadIdx.x == 0)
            ordered_produce<J>(a, s);
        else if (threadIdx.x == 32)
            ordered_add<J>(a, s);
    } else {
        registers_up<240>();
        ordered_grad<J>(a, s, group);
    }
#endif
}

} // namespace

#endif
