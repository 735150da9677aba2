/* carried_state.h - the state (B, C) that a model carries from one segment of a text to the next: the hidden
 * state of a recurrent network. It is kept with the sequences of a generator, in a stream (training on
 * consecutive columns, by_reader), or not at all if the text starts and ends within the batch. */
#ifndef BY_NN_CARRIED_STATE_H
#define BY_NN_CARRIED_STATE_H

#include "nn/stream_state.h"

typedef struct nn_carry {
    by_stream *stream; /* from the graph's by_model_io, or NULL */
    by_cache *cache;   /* likewise; takes precedence over a stream */
    const char *name;  /* unique within the model */
    int64_t batch, width;
    by_dtype type;
    by_tensor *initial; /* (B, C): the state at the start of a text; NULL: zeros */
} nn_carry;

/* The state before this segment of the text; NULL: zeros. No gradient flows through the state of a stream or
 * a cache. */
by_tensor *nn_carry_read(by_graph *g, const nn_carry *c);
/* Stores the state after this segment for the next one. */
void nn_carry_write(by_graph *g, const nn_carry *c, by_tensor *state);
/* The mask (B, T) of positions that update the state: that of a generator's pass, otherwise `mask`, which may
 * be NULL. */
by_tensor *nn_carry_mask(const by_cache *cache, by_tensor *mask);

#endif
