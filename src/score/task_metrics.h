/* task_metrics.h - the standard metrics of tasks, accumulated over a stream of examples: only counts are
 * kept, never logits. */
#ifndef BY_SCORE_TASK_METRICS_H
#define BY_SCORE_TASK_METRICS_H

#include "banyan/score.h"
#include "base/base.h"

typedef enum score_metrics_kind {
    SCORE_METRICS_CLASSES, /* accuracy, F1 (of label 1 if there are two, and macro), Matthews */
    SCORE_METRICS_EACH,    /* multi-label: F1 (micro, macro), exact-match accuracy */
    SCORE_METRICS_NUMBERS, /* Pearson, Spearman, mean squared error */
    /* Precision, recall and F1 of entities (BIO and variants, as seqeval), accuracy. */
    SCORE_METRICS_ENTITIES,
    SCORE_METRICS_TAGS,   /* word labels that are not entities: accuracy, macro F1 */
    SCORE_METRICS_ANSWERS /* SQuAD exact match and F1 */
} score_metrics_kind;

typedef struct score_metrics score_metrics;
/* names has `labels` entries, is borrowed, and may be NULL if the kind needs none. Returns NULL on
 * failure. */
score_metrics *score_metrics_new(score_metrics_kind kind, const char *const *names, int labels);
void score_metrics_free(score_metrics *m);
/* Returns ENTITIES if a label starts with "B-" or "I-", otherwise TAGS. */
score_metrics_kind score_metrics_of_tags(const char *const *names, int labels);

/* Each call adds one example. */
void score_metrics_class(score_metrics *m, int predicted, int actual);
/* Values are 0 or 1, `labels` of them. */
void score_metrics_each(score_metrics *m, const uint8_t *predicted, const uint8_t *actual);
by_status score_metrics_number(score_metrics *m, double predicted, double actual);
void score_metrics_tags(score_metrics *m, const int *predicted, const int *actual, int words);
/* actual: the accepted answers; none: the question has no answer. predicted "": no answer was found. Texts
 * are normalised as in the official script: lower case, without punctuation and articles. */
by_status score_metrics_answer(score_metrics *m, const char *predicted, const char *const *actual, int count);

/* Reads the metrics so far, at most BY_METRICS_MAX. The first one ranks models; higher is better. */
int score_metrics_read(const score_metrics *m, by_metric out[BY_METRICS_MAX]);
int64_t score_metrics_count(const score_metrics *m); /* number of examples */

#endif
