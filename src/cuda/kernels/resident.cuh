/* resident.cuh - nodes of a decoding step that one resident kernel does together
 * (kernels/resident_phases.cuh). */
#ifndef BY_CUDA_KERNELS_RESIDENT_CUH
#define BY_CUDA_KERNELS_RESIDENT_CUH

#include "cuda/cuda.h"

/* A run of consecutive nodes: [from, to). */
typedef struct cuda_resident {
    int from, to;
    void *own; /* resident.cu's */
} cuda_resident;

/* The first run of nodes in a program whose kernels have been planned; from == to if there is none. */
by_status cuda_resident_find(by_program *p, const cuda_exec *x, cuda_resident *r);
by_status cuda_resident_run(cuda_exec *x, const cuda_resident *r);
void cuda_resident_forget(by_program *p, cuda_resident *r);

#endif
