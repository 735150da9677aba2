/* reduce.cu - sums over an axis and their gradient, and the largest element of a row. The shape and the
 * device alone determine how sums are split into pieces, and the sums of the pieces are added in order, so
 * every run gives the same bits. */
#include "cuda/kernels/columns.cuh"
#include "cuda/kernels/last.cuh"
#include "cuda/kernels/rank.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, UNROLL = 4 };

/* sum[k] += in[0].at[k] + in[1].at[k] ... */
template <class T, int V> static __device__ __forceinline__ void add_each(float *sum, const vec<T, V> *in)
{
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        BY_UNROLL
        for (int k = 0; k < V; k++)
            sum[k] += to_float(in[u].at[k]);
    }
}

/* Number of pieces into which each of `rows` rows of `count` elements is split, to keep the device busy. */
static int64_t parts_of(const cuda_context *c, int64_t rows, int64_t count, int64_t least)
{
    const int64_t wanted = rows ? 8 * (int64_t)c->sms / rows : 1, possible = count / least;
    const int64_t parts = wanted < possible ? wanted : possible;
    return parts < 1 ? 1 : parts > 1024 ? 1024 : parts;
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

enum { SHORT_ROW = 1024, ROW_CHUNK = 4096 }; /* longest row of a warp; shortest chunk worth a block */

/* y[row * parts + part] = scale times the sum of elements [part * chunk, (part + 1) * chunk) of x (rows,
 * count), by GROUP threads: a warp or a block. */
template <class T, class Y, int V, int GROUP>
static __global__ void __launch_bounds__(THREADS)
    row_sums(Y *y, const T *x, int64_t count, int64_t parts, int64_t chunk, float scale, int64_t sums)
{
    __shared__ float space[32];
    const int in_group = threadIdx.x % GROUP;
    const int64_t at = (int64_t)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    if (at >= sums)
        return;
    int64_t part;
    const T *row = x + divide(at, parts, &part) * count;
    const int64_t end = min(count, (part + 1) * chunk);
    float sum[V] = {};
    for (int64_t from = part * chunk + in_group * V; from < end; from += UNROLL * GROUP * V) {
        vec<T, V> in[UNROLL];
        BY_UNROLL
        for (int u = 0; u < UNROLL; u++)
            in[u] = load_some<T, V>(row, from + u * GROUP * V, end);
        add_each<T, V>(sum, in);
    }
    float mine = 0;
    BY_UNROLL
    for (int k = 0; k < V; k++)
        mine += sum[k];
    const float total = GROUP == 32 ? warp_sum(mine) : block_sum(mine, space);
    if (in_group == 0)
        y[at] = from_float<Y>(total * scale);
}

template <class T, class Y>
static by_status sum_rows(cuda_exec *x, Y *y, const T *from, int64_t rows, int64_t count, int64_t parts,
                          int64_t chunk, float scale)
{
    enum { V = wide<T>::N };
    const bool cuda_vectors = rows == 1 || count % V == 0, cuda_warps = parts == 1 && count <= SHORT_ROW;
    const int64_t sums = rows * parts;
    void (*kernel)(Y *, const T *, int64_t, int64_t, int64_t, float, int64_t) =
        cuda_warps ? (cuda_vectors ? row_sums<T, Y, V, 32> : row_sums<T, Y, 1, 32>)
                   : (cuda_vectors ? row_sums<T, Y, V, THREADS> : row_sums<T, Y, 1, THREADS>);
    return cuda_launch(x, kernel, blocks_for(sums, cuda_warps ? WARPS : 1), THREADS, 0, y, from, count, parts,
                       chunk, scale, sums);
}

template <class T, class Y> static by_status reduce_rows(cuda_exec *x, gr_node *n, int64_t parts)
{
    const gr_reduce_attr *a = (const gr_reduce_attr *)n->attr;
    const int64_t chunk = ((a->count + parts - 1) / parts + 63) / 64 * 64;
    const T *from = (const T *)n->in[0]->data;
    Y *y = (Y *)n->out[0]->data;
    if (parts == 1)
        return sum_rows<T, Y>(x, y, from, a->outer, a->count, 1, a->count, (float)a->scale);
    float *sums = (float *)cuda_scratch(x, (size_t)(a->outer * parts) * sizeof *sums);
    BY_TRY((sum_rows<T, float>(x, sums, from, a->outer, a->count, parts, chunk, 1.0f)));
    return sum_rows<float, Y>(x, y, sums, a->outer, parts, 1, parts, (float)a->scale);
}

/* ---- reduce ---------------------------------------------------------------------------------- */

static int64_t row_parts(const cuda_context *c, const gr_reduce_attr *a)
{
    const int64_t parts = parts_of(c, a->outer, a->count, ROW_CHUNK);
    if (parts > 1)
        BY_BRANCH("reduce, rows in parts");
    else if (a->count <= SHORT_ROW)
        BY_BRANCH("reduce, short rows");
    else
        BY_BRANCH("reduce, rows");
    return parts;
}

static columns column_plan(const cuda_context *c, const gr_node *n, const gr_reduce_attr *a)
{
    const columns s = columns_of(c, n->in[0]->type, a->outer, a->count, a->inner, a->inner);
    if (s.parts > 1)
        BY_BRANCH("reduce, columns in parts");
    else
        BY_BRANCH("reduce, columns");
    if (s.cuda_vectors)
        BY_BRANCH("reduce, columns by vectors");
    else
        BY_BRANCH("reduce, columns by elements");
    return s;
}

template <class T, class Y> static by_status reduce_columns(cuda_exec *x, gr_node *n, const columns &s)
{
    const float scale = (float)((const gr_reduce_attr *)n->attr)->scale;
    return sum_columns<32>(x, (Y *)n->out[0]->data, (const T *)n->in[0]->data, s, scale, false);
}

/* y has the type of x, or f32. */
template <class T> static by_status reduce(cuda_exec *x, gr_node *n)
{
    const gr_reduce_attr *a = (const gr_reduce_attr *)n->attr;
    const bool to_f32 = n->out[0]->type == BY_F32;
    if (a->outer == 0 || a->inner == 0)
        return BY_OK;
    if (a->inner == 1) {
        const int64_t parts = row_parts(x->cuda, a);
        return to_f32 ? reduce_rows<T, float>(x, n, parts) : reduce_rows<T, T>(x, n, parts);
    }
    const columns s = column_plan(x->cuda, n, a);
    return to_f32 ? reduce_columns<T, float>(x, n, s) : reduce_columns<T, T>(x, n, s);
}

extern "C" by_status cuda_reduce(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[0]->type, reduce, cuda_exec_of(e), n)
}

