/* folder.h - the folder of a run: one process at a time, a record of how it began. */
#ifndef BY_TRAIN_FOLDER_H
#define BY_TRAIN_FOLDER_H

#include <cjson/cJSON.h>

#include "base/base.h"

/* Make the folder and lock it until *fd is closed. Another process that trains into it is an error. */
by_status by_folder_lock(const char *out, int *fd);

/* Forget an earlier run in the same folder. */
by_status by_folder_forget(const char *out);

/* How parameters are kept, as run.json says it. */
const char *by_folder_dtype(by_dtype type, bool stochastic_rounding);

/* run.json of a run that is described by one flat object: write it, or see whether a run that goes on asks
 * for the same. Keys in free_keys (with commas around each, ",command,") may differ. */
by_status by_folder_record(const char *out, const cJSON *facts);
by_status by_folder_compare(const char *out, const cJSON *facts, const char *free_keys);

#endif
