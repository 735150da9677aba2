/* gemv.cu - y (N) = act(x (K) w (K, N) + b) for one row and a large matrix: decoding one text. Its time is
 * that of reading w once and of handing x over from kernel to kernel.
 *
 * Weights do not depend on the previous kernel, so a thread requests its first pieces of 16 bytes before it
 * waits for that kernel. They arrive in shared memory, not in registers, and a block uses at most half of a
 * multiprocessor, so that blocks of the next product start, and send requests, while those of this one still
 * work. A thread reads only pieces that it requested itself: the ring needs no barrier.
 *
 * A block takes 128 bytes of each row of w, and the blocks of a cluster share K. Partial sums are added in a
 * fixed order, so that results do not depend on timing. docs/LOG.md lists what else was tried. */
#include "cuda/kernels/gemv.cuh"
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/cluster.cuh"
#include "cuda/kernels/mma.cuh"

#ifdef BY_CUDA_EMULATE /* where a cluster is one block of at most 1024 threads */
enum { THREADS = 256, LARGEST_CLUSTER = 4, MIN_ARCH = 80 };
#else
enum { THREADS = 1024, LARGEST_CLUSTER = 8, MIN_ARCH = 90 };
#endif

enum {
    WARPS = THREADS / 32,
    SLOTS = 3,                 /* pieces of a thread in flight */
    SLOT_BYTES = THREADS * 16, /* a piece of each thread */
    ACROSS = 8,                /* threads side by side, with a piece each */
    DOWN = THREADS / ACROSS    /* rows of w at a time */
};

typedef struct gemv_args {
    const void *x, *w, *bias;
    void *y;
    int64_t ldw;
    int n, k;
    by_act act;
    int cluster;            /* blocks that share K */
    int share;              /* rows of w per block */
    unsigned sums_at, x_at; /* bytes from the start of shared memory */
} gemv_args;

/* Sums over the lanes that have the same columns. Each exchange adds two lanes; each keeps one half of the
 * values while there are several. Returns the index of v[0]. */
template <int N> static __device__ __forceinline__ int sum_lanes(float (&v)[N])
{
    const int lane = threadIdx.x & 31;
    int mine = 0, left = N;
#pragma unroll
    for (int step = 16; step >= ACROSS; step /= 2) {
        const bool upper = lane & step;
        const int half = left / 2;
#pragma unroll
        for (int e = 0; e < half; e++) {
            const float given = upper ? v[e] : v[e + half], kept = upper ? v[e + half] : v[e];
            v[e] = kept + __shfl_xor_sync(0xffffffffu, given, step);
        }
        mine += upper ? half : 0;
        left = half;
    }
    return mine;
}

template <class T> static __device__ __forceinline__ void finish(const gemv_args &a, int n, float sum)
{
    if (n < a.n)
        ((T *)a.y)[n] = from_float<T>(activate_as<T>(a.act, sum));
}

template <class T> __global__ void __launch_bounds__(THREADS) gemv(gemv_args a)
{
    enum { VEC = wide<T>::N, COLUMNS = ACROSS * VEC, KEPT = COLUMNS / 32 };
    typedef vec<T, VEC> piece;
    const cluster c = my_cluster(a.cluster);
    const int warp = c.thread >> 5, across = c.thread % ACROSS, down = c.thread / ACROSS;
    const int first = c.index * COLUMNS, col = first + across * VEC;
    const int from = min(c.rank * a.share, a.k), to = min(from + a.share, a.k);
    const T *w = (const T *)a.w + col, *x = (const T *)a.x;
    unsigned char *memory = cluster_memory(c);
    piece *ring = (piece *)memory + c.thread;
    T *xs = (T *)(memory + a.x_at);
    float *sums = (float *)(memory + a.sums_at); /* (WARPS, COLUMNS) */
    float *partial = sums + WARPS * COLUMNS;     /* (cluster, COLUMNS) in the first block */
    let_next_start();
    cluster_arrive(c);

    int next = from + down; /* row to request */
    auto ask = [&](int slot) {
        if (next < to && col < a.n)
            copy_async(ring + slot * THREADS, w + next * a.ldw, true);
        copy_commit(); /* also if it is empty, so that groups can be counted */
        next += DOWN;
    };
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++)
        ask(slot);
    const int n = first + c.thread % COLUMNS;
    const float bias = a.bias && n < a.n && c.rank == 0 ? to_float(((const T *)a.bias)[n]) : 0;
    wait_for_previous();
    for (int k = c.thread; k < to - from; k += THREADS)
        xs[k] = x[from + k];
    __syncthreads();

    float sum[VEC] = {};
    for (int k = from + down; k < to;) {
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++, k += DOWN) {
            copy_wait<SLOTS - 1>();
            if (k >= to)
                break;
            const piece part = ring[slot * THREADS];
            const float v = to_float(xs[k - from]);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                sum[e] += v * to_float(part.at[e]);
            ask(slot);
        }
    }
    const int e = sum_lanes(sum);
