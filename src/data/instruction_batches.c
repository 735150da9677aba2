/* instruction_batches.c - rows of sequences, one each or packed by best fit, and batches of rows. */
#include <stdlib.h>

#include "data/instructions.h"

enum { IGNORED = -100 };

/* ---- packing ---------------------------------------------------------------------------------------------------- */

/* Rows by their free space: free lists, and a bit for each space that some row has. */
typedef struct shelves {
    int *head, *next; /* by space; by row; -1: none */
    uint64_t *bits;
    int limit;
} shelves;

static void put_row(shelves *s, int row, int space)
{
    s->next[row] = s->head[space];
    s->head[space] = row;
    s->bits[space / 64] |= (uint64_t)1 << space % 64;
}

/* Takes the row with the least free space of at least n; -1: none. */
static int take_row(shelves *s, int n, int *space)
{
    int word = n / 64;
    uint64_t bits = s->bits[word] & ~(uint64_t)0 << n % 64;
    while (!bits && ++word <= s->limit / 64)
        bits = s->bits[word];
    if (!bits)
        return -1;
    *space = word * 64 + __builtin_ctzll(bits);
    const int row = s->head[*space];
    s->head[*space] = s->next[row];
    if (s->head[*space] < 0)
        s->bits[word] &= ~((uint64_t)1 << *space % 64);
    return row;
}

/* An item and its size. */
typedef struct item {
    int index, size;
} item;

static int larger_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->size != y->size ? y->size - x->size : x->index - y->index;
}

static int fill_rows(shelves *s, const item *items, int count, int *row)
{
    int rows = 0, space;
    for (int i = 0; i <= s->limit; i++)
        s->head[i] = -1;
    for (int i = 0; i < count; i++) {
        int r = take_row(s, items[i].size, &space);
        if (r < 0) {
            r = rows++;
            space = s->limit;
        }
        row[items[i].index] = r;
        put_row(s, r, space - items[i].size);
    }
    return rows;
}

