/* stream_state.h - the state of a stream (banyan/stream.h), and the blocks that read and write it. Models
 * declare the parts of the state by name where they use them, like parameters. */
#ifndef BY_NN_STREAM_STATE_H
#define BY_NN_STREAM_STATE_H

#include "banyan/stream.h"
#include "nn/nn.h"

by_stream *nn_stream_new(by_device *d, int batch);

/* The part of that name as a state of this graph. The first graph that declares it allocates it, filled with
 * zeros; later declarations must have the same type and shape. */
by_tensor *nn_stream_state(by_graph *g, by_stream *s, const char *name, by_dtype type, int rank,
                           const int64_t *shape);

/* A memory (B, M, C) of the last M input rows of a layer (Dai et al. 2019). Gradients stop at it.
 *
 *      held    (B, M + T) i32: 0 where the memory has no row yet, or a masked one; then the mask of the segment
 *      rows    (B, M + T, C): the memory, then x
 *
 * Without a stream or with M = 0, there is no memory: held is the mask itself, which may be NULL, and rows is
 * x. */
by_tensor *nn_memory_held(by_graph *g, by_stream *s, by_tensor *tokens, by_tensor *mask, int64_t length);
by_tensor *nn_memory_rows(by_graph *g, by_stream *s, const char *name, by_tensor *x, int64_t length);
/* The same, but only the first `first` rows of a segment enter the memory; 0: all. */
by_tensor *nn_memory_held_first(by_graph *g, by_stream *s, by_tensor *tokens, by_tensor *mask, int64_t length,
                                int64_t first);
by_tensor *nn_memory_rows_first(by_graph *g, by_stream *s, const char *name, by_tensor *x, int64_t length,
                                int64_t first);

#endif
