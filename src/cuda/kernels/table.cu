/* table.cu - the kernels of the GPU, in the order of the op table. */
#include "cuda/cuda.h"

extern "C" const cpu_kernel cuda_table[GR_OP_COUNT] = {
#define GR_OP(ID, name, in, out, traits, gradient) cuda_##name,
#include "graph/ops.def"
#undef GR_OP
};
