/* passes.c - passes over a whole graph: prune, fuse, recompute. Each keeps the nodes in topological order. */
#include "graph/graph.h"

/* ---- prune ----------------------------------------------------------------------------------- */

/* A node is kept if it writes to a state, if one of its outputs is a requested output or a parameter's
 * gradient, or if a kept node reads it. Unread outputs are dropped, except the first, which every kernel may
 * write. `last` marks tensors that are read. */
by_status gr_prune(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k])
                g->nodes[i]->out[k]->last =
                    g->nodes[i]->out[k]->is_output || g->nodes[i]->out[k]->place == GR_PLACE_GRAD;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        gr_node *n = g->nodes[i];
        bool wanted = gr_ops[n->op].writes != 0;
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

/* The number of nodes that read t, and the first one. */
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

/* sum = x + dropout(h); y = norm(sum) becomes one node with both outputs. The norm must be the first reader
 * of the sum, so that it can replace the addition for all later readers. */
bool gr_fuse_residual_norm(by_graph *g, gr_node *norm, bool across_blocks)
{
    const gr_op *fuses = gr_ops[norm->op].fuses;
    by_tensor *sum = norm->in[0];
    gr_node *add = sum->node;
    const gr_node *first = NULL;
    if (norm->in[3] || !add || add->op != fuses[0] || add->custom != norm->custom ||
        (!across_blocks && add->block != norm->block))
        return false;
    if (by_elements(add->in[0]) != by_elements(add->in[1]) || add->in[0]->rank != add->in[1]->rank)
        return false;
    if (readers(g, sum, &first) < 1 || first != norm)
        return false;
    by_tensor *h = add->in[1];
    gr_node *drop_node = h->node;
    if (drop_node && drop_node->op == fuses[1] && drop_node->custom == norm->custom && !h->is_output &&
        readers(g, h, NULL) == 1) {
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
    return true;
}

by_status gr_fuse(by_graph *g, bool across_blocks)
{
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *n = g->nodes[i];
        if (gr_ops[n->op].fuse && gr_ops[n->op].fuse(g, n, across_blocks))
            i = n->index;
    }
    return BY_OK;
}

/* ---- pitch ----------------------------------------------------------------------------------- */

/* Whether all readers of t support gaps between rows. */
static bool read_by_rows(const by_graph *g, const by_tensor *t)
{
    if (t->is_output)
        return false;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t && !gr_in_set(gr_ops[g->nodes[i]->op].padded, k))
                return false;
    return true;
}

/* The output of a node that takes t as input 0 and has the same gaps, or NULL. */
static by_tensor *padded_alike(const by_graph *g, const by_tensor *t)
{
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (gr_ops[g->nodes[i]->op].pads_alike && g->nodes[i]->in[0] == t)
            return g->nodes[i]->out[0];
    return NULL;
}

/* A vocabulary size is rarely a multiple of the tile size of matrix units: pads every row of the logits, and
 * of their gradient, which reuses the memory. */
void gr_pitch(by_graph *g, int row_bytes)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_node *n = g->nodes[i];
        by_tensor *logits = n->out[0];
        if (!gr_ops[n->op].pads || n->out[1] || !read_by_rows(g, logits))
            continue;
        by_tensor *grad = padded_alike(g, logits);
        const int64_t cols = gr_tensor_cols(logits), step = row_bytes / (int64_t)by_dtype_size(logits->type);
        if (cols % step == 0 || (grad && !read_by_rows(g, grad)))
            continue;
        logits->pitch = (cols + step - 1) / step * step;
        if (grad)
            grad->pitch = logits->pitch;
    }
}

/* ---- recompute ------------------------------------------------------------------------------- */

/* Activation checkpointing (Chen et al. 2016): only tensors that leave a block are kept; tensors inside it
 * that the backward pass reads are recomputed just before they are needed. `last` marks tensors that are
 * kept. */
