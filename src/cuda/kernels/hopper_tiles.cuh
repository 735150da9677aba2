/* hopper_tiles.cuh - what attention and its gradient share on Hopper's matrix units. A block keeps a tile of
 * rows fixed, 64 to each of its warpgroups, and lets blocks of the other side's rows move past it. One more
 * warp brings the tiles, through a ring of stages and across the borders of tiles, so that the warpgroups
 * never wait for memory. Three jobs are of this form:
 *
 *   FORWARD     fixed q         moving k, v    s = q k^T, p = softmax(s), y = p v
 *   QUERY_GRAD  fixed q, dy, y  moving k, v    s = q k^T, dp = dy v^T, ds = p (dp - delta), dq = ds k
 *   KEY_GRAD    fixed k, v      moving q, dy   the same turned round: s^T = k q^T ..., dv = p^T dy, dk = ds^T
 * q
 *
 * In each, what one product leaves in registers is what the next takes from registers: scores never go
 * through memory. */
#ifndef BY_CUDA_KERNELS_HOPPER_TILES_CUH
#define BY_CUDA_KERNELS_HOPPER_TILES_CUH

#include "cuda/kernels/wgmma.cuh"

namespace
{

enum job_kind { FORWARD, QUERY_GRAD, KEY_GRAD };

/* Rows of heads in memory: element (b, t, h, d) lies at b * batch + t * row + h * D + d. */
struct head_rows {
    void *at;
    int64_t row, batch;
};

struct hopper_args {
    tile_map fixed[3], moving[2];
    head_rows out[2];           /* y, or dq, or dk and dv; at = NULL: not wanted */
    float *lse;                 /* (B, H, T), may be NULL in FORWARD */
    float2 *stats;              /* (B, H, pad): log2-sum-exp, delta; infinity, 0 beyond the last query */
    int pad;                    /* queries rounded up */
    int queries, keys;          /* T, S */
    int heads, kv_heads, group; /* query heads, key heads, query heads of each key head */
    int tiles, per_head, units; /* fixed tiles of a head; units of work of a head, in all */
    bool paired;                /* a unit is two tiles, the short and the long of a causal mask */
    bool causal;
    float scale, scale_log2; /* of the scores; times log2(e) */
};

/* What a block does. WORK: the warpgroups' part, a struct with KIND and run<job>(args, space, group).
 * KEEP: the fixed operands are in registers. OVERLAP: the next scores are made before the present ones have
 * been used up. TURNS: the warpgroups start their products one after the other, block by block, so that
 * the softmax of one runs beside the products of the next. */
template <class T_, class WORK_, int D_, int GROUPS_, int BLOCK_, int STAGES_, bool KEEP_ = D_ == 64,
          bool OVERLAP_ = true, bool TURNS_ = false>
struct job {
    static_assert(STAGES_ >= 3, "two are held while the third is waited for");
    typedef T_ T;
    typedef WORK_ WORK;
    static constexpr job_kind KIND = WORK::KIND;
    static constexpr int D = D_, GROUPS = GROUPS_, BLOCK = BLOCK_, STAGES = STAGES_;
    enum : bool { KEEP = KEEP_, OVERLAP = OVERLAP_, TURNS = TURNS_ };
    enum : int { PARTS = D_ / TILE_COLS };
    static constexpr int ROWS = 64 * GROUPS, THREADS = WARPGROUP * (GROUPS + 1);
    static constexpr int FIXED = KIND == FORWARD ? 1 : KIND == QUERY_GRAD ? 3 : 2;
    static constexpr int FIXED_BYTES = ROWS * D * 2, MOVING_BYTES = BLOCK * D * 2;
    static constexpr int STATS_BYTES = KIND == KEY_GRAD ? BLOCK * (int)sizeof(float2) : 0;
    static constexpr int STAGE_BYTES = 2 * MOVING_BYTES + (STATS_BYTES + 1023) / 1024 * 1024;
    static constexpr int SHARED = 1024 + FIXED * FIXED_BYTES + STAGES * STAGE_BYTES + 8 * (2 + 2 * STAGES);
};

#if BY_HOPPER_CODE

/* ---- who does what --------------------------------------------------------------------------- */

/* The tiles of this thread block, one after the other. */
struct walk {
    int unit, half, head, tile;
};
static __device__ __forceinline__ bool settle(const hopper_args &a, walk &w)
{
    for (; w.unit < a.units; w.unit += gridDim.x, w.half = 0) {
        const int early = w.unit % a.per_head, late = a.tiles - 1 - early;
        w.head = w.unit / a.per_head;
        w.tile = w.half ? early : late;
        if (w.half == 0 || (w.half == 1 && a.paired && early < late))
            return true;
    }
    return false;
}

/* Blocks [low, low + count) of moving rows. */
struct stretch {
    int low, count;
};
/* What rows [row, row + n) of the fixed side have to do with. */
template <class J> static __device__ __forceinline__ stretch stretch_of(const hopper_args &a, int row, int n)
{
    const int ahead = a.keys - a.queries; /* query t sees keys up to ahead + t */
    if (J::KIND == KEY_GRAD) {
        if (row >= a.keys)
            return stretch{0, 0};
        const int low = a.causal ? max(0, row - ahead) / J::BLOCK : 0;
        return stretch{low, (a.queries + J::BLOCK - 1) / J::BLOCK - low};
    }
    if (row >= a.queries)
        return stretch{0, 0};
    const int seen = a.causal ? min(a.keys, ahead + row + n) : a.keys;
    return stretch{0, (seen + J::BLOCK - 1) / J::BLOCK};
}
/* Which blocks pass a tile first and next: from the last key down, as the last are those that a causal mask
 * cuts; from the first query up, and again for each head of the group. */
template <class J> static __device__ __forceinline__ int first_block(const stretch &all)
{
    return J::KIND == KEY_GRAD ? all.low : all.low + all.count - 1;
}
template <class J> static __device__ __forceinline__ int next_block(const stretch &all, int block)
{
    if (J::KIND != KEY_GRAD)
        return block - 1;
    return block + 1 < all.low + all.count ? block + 1 : all.low;
}
template <class J> static __device__ __forceinline__ int passes(const hopper_args &a, const stretch &all)
{
    return J::KIND == KEY_GRAD ? all.count * a.group : all.count;
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* A place in the ring of stages, and the parity of the present round. */
struct ring {
    int stage, parity;
};
template <class J> static __device__ __forceinline__ void step(ring &r)
{
    if (++r.stage == J::STAGES) {
        r.stage = 0;
        r.parity ^= 1;
    }
}

struct space {
    unsigned char *fixed, *stages;
    uint64_t *fixed_full, *fixed_empty, *full, *empty;
};
template <class J> static __device__ __forceinline__ space space_of(unsigned char *shared)
{
    space s;
    s.fixed = shared + (1024 - shared_address(shared) % 1024) % 1024;
    s.stages = s.fixed + J::FIXED * J::FIXED_BYTES;
    s.fixed_full = (uint64_t *)(s.stages + J::STAGES * J::STAGE_BYTES);
    s.fixed_empty = s.fixed_full + 1;
    s.full = s.fixed_full + 2;
    s.empty = s.full + J::STAGES;
    return s;
}

/* One arrival for each warp that reads. */
static __device__ __forceinline__ void release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* ---- the warp that brings the tiles: one thread of it ---------------------------------------- */

template <class J> static __device__ __forceinline__ void produce(const hopper_args &a, const space &s)
{
    ring r = {0, 0};
    int turn = 0;
    const int heads = J::KIND == KEY_GRAD ? a.kv_heads : a.heads;
    for (walk w = {(int)blockIdx.x, 0, 0, 0}; settle(a, w); w.half++, turn ^= 1) {
        const int b = w.head / heads, h = w.head % heads;
        barrier_wait(s.fixed_empty, turn ^ 1);
        barrier_expect(s.fixed_full, J::FIXED * J::FIXED_BYTES);
        for (int f = 0; f < J::FIXED; f++)
            for (int p = 0; p < J::PARTS; p++)
                load_tile(s.fixed + f * J::FIXED_BYTES + p * J::ROWS * TILE_ROW, &a.fixed[f], s.fixed_full,
                          p * TILE_COLS, w.tile * J::ROWS, h, b);
        const stretch all = stretch_of<J>(a, w.tile * J::ROWS, J::ROWS);
        const int n = passes<J>(a, all);
        int block = first_block<J>(all);
        for (int i = 0; i < n; i++, step<J>(r), block = next_block<J>(all, block)) {
            const int row = block * J::BLOCK;
            const int other = J::KIND == KEY_GRAD ? h * a.group + i / all.count : h / a.group;
            unsigned char *to = s.stages + r.stage * J::STAGE_BYTES;
            barrier_wait(s.empty + r.stage, r.parity ^ 1);
            barrier_expect(s.full + r.stage, 2 * J::MOVING_BYTES + J::STATS_BYTES);
            for (int m = 0; m < 2; m++)
                for (int p = 0; p < J::PARTS; p++)
                    load_tile(to + m * J::MOVING_BYTES + p * J::BLOCK * TILE_ROW, &a.moving[m],
                              s.full + r.stage, p * TILE_COLS, row, other, b);
            if (J::KIND == KEY_GRAD)
                load_bytes(to + 2 * J::MOVING_BYTES, a.stats + (int64_t)(b * a.heads + other) * a.pad + row,
                           J::STATS_BYTES, s.full + r.stage);
        }
    }
}

/* ---- what the warpgroups share --------------------------------------------------------------- */

/* A warpgroup's way along the blocks that pass a tile. */
template <class J> struct passage {
    stretch all, mine;
    int group, left, next, block; /* to come; the next one; the present one */
};
template <class J> static __device__ __forceinline__ void take_turn(int group)
{
    if (J::TURNS)
        named_wait(1 + group, 2 * WARPGROUP);
}
template <class J> static __device__ __forceinline__ void pass_turn(int group)
{
    if (J::TURNS)
        named_arrive(1 + (group + 1) % J::GROUPS, 2 * WARPGROUP);
}
template <class J>
static __device__ __forceinline__ passage<J> passage_of(const hopper_args &a, int tile, int group)
{
    passage<J> p;
    p.all = stretch_of<J>(a, tile * J::ROWS, J::ROWS);
    p.mine = stretch_of<J>(a, tile * J::ROWS + 64 * group, 64);
    p.group = group;
    p.left = passes<J>(a, p.all);
    p.next = p.block = first_block<J>(p.all);
    return p;
}
/* On to the next block that concerns this warpgroup, and until it is there. The others are given back unread:
 * once they are there, as a stage counts one round at a time. */
template <class J> static __device__ __forceinline__ bool seek(passage<J> &p, ring &r, const space &s)
{
    for (; p.left > 0; step<J>(r)) {
        p.left--;
        p.block = p.next;
        p.next = next_block<J>(p.all, p.next);
        barrier_wait(s.full + r.stage, r.parity);
        if (p.block >= p.mine.low && p.block < p.mine.low + p.mine.count)
            return true;
        release(s.empty + r.stage);
        take_turn<J>(p.group);
        pass_turn<J>(p.group);
    }
    return false;
}

/* The place of the block in a stage. Told that all lanes have the same, the compiler computes with it but
 * once. */
template <class J> static __device__ __forceinline__ uint32_t moving_at(const space &s, int stage)
{
    return __shfl_sync(0xffffffffu, operand_place(shared_address(s.stages + stage * J::STAGE_BYTES)), 0);
}

/* A warp's 16 rows of a tile, columns [16k, 16k + 16), as an operand in registers. */
template <class J>
static __device__ __forceinline__ void read_operand(uint32_t (&word)[4], const unsigned char *tile, int row,
                                                    int k)
{
    const int lane = threadIdx.x % 32;
    ldmatrix4(word, tile + k / 4 * (J::ROWS * TILE_ROW) + piece_at(row + lane % 16, k % 4 * 2 + lane / 16));
}

/* Fixed rows as the left operand of products. */
template <class J> struct operand {
    uint32_t word[J::KEEP ? J::D / 16 : 1][4];
    uint32_t at;
};
template <class J>
static __device__ __forceinline__ void take_operand(operand<J> &o, const unsigned char *tile, int group)
{
    if constexpr (J::KEEP) {
        const int row = 64 * group + threadIdx.x / 32 % 4 * 16;
        BY_UNROLL
        for (int k = 0; k < J::D / 16; k++)
            read_operand<J>(o.word[k], tile, row, k);
    } else {
        o.at = operand_place(shared_address(tile) + 64 * group * TILE_ROW);
    }
}

/* d (64, BLOCK) = a (64, D) times the moving rows at b, turned */
template <class J>
static __device__ __forceinline__ void scores(float (&d)[J::BLOCK / 2], const operand<J> &a, uint32_t b)
{
    BY_UNROLL
    for (int k = 0; k < J::D / 16; k++) {
        const uint64_t right = operand_at(b, k / 4 * (J::BLOCK * TILE_ROW) + k % 4 * 32);
        if constexpr (J::KEEP)
            wgmma<typename J::T, J::BLOCK, false>(d, a.word[k], right, k > 0);
        else
            wgmma<typename J::T, J::BLOCK, false>(
                d, operand_at(a.at, k / 4 * (J::ROWS * TILE_ROW) + k % 4 * 32), right, k > 0);
    }
}

/* d (64, D) [+]= p (64, BLOCK) times the moving rows at b */
template <class J>
static __device__ __forceinline__ void add_rows(float (&d)[J::PARTS][32],
                                                const uint32_t (&p)[J::BLOCK / 16][4], uint32_t b, bool add)
{
    BY_UNROLL
    for (int part = 0; part < J::PARTS; part++) {
        BY_UNROLL
        for (int k = 0; k < J::BLOCK / 16; k++)
            wgmma<typename J::T, 64, true>(d[part], p[k],
                                           operand_at(b, part * (J::BLOCK * TILE_ROW) + k * (16 * TILE_ROW)),
                                           add || k > 0);
    }
}

/* The result of one product as the left operand of the next. */
template <class T, int N>
static __device__ __forceinline__ void to_operand(uint32_t (&a)[N / 16][4], const float (&d)[N / 2])
{
    BY_UNROLL
    for (int i = 0; i < N / 4; i++)
        a[i / 4][i % 4] = pack2<T>(d[2 * i], d[2 * i + 1]);
}

template <int PARTS> static __device__ __forceinline__ void hold_parts(float (&d)[PARTS][32])
{
    BY_UNROLL
    for (int p = 0; p < PARTS; p++)
        hold(d[p]);
}

/* Sums over the four lanes that share a row. */
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Lane c of a quad has word[i] of piece i; afterwards it has those of all four lanes of piece c. */
static __device__ __forceinline__ void turn_quad(uint32_t (&word)[4], int c)
{
    BY_UNROLL
    for (int k = 0; k < 2; k++) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, c & 2 ? word[k] : word[k + 2], 2);
        word[k] = c & 2 ? got : word[k];
        word[k + 2] = c & 2 ? word[k + 2] : got;
    }
    BY_UNROLL
    for (int k = 0; k < 4; k += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, c & 1 ? word[k] : word[k + 1], 1);
        word[k] = c & 1 ? got : word[k];
        word[k + 1] = c & 1 ? word[k + 1] : got;
    }
}

