/* wgmma.cuh - features specific to Hopper (sm_90a): products of a warpgroup, four neighbouring warps, with
 * operands in shared memory; tiles brought there by the copy engine; barriers in shared memory that count its
 * bytes.
 *
 * A tile in shared memory is (rows, 64) elements of 16 bits, 128 bytes to a row, at an address divisible by
 * 1024. The 16-byte pieces of a row are permuted so that neither rows nor columns collide in the banks:
 * address bits 4-6 are those of the plain layout xor bits 7-9 (the "128-byte swizzle" of both the copy engine
 * and the matrix unit). A wider matrix is several such tiles, one after the other.
 *
 * wgmma<T, N, TURNED>: d (64, N) f32 [+]= a (64, 16) b (16, N). Warp w of the four has rows 16w ... 16w + 15;
 * within it d and a lie as in mma16816 (mma.cuh), d[4j ... 4j + 3] being columns 8j ... 8j + 7. a is in
 * registers, or in shared memory as rows (64, k), or A_TURNED as rows (k, 64). b is in shared memory: as rows
 * (N, k), or TURNED as rows (k, N), where N is 64, or 128 in two tiles: see operand_pair. It runs on its own:
 * between the first and wgmma_wait neither registers nor tiles may be touched. */
#ifndef BY_CUDA_KERNELS_WGMMA_CUH
#define BY_CUDA_KERNELS_WGMMA_CUH

#include "cuda/kernels/mma.cuh"

enum { WARPGROUP = 128, TILE_COLS = 64, TILE_ROW = 128 /* bytes */ };

/* Kernel bodies are compiled only if the instructions exist. */
#if defined(BY_CUDA_EMULATE) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BY_HOPPER_CODE 1
#else
#define BY_HOPPER_CODE 0
#endif

#ifdef BY_CUDA_EMULATE
#define BY_UNROLL
#else
#include <cuda.h>
#define BY_UNROLL _Pragma("unroll")
#endif

/* ---- operands in shared memory --------------------------------------------------------------- */

/* The descriptor of an operand for the matrix unit: its address in units of 16 bytes, and 1024 bytes from 8
 * rows to the next 8. Steps of 16 along k are 32 bytes for rows (., k) and 16 whole rows for TURNED ones. */
static __device__ __forceinline__ uint32_t operand_place(uint32_t address)
{
    return 1u << 16 | (address & 0x3ffff) >> 4; /* with a field that is unused but must not be 0 */
}
static __device__ __forceinline__ uint64_t operand_at(uint32_t place, int bytes)
{
    return (uint64_t)(1u << 30 | 1024 >> 4) << 32 | (place + (uint32_t)(bytes / 16));
}
/* The same for TURNED rows (k, 128), whose second 64 columns lie `apart` bytes after the first. */
static __device__ __forceinline__ uint64_t operand_pair(uint32_t place, int bytes, int apart)
{
    return operand_at((place & 0xffff) | (uint32_t)(apart / 16) << 16, bytes);
}

/* The offset of the 16-byte piece of a row in a tile. */
static __device__ __forceinline__ int piece_at(int row, int piece)
{
    return row * TILE_ROW + ((piece ^ (row & 7)) << 4);
}

#ifdef BY_CUDA_EMULATE

#include "cuda/kernels/wgmma_emulate.cuh"
#else

/* ---- the instructions ------------------------------------------------------------------------ */

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

typedef CUtensorMap tile_map;

/* A box is `box` rows of one head, or box / pack of each of `pack` heads, of which row 0 of all comes
 * first. */
static inline by_status tile_map_make(tile_map *m, const void *at, int64_t cols, int64_t rows, int64_t heads,
                                      int64_t batch, int64_t row, int64_t head, int64_t step, int box,
                                      int pack = 1)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                  CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);
    static void *encode;
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        BY_TRY(cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                           cudaEnableDefault, &found),
                          "cuTensorMapEncodeTiled"));
        if (found != cudaDriverEntryPointSuccess || !encode)
            return base_fail(BY_ERR_DEVICE, "the driver has no cuTensorMapEncodeTiled");
    }
    /* heads before rows: strides must not decrease */
    const cuuint64_t size[4] = {(cuuint64_t)cols, (cuuint64_t)heads, (cuuint64_t)rows, (cuuint64_t)batch};
    const cuuint64_t stride[3] = {(cuuint64_t)head, (cuuint64_t)row, (cuuint64_t)step};
    const cuuint32_t part[4] = {TILE_COLS, (cuuint32_t)pack, (cuuint32_t)(box / pack), 1},
                     ones[4] = {1, 1, 1, 1};
    CUresult r = ((encode_fn)encode)(m, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)at, size, stride, part,
                                     ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? BY_OK : base_fail(BY_ERR_DEVICE, "no tensor map: CUDA error %d", (int)r);
}

static __device__ __forceinline__ void barrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
/* After the last barrier_init, before the block's barrier: makes them visible to the copy engine. */
static __device__ __forceinline__ void barrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
static __device__ __forceinline__ void barrier_expect(uint64_t *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
                 "r"(bytes)
                 : "memory");
}
/* Waits until the phase of this parity is over; initially, that of parity 1 is. */
static __device__ __forceinline__ void barrier_wait(uint64_t *bar, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(shared_address(bar)),
                 "r"(parity)
                 : "memory");
}

