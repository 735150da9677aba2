/* program.c - compiled programs: the order of the passes, addresses, input and output. */
#include "graph/graph.h"

static by_status resolve(by_program *p, by_tensor *t)
{
    const by_tensor *r = t->root;
    switch (r->place) {
    case GR_PLACE_PLANNED:
    case GR_PLACE_INPUT:
        t->data = (char *)p->memory + r->offset;
        return BY_OK;
    case GR_PLACE_PARAM:
        t->data = gr_params_address(r->params, r->param, BY_SLOT_VALUE);
        break;
    case GR_PLACE_GRAD:
        t->data = gr_params_address(r->params, r->param, BY_SLOT_GRAD);
        break;
    case GR_PLACE_STATE:
        t->data = r->memory->data;
        return BY_OK;
    }
    if (!t->data)
        return base_fail(BY_ERR_ARGUMENT, "%s has no memory: the parameters were not frozen for training",
                         gr_tensor_label(t));
    return BY_OK;
}

static by_status resolve_all(by_program *p)
{
    by_graph *g = p->graph;
    for (int i = 0; i < g->n_leaves; i++)
        BY_TRY(resolve(p, g->leaves[i]));
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k])
                BY_TRY(resolve(p, g->nodes[i]->out[k]));
    return BY_OK;
}

/* Allocates activation memory, or shares that of other programs if it fits. */
static by_status find_memory(by_program *p, by_memory **shared)
{
    if (shared && !*shared && !(*shared = by_memory_new(p->device, p->bytes)))
        return base_error_status();
    p->borrowed = shared && by_memory_bytes(*shared) >= p->bytes;
    if (!p->borrowed)
        return p->device->backend->alloc(p->device, p->bytes, &p->memory);
    p->memory = (*shared)->data;
    return BY_OK;
}

static by_status compile(by_program *p, const by_compile_spec *spec)
{
    by_graph *g = p->graph;
    BY_TRY(by_graph_status(g));
    if (!g->params->frozen)
        return base_fail(BY_ERR_ARGUMENT, "the parameters must be frozen before a program is compiled");
    if (!spec->no_fusion)
        BY_TRY(gr_fuse(g, !spec->recompute));
    if (spec->loss)
        by_output(g, NULL, spec->loss);
    if (spec->loss && spec->grads != BY_GRAD_NONE)
        BY_TRY(gr_differentiate(g, spec->loss, spec->loss_scale, spec->grads));
    BY_TRY(gr_prune(g));
    if (spec->recompute)
        BY_TRY(gr_recompute(g));
    if (p->device->backend->row_bytes)
        gr_pitch(g, p->device->backend->row_bytes);
    BY_TRY(gr_preserve_states(g));
    BY_TRY(gr_plan(g, &p->bytes));
    if (p->device->backend->joins)
        gr_join_pairs(g);
    if (find_memory(p, spec->memory) != BY_OK)
        return base_fail_context("the activations of this program need %.2f GiB",
                                 (double)p->bytes / (1 << 30));
    BY_TRY(resolve_all(p));
    for (int i = 0; i < g->n_nodes; i++)
        p->flops += gr_ops[g->nodes[i]->op].cost(g->nodes[i]).flops;
    return p->device->backend->prepare(p);
}

by_program *by_compile(by_graph *g, const by_compile_spec *spec)
{
    const by_compile_spec usual = {0};
    if (!g) {
        base_fail_missing("graph");
        return NULL;
    }
    by_program *p = base_alloc_zero(1, sizeof *p);
    if (!p) {
        by_graph_free(g);
        return NULL;
    }
    p->graph = g;
    p->device = g->device;
    if (compile(p, spec ? spec : &usual) != BY_OK) {
        by_program_free(p);
        return NULL;
    }
    return p;
}

void by_program_free(by_program *p)
{
    if (!p)
        return;
    p->device->backend->forget(p);
    if (p->memory && !p->borrowed)
        p->device->backend->release(p->device, p->memory);
    by_graph_free(p->graph);
    base_free(p);
}

size_t by_program_bytes(const by_program *p)
{
    return p ? p->bytes : 0;
}

