/* gemv_rows.cu - y (M, N) = act(x (M, K) w + b) for a few rows M: decoding. The weights are read once, at the
 * speed of memory. They do not depend on the previous kernel, so a block requests its first ones before it
 * waits for that kernel to end. No sum is split over blocks. */
#include "cuda/kernels/gemv_rows.cuh"
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernel.cuh"

enum { FEW_ROWS = 8 };

typedef struct few_args {
    const void *x, *w, *bias;
    void *y;
    int64_t ldx, ldw, ldy;
    int n, k;
    by_act act;
} few_args;

template <class T> static __device__ __forceinline__ float bias_of(const few_args &a, int n)
{
    return a.bias && n < a.n ? to_float(((const T *)a.bias)[n]) : 0;
}

template <class T> static __device__ __forceinline__ void finish(const few_args &a, int m, int n, float sum)
{
    ((T *)a.y)[m * a.ldy + n] = from_float<T>(activate_as<T>(a.act, sum));
}

/* ---- w (N, K) -------------------------------------------------------------------------------- */

enum { NK_THREADS = 256, NK_ROWS = 2, NK_AHEAD = 4 };

/* A warp processes NK_ROWS rows of w, NK_AHEAD pieces of each at a time. */
template <class T, int M, int VEC> __global__ void __launch_bounds__(NK_THREADS) few_rows_nk(few_args a)
{
    const int lane = threadIdx.x & 31, warp = (int)(blockIdx.x * NK_THREADS + threadIdx.x) >> 5;
    const int first = warp * NK_ROWS, rows = min(a.n - first, (int)NK_ROWS);
    const T *w = (const T *)a.w, *x = (const T *)a.x;
    float sum[NK_ROWS][M] = {};
    let_next_start();
    if (rows <= 0) /* the whole warp */
        return;
    vec<T, VEC> part[NK_ROWS][NK_AHEAD];
    auto ask = [&](int from) {
#pragma unroll
        for (int i = 0; i < NK_AHEAD; i++) {
            const int k = from + (i * 32 + lane) * VEC;
#pragma unroll
            for (int r = 0; r < NK_ROWS; r++)
                if (k < a.k)
                    part[r][i] = load<T, VEC>(w + (int64_t)(first + (r < rows ? r : 0)) * a.ldw + k);
        }
    };
    ask(0);
    float bias[NK_ROWS];
#pragma unroll
    for (int r = 0; r < NK_ROWS; r++)
        bias[r] = bias_of<T>(a, first + r);
    wait_for_previous();
    for (int from = 0; from < a.k; from += 32 * VEC * NK_AHEAD) {
        if (from > 0)
            ask(from);
#pragma unroll
        for (int i = 0; i < NK_AHEAD; i++) {
            const int k = from + (i * 32 + lane) * VEC;
            if (k >= a.k)
                continue;
#pragma unroll
            for (int m = 0; m < M; m++) {
                const vec<T, VEC> v = load<T, VEC>(x + m * a.ldx + k);
#pragma unroll
                for (int r = 0; r < NK_ROWS; r++)
#pragma unroll
                    for (int e = 0; e < VEC; e++)
                        sum[r][m] += to_float(part[r][i].at[e]) * to_float(v.at[e]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < NK_ROWS; r++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float s = warp_sum(sum[r][m]);
            if (lane == 0 && r < rows)
                finish<T>(a, m, first + r, s + bias[r]);
        }
}

/* ---- w (K, N) -------------------------------------------------------------------------------- */

enum { KN_THREADS = 512, KN_ACROSS = 2, KN_DOWN = KN_THREADS / KN_ACROSS };

/* Sums N values over the lanes whose numbers differ in more than `ACROSS`: each exchange adds two lanes; each
 * keeps one half of the values. Returns which value v[0] is at the end. */
template <int ACROSS, int N> static __device__ __forceinline__ int sum_lanes(float (&v)[N])
{
    const int lane = threadIdx.x & 31;
    int mine = 0, step = 16;
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2, step /= 2) {
        const bool upper = lane & step;
#pragma unroll
        for (int e = 0; e < half; e++) {
            const float given = upper ? v[e] : v[e + half], kept = upper ? v[e + half] : v[e];
            v[e] = kept + __shfl_xor_sync(0xffffffffu, given, step);
        }
        mine += upper ? half : 0;
    }
#pragma unroll
    for (; step >= ACROSS; step /= 2)
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], step);
    return mine;
}

/* A block processes KN_ACROSS pieces of columns: two threads side by side read 32 bytes of a row, KN_DOWN
 * rows at a time, AHEAD times before the first is used. */
