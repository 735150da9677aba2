/* argsort.cu - the places of a row's elements in order: a bitonic sort (Batcher 1968) of numbers that hold the
 * element above its place, so that no two are equal and the order is the stable one. Short rows are sorted in
 * shared memory, a block each; long ones in global memory, a kernel for each step between parts that fit there, and
 * one for all steps within such parts. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256, SHORT = 4096 }; /* numbers of a row in shared memory: 32 KiB */

/* Larger for larger x; -0 is 0, and NaN is the largest. */
template <class T> static __device__ __forceinline__ uint32_t order_of(T x)
{
    const float f = to_float(x) + 0.0f;
    const uint32_t bits = __float_as_uint(f);
    return f != f ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}
template <> __device__ __forceinline__ uint32_t order_of<int32_t>(int32_t x)
{
    return (uint32_t)x ^ 0x80000000u;
}

/* Element i of a row; beyond its end the largest number there is. */
template <class T>
static __device__ __forceinline__ uint64_t number_of(const T *row, int64_t i, int64_t cols, bool descending)
{
    if (i >= cols)
        return ~(uint64_t)0;
    const uint32_t order = order_of(row[i]);
    return (uint64_t)(descending ? ~order : order) << 32 | (uint32_t)i;
}

/* Step `span` of the merge of runs of `run`: pair number i, brought into order; first: number of row[0]. */
static __device__ __forceinline__ void compare(uint64_t *row, int64_t first, int64_t i, int64_t run,
                                               int64_t span)
{
    const int64_t low = i / span * 2 * span + i % span, high = low + span;
    const uint64_t a = row[low], b = row[high];
    const bool rising = ((first + low) & run) == 0;
    if ((a > b) == rising) {
        row[low] = b;
        row[high] = a;
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    sort_short(int32_t *y, const T *x, int64_t cols, int64_t room, bool descending)
{
    BY_SHARED(uint64_t, row);
    x += blockIdx.x * cols;
    for (int64_t i = threadIdx.x; i < room; i += THREADS)
        row[i] = number_of(x, i, cols, descending);
    __syncthreads();
    for (int64_t run = 2; run <= room; run *= 2)
        for (int64_t span = run / 2; span > 0; span /= 2) {
            for (int64_t i = threadIdx.x; i < room / 2; i += THREADS)
                compare(row, 0, i, run, span);
            __syncthreads();
        }
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        y[blockIdx.x * cols + i] = (int32_t)(uint32_t)row[i];
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    number_long(uint64_t *to, const T *x, int64_t cols, int64_t room, bool descending, int64_t total)
{
    int64_t i, at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= total)
        return;
    const int64_t row = divide(at, room, &i);
    to[at] = number_of(x + row * cols, i, cols, descending);
}

static __global__ void __launch_bounds__(THREADS)
    step_long(uint64_t *numbers, int64_t room, int64_t run, int64_t span, int64_t pairs)
{
    int64_t i, at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= pairs)
        return;
    const int64_t row = divide(at, room / 2, &i);
    compare(numbers + row * room, 0, i, run, span);
}

/* The steps within SHORT numbers of the merges of runs from `from` to `to`, in shared memory. */
static __global__ void __launch_bounds__(THREADS)
    steps_within(uint64_t *numbers, int64_t room, int64_t from, int64_t to)
{
    BY_SHARED(uint64_t, part);
    const int64_t first = (int64_t)blockIdx.x * SHORT;
    for (int64_t i = threadIdx.x; i < SHORT; i += THREADS)
        part[i] = numbers[first + i];
    __syncthreads();
    for (int64_t run = from; run <= to; run *= 2)
        for (int64_t span = run < SHORT ? run / 2 : SHORT / 2; span > 0; span /= 2) {
            for (int64_t i = threadIdx.x; i < SHORT / 2; i += THREADS)
                compare(part, first % room, i, run, span);
            __syncthreads();
        }
    for (int64_t i = threadIdx.x; i < SHORT; i += THREADS)
        numbers[first + i] = part[i];
}

static __global__ void __launch_bounds__(THREADS)
    finish_long(int32_t *y, const uint64_t *numbers, int64_t cols, int64_t room, int64_t total)
{
    int64_t i, at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= total)
        return;
    const int64_t row = divide(at, cols, &i);
    y[at] = (int32_t)(uint32_t)numbers[row * room + i];
}

template <class T> static by_status sort_long(cuda_exec *x, gr_node *n, int64_t room, bool descending)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]), pairs = rows * room / 2;
    uint64_t *numbers = (uint64_t *)cuda_scratch(x, (size_t)(rows * room) * sizeof *numbers);
    BY_TRY(cuda_launch(x, number_long<T>, blocks_for(rows * room, THREADS), THREADS, 0, numbers,
                       (const T *)n->in[0]->data, cols, room, descending, rows * room));
    const dim3 parts((unsigned)(rows * room / SHORT));
    const size_t shared = SHORT * sizeof *numbers;
    BY_TRY(cuda_launch(x, steps_within, parts, dim3(THREADS), shared, numbers, room, (int64_t)2,
                       (int64_t)SHORT));
    for (int64_t run = 2 * SHORT; run <= room; run *= 2) {
        for (int64_t span = run / 2; span >= SHORT; span /= 2)
            BY_TRY(cuda_launch(x, step_long, blocks_for(pairs, THREADS), THREADS, 0, numbers, room, run, span,
                               pairs));
        BY_TRY(cuda_launch(x, steps_within, parts, dim3(THREADS), shared, numbers, room, run, run));
    }
    return cuda_launch(x, finish_long, blocks_for(rows * cols, THREADS), THREADS, 0,
                       (int32_t *)n->out[0]->data, (const uint64_t *)numbers, cols, room, rows * cols);
}

template <class T> static by_status argsort(cuda_exec *x, gr_node *n)
{
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const bool descending = ((const gr_argsort_attr *)n->attr)->descending;
    int64_t room = 2;
    while (room < cols)
        room *= 2;
    if (room > SHORT) {
        BY_BRANCH("argsort, long rows");
        return sort_long<T>(x, n, room, descending);
    }
    BY_BRANCH("argsort, short rows");
    return cuda_launch(x, sort_short<T>, (unsigned)(cols ? rows : 0), THREADS,
                       (size_t)room * sizeof(uint64_t), (int32_t *)n->out[0]->data, (const T *)n->in[0]->data,
                       cols, room, descending);
}

extern "C" by_status cuda_argsort(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    if (n->in[0]->type == BY_I32)
        return argsort<int32_t>(x, n);
    BY_CUDA_DISPATCH(n->in[0]->type, argsort, x, n)
}
