/* ngram_mix.c - mixing an n-gram model into generation (ngram_mix.h). */
#include <math.h>

#include "infer/ngram_mix.h"

by_status gen_ngram_check(const by_ngram_mix *mix, int vocab, bool fused)
{
    if (!mix->model)
        return BY_OK;
    const int tokens = by_ngram_tokens(mix->model);
    if (!(mix->weight >= 0 && (fused ? mix->weight < 1e6 : mix->weight <= 1)))
        return base_fail(BY_ERR_ARGUMENT, "the weight of the n-gram model is %g: not %s", mix->weight,
                         fused ? "at least 0" : "between 0 and 1");
    if (!tokens)
        return base_fail(
            BY_ERR_ARGUMENT,
            "the n-gram model predicts words; mixing requires a model of the neural model's tokens");
    if (tokens > vocab)
        return base_fail(BY_ERR_ARGUMENT, "the n-gram model has %d tokens and the neural model %d", tokens,
                         vocab);
    return BY_OK;
}

/* Log of the sum of e^logit. */
static double weigh(const float *logits, int count)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < count; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

void gen_ngram_mix(const by_ngram_mix *mix, const int32_t *tokens, int count, const float *logits, int vocab,
                   float *out)
{
    const by_ngram_state state = by_ngram_after(mix->model, tokens, count);
    const double lse = weigh(logits, vocab), weight = mix->weight;
    for (int i = by_ngram_tokens(mix->model); i < vocab; i++)
        out[i] = -INFINITY; /* logits without a token */
    by_ngram_token_distribution(mix->model, &state, out);
    for (int i = 0; i < vocab; i++)
        out[i] = (float)log((1 - weight) * exp((double)logits[i] - lse) + weight * exp((double)out[i]));
}

void gen_ngram_fuse(const by_ngram_mix *mix, const int32_t *tokens, int count, gen_scores *x, float *scratch)
{
    const by_ngram_state state = by_ngram_after(mix->model, tokens, count);
    if (x->id)
        by_ngram_token_scores(mix->model, &state, x->id, x->count, scratch);
    else {
        by_ngram_token_distribution(mix->model, &state, scratch);
        for (int i = by_ngram_tokens(mix->model); i < x->count; i++)
            scratch[i] = -INFINITY;
    }
    for (int i = 0; i < x->count && mix->weight > 0; i++)
        x->value[i] += (float)(mix->weight * (double)scratch[i]);
}
