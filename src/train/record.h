/* record.h - run.json: everything needed to repeat a run, and what must not change when it is resumed. */
#ifndef BY_TRAIN_RECORD_H
#define BY_TRAIN_RECORD_H

#include <cjson/cJSON.h>

#include "banyan/adapter.h"
#include "banyan/train.h"

typedef enum train_rule {
    TRAIN_SAME,    /* a resumed run must have the same value */
    TRAIN_YOUNGER, /* the same; older records lack it, which means `missing` */
    TRAIN_PATH,    /* the same file, however its path is written */
    TRAIN_FREE     /* may change */
} train_rule;

typedef struct train_fact {
    const char *key;
    train_rule rule;
    const char *text; /* NULL: a number */
    double number;
    const char *absent; /* default for records without the key; NULL: "" */
    double missing;     /* the same for numbers */
} train_fact;

enum { TRAIN_FACTS_MAX = 192 };
typedef struct train_record {
    train_fact facts[TRAIN_FACTS_MAX]; /* in the order of the file */
    int count;
    bool full;               /* too many facts: the record cannot be written */
    const char *options;     /* the member "options": a JSON object as text, or NULL */
    const char *const *data; /* the member "data" as a list of files, or NULL */
    int data_count;
} train_record;

void train_record_number(train_record *r, const char *key, double value, train_rule rule);
/* A number that older records lack. missing: what it was in their runs; NaN: unknown, so that they go on with any. */
void train_record_newer(train_record *r, const char *key, double value, double missing);
void train_record_text(train_record *r, const char *key, const char *value, train_rule rule); /* NULL: "" */
/* An adapter in words, under the name of its method. */
void train_record_adapter(train_record *r, const by_adapter_spec *adapter, const char *words);
void train_record_optimizer(train_record *r, const by_optimizer_spec *o); /* without its kind and momentum */

by_status train_record_write(const char *out, const train_record *r);
/* The error names the first fact that differs. */
by_status train_record_compare(const char *out, const train_record *r);
/* *first: the number of steps that the run was started with, which determines the warm-up; *longer: more
 * steps are requested than recorded. */
by_status train_record_recall(const char *out, int64_t asked, int64_t *first, bool *longer);

/* The storage of parameters as recorded in run.json. */
const char *train_record_dtype(by_dtype type, bool stochastic_rounding);

#endif
