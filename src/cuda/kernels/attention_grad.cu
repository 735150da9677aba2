/* attention_grad.cu - the gradient of attention by the same tiles: the weights are computed again from the
 * scores and the log-sum-exp that the forward pass kept. With P the weights, P' = dropout(P) and delta =
 * rowsum(dy * y):
 *   dv = P'^T dy     dP = dropout(dy v^T)     dS = P * (dP - delta)     dq = scale dS k     dk = scale dS^T q
 * and the gradient of an entry of the bias is the sum of dS over all that it was added to. A query that sees
 * no key has equal weights on every key, and its scores have their gradients like any other: its masks were
 * added to them and made them equal by rounding.
 *
 * dk and dv are made by blocks that have a tile of keys and go through the queries, dq by blocks that have a
 * tile of queries and go through the keys: every sum has its order, and nothing but the sums is stored. */
#include "cuda/kernels/attention_bias.cuh"
#include "cuda/kernels/attention_mma.cuh"
#include "cuda/kernels/attention_views.cuh"

/* delta: eight lanes for a row. */
template <class T> static __global__ void __launch_bounds__(256) row_deltas(const attention_back g)
{
    const attention &a = g.a;
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x / 8, at = i / a.heads;
    const int lane = threadIdx.x % 8, h = (int)(i % a.heads), b = (int)(at / a.queries),
              t = (int)(at % a.queries);
    float sum = 0;
    if (b < a.batch) {
        const T *y = head_at<T>(a, a.y, b, h) + t * a.y.row, *dy = head_at<T>(a, g.dy, b, h) + t * g.dy.row;
        if (a.dim % 8 == 0) {
            for (int d = 8 * lane; d < a.dim; d += 64) {
                const vec<T, 8> p = load<T, 8>(y + d), q = load<T, 8>(dy + d);
                UNROLL
                for (int j = 0; j < 8; j++)
                    sum += to_float(p.at[j]) * to_float(q.at[j]);
            }
        } else {
            for (int d = lane; d < a.dim; d += 8)
                sum += to_float(y[d]) * to_float(dy[d]);
        }
    }
    for (int step = 1; step < 8; step *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (b < a.batch && lane == 0)
        g.delta[((int64_t)b * a.heads + h) * a.queries + t] = sum;
}

/* ---- by matrix instructions ------------------------------------------------------------------ */

enum { MAKE_DK = 1, MAKE_DV = 2 };

/* The keys of one warp against BM queries, scores transposed: (keys, queries), so that they are the left
 * operand for dk and dv. */
template <class T, int D, int MT, int BM, int MAKE, int LEVEL> struct key_side {
    enum { ROWS = 16 * MT, LD = D + 8, NT = BM / 8 };
    left_rows<T, D, MT, false> k, v;
    float dk[MAKE & MAKE_DK ? MT : 1][MAKE & MAKE_DK ? D / 8 : 1][4];
    float dv[MAKE & MAKE_DV ? MT : 1][MAKE & MAKE_DV ? D / 8 : 1][4];

    /* queries: q, then dy (BM, LD); numbers: exponents (BM), deltas (BM) */
    __device__ __forceinline__ void add(const attention &a, const sight<LEVEL> &see, int b, int h, int t0,
                                        int s0, const T *queries, const float *numbers)
    {
        const int c = threadIdx.x & 3;
        const int64_t head = (int64_t)b * a.heads + h;
        const float factor = exponent_factor<LEVEL>(a),
                    even = may_see_nothing<LEVEL>(a) ? 1 / (float)see.keys : 0;
        float p[MT][NT][4], dp[MT][NT][4];
        uint32_t packed[MT][NT][2], keep[MT][2];
        clear(p);
        times_rows(p, k, queries);
        if constexpr (LEVEL == ANY)
            if (has_bias(a))
                add_bias<true>(a, see, bias_at<T>(a, b, h), s0, t0, p);
        if (!head_sees_all(see, a, b, h, t0, BM, s0, ROWS))
            hide<true>(as_head(see, a, b, h), s0, t0, p);
        UNROLL
        for (int n = 0; n < NT; n++) {
            const vec<float, 2> x = load<float, 2>(numbers + 8 * n + 2 * c);
            UNROLL
            for (int m = 0; m < MT; m++)
                UNROLL
            for (int i = 0; i < 4; i++) {
                const bool gives = even > 0 && x.at[i % 2] == INFINITY;
                p[m][n][i] = gives ? even : power2(p[m][n][i] * factor - x.at[i % 2]);
            }
        }
        UNROLL
        for (int m = 0; m < MT && a.dropout; m++)
            kept_by_key<NT>(a, head, t0, s0 + 16 * m, keep[m]);
        if constexpr ((MAKE & MAKE_DV) != 0) {
            UNROLL
            for (int m = 0; m < MT; m++)
                UNROLL
            for (int n = 0; n < NT; n++)
                UNROLL
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = a.dropout && !(keep[m][i / 2] >> (4 * n + i % 2) & 1) ? 0 : p[m][n][i];
            pack_product<T>(packed, dp);
            times_columns<T, D>(dv, packed, queries + BM * LD);
        }
        if constexpr ((MAKE & MAKE_DK) != 0) {
            clear(dp);
            times_rows(dp, v, queries + BM * LD);
            UNROLL
            for (int n = 0; n < NT; n++) {
                const vec<float, 2> x = load<float, 2>(numbers + BM + 8 * n + 2 * c);
                UNROLL
                for (int m = 0; m < MT; m++)
                    UNROLL
                for (int i = 0; i < 4; i++) {
                    float d = dp[m][n][i];
                    if (a.dropout)
                        d = keep[m][i / 2] >> (4 * n + i % 2) & 1 ? d * a.dropping.factor : 0;
                    p[m][n][i] *= d - x.at[i % 2];
                }
            }
            pack_product<T>(packed, p);
            times_columns<T, D>(dk, packed, queries);
        }
    }
};

/* Starts loading q and dy of a tile. */
template <class T, int D, int BM>
static __device__ __forceinline__ void fetch_queries(const attention_back &g, int b, query_tile x, T *to)
{
    const attention &a = g.a;
    fetch<T, D, BM>(to, head_at<T>(a, a.q, b, x.h), a.q.row, x.t0, a.queries, a.dim);
    fetch<T, D, BM>(to + BM * (D + 8), head_at<T>(a, g.dy, b, x.h), g.dy.row, x.t0, a.queries, a.dim);
    copy_commit();
}

/* The thread's share of the BM exponents and BM deltas of a tile. */
template <int BM>
static __device__ __forceinline__ float number_of(const attention_back &g, int b, query_tile x)
{
    const int i = threadIdx.x, t = x.t0 + i % BM;
    const int64_t head = (int64_t)b * g.a.heads + x.h;
    return i >= 2 * BM ? 0 : i < BM ? exponent_of(g.a, head, t) : delta_of(g, head, t);
}

/* One key head, a tile of keys. STAGES: 2 to load one tile of queries while computing with another. */
template <class T, int D, int MT, int BM, int STAGES, int MAKE, int GIVEN>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1) keys_mma(const attention_back g)
{
    enum { ROWS = 16 * MT, BN = WARPS * ROWS, LD = D + 8, NUMBERS = 2 * BM };
    constexpr int LEVEL = code_of<GIVEN>::LEVEL_OF;
    const attention a = known<GIVEN>(g.a);
    BY_SHARED(T, keys); /* k, v (BN, LD), then the stages of q, dy (BM, LD), then those of the numbers */
    T *stage = keys + 2 * BN * LD;
    float *numbers = (float *)(stage + STAGES * 2 * BM * LD);
    const int b = blockIdx.z, kv = blockIdx.y, s0 = (int)blockIdx.x * BN, end = (kv + 1) * a.group;
    const int warp = threadIdx.x / 32, mine = s0 + warp * ROWS;
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, -1);
    const span seeing = queries_seeing(see, s0, BN), own = queries_seeing(see, mine, ROWS);
    query_tile now = next_tile<LEVEL>(a, see, seeing, b, end, BM, s0, BN, query_tile{kv * a.group, -1});
    key_side<T, D, MT, BM, MAKE, LEVEL> side;
    side.k.take(keys + warp * ROWS * LD);
    side.v.take(keys + (BN + warp * ROWS) * LD);
    clear(side.dk);
    clear(side.dv);

    fetch<T, D, BN>(keys, head_at<T>(a, a.k, b, kv), a.k.row, s0, a.keys, a.dim);
    fetch<T, D, BN>(keys + BN * LD, head_at<T>(a, a.v, b, kv), a.v.row, s0, a.keys, a.dim);
    if (now.h < end) {
        fetch_queries<T, D, BM>(g, b, now, stage);
        if (threadIdx.x < NUMBERS)
            numbers[threadIdx.x] = number_of<BM>(g, b, now);
    }
    copy_commit();
    for (int turn = 0; now.h < end;) {
        const query_tile next = next_tile<LEVEL>(a, see, seeing, b, end, BM, s0, BN, now);
        const int after = (turn + 1) % STAGES;
        float number = 0;
        copy_wait<0>();
        __syncthreads();
        if (next.h < end) {
            if (STAGES > 1)
                fetch_queries<T, D, BM>(g, b, next, stage + after * 2 * BM * LD);
            number = number_of<BM>(g, b, next);
        }
        if ((now.t0 + BM > own.from && now.t0 < own.to &&
             head_meets(see, a, b, now.h, now.t0, BM, mine, ROWS)) ||
            may_see_nothing<LEVEL>(a))
            side.add(a, see, b, now.h, now.t0, mine, stage + turn * 2 * BM * LD, numbers + turn * NUMBERS);
        if (STAGES == 1)
            __syncthreads();
        if (next.h < end) {
            if (STAGES == 1)
                fetch_queries<T, D, BM>(g, b, next, stage);
            if (threadIdx.x < NUMBERS)
                numbers[after * NUMBERS + threadIdx.x] = number;
        }
        now = next;
        turn = after;
    }
    copy_wait<0>();
    __syncthreads();
    float by[MT][2];
    T *space = keys + warp * ROWS * LD;
    for (int i = 0; i < 2 * MT; i++)
        by[i / 2][i % 2] = a.dropout ? a.dropping.factor : 1;
    if constexpr ((MAKE & MAKE_DV) != 0)
        if (g.dv.at)
            store_rows<T, D>(head_at<T>(a, g.dv, b, kv), g.dv.row, mine, a.keys, a.dim, side.dv, by, space);
    for (int i = 0; i < 2 * MT; i++)
        by[i / 2][i % 2] = a.scale;
    if constexpr ((MAKE & MAKE_DK) != 0)
        if (g.dk.at)
            store_rows<T, D>(head_at<T>(a, g.dk, b, kv), g.dk.row, mine, a.keys, a.dim, side.dk, by, space);
}

