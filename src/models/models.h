/* models.h - architectures: a table of configuration fields, presets, and a build function, one file each.
 * The registry lists them. */
#ifndef BY_MODELS_MODELS_H
#define BY_MODELS_MODELS_H

#include <cjson/cJSON.h>

#include "banyan/graph.h"
#include "banyan/model_io.h"
#include "nn/nn.h"

/* A field of a configuration: its key in config.json, its member in the struct, and its role for code that is
 * independent of the architecture. */
typedef enum arch_field_kind {
    ARCH_FIELD_INT,
    ARCH_FIELD_PAIR, /* rows and columns, in the struct two ints: a list of two, or one number for both */
    ARCH_FIELD_FLOAT,
    ARCH_FIELD_BOOL,
    ARCH_FIELD_ACT,
    ARCH_FIELD_CHOICE /* one of several words; in the struct, an int index */
} arch_field_kind;
typedef enum arch_role {
    ARCH_ROLE_NONE,
    ARCH_ROLE_VOCAB,
    ARCH_ROLE_TARGET_VOCAB, /* target vocabulary, if separate */
    ARCH_ROLE_CONTEXT,
    ARCH_ROLE_WIDTH,
    ARCH_ROLE_LAYERS,         /* encoder-decoders: of the encoder, */
    ARCH_ROLE_DECODER_LAYERS, /* and of the decoder */
    ARCH_ROLE_HEADS,
    ARCH_ROLE_KV_HEADS,
    ARCH_ROLE_INNER,
    ARCH_ROLE_DROPOUT,
    ARCH_ROLE_INIT, /* standard deviation of initial values */
    ARCH_ROLE_SEGMENTS,
    ARCH_ROLE_LANGUAGES,
    ARCH_ROLE_PAD,
    ARCH_ROLE_EOS,       /* the end token, where it is a field */
    ARCH_ROLE_SEPARATOR, /* the token between two texts */
    ARCH_ROLE_CAUSAL,
    ARCH_ROLE_PRE_NORM,
    ARCH_ROLE_HASHES, /* rounds of hashing */
    ARCH_ROLE_MEMORY, /* memory length in positions */
    ARCH_ROLE_REUSE,  /* first positions of a segment that enter the memory */
    /* both texts of an encoder-decoder share a vocabulary; without this role they always do */
    ARCH_ROLE_SHARED,
    ARCH_ROLE_TIED,         /* the configuration ties the head to the table of embeddings */
    ARCH_ROLE_BOTH,         /* bidirectional recurrent layers; not for language models */
    ARCH_ROLE_CELL,         /* of recurrent layers, by name */
    ARCH_ROLE_SCORE,        /* of attention in recurrent decoders, by name */
    ARCH_ROLE_PATTERN,      /* of sparse attention, by name, */
    ARCH_ROLE_SHARING,      /* how layers or heads share its sets, by name, */
    ARCH_ROLE_STRIDE,       /* its length, */
    ARCH_ROLE_SUMMARY,      /* and its summary columns */
    ARCH_ROLE_BLOCKS,       /* of local attention over pictures, lines or rectangles, by name, */
    ARCH_ROLE_BLOCK,        /* queries of a line, */
    ARCH_ROLE_LOCAL_MEMORY, /* keys before it; */
    ARCH_ROLE_BLOCK_ROWS,   /* the same of rectangles */
    ARCH_ROLE_BLOCK_COLUMNS,
    ARCH_ROLE_LOCAL_MEMORY_ROWS,
    ARCH_ROLE_LOCAL_MEMORY_COLUMNS,
    ARCH_ROLE_DISTRIBUTION, /* of the values of a pixel, by name, */
    ARCH_ROLE_MIXTURES,     /* and the components of a mixture */
    ARCH_ROLE_COORDINATES,  /* how they are encoded, by name */
    ARCH_ROLE_UPSCALE,      /* super-resolution factor */
    ARCH_ROLE_IMAGE,        /* sides of a picture in pixels, */
    ARCH_ROLE_PATCH,        /* side of a patch, */
    ARCH_ROLE_CHANNELS,     /* and channels */
    ARCH_ROLE_DROP_PATH     /* stochastic depth of the last layer */
} arch_role;
typedef struct arch_field {
    const char *key;
    arch_field_kind kind;
    size_t offset; /* int, int[2], float, bool or by_act in the struct */
    double fallback, min, max;
    arch_role role;
} arch_field;
#define ARCH_INT_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                          \
        key, ARCH_FIELD_INT, offsetof(type, member), fallback, low, high, role \
    }
#define ARCH_PAIR_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                           \
        key, ARCH_FIELD_PAIR, offsetof(type, member), fallback, low, high, role \
    }
#define ARCH_FLOAT_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                            \
        key, ARCH_FIELD_FLOAT, offsetof(type, member), fallback, low, high, role \
    }
#define ARCH_BOOL_FIELD(type, member, key, fallback)                                 \
    {                                                                                \
        key, ARCH_FIELD_BOOL, offsetof(type, member), fallback, 0, 1, ARCH_ROLE_NONE \
    }
