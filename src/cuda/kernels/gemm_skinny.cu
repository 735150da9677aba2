/* gemm_skinny.cu - y (M, N) = act(x (M, K) w + b) for up to 64 rows of 16 bits: decoding many texts at once.
 * As in gemv_rows.cu the weights are read once, and requested before the previous kernel has ended; the
 * matrix units multiply.
 *
 * A warp processes strips of 32 columns, over a part of K, and has its own ring through which the weights
 * stream: no warp waits for another. A block has `across` warps side by side, and `down` warps that share K.
 * `size` blocks, a cluster, share K again. A block keeps its part of x in shared memory; if a cluster shares
 * K, that is little and arrives soon. Where K is shared, the partial sums are added in the order of the
 * parts. */
#include "cuda/kernels/gemm_skinny.cuh"
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/cluster.cuh"
#include "cuda/kernels/mma.cuh"

enum {
    MAX_ROWS = 64,
    STRIP = 32,      /* columns */
    STEP = 16,       /* depth of a matrix instruction */
    CHUNK = 32,      /* depth of what is copied at once: with STRIP columns, 32 rows of 64 bytes either way */
    AHEAD = 8,       /* chunks of a ring */
    MAX_WARPS = 8,   /* of a block */
    MAX_CLUSTER = 8, /* blocks */
    MAX_PARTS = 8,   /* added up at once: warps of a block, blocks of a cluster */
    CHUNK_BYTES = STRIP * CHUNK * 2,
    TILES = STRIP / 8,     /* results of matrix instructions side by side in a strip */
    SUM_BYTES = 32 * 4 * 4 /* a warp's part of one such result */
};

/* The emulated card is an older one, and a cluster is one block of at most 1024 threads. */
#ifdef BY_CUDA_EMULATE
enum { MIN_CLUSTER_ARCH = 80, MAX_CLUSTER_WARPS = 32 };
#else
enum { MIN_CLUSTER_ARCH = 90, MAX_CLUSTER_WARPS = MAX_CLUSTER * MAX_WARPS };
#endif

/* How a product is split. */
typedef struct some_shape {
    int size, across, down; /* blocks of a cluster, warps of a block across N and down K */
    int rounds;             /* tiles of `across` strips that a cluster processes, one after the other */
    unsigned clusters;
    int pitch;                         /* elements between rows of x in shared memory */
    unsigned ring_at, sums_at, shared; /* in bytes: offset of the rings, offset of the partial sums, total */
    int slots;                         /* chunks of a ring: AHEAD, or fewer if there are no more */
} some_shape;

typedef struct some_args {
    const void *x, *w, *bias;
    void *y;
    int64_t ldx, ldw, ldy;
    int m, n, k;
    by_act act;
    some_shape s;
} some_args;

/* Part i of n of [from, to). */
static __device__ __forceinline__ int part_of(int from, int to, int i, int n)
{
    return from + (to - from) * i / n;
}

/* The offset of 16 bytes of a chunk: eight rows below each other in eight different groups of banks. */
static __device__ __forceinline__ int place(int row, int piece)
{
    return row * 64 + (piece ^ (row >> 1 & 3)) * 16;
}

/* The weights of a warp: its strips, each from `from` to `to`, as one row of chunks. */
template <class T, bool NK> struct stream {
    const T *w;
    int64_t ldw;
    int n, from, to; /* columns; the warp's part of K */
    int col, k;      /* of the chunk to request next */
    int next_col;    /* from a strip to the next one of the warp */

    /* Requests one more chunk. Commits a group of copies even if there is none, so that groups can be
     * counted. */
    __device__ __forceinline__ void ask(unsigned char *slot)
    {
        const int lane = threadIdx.x & 31, piece = lane % 4;
        if (col < n) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = i * 8 + lane / 4;
                const int depth = k + (NK ? piece * 8 : row), c = col + (NK ? row : piece * 8);
                const T *at = w + (NK ? c * ldw + depth : depth * ldw + c);
                if (depth < to)
                    copy_async(slot + place(row, piece), c < n ? at : w, c < n);
            }
            k += CHUNK;
            if (k >= to) {
                k = from;
                col += next_col;
            }
        }
        copy_commit();
    }
};

/* The weights of a step, 16 (K) x 32 (N), in the layout of the matrix instructions. */
template <bool NK>
static __device__ __forceinline__ void weights_of(uint32_t b[TILES][2], const unsigned char *slot, int step)
{
    const int lane = threadIdx.x & 31, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int n = half * 2 + matrix / 2, k = step * 2 + matrix % 2; /* in eights */
        if (NK)
            ldmatrix4(b[half * 2], slot + place(n * 8 + row, k));
        else
            ldmatrix4_trans(b[half * 2], slot + place(k * 8 + row, n));
    }
}

