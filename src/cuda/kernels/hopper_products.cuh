/* hopper_products.cuh - the parts of a warpgroup's work: operands, products, masks, and writing rows to
 * memory. */
#ifndef BY_CUDA_KERNELS_HOPPER_PRODUCTS_CUH
#define BY_CUDA_KERNELS_HOPPER_PRODUCTS_CUH

#include <limits.h>

#include "cuda/kernels/hopper_tiles.cuh"

#if BY_HOPPER_CODE
namespace
{

/* The address of the block in a stage. Since the compiler knows that all lanes have the same, it computes it
 * only once. */
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
template <class J, bool KEEP = J::KEEP> struct operand {
    uint32_t word[KEEP ? J::D / 16 : 1][4];
    uint32_t at;
};
template <class J, bool KEEP>
static __device__ __forceinline__ void take_operand(operand<J, KEEP> &o, const unsigned char *tile, int group)
{
    if constexpr (KEEP) {
        const int row = 64 * group + threadIdx.x / 32 % 4 * 16;
        BY_UNROLL
        for (int k = 0; k < J::D / 16; k++)
            read_operand<J>(o.word[k], tile, row, k);
    } else {
        o.at = operand_place(shared_address(tile) + 64 * group * TILE_ROW);
    }
}

/* d (64, BLOCK) = a (64, D) times the moving rows at b, transposed */
template <class J, bool KEEP>
static __device__ __forceinline__ void scores(float (&d)[J::BLOCK / 2], const operand<J, KEEP> &a, uint32_t b)
{
    BY_UNROLL
    for (int k = 0; k < J::D / 16; k++) {
        const uint64_t right = operand_at(b, k / 4 * (J::BLOCK * TILE_ROW) + k % 4 * 32);
        if constexpr (KEEP)
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
    for (int k = 0; k < J::BLOCK / 16; k++) {
        if constexpr (J::PARTS == 1)
            wgmma<typename J::T, 64, true>(d[0], p[k], operand_at(b, k * (16 * TILE_ROW)), add || k > 0);
        else
            wgmma<typename J::T, 128, true>(reinterpret_cast<float(&)[64]>(d), p[k],
                                            operand_pair(b, k * (16 * TILE_ROW), J::BLOCK * TILE_ROW),
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

/* d (64, 64) times a factor for each of a thread's two rows, in 16 bits. */
template <class T>
static __device__ __forceinline__ void to_words(uint32_t (&word)[4][4], const float (&d)[32], float low,
                                                float high)
{
    BY_UNROLL
    for (int i = 0; i < 16; i++) {
        const float f = i % 2 ? high : low;
        word[i / 4][i % 4] = pack2<T>(d[2 * i] * f, d[2 * i + 1] * f);
    }
}
/* Such words to a thread's two rows, where they exist. */
template <class T> struct row_pair {
    T *at[2];
    bool in[2];
};
template <class T>
static __device__ __forceinline__ void store_pair(const row_pair<T> &to, const uint32_t (&word)[4][4])
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int half = 0; half < 2; half++) {
        BY_UNROLL
        for (int j = 0; j < 2; j++) {
            uint32_t four[4];
            BY_UNROLL
            for (int k = 0; k < 4; k++)
                four[k] = word[2 * j + k / 2][k % 2 * 2 + half];
            turn_quad(four, c);
            if (to.in[half])
                *(uint4 *)(to.at[half] + 32 * j + 8 * c) = uint4{four[0], four[1], four[2], four[3]};
        }
    }
}
/* The same to rows `row` and row + 8, if they are below `end`, from column `col` on. */
template <class T>
static __device__ __forceinline__ void store_words(const head_rows &to, int b, int col, int row, int end,
                                                   const uint32_t (&word)[4][4])
{
    T *at = (T *)to.at + b * to.batch + row * to.row + col;
    store_pair(row_pair<T>{{at, at + 8 * to.row}, {row < end, row + 8 < end}}, word);
}
/* Rows `row` and row + 8 of d times a factor of each, if they are below `end`. */
template <class T, int PARTS>
static __device__ __forceinline__ void store_rows(const head_rows &to, int b, int head, int row, int end,
                                                  const float (&d)[PARTS][32], float low, float high)
{
    BY_UNROLL
    for (int part = 0; part < PARTS; part++) {
        uint32_t word[4][4];
        to_words<T>(word, d[part], low, high);
        store_words<T>(to, b, (head * PARTS + part) * 64, row, end, word);
    }
}

/* ---- rows in a band: see hopper_band.cuh ------------------------------------------------------ */

/* Rows `row` and row + 8 of a head of sequence b, if they are below `end`. */
template <class J>
static __device__ __forceinline__ row_pair<typename J::T> band_at(const hopper_args &a, const head_rows &to,
                                                                  int b, int head, int row, int end)
{
    typedef typename J::T T;
    const band_layout &x = a.layout;
    T *at = (T *)to.at + over(b, x.packs) * to.batch + rest(b, x.packs) * x.pack * to.column + head * J::D;
    row_pair<T> r;
    for (int i = 0; i < 2; i++) {
        const int mine = row + 8 * i;
        r.at[i] = at + over(mine, x.pack) * to.row + (mine & (x.pack - 1)) * to.column;
        r.in[i] = mine < end && band_has(x, b, mine);
    }
    return r;
}

/* Adds what the rows already have, times a factor of each, to d. */
template <class T, int PARTS>
static __device__ __forceinline__ void add_stored(const row_pair<T> &from, float (&d)[PARTS][32], float low,
                                                  float high)
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int i = 0; i < PARTS * 4; i++) {
        const int part = i / 4, half = i / 2 % 2, j = i % 2;
        uint4 old = {0, 0, 0, 0};
        if (from.in[half])
            old = *(const uint4 *)(from.at[half] + part * 64 + 32 * j + 8 * c);
        uint32_t four[4] = {old.x, old.y, old.z, old.w};
        turn_quad(four, c); /* its own inverse */
        BY_UNROLL
        for (int k = 0; k < 8; k++) {
            const float x = to_float(T{(uint16_t)(four[k / 2] >> (k % 2 * 16))});
            float &sum = d[part][2 * (4 * (2 * j + k / 4) + k / 2 % 2 * 2 + half) + k % 2];
            sum += x * (half ? high : low);
        }
    }
}

/* The rows times a factor. */
template <class T, int PARTS>
static __device__ __forceinline__ void store_band(row_pair<T> to, const float (&d)[PARTS][32], float factor)
{
    BY_UNROLL
    for (int part = 0; part < PARTS; part++) {
        uint32_t word[4][4];
        to_words<T>(word, d[part], factor, factor);
        store_pair(to, word);
        to.at[0] += 64;
        to.at[1] += 64;
    }
}

/* The place of the log-sum-exp of a row of the current head, and whether there is one. */
template <class J>
static __device__ __forceinline__ int64_t lse_at(const hopper_args &a, const walk &w, int row)
{
    if constexpr (J::BANDED)
        return band_lse_at(a.layout, w.head / a.heads, w.head % a.heads, row);
    return (int64_t)w.head * a.queries + row;
}
template <class J>
static __device__ __forceinline__ bool has_query(const hopper_args &a, const walk &w, int row)
{
    return row < a.queries && (!J::BANDED || band_has(a.layout, w.head / a.heads, row));
}

/* Writes d times `factor`, or adds it to what is there. In a job that is not BANDED, it is store_rows. */
template <class J>
static __device__ __forceinline__ void put_rows(const hopper_args &a, const head_rows &to, int b, int head,
                                                int row, int end, float (&d)[J::PARTS][32], float factor)
{
    typedef typename J::T T;
    if constexpr (J::BANDED) {
        const row_pair<T> own = band_at<J>(a, to, b, head, row, end);
        if (a.layout.add)
            add_stored<T>(own, d, 1 / factor, 1 / factor);
        store_band<T>(own, d, factor);
    } else {
        store_rows<T>(to, b, head, row, end, d, factor, factor);
    }
}
/* The same for rows without any pair. */
template <class J>
static __device__ __forceinline__ void put_zeros(const hopper_args &a, const head_rows &to, int b, int head,
                                                 int row, int end)
{
    float zero[J::PARTS][32] = {};
    if (to.at && !a.layout.add)
        put_rows<J>(a, to, b, head, row, end, zero, 1);
}

/* ---- the causal mask ------------------------------------------------------------------------- */

/* The last keys visible to a thread's two rows. */
static __device__ __forceinline__ void last_keys(const hopper_args &a, int row, int (&last)[2])
{
    const int end = a.keys - 1, ahead = a.keys - a.queries;
    last[0] = a.causal ? min(end, ahead + row) : end;
    last[1] = a.causal ? min(end, ahead + row + 8) : end;
}
/* Returns true if a block has keys that are not visible to one of the 64 rows from `row`. */
template <class J> static __device__ __forceinline__ bool is_cut(const hopper_args &a, int row, int block)
{
    const int first_end = a.causal ? min(a.keys, a.keys - a.queries + row + 1) : a.keys;
    return (block + 1) * J::BLOCK > first_end;
}

/* Masks keys beyond the last one visible to a row; key: that of s[0]. */
template <int N>
static __device__ __forceinline__ void hide_keys(float (&s)[N / 2], int key, const int (&last)[2])
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = key + i / 4 * 8 + i % 2 > last[i / 2 % 2] ? -INFINITY : s[i];
}

