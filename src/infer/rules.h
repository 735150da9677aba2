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

enum { SAMPLE_BLOCK = 256 }; /* tokens whose weights are summed together */

/* Room for the work on one row; one per thread. */
typedef struct gen_sampler {
    int vocab;          /* V */
    float *row;         /* (V) */
    sample_item *items; /* (V) */
    uint8_t *mark;      /* (V), all 0 between calls */
    double *sums;       /* (V / SAMPLE_BLOCK + 1) */
} gen_sampler;
by_status gen_sampler_open(gen_sampler *s, int vocab); /* on failure *s is zeroed */
void gen_sampler_close(gen_sampler *s);                /* zero state is legal */

/* Scores of all tokens, or of a few: logits, or log-probabilities. A token that is ruled out has the score
 * -infinity; so has, as far as rules are concerned, one that is not listed. */
typedef struct gen_scores {
    float *value;        /* (count) */
    int32_t *id;         /* (count) whose they are; NULL: value[i] is token i's */
    const int32_t *slot; /* (V) with id: place of a token in the list + 1, 0: not listed */
    int count;
} gen_scores;

static inline float *gen_score_of(const gen_scores *x, int32_t token)
{
    if (!x->id)
        return &x->value[token];
    return x->slot[token] ? &x->value[x->slot[token] - 1] : NULL;
}

/* What a choice depends on besides the scores. */
typedef struct gen_sample_at {
    const int32_t *tokens; /* the prompt and what was generated */
    int count, prompt;     /* of both, and of the prompt alone */
    int limit;             /* new tokens at most, 0: not known */
    const int32_t *source; /* of an encoder-decoder; else the prompt */
    int source_count;
    uint64_t sample;      /* which sample of the seed */
    const int32_t *stops; /* what min_new_tokens keeps away */
    int stop_count;
} gen_sample_at;

/* A rule: whether a spec asks for it, whether it has anything to do at a step (NULL: at every one), its work,
 * and whether it can make a token likelier (NULL: it cannot). */
typedef struct gen_sample_rule {
    const char *name;
    bool (*set)(const by_sampling *spec);
    bool (*wanted)(const by_sampling *spec, const gen_sample_at *at);
    void (*apply)(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x);
    bool (*raises)(const by_sampling *spec);
} gen_sample_rule;

/* In the order in which they apply. Filters work on all tokens, after a temperature above 0. */
extern const gen_sample_rule gen_constraints[], gen_filters[];
extern const int gen_constraint_count, gen_filter_count;

/* Does the spec ask for any constraint; for one that can make a token likelier? */
bool gen_is_constrained(const by_sampling *spec);
bool gen_is_filtered(const by_sampling *spec); /* by more than a temperature */
bool gen_is_raised(const by_sampling *spec);

/* BY_ERR_NUMERIC: no token is left. Names the constraints that the spec asks for. */
by_status gen_fail_no_token(const by_sampling *spec);

/* BY_ERR_ARGUMENT naming the field that makes no sense. */
by_status gen_sampling_check(const by_sampling *spec, int vocab);

/* ---- explaining ------------------------------------------------------------------------------ */

/* Some tokens and what becomes of them. */
typedef struct gen_tracking {
    by_candidate candidate[BY_EXPLAIN_CANDIDATES];
    float last[BY_EXPLAIN_CANDIDATES]; /* score after the last rule */
    int count;
    bool normal; /* shares are of what is left; otherwise e^score */
} gen_tracking;

void gen_track_add(gen_tracking *t, int32_t token, float score, float probability);
/* A rule has done its work: note what changed. t may be NULL. */
void gen_track(gen_tracking *t, const char *rule, const gen_scores *x);

/* What the candidates share in the end. */
void gen_track_end(gen_tracking *t, const gen_scores *x);

/* Apply all constraints, or all filters. t may be NULL. */
void gen_constrain(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                   gen_tracking *t);
void gen_filter(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                gen_tracking *t);

/* ---- the work of the rules ------------------------------------------------------------------- */

/* Each token that is there, however often: a positive score is divided by the penalty, another multiplied. */
void gen_rule_repetition(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double penalty);
/* Each token that is there: minus presence once, minus frequency every time. */
void gen_rule_presence(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double presence,
                       double frequency);
/* Rule out what would complete a run of n tokens that is in `there`. */
void gen_rule_no_repeat(gen_scores *x, const int32_t *there, int there_count, const int32_t *tokens,
                        int count, int n);
/* Add the bias of every run whose other tokens have just come to its last token. */
void gen_rule_bias(gen_scores *x, const by_bias *biases, int n_biases, const int32_t *tokens, int count);
/* Put finite numbers in the place of others. */
void gen_rule_finite(gen_scores *x);
void gen_rule_ban(gen_scores *x, const int32_t *tokens, int count);
/* Rule out the last token of every word whose other tokens have just come. */
void gen_rule_words(gen_scores *x, const by_words *words, int n_words, const int32_t *tokens, int count);
/* Nothing but this token, with the score 0 or with its own. */
void gen_rule_only(gen_scores *x, int32_t token, bool own_score);

#endif
