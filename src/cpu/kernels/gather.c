/* gather.c - gathers rows of a table by index, and scatters gradients back into the table. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define COLUMNS 64 /* columns of the table per task */

static by_status check_ids(const by_tensor *ids, int64_t count, int64_t limit)
{
    const int32_t *id = ids->data;
    for (int64_t i = 0; i < count; i++)
        if (id[i] < 0 || id[i] >= limit)
            return base_fail(BY_ERR_ARGUMENT, "%s: index %d at position %lld is not in [0, %lld)",
                             gr_tensor_label(ids), (int)id[i], (long long)i, (long long)limit);
    return BY_OK;
}

/* Of `count` ids, how many belong to one table; and how many rows a table has, of `rows` in all. */
static void batch_of(const gr_node *n, int64_t count, int64_t rows, int64_t *ids, int64_t *limit)
{
    const int64_t batch = BY_MAX(((const gr_gather_attr *)n->attr)->batch, 1);
    *ids = BY_MAX(count / batch, 1);
    *limit = rows / batch;
}

#define BY_TEMPLATE "cpu/kernels/gather.c"
#include "cpu/kernels/each_type.h"

/* A table of another type than the result's: every row is converted. */
static void gather_converted(const gr_exec *e, gr_node *n, int64_t count)
{
    const by_tensor *table = n->in[0], *y = n->out[0];
    const size_t cols = (size_t)gr_tensor_cols(table), row = by_dtype_bytes(table->type, cols);
    const int32_t *id = n->in[1]->data;
    (void)e; /* without OpenMP */
    BY_BRANCH("gather, converted");
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (count * (int64_t)cols >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < count; i++)
        base_convert((char *)y->data + (size_t)i * cols * by_dtype_size(y->type), y->type,
                     (const char *)table->data + (size_t)id[i] * row, table->type, cols);
}

/* table (V, C), ids (...) -> (..., C); elements are only bytes here. */
by_status KERNEL(gather)(gr_exec *e, gr_node *n)
{
    const by_tensor *table = n->in[0], *ids = n->in[1];
    const int64_t count = gr_tensor_rows(ids) * gr_tensor_cols(ids);
    const int64_t row = gr_tensor_cols(table) * (int64_t)by_dtype_size(table->type);
    const int32_t *id = ids->data;
    int64_t per, limit;
    batch_of(n, count, gr_tensor_rows(table), &per, &limit);
    BY_TRY(check_ids(ids, count, limit));
    if (table->type != n->out[0]->type) {
        gather_converted(e, n, count);
        return BY_OK;
    }
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count * row >= 4 * BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)n->out[0]->data + i * row, (const char *)table->data + (i / per * limit + id[i]) * row,
               (size_t)row);
    return BY_OK;
}

by_status KERNEL(gather_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[1]->type, gather_grad, e, n)
}

#else /* ---- once per element type ---- */

/* dtable[ids[i]] += dy[i]. A thread owns columns and processes the ids in order, so no two threads write the
 * same element, and every sum is in the order of the positions. */
static by_status FN(gather_grad)(gr_exec *e, gr_node *n)
{
    const by_tensor *ids = n->in[0], *table = n->out[0];
    const int64_t count = gr_tensor_rows(ids) * gr_tensor_cols(ids);
    const int64_t rows = gr_tensor_rows(table), cols = gr_tensor_cols(table),
                  bands = (cols + COLUMNS - 1) / COLUMNS;
    const int64_t still = ((const gr_gather_attr *)n->attr)->still;
    const int32_t *id = ids->data;
    const T *dy = n->in[1]->data;
    R *dtable = table->data;
    int64_t per, limit;
    batch_of(n, count, rows, &per, &limit);
    BY_TRY(check_ids(ids, count, limit));
    if (!n->in[2]) {
        BY_BRANCH("gather_grad " BY_STRING(T_NAME) ", from zero");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS)
        for (int64_t r = 0; r < rows; r++)
            memset(dtable + r * cols, 0, (size_t)cols * sizeof *dtable);
    } else {
        BY_BRANCH("gather_grad " BY_STRING(T_NAME) ", added");
    }
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count * cols >= BY_FORK_ELEMENTS)
    for (int64_t b = 0; b < bands; b++) {
        const int64_t from = b * COLUMNS, width = BY_MIN(COLUMNS, cols - from);
        for (int64_t i = 0; i < count; i++) {
            if (id[i] == still)
                continue;
            R *restrict to = dtable + (i / per * limit + id[i]) * cols + from;
            const T *restrict g = dy + i * cols + from;
            R_SIMD
            for (int64_t j = 0; j < width; j++)
                to[j] += LD(g[j]);
        }
    }
    return BY_OK;
}
#endif
