/* history.h - the values of a run's metrics.jsonl that are drawn: losses, and the metric that decides which
 * model is better. */
#ifndef BY_REPORT_HISTORY_H
#define BY_REPORT_HISTORY_H

#include "base/json.h"
#include "report/curve.h"

typedef struct report_series {
    double *x, *y;
    size_t count, capacity;
} report_series;

typedef struct report_history { /* the zero state is empty */
    report_series loss, eval, metric;
    int kind;     /* of the metric: 1 + its place in the table of known ones, or 0 */
    bool percent; /* the metric is from 0 to 100 */
    char unit[64];
    report_curve_series series[3];
    report_curve_panel panels[2];
} report_history;

void report_history_free(report_history *h);

/* Take over a value by its key in metrics.jsonl. Keys that are not drawn are ignored. */
by_status report_history_add(report_history *h, int64_t step, const char *key, double value);
/* All values of a line. */
by_status report_history_add_line(report_history *h, const cJSON *line);
/* All lines of a run folder's file; torn ones are skipped. */
by_status report_history_read(report_history *h, const char *folder);

/* The losses, and below them the metric where there is one. loss_unit: "nats per token". It stays valid until
 * the history changes. */
report_curve report_history_curve(report_history *h, const char *title, const char *loss_unit);

#endif
