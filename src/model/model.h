/* model.h - internals of a model opened from, or to be saved to, a HuggingFace directory. The public
 * interface is banyan/model.h. */
#ifndef BY_MODEL_MODEL_H
#define BY_MODEL_MODEL_H

#include "banyan/adapter.h"
#include "base/json.h"
#include "io/weights.h"
#include "models/models.h"

struct by_model {
    by_device *device;
    const arch_family *arch;
    void *config;
    by_task task;
    bool promoted; /* the class has no head, but the model has the language-model head of its family */
    int labels;
    char **label_names; /* `labels` names, or NULL: unnamed */
    by_problem problem;
    int eos, pad, start;
    by_params *params;
    by_weights *file; /* mapped weights in use; usually NULL */
    cJSON *json;      /* config.json as read, so that unknown keys survive a save; NULL for a new model */
    char *dir;        /* of the weights; NULL for a new model */
    bool *fresh;      /* per parameter: it may keep its initial value if the file lacks it; NULL: none */
    by_adapter *adapters, *adapter; /* all adapters, and the active one; NULL: none */
    double noise;                   /* by_model_set_noise; 0: none */
};

/* The part of the configuration that describes the language model head. */
static inline arch_head *model_head(const by_model *m)
{
    return (arch_head *)((char *)m->config + m->arch->head_offset);
}

/* Returns true for tasks whose head has one output per label. */
static inline bool model_has_labels(by_task t)
{
    return t == BY_TASK_CLASSIFY || t == BY_TASK_TAG;
}

/* Returns true for tasks whose head a model for another task does not have. */
static inline bool model_has_new_head(by_task t)
{
    return model_has_labels(t) || t == BY_TASK_ANSWER || t == BY_TASK_CHOICE || t == BY_TASK_NEXT;
}

void model_strings_free(char **names, int count); /* frees a list of heap strings; NULL is a no-op */

/* Noise on embeddings while the body is built (noise.c); NULL: none. */
void *model_noise_begin(const by_model *m, by_graph *g, const by_model_io *io);
void model_noise_end(void *begun, by_graph *g);

/* ---- config.json (config_json.c) ------------------------------------------------------------- */

enum { MODEL_MAX_LABELS = 1 << 20 };
/* Sets arch, config, json, task, labels and token ids from DIR/config.json. */
by_status model_config_read(by_model *m, const char *dir, const by_model_spec *spec);
/* The architecture of the model in a directory, from its config.json. task: receives the task of its class, or
 * NULL. NULL on failure. */
const arch_family *model_family_of(const char *dir, by_task *task);
by_status model_config_take(by_model *m, const by_model_spec *spec); /* the same from m->json */
/* Returns the configuration to save with weights of that type, or NULL if allocation fails. */
cJSON *model_config_json(const by_model *m, by_dtype dtype);
bool model_config_put_token(cJSON *json, const char *key, int id); /* a negative id becomes null */

/* Returns the index of the parameter with that name, or that a tensor of that name duplicates or is tied to;
 * -1 if there is none. */
int model_find(const by_model *m, const char *name);

/* A model without an architecture whose parameters will have this type; NULL if out of memory
 * (directory.c). */
by_model *model_blank(by_device *d, by_dtype dtype);

/* Declares every parameter by building the model once over inputs of one element (directory.c). */
by_status model_declare(by_model *m);

/* ---- weights (load.c) ------------------------------------------------------------------------ */

/* Decides whether the language model head has its own weights: the configuration does not tie it, or the
 * checkpoint has different values for it. Call before parameters are declared. */
void model_head_find(by_model *m, const by_weights *file);

/* Finds every parameter in a checkpoint, under any of its known names, and loads its values: mapped if
 * possible (the model then keeps the file as m->file), otherwise copied. Parameters must have been
 * declared. */
by_status model_load(by_model *m, by_weights *file, const by_model_spec *spec);

/* Returns the prefix of the names of the body's parameters, and whether a name belongs to the body. */
const char *model_prefix(const by_model *m);
bool model_in_body(const by_model *m, const char *name);
/* Whether padding has a position of its own, the one before the first of a text. */
bool model_pads_apart(const by_model *m);

/* ---- before the parameters are frozen (rates.c) ------------------------------------------------------- */

/* Set learning-rate factors and storage types from the spec. Call before by_params_freeze. */
by_status model_prepare(by_model *m, const by_model_spec *spec);

#endif
