/* policy_defaults.c - defaults of policy runs. They are TRL's. */
#include "align/policy_run.h"

static const char *const grpo_names[BY_GRPO_KINDS] = {"dapo", "grpo",  "dr_grpo", "bnpo",
                                                      "gspo", "cispo", "sapo"};

const char *by_grpo_name(by_grpo_kind kind)
{
    return (unsigned)kind < BY_GRPO_KINDS ? grpo_names[kind] : "?";
}

bool by_grpo_find(const char *name, by_grpo_kind *out)
{
    for (int i = 0; name && out && i < BY_GRPO_KINDS; i++)
        if (strcmp(name, grpo_names[i]) == 0) {
            *out = (by_grpo_kind)i;
            return true;
        }
    return false;
}

void align_policy_defaults(by_align_spec *s)
{
    const bool ppo = s->method == BY_ALIGN_PPO;
    s->beta = s->method == BY_ALIGN_GRPO ? 0 : 0.05;
    s->policy = (by_policy_run){.generations = s->method == BY_ALIGN_GRPO   ? 8
                                               : s->method == BY_ALIGN_RLOO ? 2
                                                                            : 1,
                                .temperature = ppo ? 0.7 : 1,
                                .updates = ppo ? 4 : 1,
                                .minibatches = 1,
                                .epsilon_low = 0.2,
                                .value_weight = 0.1,
                                .value_clip = 0.2,
                                .gamma = 1,
                                .lambda = 0.95,
                                .kl_horizon = 10000,
                                .judging = {.seconds = 10, .retries = 2},
                                .sample_every = 10,
                                .sample_count = 4};
}

static void or_default(double *x, double usual)
{
    *x = *x != 0 ? *x : usual;
}

static void or_number(int *x, int usual)
{
    *x = *x != 0 ? *x : usual;
}

void align_policy_fill(by_policy_run *run, by_align_method method)
{
    by_align_spec usual = {.method = method};
    align_policy_defaults(&usual);
    const by_policy_run *u = &usual.policy;
    const bool is_cispo = method == BY_ALIGN_GRPO && run->loss == BY_GRPO_CISPO;
    or_number(&run->generations, u->generations);
    or_default(&run->temperature, u->temperature);
    or_number(&run->updates, u->updates);
    or_number(&run->minibatches, u->minibatches);
    or_default(&run->epsilon_low, u->epsilon_low);
    or_default(&run->epsilon_high, is_cispo ? 5 : run->epsilon_low);
    or_default(&run->top_entropy, 1);
    or_default(&run->value_weight, u->value_weight);
    or_default(&run->value_clip, u->value_clip);
    or_default(&run->gamma, u->gamma);
    or_default(&run->lambda, u->lambda);
    or_default(&run->kl_horizon, u->kl_horizon);
    or_number(&run->sample_every, u->sample_every);
    or_number(&run->sample_count, u->sample_count);
}
