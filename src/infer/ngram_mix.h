/* ngram_mix.h - mixing an n-gram model into generation (by_ngram_mix in banyan/generate.h). */
#ifndef BY_INFER_NGRAM_MIX_H
#define BY_INFER_NGRAM_MIX_H

#include "banyan/generate.h"
#include "infer/rules.h"

/* Returns BY_ERR_ARGUMENT for an unsuitable model or weight. fused: in a beam search. */
by_status gen_ngram_check(const by_ngram_mix *mix, int vocab, bool fused);

/* Log-probabilities of the mixture after some tokens, (vocab), from the model's logits. */
void gen_ngram_mix(const by_ngram_mix *mix, const int32_t *tokens, int count, const float *logits, int vocab,
                   float *out);
/* Adds weight log p after some tokens to scores; scratch: (vocab). */
void gen_ngram_fuse(const by_ngram_mix *mix, const int32_t *tokens, int count, gen_scores *x, float *scratch);

#endif