typedef struct redo {
    by_graph *g;
    gr_node **order; /* the new order of execution */
    int count, capacity;
    gr_node **again; /* by old index: the recomputed copy of a forward node, or NULL */
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

/* Replaces *t, a tensor inside a block, by its recomputed copy, creating the nodes that lead to it. The
 * recursion depth is that of one block. */
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
    for (int i = 0; i < g->n_nodes; i++) /* outputs of a node that writes to a state are kept: it runs once */
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k])
                g->nodes[i]->out[k]->last = g->nodes[i]->out[k]->is_output || gr_ops[g->nodes[i]->op].writes;
    for (int i = 0; i < g->n_nodes; i++) { /* tensors read by another block of the forward pass are kept */
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

/* ---- states ---------------------------------------------------------------------------------- */

/* The version of a state that t is, or is a view of, or NULL. */
static by_tensor *version_of(by_tensor *t)
{
    while (t->node && gr_ops[t->node->op].view)
        t = t->node->in[0];
    return t->oldest || t->newer ? t : NULL;
}

/* n overwrites a state: the current version ends for all leaves of this state. */
static void end_versions(by_graph *g, gr_node *n, by_tensor *written)
{
    by_tensor *oldest = written->oldest ? written->oldest : written;
    written->ended = n;
    for (int i = 0; i < g->n_leaves; i++) {
        by_tensor *t = g->leaves[i];
        if (t->oldest || t == oldest || !t->memory || !oldest->memory ||
            t->memory->data != oldest->memory->data)
            continue;
        while (t->ended)
            t = t->newer;
        t->ended = n;
    }
}

/* Moves the last node to the index of `at`. */
static void move_last(by_graph *g, int at)
{
    gr_node *n = g->nodes[g->n_nodes - 1];
    memmove(g->nodes + at + 1, g->nodes + at, (size_t)(g->n_nodes - 1 - at) * sizeof g->nodes[0]);
    g->nodes[at] = n;
    for (int i = at; i < g->n_nodes; i++)
        g->nodes[i]->index = i;
}

/* A copy of a version, inserted before the node that ends it. */
static by_tensor *saved(by_graph *g, by_tensor *version)
{
    if (!version->saved) {
        gr_node *copy = gr_node_make(g, GR_OP_COPY, &version, 1, NULL, 0);
        if (!copy)
            return version;
        move_last(g, version->ended->index);
        version->saved = copy->out[0];
    }
    return version->saved;
}

/* Readers of a version that has ended read a copy of it. A view becomes the copy itself. */
static void read_saved(by_graph *g, by_tensor **t)
{
    by_tensor *version = version_of(*t);
    if (!version || !version->ended)
        return;
    if (*t == version)
        *t = saved(g, version);
    else
        (*t)->node->op = GR_OP_COPY;
}

/* Reads of a state before and after a write are different values. The forward pass is in order, but nodes of
 * the backward pass, recomputed nodes and fused nodes may come after the write that ends the version they
 * read. */
by_status gr_preserve_states(by_graph *g)
{
    g->backward = true; /* copies read the version they are given */
    for (int i = 0; i < g->n_nodes && g->status == BY_OK; i++) {
        gr_node *n = g->nodes[i];
        const unsigned writes = gr_ops[n->op].writes;
        n->index = i;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && !gr_in_set(writes, k))
                read_saved(g, &n->in[k]);
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && gr_in_set(writes, k))
                end_versions(g, n, n->in[k]);
        i = n->index;
    }
    for (int i = 0; i < g->n_nodes; i++) { /* an output is read at the end */
        by_tensor *t = g->nodes[i]->out[0];
        if (t && t->is_output && gr_ops[g->nodes[i]->op].view)
            read_saved(g, &t);
    }
    g->backward = false;
    return by_graph_status(g);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Whether a node in (first, last) reads an output of `first`. */
static bool read_between(const by_graph *g, const gr_node *first, const gr_node *last)
{
    for (int i = first->index + 1; i < last->index; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] && g->nodes[i]->in[k]->node == first)
                return true;
    return false;
}

/* Whether `first` can be fused with `last`, which reads an output of it. Either this output is never stored
 * and the two nodes are adjacent, or `first` is delayed until `last`, which overwrites its input. */
static bool fit_together(const by_graph *g, const gr_node *first, const gr_node *last)
{
    const gr_op_info *op = &gr_ops[last->op];
    const by_tensor *y = last->in[op->join_input];
    if (op->swallows)
        return last->index == first->index + 1 && !y->is_output && readers(g, y, NULL) == 1;
    return last->index < first->index + 4 && last->out[0]->root == first->in[0]->root &&
           !read_between(g, first, last);
}

void gr_join_pairs(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *last = g->nodes[i];
        const gr_op_info *op = &gr_ops[last->op];
        gr_node *first = op->joins ? last->in[op->join_input]->node : NULL;
        if (first && first->op == op->join_op && fit_together(g, first, last)) {
            first->partner = last;
            last->partner = first;
        }
    }
}
