/* mma.cuh - the matrix instructions of sm_80 and later, and asynchronous copies into shared memory.
 *
 * mma16816: d (16, 8) f32 += a (16, 16) b (16, 8), spread over a warp. With g = lane / 4, c = lane % 4:
 *   a[0] = A[g][2c, 2c+1]    a[1] = A[g+8][2c..]    a[2] = A[g][2c+8..]    a[3] = A[g+8][2c+8..]
 *   b[0] = B[2c, 2c+1][g]    b[1] = B[2c+8..][g]
 *   d[0] = D[g][2c]  d[1] = D[g][2c+1]  d[2] = D[g+8][2c]  d[3] = D[g+8][2c+1] */
#ifndef BY_CUDA_KERNELS_MMA_CUH
#define BY_CUDA_KERNELS_MMA_CUH

#include "cuda/kernels/kernel.cuh"

#ifdef BY_CUDA_EMULATE

template <class T> static inline float cuda_emulated_half(uint32_t word, int high)
{
    return to_float(T{(uint16_t)(word >> (16 * high))});
}

template <class T> static inline void mma16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    float mine[12];
    for (int i = 0; i < 12; i++)
        mine[i] = cuda_emulated_half<T>(i < 8 ? a[i / 2] : b[i / 2 - 4], i % 2);
    cuda_emulated_show(mine, sizeof mine);
    const int g = cuda_emulated_now.lane / 4, c = cuda_emulated_now.lane % 4;
    float rows[2][16], cols[2][16]; /* g, g + 8 of A; 2c, 2c + 1 of B */
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 16; k++) {
            const int from = k % 8 / 2, half = k / 8, odd = k % 2;
            rows[i][k] = ((const float *)cuda_emulated_slot(g * 4 + from))[4 * half + 2 * i + odd];
            cols[i][k] = ((const float *)cuda_emulated_slot((2 * c + i) * 4 + from))[8 + 2 * half + odd];
        }
    for (int i = 0; i < 4; i++) {
        float sum = 0;
        for (int k = 0; k < 16; k++)
            sum += rows[i / 2][k] * cols[i % 2][k];
        d[i] += sum;
    }
}

/* Lane l gives the address of row l % 8 of matrix l / 8; r[i] is the lane's pair of matrix i. */
template <bool TRANSPOSED> static inline void load_matrices(uint32_t *r, const void *row, int count)
{
    uint64_t mine = (uint64_t)(uintptr_t)row;
    cuda_emulated_show(&mine, sizeof mine);
    const int g = cuda_emulated_now.lane / 4, c = cuda_emulated_now.lane % 4;
    for (int i = 0; i < count; i++) {
        uint16_t pair[2];
        for (int k = 0; k < 2; k++) {
            const int at = TRANSPOSED ? 2 * c + k : g, of = TRANSPOSED ? g : 2 * c + k;
            pair[k] = ((const uint16_t *)(uintptr_t)*cuda_emulated_slot(8 * i + at))[of];
        }
        r[i] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
    }
    __syncwarp(); /* a thread that continues may write there */
}
static inline void ldmatrix4(uint32_t r[4], const void *row)
{
    load_matrices<false>(r, row, 4);
}
static inline void ldmatrix4_trans(uint32_t r[4], const void *row)
{
    load_matrices<true>(r, row, 4);
}
static inline void ldmatrix2(uint32_t r[2], const void *row)
{
    load_matrices<false>(r, row, 2);
}
static inline void ldmatrix2_trans(uint32_t r[2], const void *row)
{
    load_matrices<true>(r, row, 2);
}

/* Copies 16 bytes into shared memory, or 16 zero bytes if not `real`. */
static inline void copy_async(void *to, const void *from, bool real)
{
    if (real)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
static inline void copy_commit()
{
}
template <int LEFT> static inline void copy_wait()
{
}

#else

template <class T>
static __device__ __forceinline__ void mma16816(float d[4], const uint32_t a[4], const uint32_t b[2]);
template <>
__device__ __forceinline__ void mma16816<bf16>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma16816<f16>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ void ldmatrix4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
static __device__ __forceinline__ void ldmatrix4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
static __device__ __forceinline__ void ldmatrix2(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)));
}
static __device__ __forceinline__ void ldmatrix2_trans(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)));
}

/* Copies 16 bytes into shared memory, or 16 zero bytes if not `real`. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool real)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most LEFT of the committed groups are in flight. */
template <int LEFT> static __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

#endif
