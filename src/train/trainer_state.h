/* trainer_state.h - trainer_state.json of a checkpoint: where the run stood, and checksums of all that lies beside
 * it. Private to checkpoint.c and state.c. */
#ifndef BY_TRAIN_TRAINER_STATE_H
#define BY_TRAIN_TRAINER_STATE_H

#include "train/checkpoint.h"

/* Write dir/trainer_state.json, after all other files of the directory. */
by_status train_state_write(const train_run_state *s, const char *dir);

/* Read it. s may be NULL. Sizes of the files it lists are checked as well: a checkpoint that passes is whole,
 * but may have damaged contents. Older ones list no files; they must hold a model and the optimiser. */
by_status train_state_read(train_run_state *s, const char *dir);

/* Compare every checksum. The error names the file, and the tensor where it is one. */
by_status train_state_verify(const char *dir);

#endif
