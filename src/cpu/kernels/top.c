/* top.c - the highest logits of a row and the log-sum-exp of all. Keeps a sorted list of the best so far;
 * skips whole blocks in which nothing exceeds the last of it. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define BLOCK 256 /* elements tested together */

#define BY_TEMPLATE "cpu/kernels/top.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(top)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, top, e, n)
}

#else /* ---- once per element type ---- */

/* Inserts in decreasing order; an equal value goes after existing ones, because its index is higher. */
static void FN(insert)(R *best, int32_t *ids, int k, R x, int32_t id)
{
    int at = k - 1;
    for (; at > 0 && best[at - 1] < x; at--) {
        best[at] = best[at - 1];
        ids[at] = ids[at - 1];
    }
    best[at] = x;
    ids[at] = id;
}

#include "cpu/kernels/row_max.h"

/* The first k fill the list by insertion. */
static R FN(row_top)(const T *x, int64_t count, int k, R *best, int32_t *ids)
{
    const R most = FN(row_max)(x, count);
    double sum = 0;
    for (int i = 0; i < k; i++)
        FN(insert)(best, ids, i + 1, LD(x[i]), i);
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = BY_MIN(from + BLOCK, count);
        const R last = best[k - 1];
        R part = 0;
        int better = 0;
#pragma omp simd reduction(+ : part) reduction(| : better)
        for (int64_t i = from; i < to; i++) {
            part += R_EXP(LD(x[i]) - most);
            better |= LD(x[i]) > last;
        }
        sum += (double)part;
        for (int64_t i = BY_MAX(from, k); better && i < to; i++)
            if (LD(x[i]) > best[k - 1])
                FN(insert)(best, ids, k, LD(x[i]), (int32_t)i);
    }
    return most + (R)log(sum);
}

static by_status FN(top)(gr_exec *e, gr_node *n)
{
    const T *x = n->in[0]->data;
    R *best = n->out[0] ? n->out[0]->data : NULL, *lse = n->out[2] ? n->out[2]->data : NULL;
    int32_t *ids = n->out[1] ? n->out[1]->data : NULL;
    const int k = ((const gr_top_attr *)n->attr)->k;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    BY_BRANCH("top " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (rows > 1 && rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        R unread[BY_TOP_MAX];
        int32_t unread_ids[BY_TOP_MAX];
        R all =
            FN(row_top)(x + r * cols, cols, k, best ? best + r * k : unread, ids ? ids + r * k : unread_ids);
        if (lse)
            lse[r] = all;
    }
    return BY_OK;
}
#endif
