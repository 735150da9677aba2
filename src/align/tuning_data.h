/* tuning_data.h - the examples of runs that learn from given answers. */
#ifndef BY_ALIGN_TUNING_DATA_H
#define BY_ALIGN_TUNING_DATA_H

#include "align/source.h"
#include "align/tuning.h"

/* Adds the head to the spec of the model: a reward model has a head of one label, its own or a new one. */
by_status align_choose_head(by_device *d, const by_align_spec *s, by_model_spec *spec);

/* Reads the data of the spec. eval->list.count is 0 if nothing is held out. */
by_status align_source_read(align_source *x, const by_align_spec *s, by_model *m, align_part *train,
                            align_part *eval);

/* ---- preview (tuning_preview.c) ------------------------------------------------------------------- */

/* A row as the model gets it. */
typedef struct align_shown {
    int number;       /* from 0 */
    const char *kind; /* "chosen", "rejected", "good", "bad", or NULL */
    const by_tokenizer *tokenizer;
    const int32_t *tokens, *positions; /* positions: of each token in the example */
    const uint8_t *learned;            /* 1 for a token that is predicted */
    int count;
} align_shown;
/* Shows the first rows of a run with this spec, two for each pair, and appends a description of the data.
 * Nothing is trained or written. */
by_status align_preview(by_device *d, const by_align_spec *s, int count,
                        by_status (*show)(void *user, const align_shown *row), void *user, base_buf *about);

#endif
