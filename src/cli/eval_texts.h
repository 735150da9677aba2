/* eval_texts.h - prints scores of generated texts. */
#ifndef BY_CLI_EVAL_TEXTS_H
#define BY_CLI_EVAL_TEXTS_H

#include <cjson/cJSON.h>

#include "banyan/evaluate.h"
#include "cli/progress.h"

void cli_text_json(cJSON *j, const by_text_result *r);
void cli_text_print(const by_text_result *r);

/* A progress callback of by_text_evaluate; `user` is the bar, which has been started. */
void cli_text_progress(void *user, const by_text_result *so_far, int64_t total);

#endif
