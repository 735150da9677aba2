/* inspect.h - look inside a model: the attention weights of a text, the memory and the work of its programs. */
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

/* ---- memory and work ------------------------------------------------------------------------- */

typedef enum by_plan_mode { BY_PLAN_FORWARD, BY_PLAN_TRAIN, BY_PLAN_DECODE, BY_PLAN_MODES } by_plan_mode;
typedef enum by_plan_text { BY_PLAN_NO_TEXT, BY_PLAN_LISTING, BY_PLAN_DOT } by_plan_text;

typedef struct by_plan_spec {
    by_plan_mode mode;
    int batch, seq;    /* rows, and tokens of each; decoding adds one token to a full cache */
    by_dtype dtype;    /* of the model */
    bool recompute;    /* training: keep no activations inside blocks */
    by_plan_text text; /* the compiled graph as a listing or for Graphviz */
} by_plan_spec;

/* Bytes, and the work per token. */
typedef struct by_plan {
    size_t weights, gradients, optimizer, activations, cache;
    double flops;
    char *text; /* NULL unless requested; release with by_string_free */
} by_plan;

/* Whether the model has such a program: no decoding without next tokens, no training without a head. */
BY_API bool by_model_plans(const by_model *m, by_plan_mode mode);
/* Compiles the program, without running it. */
BY_API by_status by_model_plan(const by_model *m, const by_plan_spec *spec, by_plan *out);

#ifdef __cplusplus
}
#endif
#endif
