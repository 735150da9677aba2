/* eval_texts.h - models that write texts, judged by what they should have written. */
#ifndef BY_CLI_EVAL_TEXTS_H
#define BY_CLI_EVAL_TEXTS_H

#include "banyan/model.h"
#include "cli/options.h"
#include "text/tokenizer.h"

typedef struct cli_texts_options {
    const char *metric, *prefix, *words, *task;
    int beams;
    const char *source_column, *target_column; /* of tables, or NULL */
    const char *predictions;                   /* a file for what was written, or NULL */
    int batch;
    bool json, quiet;
} cli_texts_options;

/* Translate the sources of `files` (two of lines, or one table) and print how near the texts come to their
 * references. `dir` is the model's directory. Returns an exit code. */
int cli_eval_texts(by_model *m, const by_tokenizer *t, const char *dir, const cli_list *files,
                   const cli_texts_options *o);

#endif
