/* show_answers.h - `banyan align --show-batch`. */
#ifndef BY_CLI_SHOW_ANSWERS_H
#define BY_CLI_SHOW_ANSWERS_H

#include "banyan/align_run.h"

/* Prints rows of the run; returns the exit code. */
int cli_show_answers(by_device *d, const by_align_spec *spec, int count, bool json, bool quiet);

#endif
