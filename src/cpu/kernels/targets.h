/* targets.h - targets of losses, input 1 of a node: a class for each row, or none. */
#ifndef BY_CPU_KERNELS_TARGETS_H
#define BY_CPU_KERNELS_TARGETS_H

#include "cpu/kernels/kernel.h"

/* Checks that every target is a class or ignore_index; *counted is the number of targets that are classes. */
static by_status check_targets(const gr_node *n, int64_t rows, int64_t classes, int ignore, int64_t *counted)
{
    const int32_t *target = n->in[1]->data;
    *counted = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (target[r] == ignore)
            continue;
        if (target[r] < 0 || target[r] >= classes)
            return base_fail(
                BY_ERR_ARGUMENT, "%s: target %d of row %lld is not in [0, %lld) nor the ignored %d",
                gr_tensor_label(n->in[1]), (int)target[r], (long long)r, (long long)classes, ignore);
        ++*counted;
    }
    return BY_OK;
}

#endif
