/* build.c - building graphs, nodes and tensors. The operations themselves are in builders.c. */
#include <stdio.h>

#include "graph/graph.h"

/* ---- tensors --------------------------------------------------------------------------------- */

int by_rank(const by_tensor *t)
{
    return t ? t->rank : 0;
}

int64_t by_dim(const by_tensor *t, int axis)
{
    if (!t)
        return 0;
    if (axis < 0)
        axis += t->rank;
    return axis >= 0 && axis < t->rank ? t->dim[axis] : 0;
}

int64_t by_elements(const by_tensor *t)
{
    int64_t n = t != NULL;
    for (int i = 0; i < by_rank(t); i++)
        n *= t->dim[i];
    return n;
}

by_dtype by_type(const by_tensor *t)
{
    return t ? t->type : BY_F32;
}

size_t gr_tensor_bytes(const by_tensor *t)
{
    return by_dtype_bytes(t->type, (size_t)(t->pitch ? gr_tensor_rows(t) * t->pitch : by_elements(t)));
}

int64_t gr_tensor_cols(const by_tensor *t)
{
    return t->rank > 0 ? t->dim[t->rank - 1] : 1;
}

int64_t gr_tensor_rows(const by_tensor *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++)
        rows *= t->dim[i];
    return rows;
}

const char *gr_tensor_label(const by_tensor *t)
{
    if (!t)
        return "(none)";
    if (t->name)
        return t->name;
    return t->node ? gr_ops[t->node->op].name : "tensor";
}

char *gr_shape_text(const by_tensor *t, char *buffer, size_t size)
{
    size_t used = 0;
    for (int i = 0; i <= t->rank && used < size; i++) {
        int n;
        if (i == t->rank)
            n = base_format(buffer + used, size - used, "%s %s", i ? ")" : "()", by_dtype_name(t->type));
        else
            n = base_format(buffer + used, size - used, "%s%lld", i ? ", " : "(", (long long)t->dim[i]);
        used += (size_t)BY_MAX(n, 0);
    }
    return buffer;
}

