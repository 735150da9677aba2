/* gather.cu - gathers rows of a table by index, and scatters gradients back into the table.
 *
 * The sum must have the same bits every time, so the positions are first sorted by index, equal ones in their
 * original order, and each row of the table then adds its positions in that order: runs of CHUNK positions
 * are summed at once, then CHUNK sums of those, then these and the remainder, so that no index, however
 * frequent, delays the rest. */
#include "cuda/kernels/each.cuh"
#include "cuda/kernels/sort.cuh"
#include "cuda/kernels/stored.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, UNROLL = 4 };

static int64_t batches_of(const gr_node *n)
{
    return BY_MAX(((const gr_gather_attr *)n->attr)->batch, (int64_t)1);
}

/* ---- gather: elements are only bytes here ---------------------------------------------------- */

/* y (count, length) words from table (rows, length). A bad index is reported and reads row 0. BATCHED: `per` ids
 * belong to one table of `rows` rows. */
template <class W, bool BATCHED>
static __global__ void __launch_bounds__(THREADS)
    gather_rows(W *y, const W *table, const int32_t *ids, int64_t rows, int64_t per, int64_t length,
                int64_t total, cuda_fault *fault, int node)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL
    +threadIdx.x;
    W word[UNROLL];
    let_next_start();
    wait_for_previous();
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * THREADS;
        if (i >= total)
            continue;
        int64_t at, place = divide(i, length, &at), id = ids[place];
        if (id < 0 || id >= rows) {
            if (at == 0)
                report_fault(fault, node, 1, (int)id, place, rows);
            id = 0;
        }
        if (BATCHED) {
            int64_t in_batch;
            id += divide(place, per, &in_batch) * rows;
        }
        word[u] = table[id * length + at];
    }
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < total)
            y[first + u * THREADS] = word[u];
}

template <class W> static by_status gather(cuda_exec *x, gr_node *n, int64_t length)
{
    const int64_t total = elements_of(n->in[1]) * length, batch = batches_of(n);
    if (batch > 1)
        BY_BRANCH("gather, batched");
    return cuda_launch_early(x, batch > 1 ? gather_rows<W, true> : gather_rows<W, false>,
                             blocks_for(total, THREADS * UNROLL), THREADS, 0, (W *)n->out[0]->data,
                             (const W *)n->in[0]->data, (const int32_t *)n->in[1]->data,
                             gr_tensor_rows(n->in[0]) / batch, elements_of(n->in[1]) / batch, length, total,
                             x->cuda->device_fault, cuda_number(x, n));
}

/* ---- gather from a table of another type ------------------------------------------------------- */

/* A block takes one row, a thread four neighbours at a time. */
template <class T, by_dtype S>
static __global__ void __launch_bounds__(THREADS)
    gather_stored(T *y, const void *table, const int32_t *ids, int64_t rows, int64_t cols, cuda_fault *fault,
                  int node)
{
    const int64_t place = blockIdx.x;
    int64_t id = ids[place];
    if (id < 0 || id >= rows) {
        if (threadIdx.x == 0)
            report_fault(fault, node, 1, (int)id, place, rows);
        id = 0;
    }
    for (int64_t c = threadIdx.x * 4; c < cols; c += THREADS * 4) {
        const vec<float, 4> v = stored4<S>(table, id * cols + c);
        for (int k = 0; k < 4; k++)
            y[place * cols + c + k] = from_float<T>(v.at[k]);
    }
}

template <class T, by_dtype S> static by_status stored_rows(cuda_exec *x, gr_node *n)
{
    return cuda_launch(x, gather_stored<T, S>, dim3((unsigned)elements_of(n->in[1])), dim3(THREADS), 0,
                       (T *)n->out[0]->data, (const void *)n->in[0]->data, (const int32_t *)n->in[1]->data,
                       gr_tensor_rows(n->in[0]), gr_tensor_cols(n->in[0]), x->cuda->device_fault,
                       cuda_number(x, n));
}

