/* defaults.h - the numbers that a run takes where its spec leaves them open (docs/RECIPES.md). */
#ifndef BY_TRAIN_DEFAULTS_H
#define BY_TRAIN_DEFAULTS_H

#include "banyan/train.h"
#include "data/objective.h"

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

/* What that is multiplied by where an adapter is trained: 1 for none, 10 for LoRA, 100 for IA3 and prefixes. */
double train_default_adapter_factor(const by_model *m);

/* Rows per step of a task, by its number of rows. */
int train_default_tuning_batch(int64_t rows);

#endif
