/* inspect.h - look inside a model: the attention weights of a text. */
#ifndef BANYAN_INSPECT_H
#define BANYAN_INSPECT_H

#include "banyan/model.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which attention of an encoder-decoder: the decoder's to the source, or that of one of the two texts to itself. */
typedef enum by_attention_part {
    BY_ATTENTION_CROSS,
    BY_ATTENTION_ENCODER,
    BY_ATTENTION_DECODER
} by_attention_part;

typedef struct by_attention_maps_spec {
    const char *pair;   /* a second text, for models that read two; or NULL */
    const char *target; /* what an encoder-decoder writes; NULL: what the model writes itself */
    by_attention_part part;
} by_attention_maps_spec;

/* A text as tokens. */
typedef struct by_attention_side {
    int tokens;
    by_encoding text;
    char **names; /* of the tokens: their part of the text, or what a special token decodes to */
} by_attention_side;

typedef struct by_attention_maps {
    int layers, heads;
    by_attention_side sides[2]; /* what is read; for encoder-decoders, what is written */
    int rows, columns;          /* which side attends to which */
    float *weights;             /* (layers, heads, tokens of the rows, tokens of the columns) */
} by_attention_maps;

/* The attention weights of every head of every layer. In an encoder-decoder, a row is named by the token that the decoder is about to
 * write. by_attention_maps_free also after a failure. */
BY_API by_status by_attention_maps_make(by_model *m, const by_tokenizer *t, const char *text,
                                        const by_attention_maps_spec *spec, by_attention_maps *out);
BY_API void by_attention_maps_free(by_attention_maps *a); /* back to the zero state */

#ifdef __cplusplus
}
#endif
#endif
