/* model_io.h - tasks, and the tensors that a model reads and returns when it is built into a graph. */
#ifndef BANYAN_MODEL_IO_H
#define BANYAN_MODEL_IO_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The task of a model's head. B is the batch size, T the number of positions, C the width. */
typedef enum by_task {
    BY_TASK_DEFAULT, /* new model: the pretraining task of its family */
    BY_TASK_LM,      /* next token: logits (B, T, V) */
    BY_TASK_MLM,     /* masked tokens: logits (B, T, V) */
    /* Masked tokens, and a sentence-pair prediction (next sentence or sentence order): second (B, 2). */
    BY_TASK_PRETRAIN,
    BY_TASK_NEXT,     /* whether the second sentence follows the first: logits (B, 2) */
    BY_TASK_CLASSIFY, /* sequence labels: logits (B, labels) */
    BY_TASK_TAG,      /* token labels: logits (B, T, labels) */
    /* Start and end of an answer: logits (B, T) and second (B, T); with a beam of starts, second is (B, S, 3
     * + 2 E): docs/models/XLNET.md */
    BY_TASK_ANSWER,
    BY_TASK_CHOICE,   /* one of several continuations: logits (B / choices, choices) */
    BY_TASK_FEATURES, /* no head */
    BY_TASK_SEQ2SEQ,  /* one text from another: next token of the target, logits (B, T, V) */
    BY_TASK_ENCODER,  /* the encoder of an encoder-decoder without a head; its input is tokens and mask */
    /* texts and pictures in one space: logits (texts, pictures); text i belongs to picture i */
    BY_TASK_CONTRAST,
    BY_TASK_COUNT
} by_task;
BY_API const char *by_task_name(by_task t); /* "lm", "mlm", ..., for messages and options */
BY_API bool by_task_find(const char *name, by_task *out);

/* The kind of labels of a sequence. */
typedef enum by_problem {
    BY_PROBLEM_DEFAULT,     /* regression with one label, otherwise single-label */
    BY_PROBLEM_ONE_LABEL,   /* exactly one label applies: softmax and cross-entropy */
    BY_PROBLEM_MANY_LABELS, /* any number of labels apply: a sigmoid per label */
    BY_PROBLEM_REGRESSION   /* numbers: mean squared error */
} by_problem;

/* The part of an encoder-decoder to build. With a cache, the encoder stores the keys and values for the
 * decoder in it. */
typedef enum by_part { BY_PART_WHOLE, BY_PART_ENCODER, BY_PART_DECODER } by_part;

#define BY_MAX_LAYERS 256 /* maximum layers of a model */

/* The pictures that a model reads: prepared pixel values (channels, height, width), cut into square patches.
 * Each patch becomes a position, after `tokens` positions for special tokens. */
typedef struct by_pictures {
    int channels, height, width; /* the model's own size; other sizes are read with interpolated positions */
    int patch;                   /* side of a patch in pixels */
    int tokens;                  /* class and distillation tokens */
} by_pictures;
/* Number of positions of a picture of this size; 0 if it is not a whole number of patches. */
BY_API int by_pictures_positions(const by_pictures *p, int height, int width);

/* The pictures that a pixel model generates, as tokens in raster order with interleaved channels. */
typedef struct by_canvas {
    int height, width;
    int channels;  /* tokens per pixel */
    int values;    /* values of a token: 256, or the size of the palette */
    int positions; /* positions of the model: one per token, or one per pixel */
    bool palette;  /* tokens are colours of the palette in preprocessor_config.json */
    bool mixture;  /* the logits of a pixel are parameters of by_logistic_mixture, not one per value */
    int upscale;   /* super-resolution: the input has 1 / upscale of this height and width; 0: no input */
} by_canvas;
/* Number of values of a super-resolution input, (height / upscale, width / upscale, channels). */
BY_API int by_canvas_low(const by_canvas *c);
/* Computes that input from the tokens of the large picture: the rounded mean of each square. */
BY_API void by_canvas_reduce(const by_canvas *c, const int32_t *tokens, int32_t *low);

