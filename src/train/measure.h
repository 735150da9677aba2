/* measure.h - how far two tensors are apart, and how far they may be. */
#ifndef BY_TRAIN_MEASURE_H
#define BY_TRAIN_MEASURE_H

#include "banyan/verify.h"

/* What a tensor is decides how it is judged. */
typedef enum by_subject {
    BY_SUBJECT_OUTPUT,   /* logits, hidden states, attention weights */
    BY_SUBJECT_LOSS,     /* of one pass */
    BY_SUBJECT_GRADIENT, /* of one parameter */
    BY_SUBJECT_TOKENS,   /* generated */
    BY_SUBJECT_COURSE,   /* losses and gradient norms of training steps */
    BY_SUBJECT_TRAINED,  /* a parameter after training */
    BY_SUBJECT_COUNT
} by_subject;

typedef struct by_rule {
    by_measure measure;
    double bound;
    double floor; /* share of the caller's `whole` that |b| counts as at least */
} by_rule;
by_rule by_rule_for(by_subject subject, by_dtype dtype);

/* The error of a against b, n elements each. `whole` is a norm that makes small tensors comparable (see
 * floor), 0 for none. Infinity when a number is missing on one side only: NaN, or an infinity that the other
 * does not have. */
double by_measure_error(const by_rule *rule, const float *a, const float *b, size_t n, double whole);

#endif
