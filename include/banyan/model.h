/* model.h - models: an architecture, a configuration, parameters. Opened from and saved to a HuggingFace
 * directory. */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_model by_model;

typedef enum by_task {
    BY_TASK_LM,       /* next token: logits (B, T, V) */
    BY_TASK_CLASSIFY, /* one label per sequence: logits (B, labels) */
    BY_TASK_COUNT
} by_task;

/* What a model is given and what it hands back when it is built into a graph. */
#define BY_MAX_LAYERS 256
typedef struct by_model_io {
    by_task task;
    int labels; /* classify: number of them */
    /* in */
    by_tensor *tokens;    /* (B, T) i32 */
    by_tensor *positions; /* (B, T) i32, or NULL for 0..T-1 */
    by_tensor *mask;      /* (B, T) i32, 0 hides a position from the others; or NULL */
    by_tensor
        *pick; /* (B) i32, flat rows b*T + t where logits are wanted; NULL: everywhere. Needed to classify */
    struct nn_cache *cache; /* decoding; NULL otherwise */
    bool want_hidden, want_attention;
    /* out */
    by_tensor *logits;
    by_tensor *hidden[BY_MAX_LAYERS + 1]; /* (B, T, C): after the embedding and after each block */
    int n_hidden;
    by_tensor *attention[BY_MAX_LAYERS]; /* (B, H, T, S) */
    int n_attention;
} by_model_io;

typedef struct by_model_spec {
    by_dtype dtype; /* of parameters and activations: BY_F32 (default), BY_BF16, BY_F16, BY_F64 */
    bool training;  /* make the gradient and optimiser buffers */
    bool copy;      /* never map the file, even where that is possible */
    uint64_t seed;  /* initial values of a new model */
    bool blank;     /* a new model's values stay zero: for a look at its shape */
    by_task task;   /* of a new model */
    int labels;     /* of a new model that classifies */
    bool new_head; /* opening: give the model the head of `task` with fresh values, whatever head the file has
                    */
} by_model_spec;

/* The shape of a new model: a preset, and what differs from it (0 or negative: as the preset says). */
typedef struct by_model_shape {
    const char *preset; /* NULL: the smallest */
    int layers, heads, width, context, inner;
    int vocab;
    double dropout; /* negative: the architecture's default */
} by_model_shape;

/* Open a model directory (config.json with model.safetensors, pytorch_model.bin, or shards of either).
 * Weights of the same type as asked for are mapped, not copied, when the model is not for training. NULL on
 * failure. The device is borrowed and outlives the model. */
BY_API by_model *by_model_open(by_device *d, const char *dir, const by_model_spec *spec);

/* A new model with initial values. family: "gpt2", "openai-gpt", ... */
BY_API by_model *by_model_new(by_device *d, const char *family, const by_model_shape *shape,
                              const by_model_spec *spec);
BY_API void by_model_free(by_model *m);

/* Write config.json, model.safetensors and, for a model that generates, generation_config.json into dir (made
 * when missing), each atomically. Values are written as f32 (masters) unless dtype is bf16 or f16. The
 * tokenizer is the caller's to write: by_companions_copy (weights.h) brings its files from another directory.
 */
BY_API by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype);

/* Append the model to a graph; io's inputs are the caller's. Errors stick to the graph. */
BY_API void by_model_build(const by_model *m, by_graph *g, by_model_io *io);

/* Mean cross-entropy of io->logits against targets ((B, T) for LM, (B) to classify; -100 is ignored). */
BY_API by_tensor *by_model_loss(const by_model *m, by_graph *g, by_model_io *io, by_tensor *targets);

BY_API by_params *by_model_params(const by_model *m);
BY_API by_device *by_model_device(const by_model *m);
BY_API const char *by_model_family(const by_model *m);
BY_API const char *by_model_title(const by_model *m);
BY_API const char *by_model_class(const by_model *m); /* "GPT2LMHeadModel" */
BY_API by_task by_model_task(const by_model *m);
BY_API int by_model_labels(const by_model *m);
BY_API int by_model_vocab(const by_model *m);
BY_API int by_model_context(const by_model *m);
BY_API int by_model_layers(const by_model *m);
BY_API int by_model_heads(const by_model *m);
BY_API int by_model_width(const by_model *m);
BY_API int by_model_eos(const by_model *m); /* token that ends a text, -1 when there is none */
BY_API int by_model_pad(const by_model *m); /* padding token, -1 when there is none */
BY_API void by_model_set_eos(by_model *m, int token);

/* Set the dropout of every place that has one (0 to switch it off). */
BY_API void by_model_set_dropout(by_model *m, double p);

/* The families this build knows, and their presets: NULL past the end. */
BY_API const char *by_family_at(int i);
BY_API const char *by_family_title(int i);
BY_API const char *by_family_preset(int i, int k);

#ifdef __cplusplus
}
#endif
#endif
