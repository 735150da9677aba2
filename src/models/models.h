/* models.h - what an architecture is: a table of configuration fields, presets, and a function that builds.
 * One file each; the registry lists them. */
#ifndef BY_MODELS_MODELS_H
#define BY_MODELS_MODELS_H

#include "banyan/graph.h"
#include "banyan/model.h"
#include "nn/nn.h"

/* A field of a configuration: its key in config.json, where it lies in the struct, what it means to those who
 * know no architecture. */
typedef enum by_field_kind { BY_FIELD_INT, BY_FIELD_FLOAT, BY_FIELD_BOOL, BY_FIELD_ACT } by_field_kind;
typedef enum by_role {
    BY_ROLE_NONE,
    BY_ROLE_VOCAB,
    BY_ROLE_CONTEXT,
    BY_ROLE_WIDTH,
    BY_ROLE_LAYERS,
    BY_ROLE_HEADS,
    BY_ROLE_INNER,
    BY_ROLE_DROPOUT
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
#define BY_ACT_FIELD(type, member, key, fallback)                               \
    {                                                                           \
        key, BY_FIELD_ACT, offsetof(type, member), fallback, 0, 0, BY_ROLE_NONE \
    }

typedef struct by_preset {
    const char *name;
    int layers, heads, width, context;
} by_preset;

typedef struct by_arch {
    const char *family;                 /* config.json's model_type */
    const char *title;                  /* for people: "GPT-2 (Radford et al. 2019)" */
    const char *classes[BY_TASK_COUNT]; /* config.json's architectures[0] by task, NULL where there is none */
    const char *body;                   /* the class without a head */
    const char *prefix;                 /* of the body's parameters when a head is there: "transformer." */
    const char *head, *table; /* a head that is the table of embeddings, and the table; NULL: none */
    const char *const
        *ignored; /* endings of tensors in published files that are no parameters; NULL at the end */
    const by_field *fields;
    int n_fields;
    size_t config_size;
    const by_preset *presets;
    int n_presets;
    by_status (*check)(const void *config); /* what the ranges of the fields cannot say; message by by_fail */
    void (*build)(by_graph *g, const void *config, by_model_io *io);
} by_arch;

extern const by_arch by_arch_gpt2, by_arch_gpt;

/* NULL and an error that lists the families when there is none of that name. */
const by_arch *by_arch_find(const char *family);
int by_arch_count(void);
const by_arch *by_arch_at(int i);

/* Read or set the field of a role; 0 and false when the architecture has none. */
double by_config_get(const by_arch *a, const void *config, by_role role);
bool by_config_set(const by_arch *a, void *config, by_role role, double value);
void by_config_defaults(const by_arch *a, void *config);

/* Names of activations as config.json spells them. False for an unknown one. */
bool by_act_parse(const char *name, by_act *out);
const char *by_act_name(by_act act);

/* For build functions: keep a hidden state or a layer's attention weights when the caller wants to see them.
 */
void by_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h);
by_tensor **by_weights_slot(by_model_io *io); /* where to put this layer's weights, NULL when nobody asks */
/* The pieces of a head: (B, T, C) -> logits over the vocabulary with the given table, at io->pick if set. */
by_tensor *by_lm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *table);
/* (B, T, C) -> (B, labels) from the row io->pick of each. */
by_tensor *by_score_head(by_graph *g, by_model_io *io, by_tensor *h, float std);

#endif