/* Shared memory for one warp's score gradients on their way to a bias, in floats. */
template <int MT, int NT> struct slope_room {
    enum { PITCH = 8 * NT + 1, COUNT = 16 * MT * PITCH + 16 * MT + 8 * NT };
};

/* Adds the score gradients of one warp's queries from t0 and keys from s0 to the sums of a bias; space: of
 * all warps. */
template <class T, int MT, int NT>
static __device__ __forceinline__ void give_to_bias(const attention_back &g, const sight<ANY> &see, int b,
                                                    int h, int t0, int s0, const float (&p)[MT][NT][4],
                                                    float *space)
{
    enum { ROWS = 16 * MT, PITCH = slope_room<MT, NT>::PITCH };
    const int lane = threadIdx.x & 31, row = lane / 4, column = lane % 4 * 2;
    float *slopes = space + threadIdx.x / 32 * slope_room<MT, NT>::COUNT;
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int i = 0; i < NT * 4; i++)
        slopes[(16 * m + row + i / 2 % 2 * 8) * PITCH + i / 4 * 8 + column + i % 2] = p[m][i / 4][i % 4];
    add_to_biases<T, ROWS, 8 * NT, PITCH, 32>(g, see, b, h, t0, s0, slopes, slopes + ROWS * PITCH);
}

