/* checkpoint.h - a run folder's checkpoints: HuggingFace directories with the optimiser's state beside the
 * weights, and checksums of everything in trainer_state.json. */
#ifndef BY_TRAIN_CHECKPOINT_H
#define BY_TRAIN_CHECKPOINT_H

#include "banyan/train.h"
#include "io/weights.h"
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

/* Writes or reads what a run keeps in a checkpoint besides its state. */
typedef by_status (*train_state_fn)(void *user, const char *dir);

/* Write out/checkpoint-<step> (what `write` writes, and the state) under a temporary name, sync, rename, and point out/last (and
 * out/best when is_best) to it. A crash at any moment leaves the previous checkpoint whole. Then remove all but the newest `keep`,
 * the best and the last. */
by_status train_checkpoint_save(train_folder *f, const train_run_state *s, bool is_best, int keep,
                                train_state_fn write, void *user);

/* Read the state of a checkpoint directory, then the rest through `read`. */
by_status train_checkpoint_load(const char *dir, train_run_state *s, train_state_fn read, void *user);

/* A model in a checkpoint: its directory with tokenizer (or NULL) and optimiser state. Tensors are streamed: the memory this takes does
 * not grow with the model. The model that is read into was opened from the directory. */
by_status train_model_save(const by_model *m, const by_tokenizer *tokenizer, const char *dir);
by_status train_model_load(by_model *m, const char *dir);

/* For io_safetensors_write: copy a tensor from the device (user) that its data are on, a part at a time. */
by_status train_put_from(void *user, base_writer *w, const by_weight *e);

/* The states of streams in a checkpoint, streams.safetensors. Streams that are read into have been compiled for. */
by_status train_streams_save(by_stream *const *streams, int count, const char *dir);
by_status train_streams_load(by_stream *const *streams, int count, const char *dir);

/* *dir: the checkpoint to go on from (heap string), or NULL when there is none. That is `last`, or the newest
 * whole one where `last` is missing or not whole, with a warning. When there are checkpoints but none is
 * whole, or when contents differ from their checksums, the error says which and what to do. */
by_status train_checkpoint_find(train_folder *f, char **dir);

/* Set the model's parameters to the mean of those in the newest `count` checkpoints (all, when there are
 * fewer); *used: how many there were. */
by_status train_checkpoint_average(const train_folder *f, int count, by_model *m, int *used);

/* Write a model and its tokenizer into the folder itself, in the place of those that the run left there
 * before. */
by_status train_checkpoint_leave(train_folder *f, const by_model *m, const by_tokenizer *tokenizer,
                                 const by_processor *processor);

/* Finish what a save did not come to, now that the state of the checkpoint that a run goes on from is known:
 * the links to the last and the best, and the removal of old ones. */
by_status train_checkpoint_mend(train_folder *f, const train_run_state *s, int keep);

#endif
