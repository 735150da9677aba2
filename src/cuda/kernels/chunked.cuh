/* chunked.cuh - shared by the kernels of attention within chunks: where rows are, what a score becomes, which
 * weights dropout keeps, and sums over rounds. A block has a tile of SLOTS places of one chunk. Rounds are
 * launched one after the other; with several, sums are kept as f32 between them. */
#ifndef BY_CUDA_KERNELS_CHUNKED_CUH
#define BY_CUDA_KERNELS_CHUNKED_CUH

#include "cuda/kernels/attention_mma.cuh"
#include "cuda/kernels/attention_plain.cuh"
#include "graph/chunks.h"

enum {
    SLOTS = 64,
    MASKED_KEY = 1 << 30
}; /* bit of a key that is masked, beside its row; -1: there is none */

struct chunked {
    gr_chunks c;
    int batch, heads, dim, tiles,
        parts; /* tiles of a chunk; parts of 64 elements of a head, for plain tiles */
    float scale;
    bool dropout;
    drop dropping;
    uint32_t rng;
    const uint64_t *random;
    const int32_t *order, *mask;
    const void *q, *k, *v, *dy;
    float *lse; /* (B, H, T, 2) */
    float *stats[2],
        *after; /* the same of rounds: largest score and sum, read of the one before, written to after */
    const float *before;
    float *delta;   /* (B, H, T) dy . y */
    float *sums[3]; /* (B, T, H*D) y, or dq, dk, dv, between rounds */
    void *out[3];
    void *weights;
    int at_round;
    bool first, last;
    cuda_fault *fault;
    int node;
};

/* ---- host ------------------------------------------------------------------------------------ */

static inline const void *chunked_data(const by_tensor *t)
{
    return t ? t->data : NULL;
}

static inline chunked chunked_of(const cuda_exec *x, gr_node *n)
{
    const gr_chunked_attr *p = (const gr_chunked_attr *)n->attr;
    chunked a = {};
    a.c = gr_chunks_of(n);
    a.batch = (int)n->in[0]->dim[0];
    a.heads = p->spec.heads;
    a.dim = p->head_dim;
    a.tiles = (int)blocks_for(a.c.chunk, SLOTS);
    a.parts = (int)blocks_for(a.dim, SIDE);
    a.scale = p->spec.scale;
    a.dropout = p->spec.dropout > 0;
    a.dropping = drop_of(p->spec.dropout);
    a.rng = n->rng;
    a.random = x->random;
    a.q = n->in[0]->data;
    a.k = n->in[1]->data;
    a.v = n->in[2]->data;
    a.order = (const int32_t *)chunked_data(n->in[GR_CHUNKED_ORDER]);
    a.mask = (const int32_t *)chunked_data(n->in[GR_CHUNKED_MASK]);
    a.fault = x->cuda->device_fault;
    a.node = cuda_number(x, n);
    return a;
}

/* Whether the matrix instructions can be used: rows in whole pieces of 16 bytes. */
static inline bool chunked_fits_mma(const chunked &a, by_dtype type)
{
    return type != BY_F32 && a.dim % 8 == 0 && a.dim <= 128;
}

static inline int64_t chunked_elements(const chunked &a)
{
    return (int64_t)a.batch * a.c.rows * a.heads * a.dim;
}

/* Blocks for the tiles of one round. */
static inline dim3 chunked_grid(const chunked &a, int parts)
{
    return dim3((unsigned)(a.c.chunks * a.tiles * parts), (unsigned)a.heads, (unsigned)a.batch);
}

/* Calls launch(a) for every round. */
template <class F> static inline by_status each_round(chunked a, F launch)
{
    const int rounds = a.c.total / a.c.chunks;
    for (a.at_round = 0; a.at_round < rounds; a.at_round++) {
        a.first = a.at_round == 0;
        a.last = a.at_round == rounds - 1;
        a.before = a.stats[(a.at_round + 1) % 2];
        a.after = a.last ? a.lse : a.stats[a.at_round % 2];
        BY_TRY(launch(a));
    }
    return BY_OK;
}

static inline void chunked_branches(const chunked &a)
{
    if (a.order)
        BY_BRANCH("chunks, sorted");
    if (a.mask)
        BY_BRANCH("chunks, key mask");
    if (a.dropout)
        BY_BRANCH("chunks, dropout");
    if (a.c.total > a.c.chunks)
        BY_BRANCH("chunks, several rounds");
}

/* ---- device: places -------------------------------------------------------------------------- */

/* The head and the tile of a block. */
struct chunk_tile {
    int b, h, g, t0, part; /* chunk, first place in it, part of the head */
    int64_t head, base;    /* number of the head; its element 0 of row 0 */
    const int32_t *order;
};

