/* optimizer.c - gradient norm, clipping and the optimiser as a graph of two nodes over the flat buffers, and
 * the schedules of its learning rate. */
#include "banyan/train.h"

#include <math.h>

#include "graph/graph.h"

struct by_update {
    by_optimizer_spec spec;
    by_program *program;
    bool gr_stochastic;   /* see gr_optim_attr */
    by_memory buffers[5]; /* views of the parameter list's buffers; not owned */
    by_tensor *hyper, *norm;
};

static by_tensor *flat(by_graph *g, by_update *u, int i, const char *name, by_dtype type, void *data)
{
    by_params *p = g->params;
    if (!data)
        return NULL;
    u->buffers[i] = (by_memory){p->device, data, (size_t)p->trained * by_dtype_size(type)};
    return by_state(g, name, type, 1, &p->trained, &u->buffers[i]);
}

static by_program *build(by_update *u, by_params *p)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = p});
    if (!g)
        return NULL;
    by_dtype acc = gr_acc_type(p->type);
    by_tensor *value = flat(g, u, 0, "values", p->type, p->value);
    by_tensor *grad = flat(g, u, 1, "gradients", acc, p->grad);
    by_tensor *m = flat(g, u, 2, "moment1", acc, p->moment1);
    by_tensor *v = flat(g, u, 3, "moment2", acc, p->moment2);
    by_tensor *master = flat(g, u, 4, "masters", BY_F32, p->master);
    u->hyper = by_input(g, "hyper", BY_F32, 1, (int64_t[]){GR_HYPER_COUNT});
    u->norm = by_output(g, "gradient norm", gr_node_add(g, GR_OP_NORM2, &grad, 1, NULL, 0));
    gr_optim_attr a = {.segments = p->segments,
                       .n_segments = p->n_segments,
                       .beta1 = (float)u->spec.beta1,
                       .beta2 = (float)u->spec.beta2,
                       .eps = (float)u->spec.eps,
                       .weight_decay = (float)u->spec.weight_decay,
                       .gr_stochastic = u->gr_stochastic};
    if (u->spec.kind == BY_SGD)
        gr_node_make(g, GR_OP_SGD, (by_tensor *[]){value, grad, m, master, u->norm, u->hyper}, 6, &a,
                     sizeof a);
    else
        gr_node_make(g, u->spec.kind == BY_ADAMW ? GR_OP_ADAMW : GR_OP_ADAFACTOR,
                     (by_tensor *[]){value, grad, m, v, master, u->norm, u->hyper}, 7, &a, sizeof a);
    return by_compile(g, &(by_compile_spec){0});
}

/* 0 selects the default, a negative number 0. */
static double or_usual(double value, double usual)
{
    return value == 0 ? usual : BY_MAX(value, 0);
}

by_update *by_update_new(by_params *p, const by_optimizer_spec *spec)
{
    if (!p || !spec) {
        base_fail_missing(p ? "by_optimizer_spec" : "list of parameters");
        return NULL;
    }
    if (!p->training) {
        base_fail(BY_ERR_ARGUMENT, "the parameters were not frozen for training");
        return NULL;
    }
    by_update *u = base_alloc_zero(1, sizeof *u);
    if (!u)
        return NULL;
    u->spec = *spec;
    u->gr_stochastic = p->without_masters;
    u->spec.beta1 = or_usual(u->spec.beta1, 0.9);
    u->spec.beta2 = or_usual(u->spec.beta2, 0.95);
    u->spec.eps = or_usual(u->spec.eps, 1e-8);
    u->program = build(u, p);
    if (!u->program) {
        base_free(u);
        return NULL;
    }
    return u;
}

void by_update_free(by_update *u)
{
    if (!u)
        return;
    by_program_free(u->program);
    base_free(u);
}

by_status by_update_run(by_update *u, double learning_rate, int64_t step, double *norm)
{
    if (!u)
        return base_fail_missing("update");
    float hyper[GR_HYPER_COUNT] = {0};
    hyper[GR_HYPER_LR] = (float)learning_rate;
    hyper[GR_HYPER_MAX_NORM] = (float)u->spec.max_grad_norm;
    hyper[GR_HYPER_CORR1] = (float)(1 - pow(u->spec.beta1, (double)step));
    hyper[GR_HYPER_CORR2] = (float)(1 - pow(u->spec.beta2, (double)step));
    hyper[GR_HYPER_STEP] = (float)step;
    hyper[GR_HYPER_MOMENTUM] = (float)u->spec.momentum;
    if (u->gr_stochastic) /* differs from the random numbers of dropout in the same step */
        by_program_seed(u->program, base_hash("rounding", 8, u->spec.seed), (uint64_t)step);
    BY_TRY(by_write(u->program, u->hyper, hyper, sizeof hyper));
    BY_TRY(by_run(u->program));
    return norm ? by_update_norm(u, norm) : BY_OK;
}

by_status by_update_norm(by_update *u, double *norm)
{
    if (!u || !norm)
        return base_fail_missing(u ? "place for the norm" : "update");
    float value;
    BY_TRY(by_read_f32(u->program, u->norm, &value));
    *norm = value;
    return isfinite(value) ? BY_OK : base_fail(BY_ERR_NUMERIC, "gradient norm is not finite");
}

by_status by_update_keep(by_update *u, by_memory *m, size_t offset)
{
    return u ? by_keep(u->program, u->norm, m, offset) : base_fail_missing("update");
}

by_program *by_update_program(by_update *u)
{
    return u ? u->program : NULL;
}

double by_schedule_rate(const by_schedule_spec *s, int64_t step)
{
    if (step < s->warmup)
        return s->rate * (double)(step + 1) / (double)s->warmup;
    double span = (double)BY_MAX(s->steps - s->warmup, 1);
    double done = BY_MIN((double)(step - s->warmup) / span, 1.0);
    switch (s->kind) {
    case BY_SCHEDULE_CONSTANT:
        break;
    case BY_SCHEDULE_LINEAR:
        return s->rate + (s->min_rate - s->rate) * done;
    case BY_SCHEDULE_COSINE:
        return s->min_rate + (s->rate - s->min_rate) * 0.5 * (1 + cos(3.14159265358979323846 * done));
    case BY_SCHEDULE_INVERSE_SQRT:
        return s->rate * sqrt((double)BY_MAX(s->warmup, 1) / (double)BY_MAX(step + 1, 1));
    }
    return s->rate;
}
