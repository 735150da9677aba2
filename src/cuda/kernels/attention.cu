/* attention.cu - softmax(q k^T * scale + bias, masked) v in tiles with a running softmax (Dao, 2023): the
 * scores of a tile stay in registers and are never stored, unless the weights are requested. Exponentials are
 * powers of 2, with the scale in the same multiplication. */
#include "cuda/kernels/attention_mma.cuh"
#include "cuda/kernels/attention_views.cuh"
#include "cuda/kernels/attention_plain.cuh"

/* ---- by matrix instructions ------------------------------------------------------------------ */

/* Scores to 2^(factor * (score - top)); updates top, the sums (each lane its columns) and the output. In rows
 * that have attended to nothing so far, all weights are 0. */
template <int D, int MT, int NT>
static __device__ __forceinline__ void run_softmax(float factor, float (&s)[MT][NT][4], float (&top)[MT][2],
                                                   float (&sum)[MT][2], float (&o)[MT][D / 8][4])
{
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int i = 0; i < 2; i++) {
        float now = top[m][i];
        UNROLL
        for (int n = 0; n < NT; n++)
            now = fmaxf(now, fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
        const float base = now == HIDDEN ? 0 : -now * factor, fix = power2(top[m][i] * factor + base);
        top[m][i] = now;
        float part = 0;
        UNROLL
        for (int n = 0; n < NT; n++) {
            s[m][n][2 * i] = power2(s[m][n][2 * i] * factor + base);
            s[m][n][2 * i + 1] = power2(s[m][n][2 * i + 1] * factor + base);
            part += s[m][n][2 * i] + s[m][n][2 * i + 1];
        }
        sum[m][i] = sum[m][i] * fix + part;
        UNROLL
        for (int n = 0; n < D / 8; n++) {
            o[m][n][2 * i] *= fix;
            o[m][n][2 * i + 1] *= fix;
        }
    }
}

/* o += dropout(p) v, without the factor of the kept weights */
template <class T, int D, int MT, int NT>
static __device__ __forceinline__ void add_values(const attention &a, int64_t head, int t0, int s0,
                                                  float (&p)[MT][NT][4], const T *v, float (&o)[MT][D / 8][4])
{
    uint32_t packed[MT][NT][2];
    UNROLL
    for (int m = 0; m < MT && a.dropout; m++) {
        uint32_t keep[4];
        kept_by_query<NT>(a, head, t0 + 16 * m, s0, keep);
        UNROLL
        for (int i = 0; i < NT * 4; i++)
            p[m][i / 4][i % 4] = keep[i % 4] >> (i & ~3) & 1 ? p[m][i / 4][i % 4] : 0;
    }
    pack_product<T>(packed, p);
    times_columns<T, D>(o, packed, v);
}

/* Queries that attend to nothing, those whose sum is 0: equal weights on every key, including masked ones.
 * All threads of the block call this. */
template <class T, int D, int MT, int BN>
static __device__ __forceinline__ void add_even(const attention &a, int keys, int b, int h, int t0, T *space,
                                                float (&sum)[MT][2], float (&o)[MT][D / 8][4])
{
    const int c = threadIdx.x & 3;
    float even[MT][2], p[MT][BN / 8][4];
    int any = 0, *found = (int *)space;
    for (int i = 0; i < 2 * MT; i++) {
        even[i / 2][i % 2] = sum[i / 2][i % 2] == 0 ? 1 / (float)keys : 0;
        any |= sum[i / 2][i % 2] == 0;
    }
    __syncthreads();
    *found = 0;
    __syncthreads();
    if (any)
        *found = 1;
    __syncthreads();
    const bool go = *found;
    for (int s0 = 0; go && s0 < keys; s0 += BN) {
        __syncthreads();
        fetch<T, D, BN>(space, head_at<T>(a, a.v, b, h / a.group), a.v.row, s0, keys, a.dim);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        UNROLL
        for (int m = 0; m < MT; m++)
            UNROLL
        for (int i = 0; i < BN / 2; i++)
            p[m][i / 4][i % 4] = s0 + i / 4 * 8 + 2 * c + i % 2 < keys ? even[m][i / 2 % 2] : 0;
        add_values<T, D>(a, (int64_t)b * a.heads + h, t0, s0, p, (const T *)space, o);
    }
}

