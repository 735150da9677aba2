/* methods.h - the two kinds of alignment runs and their shared helpers. */
#ifndef BY_ALIGN_METHODS_H
#define BY_ALIGN_METHODS_H

#include "banyan/align_run.h"
#include "train/loop.h"

/* Methods that learn from given answers (tuning_run.c), and methods that sample and reward answers
 * (policy_run.c). */
by_status align_supervised_run(by_device *d, const by_align_spec *spec, by_align_result *result);
by_status align_policy_run(by_device *d, const by_align_spec *spec, by_align_result *result);

/* The spec with which a run opens the model that it trains. */
by_model_spec align_model_spec(const by_align_spec *s);

/* Fills in the defaults of by_align_defaults for policy methods. */
void align_policy_defaults(by_align_spec *s);

/* Fails if a run folder was started with another method, whose checkpoints differ. */
by_status align_check_method(const train_loop *l, by_align_method method);

static inline bool align_is_policy(by_align_method method)
{
    return method >= BY_ALIGN_PPO;
}

#endif
