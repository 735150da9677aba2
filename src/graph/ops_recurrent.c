/* ops_recurrent.c - shape rules and costs of recurrent layers and of additive attention. */
#include "graph/graph.h"
#include "graph/op_rules.h"

static bool is_matrix(const by_tensor *t, by_dtype type, int64_t rows, int64_t cols)
{
    return t->type == type && t->rank == 2 && t->dim[0] == rows && t->dim[1] == cols;
}

/* Whether it is NULL or has this type and shape. */
static bool fits(const by_tensor *t, by_dtype type, int64_t rows, int64_t cols)
{
    return !t || is_matrix(t, type, rows, cols);
}

by_status gr_infer_recurrent(gr_node *n)
{
    const by_cell cell = ((const gr_recurrent_attr *)n->attr)->cell;
    const by_tensor *x = n->in[GR_REC_GATES], *w = n->in[GR_REC_W], *b = n->in[GR_REC_B];
    const int64_t gates = gr_cell_gates(cell), width = x->rank == 3 ? x->dim[2] / gates : 0;
    if (x->rank != 3 || !by_dtype_is_float(x->type) || width < 1 || x->dim[1] < 1 ||
        !is_matrix(w, x->type, gates * width, width) || x->dim[2] != gates * width ||
        (b && (b->rank != 1 || b->dim[0] != gates * width || b->type != x->type)))
        return gr_mismatch(
            n, "gates (B, T, G*H), w (G*H, H) and b (G*H) of one type, G 4 for an LSTM, 3 for a GRU, 1 else");
    const int64_t batch = x->dim[0], length = x->dim[1];
    if (!fits(n->in[GR_REC_MASK], BY_I32, batch, length))
        return gr_mismatch(n, "a mask (B, T) of i32");
    if (!fits(n->in[GR_REC_H], x->type, batch, width) || !fits(n->in[GR_REC_C], x->type, batch, width))
        return gr_mismatch(n, "initial states (B, H)");
    BY_TRY(gr_set_output(n, GR_REC_Y, x->type, 3, (int64_t[]){batch, length, width}));
    BY_TRY(gr_set_output(n, GR_REC_LAST_H, x->type, 2, (int64_t[]){batch, width}));
    if (gates == 1)
        return BY_OK;
    BY_TRY(gr_set_output(n, GR_REC_SAVED, x->type, 3, (int64_t[]){batch, length, 4 * width}));
    if (cell != BY_CELL_LSTM)
        return BY_OK;
    BY_TRY(gr_set_output(n, GR_REC_LAST_C, x->type, 2, (int64_t[]){batch, width}));
    return gr_set_output(n, GR_REC_CELLS, gr_acc_type(x->type), 3, (int64_t[]){batch, length, width});
}

gr_cost gr_cost_recurrent(const gr_node *n)
{
    const by_tensor *x = n->in[GR_REC_GATES];
    const double rows = (double)by_dim(x, 0) * (double)by_dim(x, 1);
    return gr_cost_of_bytes(n, 2 * rows * (double)by_elements(n->in[GR_REC_W]));
}

by_status gr_infer_recurrent_grad(gr_node *n)
{
    const by_cell cell = ((const gr_recurrent_attr *)n->attr)->cell;
    const by_tensor *y = n->in[GR_REC_GRAD_Y];
    const int64_t batch = y->dim[0], length = y->dim[1], width = y->dim[2], gates = gr_cell_gates(cell);
    BY_TRY(gr_set_output(n, GR_REC_DGATES, y->type, 3, (int64_t[]){batch, length, gates * width}));
    if (cell == BY_CELL_GRU)
        BY_TRY(gr_set_output(n, GR_REC_DHIDDEN, y->type, 3, (int64_t[]){batch, length, gates * width}));
    BY_TRY(gr_set_output(n, GR_REC_BEFORE, y->type, 3, y->dim));
    BY_TRY(gr_set_output(n, GR_REC_DH, y->type, 2, (int64_t[]){batch, width}));
    if (cell != BY_CELL_LSTM)
        return BY_OK;
    return gr_set_output(n, GR_REC_DC, y->type, 2, (int64_t[]){batch, width});
}

gr_cost gr_cost_recurrent_grad(const gr_node *n)
{
    const by_tensor *y = n->in[GR_REC_GRAD_Y];
    const double rows = (double)by_dim(y, 0) * (double)by_dim(y, 1);
    return gr_cost_of_bytes(n, 2 * rows * (double)by_elements(n->in[GR_REC_GRAD_W]));
}

by_status gr_infer_additive_scores(gr_node *n)
{
    const by_tensor *q = n->in[0], *k = n->in[1], *v = n->in[2];
    if (q->rank != 3 || k->rank != 3 || v->rank != 1 || !by_dtype_is_float(q->type) || k->type != q->type ||
        v->type != q->type || k->dim[0] != q->dim[0] || k->dim[2] != q->dim[2] || v->dim[0] != q->dim[2])
        return gr_mismatch(n, "q (B, T, A), k (B, S, A) and v (A), of one type");
    return gr_set_output(n, 0, q->type, 3, (int64_t[]){q->dim[0], q->dim[1], k->dim[1]});
}

gr_cost gr_cost_additive_scores(const gr_node *n)
{
    return gr_cost_of_bytes(n, 12.0 * (double)by_elements(n->in[0]) * (double)by_dim(n->in[1], 1));
}

by_status gr_infer_additive_scores_grad(gr_node *n)
{
    BY_TRY(gr_set_output_like(n, 0, n->in[0]));
    BY_TRY(gr_set_output_like(n, 1, n->in[1]));
    return gr_set_output(n, 2, gr_acc_type(n->in[0]->type), 1, n->in[2]->dim);
}

gr_cost gr_cost_additive_scores_grad(const gr_node *n)
{
    return gr_cost_of_bytes(n, 20.0 * (double)by_elements(n->in[0]) * (double)by_dim(n->in[1], 1));
}