#define ARCH_TIED_FIELD(type)                                                                         \
    {                                                                                                 \
        "tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(type, head.tied), true, 0, 1, ARCH_ROLE_TIED \
    }
#define ARCH_ACT_FIELD(type, member, key, fallback)                                 \
    {                                                                               \
        key, ARCH_FIELD_ACT, offsetof(type, member), fallback, 0, 0, ARCH_ROLE_NONE \
    }
/* The words of the role; the first is the default. */
#define ARCH_CHOICE_FIELD(type, member, key, role)                       \
    {                                                                    \
        key, ARCH_FIELD_CHOICE, offsetof(type, member), 0, 0, 1000, role \
    }

/* A key of config.json that is not a field. A key without neutral values is read elsewhere or harmless. */
typedef struct arch_key {
    const char *key;
    const char *neutral; /* the supported values as JSON, separated by '|'; NULL: all */
    bool training;       /* others change training alone, */
    unsigned tasks;      /* only for these tasks (ARCH_TASK_BIT); 0: all */
} arch_key;
#define ARCH_TASK_BIT(task) (1u << (task))
typedef struct arch_alias {
    const char *key, *field; /* another name of a field's key */
} arch_alias;
typedef struct arch_token_ids {
    int eos, pad, start; /* ids if the configuration lacks the key; -1: none */
} arch_token_ids;

typedef struct arch_preset {
    const char *name;
    int layers, heads, width, context;
} arch_preset;

/* Weights of the language model head. */
typedef struct arch_head {
    bool tied; /* by the configuration */
    bool own;  /* untied, or the file has separate values: the weights are a parameter */
} arch_head;

/* Training defaults of a family where they differ from the common ones. */
typedef struct arch_training {
    const char *optimizer; /* NULL: "adamw" */
    bool pre_norm;         /* norms before the sub-layers, in families with both variants */
    double rate;           /* factor on the default learning rate; 0: 1 */
    double clip;           /* gradient clipping norm; 0: 1 */
    bool no_decay;         /* Adam without weight decay */
    /* vocabularies trained for it have <s> and <mask>, and texts are enclosed in <s> and </s> */
    bool encloses;
    int sentinels; /* number of tokens <extra_id_0>, <extra_id_1>, ... in vocabularies trained for it */
} arch_training;

/* Inputs that the host computes if the batch lacks them. */
typedef struct arch_rows {
    by_task task;
    int batch, seq;
    const int32_t *tokens, *mask; /* (B, T); mask NULL: nothing is masked */
    const int32_t *given;         /* (B, T): the array `from` of the batch, or NULL */
    int64_t count;                /* elements of that */
    /* A cached pass over a picture: first position, number of positions (0: all), capacity of the cache. */
    int first, steps, room;
} arch_rows;
typedef struct arch_derived {
    const char *name; /* name of the input, which is i32; NULL at the end */
    const char *from; /* array of the batch, (B, T) i32, that it is computed from; NULL: none */
    /* Sets the shape and returns the rank; 0: not needed for this batch. */
    int (*shape)(const void *config, const arch_rows *rows, int64_t *dim);
    void (*fill)(const void *config, const arch_rows *rows, const int64_t *dim, int32_t *out);
} arch_derived;

typedef struct arch_family {
    const char *family;                 /* config.json's model_type */
    const char *title;                  /* display name: "GPT-2 (Radford et al. 2019)" */
    const char *classes[BY_TASK_COUNT]; /* config.json's architectures[0] by task, NULL where there is none */
    struct {
        const char *name; /* NULL: none */
        by_task task;
        size_t offset;     /* offset of the bool in the configuration that selects it */
    } other;               /* a second class of a task, besides the one in `classes` */
    by_task pretrained;    /* its task from scratch */
    const char *objective; /* name of the default objective (data/objective.h); NULL: "lm" */
    arch_training training;
    const char *prefix; /* prefix of the body's parameters in models with a head: "transformer." */
    const char *const
        *outside; /* if the prefix is "": prefixes of names outside of the body; NULL at the end */
    const char *answer_prefix; /* the prefix in the class for answers, if different; NULL: none */
    const char *head, *table;  /* weights of the language model head, and the table it may be tied to */
    const char *target_table;  /* the same if the two texts have separate tables; NULL: none */
    size_t head_offset;        /* offset of the arch_head in the configuration */
    /* tie_word_embeddings is ignored: the head is tied unless the file has separate values */
    bool always_tied;
    /* suffixes of tensors in published files that are not parameters; NULL at the end, NULL: none */
    const char *const *ignored;
    /* Name parts in files whose modules have other names in the reference library, and therefore in adapters.
     * The first match applies. key NULL at the end; NULL: none */
    const arch_alias *modules;
    const arch_alias *renamed; /* as modules, for names that adapters share with files */
    /* suffixes of tensors that duplicate a parameter; key NULL at the end, NULL: none */
    const arch_alias *copies;
    const char *const *sines; /* suffixes of position tables that must be sinusoidal; as `ignored` */
    /* parameters that are initialised with zeros if the file lacks them; as `ignored` */
    const char *const *optional;
    const arch_field *fields;
    int n_fields;
    const arch_alias *aliases; /* key NULL at the end; NULL: none */
    const arch_key *keys;      /* in addition to the common keys (keys.c); key NULL at the end; NULL: none */
    arch_token_ids tokens;
    const char *text_part; /* key of a nested configuration with the token ids; NULL: none */
    const char *text_type; /* its model_type, where there are variants, */
    const struct arch_family *const
        *variants; /* which differ in it: the other records of the family; NULL at the end, NULL: none */
    const struct arch_family
        *classifier; /* the record for classification, if it has other parts; NULL: this one */
    int labels;      /* number of labels if the configuration lacks it; 0: 2 */
    size_t config_size;
    const arch_preset *presets;
    int n_presets;                             /* 0: a part of another model, for arch_find_stored */
    by_status (*check)(const void *config);    /* checks beyond the ranges of fields; reports by base_fail */
    int (*first_position)(const void *config); /* row of the first position in the table; NULL: 0 */
    bool extra_rows;    /* the context in the configuration does not include the rows before it */
    bool masks_padding; /* without a mask, the length of a text is its number of non-padding tokens */
    bool unlimited;     /* the context is only a default; longer texts are possible */
    /* Settings that a table of fields cannot express: read, written, or set by a preset. NULL: none */
    by_status (*read)(const cJSON *json, void *config);
    bool (*write)(cJSON *json, const void *config);
    void (*adjust)(const char *preset, void *config);
    /* families that can be either: whether to build a language model */
    bool (*is_causal)(const void *config);
    bool starts_with_last; /* the decoder starts with the last target (a language) */
    bool starts_with_eos;  /* the decoder starts with this token, otherwise with padding */
    bool packs;       /* without a mask, the reference starts a new text at each position that does not follow
                         the one before: not supported */
    bool documents;   /* attention reads the input "pair_mask", which separates the documents of a row */
    bool looks_ahead; /* a query whose earlier keys are all masked attends to later ones: not supported */
    bool pads_left;   /* texts are padded on the left, and the classification token is last */
    bool no_cache;    /* causal, but nothing can be cached */
    bool rereads;     /* not causal, even as a language model: nothing can be cached */
    bool recurrent;   /* keeps a recurrent state instead of keys and values */
    int segments;     /* context, if no key gives it; 0: as in the keys */
    bool start_row;   /* the last row of the table is a start token, which is never predicted */
    bool labels_by_mean; /* a decoder whose sequence labels are predicted from all positions */
    /* recorded labels of a causal model are aligned with their own positions, not with the previous ones */
    bool labels_in_place;
    by_pictures (*pictures)(const void *config); /* that it reads; NULL: none */
    const char *processor;                       /* default type of by_processor_spec; NULL: that of ViT */
    const char *adapted; /* default targets of adapters: comma-separated name suffixes; NULL: none */
    by_canvas (*canvas)(const void *config); /* the pictures that it makes, token by token; NULL: none */
    int (*place)(const void *config, int t); /* raster index of the position generated at time t; NULL: t */
    /* Width of the vectors that the model itself returns for whole texts and pictures, as "text_embeds" and
     * "image_embeds". NULL: none; vectors are pooled from "features" */
    int (*vector_width)(const void *config);
    bool predicts_itself;        /* the tokens of a batch are the targets: the model shifts them itself */
    const arch_derived *derived; /* NULL: none */
    const by_input_info *inputs; /* ends with a zero; NULL: those of text models */
    void (*build)(by_graph *g, const void *config, by_model_io *io);
    /* The loss of a language model head that does not materialise all logits; NULL, or a NULL result: the
     * cross-entropy of the logits. */
    by_tensor *(*loss)(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets);
    /* Files of a model with a head have names without the prefix of the body, as in the authors' own files.
     * NULL: never */
    void (*bare)(void *config);
} arch_family;

/* For records: the tables `fields` and `presets` of a family's file, and the size of its configuration. */
#define ARCH_TABLES(type)                                                                            \
    .fields = fields, .n_fields = BY_COUNT(fields), .config_size = sizeof(type), .presets = presets, \
    .n_presets = BY_COUNT(presets)

extern const arch_family arch_gpt2, arch_gpt, arch_bert, arch_roberta, arch_xlm_roberta, arch_camembert,
    arch_distilbert, arch_albert, arch_xlm, arch_t5, arch_mt5, arch_umt5, arch_bart, arch_mbart, arch_pegasus,
    arch_marian, arch_transformer, arch_llama, arch_gptj, arch_linformer, arch_longformer, arch_big_bird,
    arch_transfo_xl, arch_reformer, arch_xlnet, arch_sparse_transformer, arch_rnn, arch_lstm, arch_gru,
    arch_rnn_seq2seq, arch_imagegpt, arch_image_transformer, arch_vit, arch_deit, arch_clip, arch_clip_text,
    arch_clip_vision, arch_vision_encoder_decoder;

/* Default targets of IA3: comma-separated name suffixes, and those whose inputs are scaled. */
typedef struct arch_scaled {
    const char *family, *targets, *feedforward;
} arch_scaled;
const arch_scaled *arch_scaled_of(const arch_family *a); /* NULL: there are none */

/* Returns NULL, with an error that lists the families, for an unknown name. */
const arch_family *arch_find(const char *family);
/* The same, including parts of models that are stored alone and cannot be created. */
const arch_family *arch_find_stored(const char *family);
/* The variant of the family with this text_type; NULL: the first. Returns NULL, with an error that lists
 * them, for an unknown type. */
const arch_family *arch_variant(const arch_family *a, const char *text_type);
int arch_count(void);
const arch_family *arch_at(int i);

/* The entry of a key that is neither a field nor an alias, from the table of the family or the common one, or
 * NULL. */
const arch_key *arch_key_find(const arch_family *a, const char *key);
/* Whether the key is a field, an alias or in a table. */
bool arch_key_known(const arch_family *a, const char *key);

/* Reads or sets the field of a role; 0 or false if the architecture has none. */
double arch_config_get(const arch_family *a, const void *config, arch_role role);
bool arch_config_set(const arch_family *a, void *config, arch_role role, double value);
bool arch_has(const arch_family *a, arch_role role);
/* The same for a choice by its word. Reading returns NULL if the architecture has no such role; setting an
 * unknown word is an error that lists the words. */
const char *arch_config_choice(const arch_family *a, const void *config, arch_role role);
by_status arch_config_choose(const arch_family *a, void *config, arch_role role, const char *word);
by_status arch_choice_parse(const arch_field *f, const char *word, int *to);
const char *arch_choice_word(arch_role role, int i); /* NULL beyond the last */
void arch_config_defaults(const arch_family *a, void *config);

/* Activation by its name in config.json. Returns false for an unknown name. */
bool arch_act_parse(const char *name, by_act *out);
const char *arch_act_name(by_act act);

/* For check functions: the width is divisible by the heads; pictures (rows, columns) consist of whole square
 * patches. */
by_status arch_check_heads(int width, int heads);
by_status arch_check_patches(const int image[2], const int patch[2]);

/* For build functions: return a hidden state or a layer's attention weights if requested. */
void arch_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **arch_weights_slot(
    by_model_io *io); /* destination of this layer's weights, NULL if not requested */
/* The same for the encoder of an encoder-decoder, and for its cross-attention. */
void arch_keep_source_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **arch_source_weights_slot(by_model_io *io);
by_tensor **arch_cross_weights_slot(by_model_io *io);

/* ---- heads (heads.c); they return "logits" and, if the task has one, "second" ------------------- */

/* The weights of a language model head: the table it is tied to, or a parameter of this name. */
by_tensor *arch_head_weights(by_graph *g, arch_head head, const char *name, by_tensor *table, float std);
/* (B, T, C) -> logits over the vocabulary with the given weights (and bias, or NULL), at the input "pick" if
 * it is fed. */
void arch_lm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *weights, by_tensor *bias);
/* The same after a projection, activation and norm. Names are relative to the current scope. */
typedef struct arch_mlm_spec {
    const char *dense, *norm, *bias;
    arch_head head;
    const char *decoder;      /* weights of a head that is not tied, */
    const char *decoder_bias; /* and its bias, if different from `bias`; NULL: the same */
    by_act act;
    float eps, std;
} arch_mlm_spec;
void arch_mlm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *table, const arch_mlm_spec *spec);
/* x (B, C), one row for each sequence -> labels, or one number for each choice. */
void arch_label_head(by_graph *g, by_model_io *io, const char *name, by_tensor *x, float std);

