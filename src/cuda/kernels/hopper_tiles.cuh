/* hopper_tiles.cuh - what attention and its gradient share on Hopper's matrix units. A block keeps a tile of
 * rows fixed, 64 to each of its warpgroups, and lets blocks of the other side's rows move past it. One more
 * warp brings the tiles, through a ring of stages and across the borders of tiles, so that the warpgroups
 * never wait for memory. Four jobs are of this form:
 *
 *   FORWARD     fixed q         moving k, v    s = q k^T, p = softmax(s), y = p v
 *   QUERY_GRAD  fixed q, dy, y  moving k, v    s = q k^T, dp = dy v^T, ds = p (dp - delta), dq = ds k
 *   KEY_GRAD    fixed k, v      moving q, dy   transposed: s^T = k q^T ..., dv = p^T dy, dk = ds^T q
 *   WHOLE_GRAD  fixed k, v      moving q, dy   KEY_GRAD, and dq too: see attention_hopper_whole.cu
 *
 * What one product leaves in registers is what the next takes from registers: scores never go through memory,
 * and only in WHOLE_GRAD ds goes through shared memory, once. */
#ifndef BY_CUDA_KERNELS_HOPPER_TILES_CUH
#define BY_CUDA_KERNELS_HOPPER_TILES_CUH

#include "cuda/kernels/hopper_band.cuh"

