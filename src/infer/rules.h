/* rules.h - named rules that lower scores or ban tokens at each step. Constraints apply to sampling and beam
 * search; the filters after them restrict the distribution that is sampled. */
#ifndef BY_INFER_RULES_H
#define BY_INFER_RULES_H

#include "banyan/generate.h"
#include "base/base.h"

typedef struct sample_item {
    float key, weight;
    int32_t id;
} sample_item;

enum { SAMPLE_BLOCK = 256 }; /* tokens per block of summed weights */

/* Work space for one row; one per thread. */
typedef struct gen_sampler {
    int vocab;          /* V */
    float *row;         /* (V) */
    sample_item *items; /* (V) */
    uint8_t *mark;      /* (V), all 0 between calls */
    double *sums;       /* (V / SAMPLE_BLOCK + 1) */
} gen_sampler;
by_status gen_sampler_open(gen_sampler *s, int vocab); /* on failure *s is zeroed */
void gen_sampler_close(gen_sampler *s);                /* zero state is legal */

/* Scores of all tokens or of a subset: logits or log-probabilities. Banned tokens have the score -infinity;
 * rules treat unlisted tokens the same way. */
typedef struct gen_scores {
    float *value; /* (count) */
    int32_t *id;  /* (count) their tokens; NULL: value[i] belongs to token i */
    const int32_t
        *slot; /* (V) with id: index of a token in the list + 1; 0: not listed. Unused if count is 1 */
    int count;
} gen_scores;

static inline float *gen_score_of(const gen_scores *x, int32_t token)
{
    if (!x->id)
        return &x->value[token];
    if (x->count == 1) /* it may have become the only one */
        return x->id[0] == token ? &x->value[0] : NULL;
    return x->slot[token] ? &x->value[x->slot[token] - 1] : NULL;
}

/* The context of a choice besides the scores. */
typedef struct gen_sample_at {
    const int32_t *tokens; /* prompt and generated tokens */
    int count, prompt;     /* total number, and number of prompt tokens */
    int limit;             /* maximum new tokens; 0: unknown */
    const int32_t *source; /* source of an encoder-decoder, otherwise the prompt */
    int source_count;
    uint64_t sample;      /* sample number for the random numbers */
    const int32_t *stops; /* what min_new_tokens keeps away */
    int stop_count;
} gen_sample_at;

/* A rule: whether a spec enables it, whether it applies at a step (NULL: always), its function, and whether
 * it can raise a score (NULL: it cannot). */
typedef struct gen_sample_rule {
    const char *name;
    bool (*set)(const by_sampling *spec);
    bool (*wanted)(const by_sampling *spec, const gen_sample_at *at);
    void (*apply)(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x);
    bool (*raises)(const by_sampling *spec);
} gen_sample_rule;

/* In the order of application. Filters work on all tokens, after a temperature above 0. */
extern const gen_sample_rule gen_constraints[], gen_filters[];
extern const int gen_constraint_count, gen_filter_count;

/* Whether the spec enables any constraint, and any that can raise a score. */
bool gen_is_constrained(const by_sampling *spec);
bool gen_is_filtered(const by_sampling *spec); /* by more than a temperature */
bool gen_is_raised(const by_sampling *spec);

/* Returns BY_ERR_NUMERIC because no token is left, naming the enabled constraints. */
by_status gen_fail_no_token(const by_sampling *spec);

/* Returns BY_ERR_ARGUMENT naming an invalid field. */
by_status gen_sampling_check(const by_sampling *spec, int vocab);

/* ---- explaining ------------------------------------------------------------------------------ */

/* Tracked tokens and the effect of rules on them. */
typedef struct gen_tracking {
    by_candidate candidate[BY_EXPLAIN_CANDIDATES];
    float last[BY_EXPLAIN_CANDIDATES]; /* score after the last rule */
    int count;
    bool normal; /* shares are renormalised; otherwise e^score */
} gen_tracking;

void gen_track_add(gen_tracking *t, int32_t token, float score, float probability);
/* Records the changes of a rule. t may be NULL. */
void gen_track(gen_tracking *t, const char *rule, const gen_scores *x);

/* Computes the final shares of the candidates. */
void gen_track_end(gen_tracking *t, const gen_scores *x);

/* Applies all constraints, or all filters. t may be NULL. */
void gen_constrain(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                   gen_tracking *t);
void gen_filter(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                gen_tracking *t);

/* ---- the work of the rules ------------------------------------------------------------------- */

/* For each token that occurs: a positive score is divided by the penalty, a negative one multiplied. */
void gen_rule_repetition(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double penalty);
/* For each token that occurs: subtracts presence once and frequency per occurrence. */
void gen_rule_presence(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double presence,
                       double frequency);
/* Bans tokens that would complete an n-gram of `there`. */
void gen_rule_no_repeat(gen_scores *x, const int32_t *there, int there_count, const int32_t *tokens,
                        int count, int n);
/* Adds the bias of every sequence to its last token if the text ends with the others. */
void gen_rule_bias(gen_scores *x, const by_bias *biases, int n_biases, const int32_t *tokens, int count);
/* Replaces non-finite values. */
void gen_rule_finite(gen_scores *x);
void gen_rule_ban(gen_scores *x, const int32_t *tokens, int count);
/* Bans the last token of every word if the text ends with the others. */
void gen_rule_words(gen_scores *x, const by_words *words, int n_words, const int32_t *tokens, int count);
/* Bans all other tokens; the token keeps its score or gets 0. */
void gen_rule_only(gen_scores *x, int32_t token, bool own_score);

#endif