by_tensor *by_name(by_tensor *t, const char *fmt, ...)
{
    if (!t || !fmt || t == t->graph->poison)
        return t;
    va_list args;
    va_start(args, fmt);
    /* running out of memory for a name is not an error */
    t->name = base_arena_vsprintf(t->graph->arena, fmt, args);
    va_end(args);
    return t;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

by_graph *by_graph_new(const by_graph_spec *spec)
{
    if (!spec || !spec->params) {
        base_fail_missing("list of parameters");
        return NULL;
    }
    by_graph *g = base_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->arena = base_arena_new();
    g->scope = base_alloc(1);
    if (g->arena)
        g->poison = base_arena_alloc(g->arena, sizeof *g->poison);
    if (!g->arena || !g->scope || !g->poison) {
        by_graph_free(g);
        return NULL;
    }
    g->scope[0] = '\0';
    g->poison->graph = g;
    g->poison->param = -1;
    g->params = spec->params;
    g->device = spec->params->device;
    g->training = spec->training;
    g->drops = spec->training && !spec->no_dropout;
    return g;
}

void by_graph_free(by_graph *g)
{
    if (!g)
        return;
    base_free(g->nodes);
    base_free(g->leaves);
    base_free(g->scope);
    base_arena_free(g->arena);
    base_free(g);
}

by_status by_graph_status(const by_graph *g)
{
    if (!g)
        return base_fail_missing("graph");
    if (g->status != BY_OK)
        base_fail(g->status, "%s", g->message ? g->message : "out of memory while building a graph");
    return g->status;
}

/* Records the thread's current error as the graph's first error, unless it already has one. */
by_tensor *gr_poison(by_graph *g)
{
    if (!g) {
        base_fail_missing("graph");
        return NULL;
    }
    if (g->status == BY_OK) {
        g->status = base_error_status() != BY_OK ? base_error_status() : BY_ERR_ARGUMENT;
        g->message = base_arena_strdup(g->arena, by_error_message());
    }
    return g->poison;
}

by_tensor *by_graph_fail(by_graph *g, const char *fmt, ...)
{
    if (gr_is_bad(g))
        return gr_poison(g);
    char text[512];
    va_list args;
    va_start(args, fmt);
    base_vformat(text, sizeof text, fmt, args);
    va_end(args);
    base_fail(BY_ERR_ARGUMENT, "%s%s%s", g->scope, g->scope[0] ? ": " : "", text);
    return gr_poison(g);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static void scope_push(by_graph *g, const char *fmt, va_list args)
{
    char part[128];
    if (!g || !fmt) {
        by_graph_fail(g, "a scope has no name");
        return;
    }
    base_vformat(part, sizeof part, fmt, args);
    size_t old = strlen(g->scope), more = strlen(part);
    if (g->scope_depth == BY_COUNT(g->scope_cuts)) {
        by_graph_fail(g, "scopes nest deeper than %d", BY_COUNT(g->scope_cuts));
        return;
    }
    char *longer = base_resize(g->scope, old + more + 2, 1);
    if (!longer) {
        gr_poison(g);
        return;
    }
    g->scope = longer;
    g->scope_cuts[g->scope_depth++] = (int)old;
    memcpy(g->scope + old, part, more);
    memcpy(g->scope + old + more, ".", more ? 2 : 1);
    g->scope[old + more + (more ? 1 : 0)] = '\0';
}

void by_scope_push(by_graph *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    scope_push(g, fmt, args);
    va_end(args);
}

void by_scope_pop(by_graph *g)
{
    if (g && g->scope_depth > 0)
        g->scope[g->scope_cuts[--g->scope_depth]] = '\0';
}

void by_block_push(by_graph *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    scope_push(g, fmt, args);
    va_end(args);
    if (g)
        g->block = ++g->n_blocks;
}

void by_block_pop(by_graph *g)
{
    by_scope_pop(g);
    if (g)
        g->block = 0;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Grows a list of pointers by one. */
static bool push(void ***list, int *count, int *capacity, void *item)
{
    if (*count == *capacity) {
        int grown = *capacity ? *capacity * 2 : 64;
        void **more = base_resize(*list, (size_t)grown, sizeof **list);
        if (!more)
            return false;
        *list = more;
        *capacity = grown;
    }
    (*list)[(*count)++] = item;
    return true;
}

/* A tensor without a producer yet. Returns the poison tensor for an invalid shape or out of memory. */
by_tensor *gr_tensor_new(by_graph *g, by_dtype type, int rank, const int64_t *dim)
{
    if (rank < 0 || rank > BY_MAX_RANK)
        return by_graph_fail(g, "a tensor has %d axes; the maximum is %d", rank, BY_MAX_RANK);
    if ((unsigned)type > BY_BOOL && by_dtype_block(type) < 2)
        return by_graph_fail(g, "cannot compute with elements of type %s", by_dtype_name(type));
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || (dim[i] > 0 && count > INT64_MAX / 16 / dim[i]))
            return by_graph_fail(g, "axis %d of a tensor has the invalid size %lld", i, (long long)dim[i]);
        count *= dim[i];
    }
    by_tensor *t = base_arena_alloc(g->arena, sizeof *t);
    if (!t)
        return gr_poison(g);
    t->graph = g;
    t->type = type;
    t->rank = rank;
    for (int i = 0; i < rank; i++)
        t->dim[i] = dim[i];
    t->param = -1;
    t->root = t;
    return t;
}

static by_tensor *leaf(by_graph *g, gr_place place, const char *name, by_dtype type, int rank,
                       const int64_t *shape)
{
    if (gr_is_bad(g))
        return gr_poison(g);
    if (!name || (rank > 0 && !shape))
        return by_graph_fail(g, "%s has no %s", name ? name : "a tensor", name ? "shape" : "name");
    by_tensor *t = gr_tensor_new(g, type, rank, shape);
    if (t == g->poison)
        return t;
    t->place = place;
    t->name = base_arena_strdup(g->arena, name);
    if (!t->name || !push((void ***)&g->leaves, &g->n_leaves, &g->cap_leaves, t))
        return gr_poison(g);
    return t;
}

by_tensor *by_input(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape)
{
    return leaf(g, GR_PLACE_INPUT, name, type, rank, shape);
}

by_tensor *by_state(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape,
                    by_memory *m)
{
    by_tensor *t = leaf(g, GR_PLACE_STATE, name, type, rank, shape);
    if (gr_is_bad(g))
        return t;
    if (!m)
        return by_graph_fail(g, "state %s has no memory", name);
    if (gr_tensor_bytes(t) > m->bytes)
        return by_graph_fail(g, "state %s needs %zu bytes, its memory has %zu", name, gr_tensor_bytes(t),
                             m->bytes);
    t->memory = m;
    return t;
}

/* Declaring a parameter again returns the same leaf, which ties weights and sums their gradients. */
by_tensor *gr_param_leaf(by_graph *g, by_params *list, const char *name, int rank, const int64_t *shape,
                         by_init init)
{
    int index = gr_is_bad(g) ? -1 : gr_params_declare(list, name, rank, shape, init);
    if (index < 0)
        return gr_poison(g);
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->param == index && g->leaves[i]->params == list &&
            g->leaves[i]->place == GR_PLACE_PARAM)
            return g->leaves[i];
    by_tensor *t = leaf(g, GR_PLACE_PARAM, name, list->list[index].type, rank, shape);
    if (t == g->poison)
        return t;
    t->param = index;
    t->params = list;
    t->needs_grad = g->training && list->list[index].trainable;
    return t;
}

