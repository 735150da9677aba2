/* check_pass.c - one pass forward and one with gradients, and what the reference says about them. */
#include <math.h>
#include <stdlib.h>

#include "train/check.h"

/* Where a classifier reads its label off: the last token that is not padding, or the last one when there is
 * no padding token. */
static by_status find_last(by_check *c)
{
    int pad = by_model_pad(c->model);
    c->pick = by_alloc_zero((size_t)c->batch, sizeof *c->pick);
    for (int b = 0; c->pick && b < c->batch; b++) {
        int last = c->seq - 1;
        while (pad >= 0 && last > 0 && c->tokens[b * c->seq + last] == pad)
            last--;
        c->pick[b] = b * c->seq + last;
    }
    return c->pick ? BY_OK : BY_ERR_MEMORY;
}

static by_status take_inputs(by_check *c)
{
    static const char *const known[] = {"input_ids", "attention_mask", "position_ids", "labels", NULL};
    bool classify = by_model_task(c->model) == BY_TASK_CLASSIFY;
    BY_TRY(by_check_known(c, "input.", known));
    BY_TRY(by_check_shape(c, "input."));
    BY_TRY(by_check_ids(c, "input.", "input_ids", c->batch, c->seq, &c->tokens));
    BY_TRY(by_check_ids(c, "input.", "attention_mask", c->batch, c->seq, &c->mask));
    BY_TRY(by_check_ids(c, "input.", "position_ids", c->batch, c->seq, &c->positions));
    BY_TRY(by_check_ids(c, "input.", "labels", c->batch, classify ? 0 : c->seq, &c->targets));
    if (classify)
        return find_last(c);
    if (c->targets)
        by_check_shift(c->targets, c->batch, c->seq);
    return BY_OK;
}

static by_status feed(by_check_pass *p, by_tensor *t, const int32_t *values)
{
    return t ? by_write(p->program, t, values, (size_t)by_elements(t) * sizeof *values) : BY_OK;
}

static by_status run_pass(by_check *c, by_check_pass *p, bool gradients)
{
    int64_t shape[2] = {c->batch, c->seq};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(c->model), .training = gradients});
    if (!g)
        return BY_ERR_MEMORY;
    p->io.want_hidden = p->io.want_attention = !gradients;
    p->io.tokens = by_input(g, "tokens", BY_I32, 2, shape);
    p->io.mask = c->mask ? by_input(g, "mask", BY_I32, 2, shape) : NULL;
    p->io.pick = c->pick ? by_input(g, "pick", BY_I32, 1, shape) : NULL;
    by_tensor *positions = c->positions ? by_input(g, "positions", BY_I32, 2, shape) : NULL;
    p->io.positions = positions;
    p->targets = c->targets ? by_input(g, "targets", BY_I32, c->pick ? 1 : 2, shape) : NULL;
    by_model_build(c->model, g, &p->io);
    if (!gradients)
        by_output(g, "logits", p->io.logits);
    p->loss = p->targets ? by_model_loss(c->model, g, &p->io, p->targets) : NULL;
    p->program =
        by_compile(g, &(by_compile_spec){.loss = p->loss, .grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE});
    if (!p->program)
        return by_error_status();
    BY_TRY(feed(p, p->io.tokens, c->tokens));
    BY_TRY(feed(p, p->io.mask, c->mask));
    BY_TRY(feed(p, p->io.pick, c->pick));
    BY_TRY(feed(p, positions, c->positions));
    BY_TRY(feed(p, p->targets, c->targets));
    return by_run(p->program);
}

/* The number at the end of "hidden_states.N", below count; -1 when it is none. */
static int index_after(const char *name, const char *stem, int count)
{
    char *end;
    size_t n = strlen(stem);
    if (strncmp(name, stem, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    long i = strtol(name + n, &end, 10);
    return *end == '\0' && i < count ? (int)i : -1;
}

static by_tensor *output_named(const by_check_pass *p, const char *name)
{
    int hidden = index_after(name, "hidden_states.", p->io.n_hidden);
    int attention = index_after(name, "attentions.", p->io.n_attention);
    if (hidden >= 0)
        return p->io.hidden[hidden];
    if (attention >= 0)
        return p->io.attention[attention];
    return strcmp(name, "logits") == 0 ? p->io.logits : strcmp(name, "loss") == 0 ? p->loss : NULL;
}

by_status by_check_output(by_check *c, const by_weight *e)
{
    const char *name = e->name + strlen("output.");
    const by_tensor *t = output_named(&c->forward, name);
    if (!t) {
        bool unlabelled = strcmp(name, "loss") == 0 && !c->targets;
        by_check_note(c, e, BY_VERDICT_FAILED,
                      unlabelled ? "there are no labels (input.labels)" : "this model has no such output");
        return BY_OK;
    }
    int64_t dim[BY_MAX_RANK];
    for (int i = 0; i < by_rank(t); i++)
        dim[i] = by_dim(t, i);
    float *here = by_alloc_zero((size_t)by_elements(t) + 1, sizeof *here);
    by_status s = here ? by_read_f32(c->forward.program, t, here) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_check_compare(c, e, t == c->forward.loss ? BY_SUBJECT_LOSS : BY_SUBJECT_OUTPUT, by_rank(t),
                             dim, here, NULL);
    by_free(here);
    return s;
}

by_status by_check_gradient(by_check *c, const by_weight *e)
{
    const by_params *p = by_model_params(c->model);
    int i = by_params_find(p, e->name + strlen("grad."));
    if (by_check_missing(c, e, i, c->backward.program != NULL))
        return BY_OK;
    float *here = by_check_parameter(p, i, BY_SLOT_GRAD);
    by_status s = here ? BY_OK : by_error_status();
    if (s == BY_OK)
        s = by_check_compare(c, e, BY_SUBJECT_GRADIENT, by_params_rank(p, i), by_params_shape(p, i), here,
                             NULL);
    by_free(here);
    return s;
}

by_status by_check_passes(by_check *c)
{
    BY_TRY(take_inputs(c));
    BY_TRY(run_pass(c, &c->forward, false));
    double sum = 0;
    bool wanted = false;
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        if (!by_has_prefix(e->name, "grad."))
            continue;
        float *values = by_check_values(e, BY_F32);
        if (!values)
            return BY_ERR_MEMORY;
        for (size_t k = 0; k < by_check_elements(e); k++)
            sum += (double)values[k] * (double)values[k];
        by_free(values);
        wanted = true;
    }
    c->whole = sqrt(sum);
    return wanted && c->targets ? run_pass(c, &c->backward, true) : BY_OK;
}
