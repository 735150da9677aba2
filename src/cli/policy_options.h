/* policy_options.h - options of the methods of `banyan align` that sample answers. */
#ifndef BY_CLI_POLICY_OPTIONS_H
#define BY_CLI_POLICY_OPTIONS_H

#include "banyan/align_policy.h"
#include "cli/options.h"

/* Options besides the by_policy_run of the spec. */
typedef struct cli_policy_options {
    cli_list rewards, stops;
    const char *weights, *format, *estimator;
    double fallback;
    int retries;
    by_reward_source *sources; /* made by cli_policy_read, as are */
    char **texts;              /* the stop strings, */
    char **models, *critic;    /* and the directories of models */
} cli_policy_options;

/* clang-format off */
/* Rows for `policy`, a by_policy_run, and `p`, a cli_policy_options, both members of the verb's options of
 * this type; each row ends with a comma. */
#define CLI_POLICY_ROWS(type, policy, p)                                                                     \
    {CLI_AT(type, p.rewards), .name = "reward", .letter = 'r', .value = "REWARD",                            \
     .help = "exact, arithmetic, sorted, sorted:partial, json, regex:PATTERN, length:N, command:COMMAND or " \
             "model:DIR; several add up", .group = "Rewards (ppo, grpo, rloo, reinforce)"},                  \
    {CLI_AT(type, p.weights), .name = "reward-weights", .value = "W1,W2,...",                                \
     .help = "weights of the rewards, in their order (default: 1 each)"},                                    \
    {CLI_AT(type, policy.judging.label), .name = "reward-label", .value = "LABEL",                           \
     .help = "model: the reward is the probability of this label"},                                          \
    {CLI_AT(type, policy.judging.logit), .name = "reward-logits",                                            \
     .help = "model: its log-odds instead of the probability"},                                              \
    {CLI_AT(type, policy.judging.answer_alone), .name = "reward-answer-alone",                               \
     .help = "model: read the answer without the prompt"},                                                   \
    {CLI_AT(type, p.format), .name = "reward-format", .choices = "json|text", .preset = "json",              \
     .help = "command: its input for each answer, a JSON object or a line of text"},                         \
    {CLI_AT(type, policy.judging.processes), .name = "reward-processes", CLI_RANGE(1, 256),                  \
     .help = "command: parallel processes (default: one per core, at most 4)"},                              \
    {CLI_AT(type, policy.judging.seconds), .name = "reward-timeout", CLI_RANGE(0.001, 1e6),                  \
     .help = "command: time limit for an answer in seconds (default: 10)"},                                  \
    {CLI_AT(type, p.retries), .name = "reward-retries", CLI_RANGE(0, 1000), .preset = "2",                   \
     .help = "command: attempts after a failed one, each with a new process"},                               \
    {CLI_AT(type, p.fallback), .name = "reward-fallback", CLI_RANGE(-1e9, 1e9),                              \
     .help = "command: reward after the last failed attempt (default: the run stops with an error)"},        \
                                                                                                             \
    {CLI_AT(type, policy.generations), .name = "num-generations", .alias = "generations", CLI_RANGE(1, 1e5), \
     .help = "answers per prompt (default: grpo: 8; rloo: 2; others: 1)",                                    \
     .group = "Answers (ppo, grpo, rloo, reinforce)"},                                                       \
    {CLI_AT(type, policy.max_new_tokens), .name = "max-new-tokens", .alias = "max-completion-length",        \
     CLI_MIN(1), .help = "longest answer in tokens (default: 512, ppo: 53, but at most half of the "         \
                         "context)"},                                                                        \
    {CLI_AT(type, policy.temperature), .name = "temperature", CLI_RANGE(1e-3, 100),                          \
     .help = "sampling temperature (default: 1; ppo: 0.7)"},                                                 \
    {CLI_AT(type, policy.top_k), .name = "top-k", CLI_MIN(0), .preset = "0",                                 \
     .help = "sample from the N most likely tokens; 0: all"},                                                \
    {CLI_AT(type, policy.top_p), .name = "top-p", CLI_RANGE(0, 1), .preset = "0",                            \
     .help = "sample from the fewest tokens with this total probability; 0: all"},                           \
    {CLI_AT(type, p.stops), .name = "stop", .value = "TEXT",                                                 \
     .help = "an answer also ends after TEXT (\\n is a line break)"},                                        \
    {CLI_AT(type, policy.greedy_eval), .name = "greedy-eval",                                                \
     .help = "evaluate the greedy answer to each prompt instead of a sampled one"},                          \
    {CLI_AT(type, policy.sample_every), .name = "sample-steps", CLI_RANGE(-1, 1e9),                          \
     .help = "write answers to samples.jsonl every N steps (default: 10); -1: never"},                       \
    {CLI_AT(type, policy.sample_count), .name = "sample-count", CLI_RANGE(1, 1e5),                           \
     .help = "answers written each time (default: 4)"},                                                      \
                                                                                                             \
    {CLI_AT(type, policy.loss), .name = "grpo-loss", .choices = "dapo|grpo|dr_grpo|bnpo|gspo|cispo|sapo",    \
     .preset = "dapo", .help = "grpo: the loss", .group = "Updates (ppo, grpo, rloo, reinforce)"},           \
    {CLI_AT(type, policy.scale), .name = "scale-rewards", .choices = "group|batch|none", .preset = "group",  \
     .help = "grpo: advantages are divided by the deviation of the rewards of a prompt or of all"},          \
    {CLI_AT(type, policy.normalize), .name = "normalize-advantages",                                         \
     .help = "rloo: shift and scale advantages to mean 0 and variance 1 over the step"},                     \
    {CLI_AT(type, policy.top_entropy), .name = "top-entropy-quantile", CLI_RANGE(1e-6, 1), .preset = "1",    \
     .help = "grpo: share of the tokens, those of highest entropy, that learn (0.2: Wang et al. 2025)"},     \
    {CLI_AT(type, policy.updates), .name = "num-iterations", .alias = "ppo-epochs", CLI_RANGE(1, 64),        \
     .help = "passes over the answers of a step (default: 1; ppo: 4)"},                                      \
    {CLI_AT(type, policy.minibatches), .name = "num-minibatches", CLI_RANGE(1, 1e4), .preset = "1",          \
     .help = "updates in each pass"},                                                                        \
    {CLI_AT(type, policy.epsilon_low), .name = "epsilon", CLI_RANGE(1e-6, 1e6),                              \
     .help = "ratios are clipped to 1 - E and 1 + E (default: 0.2)"},                                        \
    {CLI_AT(type, policy.epsilon_high), .name = "epsilon-high", CLI_RANGE(1e-6, 1e6),                        \
     .help = "E of the upper end (default: that of --epsilon; DAPO's authors: 0.28); cispo: the largest "    \
             "ratio (default: 5)"},                                                                          \
    {CLI_AT(type, policy.delta), .name = "delta", CLI_RANGE(1, 1e6),                                         \
     .help = "grpo: largest ratio, that of bad answers too (default: no limit)"},                            \
    {CLI_AT(type, policy.mask_truncated), .name = "mask-truncated",                                          \
     .help = "ignore answers truncated at --max-new-tokens in updates"},                                     \
    {CLI_AT(type, policy.value_model), .name = "value-model", .value = "DIR",                                \
     .help = "ppo: initial model of the critic (default: MODEL), with a new head unless it has one output"}, \
    {CLI_AT(type, policy.value_rate), .name = "value-learning-rate", CLI_RANGE(1e-12, 100),                  \
     .help = "ppo: learning rate of the critic (default: the policy's)"},                                    \
    {CLI_AT(type, policy.value_weight), .name = "vf-coef", CLI_RANGE(1e-9, 1e6),                             \
     .help = "ppo: weight of the critic's loss (default: 0.1)"},                                             \
    {CLI_AT(type, policy.value_clip), .name = "value-clip", CLI_RANGE(1e-6, 1e9),                            \
     .help = "ppo: values are clipped to within X of the old ones (default: 0.2)"},                          \
    {CLI_AT(type, policy.gamma), .name = "discount", CLI_RANGE(1e-6, 1),                                     \
     .help = "ppo: discount of future rewards, gamma (default: 1)"},                                         \
    {CLI_AT(type, policy.lambda), .name = "gae-lambda", CLI_RANGE(1e-6, 1),                                  \
     .help = "ppo: lambda of generalised advantage estimation (default: 0.95)"},                             \
    {CLI_AT(type, policy.whiten_rewards), .name = "whiten-rewards",                                          \
     .help = "ppo: scale token rewards to variance 1"},                                                      \
    {CLI_AT(type, p.estimator), .name = "kl-estimator", .choices = "k1|k3", .preset = "k1",                  \
     .help = "ppo: estimate of the divergence in the rewards"},                                              \
    {CLI_AT(type, policy.missing_eos_penalty), .name = "missing-eos-penalty", CLI_RANGE(0, 1e9),             \
     .preset = "0", .help = "ppo: penalty of an answer without an end token"},                               \
    {CLI_AT(type, policy.kl_target), .name = "kl-target", CLI_RANGE(0, 1e9), .preset = "0",                  \
     .help = "ppo: target divergence per answer in nats, to which --beta adapts; 0: --beta is fixed"},       \
    {CLI_AT(type, policy.kl_horizon), .name = "kl-horizon", CLI_RANGE(1, 1e12),                              \
     .help = "ppo: horizon of the adaptation of --beta in answers (default: 10000)"},
/* clang-format on */

/* Completes the spec from the options. False: an error has been shown. */
bool cli_policy_read(cli_policy_options *o, const cli_args *args, by_policy_run *out);
void cli_policy_free(cli_policy_options *o);

#endif
