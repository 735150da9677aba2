/* eval_perplexity.h - prints how well a language model predicts a text. */
#ifndef BY_CLI_EVAL_PERPLEXITY_H
#define BY_CLI_EVAL_PERPLEXITY_H

#include <cjson/cJSON.h>

#include "banyan/evaluate.h"

/* What was measured. */
typedef struct cli_perplexity {
    const char *model, *ngram; /* ngram: that is mixed with it, or NULL */
    const by_perplexity_spec *spec;
    by_dtype dtype;
    const char *weights; /* NULL: as dtype says */
} cli_perplexity;

void cli_perplexity_print(const cli_perplexity *p, const by_perplexity_result *r);
int cli_perplexity_json(const cli_perplexity *p, const by_perplexity_result *r); /* returns an exit code */

/* The parts that all language models have: the first line, and the members of an object. */
void cli_loss_print(const by_perplexity_result *r);
void cli_loss_json(cJSON *j, const by_perplexity_result *r);

/* A progress callback; `user` is the bar, which has been started. */
void cli_perplexity_progress(void *user, const by_perplexity_result *so_far, int64_t total);

#endif
