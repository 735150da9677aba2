/* resident_phases.cuh - one kernel for all layers of a decoding step. Its blocks, one for each
 * multiprocessor, execute a table of phases and meet at a barrier after each.
 *
 * Weights do not depend on activations. One warp of a block requests the block's weights from the copy
 * engine, phase after phase, into a ring in shared memory. It continues while the other warps, the workers,
 * wait for results of other blocks.
 *
 * Product: y (n) = x (k) w (k, n). A unit is 32 rows of w, 128 bytes of each. The units below one another are
 * a strip. Units are counted down the strips, and block b of B takes those from b U / B on, so that all read
 * equally many bytes. Blocks that share a strip write partial sums. The next phase adds them in order when it
 * reads x, with bias and activation. Results do not depend on timing.
 *
 * The kernel is bound by latency. Data that do not depend on the last phase are loaded before the barrier.
 * All other loads are issued right after it, before the first of them is used. */
#ifndef BY_CUDA_KERNELS_RESIDENT_PHASES_CUH
#define BY_CUDA_KERNELS_RESIDENT_PHASES_CUH

#include "cuda/kernels/act.cuh"
#include "cuda/kernels/row_pieces.cuh"
#include "cuda/kernels/wgmma.cuh"

enum {
    STRIP_BYTES = TILE_ROW,
    UNIT_ROWS = 32,
    UNIT_BYTES = UNIT_ROWS * STRIP_BYTES,
    MOST_STRIPS = 5,  /* that a block has a part of */
    PARTS = 4,        /* the number of partial sums is a multiple of this; zeros fill it up */
    MOST_PARTS = 8,   /* that are read at once; splits of an attention */
    MOST_QUADS = 2,   /* of four elements, that a thread reads at once */
    TABLE_RING = 16,  /* phases in shared memory: the present one, */
    TABLE_BACK = 2,   /* those before */
    TABLE_AHEAD = 12, /* and those from it on */
};

/* A description of a matrix, to where the copy engine looks for it. */
static __device__ __forceinline__ void bring_map(const tile_map *map)
{
#ifndef BY_CUDA_EMULATE
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#else
    (void)map;
#endif
}

/* ---- the table ---------------------------------------------------------------------------------- */

typedef enum phase_kind { PHASE_PRODUCT, PHASE_ATTENTION, PHASE_NORM } phase_kind;
typedef enum phase_source { SOURCE_NORM, SOURCE_SUMS, SOURCE_HEADS } phase_source;

/* The result of a product is (parts, n): partial sums, which the reader adds, with `bias` and `act`. The
 * result of an attention is, for each head and split, `dim` sums of values, the highest score and the sum of
 * the weights. */
struct alignas(16) resident_phase {
    int kind, source;
    int back; /* the phase that is read is this many before; 0: none */
    /* product */
    int n, k, per_strip, units; /* per_strip: units of a strip; units: of all strips */
    unsigned over_strip;        /* 2^32 / per_strip, rounded up */
    int parts, act;
    const tile_map *map;
    const void *bias; /* may be NULL */
    float *left;
    /* norm: y = norm(x + h), where h is the input, or here */
    const void *x, *h, *gamma, *beta;
    void *sum, *y;     /* NULL: not wanted */
    float eps, over_k; /* over_k: 1 / k */
    int rms;
    /* attention of one query over caches (capacity, kv_heads, dim) */
    void *keys, *values;
    int heads, group, dim, splits, capacity;
    unsigned over_dim; /* 2^32 / dim, rounded up */
    int k_at, v_at;    /* columns of the input; queries come first */
    float scale;       /* times log2(e) */
    int node;          /* for reports */
};

struct resident_args {
    const resident_phase *table;
    int from, to, count;  /* phases to run; phases in all */
    unsigned over_blocks; /* 2^32 / blocks, rounded up */
    unsigned *arrived;    /* two counters, 0 between launches */
    const int *past;      /* of all attentions */
    int flight;           /* units of a block that may be on their way */
    cuda_fault *fault;
};

/* ---- sharing out ------------------------------------------------------------------------------- */

template <class T> struct strip {
    enum { COLUMNS = STRIP_BYTES / sizeof(T) };
};

/* x / d for x d < 2^32, where `over` is 2^32 / d, rounded up. */
static __device__ __forceinline__ int divided(int x, unsigned over)
{
    return (int)__umulhi((unsigned)x, over);
}
static inline unsigned over(int d)
{
    return (unsigned)((((uint64_t)1 << 32) + (unsigned)d - 1) / (unsigned)d);
}

/* A block's units of a product. */
struct unit_share {
    int from, to;
    int strip, row; /* of the first */
};
static __device__ __forceinline__ unit_share share_of(const resident_phase &p, unsigned over_blocks)
{
    unit_share s;
    const int units = p.kind == PHASE_PRODUCT ? p.units : 0;
    s.from = divided(units * (int)blockIdx.x, over_blocks);
    s.to = divided(units * (int)(blockIdx.x + 1), over_blocks);
    s.strip = divided(s.from, p.over_strip);
    s.row = s.from - s.strip * p.per_strip;
    return s;
}
/* The block that has a unit: the last whose first unit is not after it. */
static __host__ __device__ __forceinline__ int block_of(int units, int unit, int blocks)
{
    return (int)(((unsigned)(unit + 1) * (unsigned)blocks - 1) / (unsigned)units);
}

