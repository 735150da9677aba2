/* custom.c - blocks with custom gradients. The nodes of such a block point to it; when differentiation
 * reaches the last of them, it calls the block's backward function instead of the rules of the ops. */
#include "graph/graph.h"

static by_tensor **copy_list(by_graph *g, by_tensor *const *list, int count)
{
    by_tensor **copy = base_arena_alloc(g->arena, (size_t)(count + 1) * sizeof *copy);
    for (int i = 0; copy && list && i < count; i++)
        copy[i] = list[i];
    return copy;
}

static gr_custom *new_custom(by_graph *g, const by_custom_spec *spec, by_tensor *const *in, int n_in,
                             int n_out)
{
    gr_custom *c = base_arena_alloc(g->arena, sizeof *c);
    if (!c)
        return NULL;
    c->spec = *spec;
    c->n_in = n_in;
    c->n_out = n_out;
    c->in = copy_list(g, in, n_in);
    c->out = copy_list(g, NULL, n_out);
    c->scope = base_arena_strdup(g->arena, g->scope);
    return c->in && c->out && c->scope ? c : NULL;
}

void by_block_custom(by_graph *g, const by_custom_spec *spec, by_tensor *const *in, int n_in, by_tensor **out,
                     int n_out)
{
    for (int i = 0; out && i < n_out; i++)
        out[i] = gr_poison_of(g);
    if (gr_is_bad(g) || !spec || !spec->forward || !spec->backward || !in || !out || g->custom ||
        g->backward) {
        by_graph_fail(g,
                      g && g->custom ? "custom blocks do not nest" : "a custom block needs both functions");
        return;
    }
    gr_custom *c = new_custom(g, spec, in, n_in, n_out);
    if (!c) {
        gr_poison(g);
        return;
    }
    g->custom = c;
    spec->forward(g, spec->user, in, out);
    g->custom = NULL;
    for (int i = 0; i < n_out && !gr_is_bad(g); i++) {
        c->out[i] = out[i];
        if (!out[i] || !out[i]->node || out[i]->node->custom != c)
            by_graph_fail(g, "output %d of a custom block was not built in it", i + 1);
    }
}

/* A node of the forward pass, in the list of its block. */
by_status gr_custom_note(by_graph *g, gr_node *n)
{
    gr_custom *c = g->custom;
    if (c->n_nodes == c->cap_nodes) {
        const int grown = c->cap_nodes ? 2 * c->cap_nodes : 16;
        gr_node **more = base_arena_alloc(g->arena, (size_t)grown * sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        if (c->n_nodes)
            memcpy(more, c->nodes, (size_t)c->n_nodes * sizeof *more);
        c->nodes = more;
        c->cap_nodes = grown;
    }
    n->custom = c;
    c->nodes[c->n_nodes++] = n;
    return BY_OK;
}

/* A rebuilt node draws the random numbers of the original node: that of the same op and scope, each used
 * once. */
void gr_custom_replay(gr_custom *c, gr_node *n)
{
    for (int i = 0; i < c->n_nodes; i++)
        if (c->nodes[i] && c->nodes[i]->op == n->op && strcmp(c->nodes[i]->scope, n->scope) == 0) {
            n->rng = c->nodes[i]->rng;
            c->nodes[i] = NULL;
            return;
        }
}

/* A tensor inside a block that receives a gradient must be one of its outputs, or the gradient would be
 * lost. */
static bool leaks(by_graph *g, const gr_custom *c)
{
    for (int i = 0; i < c->n_nodes; i++)
        for (int k = 0; k < c->nodes[i]->n_out; k++) {
            const by_tensor *t = c->nodes[i]->out[k];
            bool known = !t || !t->grad;
            for (int o = 0; o < c->n_out; o++)
                known |= c->out[o] == t;
            if (!known) {
                by_graph_fail(g, "%s is used outside of its custom block", gr_tensor_label(t));
                return true;
            }
        }
    return false;
}

void gr_custom_differentiate(by_graph *g, gr_custom *c)
{
    by_tensor **out = copy_list(g, c->out, c->n_out), **dout = copy_list(g, NULL, c->n_out);
    by_tensor **din = copy_list(g, NULL, c->n_in), **again = copy_list(g, NULL, c->n_in);
    bool arrives = false;
    c->done = true;
    if (!out || !dout || !din || !again) {
        gr_poison(g);
        return;
    }
    for (int i = 0; i < c->n_out; i++)
        arrives |= c->out[i]->needs_grad && c->out[i]->grad;
    if (leaks(g, c) || !arrives)
        return;
    for (int i = 0; i < c->n_out; i++) {
        const by_tensor *t = c->out[i];
        out[i] = t->again ? t->again : c->out[i];
        dout[i] = t->grad ? t->grad : by_fill(g, t->type, t->rank, t->dim, 0);
    }
    const int made = g->n_nodes, length = (int)strlen(c->scope);
    by_scope_push(g, "%.*s", length ? length - 1 : 0, c->scope);
    g->custom = c;
    c->spec.backward(g, c->spec.user, out, dout, din, again);
    g->custom = NULL;
    by_scope_pop(g);
    for (int i = 0; i < c->n_in && g->status == BY_OK; i++) {
        c->in[i]->again = again[i];
        if (gr_wants_grad(c->in[i]) && din[i])
            gr_collect_grad(g, c->in[i], din[i], made);
    }
}

by_tensor *by_vjp(by_graph *g, by_function fn, void *user, by_tensor *x, by_tensor *dy, by_tensor **dx)
{
    if (dx)
        *dx = NULL;
    if (gr_is_bad(g) || !fn || !x || !dy || !g->backward || !g->custom)
        return by_graph_fail(g, "by_vjp() is only for the backward function of a custom block");
    by_tensor *before = x->grad;
    const int first = g->n_nodes;
    g->replayed = g->custom;
    by_tensor *y = fn(g, user, x);
    g->replayed = NULL;
    if (gr_is_bad(g) || !y)
        return by_graph_fail(g, "by_vjp(): the function returned NULL");
    const int end = g->n_nodes;
    x->grad = NULL;
    y->grad = by_cast(g, dy, y->type);
    gr_walk_back(g, first, end);
    if (dx)
        *dx = x->grad;
    x->grad = before;
    return y;
}
