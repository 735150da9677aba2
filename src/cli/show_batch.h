/* show_batch.h - `banyan train --show-batch`. */
#ifndef BY_CLI_SHOW_BATCH_H
#define BY_CLI_SHOW_BATCH_H

#include "banyan/train.h"

/* Print rows of the run; returns the exit code. */
int cli_show_examples(by_device *d, const by_run_spec *spec, int count, bool json);

#endif
