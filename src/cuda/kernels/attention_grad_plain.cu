/* attention_grad_plain.cu - the gradient of attention (attention_grad.cu) without matrix instructions. */
#include "cuda/kernels/attention_bias.cuh"
#include "cuda/kernels/attention_plain.cuh"

/* p: products, as exponents, of queries from t0 and keys from s0; puts p' in `dropped`, dS in `p`. */
template <class T, int LEVEL>
static __device__ __forceinline__ void through_softmax(const attention_back &g, const sight<LEVEL> &see,
                                                       int b, int h, int t0, int s0, float (&p)[4][4],
                                                       float (&dp)[4][4], float (&dropped)[4][4])
{
    const attention &a = g.a;
    const int64_t head = (int64_t)b * a.heads + h;
    const bool some_give = may_see_nothing<LEVEL>(a);
    const sight<LEVEL> mine = as_head(see, a, b, h);
    if constexpr (LEVEL == ANY)
        if (has_bias(a))
            add_bias_square(a, see, bias_at<T>(a, b, h), t0, s0, p);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int t = t0 + 4 * THREAD_Y + i;
        const float exponent = exponent_of(a, head, t);
        UNROLL
        for (int j = 0; j < 4; j++) {
            const int s = s0 + THREAD_X + 16 * j;
            p[i][j] = sees(mine, t, s) ? exp2f(p[i][j] - exponent) : 0;
            if (some_give && exponent == INFINITY && t < a.queries && s < see.keys)
                p[i][j] = 1 / (float)see.keys;
            dropped[i][j] = p[i][j];
        }
    }
    if (a.dropout) {
        uint32_t keep[4];
        kept_square(a, head, t0, s0, keep);
        drop_weights(a, keep, dropped);
        drop_weights(a, keep, dp);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float delta = delta_of(g, head, t0 + 4 * THREAD_Y + i);
        UNROLL
        for (int j = 0; j < 4; j++)
            p[i][j] *= dp[i][j] - delta;
    }
}

/* A tile of keys and NV * 64 elements of its gradients from part * NV * 64. */
template <class T, int NV, int LEVEL>
static __global__ void __launch_bounds__(PLAIN_THREADS, NV == 1 ? 2 : 1) keys_plain(const attention_back g)
{
    const attention &a = g.a;
    BY_SHARED(float, one);
    float *two = one + SQUARE, *weights = two + SQUARE, *slopes = weights + SQUARE;
    const int tiles = (a.keys + SIDE - 1) / SIDE, part = (int)blockIdx.x / tiles, d0 = part * NV * SIDE;
    const int b = blockIdx.z, kv = blockIdx.y, s0 = (int)blockIdx.x % tiles * SIDE, end = (kv + 1) * a.group;
    const T *k = head_at<T>(a, a.k, b, kv), *v = head_at<T>(a, a.v, b, kv);
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, -1);
    const span seeing = queries_seeing(see, s0, SIDE);
    float dk[NV][4][4], dv[NV][4][4];
    clear(dk);
    clear(dv);
    query_tile x = next_tile<LEVEL>(a, see, seeing, b, end, SIDE, s0, SIDE, query_tile{kv * a.group, -1});
    for (; x.h < end; x = next_tile<LEVEL>(a, see, seeing, b, end, SIDE, s0, SIDE, x)) {
        const T *q = head_at<T>(a, a.q, b, x.h), *dy = head_at<T>(a, g.dy, b, x.h);
        float p[4][4], dp[4][4], dropped[4][4];
        dots_of(p, a.dim, q, a.q.row, x.t0, a.queries, a.scale * LOG2_E, k, a.k.row, s0, a.keys, one, two);
        dots_of(dp, a.dim, dy, g.dy.row, x.t0, a.queries, 1, v, a.v.row, s0, a.keys, one, two);
        through_softmax<T, LEVEL>(g, see, b, x.h, x.t0, s0, p, dp, dropped);
        put_square(weights, dropped);
        put_square(slopes, p);
        UNROLL
        for (int n = 0; n < NV; n++) {
            __syncthreads();
            fetch_square(one, dy, g.dy.row, x.t0, a.queries, d0 + n * SIDE, a.dim, 1);
            fetch_square(two, q, a.q.row, x.t0, a.queries, d0 + n * SIDE, a.dim, 1);
            __syncthreads();
            add_sums_turned(dv[n], weights, one);
            add_sums_turned(dk[n], slopes, two);
        }
    }
    const float scales[4] = {a.scale, a.scale, a.scale, a.scale}, ones[4] = {1, 1, 1, 1};
    UNROLL
    for (int n = 0; n < NV; n++) {
        if (g.dk.at)
            store_square(head_at<T>(a, g.dk, b, kv), g.dk.row, s0, a.keys, d0 + n * SIDE, a.dim, dk[n],
                         scales);
        if (g.dv.at)
            store_square(head_at<T>(a, g.dv, b, kv), g.dv.row, s0, a.keys, d0 + n * SIDE, a.dim, dv[n], ones);
    }
}

