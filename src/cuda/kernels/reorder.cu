/* reorder.cu - copies rows of a key-value cache to other rows of their group, in place. A thread handles the
 * same position of all rows of a group: it loads all new values before it stores any. */
#include "cuda/kernels/kernel.cuh"

enum { THREADS = 64 };
static const unsigned most_blocks = 64; /* per group */

struct moves {
    const int32_t *from, *past, *pages; /* pages: NULL: row b is page b */
    int beams, count;                   /* count: of the pages */
    int64_t row, position;              /* in words */
};

static __device__ __forceinline__ int page_of(const moves &m, int b)
{
    return m.pages ? m.pages[b] : b;
}

static __device__ bool is_bad(const moves &m, int room, cuda_fault *fault, int node, int group)
{
    const int first = group * m.beams, end = first + m.beams;
    for (int b = first; b < end; b++) {
        if (m.from[b] < first || m.from[b] >= end) {
            report_fault(fault, node, 2, m.from[b], b, end);
            return true;
        }
        if (m.past[b] < 0 || m.past[b] > room) {
            report_fault(fault, node, 3, m.past[b], b, room + 1);
            return true;
        }
        if (page_of(m, b) < 0 || page_of(m, b) >= m.count) {
            report_fault(fault, node, 4, page_of(m, b), b, m.count);
            return true;
        }
    }
    return false;
}

/* One position of a group. space: a word for every row, THREADS apart. */
template <class W>
static __device__ __forceinline__ void move(const moves &m, W *cache, int group, int64_t at, W *space)
{
    const int first = group * m.beams;
    for (int i = 0; i < m.beams; i++) {
        const int b = first + i;
        if (m.from[b] != b && at < m.past[b] * m.position)
            space[i * THREADS] = cache[page_of(m, m.from[b]) * m.row + at];
    }
    for (int i = 0; i < m.beams; i++) {
        const int b = first + i;
        if (m.from[b] != b && at < m.past[b] * m.position)
            cache[page_of(m, b) * m.row + at] = space[i * THREADS];
    }
}

template <class W>
static __global__ void __launch_bounds__(THREADS)
    reorder(W *keys, W *values, moves m, int room, cuda_fault *fault, int node)
{
    BY_SHARED(W, space);
    let_next_start();
    wait_for_previous();
    W *cache = blockIdx.z ? values : keys;
    const int group = (int)blockIdx.y;
    if (is_bad(m, room, fault, node, group))
        return;
    int64_t end = 0;
    for (int b = group * m.beams; b < (group + 1) * m.beams; b++)
        if (m.from[b] != b)
            end = max(end, m.past[b] * m.position);
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < end; at += gridDim.x * THREADS)
        move(m, cache, group, at, space + threadIdx.x);
}

template <class W> static by_status start(cuda_exec *x, gr_node *n)
{
    const by_tensor *keys = n->in[0];
    const int beams = ((const gr_reorder_attr *)n->attr)->beams;
    const size_t position = (size_t)keys->dim[2] * by_dtype_size(keys->type);
    moves m = {(const int32_t *)n->in[2]->data,
               (const int32_t *)n->in[3]->data,
               n->in[4] ? (const int32_t *)n->in[4]->data : NULL,
               beams,
               (int)keys->dim[0],
               (int64_t)((size_t)keys->dim[1] * position / sizeof(W)),
               (int64_t)(position / sizeof(W))};
    const unsigned blocks = blocks_for(m.row, THREADS), groups = (unsigned)(by_elements(n->in[2]) / beams);
    return cuda_launch_early(x, reorder<W>, dim3(blocks < most_blocks ? blocks : most_blocks, groups, 2),
                             THREADS, (size_t)beams * THREADS * sizeof(W), (W *)keys->data,
                             (W *)n->in[1]->data, m, (int)keys->dim[1], x->cuda->device_fault,
                             cuda_number(x, n));
}

extern "C" by_status cuda_reorder(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const size_t position = (size_t)n->in[0]->dim[2] * by_dtype_size(n->in[0]->type);
    if (position % 16 == 0) {
        BY_BRANCH("reorder, whole vectors");
        return start<uint4>(x, n);
    }
    BY_BRANCH("reorder, single elements");
    return by_dtype_size(n->in[0]->type) == 4 ? start<uint32_t>(x, n) : start<uint16_t>(x, n);
}
