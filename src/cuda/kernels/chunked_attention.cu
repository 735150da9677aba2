/* chunked_attention.cu - attention within chunks of rows (Kitaev et al. 2020). A block has up to 64 queries
 * of one chunk and goes through the keys of the chunks that they see with a running softmax. Scores are never
 * stored. */
#include "cuda/kernels/chunked.cuh"

/* ---- by matrix instructions ------------------------------------------------------------------ */

/* The running softmax of a warp's 16 queries, two for each thread. */
template <int D> struct running_rows {
    float top[2], sum[2], o[1][D / 8][4];

    /* Scores to e^(score - top). */
    __device__ __forceinline__ void take(float (&s)[1][SLOTS / 8][4])
    {
        UNROLL
        for (int i = 0; i < 2; i++) {
            float now = top[i];
            UNROLL
            for (int n = 0; n < SLOTS / 4; n++)
                now = fmaxf(now, s[0][n / 2][2 * i + n % 2]);
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            const float base = now == -INFINITY ? 0 : now, fix = exponential(top[i] - base);
            top[i] = now;
            sum[i] *= fix;
            UNROLL
            for (int n = 0; n < D / 4; n++)
                o[0][n / 2][2 * i + n % 2] *= fix;
            UNROLL
            for (int n = 0; n < SLOTS / 4; n++) {
                float &p = s[0][n / 2][2 * i + n % 2];
                p = exponential(p - base);
                sum[i] += p;
            }
        }
    }
};

/* Starts loading keys and values of place u of all that a tile sees, and notes their rows. */
template <class T, int D>
static __device__ __forceinline__ void fetch_keys(const chunked &a, const chunk_tile &x, int u, T *to,
                                                  int *keys)
{
    const int g = gr_chunks_seen(&a.c, x.g, u / a.tiles), i0 = u % a.tiles * SLOTS;
    fetch_slots<T, D>(a, x, a.k, g, i0, to);
    fetch_slots<T, D>(a, x, a.v, g, i0, to + SLOTS * (D + 8));
    copy_commit();
    if (threadIdx.x < SLOTS)
        keys[threadIdx.x] = key_at(a, x, g, i0 + threadIdx.x);
}