static __device__ __forceinline__ void load_tile(void *to, const tile_map *m, uint64_t *bar, int col, int row,
                                                 int head, int step)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(m), "r"(shared_address(bar)), "r"(col), "r"(head), "r"(row), "r"(step)
                 : "memory");
}
static __device__ __forceinline__ void load_bytes(void *to, const void *from, int bytes, uint64_t *bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(bar))
        : "memory");
}
/* From shared memory to memory, and f32 added to what is there. keep: the result of keep_in_cache.
 * bytes_read: waits until all that this thread has started is read; bytes_wait: until it is in memory. */
static __device__ __forceinline__ uint64_t keep_in_cache()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
static __device__ __forceinline__ void store_bytes(void *to, const void *from, int bytes, uint64_t keep)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes), "l"(keep)
                 : "memory");
}
static __device__ __forceinline__ void add_bytes(float4 *to, const void *from, int bytes, uint64_t keep)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, %3;" ::"l"(
            to),
        "r"(shared_address(from)), "r"(bytes), "l"(keep)
        : "memory");
}
static __device__ __forceinline__ void bytes_read()
{
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read 0;" ::
                     : "memory");
}
static __device__ __forceinline__ void bytes_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* A counter in memory by which thread blocks order their work. Writes before count_set are visible to a
 * reader of that count. */
static __device__ __forceinline__ int count_get(const int *count)
{
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n"
                 "fence.proxy.async.global;"
                 : "=r"(value)
                 : "l"(count)
                 : "memory");
    return value;
}
static __device__ __forceinline__ void count_set(int *count, int value)
{
    asm volatile("fence.proxy.async.global;\n"
                 "st.release.gpu.global.s32 [%0], %1;" ::"l"(count),
                 "r"(value)
                 : "memory");
}

/* Makes what this thread has written to shared memory visible to the matrix unit, before others are
 * notified. */
static __device__ __forceinline__ void written_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Four matrices of 8 x 8 from registers, as ldmatrix4 reads them. */
static __device__ __forceinline__ void stmatrix4(void *row, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
/* Writes or adds four numbers at an address that only this thread uses, in program order. keep: the result of
 * keep_in_cache. */
static __device__ __forceinline__ void put_in_memory(float4 *at, const float *v, uint64_t keep)
{
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(at), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3]), "l"(keep)
                 : "memory");
}
static __device__ __forceinline__ void add_to_memory(float4 *at, const float *v, uint64_t keep)
{
    asm volatile("red.global.add.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(at), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "l"(keep)
                 : "memory");
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most LEFT of the committed groups are in flight. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Orders accesses to d: what comes before this point is done before what follows. After a wait, so that
 * nothing is read too early; before one, so that work is not deferred past it. */
template <int N> static __device__ __forceinline__ void hold(float (&d)[N])
{
    BY_UNROLL
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> static __device__ __forceinline__ void hold(uint32_t (&a)[N][4])
{
    BY_UNROLL
    for (int i = 0; i < 4 * N; i++)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

/* Two warpgroups that alternate: each waits for its turn, and gives the other its own. */
static __device__ __forceinline__ void turn_wait(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(2 * WARPGROUP) : "memory");
}
static __device__ __forceinline__ void turn_give(int group)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + group), "n"(2 * WARPGROUP) : "memory");
}

/* Sets the registers per thread, from here on, for the warpgroup. */
template <int COUNT> static __device__ __forceinline__ void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> static __device__ __forceinline__ void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <class T> struct is_bf16 {
    enum { value = 0 };
};
template <> struct is_bf16<bf16> {
    enum { value = 1 };
};

/* clang-format off */
#define BY_D8(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                  "+f"(d[i + 6]), "+f"(d[i + 7])
#define BY_D32(i) BY_D8(i), BY_D8(i + 8), BY_D8(i + 16), BY_D8(i + 24)
#define BY_OUTPUTS_64  BY_D32(0)
#define BY_OUTPUTS_128 BY_D32(0), BY_D32(32)
#define BY_LIST_64  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
                    "%24,%25,%26,%27,%28,%29,%30,%31"
#define BY_LIST_128 BY_LIST_64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49," \
                    "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define BY_WGMMA_OF(type, n, a, b, add, turned, ...)                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" BY_LIST_##n \
                 "}, " a ", " b ", p, 1, 1, " turned ";\n}"                                       \
                 : BY_OUTPUTS_##n : __VA_ARGS__)
/* clang-format on */
#define BY_WGMMA(...)                     \
    if constexpr (is_bf16<T>::value)      \
        BY_WGMMA_OF("bf16", __VA_ARGS__); \
    else                                  \
        BY_WGMMA_OF("f16", __VA_ARGS__)

template <class T, int N, bool TURNED>
static __device__ __forceinline__ void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add)
{
    static_assert(N == 64 || N == 128, "the shapes that are used");
    if constexpr (N == 64) {
        BY_WGMMA(64, "{%32,%33,%34,%35}", "%36", "%37", "%38", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                 "l"(b), "r"((int)add), "n"((int)TURNED));
    } else {
        BY_WGMMA(128, "{%64,%65,%66,%67}", "%68", "%69", "%70", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                 "l"(b), "r"((int)add), "n"((int)TURNED));
    }
}

template <class T, int N, bool TURNED, bool A_TURNED = false>
static __device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 64 || N == 128, "the shapes that are used");
    if constexpr (N == 64) {
        BY_WGMMA(64, "%32", "%33", "%34", "%35, %36", "l"(a), "l"(b), "r"((int)add), "n"((int)A_TURNED),
                 "n"((int)TURNED));
    } else {
        BY_WGMMA(128, "%64", "%65", "%66", "%67, %68", "l"(a), "l"(b), "r"((int)add), "n"((int)A_TURNED),
                 "n"((int)TURNED));
    }
}
#endif

#endif
