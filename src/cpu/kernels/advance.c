/* advance.c - advances decoding by one step. */
#include "cpu/kernels/kernel.h"

by_status KERNEL(advance)(gr_exec *e, gr_node *n)
{
    const int32_t *next = n->in[0]->data, last = ((const gr_advance_attr *)n->attr)->last;
    int32_t *tokens = n->in[1]->data, *positions = n->in[2]->data, *past = n->in[3]->data,
            *log = n->in[4]->data;
    const int64_t rows = by_elements(n->in[0]), room = (by_elements(n->in[4]) - 1) / rows;
    (void)e;
    BY_BRANCH("advance");
    for (int64_t b = 0; b < rows; b++) {
        tokens[b] = BY_MAX(next[b], 0);
        positions[b] = BY_MIN(positions[b] + 1, last);
        past[b]++;
        if (log[0] < room)
            log[1 + log[0] * rows + b] = next[b];
    }
    log[0]++;
    return BY_OK;
}
