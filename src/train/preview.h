/* preview.h - rows of a run as the model would get them, for display. */
#ifndef BY_TRAIN_PREVIEW_H
#define BY_TRAIN_PREVIEW_H

#include "train/dataset.h"

typedef struct train_preview_row {
    int64_t number; /* from 0 */
    data_objective_kind kind;
    const by_tokenizer *tokenizer; /* NULL when there is none */
    const data_samples *rows;      /* only this row; picks are relative to it */
    int used;                      /* tokens without padding; for encoder-decoders, target tokens */
    int source_used;
} train_preview_row;

/* Computes the first rows of a run with this spec, without training or writing to spec->out. */
by_status train_preview(by_device *d, const by_run_spec *spec, int count,
                        by_status (*show)(void *user, const train_preview_row *e), void *user);

#endif
