/* measure.h - the error between two tensors, and its bounds. */
#ifndef BY_VERIFY_MEASURE_H
#define BY_VERIFY_MEASURE_H

#include "banyan/verify.h"

/* The kind of tensor, which determines the measure and the bound. */
typedef enum verify_subject {
    VERIFY_SUBJECT_OUTPUT,      /* logits, hidden states, attention weights */
    VERIFY_SUBJECT_LOSS,        /* loss of one pass */
    VERIFY_SUBJECT_GRADIENT,    /* gradient of one parameter */
    VERIFY_SUBJECT_TOKENS,      /* generated tokens */
    VERIFY_SUBJECT_STEP_VALUES, /* losses and gradient norms of training steps */
    VERIFY_SUBJECT_TRAINED,     /* a parameter after training */
    VERIFY_SUBJECT_COUNT
} verify_subject;

typedef struct verify_rule {
    by_measure measure;
    double bound;
    double floor; /* |b| is at least this fraction of the caller's `whole` */
} verify_rule;
verify_rule verify_rule_for(verify_subject subject, by_dtype dtype);

/* Returns the error of a against b, n elements each. `whole` is a norm that makes small tensors comparable
 * (see floor), or 0. Returns infinity if only one side is NaN, or if an infinity on one side is not on the
 * other. */
double verify_measure_error(const verify_rule *rule, const float *a, const float *b, size_t n, double whole);

#endif
