/* hash.cu - buckets of vectors by random rotations (Andoni et al. 2015): which of the directions r and -r is
 * nearest. A block has a tile of rows of one head in shared memory, a thread one of them in one round; the
 * rotations, which all threads of a warp read at once, come from the cache. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 128, STEP = 4 }; /* rows of a tile; columns that a thread computes at once */

/* The first of the largest of {p, -p}, p (half) the products with the columns of one factor. */
static __device__ __forceinline__ int nearest(const float *x, const float *turn, int dim, int64_t step,
                                              int half)
{
    float high = -INFINITY, low = -INFINITY;
    int at_high = 0, at_low = 0;
    for (int k = 0; k < half; k += STEP) {
        float sum[STEP] = {};
        for (int d = 0; d < dim; d++)
            BY_UNROLL
        for (int j = 0; j < STEP; j++)
            sum[j] += x[d * (THREADS + 1)] * turn[d * step + min(k + j, half - 1)];
        for (int j = 0; j < STEP && k + j < half; j++) {
            if (sum[j] > high || k + j == 0) {
                high = sum[j];
                at_high = k + j;
            }
            if (-sum[j] > low) {
                low = -sum[j];
                at_low = k + j;
            }
        }
    }
    return low > high ? half + at_low : at_high;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    hash_rows(int32_t *y, const T *x, const float *rotations, const int32_t *mask, int rows, int heads,
              int dim, int columns, gr_hash_attr a)
{
    BY_SHARED(float, tile); /* (dim, THREADS + 1) */
    const int h = blockIdx.y % heads, b = blockIdx.y / heads, first = blockIdx.x * THREADS;
    const int64_t width = (int64_t)heads * dim;
    for (int i = threadIdx.x; i < THREADS * dim; i += THREADS) {
        const int r = i / dim, d = i % dim;
        tile[d * (THREADS + 1) + r] =
            first + r < rows ? to_float(x[((int64_t)b * rows + first + r) * width + h * dim + d]) : 0;
    }
    __syncthreads();
    const int t = first + threadIdx.x;
    if (t >= rows)
        return;
    const int64_t step = (int64_t)a.rounds * columns;
    for (int nth = 0; nth < a.rounds; nth++) {
        const float *turn = rotations + h * dim * step + nth * columns;
        int bucket = 0, unit = 1;
        for (int f = 0; f < a.count; f++) {
            bucket += unit * nearest(tile + threadIdx.x, turn, dim, step, a.factor[f] / 2);
            unit *= a.factor[f];
            turn += a.factor[f] / 2;
        }
        const bool masked = mask && !mask[(int64_t)b * rows + t];
        y[((int64_t)blockIdx.y * a.rounds + nth) * rows + t] = masked ? unit : bucket;
    }
}

template <class T> static by_status hash(cuda_exec *x, gr_node *n)
{
    const by_tensor *from = n->in[0], *r = n->in[1];
    const int rows = (int)from->dim[1], heads = (int)r->dim[0], dim = (int)r->dim[1];
    const dim3 grid(blocks_for(rows, THREADS), (unsigned)(from->dim[0] * heads));
    BY_BRANCH("hash");
    return cuda_launch(x, hash_rows<T>, grid, dim3(THREADS), (size_t)dim * (THREADS + 1) * sizeof(float),
                       (int32_t *)n->out[0]->data, (const T *)from->data, (const float *)r->data,
                       (const int32_t *)(n->in[2] ? n->in[2]->data : NULL), rows, heads, dim, (int)r->dim[3],
                       *(const gr_hash_attr *)n->attr);
}

extern "C" by_status cuda_hash(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[0]->type, hash, cuda_exec_of(e), n)
}