template <class T, int D, int MT, int BN, int GIVEN>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1) forward_mma(const attention given)
{
    constexpr int LEVEL = code_of<GIVEN>::LEVEL_OF;
    const attention a = known<GIVEN>(given);
    enum { ROWS = 16 * MT, BM = WARPS * ROWS, LD = D + 8, NT = BN / 8 };
    BY_SHARED(T, queries); /* (BM, LD), then two stages of keys and values (2 BN, LD) */
    T *stage = queries + BM * LD;
    /* Long ones first. */
    const int b = blockIdx.z, h = blockIdx.y, t0 = (int)(gridDim.x - 1 - blockIdx.x) * BM;
    const int warp = threadIdx.x / 32, mine = t0 + warp * ROWS;
    const int64_t head = (int64_t)b * a.heads + h;
    const T *k = head_at<T>(a, a.k, b, h / a.group), *v = head_at<T>(a, a.v, b, h / a.group);
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, h);
    const span all = keys_seen(see, t0, BM), own = keys_seen(see, mine, ROWS);
    const float factor = exponent_factor<LEVEL>(a);
    left_rows<T, D, MT, (D <= 64)> q;
    float o[MT][D / 8][4], top[MT][2], sum[MT][2];

    fetch<T, D, BM>(queries, head_at<T>(a, a.q, b, h), a.q.row, t0, a.queries, a.dim);
    const int first = next_keys(see, t0, BM, all.from / BN * BN, BN, all.to);
    fetch<T, D, BN>(stage, k, a.k.row, first, see.keys, a.dim);
    fetch<T, D, BN>(stage + BN * LD, v, a.v.row, first, see.keys, a.dim);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    q.take(queries + warp * ROWS * LD);
    clear(o);
    for (int i = 0; i < 2 * MT; i++) {
        top[i / 2][i % 2] = -INFINITY;
        sum[i / 2][i % 2] = 0;
    }
    for (int s0 = first, turn = 0, after; s0 < all.to; s0 = after, turn ^= 1) {
        const T *keys = stage + turn * 2 * BN * LD;
        T *next = stage + (turn ^ 1) * 2 * BN * LD;
        copy_wait<0>();
        __syncthreads();
        after = next_keys(see, t0, BM, s0 + BN, BN, all.to);
        if (after < all.to) {
            fetch<T, D, BN>(next, k, a.k.row, after, see.keys, a.dim);
            fetch<T, D, BN>(next + BN * LD, v, a.v.row, after, see.keys, a.dim);
            copy_commit();
        }
        if (s0 >= own.to || s0 + BN <= own.from || !meets(see, mine, ROWS, s0, BN))
            continue;
        float s[MT][NT][4];
        clear(s);
        times_rows(s, q, keys);
        if constexpr (LEVEL == ANY)
            if (has_bias(a))
                add_bias<false>(a, see, bias_at<T>(a, b, h), mine, s0, s);
        if (!sees_all(see, mine, ROWS, s0, BN))
            hide<false>(see, mine, s0, s);
        run_softmax<D>(factor, s, top, sum, o);
        add_values<T, D>(a, head, mine, s0, s, keys + BN * LD, o);
    }
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        float &x = sum[i / 2][i % 2];
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        x += __shfl_xor_sync(0xffffffffu, x, 2);
    }
    if (may_see_nothing<LEVEL>(a))
        add_even<T, D, MT, BN>(a, see.keys, b, h, mine, stage, sum, o);
    float by[MT][2];
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        const float x = sum[i / 2][i % 2], highest = top[i / 2][i % 2] * factor;
        const int t = mine + i / 2 * 16 + (threadIdx.x & 31) / 4 + i % 2 * 8;
        by[i / 2][i % 2] = (a.dropout ? a.dropping.factor : 1) / (x == 0 ? 1 : x);
        if (a.lse && threadIdx.x % 4 == 0 && t < a.queries)
            a.lse[head * a.queries + t] = x == 0 ? -INFINITY : (highest + log2f(x)) * LN_2;
    }
    if (a.y.at)
        store_rows<T, D>(head_at<T>(a, a.y, b, h), a.y.row, mine, a.queries, a.dim, o, by,
                         queries + warp * ROWS * LD);
}

