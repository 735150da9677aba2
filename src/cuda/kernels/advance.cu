/* advance.cu - advances decoding by one step. */
#include "cuda/kernels/kernel.cuh"

/* One block; all threads read the count before it is incremented. */
__global__ void advance(const int *next, int *tokens, int *positions, int *past, int *log, int rows, int room,
                        int last)
{
    let_next_start();
    wait_for_previous();
    const int count = log[0];
    __syncthreads();
    for (int b = (int)threadIdx.x; b < rows; b += (int)blockDim.x) {
        tokens[b] = max(next[b], 0);
        positions[b] = min(positions[b] + 1, last);
        past[b]++;
        if (count < room)
            log[1 + (int64_t)count * rows + b] = next[b];
    }
    if (threadIdx.x == 0)
        log[0] = count + 1;
}

extern "C" by_status cuda_advance(gr_exec *e, gr_node *n)
{
    const int64_t rows = by_elements(n->in[0]);
    BY_BRANCH("advance");
    return cuda_launch_early(cuda_exec_of(e), advance, dim3(1), dim3(256), 0, (const int *)n->in[0]->data,
                             (int *)n->in[1]->data, (int *)n->in[2]->data, (int *)n->in[3]->data,
                             (int *)n->in[4]->data, (int)rows, (int)((by_elements(n->in[4]) - 1) / rows),
                             ((const gr_advance_attr *)n->attr)->last);
}