namespace
{

enum job_kind { FORWARD, QUERY_GRAD, KEY_GRAD, WHOLE_GRAD };

/* Rows of heads in memory: element (b, t, h, d) is at b * batch + t * row + h * D + d. In a BANDED job, b is
 * the batch row and its columns are `column` elements apart. */
struct head_rows {
    void *at;
    int64_t row, batch, column;
};

/* How tiles are distributed over the thread blocks. A tile takes longer, the more a causal mask lets it see.
 * PAIRED: a unit is a long and a short tile of constant total length, so that units are equal and the tiles
 * of a head run close together in time, sharing the cache. SORTED: a unit is a tile, longest first, and the
 * blocks take them in alternating directions, which balances a small number of them. WHOLE_GRAD uses none of
 * these: a unit is a head. BANDED jobs always alternate: in blocks of a pattern, tiles grow longer again and
 * again. */
enum dealing { PLAIN, PAIRED, SORTED };

struct hopper_args {
    tile_map fixed[3], moving[2];
    head_rows out[3];     /* y, or dq, or dk and dv, or all three; at = NULL: not wanted */
    const uint64_t *seen; /* MASKED: (B, words), one bit per key; words per batch row */
    int words;
    float *lse;                 /* (B, H, T), may be NULL in FORWARD */
    float2 *stats;              /* (B, H, pad): log2-sum-exp, delta; infinity, 0 beyond the last query */
    float4 *sums;               /* sums of dq: of each thread block, or of each of sum_heads */
    int *order;                 /* the next unit; then, for each sum, the parts it has: hopper_ordered.cuh */
    int batch_heads, sum_heads; /* heads processed together; heads that have sums at a time */
    int pad;                    /* queries rounded up */
    int queries, keys;          /* T, S */
    int heads, kv_heads, group; /* query heads, key heads, query heads of each key head */
    int all_heads;              /* B times the heads of the fixed side */
    int tiles, per_head, units; /* fixed tiles of a head; units of work of a head, in all */
    dealing deal;
    bool causal;
    float scale, scale_log2; /* of the scores; times log2(e) */
    float equal;             /* MASKED: 1 / keys */
    struct band band;        /* BANDED: the pairs, and where the rows lie */
    band_layout layout;
};

/* The configuration of a block. WORK: the part of the warpgroups, a struct with KIND and run<job>(args,
 * space, group). KEEP: the fixed operands are in registers. SLOTS: number of tiles whose fixed operands fit.
 * OVERLAP: the next scores are computed before the current ones are used up. MASKED: there is a key mask. BANDED:
 * `band` says who attends to whom, and `causal` only which tiles are long. */
template <class T_, class WORK_, int D_, int GROUPS_, int BLOCK_, int STAGES_, bool KEEP_, int SLOTS_ = 1,
          bool OVERLAP_ = true, bool MASKED_ = false, bool BANDED_ = false>
struct job {
    static_assert(STAGES_ >= 3, "two are held while the third is waited for");
    typedef T_ T;
    typedef WORK_ WORK;
    static constexpr job_kind KIND = WORK::KIND;
    enum : bool { TURNED = KIND == KEY_GRAD || KIND == WHOLE_GRAD }; /* keys are the fixed side */
    static constexpr int D = D_, GROUPS = GROUPS_, BLOCK = BLOCK_, STAGES = STAGES_, SLOTS = SLOTS_;
    enum : bool { KEEP = KEEP_, OVERLAP = OVERLAP_, MASKED = MASKED_, BANDED = BANDED_ };
    enum : int { PARTS = D_ / TILE_COLS };
    static constexpr int ROWS = 64 * GROUPS;
    static constexpr int SUMMERS = KIND == WHOLE_GRAD ? 1 : 0; /* one more warpgroup: see WHOLE_GRAD */
    static constexpr int THREADS = WARPGROUP * (1 + GROUPS + SUMMERS);
    static constexpr int FIXED = KIND == FORWARD ? 1 : KIND == QUERY_GRAD ? 3 : 2;
    static constexpr int FIXED_BYTES = ROWS * D * 2, MOVING_BYTES = BLOCK * D * 2;
    static constexpr int SLOT_BYTES = FIXED * FIXED_BYTES;
    static constexpr int STATS_BYTES = TURNED ? BLOCK * (int)sizeof(float2) : 0;
    static constexpr int STAGE_BYTES = 2 * MOVING_BYTES + (STATS_BYTES + 1023) / 1024 * 1024;
    /* Ds for the summing warpgroup. */
    static constexpr int PASSED = 3 * SUMMERS, PASSED_BYTES = ROWS * BLOCK * 2;
    static constexpr int SHARED = 1024 + SLOTS * SLOT_BYTES + STAGES * STAGE_BYTES + PASSED * PASSED_BYTES +
                                  16 * (SLOTS + STAGES + PASSED);
    static_assert(SHARED <= 227 * 1024, "what a block can have");
};

#if BY_HOPPER_CODE

/* ---- distribution of the work ---------------------------------------------------------------- */

/* The tiles of this thread block, one after the other. Initialise with zeros; done: number of tiles so
 * far. */
struct walk {
    int round, half, done, head, tile;
};
template <class J> static __device__ __forceinline__ bool settle(const hopper_args &a, walk &w)
{
    for (;; w.round++, w.half = 0) {
        const bool back = (a.deal == SORTED || J::BANDED) && w.round % 2;
        const int unit = (int)(w.round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x));
        if (unit >= a.units)
            return false;
        if (J::KIND == WHOLE_GRAD) {
            w.head = unit;
            w.tile = w.half;
            if (w.tile < a.tiles)
                return true;
            continue;
        }
        const int low = a.deal == SORTED ? unit / a.all_heads : unit % a.per_head, high = a.tiles - 1 - low;
        w.head = a.deal == SORTED ? unit % a.all_heads : unit / a.per_head;
        w.tile = (w.half == 0) == (J::TURNED) ? low : high; /* the longer first */
        if (w.half == 0 || (w.half == 1 && a.deal == PAIRED && low < high))
            return true;
    }
}
static __device__ __forceinline__ void go_on(walk &w)
{
    w.half++;
    w.done++;
}
/* Which 64 rows of the tile belong to a warpgroup. A causal mask gives some more work than others, so they
 * alternate from tile to tile. */
template <class J> static __device__ __forceinline__ int place_of(const walk &w, int group)
{
    return w.done % 2 ? J::GROUPS - 1 - group : group;
}

/* The blocks that pass some rows of the fixed side: from the last key down, because a causal mask cuts the
 * last ones; from the first query up, each for all heads of the group. So blocks that concern only some of
 * the warpgroups of a tile come first, and from the first block that concerns it on, a warpgroup processes
 * all. */