/* The keys and values that a decoding graph reads and extends. Created by by_generator. */
typedef struct by_cache by_cache;
/* The state that a model carries from segment to segment: banyan/stream.h. */
typedef struct by_stream by_stream;

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* A tensor under the name by which a model, a loss or a caller asks for it. */
typedef struct by_port {
    const char *name;
    by_tensor *tensor;
    struct by_port *next;
} by_port;

/* A list of ports, in the memory of the graph that the tensors belong to. The zero state is empty. */
typedef struct by_ports {
    by_port *first, *last;
} by_ports;

/* An input of a family: its name, type, axes as letters (B batch, T tokens, S source tokens, N picked rows, C
 * channels, H height and W width of a picture) and the part of the model that reads it. */
typedef struct by_input_info {
    const char *name;
    by_dtype type;
    const char *axes; /* "BT" */
    by_part part;     /* BY_PART_WHOLE: both parts, or a model that has only one */
    bool required;
} by_input_info;

/* Settings, inputs and outputs of a model when it is built into a graph. Zero it, feed the inputs, call
 * by_model_build, then look up the outputs.
 *
 *   input           shape   type
 *   tokens          (B, T)  i32    decoder input ids for encoder-decoder models
 *   segments        (B, T)  i32    segment or language of each token; optional
 *   positions       (B, T)  i32    optional; the default is 0, 1, ... or the family's numbering
 *   mask            (B, T)  i32    0 masks a position; optional
 *   documents       (B, T)  i32    document number of each token, below 2^24; tokens attend only within their
 *                                  document; optional, for decoders that list it among their inputs
 *   pick            (N)     i32    flat rows b*T + t for which token logits (N, V) are computed; optional.
 *                                  Decoders that classify need the last token of each row here
 *   source          (B, S)  i32    encoder input ids (encoder-decoder models only)
 *   source_mask     (B, S)  i32    0 masks a position; optional
 *   class_weights   (labels) f32   weight of each class in the loss; optional
 *   pixel_values    (B, C, H, W) f32   preprocessed pictures, for models that read them (by_model_pictures)
 *
 *   output          shape          repeated
 *   logits, second  see by_task
 *   features        (B, T, C)
 *   pooled          (B, C)         for models that have a pooler
 *   hidden          (B, T, C)      after the embedding and after each block, if want_hidden
 *   attention       (B, H, T, T)   for each layer, if want_attention
 *   scores, values  (B, H, T, T), (B, H, T, D)   of self-attention before the softmax, without masks and biases,
 *                                  for each layer, if want_scores; not in families with special patterns
 *   memory          (B, S, C)      encoder output
 *   source_hidden, source_attention, cross_attention   the same for the encoder and for cross-attention
 *   text_embeds, image_embeds (B, E)  vectors of whole texts and pictures, for models that return them
 *                                  (by_model_vector_width); of length 1 in the joint space
 *   loss            scalar         an auxiliary loss, added to the task's by by_model_loss */
typedef struct by_model_io {
    by_task task;
    int labels; /* for the tasks that have labels */
    by_problem problem;
    int choices; /* rows that form one example (BY_TASK_CHOICE only); 0: 1 */
    by_part part;
    float label_smoothing; /* in the loss of token logits */
    by_cache *cache;       /* decoding; NULL otherwise */
    by_stream *stream;     /* the texts continue earlier segments; NULL: they start here */
    bool want_hidden, want_attention, want_scores;
    by_ports inputs, outputs;
} by_model_io;

/* Feeds a tensor under a name, which must outlive the graph. Replaces an earlier one. NULL is ignored. */
BY_API void by_io_feed(by_model_io *io, const char *name, by_tensor *t);
/* Returns the input with that name, or NULL. */
BY_API by_tensor *by_io_input(const by_model_io *io, const char *name);
/* Adds an output under a name and returns the tensor. Several may share a name: see by_io_output_at. */
BY_API by_tensor *by_io_return(by_model_io *io, const char *name, by_tensor *t);
/* Returns the first output with that name, or NULL. */
BY_API by_tensor *by_io_output(const by_model_io *io, const char *name);
/* The number of outputs with that name, and the i-th of them, or NULL. */
BY_API int by_io_output_count(const by_model_io *io, const char *name);
BY_API by_tensor *by_io_output_at(const by_model_io *io, const char *name, int i);

#ifdef __cplusplus
}
#endif
#endif
