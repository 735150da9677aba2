/* patches.c - pictures as sequences of patches (see nn.h). */
#include "graph/graph.h"
#include "nn/nn.h"

/* (B, C, H, W) -> (B, N, C p p): patches row by row, the elements of one by channel, row and column. */
static by_tensor *unfold(by_graph *g, by_tensor *x, int64_t patch)
{
    const int64_t b = by_dim(x, 0), c = by_dim(x, 1), rows = by_dim(x, 2) / patch,
                  cols = by_dim(x, 3) / patch;
    x = by_reshape(g, x, 6, (int64_t[]){b, c, rows, patch, cols, patch});
    x = by_permute_axes(g, x, (int[]){0, 2, 4, 1, 3, 5}); /* (B, H/p, W/p, C, p, p) */
    return by_reshape(g, x, 3, (int64_t[]){b, rows * cols, c * patch * patch});
}

by_tensor *nn_patches(by_graph *g, const char *name, by_tensor *pixels, const nn_patch_spec *s)
{
    const int64_t patch = s->patch, channels = by_dim(pixels, 1), inner = channels * patch * patch;
    if (by_rank(pixels) != 4 || patch < 1 || by_dim(pixels, 2) % patch || by_dim(pixels, 3) % patch)
        return by_graph_fail(g, "pictures of %lld x %lld pixels are not divisible into patches of %lld",
                             (long long)by_dim(pixels, 2), (long long)by_dim(pixels, 3), (long long)patch);
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "weight", 4, (int64_t[]){s->width, channels, patch, patch},
                            (by_init){BY_INIT_NORMAL, s->std});
    by_tensor *b = s->no_bias ? NULL : by_param(g, "bias", 1, &s->width, (by_init){BY_INIT_ZERO, 0});
    by_tensor *x = unfold(g, by_cast(g, pixels, by_type(w)), patch);
    x = by_linear(g, x, by_reshape(g, w, 2, (int64_t[]){s->width, inner}), b, NULL);
    by_scope_pop(g);
    return x;
}

by_tensor *nn_prepend(by_graph *g, by_tensor *x, by_tensor *const *tokens, int count)
{
    enum { MOST = 4 };
    by_tensor *parts[MOST + 1];
    const int64_t b = by_dim(x, 0), c = by_dim(x, 2);
    by_tensor *zeros = by_fill(g, by_type(x), 3, (int64_t[]){b, 1, c}, 0);
    for (int i = 0; i < count && i < MOST; i++)
        parts[i] = by_add(g, zeros, by_reshape(g, tokens[i], 1, &c)); /* (B, 1, C) */
    parts[count] = x;
    return by_concat(g, parts, count + 1, 1);
}

by_tensor *nn_stretch(by_graph *g, by_tensor *table, int64_t tokens, int64_t rows, int64_t cols,
                      int64_t to_rows, int64_t to_cols)
{
    const int64_t c = by_dim(table, -1);
    const by_dtype type = by_type(table), wide = type == BY_F64 ? BY_F64 : BY_F32;
    if (rows == to_rows && cols == to_cols)
        return table;
    by_tensor *x = by_cast(g, by_slice(g, table, 0, tokens, rows * cols), wide);
    x = by_reshape(g, x, 2, (int64_t[]){rows, cols * c});
    x = by_matmul(g, by_interpolation(g, to_rows, rows, wide), x, false, false); /* (R', cols C) */
    x = by_reshape(g, x, 3, (int64_t[]){to_rows, cols, c});
    by_tensor *across =
        by_reshape(g, by_interpolation(g, to_cols, cols, wide), 3, (int64_t[]){1, to_cols, cols});
    x = by_reshape(g, by_matmul(g, across, x, false, false), 2, (int64_t[]){to_rows * to_cols, c});
    by_tensor *parts[] = {by_slice(g, table, 0, 0, tokens), by_cast(g, x, type)};
    return by_concat(g, parts, 2, 0);
}

by_tensor *nn_drop_path(by_graph *g, by_tensor *x, float p)
{
    if (p <= 0)
        return x;
    by_tensor *ones = by_fill(g, by_type(x), 3, (int64_t[]){by_dim(x, 0), 1, 1}, 1);
    return by_mul(g, x, by_dropout(g, ones, p));
}