struct passage {
    int left, block, member; /* remaining; the current block, and the head of the group */
    int after;               /* BANDED: blocks of the tile that follow and do not concern the rows */
};
/* Positioned before the first of the given blocks. */
template <class J>
static __device__ __forceinline__ passage passage_between(const hopper_args &a, band_range blocks)
{
    const int count = blocks.to - blocks.from;
    return J::TURNED ? passage{count * a.group, blocks.from - 1, a.group - 1, 0}
                     : passage{count, blocks.to, 0, 0};
}
/* Positioned before the first block that passes rows [row, row + n). */
template <class J> static __device__ __forceinline__ passage passage_of(const hopper_args &a, int row, int n)
{
    if constexpr (J::BANDED)
        return passage_between<J>(a, band_blocks<J::TURNED, J::BLOCK>(a.band, a.queries, a.keys, row, n));
    const int ahead = a.keys - a.queries; /* query t attends to keys up to ahead + t */
    if (J::TURNED) {
        const int low = a.causal ? max(0, row - ahead) / J::BLOCK : 0;
        const int count = row < a.keys ? (a.queries + J::BLOCK - 1) / J::BLOCK - low : 0;
        return passage{count * a.group, low - 1, a.group - 1, 0};
    }
    const int seen = a.causal ? min(a.keys, ahead + row + n) : a.keys;
    const int count = row < a.queries ? (seen + J::BLOCK - 1) / J::BLOCK : 0;
    return passage{count, count, 0, 0};
}
template <class J> static __device__ __forceinline__ void next_block(const hopper_args &a, passage &p)
{
    p.left--;
    if (!J::TURNED) {
        p.block--;
    } else if (++p.member == a.group) {
        p.member = 0;
        p.block++;
    }
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* A position in a ring of N, and the parity of the current round. */
struct ring {
    int at, parity;
};
template <int N> static __device__ __forceinline__ void step(ring &r)
{
    if (++r.at == N) {
        r.at = 0;
        r.parity ^= 1;
    }
}

struct space {
    unsigned char *fixed, *stages, *passed;
    uint64_t *fixed_full, *fixed_empty, *full, *empty, *passed_full, *passed_empty;
};
template <class J> static __device__ __forceinline__ space space_of(unsigned char *shared)
{
    space s;
    s.fixed = shared + (1024 - shared_address(shared) % 1024) % 1024;
    s.stages = s.fixed + J::SLOTS * J::SLOT_BYTES;
    s.passed = s.stages + J::STAGES * J::STAGE_BYTES;
    s.fixed_full = (uint64_t *)(s.passed + J::PASSED * J::PASSED_BYTES);
    s.fixed_empty = s.fixed_full + J::SLOTS;
    s.full = s.fixed_empty + J::SLOTS;
    s.empty = s.full + J::STAGES;
    s.passed_full = s.empty + J::STAGES;
    s.passed_empty = s.passed_full + J::PASSED;
    return s;
}

/* ---- the warp that loads the tiles: one thread of it ----------------------------------------- */

/* Head h of sequence b: heads lie side by side. BANDED: the third axis of the map is that of the columns. */
template <class J>
static __device__ __forceinline__ void load_rows(const hopper_args &a, void *to, const tile_map *map,
                                                 uint64_t *full, int part, int row, int h, int b)
{
    if constexpr (J::BANDED)
        load_tile(to, map, full, h * J::D + part * TILE_COLS, over(row, a.layout.pack),
                  rest(b, a.layout.packs) * a.layout.pack, over(b, a.layout.packs));
    else
        load_tile(to, map, full, part * TILE_COLS, row, h, b);
}

template <class J> static __device__ __forceinline__ void produce(const hopper_args &a, const space &s)
{
    ring r = {0, 0}, slot = {0, 0};
    const int heads = J::TURNED ? a.kv_heads : a.heads;
    for (walk w = {}; settle<J>(a, w); go_on(w), step<J::SLOTS>(slot)) {
        const int b = w.head / heads, h = w.head % heads;
        unsigned char *fixed = s.fixed + slot.at * J::SLOT_BYTES;
        barrier_wait(s.fixed_empty + slot.at, slot.parity ^ 1);
        barrier_expect(s.fixed_full + slot.at, J::SLOT_BYTES);
        for (int f = 0; f < J::FIXED; f++)
            for (int p = 0; p < J::PARTS; p++)
                load_rows<J>(a, fixed + f * J::FIXED_BYTES + p * J::ROWS * TILE_ROW, &a.fixed[f],
                             s.fixed_full + slot.at, p, w.tile * J::ROWS, h, b);
        for (passage p = passage_of<J>(a, w.tile * J::ROWS, J::ROWS); p.left > 0; step<J::STAGES>(r)) {
            next_block<J>(a, p);
            const int row = p.block * J::BLOCK;
            const int other = J::TURNED ? h * a.group + p.member : h / a.group;
            unsigned char *to = s.stages + r.at * J::STAGE_BYTES;
            barrier_wait(s.empty + r.at, r.parity ^ 1);
            barrier_expect(s.full + r.at, 2 * J::MOVING_BYTES + J::STATS_BYTES);
            for (int m = 0; m < 2; m++)
                for (int c = 0; c < J::PARTS; c++)
                    load_rows<J>(a, to + m * J::MOVING_BYTES + c * J::BLOCK * TILE_ROW, &a.moving[m],
                                 s.full + r.at, c, row, other, b);
            if (J::TURNED)
                load_bytes(to + 2 * J::MOVING_BYTES, a.stats + (int64_t)(b * a.heads + other) * a.pad + row,
                           J::STATS_BYTES, s.full + r.at);
        }
    }
}

/* ---- the side of the warpgroups -------------------------------------------------------------- */

/* One arrival for each warp that reads. */
static __device__ __forceinline__ void release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* Blocks that do not concern a warpgroup are released unread: only once they have arrived, because a stage
 * counts one round at a time, and while nothing is held, so that the warpgroup never waits for a load that it
 * blocks itself. */
template <class J> static __device__ __forceinline__ void skip_blocks(const space &s, int count, ring &r)
{
    for (int i = 0; i < count; i++, step<J::STAGES>(r)) {
        barrier_wait(s.full + r.at, r.parity);
        release(s.empty + r.at);
    }
}
/* Advances to the first block of a tile that concerns this warpgroup. */
template <class J>
static __device__ __forceinline__ passage enter_tile(const hopper_args &a, const space &s, const walk &w,
                                                     int row, ring &r)
{
    const passage all = passage_of<J>(a, w.tile * J::ROWS, J::ROWS);
    passage mine = passage_of<J>(a, row, 64);
    if (J::BANDED && mine.left > 0) /* the end of what comes after them, less the end of theirs */
        mine.after = J::TURNED ? all.left - mine.left - (mine.block - all.block) * a.group
                               : all.left - mine.left - (all.block - mine.block);
    skip_blocks<J>(s, all.left - mine.left - mine.after, r);
    return mine;
}
/* After the last block that concerns a warpgroup, when it holds none. */
template <class J>
static __device__ __forceinline__ void leave_tile(const space &s, const passage &p, ring &r)
{
    if constexpr (J::BANDED)
        skip_blocks<J>(s, p.after, r);
}
/* Advances to the next block, if there is one, and waits for it. */
template <class J>
static __device__ __forceinline__ bool seek(const hopper_args &a, const space &s, passage &p, const ring &r)
{
    if (p.left == 0)
        return false;
    next_block<J>(a, p);
    barrier_wait(s.full + r.at, r.parity);
    return true;
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class J>
__global__ __launch_bounds__(J::THREADS, 1) void hopper_attention(const __grid_constant__ hopper_args a)
{
#if BY_HOPPER_CODE
    BY_SHARED(unsigned char, shared);
    const space s = space_of<J>(shared);
    if (threadIdx.x == 0) {
        const int readers = 4 * J::GROUPS;
        for (int i = 0; i < J::SLOTS; i++) {
            barrier_init(s.fixed_full + i, 1);
            barrier_init(s.fixed_empty + i, readers + 4 * J::SUMMERS);
        }
        for (int i = 0; i < J::STAGES; i++) {
            barrier_init(s.full + i, 1);
            barrier_init(s.empty + i, readers);
        }
        for (int i = 0; i < J::PASSED; i++) {
            barrier_init(s.passed_full + i, readers);
            barrier_init(s.passed_empty + i, 4);
        }
        barrier_fence();
    }
    __syncthreads();
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARPGROUP, 0) - 1;
    if (group < 0) {
        registers_down<J::GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x == 0)
            produce<J>(a, s);
    } else {
        if constexpr (J::SUMMERS > 0) {
            if (group == J::GROUPS) {
                registers_down<72>();
                J::WORK::template sum<J>(a, s);
                return;
            }
            registers_up<208>();
        } else {
            registers_up<J::GROUPS == 2 ? 240 : J::GROUPS == 3 ? 160 : 112>();
        }
        J::WORK::template run<J>(a, s, group);
    }
#endif
}

} // namespace

#endif
