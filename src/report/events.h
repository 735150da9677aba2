/* events.h - scalars for TensorBoard: an append-only events.out.tfevents.* file. */
#ifndef BY_REPORT_EVENTS_H
#define BY_REPORT_EVENTS_H

#include "base/base.h"

typedef struct report_events report_events;

/* Start a new event file dir/events.out.tfevents.<unix time>.<host>.<pid>, making dir when needed. A run that
 * resumes simply opens another one in the same directory; viewers join them. NULL on failure. */
report_events *report_events_open(const char *dir);

/* Append one point of the curve `tag`, stamped with the present time. After a failed write every later call
 * fails too: a viewer stops at the first torn record, so nothing behind it would be seen. */
by_status report_events_scalar(report_events *e, int64_t step, const char *tag, double value);

/* Hand what was written to the operating system, where a viewer sees it. */
by_status report_events_flush(report_events *e);

/* Flush, close and free. NULL is legal. */
by_status report_events_close(report_events *e);

/* The file's path; lives as long as e. */
const char *report_events_path(const report_events *e);

#endif
