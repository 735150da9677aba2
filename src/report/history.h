/* history.h - the values of metrics.jsonl that are drawn: losses, and the metric that ranks models. */
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
    int kind;     /* the metric: 1 + its index in the table of known ones; 0: none */
    bool percent; /* the metric ranges from 0 to 100 */
    char unit[64];
    report_curve_series series[3];
    report_curve_panel panels[2];
} report_history;

void report_history_free(report_history *h);

/* Adds a value by its key in metrics.jsonl. Keys that are not drawn are ignored. */
by_status report_history_add(report_history *h, int64_t step, const char *key, double value);
/* Adds all values of a line. */
by_status report_history_add_line(report_history *h, const cJSON *line);
/* Adds all lines of a run's metrics.jsonl. Incomplete lines are skipped. */
by_status report_history_read(report_history *h, const char *folder);

/* Returns the losses and, below them, the metric if there is one. loss_unit: "nats per token". The result is
 * valid until the history changes. */
report_curve report_history_curve(report_history *h, const char *title, const char *loss_unit);

#endif
