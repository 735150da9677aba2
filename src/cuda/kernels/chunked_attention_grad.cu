/* chunked_attention_grad.cu - the gradient of attention within chunks. The scores of all rounds form one
 * softmax, so the weights of every round follow from the log-sum-exp of all: P = e^(score - lse). With P' =
 * dropout(P) and delta = dy . y:
 *   dv = P'^T dy     dS = P (dropout(dy v^T) - delta)     dq = scale dS k     dk = scale dS^T q
 * Blocks with a tile of queries make dq, blocks with a tile of keys dk and dv from all chunks that see
 * theirs. */
#include "cuda/kernels/chunked.cuh"

/* delta: a warp for a row. */
template <class T> static __global__ void __launch_bounds__(THREADS) row_deltas(const chunked a, const T *y)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, at = i / a.heads;
    const int h = (int)(i % a.heads);
    float sum = 0;
    if (at >= (int64_t)a.batch * a.c.rows)
        return;
    for (int d = threadIdx.x & 31; d < a.dim; d += 32)
        sum += to_float(y[i * a.dim + d]) * to_float(((const T *)a.dy)[i * a.dim + d]);
    sum = warp_sum(sum);
    const int64_t b = at / a.c.rows, t = at % a.c.rows;
    if ((threadIdx.x & 31) == 0)
        a.delta[(b * a.heads + h) * a.c.rows + t] = sum;
}

/* Statistics for the weights of a query; for a padding row all weights are 0. */
struct query_numbers {
    float top, log_sum, delta;
    int row;
};
static __device__ __forceinline__ query_numbers numbers_of(const chunked &a, const chunk_tile &x, int row)
{
    const int64_t at = x.head * a.c.rows + max(row, 0);
    if (row < 0)
        return query_numbers{0, INFINITY, 0, -1};
    return query_numbers{a.lse[2 * at], a.lse[2 * at + 1], a.delta[at], row};
}

/* The weight of a score and, from the product of dy and v, the score's gradient; kept: the factor of
 * dropout. */
struct slope {
    float weight, gradient;
};
static __device__ __forceinline__ slope slope_of(const chunked &a, const query_numbers &q, int key,
                                                 float product, float dp, float kept)
{
    bool live;
    const float score = score_of(a, q.row, key, product, &live);
    const float p = q.row < 0 || key < 0 ? 0 : exponential(score - q.top - q.log_sum);
    return slope{p * kept, live ? p * (dp * kept - q.delta) : 0};
}

/* ---- by matrix instructions ------------------------------------------------------------------ */

template <class T, int D>
static __device__ __forceinline__ void fetch_pair(const chunked &a, const chunk_tile &x, const void *one,
                                                  const void *two, int g, int i0, T *to)
{
    fetch_slots<T, D>(a, x, one, g, i0, to);
    fetch_slots<T, D>(a, x, two, g, i0, to + SLOTS * (D + 8));
    copy_commit();
}

