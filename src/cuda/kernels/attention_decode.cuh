/* attention_decode.cuh - building blocks of decoding with few queries: rows of keys and values in pieces, and
 * the running softmax over them. */
#ifndef BY_CUDA_KERNELS_ATTENTION_DECODE_CUH
#define BY_CUDA_KERNELS_ATTENTION_DECODE_CUH

#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/last.cuh"

enum { PIECE = 8 };                    /* elements of a head per lane */
enum { FEW_ROWS = 32 };                /* maximum queries of a key head with a kernel */
enum { DECODERS = 256, RESIDENT = 3 }; /* threads of a block; blocks that a multiprocessor has at a time */
enum { FEW_STEPS = 8 };                /* up to here, combining takes longer than one block for all */

/* ---- rows ------------------------------------------------------------------------------------ */

/* Positions are counted from the new ones on, so that the address of position n does not depend on how many
 * the cache holds: the new rows are 0 ... T - 1, row n of the cache is position T + n. LANES lanes process a
 * position, each a piece of it; the groups of lanes of a block process adjacent ones. */
struct seat {
    int b, kv;
    int group, groups; /* of lanes */
    int d, left;       /* the first element of this lane's piece; elements from there on */
};

/* A piece as stored in memory, in words: separate elements would take twice the registers until they are
 * used. */
template <class T> struct piece {
    enum { WORDS = PIECE * sizeof(T) / 4 };
    vec<uint32_t, WORDS> in;
};
static __device__ __forceinline__ float element(const piece<float> &p, int i)
{
    return __uint_as_float(p.in.at[i]);
}
static __device__ __forceinline__ float element(const piece<bf16> &p, int i)
{
    return __uint_as_float(i % 2 ? p.in.at[i / 2] & 0xffff0000u : p.in.at[i / 2] << 16);
}
static __device__ __forceinline__ float element(const piece<f16> &p, int i)
{
    return to_float(f16{(uint16_t)(p.in.at[i / 2] >> i % 2 * 16)});
}

/* A lane's pieces of the positions that its group processes at a time: 64 bytes. */
template <class T> struct pieces {
    enum { COUNT = 64 / (PIECE * sizeof(T)) };
    piece<T> at[COUNT];
};

/* Word i of n elements, padded with zeros; and the inverse. */
static __device__ __forceinline__ uint32_t load_word(const float *from, int i, int n)
{
    return i < n ? __float_as_uint(from[i]) : 0;
}
template <class T> static __device__ __forceinline__ uint32_t load_word(const T *from, int i, int n)
{
    const uint32_t low = 2 * i < n ? from[2 * i].bits : 0, high = 2 * i + 1 < n ? from[2 * i + 1].bits : 0;
    return low | high << 16;
}
static __device__ __forceinline__ void store_word(float *to, int i, int n, uint32_t word)
{
    if (i < n)
        to[i] = __uint_as_float(word);
}
template <class T> static __device__ __forceinline__ void store_word(T *to, int i, int n, uint32_t word)
{
    if (2 * i < n)
        to[2 * i].bits = (uint16_t)word;
    if (2 * i + 1 < n)
        to[2 * i + 1].bits = (uint16_t)(word >> 16);
}

/* A piece of a row with n elements left, padded with zeros. */
template <class T> static __device__ __forceinline__ piece<T> load_piece(const T *from, int n, bool whole)
{
    piece<T> p = {};
    if (whole) {
        if (n > 0)
            p.in = *(const vec<uint32_t, piece<T>::WORDS> *)from;
        return p;
    }
    UNROLL
    for (int i = 0; i < piece<T>::WORDS; i++)
        p.in.at[i] = load_word(from, i, n);
    return p;
}
template <class T>
static __device__ __forceinline__ void store_piece(T *to, int n, bool whole, const piece<T> &p)
{
    if (whole && n > 0)
        *(vec<uint32_t, piece<T>::WORDS> *)to = p.in;
    UNROLL
    for (int i = 0; i < piece<T>::WORDS && !whole; i++)
        store_word(to, i, n, p.in.at[i]);
}

/* The addresses of a lane's pieces. Of the positions that a group processes, only its first can be a new one:
 * there are no more of those than groups. */
template <class T> struct lane_rows {
    const T *first, *at; /* the next position, and its address in the cache */
    int stride;          /* to the position after it */
};