/* The warp's queries after this round; rows: theirs. */
template <class T, int D>
static __device__ __forceinline__ void put_result(const chunked &a, const chunk_tile &x,
                                                  const running_rows<D> &w, const int *rows)
{
    const int row = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    float old[2], fresh[2], by[2];
    const float kept = a.dropout ? a.dropping.factor : 1;
    UNROLL
    for (int i = 0; i < 2; i++) {
        float sum = w.sum[i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const int t = rows[row + 8 * i];
        const merged m =
            t < 0 ? merged{0, 0, 0} : merge_stats(a, x.head * a.c.rows + t, w.top[i], sum, c == 0);
        old[i] = m.old;
        fresh[i] = m.fresh * kept;
        by[i] = m.by;
    }
    put_rows<T, D>(a, x, 0, rows, w.o, fresh, old, by);
}

template <class T, int D> static __global__ void __launch_bounds__(THREADS) forward_mma(const chunked a)
{
    enum { SIZE = SLOTS * (D + 8), NT = SLOTS / 8 };
    BY_SHARED(T,
              queries); /* q, then two stages of k and v; then the rows of both stages and of the queries */
    T *stage = queries + SIZE;
    int *keys = (int *)(stage + 4 * SIZE), *rows = keys + 2 * SLOTS;
    const chunk_tile x = tile_of(a, 1);
    const int warp = threadIdx.x / 32, row = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    const int all = a.c.seen * a.tiles;
    left_rows<T, D, 1, true> q;
    running_rows<D> w;
    fetch_slots<T, D>(a, x, a.q, x.g, x.t0, queries);
    if (threadIdx.x < SLOTS)
        rows[threadIdx.x] = row_at(a, x, x.g, x.t0 + threadIdx.x);
    fetch_keys<T, D>(a, x, 0, stage, keys);
    clear(w.o);
    w.top[0] = w.top[1] = -INFINITY;
    w.sum[0] = w.sum[1] = 0;
    for (int u = 0, turn = 0; u < all; u++, turn ^= 1) {
        copy_wait<0>();
        __syncthreads();
        if (u == 0)
            q.take(queries + warp * 16 * (D + 8));
        if (u + 1 < all)
            fetch_keys<T, D>(a, x, u + 1, stage + (turn ^ 1) * 2 * SIZE, keys + (turn ^ 1) * SLOTS);
        const T *k = stage + turn * 2 * SIZE;
        float s[1][NT][4];
        clear(s);
        times_rows(s, q, k);
        UNROLL
        for (int i = 0; i < NT * 4; i++) {
            bool live;
            const int key = keys[turn * SLOTS + i / 4 * 8 + 2 * c + i % 2];
            s[0][i / 4][i % 4] =
                score_of(a, rows[warp * 16 + row + i / 2 % 2 * 8], key, s[0][i / 4][i % 4], &live);
        }
        w.take(s);
        if (a.dropout) {
            uint32_t keep[4];
            const int column = u / a.tiles * a.c.chunk + u % a.tiles * SLOTS;
            kept_by_place(a, x.head, x.g, x.t0 + warp * 16, column, keep);
            UNROLL
            for (int i = 0; i < NT * 4; i++)
                s[0][i / 4][i % 4] = keep[i % 4] >> (i & ~3) & 1 ? s[0][i / 4][i % 4] : 0;
        }
        uint32_t p[1][NT][2];
        pack_product<T>(p, s);
        times_columns<T, D>(w.o, p, k + SIZE);
    }
    put_result<T>(a, x, w, rows + warp * 16);
}

template <class T, int D> static by_status launch_mma(cuda_exec *x, const chunked &a)
{
    const size_t shared = 5 * SLOTS * (D + 8) * sizeof(T) + 3 * SLOTS * sizeof(int);
    return each_round(a, [&](const chunked &now) {
        return cuda_launch(x, forward_mma<T, D>, chunked_grid(now, 1), dim3(THREADS), shared, now);
    });
}

template <class T> static by_status forward_tiles(cuda_exec *x, const chunked &a)
{
    return a.dim <= 32   ? launch_mma<T, 32>(x, a)
           : a.dim <= 64 ? launch_mma<T, 64>(x, a)
                         : launch_mma<T, 128>(x, a);
}

/* ---- plain tiles: f32, and heads of any size --------------------------------------------------- */

template <class T> static __global__ void __launch_bounds__(PLAIN_THREADS) forward_plain(const chunked a)
{
    BY_SHARED(float, space); /* two squares; weights; then the rows of keys and queries */
    float *weights = space + 2 * SQUARE;
    int *keys = (int *)(weights + SQUARE), *rows = keys + SLOTS;
    const chunk_tile x = tile_of(a, a.parts);
    float s[4][4], o[4][4] = {}, top[4], sum[4] = {}, fresh[4], old[4], by[4];
    for (int i = 0; i < 4; i++)
        top[i] = -INFINITY;
    if (threadIdx.x < SLOTS)
        rows[threadIdx.x] = row_at(a, x, x.g, x.t0 + threadIdx.x);
    for (int u = 0; u < a.c.seen * a.tiles; u++) {
        __syncthreads();
        if (threadIdx.x < SLOTS)
            keys[threadIdx.x] =
                key_at(a, x, gr_chunks_seen(&a.c, x.g, u / a.tiles), u % a.tiles * SLOTS + threadIdx.x);
        __syncthreads();
        dots_of_rows<T>(a, x, a.q, rows, a.k, keys, space, s);
        for (int i = 0; i < 4; i++) {
            float now = top[i], more = 0;
            for (int j = 0; j < 4; j++) {
                bool live;
                s[i][j] = score_of(a, rows[4 * THREAD_Y + i], keys[THREAD_X + 16 * j], s[i][j], &live);
                now = fmaxf(now, s[i][j]);
            }
            for (int step = 1; step < 16; step *= 2)
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, step));
            const float base = now == -INFINITY ? 0 : now, fix = expf(top[i] - base);
            for (int j = 0; j < 4; j++) {
                s[i][j] = expf(s[i][j] - base);
                more += s[i][j];
                o[i][j] *= fix;
            }
            for (int step = 1; step < 16; step *= 2)
                more += __shfl_xor_sync(0xffffffffu, more, step);
            sum[i] = sum[i] * fix + more;
            top[i] = now;
        }
        for (int j = 0; j < 4 && a.dropout; j++) {
            const int column = u / a.tiles * a.c.chunk + u % a.tiles * SLOTS + THREAD_X + 16 * j;
            const uint32_t keep = kept4(a, x.head, x.g, x.t0 + 4 * THREAD_Y, column);
            for (int i = 0; i < 4; i++)
                s[i][j] = keep >> i & 1 ? s[i][j] * a.dropping.factor : 0;
        }
        __syncthreads();
        put_square(weights, s);
        fetch_square_rows<T>(a, x, a.v, keys, x.part * SIDE, space);
        __syncthreads();
        add_sums(o, weights, space);
    }
    for (int i = 0; i < 4; i++) {
        const int t = rows[4 * THREAD_Y + i];
        const bool write = THREAD_X == 0 && x.part == 0;
        const merged m =
            t < 0 ? merged{0, 0, 0} : merge_stats(a, x.head * a.c.rows + t, top[i], sum[i], write);
        old[i] = m.old;
        fresh[i] = m.fresh;
        by[i] = m.by;
    }
    put_square_rows<T>(a, x, 0, rows, o, fresh, old, by);
}

