/* hf.h - the inside of a model opened from, or to be saved to, a HuggingFace directory. The public face is
 * banyan/model.h. */
#ifndef BY_IO_HF_H
#define BY_IO_HF_H

#include "base/json.h"
#include "io/weights.h"
#include "models/models.h"

struct by_model {
    by_device *device;
    const by_arch *arch;
    void *config;
    by_task task;
    int labels;
    char **label_names; /* labels of them, or NULL: they have none */
    by_problem problem;
    int eos, pad, start;
    by_params *params;
    by_weights *file; /* mapped weights in use, NULL as a rule */
    cJSON *
        json; /* config.json as it was read, so that keys unknown here survive a save; NULL for a new model */
};

/* Tasks whose head has as many outputs as there are labels. */
static inline bool by_has_labels(by_task t)
{
    return t == BY_TASK_CLASSIFY || t == BY_TASK_TAG;
}

void by_strings_free(char **names, int count); /* a list of heap strings; NULL is legal */

/* Look whether a checkpoint has a head of its own, whatever its configuration says; before parameters are
 * declared. */
void by_head_find(by_model *m, const by_weights *file);

/* Find every parameter in a checkpoint, whatever it is called there, and take its values: mapped where that
 * is possible (the model then keeps the file as m->file), else copied. Parameters must have been declared. */
by_status by_model_load(by_model *m, by_weights *file, const by_model_spec *spec);

#endif
