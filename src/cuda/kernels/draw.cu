/* draw.cu - draws from softmax(x / temperature), one block per row. Each warp sums the weights of its part of the row; the one whose
 * part holds the place that is drawn looks through it again. */
#include "cuda/kernels/kernel.cuh"

enum { THREADS = 1024, WARPS = THREADS / 32 };

/* The number of a row's place, as the CPU computes it: one f64 number per row costs nothing. */
static __device__ __forceinline__ double uniform_of(const int32_t *draws)
{
    const uint64_t key[2] = {(uint64_t)(uint32_t)draws[1] << 32 | (uint32_t)draws[0], (uint32_t)draws[3]};
    const uint32_t place = (uint32_t)draws[4];
    const uint4 r = random4(key, (uint32_t)draws[2], place / 2);
    const uint64_t bits = place % 2 ? (uint64_t)r.w << 32 | r.z : (uint64_t)r.y << 32 | r.x;
    return (double)(bits >> 11) * 0x1p-53;
}

/* A row, and the scale of its weights. */
template <class T> struct weights {
    const T *x;
    float top, temperature;
    __device__ __forceinline__ float operator[](int i) const
    {
        return expf((to_float(x[i]) - top) / temperature);
    }
};

/* The highest logit; infinity where one is NaN. */
template <class T> static __device__ __forceinline__ float highest_logit(const T *x, int cols, float *space)
{
    float top = -INFINITY;
    for (int i = (int)threadIdx.x; i < cols; i += THREADS) {
        const float v = to_float(x[i]);
        top = v < INFINITY ? fmaxf(top, v) : INFINITY;
    }
    return block_max(top, space);
}

template <class T>
static __device__ __forceinline__ float sum_of(const weights<T> &w, int begin, int end, int lane)
{
    float sum = 0;
    for (int i = begin + lane; i < end; i += 32)
        sum += w[i];
    return warp_sum(sum);
}

/* The first place of [begin, end) where the running sum passes `rest`; where rounding keeps it below, the last one with a weight.
 * All lanes of a warp get it. */
template <class T>
static __device__ __forceinline__ int find(const weights<T> &w, int begin, int end, int lane, float rest)
{
    int last = begin;
    for (int from = begin; from < end; from += 32) {
        const float weight = from + lane < end ? w[from + lane] : 0;
        float sum = weight;
        for (int by = 1; by < 32; by *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, sum, by);
            sum += lane >= by ? before : 0;
        }
        const unsigned there = __ballot_sync(0xffffffffu, weight > 0),
                       passed = __ballot_sync(0xffffffffu, weight > 0 && sum > rest);
        if (passed)
            return from + __ffs((int)passed) - 1;
        last = there ? from + 31 - __clz((int)there) : last;
        rest -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return last;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    draw_row(int32_t *y, const T *x, const float *temperature, int32_t *draws, int cols, int64_t pitch)
{
    __shared__ float space[32], sums[WARPS];
    const int64_t row = blockIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int span = (cols + WARPS - 1) / WARPS, begin = min(warp * span, cols),
              end = min(begin + span, cols);
    let_next_start();
    wait_for_previous();
    x += row * pitch;
    const float top = highest_logit(x, cols, space);
    const weights<T> w = {x, top, temperature[row]};
    const bool valid = top > -INFINITY && top < INFINITY;
    const float own = valid ? sum_of(w, begin, end, lane) : 0;
    if (lane == 0)
        sums[warp] = own;
    __syncthreads();
    double total = 0, rest = 0;
    int chosen = 0, last = 0;
    for (int i = 0; i < WARPS; i++) {
        total += (double)sums[i];
        last = sums[i] > 0 ? i : last;
    }
    rest = uniform_of(draws + 5 * row) * total;
    for (; chosen < last && (double)sums[chosen] <= rest; chosen++)
        rest -= (double)sums[chosen];
    __syncthreads(); /* all have read the place */
    if (warp != chosen)
        return;
    const int place = valid ? find(w, begin, end, lane, (float)rest) : -1;
    if (lane == 0) {
        y[row] = place;
        draws[5 * row + 4]++;
    }
}

template <class T> static by_status draw(cuda_exec *x, gr_node *n)
{
    return cuda_launch_early(x, draw_row<T>, (unsigned)gr_tensor_rows(n->in[0]), THREADS, 0,
                             (int32_t *)n->out[0]->data, (const T *)n->in[0]->data,
                             (const float *)n->in[1]->data, (int32_t *)n->in[2]->data,
                             (int)gr_tensor_cols(n->in[0]), gr_tensor_pitch(n->in[0]));
}

extern "C" by_status cuda_draw(gr_exec *e, gr_node *n)
{
    BY_BRANCH("draw");
    BY_CUDA_DISPATCH(n->in[0]->type, draw, cuda_exec_of(e), n)
}
