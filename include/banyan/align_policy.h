/* align_policy.h - reinforcement learning for text: how answers are sampled, rewarded and learned from. Part of align_run.h. */
#ifndef BANYAN_ALIGN_POLICY_H
#define BANYAN_ALIGN_POLICY_H

#include "banyan/align.h"
#include "banyan/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rewards ---------------------------------------------------------------------------------- */

/* An answer to judge. The texts are NUL-terminated UTF-8 and borrowed for the call. */
typedef struct by_judged {
    const char *prompt;   /* of a conversation: what its last message says */
    const char *answer;   /* without the end token and without the stop string that ended it */
    const char *expected; /* "answer" of the data, or NULL */
    const char *messages; /* of a conversation: a JSON list of what precedes the answer; otherwise NULL */
} by_judged;

/* Writes the rewards of `count` answers. A reward that is not finite is an error. A failure ends the run. */
typedef by_status (*by_reward_fn)(void *user, const by_judged *answers, int count, float *rewards);

/* One source of rewards. `what` is one of
 *   exact             1 if the answer is the data's, without spaces around both
 *   arithmetic        1 if the last number of the answer is that of the data's answer, or else the value of the expression
 *                     in the prompt
 *   sorted            1 if the answer has the numbers or words of the prompt in ascending order; sorted:partial: the share
 *                     of places with the right one
 *   json              1 if the answer is one JSON value
 *   regex:PATTERN     1 if the expression (PCRE) matches somewhere in the answer
 *   length:N          1 for N characters, falling to 0 at none and at 2 N
 *   command:COMMAND   the number that a shell command prints for a line with the answer (docs/POLICY.md)
 *   model:DIR         what a classifier makes of prompt and answer: see by_judging
 * With NULL, `call` is called. */
typedef struct by_reward_source {
    const char *what;
    by_reward_fn call;
    void *user;
    const char *name; /* in logs; NULL: what precedes the colon, or "callback" */
    double weight;    /* in the sum of all sources; 0: 1 */
} by_reward_source;

/* How models and commands judge. Members that are zero mean the default. */
typedef struct by_judging {
    /* of a classifier: the reward is the probability of this label. NULL: it has one label, whose number is the reward */
    const char *label;
    bool logit;        /* the log-odds of that probability instead */
    bool answer_alone; /* the classifier reads the answer without the prompt */
    bool text; /* commands read the answer as a line of text; otherwise a JSON object with prompt, answer, expected */
    int processes;          /* of each command, side by side; 0: one per CPU core, at most 4 */
    double seconds;         /* for an answer; 0: 10 */
    int retries;            /* of an answer after a failure, each with a new process; 0: 2, negative: none */
    const double *fallback; /* the reward after the last failure; NULL: the run ends with an error */
} by_judging;

/* ---- runs --------------------------------------------------------------------------------------- */

/* The losses of GRPO: docs/ALIGN.md. */
typedef enum by_grpo_kind {
    BY_GRPO_DAPO,  /* a mean over all tokens of the step */
    BY_GRPO_GRPO,  /* over the tokens of each answer, then over answers */
    BY_GRPO_DR,    /* the sum of all tokens by a constant; advantages are not scaled */
    BY_GRPO_BNPO,  /* over the tokens of each micro-batch */
    BY_GRPO_GSPO,  /* one ratio for each answer */
    BY_GRPO_CISPO, /* ratios weigh log-probabilities; a mean over all tokens of the step */
    BY_GRPO_SAPO,  /* a soft gate in place of clipping; over the tokens of each answer, then over answers */
    BY_GRPO_KINDS
} by_grpo_kind;
BY_API const char *by_grpo_name(by_grpo_kind kind); /* "dapo", ... */
BY_API bool by_grpo_find(const char *name, by_grpo_kind *out);

/* What PPO, GRPO, RLOO and REINFORCE need beyond by_align_spec, whose `batch` and `accumulate` count prompts. Each step samples
 * answers to batch * accumulate prompts, judges them, and learns from them. by_align_spec.beta weighs the divergence from the
 * reference, in the loss of GRPO and in the rewards otherwise; 0: there is no reference. by_align_defaults sets it, to 0 for GRPO and to
 * 0.05 otherwise. Members of this struct that are zero mean the default. */
typedef struct by_policy_run {
    const by_reward_source *rewards; /* at least one */
    int reward_count;
    by_judging judging;
    /* answers */
    int generations;    /* to each prompt; 0: 8, RLOO 2, PPO and REINFORCE 1 */
    int max_new_tokens; /* 0: 512, PPO 53, but at most half of the context */
    double temperature; /* 0: 1, PPO 0.7 */
    int top_k;
    double top_p;
    const char *const *stops; /* an answer ends after one of these strings, too */
    int stop_count;
    /* updates */
    by_grpo_kind loss;
    by_reward_scale scale;            /* of the advantages of GRPO */
    int updates;                      /* passes over the answers of a step; 0: 1, PPO 4 */
    int minibatches;                  /* updates in such a pass; 0: 1 */
    double epsilon_low, epsilon_high; /* clip ratios; 0: 0.2 and epsilon_low; epsilon_high of CISPO: 5 */
    double delta;        /* GRPO: by_policy_spec.delta; more than 1 + epsilon_high; 0: no limit */
    double top_entropy;  /* GRPO: by_policy_spec.top_entropy; 0: 1 */
    bool normalize;      /* RLOO: advantages to mean 0 and variance 1 over the answers of the step */
    bool mask_truncated; /* answers without an end are not learned from */
    /* PPO */
    const char *value_model;    /* directory that the critic starts from; NULL: that of the policy */
    double value_rate;          /* learning rate of the critic; 0: that of the policy */
    double value_weight;        /* of its loss; 0: 0.1 */
    double value_clip;          /* 0: 0.2 */
    double gamma, lambda;       /* 0: 1 and 0.95 */
    bool whiten_rewards, third; /* see by_gae_spec */
    double missing_eos_penalty; /* subtracted from the score of an answer without an end */
    double kl_target;  /* adapt beta so that the divergence of an answer becomes this; 0: beta is fixed */
    double kl_horizon; /* answers in which it does; 0: 10000 */
    bool greedy_eval;  /* evaluations take the likeliest answer; otherwise one sampled like the others */
    /* samples.jsonl in the run folder */
    int sample_every; /* steps; 0: 10, negative: never */
    int sample_count; /* answers each time; 0: 4 */
} by_policy_run;

#ifdef __cplusplus
}
#endif
#endif
