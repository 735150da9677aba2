/* attention_mma.cuh - tiles of attention by matrix instructions. A warp has 16 * MT rows of a product; rows
 * in shared memory have D elements and a gap of 16 bytes, which puts eight of them into different banks.
 * Elements are numbered as in mma.cuh: with g = lane / 4 and c = lane % 4, element i of a tile of 16 by 8 is
 * in row g + 8 * (i / 2), column 2 c + i % 2. */
#ifndef BY_CUDA_KERNELS_ATTENTION_MMA_CUH
#define BY_CUDA_KERNELS_ATTENTION_MMA_CUH

#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/mma.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* Starts loading rows [r0, r0 + ROWS) of one head, zeros if there are none. */
template <class T, int D, int ROWS>
static __device__ __forceinline__ void fetch(T *to, const T *from, int64_t row, int r0, int rows, int dim)
{
    enum { PIECES = D / 8 };
    static_assert(ROWS * PIECES % THREADS == 0, "every thread loads as much");
    UNROLL
    for (int j = 0; j < ROWS * PIECES / THREADS; j++) {
        const int i = j * THREADS + threadIdx.x, r = i / PIECES, d = i % PIECES * 8;
        const bool real = r0 + r < rows && d < dim;
        copy_async(to + r * (D + 8) + d, real ? from + (r0 + r) * row + d : from, real);
    }
}

/* The left operand of products: 16 * MT rows of D in shared memory, or in registers if HELD. */
template <class T, int D, int MT, bool HELD> struct left_rows {
    const T *at;
    uint32_t held[HELD ? D / 16 : 1][MT][4];

    __device__ __forceinline__ void take(const T *rows)
    {
        const int lane = threadIdx.x & 31;
        at = rows + (lane & 15) * (D + 8) + (lane >> 4) * 8;
        if (HELD)
            UNROLL
        for (int k = 0; k < D / 16; k++)
            UNROLL
        for (int m = 0; m < MT; m++)
            ldmatrix4(held[HELD ? k : 0][m], at + m * 16 * (D + 8) + k * 16);
    }
    __device__ __forceinline__ void get(uint32_t (&a)[MT][4], int k) const
    {
        UNROLL
        for (int m = 0; m < MT; m++) {
            if (!HELD)
                ldmatrix4(a[m], at + m * 16 * (D + 8) + k * 16);
            else
                UNROLL
            for (int i = 0; i < 4; i++)
                a[m][i] = held[HELD ? k : 0][m][i];
        }
    }
};

/* acc (16 MT, 8 NT) += left (16 MT, D) right^T, right (8 NT, D) */
template <class T, int D, int MT, int NT, bool HELD>
static __device__ __forceinline__ void times_rows(float (&acc)[MT][NT][4],
                                                  const left_rows<T, D, MT, HELD> &left, const T *right)
{
    const int lane = threadIdx.x & 31;
    const T *at = right + ((lane & 7) + (lane >> 4) * 8) * (D + 8) + (lane >> 3 & 1) * 8;
    UNROLL
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[MT][4];
        left.get(a, k);
        UNROLL
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            ldmatrix4(b, at + n * 8 * (D + 8) + k * 16);
            UNROLL
            for (int m = 0; m < MT; m++) {
                mma16816<T>(acc[m][n], a[m], b);
                mma16816<T>(acc[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* acc (16 MT, D) += p (16 MT, 8 NT) right, right (8 NT, D); p is a product that is now an operand. */
template <class T, int D, int MT, int NT>
static __device__ __forceinline__ void times_columns(float (&acc)[MT][D / 8][4],
                                                     const uint32_t (&p)[MT][NT][2], const T *right)
{
    const int lane = threadIdx.x & 31;
    const T *at = right + (lane & 15) * (D + 8) + (lane >> 4) * 8;
    UNROLL
    for (int k = 0; k < NT / 2; k++)
        UNROLL
    for (int n = 0; n < D / 8; n += 2) {
        uint32_t b[4];
        ldmatrix4_trans(b, at + k * 16 * (D + 8) + n * 8);
        UNROLL
        for (int m = 0; m < MT; m++) {
            const uint32_t a[4] = {p[m][2 * k][0], p[m][2 * k][1], p[m][2 * k + 1][0], p[m][2 * k + 1][1]};
            mma16816<T>(acc[m][n], a, b);
            mma16816<T>(acc[m][n + 1], a, b + 2);
        }
    }
}

template <class T, int MT, int NT>
static __device__ __forceinline__ void pack_product(uint32_t (&p)[MT][NT][2], const float (&acc)[MT][NT][4])
{
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int n = 0; n < NT; n++) {
        p[m][n][0] = pack2<T>(acc[m][n][0], acc[m][n][1]);
        p[m][n][1] = pack2<T>(acc[m][n][2], acc[m][n][3]);
    }
}

/* Masks what the pattern excludes; arguments as below. By columns, so that there are few divisions. */
template <bool BY_KEY, int MT, int NT>
static __device__ __forceinline__ void hide_unreached(const sight<ANY> &see, int row0, int column0,
                                                      float (&s)[MT][NT][4])
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    gr_spot rows[2 * MT];
    UNROLL
    for (int i = 0; i < 2 * MT; i++)
        rows[i] = gr_spot_of(&see.reach, row0 + 8 * i + g + (BY_KEY ? see.reach.shift : see.shift));
    UNROLL
    for (int j = 0; j < 2 * NT; j++) {
        const int column = column0 + j / 2 * 8 + 2 * c + j % 2;
        const gr_spot spot = gr_spot_of(&see.reach, column + (BY_KEY ? see.shift : see.reach.shift));
        UNROLL
        for (int i = 0; i < 2 * MT; i++)
            if (!gr_reaches(&see.reach, BY_KEY ? spot : rows[i], BY_KEY ? rows[i] : spot))
                s[i / 2][j / 2][i % 2 * 2 + j % 2] = score_unseen(see, BY_KEY ? row0 + 8 * i + g : column);
    }
}

/* Masks the invisible scores of 16 MT queries from row0 and 8 NT keys from column0; BY_KEY: of as many keys
 * from row0 and queries from column0. */
template <bool BY_KEY, int LEVEL, int MT, int NT>
static __device__ __forceinline__ void hide(const sight<LEVEL> &see, int row0, int column0,
                                            float (&s)[MT][NT][4])
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int i = 0; i < NT * 4; i++) {
        const int row = row0 + 16 * m + g + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + 2 * c + i % 2;
        const int key = BY_KEY ? row : column;
        if (!lets(see, BY_KEY ? column : row, key))
            s[m][i / 4][i % 4] = score_unseen(see, key);
    }
    if constexpr (LEVEL == ANY)
        if (see.reach.on)
            hide_unreached<BY_KEY>(see, row0, column0, s);
}

