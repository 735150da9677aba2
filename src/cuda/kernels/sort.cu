/* sort.cu - a stable radix sort of positions by their index, 8 bits at a time, lowest first. Each warp counts
 * the digits of a stretch; once every count has become the number of equal digits before, every pair knows
 * its position. */
#include "cuda/kernels/each.cuh"
#include "cuda/kernels/sort.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };
enum { BITS = 8, DIGITS = 1 << BITS };

/* Index and position, in the order so far. Position i has index ids[i] at first. */
struct pairs {
    int32_t *id, *place;
};

/* A warp processes `stretch` pairs in order. units: number of warps. */
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

/* Counts digits. The first time, when ids are given, also checks for bad ones and clears the bounds. */
static __global__ void __launch_bounds__(THREADS)
    count_digits(pairs p, const int32_t *ids, int64_t rows, int64_t batches, int32_t *bounds, sorting s,
                 cuda_fault *fault, int node, int input)
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
            const int64_t limit = rows / batches;
            if (id < 0 || id >= limit) {
                report_fault(fault, node, input, id, i, limit);
                id = 0;
            }
            if (batches > 1)
                id += (int32_t)(i / (s.count / batches) * limit);
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

/* Returns the sum of x over the threads before this one, and sets the total. */
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

/* One block for each digit: counts become the number of earlier occurrences. */
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

/* Lanes of the warp with the same digit; bit 8 separates those that have none. */
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

/* Moves every pair to its position: after all with smaller digits, and after earlier ones with the same. */
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
    /* Stretch is a multiple of 32. */
    for (int64_t at = first; at < min(first + s.stretch, s.count); at += 32) {
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

/* bounds (rows, 2): start and end of a row's positions in the sorted order. */
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

/* Working memory, one piece after the other; pieces start at multiples of 256 bytes. */
struct layout {
    size_t pairs[4], counts, totals, bounds, end;
};

static size_t cut(layout *l, int64_t bytes)
{
    const size_t at = l->end;
    l->end += (size_t)(bytes + 255) / 256 * 256;
    return at;
}

static layout lay_out(sorting *s, int64_t count, int64_t rows)
{
    layout l = {};
    s->count = count;
    s->stretch = (count / 512 + 127) / 32 * 32; /* about 500 warps, with 96 pairs or more */
    s->units = count ? blocks_for(count, s->stretch) : 1;
    for (int i = 0; i < 4; i++)
        l.pairs[i] = cut(&l, 4 * count);
    l.counts = cut(&l, 4 * DIGITS * s->units);
    l.totals = cut(&l, 4 * DIGITS);
    l.bounds = cut(&l, 8 * rows);
    return l;
}

size_t cuda_sort_bytes(int64_t count, int64_t rows)
{
    sorting s;
    return lay_out(&s, count, rows).end;
}

by_status cuda_sort(cuda_exec *x, const gr_node *n, int input, int64_t rows, int64_t batches, void *scratch,
                    cuda_sorted *out)
{
    sorting s;
    const layout l = lay_out(&s, elements_of(n->in[input]), rows);
    const unsigned blocks = blocks_for(s.units, WARPS);
    char *base = (char *)scratch;
    const int32_t *ids = (const int32_t *)n->in[input]->data;
    int32_t *bounds = (int32_t *)(base + l.bounds);
    pairs now = {(int32_t *)(base + l.pairs[0]), (int32_t *)(base + l.pairs[1])};
    pairs next = {(int32_t *)(base + l.pairs[2]), (int32_t *)(base + l.pairs[3])};
    s.counts = (int32_t *)(base + l.counts);
    s.totals = (int32_t *)(base + l.totals);
    for (s.shift = 0; s.shift == 0 || (rows - 1) >> s.shift > 0; s.shift += BITS) {
        BY_TRY(cuda_launch(x, count_digits, blocks, THREADS, 0, now, s.shift ? NULL : ids, rows, batches,
                           bounds, s, x->cuda->device_fault, cuda_number(x, n), input));
        BY_TRY(cuda_launch(x, add_up_counts, DIGITS, THREADS, 0, s));
        BY_TRY(cuda_launch(x, place_pairs, blocks, THREADS, 0, next, now, s));
        const pairs sorted = next;
        next = now;
        now = sorted;
    }
    *out = cuda_sorted{now.id, now.place, bounds, s.count, rows};
    return cuda_launch(x, mark_bounds, blocks_for(s.count, THREADS), THREADS, 0, bounds,
                       (const int32_t *)now.id, s.count);
}
