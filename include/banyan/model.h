/* model.h - models: an architecture, a configuration and parameters. Models are opened from and saved to
 * HuggingFace directories. */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/model_io.h"
#include "banyan/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_model by_model;
typedef struct by_adapter_spec by_adapter_spec; /* banyan/adapter.h */

typedef struct by_model_spec {
    by_dtype dtype;           /* parameters and activations: BY_F32 (default), BY_BF16, BY_F16, BY_F64 */
    bool training;            /* allocate gradient and optimiser buffers */
    bool stochastic_rounding; /* training: see by_params_without_masters */
    /* Training: the parameters to freeze, which get no gradient, moment or master. "embeddings"; a number N,
     * the embeddings and the first N layers; "body", the embeddings and all layers; "weights", everything
     * except biases (BitFit, Ben Zaken et al. 2022); "but:NAMES", everything except parameters whose names
     * contain one of NAMES, as in "but:query.bias,LayerNorm". With the last two, the head of a model with
     * labels or spans, which may be new, is trained too. NULL: nothing */
    const char *freeze;
    double layer_decay; /* training: learning-rate factor from each layer to the one below; 0: 1 */
    /* storage of frozen matrix weights: BY_Q8_0, BY_Q4_0, or with BY_F32 also BY_BF16, BY_F16. 0: dtype.
     * Weights whose rows are not whole blocks keep dtype. Saving writes the rounded values in a float type */
    by_dtype weights;
    /* Add this adapter. With `training`, the adapter is trained and the model's own parameters are frozen.
     * NULL: none */
    const by_adapter_spec *adapter;
    const char *adapter_folder; /* opening: add the adapter in this folder, including its head; NULL: none */
    bool copy;                  /* never map the file */
    uint64_t seed;              /* initial values of a new model */
    bool blank;                 /* leave the values of a new model zero, to inspect its shape */
    by_task task;               /* new model */
    int labels;                 /* new model with labels */
    by_problem problem;         /* new model that classifies */
    /* opening: open exactly the class that config.json names. Otherwise a class without a head is opened with
     * a head if its family ties the head to the body */
    bool exact;
    /* opening: give the model the head of `task`, whatever head the file has. Label weights, and any others
     * missing from the file outside of the body, get initial values */
    bool new_head;
} by_model_spec;

/* The shape of a new model: a preset and overrides. 0 or negative: as in the preset. */
typedef struct by_model_shape {
    const char *preset; /* NULL: the smallest preset */
    int layers, heads, width, context, inner;
    int vocab;
    int target_vocab; /* encoder-decoders with a separate target vocabulary; 0: shared */
    int languages;    /* families with language embeddings */
    double dropout;   /* negative: the default of the architecture */
    /* Standard deviation of initial values, "initializer_range" in config.json. 0: the preset's. Negative: the
     * preset's too, except that the usual 0.02 becomes 0.02 sqrt(768 / width), at most 0.08, below width 768. */
    double init_std;
    int decoder_layers; /* encoder-decoders; 0: `layers` */
    bool pre_norm;      /* norms before the sub-layers, in families with the choice */
    int kv_heads;       /* key/value heads, in families with grouped-query attention */
    /* Sparse pattern: "strided", "fixed". Local attention over pictures: "1d", "2d". Attention score of a
     * recurrent decoder: "additive", "dot", "general", "concat", or "none" */
    const char *attention;
    const char *decoder; /* captioning: "gpt2", "bert", "roberta", "xlm-roberta", "camembert" */
    const char *cell;    /* recurrent encoder-decoders: "gru", "lstm", "rnn" */
    /* sparse patterns, how the two key sets are used: "merged", "alternating", "heads" */
    const char *attention_mode;
    int stride, summary; /* sparse patterns: length and summary columns */
    /* memory length in positions, in families with a memory; negative: none, 0: as in the preset */
    int memory;
    int hash_rounds;          /* rounds of hashing, in families with LSH attention */
    const char *distribution; /* pixel models: "categorical", "dmol" */
    const char *coordinates;  /* pixel models: "sinusoidal", "learned" */
    int mixtures;             /* components of "dmol" */
    int upscale;              /* pixel models: factor of super-resolution; 0: no input picture */
    /* Query blocks of local attention over pictures and the memory around them. "1d": block_columns is the
     * length, block_rows is ignored. Memory: negative: none, 0: as in the preset */
    int block_rows, block_columns;
    int memory_rows, memory_columns;
    int image, patch, channels; /* families that read pictures: image side, patch side, channels */
    double drop_path;           /* families that read pictures: stochastic depth of the last layer */
} by_model_shape;

/* Creates a captioning model from two model directories. The body of the first, an image encoder (ViT, DeiT),
 * becomes the encoder; the second, a language model (GPT-2) or a masked language model (BERT, RoBERTa,
 * XLM-RoBERTa, CamemBERT), becomes the decoder. The cross-attention that joins them gets initial values from
 * the seed. Start, end and padding tokens come from the decoder's configuration; the end token replaces a
 * missing start or padding token. BERT's configuration names neither: set the ids of its tokenizer's [CLS]
 * and [SEP] with by_model_set_start and by_model_set_eos. Returns NULL on failure. */
