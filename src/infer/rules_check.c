/* rules_check.c - validation of a by_sampling (see rules.h). */
#include <math.h>

#include "infer/rules.h"

static by_status check_share(const char *name, double p)
{
    return p >= 0 && p <= 1 ? BY_OK
                            : base_fail(BY_ERR_ARGUMENT, "%s is %g; it must lie between 0 and 1", name, p);
}

static by_status check_tokens(const char *name, const int32_t *tokens, int count, int vocab)
{
    for (int i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return base_fail(BY_ERR_ARGUMENT, "%s %d is outside the vocabulary of %d", name, (int)tokens[i],
                             vocab);
    return BY_OK;
}

static by_status check_biases(const by_sampling *spec, int vocab)
{
    for (int i = 0; i < spec->bias_count; i++) {
        const by_bias *b = &spec->biases[i];
        if (b->count < 1 || !isfinite(b->bias))
            return base_fail(BY_ERR_ARGUMENT, "bias %d has no tokens or is not finite", i);
        BY_TRY(check_tokens("token of a bias", b->tokens, b->count, vocab));
    }
    return BY_OK;
}

by_status gen_sampling_check(const by_sampling *spec, int vocab)
{
    if (!(spec->temperature >= 0 && isfinite(spec->temperature)))
        return base_fail(BY_ERR_ARGUMENT, "temperature is %g; it must be 0 or more", spec->temperature);
    if (!(spec->repetition_penalty >= 0 && isfinite(spec->repetition_penalty)))
        return base_fail(BY_ERR_ARGUMENT, "repetition_penalty is %g; it must be above 0",
                         spec->repetition_penalty);
    if (!isfinite(spec->presence_penalty) || !isfinite(spec->frequency_penalty))
        return base_fail(BY_ERR_ARGUMENT, "presence_penalty and frequency_penalty must be finite");
    if (spec->top_k < 0 || spec->no_repeat_ngram < 0 || spec->min_new_tokens < 0 || spec->banned_count < 0 ||
        spec->word_count < 0 || spec->prefix_count < 0 || spec->no_source_ngram < 0 || spec->bias_count < 0 ||
        spec->suppressed_count < 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "top_k, no_repeat_ngram, no_source_ngram, min_new_tokens, banned_count, word_count, "
                         "bias_count, suppressed_count and prefix_count cannot be negative");
    if (!(spec->source_penalty >= 0 && isfinite(spec->source_penalty)))
        return base_fail(BY_ERR_ARGUMENT, "source_penalty is %g; it must be above 0", spec->source_penalty);
    BY_TRY(check_share("top_p", spec->top_p));
    BY_TRY(check_share("min_p", spec->min_p));
    BY_TRY(check_share("typical_p", spec->typical_p));
    BY_TRY(check_share("top_h", spec->top_h));
    BY_TRY(check_share("epsilon_cutoff", spec->epsilon_cutoff));
    BY_TRY(check_share("eta_cutoff", spec->eta_cutoff));
    if (!(spec->decay >= 0 && isfinite(spec->decay)) || spec->decay_start < 0 || spec->first_banned_count < 0)
        return base_fail(BY_ERR_ARGUMENT, "decay, decay_start and first_banned_count cannot be negative");
    BY_TRY(check_tokens("banned first token", spec->first_banned, spec->first_banned_count, vocab));
    BY_TRY(check_tokens("suppressed token", spec->suppressed, spec->suppressed_count, vocab));
    BY_TRY(check_tokens("forced first token", spec->forced_bos, spec->forced_bos != NULL, vocab));
    BY_TRY(check_tokens("banned token", spec->banned, spec->banned_count, vocab));
    BY_TRY(check_tokens("prefix token", spec->prefix, spec->prefix_count, vocab));
    BY_TRY(check_tokens("forced first token", spec->forced_first, spec->forced_first != NULL, vocab));
    BY_TRY(check_tokens("forced last token", spec->forced_last, spec->forced_last != NULL, vocab));
    for (int i = 0; i < spec->word_count; i++) {
        if (spec->words[i].count < 1)
            return base_fail(BY_ERR_ARGUMENT, "banned word %d has no tokens", i);
        BY_TRY(check_tokens("token of a banned word", spec->words[i].tokens, spec->words[i].count, vocab));
    }
    return check_biases(spec, vocab);
}
