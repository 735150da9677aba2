/* lora.h - the options --lora, --ia3 and --prefix-tuning: an adapter in one word. */
#ifndef BY_CLI_LORA_H
#define BY_CLI_LORA_H

#include "banyan/adapter.h"
#include "cli/options.h"

#define CLI_LORA_ROW(type, member)                                                                        \
    {                                                                                                     \
        CLI_AT(type, member),                                                                             \
            .name = "lora", .value = "r=N,alpha=N,...",                                                   \
            .help = "train an adapter, not the model: r, alpha, dropout, targets=all-linear or names or " \
                    "a regular expression, save=MODULES, bias=none|lora_only|all, layers=NUMBERS, dora, " \
                    "rslora"                                                                              \
    }

#define CLI_IA3_ROW(type, member)                                                                          \
    {                                                                                                      \
        CLI_AT(type, member), .name = "ia3", .value = "default|targets=...,...",                           \
                              .help = "train factors of outputs and inputs (IA3): targets as for --lora, " \
                                      "feedforward=NAMES (targets whose inputs are scaled), save=MODULES"  \
    }

#define CLI_PREFIX_ROW(type, member)                                                               \
    {                                                                                              \
        CLI_AT(type, member),                                                                      \
            .name = "prefix-tuning", .value = "N",                                                 \
            .help = "train keys and values of N positions that stand before every text (decoders)" \
    }

typedef struct cli_lora {
    by_adapter_spec spec;
    char *text;        /* what the lists of the spec are parts of */
    const char *words; /* the option as given; NULL: no adapter */
} cli_lora;

/* At most one of the options is not NULL. "r=16,alpha=32,targets=q_proj,v_proj,dora": a part without "=" that is not a switch
 * continues the list before it. The message of an error is for the user. cli_lora_free in every case. */
by_status cli_lora_parse(const char *lora, const char *ia3, const char *prefix, cli_lora *out);
void cli_lora_free(cli_lora *l);

#endif