/* Not inlined: a warp has 16 of these, and their code would be most of the kernel. */
template <class T> static __device__ __noinline__ float4 activated(by_act act, float4 v)
{
    return {activate_as<T>(act, v.x), activate_as<T>(act, v.y), activate_as<T>(act, v.z),
            activate_as<T>(act, v.w)};
}

/* Four results: rows m and m + 8, columns n and n + 1. */
template <class T> static __device__ __forceinline__ void finish(const some_args &a, int m, int n, float4 sum)
{
    T *y = (T *)a.y + m * a.ldy + n;
    if (a.act != BY_ACT_NONE)
        sum = activated<T>(a.act, sum);
    if (n >= a.n)
        return;
    if (m < a.m)
        *(uint32_t *)y = pack2<T>(sum.x, sum.y);
    if (m + 8 < a.m)
        *(uint32_t *)(y + 8 * a.ldy) = pack2<T>(sum.z, sum.w);
}

static __device__ __forceinline__ float4 plus(float4 a, float4 b)
{
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/* Sums the parts of a tile, which are in the shared memory of the cluster: (down, across, rows / 16, TILES,
 * lanes) in each block. First each block adds its own, then each block finishes a share of the tile. */
template <class T, int MT>
static __device__ void add_parts(const some_args &a, const cluster &c, float4 *sums, int col)
{
    const int lane = c.thread & 31, warp = c.thread >> 5, warps = a.s.across * a.s.down;
    const int count = a.s.across * MT * TILES, apart = count * 32;
    const bool alone = c.size == 1;
    if (!alone && a.s.down > 1) {
        __syncthreads();
        for (int i = warp; i < count; i += warps) {
            float4 sum = sums[i * 32 + lane];
            for (int d = 1; d < a.s.down; d++)
                sum = plus(sum, sums[d * apart + i * 32 + lane]);
            sums[i * 32 + lane] = sum;
        }
    }
    cluster_barrier(c);
    const int parts = alone ? a.s.down : c.size;
    for (int i = warp * c.size + c.rank; i < count; i += warps * c.size) {
        float4 part[MAX_PARTS];
#pragma unroll
        for (int p = 0; p < MAX_PARTS; p++)
            if (p < parts) {
                float4 *mine = sums + (alone ? p * apart : 0) + i * 32 + lane;
                part[p] = alone ? *mine : *cluster_peer(c, mine, p);
            }
#pragma unroll
        for (int p = 1; p < MAX_PARTS; p++)
            if (p < parts)
                part[0] = plus(part[0], part[p]);
        const int strip = i / (MT * TILES), m = i / TILES % MT, t = i % TILES;
        finish<T>(a, m * 16 + lane / 4, col + strip * STRIP + t * 8 + lane % 4 * 2, part[0]);
    }
}

/* Loads rows of x, from one column to another, into shared memory: one row per warp at a time. Blocks start
 * with different rows, so that not all read the same at once. */
template <class T>
static __device__ __forceinline__ void ask_for_x(const some_args &a, const cluster &c, T *to, int from,
                                                 int columns)
{
    const int lane = c.thread & 31, warps = c.threads >> 5, first = c.index % a.m;
    for (int i = c.thread >> 5; i < a.m; i += warps) {
        const int row = i + first < a.m ? i + first : i + first - a.m;
        const T *x = (const T *)a.x + row * a.ldx + from;
        for (int k = lane * 8; k < columns; k += 32 * 8)
            copy_async(to + row * a.s.pitch + k, x + k, true);
    }
    copy_commit();
}

template <class T, int MT, bool NK> __global__ void __launch_bounds__(32 * MAX_WARPS) some_rows(some_args a)
{
    const cluster c = my_cluster(a.s.size);
    const int lane = c.thread & 31, warp = c.thread >> 5;
    const int across = warp % a.s.across, down = warp / a.s.across, width = a.s.across * STRIP;
    const int steps = a.k / STEP;
    const int begin = part_of(0, steps, c.rank, c.size), end = part_of(0, steps, c.rank + 1, c.size);
    const int from = part_of(begin, end, down, a.s.down) * STEP;
    const int to = part_of(begin, end, down + 1, a.s.down) * STEP;
    unsigned char *memory = cluster_memory(c), *ring = memory + a.s.ring_at + warp * a.s.slots * CHUNK_BYTES;
    T *x = (T *)memory;
    float4 *sums = (float4 *)(memory + a.s.sums_at);
    int col = c.index * width + across * STRIP;
    let_next_start();

    stream<T, NK> weights = {(const T *)a.w, a.ldw, a.n, from, to, col, from, c.clusters * width};
    for (int i = 0; i < AHEAD; i++) {
        if (i < a.s.slots)
            weights.ask(ring + i * CHUNK_BYTES);
    }
    uint32_t bias[TILES] = {}; /* of the next tile: pairs of columns, for the first part of K */
    auto ask_for_bias = [&](int of) {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const int n = of + t * 8 + lane % 4 * 2;
            if (a.bias && c.rank == 0 && down == 0 && n < a.n)
                bias[t] = *(const uint32_t *)((const T *)a.bias + n);
        }
    };
    ask_for_bias(col);
    wait_for_previous();
    ask_for_x(a, c, x, begin * STEP, (end - begin) * STEP);
    copy_wait<0>();
    __syncthreads();

    /* lane l: row l % 16 of each 16 rows, or the last row if there is none; columns l / 16 * 8 */
    const T *rows[MT];
#pragma unroll
    for (int m = 0; m < MT; m++)
        rows[m] = x + min(m * 16 + lane % 16, a.m - 1) * a.s.pitch + lane / 16 * 8 - begin * STEP;
    int slot = 0;
    for (int round = 0; round < a.s.rounds; round++) {
        float sum[MT][TILES][4] = {};
        for (int k = from; k < to; k += CHUNK) {
            unsigned char *chunk = ring + slot * CHUNK_BYTES;
            copy_wait<AHEAD - 1>();
            __syncwarp();
#pragma unroll
            for (int step = 0; step < CHUNK / STEP; step++) {
                if (k + step * STEP >= to)
                    break;
                uint32_t b[TILES][2];
                weights_of<NK>(b, chunk, step);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    uint32_t part[4];
                    ldmatrix4(part, rows[m] + k + step * STEP);
#pragma unroll
                    for (int t = 0; t < TILES; t++)
                        mma16816<T>(sum[m][t], part, b[t]);
                }
            }
            __syncwarp();
            weights.ask(chunk);
            slot = slot + 1 < a.s.slots ? slot + 1 : 0;
        }
        const bool whole = c.size * a.s.down == 1;
        if (!whole) { /* the sums replace x, or those of the last round, which are still being read */
            if (round == 0)
                __syncthreads();
            else
                cluster_barrier(c);
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                const float low = to_float(T{(uint16_t)bias[t]}),
                            high = to_float(T{(uint16_t)(bias[t] >> 16)});
                const float *d = sum[m][t];
                const float4 v = {d[0] + low, d[1] + high, d[2] + low, d[3] + high};
                if (whole)
                    finish<T>(a, m * 16 + lane / 4, col + t * 8 + lane % 4 * 2, v);
                else
                    sums[((warp * MT + m) * TILES + t) * 32 + lane] = v;
            }
        if (!whole)
            add_parts<T, MT>(a, c, sums, col - across * STRIP);
        col += c.clusters * width;
        ask_for_bias(col);
    }
    if (c.size > 1)
        cluster_barrier(c); /* no block leaves while others read its sums */
}

