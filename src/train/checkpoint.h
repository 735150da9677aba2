/* checkpoint.h - checkpoints of a run folder: HuggingFace directories with the optimiser state, and checksums
 * of all files in trainer_state.json. */
#ifndef BY_TRAIN_CHECKPOINT_H
#define BY_TRAIN_CHECKPOINT_H

#include "banyan/train.h"
#include "io/weights.h"
#include "text/tokenizer.h"
#include "train/folder.h"

/* The state of a run that resuming requires. Random numbers and data depend only on the step. */
typedef struct train_run_state {
    int64_t step;
    double best_eval; /* NaN before the first evaluation */
    double best_loss; /* held-out loss of the best, which breaks ties of best_eval; NaN if not recorded */
    int64_t best_step;
    int stale; /* evaluations since the best */
} train_run_state;

/* Writes or reads the contents of a checkpoint besides the run state. */
typedef by_status (*train_state_fn)(void *user, const char *dir);

/* Writes out/checkpoint-<step> (the output of `write`, and the state) under a temporary name, syncs, renames,
 * and points out/last (and out/best if is_best) to it. A crash at any moment leaves the previous checkpoint
 * intact. Then removes all but the newest `keep`, the best and the last. */
by_status train_checkpoint_save(train_folder *f, const train_run_state *s, bool is_best, int keep,
                                train_state_fn write, void *user);

/* Reads the state of a checkpoint directory, then the rest through `read`. */
by_status train_checkpoint_load(const char *dir, train_run_state *s, train_state_fn read, void *user);

/* A model in a checkpoint: its directory with tokenizer (or NULL) and optimiser state. Tensors are streamed,
 * so memory use does not depend on the size of the model. The model to read into was opened from the
 * directory. */
by_status train_model_save(const by_model *m, const by_tokenizer *tokenizer, const char *dir);
by_status train_model_load(by_model *m, const char *dir);

/* For io_safetensors_write: copies a tensor from its device (user) in parts. */
by_status train_put_from(void *user, base_writer *w, const by_weight *e);

/* The states of streams in a checkpoint, streams.safetensors. Streams to read into must already be used by a
 * compiled pass. */
by_status train_streams_save(by_stream *const *streams, int count, const char *dir);
by_status train_streams_load(by_stream *const *streams, int count, const char *dir);

/* *dir: the checkpoint to resume from (heap string), or NULL. This is `last`, or with a warning the newest
 * complete one if `last` is missing or incomplete. If there are checkpoints but none is complete, or if
 * contents differ from their checksums, the error names them and the remedy. */
by_status train_checkpoint_find(train_folder *f, char **dir);

/* Sets the model's parameters to the mean over the newest `count` checkpoints (or all, if fewer); *used:
 * their number. */
by_status train_checkpoint_average(const train_folder *f, int count, by_model *m, int *used);

/* Opens the model of the best checkpoint. Returns NULL on failure. */
by_model *train_checkpoint_best(const train_folder *f, by_device *d, const by_model_spec *spec);

/* Writes a model and its tokenizer into the folder itself, replacing those that the run wrote before. */
by_status train_checkpoint_leave(train_folder *f, const by_model *m, const by_tokenizer *tokenizer,
                                 const by_processor *processor);
/* Writes a model (unless NULL) with its processor, or without one its tokenizer, into out/dir, replacing files
 * that the run wrote there before; model and tokenizer files of the run that are not replaced are removed. */
by_status train_checkpoint_place(train_folder *f, const char *dir, const by_model *m,
                                 const by_tokenizer *tokenizer, const by_processor *processor);

/* Completes an interrupted save once the state of the resumed checkpoint is known: the links last and best,
 * and the removal of old checkpoints. */
by_status train_checkpoint_mend(train_folder *f, const train_run_state *s, int keep);

#endif