/* One head, a tile of queries. */
template <class T, int D, int MT, int BN, int GIVEN>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1) queries_mma(const attention_back g)
{
    enum { ROWS = 16 * MT, BM = WARPS * ROWS, LD = D + 8, NT = BN / 8 };
    constexpr int LEVEL = code_of<GIVEN>::LEVEL_OF;
    const attention a = known<GIVEN>(g.a);
    BY_SHARED(T, queries); /* q, dy (BM, LD), then two stages of k, v (BN, LD), then room for slopes */
    T *stage = queries + 2 * BM * LD;
    /* Long ones first. */
    const int b = blockIdx.z, h = blockIdx.y, t0 = (int)(gridDim.x - 1 - blockIdx.x) * BM;
    const int warp = threadIdx.x / 32, row = (threadIdx.x & 31) / 4, mine = t0 + warp * ROWS;
    const int64_t head = (int64_t)b * a.heads + h;
    const T *k = head_at<T>(a, a.k, b, h / a.group), *v = head_at<T>(a, a.v, b, h / a.group);
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, h);
    const bool whole = may_see_nothing<LEVEL>(a) && gives_to_all(a, head, t0, BM);
    const span all = whole ? span{0, see.keys} : keys_seen(see, t0, BM), own = keys_seen(see, mine, ROWS);
    const float factor = exponent_factor<LEVEL>(a), even = whole ? 1 / (float)see.keys : 0;
    /* Those after them belong to another head. */
    const bool sums = LEVEL == ANY && wants_bias(g) && mine < a.queries;
    left_rows<T, D, MT, (D * MT <= 128)> q, dy;
    float dq[MT][D / 8][4], exponent[MT][2], delta[MT][2], by[MT][2];

    const int first = whole ? 0 : next_keys(see, t0, BM, all.from / BN * BN, BN, all.to);
    fetch_queries<T, D, BM>(g, b, query_tile{h, t0}, queries);
    fetch<T, D, BN>(stage, k, a.k.row, first, see.keys, a.dim);
    fetch<T, D, BN>(stage + BN * LD, v, a.v.row, first, see.keys, a.dim);
    copy_commit();
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        const int t = mine + i / 2 * 16 + row + i % 2 * 8;
        exponent[i / 2][i % 2] = exponent_of(a, head, t);
        delta[i / 2][i % 2] = delta_of(g, head, t);
        by[i / 2][i % 2] = a.scale;
    }
    clear(dq);
    copy_wait<0>();
    __syncthreads();
    q.take(queries + warp * ROWS * LD);
    dy.take(queries + (BM + warp * ROWS) * LD);
    if (sums)
        clear_sums<T, 32>(g, b, h, mine, ROWS);
    for (int s0 = first, turn = 0, after; s0 < all.to; s0 = after, turn ^= 1) {
        const T *keys = stage + turn * 2 * BN * LD;
        T *next = stage + (turn ^ 1) * 2 * BN * LD;
        copy_wait<0>();
        __syncthreads();
        after = whole ? s0 + BN : next_keys(see, t0, BM, s0 + BN, BN, all.to);
        if (after < all.to) {
            fetch<T, D, BN>(next, k, a.k.row, after, see.keys, a.dim);
            fetch<T, D, BN>(next + BN * LD, v, a.v.row, after, see.keys, a.dim);
            copy_commit();
        }
        if (!whole && (s0 >= own.to || s0 + BN <= own.from || !meets(see, mine, ROWS, s0, BN)))
            continue;
        float p[MT][NT][4], dp[MT][NT][4];
        uint32_t packed[MT][NT][2], keep[4];
        clear(p);
        times_rows(p, q, keys);
        if constexpr (LEVEL == ANY)
            if (has_bias(a))
                add_bias<false>(a, see, bias_at<T>(a, b, h), mine, s0, p);
        if (!sees_all(see, mine, ROWS, s0, BN))
            hide<false>(see, mine, s0, p);
        clear(dp);
        times_rows(dp, dy, keys + BN * LD);
        UNROLL
        for (int m = 0; m < MT; m++) {
            if (a.dropout)
                kept_by_query<NT>(a, head, mine + 16 * m, s0, keep);
            UNROLL
            for (int i = 0; i < NT * 4; i++) {
                float d = dp[m][i / 4][i % 4];
                if (a.dropout)
                    d = keep[i % 4] >> (i & ~3) & 1 ? d * a.dropping.factor : 0;
                float w = power2(p[m][i / 4][i % 4] * factor - exponent[m][i / 2 % 2]);
                if (even > 0 && exponent[m][i / 2 % 2] == INFINITY)
                    w = s0 + i / 4 * 8 + (int)(threadIdx.x & 3) * 2 + i % 2 < see.keys ? even : 0;
                p[m][i / 4][i % 4] = w * (d - delta[m][i / 2 % 2]);
            }
        }
        if constexpr (LEVEL == ANY)
            if (sums)
                give_to_bias<T, MT, NT>(g, see, b, h, mine, s0, p, (float *)(stage + 4 * BN * LD));
        pack_product<T>(packed, p);
        times_columns<T, D>(dq, packed, keys);
    }
    if (LEVEL < ANY || g.dq.at)
        store_rows<T, D>(head_at<T>(a, g.dq, b, h), g.dq.row, mine, a.queries, a.dim, dq, by,
                         queries + warp * ROWS * LD);
}

