/* hopper_band.cuh - Hopper's attention jobs in a band: every query attends to a contiguous range of keys, and
 * both ends of the range move on with the query. Sparse patterns (Child et al. 2019) are one or two such bands
 * in coordinates of their own (hopper_views.cuh): a window, blocks, the columns of a strided pattern, or the
 * summaries of a fixed one. The rows of a tile of queries and those of each of its warpgroups see different
 * ranges, so a warpgroup skips blocks both before and after those that concern it. */
#ifndef BY_CUDA_KERNELS_HOPPER_BAND_CUH
#define BY_CUDA_KERNELS_HOPPER_BAND_CUH

#include <limits.h>

#include "cuda/kernels/wgmma.cuh"

namespace
{

/* Query t attends to key s if -before <= s / key_unit - t / query_unit <= after. Key s is at position
 * s / key_unit * query_unit + query_unit - key_unit + s % key_unit of the queries, the last of each unit; if
 * `causal`, that is at most t - lag. */
struct band {
    int query_unit, key_unit, before, after, lag;
    bool causal;
    bool rising; /* later queries attend to more keys */
};

/* Where the rows of a band lie: columns of a tensor with `total` rows in a batch row. Short columns are packed:
 * sequence b of the batch has columns pack * (b % packs), ... of batch row b / packs, and row i of it is row
 * i / pack of column i % pack, which is row i / pack * step + i % pack of the tensor. Only rows of the same
 * column are pairs. pack is a power of 2; there may be fewer than pack * packs columns. */
struct band_layout {
    int columns, packs, pack, step, total;
    int lse_heads; /* heads of the log-sum-exp */
    bool add;      /* results are combined with those that are already there */
};

#if BY_HOPPER_CODE

/* a / b and a % b: most are by 1, and a division takes as long as many other instructions. */
static __device__ __forceinline__ int over(int a, int b)
{
    return b == 1 ? a : a / b;
}
static __device__ __forceinline__ int rest(int a, int b)
{
    return b == 1 ? 0 : a % b;
}

struct band_range {
    int from, to;
};

/* The number of keys at positions up to t. */
static __device__ __forceinline__ int band_keys_until(const band &x, int t)
{
    if (t < 0)
        return 0;
    return over(t, x.query_unit) * x.key_unit +
           max(0, rest(t, x.query_unit) - (x.query_unit - x.key_unit) + 1);
}

/* The keys of query t, of `keys`. */
static __device__ __forceinline__ band_range band_keys(const band &x, int t, int keys)
{
    const int unit = over(t, x.query_unit);
    int end = min(keys, (unit + x.after + 1) * x.key_unit);
    if (x.causal)
        end = min(end, band_keys_until(x, t - x.lag));
    return band_range{max(0, (unit - x.before) * x.key_unit), end};
}

/* The queries, of `queries`, that attend to key s. */
static __device__ __forceinline__ band_range band_queries(const band &x, int s, int queries)
{
    const int unit = over(s, x.key_unit);
    int first = max(0, (unit - x.after) * x.query_unit);
    if (x.causal)
        first = max(first, unit * x.query_unit + x.query_unit - x.key_unit + rest(s, x.key_unit) + x.lag);
    return band_range{first, min(queries, (unit + x.before + 1) * x.query_unit)};
}

/* The blocks of BLOCK rows of the moving side that concern some of rows [row, row + n) of the fixed side. */
template <bool TURNED, int BLOCK>
static __device__ __forceinline__ band_range band_blocks(const band &x, int queries, int keys, int row, int n)
{
    const int rows = TURNED ? keys : queries, last = min(row + n, rows) - 1;
    if (row >= rows)
        return band_range{0, 0};
    const int from = TURNED ? band_queries(x, row, queries).from : band_keys(x, row, keys).from;
    const int to = TURNED ? band_queries(x, last, queries).to : band_keys(x, last, keys).to;
    return to <= from ? band_range{0, 0} : band_range{from / BLOCK, (to + BLOCK - 1) / BLOCK};
}

/* The rows of the moving side that are pairs with all of the 64 fixed rows from `row`. */
template <bool TURNED>
static __device__ __forceinline__ band_range band_inner(const band &x, int pack, int queries, int keys,
                                                        int row)
{
    const band_range low = TURNED ? band_queries(x, row, queries) : band_keys(x, row, keys);
    const band_range high = TURNED ? band_queries(x, row + 63, queries) : band_keys(x, row + 63, keys);
    if (pack > 1 || (TURNED && row + 64 > keys))
        return band_range{0, 0};
    /* Beyond the last query, weights are 0 because of their statistics. */
    return band_range{high.from, TURNED && low.to >= queries ? INT_MAX : low.to};
}

/* The ranges of a thread's two fixed rows. */
template <bool TURNED>
static __device__ __forceinline__ void band_rows(const band &x, int queries, int keys, int row,
                                                 band_range (&mine)[2])
{
    BY_UNROLL
    for (int i = 0; i < 2; i++) {
        const int at = row + 8 * i;
        mine[i] = at >= (TURNED ? keys : queries) ? band_range{0, 0}
                  : TURNED                        ? band_queries(x, at, queries)
                                                  : band_keys(x, at, keys);
    }
}

/* Masks what is outside of a row's range or in another column; at: the moving row of s[0], row: the first of
 * the two fixed ones. */
template <int N>
static __device__ __forceinline__ void hide_outside(float (&s)[N / 2], int at, int row, int pack,
                                                    const band_range (&mine)[2])
{
    BY_UNROLL
    for (int i = 0; i < N / 2; i++) {
        const int col = at + i / 4 * 8 + i % 2;
        const band_range &range = mine[i / 2 % 2];
        s[i] = col < range.from || col >= range.to ? -INFINITY : s[i];
    }
    if (pack == 1)
        return;
    BY_UNROLL
    for (int i = 0; i < N / 2; i++)
        s[i] = ((at + i / 4 * 8 + i % 2) ^ (row + i / 2 % 2 * 8)) & (pack - 1) ? -INFINITY : s[i];
}

/* Returns true if row `row` of sequence b is in a column that there is. */
static __device__ __forceinline__ bool band_has(const band_layout &x, int b, int row)
{
    return rest(b, x.packs) * x.pack + (row & (x.pack - 1)) < x.columns;
}
/* The place of the log-sum-exp of row `row` of head h of sequence b. */
static __device__ __forceinline__ int64_t band_lse_at(const band_layout &x, int b, int h, int row)
{
    return ((int64_t)over(b, x.packs) * x.lse_heads + h) * x.total + rest(b, x.packs) * x.pack +
           (row & (x.pack - 1)) + (int64_t)over(row, x.pack) * x.step;
}

#endif
} // namespace

#endif
