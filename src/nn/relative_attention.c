/* relative_attention.c - attention by content and distance (Dai et al. 2019, "Transformer-XL"); XLNet shares it. See nn.h. */
#include <math.h>

#include "nn/cache.h"

by_tensor *nn_distances(by_graph *g, int64_t length, int zero, int64_t width, by_dtype type)
{
    by_tensor *steps = by_range_from(g, 1, &length, -zero); /* s - p, whose sine has the other sign */
    by_tensor *both = by_sines(g, steps, width, type);      /* (L, C) */
    const int64_t sines = width - width / 2;
    by_tensor *parts[2] = {by_scale(g, by_slice(g, both, 1, 0, sines), -1),
                           by_slice(g, both, 1, sines, width / 2)};
    return by_concat(g, parts, 2, 1);
}

/* x (..., N, H*D) -> (..., H, N, D), of 2 or 3 axes. */
static by_tensor *heads_first(by_graph *g, by_tensor *x, int heads)
{
    const int64_t n = by_dim(x, -2), d = by_dim(x, -1) / heads;
    if (by_rank(x) == 2)
        return by_permute_axes(g, by_reshape(g, x, 3, (int64_t[]){n, heads, d}), (int[]){1, 0, 2});
    x = by_reshape(g, x, 4, (int64_t[]){by_dim(x, 0), n, heads, d});
    return by_permute_axes(g, x, (int[]){0, 2, 1, 3});
}

static by_tensor *shifted(by_graph *g, by_tensor *q, by_tensor *bias) /* bias (H, D) or (H*D) */
{
    return bias ? by_add(g, q, by_reshape(g, bias, 1, (int64_t[]){-1})) : q;
}

by_tensor *nn_relative_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                 const nn_relative_spec *s)
{
    by_attention_spec op = s->op;
    if (op.heads < 1 || by_dim(q, -1) % op.heads)
        return by_graph_fail(g, "%d heads do not share a width of %lld evenly", op.heads,
                             (long long)by_dim(q, -1));
    if (op.scale == 0)
        op.scale = 1.0f / sqrtf((float)by_dim(q, -1) / (float)op.heads);
    by_tensor *seeks = by_scale(g, shifted(g, q, s->position), op.scale); /* (B, T, H*D) */
    op.relative = by_matmul(g, heads_first(g, seeks, op.heads), heads_first(g, s->distances, op.heads), false,
                            true); /* (B, H, T, L) */
    op.relative_zero = s->zero;
    return nn_attend_over(g, shifted(g, q, s->content), k, v, s->cache, s->layer, &op);
}
