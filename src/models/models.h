/* models.h - what an architecture is: a table of configuration fields, presets, and a function that builds.
 * One file each; the registry lists them. */
#ifndef BY_MODELS_MODELS_H
#define BY_MODELS_MODELS_H

#include <cjson/cJSON.h>

#include "banyan/graph.h"
#include "banyan/model_io.h"
#include "nn/nn.h"

/* A field of a configuration: its key in config.json, where it lies in the struct, what it means to those who
 * know no architecture. */
typedef enum arch_field_kind {
    ARCH_FIELD_INT,
    ARCH_FIELD_FLOAT,
    ARCH_FIELD_BOOL,
    ARCH_FIELD_ACT,
    ARCH_FIELD_CHOICE /* one of several words; in the struct an int, its place among them */
} arch_field_kind;
typedef enum arch_role {
    ARCH_ROLE_NONE,
    ARCH_ROLE_VOCAB,
    ARCH_ROLE_TARGET_VOCAB, /* of what is written, where that is another */
    ARCH_ROLE_CONTEXT,
    ARCH_ROLE_WIDTH,
    ARCH_ROLE_LAYERS,         /* of encoder-decoders: of the encoder, */
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
    ARCH_ROLE_MEMORY, /* positions remembered from earlier segments */
    ARCH_ROLE_REUSE,  /* positions of a segment that are remembered, the first ones */
    ARCH_ROLE_SHARED, /* both texts of an encoder-decoder have one vocabulary; without this they always have */
    ARCH_ROLE_TIED,   /* the configuration ties the head to the table of embeddings */
    ARCH_ROLE_BOTH,   /* recurrent layers read a text from both ends; language models cannot */
    ARCH_ROLE_CELL,   /* of recurrent layers, by name */
    ARCH_ROLE_SCORE,  /* of attention in recurrent decoders, by name */
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
    ARCH_ROLE_UPSCALE,      /* how much larger than the pictures that it reads are those that it makes */
    ARCH_ROLE_IMAGE,        /* side of a picture in pixels, */
    ARCH_ROLE_PATCH,        /* side of a patch, */
    ARCH_ROLE_CHANNELS,     /* and channels */
    ARCH_ROLE_DROP_PATH,    /* stochastic depth of the last layer */
    ARCH_ROLE_PROJECTION    /* width of the space that texts and pictures share */
} arch_role;
typedef struct arch_field {
    const char *key;
    arch_field_kind kind;
    size_t offset; /* int, float, bool or by_act in the struct */
    double fallback, min, max;
    arch_role role;
} arch_field;
#define ARCH_INT_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                          \
        key, ARCH_FIELD_INT, offsetof(type, member), fallback, low, high, role \
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
/* The words of the role, of which the first is the default. */
#define ARCH_CHOICE_FIELD(type, member, key, role)                       \
    {                                                                    \
        key, ARCH_FIELD_CHOICE, offsetof(type, member), 0, 0, 1000, role \
    }

/* A key of config.json that is no field. One that names no neutral value is read elsewhere or harmless. */
typedef struct arch_key {
    const char *key;
    const char *neutral; /* the supported values as JSON, separated by '|'; NULL: all */
    bool training;       /* others change training alone, */
    unsigned tasks;      /* or these tasks alone (ARCH_TASK_BIT); 0: all */
} arch_key;
#define ARCH_TASK_BIT(task) (1u << (task))
typedef struct arch_alias {
    const char *key, *field; /* another name of a field's key */
} arch_alias;
typedef struct arch_token_ids {
    int eos, pad, start; /* ids that a configuration without the key has; -1: none */
} arch_token_ids;

typedef struct arch_preset {
    const char *name;
    int layers, heads, width, context;
} arch_preset;

/* Which weights the head over the vocabulary has. */
typedef struct arch_head {
    bool tied; /* by the configuration */
    bool own;  /* its weights are a parameter: it is not tied, or the file has other values for it */
} arch_head;

/* How a family is trained from scratch, where it differs from the others. */
typedef struct arch_training {
    const char *optimizer; /* NULL: "adamw" */
    bool pre_norm;         /* norms before the sub-layers, where the family has both variants */
    double rate;           /* factor of the learning rate that goes by the width; 0: 1 */
    double clip;           /* norm that gradients are clipped to; 0: 1 */
    bool no_decay;         /* Adam without weight decay */
    bool encloses; /* a vocabulary learned for it has <s> and <mask>, and texts stand between <s> and </s> */
    int sentinels; /* tokens <extra_id_0>, <extra_id_1>, ... of a vocabulary learned for it */
} arch_training;

