/* op_trial.c - one sample of an op as a program on any device, in memory that is guarded on all sides or in
 * planned memory; what comes out of it; and how far that may be from the reference. Included by the tests of
 * the op table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "op_samples.h"

/* Complaints are collected, so that one run shows them all. */
static int complaints;

static void complain(const char *fmt, ...) BY_PRINTF(1, 2);
static void complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    complaints++;
}

static void no_complaints(void)
{
    int n = complaints;
    complaints = 0;
    if (n)
        fail_msg("%d complaints, see above", n);
}

/* ---- one sample as a program ----------------------------------------------------------------- */

/* How a sample is run. */
typedef struct setup {
    by_device *device;
    by_dtype type;
    by_dtype
        exact; /* values are rounded to this type first, so that runs in other types start from equal ones */
    bool gradients; /* differentiate; without, what only the backward pass needs is not computed */
    bool copied;    /* see by_op_sample */
    bool guarded;   /* every tensor in memory of its own, between guards, filled with NaN before the run */
} setup;

typedef struct trial {
    setup how;
    char title[BY_SAMPLE_NAME + 64]; /* op, number and name of the sample, for messages */
    by_params *params;
    by_program *program;
    by_op_sample *sample;
    struct {
        by_tensor *tensor;
        double *values;
    } cotangent[BY_SAMPLE_OUTPUTS];
    char *memory; /* guarded: the device's, and what the host last saw of it */
    char *image;
    size_t bytes;
} trial;

enum { GUARD = 64, GUARD_BYTE = 0xa5, JUNK_BYTE = 0xff };

/* Round values to what a type can hold. */
static void round_to(by_dtype type, double *values, int64_t n)
{
    void *small = base_alloc((size_t)n * sizeof *values + 1);
    assert_non_null(small);
    base_convert(small, type, values, BY_F64, (size_t)n);
    base_convert(values, BY_F64, small, type, (size_t)n);
    base_free(small);
}

static bool planned(const by_tensor *t)
{
    return t->place == GR_PLACE_PLANNED || t->place == GR_PLACE_INPUT || t->place == GR_PLACE_PARAM;
}

/* Put every tensor into memory of its own. Only views and sums in place stay shared; parameters, which may
 * come from a mapped file, lie at addresses that are multiples of their element alone. */
static void set_roots(by_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        gr_node *n = g->nodes[i];
        const gr_op_info *op = &gr_ops[n->op];
        for (int k = 0; k < n->n_out; k++) {
            const int slot = gr_base_of(op, k);
            if (!n->out[k])
                continue;
            n->out[k]->root = n->out[k];
            if (op->view)
                n->out[k]->root = n->in[0]->root;
            else if (slot >= 0 && slot < n->n_in && n->in[slot])
                n->out[k]->root = n->in[slot]->root;
        }
    }
}

/* Call fn for every root; it returns the bytes that the root takes. */
static size_t each_root(trial *t, size_t (*fn)(trial *t, by_tensor *root, size_t at))
{
    by_graph *g = t->program->graph;
    size_t at = 0;
    for (int i = 0; i < g->n_leaves; i++)
        if (planned(g->leaves[i]) && !g->leaves[i]->oldest)
            at += fn(t, g->leaves[i], at);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            by_tensor *x = g->nodes[i]->out[k];
            if (x && x->root == x && planned(x))
                at += fn(t, x, at);
        }
    return at;
}

static bool on_cpu(const by_device *d)
{
    return strcmp(by_device_name(d), "cpu") == 0;
}

