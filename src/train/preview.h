/* preview.h - rows of a run as the model would get them, for people to look at. */
#ifndef BY_TRAIN_PREVIEW_H
#define BY_TRAIN_PREVIEW_H

#include "train/dataset.h"

typedef struct train_preview_row {
    int64_t number; /* from 0 */
    data_objective_kind kind;
    const by_tokenizer *tokenizer; /* NULL when there is none */
    const data_samples *rows;      /* this row and nothing else; picks count from its beginning */
    int used;                      /* tokens that are no padding; of encoder-decoders, targets */
    int source_used;
} train_preview_row;

/* The first rows of a run with this spec. Nothing is trained, and nothing is written to spec->out. */
by_status train_preview(by_device *d, const by_run_spec *spec, int count,
                        by_status (*show)(void *user, const train_preview_row *e), void *user);

#endif
