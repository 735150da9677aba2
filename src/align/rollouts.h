/* rollouts.h - answers that the policy samples by the batched generator over its own weights, in rows for the losses of align.h. */
#ifndef BY_ALIGN_ROLLOUTS_H
#define BY_ALIGN_ROLLOUTS_H

#include "align/policy_prompts.h"
#include "align/rewards.h"
#include "banyan/generate.h"

/* How answers are sampled. */
typedef struct align_sampling {
    by_model *model;
    const by_tokenizer *tokenizer;
    const by_policy_run *run;
    int max_new_tokens;
    bool greedy;
    uint64_t seed; /* answers depend on this, their row, and the weights alone */
    bool (*cancelled)(void *user);
    void *user;
} align_sampling;

/* The answers of a step. In arrays (rows, width), what belongs to a token of an answer stands at the position that predicts it. */
typedef struct align_rollouts {
    int rows, group; /* group: rows to each prompt in turn */
    int width;       /* of the longest row, rounded up */
    int longest;     /* tokens of the longest answer */
    /* (rows) */
    int *prompt;  /* tokens of the prompt */
    int *count;   /* tokens of the answer, with the end token */
    bool *ended;  /* by an end token or a stop string */
    float *total; /* rewards: weighted sums */
    float *each;  /* (sources, rows) */
    by_judged *judged;
    char **answers;
    /* (rows, width) */
    int32_t *tokens, *targets;
    float *mask;        /* 1 where there is a target */
    int64_t new_tokens; /* with end tokens */
    double seconds;     /* of generation */
    int capacity_rows, sources;
    size_t capacity; /* elements of the arrays (rows, width) */
} align_rollouts;

/* Room for `rows` answers judged by `sources`. The zero state is legal to free. */
by_status align_rollouts_init(align_rollouts *r, int rows, int group, int sources);
void align_rollouts_free(align_rollouts *r);

/* Samples an answer for each row: row i answers prompts[i / group]. The generator has as many rows, or more. */
by_status align_rollouts_sample(align_rollouts *r, by_generator *g, const align_prompt *const *prompts,
                                const align_sampling *how);

#endif