/* ---- broadcast ------------------------------------------------------------------------------- */

/* y (outer, count, inner) from x (outer, inner); a thread writes V adjacent elements and tracks their
 * indices. */
template <class T, class X>
static __global__ void __launch_bounds__(THREADS)
    repeat(T *y, const X *x, int64_t count, int64_t inner, float scale, int64_t total)
{
    enum { V = wide<T>::N };
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    int64_t i, c;
    if (at >= total)
        return;
    int64_t o = divide(divide(at, inner, &i), count, &c);
    float v[V] = {};
    for (int k = 0; k < V && at + k < total; k++) {
        v[k] = to_float(x[o * inner + i]) * scale;
        if (++i == inner) {
            i = 0;
            if (++c == count) {
                c = 0;
                o++;
            }
        }
    }
    store_some<T, V>(y, at, total, packed<T, V>(v));
}

template <class T, class X> static by_status broadcast_from(cuda_exec *x, gr_node *n)
{
    const gr_reduce_attr *a = (const gr_reduce_attr *)n->attr;
    const int64_t total = a->outer * a->count * a->inner;
    return cuda_launch(x, repeat<T, X>, blocks_for(total, THREADS * wide<T>::N), THREADS, 0,
                       (T *)n->out[0]->data, (const X *)n->in[0]->data, a->count, a->inner, (float)a->scale,
                       total);
}