int data_best_fit(const int *counts, int count, int limit, int *row)
{
    shelves s = {.limit = limit,
                 .head = base_alloc_zero((size_t)limit + 1, sizeof *s.head),
                 .next = base_alloc_zero((size_t)count + 1, sizeof *s.next),
                 .bits = base_alloc_zero((size_t)limit / 64 + 1, sizeof *s.bits)};
    item *items = base_alloc_zero((size_t)count + 1, sizeof *items);
    int rows = -1;
    if (s.head && s.next && s.bits && items) {
        for (int i = 0; i < count; i++)
            items[i] = (item){i, counts[i]};
        qsort(items, (size_t)count, sizeof *items, larger_first);
        rows = fill_rows(&s, items, count, row);
    }
    base_free(s.head);
    base_free(s.next);
    base_free(s.bits);
    base_free(items);
    return rows;
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

/* Puts the sequences of one row side by side. */
static by_status put_sequences(data_instructions *x, const int *sequences, int count, int32_t *cells)
{
    int at = 0;
    for (int i = 0; i < count; i++) {
        const data_instruction *one = &x->list[sequences[i]];
        const size_t to = x->rows.tokens.count + (size_t)at;
        memcpy(cells + at, x->tokens.data + one->first, (size_t)one->count * sizeof *cells);
        memcpy(x->row_learned + to, x->learned + one->first, (size_t)one->count);
        for (int t = 0; t < one->count; t++)
            x->row_positions[to + (size_t)t] = t;
        at += one->count;
    }
    return data_rows_put(&x->rows, cells, at);
}

/* The sequences of every row, in the order of the file: order[first[r]] ... order[first[r + 1] - 1]. */
static void list_by_row(const int *row, int count, int rows, int *first, int *order)
{
    for (int i = 0; i < count; i++)
        first[row[i] + 1]++;
    for (int r = 0; r < rows; r++)
        first[r + 1] += first[r];
    for (int i = 0; i < count; i++)
        order[first[row[i]]++] = i;
    for (int r = rows; r > 0; r--)
        first[r] = first[r - 1];
    first[0] = 0;
}

static by_status arrange(data_instructions *x, int *counts, int *row, int *first, int *order, int32_t *cells)
{
    int rows = x->count;
    for (int i = 0; i < x->count; i++) {
        counts[i] = x->list[i].count;
        row[i] = i;
    }
    if (x->spec.pack && (rows = data_best_fit(counts, x->count, x->spec.limit, row)) < 0)
        return BY_ERR_MEMORY;
    list_by_row(row, x->count, rows, first, order);
    for (int r = 0; r < rows; r++)
        BY_TRY(put_sequences(x, order + first[r], first[r + 1] - first[r], cells));
    return BY_OK;
}

by_status data_instructions_arrange(data_instructions *x)
{
    const size_t n = (size_t)x->count;
    int *counts = base_alloc_zero(n + 1, sizeof *counts), *row = base_alloc_zero(n + 1, sizeof *row);
    int *first = base_alloc_zero(n + 2, sizeof *first), *order = base_alloc_zero(n + 1, sizeof *order);
    int32_t *cells = base_alloc_zero((size_t)x->spec.limit + 1, sizeof *cells);
    data_rows_clear(&x->rows);
    x->row_learned = base_alloc_zero(x->tokens.count + 1, 1);
    x->row_positions = base_alloc_zero(x->tokens.count + 1, sizeof *x->row_positions);
    by_status s = BY_ERR_MEMORY;
    if (counts && row && first && order && cells && x->row_learned && x->row_positions)
        s = arrange(x, counts, row, first, order, cells);
    base_free(counts);
    base_free(row);
    base_free(first);
    base_free(order);
    base_free(cells);
    return s;
}

/* ---- batches -------------------------------------------------------------------------------------------------------- */

static by_status reserve(data_instruction_batch *b, size_t plane)
{
    if (3 * plane <= b->room)
        return BY_OK;
    int32_t *cells = base_resize(b->cells, 3 * plane, sizeof *cells);
    if (!cells)
        return BY_ERR_MEMORY;
    b->cells = cells;
    b->room = 3 * plane;
    return BY_OK;
}

/* Fills targets, positions and documents of one row; row NULL: padding. */
static int64_t fill_row(const data_instructions *x, const data_row *row, int seq, size_t plane,
                        int32_t *targets)
{
    int32_t *positions = targets + plane, *documents = targets + 2 * plane;
    const int count = row ? row->count : 0, first = by_model_first_position(x->model);
    int document = 0;
    int64_t counted = 0;
    for (int t = 0; t < seq; t++) {
        const size_t at = t < count ? row->first + (size_t)t : 0;
        const bool begins = t < count && x->row_positions[at] == 0;
        const bool learned = t + 1 < count && x->row_positions[at + 1] > 0 && x->row_learned[at + 1];
        document += begins || t == count;
        targets[t] = learned ? x->rows.tokens.data[at + 1] : IGNORED;
        positions[t] = first + (t < count ? x->row_positions[at] : 0);
        documents[t] = document;
        counted += learned;
    }
    return counted;
}

by_status data_instructions_batch(const data_instructions *x, const int *rows, int count, int height,
                                  data_instruction_batch *out)
{
    BY_TRY(data_rows_batch(&x->rows, rows, count, height, &out->rows));
    by_batch *b = &out->rows.batch;
    const size_t plane = (size_t)b->batch * (size_t)b->seq;
    BY_TRY(reserve(out, plane));
    out->counted = 0;
    for (int i = 0; i < b->batch; i++)
        out->counted += fill_row(x, i < count ? &x->rows.list[rows[i]] : NULL, b->seq, plane,
                                 out->cells + (size_t)i * (size_t)b->seq);
    if (by_model_task(x->model) == BY_TASK_LM)
        by_batch_put_tokens(b, "targets", out->cells);
    if (x->spec.pack) {
        by_batch_put_tokens(b, "positions", out->cells + plane);
        by_batch_put_tokens(b, "documents", out->cells + 2 * plane);
    }
    return BY_OK;
}

void data_instruction_batch_free(data_instruction_batch *b)
{
    data_row_batch_free(&b->rows);
    base_free(b->cells);
    *b = (data_instruction_batch){0};
}
