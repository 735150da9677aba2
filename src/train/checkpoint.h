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

/* The directory of the newest whole checkpoint (heap string), or NULL with no error set when there is none.
 */
char *by_checkpoint_find(const char *out);

/* Read state and optimiser moments from a checkpoint directory into a model opened from it. */
by_status by_checkpoint_load(const char *dir, by_model *m, by_run_state *s);

/* Remove what an interrupted save left behind; with all, every checkpoint too. */
by_status by_checkpoint_clean(const char *out, bool all);

#endif
