/* models.h - what an architecture is: a table of configuration fields, presets, and a function that builds.
 * One file each; the registry lists them. */
#ifndef BY_MODELS_MODELS_H
#define BY_MODELS_MODELS_H

#include <cjson/cJSON.h>

#include "banyan/graph.h"
#include "banyan/model.h"
#include "nn/nn.h"

/* A field of a configuration: its key in config.json, where it lies in the struct, what it means to those who
 * know no architecture. */
typedef enum by_field_kind { BY_FIELD_INT, BY_FIELD_FLOAT, BY_FIELD_BOOL, BY_FIELD_ACT } by_field_kind;
typedef enum by_role {
    BY_ROLE_NONE,
    BY_ROLE_VOCAB,
    BY_ROLE_TARGET_VOCAB, /* of what is written, where that is another */
    BY_ROLE_CONTEXT,
    BY_ROLE_WIDTH,
    BY_ROLE_LAYERS,         /* of encoder-decoders: of the encoder, */
    BY_ROLE_DECODER_LAYERS, /* and of the decoder */
    BY_ROLE_HEADS,
    BY_ROLE_INNER,
    BY_ROLE_DROPOUT,
    BY_ROLE_SEGMENTS,
    BY_ROLE_LANGUAGES,
    BY_ROLE_PAD,
    BY_ROLE_CAUSAL,
    BY_ROLE_PRE_NORM,
    BY_ROLE_SHARED, /* both texts of an encoder-decoder have one vocabulary; without this they always have */
    BY_ROLE_TIED    /* the configuration ties the head to the table of embeddings */
} by_role;
typedef struct by_field {
    const char *key;
    by_field_kind kind;
    size_t offset; /* int, float, bool or by_act in the struct */
    double fallback, min, max;
    by_role role;
} by_field;
#define BY_INT_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                        \
        key, BY_FIELD_INT, offsetof(type, member), fallback, low, high, role \
    }
#define BY_FLOAT_FIELD(type, member, key, fallback, low, high, role)           \
    {                                                                          \
        key, BY_FIELD_FLOAT, offsetof(type, member), fallback, low, high, role \
    }
#define BY_BOOL_FIELD(type, member, key, fallback)                               \
    {                                                                            \
        key, BY_FIELD_BOOL, offsetof(type, member), fallback, 0, 1, BY_ROLE_NONE \
    }
#define BY_TIED_FIELD(type)                                                                       \
    {                                                                                             \
        "tie_word_embeddings", BY_FIELD_BOOL, offsetof(type, head.tied), true, 0, 1, BY_ROLE_TIED \
    }
#define BY_ACT_FIELD(type, member, key, fallback)                               \
    {                                                                           \
        key, BY_FIELD_ACT, offsetof(type, member), fallback, 0, 0, BY_ROLE_NONE \
    }

/* A key of config.json that is no field. One that names no neutral value is read elsewhere or harmless. */
typedef struct by_key {
    const char *key;
    const char *neutral; /* the supported values as JSON, separated by '|'; NULL: all */
    bool training;       /* others change training alone, */
    unsigned tasks;      /* or these tasks alone (BY_TASK_BIT); 0: all */
} by_key;
#define BY_TASK_BIT(task) (1u << (task))
typedef struct by_alias {
    const char *key, *field; /* another name of a field's key */
} by_alias;
typedef struct by_token_ids {
    int eos, pad, start; /* ids that a configuration without the key has; -1: none */
} by_token_ids;

typedef struct by_preset {
    const char *name;
    int layers, heads, width, context;
} by_preset;

/* Which weights the head over the vocabulary has. */
typedef struct by_head {
    bool tied; /* by the configuration */
    bool own;  /* its weights are a parameter: it is not tied, or the file has other values for it */
} by_head;

