/* emulate.h - the subset of CUDA used by the kernels of this folder, on the CPU. Blocks run one after the
 * other; the threads of a block are coroutines that switch at barriers and at exchanges within a warp. A
 * kernel computes what the GPU would compute, up to rounding in the matrix instructions; speed, and races
 * between blocks, are not emulated. Shared memory is filled with NaNs before every block. */
#ifndef BY_CUDA_EMULATE_H
#define BY_CUDA_EMULATE_H

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __restrict__
#define __launch_bounds__(...)
#define __shared__   static /* one block at a time */
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

/* ---- threads (emulate.cc) -------------------------------------------------------------------- */

enum { BY_EMULATED_WORDS = 8 }; /* 64-bit words that a thread can share with its warp */
struct cuda_emulated {
    dim3 thread, block, block_dim, grid_dim;
    int index, lane, warp; /* of the running thread */
    unsigned char *shared;
    size_t shared_bytes;
    const uint64_t (*shown)[BY_EMULATED_WORDS]; /* after cuda_emulated_show: by lane */
    uint32_t together;                          /* after cuda_emulated_show: the lanes that took part */
};
extern cuda_emulated cuda_emulated_now;

void cuda_emulate(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel);
void cuda_emulated_block_barrier();
void cuda_emulated_warp_barrier();
void cuda_emulated_yield(); /* lets the others continue: for loops that wait for memory */

/* Shares some words with the warp, and waits until all of it has done so. The words of a lane are
 * cuda_emulated_slot(lane), until the next barrier. */
void cuda_emulated_show(const void *words, size_t bytes);
static inline const uint64_t *cuda_emulated_slot(int lane)
{
    return cuda_emulated_now.shown[lane];
}

#define threadIdx (cuda_emulated_now.thread)
#define blockIdx  (cuda_emulated_now.block)
#define blockDim  (cuda_emulated_now.block_dim)
#define gridDim   (cuda_emulated_now.grid_dim)

static inline void __syncthreads()
{
    cuda_emulated_block_barrier();
}
static inline void __syncwarp(unsigned = 0xffffffffu)
{
    cuda_emulated_warp_barrier();
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}
static inline void __nanosleep(unsigned)
{
    cuda_emulated_yield();
}

template <class V> static inline V cuda_emulated_from(V v, int lane)
{
    V got;
    cuda_emulated_show(&v, sizeof v);
    memcpy(&got, cuda_emulated_slot(lane & 31), sizeof got);
    return got;
}
template <class V> static inline V __shfl_sync(unsigned, V v, int lane, int width = 32)
{
    return cuda_emulated_from(v, (cuda_emulated_now.lane & ~(width - 1)) | (lane & (width - 1)));
}
template <class V> static inline V __shfl_xor_sync(unsigned, V v, int mask, int = 32)
{
    return cuda_emulated_from(v, cuda_emulated_now.lane ^ mask);
}
template <class V> static inline V __shfl_down_sync(unsigned, V v, int by, int width = 32)
{
    int lane = cuda_emulated_now.lane;
    return cuda_emulated_from(v, (lane & (width - 1)) + by < width ? lane + by : lane);
}
template <class V> static inline V __shfl_up_sync(unsigned, V v, int by, int width = 32)
{
    int lane = cuda_emulated_now.lane;
    return cuda_emulated_from(v, (lane & (width - 1)) >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned, int predicate)
{
    unsigned bits = 0;
    uint64_t mine = predicate != 0;
    cuda_emulated_show(&mine, sizeof mine);
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)(*cuda_emulated_slot(i) & 1) << i;
    return bits & cuda_emulated_now.together;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == cuda_emulated_now.together;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

template <class V> static inline V atomicAdd(V *at, V by)
{
    V old = *at;
    *at = old + by;
    return old;
}
static inline int atomicCAS(int *at, int compare, int value)
{
    int old = *at;
    *at = old == compare ? value : old;
    return old;
}
static inline int atomicMax(int *at, int v)
{
    int old = *at;
    *at = old > v ? old : v;
    return old;
}
static inline int atomicExch(int *at, int v)
{
    int old = *at;
    *at = v;
    return old;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __int_as_float(int u)
{
    return __uint_as_float((unsigned)u);
}
static inline int __float_as_int(float f)
{
    return (int)__float_as_uint(f);
}
static inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
static inline int __clz(int u)
{
    return u ? __builtin_clz((unsigned)u) : 32;
}
static inline int __ffs(int u)
{
    return __builtin_ffs(u);
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
#define __expf expf
#define __logf logf
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1 / a;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
template <class V> static inline V __ldg(const V *p)
{
    return *p;
}
template <class V> static inline V __ldcg(const V *p)
{
    return *p;
}
template <class V> static inline V __ldcs(const V *p)
{
    return *p;
}
template <class V> static inline void __stcs(V *p, V v)
{
    *p = v;
}
template <class V> static inline void __stcg(V *p, V v)
{
    *p = v;
}
template <class V> static inline V min(V a, V b)
{
    return a < b ? a : b;
}
template <class V> static inline V max(V a, V b)
{
    return a > b ? a : b;
}

/* ---- the runtime ----------------------------------------------------------------------------- */

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef void *cudaGraphExec_t;
enum { cudaSuccess, cudaErrorInsufficientDriver, cudaErrorNoDevice, cudaErrorMemoryAllocation };
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaHostAllocMapped };
#define CUDART_VERSION 0

/* A small card: enough shared memory for every kernel, few multiprocessors, so that small tests have several
 * blocks on each. */
struct cudaDeviceProp {
    char name[32];
    int major, minor, multiProcessorCount, sharedMemPerBlockOptin, l2CacheSize;
    size_t totalGlobalMem;
};
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = {"emulated", 8, 0, 4, 227 * 1024, 1 << 20, (size_t)1 << 30};
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
static inline const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "error";
}
static inline cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    *unused = *total = (size_t)1 << 30;
    return cudaSuccess;
}
static inline cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}
static inline cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaHostAlloc(void **out, size_t bytes, int)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaHostGetDevicePointer(void **out, void *host, int)
{
    *out = host;
    return cudaSuccess;
}
static inline cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}
static inline cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    memset(to, value, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t)
{
    memset(to, value, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, cudaStream_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    *s = NULL;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
typedef double *cudaEvent_t;
static inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = (cudaEvent_t)calloc(1, sizeof **e);
    return cudaSuccess;
}
enum { cudaEventDisableTiming = 2 };
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    return cudaEventCreate(e);
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 0;
    return cudaSuccess;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

#endif
