/* recurrent_layers.c - see recurrent_layers.h. The input of a layer is multiplied for all positions at once; only the product of the state
 * goes position by position. Initial values are PyTorch's. */
#include "nn/recurrent_layers.h"

#include <math.h>

#include "graph/graph.h"

/* A parameter of one layer and direction: "weight_hh_l1_reverse". */
static by_tensor *param(by_graph *g, const char *stem, int layer, int direction, int rank,
                        const int64_t *shape, int64_t width)
{
    char name[64];
    base_format(name, sizeof name, "%s_l%d%s", stem, layer, direction ? "_reverse" : "");
    return by_param(g, name, rank, shape, (by_init){BY_INIT_UNIFORM, 1 / sqrtf((float)width)});
}

static by_tensor *direction(by_graph *g, by_tensor *x, const nn_recurrent_spec *s, int layer, int d)
{
    const int64_t wide = gr_cell_gates(s->cell) * s->width, in = by_dim(x, -1);
    const int state = layer * (s->both ? 2 : 1) + d;
    by_tensor *w_ih = param(g, "weight_ih", s->first + layer, d, 2, (int64_t[]){wide, in}, s->width);
    by_tensor *w_hh = param(g, "weight_hh", s->first + layer, d, 2, (int64_t[]){wide, s->width}, s->width);
    by_tensor *b_ih = s->no_bias ? NULL : param(g, "bias_ih", s->first + layer, d, 1, &wide, s->width);
    by_tensor *b_hh = s->no_bias ? NULL : param(g, "bias_hh", s->first + layer, d, 1, &wide, s->width);
    by_tensor *gates = by_linear(g, x, w_ih, b_ih, NULL); /* (B, T, G*H) */
    return by_recurrent(g, gates, w_hh, b_hh,
                        &(by_recurrent_spec){.cell = s->cell,
                                             .reverse = d == 1,
                                             .mask = s->mask,
                                             .h = s->h ? s->h[state] : NULL,
                                             .c = s->c ? s->c[state] : NULL,
                                             .last_h = s->last_h ? &s->last_h[state] : NULL,
                                             .last_c = s->last_c ? &s->last_c[state] : NULL});
}

by_tensor *nn_recurrent(by_graph *g, const char *name, by_tensor *x, const nn_recurrent_spec *s)
{
    if (name)
        by_scope_push(g, "%s", name);
    for (int i = 0; i < s->layers; i++) {
        x = by_dropout(g, x, i > 0 ? s->dropout : 0);
        by_tensor *forward = direction(g, x, s, i, 0);
        x = s->both ? by_concat(g, (by_tensor *[]){forward, direction(g, x, s, i, 1)}, 2, 2) : forward;
    }
    if (name)
        by_scope_pop(g);
    return x;
}
