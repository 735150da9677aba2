/* attention_hopper.cu - attention and its gradient on Hopper's matrix units (Dao et al. 2022; the overlap of
 * products and softmax after Shah et al. 2024). 16-bit types, heads of 64 or 128, no mask but the causal one;
 * what else there is goes to the general kernels.
 *
 * A block keeps a tile of rows fixed, 64 to each of its warpgroups, and lets blocks of the other side's rows
 * move past it. One more warp brings the tiles, through a ring of stages and across the borders of tiles, so
 * that the warpgroups never wait for memory. Three jobs are of this form:
 *
 *   FORWARD     fixed q         moving k, v    s = q k^T, p = softmax(s), y = p v
 *   QUERY_GRAD  fixed q, dy, y  moving k, v    s = q k^T, dp = dy v^T, ds = p (dp - delta), dq = ds k
 *   KEY_GRAD    fixed k, v      moving q, dy   the same turned round: s^T = k q^T ..., dv = p^T dy, dk = ds^T
 * q
 *
 * In each, what one product leaves in registers is what the next takes from registers: scores never go
 * through memory. The gradient takes 7 products where 5 would do, as s and dp are made twice; but with 5, one
 * of dq and dk would be summed up in memory, by blocks that must take turns to do so in the same order every
 * time, and ds would go through shared memory, which is as busy as the matrix units are. */
#include "cuda/kernels/attention_hopper.cuh"
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

/* KEEP: the fixed operands are in registers. OVERLAP: the next scores are made before the present ones have
 * been used up. TURNS: the warpgroups start their products one after the other, block by block, so that
 * the softmax of one runs beside the products of the next. */
template <class T_, job_kind KIND_, int D_, int GROUPS_, int BLOCK_, int STAGES_, bool KEEP_ = D_ == 64,
          bool OVERLAP_ = true, bool TURNS_ = false>
struct job {
    static_assert(STAGES_ >= 3, "two are held while the third is waited for");
    typedef T_ T;
    static constexpr job_kind KIND = KIND_;
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

/* ---- FORWARD --------------------------------------------------------------------------------- */

/* Keys beyond the last one that a row sees; key: of s[0]. */
template <int N>
static __device__ __forceinline__ void hide_keys(float (&s)[N / 2], int key, const int (&last)[2])
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = key + i / 4 * 8 + i % 2 > last[i / 2 % 2] ? -INFINITY : s[i];
}

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

template <class J>
static __device__ __forceinline__ void query_grad(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4, rows = 64 * group + threadIdx.x / 32 % 4 * 16;
    ring r = {0, 0};
    int turn = 0;
    for (walk w = {(int)blockIdx.x, 0, 0, 0}; settle(a, w); w.half++, turn ^= 1) {
        const int b = w.head / a.heads, h = w.head % a.heads;
        const int row0 = w.tile * J::ROWS + 64 * group, row = w.tile * J::ROWS + rows + lane / 4;
        passage<J> p = passage_of<J>(a, w.tile, group);
        operand<J> q, dy;
        float score[J::BLOCK / 2], dp[J::BLOCK / 2], dq[J::PARTS][32], lse[2], delta[2];
        uint32_t ds[J::BLOCK / 16][4];
        int last[2], before = -1;
        last_keys(a, row, last);
        for (int i = 0; i < 2; i++)
            lse[i] = row + 8 * i < a.queries ? a.lse[(int64_t)w.head * a.queries + row + 8 * i] * 1.44269504f
                                             : INFINITY;
        barrier_wait(s.fixed_full, turn);
        take_operand(q, s.fixed, group);
        take_operand(dy, s.fixed + J::FIXED_BYTES, group);
        deltas<J>(s.fixed + J::FIXED_BYTES, s.fixed + 2 * J::FIXED_BYTES, rows, delta);
        if (J::KEEP)
            release(s.fixed_empty);
        for (int i = 0; i < 2; i++)
            if (c == 0 && row + 8 * i < a.pad)
                a.stats[(int64_t)w.head * a.pad + row + 8 * i] = float2{lse[i], delta[i]};

        if (seek(p, r, s)) {
            uint32_t keys = moving_at<J>(s, r.stage);
            take_turn<J>(group);
            wgmma_fence();
            scores(score, q, keys);
            scores(dp, dy, keys + J::MOVING_BYTES / 16);
            wgmma_commit();
            pass_turn<J>(group);
            wgmma_commit(); /* an empty group, where later the sum of the block before is under way */
            for (;;) {
                const int stage = r.stage;
                wgmma_wait<1>();
                hold(score);
                hold(dp);
                if (is_cut<J>(a, row0, p.block))
                    hide_keys<J::BLOCK>(score, p.block * J::BLOCK + 2 * c, last);
                through_softmax<J::BLOCK>(score, dp, lse, delta, a.scale_log2);
                hold(score);
                step<J>(r);
                const bool more = seek(p, r, s); /* here, as the compiler moves no work past a loop */
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
                const uint32_t next = moving_at<J>(s, r.stage);
                take_turn<J>(group);
                wgmma_fence();
                scores(score, q, next);
                scores(dp, dy, next + J::MOVING_BYTES / 16);
                wgmma_commit();
                add_rows<J>(dq, ds, keys, before >= 0);
                wgmma_commit();
                pass_turn<J>(group);
                keys = next;
                before = stage;
            }
            if (a.out[0].at)
                store_rows<T>(a.out[0], b, h, row, a.queries, dq, a.scale, a.scale);
        }
        if (!J::KEEP)
            release(s.fixed_empty);
    }
}

