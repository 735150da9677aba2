/* softmax.cuh - sums of exponentials of a row, by one block, for softmax and the cross-entropy. */
#ifndef BY_CUDA_KERNELS_SOFTMAX_CUH
#define BY_CUDA_KERNELS_SOFTMAX_CUH

#include "cuda/kernels/row_pieces.cuh"

enum { ROW_THREADS = 512 }; /* maximum threads per row */

/* exp(x - base) in three instructions. */
static __device__ __forceinline__ float exp_above(float x, float base)
{
#ifdef BY_CUDA_EMULATE
    return expf(x - base);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"((x - base) * 1.44269504f));
    return y;
#endif
}

/* sum of exp(x - max) so far, and the plain sum if requested. */
struct exp_sum {
    float max, sum, total;
};

static __device__ __forceinline__ exp_sum no_exps()
{
    return exp_sum{-INFINITY, 0, 0};
}

/* The sum is rescaled to the new maximum once for every N elements. */
template <int N>
static __device__ __forceinline__ void add_exps(exp_sum &s, const vec<float, N> &v, bool with_total)
{
    float top = s.max, part = 0;
    for (int j = 0; j < N; j++)
        top = fmaxf(top, v.at[j]);
    const float base = top == -INFINITY ? 0.0f : top; /* all masked so far: exp(-inf) is 0, not NaN */
    for (int j = 0; j < N; j++)
        part += exp_above(v.at[j], base);
    s.sum = s.sum * exp_above(s.max, base) + part;
    s.max = top;
    if (with_total)
        for (int j = 0; j < N; j++)
            s.total += v.at[j];
}

/* Combines over the block. The sum of a row without a finite maximum is NaN. */
static __device__ __forceinline__ exp_sum join_exps(exp_sum s, bool with_total, float *space)
{
    exp_sum all;
    all.max = block_max(s.max, space);
    all.sum = block_sum(s.sum * exp_above(s.max, all.max), space);
    all.total = with_total ? block_sum(s.total, space) : 0;
    return all;
}

template <class T>
static __device__ __forceinline__ exp_sum sum_row(const T *x, int whole, int cols, bool with_total)
{
    exp_sum s = no_exps();
    each_piece(x, whole, cols, [&](int, auto &v) { add_exps(s, v, with_total); });
    return s;
}

#endif
