/* lora.h - the options --lora, --ia3, --prefix-tuning and --prompt-tuning: an adapter in one word. */
#ifndef BY_CLI_LORA_H
#define BY_CLI_LORA_H

#include "banyan/adapter.h"
#include "cli/options.h"

/* The options as given; NULL: not given. */
typedef struct cli_adapter_words {
    const char *lora, *ia3, *prefix, *prompt;
} cli_adapter_words;

/* Rows of the table of options. member: the cli_adapter_words in them. */
#define CLI_ADAPTER_ROWS(type, member)                                                                       \
    {CLI_AT(type, member.lora), .name = "lora", .value = "r=N,alpha=N,...",                                  \
     .help = "train an adapter, not the model: r, alpha, dropout, targets=all-linear or names or a regular " \
             "expression, save=MODULES, bias=none|lora_only|all, layers=NUMBERS, tokens=IDS, dora, rslora"}, \
        {CLI_AT(type, member.ia3), .name = "ia3", .value = "default|targets=...,...",                        \
         .help =                                                                                             \
             "train factors of outputs and inputs (IA3): targets as for --lora, feedforward=NAMES (targets " \
             "whose inputs are scaled), save=MODULES"},                                                      \
        {CLI_AT(type, member.prefix), .name = "prefix-tuning", .value = "N",                                 \
         .help = "train keys and values of N positions before every text (decoders)"},                       \
    {                                                                                                        \
        CLI_AT(type, member.prompt), .name = "prompt-tuning", .value = "N",                                  \
                                     .help = "train embeddings of N positions before every text (decoders)"  \
    }

typedef struct cli_lora {
    by_adapter_spec spec;
    char *text;        /* memory of the lists of the spec */
    const char *words; /* the option as given; NULL: no adapter */
} cli_lora;

/* At most one of the options is not NULL. "r=16,alpha=32,targets=q_proj,v_proj,dora": a part without "=" that
 * is not a switch continues the list before it. The message of an error is for the user. cli_lora_free in
 * every case. */
by_status cli_lora_parse(const cli_adapter_words *words, cli_lora *out);
void cli_lora_free(cli_lora *l);

#endif