typedef struct by_arch {
    const char *family;                 /* config.json's model_type */
    const char *title;                  /* for people: "GPT-2 (Radford et al. 2019)" */
    const char *classes[BY_TASK_COUNT]; /* config.json's architectures[0] by task, NULL where there is none */
    by_task pretrained;                 /* its task from scratch */
    const char *objective;              /* the same in the words of data/objective.h; NULL: "lm" */
    const char *prefix;                 /* of the body's parameters when a head is there: "transformer." */
    const char *head, *table; /* weights of the head over the vocabulary, and the table it may be tied to */
    const char *target_table; /* the same where the two texts have tables of their own; NULL: none */
    size_t head_offset;       /* of the by_head in the configuration */
    bool always_tied; /* tie_word_embeddings does not decide: the head is tied unless the file has another */
    const char *const *ignored; /* endings of tensors in published files that are no parameters; NULL at the
                                   end, NULL: none */
    const by_alias *copies; /* endings of tensors that repeat a parameter: in a file they have its values; key
                               NULL at the end, NULL: none */
    const char *const
        *sines; /* endings of tables of positions, which must be the sines of 2017; as ignored */
    const char *const *optional; /* parameters that begin with zeros where a file has none; as ignored */
    const by_field *fields;
    int n_fields;
    const by_alias *aliases; /* key NULL at the end; NULL: none */
    const by_key *keys;      /* besides those of every family (keys.c); key NULL at the end; NULL: none */
    by_token_ids tokens;
    int labels; /* of a configuration that does not say how many; 0: 2 */
    size_t config_size;
    const by_preset *presets;
    int n_presets;
    by_status (*check)(const void *config); /* what the ranges of the fields cannot say; message by by_fail */
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
    bool packs;       /* without a mask, the reference takes positions that do not follow each other for the
                         beginning of       another text: not supported */
    bool looks_ahead; /* a query before which a mask hides all keys looks at the later ones: not supported */
    bool labels_in_place; /* recorded labels of a causal model belong to their own positions, not to the ones
                              before */
    void (*build)(by_graph *g, const void *config, by_model_io *io);
} by_arch;

extern const by_arch by_arch_gpt2, by_arch_gpt, by_arch_bert, by_arch_roberta, by_arch_xlm_roberta,
    by_arch_camembert, by_arch_distilbert, by_arch_albert, by_arch_xlm, by_arch_t5, by_arch_mt5, by_arch_umt5,
    by_arch_bart, by_arch_mbart, by_arch_pegasus, by_arch_marian, by_arch_transformer;

/* NULL and an error that lists the families when there is none of that name. */
const by_arch *by_arch_find(const char *family);
int by_arch_count(void);
const by_arch *by_arch_at(int i);

/* The entry of a key that is no field and no alias: the family's, else that of every family; NULL when the
 * key is in no table. */
const by_key *by_key_find(const by_arch *a, const char *key);
/* Whether the key is a field, an alias or in a table. */
bool by_key_known(const by_arch *a, const char *key);

/* Read or set the field of a role; 0 and false when the architecture has none. */
double by_config_get(const by_arch *a, const void *config, by_role role);
bool by_config_set(const by_arch *a, void *config, by_role role, double value);
bool by_arch_has(const by_arch *a, by_role role);
void by_config_defaults(const by_arch *a, void *config);

/* Names of activations as config.json spells them. False for an unknown one. */
bool by_act_parse(const char *name, by_act *out);
const char *by_act_name(by_act act);

/* For check functions: every head has as many elements as the others. */
by_status by_check_heads(int width, int heads);

/* For build functions: keep a hidden state or a layer's attention weights when the caller wants to see them.
 */
void by_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **by_weights_slot(by_model_io *io); /* where to put this layer's weights, NULL when nobody asks */
/* The same of an encoder-decoder's encoder, and of its decoder's looks at that. */
void by_keep_source_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **by_source_weights_slot(by_model_io *io);
by_tensor **by_cross_weights_slot(by_model_io *io);

/* ---- heads (heads.c). They set io->logits and, where there is one, io->second -------------------- */

/* The weights of a head over the vocabulary: the table it is tied to, or a parameter of this name. */
by_tensor *by_head_weights(by_graph *g, by_head head, const char *name, by_tensor *table, float std);
/* (B, T, C) -> logits over the vocabulary with the given weights (and bias, or NULL), at io->pick if set. */
void by_lm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *weights, by_tensor *bias);
/* The same after a projection, its activation and a norm. Names are relative to the present scope. */
typedef struct by_mlm_spec {
    const char *dense, *norm, *bias;
    by_head head;
    const char *decoder;      /* weights of a head that is not tied, */
    const char *decoder_bias; /* and its bias, where it is another than `bias`; NULL: the same */
    by_act act;
    float eps, std;
} by_mlm_spec;
void by_mlm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *table, const by_mlm_spec *spec);
/* The row io->pick of each -> labels, without a bias. */
void by_score_head(by_graph *g, by_model_io *io, by_tensor *h, float std);
/* x (B, C), one row for each sequence -> labels, or one number for each choice. */
void by_label_head(by_graph *g, by_model_io *io, const char *name, by_tensor *x, float std);
void by_tag_head(by_graph *g, by_model_io *io, const char *name, by_tensor *h, float std);
void by_answer_head(by_graph *g, by_model_io *io, const char *name, by_tensor *h, float std);

/* tanh of a projection of the first position: (B, T, C) -> (B, C). */
by_tensor *by_pooler(by_graph *g, const char *name, by_tensor *h, float std);

