/* op_rules.h - shape rules and costs that are defined outside of ops.c, and helpers for all rules. */
#ifndef BY_GRAPH_OP_RULES_H
#define BY_GRAPH_OP_RULES_H

#include "graph/graph.h"

#define GR_OP_RULES(name)                  \
    by_status gr_infer_##name(gr_node *n); \
    gr_cost gr_cost_##name(const gr_node *n);

/* ops_attention.c */
GR_OP_RULES(attention)
GR_OP_RULES(attention_grad)
GR_OP_RULES(attention_cached)
GR_OP_RULES(hash)
GR_OP_RULES(chunked_attention)
GR_OP_RULES(chunked_attention_grad)
GR_OP_RULES(reorder)
GR_OP_RULES(advance)

/* ops_log_probs.c */
GR_OP_RULES(log_probs)
GR_OP_RULES(log_probs_grad)
GR_OP_RULES(kl_divergence)
GR_OP_RULES(kl_divergence_grad)

/* ops_recurrent.c */
GR_OP_RULES(recurrent)
GR_OP_RULES(recurrent_grad)
GR_OP_RULES(additive_scores)
GR_OP_RULES(additive_scores_grad)

#undef GR_OP_RULES

/* Fails with the shapes that the op requires and those it got. */
by_status gr_mismatch(const gr_node *n, const char *wanted);
/* A cost of `flops`, with every input read once and every output written once. */
gr_cost gr_cost_of_bytes(const gr_node *n, double flops);

static inline bool gr_same_shape(const by_tensor *a, const by_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

static inline bool gr_is_vector(const by_tensor *t, int64_t count)
{
    return t->rank == 1 && t->dim[0] == count;
}

#endif
