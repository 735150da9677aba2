/* table.cu - the kernels of the GPU, in the order of the op table. */
#include "cuda/cuda.h"

extern "C" const by_kernel by_cuda_table[BY_OP_COUNT] = {
#define BY_OP(ID, name, in, out, over, base, from, gradient) by_cuda_##name,
#include "graph/ops.def"
#undef BY_OP
};
