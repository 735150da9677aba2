/* policy_record.c - the settings of a policy run in run.json. */
#include <math.h>

#include "align/policy_run.h"
#include "base/json.h"

static void record_rewards(const align_policy *p, train_record *out, base_buf *text)
{
    const by_policy_run *run = &p->spec.policy;
    for (int i = 0; i < run->reward_count; i++)
        base_buf_printf(text, "%s%.9g %s", i ? "; " : "", p->rewards.list[i].weight,
                        run->rewards[i].what ? run->rewards[i].what : p->rewards.list[i].name);
    train_record_text(out, "rewards", text->failed ? "" : text->data, TRAIN_SAME);
}

/* The stop strings, quoted and separated by commas; an empty text if there are none. */
static void record_stops(const align_policy *p, train_record *out, base_buf *text)
{
    const by_policy_run *run = &p->spec.policy;
    for (int i = 0; i < run->stop_count; i++) {
        base_buf_puts(text, i ? ", " : "");
        base_json_quote(text, run->stops[i]);
    }
    train_record_text(out, "stops", text->data, TRAIN_SAME);
    out->facts[out->count - 1].absent = text->data; /* absent from records of earlier versions */
}

/* Values that records of earlier versions do not have. */
static void record_younger(const align_policy *p, train_record *out)
{
    const by_policy_run *run = &p->spec.policy;
    const struct {
        const char *key;
        double value, missing;
    } numbers[] = {{"delta", run->delta, 0},
                   {"top_entropy", run->top_entropy, 1},
                   {"normalize", run->normalize, 0},
                   {"own_dropout", BY_MAX(p->spec.dropout, 0), NAN},
                   {"mask_truncated", run->mask_truncated, NAN},
                   {"whiten_rewards", run->whiten_rewards, NAN},
                   {"third", run->third, NAN},
                   {"value_clip", run->value_clip, NAN},
                   {"kl_horizon", run->kl_horizon, NAN},
                   {"reward_logits", run->judging.logit, NAN},
                   {"reward_answer_alone", run->judging.answer_alone, NAN},
                   {"reward_lines", run->judging.text, NAN}};
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_newer(out, numbers[i].key, numbers[i].value, numbers[i].missing);
    train_record_newer(out, "own_reference", p->spec.reference != NULL, NAN);
    align_source_record(&p->source, out);
    train_record_text(out, "reward_label", run->judging.label, TRAIN_SAME);
    out->facts[out->count - 1].absent = run->judging.label;
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
    base_buf rewards = {0}, stops = {0};
    record_texts(p, out);
    record_numbers(p, out);
    record_younger(p, out);
    record_rewards(p, out, &rewards);
    record_stops(p, out, &stops);
    base_free(p->reward_text);
    base_free(p->stop_text);
    p->reward_text = rewards.data; /* the record borrows both */
    p->stop_text = stops.data;
    return rewards.failed || stops.failed ? BY_ERR_MEMORY : BY_OK;
}
