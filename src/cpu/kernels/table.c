/* table.c - the kernels of one instruction set, in the order of the op table. */
#include "cpu/kernels/kernel.h"

const cpu_kernel BY_PASTE(cpu_table, BY_ISA)[GR_OP_COUNT] = {
#define GR_OP(ID, name, in, out, traits, gradient) [GR_OP_##ID] = KERNEL(name),
#include "graph/ops.def"
#undef GR_OP
};
