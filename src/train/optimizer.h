/* optimizer.h - the update of all parameters as one compiled program over the flat buffers. */
#ifndef BY_TRAIN_OPTIMIZER_H
#define BY_TRAIN_OPTIMIZER_H

#include "banyan/train.h"

typedef struct by_update by_update;
by_update *by_update_new(by_params *p, const by_optimizer_spec *spec);
void by_update_free(by_update *u);

/* Apply update number step (from 1) at the given rate; *norm receives the gradient norm before clipping. */
by_status by_update_run(by_update *u, double learning_rate, int64_t step, double *norm);

#endif
