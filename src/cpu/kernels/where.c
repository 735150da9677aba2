/* where.c - one of two elements, chosen by a mask. Elements are bytes, 1, 2, 4 or 8 of them. */
#include "cpu/kernels/kernel.h"
#include "graph/spread.h"

static inline bool is_set(const char *mask, int64_t size, int64_t i)
{
    int32_t wide;
    if (size == 1)
        return mask[i] != 0;
    memcpy(&wide, mask + i * size, sizeof wide);
    return wide != 0;
}

/* Along the last axis. x: mask, a, b; step: of each, 0 or 1. */
#define CHOOSE(name, type)                                                                                  \
    static void name(char *y_, const char *const *x, const int64_t *step, int64_t mask_size, int64_t count) \
    {                                                                                                       \
        type *y = (type *)(void *)y_;                                                                       \
        const type *a = (const type *)(const void *)x[1], *b = (const type *)(const void *)x[2];            \
        for (int64_t i = 0; i < count; i++)                                                                 \
            y[i] = is_set(x[0], mask_size, i * step[0]) ? a[i * step[1]] : b[i * step[2]];                  \
    }
CHOOSE(choose_1, uint8_t)
CHOOSE(choose_2, uint16_t)
CHOOSE(choose_4, uint32_t)
CHOOSE(choose_8, uint64_t)

by_status KERNEL(where)(gr_exec *e, gr_node *n)
{
    const by_tensor *y = n->out[0];
    const gr_spread s = gr_spread_of(y, n->in, 3);
    const int last = s.rank - 1;
    const int64_t count = by_elements(y), cols = s.dim[last], rows = cols ? count / cols : 0;
    const int64_t size = (int64_t)by_dtype_size(y->type), mask = (int64_t)by_dtype_size(n->in[0]->type);
    const int64_t sizes[3] = {mask, size, size};
    const int64_t step[3] = {s.step[0][last], s.step[1][last], s.step[2][last]};
    void (*const choose)(char *, const char *const *, const int64_t *, int64_t, int64_t) =
        size == 8   ? choose_8
        : size == 4 ? choose_4
        : size == 2 ? choose_2
                    : choose_1;
    BY_BRANCH("where");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const char *x[3];
        for (int k = 0; k < 3; k++) {
            int64_t row = r, at = 0;
            for (int i = last - 1; i >= 0; row /= s.dim[i--])
                at += row % s.dim[i] * s.step[k][i];
            x[k] = (const char *)n->in[k]->data + at * sizes[k];
        }
        choose((char *)y->data + r * cols * size, x, step, mask, cols);
    }
    return BY_OK;
}
