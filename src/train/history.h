/* history.h - the values of a run's metrics.jsonl that are drawn: losses, and the metric that decides which
 * model is better. */
#ifndef BY_TRAIN_HISTORY_H
#define BY_TRAIN_HISTORY_H

#include "base/json.h"
#include "io/curve.h"

typedef struct by_series {
    double *x, *y;
    size_t count, capacity;
} by_series;

typedef struct by_history { /* the zero state is empty */
    by_series loss, eval, metric;
    int kind;     /* of the metric: 1 + its place in the table of known ones, or 0 */
    bool percent; /* the metric is from 0 to 100 */
    char unit[64];
    by_curve_series series[3];
    by_curve_panel panels[2];
} by_history;

void by_history_free(by_history *h);

/* Take over a value by its key in metrics.jsonl. Keys that are not drawn are ignored. */
by_status by_history_add(by_history *h, int64_t step, const char *key, double value);
/* All values of a line. */
by_status by_history_add_line(by_history *h, const cJSON *line);
/* All lines of a run folder's file; torn ones are skipped. */
by_status by_history_read(by_history *h, const char *folder);

/* The losses, and below them the metric where there is one. loss_unit: "nats per token". It stays valid until
 * the history changes. */
by_curve by_history_curve(by_history *h, const char *title, const char *loss_unit);

#endif
