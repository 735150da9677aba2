/* predict_words.c - sentences and distributions of an n-gram model (banyan/ngram.h). */
#include <math.h>

#include "ngram/ngram.h"

/* ---- distributions ---------------------------------------------------------------------------------- */

void by_ngram_distribution(const by_ngram *m, const by_ngram_state *state, double *out)
{
    if (!m || !state || !out)
        return;
    for (int32_t w = 0; w < by_ngram_words(m); w++)
        out[w] = w == NGRAM_BOS ? -INFINITY : by_ngram_score(m, state, w, NULL, NULL);
}

/* The probability of all words that are tokens. */
static double share_of_tokens(const by_ngram *m, const by_ngram_state *state)
{
    double rest = pow(10, by_ngram_score(m, state, NGRAM_UNK, NULL, NULL));
    if (ngram_model_header(m)->eos < 0)
        rest += pow(10, by_ngram_score(m, state, NGRAM_EOS, NULL, NULL));
    else /* the word of the end-of-text token itself never occurs; </s> stands for it */
        rest += pow(10, by_ngram_score(m, state, ngram_model_header(m)->eos + NGRAM_SPECIAL, NULL, NULL));
    return fmax(1 - rest, 1e-30);
}

double by_ngram_token_score(const by_ngram *m, const by_ngram_state *state, int32_t token,
                            by_ngram_state *next)
{
    if (!m || !state)
        return (double)NAN;
    const double all = share_of_tokens(m, state);
    const int32_t word = by_ngram_token_word(m, token);
    const double p = by_ngram_score(m, state, word, next, NULL) * M_LN10 - log(all);
    if (next && word == NGRAM_EOS)
        *next = by_ngram_begin(m);
    return fmin(p, 0);
}

void by_ngram_token_distribution(const by_ngram *m, const by_ngram_state *state, float *out)
{
    if (!m || !state || !out)
        return;
    const double all = log(share_of_tokens(m, state));
    for (int32_t i = 0; i < by_ngram_tokens(m); i++) {
        const double p = by_ngram_score(m, state, by_ngram_token_word(m, i), NULL, NULL) * M_LN10 - all;
        out[i] = (float)fmin(p, 0);
    }
}

/* ---- sentences --------------------------------------------------------------------------------------- */

static void add_word(const by_ngram *m, by_ngram_state *state, int32_t word, by_ngram_sum *sum)
{
    const double p = by_ngram_score(m, state, word, state, NULL);
    sum->log10 += p;
    sum->words++;
    if (word == NGRAM_UNK)
        sum->unknown++;
    else
        sum->log10_known += p;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f' || c == '\0';
}

by_status by_ngram_sentence(const by_ngram *m, const char *text, size_t bytes, by_ngram_sum *sum)
{
    if (!m || (!text && bytes) || !sum)
        return base_fail_missing(m ? "text or place for the sum" : "model");
    by_ngram_state state = by_ngram_begin(m);
    for (size_t at = 0; at < bytes;) {
        while (at < bytes && is_space(text[at]))
            at++;
        const size_t begin = at;
        while (at < bytes && !is_space(text[at]))
            at++;
        if (at > begin)
            add_word(m, &state, by_ngram_find(m, text + begin, at - begin), sum);
    }
    add_word(m, &state, NGRAM_EOS, sum);
    sum->sentences++;
    return BY_OK;
}

double by_ngram_perplexity(const by_ngram_sum *s, bool without_unknown)
{
    if (!s)
        return NAN;
    const double words = (double)(without_unknown ? s->words - s->unknown : s->words);
    return words > 0 ? pow(10, -(without_unknown ? s->log10_known : s->log10) / words) : NAN;
}
