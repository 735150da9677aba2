/* policy_record.c - what run.json keeps of a policy run. */
#include "align/policy_run.h"

static void record_rewards(const align_policy *p, train_record *out, base_buf *text)
{
    const by_policy_run *run = &p->spec.policy;
    for (int i = 0; i < run->reward_count; i++)
        base_buf_printf(text, "%s%.9g %s", i ? "; " : "", p->rewards.list[i].weight,
                        run->rewards[i].what ? run->rewards[i].what : p->rewards.list[i].name);
    train_record_text(out, "rewards", text->failed ? "" : text->data, TRAIN_SAME);
}

static void record_texts(const align_policy *p, train_record *out)
{
    const by_align_spec *s = &p->spec;
    const by_policy_run *run = &s->policy;
    const struct {
        const char *key, *value;
        train_rule rule;
    } texts[] = {{"method", by_align_name(s->method), TRAIN_SAME},
                 {"model", s->model, TRAIN_FREE},
                 {"reference", s->reference, TRAIN_FREE},
                 {"value_model", run->value_model, TRAIN_FREE},
                 {"family", by_model_family(p->model), TRAIN_SAME},
                 {"dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME},
                 {"freeze", s->freeze, TRAIN_SAME},
                 {"weights", s->weights ? by_dtype_name(s->weights) : NULL, TRAIN_SAME},
                 {"loss", s->method == BY_ALIGN_GRPO ? by_grpo_name(run->loss) : NULL, TRAIN_SAME},
                 {"data", s->data, TRAIN_FREE},
                 {"eval_data", s->eval_data, TRAIN_FREE}};
    for (int i = 0; i < BY_COUNT(texts); i++)
        train_record_text(out, texts[i].key, texts[i].value, texts[i].rule);
    train_record_adapter(out, s->adapter, s->lora);
}

static void record_numbers(const align_policy *p, train_record *out)
{
    const by_align_spec *s = &p->spec;
    const by_policy_run *run = &s->policy;
    const struct {
        const char *key;
        double value;
        train_rule rule;
    } numbers[] = {{"generations", run->generations, TRAIN_SAME},
                   {"max_new_tokens", p->max_new_tokens, TRAIN_SAME},
                   {"limit", p->capacity, TRAIN_SAME},
                   {"temperature", run->temperature, TRAIN_SAME},
                   {"top_k", run->top_k, TRAIN_SAME},
                   {"top_p", run->top_p, TRAIN_SAME},
                   {"updates", run->updates, TRAIN_SAME},
                   {"minibatches", run->minibatches, TRAIN_SAME},
                   {"beta", s->beta, TRAIN_SAME},
                   {"epsilon_low", run->epsilon_low, TRAIN_SAME},
                   {"epsilon_high", run->epsilon_high, TRAIN_SAME},
                   {"delta", run->delta, TRAIN_YOUNGER},
                   {"low_entropy", 1 - run->top_entropy, TRAIN_YOUNGER},
                   {"normalize", run->normalize, TRAIN_YOUNGER},
                   {"scale", run->scale, TRAIN_SAME},
                   {"value_rate", run->value_rate, TRAIN_SAME},
                   {"value_weight", run->value_weight, TRAIN_SAME},
                   {"gamma", run->gamma, TRAIN_SAME},
                   {"lambda", run->lambda, TRAIN_SAME},
                   {"kl_target", run->kl_target, TRAIN_SAME},
                   {"missing_eos_penalty", run->missing_eos_penalty, TRAIN_SAME},
                   {"prompts", p->train_prompts, TRAIN_SAME},
                   {"eval_prompts", p->eval_count, TRAIN_SAME},
                   {"data_fingerprint", (double)(p->prompts.fingerprint >> 12), TRAIN_SAME}};
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_number(out, numbers[i].key, numbers[i].value, numbers[i].rule);
    train_loop_record(&p->loop, TRAIN_COURSE(s, p->device), out);
}

by_status align_policy_record(void *self, train_record *out)
{
    align_policy *p = self;
    base_buf rewards = {0};
    record_texts(p, out);
    record_numbers(p, out);
    record_rewards(p, out, &rewards);
    base_free(p->reward_text);
    p->reward_text = rewards.data; /* the record points to it */
    return rewards.failed ? BY_ERR_MEMORY : BY_OK;
}