/* Inputs that the host computes from a batch that lacks them. */
typedef struct arch_rows {
    by_task task;
    int batch, seq;
    const int32_t *tokens, *mask; /* (B, T); mask NULL: nothing is masked */
    const int32_t *given;         /* (B, T): the array `from` of the batch; NULL: there is none */
    int64_t count;                /* elements of that */
    /* A cached pass over a picture: its first position, the number of positions (0: all), and the room of its cache. */
    int first, steps, room;
} arch_rows;
typedef struct arch_derived {
    const char *name; /* of the input, which is i32; NULL at the end */
    const char *from; /* array of a batch, (B, T) of i32, that decides about it; NULL: none */
    /* Sets the shape and returns the number of axes; 0: a model of this batch does without. */
    int (*shape)(const void *config, const arch_rows *rows, int64_t *dim);
    void (*fill)(const void *config, const arch_rows *rows, const int64_t *dim, int32_t *out);
} arch_derived;

typedef struct arch_family {
    const char *family;                 /* config.json's model_type */
    const char *title;                  /* for people: "GPT-2 (Radford et al. 2019)" */
    const char *classes[BY_TASK_COUNT]; /* config.json's architectures[0] by task, NULL where there is none */
    struct {
        const char *name; /* NULL: none */
        by_task task;
        size_t offset;     /* of the bool in the configuration that chooses it */
    } other;               /* a second class of a task, beside that in `classes` */
    by_task pretrained;    /* its task from scratch */
    const char *objective; /* the same in the words of data/objective.h; NULL: "lm" */
    arch_training training;
    const char *prefix; /* of the body's parameters when a head is there: "transformer." */
    const char *const
        *outside; /* where the prefix is "": how names that are not the body's begin; NULL at the end */
    const char *answer_prefix; /* the same where the class for answers has another; NULL: none */
    const char *head, *table;  /* weights of the head over the vocabulary, and the table it may be tied to */
    const char *target_table;  /* the same where the two texts have tables of their own; NULL: none */
    size_t head_offset;        /* of the arch_head in the configuration */
    bool always_tied; /* tie_word_embeddings does not decide: the head is tied unless the file has another */
    const char *const *ignored; /* endings of tensors in published files that are no parameters; NULL at the
                                   end, NULL: none */
    /* Parts of names in files whose modules have other names in the reference library, and so in adapters. The first that
     * fits counts. key NULL at the end; NULL: none */
    const arch_alias *modules;
    const arch_alias *renamed; /* as modules, where adapters have the names of files all the same */
    const arch_alias *copies; /* endings of tensors that repeat a parameter: in a file they have its values; key
                               NULL at the end, NULL: none */
    const char *const *sines; /* endings of tables of positions, which must be the sines of 2017; as ignored */
    const char *const *optional; /* parameters that begin with zeros where a file has none; as ignored */
    const arch_field *fields;
    int n_fields;
    const arch_alias *aliases; /* key NULL at the end; NULL: none */
    const arch_key *keys;      /* besides those of every family (keys.c); key NULL at the end; NULL: none */
    arch_token_ids tokens;
    const char *text_part; /* key of a nested configuration that has the ids of tokens; NULL: there is none */
    const char *text_type; /* its model_type, where there are variants, */
    const struct arch_family *const
        *variants; /* which differ in it: the other records of the family; NULL at the end, NULL: none */
    int labels;    /* of a configuration that does not say how many; 0: 2 */
    size_t config_size;
    const arch_preset *presets;
    int n_presets;
    by_status (*check)(
        const void *config); /* what the ranges of the fields cannot say; message by base_fail */
    int (*first_position)(const void *config); /* of a text in its table; NULL: 0 */
    bool extra_rows;    /* the rows before that are not counted by the context of the configuration */
    bool masks_padding; /* without a mask, the texts end after as many tokens as are no padding */
    bool unlimited;     /* the context is where texts are usually cut; longer ones are possible */
    /* What a table of fields cannot say: read and written beside them, or set by the name of a preset. NULL:
     * nothing */
    by_status (*read)(const cJSON *json, void *config);
    bool (*write)(cJSON *json, const void *config);
    void (*adjust)(const char *preset, void *config);
    bool (*is_causal)(const void *config); /* for families that are either: is it to be a language model? */
    bool starts_with_last; /* an encoder-decoder's second text begins with its last token (a language) */
    bool starts_with_eos;  /* an encoder-decoder's second text begins with that token, else with padding */
    bool packs;     /* without a mask, the reference starts a new text at each position that does not follow
                         the one before: not supported */
    bool documents; /* its attention reads the input "pair_mask", which keeps the documents of a row apart */
    bool looks_ahead;    /* a query whose earlier keys are all masked attends to later ones: not supported */
    bool pads_left;      /* padding stands before a text, and the special token of the whole text after it */
    bool no_cache;       /* tokens see earlier ones alone, but nothing of a text can be kept for the next */
    bool rereads;        /* tokens see later ones, also in a language model: nothing can be cached */
    bool recurrent;      /* of a text it has read it keeps a state, and no keys and values */
    int segments;        /* that a text may have, where no key says it; 0: as the keys say */
    bool start_row;      /* the last row of the table stands before the first token and is never predicted */
    bool labels_by_mean; /* the labels of a sequence are read off all its positions, though it is a decoder */
    bool labels_in_place; /* recorded labels of a causal model belong to their own positions, not to the ones
                              before */
    by_pictures (*pictures)(const void *config); /* that it reads; NULL: none */
    const char *adapted; /* layers that adapters are for unless told otherwise: the ends of their names, with
                            commas; NULL: none */
    by_canvas (*canvas)(const void *config); /* the pictures that it makes, token by token; NULL: none */
    int (*place)(const void *config,
                 int t);  /* in their raster, of the position that is generated as number t; NULL: t */
    bool predicts_itself; /* the tokens of a batch are its targets: the shift by one is inside the model */
    const arch_derived *derived; /* NULL: none */
    const by_input_info *inputs; /* ends with a zero; NULL: those of text models */
    void (*build)(by_graph *g, const void *config, by_model_io *io);
    /* The loss of a head over the vocabulary that no table of logits is made for; NULL, or a result of NULL: the
     * cross-entropy of the logits. */
    by_tensor *(*loss)(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets);
    /* The file of a model with a head has names without the prefix of the body, as the authors' own files do. NULL: this
     * changes nothing else */
    void (*bare)(void *config);
} arch_family;

