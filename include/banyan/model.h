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
    by_dtype dtype;           /* of parameters and activations: BY_F32 (default), BY_BF16, BY_F16, BY_F64 */
    bool training;            /* make the gradient and optimiser buffers */
    bool stochastic_rounding; /* of training: see by_params_without_masters */
    /* Of training: what no gradient, moment or master is kept for. "embeddings"; a number of layers or "body", both with
     * the embeddings; "weights", all but biases (BitFit, Ben Zaken et al. 2022); "but:NAMES", all but the parameters that have one
     * of the names in theirs, "but:query.bias,LayerNorm". The last two also leave what lies above the layers of a model with labels
     * or spans, which may be new. NULL: nothing */
    const char *freeze;
    double layer_decay; /* of training: each layer learns at this times the rate of the one above; 0: 1 */
    by_dtype weights;   /* how weights of products that are not trained are stored: BY_Q8_0, BY_Q4_0, or
                         * BY_BF16, BY_F16 under BY_F32. 0: as dtype. Rows that are not whole blocks stay
                         * as they are. Saving writes the rounded values, in a float type */
    /* add this adapter. For training, it is trained in place of the model, whose parameters are frozen. NULL: none */
    const by_adapter_spec *adapter;
    const char *adapter_folder; /* opening: add the adapter in this folder, with the head it has; NULL: none */
    bool copy;                  /* never map the file, even where that is possible */
    uint64_t seed;              /* initial values of a new model */
    bool blank;                 /* a new model's values stay zero: for a look at its shape */
    by_task task;               /* of a new model */
    int labels;                 /* of a new model that has labels */
    by_problem problem;         /* of a new model that classifies */
    bool exact;    /* opening: the very class that config.json names. Otherwise a class without a head, whose
                    * family ties the head to the body, is opened with that head */
    bool new_head; /* opening: give the model the head of `task`, whatever head the file has. Labels begin
                    * with fresh values; what else the file lacks outside of the body does too */
} by_model_spec;

/* The shape of a new model: a preset and the differences from it. 0 or negative: as in the preset. */
typedef struct by_model_shape {
    const char *preset; /* NULL: the smallest preset */
    int layers, heads, width, context, inner;
    int vocab;
    int target_vocab;   /* of encoder-decoders that have another for what they write; 0: they share one */
    int languages;      /* of families that know them */
    double dropout;     /* negative: the architecture's default */
    double init_std;    /* standard deviation of initial values: "initializer_range" in config.json */
    int decoder_layers; /* of encoder-decoders; 0: as many as `layers` */
    bool pre_norm;      /* norms before the sub-layers, of families that have the choice */
    int kv_heads;       /* key/value heads, of families that share them among query heads */
    /* sparse pattern: "strided", "fixed"; blocks over pictures: "1d", "2d"; score of a recurrent decoder's attention: "additive", "dot", "general", "concat", or "none" */
    const char *attention;
    const char *decoder; /* of models of captions: "gpt2", "bert", "roberta", "xlm-roberta", "camembert" */
    const char *cell;    /* of recurrent encoder-decoders: "gru", "lstm", "rnn" */
    const char *attention_mode; /* how its two sets are shared: "merged", "alternating", "heads" */
    int stride, summary;        /* its length and its summary columns */
    int memory; /* positions remembered from earlier segments, of families that have a memory; negative: none, 0: as in the preset */
    int hash_rounds;          /* rounds of hashing, of families that attend within buckets */
    const char *distribution; /* models of pixels: "categorical", "dmol" */
    const char *coordinates;  /* "sinusoidal", "learned" */
    int mixtures;             /* components of "dmol" */
    int upscale;              /* models of pixels that enlarge pictures: by how much; 0: none is read */
    int block_rows,
        block_columns; /* query blocks of local attention over pictures; "1d": only columns, the length, */
    int memory_rows, memory_columns; /* and the memory around them; negative: none, 0: as in the preset */
    int image, patch,
        channels;     /* of families that read pictures: side of a picture, side of a patch, channels */
    double drop_path; /* of families that read pictures: stochastic depth of the last layer */
} by_model_shape;

