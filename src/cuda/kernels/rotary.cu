/* rotary.cu - rotary positions (Su et al. 2021): rotates pairs of elements of every head by angles
 * proportional to the position. */
#include "cuda/kernels/each.cuh"
#include "graph/frequencies.h"

enum { THREADS = 128, HEADS = 8 }; /* threads of a block; heads that a thread rotates by the same angle */

/* The frequencies for a text that may be longer than the trained length: one block. */
static __global__ void __launch_bounds__(THREADS)
    long_frequencies(gr_rotary_attr a, const int32_t *positions, int64_t count, float *to)
{
    __shared__ int most[THREADS];
    int mine = -1;
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        mine = max(mine, positions[i]);
    most[threadIdx.x] = mine;
    __syncthreads();
    for (int i = 0; i < THREADS; i++)
        mine = max(mine, most[i]);
    const double theta = gr_rotary_theta(&a, (int64_t)mine + 1);
    for (int i = threadIdx.x; i < a.width / 2; i += THREADS)
        to[i] = mine < a.trained ? a.frequency[i] : gr_rotary_frequency(theta, i, a.width);
}

/* A thread has one pair of elements of HEADS heads of a row. frequency NULL: those of the attributes. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    turn(const T *x, T *y, const int32_t *positions, int64_t count, int64_t rows, int heads, gr_rotary_attr a,
         const float *frequency)
{
    const int pairs = (a.head_dim + 1) / 2, half = a.width / 2; /* those beyond half are copied */
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t pair = 0;
    const int64_t row = divide(at, pairs, &pair);
    if (row >= rows)
        return;
    const int i = (int)pair, first = (int)blockIdx.y * HEADS, last = min(first + HEADS, heads);
    const bool turned = i < half;
    const int one = turned ? (a.interleaved ? 2 * i : i) : 2 * i;
    const int two = turned ? (a.interleaved ? 2 * i + 1 : i + half) : 2 * i + 1;
    float c = 1, s = 0;
    if (turned) {
        const float angle = (float)positions[row % count] * (frequency ? frequency[i] : a.frequency[i]);
        c = cosf(angle) * a.factor;
        s = (a.inverse ? -sinf(angle) : sinf(angle)) * a.factor;
    }
    for (int h = first; h < last; h++) {
        const int64_t from = (row * heads + h) * a.head_dim;
        const float p = to_float(x[from + one]), q = two < a.head_dim ? to_float(x[from + two]) : 0;
        y[from + one] = turned ? from_float<T>(p * c - q * s) : x[from + one];
        if (two < a.head_dim)
            y[from + two] = turned ? from_float<T>(q * c + p * s) : x[from + two];
    }
}

template <class T> static by_status rotary(cuda_exec *c, gr_node *n)
{
    const gr_rotary_attr *a = (const gr_rotary_attr *)n->attr;
    const by_tensor *x = n->in[0], *p = n->in[1];
    const int64_t rows = x->dim[0] * x->dim[1], count = elements_of(p);
    const int heads = (int)(x->dim[2] / a->head_dim);
    float *frequency = NULL;
    BY_BRANCH("rotary");
    if (a->trained > 0) {
        BY_BRANCH("rotary, longer than trained");
        frequency = (float *)cuda_scratch(c, sizeof(float) * (size_t)(a->width / 2));
        BY_TRY(cuda_launch(c, long_frequencies, dim3(1), dim3(THREADS), 0, *a, (const int32_t *)p->data,
                           count, frequency));
    }
    const dim3 grid(blocks_for(rows * ((a->head_dim + 1) / 2), THREADS),
                    (unsigned)((heads + HEADS - 1) / HEADS));
    return cuda_launch(c, turn<T>, grid, dim3(THREADS), 0, (const T *)x->data, (T *)n->out[0]->data,
                       (const int32_t *)p->data, count, rows, heads, *a, frequency);
}

extern "C" by_status cuda_rotary(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->out[0]->type, rotary, cuda_exec_of(e), n)
}
