/* attention_cached.cu - attention of new positions over a cache of keys and values. With few queries, reading
 * every key and value once is all that counts: the positions are shared out to blocks, which leave what they
 * found (the highest score, the sum, the weighted values) to be combined in order of position. How many there
 * are is fixed by the room in the cache; those beyond what it holds end at once. */
#include "cuda/kernels/attention.cuh"

enum { FEW_QUERIES = 8, FEW_ROWS = 32 }; /* up to here, tiles would be mostly padding */
enum { DECODERS = 128, PIECE = 8 };      /* threads of a block; elements of a head that one lane has */
enum { AT_ONCE = 4 };                    /* keys of which a lane loads its pieces together */

struct cache_call {
    attention a; /* k, v: the caches; a.keys: the room in them */
    head_rows new_k, new_v;
    by_cuda_fault *fault;
    int node;
    bool whole;   /* rows can be read by pieces of 16 bytes */
    int share;    /* positions of a block */
    float *parts; /* (batch, kv_heads, shares, rows, dim + 2): {highest, sum, values}; NULL: one share */
    int *arrived; /* (batch, kv_heads), all 0 between calls; NULL: another kernel combines */
};

/* Whether what the caches of batch row b hold is in order; what is not is reported. */
static __device__ __forceinline__ bool check_past(const cache_call &c, int b)
{
    const int limit = c.a.keys - c.a.queries + 1, past = c.a.past[b];
    if (past >= 0 && past < limit)
        return true;
    report_fault(c.fault, c.node, 5, past, b, limit);
    return false;
}

/* ---- few queries ----------------------------------------------------------------------------- */

/* LANES lanes have a key, each a piece of it; a block goes through its positions STEP at a time. */
template <int LANES> struct lanes_of {
    enum { PER_WARP = 32 / LANES, STEP = DECODERS / LANES * AT_ONCE };
};

template <class T>
static __device__ __forceinline__ vec<T, PIECE> load_piece(const T *row, int d, int dim, bool whole)
{
    vec<T, PIECE> v;
    if (whole && d < dim)
        return load<T, PIECE>(row + d);
    UNROLL
    for (int i = 0; i < PIECE; i++)
        v.at[i] = d + i < dim ? row[d + i] : from_float<T>(0);
    return v;
}
template <class T>
static __device__ __forceinline__ void store_piece(T *row, int d, int dim, bool whole, const vec<T, PIECE> &v)
{
    if (whole && d < dim)
        store(row + d, v);
    UNROLL
    for (int i = 0; i < PIECE && !whole; i++)
        if (d + i < dim)
            row[d + i] = v.at[i];
}

/* What a lane knows of ROWS queries so far. */
template <int ROWS> struct running {
    float q[ROWS][PIECE], o[ROWS][PIECE], top[ROWS], sum[ROWS];
};

/* The pieces of AT_ONCE keys from s, s + stride, ...: from the cache, or from the new rows, which then go
 * into the cache if `keep`. Zeros from position `end` on. */
template <class T>
static __device__ __forceinline__ void
load_keys(const cache_call &c, const head_rows &cache, const head_rows &fresh, int b, int kv, int past, int s,
          int stride, int end, int d, bool keep, vec<T, PIECE> (&x)[AT_ONCE])
{
    T *old = head_at<T>(c.a, cache, b, kv);
    const T *added = head_at<T>(c.a, fresh, b, kv);
    UNROLL
    for (int i = 0; i < AT_ONCE; i++) {
        const int at = s + i * stride;
        const bool is_new = at >= past;
        const T *row = is_new ? added + (int64_t)(at - past) * fresh.row : old + (int64_t)at * cache.row;
        x[i] = load_piece(row, at < end ? d : c.a.dim, c.a.dim, c.whole);
        if (is_new && keep && at < end)
            store_piece(old + (int64_t)at * cache.row, d, c.a.dim, c.whole, x[i]);
    }
}

/* The keys that the lanes have loaded: into the running softmax of each query, which sees those up to
 * last[r]. */
