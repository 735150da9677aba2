/* moving_average.h - an exponential moving average of the trained parameters (Polyak and Juditsky 1992). The
 * averaged model is evaluated and saved; training continues with the parameters themselves. */
#ifndef BY_TRAIN_MOVING_AVERAGE_H
#define BY_TRAIN_MOVING_AVERAGE_H

#include "banyan/train.h"

typedef struct train_average train_average;

/* Starts from the current parameters. The list must be frozen for training; it is borrowed. NULL on
 * failure. */
train_average *train_average_new(by_params *p, double decay);
void train_average_free(train_average *a); /* NULL is a no-op */

/* Call after update `step`, counted from 1. The decay ramps up: it is at most (1 + step) / (10 + step). Does
 * not wait. */
by_status train_average_update(train_average *a, int64_t step);

/* Swaps the average into the parameters, and the parameters back. */
by_status train_average_enter(train_average *a);
by_status train_average_leave(train_average *a);

/* Saves and loads both in a checkpoint: averaging.safetensors. */
by_status train_average_save(const train_average *a, const char *dir);
by_status train_average_load(train_average *a, const char *dir);

#endif