template <class T, int D, int MT, int BM, int STAGES, int MAKE, int LEVEL>
static by_status launch_keys(cuda_exec *x, const attention_back &g)
{
    enum { BN = WARPS * 16 * MT };
    const dim3 grid(blocks_for(g.a.keys, BN), (unsigned)g.a.kv_heads, (unsigned)g.a.batch);
    const size_t shared = (2 * BN + STAGES * 2 * BM) * (D + 8) * sizeof(T) + STAGES * 2 * BM * sizeof(float);
    if (!(MAKE & MAKE_DK ? g.dk.at || (MAKE & MAKE_DV && g.dv.at) : g.dv.at != NULL))
        return BY_OK;
    return cuda_launch(x, keys_mma<T, D, MT, BM, STAGES, MAKE, LEVEL>, grid, dim3(THREADS), shared, g);
}

template <class T, int D, int MT, int BN, int LEVEL>
static by_status launch_queries(cuda_exec *x, const attention_back &g)
{
    enum { BM = WARPS * 16 * MT };
    const dim3 grid(blocks_for(g.a.queries, BM), (unsigned)g.a.heads, (unsigned)g.a.batch);
    const size_t slopes = wants_bias(g) ? WARPS * slope_room<MT, BN / 8>::COUNT * sizeof(float) : 0;
    if (!g.dq.at && !wants_bias(g))
        return BY_OK;
    return cuda_launch(x, queries_mma<T, D, MT, BN, LEVEL>, grid, dim3(THREADS),
                       (2 * BM + 4 * BN) * (D + 8) * sizeof(T) + slopes, g);
}

