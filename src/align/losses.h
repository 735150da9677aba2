/* losses.h - preference and policy losses as functions of log-probabilities. */
#ifndef BY_ALIGN_LOSSES_H
#define BY_ALIGN_LOSSES_H

#include "banyan/align.h"

/* Log-probabilities under the policy minus those under the reference, (B), for chosen (w) and rejected (l)
 * answers. */
typedef struct train_ratios {
    by_tensor *w, *l;
    by_tensor *d;      /* w - l; with a divergence other than the reverse KL, the difference of f(r) */
    by_tensor *mean_d; /* the same, each divided by the length of its answer; read by IPO and SIGMOID_NORM */
    by_tensor *policy_d,
        *ref_d; /* chosen minus rejected, under the policy and under the reference; read by AOT */
} train_ratios;
/* The losses (B). SFT is not a function of the ratios. */
by_tensor *train_dpo_losses(by_graph *g, const by_dpo_spec *s, const train_ratios *r);

/* The upper clipping bound; for BY_TERM_WEIGHTED the largest ratio. */
double train_epsilon_high(const by_policy_spec *s);
/* -min(ratio A, clip(ratio) A), in the shape of ratio. */
by_tensor *train_clipped_losses(by_graph *g, const by_policy_spec *s, by_tensor *ratio,
                                by_tensor *advantages);

#endif
