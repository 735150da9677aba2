/* attention_plain.cuh - tiles of attention without matrix instructions: f32, computed as such, and any head
 * size. A block of 256 threads computes tiles of 64 by 64, 4 by 4 per thread. Thread (y, x) of 16 by 16 has
 * rows 4 y + i; columns x + 16 j of dot products, columns 4 x + j of sums. Heads are processed in parts of 64
 * elements. */
#ifndef BY_CUDA_KERNELS_ATTENTION_PLAIN_CUH
#define BY_CUDA_KERNELS_ATTENTION_PLAIN_CUH

#include "cuda/kernels/attention.cuh"

enum { SIDE = 64, PITCH = SIDE + 4, SQUARE = SIDE * PITCH, PLAIN_THREADS = 256 };

#define THREAD_Y ((int)threadIdx.x / 16)
#define THREAD_X ((int)threadIdx.x % 16)

/* Loads elements [d0, d0 + SIDE) of rows [r0, r0 + SIDE) of a head times a factor, zeros if there are
 * none. */
template <class T>
static __device__ __forceinline__ void fetch_square(float *to, const T *from, int64_t row, int r0, int rows,
                                                    int d0, int dim, float factor)
{
    const int d = d0 + 4 * THREAD_X;
    UNROLL
    for (int j = 0; j < 4; j++) {
        const int r = THREAD_Y + 16 * j;
        const T *at = from + (r0 + r) * row + d;
        vec<float, 4> v = {{0, 0, 0, 0}};
        if (r0 + r < rows && d < dim && dim % 4 == 0) {
            const vec<T, 4> x = load<T, 4>(at);
            UNROLL
            for (int i = 0; i < 4; i++)
                v.at[i] = to_float(x.at[i]) * factor;
        } else if (r0 + r < rows) {
            UNROLL
            for (int i = 0; i < 4; i++)
                if (d + i < dim)
                    v.at[i] = to_float(at[i]) * factor;
        }
        store(to + r * PITCH + 4 * THREAD_X, v);
    }
}

/* acc[i][j] += row 4 y + i of a times row x + 16 j of b */
static __device__ __forceinline__ void add_dots(float (&acc)[4][4], const float *a, const float *b)
{
    UNROLL_4
    for (int d = 0; d < SIDE; d += 4) {
        vec<float, 4> p[4], q[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            p[i] = load<float, 4>(a + (4 * THREAD_Y + i) * PITCH + d);
            q[i] = load<float, 4>(b + (THREAD_X + 16 * i) * PITCH + d);
        }
        UNROLL
        for (int i = 0; i < 64; i++)
            acc[i / 16][i / 4 % 4] += p[i / 16].at[i % 4] * q[i / 4 % 4].at[i % 4];
    }
}

/* acc[i][j] += sum over s of p[4 y + i][s] v[s][4 x + j] */
static __device__ __forceinline__ void add_sums(float (&acc)[4][4], const float *p, const float *v)
{
    UNROLL_4
    for (int s = 0; s < SIDE; s += 4) {
        vec<float, 4> w[4], x[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[i] = load<float, 4>(p + (4 * THREAD_Y + i) * PITCH + s);
            x[i] = load<float, 4>(v + (s + i) * PITCH + 4 * THREAD_X);
        }
        UNROLL
        for (int i = 0; i < 64; i++)
            acc[i / 16][i % 4] += w[i / 16].at[i / 4 % 4] * x[i / 4 % 4].at[i % 4];
    }
}

/* acc[i][j] += sum over t of p[t][4 y + i] v[t][4 x + j] */
static __device__ __forceinline__ void add_sums_turned(float (&acc)[4][4], const float *p, const float *v)
{
    UNROLL_4
    for (int t = 0; t < SIDE; t++) {
        const vec<float, 4> w = load<float, 4>(p + t * PITCH + 4 * THREAD_Y);
        const vec<float, 4> x = load<float, 4>(v + t * PITCH + 4 * THREAD_X);
        UNROLL
        for (int i = 0; i < 16; i++)
            acc[i / 4][i % 4] += w.at[i / 4] * x.at[i % 4];
    }
}

/* s[i][j] = a (rows from t0, times factor) b^T (rows from s0), part by part of the heads. */
template <class T>
static __device__ __forceinline__ void dots_of(float (&s)[4][4], int dim, const T *a, int64_t a_row, int t0,
                                               int a_rows, float factor, const T *b, int64_t b_row, int s0,
                                               int b_rows, float *space_a, float *space_b)
{
    UNROLL
    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] = 0;
    for (int d0 = 0; d0 < dim; d0 += SIDE) {
        __syncthreads();
        fetch_square(space_a, a, a_row, t0, a_rows, d0, dim, factor);
        fetch_square(space_b, b, b_row, s0, b_rows, d0, dim, 1);
        __syncthreads();
        add_dots(s, space_a, space_b);
    }
}

/* Exponents of queries from t0 and keys from s0 with their biases; rows: those of this head. */
template <class T>
static __device__ __forceinline__ void add_bias_square(const attention &a, const sight<ANY> &see,
                                                       const bias_heads<T> &rows, int t0, int s0,
                                                       float (&s)[4][4])
{
    UNROLL
    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] += bias_for(a, see, rows, t0 + 4 * THREAD_Y + i / 4, s0 + THREAD_X + 16 * (i % 4));
}

/* p (SIDE, PITCH) = the dot products of all threads */
static __device__ __forceinline__ void put_square(float *p, const float (&s)[4][4])
{
    UNROLL
    for (int i = 0; i < 16; i++)
        p[(4 * THREAD_Y + i / 4) * PITCH + THREAD_X + 16 * (i % 4)] = s[i / 4][i % 4];
}

/* Bit i of keep[j]: weight (4 y + i, x + 16 j) of queries from t0 and keys from s0 is kept. */
static __device__ __forceinline__ void kept_square(const attention &a, int64_t head, int t0, int s0,
                                                   uint32_t (&keep)[4])
{
    UNROLL
    for (int j = 0; j < 4; j++)
        keep[j] = kept4(a, head, t0 + 4 * THREAD_Y, s0 + THREAD_X + 16 * j);
}

/* Zeroes the dropped weights of a thread, and scales the others. */
static __device__ __forceinline__ void drop_weights(const attention &a, const uint32_t (&keep)[4],
                                                    float (&p)[4][4])
{
    UNROLL
    for (int i = 0; i < 16; i++)
        p[i / 4][i % 4] = keep[i % 4] >> i / 4 & 1 ? p[i / 4][i % 4] * a.dropping.factor : 0;
}

/* Sums to rows [r0, rows) and elements [d0, dim) of a head. */
template <class T>
static __device__ __forceinline__ void store_square(T *to, int64_t row, int r0, int rows, int d0, int dim,
                                                    const float (&acc)[4][4], const float (&by)[4])
{
    const int d = d0 + 4 * THREAD_X;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int r = r0 + 4 * THREAD_Y + i;
        if (r >= rows || d >= dim)
            continue;
        if (dim % 4 == 0) {
            vec<T, 4> v;
            UNROLL
            for (int j = 0; j < 4; j++)
                v.at[j] = from_float<T>(acc[i][j] * by[i]);
            store(to + r * row + d, v);
        } else {
            UNROLL
            for (int j = 0; j < 4; j++)
                if (d + j < dim)
                    to[r * row + d + j] = from_float<T>(acc[i][j] * by[i]);
        }
    }
}

#endif
