/* buckets.cu - maps distances to buckets of increasing width (T5). */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS) sort_into_buckets(int32_t *y, gr_buckets_attr a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.length)
        return;
    const int64_t d = i - a.zero, far = d < 0 ? -d : a.both ? d : 0;
    int k = a.count - 1;
    while (k > 0 && a.first[k] > far)
        k--;
    y[i] = k + (a.both && d > 0 ? a.count : 0);
}

extern "C" by_status cuda_buckets(gr_exec *e, gr_node *n)
{
    const gr_buckets_attr *a = (const gr_buckets_attr *)n->attr;
    BY_BRANCH("buckets");
    return cuda_launch(cuda_exec_of(e), sort_into_buckets, blocks_for(a->length, THREADS), THREADS, 0,
                       (int32_t *)n->out[0]->data, *a);
}