/* From position `from` on, a multiple of the groups. */
template <class T>
static __device__ __forceinline__ lane_rows<T> rows_from(const attention &a, const head_rows &cache,
                                                         const head_rows &fresh, const seat &me, int from)
{
    const int n = from + me.group;
    lane_rows<T> rows;
    rows.at = head_at<T>(a, cache, me.b, me.kv) + (n - a.queries) * cache.row + me.d;
    rows.first = n < a.queries ? head_at<T>(a, fresh, me.b, me.kv) + n * fresh.row + me.d : rows.at;
    rows.stride = me.groups * (int)cache.row;
    return rows;
}

/* Loads the next pieces, of position n and those after it; zeros from position `end` on. */
template <bool WHOLE, class T>
static __device__ __forceinline__ void take(lane_rows<T> &rows, const seat &me, int n, int end, pieces<T> &x)
{
    UNROLL
    for (int i = 0; i < pieces<T>::COUNT; i++) {
        const T *from = i ? rows.at + i * rows.stride : rows.first;
        x.at[i] = load_piece(from, n + i * me.groups < end ? me.left : 0, WHOLE);
    }
    rows.at += pieces<T>::COUNT * rows.stride;
    rows.first = rows.at;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* The pages that batch rows have in a cache whose rows lie in several. */
struct cache_pages {
    const int32_t *at; /* (B, columns) */
    int columns, count;
    int shift; /* a page has 2^shift positions */
    cuda_fault *fault;
    int node;
};

/* Element 0 of key head kv of position s of batch row b. A page that cannot be is reported, and is page 0. */
template <class T>
static __device__ __forceinline__ T *paged_at(const attention &a, const head_rows &r, const cache_pages &p,
                                              int b, int kv, int s)
{
    int page = p.at[b * p.columns + (s >> p.shift)];
    if (page < 0 || page >= p.count) {
        report_fault(p.fault, p.node, GR_ATT_PAGES, page, b, p.count);
        page = 0;
    }
    return (T *)r.at + page * r.batch + (s & ((1 << p.shift) - 1)) * r.row + (int64_t)kv * a.dim;
}

/* As take(), for paged rows. */
template <bool WHOLE, class T>
static __device__ __forceinline__ void take_paged(const attention &a, const head_rows &cache,
                                                  const head_rows &fresh, const cache_pages &p,
                                                  const seat &me, int n, int end, pieces<T> &x)
{
    UNROLL
    for (int i = 0; i < pieces<T>::COUNT; i++) {
        const int s = n + i * me.groups;
        const T *from = head_at<T>(a, fresh, me.b, me.kv) + min(s, a.queries - 1) * fresh.row;
        if (s >= a.queries && s < end)
            from = paged_at<T>(a, cache, p, me.b, me.kv, s - a.queries);
        x.at[i] = load_piece(from + me.d, s < end ? me.left : 0, WHOLE);
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The state of a lane for ROWS queries; top is the same in the whole warp. */
template <int ROWS> struct running {
    float q[ROWS][PIECE], o[ROWS][PIECE], top[ROWS], sum[ROWS];
};

template <class T, int ROWS>
static __device__ __forceinline__ void start(running<ROWS> &w, const piece<T> (&q)[ROWS], float scale)
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        UNROLL
        for (int j = 0; j < PIECE; j++) {
            w.q[r][j] = element(q[r], j) * scale;
            w.o[r][j] = 0;
        }
        w.top[r] = -INFINITY;
        w.sum[r] = 0;
    }
}

/* The scores of a group's keys for each query, in every lane of it. Position s + i * stride is visible if it
 * is before `to`; of the new ones, those up to the query's own. */
template <class T, int LANES, int ROWS>
static __device__ __forceinline__ void score(const running<ROWS> &w, const pieces<T> &k, const attention &a,
                                             int r0, int s, int stride, int to,
                                             float (&p)[ROWS][pieces<T>::COUNT])
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        const int own = ROWS == 1 ? 0 : (r0 + r) % a.queries;
        UNROLL
        for (int i = 0; i < pieces<T>::COUNT; i++) {
            float x = 0;
            UNROLL
            for (int j = 0; j < PIECE; j++)
                x += w.q[r][j] * element(k.at[i], j);
            UNROLL
            for (int step = 1; step < LANES; step *= 2)
                x += __shfl_xor_sync(0xffffffffu, x, step);
            const int at = s + i * stride;
            p[r][i] = at < to && (ROWS == 1 || at <= own || at >= a.queries) ? x : HIDDEN;
        }
    }
}

