/* tuning_run.c - runs that learn from given answers. */
#include "align/methods.h"
#include "base/base.h"

by_status align_supervised_run(by_device *d, const by_align_spec *spec, by_align_result *result)
{
    (void)d;
    (void)result;
    return base_fail(BY_ERR_UNSUPPORTED, "the method %s is not supported yet", by_align_name(spec->method));
}