/* ---- barrier between phases -------------------------------------------------------------------- */

/* A barrier of the workers of a block. */
template <int WARPS> static __device__ __forceinline__ void sync_workers()
{
#ifdef BY_CUDA_EMULATE
    __syncthreads();
#else
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
#endif
}

/* A barrier: all workers have written; the last block to arrive releases all. */
template <int WARPS> static __device__ __forceinline__ void resident_arrive(unsigned *arrived)
{
    sync_workers<WARPS>();
#ifndef BY_CUDA_EMULATE
    if (threadIdx.x == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
#else
    (void)arrived;
#endif
}
template <int WARPS>
static __device__ __forceinline__ void resident_wait(const unsigned *arrived, unsigned wanted)
{
#ifndef BY_CUDA_EMULATE
    unsigned seen;
    if (threadIdx.x == 0)
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        while (seen < wanted);
#else
    (void)arrived, (void)wanted;
#endif
    sync_workers<WARPS>();
}
/* The last block to leave sets the counters back. */
static __device__ __forceinline__ void resident_leave(unsigned *arrived)
{
    if (threadIdx.x == 0 && atomicAdd(arrived + 1, 1u) == gridDim.x - 1)
        arrived[0] = arrived[1] = 0;
}

/* ---- the ring of weights ----------------------------------------------------------------------- */

/* (SLOTS) units in shared memory: the block's, of all phases, one after the other. */
struct unit_ring {
    unsigned char *memory;
    uint64_t *full, *empty; /* barriers */
};

/* One warp requests all units. It waits for free slots, and keeps at most `flight` units in flight, since
 * other reads queue after them. */
template <int SLOTS>
static __device__ __forceinline__ void request_units(const resident_args &a, const unit_ring &ring)
{
    const int lane = threadIdx.x & 31;
    int i = 0;
    for (int base = a.from; base < a.to; base += 32) {
        unit_share mine = {}; /* lane by lane the next phases */
        int64_t map = 0;
        int per_strip = 1;
        if (base + lane < a.to) {
            const resident_phase &p = a.table[base + lane];
            mine = share_of(p, a.over_blocks);
            per_strip = p.per_strip;
            map = (int64_t)(intptr_t)p.map;
            if (map)
                bring_map(p.map);
        }
        for (int k = 0; k < min(32, a.to - base); k++) {
            const int units = __shfl_sync(0xffffffffu, mine.to - mine.from, k), first = i;
            const int rows = __shfl_sync(0xffffffffu, per_strip, k);
            const tile_map *from = (const tile_map *)(intptr_t)__shfl_sync(0xffffffffu, map, k);
            int strip = __shfl_sync(0xffffffffu, mine.strip, k), row = __shfl_sync(0xffffffffu, mine.row, k);
            for (; lane == 0 && i < first + units; i++) {
                const int slot = i % SLOTS, old = i - a.flight;
                if (i >= SLOTS)
                    barrier_wait(ring.empty + slot, (i / SLOTS - 1) & 1);
                if (old >= 0)
                    barrier_wait(ring.full + old % SLOTS, old / SLOTS & 1);
                barrier_expect(ring.full + slot, UNIT_BYTES);
                load_tile(ring.memory + slot * UNIT_BYTES, from, ring.full + slot, strip * TILE_COLS,
                          row * UNIT_ROWS, 0, 0);
                row = row + 1 == rows ? 0 : row + 1;
                strip += row == 0;
            }
            i = first + units;
        }
    }
}

/* ---- the product of a unit --------------------------------------------------------------------- */

/* 16 bits: the matrix instructions, x as the first of eight columns. */
template <class T> struct unit_sums {
    enum { FRAGMENTS = STRIP_BYTES / 32 };
    float at[FRAGMENTS][4]; /* 16 columns of the strip each */
    __device__ __forceinline__ void clear()
    {
        BY_UNROLL
        for (int m = 0; m < FRAGMENTS; m++)
            at[m][0] = at[m][1] = at[m][2] = at[m][3] = 0;
    }
    __device__ __forceinline__ void add(const unsigned char *unit, const T *x)
    {
        const int lane = threadIdx.x & 31, row = lane % 8 + lane / 16 * 8, piece = lane / 8 % 2;
        const uint32_t *words = (const uint32_t *)x + lane % 4;
        enum { STEPS = UNIT_ROWS / 16 };
        uint32_t a[STEPS][FRAGMENTS][4], b[STEPS][2];
        BY_UNROLL
        for (int k = 0; k < STEPS; k++) {
            b[k][0] = lane < 4 ? words[8 * k] : 0;
            b[k][1] = lane < 4 ? words[8 * k + 4] : 0;
            BY_UNROLL
            for (int m = 0; m < FRAGMENTS; m++)
                ldmatrix4_trans(a[k][m], unit + piece_at(16 * k + row, 2 * m + piece));
        }
        BY_UNROLL
        for (int k = 0; k < STEPS; k++)
            BY_UNROLL
        for (int m = 0; m < FRAGMENTS; m++)
            mma16816<T>(at[m], a[k][m], b[k]);
    }
    __device__ __forceinline__ void leave(float *to) /* (COLUMNS) */
    {
        const int lane = threadIdx.x & 31;
        if (lane % 4 == 0)
            BY_UNROLL
        for (int m = 0; m < FRAGMENTS; m++) {
            to[m * 16 + lane / 4] = at[m][0];
            to[m * 16 + lane / 4 + 8] = at[m][2];
        }
    }
};

/* f32: a lane has a piece of some rows. */
template <> struct unit_sums<float> {
    enum { ACROSS = STRIP_BYTES / 16, DOWN = 32 / ACROSS };
    float at[4];
    __device__ __forceinline__ void clear()
    {
        at[0] = at[1] = at[2] = at[3] = 0;
    }
    __device__ __forceinline__ void add(const unsigned char *unit, const float *x)
    {
        const int lane = threadIdx.x & 31;
        BY_UNROLL
        for (int i = 0; i < UNIT_ROWS / DOWN; i++) {
            const int row = i * DOWN + lane / ACROSS;
            const vec<float, 4> w = *(const vec<float, 4> *)(unit + piece_at(row, lane % ACROSS));
            BY_UNROLL
            for (int e = 0; e < 4; e++)
                at[e] += x[row] * w.at[e];
        }
    }
    __device__ __forceinline__ void leave(float *to)
    {
        const int lane = threadIdx.x & 31;
        BY_UNROLL
        for (int e = 0; e < 4; e++)
            BY_UNROLL
        for (int step = ACROSS; step < 32; step *= 2)
            at[e] += __shfl_xor_sync(0xffffffffu, at[e], step);
        if (lane < ACROSS)
            *(vec<float, 4> *)(to + lane * 4) = vec<float, 4>{{at[0], at[1], at[2], at[3]}};
    }
};

/* ---- reading the results of a phase ------------------------------------------------------------ */

template <class T> static __device__ __forceinline__ packed<T, 4> load_quad(const void *p, int i)
{
    packed<T, 4> v = {};
    if (p)
        v = get_packed<4>((const T *)p + i);
    return v;
}
static __device__ __forceinline__ vec<float, 4> load_left(const float *p)
{
    const float4 v = __ldcg((const float4 *)p);
    return vec<float, 4>{{v.x, v.y, v.z, v.w}};
}

/* Partial sums of four neighbouring results of a product. All are requested before the first is used. */
struct quad_parts {
    vec<float, 4> at[MOST_PARTS];
};
static __device__ __forceinline__ void load_parts(quad_parts &q, const resident_phase &p, int n)
{
    BY_UNROLL
    for (int i = 0; i < PARTS; i++)
        q.at[i] = load_left(p.left + i * p.n + n);
    if (p.parts > PARTS)
        BY_UNROLL
    for (int i = PARTS; i < MOST_PARTS; i++)
        q.at[i] = load_left(p.left + i * p.n + n);
}
/* The results, as the product's node would store them. */
template <class T>
static __device__ __forceinline__ vec<float, 4> add_parts(const quad_parts &q, const resident_phase &p, int n,
                                                          const packed<T, 4> &bias)
{
    vec<float, 4> v = unpack<T, 4>(bias);
    auto add = [&](const vec<float, 4> &part) {
        BY_UNROLL
        for (int e = 0; e < 4; e++)
            v.at[e] += part.at[e];
    };
    BY_UNROLL
    for (int i = 0; i < PARTS; i++)
        add(q.at[i]);
    if (p.parts > PARTS)
        BY_UNROLL
    for (int i = PARTS; i < MOST_PARTS; i++)
        add(q.at[i]);
    for (int i = MOST_PARTS; i < p.parts; i++)
        add(load_left(p.left + i * p.n + n));
    if (p.act != BY_ACT_NONE)
        BY_UNROLL
    for (int e = 0; e < 4; e++)
        v.at[e] = activate_as<T>((by_act)p.act, v.at[e]);
    BY_UNROLL
    for (int e = 0; e < 4; e++)
        v.at[e] = to_float(from_float<T>(v.at[e]));
    return v;
}

/* Four neighbouring results of an attention. */
static __device__ __forceinline__ vec<float, 4> read_heads(const resident_phase &p, int n)
{
    const int head = divided(n, p.over_dim), d = n - head * p.dim, size = p.dim + 4;
    const float *left = p.left + head * p.splits * size;
    vec<float, 4> v = {}, part[MOST_PARTS];
    float2 tail[MOST_PARTS];
    float high = -INFINITY, total = 0;
    BY_UNROLL
    for (int s = 0; s < MOST_PARTS; s++)
        if (s < p.splits) {
            tail[s] = __ldcg((const float2 *)(left + s * size + p.dim));
            part[s] = load_left(left + s * size + d);
        }
    BY_UNROLL
    for (int s = 0; s < MOST_PARTS; s++)
        high = s < p.splits ? fmaxf(high, tail[s].x) : high;
    BY_UNROLL
    for (int s = 0; s < MOST_PARTS; s++) {
        if (s >= p.splits)
            continue;
        const float weight = exp2f(tail[s].x - high);
        total += weight * tail[s].y;
        BY_UNROLL
        for (int e = 0; e < 4; e++)
            v.at[e] += weight * part[s].at[e];
    }
    BY_UNROLL
    for (int e = 0; e < 4; e++)
        v.at[e] /= total;
    return v;
}

/* ---- x of a phase, into shared memory ---------------------------------------------------------- */

/* `space` has 16 places, those after the WARPS first 0, and may be used again after the next barrier. */
template <int WARPS> static __device__ __forceinline__ float sum_block(float x, float *space)
{
    float total = 0;
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0)
        space[threadIdx.x >> 5] = x;
    sync_workers<WARPS>();
    BY_UNROLL
    for (int w = 0; w < WARPS; w += 4) {
        const vec<float, 4> v = *(const vec<float, 4> *)(space + w);
        total += v.at[0] + v.at[1] + (v.at[2] + v.at[3]);
    }
    return total;
}

