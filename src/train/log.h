/* log.h - what a run writes for people and for other programs: metrics.jsonl, TensorBoard events, loss.svg,
 * run.json. */
#ifndef BY_TRAIN_LOG_H
#define BY_TRAIN_LOG_H

#include "banyan/train.h"

typedef struct by_log by_log;

/* Open the logs of a run folder at a step: metrics of later steps, written before a crash, are cut off; those
 * before stay. */
by_log *by_log_open(const char *out, int64_t step);
void by_log_close(by_log *l);

/* Remove the logs of an earlier run. */
by_status by_log_remove(const char *out);

/* One line of metrics.jsonl, and the same to TensorBoard. */
by_status by_log_write(by_log *l, const by_report *r);

/* Draw loss.svg from everything logged so far. */
by_status by_log_draw(by_log *l, const char *title);

#endif
