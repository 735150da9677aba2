/* verbs.h - verbs of the program, and their list. A verb's file includes this and exports one constant. */
#ifndef BY_CLI_VERBS_H
#define BY_CLI_VERBS_H

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"

struct cli_verb {
    const char *name;        /* "train" */
    const char *group;       /* heading in the overview of this verb and of those after it, or NULL */
    const char *summary;     /* one line, lower case, no full stop */
    const char *usage;       /* the usage line after "banyan VERB"; NULL: "[options]" and .args */
    const char *description; /* paragraphs, wrapped when shown; lines that start with a space stay */
    const char *examples;    /* command lines, and lines that start with # to explain them */
    const cli_option *options;
    int option_count;
    int (*run)(int argc, char **argv); /* argv[0] is the verb's name; returns an exit code of report.h */
    const char *args;                  /* positionals: "MODEL [TEXT...]", "train|decode"; NULL: none */
};

/* One per line, in the order of the overview. */
#define CLI_VERBS(X)       \
    X(cli_train)           \
    X(cli_finetune)        \
    X(cli_align)           \
    X(cli_distill)         \
    X(cli_train_tokenizer) \
    X(cli_generate)        \
    X(cli_translate)       \
    X(cli_summarize)       \
    X(cli_caption)         \
    X(cli_fill)            \
    X(cli_classify)        \
    X(cli_tag)             \
    X(cli_answer)          \
    X(cli_embed)           \
    X(cli_eval)            \
    X(cli_score)           \
    X(cli_verify)          \
    X(cli_bench)           \
    X(cli_tokenize)        \
    X(cli_inspect)         \
    X(cli_attention)       \
    X(cli_convert)         \
    X(cli_devices)

#define CLI_DECLARE(name) extern const cli_verb name;
CLI_VERBS(CLI_DECLARE)
#undef CLI_DECLARE

#endif
