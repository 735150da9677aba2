/* hash.c - buckets of vectors by random rotations (Andoni et al. 2015): which of the directions r and -r is
 * nearest. Products are computed in the accumulation type. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define BY_TEMPLATE "cpu/kernels/hash.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(hash)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, hash, e, n)
}

#else /* ---- once per element type ---- */

/* The first of the largest of {x, -x}. */
static int32_t FN(nearest)(const R *x, int half)
{
    R best = x[0];
    int32_t at = 0;
    for (int i = 1; i < 2 * half; i++) {
        const R value = i < half ? x[i] : -x[i - half];
        if (value > best) {
            best = value;
            at = i;
        }
    }
    return at;
}

/* products (R, S): those of one row -> its buckets, `step` elements apart. */
static void FN(buckets_of)(const gr_hash_attr *a, const R *products, int64_t columns, bool masked, int32_t *y,
                           int64_t step)
{
    for (int r = 0; r < a->rounds; r++) {
        const R *x = products + r * columns;
        int32_t bucket = 0, unit = 1;
        for (int f = 0; f < a->count; f++) {
            bucket += unit * FN(nearest)(x, a->factor[f] / 2);
            unit *= a->factor[f];
            x += a->factor[f] / 2;
        }
        y[r * step] = masked ? unit : bucket;
    }
}

static by_status FN(hash)(gr_exec *e, gr_node *n)
{
    const gr_hash_attr *a = n->attr;
    const by_tensor *rotations = n->in[1];
    const int64_t rows = n->in[0]->dim[1], heads = rotations->dim[0], dim = rotations->dim[1];
    const int64_t columns = rotations->dim[3], all = a->rounds * columns;
    const int64_t tasks = n->in[0]->dim[0] * heads, bands = BY_MIN(tasks, e->threads);
    const int32_t *mask = n->in[2] ? n->in[2]->data : NULL;
    R *space = cpu_scratch_take(e->device, (size_t)(bands * all) * sizeof *space);
    if (!space)
        return BY_ERR_MEMORY;
    BY_BRANCH("hash " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (tasks * rows * dim >= BY_FORK_ELEMENTS)
    for (int64_t band = 0; band < bands; band++)
        for (int64_t i = tasks * band / bands; i < tasks * (band + 1) / bands; i++)
            for (int64_t t = 0; t < rows; t++) {
                const int64_t b = i / heads, h = i % heads;
                const T *x = (const T *)n->in[0]->data + ((b * rows + t) * heads + h) * dim;
                const R *turn = (const R *)rotations->data + h * dim * all;
                R *restrict sum = space + band * all;
                memset(sum, 0, (size_t)all * sizeof *sum);
                for (int64_t d = 0; d < dim; d++, turn += all) {
                    const R factor = LD(x[d]);
                    R_SIMD
                    for (int64_t k = 0; k < all; k++)
                        sum[k] += factor * turn[k];
                }
                FN(buckets_of)
                (a, sum, columns, mask && !mask[b * rows + t],
                 (int32_t *)n->out[0]->data + i * a->rounds * rows + t, rows);
            }
    cpu_scratch_give(e->device, space);
    return BY_OK;
}
#endif