extern const arch_family arch_gpt2, arch_gpt, arch_bert, arch_roberta, arch_xlm_roberta, arch_camembert,
    arch_distilbert, arch_albert, arch_xlm, arch_t5, arch_mt5, arch_umt5, arch_bart, arch_mbart, arch_pegasus,
    arch_marian, arch_transformer, arch_llama, arch_gptj, arch_linformer, arch_longformer, arch_big_bird,
    arch_transfo_xl, arch_reformer, arch_xlnet, arch_sparse_transformer, arch_rnn, arch_lstm, arch_gru,
    arch_rnn_seq2seq, arch_imagegpt, arch_image_transformer, arch_vit, arch_deit, arch_clip,
    arch_vision_encoder_decoder;

/* The layers that IA3 is for unless told otherwise: the ends of their names, with commas; and those whose inputs it scales. */
typedef struct arch_scaled {
    const char *family, *targets, *feedforward;
} arch_scaled;
const arch_scaled *arch_scaled_of(const arch_family *a); /* NULL: there are none */

/* NULL and an error that lists the families when there is none of that name. */
const arch_family *arch_find(const char *family);
/* The record of the family whose text_type this is, NULL: the first. NULL and an error that lists them when there is none. */
const arch_family *arch_variant(const arch_family *a, const char *text_type);
int arch_count(void);
const arch_family *arch_at(int i);

/* The entry of a key that is no field and no alias: the family's, else that of every family; NULL when the
 * key is in no table. */
const arch_key *arch_key_find(const arch_family *a, const char *key);
/* Whether the key is a field, an alias or in a table. */
bool arch_key_known(const arch_family *a, const char *key);

/* Read or set the field of a role; 0 and false when the architecture has none. */
double arch_config_get(const arch_family *a, const void *config, arch_role role);
bool arch_config_set(const arch_family *a, void *config, arch_role role, double value);
bool arch_has(const arch_family *a, arch_role role);
/* The same for a choice by its word: NULL when the architecture has none of that role; an error that lists the
 * words when it is none of them. */
const char *arch_config_choice(const arch_family *a, const void *config, arch_role role);
by_status arch_config_choose(const arch_family *a, void *config, arch_role role, const char *word);
by_status arch_choice_parse(const arch_field *f, const char *word, int *to);
const char *arch_choice_word(arch_role role, int i); /* NULL beyond the last */
void arch_config_defaults(const arch_family *a, void *config);

/* Names of activations as config.json spells them. False for an unknown one. */
bool arch_act_parse(const char *name, by_act *out);
const char *arch_act_name(by_act act);

/* For check functions: every head has as many elements as the others. */
by_status arch_check_heads(int width, int heads);

/* For build functions: keep a hidden state or a layer's attention weights when the caller wants to see them.
 */