double by_program_flops(const by_program *p)
{
    return p ? p->flops : 0;
}

void by_program_seed(by_program *p, uint64_t seed, uint64_t step)
{
    if (!p)
        return;
    p->seed = seed;
    p->step = step;
}

void by_program_trace(by_program *p, by_trace_fn fn, void *user)
{
    if (!p)
        return;
    p->trace = fn;
    p->trace_user = user;
    p->only_times = false;
}

void by_program_time(by_program *p, by_trace_fn fn, void *user)
{
    by_program_trace(p, fn, user);
    if (p)
        p->only_times = true;
}

by_status by_run(by_program *p)
{
    return p ? p->device->backend->run(p) : base_fail_missing("program");
}

/* Whether `bytes` of a tensor can be copied to or from host memory. */
static by_status check_access(const by_program *p, const by_tensor *t, const void *host, size_t bytes)
{
    if (!p || !t)
        return base_fail_missing(p ? "tensor" : "program");
    if (!host && bytes)
        return base_fail(BY_ERR_ARGUMENT, "%s: the host pointer is NULL", gr_tensor_label(t));
    if (bytes != gr_tensor_bytes(t))
        return base_fail(BY_ERR_ARGUMENT, "%s holds %zu bytes, not %zu", gr_tensor_label(t),
                         gr_tensor_bytes(t), bytes);
    if (!t->data || (t->root->place == GR_PLACE_PLANNED && !t->is_output))
        return base_fail(BY_ERR_ARGUMENT, "%s is not readable: mark it with by_output()", gr_tensor_label(t));
    return BY_OK;
}

by_status by_write(by_program *p, by_tensor *t, const void *data, size_t bytes)
{
    BY_TRY(check_access(p, t, data, bytes));
    return p->device->backend->upload(p->device, t->data, data, bytes);
}

by_status by_read(by_program *p, const by_tensor *t, void *data, size_t bytes)
{
    BY_TRY(check_access(p, t, data, bytes));
    return p->device->backend->download(p->device, data, t->data, bytes);
}

by_status by_keep(by_program *p, const by_tensor *t, by_memory *m, size_t offset)
{
    const size_t bytes = t ? gr_tensor_bytes(t) : 0;
    BY_TRY(check_access(p, t, m, bytes));
    if (!m || offset > m->bytes || bytes > m->bytes - offset)
        return base_fail(BY_ERR_ARGUMENT, "%s does not fit into that memory", gr_tensor_label(t));
    return p->device->backend->copy(p->device, (char *)m->data + offset, t->data, bytes);
}

by_status by_read_f32(by_program *p, const by_tensor *t, float *out)
{
    const size_t bytes = t ? gr_tensor_bytes(t) : 0;
    BY_TRY(check_access(p, t, out, bytes));
    if (t->type == BY_F32)
        return by_read(p, t, out, bytes);
    void *host = base_alloc(bytes);
    if (!host)
        return BY_ERR_MEMORY;
    by_status s = by_read(p, t, host, bytes);
    if (s == BY_OK)
        base_convert(out, BY_F32, host, t->type, (size_t)by_elements(t));
    base_free(host);
    return s;
}

by_status by_read_row(by_program *p, const by_tensor *t, int64_t row, float *out)
{
    BY_TRY(check_access(p, t, out, t ? gr_tensor_bytes(t) : 0));
    if (row < 0 || row >= gr_tensor_rows(t))
        return base_fail(BY_ERR_ARGUMENT, "%s has no row %lld", gr_tensor_label(t), (long long)row);
    const size_t cols = (size_t)gr_tensor_cols(t), bytes = cols * by_dtype_size(t->type);
    const char *from = (const char *)t->data + (size_t)row * bytes;
    if (t->type == BY_F32)
        return p->device->backend->download(p->device, out, from, bytes);
    void *host = base_alloc(bytes);
    if (!host)
        return BY_ERR_MEMORY;
    by_status s = p->device->backend->download(p->device, host, from, bytes);
    if (s == BY_OK)
        base_convert(out, BY_F32, host, t->type, cols);
    base_free(host);
    return s;
}
