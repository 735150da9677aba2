/* task_metrics.h - the figures the field judges tasks by, streamed: of each example a few counts stay, never its
 * logits. */
#ifndef BY_SCORE_TASK_METRICS_H
#define BY_SCORE_TASK_METRICS_H

#include "banyan/score.h"
#include "base/base.h"

typedef enum score_metrics_kind {
    SCORE_METRICS_CLASSES, /* accuracy, F1 (of label 1 where there are two; macro), Matthews */
    SCORE_METRICS_EACH,    /* of many labels: F1 (micro, macro), accuracy of whole examples */
    SCORE_METRICS_NUMBERS, /* Pearson, Spearman, mean squared error */
    SCORE_METRICS_ENTITIES, /* precision, recall and F1 of entities (BIO and relatives, as seqeval), accuracy */
    SCORE_METRICS_TAGS,     /* labels of words that are no entities: accuracy, macro F1 */
    SCORE_METRICS_ANSWERS   /* exact match and F1 of SQuAD */
} score_metrics_kind;

typedef struct score_metrics score_metrics;
/* names (labels of them) are borrowed, and may be NULL where none are needed. NULL on failure. */
score_metrics *score_metrics_new(score_metrics_kind kind, const char *const *names, int labels);
void score_metrics_free(score_metrics *m);
/* ENTITIES when a label begins with "B-" or "I-", else TAGS. */
score_metrics_kind score_metrics_of_tags(const char *const *names, int labels);

/* One example each. */
void score_metrics_class(score_metrics *m, int predicted, int actual);
void score_metrics_each(score_metrics *m, const uint8_t *predicted,
                        const uint8_t *actual); /* 0 or 1, labels of them */
by_status score_metrics_number(score_metrics *m, double predicted, double actual);
void score_metrics_tags(score_metrics *m, const int *predicted, const int *actual, int words);
/* actual: what is right; none: there is no answer. predicted "": none was found. Texts are normalised as the
 * official script does: lower case, without punctuation and articles. */
by_status score_metrics_answer(score_metrics *m, const char *predicted, const char *const *actual, int count);

/* What has come out so far: at most BY_METRICS_MAX figures. The first one says which of two models is better,
 * and more is better. */
int score_metrics_read(const score_metrics *m, by_metric out[BY_METRICS_MAX]);
int64_t score_metrics_count(const score_metrics *m); /* examples */

#endif
