/* checkpoint.h - a run folder's checkpoints: HuggingFace directories with the optimiser's state beside the
 * weights, and checksums of everything in trainer_state.json. */
#ifndef BY_TRAIN_CHECKPOINT_H
#define BY_TRAIN_CHECKPOINT_H

#include "banyan/train.h"
#include "text/tokenizer.h"
#include "train/folder.h"

/* What a run must know to go on exactly where it stopped. Random numbers and data need nothing but the step.
 */
typedef struct train_run_state {
    int64_t step;
    double best_eval; /* NaN before the first evaluation */
    double best_loss; /* held-out loss of the best, which decides ties of best_eval; NaN when not recorded */
    int64_t best_step;
    int stale; /* evaluations since the best */
} train_run_state;

/* Write out/checkpoint-<step> (model, tokenizer when not NULL, optimiser, state) under a temporary name,
 * sync, rename, and point out/last (and out/best when is_best) to it. A crash at any moment leaves the
 * previous checkpoint whole. Then remove all but the newest `keep`, the best and the last. Tensors are
 * streamed: the memory it takes does not grow with the model. */
by_status train_checkpoint_save(train_folder *f, const by_model *m, const by_tokenizer *tokenizer,
                                const train_run_state *s, bool is_best, int keep);

/* *dir: the checkpoint to go on from (heap string), or NULL when there is none. That is `last`, or the newest
 * whole one where `last` is missing or not whole, with a warning. When there are checkpoints but none is
 * whole, or when contents differ from their checksums, the error says which and what to do. */
by_status train_checkpoint_find(train_folder *f, char **dir);

/* Read state and optimiser moments from a checkpoint directory into a model opened from it. */
by_status train_checkpoint_load(const char *dir, by_model *m, train_run_state *s);

/* Set the model's parameters to the mean of those in the newest `count` checkpoints (all, when there are
 * fewer); *used: how many there were. */
by_status train_checkpoint_average(const train_folder *f, int count, by_model *m, int *used);

/* Write a model and its tokenizer into the folder itself, in the place of those that the run left there
 * before. */
by_status train_checkpoint_leave(train_folder *f, const by_model *m, const by_tokenizer *tokenizer);

/* Finish what a save did not come to, now that the state of the checkpoint that a run goes on from is known:
 * the links to the last and the best, and the removal of old ones. */
by_status train_checkpoint_mend(train_folder *f, const train_run_state *s, int keep);

#endif
