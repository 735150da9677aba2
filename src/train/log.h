/* log.h - the logs of a run: metrics.jsonl, TensorBoard events, loss.svg, run.json. */
#ifndef BY_TRAIN_LOG_H
#define BY_TRAIN_LOG_H

#include "train/folder.h"

typedef struct train_log train_log;

/* Opens the logs of a run folder at a step: metrics of later steps, written before a crash, are removed. The
 * folder is borrowed. Logs never end a run: a file that cannot be written is abandoned with one warning.
 * Returns NULL only if out of memory. */
train_log *train_log_open(train_folder *f, int64_t step);
void train_log_close(train_log *l);

/* Writes one line to metrics.jsonl, and the same values to TensorBoard. */
void train_log_write(train_log *l, const by_report *r);

/* Draws loss.svg from everything logged so far: training and held-out loss, and the metric that selects the
 * best model, if any. loss_unit: "nats per token". */
void train_log_draw(train_log *l, const char *title, const char *loss_unit);

/* The title of a run with one model. */
void train_log_title(base_buf *out, const by_model *m, const char *task);

#endif