/* ---- KEY_GRAD: everything turned round, (keys, queries) -------------------------------------- */

/* Queries before the first one that sees a row's key; query: of s[0]. */
template <int N> static __device__ __forceinline__ void hide_queries(float (&s)[N / 2], int query, int first)
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = query + i / 4 * 8 + i % 2 < first + i / 2 % 2 * 8 ? -INFINITY : s[i];
}

/* s becomes p, dp becomes ds; stats: of the block's queries. */
template <int N>
static __device__ __forceinline__ void through_softmax_turned(float (&s)[N / 2], float (&dp)[N / 2],
                                                              const float2 *stats, float scale_log2)
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int j = 0; j < N / 8; j++) {
        const float4 two = *(const float4 *)(stats + 8 * j + 2 * c);
        BY_UNROLL
        for (int i = 4 * j; i < 4 * j + 4; i++) {
            s[i] = exp2_fast(s[i] * scale_log2 - (i % 2 ? two.z : two.x));
            dp[i] = s[i] * (dp[i] - (i % 2 ? two.w : two.y));
        }
    }
}

template <class J>
static __device__ __forceinline__ void key_grad(const hopper_args &a, const space &s, int group)
{
    typedef typename J::T T;
    const int lane = threadIdx.x % 32, c = lane % 4;
    ring r = {0, 0};
    int turn = 0;
    for (walk w = {(int)blockIdx.x, 0, 0, 0}; settle(a, w); w.half++, turn ^= 1) {
        const int b = w.head / a.kv_heads, h = w.head % a.kv_heads;
        const int row0 = w.tile * J::ROWS + 64 * group, row = row0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const int ahead = a.keys - a.queries;
        passage<J> p = passage_of<J>(a, w.tile, group);
        operand<J> k, v;
        float score[J::BLOCK / 2], dp[J::BLOCK / 2], dk[J::PARTS][32], dv[J::PARTS][32];
        uint32_t weights[J::BLOCK / 16][4], ds[J::BLOCK / 16][4];
        int before = -1;
        barrier_wait(s.fixed_full, turn);
        take_operand(k, s.fixed, group);
        take_operand(v, s.fixed + J::FIXED_BYTES, group);
        if (J::KEEP)
            release(s.fixed_empty);

        if (seek(p, r, s)) {
            uint32_t queries = moving_at<J>(s, r.stage);
            take_turn<J>(group);
            wgmma_fence();
            scores(score, k, queries);
            scores(dp, v, queries + J::MOVING_BYTES / 16);
            wgmma_commit();
            pass_turn<J>(group);
            wgmma_commit();
            for (;;) {
                const int stage = r.stage;
                if (J::OVERLAP)
                    wgmma_wait<1>();
                else
                    wgmma_wait<0>();
                hold(score);
                hold(dp);
                if (a.causal && p.block * J::BLOCK + ahead < row0 + 63)
                    hide_queries<J::BLOCK>(score, p.block * J::BLOCK + 2 * c, row - ahead);
                through_softmax_turned<J::BLOCK>(
                    score, dp, (const float2 *)(s.stages + stage * J::STAGE_BYTES + 2 * J::MOVING_BYTES),
                    a.scale_log2);
                hold(score);
                hold(dp);
                step<J>(r);
                const bool more = seek(p, r, s);
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
                const uint32_t next = moving_at<J>(s, r.stage);
                take_turn<J>(group);
                wgmma_fence();
                scores(score, k, next);
                scores(dp, v, next + J::MOVING_BYTES / 16);
                wgmma_commit();
                if (J::OVERLAP) {
                    add_rows<J>(dv, weights, queries + J::MOVING_BYTES / 16, before >= 0);
                    add_rows<J>(dk, ds, queries, before >= 0);
                    wgmma_commit();
                }
                pass_turn<J>(group);
                queries = next;
                before = stage;
            }
            if (a.out[0].at)
                store_rows<T>(a.out[0], b, h, row, a.keys, dk, a.scale, a.scale);
            if (a.out[1].at)
                store_rows<T>(a.out[1], b, h, row, a.keys, dv, 1, 1);
        }
        if (!J::KEEP)
            release(s.fixed_empty);
    }
}

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
        if constexpr (J::KIND == FORWARD)
            forward<J>(a, s, group);
        else if constexpr (J::KIND == QUERY_GRAD)
            query_grad<J>(a, s, group);
        else
            key_grad<J>(a, s, group);
    }
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