extern "C" by_status cuda_gather(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    if (n->in[0]->type != n->out[0]->type) {
        BY_BRANCH("gather, from a table of another type");
        if (gr_tensor_cols(n->in[0]) % 4 != 0)
            return base_fail(BY_ERR_UNSUPPORTED, "gather: the GPU reads tables of %s in rows of whole fours",
                             by_dtype_name(n->in[0]->type));
        CUDA_STORED_DISPATCH(n->in[0]->type, n->out[0]->type, stored_rows, x, n);
    }
    const int64_t bytes = gr_tensor_cols(n->in[0]) * (int64_t)by_dtype_size(n->in[0]->type);
    if (bytes % 16 == 0) {
        BY_BRANCH("gather, rows of 16-byte words");
        return gather<uint4>(x, n, bytes / 16);
    }
    if (bytes % 4 == 0) {
        BY_BRANCH("gather, rows of 4-byte words");
        return gather<uint32_t>(x, n, bytes / 4);
    }
    BY_BRANCH("gather, other rows");
    if (bytes % 2 == 0)
        return gather<uint16_t>(x, n, bytes / 2);
    return gather<uint8_t>(x, n, bytes);
}

/* ---- the sums -------------------------------------------------------------------------------- */

enum { CHUNK = 32, GROUPS = 2, SLICE = GROUPS * 128 }; /* columns of a warp; 4 adjacent ones in each group */

/* A lane's columns of a slice: with WIDE 4 adjacent ones at a time, otherwise 32 apart. */
template <class T> struct slice {
    vec<T, 4> group[GROUPS];
};

/* `left` columns of the row remain, counted from the first of the slice. */
template <class T, bool WIDE>
static __device__ __forceinline__ slice<T> load_slice(const T *row, int lane, int left)
{
    slice<T> x = {};
    BY_UNROLL
    for (int g = 0; g < GROUPS; g++) {
        const int c = g * 128 + (WIDE ? lane * 4 : lane);
        if (WIDE && c < left)
            x.group[g] = load<T, 4>(row + c);
        BY_UNROLL
        for (int k = 0; !WIDE && k < 4; k++)
            if (c + k * 32 < left)
                x.group[g].at[k] = row[c + k * 32];
    }
    return x;
}

template <bool WIDE>
static __device__ __forceinline__ void store_slice(float *row, const slice<float> &x, int lane, int left)
{
    BY_UNROLL
    for (int g = 0; g < GROUPS; g++) {
        const int c = g * 128 + (WIDE ? lane * 4 : lane);
        if (WIDE && c < left) {
            const float *v = x.group[g].at;
            __stcg((float4 *)(row + c), float4{v[0], v[1], v[2], v[3]});
        }
        BY_UNROLL
        for (int k = 0; !WIDE && k < 4; k++)
            if (c + k * 32 < left)
                row[c + k * 32] = x.group[g].at[k];
    }
}

template <class T> static __device__ __forceinline__ void add_slice(slice<float> *sum, const slice<T> &x)
{
    BY_UNROLL
    for (int g = 0; g < GROUPS; g++) {
        BY_UNROLL
        for (int k = 0; k < 4; k++)
            sum->group[g].at[k] += to_float(x.group[g].at[k]);
    }
}

/* sum += x[place[i]] over i in [from, to) in order, DEPTH rows in flight; place NULL: x[i] itself. */
template <int DEPTH, class T, bool WIDE>
static __device__ __forceinline__ void add_rows(slice<float> *sum, const T *x, const int32_t *place, int from,
                                                int to, int64_t cols, int lane, int left)
{
    BY_NO_UNROLL
    for (int i = from; i < to; i += DEPTH) {
        slice<T> row[DEPTH];
        int at[DEPTH];
        BY_UNROLL
        for (int u = 0; u < DEPTH; u++)
            at[u] = place ? place[min(i + u, to - 1)] : i + u;
        BY_UNROLL
        for (int u = 0; u < DEPTH; u++)
            row[u] = load_slice<T, WIDE>(x + at[u] * cols, lane, i + u < to ? left : 0);
        BY_UNROLL
        for (int u = 0; u < DEPTH; u++)
            add_slice(sum, row[u]);
    }
}

