/* distill_terms.h - terms of by_distill_loss that compare internals of the two models. */
#ifndef BY_ALIGN_DISTILL_TERMS_H
#define BY_ALIGN_DISTILL_TERMS_H

#include "align/terms.h"

/* Inputs of the loss terms. */
typedef struct distill_pair {
    const by_distill_spec *spec;
    by_model_io *student;
    by_model_io teacher; /* the teacher's outputs */
    by_dtype type;       /* accumulator type */
    by_tensor *mask;     /* (B, T) */
    bool causal;
} distill_pair;

/* Hidden states of the student, projected to the width of the teacher's: (..., C). */
by_tensor *distill_projected(by_graph *g, const distill_pair *p, by_tensor *x, const by_tensor *teacher);
/* Cosine distance, 1 - x y / (|x| |y|), over the last axis. */
by_tensor *distill_angle(by_graph *g, by_tensor *x, by_tensor *y);
/* A tensor of the teacher without a gradient. NULL is an error of the graph. */
by_tensor *distill_taught(by_graph *g, by_tensor *x, by_dtype type);

by_tensor *distill_layers(by_graph *g, const distill_pair *p);
by_tensor *distill_attention(by_graph *g, const distill_pair *p);
by_tensor *distill_relations(by_graph *g, const distill_pair *p);

#endif