static __device__ __forceinline__ chunk_tile tile_of(const chunked &a, int parts)
{
    chunk_tile x;
    const int at = (int)blockIdx.x / parts;
    x.part = (int)blockIdx.x % parts;
    x.b = (int)blockIdx.z;
    x.h = (int)blockIdx.y;
    x.g = a.at_round * a.c.chunks + at / a.tiles;
    x.t0 = at % a.tiles * SLOTS;
    x.head = (int64_t)x.b * a.heads + x.h;
    x.base = (int64_t)x.b * a.c.rows * a.heads * a.dim + x.h * a.dim;
    x.order = a.order ? a.order + x.head * (a.c.total / a.c.chunks) * a.c.rows : NULL;
    return x;
}

static __device__ __forceinline__ int row_at(const chunked &a, const chunk_tile &x, int g, int i)
{
    const int row = gr_chunks_row(&a.c, x.order, g, i);
    if (row < -1 || row >= a.c.rows) {
        report_fault(a.fault, a.node, GR_CHUNKED_ORDER, row, i, a.c.rows);
        return -1;
    }
    return row;
}

/* The row in place i of chunk g, with its mask. */
static __device__ __forceinline__ int key_at(const chunked &a, const chunk_tile &x, int g, int i)
{
    const int row = row_at(a, x, g, i);
    return row >= 0 && a.mask && !a.mask[(int64_t)x.b * a.c.rows + row] ? row | MASKED_KEY : row;
}

/* The score of a query and a key from their product; *live: it has a gradient. */
static __device__ __forceinline__ float score_of(const chunked &a, int query, int key, float product,
                                                 bool *live)
{
    const gr_meeting how =
        gr_chunks_meet(&a.c, query, key < 0 ? -1 : key & ~MASKED_KEY, key >= 0 && (key & MASKED_KEY));
    *live = how == GR_MEETS;
    return how == GR_MEETS          ? product * a.scale
           : how == GR_MEETS_MASKED ? GR_CHUNKS_MASKED
           : how == GR_MEETS_ITSELF ? GR_CHUNKS_SELF
                                    : -INFINITY;
}

static __device__ __forceinline__ float exponential(float x)
{
    return power2(x * LOG2_E);
}

/* gr_chunks_log in f32. */
static __device__ __forceinline__ float log_of_sum(float top, float sum)
{
    const float log_sum = logf(sum);
    if (!gr_chunks_rounds(top))
        return log_sum;
    const float lse = top + log_sum;
    return lse - top;
}

static __device__ __forceinline__ float sum_as_kept(float top, float sum)
{
    return gr_chunks_rounds(top) ? expf(log_of_sum(top, sum)) : sum;
}

/* Bit i: weight (place + i, column) of chunk g is kept; place is a multiple of 4. */
static __device__ __forceinline__ uint32_t kept4(const chunked &a, int64_t head, int g, int place, int column)
{
    const uint4 r = random4(a.random, a.rng, gr_chunks_random(&a.c, head, g, place, column));
    const uint32_t limit = a.dropping.threshold;
    return (uint32_t)(r.x >= limit) | (uint32_t)(r.y >= limit) << 1 | (uint32_t)(r.z >= limit) << 2 |
           (uint32_t)(r.w >= limit) << 3;
}

/* ---- device: sums over rounds ---------------------------------------------------------------- */

/* One element of sum `which`: adds the sum of earlier rounds times `old`; the last round writes the
 * result. */
template <class T>
static __device__ __forceinline__ void put_sum(const chunked &a, int which, int64_t at, float value,
                                               float old, float by)
{
    if (!a.first)
        value += a.sums[which][at] * old;
    if (a.last)
        ((T *)a.out[which])[at] = from_float<T>(value * by);
    else
        a.sums[which][at] = value;
}

/* A row's statistics after this round: the factors of the sums before it, of its own, and of the result. */
struct merged {
    float old, fresh, by;
};
static __device__ __forceinline__ merged merge_stats(const chunked &a, int64_t at, float top, float sum,
                                                     bool write)
{
    sum = sum_as_kept(top, sum);
    const float was = a.first ? -INFINITY : a.before[2 * at], now = fmaxf(was, top);
    merged m = {a.first ? 0 : exponential(was - now), exponential(top - now), 1};
    sum = sum * m.fresh + (a.first ? 0 : a.before[2 * at + 1] * m.old);
    if (a.last)
        m.by = 1 / sum_as_kept(now, sum);
    if (write) {
        a.after[2 * at] = now;
        a.after[2 * at + 1] = a.last ? log_of_sum(now, sum) : sum;
    }
    return m;
}

/* ---- device: tiles by matrix instructions ---------------------------------------------------- */

/* Starts loading the rows in places [i0, i0 + SLOTS) of chunk g, zeros where there are none. */
template <class T, int D>
static __device__ __forceinline__ void fetch_slots(const chunked &a, const chunk_tile &x, const void *from,
                                                   int g, int i0, T *to)
{
    enum { PIECES = D / 8 };
    UNROLL
    for (int j = 0; j < SLOTS * PIECES / THREADS; j++) {
        const int i = j * THREADS + threadIdx.x, r = i / PIECES, d = i % PIECES * 8;
        const int row = row_at(a, x, g, i0 + r);
        const bool real = row >= 0 && d < a.dim;
        const T *at = (const T *)from + x.base;
        copy_async(to + r * (D + 8) + d, real ? at + (int64_t)row * a.heads * a.dim + d : at, real);
    }
}

