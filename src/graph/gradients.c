/* gradients.c - for every differentiable op, the nodes that compute its inputs' gradients (the last column of
 * ops.def). A rule makes only what is wanted; what arrives may be NULL for outputs that do not lead to the
 * loss. */
#include "graph/graph.h"

#define RULE(name) void gr_grad_##name(by_graph *g, gr_node *n, by_tensor **dout, by_tensor **din)

#define GRADIENT(name) RULE(name);
#define NO_GRADIENT(reason)
#define GR_OP(ID, name, in, out, traits, gradient) gradient
#include "graph/ops.def"
#undef GR_OP

/* ---- moved data ------------------------------------------------------------------------------ */

RULE(copy)
{
    (void)g, (void)n;
    din[0] = dout[0];
}

RULE(cast)
{
    din[0] = by_cast(g, dout[0], n->in[0]->type);
}

RULE(reshape)
{
    din[0] = by_reshape(g, dout[0], n->in[0]->rank, n->in[0]->dim);
}

RULE(permute)
{
    const gr_permute_attr *a = n->attr;
    int inverse[BY_MAX_RANK] = {0};
    for (int i = 0; i < n->in[0]->rank; i++)
        inverse[a->order[i]] = i;
    din[0] = by_permute_axes(g, dout[0], inverse);
}

static by_tensor *pad(by_graph *g, by_tensor *x, int axis, int64_t start, int64_t count)
{
    gr_slice_attr a = {axis, start, count};
    return gr_node_add(g, GR_OP_PAD, &x, 1, &a, sizeof a);
}

RULE(slice)
{
    const gr_slice_attr *a = n->attr;
    din[0] = pad(g, dout[0], a->axis, a->start, n->in[0]->dim[a->axis]);
}

RULE(pad)
{
    const gr_slice_attr *a = n->attr;
    din[0] = by_slice(g, dout[0], a->axis, a->start, n->in[0]->dim[a->axis]);
}

RULE(concat)
{
    const gr_slice_attr *a = n->attr;
    int64_t start = 0;
    for (int i = 0; i < n->n_in; i++) {
        int64_t count = n->in[i]->dim[a->axis];
        if (gr_wants_grad(n->in[i]))
            din[i] = by_slice(g, dout[0], a->axis, start, count);
        start += count;
    }
}

/* ---- elementwise, reductions ----------------------------------------------------------------- */

/* Sum a gradient over the repetitions of an operand that was repeated into it. */
static by_tensor *unrepeat(by_graph *g, by_tensor *d, const by_tensor *operand)
{
    if (g->status != BY_OK)
        return d;
    if (by_elements(d) == by_elements(operand))
        return d->rank == operand->rank ? d : by_reshape(g, d, operand->rank, operand->dim);
    gr_reduce_attr a = {.outer = 1, .inner = by_elements(operand), .scale = 1, .acc = operand->param >= 0};
    a.count = by_elements(d) / a.inner;
    a.rank = operand->rank;
    memcpy(a.dim, operand->dim, sizeof a.dim);
    return gr_node_add(g, GR_OP_REDUCE, &d, 1, &a, sizeof a);
}

RULE(add)
{
    din[0] = dout[0];
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, dout[0], n->in[1]);
}

RULE(sub)
{
    din[0] = dout[0];
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, by_scale(g, dout[0], -1), n->in[1]);
}

RULE(mul)
{
    if (gr_wants_grad(n->in[0]))
        din[0] = by_mul(g, dout[0], n->in[1]);
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, by_mul(g, dout[0], n->in[0]), n->in[1]);
}

RULE(scale)
{
    const gr_scale_attr *a = n->attr;
    din[0] = by_scale(g, dout[0], a->factor);
}

/* The transposes of each other. */
RULE(reduce)
{
    gr_reduce_attr a = *(const gr_reduce_attr *)n->attr;
    a.rank = n->in[0]->rank;
    memcpy(a.dim, n->in[0]->dim, sizeof a.dim);
    by_tensor *d = by_cast(g, dout[0], n->in[0]->type);
    din[0] = gr_node_add(g, GR_OP_BROADCAST, &d, 1, &a, sizeof a);
}

RULE(broadcast)
{
    gr_reduce_attr a = *(const gr_reduce_attr *)n->attr;
    a.rank = n->in[0]->rank;
    memcpy(a.dim, n->in[0]->dim, sizeof a.dim);
    a.acc = false;
    din[0] = gr_node_add(g, GR_OP_REDUCE, dout, 1, &a, sizeof a);
}

static by_tensor *activation_grad(by_graph *g, by_tensor *x, by_tensor *dy, by_act act)
{
    gr_activation_attr a = {act};
    return gr_node_add(g, GR_OP_ACTIVATION_GRAD, (by_tensor *[]){x, dy}, 2, &a, sizeof a);
}

RULE(activation)
{
    const gr_activation_attr *a = n->attr;
    din[0] = activation_grad(g, n->in[0], dout[0], a->act);
}

