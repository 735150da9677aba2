/* policy_options.h - options of the methods of `banyan align` that sample answers. */
#ifndef BY_CLI_POLICY_OPTIONS_H
#define BY_CLI_POLICY_OPTIONS_H

#include "banyan/align_policy.h"
#include "cli/options.h"

/* What the options hold besides the by_policy_run of the spec. */
typedef struct cli_policy_options {
    int unused;
} cli_policy_options;

/* Rows for `policy`, a by_policy_run, and `p`, a cli_policy_options, both members of the verb's options of this type; each row ends with a comma. */
#define CLI_POLICY_ROWS(type, policy, p)

/* Completes the spec from the options. False: an error has been shown. */
bool cli_policy_read(cli_policy_options *o, const cli_args *args, by_policy_run *out);
void cli_policy_free(cli_policy_options *o);

#endif
