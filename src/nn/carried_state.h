/* carried_state.h - the state (B, C) that a model carries from one piece of a text to the next: the hidden state of a
 * recurrent network. Where it is kept depends on how the text is read: with the sequences of a generator, in a stream
 * (training on consecutive columns, by_reader), or nowhere, if the text begins and ends with the batch. */
#ifndef BY_NN_CARRIED_STATE_H
#define BY_NN_CARRIED_STATE_H

#include "nn/stream_state.h"

typedef struct nn_carry {
    by_stream *stream; /* of the graph's by_model_io, or NULL */
    by_cache *cache;   /* the same; it goes before a stream */
    const char *name;  /* unique within the model */
    int64_t batch, width;
    by_dtype type;
    by_tensor *initial; /* (B, C): the state at the beginning of a text; NULL: zeros */
} nn_carry;

/* The state before this piece of the text. NULL: zeros. No gradient goes through what a stream or a cache holds. */
by_tensor *nn_carry_read(by_graph *g, const nn_carry *c);
/* Keeps the state after this piece for the next one. */
void nn_carry_write(by_graph *g, const nn_carry *c, by_tensor *state);
/* The mask (B, T) of the positions that change a state: that of a generator's pass, otherwise `mask`, perhaps NULL. */
by_tensor *nn_carry_mask(const by_cache *cache, by_tensor *mask);

#endif