/* The same mask once more: the node keeps the random identity of the one it undoes. */
static by_tensor *dropout_again(by_graph *g, by_tensor *d, float p, uint32_t rng)
{
    gr_dropout_attr a = {p};
    gr_node *again = gr_node_make(g, GR_OP_DROPOUT, &d, 1, &a, sizeof a);
    if (!again)
        return g->poison;
    again->rng = rng;
    return again->out[0];
}

RULE(dropout)
{
    const gr_dropout_attr *a = n->attr;
    din[0] = dropout_again(g, dout[0], a->p, n->rng);
}

RULE(softmax)
{
    din[0] = gr_node_add(g, GR_OP_SOFTMAX_GRAD, (by_tensor *[]){n->out[0], dout[0]}, 2, NULL, 0);
}

/* ---- layers ---------------------------------------------------------------------------------- */

RULE(gather)
{
    const gr_gather_attr *a = n->attr;
    din[0] = gr_node_add(g, GR_OP_GATHER_GRAD, (by_tensor *[]){n->in[1], dout[0], NULL}, 3, a, sizeof *a);
}

RULE(linear)
{
    gr_linear_attr a = *(const gr_linear_attr *)n->attr;
    by_tensor *x = n->in[0], *w = n->in[1], *b = n->in[2], *dy = dout[0];
    if (a.act != BY_ACT_NONE)
        dy = activation_grad(g, n->out[1], dy, a.act);
    a.act = BY_ACT_NONE;
    if (gr_wants_grad(w) && w->type != x->type) {
        by_graph_fail(g, "%s is stored as %s and cannot be trained: freeze it", gr_tensor_label(w),
                      by_dtype_name(w->type));
        return;
    }
    if (gr_wants_grad(w) || gr_wants_grad(b)) {
        gr_node *dw = gr_node_make(g, GR_OP_LINEAR_DW, (by_tensor *[]){x, dy, NULL, NULL}, 4, &a, sizeof a);
        din[1] = dw ? dw->out[0] : g->poison;
        din[2] = dw ? dw->out[1] : g->poison;
    }
    if (gr_wants_grad(x))
        din[0] = gr_node_add(g, GR_OP_LINEAR_DX, (by_tensor *[]){dy, w}, 2, &a, sizeof a);
}

/* y = A B with A = a or a^T, B = b or b^T: dA = dy B^T, dB = A^T dy, each then brought into its stored
 * layout. */
RULE(matmul)
{
    const gr_matmul_attr *t = n->attr;
    by_tensor *a = n->in[0], *b = n->in[1], *dy = dout[0];
    if (gr_wants_grad(a))
        din[0] = t->ta ? by_matmul(g, b, dy, t->tb, true) : by_matmul(g, dy, b, false, !t->tb);
    if (gr_wants_grad(b))
        din[1] = t->tb ? by_matmul(g, dy, a, true, t->ta) : by_matmul(g, a, dy, !t->ta, false);
}

RULE(norm)
{
    const gr_norm_attr *a = n->attr;
    by_tensor *h = n->in[3], *dy = dout[0], *dsum = h ? dout[2] : NULL;
    if (!dy) { /* only the sum is used */
        din[0] = dsum;
    } else {
        by_tensor *seen = h ? n->out[2] : n->in[0];
        by_tensor *in[7] = {dy, seen, n->out[1], n->in[1], dsum, NULL, NULL};
        gr_node *d = gr_node_make(g, GR_OP_NORM_GRAD, in, 7, a, sizeof *a);
        for (int i = 0; i < 3; i++)
            din[i] = d ? d->out[i] : g->poison;
    }
    if (gr_wants_grad(h))
        din[3] = a->p > 0 ? dropout_again(g, din[0], a->p, n->rng) : din[0];
}

RULE(rotary)
{
    gr_rotary_attr a = *(const gr_rotary_attr *)n->attr;
    a.inverse = !a.inverse;
    din[0] = gr_node_add(g, GR_OP_ROTARY, (by_tensor *[]){dout[0], n->in[1]}, 2, &a, sizeof a);
}

RULE(attention)
{
    const gr_attention_attr *a = n->attr;
    by_tensor *in[GR_ATT_SHARED + 3] = {[GR_ATT_Y] = n->out[0], n->out[1], dout[0]};
    memcpy(in, n->in, GR_ATT_SHARED * sizeof *in);
    if (!dout[0] || dout[2]) {
        by_graph_fail(g, "attention: gradients through the returned weights are not taken");
        return;
    }
    gr_node *d = gr_node_make(g, GR_OP_ATTENTION_GRAD, in, BY_COUNT(in), a, sizeof *a);
    if (d)
        d->rng = n->rng;
    for (int i = 0; i < 3; i++)
        din[i] = d ? d->out[i] : g->poison;
    for (int i = 0; i < 2; i++)
        if (gr_wants_grad(n->in[GR_ATT_BIAS + i]))
            din[GR_ATT_BIAS + i] = d ? d->out[3 + i] : g->poison;
}

RULE(cross_entropy)
{
    const gr_loss_attr *a = n->attr;
    by_tensor *in[5] = {n->in[0], n->in[1], n->out[1], dout[0], n->in[2]};
    din[0] = gr_node_add(g, GR_OP_CROSS_ENTROPY_GRAD, in, 5, a, sizeof *a);
}
