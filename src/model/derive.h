/* derive.h - inputs that the host computes if a batch lacks them (arch_derived). */
#ifndef BY_MODEL_DERIVE_H
#define BY_MODEL_DERIVE_H

#include "banyan/pass.h"
#include "model/model.h"

enum { MODEL_DERIVED = 5 };

/* A derived input as an array of a batch. */
typedef struct model_derived {
    const arch_derived *how;
    int rank;
    int64_t dim[BY_MAX_RANK];
    int32_t *values; /* allocated by model_derive_room, freed by model_derive_free */
} model_derived;

/* Finds the inputs that are computed for this batch, with their shapes. Returns their number. */
int model_derive(const by_model *m, const by_batch *b, model_derived *list);
by_status model_derive_room(model_derived *list, int count);
void model_derive_fill(const by_model *m, const by_batch *b, const model_derived *one);
void model_derive_free(model_derived *list, int count);
bool model_derived_alike(const model_derived *a, const model_derived *b);

/* Returns true if the array only serves to compute others: the model itself does not read it. */
bool model_derives_from(const by_model *m, const char *name);
/* Returns the name of the array in static memory if a batch of the model may have it, otherwise NULL. */
const char *model_array_name(const by_model *m, const char *name);

#endif