BY_API by_model *by_model_join(by_device *d, const char *encoder, const char *decoder, uint64_t seed);

/* Opens a model directory: config.json with model.safetensors, pytorch_model.bin, or shards of either. If the
 * model is not for training, weights of the requested type are mapped instead of copied. An adapter folder
 * (adapter_config.json) opens as its base model with the adapter. The device is borrowed and must outlive the
 * model. Returns NULL on failure. */
BY_API by_model *by_model_open(by_device *d, const char *dir, const by_model_spec *spec);

/* Creates a model with initial values. family is "gpt2", "openai-gpt", ... Returns NULL on failure. */
BY_API by_model *by_model_new(by_device *d, const char *family, const by_model_shape *shape,
                              const by_model_spec *spec);
/* Creates a model from some layers of another, counted from 0, in the order given, with its embeddings, head
 * and labels. In an encoder-decoder, the selection applies to both halves. Only the members of spec on types
 * and training are used. Returns NULL on failure, and for families whose layers differ in more than their
 * values. */
BY_API by_model *by_model_cut(const by_model *m, const int *layers, int count, const by_model_spec *spec);
/* Selects `count` of `of` layers at even distances, including the first and the last: 6 of 12 are 0, 2, 4, 7,
 * 9, 11. A single layer is the last. */
BY_API void by_layers_even(int of, int count, int *out);
BY_API void by_model_free(by_model *m);

/* Writes config.json, model.safetensors and, for a model that generates, generation_config.json into dir,
 * which is created if missing. For a model with an adapter, the adapter is written instead of the weights.
 * Each file is replaced atomically. Values are written as f32 (masters) unless dtype is bf16 or f16. Weights
 * larger than BY_SHARD_BYTES are split into several files with model.safetensors.index.json. Weight files of
 * an earlier save that are not replaced are removed at the end. Tokenizer files are not written:
 * by_companions_copy (weights.h) copies them from another directory. */
BY_API by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype);

#define BY_SHARD_BYTES ((int64_t)5000000000)

typedef struct by_save_spec {
    by_dtype dtype;
    int64_t shard_bytes; /* maximum size of a file; 0: BY_SHARD_BYTES, negative: unlimited */
} by_save_spec;
/* As by_model_save, with a choice of element type and file size. */
BY_API by_status by_model_save_with(const by_model *m, const char *dir, const by_save_spec *spec);

/* The i-th input of the model. NULL past the end. */
BY_API const by_input_info *by_model_input(const by_model *m, int i);

/* Appends the model to a graph. The caller feeds io's inputs first. Errors poison the graph. */
BY_API void by_model_build(const by_model *m, by_graph *g, by_model_io *io);

/* As by_model_build, without dropout and gradients: for a teacher or a reference model. The model may be
 * another one than the graph's, on the same device. The graph's own model is built without its adapter. */
BY_API void by_model_build_frozen(const by_model *m, by_graph *g, by_model_io *io);

/* Returns the loss of the task, a scalar. targets is i32 and has the shape of the logits without the last
 * axis; -100 is ignored. For multi-label problems, regression and class probabilities (mixup, cutmix; they
 * must sum to 1), it is f32 and has the shape of the logits. second is the target of the second output, (B)
 * i32, for tasks that have one. */
BY_API by_tensor *by_model_loss(const by_model *m, by_graph *g, by_model_io *io, by_tensor *targets,
                                by_tensor *second);

/* Properties of a model: parameters, device, family name and title, class, task and labels. */
BY_API by_params *by_model_params(const by_model *m);
BY_API by_device *by_model_device(const by_model *m);
BY_API const char *by_model_family(const by_model *m);
BY_API const char *by_model_title(const by_model *m);
BY_API const char *by_model_class(const by_model *m); /* "GPT2LMHeadModel" */
BY_API by_task by_model_task(const by_model *m);
BY_API int by_model_labels(const by_model *m);
BY_API by_problem by_model_problem(const by_model *m);
BY_API const char *by_model_label_name(const by_model *m, int i); /* "LABEL_0" if unnamed */
/* Sets the names of the labels, `count` of them. The names are copied. */
BY_API by_status by_model_name_labels(by_model *m, const char *const *names, int count);
/* Returns true if, in the reference library, label i of a language model of this family is the token that
 * position i predicts. Returns false if label i is input token i, which is predicted by the position before
 * it. */
BY_API bool by_model_labels_in_place(const by_model *m);
/* Returns true if sequence labels are predicted from the last token, as in decoders, false if from the
 * first. */
BY_API bool by_model_reads_last(const by_model *m);
/* Returns true if texts are padded on the left and labels are predicted from the last token, as in XLNet. */
BY_API bool by_model_pads_left(const by_model *m);
/* Returns true if a new token changes the hidden states of earlier ones. Generation then processes the whole
 * text for every new token, and the model defines no left-to-right probability of a text. */
BY_API bool by_model_rereads(const by_model *m);
/* Returns false if nothing can be cached for the next token, so that generation processes the whole text each
 * time. */
