/* metrics.h - the figures the field judges tasks by, streamed: of each example a few counts stay, never its
 * logits. */
#ifndef BY_TRAIN_METRICS_H
#define BY_TRAIN_METRICS_H

#include "banyan/train.h"
#include "base/base.h"

typedef enum by_metrics_kind {
    BY_METRICS_CLASSES,  /* accuracy, F1 (of label 1 where there are two; macro), Matthews */
    BY_METRICS_EACH,     /* of many labels: F1 (micro, macro), accuracy of whole examples */
    BY_METRICS_NUMBERS,  /* Pearson, Spearman, mean squared error */
    BY_METRICS_ENTITIES, /* precision, recall and F1 of entities (BIO and relatives, as seqeval), accuracy */
    BY_METRICS_TAGS,     /* labels of words that are no entities: accuracy, macro F1 */
    BY_METRICS_ANSWERS   /* exact match and F1 of SQuAD */
} by_metrics_kind;

typedef struct by_metrics by_metrics;
/* names (labels of them) are borrowed, and may be NULL where none are needed. NULL on failure. */
by_metrics *by_metrics_new(by_metrics_kind kind, const char *const *names, int labels);
void by_metrics_free(by_metrics *m);
/* ENTITIES when a label begins with "B-" or "I-", else TAGS. */
by_metrics_kind by_metrics_of_tags(const char *const *names, int labels);

/* One example each. */
void by_metrics_class(by_metrics *m, int predicted, int actual);
void by_metrics_each(by_metrics *m, const uint8_t *predicted,
                     const uint8_t *actual); /* 0 or 1, labels of them */
by_status by_metrics_number(by_metrics *m, double predicted, double actual);
void by_metrics_tags(by_metrics *m, const int *predicted, const int *actual, int words);
/* actual: what is right; none: there is no answer. predicted "": none was found. Texts are normalised as the
 * official script does: lower case, without punctuation and articles. */
by_status by_metrics_answer(by_metrics *m, const char *predicted, const char *const *actual, int count);

/* What has come out so far: at most BY_METRICS_MAX figures. The first one says which of two models is better,
 * and more is better. */
int by_metrics_read(const by_metrics *m, by_metric out[BY_METRICS_MAX]);
int64_t by_metrics_count(const by_metrics *m); /* examples */

#endif
