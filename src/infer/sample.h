/* sample.h - choosing a token from a row of logits: filters, sampling, and both in order. */
#ifndef BY_INFER_SAMPLE_H
#define BY_INFER_SAMPLE_H

#include "infer/rules.h"

/* ---- filters: rows (V), changed in place ----------------------------------------------------- */

/* Divides the distances to the highest logit by it (> 0). */
void gen_sample_temperature(gen_sampler *s, float *row, double temperature);
/* The filters leave at least one token. Equal logits stay or go together in top-k and typical; top-p takes
 * the first of them. */
void gen_sample_top_k(gen_sampler *s, float *row, int k);
void gen_sample_top_p(gen_sampler *s, float *row, double p);
void gen_sample_min_p(gen_sampler *s, float *row, double p);
void gen_sample_typical(gen_sampler *s, float *row, double p);
void gen_sample_top_h(gen_sampler *s, float *row, double share);
void gen_sample_epsilon(gen_sampler *s, float *row, double least);
void gen_sample_eta(gen_sampler *s, float *row, double epsilon);

/* ---- choosing -------------------------------------------------------------------------------- */

int32_t gen_sample_argmax(const gen_sampler *s, const float *row); /* the first of equals */
int32_t gen_sample_draw(gen_sampler *s, const float *row,
                        double u); /* softmax(row), inverted at u in [0, 1) */

/* Applies the spec and chooses a token. logits are unchanged. logprob, which may be NULL, receives the
 * log-probability under the given logits. NaN or +infinity among the logits, or no token left to sample, is
 * BY_ERR_NUMERIC; greedy decoding then returns token 0, as the reference does. `why`, unless NULL, receives
 * an explanation. */
by_status gen_sample(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, const float *logits,
                     int32_t *token, float *logprob, by_explanation *why);

#endif
