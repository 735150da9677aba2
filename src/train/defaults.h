/* defaults.h - the numbers that a run takes where its spec leaves them open (docs/RECIPES.md). */
#ifndef BY_TRAIN_DEFAULTS_H
#define BY_TRAIN_DEFAULTS_H

#include "banyan/finetune.h"
#include "banyan/train.h"
#include "data/objective.h"

/* The members that by_run_spec, by_finetune_spec and by_distill_run_spec share. */
#define TRAIN_SPEC_SHARED(s)                                                                              \
    .dtype = (s)->dtype, .stochastic_rounding = (s)->stochastic_rounding,                                 \
    .label_smoothing = (s)->label_smoothing, .accumulate = (s)->accumulate, .steps = (s)->steps,          \
    .epochs = (s)->epochs, .schedule = (s)->schedule, .optimizer = (s)->optimizer,                        \
    .recompute = (s)->recompute, .seed = (s)->seed, .eval_every = (s)->eval_every,                        \
    .log_every = (s)->log_every, .save_every = (s)->save_every, .keep = (s)->keep,                        \
    .patience = (s)->patience, .ahead = (s)->ahead, .out = (s)->out, .overwrite = (s)->overwrite,         \
    .command = (s)->command, .options = (s)->options, .report = (s)->report, .cancelled = (s)->cancelled, \
    .user = (s)->user

/* A run that trains the model of a fine-tuning on its data: the data's form and the length of batches are left open. And what came of it. */
by_run_spec train_tuning_run(const by_finetune_spec *s);
by_finetune_result train_tuning_result(const by_run_result *r);

/* Passes over the data of a run from scratch: enough for a few thousand steps, from a small text as many as
 * are still worth it. epoch_steps: steps of one pass. */
double train_default_epochs(data_objective_kind kind, double epoch_steps);

/* The same for a model that was trained before and learns a task. */
double train_default_tuning_epochs(double epoch_steps);

/* The highest learning rate by the model's width. */
double train_default_rate(data_objective_kind kind, by_optimizer optimizer, int width);

/* Steps in which the rate rises: a part of the run, never all of it. */
int64_t train_default_warmup(data_objective_kind kind, int64_t steps);

/* Dropout for pairs of texts: small sets are learnt by heart without it. */
double train_default_dropout(int64_t pairs);

/* Batches per evaluation at most: no evaluation takes longer than the steps before it. */
int64_t train_default_eval_batches(int64_t batches, int64_t steps_between, int accumulate);

/* Steps between two evaluations of a task: a pass over the data, and more where the evaluation would take
 * longer than the steps before it. */
int64_t train_default_eval_steps(int64_t epoch_steps, int64_t eval_rows, int64_t step_rows);

/* The peak rate of a task: 3e-5 at 768 and wider, more for narrower models. */
double train_default_tuning_rate(int width);

/* What that is multiplied by where an adapter is trained: 1 for none, 10 for LoRA, 100 for IA3, prefixes and prompts. */
double train_default_adapter_factor(const by_model *m);

/* Rows per step of a task, by its number of rows. */
int train_default_tuning_batch(int64_t rows);

#endif
