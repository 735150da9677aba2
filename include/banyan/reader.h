/* reader.h - texts that a model with a memory reads piece by piece: what does it expect next? */
#ifndef BANYAN_READER_H
#define BANYAN_READER_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_reader by_reader;
/* Reads `batch` texts side by side, in segments of at most `segment` tokens (0: the model's context). The model is a language
 * model with a memory, and is borrowed. Returns NULL on failure. */
BY_API by_reader *by_reader_new(by_model *m, int batch, int segment);
BY_API void by_reader_free(by_reader *r);

/* Appends tokens (batch, count) to the texts. log_p (batch, count), unless NULL, receives the logarithm of the
 * probability of each token after those before it; NaN for the first token of a text. */
BY_API by_status by_reader_feed(by_reader *r, const int32_t *tokens, int count, float *log_p);
/* The logarithms of the probabilities of the next token, (batch, V). NULL before the first token. Valid until the
 * next feed. */
BY_API const float *by_reader_next(const by_reader *r);
BY_API by_status by_reader_reset(by_reader *r); /* all texts begin again */
BY_API by_stream *by_reader_stream(const by_reader *r);

#ifdef __cplusplus
}
#endif
#endif