/* Heads by table. Every row of the task reads the output "features" or "pooled". */
typedef struct arch_top {
    const void *config;
    by_tensor *table; /* of token embeddings */
    arch_head head;
    float std;                /* initial values */
    float drop;               /* dropout if that of the configuration is negative */
    const arch_mlm_spec *mlm; /* for arch_put_mlm */
} arch_top;
typedef struct arch_head_row arch_head_row;
struct arch_head_row {
    by_task task;
    void (*put)(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row);
    const char *name;
    size_t drop; /* offset of the dropout before it in the configuration; 0: none */
};
/* rows end with one whose put is NULL. */
void arch_put_heads(by_graph *g, by_model_io *io, const arch_head_row *rows, const arch_top *top);
by_tensor *arch_head_dropout(by_graph *g, by_tensor *x, const arch_top *top, const arch_head_row *row);
#define ARCH_PUT(name) \
    void arch_put_##name(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
ARCH_PUT(lm);     /* over the vocabulary, without a bias */
ARCH_PUT(mlm);    /* the same after a projection and a norm: top->mlm */
ARCH_PUT(score);  /* the row "pick" of each -> labels, without a bias */
ARCH_PUT(label);  /* "pooled" -> labels, or one number for each choice */
ARCH_PUT(tag);    /* every position -> labels */
ARCH_PUT(next);   /* "pooled" -> whether the second sentence follows */
ARCH_PUT(answer); /* every position -> start and end */

