/* sample.h - from a row of logits to a token: small pieces that change a row in place, and the order they are
 * applied in. A token that is ruled out has the logit -infinity. */
#ifndef BY_INFER_SAMPLE_H
#define BY_INFER_SAMPLE_H

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

/* ---- processors: rows (V), changed in place. Tokens must lie in [0, V). ---------------------- */

/* Each token that is there, however often: a positive logit is divided by the penalty, another multiplied. */
void by_sample_repetition(by_sampler *s, float *row, const int32_t *tokens, int count, double penalty);
/* Each token that is there: minus presence once, minus frequency every time. */
void by_sample_presence(by_sampler *s, float *row, const int32_t *tokens, int count, double presence,
                        double frequency);
/* Rule out what would complete a run of n tokens that is already there. */
void by_sample_no_repeat(by_sampler *s, float *row, const int32_t *tokens, int count, int n);
void by_sample_ban(by_sampler *s, float *row, const int32_t *tokens, int count);
/* Distances to the highest logit are divided by it (> 0). */
void by_sample_temperature(by_sampler *s, float *row, double temperature);
/* The filters leave at least one token. Equal logits stay or go together in top-k and typical; top-p takes
 * the first of them. */
void by_sample_top_k(by_sampler *s, float *row, int k);
void by_sample_top_p(by_sampler *s, float *row, double p);
void by_sample_min_p(by_sampler *s, float *row, double p);
void by_sample_typical(by_sampler *s, float *row, double p);

/* ---- choosing -------------------------------------------------------------------------------- */

int32_t by_sample_argmax(const by_sampler *s, const float *row);   /* the first of equals */
int32_t by_sample_draw(by_sampler *s, const float *row, double u); /* softmax(row), inverted at u in [0, 1) */

/* What a choice depends on besides the logits. */
typedef struct by_sample_at {
    const int32_t *tokens; /* the prompt and what was generated */
    int count, prompt;     /* of both, and of the prompt alone */
    uint64_t sample;       /* which sample of the seed */
    const int32_t *stops;  /* what min_new_tokens keeps away */
    int stop_count;
} by_sample_at;

/* BY_ERR_ARGUMENT naming the field that makes no sense. */
by_status by_sampling_check(const by_sampling *spec, int vocab);

/* Apply everything the spec asks for and choose. logits stay as they are. logprob: of the token, under the
 * logits as given. NaN or +infinity among the logits, or nothing left to choose from, is BY_ERR_NUMERIC. */
by_status by_sample(by_sampler *s, const by_sampling *spec, const by_sample_at *at, const float *logits,
                    int32_t *token, float *logprob);

#endif