/* Scores to weights; rescales the state to the new highest score of the warp. */
template <int LANES, int ROWS, int COUNT>
static __device__ __forceinline__ void weigh(running<ROWS> &w, float (&p)[ROWS][COUNT])
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        float now = p[r][0];
        UNROLL
        for (int i = 1; i < COUNT; i++)
            now = fmaxf(now, p[r][i]);
        UNROLL
        for (int step = LANES; step < 32; step *= 2)
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, step));
        now = fmaxf(now, w.top[r]);
        const float base = now == HIDDEN ? 0 : now, fix = power2(w.top[r] - base);
        w.top[r] = now;
        w.sum[r] *= fix;
        UNROLL
        for (int j = 0; j < PIECE; j++)
            w.o[r][j] *= fix;
        UNROLL
        for (int i = 0; i < COUNT; i++) {
            p[r][i] = power2(p[r][i] - base);
            w.sum[r] += p[r][i];
        }
    }
}

template <class T, int ROWS>
static __device__ __forceinline__ void add_values(running<ROWS> &w, const pieces<T> &v,
                                                  const float (&p)[ROWS][pieces<T>::COUNT])
{
    UNROLL
    for (int i = 0; i < pieces<T>::COUNT; i++)
        UNROLL
    for (int j = 0; j < PIECE; j++) {
        const float x = element(v.at[i], j);
        UNROLL
        for (int r = 0; r < ROWS; r++)
            w.o[r][j] += p[r][i] * x;
    }
}

/* Writes a warp's result for one query, {highest, sum, values}, to `to`. Each exchange adds two groups of
 * lanes; each keeps one half of the values. */
template <int LANES, int ROWS>
static __device__ __forceinline__ void leave(const running<ROWS> &w, int r, int d, float *to)
{
    enum { LEFT = PIECE * LANES / 32 }; /* values of a lane at the end */
    const int lane = threadIdx.x & 31;
    float o[PIECE], sum = w.sum[r];
    UNROLL
    for (int j = 0; j < PIECE; j++)
        o[j] = w.o[r][j];
    UNROLL
    for (int step = LANES, half = PIECE / 2; step < 32; step *= 2, half /= 2) {
        const bool upper = lane & step;
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        UNROLL
        for (int j = 0; j < PIECE / 2; j++)
            if (j < half) {
                const float given = upper ? o[j] : o[j + half], kept = upper ? o[j + half] : o[j];
                o[j] = kept + __shfl_xor_sync(0xffffffffu, given, step);
            }
        d += upper ? half : 0;
    }
    if (lane == 0) {
        to[0] = w.top[r];
        to[1] = sum;
    }
    UNROLL
    for (int j = 0; j < LEFT; j++)
        to[2 + d + j] = o[j];
}

/* Combined partial results, for one value. */
struct finding {
    float top, sum, o;
};

/* Combines `count` partial results {highest, sum, values}, `step` apart, in order; TOGETHER of them are in
 * flight at a time. FAR: written by other blocks; otherwise by warps, in whole rounds. */
template <bool FAR, class STEP>
static __device__ __forceinline__ finding combine(const float *first, STEP step, int count, int d)
{
    enum { TOGETHER = 8 };
    finding f = {HIDDEN, 0, 0};
    for (int p0 = 0; p0 < count; p0 += TOGETHER) {
        float tops[TOGETHER], sums[TOGETHER], values[TOGETHER], now = f.top;
        UNROLL
        for (int j = 0; j < TOGETHER; j++) {
            const float *at = first + (FAR ? min(p0 + j, count - 1) : p0 + j) * step;
            const bool real = !FAR || p0 + j < count;
            tops[j] = FAR ? __ldcg(at) : at[0];
            sums[j] = !real ? 0 : FAR ? __ldcg(at + 1) : at[1];
            values[j] = !real ? 0 : FAR ? __ldcg(at + 2 + d) : at[2 + d];
        }
        UNROLL
        for (int j = 0; j < TOGETHER; j++)
            now = fmaxf(now, tops[j]);
        const float fix = power2(f.top - now);
        f.sum *= fix;
        f.o *= fix;
        f.top = now;
        UNROLL
        for (int j = 0; j < TOGETHER; j++) {
            const float by = power2(tops[j] - now);
            f.sum += by * sums[j];
            f.o += by * values[j];
        }
    }
    return f;
}

/* ---- a block's share ------------------------------------------------------------------------- */

/* Few queries over many keys, in a cache or not. */
struct cache_call {
    attention a; /* k, v: the caches; a.keys: their capacity */
    head_rows new_k, new_v;
    cache_pages pages; /* at NULL: every row is in one */
    cuda_fault *fault;
    int node;
    bool whole;   /* rows can be read by pieces of 16 bytes */
    bool guess;   /* request the first keys before their number is known */
    int share;    /* positions per block */
    float *parts; /* (batch, kv_heads, shares, rows, dim + 2): {highest, sum, values}; NULL: one share */
    int *arrived; /* (batch, kv_heads), all 0 between calls; NULL: another kernel combines */
};