/* x has the type of y, or f32. */
template <class T> static by_status broadcast(cuda_exec *x, gr_node *n)
{
    return n->in[0]->type == BY_F32 ? broadcast_from<T, float>(x, n) : broadcast_from<T, T>(x, n);
}

extern "C" by_status cuda_broadcast(gr_exec *e, gr_node *n)
{
    BY_BRANCH("broadcast");
    BY_CUDA_DISPATCH(n->out[0]->type, broadcast, cuda_exec_of(e), n)
}

/* ---- argmax ---------------------------------------------------------------------------------- */

enum { ARGMAX_CHUNK = 512 }; /* minimum elements of a row per block */

static __device__ __forceinline__ uint64_t block_most(uint64_t most)
{
    __shared__ uint64_t space[WARPS];
    for (int step = 16; step > 0; step /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    if ((threadIdx.x & 31) == 0)
        space[threadIdx.x >> 5] = most;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        most = max(most, space[w]);
    return most;
}

/* The largest element of a piece of a row of x (rows, cols). Rows of any length are unaligned; whole words
 * are read if all of a word belongs to the piece. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    largest(int32_t *y, uint64_t *partial, const T *x, int64_t cols, int64_t pitch, int64_t parts,
            int64_t chunk, int *arrived)
{
    enum { V = wide<T>::N };
    int64_t part;
    const int64_t row = divide(blockIdx.x, parts, &part), start = row * pitch;
    const int64_t begin = start + part * chunk, end = start + min(cols, (part + 1) * chunk);
    uint64_t most = 0;
    let_next_start();
    wait_for_previous();
    for (int64_t at = begin / V * V + threadIdx.x * V; at < end; at += THREADS * V) {
        vec<T, V> in = {};
        if (at >= begin && at + V <= end)
            in = load<T, V>(x + at);
        else
            for (int k = 0; k < V; k++)
                if (at + k >= begin && at + k < end)
                    in.at[k] = x[at + k];
        BY_UNROLL
        for (int k = 0; k < V; k++)
            if (at + k >= begin && at + k < end)
                most = max(most, rank_of(to_float(in.at[k]), at + k - start));
    }
    most = block_most(most);
    if (parts > 1) {
        if (threadIdx.x == 0)
            partial[blockIdx.x] = most;
        if (!is_last(arrived + row, (int)parts))
            return;
        most = 0;
        for (int64_t p = threadIdx.x; p < parts; p += THREADS)
            most = max(most, __ldcg(partial + row * parts + p));
        most = block_most(most);
    }
    if (threadIdx.x == 0)
        y[row] = place_of(most);
}

template <class T> static by_status argmax(cuda_exec *x, gr_node *n, int64_t rows, int64_t parts)
{
    const int64_t cols = gr_tensor_cols(n->in[0]);
    const int64_t chunk = ((cols + parts - 1) / parts + 7) / 8 * 8;
    int32_t *y = (int32_t *)n->out[0]->data;
    uint64_t *partial = NULL;
    if (parts > 1)
        partial = (uint64_t *)cuda_scratch(x, (size_t)(rows * parts) * sizeof *partial);
    return cuda_launch_early(x, largest<T>, (unsigned)(rows * parts), THREADS, 0, y, partial,
                             (const T *)n->in[0]->data, cols, gr_tensor_pitch(n->in[0]), parts, chunk,
                             x->cuda->counters);
}

extern "C" by_status cuda_argmax(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const int64_t rows = gr_tensor_rows(n->in[0]);
    if (rows == 0)
        return BY_OK;
    int64_t parts = parts_of(x->cuda, rows, gr_tensor_cols(n->in[0]), ARGMAX_CHUNK);
    if (rows > BY_CUDA_COUNTERS)
        parts = 1;
    if (parts > 1)
        BY_BRANCH("argmax, rows in parts");
    else
        BY_BRANCH("argmax, whole rows");
    BY_CUDA_DISPATCH(n->in[0]->type, argmax, x, n, rows, parts)
}