void arch_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **arch_weights_slot(by_model_io *io); /* where to put this layer's weights, NULL when nobody asks */
/* The same of an encoder-decoder's encoder, and of its decoder's looks at that. */
void arch_keep_source_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **arch_source_weights_slot(by_model_io *io);
by_tensor **arch_cross_weights_slot(by_model_io *io);

/* ---- heads (heads.c). They return "logits" and, where there is one, "second" -------------------- */

/* The weights of a head over the vocabulary: the table it is tied to, or a parameter of this name. */
by_tensor *arch_head_weights(by_graph *g, arch_head head, const char *name, by_tensor *table, float std);
/* (B, T, C) -> logits over the vocabulary with the given weights (and bias, or NULL), at the input "pick" if it is fed. */
void arch_lm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *weights, by_tensor *bias);
/* The same after a projection, its activation and a norm. Names are relative to the present scope. */
typedef struct arch_mlm_spec {
    const char *dense, *norm, *bias;
    arch_head head;
    const char *decoder;      /* weights of a head that is not tied, */
    const char *decoder_bias; /* and its bias, where it is another than `bias`; NULL: the same */
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
    float drop;               /* dropout where the configuration has a negative one */
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

/* Answers by a beam of starts (beam_head.c). Inputs: p_mask (B, T), 1 for tokens that cannot be part of an answer; cls_index
 * (B), the token of the whole text, by default the last; is_impossible (B), -100 for rows that do not count. "logits" are those
 * of the starts; "second" (B, S, 3 + 2 E) has for each of the S likeliest starts its probability, its place, the score of "no
 * answer", and the probabilities and places of its E likeliest ends. */
typedef struct arch_beam_spec {
    int starts, ends;
    float eps, std;
} arch_beam_spec;
void arch_beam_head(by_graph *g, by_model_io *io, const arch_beam_spec *spec);
by_tensor *arch_beam_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second,
                          const arch_beam_spec *spec);

/* The mean cross-entropy of sigmoids: targets 0, 1, or -100 where they do not count. */
by_tensor *arch_each_or_not(by_graph *g, by_tensor *x, by_tensor *targets);

/* tanh of a projection of the first position: (B, T, C) -> (B, C). */
by_tensor *arch_pooler(by_graph *g, const char *name, by_tensor *h, float std);

/* How the labels of a sequence are read off it (summary_type): (B, T, C) -> (B, C), masked or not. */
typedef enum arch_summary { ARCH_SUMMARY_FIRST, ARCH_SUMMARY_LAST, ARCH_SUMMARY_MEAN } arch_summary;
by_tensor *arch_summarize(by_graph *g, arch_summary how, by_tensor *x);
/* summary_type and summary_activation, with the reference's defaults. */
by_status arch_summary_read(const cJSON *json, const char *type, const char *act, arch_summary *how,
                            by_act *after);

/* The loss of labels of whole sequences by io's problem: targets are classes, numbers or probabilities. */
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
    int div;                     /* every cluster's table is narrower than the one before by this factor */
    int count;                   /* cutoffs; those at or past the end of the vocabulary do not count */
    int cutoffs[ARCH_CUTOFFS];   /* the first tokens of the tail clusters */
    bool ties[ARCH_CUTOFFS + 1]; /* the projection before the softmax is the embedding's */
    bool reversed;               /* the head's columns for the tails stand in falling order */
    float std, projection_std;   /* initial values */
} arch_adaptive;
int arch_adaptive_tails(const arch_adaptive *a);
/* ids (B, T) -> (B, T, C), times sqrt(C). In the scope of the body. */
by_tensor *arch_adaptive_embedding(by_graph *g, by_tensor *ids, const arch_adaptive *a);
/* Returns "logits" from "features": with tails, the logarithms of the probabilities. own: the weights are not the
 * tables of the embedding. */
void arch_adaptive_head(by_graph *g, by_model_io *io, const arch_adaptive *a, bool own);
/* The mean loss. The inputs tail.1, tail.2, ... (2, K), if they are fed, list the rows of the batch whose target is in
 * that tail, and these targets counted from the first of the tail, -100 where the list is longer than there are any. Then
 * only these rows are computed. Otherwise all rows are, for every tail. */
by_tensor *arch_adaptive_loss(by_graph *g, const by_model_io *io, by_tensor *targets, const arch_adaptive *a,
                              bool own);
/* Lists these rows; configurations begin with their arch_adaptive. */
extern const arch_derived arch_adaptive_derived[];
extern const arch_alias arch_adaptive_copies[]; /* tensors of files that repeat the embedding's */

/* ---- what the relatives of GPT-2 share (gpt2.c) ------------------------------------------------- */

