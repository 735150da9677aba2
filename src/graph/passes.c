/* passes.c - rewritings of a whole graph: drop what nobody needs, fuse, recompute. Each keeps the nodes in an
 * order in which every input is computed before it is used. */
#include "graph/graph.h"

/* ---- prune ----------------------------------------------------------------------------------- */

/* A node is wanted when it changes something (no outputs, caches), when an output is asked for or is a
 * parameter's gradient, or when a wanted node reads it. Outputs that nobody reads are dropped, except the
 * first, which every kernel may write. `last` serves as the mark of tensors that are read. */
by_status gr_prune(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k])
                g->nodes[i]->out[k]->last =
                    g->nodes[i]->out[k]->is_output || g->nodes[i]->out[k]->place == GR_PLACE_GRAD;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        gr_node *n = g->nodes[i];
        bool wanted = n->n_out == 0 || n->op == GR_OP_ATTENTION_CACHED;
        for (int k = 0; k < n->n_out; k++)
            wanted |= n->out[k] && n->out[k]->last;
        n->index = wanted;
        for (int k = 0; k < n->n_in && wanted; k++)
            if (n->in[k])
                n->in[k]->last = 1;
    }
    int kept = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *n = g->nodes[i];
        if (!n->index)
            continue;
        for (int k = 1; k < n->n_out; k++)
            if (n->out[k] && !n->out[k]->last)
                n->out[k] = NULL;
        n->index = kept;
        g->nodes[kept++] = n;
    }
    g->n_nodes = kept;
    return BY_OK;
}

/* ---- fuse ------------------------------------------------------------------------------------ */

/* The number of nodes that read t, and the first of them. */
static int readers(const by_graph *g, const by_tensor *t, const gr_node **first)
{
    int count = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t) {
                if (!count++ && first)
                    *first = g->nodes[i];
            }
    return count;
}

static void drop(by_graph *g, gr_node *dead)
{
    int at = dead->index;
    memmove(g->nodes + at, g->nodes + at + 1, (size_t)(g->n_nodes - at - 1) * sizeof g->nodes[0]);
    g->n_nodes--;
    for (int i = at; i < g->n_nodes; i++)
        g->nodes[i]->index = i;
}

/* sum = x + dropout(h); y = norm(sum)  becomes one node that yields both. The norm must be the first to read
 * the sum, so that it can take the place of the addition for all who come later. */
static void fuse_residual_norm(by_graph *g, gr_node *norm, bool across_blocks)
{
    by_tensor *sum = norm->in[0];
    gr_node *add = sum->node;
    const gr_node *first = NULL;
    if (norm->in[3] || !add || add->op != GR_OP_ADD || (!across_blocks && add->block != norm->block))
        return;
    if (by_elements(add->in[0]) != by_elements(add->in[1]) || add->in[0]->rank != add->in[1]->rank)
        return;
    if (readers(g, sum, &first) < 1 || first != norm)
        return;
    by_tensor *h = add->in[1];
    gr_node *drop_node = h->node;
    if (drop_node && drop_node->op == GR_OP_DROPOUT && !h->is_output && readers(g, h, NULL) == 1) {
        ((gr_norm_attr *)norm->attr)->p = ((const gr_dropout_attr *)drop_node->attr)->p;
        norm->rng = drop_node->rng;
        h = drop_node->in[0];
        drop(g, drop_node);
    }
    norm->in[0] = add->in[0];
    norm->in[3] = h;
    norm->out[2] = sum;
    norm->n_out = 3;
    sum->node = norm;
    sum->index = 2;
    drop(g, add);
}

by_status gr_fuse(by_graph *g, bool across_blocks)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == GR_OP_NORM) {
            gr_node *norm = g->nodes[i];
            fuse_residual_norm(g, norm, across_blocks);
            i = norm->index;
        }
    return BY_OK;
}

/* ---- pitch ----------------------------------------------------------------------------------- */

/* Is t read, by anyone who reads it, as the input number k of an op that knows of gaps between rows? */
static bool reads_rows(const gr_node *n, int k)
{
    switch (n->op) {
    case GR_OP_CROSS_ENTROPY:
    case GR_OP_CROSS_ENTROPY_GRAD:
    case GR_OP_LINEAR_DX:
    case GR_OP_ARGMAX:
    case GR_OP_TOP:
        return k == 0;
    case GR_OP_LINEAR_DW:
        return k == 1;
    default:
        return false;
    }
}