/* To and from the device. */
static void upload(by_device *d, void *to, const void *from, size_t bytes)
{
    if (d->backend->upload(d, to, from, bytes) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void download(by_device *d, void *to, const void *from, size_t bytes)
{
    if (d->backend->download(d, to, from, bytes) != BY_OK)
        fail_msg("%s", by_error_message());
}

/* On the CPU, parameters may come from a mapped file; on a GPU they never do. */
static size_t shift_of(const by_tensor *t)
{
    const size_t unit = by_dtype_block(t->type) > 1 ? 2 : by_dtype_size(t->type);
    return GUARD + (t->place == GR_PLACE_PARAM && on_cpu(t->graph->device) ? unit : 0);
}

static size_t measure_root(trial *t, by_tensor *x, size_t at)
{
    (void)t, (void)at;
    return (shift_of(x) + gr_tensor_bytes(x) + GUARD + 63) / 64 * 64;
}

static size_t place_root(trial *t, by_tensor *x, size_t at)
{
    x->data = t->memory + at + shift_of(x);
    memset(t->image + at + shift_of(x), JUNK_BYTE, gr_tensor_bytes(x));
    return measure_root(t, x, at);
}

static size_t check_root(trial *t, by_tensor *x, size_t at)
{
    const char *from = t->image + at, *data = from + shift_of(x), *to = from + measure_root(t, x, at);
    const char *end = data + gr_tensor_bytes(x);
    for (const char *p = from; p < to; p = p + 1 == data ? end : p + 1)
        if ((unsigned char)*p != GUARD_BYTE) {
            complain("%s, %s: wrote to byte %td %s %s", t->title, by_dtype_name(t->how.type),
                     p < data ? data - p : p - end + 1, p < data ? "before" : "after", gr_tensor_label(x));
            break;
        }
    return (size_t)(to - from);
}

static void guard(trial *t)
{
    by_graph *g = t->program->graph;
    set_roots(g);
    t->bytes = each_root(t, measure_root);
    by_device *d = t->how.device;
    void *memory = NULL;
    assert_int_equal(d->backend->alloc(d, t->bytes + 1, &memory), BY_OK);
    t->memory = memory;
    t->image = base_alloc(t->bytes + 1);
    assert_non_null(t->image);
    memset(t->image, GUARD_BYTE, t->bytes);
    each_root(t, place_root);
    upload(d, t->memory, t->image, t->bytes);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            by_tensor *x = g->nodes[i]->out[k];
            if (x && x->root != x && planned(x->root))
                x->data = x->root->data;
        }
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->oldest)
            g->leaves[i]->data = g->leaves[i]->oldest->data;
    if (t->params->grad) {
        size_t bytes = (size_t)t->params->trained * by_dtype_size(gr_acc_type(t->how.type));
        char *junk = base_alloc(bytes + 1);
        assert_non_null(junk);
        memset(junk, JUNK_BYTE, bytes);
        upload(d, t->params->grad, junk, bytes);
        base_free(junk);
    }
    d->backend->forget(t->program); /* plans know addresses */
    if (d->backend->prepare(t->program) != BY_OK)
        fail_msg("%s", by_error_message());
}

/* sum of out * cotangent over the outputs that count; NULL when there are none */
static by_tensor *build_loss(trial *t, by_graph *g)
{
    by_op_sample *s = t->sample;
    uint64_t seed = 77;
    by_tensor *loss = NULL;
    for (int i = 0; i < s->n_outs; i++) {
        if (!s->out[i].in_loss)
            continue;
        int64_t n = by_elements(s->out[i].tensor);
        double *v = base_alloc_zero((size_t)n + 1, sizeof *v);
        assert_non_null(v);
        for (int64_t k = 0; k < n; k++)
            v[k] = op_sample_noise(&seed) * s->loss_scale;
        round_to(t->how.exact, v, n);
        t->cotangent[i].values = v;
        t->cotangent[i].tensor = by_input(g, "cotangent", s->out[i].tensor->type, 1, &n);
        by_tensor *flat = by_reshape(g, s->out[i].tensor, 1, &n);
        by_tensor *term = by_sum(g, by_mul(g, flat, t->cotangent[i].tensor), 0);
        term = by_cast(g, term, gr_acc_type(t->how.type));
        loss = loss ? by_add(g, loss, term) : term;
    }
    return loss;
}

static void trial_free(trial *t)
{
    for (int i = 0; i < BY_SAMPLE_OUTPUTS; i++)
        base_free(t->cotangent[i].values);
    op_sample_free(t->sample);
    by_program_free(t->program);
    by_params_free(t->params);
    t->how.device->backend->release(t->how.device, t->memory);
    base_free(t->image);
    base_free(t);
}

static void store(trial *t, by_tensor *x, const double *values)
{
    void *host = base_alloc(gr_tensor_bytes(x) + 1);
    assert_non_null(host);
    base_convert(host, x->type, values, BY_F64, (size_t)by_elements(x));
    upload(t->how.device, x->data, host, gr_tensor_bytes(x));
    base_free(host);
    if (x->place == GR_PLACE_PARAM && !t->how.guarded)
        assert_ptr_equal(x->data, gr_params_address(t->params, x->param, BY_SLOT_VALUE));
}

/* Values into the leaves. */
static void fill_leaves(trial *t)
{
    by_op_sample *s = t->sample;
    for (int i = 0; i < s->n_leaves; i++)
        store(t, s->leaf[i].tensor, s->leaf[i].values);
    for (int i = 0; i < s->n_outs; i++)
        if (t->cotangent[i].tensor)
            store(t, t->cotangent[i].tensor, t->cotangent[i].values);
}