/* Rows `row` and row + 8 of d times a factor of each, if they are below `end`. */
template <class T, int PARTS>
static __device__ __forceinline__ void store_rows(const head_rows &to, int b, int head, int row, int end,
                                                  const float (&d)[PARTS][32], float low, float high)
{
    const int c = threadIdx.x % 4;
    T *at = (T *)to.at + b * to.batch + row * to.row + head * (PARTS * 64) + 8 * c;
    BY_UNROLL
    for (int half = 0; half < 2; half++) {
        const float f = half ? high : low;
        BY_UNROLL
        for (int j = 0; j < PARTS * 8; j += 4) {
            uint32_t word[4];
            BY_UNROLL
            for (int k = 0; k < 4; k++) {
                const float *from = &d[j / 8][(j % 8 + k) * 4 + 2 * half];
                word[k] = pack2<T>(from[0] * f, from[1] * f);
            }
            turn_quad(word, c);
            if (row + 8 * half < end)
                *(uint4 *)(at + 8 * half * to.row + 8 * j) = uint4{word[0], word[1], word[2], word[3]};
        }
    }
}

/* ---- the causal mask ------------------------------------------------------------------------- */

/* The last keys that a thread's two rows see. */
static __device__ __forceinline__ void last_keys(const hopper_args &a, int row, int (&last)[2])
{
    const int end = a.keys - 1, ahead = a.keys - a.queries;
    last[0] = a.causal ? min(end, ahead + row) : end;
    last[1] = a.causal ? min(end, ahead + row + 8) : end;
}
/* Whether a block has keys that one of the 64 rows from `row` does not see. */
template <class J> static __device__ __forceinline__ bool is_cut(const hopper_args &a, int row, int block)
{
    const int first_end = a.causal ? min(a.keys, a.keys - a.queries + row + 1) : a.keys;
    return (block + 1) * J::BLOCK > first_end;
}

/* Keys beyond the last one that a row sees; key: of s[0]. */
template <int N>
static __device__ __forceinline__ void hide_keys(float (&s)[N / 2], int key, const int (&last)[2])
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = key + i / 4 * 8 + i % 2 > last[i / 2 % 2] ? -INFINITY : s[i];
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
        barrier_init(s.fixed_full, 1);
        barrier_init(s.fixed_empty, readers);
        for (int i = 0; i < J::STAGES; i++) {
            barrier_init(s.full + i, 1);
            barrier_init(s.empty + i, readers);
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
        registers_up<J::GROUPS == 2 ? 240 : J::GROUPS == 3 ? 160 : 112>();
        if (J::TURNS && group == J::GROUPS - 1)
            pass_turn<J>(group);
        J::WORK::template run<J>(a, s, group);
    }
#endif
}

} // namespace

#endif
