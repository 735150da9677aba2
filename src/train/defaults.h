/* defaults.h - default values of a run (docs/RECIPES.md). */
#ifndef BY_TRAIN_DEFAULTS_H
#define BY_TRAIN_DEFAULTS_H

#include "banyan/finetune.h"
#include "banyan/train.h"
#include "data/objective.h"

/* Members common to by_run_spec, by_finetune_spec and by_distill_run_spec. */
#define TRAIN_SPEC_SHARED(s)                                                                              \
    .dtype = (s)->dtype, .stochastic_rounding = (s)->stochastic_rounding,                                 \
    .label_smoothing = (s)->label_smoothing, .accumulate = (s)->accumulate, .steps = (s)->steps,          \
    .epochs = (s)->epochs, .schedule = (s)->schedule, .optimizer = (s)->optimizer,                        \
    .recompute = (s)->recompute, .seed = (s)->seed, .eval_every = (s)->eval_every,                        \
    .log_every = (s)->log_every, .save_every = (s)->save_every, .keep = (s)->keep,                        \
    .patience = (s)->patience, .ahead = (s)->ahead, .out = (s)->out, .overwrite = (s)->overwrite,         \
    .command = (s)->command, .options = (s)->options, .report = (s)->report, .cancelled = (s)->cancelled, \
    .user = (s)->user

/* Converts a fine-tuning spec to a training run, without data format and batch size, and the result back. */
by_run_spec train_tuning_run(const by_finetune_spec *s);
by_finetune_result train_tuning_result(const by_run_result *r);

/* Epochs of a run from scratch: enough for a few thousand steps, limited for small texts. epoch_steps: steps
 * per epoch. */
double train_default_epochs(data_objective_kind kind, double epoch_steps);

/* The same for fine-tuning. */
double train_default_tuning_epochs(double epoch_steps);

/* The peak learning rate by the model's width. */
double train_default_rate(data_objective_kind kind, by_optimizer optimizer, int width);

/* Warm-up steps: a part of the run, never all of it. */
int64_t train_default_warmup(data_objective_kind kind, int64_t steps);

/* Dropout for pairs of texts, without which small sets are memorised. */
double train_default_dropout(int64_t pairs);

/* Maximum batches per evaluation: no evaluation takes longer than the steps before it. */
int64_t train_default_eval_batches(int64_t batches, int64_t steps_between, int accumulate);

/* Steps between two evaluations of a task: an epoch, or more if the evaluation would take longer than the
 * steps before it. */
int64_t train_default_eval_steps(int64_t epoch_steps, int64_t eval_rows, int64_t step_rows);

/* The peak rate of a task: 3e-5 at 768 and wider, more for narrower models. */
double train_default_tuning_rate(int width);

/* The factor on that rate for adapters: 1 for none, 10 for LoRA, 100 for IA3, prefixes and prompts. */
double train_default_adapter_factor(const by_model *m);

/* Rows per step of a task, by its number of rows. */
int train_default_tuning_batch(int64_t rows);

/* Weights in blocks are not trained: an error unless the run trains something else, an adapter (also that in `model`, which may be NULL)
 * or some layers. */
by_status train_check_weights(by_dtype weights, bool trains_other, const char *model);

#endif