/* A tile of queries: dq. */
template <class T, int D> static __global__ void __launch_bounds__(THREADS) queries_mma(const chunked a)
{
    enum { SIZE = SLOTS * (D + 8), NT = SLOTS / 8 };
    BY_SHARED(
        T, queries); /* q, dy, then two stages of k and v; then the rows of both stages and of the queries */
    T *stage = queries + 2 * SIZE;
    int *keys = (int *)(stage + 4 * SIZE), *rows = keys + 2 * SLOTS;
    const chunk_tile x = tile_of(a, 1);
    const int warp = threadIdx.x / 32, row = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    const int all = a.c.seen * a.tiles;
    left_rows<T, D, 1, (D <= 64)> q, dy;
    float dq[1][D / 8][4];
    query_numbers mine[2];
    fetch_pair<T, D>(a, x, a.q, a.dy, x.g, x.t0, queries);
    if (threadIdx.x < SLOTS)
        rows[threadIdx.x] = row_at(a, x, x.g, x.t0 + threadIdx.x);
    for (int u = -1, turn = 1; u < all; u++, turn ^= 1) {
        if (u >= 0) {
            copy_wait<0>();
            __syncthreads();
        }
        if (u + 1 < all) {
            const int g = gr_chunks_seen(&a.c, x.g, (u + 1) / a.tiles), i0 = (u + 1) % a.tiles * SLOTS;
            fetch_pair<T, D>(a, x, a.k, a.v, g, i0, stage + (turn ^ 1) * 2 * SIZE);
            if (threadIdx.x < SLOTS)
                keys[(turn ^ 1) * SLOTS + threadIdx.x] = key_at(a, x, g, i0 + threadIdx.x);
        }
        if (u < 0)
            continue;
        if (u == 0) {
            q.take(queries + warp * 16 * (D + 8));
            dy.take(queries + SIZE + warp * 16 * (D + 8));
            for (int i = 0; i < 2; i++)
                mine[i] = numbers_of(a, x, rows[warp * 16 + row + 8 * i]);
            clear(dq);
        }
        const T *k = stage + turn * 2 * SIZE;
        float p[1][NT][4], dp[1][NT][4];
        uint32_t keep[4] = {~0u, ~0u, ~0u, ~0u}, packed[1][NT][2];
        clear(p);
        clear(dp);
        times_rows(p, q, k);
        times_rows(dp, dy, k + SIZE);
        if (a.dropout)
            kept_by_place(a, x.head, x.g, x.t0 + warp * 16, u / a.tiles * a.c.chunk + u % a.tiles * SLOTS,
                          keep);
        UNROLL
        for (int i = 0; i < NT * 4; i++) {
            const int key = keys[turn * SLOTS + i / 4 * 8 + 2 * c + i % 2];
            const float kept = !a.dropout ? 1 : keep[i % 4] >> (i & ~3) & 1 ? a.dropping.factor : 0;
            p[0][i / 4][i % 4] =
                slope_of(a, mine[i / 2 % 2], key, p[0][i / 4][i % 4], dp[0][i / 4][i % 4], kept).gradient;
        }
        pack_product<T>(packed, p);
        times_columns<T, D>(dq, packed, k);
    }
    const float by[2] = {a.scale, a.scale}, one[2] = {1, 1};
    put_rows<T, D>(a, x, 0, rows + warp * 16, dq, one, one, by);
}

/* Products of 16 keys and 64 queries to weights after dropout, and those of v and dy to gradients of the
 * scores. */
static __device__ __forceinline__ void slopes_by_key(const chunked &a, const query_numbers *numbers,
                                                     const int *rows, const uint32_t (&keep)[2],
                                                     float (&p)[1][SLOTS / 8][4],
                                                     float (&dp)[1][SLOTS / 8][4])
{
    const int row = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    UNROLL
    for (int i = 0; i < SLOTS / 2; i++) {
        const query_numbers n = numbers[i / 4 * 8 + 2 * c + i % 2];
        const bool stays = keep[i / 2 % 2] >> ((i & ~3) + i % 2) & 1;
        const float kept = !a.dropout ? 1 : stays ? a.dropping.factor : 0;
        const slope s =
            slope_of(a, n, rows[row + i / 2 % 2 * 8], p[0][i / 4][i % 4], dp[0][i / 4][i % 4], kept);
        p[0][i / 4][i % 4] = s.weight;
        dp[0][i / 4][i % 4] = s.gradient;
    }
}

