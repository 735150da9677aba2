/* rules.h - what a token may be, step by step: small named rules that lower scores or rule tokens out. The
 * constraints serve sampling and beam search alike; the filters after them shape what is drawn from. */
#ifndef BY_INFER_RULES_H
#define BY_INFER_RULES_H

#include "banyan/generate.h"
#include "base/base.h"

typedef struct sample_item {
    float key, weight;
    int32_t id;
} sample_item;

/* Room for the work on one row; one per thread. */
typedef struct by_sampler {
    int vocab;          /* V */
    float *row;         /* (V) */
    sample_item *items; /* (V) */
    uint8_t *mark;      /* (V), all 0 between calls */
} by_sampler;
by_status by_sampler_open(by_sampler *s, int vocab); /* on failure *s is zeroed */
void by_sampler_close(by_sampler *s);                /* zero state is legal */

/* Scores of all tokens, or of a few: logits, or log-probabilities. A token that is ruled out has the score
 * -infinity; so has, as far as rules are concerned, one that is not listed. */
typedef struct by_scores {
    float *value;        /* (count) */
    int32_t *id;         /* (count) whose they are; NULL: value[i] is token i's */
    const int32_t *slot; /* (V) with id: place of a token in the list + 1, 0: not listed */
    int count;
} by_scores;

static inline float *by_score_of(const by_scores *x, int32_t token)
{
    if (!x->id)
        return &x->value[token];
    return x->slot[token] ? &x->value[x->slot[token] - 1] : NULL;
}

/* What a choice depends on besides the scores. */
typedef struct by_sample_at {
    const int32_t *tokens; /* the prompt and what was generated */
    int count, prompt;     /* of both, and of the prompt alone */
    int limit;             /* new tokens at most, 0: not known */
    const int32_t *source; /* of an encoder-decoder; else the prompt */
    int source_count;
    uint64_t sample;      /* which sample of the seed */
    const int32_t *stops; /* what min_new_tokens keeps away */
    int stop_count;
} by_sample_at;

/* A rule: whether a spec asks for it, whether it has anything to do at a step (NULL: at every one), its work,
 * and whether it can make a token likelier (NULL: it cannot). */
typedef struct by_sample_rule {
    const char *name;
    bool (*set)(const by_sampling *spec);
    bool (*wanted)(const by_sampling *spec, const by_sample_at *at);
    void (*apply)(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x);
    bool (*raises)(const by_sampling *spec);
} by_sample_rule;

/* In the order in which they apply. Filters work on all tokens, after a temperature above 0. */
extern const by_sample_rule by_constraints[], by_filters[];
extern const int by_constraint_count, by_filter_count;

/* Does the spec ask for any constraint; for one that can make a token likelier? */
bool by_is_constrained(const by_sampling *spec);
bool by_is_raised(const by_sampling *spec);

/* BY_ERR_NUMERIC: no token is left. Names the constraints that the spec asks for. */
by_status by_fail_no_token(const by_sampling *spec);

/* BY_ERR_ARGUMENT naming the field that makes no sense. */
by_status by_sampling_check(const by_sampling *spec, int vocab);

/* ---- explaining ------------------------------------------------------------------------------ */

/* Some tokens and what becomes of them. */
typedef struct by_tracking {
    by_candidate candidate[BY_EXPLAIN_CANDIDATES];
    float last[BY_EXPLAIN_CANDIDATES]; /* score after the last rule */
    int count;
    bool normal; /* shares are of what is left; otherwise e^score */
} by_tracking;

void by_track_add(by_tracking *t, int32_t token, float score, float probability);
/* A rule has done its work: note what changed. t may be NULL. */
void by_track(by_tracking *t, const char *rule, const by_scores *x);

/* What the candidates share in the end. */
void by_track_end(by_tracking *t, const by_scores *x);

/* Apply all constraints, or all filters. t may be NULL. */
void by_constrain(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x,
                  by_tracking *t);
void by_filter(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x, by_tracking *t);

/* ---- the work of the rules ------------------------------------------------------------------- */

/* Each token that is there, however often: a positive score is divided by the penalty, another multiplied. */
void by_rule_repetition(by_sampler *s, by_scores *x, const int32_t *tokens, int count, double penalty);
/* Each token that is there: minus presence once, minus frequency every time. */
void by_rule_presence(by_sampler *s, by_scores *x, const int32_t *tokens, int count, double presence,
                      double frequency);
/* Rule out what would complete a run of n tokens that is in `there`. */
void by_rule_no_repeat(by_scores *x, const int32_t *there, int there_count, const int32_t *tokens, int count,
                       int n);
/* Add the bias of every run whose other tokens have just come to its last token. */
void by_rule_bias(by_scores *x, const by_bias *biases, int n_biases, const int32_t *tokens, int count);
/* Put finite numbers in the place of others. */
void by_rule_finite(by_scores *x);
void by_rule_ban(by_scores *x, const int32_t *tokens, int count);
/* Rule out the last token of every word whose other tokens have just come. */
void by_rule_words(by_scores *x, const by_words *words, int n_words, const int32_t *tokens, int count);
/* Nothing but this token, with the score 0 or with its own. */
void by_rule_only(by_scores *x, int32_t token, bool own_score);

#endif