static head_rows rows_of(const by_tensor *t, int64_t first)
{
    head_rows r = {NULL, 0, 0};
    if (t) {
        r.at = (char *)t->data + first * 2;
        r.row = t->dim[2];
        r.batch = t->dim[1] * t->dim[2];
    }
    return r;
}

/* q, k and v of three tensors, or side by side in the one that is packed. */
static void rows_of_qkv(const by_attention_attr *at, by_tensor *const *from, head_rows (&r)[3])
{
    const int64_t d = at->head_dim;
    r[0] = rows_of(from[0], 0);
    r[1] = at->packed ? rows_of(from[0], at->heads * d) : rows_of(from[1], 0);
    r[2] = at->packed ? rows_of(from[0], (at->heads + at->kv_heads) * d) : rows_of(from[2], 0);
}

/* A node's tensors, found. */
struct attention_node {
    const by_attention_attr *attr;
    int batch, queries, keys;
    head_rows in[3], y, dy, grad[3];
    float *lse;
    float2 *stats;
};

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static attention_node node_of(const by_node *n)
{
    attention_node m = {};
    m.attr = (const by_attention_attr *)n->attr;
    m.batch = (int)n->in[0]->dim[0];
    m.queries = (int)n->in[0]->dim[1];
    m.keys = (int)(m.attr->packed ? n->in[0] : n->in[1])->dim[1];
    rows_of_qkv(m.attr, n->in, m.in);
    return m;
}

static by_status map_rows(tile_map *map, const attention_node &m, const head_rows &r, int rows, int heads,
                          int box)
{
    const int d = m.attr->head_dim;
    return tile_map_make(map, r.at, d, rows, heads, m.batch, r.row * 2, d * 2, r.batch * 2, box);
}

template <class J> static by_status run_job(by_cuda_exec *x, const attention_node &m)
{
    const by_attention_attr *at = m.attr;
    const int h = at->heads, hk = at->kv_heads;
    hopper_args a = {};
    if (J::KIND == KEY_GRAD) {
        BY_TRY(map_rows(&a.fixed[0], m, m.in[1], m.keys, hk, J::ROWS));
        BY_TRY(map_rows(&a.fixed[1], m, m.in[2], m.keys, hk, J::ROWS));
        BY_TRY(map_rows(&a.moving[0], m, m.in[0], m.queries, h, J::BLOCK));
        BY_TRY(map_rows(&a.moving[1], m, m.dy, m.queries, h, J::BLOCK));
        a.out[0] = m.grad[1];
        a.out[1] = m.grad[2];
    } else {
        BY_TRY(map_rows(&a.fixed[0], m, m.in[0], m.queries, h, J::ROWS));
        if (J::KIND == QUERY_GRAD) {
            BY_TRY(map_rows(&a.fixed[1], m, m.dy, m.queries, h, J::ROWS));
            BY_TRY(map_rows(&a.fixed[2], m, m.y, m.queries, h, J::ROWS));
        }
        BY_TRY(map_rows(&a.moving[0], m, m.in[1], m.keys, hk, J::BLOCK));
        BY_TRY(map_rows(&a.moving[1], m, m.in[2], m.keys, hk, J::BLOCK));
        a.out[0] = J::KIND == FORWARD ? m.y : m.grad[0];
    }
    a.lse = m.lse;
    a.stats = m.stats;
    a.pad = round_up(m.queries, 128);
    a.queries = m.queries;
    a.keys = m.keys;
    a.heads = h;
    a.kv_heads = hk;
    a.group = h / hk;
    a.causal = at->mask == BY_MASK_CAUSAL;
    a.scale = at->scale;
    a.scale_log2 = (float)(at->scale * 1.4426950408889634);
    /* The tiles of a causal mask are of unequal length. Where there are many, taking the longest and the
     * shortest together makes the units equal, and the tiles of a head stay together in time, sharing the
     * cache. */
    const int heads = m.batch * (J::KIND == KEY_GRAD ? hk : h);
    a.tiles = ((J::KIND == KEY_GRAD ? m.keys : m.queries) + J::ROWS - 1) / J::ROWS;
    a.paired = a.causal && (int64_t)heads * a.tiles >= 4 * x->cuda->sms;
    a.per_head = a.paired ? (a.tiles + 1) / 2 : a.tiles;
    a.units = heads * a.per_head;
    const unsigned grid = (unsigned)(a.units < x->cuda->sms ? a.units : x->cuda->sms);
    return by_launch(x, hopper_attention<J>, grid, J::THREADS, J::SHARED, a);
}