#pragma unroll
    for (int i = 0; i < KEPT; i++)
        sums[warp * COLUMNS + across * VEC + e + i] = sum[i];
    __syncthreads();
    float total = bias;
    if (c.thread < COLUMNS)
#pragma unroll
        for (int g = 0; g < WARPS; g++)
            total += sums[g * COLUMNS + c.thread];
    if (c.size == 1) {
        if (c.thread < COLUMNS)
            finish<T>(a, n, total);
        return;
    }
    cluster_wait(c); /* the first block has started and can be written to */
    if (c.thread < COLUMNS)
        *cluster_at(c, partial + c.rank * COLUMNS + c.thread, 0) = total;
    cluster_arrive(c);
    cluster_wait(c);
    if (c.rank == 0 && c.thread < COLUMNS) {
        total = partial[c.thread];
        for (int r = 1; r < c.size; r++)
            total += partial[r * COLUMNS + c.thread];
        finish<T>(a, n, total);
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

static int parts(int64_t n, int64_t per)
{
    return (int)((n + per - 1) / per);
}

template <class T> static by_status launch(cuda_exec *x, gemv_args a)
{
    enum { COLUMNS = ACROSS * wide<T>::N };
    const int tiles = parts(a.n, COLUMNS), most = x->cuda->sms * 3 / 2; /* blocks */
    const int cluster = BY_MIN(LARGEST_CLUSTER, BY_MIN(most / tiles, a.k / DOWN));
    a.cluster = BY_MAX(1, cluster);
    a.share = parts(a.k, a.cluster);
    a.sums_at = SLOTS * SLOT_BYTES;
    a.x_at = a.sums_at + (unsigned)((WARPS + a.cluster) * COLUMNS) * (unsigned)sizeof(float);
    const size_t shared = a.x_at + (size_t)a.share * sizeof(T);
    return cuda_launch_clusters(x, (unsigned)a.cluster, gemv<T>, dim3((unsigned)(tiles * a.cluster)),
                                dim3(THREADS), parts((int64_t)shared, 128) * (size_t)128, a);
}

bool cuda_gemv_takes(const cuda_context *c, const cuda_product *p)
{
    const int64_t vec = p->ab_type == BY_F32 ? 4 : 8;
    return c->arch >= MIN_ARCH && p->m == 1 && !p->ta && !p->tb && p->batch <= 1 && p->c_type == p->ab_type &&
           !p->accumulate && p->n * p->k >= c->gemv_least && p->n % vec == 0 && p->ldb % vec == 0 &&
           (uintptr_t)p->b % 16 == 0 && p->n <= INT32_MAX / 2 && p->k <= 16384;
}

by_status cuda_gemv(cuda_exec *x, const cuda_product *p, by_act act)
{
    gemv_args a = {};
    a.x = p->a;
    a.w = p->b;
    a.bias = p->bias;
    a.y = p->c;
    a.ldw = p->ldb;
    a.n = (int)p->n;
    a.k = (int)p->k;
    a.act = act;
    BY_CUDA_DISPATCH(p->ab_type, launch, x, a);
}