template <class T, int D, int MT, int BN, int LEVEL>
static by_status launch_mma(cuda_exec *x, const attention &a)
{
    enum { BM = WARPS * 16 * MT };
    const dim3 grid(blocks_for(a.queries, BM), (unsigned)a.heads, (unsigned)a.batch);
    return cuda_launch(x, forward_mma<T, D, MT, BN, LEVEL>, grid, dim3(THREADS),
                       (BM + 4 * BN) * (D + 8) * sizeof(T), a);
}

template <class T> static by_status attend_mma(cuda_exec *x, const attention &a)
{
    const int level = level_of(a);
    if (level == ANY && is_biased(a)) {
        BY_BRANCH("biases alone");
        return a.dim <= 64 ? launch_mma<T, 64, 2, 64, BIASED>(x, a) : launch_mma<T, 128, 2, 32, BIASED>(x, a);
    }
    if (level == ANY)
        return a.dim <= 64 ? launch_mma<T, 64, 2, 64, ANY>(x, a) : launch_mma<T, 128, 2, 32, ANY>(x, a);
    if (a.dim <= 32)
        return launch_mma<T, 32, 2, 64, MASKED>(x, a);
    if (a.dim <= 64)
        return level == EASY ? launch_mma<T, 64, 2, 64, EASY>(x, a) : launch_mma<T, 64, 2, 64, MASKED>(x, a);
    if (a.dim <= 96)
        return launch_mma<T, 96, 2, 32, MASKED>(x, a);
    if (a.dim <= 128)
        return level == EASY ? launch_mma<T, 128, 2, 32, EASY>(x, a)
                             : launch_mma<T, 128, 2, 32, MASKED>(x, a);
    return launch_mma<T, 256, 1, 32, MASKED>(x, a);
}

/* ---- without matrix instructions ------------------------------------------------------------- */

/* acc += p (in shared memory) times values [s0, s0 + SIDE), their elements from d0 */
template <class T, int NV>
static __device__ __forceinline__ void add_values_plain(const attention &a, const T *v, int s0, int keys,
                                                        int d0, const float *p, float *space,
                                                        float (&o)[NV][4][4])
{
    UNROLL
    for (int n = 0; n < NV; n++) {
        __syncthreads();
        fetch_square(space, v, a.v.row, s0, keys, d0 + n * SIDE, a.dim, 1);
        __syncthreads();
        add_sums(o[n], p, space);
    }
}