by_tensor *by_param(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init)
{
    if (gr_is_bad(g))
        return gr_poison(g);
    if (!name || (rank > 0 && !shape))
        return by_graph_fail(g, "parameter %s has no %s", name ? name : "?", name ? "shape" : "name");
    char *full = base_arena_sprintf(g->arena, "%s%s", g->scope, name);
    by_tensor *t = full ? gr_param_leaf(g, g->params, full, rank, shape, init) : gr_poison(g);
    by_tensor *other =
        g->hook && g->hook->param && !gr_is_bad(g) ? g->hook->param(g->hook->user, g, t) : NULL;
    return other ? other : t;
}

by_tensor *gr_tied_weights(by_graph *g, const char *name, by_tensor *table)
{
    if (gr_is_bad(g) || !g->hook || !g->hook->tied)
        return table;
    char *full = base_arena_sprintf(g->arena, "%s%s", g->scope, name);
    by_tensor *other = full ? g->hook->tied(g->hook->user, g, full, table) : gr_poison(g);
    return other ? other : table;
}

by_tensor *by_param_fixed(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init)
{
    by_tensor *t = by_param(g, name, rank, shape, init);
    if (!gr_is_bad(g)) {
        gr_param_info *info = &t->params->list[t->param];
        info->fixed = true;
        info->trainable = false;
        t->needs_grad = false;
    }
    return t;
}

/* The slot of a parameter in the gradient buffer, as a leaf to add into. */
by_tensor *gr_grad_leaf(by_graph *g, by_tensor *param)
{
    by_tensor *t = leaf(g, GR_PLACE_GRAD, param->name, gr_acc_type(param->type), param->rank, param->dim);
    if (t != g->poison) {
        t->param = param->param;
        t->params = param->params;
    }
    return t;
}

by_tensor *by_output(by_graph *g, const char *name, by_tensor *t)
{
    if (gr_is_bad(g))
        return gr_poison(g);
    if (!t)
        return by_graph_fail(g, "output %s is missing", name ? name : "?");
    t->is_output = true;
    if (name)
        by_name(t, "%s", name);
    return t;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

by_status gr_set_output(gr_node *n, int i, by_dtype type, int rank, const int64_t *dim)
{
    if (i >= gr_ops[n->op].outputs)
        return base_fail(BY_ERR_ARGUMENT, "%s has no output %d", gr_ops[n->op].name, i + 1);
    by_tensor *t = gr_tensor_new(n->graph, type, rank, dim);
    if (t == n->graph->poison)
        return n->graph->status;
    t->node = n;
    t->index = i;
    n->out[i] = t;
    n->n_out = BY_MAX(n->n_out, i + 1);
    return BY_OK;
}

by_status gr_set_output_like(gr_node *n, int i, const by_tensor *t)
{
    return gr_set_output(n, i, t->type, t->rank, t->dim);
}

static bool is_optional(const gr_op_info *op, int input)
{
    return gr_in_set(op->optional, input) || (input >= op->base && input < op->base + op->bases);
}

/* Checks the number of inputs, and that all required ones are present. */
static bool check_inputs(by_graph *g, const gr_op_info *op, by_tensor *const *in, int n_in)
{
    if (n_in > op->inputs || (op->list && n_in < 1)) {
        by_graph_fail(g, "%s: %d inputs; expected %d to %d", op->name, n_in, (int)op->list, op->inputs);
        return false;
    }
    for (int i = 0; i < (op->list ? n_in : op->inputs); i++)
        if ((i >= n_in || !in[i]) && !is_optional(op, i)) {
            by_graph_fail(g, "%s: input %d is missing", op->name, i + 1);
            return false;
        }
    return true;
}

/* Checks that block types occur only where the op reads them. */
static bool check_stored(by_graph *g, const gr_op_info *op, by_tensor *const *in, int n_in)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] && by_dtype_block(in[i]->type) > 1 && !gr_in_set(op->stored, i)) {
            by_graph_fail(g, "%s cannot read %s, which is stored as %s", op->name, gr_tensor_label(in[i]),
                          by_dtype_name(in[i]->type));
            return false;
        }
    return true;
}

/* Whether a and b share memory. */
static bool share_memory(const by_tensor *a, const by_tensor *b)
{
    return a == b || (a->memory && b->memory && a->memory->data == b->memory->data);
}

