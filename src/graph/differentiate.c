/* differentiate.c - reverse-mode differentiation as a graph transformation: walk the nodes backwards, let each op's rule append
 * the nodes of its gradient, and add up what arrives at each tensor. */
#include "graph/graph.h"

/* Can `sum` be added into by the op that makes `part`, in place? Only where the op says so, and where the memory of `sum` belongs
 * to one parameter alone: the gradient buffer, or the result of another such op. */
static bool adds_in_place(const by_tensor *sum, const by_tensor *part)
{
    const by_node *n = part->node;
    if (!n || by_ops[n->op].base < 0 || part->index < by_ops[n->op].from)
        return false;
    if (n->in[by_ops[n->op].base + part->index - by_ops[n->op].from] || sum->type != part->type)
        return false;
    if (!sum->node)
        return sum->place == BY_PLACE_GRAD;
    return by_ops[sum->node->op].base >= 0 && sum->index >= by_ops[sum->node->op].from && sum->node->index < n->index;
}

/* t->grad += part. */
static void collect(by_graph *g, by_tensor *t, by_tensor *part)
{
    if (t->param < 0)
        part = by_cast(g, part, t->type);
    if (!t->grad || g->status != BY_OK) {
        t->grad = part;
    } else if (adds_in_place(t->grad, part)) {
        const by_op_info *op = &by_ops[part->node->op];
        part->node->in[op->base + part->index - op->from] = t->grad;
        t->grad = part;
    } else {
        t->grad = by_add(g, t->grad, by_cast(g, part, t->grad->type));
    }
}

/* The gradient of a parameter must end in its place in the flat buffer. A tensor made by a node of its own can be computed right
 * there; anything else (a view, a tensor that has a place already) is copied. */
static void bind(by_graph *g, by_tensor *param)
{
    by_tensor *d = param->grad;
    if (d->place == BY_PLACE_GRAD && d->param == param->param)
        return; /* nothing was added to it */
    d = by_cast(g, d, by_acc_type(param->type));
    bool own = d->node && d->node->op != BY_OP_RESHAPE && d->place == BY_PLACE_PLANNED && !d->is_output;
    if (!own)
        d = by_node_add(g, BY_OP_COPY, &d, 1, NULL, 0);
    if (g->status != BY_OK)
        return;
    d->place = BY_PLACE_GRAD;
    d->param = param->param;
}

by_status by_graph_differentiate(by_graph *g, by_tensor *loss, by_tensor *loss_scale, by_grad_mode mode)
{
    if (g->status != BY_OK)
        return by_graph_status(g);
    if (loss->rank != 0 || !loss->needs_grad)
        return by_fail(BY_ERR_ARGUMENT, "%s cannot be differentiated: %s", by_tensor_label(loss),
                       loss->rank ? "it is not a scalar" : "it depends on no trainable parameter, or the graph is not for training");
    int forward = g->n_nodes;
    g->backward = true;
    loss->grad = loss_scale ? by_cast(g, loss_scale, loss->type) : by_fill(g, loss->type, 0, NULL, 1);
    int n_leaves = g->n_leaves;
    for (int i = 0; i < n_leaves && mode == BY_GRAD_ADD; i++)
        if (by_wants_grad(g->leaves[i]))
            g->leaves[i]->grad = by_grad_leaf(g, g->leaves[i]);

    for (int i = forward - 1; i >= 0 && g->status == BY_OK; i--) {
        by_node *n = g->nodes[i];
        by_tensor *dout[BY_MAX_OUTPUTS] = {NULL}, *din[BY_MAX_INPUTS] = {NULL};
        bool arrives = false;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] && n->out[k]->needs_grad && n->out[k]->grad) {
                dout[k] = n->out[k]->grad;
                arrives = true;
            }
        if (!arrives)
            continue;
        int scope = (int)strlen(n->scope);
        by_scope_push(g, "%.*s", scope ? scope - 1 : 0, n->scope); /* without its last dot */
        by_ops[n->op].grad(g, n, dout, din);
        by_scope_pop(g);
        for (int k = 0; k < n->n_in && g->status == BY_OK; k++)
            if (by_wants_grad(n->in[k]) && din[k])
                collect(g, n->in[k], din[k]);
    }
    for (int i = 0; i < n_leaves && g->status == BY_OK; i++)
        if (by_wants_grad(g->leaves[i]) && g->leaves[i]->place == BY_PLACE_PARAM && g->leaves[i]->grad)
            bind(g, g->leaves[i]);
    g->backward = false;
    return by_graph_status(g);
}