/* ---- the key mask ---------------------------------------------------------------------------- */

/* Masked keys of a block get the score `hidden`; c: the lane of the quad. */
template <class J>
static __device__ __forceinline__ void hide_masked(const hopper_args &a, float (&s)[J::BLOCK / 2], int b,
                                                   int block, int c, float hidden)
{
    BY_UNROLL
    for (int w = 0; w < J::BLOCK / 64; w++) {
        const uint64_t bits = a.seen[b * a.words + block * (J::BLOCK / 64) + w] >> 2 * c;
        BY_UNROLL
        for (int i = 0; i < 32; i++)
            s[32 * w + i] = bits >> (i / 4 * 8 + i % 2) & 1 ? s[32 * w + i] : hidden;
    }
}

/* ---- the same, transposed: rows are keys, columns queries ------------------------------------- */

/* The first queries that attend to a thread's two rows; none for masked keys and beyond the last key. */
template <class J>
static __device__ __forceinline__ void first_queries(const hopper_args &a, int b, int row, int (&first)[2])
{
    const int ahead = a.keys - a.queries;
    BY_UNROLL
    for (int i = 0; i < 2; i++) {
        const int key = row + 8 * i;
        bool seen = key < a.keys;
        if (J::MASKED)
            seen = seen && a.seen[b * a.words + key / 64] >> key % 64 & 1;
        first[i] = !seen ? INT_MAX : a.causal ? key - ahead : 0;
    }
}
/* Returns true if a block has queries that do not attend to one of the 64 rows from `row`. */
template <class J>
static __device__ __forceinline__ bool is_cut_turned(const hopper_args &a, int row, int block)
{
    return J::MASKED || row + 64 > a.keys || (a.causal && block * J::BLOCK + a.keys - a.queries < row + 63);
}
/* Masks queries before the first one that attends to a row; query: that of s[0]. */
template <int N>
static __device__ __forceinline__ void hide_queries(float (&s)[N / 2], int query, const int (&first)[2])
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = query + i / 4 * 8 + i % 2 < first[i / 2 % 2] ? -INFINITY : s[i];
}

