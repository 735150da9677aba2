/* checkpoint.h - a run folder's checkpoints: HuggingFace directories with the optimiser's state beside the
 * weights. */
#ifndef BY_TRAIN_CHECKPOINT_H
#define BY_TRAIN_CHECKPOINT_H

#include "banyan/train.h"
#include "text/tokenizer.h"

/* What a run must know to go on exactly where it stopped. Random numbers and data need nothing but the step.
 */
typedef struct by_run_state {
    int64_t step;
    double best_eval; /* NaN before the first evaluation */
    int64_t best_step;
    int stale; /* evaluations since the best */
} by_run_state;

/* Write out/checkpoint-<step> (model, tokenizer when not NULL, optimiser, state) under a temporary name,
 * sync, rename, and point out/last (and out/best when is_best) to it. A crash at any moment leaves the
 * previous checkpoint whole. Then remove all but the newest `keep`, the best and the last. */
by_status by_checkpoint_save(const char *out, const by_model *m, const by_tokenizer *tokenizer,
                             const by_run_state *s, bool is_best, int keep);

/* *dir: the directory of the newest whole checkpoint (heap string), or NULL when there is none. */
by_status by_checkpoint_find(const char *out, char **dir);

/* Read state and optimiser moments from a checkpoint directory into a model opened from it. */
by_status by_checkpoint_load(const char *dir, by_model *m, by_run_state *s);

/* Set the model's parameters to the mean of those in the newest `count` checkpoints (all, when there are
 * fewer); *used: how many there were. */
by_status by_checkpoint_average(const char *out, int count, by_model *m, int *used);

/* Remove the temporary files that an interrupted save left behind; with all, every checkpoint too. */
by_status by_checkpoint_clean(const char *out, bool all);

/* Finish what a save did not come to, now that the state of the last checkpoint is known: the link to the
 * best, and the removal of old ones. */
by_status by_checkpoint_mend(const char *out, const by_run_state *s, int keep);

#endif
