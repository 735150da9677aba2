/* hf.h - the inside of a model opened from, or to be saved to, a HuggingFace directory. The public face is
 * banyan/model.h. */
#ifndef BY_IO_HF_H
#define BY_IO_HF_H

#include <cjson/cJSON.h>

#include "io/safetensors.h"
#include "models/models.h"

struct by_model {
    by_device *device;
    const by_arch *arch;
    void *config;
    by_task task;
    int labels;
    char **label_names; /* labels of them, or NULL: they have none */
    by_problem problem;
    int eos, pad;
    by_params *params;
    by_st *file; /* mapped weights in use, NULL as a rule */
    cJSON *
        json; /* config.json as it was read, so that keys unknown here survive a save; NULL for a new model */
};

#endif