static bool read_by_rows(const by_graph *g, const by_tensor *t)
{
    if (t->is_output)
        return false;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t && !reads_rows(g->nodes[i], k))
                return false;
    return true;
}

/* A vocabulary is rarely a multiple of what matrix units like: leave a gap behind every row of the logits,
 * and of their gradient, which takes their place. */
void gr_pitch(by_graph *g, int row_bytes)
{
    for (int i = 0; i < g->n_nodes; i++) {
        by_tensor *logits = g->nodes[i]->out[0], *grad = NULL;
        if (g->nodes[i]->op != GR_OP_LINEAR || g->nodes[i]->out[1] || !read_by_rows(g, logits))
            continue;
        for (int k = 0; k < g->n_nodes; k++)
            if (g->nodes[k]->op == GR_OP_CROSS_ENTROPY_GRAD && g->nodes[k]->in[0] == logits)
                grad = g->nodes[k]->out[0];
        const int64_t cols = gr_tensor_cols(logits), step = row_bytes / (int64_t)by_dtype_size(logits->type);
        if (cols % step == 0 || (grad && !read_by_rows(g, grad)))
            continue;
        logits->pitch = (cols + step - 1) / step * step;
        if (grad)
            grad->pitch = logits->pitch;
    }
}

/* ---- recompute ------------------------------------------------------------------------------- */

/* Activation checkpointing (Chen et al. 2016): of each block only what leaves it is kept; what the backward
 * pass reads of its inside is computed once more, just before it is needed. `last` marks tensors that are
 * kept. */
typedef struct redo {
    by_graph *g;
    gr_node **order; /* the new order of execution */
    int count, capacity;
    gr_node **again; /* by old index: the second copy of a forward node, NULL so far */
} redo;

static by_status emit(redo *r, gr_node *n)
{
    if (r->count == r->capacity) {
        int grown = r->capacity * 2;
        gr_node **more = base_resize(r->order, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        r->order = more;
        r->capacity = grown;
    }
    r->order[r->count++] = n;
    return BY_OK;
}

static bool inside(const by_tensor *t)
{
    return t && t->node && !t->node->backward && t->node->block > 0 && !t->last;
}

/* Replace *t, a tensor inside a block, by its second copy, making the nodes that lead to it. The depth of the
 * recursion is that of one block. */
static by_status again(redo *r, by_tensor **t)
{
    gr_node *old = (*t)->node;
    gr_node *copy = r->again[old->index];
    if (!copy) {
        copy = base_arena_alloc(r->g->arena, sizeof *copy);
        if (!copy)
            return BY_ERR_MEMORY;
        *copy = *old;
        copy->backward = true;
        for (int k = 0; k < copy->n_in; k++)
            if (inside(copy->in[k]))
                BY_TRY(again(r, &copy->in[k]));
        for (int k = 0; k < copy->n_out; k++) {
            if (!old->out[k])
                continue;
            by_tensor *c = base_arena_alloc(r->g->arena, sizeof *c);
            if (!c)
                return BY_ERR_MEMORY;
            *c = *old->out[k];
            c->node = copy;
            c->root = c;
            c->is_output = false;
            copy->out[k] = c;
        }
        r->again[old->index] = copy;
        BY_TRY(emit(r, copy));
    }
    *t = copy->out[(*t)->index];
    return BY_OK;
}

by_status gr_recompute(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k])
                g->nodes[i]->out[k]->last = g->nodes[i]->out[k]->is_output;
    for (int i = 0; i < g->n_nodes; i++) { /* what another block of the forward pass reads is kept */
        gr_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && !n->backward; k++)
            if (n->in[k] && n->in[k]->node && n->in[k]->node->block != n->block)
                n->in[k]->last = 1;
    }
    redo r = {.g = g, .capacity = g->n_nodes + 16};
    r.order = base_alloc_zero((size_t)r.capacity, sizeof *r.order);
    r.again = base_alloc_zero((size_t)g->n_nodes + 1, sizeof *r.again);
    by_status status = r.order && r.again ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < g->n_nodes && status == BY_OK; i++) {
        gr_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && n->backward && status == BY_OK; k++)
            if (inside(n->in[k]))
                status = again(&r, &n->in[k]);
        if (status == BY_OK)
            status = emit(&r, n);
    }
    base_free(r.again);
    if (status != BY_OK) {
        base_free(r.order);
        return status;
    }
    base_free(g->nodes);
    g->nodes = r.order;
    g->n_nodes = r.count;
    g->cap_nodes = r.capacity;
    return gr_prune(g);
}