template <class T, int LANES, int ROWS>
static __device__ __forceinline__ void add_keys(running<ROWS> &w, const int (&last)[ROWS], int s, int stride,
                                                const vec<T, PIECE> (&k)[AT_ONCE],
                                                const vec<T, PIECE> (&v)[AT_ONCE])
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        float p[AT_ONCE], now = w.top[r];
        UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            p[i] = 0;
            UNROLL
            for (int j = 0; j < PIECE; j++)
                p[i] += w.q[r][j] * to_float(k[i].at[j]);
            UNROLL
            for (int step = 1; step < LANES; step *= 2)
                p[i] += __shfl_xor_sync(0xffffffffu, p[i], step);
            p[i] = s + i * stride <= last[r] ? p[i] : HIDDEN;
            now = fmaxf(now, p[i]);
        }
        const float base = now == HIDDEN ? 0 : now, fix = power2(w.top[r] - base);
        w.top[r] = now;
        w.sum[r] *= fix;
        UNROLL
        for (int j = 0; j < PIECE; j++)
            w.o[r][j] *= fix;
        UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            p[i] = power2(p[i] - base);
            w.sum[r] += p[i];
            UNROLL
            for (int j = 0; j < PIECE; j++)
                w.o[r][j] += p[i] * to_float(v[i].at[j]);
        }
    }
}

/* Put two findings together: top, sum and the PIECE values at o. */
static __device__ __forceinline__ void merge(float &top, float &sum, float (&o)[PIECE], float other_top,
                                             float other_sum, const float (&other)[PIECE])
{
    const float now = fmaxf(top, other_top), base = now == HIDDEN ? 0 : now;
    const float mine = power2(top - base), theirs = power2(other_top - base);
    sum = sum * mine + other_sum * theirs;
    UNROLL
    for (int j = 0; j < PIECE; j++)
        o[j] = o[j] * mine + other[j] * theirs;
    top = now;
}

/* Query `row` of a key head's rows: head row / T of the group, position row % T. */
template <class T>
static __device__ __forceinline__ T *row_at(const attention &a, const head_rows &r, int b, int kv, int row)
{
    return head_at<T>(a, r, b, kv * a.group + row / a.queries) + row % a.queries * r.row;
}

/* All lanes' findings of one query into the first lanes of the first warp, by way of `space` (DECODERS / 32,
 * LANES * PIECE + 2). */