/* A sample ready to run; NULL when the op has no more of them. */
static trial *trial_new(setup how, gr_op op, int which)
{
    trial *t = base_alloc_zero(1, sizeof *t);
    assert_non_null(t);
    t->how = how;
    t->params = by_params_new(how.device, how.type);
    assert_non_null(t->params);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = t->params, .training = how.gradients});
    assert_non_null(g);
    t->sample = op_sample_new(g, op, which, how.copied);
    if (!t->sample) {
        by_graph_free(g);
        trial_free(t);
        return NULL;
    }
    snprintf(t->title, sizeof t->title, "%s %d [%s]", gr_ops[op].name, which, t->sample->name);
    for (int i = 0; i < t->sample->n_leaves; i++) {
        const op_sample_leaf *l = &t->sample->leaf[i];
        if (by_dtype_is_float(l->tensor->type))
            round_to(how.exact, l->values, by_elements(l->tensor));
    }
    t->how.gradients = how.gradients && gr_ops[op].grad && !t->sample->forward_only;
    by_tensor *loss = t->how.gradients ? build_loss(t, g) : NULL;
    t->how.gradients = loss && loss->needs_grad;
    if (by_params_freeze(t->params, true) != BY_OK)
        fail_msg("%s", by_error_message());
    by_grad_mode mode = t->how.gradients ? BY_GRAD_STORE : BY_GRAD_NONE;
    t->program = by_compile(g, &(by_compile_spec){.loss = loss, .grads = mode});
    if (!t->program)
        fail_msg("%s, %s: %s", t->title, by_dtype_name(how.type), by_error_message());
    by_program_seed(t->program, 12345, 6);
    if (how.guarded)
        guard(t);
    fill_leaves(t);
    return t;
}

/* After a guarded run: nothing was written outside of what belongs to the op. */
static void check_guards(trial *t)
{
    by_device *d = t->how.device;
    download(d, t->image, t->memory, t->bytes);
    each_root(t, check_root);
    for (int i = 0; i < t->sample->n_leaves; i++) {
        const op_sample_leaf *l = &t->sample->leaf[i];
        size_t bytes = gr_tensor_bytes(l->tensor);
        void *before = base_alloc(2 * bytes + 1), *after = (char *)before + bytes;
        assert_non_null(before);
        base_convert(before, l->tensor->type, l->values, BY_F64, (size_t)by_elements(l->tensor));
        download(d, after, l->tensor->data, bytes);
        if (!l->changes && memcmp(before, after, bytes) != 0)
            complain("%s, %s: changed its input %s", t->title, by_dtype_name(t->how.type),
                     gr_tensor_label(l->tensor));
        base_free(before);
    }
    size_t size = by_dtype_size(gr_acc_type(t->how.type)), all = (size_t)t->params->trained * size;
    unsigned char *grad = base_alloc(all + 1);
    assert_non_null(grad);
    if (t->params->grad)
        download(d, grad, t->params->grad, all);
    for (int i = 0; i < t->params->count && t->params->grad; i++) {
        const gr_param_info *info = &t->params->list[i];
        const int64_t end = info->offset < 0 ? 0 : info->offset + gr_param_reserved(info);
        for (size_t k = (size_t)(info->offset + info->count) * size; k < (size_t)end * size; k++)
            if (grad[k] != JUNK_BYTE && grad[k] != 0) { /* zeros are what lies there */
                complain("%s, %s: wrote after the gradient of %s", t->title, by_dtype_name(t->how.type),
                         info->name);
                break;
            }
    }
    base_free(grad);
}

static void run_once(trial *t)
{
    if (by_run(t->program) != BY_OK)
        fail_msg("%s, %s: %s", t->title, by_dtype_name(t->how.type), by_error_message());
    if (t->how.guarded)
        check_guards(t);
}

/* ---- what comes out -------------------------------------------------------------------------- */

typedef struct part {
    char label[40];
    bool gradient, integer;
    int64_t count;
    double *values;
} part;

typedef struct result {
    char title[BY_SAMPLE_NAME + 64];
    int count;
    part part[BY_SAMPLE_OUTPUTS + BY_SAMPLE_LEAVES];
} result;

