/* moving_average.h - an exponential moving average of the trained parameters (Polyak and Juditsky 1992). The averaged model is the one
 * that is evaluated and saved; training goes on with the parameters themselves. */
#ifndef BY_TRAIN_MOVING_AVERAGE_H
#define BY_TRAIN_MOVING_AVERAGE_H

#include "banyan/train.h"

typedef struct train_average train_average;

/* Begins with the parameters as they are. The list must have been frozen for training; it is borrowed. NULL on failure. */
train_average *train_average_new(by_params *p, double decay);
void train_average_free(train_average *a); /* NULL is a no-op */

/* After update `step`, counted from 1. The decay grows to its full value: it is (1 + step) / (10 + step) at most. Does not wait. */
by_status train_average_update(train_average *a, int64_t step);

/* Put the average in the place of the parameters, and the parameters back. */
by_status train_average_enter(train_average *a);
by_status train_average_leave(train_average *a);

/* Both in a checkpoint: averaging.safetensors. */
by_status train_average_save(const train_average *a, const char *dir);
by_status train_average_load(train_average *a, const char *dir);

#endif