template <class T> static by_status run_forward(by_cuda_exec *x, const attention_node &m)
{
    if (m.attr->head_dim == 64)
        return run_job<job<T, FORWARD, 64, 2, 128, 4>>(x, m);
    return run_job<job<T, FORWARD, 128, 2, 128, 3>>(x, m);
}

/* The query side first: it leaves the statistics that the key side reads. */
template <class T> static by_status run_backward(by_cuda_exec *x, const attention_node &m)
{
    const bool keys = m.grad[1].at || m.grad[2].at;
    if (m.attr->head_dim == 64) {
        BY_TRY((run_job<job<T, QUERY_GRAD, 64, 2, 64, 4>>(x, m)));
        return keys ? run_job<job<T, KEY_GRAD, 64, 2, 64, 4>>(x, m) : BY_OK;
    }
    BY_TRY((run_job<job<T, QUERY_GRAD, 128, 2, 64, 4>>(x, m)));
    return keys ? run_job<job<T, KEY_GRAD, 128, 2, 64, 4, false, false>>(x, m) : BY_OK;
}

/* Whether the build holds the kernels: for other targets their bodies are empty. */
static bool compiled()
{
#ifdef BY_CUDA_EMULATE
    return true;
#else
    static int known;
    cudaFuncAttributes f;
    if (!known)
        known = cudaFuncGetAttributes(
                    &f, (const void *)hopper_attention<job<bf16, FORWARD, 64, 2, 128, 4>>) == cudaSuccess &&
                        f.numRegs > 64
                    ? 1
                    : -1;
    return known > 0;
#endif
}

static bool aligned(const by_tensor *t)
{
    return !t || (uintptr_t)t->data % 16 == 0;
}

static bool takes(const by_cuda *c, const by_node *n)
{
    const by_attention_attr *at = (const by_attention_attr *)n->attr;
    const by_tensor *q = n->in[0];
    const int64_t t = q->dim[1], s = at->packed ? t : n->in[1]->dim[1];
    const int64_t most = INT32_MAX / 2 / BY_MAX(1, at->heads); /* places are 32-bit integers */
    if (c->arch != 90 || (q->type != BY_BF16 && q->type != BY_F16) ||
        (at->head_dim != 64 && at->head_dim != 128) || at->dropout > 0 || !(at->scale > 0) || n->in[3])
        return false;
    if (q->dim[0] < 1 || t < 1 || s < 1 || q->dim[0] > most || t > INT32_MAX / 2 || s > INT32_MAX / 2 ||
        (at->mask == BY_MASK_CAUSAL && t > s)) /* some queries would see nothing */
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (!aligned(n->in[i]))
            return false;
    for (int i = 0; i < n->n_out; i++)
        if (!aligned(n->out[i]))
            return false;
    return compiled();
}

} // namespace

bool by_hopper_attention_takes(const by_cuda *c, const by_node *n)
{
    return takes(c, n) && !n->out[2];
}

by_status by_hopper_attention(by_cuda_exec *x, by_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->out[0], 0);
    m.lse = n->out[1] ? (float *)n->out[1]->data : NULL;
    BY_BRANCH("warpgroups");
    return n->in[0]->type == BY_BF16 ? run_forward<bf16>(x, m) : run_forward<f16>(x, m);
}

bool by_hopper_attention_grad_takes(const by_cuda *c, const by_node *n)
{
    return takes(c, n);
}

by_status by_hopper_attention_grad(by_cuda_exec *x, by_node *n)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->in[4], 0);
    m.lse = (float *)n->in[5]->data;
    m.dy = rows_of(n->in[6], 0);
    rows_of_qkv(m.attr, n->out, m.grad);
    m.stats = (float2 *)by_cuda_scratch(x, (size_t)m.batch * (size_t)m.attr->heads *
                                               (size_t)round_up(m.queries, 128) * sizeof(float2));
    BY_BRANCH("gradient by warpgroups");
    return n->in[0]->type == BY_BF16 ? run_backward<bf16>(x, m) : run_backward<f16>(x, m);
}
