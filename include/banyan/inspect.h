/* inspect.h - look inside a model: the attention weights of a text or a picture, what a model of pictures has learned about positions
 * and patches, the memory and the work of its programs. */
#ifndef BANYAN_INSPECT_H
#define BANYAN_INSPECT_H

#include "banyan/model.h"
#include "banyan/picture_set.h"
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

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct by_picture_maps_spec {
    const by_tokenizer *tokenizer; /* of a model that writes captions; others need none */
    const char *target;            /* the caption; NULL: the model writes it */
} by_picture_maps_spec;

/* Attention over a picture, which is cut into rows * columns patches. Positions are `tokens` tokens (the class, the distillation
 * token), then the patches row by row. */
typedef struct by_picture_maps {
    by_image *seen; /* the picture as the model reads it, before normalisation */
    int rows, columns, tokens;
    int layers, heads;
    int queries;            /* positions, or of a model that writes captions, tokens of the text */
    by_attention_side text; /* the caption */
    float *weights;         /* (layers, heads, queries, tokens + rows * columns) */
} by_picture_maps;

/* The attention weights of every head of every layer for picture `index` of a dataset: of a model that writes captions from each
 * token of the text to the picture, otherwise among the positions of the picture. by_picture_maps_free also after a failure. */
BY_API by_status by_picture_maps_make(by_model *m, const by_processor *p, const by_picture_set *set,
                                      int64_t index, const by_picture_maps_spec *spec, by_picture_maps *out);
BY_API void by_picture_maps_free(by_picture_maps *a); /* back to the zero state */

/* The patches' share in position `query`. out (rows, columns). layer or head negative: the mean of all. */
BY_API by_status by_picture_maps_head(const by_picture_maps *a, int layer, int head, int query, float *out);
/* Attention rollout (Abnar and Zuidema 2020): how much of each patch reaches position `query` through all layers, when half of what
 * leaves a layer is what entered it and heads count alike. out (rows, columns). BY_ERR_ARGUMENT for captions. */
BY_API by_status by_picture_maps_rollout(const by_picture_maps *a, int query, float *out);

/* Cosines between the position embeddings of all patches, at the size that the model was trained for. out (patches, patches) for the
 * patches of by_model_pictures. BY_ERR_UNSUPPORTED without such a table. */
BY_API by_status by_position_similarities(const by_model *m, float *out);
/* The `count` principal components of the filters that embed patches, of length 1, the strongest first. out (count, channels, patch,
 * patch). BY_ERR_ARGUMENT for more components than the filters have numbers. */
BY_API by_status by_patch_filters(const by_model *m, int count, float *out);

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
