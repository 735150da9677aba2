/* buckets.c - maps distances to buckets of increasing width (T5). */
#include "cpu/kernels/kernel.h"

by_status KERNEL(buckets)(gr_exec *e, gr_node *n)
{
    const gr_buckets_attr *a = n->attr;
    int32_t *y = n->out[0]->data;
    (void)e;
    BY_BRANCH("buckets");
    for (int64_t i = 0; i < a->length; i++) {
        const int64_t d = i - a->zero, far = d < 0 ? -d : a->both ? d : 0;
        int k = a->count - 1;
        while (k > 0 && a->first[k] > far)
            k--;
        y[i] = k + (a->both && d > 0 ? a->count : 0);
    }
    return BY_OK;
}
