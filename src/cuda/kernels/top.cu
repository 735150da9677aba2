/* top.cu - the highest logits of a row and the log-sum-exp of all; one block per row. Every thread finds the
 * highest of its share. The k-th of these is a bound that at least k elements reach, and hardly more if the
 * high ones are spread out: those are collected in a second pass, and sorted. If too many reach it, they are
 * searched for one after the other. */
#include "cuda/kernels/rank.cuh"
#include "cuda/kernels/row_pieces.cuh"

enum { THREADS = 512, ROOM = 1024 }; /* ROOM: elements that can be sorted, hence the maximum of k */

/* Bitonic sort in decreasing order; n is a power of two. */
static __device__ void sort_ranks(uint64_t *rank, int n)
{
    for (int run = 2; run <= n; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += THREADS) {
                const int other = i ^ step;
                const uint64_t a = rank[i], b = rank[other];
                if (other > i && ((i & run) == 0 ? a < b : a > b)) {
                    rank[i] = b;
                    rank[other] = a;
                }
            }
        }
    __syncthreads();
}

/* The highest rank below `below` of a whole row, for all threads. */
template <class T>
static __device__ uint64_t next_rank(const T *x, int whole, int cols, uint64_t below, uint64_t *space)
{
    uint64_t most = 0;
    each_piece(x, whole, cols, [&](int i, auto &v) {
        for (int j = 0; j < (int)(sizeof v / sizeof v.at[0]); j++) {
            const uint64_t rank = rank_of(v.at[j], i + j);
            most = rank < below ? max(most, rank) : most;
        }
    });
    for (int step = 16; step > 0; step /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        space[threadIdx.x >> 5] = most;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++)
        most = max(most, space[w]);
    return most;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    top(float *best, int32_t *ids, float *lse, const T *logits, int whole, int cols, int64_t pitch, int k)
{
    __shared__ uint64_t rank[ROOM];
    __shared__ float space[32];
    __shared__ int count;
    const T *x = logits + (int64_t)blockIdx.x * pitch;
    uint64_t mine = 0;
    let_next_start();
    wait_for_previous();
    each_piece(x, whole, cols, [&](int i, auto &v) {
        for (int j = 0; j < (int)(sizeof v / sizeof v.at[0]); j++)
            mine = max(mine, rank_of(v.at[j], i + j));
    });
    rank[threadIdx.x] = mine;
    if (threadIdx.x == 0)
        count = 0;
    sort_ranks(rank, THREADS);
    const uint64_t bound = rank[k - 1];
    const float most = value_of(rank[0]);
    __syncthreads();
    float sum = 0;
    each_piece(x, whole, cols, [&](int i, auto &v) {
        for (int j = 0; j < (int)(sizeof v / sizeof v.at[0]); j++) {
            const uint64_t r = rank_of(v.at[j], i + j);
            sum += expf(v.at[j] - most);
            if (r >= bound) {
                const int at = atomicAdd(&count, 1);
                if (at < ROOM)
                    rank[at] = r;
            }
        }
    });
    sum = block_sum(sum, space);
    const int found = count;
    if (found <= ROOM) {
        for (int i = found + (int)threadIdx.x; i < ROOM; i += THREADS)
            rank[i] = 0;
        int n = 2;
        while (n < found)
            n *= 2;
        sort_ranks(rank, n);
    } else {
        uint64_t last = 0xffffffffffffffffull;
        for (int i = 0; i < k; i++) {
            last = next_rank(x, whole, cols, last, rank + ROOM / 2);
            if (threadIdx.x == 0)
                rank[i] = last;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < k; i += THREADS) {
        if (best)
            best[(int64_t)blockIdx.x * k + i] = value_of(rank[i]);
        if (ids)
            ids[(int64_t)blockIdx.x * k + i] = place_of(rank[i]);
    }
    if (lse && threadIdx.x == 0)
        lse[blockIdx.x] = most + logf(sum);
}

/* An output that nobody reads is NULL. */
static void *data_of(const by_tensor *t)
{
    return t ? t->data : NULL;
}

template <class T> static by_status top_rows(cuda_exec *x, gr_node *n)
{
    const int cols = (int)gr_tensor_cols(n->in[0]), k = ((const gr_top_attr *)n->attr)->k;
    const int whole = rows_aligned(n->in[0]) ? cols / wide<T>::N * wide<T>::N : 0;
    return cuda_launch_early(x, top<T>, (unsigned)gr_tensor_rows(n->in[0]), THREADS, 0,
                             (float *)data_of(n->out[0]), (int32_t *)data_of(n->out[1]),
                             (float *)data_of(n->out[2]), (const T *)n->in[0]->data, whole, cols,
                             gr_tensor_pitch(n->in[0]), k);
}

extern "C" by_status cuda_top(gr_exec *e, gr_node *n)
{
    if (rows_aligned(n->in[0]))
        BY_BRANCH("top, whole vectors");
    else
        BY_BRANCH("top, single elements");
    BY_CUDA_DISPATCH(n->in[0]->type, top_rows, cuda_exec_of(e), n)
}
