/* grpo.c - teach a language model by rewards that a C function gives: answers with many vowels are good.
 *
 *   grpo MODEL PROMPTS OUT [STEPS]
 *
 * PROMPTS has a prompt on each line. OUT becomes a model directory, and the same command continues a run that was stopped. */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of vowels in each answer. */
static by_status judge(void *user, const by_judged *answers, int count, float *rewards)
{
    (void)user;
    for (int i = 0; i < count; i++) {
        int vowels = 0, all = 0;
        for (const char *c = answers[i].answer; *c; c++, all++)
            vowels += strchr("aeiou", *c) != NULL;
        rewards[i] = all ? (float)vowels / (float)all : 0;
    }
    return BY_OK;
}

static double measure(const by_report *r, const char *name)
{
    for (int i = 0; i < r->n_measures; i++)
        if (strcmp(r->measures[i].name, name) == 0)
            return r->measures[i].value;
    return 0;
}

static void report(void *user, const by_report *r)
{
    (void)user;
    if (r->warning)
        fprintf(stderr, "grpo: %s\n", r->warning);
    else if (!r->note)
        printf("step %d  reward %.4f  kl %.4f\n", (int)r->step, measure(r, "reward"), measure(r, "kl"));
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: grpo MODEL PROMPTS OUT [STEPS]\n");
        return 2;
    }
    const by_reward_source reward = {.call = judge, .name = "vowels"};
    by_align_spec spec = by_align_defaults(BY_ALIGN_GRPO);
    by_align_result result;
    spec.model = argv[1];
    spec.data = argv[2];
    spec.out = argv[3];
    spec.steps = argc > 4 ? atoi(argv[4]) : 50;
    spec.batch = 4;   /* prompts of a step, */
    spec.beta = 0.02; /* weight of the divergence from MODEL */
    spec.schedule.rate = 1e-3;
    spec.policy.rewards = &reward;
    spec.policy.reward_count = 1;
    spec.policy.generations = 8; /* with as many answers each */
    spec.policy.max_new_tokens = 12;
    spec.report = report;

    by_device *device = by_device_open("cpu", 0);
    if (!device || by_align_run(device, &spec, &result) != BY_OK) {
        fprintf(stderr, "grpo: %s\n", by_error_message());
        by_device_free(device);
        return 1;
    }
    printf("%d steps, saved %s\n", (int)result.steps, spec.out);
    by_device_free(device);
    return 0;
}
