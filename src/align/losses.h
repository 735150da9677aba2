/* losses.h - losses of preferences and policies by log-probabilities, whatever these are of. */
#ifndef BY_ALIGN_LOSSES_H
#define BY_ALIGN_LOSSES_H

#include "banyan/align.h"

/* Log-probabilities under the policy minus those under the reference, (B): of chosen (w) and rejected (l) answers, w - l, and the same
 * with means over tokens. */
typedef struct train_ratios {
    by_tensor *w, *l, *d, *mean_d;
} train_ratios;
/* (B). Only IPO and SIGMOID_NORM read mean_d. SFT is no function of these. */
by_tensor *train_dpo_losses(by_graph *g, const by_dpo_spec *s, const train_ratios *r);

/* -min(ratio A, clip(ratio) A), of the shape of ratio. */
by_tensor *train_clipped_losses(by_graph *g, const by_policy_spec *s, by_tensor *ratio,
                                by_tensor *advantages);

#endif