static by_tensor *newest(by_tensor *t)
{
    while (t->newer)
        t = t->newer;
    return t;
}

/* Creates a new version of t after a write. */
static by_status add_version(by_graph *g, by_tensor *t)
{
    by_tensor *last = newest(t), *v = base_arena_alloc(g->arena, sizeof *v);
    if (!v || !push((void ***)&g->leaves, &g->n_leaves, &g->cap_leaves, v))
        return BY_ERR_MEMORY;
    *v = *last;
    v->oldest = t;
    v->node = NULL;
    v->needs_grad = v->is_output = false; /* gradients stop at states */
    last->newer = v;
    return BY_OK;
}

/* The node overwrites t. Several leaves may be the same state. */
static by_status overwrite(by_graph *g, by_tensor *t)
{
    by_tensor *written = t->oldest ? t->oldest : t;
    const int leaves = g->n_leaves;
    if (t->node && gr_ops[t->node->op].view)
        return base_fail(BY_ERR_ARGUMENT, "%s is a view; only a state can be written to", gr_tensor_label(t));
    for (int i = 0; i < leaves; i++)
        if (g->leaves[i] != written && !g->leaves[i]->oldest && share_memory(g->leaves[i], written))
            BY_TRY(add_version(g, g->leaves[i]));
    return add_version(g, written);
}

/* Sets the inputs. States are read in their newest version, except in the backward pass, which reads the
 * versions that the forward pass has read. */
static void take_inputs(by_graph *g, gr_node *n, by_tensor *const *in, int n_in)
{
    n->n_in = n_in;
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i] && !g->backward ? newest(in[i]) : in[i];
}

static gr_node *new_node(by_graph *g, gr_op op, const void *attr, size_t attr_size)
{
    gr_node *n = base_arena_alloc(g->arena, sizeof *n);
    char *scope = base_arena_strdup(g->arena, g->scope);
    if (n && attr_size)
        n->attr = base_arena_alloc(g->arena, attr_size);
    if (!n || !scope || (attr_size && !n->attr))
        return NULL;
    if (attr_size)
        memcpy(n->attr, attr, attr_size);
    n->graph = g;
    n->op = op;
    n->index = g->n_nodes;
    n->block = g->block;
    n->backward = g->backward;
    n->rng = (uint32_t)g->n_nodes + 1;
    n->scope = scope;
    return n;
}

/* Sets shapes and types of the outputs and whether they need a gradient, and creates new versions of states
 * that the op writes. */
static by_status infer(by_graph *g, gr_node *n)
{
    const gr_op_info *op = &gr_ops[n->op];
    bool needs_grad = false;
    base_error_clear();
    BY_TRY(op->infer(n));
    for (int i = 0; i < n->n_in; i++)
        needs_grad |= gr_wants_grad(n->in[i]);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i])
            n->out[i]->needs_grad = needs_grad && op->grad && by_dtype_is_float(n->out[i]->type);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && gr_in_set(op->writes, i))
            BY_TRY(overwrite(g, n->in[i]));
    return BY_OK;
}

gr_node *gr_node_make(by_graph *g, gr_op op, by_tensor *const *in, int n_in, const void *attr,
                      size_t attr_size)
{
    if (gr_is_bad(g)) {
        gr_poison(g);
        return NULL;
    }
    if (!check_inputs(g, &gr_ops[op], in, n_in) || !check_stored(g, &gr_ops[op], in, n_in))
        return NULL;
    gr_node *n = new_node(g, op, attr, attr_size);
    if (!n) {
        gr_poison(g);
        return NULL;
    }
    take_inputs(g, n, in, n_in);
    if (g->replayed)
        gr_custom_replay(g->replayed, n);
    if (g->custom && !g->backward && gr_custom_note(g, n) != BY_OK) {
        gr_poison(g);
        return NULL;
    }
    if (infer(g, n) != BY_OK) {
        if (g->status == BY_OK) {
            base_fail_context("%s%s", g->scope, gr_ops[op].name);
            gr_poison(g);
        }
        return NULL;
    }
    if (!push((void ***)&g->nodes, &g->n_nodes, &g->cap_nodes, n)) {
        gr_poison(g);
        return NULL;
    }
    return n;
}

by_tensor *gr_node_add(by_graph *g, gr_op op, by_tensor *const *in, int n_in, const void *attr,
                       size_t attr_size)
{
    gr_node *n = gr_node_make(g, op, in, n_in, attr, attr_size);
    return n && n->out[0] ? n->out[0] : gr_poison_of(g);
}
