/* check_graph.c - cases that are a computation and not a model: float inputs become parameters, so that their
 * gradients can be compared too. */
#include "verify/check.h"

by_status verify_graph_open(verify_case *c, verify_graph *v)
{
    v->params = by_params_new(c->device, c->spec->dtype);
    v->graph = v->params ? by_graph_new(&(by_graph_spec){.params = v->params, .training = true}) : NULL;
    return v->graph ? BY_OK : base_error_status();
}

void verify_graph_close(verify_graph *v)
{
    by_graph_free(v->graph);
    by_program_free(v->program);
    by_params_free(v->params);
}

by_tensor *verify_graph_operand_as(verify_case *c, verify_graph *v, const char *name, const char *leaf)
{
    const by_weight *e = verify_find(c, "input.", name);
    if (!e || !by_dtype_is_float(e->dtype))
        return by_graph_fail(v->graph, "the reference has no floats input.%s", name);
    by_tensor *t = by_param(v->graph, leaf, e->rank, e->dim, (by_init){BY_INIT_ZERO, 0});
    if (v->n_operands == BY_COUNT(v->operands))
        return by_graph_fail(v->graph, "more than %d operands", BY_COUNT(v->operands));
    v->operands[v->n_operands++] = (verify_operand){by_params_find(v->params, leaf), e};
    return t;
}

by_tensor *verify_graph_operand(verify_case *c, verify_graph *v, const char *name)
{
    char leaf[128];
    base_format(leaf, sizeof leaf, "input.%s", name);
    return verify_graph_operand_as(c, v, name, leaf);
}

void verify_graph_output(verify_graph *v, const char *name, by_tensor *t)
{
    if (v->n_outputs == BY_COUNT(v->outputs)) {
        by_graph_fail(v->graph, "more than %d outputs", BY_COUNT(v->outputs));
        return;
    }
    v->names[v->n_outputs] = name;
    v->outputs[v->n_outputs++] = by_output(v->graph, name, t);
}

/* The recorded values of a parameter: an operand's, or a weight's. NULL if there are none. */
static const by_weight *value_of(const verify_graph *v, int parameter)
{
    for (int k = 0; k < v->n_operands; k++)
        if (v->operands[k].parameter == parameter)
            return v->operands[k].value;
    return v->weights ? by_weights_find(v->weights, by_params_name(v->params, parameter)) : NULL;
}

static by_status set_operands(verify_graph *v)
{
    for (int i = 0; i < by_params_count(v->params); i++) {
        const by_weight *e = value_of(v, i);
        if (!e || verify_elements(e) != verify_parameter_size(v->params, i))
            return base_fail(BY_ERR_FORMAT, "the weight %s is missing or has another shape",
                             by_params_name(v->params, i));
        float *values = verify_values(e, BY_F32);
        by_status s = values ? by_params_set(v->params, i, BY_SLOT_VALUE, values) : BY_ERR_MEMORY;
        base_free(values);
        BY_TRY(s);
    }
    return BY_OK;
}

by_status verify_graph_compile(verify_graph *v, by_tensor *loss)
{
    BY_TRY(by_graph_status(v->graph));
    BY_TRY(by_params_freeze(v->params, true));
    BY_TRY(set_operands(v));
    v->loss = loss;
    v->program = by_compile(v->graph, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    v->graph = NULL; /* the program has taken it over */
    return v->program ? BY_OK : base_error_status();
}

static by_status compare_output(verify_case *c, verify_graph *v, const by_weight *e)
{
    int k = 0;
    while (k < v->n_outputs && strcmp(e->name + strlen("output."), v->names[k]) != 0)
        k++;
    if (k == v->n_outputs) {
        verify_note(c, e, BY_VERDICT_FAILED, "the computation has no such output");
        return BY_OK;
    }
    const by_tensor *t = v->outputs[k];
    int64_t dim[BY_MAX_RANK];
    for (int i = 0; i < by_rank(t); i++)
        dim[i] = by_dim(t, i);
    float *here = base_alloc_zero((size_t)by_elements(t) + 1, sizeof *here);
    by_status s = here ? by_read_f32(v->program, t, here) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = verify_compare(c, e, t == v->loss ? VERIFY_SUBJECT_LOSS : VERIFY_SUBJECT_OUTPUT, by_rank(t), dim,
                           here, NULL);
    base_free(here);
    return s;
}

static by_status compare_gradient(verify_case *c, verify_graph *v, const by_weight *e)
{
    const char *name = e->name + strlen("grad.");
    char input[128];
    base_format(input, sizeof input, "input.%s", name);
    const int weight = by_params_find(v->params, name);
    const int i = weight < 0 ? by_params_find(v->params, input) : weight;
    if (i < 0) {
        verify_note(c, e, BY_VERDICT_FAILED, "the computation has no such input");
        return BY_OK;
    }
    float *here = verify_parameter(v->params, i, BY_SLOT_GRAD);
    by_status s = here ? verify_compare(c, e, VERIFY_SUBJECT_GRADIENT, by_params_rank(v->params, i),
                                        by_params_shape(v->params, i), here, NULL)
                       : base_error_status();
    base_free(here);
    return s;
}

by_status verify_graph_compare(verify_case *c, verify_graph *v)
{
    BY_TRY(by_run(v->program));
    BY_TRY(verify_whole(c, &(bool){false}));
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        if (verify_has_prefix(e->name, "output."))
            BY_TRY(compare_output(c, v, e));
        else if (verify_has_prefix(e->name, "grad."))
            BY_TRY(compare_gradient(c, v, e));
        else if (!verify_has_prefix(e->name, "input."))
            verify_note(c, e, BY_VERDICT_FAILED, "unknown kind of tensor");
    }
    return BY_OK;
}