/* A model that writes captions, from two model directories: a model of pictures (ViT, DeiT), whose body becomes the encoder, and a language
 * model (GPT-2) or an encoder of texts with a head over the vocabulary (BERT, RoBERTa, XLM-RoBERTa, CamemBERT), which becomes the decoder. What
 * joins them, the decoder's attention to the encoder, has initial values that follow from the seed. The tokens that begin, end and pad texts
 * are those of the decoder's configuration: without a first one the end token begins texts, without padding it pads them. BERT's configuration
 * names neither; its tokenizer does ([CLS], [SEP]), and by_model_set_start and by_model_set_eos tell the model. Returns NULL on failure. */
BY_API by_model *by_model_join(by_device *d, const char *encoder, const char *decoder, uint64_t seed);

/* Opens a model directory: config.json with model.safetensors, pytorch_model.bin, or shards of either. If the
 * model is not for training, weights of the requested type are mapped instead of copied. A folder with an adapter
 * (adapter_config.json) opens as its base model with that adapter. The device is borrowed and must outlive the
 * model. Returns NULL on failure. */
BY_API by_model *by_model_open(by_device *d, const char *dir, const by_model_spec *spec);

/* Creates a model with initial values. family is "gpt2", "openai-gpt", ... Returns NULL on failure. */
BY_API by_model *by_model_new(by_device *d, const char *family, const by_model_shape *shape,
                              const by_model_spec *spec);
/* Makes a model of some layers of another, counted from 0, in the order given, and of everything else that it has: embeddings, head,
 * labels. Of an encoder-decoder, both halves keep these layers. Of spec, the members on types and training count. Returns NULL on
 * failure, and for families whose layers differ in more than their values. */
BY_API by_model *by_model_cut(const by_model *m, const int *layers, int count, const by_model_spec *spec);
/* Chooses `count` of `of` layers, evenly, the first and the last among them: 0, 2, 4, 7, 9, 11 are 6 of 12. One is the last. */
BY_API void by_layers_even(int of, int count, int *out);
BY_API void by_model_free(by_model *m);

/* Writes config.json, model.safetensors and, for a model that generates, generation_config.json into dir,
 * which is created if missing. Of a model that uses an adapter, the adapter is written in place of the weights. Each file is replaced atomically. Values are written as f32 (masters) unless
 * dtype is bf16 or f16. Weights larger than BY_SHARD_BYTES are split into several files with
 * model.safetensors.index.json. Weight files of an earlier save that are not replaced are removed at the end.
 * Writing the tokenizer is up to the caller: by_companions_copy (weights.h) copies its files from another
 * directory. */
BY_API by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype);

#define BY_SHARD_BYTES ((int64_t)5000000000)

typedef struct by_save_spec {
    by_dtype dtype;
    int64_t shard_bytes; /* maximum size of a file; 0: BY_SHARD_BYTES, negative: unlimited */
} by_save_spec;
/* The same, with a choice of element type and file size. */
BY_API by_status by_model_save_with(const by_model *m, const char *dir, const by_save_spec *spec);

/* The inputs that a model reads. NULL past the end. */
BY_API const by_input_info *by_model_input(const by_model *m, int i);

/* Append the model to a graph. The caller feeds io's inputs. Errors stick to the graph. */
BY_API void by_model_build(const by_model *m, by_graph *g, by_model_io *io);

/* The same for a model that learns nothing: without dropout and without gradients. It may be another model than the one that the graph
 * is for, on the same device: a teacher, a reference. The graph's own model is built without its adapter. */
BY_API void by_model_build_frozen(const by_model *m, by_graph *g, by_model_io *io);

/* Returns the loss of the task, a scalar. targets has the shape of the logits without the last axis, i32,
 * where -100 is ignored; for multi-label problems and regression (f32), it has the shape of the logits. So it
 * has, as f32, where a row has a probability for each of its classes (mixup, cutmix); these must sum to 1.
 * second is the target of io->second, (B) i32, for tasks that have one. */
BY_API by_tensor *by_model_loss(const by_model *m, by_graph *g, by_model_io *io, by_tensor *targets,
                                by_tensor *second);

/* Properties of a model: its parameters and device, family name and title, task and labels. */
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
/* Returns true if, in the reference library, the labels of a language model of this family are the tokens
 * that the positions predict. Returns false if they are the input tokens, each of which is predicted by the
 * position before it. */
BY_API bool by_model_labels_in_place(const by_model *m);
/* Returns true if sequence labels are predicted from the last token, as in decoders, false if from the
 * first. */
