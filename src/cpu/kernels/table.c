/* table.c - the kernels of one instruction set, in the order of the op table. */
#include "cpu/kernels/kernel.h"

const by_kernel BY_PASTE(by_cpu_table, BY_ISA)[BY_OP_COUNT] = {
#define BY_OP(ID, name, in, out, over, base, from, gradient) [BY_OP_##ID] = KERNEL(name),
#include "graph/ops.def"
#undef BY_OP
};
