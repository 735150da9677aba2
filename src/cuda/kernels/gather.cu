/* gather.cu - rows of a table by their index, and the sum of gradients back into the table.
 *
 * The sum must have the same bits every time, so the positions are first sorted by their index, equals in
 * their own order, and each row of the table then adds its positions in that order: runs of CHUNK positions
 * are summed at once, then CHUNK sums of those, then these and what is left over, so that no index, however
 * frequent, holds up the rest. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, UNROLL = 4 };

/* ---- gather: elements are only bytes here ---------------------------------------------------- */

/* y (count, length) words from table (rows, length). A bad index is reported and reads row 0. */
template <class W>
static __global__ void __launch_bounds__(THREADS)
    gather_rows(W *y, const W *table, const int32_t *ids, int64_t rows, int64_t length, int64_t total,
                by_cuda_fault *fault, int node)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    W word[UNROLL];
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
        word[u] = table[id * length + at];
    }
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < total)
            y[first + u * THREADS] = word[u];
}

template <class W> static by_status gather(by_cuda_exec *x, by_node *n, int64_t length)
{
    const int64_t total = elements_of(n->in[1]) * length;
    return by_launch(x, gather_rows<W>, blocks_for(total, THREADS * UNROLL), THREADS, 0, (W *)n->out[0]->data,
                     (const W *)n->in[0]->data, (const int32_t *)n->in[1]->data, by_tensor_rows(n->in[0]),
                     length, total, x->cuda->device_fault, n->index);
}

extern "C" by_status by_cuda_gather(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    const int64_t bytes = by_tensor_cols(n->in[0]) * (int64_t)by_dtype_size(n->in[0]->type);
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

/* ---- sorting the positions: by 8 bits of the index at a time, lowest first ------------------- */

enum { BITS = 8, DIGITS = 1 << BITS };

/* Index and position, in the order so far. Position i has index ids[i] at first. */
struct pairs {
    int32_t *id, *place;
};

/* A warp goes through `stretch` pairs in order. units: the warps there are. */
struct sorting {
    int32_t *counts; /* (DIGITS, units): how often a digit occurs in a stretch, then before it */
    int32_t *totals; /* (DIGITS) */
    int64_t count, stretch, units;
    int shift;
};

static __device__ __forceinline__ int digit_of(int32_t id, int shift)
{
    return (int)((uint32_t)id >> shift & (DIGITS - 1));
}

/* Look for bad indices, which go to row 0, count digits, and, the first time, clear the bounds of the rows.
 */
static __global__ void __launch_bounds__(THREADS)
    count_digits(pairs p, const int32_t *ids, int64_t rows, int32_t *bounds, sorting s, by_cuda_fault *fault,
                 int node)
{
    __shared__ int32_t counts[WARPS][DIGITS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t unit = (int64_t)blockIdx.x * WARPS + warp, first = unit * s.stretch;
    const int64_t end = min(first + s.stretch, s.count);
    for (int d = lane; d < DIGITS; d += 32)
        counts[warp][d] = 0;
    __syncwarp();
    for (int64_t i = first + lane; i < end; i += 32) {
        int32_t id = ids ? ids[i] : p.id[i];
        if (ids) {
            if (id < 0 || id >= rows) {
                report_fault(fault, node, 0, id, i, rows);
                id = 0;
            }
            p.id[i] = id;
            p.place[i] = (int32_t)i;
        }
        atomicAdd(&counts[warp][digit_of(id, s.shift)], 1);
    }
    __syncwarp();
    for (int d = lane; d < DIGITS && unit < s.units; d += 32)
        s.counts[d * s.units + unit] = counts[warp][d];
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; ids && i < 2 * rows;
         i += (int64_t)gridDim.x * THREADS)
        bounds[i] = 0;
}

/* The sum of x over the threads before this one, and over all of them. */
static __device__ __forceinline__ int32_t block_before(int32_t x, int32_t *space, int32_t *total)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t sum = x, before = 0;
    for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == 31)
        space[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? space[w] : 0;
        *total += space[w];
    }
    __syncthreads();
    return before + sum - x;
}

