/* differentiate.c - reverse-mode differentiation as a graph transformation: walks the nodes backwards, lets
 * each op's rule append the nodes of its gradient, and sums the gradients of each tensor. */
#include "graph/graph.h"

/* Whether the op that computes `part` can add it in place to an earlier gradient. This requires a base input,
 * and that the rule of an op that reads the parameter itself created the node (node `made` or later): a
 * gradient that is passed through may also be that of other tensors. */
static bool adds_in_place(const by_tensor *part, int made)
{
    const gr_node *n = part->node;
    return n && n->index >= made && gr_base_of(&gr_ops[n->op], part->index) >= 0;
}

/* Marks a tensor that is computed for a single parameter. */
static void mark(by_tensor *t, const by_tensor *param)
{
    t->param = param->param;
    t->params = param->params;
}

static bool is_of(const by_tensor *t, const by_tensor *param)
{
    return t->param == param->param && t->params == param->params;
}

/* t->grad += part. Gradients of parameters are summed in the accumulation type. Slots in the gradient buffer
 * are marked from the start. */
void gr_collect_grad(by_graph *g, by_tensor *t, by_tensor *part, int made)
{
    part = by_cast(g, part, t->param < 0 ? t->type : gr_acc_type(t->type));
    if (g->status != BY_OK)
        return;
    const by_tensor *sum = t->grad;
    bool in_place = t->param >= 0 && adds_in_place(part, made);
    if (!sum) {
        t->grad = part;
    } else if (in_place && is_of(sum, t) && (!sum->node || sum->node->index < part->node->index)) {
        part->node->in[gr_base_of(&gr_ops[part->node->op], part->index)] = t->grad;
        t->grad = part;
    } else {
        t->grad = by_add(g, t->grad, part);
    }
    if (in_place && t->grad == part)
        mark(part, t);
}

/* The gradient of a parameter must end up in its slot of the flat buffer. A tensor with its own node can be
 * computed there directly; others (views, tensors that already have a place) are copied. */
static void bind(by_graph *g, by_tensor *param)
{
    by_tensor *d = param->grad;
    if (d->place == GR_PLACE_GRAD && is_of(d, param))
        return; /* nothing was added to it */
    d = by_cast(g, d, gr_acc_type(param->type));
    bool own = d->node && !gr_ops[d->node->op].view && d->place == GR_PLACE_PLANNED && !d->is_output;
    if (!own)
        d = gr_node_add(g, GR_OP_COPY, &d, 1, NULL, 0);
    if (g->status != BY_OK)
        return;
    d->place = GR_PLACE_GRAD;
    mark(d, param);
}

/* Computes the gradients of the inputs of a node from those of its outputs. */
static void step_back(by_graph *g, gr_node *n)
{
    by_tensor *dout[GR_MAX_OUTPUTS] = {NULL}, *din[GR_MAX_INPUTS] = {NULL};
    bool arrives = false;
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] && n->out[k]->needs_grad && n->out[k]->grad) {
            dout[k] = n->out[k]->grad;
            arrives = true;
        }
    if (!arrives)
        return;
    const int scope = (int)strlen(n->scope), made = g->n_nodes;
    by_scope_push(g, "%.*s", scope ? scope - 1 : 0, n->scope); /* without its last dot */
    gr_ops[n->op].grad(g, n, dout, din);
    by_scope_pop(g);
    for (int k = 0; k < n->n_in && g->status == BY_OK; k++)
        if (gr_wants_grad(n->in[k]) && din[k])
            gr_collect_grad(g, n->in[k], din[k], made);
}

void gr_walk_back(by_graph *g, int first, int end)
{
    for (int i = end - 1; i >= first && g->status == BY_OK; i--) {
        gr_node *n = g->nodes[i];
        if (!n->custom)
            step_back(g, n);
        else if (!n->custom->done)
            gr_custom_differentiate(g, n->custom);
    }
}

by_status gr_differentiate(by_graph *g, by_tensor *loss, by_tensor *loss_scale, by_grad_mode mode)
{
    if (g->status != BY_OK)
        return by_graph_status(g);
    if (loss->rank != 0 || !loss->needs_grad)
        return base_fail(BY_ERR_ARGUMENT, "%s cannot be differentiated: %s", gr_tensor_label(loss),
                         loss->rank
                             ? "it is not a scalar"
                             : "it depends on no trainable parameter, or the graph is not for training");
    int forward = g->n_nodes;
    g->backward = true;
    loss->grad = loss_scale ? by_cast(g, loss_scale, loss->type) : by_fill(g, loss->type, 0, NULL, 1);
    int n_leaves = g->n_leaves;
    for (int i = 0; i < n_leaves && mode == BY_GRAD_ADD; i++)
        if (gr_wants_grad(g->leaves[i]))
            g->leaves[i]->grad = gr_grad_leaf(g, g->leaves[i]);

    gr_walk_back(g, 0, forward);
    for (int i = 0; i < n_leaves && g->status == BY_OK; i++) {
        by_tensor *t = g->leaves[i];
        if (!gr_wants_grad(t) || t->place != GR_PLACE_PARAM)
            continue;
        if (!t->grad) /* not connected to the loss; clear the value stored by an earlier program */
            t->grad = by_fill(g, gr_acc_type(t->type), t->rank, t->dim, 0);
        bind(g, t);
    }
    g->backward = false;
    return by_graph_status(g);
}
