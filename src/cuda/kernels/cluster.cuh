/* cluster.cuh - adjacent blocks that run at the same time and read each other's shared memory (compute
 * capability 9.0 and later; before, a cluster is one block). See cuda_launch_clusters(). In the emulation a
 * cluster is one large block: __syncthreads() is a barrier of all of it, so all its blocks must reach the
 * same number of barriers. */
#ifndef BY_CUDA_KERNELS_CLUSTER_CUH
#define BY_CUDA_KERNELS_CLUSTER_CUH

#include "cuda/kernels/kernel.cuh"

struct cluster {
    int size;            /* blocks */
    int rank, thread;    /* index of the block in it, index of the thread in the block */
    int index, clusters; /* index of the cluster, number of clusters */
    int threads;         /* of a block */
};

static __device__ __forceinline__ cluster my_cluster(int size)
{
#ifdef BY_CUDA_EMULATE
    const int threads = (int)blockDim.x / size, thread = (int)threadIdx.x;
    return {size, thread / threads, thread % threads, (int)blockIdx.x, (int)gridDim.x, threads};
#else
    const int block = (int)blockIdx.x;
    return {size, block % size, (int)threadIdx.x, block / size, (int)gridDim.x / size, (int)blockDim.x};
#endif
}

/* This block's shared memory. */
static __device__ __forceinline__ unsigned char *cluster_memory(const cluster &c)
{
    BY_SHARED(unsigned char, memory);
#ifdef BY_CUDA_EMULATE
    memory += c.rank * (cuda_emulated_now.shared_bytes / c.size);
#endif
    (void)c;
    return memory;
}

/* Returns the address in another block of the cluster that corresponds to p in this one. */
template <class V> static __device__ __forceinline__ const V *cluster_peer(const cluster &c, V *p, int rank)
{
#if defined(BY_CUDA_EMULATE)
    const ptrdiff_t apart = (ptrdiff_t)(cuda_emulated_now.shared_bytes / c.size);
    return (const V *)((const unsigned char *)p + (rank - c.rank) * apart);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)p), "r"(rank));
    return (const V *)there;
#else
    return p;
#endif
}

/* The same to write to. */
template <class V> static __device__ __forceinline__ V *cluster_at(const cluster &c, V *p, int rank)
{
    return (V *)cluster_peer(c, p, rank);
}

/* The two halves of a barrier: this block's part is done; all blocks have arrived. */
static __device__ __forceinline__ void cluster_arrive(const cluster &c)
{
#if !defined(BY_CUDA_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (c.size > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
    (void)c;
}
static __device__ __forceinline__ void cluster_wait(const cluster &c)
{
#if !defined(BY_CUDA_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (c.size > 1)
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
    (void)c;
}

/* A barrier of all threads of the cluster, which then see what the others have written. */
static __device__ __forceinline__ void cluster_barrier(const cluster &c)
{
#if !defined(BY_CUDA_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (c.size > 1) {
        asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
        return;
    }
#endif
    (void)c;
    __syncthreads();
}

#endif
