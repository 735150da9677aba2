/* wgmma.cuh - what is Hopper's alone (sm_90a): products of a warpgroup, four neighbouring warps, with
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
 * registers, or in shared memory as rows (64, k). b is in shared memory: as rows (N, k), or TURNED as rows
 * (k, N), where N is 64. It runs on its own: between the first and wgmma_wait neither registers nor tiles may
 * be touched. */
#ifndef BY_CUDA_KERNELS_WGMMA_CUH
#define BY_CUDA_KERNELS_WGMMA_CUH

#include "cuda/kernels/mma.cuh"

enum { WARPGROUP = 128, TILE_COLS = 64, TILE_ROW = 128 /* bytes */ };

/* Kernel bodies are compiled only where the instructions exist. */
#if defined(BY_CUDA_EMULATE) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BY_HOPPER_CODE 1
#else
#define BY_HOPPER_CODE 0
#endif

#ifdef BY_CUDA_EMULATE
#include <vector>
#define BY_UNROLL
#else
#include <cuda.h>
#define BY_UNROLL _Pragma("unroll")
#endif

/* ---- operands in shared memory --------------------------------------------------------------- */

/* How the matrix unit finds an operand: its place in 16 bytes, and 1024 bytes from 8 rows to the next 8.
 * Steps of 16 along k are 32 bytes for rows (., k) and 16 whole rows for TURNED ones. */
static __device__ __forceinline__ uint32_t operand_place(uint32_t address)
{
    return 1u << 16 | (address & 0x3ffff) >> 4; /* with a field that is not used but must not be 0 */
}
static __device__ __forceinline__ uint64_t operand_at(uint32_t place, int bytes)
{
    return (uint64_t)(1u << 30 | 1024 >> 4) << 32 | (place + (uint32_t)(bytes / 16));
}

/* Where the 16-byte piece of a row lies in a tile. */
static __device__ __forceinline__ int piece_at(int row, int piece)
{
    return row * TILE_ROW + ((piece ^ (row & 7)) << 4);
}

#ifdef BY_CUDA_EMULATE

/* ---- the same on the CPU --------------------------------------------------------------------- */

static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - by_emulated_now.shared);
}
static inline float exp2_fast(float x)
{
    return exp2f(x);
}

/* A matrix of rows of heads: (batch, heads, rows, cols) with strides in bytes, cols being next to each other.
 */
struct tile_map {
    const char *at;
    int64_t cols, rows, heads, batch, row, head, step;
    int box;
};
static inline by_status tile_map_make(tile_map *m, const void *at, int64_t cols, int64_t rows, int64_t heads,
                                      int64_t batch, int64_t row, int64_t head, int64_t step, int box)
{
    *m = tile_map{(const char *)at, cols, rows, heads, batch, row, head, step, box};
    return BY_OK;
}

struct emulated_barrier {
    uint8_t count, pending, phase, unused;
    int32_t bytes;
};
static inline void barrier_settle(emulated_barrier *b)
{
    if (b->pending == 0 && b->bytes == 0) {
        b->phase ^= 1;
        b->pending = b->count;
    }
}
static inline void barrier_init(uint64_t *bar, int count)
{
    *(emulated_barrier *)bar = emulated_barrier{(uint8_t)count, (uint8_t)count, 0, 0, 0};
}
static inline void barrier_fence()
{
}
static inline void barrier_arrive(uint64_t *bar)
{
    emulated_barrier *b = (emulated_barrier *)bar;
    if (b->pending == 0)
        abort();
    b->pending--;
    barrier_settle(b);
}
static inline void barrier_expect(uint64_t *bar, int bytes)
{
    ((emulated_barrier *)bar)->bytes += bytes;
    barrier_arrive(bar);
}
static inline void barrier_wait(uint64_t *bar, int parity)
{
    while (((emulated_barrier *)bar)->phase == parity)
        by_emulated_yield();
}
static inline void barrier_count_bytes(uint64_t *bar, int bytes)
{
    emulated_barrier *b = (emulated_barrier *)bar;
    b->bytes -= bytes;
    barrier_settle(b);
}

static inline void load_tile(void *to, const tile_map *m, uint64_t *bar, int col, int row, int head, int step)
{
    const uint32_t base = shared_address(to);
    for (int r = 0; r < m->box; r++) {
        for (int i = 0; i < TILE_ROW / 2; i++) {
            uint32_t plain = base + (uint32_t)(r * TILE_ROW + 2 * i);
            uint16_t value = 0;
            if (row + r < m->rows)
                memcpy(&value,
                       m->at + step * m->step + head * m->head + (int64_t)(row + r) * m->row + 2 * (col + i),
                       2);
            memcpy(by_emulated_now.shared + (plain ^ (plain >> 7 & 7) << 4), &value, 2);
        }
    }
    barrier_count_bytes(bar, m->box * TILE_ROW);
}
static inline void load_bytes(void *to, const void *from, int bytes, uint64_t *bar)
{
    memcpy(to, from, (size_t)bytes);
    barrier_count_bytes(bar, bytes);
}

/* A block's numbered barriers: 1 ... 15. */
static inline void named_wait(int id, int threads)
{
    by_emulated_named_barrier(id, threads, true);
}
static inline void named_arrive(int id, int threads)
{
    by_emulated_named_barrier(id, threads, false);
}

/* Products are done when they are waited for, so that whoever does not wait for them is found out. */
struct emulated_group {
    std::vector<std::function<void()>> products;
};
static inline std::vector<emulated_group> &emulated_groups()
{
    static std::vector<emulated_group> all[1024];
    std::vector<emulated_group> &mine = all[by_emulated_now.index];
    if (mine.empty())
        mine.emplace_back(); /* the one that is not committed yet */
    return mine;
}

