/* align_run.c - names, defaults and runs of the alignment methods (banyan/align_run.h). */
#include "banyan/align_run.h"

#include <math.h>
#include <string.h>

#include "align/methods.h"
#include "base/base.h"
#include "model/model.h"

static const char *const names[BY_ALIGN_METHODS] = {[BY_ALIGN_SFT] = "sft",
                                                    [BY_ALIGN_REWARD] = "reward",
                                                    [BY_ALIGN_DPO] = "dpo",
                                                    [BY_ALIGN_KTO] = "kto",
                                                    [BY_ALIGN_ORPO] = "orpo",
                                                    [BY_ALIGN_SIMPO] = "simpo",
                                                    [BY_ALIGN_CPO] = "cpo",
                                                    [BY_ALIGN_PPO] = "ppo",
                                                    [BY_ALIGN_GRPO] = "grpo",
                                                    [BY_ALIGN_RLOO] = "rloo",
                                                    [BY_ALIGN_REINFORCE] = "reinforce"};

const char *by_align_name(by_align_method method)
{
    return (unsigned)method < BY_ALIGN_METHODS ? names[method] : "?";
}

bool by_align_find(const char *name, by_align_method *out)
{
    for (int i = 0; name && out && i < BY_ALIGN_METHODS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (by_align_method)i;
            return true;
        }
    return false;
}

const char *by_align_loss_unit(by_align_method method)
{
    return method == BY_ALIGN_SFT   ? "nats per token"
           : method == BY_ALIGN_KTO ? "per answer"
           : method >= BY_ALIGN_PPO ? "policy"
                                    : "per pair";
}

by_status align_check_method(const train_loop *l, by_align_method method)
{
    train_record r = {0};
    if (!l->last)
        return BY_OK;
    train_record_text(&r, "method", by_align_name(method), TRAIN_SAME);
    return train_record_compare(l->folder.out, &r);
}

by_align_spec by_align_defaults(by_align_method method)
{
    by_align_spec s = {
        .method = method,
        .dropout = -1,
        .beta = 0.1,
        .desirable_weight = 1,
        .undesirable_weight = 1,
        .batch = 8,
        .accumulate = 1,
        .schedule = {.kind = BY_SCHEDULE_LINEAR, .rate = -1, .warmup = -1},
        .warmup_share = 0.1,
        .optimizer = {.kind = BY_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1},
        .seed = 1337,
        .keep = 1};
    if (method == BY_ALIGN_SIMPO) { /* Meng et al. 2024 */
        s.beta = 2;
        s.gamma = 1;
    }
    if (method == BY_ALIGN_CPO)
        s.alpha = 1;
    if (align_is_policy(method))
        align_policy_defaults(&s);
    return s;
}

by_model_spec align_model_spec(const by_align_spec *s)
{
    return (by_model_spec){.dtype = s->dtype,
                           .training = true,
                           .stochastic_rounding = s->stochastic_rounding,
                           .freeze = s->freeze,
                           .adapter = s->adapter,
                           .weights = s->weights,
                           .seed = s->seed};
}

/* A model of pictures has no tokenizer, but that is not the error to report. */
static by_status check_family(const char *dir)
{
    const arch_family *a = model_family_of(dir, NULL);
    base_error_clear(); /* opening the model reports other errors */
    return a && (a->pictures || a->canvas)
               ? base_fail(BY_ERR_ARGUMENT, "%s: alignment is for decoders of texts, not for %s", dir,
                           a->title)
               : BY_OK;
}

by_status by_align_run(by_device *d, const by_align_spec *spec, by_align_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_align_spec or by_align_result" : "device");
    base_error_clear();
    *result = (by_align_result){.loss = NAN, .eval_loss = NAN};
    if ((unsigned)spec->method >= BY_ALIGN_METHODS)
        return base_fail(BY_ERR_ARGUMENT, "no alignment method %d", (int)spec->method);
    if (!spec->model || !spec->data || !spec->out)
        return base_fail_missing(!spec->model  ? "model directory"
                                 : !spec->data ? "data"
                                               : "output directory");
    BY_TRY(check_family(spec->model));
    return align_is_policy(spec->method) ? align_policy_run(d, spec, result)
                                         : align_supervised_run(d, spec, result);
}
