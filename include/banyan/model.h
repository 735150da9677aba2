/* model.h - models: an architecture, a configuration, parameters. Opened from and saved to a HuggingFace
 * directory. */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/model_io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_model by_model;

typedef struct by_model_spec {
    by_dtype dtype;           /* of parameters and activations: BY_F32 (default), BY_BF16, BY_F16, BY_F64 */
    bool training;            /* make the gradient and optimiser buffers */
    bool stochastic_rounding; /* of training: see by_params_without_masters */
    const char *freeze; /* of training: "embeddings", "body" or a number of layers, which all contain the
                         * embeddings: no gradient, moment or master is kept for them. NULL: nothing */
    double layer_decay; /* of training: each layer learns at this times the rate of the one above; 0: 1 */
    by_dtype weights;   /* how weights of products that are not trained are stored: BY_Q8_0, BY_Q4_0, or
                         * BY_BF16, BY_F16 under BY_F32. 0: as dtype. Rows that are not whole blocks stay
                         * as they are. Saving writes the rounded values, in a float type */
    bool copy;          /* never map the file, even where that is possible */
    uint64_t seed;      /* initial values of a new model */
    bool blank;         /* a new model's values stay zero: for a look at its shape */
    by_task task;       /* of a new model */
    int labels;         /* of a new model that has labels */
    by_problem problem; /* of a new model that classifies */
    bool exact;    /* opening: the very class that config.json names. Otherwise a class without a head, whose
                    * family ties the head to the body, is opened with that head */
    bool new_head; /* opening: give the model the head of `task`, whatever head the file has. Labels begin
                    * with fresh values; what else the file lacks outside of the body does too */
} by_model_spec;

/* The shape of a new model: a preset, and what differs from it (0 or negative: as the preset says). */
typedef struct by_model_shape {
    const char *preset; /* NULL: the smallest */
    int layers, heads, width, context, inner;
    int vocab;
    int target_vocab;   /* of encoder-decoders that have another for what they write; 0: they share one */
    int languages;      /* of families that know them */
    double dropout;     /* negative: the architecture's default */
    int decoder_layers; /* of encoder-decoders; 0: as many as `layers` */
    bool pre_norm;      /* norms before the sub-layers, of families that have the choice */
    int kv_heads;       /* key/value heads, of families that share them among query heads */
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
 * when missing), each atomically. Values are written as f32 (masters) unless dtype is bf16 or f16. Weights of
 * more than BY_SHARD_BYTES become several files and model.safetensors.index.json; weights of an earlier save
 * that are not replaced are removed at the end. The tokenizer is the caller's to write: by_companions_copy
 * (weights.h) brings its files from another directory. */
BY_API by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype);

#define BY_SHARD_BYTES ((int64_t)5000000000)

typedef struct by_save_spec {
    by_dtype dtype;
    int64_t
        shard_bytes; /* begin another file before one grows beyond this; 0: BY_SHARD_BYTES, below 0: never */
} by_save_spec;
/* The same with a choice of the type and of the size of files. */
BY_API by_status by_model_save_with(const by_model *m, const char *dir, const by_save_spec *spec);

/* The inputs that a model reads: NULL past the end. */
BY_API const by_input_info *by_model_input(const by_model *m, int i);

/* Append the model to a graph. The caller feeds io's inputs. Errors stick to the graph. */
BY_API void by_model_build(const by_model *m, by_graph *g, by_model_io *io);

/* The loss of the task, a scalar. targets i32, -100 is ignored: as the logits without their last axis; of
 * many labels, and of numbers (f32), as the logits. second: what io->second is compared with, (B) i32, for
 * the tasks that have one. */
BY_API by_tensor *by_model_loss(const by_model *m, by_graph *g, by_model_io *io, by_tensor *targets,
                                by_tensor *second);

/* What a model is: its parameters and device, its family by name and title, its task and labels. */
BY_API by_params *by_model_params(const by_model *m);
BY_API by_device *by_model_device(const by_model *m);
BY_API const char *by_model_family(const by_model *m);
BY_API const char *by_model_title(const by_model *m);
BY_API const char *by_model_class(const by_model *m); /* "GPT2LMHeadModel" */
BY_API by_task by_model_task(const by_model *m);
BY_API int by_model_labels(const by_model *m);
BY_API by_problem by_model_problem(const by_model *m);
BY_API const char *by_model_label_name(const by_model *m, int i); /* "LABEL_0" when it has none */
/* Name the labels, `count` of them; the names are copied. */
BY_API by_status by_model_name_labels(by_model *m, const char *const *names, int count);
/* Whether the labels that the reference library gives a language model of this family are what its positions
 * are to predict (or the tokens themselves, of which each position predicts the next). */
BY_API bool by_model_labels_in_place(const by_model *m);
/* Whether labels of a sequence are read off its last token, as decoders do, or off the first. */
BY_API bool by_model_reads_last(const by_model *m);
BY_API bool by_model_is_pair(const by_model *m); /* an encoder-decoder */
BY_API int by_model_vocab(const by_model *m);    /* of what it writes, */
BY_API int by_model_source_vocab(
    const by_model *m); /* and of what it reads: another one with some encoder-decoders */
BY_API int by_model_context(const by_model *m);
BY_API bool by_model_is_limited(const by_model *m); /* no text can be longer than the context */
BY_API int by_model_layers(const by_model *m);
BY_API int by_model_heads(const by_model *m);
BY_API int by_model_width(const by_model *m);
BY_API int by_model_segments(const by_model *m);  /* segments or languages it tells apart; 0: none */
BY_API int by_model_languages(const by_model *m); /* of families whose segments are languages; else 0 */
BY_API int by_model_eos(const by_model *m);       /* token that ends a text, -1 when there is none */
BY_API int by_model_pad(const by_model *m);       /* padding token, -1 when there is none */
BY_API int by_model_start(const by_model *m);     /* of encoder-decoders: what their texts begin with */
BY_API void by_model_set_start(by_model *m, int token);
BY_API void by_model_set_eos(by_model *m, int token);
BY_API void by_model_set_pad(by_model *m, int token);

/* Where the first position of a text lies in the family's table. */
BY_API int by_model_first_position(const by_model *m);
/* The positions of tokens (batch, seq), where those of padding count as none, as the family numbers them. */
BY_API void by_model_positions(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* The mask (batch, seq) that the reference library makes from the tokens where it is given none. False, and
 * nothing written, for a family where all tokens count then. */
BY_API bool by_model_mask(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* Whether a mask (batch, seq), or NULL, has no row that the family would need something for that is not
 * supported; else BY_ERR_UNSUPPORTED. by_pass_run looks at its batches' masks this way. */
BY_API by_status by_model_check_mask(const by_model *m, const int32_t *mask, int batch, int seq);

/* Of encoder-decoders: what the decoder reads while it is to write targets (batch, seq): the start token
 * (of some families, the last of the targets), then the targets one place later, padding where they are
 * ignored. */
BY_API by_status by_model_shift(const by_model *m, const int32_t *targets, int batch, int seq, int32_t *out);

/* Set the dropout of every place that has one (0 to switch it off). */
BY_API void by_model_set_dropout(by_model *m, double p);

/* The families this build knows, and their presets: NULL past the end. */
BY_API const char *by_family_at(int i);
BY_API const char *by_family_title(int i);
BY_API const char *by_family_preset(int i, int k);
BY_API by_task by_family_task(const char *family); /* what it is pretrained with; BY_TASK_DEFAULT: unknown */

#ifdef __cplusplus
}
#endif
#endif