/* Four elements of a norm: for this block, and if needed stored to memory by one block. */
template <class T>
static __device__ __forceinline__ void put_norm(const resident_phase &p, int i, const vec<float, 4> &v,
                                                float mean, float inverse, const packed<T, 4> &gamma,
                                                const packed<T, 4> &beta, T *xs)
{
    const vec<float, 4> g = unpack<T, 4>(gamma), b = unpack<T, 4>(beta);
    vec<float, 4> y;
    BY_UNROLL
    for (int e = 0; e < 4; e++)
        y.at[e] = (v.at[e] - mean) * inverse * g.at[e] + b.at[e];
    put<T, 4>(xs + i, y);
    if (i / 64 % (int)gridDim.x != (int)blockIdx.x)
        return;
    if (p.sum)
        put<T, 4>((T *)p.sum + i, v);
    if (p.y)
        put<T, 4>((T *)p.y + i, y);
}

/* The whole norm, computed by every block. */
template <class T, int WARPS, class WAIT>
static __device__ __forceinline__ void take_norm(const resident_phase &p, const resident_phase &before,
                                                 unsigned over_blocks, T *xs, float *space, WAIT wait)
{
    enum { Q = MOST_QUADS };
    packed<T, 4> x[Q], h[Q], gamma[Q], beta[Q];
    vec<float, 4> v[Q];
    float total = 0, square = 0;
    /* every block begins elsewhere, so that they do not all want the same at the same time */
    const int quads = p.k / 4, shift = divided(quads * (int)blockIdx.x, over_blocks);
    auto place = [&](int q) {
        const int i = q * WARPS * 32 + (int)threadIdx.x;
        return i >= quads ? p.k : (i + shift >= quads ? i + shift - quads : i + shift) * 4;
    };
    BY_UNROLL
    for (int q = 0; q < Q; q++)
        if (place(q) < p.k) {
            x[q] = load_quad<T>(p.x, place(q));
            h[q] = load_quad<T>(p.back ? before.bias : p.h, place(q));
            gamma[q] = load_quad<T>(p.gamma, place(q));
            beta[q] = load_quad<T>(p.beta, place(q));
        }
    wait();
    quad_parts parts[Q];
    BY_UNROLL
    for (int q = 0; q < Q; q++)
        if (p.back && place(q) < p.k)
            load_parts(parts[q], before, place(q));
    BY_UNROLL
    for (int q = 0; q < Q; q++) {
        if (place(q) >= p.k)
            continue;
        const vec<float, 4> more =
            p.back ? add_parts<T>(parts[q], before, place(q), h[q]) : unpack<T, 4>(h[q]);
        v[q] = unpack<T, 4>(x[q]);
        BY_UNROLL
        for (int e = 0; e < 4; e++) {
            v[q].at[e] = to_float(from_float<T>(v[q].at[e] + more.at[e]));
            total += v[q].at[e];
        }
    }
    const float mean = p.rms ? 0 : sum_block<WARPS>(total, space) * p.over_k;
    BY_UNROLL
    for (int q = 0; q < Q; q++)
        if (place(q) < p.k)
            BY_UNROLL
    for (int e = 0; e < 4; e++)
        square += (v[q].at[e] - mean) * (v[q].at[e] - mean);
    const float inverse = rsqrtf(sum_block<WARPS>(square, space + 16) * p.over_k + p.eps);
    BY_UNROLL
    for (int q = 0; q < Q; q++)
        if (place(q) < p.k)
            put_norm<T>(p, place(q), v[q], mean, inverse, gamma[q], beta[q], xs);
}

