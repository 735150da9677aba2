/* seq2seq.h - `banyan finetune --task seq2seq`: texts to be written from texts. */
#ifndef BY_CLI_SEQ2SEQ_H
#define BY_CLI_SEQ2SEQ_H

#include "banyan/finetune.h"
#include "cli/options.h"

typedef struct cli_seq2seq {
    cli_list prefixes;
    const char *words;            /* that labels stand for, with commas; or NULL */
    int batch_tokens, eval_texts; /* eval_texts: written to be judged with the best model; 0: none */
    double label_smoothing;
    bool json, curve, quiet;
} cli_seq2seq;

/* Tune with the batches and the loop of by_train_run; the best model is left in spec->out, and what it writes
 * is compared with the targets of the evaluation set. The status is that of the run, and the result is
 * printed when it is BY_OK. */
by_status cli_tune_seq2seq(by_device *d, const by_finetune_spec *spec, const cli_seq2seq *o);

#endif