/* Keys, then queries. For the largest heads, the sums of dk and dv do not both fit in registers. */
template <class T, int LEVEL> static by_status back_64(cuda_exec *x, const attention_back &g)
{
    BY_TRY((launch_keys<T, 64, 2, 32, 2, MAKE_DK | MAKE_DV, LEVEL>(x, g)));
    return launch_queries<T, 64, 2, 32, LEVEL>(x, g);
}
template <class T, int LEVEL> static by_status back_128(cuda_exec *x, const attention_back &g)
{
    BY_TRY((launch_keys<T, 128, 1, 32, 2, MAKE_DK | MAKE_DV, LEVEL>(x, g)));
    return launch_queries<T, 128, 1, 32, LEVEL>(x, g);
}
template <class T> static by_status back_mma(cuda_exec *x, const attention_back &g)
{
    enum { BOTH = MAKE_DK | MAKE_DV };
    const int dim = g.a.dim, level = level_of(g.a);
    if (level == ANY && is_biased(g.a)) {
        BY_BRANCH("biases alone");
        return dim <= 64 ? back_64<T, BIASED>(x, g) : back_128<T, BIASED>(x, g);
    }
    if (level == ANY)
        return dim <= 64 ? back_64<T, ANY>(x, g) : back_128<T, ANY>(x, g);
    if (dim <= 32) {
        BY_TRY((launch_keys<T, 32, 2, 32, 2, BOTH, MASKED>(x, g)));
        return launch_queries<T, 32, 2, 32, MASKED>(x, g);
    }
    if (dim <= 64)
        return level == EASY ? back_64<T, EASY>(x, g) : back_64<T, MASKED>(x, g);
    if (dim <= 96) {
        BY_TRY((launch_keys<T, 96, 1, 32, 2, BOTH, MASKED>(x, g)));
        return launch_queries<T, 96, 1, 32, MASKED>(x, g);
    }
    if (dim <= 128)
        return level == EASY ? back_128<T, EASY>(x, g) : back_128<T, MASKED>(x, g);
    BY_TRY((launch_keys<T, 256, 1, 16, 1, MAKE_DK, MASKED>(x, g)));
    BY_TRY((launch_keys<T, 256, 1, 16, 1, MAKE_DV, MASKED>(x, g)));
    return launch_queries<T, 256, 1, 16, MASKED>(x, g);
}