/* The rows that this block's units have: quad i of them, k when there is none. */
static __device__ __forceinline__ int quad_at(const resident_phase &p, const unit_share &share, int i)
{
    enum { IN_UNIT = UNIT_ROWS / 4 };
    int row = share.row + i / IN_UNIT;
    row -= row >= p.per_strip ? p.per_strip : 0;
    return i < min(share.to - share.from, p.per_strip) * IN_UNIT ? row * UNIT_ROWS + i % IN_UNIT * 4 : p.k;
}

/* These rows of a product's results. */
template <class T, int WARPS, class WAIT>
static __device__ __forceinline__ void take_sums(const resident_phase &p, const resident_phase &before,
                                                 const unit_share &share, T *xs, WAIT wait)
{
    enum { Q = MOST_QUADS };
    packed<T, 4> bias[Q];
    quad_parts parts[Q];
    int at[Q], i = (int)threadIdx.x;
    BY_UNROLL
    for (int q = 0; q < Q; q++) {
        at[q] = quad_at(p, share, i + q * WARPS * 32);
        bias[q] = load_quad<T>(at[q] < p.k ? before.bias : NULL, at[q]);
    }
    wait();
    while (at[0] < p.k) {
        BY_UNROLL
        for (int q = 0; q < Q; q++)
            if (at[q] < p.k)
                load_parts(parts[q], before, at[q]);
        BY_UNROLL
        for (int q = 0; q < Q; q++)
            if (at[q] < p.k)
                put<T, 4>(xs + at[q], add_parts<T>(parts[q], before, at[q], bias[q]));
        i += Q * WARPS * 32;
        BY_UNROLL
        for (int q = 0; q < Q; q++) {
            at[q] = quad_at(p, share, i + q * WARPS * 32);
            bias[q] = load_quad<T>(at[q] < p.k ? before.bias : NULL, at[q]);
        }
    }
}

