/* op_sample_build.h - helpers for the generators of op samples (op_samples*.c): leaves, outputs, nodes and names. */
#ifndef BY_TESTS_OP_SAMPLE_BUILD_H
#define BY_TESTS_OP_SAMPLE_BUILD_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "op_samples.h"

#define NODE(ID, attr, ...)                                          \
    gr_node_make(s->graph, GR_OP_##ID, (by_tensor *[]){__VA_ARGS__}, \
                 BY_COUNT(((by_tensor *[]){__VA_ARGS__})), attr, sizeof *(attr))
#define BARE_NODE(ID, ...)                                           \
    gr_node_make(s->graph, GR_OP_##ID, (by_tensor *[]){__VA_ARGS__}, \
                 BY_COUNT(((by_tensor *[]){__VA_ARGS__})), NULL, 0)

/* ---- names ----------------------------------------------------------------------------------- */

/* Appends words to the name of a sample: what its shapes do not show. */
BY_PRINTF(2, 3) static inline void tag(by_op_sample *s, const char *fmt, ...)
{
    const size_t used = strlen(s->name);
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->name + used, sizeof s->name - used, fmt, args);
    va_end(args);
}

/* Appends a word and a space if `set`. */
static inline void tag_if(by_op_sample *s, bool set, const char *word)
{
    if (set)
        tag(s, "%s ", word);
}

/* Appends the shape of a leaf: "(4, 16, 64)". */
static inline void tag_shape(by_op_sample *s, const by_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        tag(s, "%s%lld", i ? ", " : "(", (long long)t->dim[i]);
    tag(s, t->rank ? ") " : "() ");
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Enter a leaf with independent normal values. */
static inline by_tensor *leaf(by_op_sample *s, by_tensor *t)
{
    if (s->n_leaves == BY_SAMPLE_LEAVES)
        return by_graph_fail(s->graph, "a sample has more than %d leaves", BY_SAMPLE_LEAVES);
    if (by_graph_status(s->graph) != BY_OK)
        return t;
    size_t n = (size_t)by_elements(t);
    double *values = base_alloc_zero(n + 1, sizeof *values);
    if (!values)
        return by_graph_fail(s->graph, "no memory for the values of a sample");
    for (size_t i = 0; i < n; i++)
        values[i] = op_sample_noise(&s->seed);
    s->leaf[s->n_leaves++] = (op_sample_leaf){.tensor = t, .seen = t, .values = values};
    tag_shape(s, t);
    return t;
}

/* A float operand that gets a gradient. */
static inline by_tensor *operand(by_op_sample *s, int rank, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", s->n_leaves);
    by_tensor *t = leaf(s, by_param(s->graph, name, rank, shape, (by_init){BY_INIT_ZERO, 0}));
    if (!s->copied || by_graph_status(s->graph) != BY_OK)
        return t;
    return s->leaf[s->n_leaves - 1].seen = gr_node_add(s->graph, GR_OP_COPY, &t, 1, NULL, 0);
}

/* A frozen parameter of a type of its own, with values that the type holds. 16-bit types stand under wider
 * ones only: a list of 16 bits keeps its own. */
static inline by_tensor *stored(by_op_sample *s, by_dtype type, int rank, const int64_t *shape)
{
    by_params *p = s->graph->params;
    char name[16];
    snprintf(name, sizeof name, "p%d", s->n_leaves);
    const int i = gr_params_declare(p, name, rank, shape, (by_init){BY_INIT_ZERO, 0});
    if (i < 0 || by_params_set_rate(p, i, 0) != BY_OK)
        return gr_poison(s->graph);
    if ((by_dtype_block(type) > 1 || by_dtype_size(s->type) > 2) && by_params_set_type(p, i, type) != BY_OK)
        return gr_poison(s->graph);
    by_tensor *t = leaf(s, by_param(s->graph, name, rank, shape, (by_init){BY_INIT_ZERO, 0}));
    if (by_graph_status(s->graph) != BY_OK)
        return t;
    const size_t n = (size_t)by_elements(t);
    double *values = s->leaf[s->n_leaves - 1].values;
    void *small = base_alloc(by_dtype_bytes(type, n) + 1);
    if (!small)
        return by_graph_fail(s->graph, "no memory for the values of a sample");
    base_convert(small, type, values, BY_F64, n);
    base_convert(values, BY_F64, small, type, n);
    base_free(small);
    return t;
}

/* An input of any type. */
static inline by_tensor *input(by_op_sample *s, by_dtype type, int rank, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "i%d", s->n_leaves);
    return leaf(s, by_input(s->graph, name, type, rank, shape));
}

static inline double *values_of(by_op_sample *s, const by_tensor *t)
{
    for (int i = 0; i < s->n_leaves; i++)
        if (s->leaf[i].seen == t)
            return s->leaf[i].values;
    return NULL;
}

/* Whole numbers below a limit. */
static inline by_tensor *numbers(by_op_sample *s, by_dtype type, int64_t limit, int rank,
                                 const int64_t *shape)
{
    by_tensor *t = input(s, type, rank, shape);
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = floor((double)limit * ((double)(op_sample_next(&s->seed) >> 11) * 0x1p-53));
    return t;
}

static inline by_tensor *indices(by_op_sample *s, int64_t limit, int rank, const int64_t *shape)
{
    return numbers(s, BY_I32, limit, rank, shape);
}

/* Make a leaf's values small steps away from 1, for what must be positive. */
static inline by_tensor *positive(by_op_sample *s, by_tensor *t)
{
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = 0.25 + fabs(v[i]);
    return t;
}

static inline by_tensor *changes(by_op_sample *s, by_tensor *t)
{
    for (int i = 0; i < s->n_leaves; i++)
        if (s->leaf[i].seen == t)
            s->leaf[i].changes = true;
    return t;
}

/* An input in the accumulation type that an op adds its output into. */
static inline by_tensor *base(by_op_sample *s, bool wanted, int rank, const int64_t *shape)
{
    return wanted ? changes(s, input(s, gr_acc_type(s->type), rank, shape)) : NULL;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static inline void put(by_op_sample *s, by_tensor *t, bool in_loss)
{
    if (by_graph_status(s->graph) != BY_OK)
        return;
    if (s->n_outs == BY_SAMPLE_OUTPUTS) {
        by_graph_fail(s->graph, "a sample has more than %d outputs", BY_SAMPLE_OUTPUTS);
        return;
    }
    by_output(s->graph, NULL, t);
    s->out[s->n_outs].tensor = t;
    s->out[s->n_outs++].in_loss = in_loss;
}

/* An output that is part of the loss, and one that is only looked at. */
static inline void out(by_op_sample *s, by_tensor *t)
{
    put(s, t, true);
}

static inline void shown(by_op_sample *s, by_tensor *t)
{
    put(s, t, false);
}

static inline void out_of(by_op_sample *s, gr_node *n, int k)
{
    if (n)
        out(s, n->out[k]);
}

static inline void shown_of(by_op_sample *s, gr_node *n, int k)
{
    if (n)
        shown(s, n->out[k]);
}

#endif
