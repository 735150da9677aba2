/* align_policy.h - reinforcement learning for text: settings of sampling, rewards and updates. Part of
 * align_run.h. */
#ifndef BANYAN_ALIGN_POLICY_H
#define BANYAN_ALIGN_POLICY_H

#include "banyan/align.h"
#include "banyan/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rewards ---------------------------------------------------------------------------------- */

/* An answer to score. The texts are NUL-terminated UTF-8 and valid during the call. */
typedef struct by_judged {
    const char *prompt;   /* of a conversation, the content of its last message */
    const char *answer;   /* without the end token and without the stop string that ended it */
    const char *expected; /* "answer" of the data, or NULL */
    /* of a conversation, a JSON list of the messages before the answer; otherwise NULL */
    const char *messages;
} by_judged;

/* Writes the rewards of `count` answers. Rewards must be finite. A failure ends the run. */
typedef by_status (*by_reward_fn)(void *user, const by_judged *answers, int count, float *rewards);

/* One source of rewards. `what` is one of
 *   exact             1 if the answer equals the one in the data, ignoring surrounding spaces
 *   arithmetic        1 if the last number of the answer equals that of the data's answer, or else the value of the
 *                     expression in the prompt
 *   sorted            1 if the answer has the numbers or words of the prompt in ascending order; sorted:partial: the share
 *                     of positions with the correct item
 *   json              1 if the answer is a single JSON value
 *   regex:PATTERN     1 if the expression (PCRE) matches somewhere in the answer
 *   length:N          1 for N characters, falling to 0 at 0 and at 2 N
 *   command:COMMAND   the number that a shell command prints for a line with the answer (docs/POLICY.md)
 *   model:DIR         the score of a classifier for prompt and answer: see by_judging
 * If NULL, `call` computes the rewards. */
typedef struct by_reward_source {
    const char *what;
    by_reward_fn call;
    void *user;
    const char *name; /* in logs; NULL: the part of `what` before the colon, or "callback" */
    double weight;    /* in the sum of all sources; 0: 1 */
} by_reward_source;

/* How models and commands score answers. Zero members mean the default. */
typedef struct by_judging {
    /* of a classifier: the reward is the probability of this label. NULL: it has one label, whose number is
     * the reward */
    const char *label;
    bool logit;        /* the log-odds of that probability instead */
    bool answer_alone; /* the classifier reads the answer without the prompt */
    /* commands read the answer as a line of text; otherwise a JSON object with prompt, answer, expected */
    bool text;
    int processes;          /* of each command, side by side; 0: one per CPU core, at most 4 */
    double seconds;         /* for an answer; 0: 10 */
    int retries;            /* of an answer after a failure, each with a new process; 0: 2, negative: none */
    const double *fallback; /* the reward after the last failure; NULL: the run ends with an error */
} by_judging;

/* ---- runs --------------------------------------------------------------------------------------- */

/* The losses of GRPO (docs/ALIGN.md). */
typedef enum by_grpo_kind {
    BY_GRPO_DAPO,  /* a mean over all tokens of the step */
    BY_GRPO_GRPO,  /* over the tokens of each answer, then over answers */
    BY_GRPO_DR,    /* the sum over all tokens, divided by a constant; advantages are not scaled */
    BY_GRPO_BNPO,  /* over the tokens of each micro-batch */
    BY_GRPO_GSPO,  /* one ratio per answer */
    BY_GRPO_CISPO, /* ratios as weights of log-probabilities; a mean over all tokens of the step */
    BY_GRPO_SAPO,  /* a soft gate in place of clipping; over the tokens of each answer, then over answers */
    BY_GRPO_KINDS
} by_grpo_kind;
BY_API const char *by_grpo_name(by_grpo_kind kind); /* "dapo", ... */
BY_API bool by_grpo_find(const char *name, by_grpo_kind *out);

/* Settings of PPO, GRPO, RLOO and REINFORCE beyond by_align_spec, whose `batch` and `accumulate` count
 * prompts. Each step samples answers to batch * accumulate prompts, scores them, and updates the policy.
 * by_align_spec.beta is the weight of the divergence from the reference, in the loss for GRPO and in the
 * rewards otherwise; with 0 there is no reference. by_align_defaults sets it to 0 for GRPO and to 0.05
 * otherwise. Zero members of this struct mean the default. */
typedef struct by_policy_run {
    const by_reward_source *rewards; /* at least one source */
    int reward_count;
    by_judging judging;
    /* answers */
    int generations;    /* to each prompt; 0: 8, RLOO 2, PPO and REINFORCE 1 */
    int max_new_tokens; /* 0: 512, PPO 53, but at most half of the context */
    double temperature; /* 0: 1, PPO 0.7 */
    int top_k;
    double top_p;
    const char *const *stops; /* strings that also end an answer */
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
    bool mask_truncated; /* truncated answers (without an end) do not train */
    /* PPO */
    const char *value_model;    /* directory of the critic's initial model; NULL: the policy's */
    double value_rate;          /* learning rate of the critic; 0: the policy's */
    double value_weight;        /* of its loss; 0: 0.1 */
    double value_clip;          /* 0: 0.2 */
    double gamma, lambda;       /* 0: 1 and 0.95 */
    bool whiten_rewards, third; /* see by_gae_spec */
    double missing_eos_penalty; /* subtracted from the score of an answer without an end */
    double kl_target;  /* target of the divergence of an answer, to which beta adapts; 0: beta is fixed */
    double kl_horizon; /* horizon of that adaptation in answers; 0: 10000 */
    bool greedy_eval;  /* evaluations decode greedily; otherwise they sample as in training */
    /* samples.jsonl in the run folder */
    int sample_every; /* steps; 0: 10, negative: never */
    int sample_count; /* answers each time; 0: 4 */
} by_policy_run;

#ifdef __cplusplus
}
#endif
#endif
