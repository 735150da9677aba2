/* ops_log_probs.c - shape rules and costs of log-probabilities of tokens and of divergences between logits. */
#include "graph/graph.h"
#include "graph/op_rules.h"

static bool has_a_target_per_row(const gr_node *n)
{
    const by_tensor *x = n->in[0], *targets = n->in[1];
    return x->rank >= 1 && by_dtype_is_float(x->type) && targets->type == BY_I32 &&
           by_elements(targets) == gr_tensor_rows(x);
}

by_status gr_infer_log_probs(gr_node *n)
{
    const by_tensor *targets = n->in[1];
    const by_dtype acc = gr_acc_type(n->in[0]->type);
    if (!has_a_target_per_row(n))
        return gr_mismatch(n, "logits (..., V) and one i32 target for each row");
    for (int i = 0; i < 3; i++)
        BY_TRY(gr_set_output(n, i, acc, targets->rank, targets->dim));
    return BY_OK;
}

by_status gr_infer_log_probs_grad(gr_node *n)
{
    return gr_set_output_like(n, 0, n->in[0]);
}

by_status gr_infer_kl_divergence(gr_node *n)
{
    const by_tensor *x = n->in[0], *z = n->in[1];
    const by_dtype acc = gr_acc_type(x->type);
    if (x->rank < 1 || !by_dtype_is_float(x->type) || z->type != x->type || z->rank != x->rank ||
        memcmp(z->dim, x->dim, sizeof *x->dim * (size_t)x->rank) != 0)
        return gr_mismatch(n, "two tensors (..., V) of logits, of one shape and type");
    BY_TRY(gr_set_output(n, 0, acc, x->rank - 1, x->dim));
    return gr_set_output(n, 1, acc, 2, (int64_t[]){2, gr_tensor_rows(x)});
}

by_status gr_infer_kl_divergence_grad(gr_node *n)
{
    return gr_set_output_like(n, 0, n->in[0]);
}

static gr_cost per_logit(const gr_node *n, double flops)
{
    return gr_cost_of_bytes(n, flops * (double)by_elements(n->in[0]));
}

gr_cost gr_cost_log_probs(const gr_node *n)
{
    return per_logit(n, n->out[2] ? 8 : 5);
}

gr_cost gr_cost_log_probs_grad(const gr_node *n)
{
    return per_logit(n, 5);
}

gr_cost gr_cost_kl_divergence(const gr_node *n)
{
    return per_logit(n, 15);
}

gr_cost gr_cost_kl_divergence_grad(const gr_node *n)
{
    return per_logit(n, 9);
}