template <class T> static by_status forward_squares(cuda_exec *x, const chunked &a)
{
    const size_t shared = 3 * SQUARE * sizeof(float) + 2 * SLOTS * sizeof(int);
    return each_round(a, [&](const chunked &now) {
        return cuda_launch(x, forward_plain<T>, chunked_grid(now, now.parts), dim3(PLAIN_THREADS), shared,
                           now);
    });
}

/* ---- the weights of each round, before dropout: a warp for each query --------------------------- */

/* The score of column j of the chunks that chunk g sees. */
template <class T>
static __device__ __forceinline__ float score_at(const chunked &a, const chunk_tile &x, int query, int g,
                                                 int j)
{
    const int key = key_at(a, x, gr_chunks_seen(&a.c, g, j / a.c.chunk), j % a.c.chunk);
    const int64_t width = (int64_t)a.heads * a.dim;
    float product = 0;
    bool live;
    for (int d = 0; d < a.dim && key >= 0; d++)
        product += to_float(((const T *)a.q)[x.base + query * width + d]) *
                   to_float(((const T *)a.k)[x.base + (key & ~MASKED_KEY) * width + d]);
    return score_of(a, query, key, product, &live);
}

template <class T> static __global__ void __launch_bounds__(THREADS) weights_of(const chunked a)
{
    const int window = a.c.seen * a.c.chunk, lane = threadIdx.x & 31;
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int g = (int)(at / a.c.chunk), i = (int)(at % a.c.chunk);
    if (g >= a.c.total)
        return;
    const chunk_tile x = tile_of(a, 1);
    const int query = row_at(a, x, g, i);
    T *to = (T *)a.weights + ((x.head * a.c.total + g) * a.c.chunk + i) * window;
    float top = -INFINITY, sum = 0;
    for (int j = lane; j < window && query >= 0; j += 32)
        top = fmaxf(top, score_at<T>(a, x, query, g, j));
    top = warp_max(top);
    for (int j = lane; j < window && query >= 0; j += 32)
        sum += expf(score_at<T>(a, x, query, g, j) - top);
    sum = sum_as_kept(top, warp_sum(sum));
    for (int j = lane; j < window; j += 32)
        to[j] = from_float<T>(query < 0 ? 0 : expf(score_at<T>(a, x, query, g, j) - top) / sum);
}

template <class T> static by_status write_weights(cuda_exec *x, const chunked &a)
{
    const dim3 grid(blocks_for((int64_t)a.c.total * a.c.chunk, WARPS), (unsigned)a.heads, (unsigned)a.batch);
    return cuda_launch(x, weights_of<T>, grid, dim3(THREADS), 0, a);
}

/* ---- host ------------------------------------------------------------------------------------ */

/* Sums and statistics that persist between rounds, and those of outputs that are not requested. */
static void take_space(cuda_exec *x, gr_node *n, chunked *a)
{
    const int64_t rows = (int64_t)a->batch * a->heads * a->c.rows;
    const int64_t kept = a->c.total > a->c.chunks ? chunked_elements(*a) : 0;
    float *space = (float *)cuda_scratch(x, (size_t)(6 * rows + kept) * sizeof(float));
    a->stats[0] = space;
    a->stats[1] = space + 2 * rows;
    a->lse = n->out[1] ? (float *)n->out[1]->data : space + 4 * rows;
    a->sums[0] = space + 6 * rows;
}

static by_status squares_of(cuda_exec *x, const chunked &a, by_dtype type)
{
    BY_CUDA_DISPATCH(type, forward_squares, x, a);
}

static by_status all_weights(cuda_exec *x, const chunked &a, by_dtype type)
{
    BY_CUDA_DISPATCH(type, write_weights, x, a);
}

extern "C" by_status cuda_chunked_attention(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const by_dtype type = n->in[0]->type;
    chunked a = chunked_of(x, n);
    chunked_branches(a);
    take_space(x, n, &a);
    a.out[0] = n->out[0] ? n->out[0]->data : NULL;
    if (n->out[2]) {
        BY_BRANCH("chunks, weights");
        a.weights = n->out[2]->data;
        BY_TRY(all_weights(x, a, type));
    }
    if (!a.out[0])
        return BY_OK;
    if (!chunked_fits_mma(a, type)) {
        BY_BRANCH("chunks, plain tiles");
        return squares_of(x, a, type);
    }
    BY_BRANCH("chunks, tiles");
    return type == BY_F16 ? forward_tiles<f16>(x, a) : forward_tiles<bf16>(x, a);
}