template <class T, int M, int VEC, int AHEAD>
__global__ void __launch_bounds__(KN_THREADS) few_rows_kn(few_args a)
{
    enum { WARPS = KN_THREADS / 32, COLUMNS = KN_ACROSS * VEC };
    __shared__ float sums[WARPS][M][COLUMNS];
    const int across = threadIdx.x % KN_ACROSS, down = threadIdx.x / KN_ACROSS;
    const int warp = threadIdx.x >> 5, col = (int)blockIdx.x * COLUMNS + across * VEC;
    const T *w = (const T *)a.w + col, *x = (const T *)a.x;
    float sum[M][VEC] = {};
    let_next_start();
    vec<T, VEC> part[AHEAD];
    auto ask = [&](int from) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int k = from + i * KN_DOWN + down;
            if (k < a.k && col < a.n)
                part[i] = load<T, VEC>(w + k * a.ldw);
        }
    };
    auto add = [&](int m, int i, float v) {
#pragma unroll
        for (int e = 0; e < VEC; e++)
            sum[m][e] += v * to_float(part[i].at[e]);
    };
    ask(0);
    /* the column that this thread finishes */
    const float bias = bias_of<T>(a, (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS);
    wait_for_previous();
    for (int from = 0; from < a.k; from += KN_DOWN * AHEAD) {
        if (from > 0)
            ask(from);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int k = from + i * KN_DOWN + down;
            if (k >= a.k || col >= a.n)
                continue;
#pragma unroll
            for (int m = 0; m < M; m++)
                add(m, i, to_float(x[m * a.ldx + k]));
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int e = sum_lanes<KN_ACROSS>(sum[m]);
        if (down % (32 / KN_ACROSS / VEC) == 0) /* one of the lanes that have the same */
            sums[warp][m][across * VEC + e] = sum[m][0];
    }
    __syncthreads();
    const int i = threadIdx.x, m = i / COLUMNS, c = i % COLUMNS, n = (int)blockIdx.x * COLUMNS + c;
    static_assert(M * COLUMNS <= KN_THREADS, "one thread finishes one element");
    if (i < M * COLUMNS && n < a.n) {
        float total = bias;
#pragma unroll
        for (int k = 0; k < WARPS; k++)
            total += sums[k][m][c];
        finish<T>(a, m, n, total);
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

template <class T, int M, int VEC> static by_status rows_at(cuda_exec *x, bool nk, const few_args &a)
{
    const dim3 tiles(blocks_for(a.n, KN_ACROSS * VEC));
    if (nk)
        return cuda_launch_early(x, few_rows_nk<T, M, VEC>, dim3(blocks_for(a.n, NK_THREADS / 32 * NK_ROWS)),
                                 dim3(NK_THREADS), 0, a);
    if (M == 1 && a.k > 4 * KN_DOWN) /* there are enough registers to request all of a long column at once */
        return cuda_launch_early(x, few_rows_kn<T, M, VEC, 12>, tiles, dim3(KN_THREADS), 0, a);
    return cuda_launch_early(x, few_rows_kn<T, M, VEC, 4>, tiles, dim3(KN_THREADS), 0, a);
}

template <class T, int VEC> static by_status rows_of(cuda_exec *x, const cuda_product *p, few_args a)
{
    for (int64_t row = 0; row < p->m;) { /* 8, 4, 2, 1: every count is a sum of these */
        const int64_t left = p->m - row, rows = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        a.x = (const T *)p->a + row * p->lda;
        a.y = (T *)p->c + row * p->ldc;
        by_status status = rows == 8   ? rows_at<T, 8, VEC>(x, p->tb, a)
                           : rows == 4 ? rows_at<T, 4, VEC>(x, p->tb, a)
                           : rows == 2 ? rows_at<T, 2, VEC>(x, p->tb, a)
                                       : rows_at<T, 1, VEC>(x, p->tb, a);
        BY_TRY(status);
        row += rows;
    }
    return BY_OK;
}

template <class T> static by_status of_type(cuda_exec *x, const cuda_product *p, const few_args &a)
{
    enum { N = wide<T>::N };
    /* vectors along K for w (N, K), along N for w (K, N); a vector is inside the matrix, or outside */
    const bool whole = p->ldb % N == 0 && (p->tb ? p->k % N == 0 && p->lda % N == 0 : p->n % N == 0);
    return whole ? rows_of<T, N>(x, p, a) : rows_of<T, 1>(x, p, a);
}

bool cuda_gemv_rows_take(const cuda_product *p)
{
    return p->m <= FEW_ROWS && !p->ta && p->batch <= 1 && p->c_type == p->ab_type && !p->accumulate;
}

by_status cuda_gemv_rows(cuda_exec *x, const cuda_product *p, by_act act)
{
    few_args a = {};
    a.w = p->b;
    a.bias = p->bias;
    a.ldx = p->lda;
    a.ldw = p->ldb;
    a.ldy = p->ldc;
    a.n = (int)p->n;
    a.k = (int)p->k;
    a.act = act;
    BY_CUDA_DISPATCH(p->ab_type, of_type, x, p, a);
}