/* These rows of an attention's results. */
template <class T, int WARPS, class WAIT>
static __device__ __forceinline__ void take_heads(const resident_phase &p, const resident_phase &before,
                                                  const unit_share &share, T *xs, WAIT wait)
{
    wait();
    for (int i = (int)threadIdx.x; quad_at(p, share, i) < p.k; i += WARPS * 32)
        put<T, 4>(xs + quad_at(p, share, i), read_heads(before, quad_at(p, share, i)));
}

/* ---- product ----------------------------------------------------------------------------------- */

/* sums (MOST_STRIPS, WARPS, COLUMNS). `begin`: the number of the block's first unit in the ring's stream. */
template <class T, int WARPS, int SLOTS>
static __device__ __forceinline__ void multiply(const resident_phase &p, const unit_share &share, int begin,
                                                const unit_ring &ring, const T *xs, float *sums)
{
    const int warp = threadIdx.x >> 5;
    int u = share.from + warp;
    for (int at = 0, first = share.from - share.row; first < share.to; at++, first += p.per_strip) {
        unit_sums<T> sum;
        sum.clear();
        for (const int end = min(share.to, first + p.per_strip); u < end; u += WARPS) {
            const int i = begin + u - share.from, slot = i % SLOTS;
            barrier_wait(ring.full + slot, i / SLOTS & 1);
            sum.add(ring.memory + slot * UNIT_BYTES, xs + (u - first) * UNIT_ROWS);
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                barrier_arrive(ring.empty + slot);
        }
        sum.leave(sums + (at * WARPS + warp) * strip<T>::COLUMNS);
    }
}

/* The sums of all warps. `part`: the number of this block among those that share its first strip. */
template <class T, int WARPS>
static __device__ __forceinline__ void leave_sums(const resident_phase &p, const unit_share &share, int part,
                                                  const float *sums)
{
    enum { COLUMNS = strip<T>::COLUMNS };
    for (int i = (int)threadIdx.x; i < MOST_STRIPS * COLUMNS; i += WARPS * 32) {
        const int at = i / COLUMNS, c = i % COLUMNS;
        if (share.from - share.row + at * p.per_strip >= share.to)
            return;
        float total = 0;
        BY_UNROLL
        for (int w = 0; w < WARPS; w++)
            total += sums[(at * WARPS + w) * COLUMNS + c];
        __stcg(p.left + (at == 0 ? part : 0) * p.n + (share.strip + at) * COLUMNS + c, total);
    }
}

/* ---- attention --------------------------------------------------------------------------------- */

enum {
    HEAD_PIECE = 8,
    AT_ONCE = 2
}; /* elements of a position that a lane has; positions it takes at a time */

template <class T> struct head_piece {
    enum { N = 16 / sizeof(T), COUNT = HEAD_PIECE / N };
    packed<T, N> at[COUNT];
};
template <class T> static __device__ __forceinline__ head_piece<T> load_head(const T *from)
{
    head_piece<T> p;
    BY_UNROLL
    for (int i = 0; i < head_piece<T>::COUNT; i++)
        p.at[i] = get_packed<head_piece<T>::N>(from + i * head_piece<T>::N);
    return p;
}
template <class T> static __device__ __forceinline__ vec<float, 8> floats_of(const head_piece<T> &p)
{
    enum { N = head_piece<T>::N };
    vec<float, 8> f;
    BY_UNROLL
    for (int i = 0; i < head_piece<T>::COUNT; i++) {
        const vec<float, N> part = unpack<T, N>(p.at[i]);
        BY_UNROLL
        for (int j = 0; j < N; j++)
            f.at[i * N + j] = part.at[j];
    }
    return f;
}
template <class T> static __device__ __forceinline__ void store_head(T *to, const vec<float, 8> &f)
{
    BY_UNROLL
    for (int i = 0; i < HEAD_PIECE; i++)
        to[i] = from_float<T>(f.at[i]);
}