/* Answers by a beam of starts (beam_head.c). Inputs: p_mask (B, T), 1 for tokens that cannot be part of an
 * answer; cls_index (B), the classification token, by default the last; is_impossible (B), -100 for ignored
 * rows. "logits" are those of the starts; "second" (B, S, 3 + 2 E) has for each of the S most likely starts
 * its probability, its position, the score of "no answer", and the probabilities and positions of its E most
 * likely ends. */
typedef struct arch_beam_spec {
    int starts, ends;
    float eps, std;
} arch_beam_spec;
void arch_beam_head(by_graph *g, by_model_io *io, const arch_beam_spec *spec);
by_tensor *arch_beam_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second,
                          const arch_beam_spec *spec);

/* The mean binary cross-entropy of sigmoids: targets 0, 1, or -100 if ignored. */
by_tensor *arch_each_or_not(by_graph *g, by_tensor *x, by_tensor *targets);

/* tanh of a projection of the first position: (B, T, C) -> (B, C). */
by_tensor *arch_pooler(by_graph *g, const char *name, by_tensor *h, float std);

/* Sequence summary for labels (summary_type): (B, T, C) -> (B, C), with or without a mask. */
typedef enum arch_summary { ARCH_SUMMARY_FIRST, ARCH_SUMMARY_LAST, ARCH_SUMMARY_MEAN } arch_summary;
by_tensor *arch_summarize(by_graph *g, arch_summary how, by_tensor *x);
/* summary_type and summary_activation, with the reference's defaults. */
by_status arch_summary_read(const cJSON *json, const char *type, const char *act, arch_summary *how,
                            by_act *after);

