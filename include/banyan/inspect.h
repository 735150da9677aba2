/* inspect.h - inspecting a model: attention weights over a text or a picture, learned positions and patch
 * filters of image models, memory and work of compiled programs. */
#ifndef BANYAN_INSPECT_H
#define BANYAN_INSPECT_H

#include "banyan/model.h"
#include "banyan/picture_set.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which attention of an encoder-decoder: cross-attention, or self-attention of one of the halves. */
typedef enum by_attention_part {
    BY_ATTENTION_CROSS,
    BY_ATTENTION_ENCODER,
    BY_ATTENTION_DECODER
} by_attention_part;

typedef struct by_attention_maps_spec {
    const char *pair;   /* second text, for models that read pairs; or NULL */
    const char *target; /* target text of an encoder-decoder; NULL: the model generates it */
    by_attention_part part;
} by_attention_maps_spec;

/* A text as tokens. */
typedef struct by_attention_side {
    int tokens;
    by_encoding text;
    char **names; /* token names: the covered part of the text, or the decoded special token */
} by_attention_side;

typedef struct by_attention_maps {
    int layers, heads;
    by_attention_side sides[2]; /* source; target of an encoder-decoder */
    int rows, columns;          /* index of the attending side, and of the side attended to */
    float *weights;             /* (layers, heads, tokens of the rows, tokens of the columns) */
} by_attention_maps;

/* Computes the attention weights of every head of every layer. In an encoder-decoder, a row is named after
 * the token that the decoder predicts there. Call by_attention_maps_free also after a failure. */
BY_API by_status by_attention_maps_make(by_model *m, const by_tokenizer *t, const char *text,
                                        const by_attention_maps_spec *spec, by_attention_maps *out);
BY_API void by_attention_maps_free(by_attention_maps *a); /* resets to the zero state */

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct by_picture_maps_spec {
    const by_tokenizer *tokenizer; /* captioning models only */
    const char *target;            /* the caption; NULL: the model generates it */
} by_picture_maps_spec;

/* Attention over a picture of rows * columns patches. The first `tokens` positions are special tokens (class,
 * distillation), followed by the patches in row-major order. */
typedef struct by_picture_maps {
    by_image *seen; /* the preprocessed picture, before normalisation */
    int rows, columns, tokens;
    int layers, heads;
    int queries;            /* positions, or tokens of the caption */
    by_attention_side text; /* the caption */
    float *weights;         /* (layers, heads, queries, tokens + rows * columns) */
} by_picture_maps;

/* Computes the attention weights of every head of every layer for picture `index` of a dataset: from each
 * token of the caption to the picture for a captioning model, otherwise among the positions of the picture.
 * Call by_picture_maps_free also after a failure. */
BY_API by_status by_picture_maps_make(by_model *m, const by_processor *p, const by_picture_set *set,
                                      int64_t index, const by_picture_maps_spec *spec, by_picture_maps *out);
BY_API void by_picture_maps_free(by_picture_maps *a); /* resets to the zero state */

/* Attention of position `query` to the patches, out (rows, columns). A negative layer or head: mean over
 * all. */
BY_API by_status by_picture_maps_head(const by_picture_maps *a, int layer, int head, int query, float *out);
/* Attention rollout (Abnar and Zuidema 2020): attention averaged over heads, mixed half and half with the
 * identity for the residual connection, and multiplied through all layers. out (rows, columns) is the row of
 * position `query`. BY_ERR_ARGUMENT for captions. */
BY_API by_status by_picture_maps_rollout(const by_picture_maps *a, int query, float *out);

/* Cosine similarities of the position embeddings of all patches, at the image size of the model
 * (by_model_pictures). out (patches, patches). BY_ERR_UNSUPPORTED for models without learned positions. */
BY_API by_status by_position_similarities(const by_model *m, float *out);
/* The first `count` principal components of the patch embedding filters, of length 1, strongest first. out
 * (count, channels, patch, patch). BY_ERR_ARGUMENT if count exceeds the size of a filter. */
BY_API by_status by_patch_filters(const by_model *m, int count, float *out);

/* ---- memory and work ------------------------------------------------------------------------- */

typedef enum by_plan_mode { BY_PLAN_FORWARD, BY_PLAN_TRAIN, BY_PLAN_DECODE, BY_PLAN_MODES } by_plan_mode;
typedef enum by_plan_text { BY_PLAN_NO_TEXT, BY_PLAN_LISTING, BY_PLAN_DOT } by_plan_text;

typedef struct by_plan_spec {
    by_plan_mode mode;
    int batch, seq;    /* rows, and tokens per row; decoding adds one token to a full cache */
    by_dtype dtype;    /* of the model */
    bool recompute;    /* training: recompute the activations inside blocks */
    by_plan_text text; /* the compiled graph as a listing or for Graphviz */
} by_plan_spec;

/* Bytes by purpose, and FLOP per token. */
typedef struct by_plan {
    size_t weights, gradients, optimizer, activations, cache;
    double flops;
    char *text; /* NULL unless requested; release with by_string_free */
} by_plan;

/* Returns true if the model has this mode. Decoding requires a model that generates, training a head. */
BY_API bool by_model_plans(const by_model *m, by_plan_mode mode);
/* Compiles the program without running it. */
BY_API by_status by_model_plan(const by_model *m, const by_plan_spec *spec, by_plan *out);

#ifdef __cplusplus
}
#endif
#endif