/* A tile of keys: dk and dv. Scores are transposed, (keys, queries). */
template <class T, int D> static __global__ void __launch_bounds__(THREADS) keys_mma(const chunked a)
{
    enum { SIZE = SLOTS * (D + 8), NT = SLOTS / 8 };
    BY_SHARED(
        T,
        /* k, v, then two stages of q and dy; then the numbers of both stages and the rows of the keys */
        keys);
    T *stage = keys + 2 * SIZE;
    query_numbers *numbers = (query_numbers *)(stage + 4 * SIZE);
    int *rows = (int *)(numbers + 2 * SLOTS);
    const chunk_tile x = tile_of(a, 1);
    const int warp = threadIdx.x / 32, all = a.c.seen * a.tiles;
    left_rows<T, D, 1, false> k, v;
    float dk[1][D / 8][4], dv[1][D / 8][4];
    k.take(keys + warp * 16 * (D + 8));
    v.take(keys + SIZE + warp * 16 * (D + 8));
    clear(dk);
    clear(dv);
    fetch_pair<T, D>(a, x, a.k, a.v, x.g, x.t0, keys);
    if (threadIdx.x < SLOTS)
        rows[threadIdx.x] = key_at(a, x, x.g, x.t0 + threadIdx.x);
    for (int u = -1, turn = 1; u < all; u++, turn ^= 1) {
        if (u >= 0) {
            copy_wait<0>();
            __syncthreads();
        }
        if (u + 1 < all) {
            const int g = gr_chunks_seeing(&a.c, x.g, (u + 1) / a.tiles), i0 = (u + 1) % a.tiles * SLOTS;
            fetch_pair<T, D>(a, x, a.q, a.dy, g, i0, stage + (turn ^ 1) * 2 * SIZE);
            if (threadIdx.x < SLOTS)
                numbers[(turn ^ 1) * SLOTS + threadIdx.x] =
                    numbers_of(a, x, row_at(a, x, g, i0 + threadIdx.x));
        }
        if (u < 0)
            continue;
        const T *q = stage + turn * 2 * SIZE;
        const int g = gr_chunks_seeing(&a.c, x.g, u / a.tiles);
        float p[1][NT][4], dp[1][NT][4];
        uint32_t keep[2] = {~0u, ~0u}, packed[1][NT][2];
        clear(p);
        clear(dp);
        times_rows(p, k, q);
        times_rows(dp, v, q + SIZE);
        if (a.dropout)
            kept_by_column(a, x.head, g, u % a.tiles * SLOTS, u / a.tiles * a.c.chunk + x.t0 + warp * 16,
                           keep);
        slopes_by_key(a, numbers + turn * SLOTS, rows + warp * 16, keep, p, dp);
        pack_product<T>(packed, p);
        times_columns<T, D>(dv, packed, q + SIZE);
        pack_product<T>(packed, dp);
        times_columns<T, D>(dk, packed, q);
    }
    const float by[2] = {a.scale, a.scale}, one[2] = {1, 1};
    put_rows<T, D>(a, x, 1, rows + warp * 16, dk, one, one, by);
    put_rows<T, D>(a, x, 2, rows + warp * 16, dv, one, one, one);
}

template <class T, int D> static by_status launch_mma(cuda_exec *x, const chunked &a)
{
    const size_t rows = 6 * SLOTS * (D + 8) * sizeof(T);
    return each_round(a, [&](const chunked &now) {
        BY_TRY(cuda_launch(x, queries_mma<T, D>, chunked_grid(now, 1), dim3(THREADS),
                           rows + 3 * SLOTS * sizeof(int), now));
        return cuda_launch(x, keys_mma<T, D>, chunked_grid(now, 1), dim3(THREADS),
                           rows + 2 * SLOTS * sizeof(query_numbers) + SLOTS * sizeof(int), now);
    });
}

template <class T> static by_status backward_tiles(cuda_exec *x, const chunked &a)
{
    return a.dim <= 32   ? launch_mma<T, 32>(x, a)
           : a.dim <= 64 ? launch_mma<T, 64>(x, a)
                         : launch_mma<T, 128>(x, a);
}

/* ---- plain tiles ----------------------------------------------------------------------------- */

