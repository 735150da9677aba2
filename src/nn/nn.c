/* nn.c - embeddings, projections, norms and feed-forward blocks (see nn.h). */
#include "nn/nn.h"

#include <math.h>

#include "graph/graph.h"

/* A look-up, so that an adapter's hook applies. */
static by_tensor *first_row(by_graph *g, by_tensor *table)
{
    return !gr_is_bad(g) && g->hook ? by_gather(g, table, by_range(g, 1, (int64_t[]){1}))
                                    : by_slice(g, table, 0, 0, 1);
}

/* ids NULL: the first row (C) alone. padding -1: none. */
static by_tensor *embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                            by_init init, int padding)
{
    by_scope_push(g, "%s", name);
    by_tensor *table = by_param(g, "weight", 2, (int64_t[]){rows, width}, init);
    by_tensor *y = ids ? by_gather_padded(g, table, ids, padding)
                       : by_reshape(g, first_row(g, table), 1, (int64_t[]){width});
    by_scope_pop(g);
    return y;
}

by_tensor *nn_embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width, float std)
{
    return embedding(g, name, ids, rows, width, (by_init){BY_INIT_NORMAL, std}, -1);
}

by_tensor *nn_embedding_padded(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                               float std, int padding)
{
    return embedding(g, name, ids, rows, width, (by_init){BY_INIT_NORMAL, std}, padding);
}

by_tensor *nn_positions(by_graph *g, const char *name, by_tensor *positions, int64_t rows, int64_t width,
                        float std, bool sines)
{
    by_init init = sines ? (by_init){BY_INIT_SINES, 0} : (by_init){BY_INIT_NORMAL, std};
    return embedding(g, name, positions, rows, width, init, -1);
}

by_tensor *nn_segments(by_graph *g, const char *name, by_tensor *segments, int64_t rows, int64_t width,
                       float std)
{
    return embedding(g, name, segments, rows, width, (by_init){BY_INIT_NORMAL, std}, -1);
}

by_tensor *nn_hide(by_graph *g, by_tensor *x, by_tensor *mask)
{
    int64_t b = by_dim(x, 0), t = by_dim(x, 1), c = by_dim(x, 2);
    by_tensor *seen = by_reshape(g, by_cast(g, mask, by_type(x)), 2, (int64_t[]){b * t, 1});
    by_tensor *ones = by_fill(g, by_type(x), 2, (int64_t[]){1, c}, 1);
    return by_mul(g, x, by_reshape(g, by_matmul(g, seen, ones, false, false), 3, (int64_t[]){b, t, c}));
}

by_tensor *nn_linear(by_graph *g, const char *name, by_tensor *x, const nn_linear_spec *s)
{
    int64_t in = by_dim(x, -1);
    float std = s->std > 0 ? s->std : sqrtf(2 / (float)(in + s->out)); /* Glorot and Bengio 2010 */
    by_scope_push(g, "%s", name);
    by_tensor *w = by_param(g, "weight", 2, s->conv1d ? (int64_t[]){in, s->out} : (int64_t[]){s->out, in},
                            (by_init){BY_INIT_NORMAL, std});
    by_tensor *b = s->no_bias ? NULL : by_param(g, "bias", 1, &s->out, (by_init){BY_INIT_ZERO, 0});
    by_tensor *y = by_linear(g, x, w, b, &(by_linear_spec){.w_is_kn = s->conv1d, .act = s->act});
    by_scope_pop(g);
    return y;
}

by_tensor *nn_layernorm(by_graph *g, const char *name, by_tensor *x, float eps)
{
    int64_t c = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *gamma = by_param(g, "weight", 1, &c, (by_init){BY_INIT_ONE, 0});
    by_tensor *beta = by_param(g, "bias", 1, &c, (by_init){BY_INIT_ZERO, 0});
    by_tensor *y = by_layernorm(g, x, gamma, beta, eps);
    by_scope_pop(g);
    return y;
}

by_tensor *nn_rmsnorm(by_graph *g, const char *name, by_tensor *x, float eps)
{
    int64_t c = by_dim(x, -1);
    by_scope_push(g, "%s", name);
    by_tensor *y = by_rmsnorm(g, x, by_param(g, "weight", 1, &c, (by_init){BY_INIT_ONE, 0}), eps);
    by_scope_pop(g);
    return y;
}

by_tensor *nn_pick(by_graph *g, by_tensor *x, by_tensor *rows)
{
    by_tensor *flat = by_reshape(g, x, 2, (int64_t[]){-1, by_dim(x, -1)});
    return by_gather(g, flat, rows);
}

by_tensor *nn_first(by_graph *g, by_tensor *x)
{
    by_tensor *first = by_slice(g, x, 1, 0, 1);
    return by_reshape(g, first, 2, (int64_t[]){by_dim(x, 0), by_dim(x, -1)});
}

by_tensor *nn_mlp(by_graph *g, const char *name, by_tensor *x, const nn_mlp_spec *s)
{
    nn_linear_spec wide = {
        .out = s->inner, .conv1d = s->conv1d, .no_bias = s->no_bias, .act = s->act, .std = s->std};
    if (name)
        by_scope_push(g, "%s", name);
    by_tensor *h = nn_linear(g, s->gate ? s->gate : s->in, x, &wide);
    wide.act = BY_ACT_NONE;
    if (s->gate)
        h = by_mul(g, h, nn_linear(g, s->in, x, &wide));
    h = nn_linear(g, s->out, by_dropout(g, h, s->dropout),
                  &(nn_linear_spec){
                      .out = by_dim(x, -1), .conv1d = s->conv1d, .no_bias = s->no_bias, .std = s->out_std});
    if (name)
        by_scope_pop(g);
    return h;
}

/* ---- blocks of encoders ---------------------------------------------------------------------- */

by_tensor *nn_encoder_block(by_graph *g, by_tensor *x, const nn_encoder_spec *s) /* (B, T, C) -> (B, T, C) */
{
    by_tensor *h = nn_attention(g, NULL, x, x, &s->attention);
    x = nn_layernorm(g, s->norm1, by_add(g, x, by_dropout(g, h, s->drop1)), s->eps);
    if (s->cross_norm) {
        h = nn_attention(g, NULL, x, s->memory, &s->cross);
        x = nn_layernorm(g, s->cross_norm, by_add(g, x, by_dropout(g, h, s->drop1)), s->eps);
    }
    h = nn_mlp(g, NULL, x,
               &(nn_mlp_spec){.in = s->wide,
                              .out = s->narrow,
                              .inner = s->inner,
                              .act = s->act,
                              .std = s->std,
                              .out_std = s->std});
    return nn_layernorm(g, s->norm2, by_add(g, x, by_dropout(g, h, s->drop2)), s->eps);
}

by_tensor *nn_concat(by_graph *g, by_tensor **parts, int count, int axis)
{
    enum { MOST = 12 }; /* inputs of one node */
    while (count > 1) {
        int made = 0;
        for (int i = 0; i < count; i += MOST, made++)
            parts[made] = count - i > 1 ? by_concat(g, parts + i, BY_MIN(MOST, count - i), axis) : parts[i];
        count = made;
    }
    return parts[0];
}
