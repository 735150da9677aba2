/* verbs.h - what a verb of the program is, and the list of them. A verb's file includes this and exports one
 * constant. */
#ifndef BY_CLI_VERBS_H
#define BY_CLI_VERBS_H

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"

struct cli_verb {
    const char *name;        /* "train" */
    const char *summary;     /* one line, lower case, no full stop */
    const char *usage;       /* what follows "banyan VERB" on the usage line; NULL: "[options]" and .args */
    const char *description; /* paragraphs, wrapped when shown; lines that start with a space stay */
    const char *examples;    /* command lines, and lines that start with # to explain them */
    const cli_option *options;
    int option_count;
    int (*run)(int argc, char **argv); /* argv[0] is the verb's name; returns an exit code of report.h */
    const char *args;                  /* positionals: "MODEL [TEXT...]", "train|decode"; NULL: none */
};

extern const cli_verb cli_train, cli_generate, cli_eval, cli_inspect, cli_verify, cli_bench, cli_devices,
    cli_tokenize, cli_attention, cli_embed, cli_fill, cli_classify, cli_tag;

#endif