/* Arguments of the kernels below. */
struct sums {
    cuda_sorted order;
    int32_t *of;     /* (slots): the row of the table that a chunk belongs to, -1: no chunk */
    float *chunks;   /* (slots, cols) */
    float *clusters; /* (slots / CHUNK, cols): sums of CHUNK chunks */
    int32_t slots, cols, slices;
    int64_t still; /* the row that gets no gradient, -1: none */
};

/* A run [s, e) of sorted positions has (e - s) / CHUNK whole chunks, and chunk c has slot s / CHUNK + c: the
 * slots of different runs are disjoint. So slots [first, end) belong to a run. */
static __device__ __forceinline__ void slots_of(const sums &w, int id, int *first, int *end)
{
    const int s = w.order.bounds[2 * id], e = w.order.bounds[2 * id + 1];
    *first = s / CHUNK;
    *end = *first + (e - s) / CHUNK;
}

/* The sum of the chunk of each slot. A warp checks whether one starts at one of the CHUNK possible positions,
 * one per lane. */
template <class T, bool WIDE>
static __global__ void __launch_bounds__(THREADS) sum_chunks(sums w, const T *dy)
{
    const int lane = threadIdx.x & 31;
    int64_t part;
    const int64_t slot = divide((int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5), w.slices, &part);
    if (slot >= w.slots)
        return;
    const int i = (int)slot * CHUNK + lane, id = w.order.id[i];
    const int s = w.order.bounds[2 * id], e = w.order.bounds[2 * id + 1];
    const uint32_t found = __ballot_sync(0xffffffffu, (i - s) % CHUNK == 0 && i + CHUNK <= e);
    const int at = __ffs((int)found) - 1, owner = __shfl_sync(0xffffffffu, id, at < 0 ? 0 : at);
    if (lane == 0 && part == 0)
        w.of[slot] = at < 0 ? -1 : owner;
    if (at < 0)
        return;
    const int from = (int)part * SLICE, left = w.cols - from, first = (int)slot * CHUNK + at;
    slice<float> sum = {};
    add_rows<WIDE ? 8 : 4, T, WIDE>(&sum, dy + from, w.order.place, first, first + CHUNK, w.cols, lane, left);
    store_slice<WIDE>(w.chunks + slot * w.cols + from, sum, lane, left);
}

/* The same at the next level: slots [first, end) of a run have (end - first) / CHUNK whole clusters of CHUNK
 * chunks, with their own slots from first / CHUNK on. */
template <bool WIDE> static __global__ void __launch_bounds__(THREADS) sum_clusters(sums w)
{
    const int lane = threadIdx.x & 31;
    int64_t part;
    const int64_t slot = divide((int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5), w.slices, &part);
    if (slot >= w.slots / CHUNK)
        return;
    const int i = (int)slot * CHUNK + lane, id = w.of[i];
    int first = 0, end = 0;
    if (id >= 0)
        slots_of(w, id, &first, &end);
    const uint32_t found = __ballot_sync(0xffffffffu, (i - first) % CHUNK == 0 && i + CHUNK <= end);
    if (found == 0)
        return;
    const int begin = (int)slot * CHUNK + __ffs((int)found) - 1, from = (int)part * SLICE;
    const int left = w.cols - from;
    slice<float> sum = {};
    add_rows<4, float, WIDE>(&sum, w.chunks + from, NULL, begin, begin + CHUNK, w.cols, lane, left);
    store_slice<WIDE>(w.clusters + slot * w.cols + from, sum, lane, left);
}

/* One warp for each slice of each row of the table: whole clusters, remaining chunks, remaining positions.
 * ADD: adds to the existing values, and leaves rows without positions unchanged. */