/* 64 queries of a head, and NV * 64 elements of its values from part * NV * 64. */
template <class T, int NV, int LEVEL>
static __global__ void __launch_bounds__(PLAIN_THREADS, 2) forward_plain(const attention a)
{
    BY_SHARED(float, space_q);
    float *space_k = space_q + SQUARE, *weights = space_k + SQUARE;
    const int tiles = (a.queries + SIDE - 1) / SIDE, part = (int)blockIdx.x / tiles;
    const int b = blockIdx.z, h = blockIdx.y, d0 = part * NV * SIDE;
    const int t0 = (tiles - 1 - (int)blockIdx.x % tiles) * SIDE; /* long ones first */
    const int64_t head = (int64_t)b * a.heads + h;
    const T *q = head_at<T>(a, a.q, b, h);
    const T *k = head_at<T>(a, a.k, b, h / a.group), *v = head_at<T>(a, a.v, b, h / a.group);
    const sight<LEVEL> see = sight_of<LEVEL>(a, b, h);
    const span all = keys_seen(see, t0, SIDE);
    float o[NV][4][4], top[4], sum[4], s[4][4];
    uint32_t keep[4];
    clear(o);
    for (int i = 0; i < 4; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
    }
    const int first = next_keys(see, t0, SIDE, all.from / SIDE * SIDE, SIDE, all.to);
    for (int s0 = first; s0 < all.to; s0 = next_keys(see, t0, SIDE, s0 + SIDE, SIDE, all.to)) {
        dots_of(s, a.dim, q, a.q.row, t0, a.queries, a.scale * LOG2_E, k, a.k.row, s0, see.keys, space_q,
                space_k);
        if constexpr (LEVEL == ANY)
            if (has_bias(a))
                add_bias_square(a, see, bias_at<T>(a, b, h), t0, s0, s);
        UNROLL
        for (int i = 0; i < 4; i++) {
            float now = top[i], fresh = 0;
            UNROLL
            for (int j = 0; j < 4; j++) {
                const int key = s0 + THREAD_X + 16 * j;
                if (!sees(see, t0 + 4 * THREAD_Y + i, key))
                    s[i][j] = score_unseen(see, key);
                now = fmaxf(now, s[i][j]);
            }
            for (int step = 1; step < 16; step *= 2)
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, step));
            const float base = now == HIDDEN ? 0 : now, fix = exp2f(top[i] - base);
            top[i] = now;
            UNROLL
            for (int j = 0; j < 4; j++) {
                s[i][j] = exp2f(s[i][j] - base);
                fresh += s[i][j];
            }
            for (int step = 1; step < 16; step *= 2)
                fresh += __shfl_xor_sync(0xffffffffu, fresh, step);
            sum[i] = sum[i] * fix + fresh;
            UNROLL
            for (int n = 0; n < NV * 4; n++)
                o[n / 4][i][n % 4] *= fix;
        }
        if (a.dropout) {
            kept_square(a, head, t0, s0, keep);
            drop_weights(a, keep, s);
        }
        put_square(weights, s);
        add_values_plain(a, v, s0, see.keys, d0, weights, space_k, o);
    }
    for (int s0 = 0; may_see_nothing<LEVEL>(a) && s0 < see.keys; s0 += SIDE) { /* as add_even */
        UNROLL
        for (int i = 0; i < 16; i++)
            s[i / 4][i % 4] = sum[i / 4] == 0 ? 1 / (float)see.keys : 0;
        if (a.dropout) {
            kept_square(a, head, t0, s0, keep);
            drop_weights(a, keep, s);
        }
        __syncthreads();
        put_square(weights, s);
        add_values_plain(a, v, s0, see.keys, d0, weights, space_k, o);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int t = t0 + 4 * THREAD_Y + i;
        if (a.lse && part == 0 && THREAD_X == 0 && t < a.queries)
            a.lse[head * a.queries + t] = sum[i] == 0 ? -INFINITY : (top[i] + log2f(sum[i])) * LN_2;
        sum[i] = sum[i] == 0 ? 1 : 1 / sum[i];
    }
    UNROLL
    for (int n = 0; n < NV && a.y.at; n++)
        store_square(head_at<T>(a, a.y, b, h), a.y.row, t0, a.queries, d0 + n * SIDE, a.dim, o[n], sum);
}

template <class T, int LEVEL> static by_status launch_plain(cuda_exec *x, const attention &a)
{
    const unsigned tiles = blocks_for(a.queries, SIDE),
                   parts = a.dim <= SIDE ? 1 : blocks_for(a.dim, 2 * SIDE);
    const dim3 grid(tiles * parts, (unsigned)a.heads, (unsigned)a.batch);
    const size_t shared = 3 * SQUARE * sizeof(float);
    return a.dim <= SIDE ? cuda_launch(x, forward_plain<T, 1, LEVEL>, grid, dim3(PLAIN_THREADS), shared, a)
                         : cuda_launch(x, forward_plain<T, 2, LEVEL>, grid, dim3(PLAIN_THREADS), shared, a);
}

template <class T> static by_status attend_plain(cuda_exec *x, const attention &a)
{
    return level_of(a) == ANY ? launch_plain<T, ANY>(x, a) : launch_plain<T, MASKED>(x, a);
}

/* ---- the weights, before dropout: computes the scores again, now that their sum is known ----- */