/* One block for each digit: counts become the number of times it occurred before. */
static __global__ void __launch_bounds__(THREADS) add_up_counts(sorting s)
{
    __shared__ int32_t space[WARPS];
    int32_t *counts = s.counts + blockIdx.x * s.units;
    int32_t before = 0, total;
    for (int64_t from = 0; from < s.units; from += THREADS) {
        const int64_t unit = from + threadIdx.x;
        const int32_t at = block_before(unit < s.units ? counts[unit] : 0, space, &total);
        if (unit < s.units)
            counts[unit] = before + at;
        before += total;
    }
    if (threadIdx.x == 0)
        s.totals[blockIdx.x] = before;
}

/* Lanes of the warp with the same digit; bit 8 sets those apart that have none. */
static __device__ __forceinline__ uint32_t same_digit(int digit)
{
    uint32_t same = 0xffffffffu;
    BY_UNROLL
    for (int b = 0; b <= BITS; b++) {
        const uint32_t set = __ballot_sync(0xffffffffu, digit >> b & 1);
        same &= digit >> b & 1 ? set : ~set;
    }
    return same;
}

/* Every pair to its place: after all with smaller digits, and after those before it with the same. */
static __global__ void __launch_bounds__(THREADS) place_pairs(pairs to, pairs from, sorting s)
{
    __shared__ int32_t next[WARPS][DIGITS], space[WARPS], start[DIGITS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t unit = (int64_t)blockIdx.x * WARPS + warp, first = unit * s.stretch;
    int32_t all;
    start[threadIdx.x] = block_before(s.totals[threadIdx.x], space, &all); /* THREADS is DIGITS */
    __syncthreads();
    for (int d = lane; d < DIGITS && unit < s.units; d += 32)
        next[warp][d] = start[d] + s.counts[d * s.units + unit];
    __syncwarp();
    for (int64_t at = first; at < min(first + s.stretch, s.count); at += 32) { /* stretch: 32s */
        const int64_t i = at + lane;
        const bool real = i < s.count;
        const int32_t id = real ? from.id[i] : 0, place = real ? from.place[i] : 0;
        const int digit = real ? digit_of(id, s.shift) : DIGITS;
        const uint32_t same = same_digit(digit), before = same & ((1u << lane) - 1);
        const int32_t target = real ? next[warp][digit] + __popc(before) : 0;
        __syncwarp();
        if (real) {
            to.id[target] = id;
            to.place[target] = place;
            if (before == 0)
                next[warp][digit] += __popc(same);
        }
        __syncwarp();
    }
}

/* bounds (rows, 2): where a row's positions begin and end in the sorted order. */
static __global__ void __launch_bounds__(THREADS)
    mark_bounds(int32_t *bounds, const int32_t *id, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int64_t mine = id[i];
    if (i == 0 || id[i - 1] != mine)
        bounds[2 * mine] = (int32_t)i;
    if (i == count - 1 || id[i + 1] != mine)
        bounds[2 * mine + 1] = (int32_t)(i + 1);
}

/* ---- the sums -------------------------------------------------------------------------------- */

enum { CHUNK = 32, GROUPS = 2, SLICE = GROUPS * 128 }; /* columns of a warp; 4 neighbours in each group */

/* A lane's columns of a slice: with WIDE 4 neighbours at a time, otherwise 32 apart. */
template <class T> struct slice {
    vec<T, 4> group[GROUPS];
};

/* `left` columns of the row are there, counted from the slice's first. */
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
        if (WIDE && c < left)
            store<float, 4>(row + c, x.group[g]);
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

/* sum += x[place[i]] over i in [from, to) in order, DEPTH rows on the way; place NULL: x[i] itself. */
template <int DEPTH, class T, bool WIDE>
static __device__ __forceinline__ void add_rows(slice<float> *sum, const T *x, const int32_t *place, int from,
                                                int to, int64_t cols, int lane, int left)
{
    for (int i = from; i < to; i += DEPTH) {
        slice<T> row[DEPTH];
        BY_UNROLL
        for (int u = 0; u < DEPTH; u++) {
            const bool real = i + u < to;
            const int64_t at = !real ? 0 : place ? place[i + u] : i + u;
            row[u] = load_slice<T, WIDE>(x + at * cols, lane, real ? left : 0);
        }
        BY_UNROLL
        for (int u = 0; u < DEPTH; u++)
            add_slice(sum, row[u]);
    }
}

/* What the kernels below go by. */
struct sums {
    pairs p;
    const int32_t *bounds;
    int32_t *of;     /* (slots): the row of the table that a chunk belongs to, -1: there is no chunk */
    float *chunks;   /* (slots, cols) */
    float *clusters; /* (slots / CHUNK, cols): sums of CHUNK chunks */
    int32_t count, slots, cols, slices;
};

/* A run [s, e) of sorted positions has (e - s) / CHUNK whole chunks, and chunk c has slot s / CHUNK + c: the
 * slots of different runs differ. So slots [first, end) belong to a run. */
static __device__ __forceinline__ void slots_of(const sums &w, int id, int *first, int *end)
{
    const int s = w.bounds[2 * id], e = w.bounds[2 * id + 1];
    *first = s / CHUNK;
    *end = *first + (e - s) / CHUNK;
}

/* The sum of the chunk of each slot. A warp looks whether one begins at one of the CHUNK places where it may,
 * a place to a lane. */
template <class T, bool WIDE>
static __global__ void __launch_bounds__(THREADS) sum_chunks(sums w, const T *dy)
{
    const int lane = threadIdx.x & 31;
    int64_t part;
    const int64_t slot = divide((int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5), w.slices, &part);
    if (slot >= w.slots)
        return;
    const int i = (int)slot * CHUNK + lane, id = w.p.id[i];
    const int s = w.bounds[2 * id], e = w.bounds[2 * id + 1];
    const uint32_t found = __ballot_sync(0xffffffffu, (i - s) % CHUNK == 0 && i + CHUNK <= e);
    const int at = __ffs((int)found) - 1, owner = __shfl_sync(0xffffffffu, id, at < 0 ? 0 : at);
    if (lane == 0 && part == 0)
        w.of[slot] = at < 0 ? -1 : owner;
    if (at < 0)
        return;
    const int from = (int)part * SLICE, left = w.cols - from, first = (int)slot * CHUNK + at;
    slice<float> sum = {};
    add_rows<8, T, WIDE>(&sum, dy + from, w.p.place, first, first + CHUNK, w.cols, lane, left);
    store_slice<WIDE>(w.chunks + slot * w.cols + from, sum, lane, left);
}

/* The same once more: slots [first, end) of a run have (end - first) / CHUNK whole clusters of CHUNK chunks,
 * with slots of their own from first / CHUNK on. */
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

/* A warp for each slice of each row of the table: whole clusters, chunks that are left, positions that are
 * left. ADD: to what is there, and rows with nothing stay as they are. */
template <class T, bool WIDE, bool ADD>
static __global__ void __launch_bounds__(THREADS) sum_rows(sums w, float *dtable, const T *dy, int rows)
{
    const int lane = threadIdx.x & 31;
    int64_t part;
    const int64_t row = divide((int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5), w.slices, &part);
    if (row >= rows)
        return;
    const int s = w.bounds[2 * row], e = w.bounds[2 * row + 1];
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
    add_rows<2, T, WIDE>(&sum, dy + from, w.p.place, e - (e - s) % CHUNK, e, w.cols, lane, left);
    if (ADD)
        add_slice(&sum, load_slice<float, WIDE>(to, lane, left));
    store_slice<WIDE>(to, sum, lane, left);
}

/* ---- gather_grad ----------------------------------------------------------------------------- */

/* Working memory, one piece after the other. */
struct space {
    pairs p[2];
    sorting s;
    int32_t *bounds, *of;
    float *chunks, *clusters;
};

static char *cut(char **at, int64_t bytes)
{
    char *piece = *at;
    *at += (bytes + 255) / 256 * 256;
    return piece;
}

/* Laid out from `start` on; returns the bytes it takes. */
static size_t lay_out(space *w, char *start, int64_t count, int64_t rows, int64_t cols)
{
    char *at = start;
    const int64_t slots = count / CHUNK;
    w->s.count = count;
    w->s.stretch = (count / 512 + 127) / 32 * 32; /* some 500 warps, with 96 pairs or more */
    w->s.units = count ? blocks_for(count, w->s.stretch) : 1;
    for (int i = 0; i < 2; i++) {
        w->p[i].id = (int32_t *)cut(&at, 4 * count);
        w->p[i].place = (int32_t *)cut(&at, 4 * count);
    }
    w->s.counts = (int32_t *)cut(&at, 4 * DIGITS * w->s.units);
    w->s.totals = (int32_t *)cut(&at, 4 * DIGITS);
    w->bounds = (int32_t *)cut(&at, 8 * rows);
    w->of = (int32_t *)cut(&at, 4 * slots);
    w->chunks = (float *)cut(&at, 4 * slots * cols);
    w->clusters = (float *)cut(&at, 4 * (slots / CHUNK) * cols);
    return (size_t)(at - start);
}

/* Sorted pairs end up in w->p[0]. */
static by_status sort_pairs(by_cuda_exec *x, by_node *n, space *w, int64_t rows)
{
    const unsigned blocks = blocks_for(w->s.units, WARPS);
    const int32_t *ids = (const int32_t *)n->in[0]->data;
    for (w->s.shift = 0; w->s.shift == 0 || (rows - 1) >> w->s.shift > 0; w->s.shift += BITS) {
        BY_TRY(by_launch(x, count_digits, blocks, THREADS, 0, w->p[0], w->s.shift ? NULL : ids, rows,
                         w->bounds, w->s, x->cuda->device_fault, n->index));
        BY_TRY(by_launch(x, add_up_counts, DIGITS, THREADS, 0, w->s));
        BY_TRY(by_launch(x, place_pairs, blocks, THREADS, 0, w->p[1], w->p[0], w->s));
        const pairs sorted = w->p[1];
        w->p[1] = w->p[0];
        w->p[0] = sorted;
    }
    return by_launch(x, mark_bounds, blocks_for(w->s.count, THREADS), THREADS, 0, w->bounds,
                     (const int32_t *)w->p[0].id, w->s.count);
}

template <class T, bool WIDE> static by_status add_up(by_cuda_exec *x, by_node *n, const space *w)
{
    const int64_t rows = by_tensor_rows(n->out[0]), cols = by_tensor_cols(n->out[0]);
    const int64_t slices = blocks_for(cols, SLICE), slots = w->s.count / CHUNK;
    const T *dy = (const T *)n->in[1]->data;
    const sums all = {w->p[0],        w->bounds,     w->of,
                      w->chunks,      w->clusters,   (int32_t)w->s.count,
                      (int32_t)slots, (int32_t)cols, (int32_t)slices};
    BY_TRY(by_launch(x, sum_chunks<T, WIDE>, blocks_for(slots * slices, WARPS), THREADS, 0, all, dy));
    BY_TRY(by_launch(x, sum_clusters<WIDE>, blocks_for(slots / CHUNK * slices, WARPS), THREADS, 0, all));
    return by_launch(x, n->in[2] ? sum_rows<T, WIDE, true> : sum_rows<T, WIDE, false>,
                     blocks_for(rows * slices, WARPS), THREADS, 0, all, (float *)n->out[0]->data, dy,
                     (int)rows);
}

template <class T> static by_status gather_grad(by_cuda_exec *x, by_node *n, const space *w)
{
    return by_tensor_cols(n->out[0]) % 4 == 0 ? add_up<T, true>(x, n, w) : add_up<T, false>(x, n, w);
}

extern "C" by_status by_cuda_gather_grad(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    const int64_t count = elements_of(n->in[0]), rows = by_tensor_rows(n->out[0]),
                  cols = by_tensor_cols(n->out[0]);
    space w = {};
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
    lay_out(&w, (char *)by_cuda_scratch(x, lay_out(&w, NULL, count, rows, cols)), count, rows, cols);
    BY_TRY(sort_pairs(x, n, &w, rows));
    BY_CUDA_DISPATCH(n->in[1]->type, gather_grad, x, n, &w)
}
