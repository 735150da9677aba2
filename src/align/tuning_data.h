/* tuning_data.h - where the examples of a run of alignment come from: tokenizer, chat template, files. Also for methods that sample
 * answers. */
#ifndef BY_ALIGN_TUNING_DATA_H
#define BY_ALIGN_TUNING_DATA_H

#include "align/tuning.h"

typedef struct align_source {
    by_tokenizer *tokenizer; /* has the chat template, which is saved with it */
    by_chat *chat;           /* NULL: there is none */
} align_source;
/* The tokenizer of the model and the chat template of the spec, else of the model. */
by_status align_source_open(align_source *x, const by_align_spec *s);
void align_source_close(align_source *x); /* the zero state is a no-op */

/* Adds to how the model is opened: a reward model has a head of one label, its own or a new one. */
by_status align_choose_head(by_device *d, const by_align_spec *s, by_model_spec *spec);

/* Reads the data of the spec. eval->list.count is 0 if nothing is held out. */
by_status align_source_read(align_source *x, const by_align_spec *s, by_model *m, align_part *train,
                            align_part *eval);

/* ---- for people to look at (tuning_preview.c) ----------------------------------------------------- */

/* A row as the model gets it. */
typedef struct align_shown {
    int number;       /* from 0 */
    const char *kind; /* "chosen", "rejected", "good", "bad", or NULL */
    const by_tokenizer *tokenizer;
    const int32_t *tokens, *positions; /* positions: in the example that the token is of */
    const uint8_t *learned;            /* 1 for a token that is predicted */
    int count;
} align_shown;
/* Shows the first rows of a run with this spec, two for each pair, and appends a description of the data. Nothing is trained or
 * written. */
by_status align_preview(by_device *d, const by_align_spec *s, int count,
                        by_status (*show)(void *user, const align_shown *row), void *user, base_buf *about);

#endif
