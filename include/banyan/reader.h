/* reader.h - incremental reading: token probabilities of texts that a model with a memory reads piece by
 * piece. */
#ifndef BANYAN_READER_H
#define BANYAN_READER_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_reader by_reader;
/* Creates a reader of `batch` parallel texts, processed in segments of at most `segment` tokens (0: the
 * model's context). The model must be a language model with a memory; it is borrowed. Returns NULL on
 * failure. */
BY_API by_reader *by_reader_new(by_model *m, int batch, int segment);
BY_API void by_reader_free(by_reader *r);

/* Appends tokens (batch, count) to the texts. log_p (batch, count), unless NULL, receives the log-probability
 * of each token given those before it; NaN for the first token of a text. */
BY_API by_status by_reader_feed(by_reader *r, const int32_t *tokens, int count, float *log_p);
/* Log-probabilities of the next token, (batch, V). NULL before the first token. Valid until the next call of
 * by_reader_feed. */
BY_API const float *by_reader_next(const by_reader *r);
BY_API by_status by_reader_reset(by_reader *r); /* starts all texts over */
BY_API by_stream *by_reader_stream(const by_reader *r);

#ifdef __cplusplus
}
#endif
#endif
