/* recurrent_resident.cuh - one kernel for all positions of a recurrent layer. Each block owns some units, keeps their weights in
 * shared memory, and meets the others at a barrier after each position.
 *
 * A position is a product of x, the states (B, H) or, backward, the gradients of the hidden products (B, G*H), with the
 * block's columns, of which a group has COLUMNS or 4 COLUMNS. Lane q 8 + r of a warp has rows r, r + 8, ... Forward, q is
 * a quarter of the columns, and the warps share the depth k; backward, warps and quarters share it. The partial sums are
 * added in order. */
#ifndef BY_CUDA_KERNELS_RECURRENT_RESIDENT_CUH
#define BY_CUDA_KERNELS_RECURRENT_RESIDENT_CUH

#include "cuda/kernels/recurrent.cuh"

enum { LAYER_WARPS = 8, LAYER_THREADS = LAYER_WARPS * 32, COLUMNS = 5, QUARTERS = 4, MOST_ROWS = 4 };

/* How a layer is cut. */
struct layer_shape {
    int depth, pitch;  /* k, and elements from one row of x to the next: a multiple of 8, zeros at the end */
    int group, groups; /* units of a group, groups of a block */
    int columns;       /* of a group in shared memory: COLUMNS, or 4 times that */
    int blocks;
    int rows;  /* of x that are in shared memory at a time: 8 times those of a thread */
    int chunk; /* elements of a row that are */
    int ld_w, ld_x;
    size_t w_bytes, x_bytes, shared;
};

static inline int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* False: it does not fit. */
static bool layer_shape_of(const cuda_context *c, size_t size, by_cell cell, int batch, int width, bool back,
                           layer_shape *s)
{
    const int gates = gr_cell_gates(cell), most = BY_MAX(1, (width + c->sms - 1) / c->sms);
    s->depth = back ? gates * width : width;
    s->pitch = round_up(s->depth, 8);
    s->columns = back ? COLUMNS : QUARTERS * COLUMNS;
    s->group = back ? COLUMNS : s->columns / gates;
    s->groups = (most + s->group - 1) / s->group;
    s->blocks = (width + s->group * s->groups - 1) / (s->group * s->groups);
    s->rows = 8 * BY_MIN((int)MOST_ROWS, (batch + 7) / 8);
    s->ld_w = s->pitch + 8;
    s->w_bytes = (size_t)s->groups * (size_t)s->columns * (size_t)s->ld_w * size;
    const size_t sums = (size_t)(LAYER_WARPS * QUARTERS * COLUMNS * s->rows) * sizeof(float);
    const size_t limit = (size_t)c->shared_limit, row = (size_t)s->rows * sizeof(float);
    if (s->w_bytes + sums + 256 * row > limit)
        return false;
    const int room =
        (int)((limit - s->w_bytes - sums) / row) / 32 * 32 - 28; /* 4 more than a multiple of 32 */
    s->chunk = BY_MIN(s->pitch, room / 8 * 8);
    s->ld_x = round_up(s->chunk, 32) + 4;
    s->x_bytes = (size_t)s->ld_x * row;
    s->shared = s->w_bytes + s->x_bytes + sums;
    return s->shared <= limit && s->blocks <= c->sms;
}

/* ---- the barrier between positions ------------------------------------------------------------- */

static __device__ __forceinline__ void meet(unsigned *arrived, unsigned wanted)
{
#ifndef BY_CUDA_EMULATE
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned seen;
        __threadfence();
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        while (seen < wanted);
    }
    __syncthreads();
#else
    (void)arrived, (void)wanted;
#endif
}

/* The last block to leave sets the counters back. */
static __device__ __forceinline__ void leave(unsigned *arrived)
{
#ifndef BY_CUDA_EMULATE
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(arrived + 1, 1u) == gridDim.x - 1)
        arrived[0] = arrived[1] = 0;
#else
    (void)arrived;
#endif
}

/* ---- parts of a position ----------------------------------------------------------------------- */

