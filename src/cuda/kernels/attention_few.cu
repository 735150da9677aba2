/* attention_few.cu - attention of few queries, as in decoding, with all masks, patterns and biases: over the
 * keys of an encoder, or over a cache to which the new rows have been appended. The visible keys are split
 * over blocks as in attention_cached.cu. */
#include "cuda/kernels/attention_decode.cuh"

enum { FEW_QUERIES = 4 }; /* up to here, tiles would be mostly padding */

/* The scores of the keys of a group, n and those `stride` apart, for each query, in every lane of it. */
template <class T, int LANES, int ROWS>
static __device__ __forceinline__ void score_seen(const running<ROWS> &w, const pieces<T> &k,
                                                  const attention &a, const sight<ANY> &see, const seat &me,
                                                  int r0, int n, int to, float (&p)[ROWS][pieces<T>::COUNT])
{
    const int rows = a.group * a.queries;
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        const int row = min(r0 + r, rows - 1), t = row % a.queries;
        const int h = me.kv * a.group + row / a.queries;
        const bias_heads<T> bias = bias_at<T>(a, me.b, h);
        const sight<ANY> mine = as_head(see, a, me.b, h);
        UNROLL
        for (int i = 0; i < pieces<T>::COUNT; i++) {
            float x = 0;
            UNROLL
            for (int j = 0; j < PIECE; j++)
                x += w.q[r][j] * element(k.at[i], j);
            UNROLL
            for (int step = 1; step < LANES; step *= 2)
                x += __shfl_xor_sync(0xffffffffu, x, step);
            const int s = n + i * me.groups;
            const bool seen = s < to && sees(mine, t, s);
            p[r][i] = !seen ? HIDDEN : has_bias(a) ? x + bias_for(a, see, bias, t, s) : x;
        }
    }
}

/* The pieces of positions n, n + groups, ... of keys or values; zeros from `to` on. */
template <bool WHOLE, class T>
static __device__ __forceinline__ void take_rows(const attention &a, const head_rows &r, const seat &me,
                                                 int n, int to, pieces<T> &x)
{
    const T *at = head_at<T>(a, r, me.b, me.kv) + me.d;
    UNROLL
    for (int i = 0; i < pieces<T>::COUNT; i++) {
        const int s = n + i * me.groups;
        x.at[i] = load_piece(at + (s < to ? s : 0) * r.row, s < to ? me.left : 0, WHOLE);
    }
}

/* Returns the number of shares for batch row b; at least one, which writes the results of queries that attend
 * to nothing. */
static __device__ __forceinline__ int shares_of(const cache_call &c, const span &all)
{
    return max((all.to - all.from + c.share - 1) / c.share, 1);
}

/* One share of the visible keys of one key head, for all its queries, ROWS at a time. */
template <class T, int LANES, int ROWS, bool WHOLE>
static __global__ void __launch_bounds__(DECODERS) few(const cache_call c)
{
    enum { WARPS = DECODERS / 32, PLACES = LANES * PIECE + 2, GROUPS = DECODERS / LANES };
    __shared__ float space[ROWS * WARPS * PLACES];
    const attention a = of_rows<ROWS>(c.a);
    const int d = (int)(threadIdx.x % LANES * PIECE), rows = a.group * a.queries;
    const seat me = {(int)blockIdx.z, (int)blockIdx.y, (int)(threadIdx.x / LANES), GROUPS, d, a.dim - d};
    let_next_start();
    wait_for_previous();
    const sight<ANY> see = sight_of<ANY>(a, me.b, -1);
    const span all = keys_seen(see, 0, a.queries);
    const int shares = shares_of(c, all), step = GROUPS * pieces<T>::COUNT;
    const int from = all.from + (int)blockIdx.x * c.share, to = min(from + c.share, all.to);
    if ((int)blockIdx.x >= shares)
        return;
    for (int r0 = 0; r0 < rows; r0 += ROWS) {
        running<ROWS> w;
        piece<T> q[ROWS];
        load_queries<WHOLE>(a, me, r0, q);
        start(w, q, a.scale * LOG2_E);
        for (int s = from; s < to; s += step) {
            const int n = s + me.group;
            float p[ROWS][pieces<T>::COUNT];
            pieces<T> k, v;
            if (!sees_any(see, 0, a.queries, s, step))
                continue;
            take_rows<WHOLE>(a, a.k, me, n, to, k);
            take_rows<WHOLE>(a, a.v, me, n, to, v);
            score_seen<T, LANES>(w, k, a, see, me, r0, n, to, p);
            weigh<LANES>(w, p);
            add_values(w, v, p);
        }
        if (r0 > 0)
            __syncthreads(); /* space is still being read */
        UNROLL
        for (int r = 0; r < ROWS; r++)
            leave<LANES>(w, r, d, space + (r * WARPS + (int)(threadIdx.x / 32)) * PLACES);
        __syncthreads();
        finish<T, ROWS, ANY>(c, a, me, r0, space, PLACES);
    }
    if (c.parts && c.arrived && is_last(c.arrived + me.b * a.kv_heads + me.kv, shares))
        combine_parts<T, ANY>(c, me.b, me.kv, shares, (int)gridDim.x);
}

