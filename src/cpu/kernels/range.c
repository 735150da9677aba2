/* range.c - consecutive numbers along the last axis. */
#include "cpu/kernels/kernel.h"

by_status KERNEL(range)(gr_exec *e, gr_node *n)
{
    (void)e;
    int32_t *y = n->out[0]->data;
    const int32_t first = (int32_t)((const gr_fill_attr *)n->attr)->value;
    int64_t rows = gr_tensor_rows(n->out[0]), cols = gr_tensor_cols(n->out[0]);
    BY_BRANCH("range");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = first + (int32_t)c;
    return BY_OK;
}
