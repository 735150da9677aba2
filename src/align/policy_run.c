/* policy_run.c - reinforcement learning for text (banyan/align_policy.h). */
#include "align/methods.h"
#include "base/base.h"

void align_policy_defaults(by_align_spec *s)
{
    (void)s;
}

by_status align_policy_run(by_device *d, const by_align_spec *spec, by_align_result *result)
{
    (void)d;
    (void)result;
    return base_fail(BY_ERR_UNSUPPORTED, "the method %s is not supported yet", by_align_name(spec->method));
}
