/* rollouts.h - answers that the policy samples with the batched generator, as rows for the losses of
 * align.h. */
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
    uint64_t seed; /* answers depend only on this, their row and the weights */
    bool (*cancelled)(void *user);
    void *user;
} align_sampling;

/* The answers of a step. In arrays (rows, width), the values of an answer token are at the position that
 * predicts it. */
typedef struct align_rollouts {
    int rows, group; /* group: consecutive rows with the same prompt */
    int width;       /* length of the longest row, rounded up */
    int longest;     /* tokens of the longest answer */
    /* (rows) */
    int *prompt;  /* tokens of the prompt */
    int *count;   /* tokens of the answer, including the end token */
    bool *ended;  /* an end token or a stop string ended the answer */
    float *total; /* rewards: weighted sums */
    float *each;  /* (sources, rows) */
    by_judged *judged;
    char **answers;
    /* (rows, width) */
    int32_t *tokens, *targets;
    float *mask;        /* 1 where there is a target */
    int64_t new_tokens; /* including end tokens */
    double seconds;     /* seconds of generation */
    int capacity_rows, sources;
    size_t capacity; /* allocated elements of the arrays (rows, width) */
} align_rollouts;

/* Allocates room for `rows` answers with rewards from `sources`. Freeing the zero state is legal. */
by_status align_rollouts_init(align_rollouts *r, int rows, int group, int sources);
void align_rollouts_free(align_rollouts *r);

/* Samples an answer for each row: row i answers prompts[i / group]. The generator has at least as many
 * rows. */
by_status align_rollouts_sample(align_rollouts *r, by_generator *g, const align_prompt *const *prompts,
                                const align_sampling *how);

#endif