/* The highest score so far, the sum of the weights and of the weighted values. */
struct running_head {
    float high, total;
    vec<float, 8> sum;
};
static __device__ __forceinline__ float weight_of(float score, float high)
{
    return score == -INFINITY ? 0 : exp2f(score - high);
}
static __device__ __forceinline__ void merge_head(running_head &a, float high, float total,
                                                  const vec<float, 8> &sum)
{
    const float top = fmaxf(a.high, high), mine = weight_of(a.high, top), other = weight_of(high, top);
    a.high = top;
    a.total = a.total * mine + total * other;
    BY_UNROLL
    for (int e = 0; e < 8; e++)
        a.sum.at[e] = a.sum.at[e] * mine + sum.at[e] * other;
}

static __device__ __forceinline__ void store_floats(float *to, const vec<float, 8> &f)
{
    store(to, vec<float, 4>{{f.at[0], f.at[1], f.at[2], f.at[3]}});
    store(to + 4, vec<float, 4>{{f.at[4], f.at[5], f.at[6], f.at[7]}});
}

/* Combines the results of the lanes of a warp. */
static __device__ __forceinline__ void merge_lanes(running_head &r, int lanes)
{
    for (int step = lanes; step < 32; step *= 2) {
        const float high = __shfl_xor_sync(0xffffffffu, r.high, step);
        const float total = __shfl_xor_sync(0xffffffffu, r.total, step);
        vec<float, 8> sum;
        BY_UNROLL
        for (int e = 0; e < 8; e++)
            sum.at[e] = __shfl_xor_sync(0xffffffffu, r.sum.at[e], step);
        merge_head(r, high, total, sum);
    }
}

/* Combines the results of the warps, (WARPS, dim + 4). */
template <int WARPS>
static __device__ __forceinline__ void leave_head(const resident_phase &p, const float *found, float *left)
{
    const int size = p.dim + 4, i = (int)threadIdx.x;
    if (i >= p.dim)
        return;
    float high = -INFINITY, total = 0, sum = 0;
    BY_UNROLL
    for (int w = 0; w < WARPS; w++)
        high = fmaxf(high, found[w * size + p.dim]);
    BY_UNROLL
    for (int w = 0; w < WARPS; w++) {
        const float weight = weight_of(found[w * size + p.dim], high);
        total += weight * found[w * size + p.dim + 1];
        sum += weight * found[w * size + i];
    }
    __stcg(left + i, sum);
    if (i == 0)
        __stcg((float4 *)(left + p.dim), float4{high, total, 0, 0});
}

/* A split of the positions of a head, and this lane's pieces of the next ones. */
template <class T> struct head_split {
    int from, to, past; /* positions; `past` is the newest, which is not in the caches yet */
    int group, groups;  /* of lanes */
    int64_t width;      /* from one position to the next */
    T *keys, *values;   /* this lane's pieces of position 0 */
    head_piece<T> k[AT_ONCE], v[AT_ONCE];
};
template <class T> static __device__ __forceinline__ void load_positions(head_split<T> &h, int first)
{
    BY_UNROLL
    for (int j = 0; j < AT_ONCE; j++) {
        const int n = first + h.group + j * h.groups;
        if (n < h.to && n < h.past) {
            h.k[j] = load_head(h.keys + n * h.width);
            h.v[j] = load_head(h.values + n * h.width);
        }
    }
}

/* The query, key and value of the newest position, (3, dim). `keep`: the latter two go into the caches. */
template <class T>
static __device__ __forceinline__ running_head weigh_positions(const resident_phase &p, head_split<T> &h,
                                                               const float *fresh, int d, bool keep)
{
    const vec<float, 8> q = *(const vec<float, 8> *)(fresh + d);
    running_head r = {-INFINITY, 0, {}};
    for (int s = h.from; s < h.to; s += AT_ONCE * h.groups) {
        BY_UNROLL
        for (int j = 0; j < AT_ONCE; j++) {
            const int n = s + h.group + j * h.groups;
            vec<float, 8> key = floats_of(h.k[j]), value = floats_of(h.v[j]);
            if (n == h.past) {
                key = *(const vec<float, 8> *)(fresh + p.dim + d);
                value = *(const vec<float, 8> *)(fresh + 2 * p.dim + d);
                if (keep) {
                    store_head(h.keys + n * h.width, key);
                    store_head(h.values + n * h.width, value);
                }
            }
            float score = 0;
            BY_UNROLL
            for (int e = 0; e < 8; e++)
                score += q.at[e] * key.at[e];
            for (int step = p.dim / HEAD_PIECE / 2; step > 0; step /= 2)
                score += __shfl_xor_sync(0xffffffffu, score, step);
            if (n < h.to)
                merge_head(r, score * p.scale, 1, value);
        }
        load_positions(h, s + AT_ONCE * h.groups);
    }
    return r;
}