template <int LANES, int ROWS>
static __device__ __forceinline__ void gather_lanes(running<ROWS> &w, int r, float *space)
{
    enum { PLACES = LANES * PIECE + 2 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    float other[PIECE];
    UNROLL
    for (int step = LANES; step < 32; step *= 2) {
        const float top = __shfl_xor_sync(0xffffffffu, w.top[r], step);
        const float sum = __shfl_xor_sync(0xffffffffu, w.sum[r], step);
        UNROLL
        for (int j = 0; j < PIECE; j++)
            other[j] = __shfl_xor_sync(0xffffffffu, w.o[r][j], step);
        merge(w.top[r], w.sum[r], w.o[r], top, sum, other);
    }
    __syncthreads();
    if (lane < LANES) {
        float *to = space + warp * PLACES;
        to[0] = w.top[r]; /* the same in all lanes */
        to[1] = w.sum[r];
        UNROLL
        for (int j = 0; j < PIECE; j++)
            to[2 + lane * PIECE + j] = w.o[r][j];
    }
    __syncthreads();
    if (warp > 0 || lane >= LANES)
        return;
    for (int i = 1; i < DECODERS / 32; i++) {
        const float *from = space + i * PLACES;
        UNROLL
        for (int j = 0; j < PIECE; j++)
            other[j] = from[2 + lane * PIECE + j];
        merge(w.top[r], w.sum[r], w.o[r], from[0], from[1], other);
    }
}

/* The findings of all shares for every row of a key head, in order of position, by the threads of a block;
 * TOGETHER of them are under way at a time. */
template <class T>
static __device__ __forceinline__ void combine(const cache_call &c, int b, int kv, int shares, int most)
{
    enum { TOGETHER = 8 };
    const attention &a = c.a;
    const int rows = a.group * a.queries, places = a.dim + 2;
    const int64_t step = (int64_t)rows * places;
    const float *first = c.parts + ((int64_t)b * a.kv_heads + kv) * most * step;
    for (int i = threadIdx.x; i < rows * a.dim; i += blockDim.x) {
        const int row = i / a.dim, d = i % a.dim;
        float top = HIDDEN, sum = 0, o = 0;
        for (int p0 = 0; p0 < shares; p0 += TOGETHER) {
            float tops[TOGETHER], sums[TOGETHER], values[TOGETHER], now = top;
            UNROLL
            for (int j = 0; j < TOGETHER; j++) {
                const float *at = first + min(p0 + j, shares - 1) * step + (int64_t)row * places;
                tops[j] = __ldcg(at);
                sums[j] = p0 + j < shares ? __ldcg(at + 1) : 0;
                values[j] = p0 + j < shares ? __ldcg(at + 2 + d) : 0;
            }
            UNROLL
            for (int j = 0; j < TOGETHER; j++)
                now = fmaxf(now, tops[j]);
            const float fix = power2(top - now);
            sum *= fix;
            o *= fix;
            top = now;
            UNROLL
            for (int j = 0; j < TOGETHER; j++) {
                const float by = power2(tops[j] - now);
                sum += by * sums[j];
                o += by * values[j];
            }
        }
        row_at<T>(a, a.y, b, kv, row)[d] = from_float<T>(o / sum);
    }
}

/* Whether this block is the last of `shares` to come here. The last one sees what the others wrote. */
static __device__ __forceinline__ bool is_last(int *arrived, int shares)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == shares - 1;
        if (last)
            *arrived = 0; /* for the next call */
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* One share of the positions of one key head, for all queries that look there, ROWS at a time. */
template <class T, int LANES, int ROWS>
static __global__ void __launch_bounds__(DECODERS, ROWS == 1 ? 3 : 2) decode(const cache_call c)
{
    enum { STEP = lanes_of<LANES>::STEP, GROUPS = DECODERS / LANES };
    __shared__ float space[DECODERS / 32 * (LANES * PIECE + 2)];
    const attention &a = c.a;
    const int share = blockIdx.x, kv = blockIdx.y, b = blockIdx.z, most = gridDim.x;
    let_next_start();
    wait_for_previous();
    const bool right = check_past(c, b);
    const int past = past_of(a, b), keys = past + a.queries, rows = a.group * a.queries;
    const int from = share * c.share, to = min(from + c.share, keys), shares = (keys + c.share - 1) / c.share;
    const int d = (int)threadIdx.x % LANES * PIECE, mine = (int)threadIdx.x / LANES;
    if (from >= keys)
        return;
    for (int r0 = 0; r0 < rows; r0 += ROWS) {
        running<ROWS> w;
        int last[ROWS];
        vec<T, PIECE> k[AT_ONCE], v[AT_ONCE];
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const int row = min(r0 + r, rows - 1);
            const vec<T, PIECE> x = load_piece(row_at<T>(a, a.q, b, kv, row), d, a.dim, c.whole);
            UNROLL
            for (int j = 0; j < PIECE; j++) {
                w.q[r][j] = to_float(x.at[j]) * a.scale * LOG2_E;
                w.o[r][j] = 0;
            }
            w.top[r] = -INFINITY;
            w.sum[r] = 0;
            last[r] = min(past + row % a.queries, to - 1);
        }
        for (int s = from; s < to; s += STEP) {
            load_keys(c, a.k, c.new_k, b, kv, past, s + mine, GROUPS, to, d, right && r0 == 0, k);
            load_keys(c, a.v, c.new_v, b, kv, past, s + mine, GROUPS, to, d, right && r0 == 0, v);
            add_keys<T, LANES>(w, last, s + mine, GROUPS, k, v);
        }
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const int row = r0 + r;
            gather_lanes<LANES>(w, r, space);
            if (row >= rows || threadIdx.x >= LANES)
                continue;
            if (!c.parts) {
                vec<T, PIECE> y;
                UNROLL
                for (int j = 0; j < PIECE; j++)
                    y.at[j] = from_float<T>(w.o[r][j] / w.sum[r]);
                store_piece(row_at<T>(a, a.y, b, kv, row), d, a.dim, c.whole, y);
                continue;
            }
            float *part =
                c.parts + ((((int64_t)b * a.kv_heads + kv) * most + share) * rows + row) * (a.dim + 2);
            part[0] = w.top[r]; /* the same in all lanes */
            part[1] = w.sum[r];
            UNROLL
            for (int j = 0; j < PIECE; j++)
                if (d + j < a.dim)
                    part[2 + d + j] = w.o[r][j];
        }
    }
    if (c.parts && c.arrived && is_last(c.arrived + b * a.kv_heads + kv, shares))
        combine<T>(c, b, kv, shares, most);
}

template <class T>
static __global__ void __launch_bounds__(DECODERS) combine_shares(const cache_call c, int most)
{
    const int kv = blockIdx.x, b = blockIdx.y, keys = past_of(c.a, b) + c.a.queries;
    combine<T>(c, b, kv, (keys + c.share - 1) / c.share, most);
}

