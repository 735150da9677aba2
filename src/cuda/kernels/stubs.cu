/* stubs.cu - until every kernel is there. */
#include "cuda/cuda.h"
extern "C" {
#define BY_OP(ID, name, in, out, over, base, from, gradient)              \
    __attribute__((weak)) by_status by_cuda_##name(by_exec *, by_node *)  \
    {                                                                     \
        return by_fail(BY_ERR_UNSUPPORTED, #name ": no CUDA kernel yet"); \
    }
#include "graph/ops.def"
#undef BY_OP
__attribute__((weak)) extern const by_kernel by_cuda_table[BY_OP_COUNT] = {
#define BY_OP(ID, name, in, out, over, base, from, gradient) by_cuda_##name,
#include "graph/ops.def"
#undef BY_OP
};
}