/* s: weights after dropout; ds: gradients of the scores; of queries[] and keys[], columns from `column`. */
template <class T>
static __device__ __forceinline__ void slopes_plain(const chunked &a, const chunk_tile &x,
                                                    const query_numbers *numbers, const int *queries,
                                                    const int *keys, int g, int place, int column,
                                                    float *space, float (&s)[4][4], float (&ds)[4][4])
{
    dots_of_rows<T>(a, x, a.q, queries, a.k, keys, space, s);
    dots_of_rows<T>(a, x, a.dy, queries, a.v, keys, space, ds);
    for (int j = 0; j < 4; j++) {
        uint32_t keep = 15;
        if (a.dropout)
            keep = kept4(a, x.head, g, place + 4 * THREAD_Y, column + THREAD_X + 16 * j);
        for (int i = 0; i < 4; i++) {
            const float kept = !a.dropout ? 1 : keep >> i & 1 ? a.dropping.factor : 0;
            const slope p =
                slope_of(a, numbers[4 * THREAD_Y + i], keys[THREAD_X + 16 * j], s[i][j], ds[i][j], kept);
            s[i][j] = p.weight;
            ds[i][j] = p.gradient;
        }
    }
}

struct plain_space {
    float *squares, *weights;
    query_numbers *numbers;
    int *queries, *keys;
};
enum { PLAIN_BYTES = 3 * SQUARE * 4 + SLOTS * (int)sizeof(query_numbers) + 2 * SLOTS * 4 };

static __device__ __forceinline__ plain_space plain_space_of(float *space)
{
    plain_space w;
    w.squares = space;
    w.weights = space + 2 * SQUARE;
    w.numbers = (query_numbers *)(w.weights + SQUARE);
    w.queries = (int *)(w.numbers + SLOTS);
    w.keys = w.queries + SLOTS;
    return w;
}

static __device__ __forceinline__ void note_queries(const chunked &a, const chunk_tile &x, int g, int i0,
                                                    const plain_space &w)
{
    if (threadIdx.x < SLOTS) {
        w.queries[threadIdx.x] = row_at(a, x, g, i0 + threadIdx.x);
        w.numbers[threadIdx.x] = numbers_of(a, x, w.queries[threadIdx.x]);
    }
}

template <class T> static __global__ void __launch_bounds__(PLAIN_THREADS) queries_plain(const chunked a)
{
    BY_SHARED(float, space);
    const plain_space w = plain_space_of(space);
    const chunk_tile x = tile_of(a, a.parts);
    float s[4][4], ds[4][4], dq[4][4] = {};
    note_queries(a, x, x.g, x.t0, w);
    for (int u = 0; u < a.c.seen * a.tiles; u++) {
        const int g = gr_chunks_seen(&a.c, x.g, u / a.tiles), i0 = u % a.tiles * SLOTS;
        __syncthreads();
        if (threadIdx.x < SLOTS)
            w.keys[threadIdx.x] = key_at(a, x, g, i0 + threadIdx.x);
        __syncthreads();
        slopes_plain<T>(a, x, w.numbers, w.queries, w.keys, x.g, x.t0, u / a.tiles * a.c.chunk + i0,
                        w.squares, s, ds);
        __syncthreads();
        put_square(w.weights, ds);
        fetch_square_rows<T>(a, x, a.k, w.keys, x.part * SIDE, w.squares);
        __syncthreads();
        add_sums(dq, w.weights, w.squares);
    }
    const float one[4] = {1, 1, 1, 1}, by[4] = {a.scale, a.scale, a.scale, a.scale};
    put_square_rows<T>(a, x, 0, w.queries, dq, one, one, by);
}

