/* events.h - scalars for TensorBoard: an append-only events.out.tfevents.* file. */
#ifndef BY_REPORT_EVENTS_H
#define BY_REPORT_EVENTS_H

#include "base/base.h"

typedef struct report_events report_events;

/* Starts a new event file dir/events.out.tfevents.<unix time>.<host>.<pid>, creating dir if necessary. A
 * resumed run simply opens another one in the same directory; viewers join them. Returns NULL on failure. */
report_events *report_events_open(const char *dir);

/* Appends one point of the curve `tag`, stamped with the current time. After a failed write every later call
 * fails too: a viewer stops at the first torn record and would not see anything after it. */
by_status report_events_scalar(report_events *e, int64_t step, const char *tag, double value);

/* Hands buffered data to the operating system, so that a viewer sees it. */
by_status report_events_flush(report_events *e);

/* Flushes, closes and frees. NULL is a no-op. */
by_status report_events_close(report_events *e);

/* The path of the file; lives as long as e. */
const char *report_events_path(const report_events *e);

#endif