/* One query of each head over a split of the positions; dim / 8 lanes have a position. `space`: (3, dim)
 * query, key and value of the newest position; then (WARPS, dim + 4). */
template <class T, int WARPS, class WAIT>
static __device__ __forceinline__ void attend(const resident_phase &p, const resident_phase &before,
                                              int given, cuda_fault *fault, float *space, WAIT wait)
{
    const int lanes = p.dim / HEAD_PIECE, d = (int)threadIdx.x % lanes * HEAD_PIECE;
    const bool right = given >= 0 && given < p.capacity;
    const int past = right ? given : 0, share = (past + p.splits) / p.splits, tasks = p.heads * p.splits;
    const int which = (int)threadIdx.x * 4 / p.dim; /* of the three, for the quad that this thread reads */
    float *found = space + 3 * p.dim, *mine = found + (int)(threadIdx.x >> 5) * (p.dim + 4);
    if (!right && blockIdx.x == 0 && threadIdx.x == 0)
        report_fault(fault, p.node, GR_ATT_PAST, given, 0, p.capacity);
    bool waited = false;
    for (int task = blockIdx.x; task < tasks || !waited; task += gridDim.x) {
        const int head = task / p.splits, from = (task - head * p.splits) * share, kv = head / p.group;
        const int column = (which == 0 ? head * p.dim : (which == 1 ? p.k_at : p.v_at) + kv * p.dim) +
                           (int)threadIdx.x * 4 - which * p.dim;
        const bool reads = task < tasks && which < 3;
        const packed<T, 4> bias = load_quad<T>(reads ? before.bias : NULL, column);
        head_split<T> h = {from,
                           task < tasks ? min(from + share, past + 1) : 0,
                           past,
                           (int)threadIdx.x / lanes,
                           WARPS * 32 / lanes,
                           p.heads / p.group * p.dim,
                           (T *)p.keys + kv * p.dim + d,
                           (T *)p.values + kv * p.dim + d,
                           {},
                           {}};
        load_positions(h, from);
        if (!waited)
            wait();
        else
            sync_workers<WARPS>(); /* space is still being read */
        waited = true;
        if (task >= tasks)
            break;
        if (reads) {
            quad_parts parts;
            load_parts(parts, before, column);
            *(vec<float, 4> *)(space + threadIdx.x * 4) = add_parts<T>(parts, before, column, bias);
        }
        sync_workers<WARPS>();
        running_head r = weigh_positions<T>(p, h, space, d, right && head % p.group == 0);
        merge_lanes(r, lanes);
        if ((int)(threadIdx.x & 31) < lanes)
            store_floats(mine + d, r.sum);
        if ((threadIdx.x & 31) == 0)
            *(vec<float, 2> *)(mine + p.dim) = vec<float, 2>{{r.high, r.total}};
        sync_workers<WARPS>();
        leave_head<WARPS>(p, found, p.left + task * (p.dim + 4));
    }
}

/* ---- the kernel -------------------------------------------------------------------------------- */

template <class T, int WARPS, int SLOTS> struct resident_layout {
    enum {
        STRIPS = MOST_STRIPS * WARPS * (int)strip<T>::COLUMNS,
        HEADS = 3 * 128 + WARPS * (128 + 4), /* floats for an attention of 128 elements */
        SUMS = SLOTS * UNIT_BYTES,
        SPACE = SUMS + (STRIPS > HEADS ? STRIPS : HEADS) * 4,
        FULL = SPACE + 2 * 16 * 4,
        TABLE = FULL + 2 * SLOTS * 8,
        X = TABLE + TABLE_RING * sizeof(resident_phase)
    };
};

/* Vectors that a phase reads, near before their time. */
template <class T> static __device__ __forceinline__ void bring_vectors(const resident_phase &p)
{
    const int i = (int)threadIdx.x * (int)(128 / sizeof(T));
    if (p.bias && i < p.n)
        bring_near((const T *)p.bias + i);
    if (p.gamma && i < p.k)
        bring_near((const T *)p.gamma + i);
    if (p.beta && i < p.k)
        bring_near((const T *)p.beta + i);
}

/* The keys and values that this block will read first in an attention. */
template <class T> static __device__ __forceinline__ void bring_head(const resident_phase &p, int past)
{
    const int row = (p.dim * (int)sizeof(T) + 127) / 128,
              width = p.heads / p.group * p.dim; /* lines of a position */
    const int head = (int)blockIdx.x / p.splits, split = (int)blockIdx.x - head * p.splits;
    const int share = (past + p.splits) / p.splits, n = split * share + (int)threadIdx.x / row;
    const int64_t at =
        (int64_t)n * width + head / p.group * p.dim + (int)threadIdx.x % row * (int)(128 / sizeof(T));
    if (head >= p.heads || n >= min((split + 1) * share, min(past, p.capacity)))
        return;
    bring_near((const T *)p.keys + at);
    bring_near((const T *)p.values + at);
}

