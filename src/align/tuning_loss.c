/* tuning_loss.c - the loss of each method and its requirements (tuning.h). */
#include <math.h>

#include "align/terms.h"
#include "align/tuning.h"
#include "base/base.h"

/* The loss of the task, with token accuracy and entropy. */
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
                             .likelihood = {.dynamic = s->dynamic},
                             .dpo = {.kind = s->loss,
                                     .beta = s->beta,
                                     .label_smoothing = s->label_smoothing,
                                     .terms = s->losses,
                                     .term_count = s->loss_count,
                                     .divergence = s->divergence,
                                     .divergence_alpha = s->divergence_alpha,
                                     .weighted = s->weight_pairs},
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
        *user = evaluation ? model.to : &o->likelihood;
        return evaluation ? tuning_loss : o->likelihood.dynamic ? by_likelihood_loss : NULL;
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

/* ---- losses of DPO ------------------------------------------------------------------------------ */

static by_dpo_term term_at(const by_align_spec *s, int i)
{
    return s->loss_count ? s->losses[i] : (by_dpo_term){s->loss, 1};
}

bool align_has_loss(const by_align_spec *s, by_dpo_kind kind)
{
    for (int i = 0; i < BY_MAX(s->loss_count, 1); i++)
        if (term_at(s, i).kind == kind)
            return true;
    return false;
}

/* Whether any of the losses has label smoothing. */
static bool smooths(const by_align_spec *s)
{
    static const by_dpo_kind kinds[] = {BY_DPO_SIGMOID, BY_DPO_ROBUST, BY_DPO_EXO_PAIR, BY_DPO_AOT,
                                        BY_DPO_AOT_UNPAIRED};
    for (int i = 0; i < BY_COUNT(kinds); i++)
        if (align_has_loss(s, kinds[i]))
            return true;
    return false;
}

by_status align_check_dpo(const by_align_spec *s)
{
    for (int i = 0; i < BY_MAX(s->loss_count, 1); i++) {
        const by_dpo_term term = term_at(s, i);
        if (!(term.weight > 0 && isfinite(term.weight)))
            return base_fail(BY_ERR_ARGUMENT, "the loss %s has the weight %g; it must be above 0",
                             by_dpo_name(term.kind), term.weight);
        if (s->divergence != BY_DIVERGENCE_REVERSE_KL && !by_dpo_takes_divergence(term.kind))
            return base_fail(BY_ERR_ARGUMENT,
                             "the loss %s is defined only for the divergence reverse_kl, not for %s",
                             by_dpo_name(term.kind), by_divergence_name(s->divergence));
    }
    if (s->weight_pairs && align_has_loss(s, BY_DPO_SFT))
        return base_fail(BY_ERR_ARGUMENT, "the loss sft is a mean over tokens and has no weights of pairs");
    if (s->divergence == BY_DIVERGENCE_ALPHA && !isfinite(s->divergence_alpha))
        return base_fail(BY_ERR_ARGUMENT, "the alpha of the divergence is not a number");
    if (align_has_loss(s, BY_DPO_EXO_PAIR) && !(s->label_smoothing > 0))
        return base_fail(BY_ERR_ARGUMENT, "the loss exo_pair needs label smoothing above 0, such as 0.01");
    return s->label_smoothing == 0 || smooths(s)
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT,
                           "label smoothing is for the losses sigmoid, robust, exo_pair, aot and "
                           "aot_unpaired, not for %s",
                           by_dpo_name(term_at(s, 0).kind));
}

void align_describe_losses(const by_align_spec *s, base_buf *out)
{
    if (s->loss_count == 0)
        base_buf_puts(out, by_dpo_name(s->loss));
    for (int i = 0; i < s->loss_count; i++)
        base_buf_printf(out, "%s%.9g %s", i ? ", " : "", s->losses[i].weight, by_dpo_name(s->losses[i].kind));
}

/* ---- requirements of a method -------------------------------------------------------------------- */

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
