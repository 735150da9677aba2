/* random.cu - normal and uniform random numbers, four neighbours from one evaluation of the generator. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256 };

/* The middle of one of 2^24 equal parts of (0, 1). */
static __device__ __forceinline__ float part_of(uint32_t u)
{
    return ((float)(u >> 8) + 0.5f) * 0x1p-24f;
}

/* Two normal numbers from two uniform ones (Box and Muller 1958). */
static __device__ __forceinline__ void normal(uint32_t u, uint32_t v, float *out)
{
    const float far = sqrtf(-2 * logf(part_of(u))), turn = 6.28318531f * part_of(v);
    out[0] = far * cosf(turn);
    out[1] = far * sinf(turn);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    draw(T *y, const uint64_t *random, uint32_t rng, bool is_normal, float scale, int64_t count)
{
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (at >= count)
        return;
    const uint64_t key[2] = {random[0], random[1]};
    const uint4 r = random4(key, rng, (uint64_t)at / 4);
    float v[4] = {2 * part_of(r.x) - 1, 2 * part_of(r.y) - 1, 2 * part_of(r.z) - 1, 2 * part_of(r.w) - 1};
    if (is_normal) {
        normal(r.x, r.y, v);
        normal(r.z, r.w, v + 2);
    }
    for (int k = 0; k < 4; k++)
        if (at + k < count)
            y[at + k] = from_float<T>(v[k] * scale);
}

template <class T> static by_status random(cuda_exec *x, gr_node *n)
{
    const gr_random_attr *a = (const gr_random_attr *)n->attr;
    const int64_t count = elements_of(n->out[0]);
    return cuda_launch(x, draw<T>, blocks_for(count, THREADS * 4), THREADS, 0, (T *)n->out[0]->data,
                       x->random, n->rng, a->kind == BY_RANDOM_NORMAL, (float)a->fill.value, count);
}

extern "C" by_status cuda_random(gr_exec *e, gr_node *n)
{
    BY_BRANCH("random");
    BY_CUDA_DISPATCH(n->out[0]->type, random, cuda_exec_of(e), n)
}