BY_API bool by_model_has_cache(const by_model *m);
/* Returns true if the model keeps a state of constant size instead of keys and values. */
BY_API bool by_model_is_recurrent(const by_model *m);
BY_API bool by_model_is_pair(const by_model *m); /* true for an encoder-decoder */
BY_API int by_model_vocab(const by_model *m);    /* vocabulary of the output */
/* Vocabulary of the input; differs from by_model_vocab in some encoder-decoders. */
BY_API int by_model_source_vocab(const by_model *m);
BY_API int by_model_context(const by_model *m);
BY_API bool by_model_is_limited(const by_model *m); /* true if no text can be longer than the context */
BY_API int by_model_layers(const by_model *m);
BY_API int by_model_heads(const by_model *m);
BY_API int by_model_width(const by_model *m);
/* Width of the vectors that the model returns for whole texts and pictures, as CLIP does; 0: it returns none. */
BY_API int by_model_vector_width(const by_model *m);
BY_API int by_model_segments(const by_model *m); /* number of segments or languages; 0: none */
/* Number of languages if segments are languages; otherwise 0. */
BY_API int by_model_languages(const by_model *m);
BY_API int by_model_eos(const by_model *m);   /* id of the end-of-text token, or -1 */
BY_API int by_model_pad(const by_model *m);   /* id of the padding token, or -1 */
BY_API int by_model_start(const by_model *m); /* encoder-decoders: id of the token that starts the decoder */
BY_API void by_model_set_start(by_model *m, int token);
BY_API void by_model_set_eos(by_model *m, int token);
BY_API void by_model_set_pad(by_model *m, int token);

/* Describes the pictures that the model reads. Returns false and zeroes *out for other models. */
BY_API bool by_model_pictures(const by_model *m, by_pictures *out);

/* Describes the pictures that a pixel model generates. Returns false and zeroes *out for other models. */
BY_API bool by_model_canvas(const by_model *m, by_canvas *out);

/* Index of the first position of a text in the family's position table. */
BY_API int by_model_first_position(const by_model *m);
/* Computes the positions of tokens (batch, seq) as the family numbers them. Padding tokens are not
 * counted. */
BY_API void by_model_positions(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* Computes the default mask (batch, seq) that the reference library derives from the tokens. Returns false,
 * without writing, for families whose default masks nothing. */
BY_API bool by_model_mask(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* Returns BY_ERR_UNSUPPORTED if the family cannot compute a row of the mask (batch, seq; may be NULL).
 * by_pass_run checks the masks of its batches with this. */
BY_API by_status by_model_check_mask(const by_model *m, const int32_t *mask, int batch, int seq);

/* Computes the decoder input for targets (batch, seq) of an encoder-decoder: the start token (in some
 * families, the last target), then the targets shifted right by one, with padding where they are ignored. */
BY_API by_status by_model_shift(const by_model *m, const int32_t *targets, int batch, int seq, int32_t *out);

/* ---- streams ------------------------------------------------------------------------------------  */

/* Returns true if the model carries a state from segment to segment: a memory, or the state of a recurrent
 * network. */
BY_API bool by_model_carries(const by_model *m);
/* Memory length in positions; 0 for a model without a memory. */
BY_API int by_model_memory(const by_model *m);
/* Sets the memory length. No parameter depends on it: evaluation often uses a longer memory than training.
 * Existing passes and streams keep theirs. BY_ERR_UNSUPPORTED for a model without a memory. */
BY_API by_status by_model_set_memory(by_model *m, int positions);

/* Creates the state of `batch` texts, all at their start. Its memory is allocated when the first pass that
 * uses it is compiled. A batch whose member `stream` is set reads and updates the state, row by row. Passes
 * that share a stream must run one after another. The model is borrowed. Returns NULL on failure, and for a
 * model without such a state. */
BY_API by_stream *by_stream_new(by_model *m, int batch);

/* Sets the probability of every dropout in the model. 0 disables dropout and stochastic depth. */
BY_API void by_model_set_dropout(by_model *m, double p);
/* Adds uniform noise within alpha / sqrt(T C) to the token embeddings in training passes that are made from now
 * on, for rows of T tokens of width C (NEFTune, Jain et al. 2023). 0 disables it. */
BY_API void by_model_set_noise(by_model *m, double alpha);
/* Rounds of hashing of a model with LSH attention, otherwise 0. No parameter depends on them: evaluation may
 * use more than training. Existing passes keep theirs. Setting them is BY_ERR_UNSUPPORTED for other
 * models. */
BY_API int by_model_hash_rounds(const by_model *m);
BY_API by_status by_model_set_hash_rounds(by_model *m, int rounds);

/* The families of this build of which new models can be made, and their presets. NULL past the end. */
BY_API const char *by_family_at(int i);
BY_API const char *by_family_title(int i);
BY_API const char *by_family_preset(int i, int k);
/* The pretraining task of a family; BY_TASK_DEFAULT if the family is unknown. */
BY_API by_task by_family_task(const char *family);

#ifdef __cplusplus
}
#endif
#endif