/* ---- what is masked for a thread's two rows, in any job ---------------------------------------- */

struct edges {
    int at[2];           /* the last key, or TURNED the first query */
    band_range range[2]; /* BANDED: of the moving side, and the rows that all 64 of the warpgroup see */
    band_range inner;
    int row;
};
/* row0: the first of the warpgroup. */
template <class J>
static __device__ __forceinline__ void find_edges(const hopper_args &a, int b, int row0, int row, edges &e)
{
    if constexpr (J::BANDED) {
        band_rows<J::TURNED>(a.band, a.queries, a.keys, row, e.range);
        e.inner = band_inner<J::TURNED>(a.band, a.layout.pack, a.queries, a.keys, row0);
        e.row = row;
    } else if constexpr (J::TURNED)
        first_queries<J>(a, b, row, e.at);
    else
        last_keys(a, row, e.at);
}
/* Returns true if a block needs hide_cut for the 64 rows from `row`. */
template <class J>
static __device__ __forceinline__ bool cuts(const hopper_args &a, int row, int block, const edges &e)
{
    if constexpr (J::BANDED)
        return block * J::BLOCK < e.inner.from || (block + 1) * J::BLOCK > e.inner.to;
    else if constexpr (J::TURNED)
        return is_cut_turned<J>(a, row, block);
    else
        return is_cut<J>(a, row, block);
}
/* at: the moving row of s[0]. */
template <class J>
static __device__ __forceinline__ void hide_cut(const hopper_args &a, float (&s)[J::BLOCK / 2], int at,
                                                const edges &e)
{
    if constexpr (J::BANDED)
        hide_outside<J::BLOCK>(s, at, e.row, a.layout.pack, e.range);
    else if constexpr (J::TURNED)
        hide_queries<J::BLOCK>(s, at, e.at);
    else
        hide_keys<J::BLOCK>(s, at, e.at);
}

/* The softmax statistics of the queries in a stage. */
template <class J> static __device__ __forceinline__ const float2 *stats_at(const space &s, int stage)
{
    return (const float2 *)(s.stages + stage * J::STAGE_BYTES + 2 * J::MOVING_BYTES);
}
/* s becomes p, dp becomes ds; stats: of the block's queries. A query that attends to nothing has equal
 * weights. */
template <class J>
static __device__ __forceinline__ void through_softmax_turned(const hopper_args &a, float (&s)[J::BLOCK / 2],
                                                              float (&dp)[J::BLOCK / 2], const float2 *stats)
{
    const int c = threadIdx.x % 4;
    BY_UNROLL
    for (int j = 0; j < J::BLOCK / 8; j++) {
        const float4 two = *(const float4 *)(stats + 8 * j + 2 * c);
        BY_UNROLL
        for (int i = 4 * j; i < 4 * j + 4; i++) {
            const float lse = i % 2 ? two.z : two.x, delta = i % 2 ? two.w : two.y;
            s[i] = exp2_fast(s[i] * a.scale_log2 - lse);
            if (J::MASKED)
                s[i] = lse == -INFINITY ? a.equal : s[i];
            dp[i] = s[i] * (dp[i] - delta);
        }
    }
}

} // namespace
#endif

#endif
