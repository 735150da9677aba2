/* gradients.c - for every differentiable op, the nodes that compute the gradients of its inputs (the last
 * column of ops.def). A rule computes only the gradients that are wanted. dout is NULL for outputs that are
 * not connected to the loss. */
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

/* Sums x, viewed as (outer, count, inner), over the middle axis. The caller gives the shape of the result. */
static by_tensor *sum_middle(by_graph *g, by_tensor *x, int64_t outer, int64_t count, bool acc, int rank,
                             const int64_t *dim)
{
    gr_reduce_attr a = {.outer = outer, .count = count, .scale = 1, .acc = acc, .rank = rank};
    a.inner = outer > 0 && count > 0 ? by_elements(x) / (outer * count) : 0;
    memcpy(a.dim, dim, (size_t)rank * sizeof a.dim[0]);
    return gr_node_add(g, GR_OP_REDUCE, &x, 1, &a, sizeof a);
}

/* Sums d over every run of axes along which `operand` is broadcast, the last run first, in the accumulation
 * type. */
static by_tensor *sum_runs(by_graph *g, by_tensor *d, const by_tensor *operand)
{
    const int missing = d->rank - operand->rank;
    int64_t dim[BY_MAX_RANK], outer, count;
    memcpy(dim, d->dim, sizeof dim);
    for (int end = d->rank, from; end > 0 && g->status == BY_OK; end = from - 1) {
        for (from = end, count = 1; from > 0; from--) { /* dim[from .. end) are broadcast axes */
            if (from - 1 >= missing && operand->dim[from - 1 - missing] == dim[from - 1])
                break;
            count *= dim[from - 1];
            dim[from - 1] = 1;
        }
        outer = 1;
        for (int i = 0; i < from; i++)
            outer *= dim[i];
        if (count != 1)
            d = sum_middle(g, d, outer, count, true, operand->rank + missing, dim);
    }
    return d;
}

/* Sums a gradient over the broadcast axes of an operand. */
static by_tensor *unrepeat(by_graph *g, by_tensor *d, const by_tensor *operand)
{
    if (g->status != BY_OK)
        return d;
    if (by_elements(d) == by_elements(operand))
        return d->rank == operand->rank ? d : by_reshape(g, d, operand->rank, operand->dim);
    const int64_t count = by_elements(operand) ? by_elements(d) / by_elements(operand) : 0;
    const size_t tail = (size_t)operand->rank * sizeof d->dim[0];
    if (by_elements(operand) == 1 ||
        (operand->rank <= d->rank && !memcmp(d->dim + d->rank - operand->rank, operand->dim, tail)))
        return sum_middle(g, d, 1, count, operand->param >= 0, operand->rank, operand->dim);
    d = by_reshape(g, sum_runs(g, d, operand), operand->rank, operand->dim);
    return operand->param >= 0 ? d : by_cast(g, d, operand->type);
}

/* d, summed over the broadcast axes of `operand` if it needs a gradient. */
static by_tensor *part_of(by_graph *g, by_tensor *d, const by_tensor *operand)
{
    return gr_wants_grad(operand) ? unrepeat(g, d, operand) : NULL;
}

RULE(add)
{
    din[0] = part_of(g, dout[0], n->in[0]);
    din[1] = part_of(g, dout[0], n->in[1]);
}

RULE(sub)
{
    din[0] = part_of(g, dout[0], n->in[0]);
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, by_scale(g, dout[0], -1), n->in[1]);
}

RULE(mul)
{
    if (gr_wants_grad(n->in[0]))
        din[0] = unrepeat(g, by_mul(g, dout[0], n->in[1]), n->in[0]);
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, by_mul(g, dout[0], n->in[0]), n->in[1]);
}

