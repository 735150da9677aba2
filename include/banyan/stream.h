/* stream.h - the state that a model carries along a text: the memories of Transformer-XL and XLNet, the
 * hidden state of a recurrent network. A stream holds it for a batch of texts, each of which is fed segment
 * by segment. */
#ifndef BANYAN_STREAM_H
#define BANYAN_STREAM_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_stream by_stream;
/* Created by by_stream_new (model.h). Free the passes compiled for a stream before the stream. */
BY_API void by_stream_free(by_stream *s);
BY_API int by_stream_batch(const by_stream *s);
/* Resets all texts to their start. */
BY_API by_status by_stream_reset(by_stream *s);
BY_API size_t by_stream_bytes(const by_stream *s);

/* The parts of the state, in the order in which the model declares them. There are none before the first pass
 * is compiled. */
typedef struct by_stream_part {
    const char *name;
    by_dtype type;
    int rank;
    int64_t shape[BY_MAX_RANK]; /* the first axis is the batch */
    by_memory *memory;
} by_stream_part;
BY_API int by_stream_count(const by_stream *s);
BY_API const by_stream_part *by_stream_at(const by_stream *s, int i);
BY_API const by_stream_part *by_stream_find(const by_stream *s, const char *name); /* NULL if absent */

#ifdef __cplusplus
}
#endif
#endif
