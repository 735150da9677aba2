/* eval_texts.h - models that write texts, judged by what they should have written. */
#ifndef BY_CLI_EVAL_TEXTS_H
#define BY_CLI_EVAL_TEXTS_H

#include <cjson/cJSON.h>

#include "banyan/model.h"
#include "banyan/score.h"
#include "cli/options.h"
#include "text/tokenizer.h"

typedef struct cli_texts_options {
    const char *metric, *prefix, *words, *task;
    int beams;
    const char *source_column, *target_column; /* of tables, or NULL */
    const char *predictions;                   /* a file for what was written, or NULL */
    int batch, limit;                          /* sources at once; texts at most, 0: all */
    bool json, quiet;
    bool plain; /* without generation_config.json */
} cli_texts_options;

/* How near texts come to their references; NULL: not asked for. */
typedef struct cli_figures {
    by_bleu *bleu;
    by_chrf *chrf;
    by_rouge *rouge;
    int64_t texts, exact;
    double seconds;
} cli_figures;

/* Write what the sources of `files` become and compare. To be closed also after a failure. */
by_status cli_figures_make(by_model *m, const by_tokenizer *t, const char *dir, const cli_list *files,
                           const cli_texts_options *o, cli_figures *out);
void cli_figures_close(cli_figures *f);
void cli_figures_json(cli_figures *f, cJSON *j);
void cli_figures_print(cli_figures *f);

/* Translate the sources of `files` (two of lines, or one table) and print how near the texts come to their
 * references. `dir` is the model's directory. Returns an exit code. */
int cli_eval_texts(by_model *m, const by_tokenizer *t, const char *dir, const cli_list *files,
                   const cli_texts_options *o);

#endif
