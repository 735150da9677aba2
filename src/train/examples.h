/* examples.h - rows of a run as the model would get them, for people to look at. */
#ifndef BY_TRAIN_EXAMPLES_H
#define BY_TRAIN_EXAMPLES_H

#include "train/dataset.h"

typedef struct by_example {
    int64_t number; /* from 0 */
    by_objective_kind kind;
    const by_tokenizer *tokenizer; /* NULL when there is none */
    const by_samples *rows;        /* this row and nothing else; picks count from its beginning */
    int used;                      /* tokens that are no padding; of encoder-decoders, targets */
    int source_used;
} by_example;

/* The first rows of a run with this spec. Nothing is trained, and nothing is written to spec->out. */
by_status by_train_examples(by_device *d, const by_run_spec *spec, int count,
                            by_status (*show)(void *user, const by_example *e), void *user);

#endif