/* Queries per tile with separate sums, in the kernel that computes dq. */
static int queries_of_tile(const attention &a, by_dtype type)
{
    return !fits_mma(a, type) ? 64 : a.dim <= 64 ? 32 : 16;
}

/* ---- host ------------------------------------------------------------------------------------ */

template <class T> static by_status make_deltas(cuda_exec *x, const attention_back &g)
{
    const int64_t rows = (int64_t)g.a.batch * g.a.heads * g.a.queries;
    return cuda_launch(x, row_deltas<T>, dim3(blocks_for(rows, 32)), dim3(256), 0, g);
}

static by_status all_deltas(cuda_exec *x, const attention_back &g, by_dtype type)
{
    BY_CUDA_DISPATCH(type, make_deltas, x, g);
}

by_status cuda_attend_back(cuda_exec *x, const attention_back &g, by_dtype type)
{
    BY_TRY(all_deltas(x, g, type));
    if (!fits_mma(g.a, type)) {
        BY_BRANCH("plain tiles");
        return cuda_attend_back_plain(x, g, type);
    }
    BY_BRANCH("tiles");
    return type == BY_F16 ? back_mma<f16>(x, g) : back_mma<bf16>(x, g);
}

extern "C" by_status cuda_attention_grad(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
#ifdef BY_CUDA_HOPPER
    if (cuda_hopper_whole_grad_takes(x->cuda, n))
        return cuda_hopper_whole_grad(x, n);
    if (cuda_hopper_ordered_grad_takes(x->cuda, n))
        return cuda_hopper_ordered_grad(x, n);
    if (cuda_hopper_attention_grad_takes(x->cuda, n))
        return cuda_hopper_attention_grad(x, n);
    if (cuda_hopper_views_grad_takes(x->cuda, n))
        return cuda_hopper_views_grad(x, n);
#endif
    const by_dtype type = n->in[0]->type;
    attention_back g = {};
    g.a = attention_of(x, n);
    g.a.y = rows_of(n->in[GR_ATT_Y], 0);
    g.a.lse = (float *)n->in[GR_ATT_LSE]->data;
    g.dy = rows_of(n->in[GR_ATT_DY], 0);
    rows_of_qkv((const gr_attention_attr *)n->attr, n->out, &g.dq, &g.dk, &g.dv);
    if (cuda_has_columns(g.a)) {
        BY_BRANCH("columns");
        return cuda_attend_back_columns(x, g, type);
    }
    for (int i = 0; i < BIASES; i++)
        g.dbias[i] = cuda_bias_sums(g.a, i, n->out[3 + i], queries_of_tile(g.a, type));
    const size_t rows = (size_t)(g.a.batch * g.a.heads) * (size_t)g.a.queries;
    const size_t counts[BIASES] = {cuda_bias_sum_count(g, 0), cuda_bias_sum_count(g, 1)};
    g.delta = (float *)cuda_scratch(x, sizeof(float) * (rows + counts[0] + counts[1]));
    for (int i = 0; i < BIASES; i++)
        if (counts[i])
            g.dbias[i].at = g.delta + rows + (i ? counts[0] : 0);
    if (g.a.dropout)
        BY_BRANCH("dropout");
    if (g.a.key_mask)
        BY_BRANCH("key mask");
    if (g.a.prefix)
        BY_BRANCH("prefix");
    if (g.a.reach.on)
        BY_BRANCH("pattern");
    if (has_bias(g.a))
        BY_BRANCH("bias");
    if (g.a.pairs.at)
        BY_BRANCH("pair mask");
    if (g.a.empty_zero)
        BY_BRANCH("zeros for queries without keys");
    if (g.dbias[0].last || g.dbias[1].last)
        BY_BRANCH("gradient of the bias, entry by entry");
    if (counts[0] || counts[1])
        BY_BRANCH("gradient of the bias, by sums");
    BY_TRY(cuda_attend_back(x, g, type));
    BY_TRY(cuda_add_bias_sums(x, g, 0, n->out[3]));
    return cuda_add_bias_sums(x, g, 1, n->out[4]);
}