template <class T> static __global__ void __launch_bounds__(PLAIN_THREADS) keys_plain(const chunked a)
{
    BY_SHARED(float, space);
    const plain_space w = plain_space_of(space);
    const chunk_tile x = tile_of(a, a.parts);
    float s[4][4], ds[4][4], dk[4][4] = {}, dv[4][4] = {};
    if (threadIdx.x < SLOTS)
        w.keys[threadIdx.x] = key_at(a, x, x.g, x.t0 + threadIdx.x);
    for (int u = 0; u < a.c.seen * a.tiles; u++) {
        const int g = gr_chunks_seeing(&a.c, x.g, u / a.tiles), i0 = u % a.tiles * SLOTS;
        __syncthreads();
        note_queries(a, x, g, i0, w);
        __syncthreads();
        slopes_plain<T>(a, x, w.numbers, w.queries, w.keys, g, i0, u / a.tiles * a.c.chunk + x.t0, w.squares,
                        s, ds);
        __syncthreads();
        put_square(w.weights, s);
        fetch_square_rows<T>(a, x, a.dy, w.queries, x.part * SIDE, w.squares);
        __syncthreads();
        add_sums_turned(dv, w.weights, w.squares);
        __syncthreads();
        put_square(w.weights, ds);
        fetch_square_rows<T>(a, x, a.q, w.queries, x.part * SIDE, w.squares);
        __syncthreads();
        add_sums_turned(dk, w.weights, w.squares);
    }
    const float one[4] = {1, 1, 1, 1}, by[4] = {a.scale, a.scale, a.scale, a.scale};
    put_square_rows<T>(a, x, 1, w.keys, dk, one, one, by);
    put_square_rows<T>(a, x, 2, w.keys, dv, one, one, one);
}

template <class T> static by_status backward_squares(cuda_exec *x, const chunked &a)
{
    return each_round(a, [&](const chunked &now) {
        const dim3 grid = chunked_grid(now, now.parts);
        BY_TRY(cuda_launch(x, queries_plain<T>, grid, dim3(PLAIN_THREADS), (size_t)PLAIN_BYTES, now));
        return cuda_launch(x, keys_plain<T>, grid, dim3(PLAIN_THREADS), (size_t)PLAIN_BYTES, now);
    });
}

/* ---- host ------------------------------------------------------------------------------------ */

static by_status squares_of(cuda_exec *x, const chunked &a, by_dtype type)
{
    BY_CUDA_DISPATCH(type, backward_squares, x, a);
}

template <class T> static by_status deltas(cuda_exec *x, const chunked &a, const by_tensor *y)
{
    const unsigned blocks = blocks_for((int64_t)a.batch * a.c.rows * a.heads, WARPS);
    return cuda_launch(x, row_deltas<T>, dim3(blocks), dim3(THREADS), 0, a, (const T *)y->data);
}

static by_status all_deltas(cuda_exec *x, const chunked &a, const by_tensor *y)
{
    BY_CUDA_DISPATCH(y->type, deltas, x, a, y);
}

extern "C" by_status cuda_chunked_attention_grad(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const by_dtype type = n->in[0]->type;
    chunked a = chunked_of(x, n);
    const int64_t rows = (int64_t)a.batch * a.heads * a.c.rows, all = chunked_elements(a);
    const int64_t kept = a.c.total > a.c.chunks ? 3 * all : 0;
    size_t unwanted = 0;
    for (int i = 0; i < 3; i++)
        unwanted += n->out[i] ? 0 : gr_tensor_bytes(n->in[i]);
    chunked_branches(a);
    float *space = (float *)cuda_scratch(x, (size_t)(rows + kept) * sizeof(float) + unwanted);
    char *spare = (char *)(space + rows + kept);
    a.delta = space;
    a.lse = (float *)n->in[GR_CHUNKED_LSE]->data;
    a.dy = n->in[GR_CHUNKED_DY]->data;
    for (int i = 0; i < 3; i++) {
        a.sums[i] = space + rows + i * all;
        a.out[i] = n->out[i] ? n->out[i]->data : spare;
        spare += n->out[i] ? 0 : gr_tensor_bytes(n->in[i]);
    }
    BY_TRY(all_deltas(x, a, n->in[GR_CHUNKED_Y]));
    if (!chunked_fits_mma(a, type)) {
        BY_BRANCH("chunks, plain tiles");
        return squares_of(x, a, type);
    }
    BY_BRANCH("chunks, tiles");
    return type == BY_F16 ? backward_tiles<f16>(x, a) : backward_tiles<bf16>(x, a);
}