template <class T, int NV, int LEVEL>
static __global__ void __launch_bounds__(PLAIN_THREADS, NV == 1 ? 2 : 1) queries_plain(const attention_back g)
{
    const attention &a = g.a;
    BY_SHARED(float, one);
    float *two = one + SQUARE, *slopes = two + SQUARE, *line = slopes + SQUARE;
    const int tiles = (a.queries + SIDE - 1) / SIDE, part = (int)blockIdx.x / tiles, d0 = part * NV * SIDE;
    const int b = blockIdx.z, h = blockIdx.y, t0 = (tiles - 1 - (int)blockIdx.x % tiles) * SIDE;
    const T *k = head_at<T>(a, a.k, b, h / a.group), *v = head_at<T>(a, a.v, b, h / a.group);
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, h);
    const bool whole = may_see_nothing<LEVEL>(a) && gives_to_all(a, (int64_t)b * a.heads + h, t0, SIDE);
    const span all = whole ? span{0, see.keys} : keys_seen(see, t0, SIDE);
    const bool sums = LEVEL == ANY && wants_bias(g) && part == 0;
    float dq[NV][4][4];
    clear(dq);
    if (sums)
        clear_sums<T, PLAIN_THREADS>(g, b, h, t0, SIDE);
    const int first = whole ? 0 : next_keys(see, t0, SIDE, all.from / SIDE * SIDE, SIDE, all.to);
    for (int s0 = first; s0 < all.to;
         s0 = whole ? s0 + SIDE : next_keys(see, t0, SIDE, s0 + SIDE, SIDE, all.to)) {
        float p[4][4], dp[4][4], dropped[4][4];
        dots_of(p, a.dim, head_at<T>(a, a.q, b, h), a.q.row, t0, a.queries, a.scale * LOG2_E, k, a.k.row, s0,
                see.keys, one, two);
        dots_of(dp, a.dim, head_at<T>(a, g.dy, b, h), g.dy.row, t0, a.queries, 1, v, a.v.row, s0, see.keys,
                one, two);
        through_softmax<T, LEVEL>(g, see, b, h, t0, s0, p, dp, dropped);
        put_square(slopes, p);
        if constexpr (LEVEL == ANY)
            if (sums)
                add_to_biases<T, SIDE, SIDE, PITCH, PLAIN_THREADS>(g, see, b, h, t0, s0, slopes, line);
        UNROLL
        for (int n = 0; n < NV; n++) {
            __syncthreads();
            fetch_square(one, k, a.k.row, s0, see.keys, d0 + n * SIDE, a.dim, 1);
            __syncthreads();
            add_sums(dq[n], slopes, one);
        }
    }
    const float scales[4] = {a.scale, a.scale, a.scale, a.scale};
    UNROLL
    for (int n = 0; n < NV && g.dq.at; n++)
        store_square(head_at<T>(a, g.dq, b, h), g.dq.row, t0, a.queries, d0 + n * SIDE, a.dim, dq[n], scales);
}

template <class T, int LEVEL> static by_status launch_plain(cuda_exec *x, const attention_back &g)
{
    const attention &a = g.a;
    const bool small = a.dim <= SIDE;
    const unsigned parts = small ? 1 : blocks_for(a.dim, 2 * SIDE);
    const dim3 arch_key(blocks_for(a.keys, SIDE) * parts, (unsigned)a.kv_heads, (unsigned)a.batch);
    const dim3 cpu_query(blocks_for(a.queries, SIDE) * parts, (unsigned)a.heads, (unsigned)a.batch);
    const size_t square = SQUARE * sizeof(float), line = wants_bias(g) ? 2 * SIDE * sizeof(float) : 0;
    const dim3 block(PLAIN_THREADS);
    if (g.dk.at || g.dv.at)
        BY_TRY(small ? cuda_launch(x, keys_plain<T, 1, LEVEL>, arch_key, block, 4 * square, g)
                     : cuda_launch(x, keys_plain<T, 2, LEVEL>, arch_key, block, 4 * square, g));
    if (!g.dq.at && !wants_bias(g))
        return BY_OK;
    return small ? cuda_launch(x, queries_plain<T, 1, LEVEL>, cpu_query, block, 3 * square + line, g)
                 : cuda_launch(x, queries_plain<T, 2, LEVEL>, cpu_query, block, 3 * square + line, g);
}

template <class T> static by_status back_plain(cuda_exec *x, const attention_back &g)
{
    return level_of(g.a) == ANY ? launch_plain<T, ANY>(x, g) : launch_plain<T, MASKED>(x, g);
}

by_status cuda_attend_back_plain(cuda_exec *x, const attention_back &g, by_dtype type)
{
    BY_CUDA_DISPATCH(type, back_plain, x, g);
}