/* The loss of sequence labels for io's problem: targets are classes, numbers or probabilities. */
by_tensor *arch_label_loss(by_graph *g, const by_model_io *io, by_tensor *logits, by_tensor *targets);
/* The loss of io's task (banyan/model.h, by_model_loss). */
by_tensor *arch_task_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second);

/* ---- rotary positions (rope_config.c) ------------------------------------------------------------ */

/* rope_parameters, or rope_scaling and rope_theta as files before transformers 5 have them. */
by_status arch_rope_read(const cJSON *json, int context, nn_rope *rope);
/* Adds rope_parameters to a configuration that has none. */
bool arch_rope_write(cJSON *json, const nn_rope *rope);
#define ARCH_ROPE_KEYS                                                          \
    {.key = "rope_parameters"}, {.key = "rope_scaling"}, {.key = "rope_theta"}, \
    {                                                                           \
        .key = "original_max_position_embeddings"                               \
    }

/* ---- adaptive embedding and softmax (adaptive.c) --------------------------------------------------- */

enum { ARCH_CUTOFFS = 4 };
typedef struct arch_adaptive {
    int vocab, embed, width;     /* tokens, width of the first table, width of the model */
    int div;                     /* factor by which each cluster's table is narrower than the previous one */
    int count;                   /* cutoffs; those at or past the end of the vocabulary are ignored */
    int cutoffs[ARCH_CUTOFFS];   /* the first tokens of the tail clusters */
    bool ties[ARCH_CUTOFFS + 1]; /* the projection before the softmax is tied to the embedding's */
    bool reversed;               /* the head's columns for the tails are in descending order */
    float std, projection_std;   /* initial values */
} arch_adaptive;
int arch_adaptive_tails(const arch_adaptive *a);
/* ids (B, T) -> (B, T, C), times sqrt(C). In the scope of the body. */
by_tensor *arch_adaptive_embedding(by_graph *g, by_tensor *ids, const arch_adaptive *a);
/* Returns "logits" from "features": with tails, the logarithms of the probabilities. own: the weights are not
 * the tables of the embedding. */
void arch_adaptive_head(by_graph *g, by_model_io *io, const arch_adaptive *a, bool own);
/* The mean loss. The optional inputs tail.1, tail.2, ... (2, K) list the rows of the batch whose target is in
 * that tail, and these targets relative to the first token of the tail, padded with -100. Only these rows are
 * then computed. Without them, all rows are computed for every tail. */
by_tensor *arch_adaptive_loss(by_graph *g, const by_model_io *io, by_tensor *targets, const arch_adaptive *a,
                              bool own);
/* Lists these rows; configurations begin with their arch_adaptive. */
extern const arch_derived arch_adaptive_derived[];
extern const arch_alias arch_adaptive_copies[]; /* tensors of files that repeat the embedding's */

/* ---- shared by variants of GPT-2 (gpt2.c) ------------------------------------------------------- */

typedef struct arch_gpt2_config {
    int vocab, context, width, layers, heads, inner; /* inner 0: four times the width */
    float eps, std, embd_drop, attn_drop, resid_drop;
    float label_drop; /* negative: 0.1 */
    by_act act;
    bool scale_weights, scale_by_layer;
    bool whole_root; /* scores are divided by floor(sqrt(D)) */
    arch_head head;
} arch_gpt2_config;
/* `type` has an arch_gpt2_config called `member`; keys are prefixed with `part`, "" or that of a nested
 * configuration. */
#define ARCH_GPT2_PART_FIELDS(part, type, member, vocabulary, length, size, depth, count, activation,    \
                              layers_role)                                                               \
    ARCH_INT_FIELD(type, member vocab, part "vocab_size", vocabulary, 1, 1 << 24, ARCH_ROLE_VOCAB),      \
        ARCH_INT_FIELD(type, member context, part "n_positions", length, 1, 1 << 24, ARCH_ROLE_CONTEXT), \
        ARCH_INT_FIELD(type, member width, part "n_embd", size, 1, 1 << 20, ARCH_ROLE_WIDTH),            \
        ARCH_INT_FIELD(type, member layers, part "n_layer", depth, 1, BY_MAX_LAYERS, layers_role),       \
        ARCH_INT_FIELD(type, member heads, part "n_head", count, 1, 4096, ARCH_ROLE_HEADS),              \
        ARCH_INT_FIELD(type, member inner, part "n_inner", 0, 1, 1 << 22, ARCH_ROLE_INNER),              \
        ARCH_ACT_FIELD(type, member act, part "activation_function", activation),                        \
        ARCH_FLOAT_FIELD(type, member resid_drop, part "resid_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT), \
        ARCH_FLOAT_FIELD(type, member embd_drop, part "embd_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),   \
        ARCH_FLOAT_FIELD(type, member attn_drop, part "attn_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),   \
        ARCH_FLOAT_FIELD(type, member eps, part "layer_norm_epsilon", 1e-5, 0, 1, ARCH_ROLE_NONE),       \
        ARCH_FLOAT_FIELD(type, member std, part "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),       \
        ARCH_BOOL_FIELD(type, member scale_weights, part "scale_attn_weights", true),                    \
        ARCH_BOOL_FIELD(type, member scale_by_layer, part "scale_attn_by_inverse_layer_idx", false)
