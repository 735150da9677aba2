/* interpolation.cu - the matrix that resizes a table of positions. */
#include "cuda/kernels/each.cuh"
#include "graph/cubic.h"

enum { THREADS = 256 };

template <class T> static __global__ void __launch_bounds__(THREADS) weigh(T *y, int64_t out, int64_t in)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < out * in)
        y[i] = from_float<T>((float)gr_cubic_weight(i / in, out, i % in, in));
}

template <class T> static by_status interpolation(cuda_exec *x, gr_node *n)
{
    const gr_interpolation_attr *a = (const gr_interpolation_attr *)n->attr;
    BY_BRANCH("interpolation");
    return cuda_launch(x, weigh<T>, blocks_for(a->out * a->in, THREADS), THREADS, 0, (T *)n->out[0]->data,
                       a->out, a->in);
}

extern "C" by_status cuda_interpolation(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, interpolation, cuda_exec_of(e), n)
}