/* ---- selection ------------------------------------------------------------------------------- */

static int64_t whole_parts(int64_t n, int64_t per)
{
    return (n + per - 1) / per;
}

/* Multiples of 16 rows: 1, 2 or 4. */
static int sixteens(const cuda_product *p)
{
    return p->m <= 16 ? 1 : p->m <= 32 ? 2 : 4;
}

/* Fills in what follows from the size of a cluster and the warps. Returns false if it is not possible. */
static bool complete(const cuda_context *c, const cuda_product *p, some_shape *s)
{
    const int64_t steps = p->k / STEP, tiles = whole_parts(p->n, s->across * STRIP);
    /* clusters are placed in groups of 16 or 18 multiprocessors */
    const int64_t places = s->size == 1 ? c->sms : BY_MAX(c->sms / 16 * 16 / s->size, 1);
    const int64_t block_steps = whole_parts(steps, s->size), warp_steps = whole_parts(block_steps, s->down);
    if (steps < (int64_t)s->size * s->down || s->across * s->down > MAX_WARPS ||
        s->size * s->across * s->down > MAX_CLUSTER_WARPS)
        return false;
    s->rounds = (int)whole_parts(tiles, places);
    s->clusters = (unsigned)whole_parts(tiles, s->rounds);
    s->pitch = (int)block_steps * STEP + 8; /* rows 16 bytes apart modulo 32: no bank conflicts */
    s->slots = (int)BY_MIN((int64_t)AHEAD, s->rounds * whole_parts(warp_steps, CHUNK / STEP));
    const int64_t warps = s->across * s->down, split = s->size * s->down > 1;
    const int64_t ring_at = whole_parts(p->m * s->pitch * 2, 128) * 128;
    const int64_t rings = warps * s->slots * CHUNK_BYTES;
    const int64_t sums = split ? warps * sixteens(p) * TILES * SUM_BYTES : 0;
    const int64_t sums_at = s->rounds == 1 ? 0 : ring_at + rings;
    const int64_t shared = BY_MAX(ring_at + rings, sums_at + sums);
    s->ring_at = (unsigned)ring_at;
    s->sums_at = (unsigned)sums_at;
    s->shared = (unsigned)shared;
    return shared <= c->shared_limit;
}

