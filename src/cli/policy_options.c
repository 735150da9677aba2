/* policy_options.c - see policy_options.h. */
#include "cli/policy_options.h"

bool cli_policy_read(cli_policy_options *o, const cli_args *args, by_policy_run *out)
{
    (void)o;
    (void)args;
    (void)out;
    return true;
}

void cli_policy_free(cli_policy_options *o)
{
    (void)o;
}
