/* attention_bias.cuh - the gradient of a bias from tiles of slopes, the gradients of scores. Each tile of
 * queries has its own sums, and takes its tiles of keys in order; of a tile, every sum has one thread. */
#ifndef BY_CUDA_KERNELS_ATTENTION_BIAS_CUH
#define BY_CUDA_KERNELS_ATTENTION_BIAS_CUH

#include "cuda/kernels/attention_grad.cuh"

/* All CREW threads, which are a warp or a block, come here. */
template <int CREW> static __device__ __forceinline__ void meet()
{
    if (CREW == 32)
        __syncwarp();
    else
        __syncthreads();
}

/* The number of the first sum of query t0, or of the tile that begins there. */
static __device__ __forceinline__ int64_t sums_of(const attention_back &g, int b, int h, int t0)
{
    const int row = g.dbias.tile ? t0 / g.dbias.tile : t0;
    return (((int64_t)b * g.a.heads + h) * g.dbias.rows + row) * g.a.bias.count;
}

template <class T> static __device__ __forceinline__ void clear_sum(const attention_back &g, int64_t i)
{
    if (g.dbias.last)
        ((T *)g.dbias.at)[i] = from_float<T>(0);
    else
        ((float *)g.dbias.at)[i] = 0;
}

/* Before the first tile of keys: zeros for what queries [t0, t0 + n) will add to. */
template <class T, int CREW>
static __device__ __forceinline__ void clear_sums(const attention_back &g, int b, int h, int t0, int n)
{
    const int rows = t0 >= g.a.queries ? 0 : g.dbias.tile ? 1 : min(n, g.a.queries - t0);
    const int64_t first = sums_of(g, b, h, t0), count = (int64_t)rows * g.a.bias.count;
    for (int64_t i = threadIdx.x % CREW; i < count; i += CREW)
        clear_sum<T>(g, first + i);
    meet<CREW>();
}

/* The numbers of n consecutive entries from `first` on, of which those beyond the ends count as the ends, to
 * a row of sums; `me` of `lanes` threads. */
template <class T>
static __device__ __forceinline__ void add_entries(const attention_back &g, int64_t sums, const float *line,
                                                   int n, int first, int me, int lanes)
{
    const int last = g.a.bias.count - 1;
    const int low = max(min(first, last), 0), high = max(min(first + n - 1, last), 0);
    for (int e = low + me; e <= high; e += lanes) {
        const int from = e == 0 ? 0 : max(e - first, 0), to = e == last ? n - 1 : min(e - first, n - 1);
        float sum = 0;
        for (int i = from; i <= to; i++)
            sum += line[i];
        if (g.dbias.last)
            ((T *)g.dbias.at)[sums + e] = from_float<T>(sum);
        else
            ((float *)g.dbias.at)[sums + e] += sum;
    }
}

/* slopes (ROWS, PITCH): of queries from t0 and COLUMNS keys from s0, written by the crew; line (ROWS +
 * COLUMNS). */
template <class T, int ROWS, int COLUMNS, int PITCH, int CREW>
static __device__ __forceinline__ void add_to_bias(const attention_back &g, const sight<ANY> &see, int b,
                                                   int h, int t0, int s0, const float *slopes, float *line)
{
    const bias_rows &bias = g.a.bias;
    const int me = (int)(threadIdx.x % CREW), keys = min(COLUMNS, see.keys - s0);
    const int first = bias_entry(bias, t0 + see.shift, s0);
    meet<CREW>();
    if (!g.dbias.tile) { /* a row of its own for every query */
        for (int r = me / 32; r < ROWS && t0 + r < g.a.queries; r += CREW / 32)
            add_entries<T>(g, sums_of(g, b, h, t0 + r), slopes + r * PITCH, keys,
                           first - (bias.by_distance ? r : 0), me % 32, 32);
    } else if (bias.by_distance) { /* along the diagonals */
        for (int i = me; i < ROWS + COLUMNS - 1; i += CREW) {
            const int right = i - (ROWS - 1); /* column - row */
            float sum = 0;
            for (int r = max(-right, 0); r < min(ROWS, COLUMNS - right); r++)
                sum += slopes[r * PITCH + r + right];
            line[i] = sum;
        }
        meet<CREW>();
        add_entries<T>(g, sums_of(g, b, h, t0), line, ROWS + COLUMNS - 1, first - (ROWS - 1), me, CREW);
    } else {
        for (int c = me; c < keys; c += CREW) {
            float sum = 0;
            for (int r = 0; r < ROWS; r++)
                sum += slopes[r * PITCH + c];
            line[c] = sum;
        }
        meet<CREW>();
        add_entries<T>(g, sums_of(g, b, h, t0), line, keys, first, me, CREW);
    }
    meet<CREW>();
}

#endif
