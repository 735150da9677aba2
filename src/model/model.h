/* model.h - the inside of a model opened from, or to be saved to, a HuggingFace directory. The public face is
 * banyan/model.h. */
#ifndef BY_MODEL_MODEL_H
#define BY_MODEL_MODEL_H

#include "banyan/model.h"
#include "base/json.h"
#include "io/weights.h"
#include "models/models.h"

struct by_model {
    by_device *device;
    const arch_family *arch;
    void *config;
    by_task task;
    bool promoted; /* the class has no head, and the model has that of the family's language models */
    int labels;
    char **label_names; /* labels of them, or NULL: they have none */
    by_problem problem;
    int eos, pad, start;
    by_params *params;
    by_weights *file; /* mapped weights in use, NULL as a rule */
    cJSON *
        json; /* config.json as it was read, so that keys unknown here survive a save; NULL for a new model */
};

/* The part of the configuration that is about the head over the vocabulary. */
static inline arch_head *model_head(const by_model *m)
{
    return (arch_head *)((char *)m->config + m->arch->head_offset);
}

/* Tasks whose head has as many outputs as there are labels. */
static inline bool model_has_labels(by_task t)
{
    return t == BY_TASK_CLASSIFY || t == BY_TASK_TAG;
}

void model_strings_free(char **names, int count); /* a list of heap strings; NULL is legal */

/* ---- config.json (config.c) ------------------------------------------------------------------ */

enum { MODEL_MAX_LABELS = 1 << 20 };
/* Fill in arch, config, json, task, labels and token ids from DIR/config.json. */
by_status model_config_read(by_model *m, const char *dir, const by_model_spec *spec);
/* The configuration to be saved with weights of that type; NULL when memory is out. */
cJSON *model_config_json(const by_model *m, by_dtype dtype);
bool model_config_put_token(cJSON *json, const char *key, int id); /* a negative id is null */

/* The parameter of that name, or that a tensor of that name repeats or is tied to; -1: none. */
int model_find(const by_model *m, const char *name);

/* ---- weights (load.c) ------------------------------------------------------------------------ */

/* Decide whether the head over the vocabulary has weights of its own: the configuration does not tie it, or
 * the checkpoint has other values for it. Before parameters are declared. */
void model_head_find(by_model *m, const by_weights *file);

/* Find every parameter in a checkpoint, whatever it is called there, and take its values: mapped where that
 * is possible (the model then keeps the file as m->file), else copied. Parameters must have been declared. */
by_status model_load(by_model *m, by_weights *file, const by_model_spec *spec);

/* ---- before the buffers (rates.c) -----------------------------------------------------------------------
 */

/* Decide what is trained and how weights are stored, as the spec says. Before the buffers are made. */
by_status model_prepare(by_model *m, const by_model_spec *spec);

#endif