#define ARCH_GPT2_BODY_FIELDS(type, member, vocabulary, length, size, depth, count, activation) \
    ARCH_GPT2_PART_FIELDS("", type, member, vocabulary, length, size, depth, count, activation, \
                          ARCH_ROLE_LAYERS)
#define ARCH_GPT2_FIELDS(type, member, vocabulary, length, activation)                                       \
    ARCH_GPT2_BODY_FIELDS(type, member, vocabulary, length, 768, 12, 12, activation),                        \
        ARCH_FLOAT_FIELD(type, member label_drop, "classifier_dropout", -1, 0, 0.999, ARCH_ROLE_DROPOUT),    \
    {                                                                                                        \
        "tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(type, member head.tied), true, 0, 1, ARCH_ROLE_TIED \
    }
extern const arch_alias arch_gpt2_aliases[];
/* What a relative has of its own. */
typedef struct arch_gpt2_variant {
    /* The pattern of a layer, on top of the causal mask; a query that sees no key gives zeros. NULL: all */
    by_pattern (*pattern)(const arch_gpt2_config *c, int layer);
    by_tensor *(*norm)(by_graph *g, const char *name, by_tensor *x, float eps); /* NULL: nn_layernorm */
    const arch_head_row *heads;                                                 /* NULL: GPT-2's */
    /* Each block also attends to an encoder's output (B, S, C): `memory`, or where that is NULL the cache, in
     * which arch_gpt2_keep has put it. */
    bool cross;
    by_tensor *memory;
} arch_gpt2_variant;
/* The model with its heads. v NULL: GPT-2 itself. */
void arch_gpt2_build(by_graph *g, const arch_gpt2_config *c, by_model_io *io, const arch_gpt2_variant *v);
void arch_gpt2_keep(by_graph *g, const arch_gpt2_config *c, by_model_io *io, by_tensor *memory);
by_status arch_gpt2_check(const void *config);

/* ---- shared by variants of BART (bart.c) ------------------------------------------------------ */

typedef struct arch_bart_config {
    int vocab, target_vocab, context, width, encoder_layers, decoder_layers, encoder_heads, decoder_heads;
    int encoder_inner, decoder_inner, pad;
    float std, drop, attn_drop, act_drop, label_drop;
    by_act act;
    arch_head head;
    bool scale_embedding;
    bool learned, embedding_norm; /* positions are learned; a norm follows the embedding */
    bool shared;                  /* one vocabulary and table for both texts */
    bool pre_norm;                /* norms before the sub-layers, and one at the end */
} arch_bart_config;
#define ARCH_BART_FIELDS(vocab_size, activation, padding, scaled, size, layers, heads, inner)            \
    ARCH_INT_FIELD(arch_bart_config, vocab, "vocab_size", vocab_size, 1, 1 << 24, ARCH_ROLE_VOCAB),      \
        ARCH_INT_FIELD(arch_bart_config, width, "d_model", size, 1, 1 << 20, ARCH_ROLE_WIDTH),           \
        ARCH_INT_FIELD(arch_bart_config, encoder_layers, "encoder_layers", layers, 1, BY_MAX_LAYERS,     \
                       ARCH_ROLE_LAYERS),                                                                \
        ARCH_INT_FIELD(arch_bart_config, decoder_layers, "decoder_layers", layers, 1, BY_MAX_LAYERS,     \
                       ARCH_ROLE_DECODER_LAYERS),                                                        \
        ARCH_INT_FIELD(arch_bart_config, encoder_heads, "encoder_attention_heads", heads, 1, 4096,       \
                       ARCH_ROLE_HEADS),                                                                 \
        ARCH_INT_FIELD(arch_bart_config, decoder_heads, "decoder_attention_heads", heads, 1, 4096,       \
                       ARCH_ROLE_HEADS),                                                                 \
        ARCH_INT_FIELD(arch_bart_config, encoder_inner, "encoder_ffn_dim", inner, 1, 1 << 22,            \
                       ARCH_ROLE_INNER),                                                                 \
        ARCH_INT_FIELD(arch_bart_config, decoder_inner, "decoder_ffn_dim", inner, 1, 1 << 22,            \
                       ARCH_ROLE_INNER),                                                                 \
        ARCH_FLOAT_FIELD(arch_bart_config, drop, "dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),           \
        ARCH_FLOAT_FIELD(arch_bart_config, attn_drop, "attention_dropout", 0, 0, 0.999, ARCH_ROLE_NONE), \
        ARCH_FLOAT_FIELD(arch_bart_config, act_drop, "activation_dropout", 0, 0, 0.999, ARCH_ROLE_NONE), \
        ARCH_ACT_FIELD(arch_bart_config, act, "activation_function", activation),                        \
        ARCH_BOOL_FIELD(arch_bart_config, scale_embedding, "scale_embedding", scaled),                   \
        ARCH_INT_FIELD(arch_bart_config, pad, "pad_token_id", padding, 0, 1 << 24, ARCH_ROLE_PAD),       \
        ARCH_TIED_FIELD(arch_bart_config)
extern const arch_alias arch_bart_aliases[], arch_bart_copies[];
extern const arch_key arch_bart_keys[];
extern const char *const arch_bart_optional[];
#define ARCH_BART_COMMON                                                                          \
    .pretrained = BY_TASK_SEQ2SEQ, .prefix = "model.", .head = "lm_head.weight",                  \
    .table = "model.shared.weight", .target_table = "model.decoder.embed_tokens.weight",          \
    .head_offset = offsetof(arch_bart_config, head), .aliases = arch_bart_aliases,                \
    .copies = arch_bart_copies, .keys = arch_bart_keys, .optional = arch_bart_optional,           \
    .config_size = sizeof(arch_bart_config), .labels_in_place = true, .adapted = "q_proj,v_proj", \
    .build = arch_bart_build
void arch_bart_build(by_graph *g, const void *config, by_model_io *io);
by_status arch_bart_check(const void *config);

/* ---- shared by variants of ViT (vit.c) ----------------------------------------------------------- */

typedef struct arch_vit_config {
    int image[2], patch[2]; /* rows and columns in pixels */
    int channels, width, layers, heads, inner;
    int pooled; /* width of the pooler's output; 0: that of the model */
    float eps, std, drop, attn_drop, drop_path;
    by_act act, pooler_act;
    bool qkv_bias;
    bool distilled; /* a distillation token follows the class token */
} arch_vit_config;
#define ARCH_VIT_PART_FIELDS(part, type, member)                                                           \
    ARCH_PAIR_FIELD(type, member image, part "image_size", 224, 1, 1 << 14, ARCH_ROLE_IMAGE),              \
        ARCH_PAIR_FIELD(type, member patch, part "patch_size", 16, 1, 1 << 14, ARCH_ROLE_PATCH),           \
        ARCH_INT_FIELD(type, member channels, part "num_channels", 3, 1, 256, ARCH_ROLE_CHANNELS),         \
        ARCH_INT_FIELD(type, member width, part "hidden_size", 768, 1, 1 << 20, ARCH_ROLE_WIDTH),          \
        ARCH_INT_FIELD(type, member layers, part "num_hidden_layers", 12, 1, BY_MAX_LAYERS,                \
                       ARCH_ROLE_LAYERS),                                                                  \
        ARCH_INT_FIELD(type, member heads, part "num_attention_heads", 12, 1, 4096, ARCH_ROLE_HEADS),      \
        ARCH_INT_FIELD(type, member inner, part "intermediate_size", 3072, 1, 1 << 22, ARCH_ROLE_INNER),   \
        ARCH_ACT_FIELD(type, member act, part "hidden_act", BY_GELU),                                      \
        ARCH_FLOAT_FIELD(type, member drop, part "hidden_dropout_prob", 0, 0, 0.999, ARCH_ROLE_DROPOUT),   \
        ARCH_FLOAT_FIELD(type, member attn_drop, part "attention_probs_dropout_prob", 0, 0, 0.999,         \
                         ARCH_ROLE_DROPOUT),                                                               \
        ARCH_FLOAT_FIELD(type, member drop_path, part "drop_path_rate", 0, 0, 0.999, ARCH_ROLE_DROP_PATH), \
        ARCH_FLOAT_FIELD(type, member eps, part "layer_norm_eps", 1e-12, 0, 1, ARCH_ROLE_NONE),            \
        ARCH_FLOAT_FIELD(type, member std, part "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),         \
        ARCH_BOOL_FIELD(type, member qkv_bias, part "qkv_bias", true),                                     \
        ARCH_INT_FIELD(type, member pooled, part "pooler_output_size", 0, 1, 1 << 20, ARCH_ROLE_NONE),     \
        ARCH_ACT_FIELD(type, member pooler_act, part "pooler_act", BY_TANH)
#define ARCH_VIT_FIELDS ARCH_VIT_PART_FIELDS("", arch_vit_config, )
by_status arch_vit_check(const void *config);
by_pictures arch_vit_pictures(const void *config);
extern const arch_key arch_vit_keys[];
extern const arch_alias arch_vit_modules[];
extern const char *const arch_vit_ignored[];

/* The configuration of a captioning model of this family with copies of the configurations of this encoder
 * and decoder. The caller owns it; NULL on failure. */
cJSON *arch_caption_config(const cJSON *encoder, const cJSON *decoder, const char *family);
extern const by_input_info arch_picture_inputs[]; /* "pixel_values" alone */
/* The input "pixel_values" (B, Ch, H, W) -> (B, T, C) after the last norm, in the current scope. source: it
 * is the encoder of another model. */
by_tensor *arch_vit_body(by_graph *g, const arch_vit_config *c, by_model_io *io, bool source);
/* Returns "features" and, of a model without a head, "pooled". */
void arch_vit_features(by_graph *g, const arch_vit_config *c, by_model_io *io);

/* ---- shared by variants of BERT and RoBERTa (bert.c, roberta.c) ------------------------------- */

/* The configuration of a variant begins with this one. */
typedef struct arch_bert_config {
    int vocab, context, segments, width, layers, heads, inner, pad;
    float eps, std, drop, attn_drop, label_drop; /* label_drop negative: as drop */
    by_act act;
    bool causal;
    arch_head head;
} arch_bert_config;
/* `type` has an arch_bert_config called `member`; keys are prefixed with `part`, "" or that of a nested
 * configuration. */
#define ARCH_BERT_PART_FIELDS(part, type, member, words, positions, padding, activation, layers_role)      \
    ARCH_INT_FIELD(type, member vocab, part "vocab_size", words, 1, 1 << 24, ARCH_ROLE_VOCAB),             \
        ARCH_INT_FIELD(type, member context, part "max_position_embeddings", positions, 1, 1 << 24,        \
                       ARCH_ROLE_CONTEXT),                                                                 \
        ARCH_INT_FIELD(type, member segments, part "type_vocab_size", 2, 1, 1 << 16, ARCH_ROLE_SEGMENTS),  \
        ARCH_INT_FIELD(type, member width, part "hidden_size", 768, 1, 1 << 20, ARCH_ROLE_WIDTH),          \
        ARCH_INT_FIELD(type, member layers, part "num_hidden_layers", 12, 1, BY_MAX_LAYERS, layers_role),  \
        ARCH_INT_FIELD(type, member heads, part "num_attention_heads", 12, 1, 4096, ARCH_ROLE_HEADS),      \
        ARCH_INT_FIELD(type, member inner, part "intermediate_size", 3072, 1, 1 << 22, ARCH_ROLE_INNER),   \
        ARCH_INT_FIELD(type, member pad, part "pad_token_id", padding, 0, 1 << 24, ARCH_ROLE_PAD),         \
        ARCH_ACT_FIELD(type, member act, part "hidden_act", activation),                                   \
        ARCH_FLOAT_FIELD(type, member drop, part "hidden_dropout_prob", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT), \
        ARCH_FLOAT_FIELD(type, member attn_drop, part "attention_probs_dropout_prob", 0.1, 0, 0.999,       \
                         ARCH_ROLE_DROPOUT),                                                               \
        ARCH_FLOAT_FIELD(type, member eps, part "layer_norm_eps", 1e-12, 0, 1, ARCH_ROLE_NONE),            \
        ARCH_FLOAT_FIELD(type, member std, part "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),         \
    {                                                                                                      \
        part "tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(type, member head.tied), true, 0, 1,         \
            ARCH_ROLE_TIED                                                                                 \
    }
#define ARCH_BERT_FIELDS(words, positions, padding, activation) \
    ARCH_BERT_PART_FIELDS("", arch_bert_config, , words, positions, padding, activation, ARCH_ROLE_LAYERS)
/* Fields that some of them lack. */
#define ARCH_LABEL_DROP_FIELD \
    ARCH_FLOAT_FIELD(arch_bert_config, label_drop, "classifier_dropout", -1, 0, 0.999, ARCH_ROLE_DROPOUT)
#define ARCH_IS_DECODER_FIELD                                                                            \
    {                                                                                                    \
        "is_decoder", ARCH_FIELD_BOOL, offsetof(arch_bert_config, causal), false, 0, 1, ARCH_ROLE_CAUSAL \
    }

typedef struct arch_bert_sizes {
    int64_t vocab, context, segments, width;
    int pad, position_pad; /* rows of the tables that padding looks up; -1: none */
} arch_bert_sizes;
by_tensor *arch_bert_embeddings(by_graph *g, by_model_io *io, const arch_bert_sizes *sizes, float eps,
                                float std, float drop);
/* Parameter names are those of BERT; the rest is as in the spec. */
by_tensor *arch_bert_layers(by_graph *g, by_model_io *io, by_tensor *x, int layers, nn_encoder_spec spec);
by_tensor *arch_bert_table(by_graph *g, int64_t vocab, int64_t width, float std); /* of the tokens */
arch_mlm_spec arch_bert_mlm(const arch_bert_config *c);     /* and about the head over the vocabulary */
nn_encoder_spec arch_bert_layer(const arch_bert_config *c); /* what a configuration says about a layer */

/* What a relative has of its own. */
typedef struct arch_bert_variant {
    const char *body; /* the scope of the body */
    nn_attend attend; /* NULL: ordinary attention */
    const void *user; /* for attend */
    /* Each layer also attends to an encoder's output (B, S, C): `memory`, or where that is NULL the cache, in
     * which arch_bert_keep has put it. */
    bool cross;
    by_tensor *memory;
} arch_bert_variant;
nn_encoder_spec arch_bert_variant_layer(const arch_bert_config *c, const by_model_io *io,
                                        const arch_bert_variant *v);
/* Build the whole model. */
void arch_bert_build(by_graph *g, const arch_bert_config *c, by_model_io *io, const arch_bert_variant *v);
void arch_roberta_build(by_graph *g, const arch_bert_config *c, by_model_io *io, const arch_bert_variant *v);
void arch_bert_keep(by_graph *g, const arch_bert_config *c, by_model_io *io, const char *body,
                    by_tensor *memory);
by_status arch_bert_check(const void *config);
extern const arch_alias arch_bert_copies[], arch_roberta_copies[];
by_status arch_roberta_check(const void *config);
int arch_roberta_first_position(const void *config);

#endif
