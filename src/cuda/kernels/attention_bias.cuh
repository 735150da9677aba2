/* attention_bias.cuh - the gradient of a bias from tiles of score gradients. Each tile of queries has its own
 * sums, and processes its tiles of keys in order; within a tile, every sum belongs to one thread. */
#ifndef BY_CUDA_KERNELS_ATTENTION_BIAS_CUH
#define BY_CUDA_KERNELS_ATTENTION_BIAS_CUH

#include "cuda/kernels/attention_grad.cuh"

/* A barrier of all CREW threads, which are a warp or a block. */
template <int CREW> static __device__ __forceinline__ void meet()
{
    if (CREW == 32)
        __syncwarp();
    else
        __syncthreads();
}

/* One bias and its sums. */
struct bias_slopes {
    const bias_rows &bias;
    const bias_sums &sums;
};

/* The index of the first sum of query t0, or of the tile that starts there. */
static __device__ __forceinline__ int64_t sums_of(const attention &a, const bias_slopes &x, int b, int h,
                                                  int t0)
{
    const int row = x.sums.tile ? t0 / x.sums.tile : t0;
    return (((int64_t)b * a.heads + h) * x.sums.rows + row) * x.bias.count;
}

template <class T> static __device__ __forceinline__ void clear_sum(const bias_slopes &x, int64_t i)
{
    if (x.sums.last)
        ((T *)x.sums.at)[i] = from_float<T>(0);
    else
        ((float *)x.sums.at)[i] = 0;
}

/* Before the first tile of keys: zeroes the sums of queries [t0, t0 + n). */
template <class T, int CREW>
static __device__ __forceinline__ void clear_sums(const attention_back &g, int b, int h, int t0, int n)
{
    for (int k = 0; k < BIASES; k++) {
        const bias_slopes x = {g.a.bias[k], g.dbias[k]};
        const int rows = t0 >= g.a.queries ? 0 : x.sums.tile ? 1 : min(n, g.a.queries - t0);
        const int64_t first = sums_of(g.a, x, b, h, t0), count = (int64_t)rows * x.bias.count;
        for (int64_t i = threadIdx.x % CREW; i < count && x.sums.at; i += CREW)
            clear_sum<T>(x, first + i);
    }
    meet<CREW>();
}

/* Adds n consecutive entries from `first` on, those beyond the ends counted as the ends, to a row of sums;
 * `me` of `lanes` threads. */
template <class T>
static __device__ __forceinline__ void add_entries(const bias_slopes &x, int64_t sums, const float *line,
                                                   int n, int first, int me, int lanes)
{
    const int last = x.bias.count - 1;
    if (x.sums.last) { /* one score for each entry; what lies beyond the ends is masked */
        const int end = min(first + n, last + 1);
        for (int e = max(first, 0) + me; e < end; e += lanes)
            ((T *)x.sums.at)[sums + e] = from_float<T>(line[e - first]);
        return;
    }
    const int low = max(min(first, last), 0), high = max(min(first + n - 1, last), 0);
    for (int e = low + me; e <= high; e += lanes) {
        const int from = e == 0 ? 0 : max(e - first, 0), to = e == last ? n - 1 : min(e - first, n - 1);
        float sum = 0;
        for (int i = from; i <= to; i++)
            sum += line[i];
        ((float *)x.sums.at)[sums + e] += sum;
    }
}

/* slopes (ROWS, PITCH): score gradients of queries from t0 and COLUMNS keys from s0, written by the crew;
 * line (ROWS + COLUMNS). */
template <class T, int ROWS, int COLUMNS, int PITCH, int CREW>
static __device__ __forceinline__ void add_to_bias(const attention &a, const bias_slopes &x,
                                                   const sight<ANY> &see, int b, int h, int t0, int s0,
                                                   const float *slopes, float *line)
{
    const bias_rows &bias = x.bias;
    const int me = (int)(threadIdx.x % CREW), keys = min(COLUMNS, see.keys - s0);
    const int first = bias_entry(bias, t0 + see.shift, s0);
    meet<CREW>();
    if (!x.sums.tile) { /* every query has its own row */
        for (int r = me / 32; r < ROWS && t0 + r < a.queries; r += CREW / 32)
            add_entries<T>(x, sums_of(a, x, b, h, t0 + r), slopes + r * PITCH, keys,
                           first - (bias.relative ? r : 0), me % 32, 32);
    } else if (bias.relative) { /* along the diagonals */
        for (int i = me; i < ROWS + COLUMNS - 1; i += CREW) {
            const int right = i - (ROWS - 1); /* column - row */
            float sum = 0;
            for (int r = max(-right, 0); r < min(ROWS, COLUMNS - right); r++)
                sum += slopes[r * PITCH + r + right];
            line[i] = sum;
        }
        meet<CREW>();
        add_entries<T>(x, sums_of(a, x, b, h, t0), line, ROWS + COLUMNS - 1, first - (ROWS - 1), me, CREW);
    } else {
        for (int c = me; c < keys; c += CREW) {
            float sum = 0;
            for (int r = 0; r < ROWS; r++)
                sum += slopes[r * PITCH + c];
            line[c] = sum;
        }
        meet<CREW>();
        add_entries<T>(x, sums_of(a, x, b, h, t0), line, keys, first, me, CREW);
    }
    meet<CREW>();
}

/* Adds the score gradients to the sums of every bias whose gradient is wanted. */
template <class T, int ROWS, int COLUMNS, int PITCH, int CREW>
static __device__ __forceinline__ void add_to_biases(const attention_back &g, const sight<ANY> &see, int b,
                                                     int h, int t0, int s0, const float *slopes, float *line)
{
    for (int k = 0; k < BIASES; k++)
        if (g.dbias[k].at)
            add_to_bias<T, ROWS, COLUMNS, PITCH, CREW>(g.a, bias_slopes{g.a.bias[k], g.dbias[k]}, see, b, h,
                                                       t0, s0, slopes, line);
}

#endif
