/* trainer_state.h - trainer_state.json of a checkpoint: the run state, and checksums of all other files.
 * Private to checkpoint.c and trainer_state.c. */
#ifndef BY_TRAIN_TRAINER_STATE_H
#define BY_TRAIN_TRAINER_STATE_H

#include "train/checkpoint.h"

/* Writes dir/trainer_state.json, after all other files of the directory. */
by_status train_state_write(const train_run_state *s, const char *dir);

/* Reads it; s may be NULL. Also checks the sizes of the listed files: a checkpoint that passes is complete,
 * but its contents may be damaged. Older checkpoints list no files; they must hold a model and the optimiser
 * state. */
by_status train_state_read(train_run_state *s, const char *dir);

/* Verifies every checksum. The error names the file, and the tensor if it is one. */
by_status train_state_verify(const char *dir);

#endif
