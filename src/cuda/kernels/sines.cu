/* sines.cu - sinusoidal positions (Vaswani et al. 2017). */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256 };

/* The angle requires f64: at position 500, f32 has an error of 3e-5. */
template <class T>
static __global__ void __launch_bounds__(THREADS) turn(T *y, const int32_t *p, int64_t width, int64_t count)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, cosines = width - width / 2;
    int64_t i = 0;
    if (at >= count)
        return;
    const int64_t row = divide(at, width, &i), k = i < cosines ? i : i - cosines;
    const double angle = (double)p[row] / pow(10000.0, 2.0 * (double)k / (double)width);
    y[at] = from_float<T>((float)(i < cosines ? sin(angle) : cos(angle)));
}

template <class T> static by_status sines(cuda_exec *c, gr_node *n)
{
    const int64_t count = elements_of(n->out[0]);
    BY_BRANCH("sines");
    return cuda_launch(c, turn<T>, blocks_for(count, THREADS), THREADS, 0, (T *)n->out[0]->data,
                       (const int32_t *)n->in[0]->data, ((const gr_sines_attr *)n->attr)->width, count);
}

extern "C" by_status cuda_sines(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, sines, cuda_exec_of(e), n)
}