template <class T>
static __global__ void __launch_bounds__(DECODERS) combine_few(const cache_call c, int most)
{
    const int kv = blockIdx.x, b = blockIdx.y;
    const span all = keys_seen(sight_of<ANY>(c.a, b, -1), 0, c.a.queries);
    combine_parts<T, ANY>(c, b, kv, shares_of(c, all), most);
}

/* ---- host ------------------------------------------------------------------------------------ */

/* Upper bound of the keys that all queries of a batch row together attend to. */
static int most_seen(const attention &a)
{
    const gr_reach &r = a.reach;
    if (!r.on || r.cycle || r.sinks)
        return a.keys;
    const int64_t after = a.mask == BY_MASK_CAUSAL && !a.prefix ? BY_MIN(r.after, 0) : r.after;
    const int64_t units = r.before + after + 2 + (a.queries - 1) / r.unit;
    return (int)BY_MAX(BY_MIN(units * r.unit + r.shift, (int64_t)a.keys), 1);
}

template <class T, int LANES, int ROWS, bool WHOLE> static by_status launch_few(cuda_exec *x, cache_call &c)
{
    const attention &a = c.a;
    const int step = DECODERS / LANES * pieces<T>::COUNT, seen = most_seen(a),
              steps = (seen + step - 1) / step;
    const int wanted = BY_MAX(1, RESIDENT * x->cuda->sms / (a.batch * a.kv_heads));
    c.share = steps * step;
    if (steps > FEW_STEPS && wanted > 1)
        c.share = (steps + wanted - 1) / wanted * step;
    const int most = (seen + c.share - 1) / c.share;
    if (most > 1) {
        BY_BRANCH("few queries, shared out");
        c.parts = (float *)cuda_scratch(x, sizeof(float) * (size_t)a.batch * (size_t)a.kv_heads *
                                               (size_t)most * (size_t)(a.group * a.queries * (a.dim + 2)));
    }
    const dim3 grid((unsigned)most, (unsigned)a.kv_heads, (unsigned)a.batch);
    BY_TRY(cuda_launch_early(x, few<T, LANES, ROWS, WHOLE>, grid, dim3(DECODERS), 0, c));
    if (most == 1 || c.arrived)
        return BY_OK;
    return cuda_launch(x, combine_few<T>, dim3((unsigned)a.kv_heads, (unsigned)a.batch), dim3(DECODERS), 0, c,
                       most);
}

template <class T, int ROWS, bool WHOLE> static by_status few_by_size(cuda_exec *x, cache_call &c)
{
    return c.a.dim <= 64    ? launch_few<T, 8, ROWS, WHOLE>(x, c)
           : c.a.dim <= 128 ? launch_few<T, 16, ROWS, WHOLE>(x, c)
                            : launch_few<T, 32, ROWS, WHOLE>(x, c);
}

template <class T> static by_status few_rows(cuda_exec *x, cache_call &c)
{
    if (c.a.dim % PIECE) {
        BY_BRANCH("few queries, ragged rows");
        return few_by_size<T, 4, false>(x, c);
    }
    if (c.a.group * c.a.queries == 1) {
        BY_BRANCH("few queries, one");
        return few_by_size<T, 1, true>(x, c);
    }
    BY_BRANCH("few queries, some");
    return few_by_size<T, 4, true>(x, c);
}

static by_status few_of_type(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, few_rows, x, c);
}

bool cuda_takes_few(const attention &a)
{
    return a.queries <= FEW_QUERIES && a.group * a.queries <= FEW_ROWS && a.dim <= 256 && !a.dropout &&
           !a.weights && a.y.at;
}

by_status cuda_attend_few(cuda_exec *x, const attention &a, by_dtype type)
{
    cache_call c = {};
    c.a = a;
    if (a.batch * a.kv_heads <= BY_CUDA_COUNTERS)
        c.arrived = x->cuda->counters;
    return few_of_type(x, c, type);
}