/* The bytes that a multiprocessor moves: its weights, its part of x, the partial sums out and in again; the
 * barriers of a cluster count as some more. Weights arrive slowly if too few are requested at once. */
static int64_t cost_of(const cuda_product *p, const some_shape *s)
{
    enum { ENOUGH = 64 * 1024, BARRIERS = 16 * 1024 };
    const int64_t width = s->across * STRIP, depth = s->pitch, rounds = s->rounds;
    const int64_t asked = (int64_t)s->across * s->down * s->slots * CHUNK_BYTES;
    int64_t cost = rounds * width * depth * 2;
    if (s->slots == AHEAD && asked < ENOUGH)
        cost = cost * ENOUGH / asked;
    cost += p->m * depth * 2;
    if (s->size * s->down > 1)
        cost += rounds * p->m * width * 8;
    if (s->size > 1)
        cost += rounds * BARRIERS;
    return cost;
}

static bool shape_for(const cuda_context *c, const cuda_product *p, some_shape *best)
{
    enum { STEPS_EACH = 3 }; /* minimum steps per warp */
    int64_t least = INT64_MAX;
    const int largest = c->arch >= MIN_CLUSTER_ARCH ? MAX_CLUSTER : 1;
    for (int size = 1; size <= largest; size *= 2)
        for (int across = MAX_WARPS; across >= 1; across--) {
            some_shape s = {};
            s.size = size;
            s.across = across;
            s.down = 1;
            if (!complete(c, p, &s))
                continue;
            const int64_t down = BY_MIN(MAX_WARPS / across, p->k / STEP / size / STEPS_EACH);
            if (s.rounds == 1 && down > 1) {
                s.down = (int)down;
                if (!complete(c, p, &s))
                    continue;
            }
            const int64_t cost = cost_of(p, &s);
            if (cost < least) {
                least = cost;
                *best = s;
            }
        }
    return least < INT64_MAX;
}

template <class T, int MT> static by_status launch(cuda_exec *x, bool nk, const some_args &a)
{
    const dim3 grid(a.s.clusters * (unsigned)a.s.size), block(32u * (unsigned)(a.s.across * a.s.down));
    return cuda_launch_clusters(x, (unsigned)a.s.size, nk ? some_rows<T, MT, true> : some_rows<T, MT, false>,
                                grid, block, a.s.shared, a);
}

template <class T>
static by_status of_type(cuda_exec *x, const cuda_product *p, by_act act, const some_shape &s)
{
    const some_args a = {p->a,   p->b,      p->bias,   p->c,      p->lda, p->ldb,
                         p->ldc, (int)p->m, (int)p->n, (int)p->k, act,    s};
    const int mt = sixteens(p);
    return mt == 1   ? launch<T, 1>(x, p->tb, a)
           : mt == 2 ? launch<T, 2>(x, p->tb, a)
                     : launch<T, 4>(x, p->tb, a);
}

static by_status run_as(cuda_exec *x, const cuda_product *p, by_act act, const some_shape &s)
{
    return p->ab_type == BY_BF16 ? of_type<bf16>(x, p, act, s) : of_type<f16>(x, p, act, s);
}

static bool sixteen_bytes(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

bool cuda_gemm_skinny_take(const cuda_context *c, const cuda_product *p)
{
    some_shape s;
    return (p->ab_type == BY_BF16 || p->ab_type == BY_F16) && p->c_type == p->ab_type && !p->ta &&
           !p->accumulate && p->batch <= 1 && p->m <= MAX_ROWS && p->k % STEP == 0 && p->k > 0 &&
           p->n % 8 == 0 && p->n > 0 && p->lda % 8 == 0 && p->ldb % 8 == 0 && p->ldc % 8 == 0 &&
           sixteen_bytes(p->a) && sixteen_bytes(p->b) && sixteen_bytes(p->c) &&
           (!p->bias || (p->bias_type == p->ab_type && sixteen_bytes(p->bias))) && shape_for(c, p, &s);
}

by_status cuda_gemm_skinny(cuda_exec *x, const cuda_product *p, by_act act)
{
    some_shape s;
    if (!shape_for(x->cuda, p, &s))
        return base_fail(BY_ERR_UNSUPPORTED, "no kernel for a product of these sizes");
    if (s.size > 1) {
        BY_BRANCH("some rows, clusters");
    } else if (s.down > 1) {
        BY_BRANCH("some rows, blocks that share K");
    } else {
        BY_BRANCH("some rows, whole sums");
    }
    return run_as(x, p, act, s);
}