/* The loss of io's task (banyan/model.h, by_model_loss). */
by_tensor *by_task_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second);

/* ---- what the relatives of BART share (bart.c) ------------------------------------------------ */

typedef struct by_bart_config {
    int vocab, target_vocab, context, width, encoder_layers, decoder_layers, encoder_heads, decoder_heads;
    int encoder_inner, decoder_inner, pad;
    float std, drop, attn_drop, act_drop, label_drop;
    by_act act;
    by_head head;
    bool scale_embedding;
    bool learned, embedding_norm; /* positions are learned; a norm follows the embedding */
    bool shared;                  /* one vocabulary and table for both texts */
    bool pre_norm;                /* norms before the sub-layers, and one at the end */
} by_bart_config;
#define BY_BART_FIELDS(vocab_size, activation, padding, scaled, size, layers, heads, inner)               \
    BY_INT_FIELD(by_bart_config, vocab, "vocab_size", vocab_size, 1, 1 << 24, BY_ROLE_VOCAB),             \
        BY_INT_FIELD(by_bart_config, width, "d_model", size, 1, 1 << 20, BY_ROLE_WIDTH),                  \
        BY_INT_FIELD(by_bart_config, encoder_layers, "encoder_layers", layers, 1, BY_MAX_LAYERS,          \
                     BY_ROLE_LAYERS),                                                                     \
        BY_INT_FIELD(by_bart_config, decoder_layers, "decoder_layers", layers, 1, BY_MAX_LAYERS,          \
                     BY_ROLE_DECODER_LAYERS),                                                             \
        BY_INT_FIELD(by_bart_config, encoder_heads, "encoder_attention_heads", heads, 1, 4096,            \
                     BY_ROLE_HEADS),                                                                      \
        BY_INT_FIELD(by_bart_config, decoder_heads, "decoder_attention_heads", heads, 1, 4096,            \
                     BY_ROLE_HEADS),                                                                      \
        BY_INT_FIELD(by_bart_config, encoder_inner, "encoder_ffn_dim", inner, 1, 1 << 22, BY_ROLE_INNER), \
        BY_INT_FIELD(by_bart_config, decoder_inner, "decoder_ffn_dim", inner, 1, 1 << 22, BY_ROLE_INNER), \
        BY_FLOAT_FIELD(by_bart_config, drop, "dropout", 0.1, 0, 0.999, BY_ROLE_DROPOUT),                  \
        BY_FLOAT_FIELD(by_bart_config, attn_drop, "attention_dropout", 0, 0, 0.999, BY_ROLE_NONE),        \
        BY_FLOAT_FIELD(by_bart_config, act_drop, "activation_dropout", 0, 0, 0.999, BY_ROLE_NONE),        \
        BY_ACT_FIELD(by_bart_config, act, "activation_function", activation),                             \
        BY_BOOL_FIELD(by_bart_config, scale_embedding, "scale_embedding", scaled),                        \
        BY_INT_FIELD(by_bart_config, pad, "pad_token_id", padding, 0, 1 << 24, BY_ROLE_PAD),              \
        BY_TIED_FIELD(by_bart_config)
extern const by_alias by_bart_aliases[], by_bart_copies[];
extern const by_key by_bart_keys[];
extern const char *const by_bart_optional[];
#define BY_BART_COMMON                                                                                   \
    .pretrained = BY_TASK_SEQ2SEQ, .prefix = "model.", .head = "lm_head.weight",                         \
    .table = "model.shared.weight", .target_table = "model.decoder.embed_tokens.weight",                 \
    .head_offset = offsetof(by_bart_config, head), .aliases = by_bart_aliases, .copies = by_bart_copies, \
    .keys = by_bart_keys, .optional = by_bart_optional, .config_size = sizeof(by_bart_config),           \
    .labels_in_place = true, .build = by_bart_build
void by_bart_build(by_graph *g, const void *config, by_model_io *io);
by_status by_bart_check(const void *config);

/* ---- what the relatives of BERT share (bert.c) ------------------------------------------------ */

typedef struct by_bert_sizes {
    int64_t vocab, context, segments, width;
    int pad, position_pad; /* rows of the tables that padding looks up; -1: none */
} by_bert_sizes;
by_tensor *by_bert_embeddings(by_graph *g, by_model_io *io, const by_bert_sizes *sizes, float eps, float std,
                              float drop);
/* The names are BERT's; the rest is as in the spec. */
by_tensor *by_bert_layers(by_graph *g, by_model_io *io, by_tensor *x, int layers, nn_encoder_spec spec);
by_tensor *by_bert_table(by_graph *g, int64_t vocab, int64_t width, float std); /* of the tokens */

#endif