/* Row c of w (groups columns, ld_w): gate c / group of unit c % group of its group forward, column W[., unit] backward. */
template <class T, bool BACK, class A>
static __device__ __forceinline__ void load_weights(const A &a, const layer_shape &s, T *w)
{
    const int first = (int)blockIdx.x * s.group * s.groups, all = s.groups * s.columns;
    for (int c = 0; c < all; c++) {
        const int in_group = c % s.columns, gate = in_group / s.group;
        const int unit = first + c / s.columns * s.group + in_group % s.group;
        const bool there = unit < a.width && gate * a.width < (BACK ? a.width : a.wide);
        for (int k = threadIdx.x; k < s.pitch; k += LAYER_THREADS) {
            const int64_t at =
                BACK ? (int64_t)k * a.width + unit : ((int64_t)gate * a.width + unit) * a.width + k;
            w[c * s.ld_w + k] = there && k < s.depth ? a.w[at] : from_float<T>(0);
        }
    }
}

/* x: rows [row0, row0 + rows) of the state, elements [k0, k0 + count), written by other blocks. */
template <class T>
static __device__ __forceinline__ void stage(const T *state, const layer_shape &s, int row0, int batch,
                                             int k0, int count, float *x)
{
    enum { N = wide<T>::N, FLIGHT = 8 };
    const int pieces = count / N, all = min(s.rows, batch - row0) * pieces;
    union {
        uint4 bits;
        T at[N];
    } v[FLIGHT];
    for (int base = threadIdx.x; base < all;
         base += FLIGHT * LAYER_THREADS) { /* all loads, then all stores */
        for (int f = 0; f < FLIGHT; f++) {
            const int i = base + f * LAYER_THREADS, r = i / pieces, k = i % pieces * N;
            if (i < all)
                v[f].bits = __ldcg((const uint4 *)(state + (int64_t)(row0 + r) * s.pitch + k0 + k));
        }
        for (int f = 0; f < FLIGHT; f++) {
            const int i = base + f * LAYER_THREADS, r = i / pieces, k = i % pieces * N;
            for (int j = 0; i < all && j < N; j++)
                x[r * s.ld_x + k + j] = to_float(v[f].at[j]);
        }
    }
}

/* acc += x w over the lane's share of `count` elements from k0 on. */
template <class T, bool BACK, int ROWS>
static __device__ __forceinline__ void multiply(const layer_shape &s, const float *x, const T *w, int k0,
                                                int count, float (&acc)[ROWS][COLUMNS])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = lane & 7, q = lane >> 3;
    const int first = BACK ? warp * QUARTERS + q : warp, step = BACK ? LAYER_WARPS * QUARTERS : LAYER_WARPS;
    const T *mine = w + (BACK ? 0 : q * COLUMNS) * s.ld_w + k0;
    for (int k = 4 * first; k < count; k += 4 * step) {
        vec<float, 4> v[ROWS];
        for (int i = 0; i < ROWS; i++)
            v[i] = load<float, 4>(x + (r + 8 * i) * s.ld_x + k);
        for (int j = 0; j < COLUMNS; j++) {
            const vec<T, 4> u = load<T, 4>(mine + j * s.ld_w + k);
            for (int e = 0; e < 4; e++) {
                const float f = to_float(u.at[e]);
                for (int i = 0; i < ROWS; i++)
                    acc[i][j] += v[i].at[e] * f;
            }
        }
    }
}

/* sums (parts, rows, columns), parts: warps, or warps and quarters */
template <bool BACK, int ROWS>
static __device__ __forceinline__ void put_sums(const layer_shape &s, const float (&acc)[ROWS][COLUMNS],
                                                float *sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = lane & 7, q = lane >> 3;
    const int part = BACK ? warp * QUARTERS + q : warp, column = BACK ? 0 : q * COLUMNS;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            sums[(part * s.rows + r + 8 * i) * s.columns + column + j] = acc[i][j];
}

static __device__ __forceinline__ float sum_parts(const layer_shape &s, const float *sums, int parts, int row,
                                                  int column)
{
    float sum = 0;
    for (int p = 0; p < parts; p++)
        sum += sums[(p * s.rows + row) * s.columns + column];
    return sum;
}

template <class T>
static __device__ __forceinline__ void finish_unit(const recurrent_args<T> &a, const layer_shape &s, int step,
                                                   int row, int unit, const float *sums, int in_tile,
                                                   int in_group)
{
    float sum[4] = {0, 0, 0, 0};
    for (int g = 0; g < a.wide / a.width; g++)
        sum[g] = sum_parts(s, sums, LAYER_WARPS, in_tile, g * s.group + in_group);
    unit_step(a, step, row, unit, sum);
}
template <class T>
static __device__ __forceinline__ void finish_unit(const recurrent_grad_args<T> &a, const layer_shape &s,
                                                   int step, int row, int unit, const float *sums,
                                                   int in_tile, int in_group)
{
    const float sum = sum_parts(s, sums, LAYER_WARPS * QUARTERS, in_tile, in_group);
    if (step >= 0)
        unit_back(a, step, row, unit, sum);
    else
        a.dh0[(int64_t)row * a.width + unit] = from_float<T>(a.dh[(int64_t)row * a.width + unit] + sum);
}

