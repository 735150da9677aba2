/* tuning_loss.c - which loss a method minimises, and what it needs for it (tuning.h). */
#include "align/terms.h"
#include "align/tuning.h"
#include "base/base.h"

/* The loss of the task, with the share of tokens that are predicted right, and their entropy. */
static by_tensor *tuning_loss(void *user, by_graph *g, by_model_io *io)
{
    by_tensor *targets = by_io_input(io, "targets"), *logits = by_io_output(io, "logits");
    train_answers a = train_answers_of(g, io, 1);
    if (!logits)
        return NULL;
    by_tensor *off =
        by_sub(g, by_cast(g, by_argmax(g, logits), BY_F32), by_cast(g, targets, BY_F32)); /* (B, T) */
    by_tensor *wrong = by_clamp(g, by_mul(g, off, off), 0, 1);
    by_tensor *mask = by_cast(g, a.mask, BY_F32);
    by_tensor *right = by_sub(g, mask, by_mul(g, wrong, mask));
    train_keep(g, io, "right", train_total(g, right));
    return by_model_loss(user, g, io, targets, NULL);
}

align_objective align_objective_of(const by_align_spec *s)
{
    static const by_cpo_kind kinds[BY_ALIGN_METHODS] = {
        [BY_ALIGN_ORPO] = BY_CPO_ORPO, [BY_ALIGN_SIMPO] = BY_CPO_SIMPO, [BY_ALIGN_CPO] = BY_CPO_SIGMOID};
    return (align_objective){.method = s->method,
                             .dpo = {.kind = s->loss, .beta = s->beta, .label_smoothing = s->label_smoothing},
                             .kto = {.beta = s->beta,
                                     .desirable_weight = train_literal(s->desirable_weight),
                                     .undesirable_weight = train_literal(s->undesirable_weight),
                                     .unpaired = s->unpaired},
                             .cpo = {.kind = kinds[s->method],
                                     .beta = s->beta,
                                     .alpha = s->alpha,
                                     .gamma = s->gamma,
                                     .label_smoothing = s->label_smoothing},
                             .reward = {.center = s->center}};
}

by_loss_fn align_objective_loss(align_objective *o, bool evaluation, void **user)
{
    union {
        const by_model *from;
        void *to;
    } model = {o->model};
    switch (o->method) {
    case BY_ALIGN_SFT:
        *user = evaluation ? model.to : NULL;
        return evaluation ? tuning_loss : NULL;
    case BY_ALIGN_REWARD:
        *user = &o->reward;
        return by_reward_loss;
    case BY_ALIGN_DPO:
        *user = &o->dpo;
        return by_dpo_loss;
    case BY_ALIGN_KTO:
        *user = &o->kto;
        return by_kto_loss;
    default:
        *user = &o->cpo;
        return by_cpo_loss;
    }
}

bool align_needs_reference(const by_align_spec *s)
{
    return s->method == BY_ALIGN_DPO || s->method == BY_ALIGN_KTO;
}

bool align_needs_mismatched(const by_align_spec *s)
{
    return s->method == BY_ALIGN_KTO && !s->unpaired;
}

data_instruction_kind align_data_kind(by_align_method method)
{
    return method == BY_ALIGN_SFT ? DATA_TUNING : method == BY_ALIGN_KTO ? DATA_JUDGEMENTS : DATA_PREFERENCES;
}
