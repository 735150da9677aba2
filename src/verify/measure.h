/* measure.h - how far two tensors are apart, and how far they may be. */
#ifndef BY_VERIFY_MEASURE_H
#define BY_VERIFY_MEASURE_H

#include "banyan/verify.h"

/* What a tensor is decides how it is judged. */
typedef enum verify_subject {
    VERIFY_SUBJECT_OUTPUT,   /* logits, hidden states, attention weights */
    VERIFY_SUBJECT_LOSS,     /* of one pass */
    VERIFY_SUBJECT_GRADIENT, /* of one parameter */
    VERIFY_SUBJECT_TOKENS,   /* generated */
    VERIFY_SUBJECT_COURSE,   /* losses and gradient norms of training steps */
    VERIFY_SUBJECT_TRAINED,  /* a parameter after training */
    VERIFY_SUBJECT_COUNT
} verify_subject;

typedef struct verify_rule {
    by_measure measure;
    double bound;
    double floor; /* share of the caller's `whole` that |b| counts as at least */
} verify_rule;
verify_rule verify_rule_for(verify_subject subject, by_dtype dtype);

/* The error of a against b, n elements each. `whole` is a norm that makes small tensors comparable (see
 * floor), 0 for none. Infinity when a number is missing on one side only: NaN, or an infinity that the other
 * does not have. */
double verify_measure_error(const verify_rule *rule, const float *a, const float *b, size_t n, double whole);

#endif