static inline uint16_t emulated_word(uint32_t plain)
{
    uint16_t value;
    memcpy(&value, by_emulated_now.shared + (plain ^ (plain >> 7 & 7) << 4), 2);
    return value;
}
/* Element (k, n) of an operand: rows (n, k), or turned (k, n). */
template <class T> static inline float emulated_element(uint64_t operand, bool turned, int k, int n)
{
    const uint32_t base = (uint32_t)(operand & 0x3fff) << 4;
    const uint32_t lead = (uint32_t)(operand >> 16 & 0x3fff) << 4, stride = (uint32_t)(operand >> 32 & 0x3fff)
                                                                            << 4;
    const uint32_t at = turned ? base + n / 64 * lead + n % 64 * 2 + k / 8 * stride + k % 8 * 128
                               : base + n / 8 * stride + n % 8 * 128 + k * 2;
    return to_float(T{emulated_word(at)});
}

template <class T, int N, bool TURNED>
static inline void emulated_product(float *d, const float a[2][16], uint64_t b, bool add)
{
    const int c = by_emulated_now.lane % 4;
    for (int i = 0; i < N / 2; i++) {
        const int col = i / 4 * 8 + 2 * c + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++)
            sum += a[i / 2 % 2][k] * emulated_element<T>(b, TURNED, k, col);
        d[i] = add ? d[i] + sum : sum;
    }
}

template <class T, int N, bool TURNED>
static inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add)
{
    float *to = d;
    const uint32_t *from = a;
    emulated_groups().back().products.push_back([to, from, b, add] {
        by_emulated_show(from, 4 * sizeof(uint32_t));
        const int g = by_emulated_now.lane / 4;
        float rows[2][16];
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k++) {
                const uint32_t *word = (const uint32_t *)by_emulated_slot(g * 4 + k % 8 / 2);
                rows[i][k] = by_emulated_half<T>(word[i + 2 * (k / 8)], k % 2);
            }
        by_emulated_done();
        emulated_product<T, N, TURNED>(to, rows, b, add);
    });
}
template <class T, int N, bool TURNED>
static inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
    float *to = d;
    emulated_groups().back().products.push_back([to, a, b, add] {
        const int row = by_emulated_now.warp % 4 * 16 + by_emulated_now.lane / 4;
        float rows[2][16];
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k++)
                rows[i][k] = emulated_element<T>(a, false, k, row + 8 * i);
        emulated_product<T, N, TURNED>(to, rows, b, add);
    });
}
static inline void wgmma_fence()
{
}
static inline void wgmma_commit()
{
    emulated_groups().emplace_back();
}
template <int LEFT> static inline void wgmma_wait()
{
    std::vector<emulated_group> &all = emulated_groups();
    while ((int)all.size() > LEFT + 1) {
        emulated_group first = all.front();
        all.erase(all.begin());
        for (auto &product : first.products)
            product();
    }
}
template <int N> static inline void hold(float (&)[N])
{
}
template <int N> static inline void hold(uint32_t (&)[N][4])
{
}
template <int COUNT> static inline void registers_up()
{
}
template <int COUNT> static inline void registers_down()
{
}

#else

/* ---- the instructions ------------------------------------------------------------------------ */

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

typedef CUtensorMap tile_map;

static inline by_status tile_map_make(tile_map *m, const void *at, int64_t cols, int64_t rows, int64_t heads,
                                      int64_t batch, int64_t row, int64_t head, int64_t step, int box)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                  CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);
    static void *encode;
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        BY_TRY(by_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                              cudaEnableDefault, &found),
                             "cuTensorMapEncodeTiled"));
        if (found != cudaDriverEntryPointSuccess || !encode)
            return by_fail(BY_ERR_DEVICE, "the driver has no cuTensorMapEncodeTiled");
    }
    /* heads before rows: strides must not fall */
    const cuuint64_t size[4] = {(cuuint64_t)cols, (cuuint64_t)heads, (cuuint64_t)rows, (cuuint64_t)batch};
    const cuuint64_t stride[3] = {(cuuint64_t)head, (cuuint64_t)row, (cuuint64_t)step};
    const cuuint32_t part[4] = {TILE_COLS, 1, (cuuint32_t)box, 1}, ones[4] = {1, 1, 1, 1};
    CUresult r = ((encode_fn)encode)(m, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)at, size, stride, part,
                                     ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? BY_OK : by_fail(BY_ERR_DEVICE, "no tensor map: CUDA error %d", (int)r);
}

static __device__ __forceinline__ void barrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
/* After the last barrier_init, before the block's barrier: the copy engine sees them too. */
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
/* Until the phase of this parity is over; before the first, the one of parity 1 is. */
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
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
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

/* A block's numbered barriers: 1 ... 15. */
static __device__ __forceinline__ void named_wait(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
static __device__ __forceinline__ void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most LEFT of the committed groups are under way. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* What is done to these before this place is done before what follows, and the reverse: after a wait, so that
 * nothing is read too early; before one, so that work is not put off until after it. */
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

/* Registers of a thread, from here on, for the warpgroup. */
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

template <class T, int N, bool TURNED>
static __device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 64 || N == 128, "the shapes that are used");
    if constexpr (N == 64) {
        BY_WGMMA(64, "%32", "%33", "%34", "0, %35", "l"(a), "l"(b), "r"((int)add), "n"((int)TURNED));
    } else {
        BY_WGMMA(128, "%64", "%65", "%66", "0, %67", "l"(a), "l"(b), "r"((int)add), "n"((int)TURNED));
    }
}
#endif

#endif