/* Products to exponents with their biases; rows: those of this head. Arguments as those of hide. */
template <bool BY_KEY, class T, int MT, int NT>
static __device__ __forceinline__ void add_bias(const attention &a, const sight<ANY> &see,
                                                const bias_heads<T> &rows, int row0, int column0,
                                                float (&s)[MT][NT][4])
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3;
    const float factor = a.scale * LOG2_E;
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int i = 0; i < NT * 4; i++) {
        const int row = row0 + 16 * m + g + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + 2 * c + i % 2;
        float &x = s[m][i / 4][i % 4];
        x = x * factor + bias_for(a, see, rows, BY_KEY ? column : row, BY_KEY ? row : column);
    }
}

/* Determines which weights of a tile of 16 queries from t0 and 8 NT keys from s0 are kept: bit 4 n of keep[i]
 * is for element i of column tile n. The four lanes of a column that share random numbers draw a quarter
 * each. */
template <int NT>
static __device__ __forceinline__ void kept_by_query(const attention &a, int64_t head, int t0, int s0,
                                                     uint32_t (&keep)[4])
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, mine = g & 3;
    uint32_t bits = 0;
    UNROLL
    for (int n = 0; n < NT; n++)
        bits |= kept4(a, head, t0 + (g & 4) + 8 * (mine >> 1), s0 + 8 * n + 2 * c + (mine & 1)) << 4 * n;
    UNROLL
    for (int i = 0; i < 4; i++)
        keep[i] = __shfl_sync(0xffffffffu, bits, (lane & 19) | i << 2) >> mine;
}

/* The same for 16 keys from s0 and 8 NT queries from t0: bit 4 n + i % 2 of keep[i / 2]. Two lanes share
 * numbers. */
template <int NT>
static __device__ __forceinline__ void kept_by_key(const attention &a, int64_t head, int t0, int s0,
                                                   uint32_t (&keep)[2])
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, mine = c & 1;
    uint32_t bits = 0;
    UNROLL
    for (int n = 0; n < NT; n++)
        bits |= kept4(a, head, t0 + 8 * n + 4 * (c >> 1), s0 + g + 8 * mine) << 4 * n;
    const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 1);
    keep[0] = (mine ? other : bits) >> 2 * mine;
    keep[1] = (mine ? bits : other) >> 2 * mine;
}

/* Writes 16 MT rows of results, times a factor for each, to rows [r0, rows) of a head, through shared memory
 * of the warp. */
template <class T, int D, int MT>
static __device__ __forceinline__ void store_rows(T *to, int64_t row, int r0, int rows, int dim,
                                                  const float (&acc)[MT][D / 8][4], const float (&by)[MT][2],
                                                  T *space)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    __syncwarp();
    UNROLL
    for (int m = 0; m < MT; m++)
        UNROLL
    for (int n = 0; n < D / 8; n++)
        UNROLL
    for (int i = 0; i < 2; i++)
        *(uint32_t *)(space + (m * 16 + g + 8 * i) * (D + 8) + n * 8 + 2 * c) =
            pack2<T>(acc[m][n][2 * i] * by[m][i], acc[m][n][2 * i + 1] * by[m][i]);
    __syncwarp();
    UNROLL
    for (int j = 0; j < MT * D / 16; j++) {
        const int i = j * 32 + lane, r = i / (D / 8), d = i % (D / 8) * 8;
        if (r0 + r < rows && d < dim)
            store(to + (r0 + r) * row + d, load<T, 8>(space + r * (D + 8) + d));
    }
}

#endif