/* dy where a >= b, and dy where a < b; 0 elsewhere. */
static by_tensor *where_less(by_graph *g, by_tensor *dy, by_tensor *a, by_tensor *b, bool less)
{
    gr_binary_attr attr = {less ? GR_LESS : GR_NOT_LESS};
    return by_mul(g, dy, gr_node_add(g, GR_OP_BINARY, (by_tensor *[]){a, b}, 2, &attr, sizeof attr));
}

RULE(binary)
{
    const gr_binary kind = ((const gr_binary_attr *)n->attr)->kind;
    by_tensor *a = n->in[0], *b = n->in[1], *da = NULL, *db = NULL;
    if (kind == GR_DIV) {
        da = gr_wants_grad(a) ? by_div(g, dout[0], b) : NULL;
        if (gr_wants_grad(b)) /* -dy (y / b) */
            db = by_scale(g, by_mul(g, dout[0], by_div(g, n->out[0], b)), -1);
    } else if (kind == GR_MAXIMUM || kind == GR_MINIMUM) {
        const bool most = kind == GR_MAXIMUM;
        da = gr_wants_grad(a) ? where_less(g, dout[0], most ? a : b, most ? b : a, false) : NULL;
        db = gr_wants_grad(b) ? where_less(g, dout[0], most ? a : b, most ? b : a, true) : NULL;
    }
    din[0] = da ? unrepeat(g, da, a) : NULL;
    din[1] = db ? unrepeat(g, db, b) : NULL;
}

