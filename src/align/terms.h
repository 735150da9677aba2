/* terms.h - shared by the alignment losses (banyan/align.h). */
#ifndef BY_ALIGN_TERMS_H
#define BY_ALIGN_TERMS_H

#include "banyan/align.h"

/* Log-probabilities of the tokens of answers. */
typedef struct train_answers {
    by_tensor *logps;   /* (B, T), or (N) for picked positions; 0 where there is no target */
    by_tensor *mask;    /* mask of the same shape and type: 1 where there is a target */
    by_tensor *entropy; /* of the same shape, without a gradient */
    by_tensor *rows;    /* (N): the row of each in the batch; NULL: not picked */
    int64_t batch;
} train_answers;
/* Reads the array `targets`. Makes "token_logps", "entropy" and "logps" readable in io. */
train_answers train_answers_of(by_graph *g, by_model_io *io, double temperature);
/* Sums over the tokens of each answer, (B). */
by_tensor *train_answer_sums(by_graph *g, const train_answers *a, by_tensor *x);
/* (B): tokens of each answer, at least 1. */
by_tensor *train_answer_lengths(by_graph *g, const train_answers *a);

/* An array of the batch, cast to the type of `like`. A missing array is an error of the graph. */
by_tensor *train_array(by_graph *g, const by_model_io *io, const char *name, const by_tensor *like);
/* Makes a tensor readable under a name. It has no gradient. */
void train_keep(by_graph *g, by_model_io *io, const char *name, by_tensor *t);

by_tensor *train_total(by_graph *g, by_tensor *x);                        /* the sum of all elements */
by_tensor *train_shift(by_graph *g, by_tensor *x, double by);             /* x + by */
by_tensor *train_masked_mean(by_graph *g, by_tensor *x, by_tensor *mask); /* mean over unmasked elements */
by_tensor *train_log_sigmoid(by_graph *g, by_tensor *x);
by_tensor *train_log1mexp(by_graph *g, by_tensor *x); /* log(1 - e^x) for x < 0 */

static inline double train_or(double value, double usual)
{
    return value != 0 ? value : usual;
}

/* An explicit 0 for a member in which 0 means the default. */
static inline double train_literal(double value)
{
    return value != 0 ? value : 1e-30;
}

#endif