static void add_part(result *r, by_device *d, const char *label, const void *data, by_dtype type,
                     int64_t count, bool gradient)
{
    part *p = &r->part[r->count++];
    snprintf(p->label, sizeof p->label, "%s", label);
    p->gradient = gradient;
    p->integer = !by_dtype_is_float(type);
    p->count = count;
    size_t bytes = (size_t)count * by_dtype_size(type);
    void *host = base_alloc(bytes + 1);
    p->values = base_alloc((size_t)count * sizeof *p->values + 1);
    assert_true(host && p->values);
    download(d, host, data, bytes);
    base_convert(p->values, BY_F64, host, type, (size_t)count);
    base_free(host);
}

static void result_free(result *r)
{
    for (int i = 0; i < r->count; i++)
        base_free(r->part[i].values);
    base_free(r);
}

/* Outputs, and gradients of the parameters. */
static result *collect_result(const trial *t)
{
    result *r = base_alloc_zero(1, sizeof *r);
    assert_non_null(r);
    memcpy(r->title, t->title, sizeof r->title);
    char label[32];
    for (int i = 0; i < t->sample->n_outs; i++) {
        const by_tensor *x = t->sample->out[i].tensor;
        snprintf(label, sizeof label, "output %d", i);
        add_part(r, t->how.device, label, x->data, x->type, by_elements(x), false);
    }
    for (int i = 0; t->how.gradients && i < t->params->count; i++) {
        snprintf(label, sizeof label, "gradient of %s", t->params->list[i].name);
        const void *grad = gr_params_address(t->params, i, BY_SLOT_GRAD);
        if (grad) /* none of what is not trained */
            add_part(r, t->how.device, label, grad, gr_acc_type(t->how.type), t->params->list[i].count, true);
    }
    return r;
}

/* Run a sample from beginning to end; NULL when there is no such sample. */
static result *outcome(setup how, gr_op op, int which)
{
    trial *t = trial_new(how, op, which);
    if (!t)
        return NULL;
    run_once(t);
    result *r = collect_result(t);
    trial_free(t);
    return r;
}

static double square_sum(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = y ? x[i] - y[i] : x[i];
        sum += d * d;
    }
    return sum;
}

/* Normalised mean square error. Where all should be zero, it is 0 or infinite. */
static double nmse(const double *x, const double *right, int64_t n)
{
    double error = square_sum(x, right, n), size = square_sum(right, NULL, n);
    return error == 0 ? 0 : size > 0 ? error / size : INFINITY;
}

/* What the formats allow. f32 has a bound of its own in the design; for 16 bits it is a multiple of the
 * square of the unit roundoff: results are rounded a few times on their way, gradients (also those of ops
 * that are gradients) more often. */
static double bound(by_dtype type, bool gradient)
{
    const double unit = type == BY_BF16 ? 0x1p-9 : 0x1p-11;
    return type == BY_F32 ? 1e-10 : (gradient ? 256 : 32) * unit * unit;
}

static bool is_backward(gr_op op)
{
    static const gr_op ops[] = {GR_OP_ACTIVATION_GRAD, GR_OP_SOFTMAX_GRAD,      GR_OP_GATHER_GRAD,
                                GR_OP_LINEAR_DX,       GR_OP_LINEAR_DW,         GR_OP_NORM_GRAD,
                                GR_OP_ATTENTION_GRAD,  GR_OP_CROSS_ENTROPY_GRAD};
    for (int i = 0; i < BY_COUNT(ops); i++)
        if (ops[i] == op)
            return true;
    return false;
}

static void compare(const result *r, const result *right, gr_op op, by_dtype type, const char *where)
{
    for (int i = 0; i < r->count; i++) {
        const part *p = &r->part[i];
        double allowed = p->integer ? 0 : bound(type, p->gradient || is_backward(op));
        double error = nmse(p->values, right->part[i].values, p->count);
        if (!(error <= allowed))
            complain("%s, %s on %s: %s has NMSE %.2g, more than %.2g", r->title, by_dtype_name(type), where,
                     p->label, error, allowed);
    }
}

static void same_bits(const result *r, const result *other, by_dtype type, const char *where)
{
    for (int i = 0; i < r->count; i++)
        if (memcmp(r->part[i].values, other->part[i].values, (size_t)r->part[i].count * sizeof(double)) != 0)
            complain("%s, %s on %s: %s has other bits with one thread in planned memory than with two in "
                     "guarded (NMSE %.2g)",
                     r->title, by_dtype_name(type), where, r->part[i].label,
                     nmse(other->part[i].values, r->part[i].values, r->part[i].count));
}
