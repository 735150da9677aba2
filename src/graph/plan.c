/* plan.c - the memory plan. Tensors that share memory have one root; roots that are live at the same time get
 * disjoint ranges of one buffer, placed largest first, each at the lowest offset that is free for its whole
 * life. */
#include <stdlib.h>

#include "graph/graph.h"

#define ALIGN 256 /* the best alignment for GPUs */

/* Computes the last use of every tensor as a node index; outputs and inputs live to the end. */
static void find_lives(by_graph *g)
{
    for (int i = 0; i < g->n_leaves; i++) {
        g->leaves[i]->first = 0;
        g->leaves[i]->last = g->n_nodes;
        g->leaves[i]->root = g->leaves[i];
    }
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *n = g->nodes[i];
        n->index = i;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k]) {
                n->out[k]->first = i;
                n->out[k]->last = n->out[k]->is_output ? g->n_nodes : i;
                n->out[k]->root = n->out[k];
            }
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k])
                n->in[k]->last = BY_MAX(n->in[k]->last, i);
    }
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->oldest) /* states keep their memory to the end */
            g->leaves[i]->oldest->last = g->n_nodes;
}

/* The root of t. Versions of a state share the place of the oldest. */
static by_tensor *root_of(const by_tensor *t)
{
    return t->oldest ? t->oldest->root : t->root;
}

static void share(by_tensor *t, by_tensor *root)
{
    t->root = root;
    root->last = BY_MAX(root->last, t->last);
    if (t->place == GR_PLACE_GRAD && root->place == GR_PLACE_PLANNED) {
        root->place = GR_PLACE_GRAD;
        root->param = t->param;
        root->params = t->params;
    }
}

static void find_roots(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *n = g->nodes[i];
        const gr_op_info *op = &gr_ops[n->op];
        if (op->view)
            share(n->out[0], root_of(n->in[0]));
        for (int k = 0; k < n->n_out; k++) {
            const int slot = gr_base_of(op, k);
            if (n->out[k] && slot >= 0 && slot < n->n_in && n->in[slot])
                share(n->out[k], root_of(n->in[slot]));
        }
        for (int k = 0; k < n->n_in && n->out[0]; k++) {
            by_tensor *r = gr_in_set(op->over, k) ? root_of(n->in[k]) : NULL;
            if (r && n->out[0]->root == n->out[0] && n->out[0]->place == GR_PLACE_PLANNED &&
                r->place == GR_PLACE_PLANNED && r->last == i &&
                gr_tensor_bytes(r) == gr_tensor_bytes(n->out[0]))
                share(n->out[0], r);
        }
    }
    for (int i = 0; i < g->n_leaves; i++)
        g->leaves[i]->root = root_of(g->leaves[i]);
}

static int gr_falling_size(const void *a, const void *b)
{
    const by_tensor *x = *(by_tensor *const *)a, *y = *(by_tensor *const *)b;
    size_t sx = gr_tensor_bytes(x), sy = gr_tensor_bytes(y);
    if (sx != sy)
        return sx < sy ? 1 : -1;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : x->index - y->index;
}

static size_t padded(const by_tensor *t)
{
    return (gr_tensor_bytes(t) + ALIGN - 1) / ALIGN * ALIGN;
}

/* A range of the buffer that is in use while nodes first to last run. */
typedef struct stretch {
    size_t begin, end;
    int first, last;
} stretch;

/* The lowest offset where t fits during its life; `taken` is sorted by `begin`. */
static size_t lowest_fit(const by_tensor *t, const stretch *taken, int count)
{
    const size_t size = padded(t);
    const int first = t->first, last = t->last;
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const stretch *p = &taken[i];
        if (p->last < first || last < p->first)
            continue;
        if (p->begin >= at + size)
            break;
        at = BY_MAX(at, p->end);
    }
    return at;
}

/* Places t and records its range. */
static void place(by_tensor *t, stretch *taken, int count)
{
    t->offset = lowest_fit(t, taken, count);
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (taken[middle].begin > t->offset)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(taken + low + 1, taken + low, (size_t)(count - low) * sizeof *taken);
    taken[low] = (stretch){t->offset, t->offset + padded(t), t->first, t->last};
}

/* Tensors that need a place: inputs and roots of planned tensors. */
static int list_roots(const by_graph *g, by_tensor **roots)
{
    int count = 0;
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->place == GR_PLACE_INPUT && !g->leaves[i]->oldest)
            roots[count++] = g->leaves[i];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            by_tensor *t = g->nodes[i]->out[k];
            if (t && t->root == t && t->place == GR_PLACE_PLANNED)
                roots[count++] = t;
        }
    return count;
}

by_status gr_plan(by_graph *g, size_t *bytes)
{
    find_lives(g);
    find_roots(g);
    size_t most = (size_t)g->n_leaves + (size_t)g->n_nodes * GR_MAX_OUTPUTS + 1;
    by_tensor **roots = base_alloc_zero(most, sizeof *roots);
    const int count = roots ? list_roots(g, roots) : 0;
    stretch *taken = base_alloc_zero((size_t)count + 1, sizeof *taken);
    if (!roots || !taken) {
        base_free(roots);
        base_free(taken);
        return BY_ERR_MEMORY;
    }
    qsort(roots, (size_t)count, sizeof *roots, gr_falling_size);
    *bytes = 0;
    for (int i = 0; i < count; i++) {
        place(roots[i], taken, i);
        *bytes = BY_MAX(*bytes, roots[i]->offset + padded(roots[i]));
    }
    base_free(roots);
    base_free(taken);
    return BY_OK;
}