template <class T> static __global__ void __launch_bounds__(PLAIN_THREADS) weights_of(const attention a)
{
    BY_SHARED(float, space);
    const int s0 = (int)blockIdx.x * SIDE, t0 = (int)blockIdx.y * SIDE;
    const int b = (int)blockIdx.z / a.heads, h = (int)blockIdx.z % a.heads;
    const sight<ANY> see = sight_of<ANY>(a, b, h);
    float s[4][4];
    dots_of(s, a.dim, head_at<T>(a, a.q, b, h), a.q.row, t0, a.queries, a.scale * LOG2_E,
            head_at<T>(a, a.k, b, h / a.group), a.k.row, s0, see.keys, space, space + SQUARE);
    if (has_bias(a))
        add_bias_square(a, see, bias_at<T>(a, b, h), t0, s0, s);
    for (int i = 0; i < 16; i++) {
        const int t = t0 + 4 * THREAD_Y + i / 4, key = s0 + THREAD_X + 16 * (i % 4);
        if (t >= a.queries || key >= see.keys)
            continue;
        const int64_t row = (int64_t)blockIdx.z * a.queries + t;
        const float lse = a.lse[row];
        const float p = lse == -INFINITY    ? (a.empty_zero ? 0 : 1 / (float)see.keys)
                        : sees(see, t, key) ? exp2f(s[i / 4][i % 4] - lse * LOG2_E)
                                            : 0;
        ((T *)a.weights)[row * a.keys + key] = from_float<T>(p);
    }
}

template <class T> static by_status write_weights(cuda_exec *x, const attention &a)
{
    const dim3 grid(blocks_for(a.keys, SIDE), blocks_for(a.queries, SIDE), (unsigned)(a.batch * a.heads));
    return cuda_launch(x, weights_of<T>, grid, dim3(PLAIN_THREADS), 2 * SQUARE * sizeof(float), a);
}

/* ---- host ------------------------------------------------------------------------------------ */

static by_status tiles_plain(cuda_exec *x, const attention &a, by_dtype type)
{
    BY_CUDA_DISPATCH(type, attend_plain, x, a);
}

static by_status all_weights(cuda_exec *x, const attention &a, by_dtype type)
{
    BY_CUDA_DISPATCH(type, write_weights, x, a);
}

by_status cuda_attend(cuda_exec *x, const attention &a, by_dtype type)
{
    if (!fits_mma(a, type)) {
        BY_BRANCH("plain tiles");
        return tiles_plain(x, a, type);
    }
    BY_BRANCH("tiles");
    return type == BY_F16 ? attend_mma<f16>(x, a) : attend_mma<bf16>(x, a);
}

extern "C" by_status cuda_attention(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    attention a = attention_of(x, n);
    a.y = rows_of(n->out[0], 0);
    a.lse = n->out[1] ? (float *)n->out[1]->data : NULL;
    a.weights = n->out[2] ? n->out[2]->data : NULL;
    if (cuda_takes_few(a)) {
        BY_BRANCH("few queries");
        return cuda_attend_few(x, a, n->in[0]->type);
    }
#ifdef BY_CUDA_HOPPER
    if (cuda_hopper_attention_takes(x->cuda, n))
        return cuda_hopper_attention(x, n);
    if (cuda_hopper_views_takes(x->cuda, n))
        return cuda_hopper_views(x, n);
#endif
    if (a.dropout)
        BY_BRANCH("dropout");
    if (a.key_mask)
        BY_BRANCH("key mask");
    if (a.prefix)
        BY_BRANCH("prefix");
    if (a.reach.on)
        BY_BRANCH("pattern");
    if (has_bias(a))
        BY_BRANCH("bias");
    if (a.pairs.at)
        BY_BRANCH("pair mask");
    if (a.empty_zero)
        BY_BRANCH("zeros for queries without keys");
    if (cuda_has_columns(a)) {
        BY_BRANCH("columns");
        return cuda_attend_columns(x, a, n->in[0]->type);
    }
    if (!a.weights)
        return cuda_attend(x, a, n->in[0]->type);
    BY_BRANCH("weights");
    if (!a.lse)
        a.lse = (float *)cuda_scratch(x, sizeof(float) * (size_t)(a.batch * a.heads) * (size_t)a.queries);
    BY_TRY(cuda_attend(x, a, n->in[0]->type));
    return all_weights(x, a, n->in[0]->type);
}
