/* vectors.h - loops that use the vectors of the machine, in rooms that have no kernels of their own. */
#ifndef BY_BASE_VECTORS_H
#define BY_BASE_VECTORS_H

#include <stdint.h> /* says which C library this is */

/* The function is compiled for AVX2 besides, and the program takes what the machine can run. Both results are the same in every bit: there
 * are no fused multiplications. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define BASE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define BASE_VECTORS
#endif
/* What such functions call becomes a part of them. */
#define BASE_INLINE static inline __attribute__((always_inline))

#endif