/* LANES lanes have a key: positions that a block of DECODERS threads processes at a time. */
template <class T, int LANES> struct step_of {
    enum { COUNT = DECODERS / LANES * pieces<T>::COUNT };
};

/* Query `row` of the rows of a key head: head row / T of the group, position row % T. */
template <class T>
static __device__ __forceinline__ T *row_at(const attention &a, const head_rows &r, int b, int kv, int row)
{
    return head_at<T>(a, r, b, kv * a.group + row / a.queries) + row % a.queries * r.row;
}

/* Rows beyond the last one repeat it. */
template <bool WHOLE, class T, int ROWS>
static __device__ __forceinline__ void load_queries(const attention &a, const seat &me, int r0,
                                                    piece<T> (&q)[ROWS])
{
    const int rows = a.group * a.queries;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        q[r] = load_piece(row_at<T>(a, a.q, me.b, me.kv, min(r0 + r, rows - 1)) + me.d, me.left, WHOLE);
}

/* The result of a query that attends to nothing: the mean of element d of the values of a key head, or 0. */
template <class T>
static __device__ __forceinline__ float mean_value(const attention &a, int b, int kv, int d)
{
    const int keys = sight_of<ANY>(a, b, -1).keys;
    const T *v = head_at<T>(a, a.v, b, kv) + d;
    float sum = 0;
    for (int s = 0; s < keys && !a.empty_zero; s++)
        sum += to_float(v[s * a.v.row]);
    return sum / (float)keys;
}

/* Element d of a row of the result. EASY: every query attends to something, and the log-sum-exp is not
 * wanted. */
template <class T, int LEVEL>
static __device__ __forceinline__ void store_result(const attention &a, int b, int kv, int row, int d,
                                                    const finding &f)
{
    T *y = row_at<T>(a, a.y, b, kv, row) + d;
    if (LEVEL == EASY || f.sum != 0)
        *y = from_float<T>(f.o / f.sum);
    else
        *y = from_float<T>(mean_value<T>(a, b, kv, d));
    if (LEVEL != EASY && a.lse && d == 0)
        a.lse[((int64_t)b * a.heads + kv * a.group) * a.queries + row] =
            f.sum == 0 ? -INFINITY : (f.top + log2f(f.sum)) * LN_2;
}

/* Combines the partial results of all shares for every row of a key head, by the threads of a block. */
template <class T, int LEVEL>
static __device__ __forceinline__ void combine_parts(const cache_call &c, int b, int kv, int shares, int most)
{
    const attention &a = c.a;
    const int rows = a.group * a.queries, places = a.dim + 2;
    const int64_t step = (int64_t)rows * places;
    const float *first = c.parts + ((int64_t)b * a.kv_heads + kv) * most * step;
    for (int i = threadIdx.x; i < rows * a.dim; i += blockDim.x) {
        const int row = i / a.dim, d = i % a.dim;
        const finding f = combine<true>(first + (int64_t)row * places, step, shares, d);
        store_result<T, LEVEL>(a, b, kv, row, d, f);
    }
}

/* Rows r0, ... of a key head, for which `space` (ROWS, warps, places) has the results of the warps: writes
 * the result, or the partial result of a share. */
template <class T, int ROWS, int LEVEL>
static __device__ __forceinline__ void finish(const cache_call &c, const attention &a, const seat &me, int r0,
                                              const float *space, int places)
{
    const int rows = a.group * a.queries, warps = (int)(blockDim.x / 32);
    for (int i = threadIdx.x; i < min(ROWS, rows - r0) * a.dim; i += blockDim.x) {
        const int r = ROWS == 1 ? 0 : i / a.dim, d = i - r * a.dim;
        const finding f = combine<false>(space + r * warps * places, places, warps, d);
        if (!c.parts) {
            store_result<T, LEVEL>(a, me.b, me.kv, r0 + r, d, f);
            continue;
        }
        const int64_t share = ((int64_t)me.b * a.kv_heads + me.kv) * gridDim.x + blockIdx.x;
        float *part = c.parts + (share * rows + r0 + r) * (a.dim + 2);
        if (d == 0) {
            part[0] = f.top;
            part[1] = f.sum;
        }
        part[2 + d] = f.o;
    }
}

/* Maximum threads per block. */
template <int ROWS> struct most_threads {
    enum { COUNT = ROWS == 1 ? 2 * DECODERS : DECODERS };
};

/* The same attention, with its small size made known to the compiler. */
template <int ROWS> static __device__ __forceinline__ attention of_rows(attention a)
{
    if (ROWS == 1)
        a.queries = a.group = 1;
    return a;
}

#endif