RULE(where)
{
    by_tensor *mask = n->in[0], *zero = by_fill(g, dout[0]->type, 0, NULL, 0);
    if (gr_wants_grad(n->in[1]))
        din[1] = unrepeat(g, by_where(g, mask, dout[0], zero), n->in[1]);
    if (gr_wants_grad(n->in[2]))
        din[2] = unrepeat(g, by_where(g, mask, zero, dout[0]), n->in[2]);
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

/* The same mask: the node has the random identity of the forward node. */
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

/* The transpose of gather: selects rows of the gradient. */
RULE(gather_grad)
{
    const gr_gather_attr *a = n->attr;
    if (a->still >= 0) {
        by_graph_fail(g, "gather_grad: second derivatives are not supported");
        return;
    }
    by_tensor *d = by_cast(g, dout[0], n->in[1]->type);
    din[1] = gr_node_add(g, GR_OP_GATHER, (by_tensor *[]){d, n->in[0]}, 2, a, sizeof *a);
    din[2] = dout[0];
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
    if (gr_wants_grad(w)) {
        gr_node *dw = gr_node_make(g, GR_OP_LINEAR_DW, (by_tensor *[]){x, dy, NULL, NULL}, 4, &a, sizeof a);
        din[1] = dw ? dw->out[0] : g->poison;
        din[2] = dw ? dw->out[1] : g->poison;
    } else if (gr_wants_grad(b)) {
        din[2] = unrepeat(g, dy, b);
    }
    if (gr_wants_grad(x))
        din[0] = gr_node_add(g, GR_OP_LINEAR_DX, (by_tensor *[]){dy, w}, 2, &a, sizeof a);
}

/* y = A B with A = a or a^T, B = b or b^T: dA = dy B^T, dB = A^T dy, each transposed to its stored layout. */
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
        by_graph_fail(g, "attention: gradients through the returned weights are not supported");
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

RULE(chunked_attention)
{
    by_tensor *in[] = {n->in[0], n->in[1], n->in[2], n->in[3], n->in[4], n->out[0], n->out[1], dout[0]};
    if (!dout[0] || dout[2]) {
        by_graph_fail(g, "chunked_attention: gradients through the returned weights are not supported");
        return;
    }
    gr_node *d =
        gr_node_make(g, GR_OP_CHUNKED_ATTENTION_GRAD, in, BY_COUNT(in), n->attr, sizeof(gr_chunked_attr));
    if (d)
        d->rng = n->rng;
    for (int i = 0; i < 3; i++)
        din[i] = d ? d->out[i] : g->poison;
}

/* One product over all positions gives the gradients of W_hh and b_hh. */
static void recurrent_weights(by_graph *g, gr_node *n, gr_node *d, by_tensor **din)
{
    const gr_linear_attr a = {.act = BY_ACT_NONE};
    by_tensor *dhidden = d->out[GR_REC_DHIDDEN] ? d->out[GR_REC_DHIDDEN] : d->out[GR_REC_DGATES];
    if (!gr_wants_grad(n->in[GR_REC_W]) && !gr_wants_grad(n->in[GR_REC_B]))
        return;
    by_tensor *in[] = {d->out[GR_REC_BEFORE], dhidden, NULL, NULL};
    gr_node *dw = gr_node_make(g, GR_OP_LINEAR_DW, in, BY_COUNT(in), &a, sizeof a);
    din[GR_REC_W] = dw ? dw->out[0] : g->poison;
    din[GR_REC_B] = dw ? dw->out[1] : g->poison;
}

RULE(recurrent)
{
    const gr_recurrent_attr *a = n->attr;
    by_tensor *in[] = {n->in[GR_REC_W],     n->in[GR_REC_MASK],   n->in[GR_REC_H],      n->in[GR_REC_C],
                       n->out[GR_REC_Y],    n->out[GR_REC_SAVED], n->out[GR_REC_CELLS], dout[GR_REC_Y],
                       dout[GR_REC_LAST_H], dout[GR_REC_LAST_C]};
    gr_node *d = gr_node_make(g, GR_OP_RECURRENT_GRAD, in, BY_COUNT(in), a, sizeof *a);
    if (!d)
        return;
    din[GR_REC_GATES] = d->out[GR_REC_DGATES];
    recurrent_weights(g, n, d, din);
    if (gr_wants_grad(n->in[GR_REC_H]))
        din[GR_REC_H] = d->out[GR_REC_DH];
    if (gr_wants_grad(n->in[GR_REC_C]))
        din[GR_REC_C] = d->out[GR_REC_DC];
}

RULE(additive_scores)
{
    by_tensor *in[] = {n->in[0], n->in[1], n->in[2], dout[0], NULL};
    gr_node *d = gr_node_make(g, GR_OP_ADDITIVE_SCORES_GRAD, in, BY_COUNT(in), NULL, 0);
    for (int i = 0; i < 3; i++)
        din[i] = d ? d->out[i] : g->poison;
}

RULE(logistic_mixture)
{
    by_tensor *in[] = {n->in[0], n->in[1], n->out[1], dout[0]};
    din[0] = gr_node_add(g, GR_OP_LOGISTIC_MIXTURE_GRAD, in, BY_COUNT(in), n->attr, sizeof(gr_mixture_attr));
}

RULE(log_probs)
{
    const gr_log_probs_attr *a = n->attr;
    by_tensor *in[] = {n->in[0], n->in[1], n->out[1], dout[0]};
    if (dout[2])
        by_graph_fail(g, "the entropy of log_probs has no gradient: detach it");
    else if (dout[0])
        din[0] = gr_node_add(g, GR_OP_LOG_PROBS_GRAD, in, BY_COUNT(in), a, sizeof *a);
}

RULE(kl_divergence)
{
    const gr_kl_attr *a = n->attr;
    by_tensor *in[] = {n->in[0], n->in[1], n->out[1], dout[0]};
    if (gr_wants_grad(n->in[1]))
        by_graph_fail(g, "kl_divergence has no gradient for its second operand: detach it");
    else if (dout[0])
        din[0] = gr_node_add(g, GR_OP_KL_DIVERGENCE_GRAD, in, BY_COUNT(in), a, sizeof *a);
}

RULE(cross_entropy)
{
    const gr_loss_attr *a = n->attr;
    by_tensor *in[5] = {n->in[0], n->in[1], n->out[1], dout[0], n->in[2]};
    din[0] = gr_node_add(g, GR_OP_CROSS_ENTROPY_GRAD, in, 5, a, sizeof *a);
}
