/* argsort.c - the indices that sort a row: a stable merge sort of numbers that compare like the elements. */
#include "cpu/kernels/kernel.h"

typedef struct entry {
    uint64_t key;
    int32_t place;
} entry;

/* Larger for larger x; -0 is 0, and NaN is the largest. */
static uint64_t key_of(double x, bool descending)
{
    uint64_t u, key = UINT64_MAX;
    if (x == x) {
        memcpy(&u, &x, sizeof u);
        u = u << 1 ? u : 0; /* by its bits: the compiler need not tell -0 from 0 */
        key = u >> 63 ? ~u : u | (uint64_t)1 << 63;
    }
    return descending ? ~key : key;
}

/* from[0, split) and from[split, count), each in order, become to[0, count). */
static void merge(entry *to, const entry *from, int64_t split, int64_t count)
{
    int64_t a = 0, b = split;
    for (int64_t i = 0; i < count; i++)
        to[i] = b >= count || (a < split && from[a].key <= from[b].key) ? from[a++] : from[b++];
}

/* rows of 2 count entries: the first half holds the elements, the order ends in the half that is returned. */
static entry *sort_row(entry *row, int64_t count)
{
    entry *now = row, *next = row + count;
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t at = 0; at < count; at += 2 * run)
            merge(next + at, now + at, BY_MIN(run, count - at), BY_MIN(2 * run, count - at));
        entry *swapped = now;
        now = next;
        next = swapped;
    }
    return now;
}

/* Convert a row through a few doubles at a time; every type is exact in them. */
static void read_row(entry *row, const char *x, by_dtype type, int64_t count, bool descending)
{
    double chunk[128];
    for (int64_t at = 0; at < count; at += BY_COUNT(chunk)) {
        const int64_t part = BY_MIN(BY_COUNT(chunk), count - at);
        base_convert(chunk, BY_F64, x + at * (int64_t)by_dtype_size(type), type, (size_t)part);
        for (int64_t i = 0; i < part; i++)
            row[at + i] = (entry){key_of(chunk[i], descending), (int32_t)(at + i)};
    }
}

by_status KERNEL(argsort)(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const int64_t rows = gr_tensor_rows(x), cols = gr_tensor_cols(x), bands = BY_MIN(rows, e->threads);
    const bool descending = ((const gr_argsort_attr *)n->attr)->descending;
    int32_t *y = n->out[0]->data;
    if (rows * cols == 0)
        return BY_OK;
    entry *space = cpu_scratch_take(e->device, (size_t)(bands * 2 * cols) * sizeof *space);
    if (!space)
        return BY_ERR_MEMORY;
    BY_BRANCH("argsort");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t b = 0; b < bands; b++)
        for (int64_t r = rows * b / bands; r < rows * (b + 1) / bands; r++) {
            entry *row = space + b * 2 * cols;
            read_row(row, (const char *)x->data + r * cols * (int64_t)by_dtype_size(x->type), x->type, cols,
                     descending);
            row = sort_row(row, cols);
            for (int64_t i = 0; i < cols; i++)
                y[r * cols + i] = row[i].place;
        }
    cpu_scratch_give(e->device, space);
    return BY_OK;
}