template <class T, bool WIDE, bool ADD>
static __global__ void __launch_bounds__(THREADS) sum_rows(sums w, float *dtable, const T *dy)
{
    const int lane = threadIdx.x & 31;
    int64_t part;
    const int64_t row = divide((int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5), w.slices, &part);
    if (row >= w.order.rows)
        return;
    const int s = w.order.bounds[2 * row], e = row == w.still ? s : w.order.bounds[2 * row + 1];
    if (ADD && s == e)
        return;
    const int from = (int)part * SLICE, left = w.cols - from;
    float *to = dtable + row * w.cols + from;
    slice<float> sum = {};
    if (e - s >= CHUNK) {
        int first, end;
        slots_of(w, (int)row, &first, &end);
        const int clusters = (end - first) / CHUNK, rest = first + clusters * CHUNK;
        add_rows<2, float, WIDE>(&sum, w.clusters + from, NULL, first / CHUNK, first / CHUNK + clusters,
                                 w.cols, lane, left);
        add_rows<2, float, WIDE>(&sum, w.chunks + from, NULL, rest, end, w.cols, lane, left);
    }
    add_rows<2, T, WIDE>(&sum, dy + from, w.order.place, e - (e - s) % CHUNK, e, w.cols, lane, left);
    if (ADD)
        add_slice(&sum, load_slice<float, WIDE>(to, lane, left));
    store_slice<WIDE>(to, sum, lane, left);
}

/* ---- gather_grad ----------------------------------------------------------------------------- */

template <class T, bool WIDE> static by_status add_up(cuda_exec *x, gr_node *n, const sums &w)
{
    const int64_t rows = w.order.rows, slices = w.slices, slots = w.slots;
    const T *dy = (const T *)n->in[1]->data;
    BY_TRY(cuda_launch(x, sum_chunks<T, WIDE>, blocks_for(slots * slices, WARPS), THREADS, 0, w, dy));
    BY_TRY(cuda_launch(x, sum_clusters<WIDE>, blocks_for(slots / CHUNK * slices, WARPS), THREADS, 0, w));
    return cuda_launch(x, n->in[2] ? sum_rows<T, WIDE, true> : sum_rows<T, WIDE, false>,
                       blocks_for(rows * slices, WARPS), THREADS, 0, w, (float *)n->out[0]->data, dy);
}

template <class T> static by_status gather_grad(cuda_exec *x, gr_node *n, const sums &w)
{
    return w.cols % 4 == 0 ? add_up<T, true>(x, n, w) : add_up<T, false>(x, n, w);
}

extern "C" by_status cuda_gather_grad(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const int64_t count = elements_of(n->in[0]), rows = gr_tensor_rows(n->out[0]);
    const int64_t cols = gr_tensor_cols(n->out[0]), slots = count / CHUNK;
    if (rows * cols == 0)
        return BY_OK;
    if (n->in[2])
        BY_BRANCH("gather_grad, added");
    else
        BY_BRANCH("gather_grad, from zero");
    if (cols % 4 == 0)
        BY_BRANCH("gather_grad, by vectors");
    else
        BY_BRANCH("gather_grad, by elements");
    /* working memory: that of the sort, chunks and clusters (at multiples of 16 bytes), rows of chunks */
    const size_t sort = cuda_sort_bytes(count, rows), row = (size_t)cols * sizeof(float);
    const size_t clusters = sort + (size_t)slots * row, of = clusters + (size_t)(slots / CHUNK) * row;
    char *scratch = (char *)cuda_scratch(x, of + (size_t)slots * sizeof(int32_t));
    sums w = {};
    w.of = (int32_t *)(scratch + of);
    w.chunks = (float *)(scratch + sort);
    w.clusters = (float *)(scratch + clusters);
    w.slots = (int32_t)slots;
    w.cols = (int32_t)cols;
    w.slices = (int32_t)blocks_for(cols, SLICE);
    w.still = ((const gr_gather_attr *)n->attr)->still;
    if (batches_of(n) > 1)
        BY_BRANCH("gather_grad, batched");
    BY_TRY(cuda_sort(x, n, 0, rows, batches_of(n), scratch, &w.order));
    BY_CUDA_DISPATCH(n->in[1]->type, gather_grad, x, n, w)
}