/* Which weights of 16 places from t0 and 64 columns are kept: bit 4 n of keep[i] is for element i of column
 * tile n. */
static __device__ __forceinline__ void kept_by_place(const chunked &a, int64_t head, int g, int t0,
                                                     int column, uint32_t (&keep)[4])
{
    const int lane = threadIdx.x & 31, row = lane / 4, c = lane % 4, mine = row & 3;
    uint32_t bits = 0;
    UNROLL
    for (int n = 0; n < SLOTS / 8; n++)
        bits |= kept4(a, head, g, t0 + (row & 4) + 8 * (mine >> 1), column + 8 * n + 2 * c + (mine & 1))
                << 4 * n;
    UNROLL
    for (int i = 0; i < 4; i++)
        keep[i] = __shfl_sync(0xffffffffu, bits, (lane & 19) | i << 2) >> mine;
}

/* The same for 16 columns and 64 places from t0: bit 4 n + i % 2 of keep[i / 2]. */
static __device__ __forceinline__ void kept_by_column(const chunked &a, int64_t head, int g, int t0,
                                                      int column, uint32_t (&keep)[2])
{
    const int lane = threadIdx.x & 31, row = lane / 4, c = lane % 4, mine = c & 1;
    uint32_t bits = 0;
    UNROLL
    for (int n = 0; n < SLOTS / 8; n++)
        bits |= kept4(a, head, g, t0 + 8 * n + 4 * (c >> 1), column + row + 8 * mine) << 4 * n;
    const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 1);
    keep[0] = (mine ? other : bits) >> 2 * mine;
    keep[1] = (mine ? bits : other) >> 2 * mine;
}

/* 16 rows of a warp, whose numbers are in rows[], to sum `which`. */
template <class T, int D>
static __device__ __forceinline__ void put_rows(const chunked &a, const chunk_tile &x, int which,
                                                const int *rows, const float (&acc)[1][D / 8][4],
                                                const float (&own)[2], const float (&old)[2],
                                                const float (&by)[2])
{
    const int lane = threadIdx.x & 31, c = lane % 4;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = rows[lane / 4 + 8 * i];
        if (row < 0)
            continue;
        const int64_t base = x.base + (int64_t)(row & ~MASKED_KEY) * a.heads * a.dim;
        UNROLL
        for (int n = 0; n < D / 8; n++)
            UNROLL
        for (int j = 0; j < 2; j++)
            if (8 * n + 2 * c + j < a.dim)
                put_sum<T>(a, which, base + 8 * n + 2 * c + j, acc[0][n][2 * i + j] * own[i], old[i], by[i]);
    }
}

/* ---- device: plain tiles, laid out as in attention_plain.cuh ---------------------------------- */

/* Elements [d0, d0 + SIDE) of the rows named in rows[], zeros where there are none. */
template <class T>
static __device__ __forceinline__ void fetch_square_rows(const chunked &a, const chunk_tile &x,
                                                         const void *from, const int *rows, int d0, float *to)
{
    for (int i = threadIdx.x; i < SIDE * SIDE; i += PLAIN_THREADS) {
        const int r = i / SIDE, d = i % SIDE, row = rows[r];
        const bool real = row >= 0 && d0 + d < a.dim;
        to[r * PITCH + d] =
            real ? to_float(
                       ((const T *)from)[x.base + (int64_t)(row & ~MASKED_KEY) * a.heads * a.dim + d0 + d])
                 : 0;
    }
}

/* s = rows `left` of one tensor times rows `right` of another, transposed. */
template <class T>
static __device__ __forceinline__ void dots_of_rows(const chunked &a, const chunk_tile &x, const void *from,
                                                    const int *left, const void *other, const int *right,
                                                    float *space, float (&s)[4][4])
{
    UNROLL
    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] = 0;
    for (int d0 = 0; d0 < a.dim; d0 += SIDE) {
        __syncthreads();
        fetch_square_rows<T>(a, x, from, left, d0, space);
        fetch_square_rows<T>(a, x, other, right, d0, space + SQUARE);
        __syncthreads();
        add_dots(s, space, space + SQUARE);
    }
}

/* Rows of a plain tile, named in rows[], to elements [64 part, ...) of sum `which`. */
template <class T>
static __device__ __forceinline__ void put_square_rows(const chunked &a, const chunk_tile &x, int which,
                                                       const int *rows, const float (&acc)[4][4],
                                                       const float (&own)[4], const float (&old)[4],
                                                       const float (&by)[4])
{
    UNROLL
    for (int i = 0; i < 16; i++) {
        const int r = i / 4, row = rows[4 * THREAD_Y + r], d = x.part * SIDE + 4 * THREAD_X + i % 4;
        if (row >= 0 && d < a.dim)
            put_sum<T>(a, which, x.base + (int64_t)(row & ~MASKED_KEY) * a.heads * a.dim + d,
                       acc[r][i % 4] * own[r], old[r], by[r]);
    }
}

#endif
