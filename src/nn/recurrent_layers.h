/* recurrent_layers.h - stacked recurrent layers, in one direction or both, with PyTorch's names. */
#ifndef BY_NN_RECURRENT_LAYERS_H
#define BY_NN_RECURRENT_LAYERS_H

#include "nn/nn.h"

/* State number l D + d belongs to layer l and direction d of D: 0 forward, 1 backward. */
typedef struct nn_recurrent_spec {
    by_cell cell;
    int layers;
    int first;           /* number of the first layer in parameter names */
    int64_t width;       /* H, of the state */
    bool both;           /* both directions: y is (B, T, 2 H), forward then backward */
    bool no_bias;        /* neither b_ih nor b_hh */
    float dropout;       /* dropout between layers, not after the last */
    by_tensor *mask;     /* (B, T) i32 as in by_recurrent_spec, or NULL */
    by_tensor *const *h; /* (layers D) initial states (B, H); NULL, the list or an entry: zeros */
    by_tensor *const *c;
    by_tensor **last_h; /* (layers D): receive the states after the last position, or NULL */
    by_tensor **last_c;
} nn_recurrent_spec;

/* x (B, T, C) -> (B, T, H) or (B, T, 2 H). Parameters are weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0,
 * weight_ih_l0_reverse, ... under the scope `name`; NULL: the current scope. */
by_tensor *nn_recurrent(by_graph *g, const char *name, by_tensor *x, const nn_recurrent_spec *spec);

#endif