typedef struct arch_gpt2_config {
    int vocab, context, width, layers, heads, inner; /* inner 0: four times the width */
    float eps, std, embd_drop, attn_drop, resid_drop;
    float label_drop; /* negative: 0.1 */
    by_act act;
    bool scale_weights, scale_by_layer;
    bool whole_root; /* scores are divided by the whole part of sqrt(D) */
    arch_head head;
} arch_gpt2_config;
/* `type` has an arch_gpt2_config called `member`; the keys stand after `part`, "" or that of a nested configuration. */
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
    /* What the queries of a layer see of the keys up to their own; a query that sees none gives zeros. NULL: all */
    by_pattern (*pattern)(const arch_gpt2_config *c, int layer);
    by_tensor *(*norm)(by_graph *g, const char *name, by_tensor *x, float eps); /* NULL: nn_layernorm */
    const arch_head_row *heads;                                                 /* NULL: GPT-2's */
    /* Each block also attends to an encoder's output (B, S, C): `memory`, or where that is NULL the cache, in which
     * arch_gpt2_keep has put it. */
    bool cross;
    by_tensor *memory;
} arch_gpt2_variant;
/* The model with its heads. v NULL: GPT-2 itself. */
void arch_gpt2_build(by_graph *g, const arch_gpt2_config *c, by_model_io *io, const arch_gpt2_variant *v);
void arch_gpt2_keep(by_graph *g, const arch_gpt2_config *c, by_model_io *io, by_tensor *memory);
by_status arch_gpt2_check(const void *config);

/* ---- what the relatives of BART share (bart.c) ------------------------------------------------ */

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

/* ---- what the relatives of ViT share (vit.c) ----------------------------------------------------- */

typedef struct arch_vit_config {
    int image, patch, channels, width, layers, heads, inner;
    int pooled; /* width of the pooler's output; 0: that of the model */
    float eps, std, drop, attn_drop, drop_path;
    by_act act, pooler_act;
    bool qkv_bias;
    bool distilled; /* a distillation token stands between the class token and the patches */
} arch_vit_config;
#define ARCH_VIT_PART_FIELDS(part, type, member)                                                           \
    ARCH_INT_FIELD(type, member image, part "image_size", 224, 1, 1 << 14, ARCH_ROLE_IMAGE),               \
        ARCH_INT_FIELD(type, member patch, part "patch_size", 16, 1, 1 << 14, ARCH_ROLE_PATCH),            \
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

/* The configuration of a model that writes captions with this encoder and this decoder of this family, whose own configurations are
 * copied. The caller owns it; NULL on failure. */
cJSON *arch_caption_config(const cJSON *encoder, const cJSON *decoder, const char *family);
extern const by_input_info arch_picture_inputs[]; /* "pixel_values" alone */
/* The input "pixel_values" (B, Ch, H, W) -> (B, T, C) after the last norm, in the present scope. source: it is the encoder of
 * another model. */
by_tensor *arch_vit_body(by_graph *g, const arch_vit_config *c, by_model_io *io, bool source);
/* Returns "features" and, of a model without a head, "pooled". */
void arch_vit_features(by_graph *g, const arch_vit_config *c, by_model_io *io);

/* ---- what the relatives of BERT and RoBERTa share (bert.c, roberta.c) ------------------------- */

/* The configuration of a relative begins with this one. */
typedef struct arch_bert_config {
    int vocab, context, segments, width, layers, heads, inner, pad;
    float eps, std, drop, attn_drop, label_drop; /* label_drop negative: as drop */
    by_act act;
    bool causal;
    arch_head head;
} arch_bert_config;
/* `type` has an arch_bert_config called `member`; the keys stand after `part`, "" or that of a nested configuration. */
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
/* The names are BERT's; the rest is as in the spec. */
by_tensor *arch_bert_layers(by_graph *g, by_model_io *io, by_tensor *x, int layers, nn_encoder_spec spec);
by_tensor *arch_bert_table(by_graph *g, int64_t vocab, int64_t width, float std); /* of the tokens */
arch_mlm_spec arch_bert_mlm(const arch_bert_config *c);     /* and about the head over the vocabulary */
nn_encoder_spec arch_bert_layer(const arch_bert_config *c); /* what a configuration says about a layer */

/* What a relative has of its own. */
typedef struct arch_bert_variant {
    const char *body; /* the scope of the body */
    nn_attend attend; /* NULL: ordinary attention */
    const void *user; /* for attend */
    /* Each layer also attends to an encoder's output (B, S, C): `memory`, or where that is NULL the cache, in which
     * arch_bert_keep has put it. */
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