/* Shared memory of a block. */
template <class T> struct resident_memory {
    unit_ring ring;
    float *sums, *space;
    resident_phase *table; /* a ring: phase i is at i % TABLE_RING */
    T *xs;
};

enum { PHASE_PIECES = sizeof(resident_phase) / 16 };

template <class T, int WARPS, int SLOTS>
static __device__ __forceinline__ resident_memory<T> lay_out(const resident_args &a)
{
    typedef resident_layout<T, WARPS, SLOTS> layout;
    BY_SHARED(unsigned char, memory);
    uint64_t *full = (uint64_t *)(memory + layout::FULL);
    const resident_memory<T> m = {{memory, full, full + SLOTS},
                                  (float *)(memory + layout::SUMS),
                                  (float *)(memory + layout::SPACE),
                                  (resident_phase *)(memory + layout::TABLE),
                                  (T *)(memory + layout::X)};
    const int begin = max(a.from - TABLE_BACK, 0), end = min(a.from + TABLE_AHEAD, a.count);
    for (int i = threadIdx.x; i < (end - begin) * PHASE_PIECES; i += (WARPS + 1) * 32)
        ((uint4 *)(m.table + (begin + i / PHASE_PIECES) % TABLE_RING))[i % PHASE_PIECES] =
            ((const uint4 *)(a.table + begin))[i];
    for (int i = threadIdx.x; i < 2 * SLOTS; i += (WARPS + 1) * 32)
        barrier_init(full + i, 1);
    if (threadIdx.x < 32)
        m.space[threadIdx.x] = 0;
    barrier_fence();
    __syncthreads();
    return m;
}

/* A norm, and the product with it. Returns the units that the product took. */
template <class T, int WARPS, int SLOTS, class WAIT>
static __device__ __forceinline__ int multiply_phase(const resident_phase &p, const resident_phase &before,
                                                     unsigned over_blocks, int stream,
                                                     const resident_memory<T> &m, WAIT wait)
{
    const unit_share share = share_of(p, over_blocks);
    int part = 0;
    if (p.kind == PHASE_PRODUCT)
        part = (int)blockIdx.x - block_of(p.units, share.from - share.row, gridDim.x);
    if (p.source == SOURCE_NORM)
        take_norm<T, WARPS>(p, before, over_blocks, m.xs, m.space, wait);
    else if (p.source == SOURCE_SUMS)
        take_sums<T, WARPS>(p, before, share, m.xs, wait);
    else
        take_heads<T, WARPS>(p, before, share, m.xs, wait);
    sync_workers<WARPS>();
    if (p.kind == PHASE_PRODUCT) {
        multiply<T, WARPS, SLOTS>(p, share, stream, m.ring, m.xs, m.sums);
        sync_workers<WARPS>();
        leave_sums<T, WARPS>(p, share, part, m.sums);
    }
    return share.to - share.from;
}

template <class T, int WARPS, int SLOTS>
static __global__ void __launch_bounds__((WARPS + 1) * 32, 1) resident(const resident_args a)
{
#if BY_HOPPER_CODE
    const resident_memory<T> m = lay_out<T, WARPS, SLOTS>(a);
    if (threadIdx.x >= WARPS * 32) {
        request_units<SLOTS>(a, m.ring);
        return;
    }
    const int past = a.past ? *a.past : 0;
    int stream = 0; /* units before those of the phase */
    for (int at = a.from; at < a.to; at++) {
        const resident_phase &p = m.table[at % TABLE_RING], &next = m.table[(at + 1) % TABLE_RING];
        const resident_phase &before = m.table[(at + TABLE_RING - p.back) % TABLE_RING];
        const int fetch = at + TABLE_AHEAD;
        uint4 piece = {}; /* of a phase's row of the table, which is stored at the end */
        if (threadIdx.x < PHASE_PIECES && fetch < a.count)
            piece = ((const uint4 *)(a.table + fetch))[threadIdx.x];
        if (at + 3 < a.to && (at + 3) % (int)gridDim.x == (int)blockIdx.x)
            bring_vectors<T>(m.table[(at + 3) % TABLE_RING]);
        if (at + 1 < a.to && next.kind == PHASE_ATTENTION)
            bring_head<T>(next, past);
        auto wait = [&] {
            if (at > a.from)
                resident_wait<WARPS>(a.arrived, (unsigned)(at - a.from) * gridDim.x);
        };
        if (p.kind == PHASE_ATTENTION)
            attend<T, WARPS>(p, before, past, a.fault, m.sums, wait);
        else
            stream += multiply_phase<T, WARPS, SLOTS>(p, before, a.over_blocks, stream, m, wait);
        if (threadIdx.x < PHASE_PIECES && fetch < a.count)
            ((uint4 *)(m.table + fetch % TABLE_RING))[threadIdx.x] = piece;
        if (at + 1 < a.to)
            resident_arrive<WARPS>(a.arrived);
    }
    resident_leave(a.arrived);
#endif
}

#endif