/* ---- the kernel --------------------------------------------------------------------------------- */

/* Rounds [from, to) of `rounds`: positions 0, 1, ... forward; the last, ..., 0 and perhaps -1 backward. */
template <class T, class A, bool BACK, int ROWS>
static __global__ void __launch_bounds__(LAYER_THREADS, 1)
    resident_layer(A a, layer_shape s, int from, int to, int rounds, unsigned *arrived)
{
    BY_SHARED(unsigned char, memory);
    T *w = (T *)memory;
    float *x = (float *)(memory + s.w_bytes), *sums = (float *)(memory + s.w_bytes + s.x_bytes);
    const int first = (int)blockIdx.x * s.group * s.groups;
    load_weights<T, BACK>(a, s, w);
    for (int round = from; round < to; round++) {
        const int step = BACK ? a.length - 1 - round : round;
        const T *state = a.state[(BACK ? step + 1 : step) & 1];
        const int depth = BACK && round == 0 ? 0 : s.pitch; /* nothing comes after the last */
        for (int row0 = 0; row0 < a.batch; row0 += s.rows)
            for (int g = 0; g < s.groups; g++) {
                float acc[ROWS][COLUMNS] = {};
                for (int k0 = 0; k0 < depth; k0 += s.chunk) {
                    const int count = min(s.chunk, depth - k0);
                    if (g == 0 || s.chunk < depth)
                        stage(state, s, row0, a.batch, k0, count, x);
                    __syncthreads();
                    multiply<T, BACK, ROWS>(s, x, w + g * s.columns * s.ld_w, k0, count, acc);
                    __syncthreads();
                }
                put_sums<BACK, ROWS>(s, acc, sums);
                __syncthreads();
                for (int i = threadIdx.x; i < s.rows * s.group; i += LAYER_THREADS) {
                    const int row = row0 + i / s.group, in_group = i % s.group;
                    const int unit = first + g * s.group + in_group;
                    if (row < a.batch && unit < a.width)
                        finish_unit(a, s, step, row, unit, sums, i / s.group, in_group);
                }
                __syncthreads();
            }
        if (round + 1 < rounds)
            meet(arrived, (unsigned)(round + 1) * gridDim.x);
    }
    leave(arrived);
}

/* All blocks must be on the card at the same time. */
template <class T, class A, bool BACK, int ROWS>
static by_status launch_layer(cuda_exec *x, const A &a, const layer_shape &s, int rounds)
{
    unsigned *arrived = (unsigned *)x->cuda->counters;
#ifdef BY_CUDA_EMULATE /* where blocks run one after the other */
    for (int i = 0; i < rounds; i++)
        BY_TRY(cuda_launch(x, resident_layer<T, A, BACK, ROWS>, dim3((unsigned)s.blocks), LAYER_THREADS,
                           s.shared, a, s, i, i + 1, rounds, arrived));
    return BY_OK;
#else
    const void *kernel = (const void *)resident_layer<T, A, BACK, ROWS>;
    if (x->dry) {
        cuda_plan_kernel(x, kernel, dim3((unsigned)s.blocks));
        return cuda_allow_shared(kernel, s.shared);
    }
    A args = a;
    layer_shape shape = s;
    int from = 0;
    void *list[] = {&args, &shape, &from, &rounds, &rounds, &arrived};
    return cuda_check(cudaLaunchCooperativeKernel(kernel, dim3((unsigned)s.blocks), dim3(LAYER_THREADS), list,
                                                  s.shared, x->stream),
                      "launch");
#endif
}

template <class T, bool BACK, class A>
static by_status run_layer(cuda_exec *x, const A &a, const layer_shape &s, int rounds)
{
    switch (s.rows / 8) {
    case 1:
        return launch_layer<T, A, BACK, 1>(x, a, s, rounds);
    case 2:
        return launch_layer<T, A, BACK, 2>(x, a, s, rounds);
    case 3:
        return launch_layer<T, A, BACK, 3>(x, a, s, rounds);
    default:
        return launch_layer<T, A, BACK, 4>(x, a, s, rounds);
    }
}

#endif
