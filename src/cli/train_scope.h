/* train_scope.h - which options of `banyan train` count for which runs. */
#ifndef BY_CLI_TRAIN_SCOPE_H
#define BY_CLI_TRAIN_SCOPE_H

#include "banyan/train.h"
#include "cli/options.h"
#include "models/models.h"

/* Returns false after reporting a number of a new model's shape that the user gave and the family does not
 * have. */
bool cli_shape_fits(const arch_family *a, const cli_args *own);

/* Returns false after reporting an option that the user gave but that would have no effect: one of another
 * objective, of other data, or of the shape of an existing model. An unknown family or objective is reported
 * by the run itself. */
bool cli_train_fits(const by_run_spec *s, const cli_args *own);

#endif
