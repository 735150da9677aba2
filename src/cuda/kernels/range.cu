/* range.cu - consecutive numbers along the last axis. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS) count_up(int32_t *y, int64_t cols, int64_t count, int first)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at = 0;
    if (i >= count)
        return;
    divide(i, cols, &at);
    y[i] = first + (int32_t)at;
}

extern "C" by_status cuda_range(gr_exec *e, gr_node *n)
{
    const int64_t count = elements_of(n->out[0]);
    BY_BRANCH("range");
    return cuda_launch(cuda_exec_of(e), count_up, blocks_for(count, THREADS), THREADS, 0,
                       (int32_t *)n->out[0]->data, gr_tensor_cols(n->out[0]), count,
                       (int)((const gr_fill_attr *)n->attr)->value);
}