template <class T, int LANES, int ROWS> static by_status launch_decode(by_cuda_exec *x, cache_call &c)
{
    enum { STEP = lanes_of<LANES>::STEP };
    const attention &a = c.a;
    const int heads = a.batch * a.kv_heads, steps = (a.keys + STEP - 1) / STEP;
    const int wanted = (4 * x->cuda->sms + heads - 1) / heads; /* enough blocks to keep the memory busy */
    const int each = (steps + wanted - 1) / wanted, most = (steps + each - 1) / each;
    c.share = each * STEP;
    if (most > 1)
        c.parts = (float *)by_cuda_scratch(x, sizeof(float) * (size_t)heads * (size_t)most *
                                                  (size_t)(a.group * a.queries * (a.dim + 2)));
    const dim3 grid((unsigned)most, (unsigned)a.kv_heads, (unsigned)a.batch);
    by_status status = by_launch_early(x, decode<T, LANES, ROWS>, grid, dim3(DECODERS), 0, c);
    BY_TRY(status);
    if (most == 1 || c.arrived)
        return BY_OK;
    return by_launch(x, combine_shares<T>, dim3((unsigned)a.kv_heads, (unsigned)a.batch), dim3(DECODERS), 0,
                     c, most);
}

template <class T, int ROWS> static by_status few_queries(by_cuda_exec *x, cache_call &c)
{
    return c.a.dim <= 32    ? launch_decode<T, 4, ROWS>(x, c)
           : c.a.dim <= 64  ? launch_decode<T, 8, ROWS>(x, c)
           : c.a.dim <= 128 ? launch_decode<T, 16, ROWS>(x, c)
                            : launch_decode<T, 32, ROWS>(x, c);
}

template <class T> static by_status one_row(by_cuda_exec *x, cache_call &c)
{
    return few_queries<T, 1>(x, c);
}
template <class T> static by_status some_rows(by_cuda_exec *x, cache_call &c)
{
    return few_queries<T, 4>(x, c);
}

/* ---- many queries ---------------------------------------------------------------------------- */

/* The new rows into the caches; a block for one of them. */
template <class T> static __global__ void __launch_bounds__(DECODERS) append(const cache_call c)
{
    const attention &a = c.a;
    const int t = blockIdx.x, b = blockIdx.y, width = a.kv_heads * a.dim;
    if (!check_past(c, b))
        return;
    const int64_t at = (int64_t)(a.past[b] + t) * a.k.row;
    T *k = head_at<T>(a, a.k, b, 0) + at, *v = head_at<T>(a, a.v, b, 0) + at;
    const T *new_k = head_at<T>(a, c.new_k, b, 0) + t * c.new_k.row;
    const T *new_v = head_at<T>(a, c.new_v, b, 0) + t * c.new_v.row;
    for (int i = threadIdx.x * PIECE; i < width; i += DECODERS * PIECE) {
        store_piece(k, i, width, c.whole, load_piece(new_k, i, width, c.whole));
        store_piece(v, i, width, c.whole, load_piece(new_v, i, width, c.whole));
    }
}

template <class T> static by_status append_rows(by_cuda_exec *x, const cache_call &c)
{
    return by_launch(x, append<T>, dim3((unsigned)c.a.queries, (unsigned)c.a.batch), dim3(DECODERS), 0, c);
}

/* ---- host ------------------------------------------------------------------------------------ */

static by_status decode_one(by_cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, one_row, x, c);
}

static by_status decode_some(by_cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, some_rows, x, c);
}

static by_status append_all(by_cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, append_rows, x, c);
}

extern "C" by_status by_cuda_attention_cached(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    const by_dtype type = n->in[0]->type;
    cache_call c = {};
    c.a = attention_of(x, n);
    c.new_k = c.a.k;
    c.new_v = c.a.v;
    c.a.k = rows_of(n->in[3], 0);
    c.a.v = rows_of(n->in[4], 0);
    c.a.y = rows_of(n->out[0], 0);
    c.a.keys = (int)n->in[3]->dim[1];
    c.a.past = (const int32_t *)n->in[5]->data;
    c.a.mask = BY_MASK_CAUSAL;
    c.a.dropout = false;
    c.whole = c.a.dim % PIECE == 0;
    c.fault = x->cuda->device_fault;
    c.node = n->index;
    const int rows = c.a.group * c.a.queries;
    if (c.a.queries > FEW_QUERIES || rows > FEW_ROWS || c.a.dim > 256) {
        BY_BRANCH("cache, many queries");
        BY_TRY(append_all(x, c, type));
        return by_cuda_attend(x, c.a, type);
    }
    if (c.a.batch * c.a.kv_heads <= BY_CUDA_COUNTERS)
        c.arrived = x->cuda->counters;
    if (rows == 1) {
        BY_BRANCH("cache, one query");
        return decode_one(x, c, type);
    }
    BY_BRANCH("cache, few queries");
    return decode_some(x, c, type);
}