BY_API bool by_model_reads_last(const by_model *m);
/* Returns true if padding stands before a text and its label is predicted from its last token, as in XLNet. */
BY_API bool by_model_pads_left(const by_model *m);
/* Returns true if a token changes what the model knows of those before it: generation then passes over the whole text
 * for every new token, and there is no probability of a text from left to right. */
BY_API bool by_model_rereads(const by_model *m);
/* Returns false if nothing of a text can be kept for the next token: generation passes over the whole text. */
BY_API bool by_model_has_cache(const by_model *m);
/* Whether it keeps a state of what it has read in place of keys and values: its size does not grow with the text. */
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
BY_API int by_model_projection(
    const by_model *m); /* width of the space that texts and pictures share; 0: none */
BY_API int by_model_segments(const by_model *m); /* number of segments or languages; 0: none */
/* Number of languages if segments are languages; otherwise 0. */
BY_API int by_model_languages(const by_model *m);
BY_API int by_model_eos(const by_model *m);   /* id of the end-of-text token, or -1 */
BY_API int by_model_pad(const by_model *m);   /* id of the padding token, or -1 */
BY_API int by_model_start(const by_model *m); /* encoder-decoders: id of the token that starts the decoder */
BY_API void by_model_set_start(by_model *m, int token);
BY_API void by_model_set_eos(by_model *m, int token);
BY_API void by_model_set_pad(by_model *m, int token);

/* The pictures that the model reads. Returns false, and zeros, for one that reads none. */
BY_API bool by_model_pictures(const by_model *m, by_pictures *out);

/* The pictures that a model of pixels makes. Returns false, and zeros, for other models. */
BY_API bool by_model_canvas(const by_model *m, by_canvas *out);

/* Index of the first position of a text in the family's position table. */
BY_API int by_model_first_position(const by_model *m);
/* Computes the positions of tokens (batch, seq) as the family numbers them. Padding tokens are not
 * counted. */
BY_API void by_model_positions(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* Computes the mask (batch, seq) that the reference library derives from the tokens if none is given. Returns
 * false, without writing, for families in which all tokens then count. */
BY_API bool by_model_mask(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out);

/* Returns BY_ERR_UNSUPPORTED if a row of the mask (batch, seq; may be NULL) needs something of the family
 * that is not supported. by_pass_run checks the masks of its batches with this. */
BY_API by_status by_model_check_mask(const by_model *m, const int32_t *mask, int batch, int seq);

/* Computes the decoder input for targets (batch, seq) of an encoder-decoder: the start token (in some
 * families, the last target), then the targets shifted right by one, with padding where they are ignored. */
BY_API by_status by_model_shift(const by_model *m, const int32_t *targets, int batch, int seq, int32_t *out);

/* ---- streams ------------------------------------------------------------------------------------  */

/* Whether the model carries a state from segment to segment: a memory, or the state of a recurrent network. */
BY_API bool by_model_carries(const by_model *m);
/* Positions that the model remembers from earlier segments; 0: it has no memory of positions. */
BY_API int by_model_memory(const by_model *m);
/* Sets that number, which no parameter depends on: evaluation often uses a longer memory than training. Passes and
 * streams that exist keep theirs. BY_ERR_UNSUPPORTED for a model without a memory. */
BY_API by_status by_model_set_memory(by_model *m, int positions);

/* Makes the state of `batch` texts, all at their beginning. Its memory is allocated when the first pass over it is
 * compiled. A batch whose member `stream` is set reads and updates it, row by row. Passes that share a stream run one
 * after another. The model is borrowed. Returns NULL on failure, and for a model without such a state. */
BY_API by_stream *by_stream_new(by_model *m, int batch);

/* Sets the probability of every dropout in the model; 0 disables dropout, and stochastic depth with it. */
BY_API void by_model_set_dropout(by_model *m, double p);
/* Rounds of hashing of a model that attends within buckets, else 0. No parameter depends on them: evaluation may use
 * more than training. Passes that exist keep theirs. BY_ERR_UNSUPPORTED for a model that does not hash. */
BY_API int by_model_hash_rounds(const by_model *m);
BY_API by_status by_model_set_hash_rounds(by_model *m, int rounds);

/* The families of this build and their presets. NULL past the end. */
BY_API const char *by_family_at(int i);
BY_API const char *by_family_title(int i);
BY_API const char *by_family_preset(int i, int k);
/* The pretraining task of a family; BY_TASK_DEFAULT if the family is unknown. */
BY_API by_task by_family_task(const char *family);

#ifdef __cplusplus
}
#endif
#endif
