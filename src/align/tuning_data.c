/* tuning_data.c - see tuning_data.h. */
#include "align/tuning_data.h"

by_status align_choose_head(by_device *d, const by_align_spec *s, by_model_spec *spec)
{
    if (s->method != BY_ALIGN_REWARD)
        return BY_OK;
    by_model *m = by_model_open(d, s->model, &(by_model_spec){.dtype = spec->dtype});
    if (!m)
        return base_error_status();
    spec->task = BY_TASK_CLASSIFY;
    spec->problem = BY_PROBLEM_REGRESSION;
    spec->labels = 1;
    spec->new_head = by_model_task(m) != BY_TASK_CLASSIFY || by_model_labels(m) != 1;
    by_model_free(m);
    return BY_OK;
}

by_status align_source_read(align_source *x, const by_align_spec *s, by_model *m, align_part *train,
                            align_part *eval)
{
    const data_instruction_spec spec = {.kind = align_data_kind(s->method),
                                        .chat = x->chat,
                                        .limit = s->limit,
                                        .learn_prompts = s->learn_prompts,
                                        .keep_end = s->keep_end,
                                        .pack = s->pack};
    BY_TRY(data_instructions_open(&train->list, s->data, m, x->tokenizer, &spec));
    if (s->eval_data)
        BY_TRY(data_instructions_open(&eval->list, s->eval_data, m, x->tokenizer, &spec));
    else if (s->eval_fraction > 0)
        BY_TRY(data_instructions_hold_out(&train->list, s->eval_fraction, &eval->list));
    if (!align_needs_mismatched(s))
        return BY_OK;
    BY_TRY(data_instructions_mismatch(&train->list, &train->mismatched));
    return eval->list.count ? data_instructions_mismatch(&eval->list, &eval->mismatched) : BY_OK;
}
