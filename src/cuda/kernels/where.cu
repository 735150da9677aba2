/* where.cu - one of two elements, chosen by a mask. Elements are bytes, 1, 2, 4 or 8 of them. */
#include "cuda/kernels/each.cuh"
#include "graph/spread.h"

enum { THREADS = 256 };

template <class W, class M>
static __global__ void __launch_bounds__(THREADS)
    choose(W *y, const M *mask, const W *a, const W *b, gr_spread s, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t rest = i, at, from[3] = {0, 0, 0};
    for (int k = s.rank - 1; k >= 0; k--) {
        rest = divide(rest, s.dim[k], &at);
        for (int j = 0; j < 3; j++)
            from[j] += at * s.step[j][k];
    }
    y[i] = mask[from[0]] != 0 ? a[from[1]] : b[from[2]];
}

template <class W> static by_status where(cuda_exec *x, gr_node *n)
{
    const int64_t count = elements_of(n->out[0]);
    const gr_spread s = gr_spread_of(n->out[0], n->in, 3);
    W *y = (W *)n->out[0]->data;
    const W *a = (const W *)n->in[1]->data, *b = (const W *)n->in[2]->data;
    if (n->in[0]->type == BY_I32) {
        BY_BRANCH("where, mask of i32");
        return cuda_launch(x, choose<W, int32_t>, blocks_for(count, THREADS), THREADS, 0, y,
                           (const int32_t *)n->in[0]->data, a, b, s, count);
    }
    BY_BRANCH("where, mask of bytes");
    return cuda_launch(x, choose<W, uint8_t>, blocks_for(count, THREADS), THREADS, 0, y,
                       (const uint8_t *)n->in[0]->data, a, b, s, count);
}

extern "C" by_status cuda_where(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    switch (by_dtype_size(n->out[0]->type)) {
    case 1:
        return where<uint8_t>(x, n);
    case 2:
        return where<uint16_t>(x, n);
    case 4:
        return where<uint32_t>(x, n);
    default:
        return where<uint64_t>(x, n);
    }
}
