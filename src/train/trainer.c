/* trainer.c - steps: forward, backward, update, evaluation, each a compiled program that is replayed. */
#include <math.h>

#include "base/base.h"
#include "banyan/train.h"

/* One compiled pass over a micro-batch. */
typedef struct pass {
    by_program *program;
    by_tensor *tokens, *targets, *pick, *mask, *loss, *scale;
} pass;

struct by_trainer {
    by_model *model;
    by_trainer_spec spec;
    int64_t steps, micro;  /* updates so far; micro-batches since the last */
    pass store, add, eval; /* compiled when first needed */
    by_update *update;
    by_memory *losses; /* (accumulate) f32 or f64: of the micro-batches since the last first one */
    int32_t *scratch;  /* (batch, seq): the mask of a model that classifies */
};

static size_t loss_size(const by_trainer *t)
{
    return by_dtype_size(by_params_dtype(by_model_params(t->model)) == BY_F64 ? BY_F64 : BY_F32);
}

by_trainer *by_trainer_new(by_model *m, const by_trainer_spec *spec)
{
    if (spec->batch < 1 || spec->seq < 1 || spec->accumulate < 0) {
        by_fail(BY_ERR_ARGUMENT, "a batch of %d rows of %d tokens is not possible", spec->batch, spec->seq);
        return NULL;
    }
    by_trainer *t = by_alloc_zero(1, sizeof *t);
    if (!t)
        return NULL;
    t->model = m;
    t->spec = *spec;
    t->spec.accumulate = BY_MAX(spec->accumulate, 1);
    t->update = by_update_new(by_model_params(m), &spec->optimizer);
    t->losses = by_memory_new(by_model_device(m), (size_t)t->spec.accumulate * loss_size(t));
    t->scratch = by_alloc_zero((size_t)spec->batch * (size_t)spec->seq, sizeof *t->scratch);
    if (!t->update || !t->losses || !t->scratch) {
        by_trainer_free(t);
        return NULL;
    }
    return t;
}

void by_trainer_free(by_trainer *t)
{
    if (!t)
        return;
    by_program_free(t->store.program);
    by_program_free(t->add.program);
    by_program_free(t->eval.program);
    by_update_free(t->update);
    by_memory_free(t->losses);
    by_free(t->scratch);
    by_free(t);
}

static by_status compile(by_trainer *t, pass *p, by_grad_mode grads)
{
    if (p->program)
        return BY_OK;
    bool training = grads != BY_GRAD_NONE, classify = by_model_task(t->model) == BY_TASK_CLASSIFY;
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(t->model), .training = training});
    if (!g)
        return BY_ERR_MEMORY;
    int64_t shape[2] = {t->spec.batch, t->spec.seq};
    p->tokens = by_input(g, "tokens", BY_I32, 2, shape);
    p->targets = by_input(g, "targets", BY_I32, classify ? 1 : 2, shape);
    p->scale = training ? by_input(g, "loss scale", BY_F32, 0, NULL) : NULL;
    if (classify) {
        p->pick = by_input(g, "pick", BY_I32, 1, shape);
        p->mask = by_input(g, "mask", BY_I32, 2, shape);
    }
    by_model_io io = {.tokens = p->tokens, .pick = p->pick, .mask = p->mask};
    by_model_build(t->model, g, &io);
    p->loss = by_model_loss(t->model, g, &io, p->targets);
    p->program = by_compile(g, &(by_compile_spec){.loss = p->loss,
                                                  .grads = grads,
                                                  .loss_scale = p->scale,
                                                  .recompute = t->spec.recompute && training});
    return p->program ? BY_OK : by_error_status();
}

/* Rows end with padding: the label is read off the last token that is none. */
static by_status write_mask(by_trainer *t, pass *p, const int32_t *inputs)
{
    int b = t->spec.batch, n = t->spec.seq, pad = by_model_pad(t->model);
    for (int i = 0; i < b * n; i++)
        t->scratch[i] = inputs[i] != pad;
    BY_TRY(by_write(p->program, p->mask, t->scratch, (size_t)b * (size_t)n * sizeof *t->scratch));
    for (int r = 0; r < b; r++) {
        int last = n - 1;
        while (last > 0 && inputs[r * n + last] == pad)
            last--;
        t->scratch[r] = r * n + last;
    }
    return by_write(p->program, p->pick, t->scratch, (size_t)b * sizeof *t->scratch);
}

/* Starts the pass; on a GPU it goes on while the host does other things. */
static by_status run(by_trainer *t, pass *p, const int32_t *inputs, const int32_t *targets)
{
    size_t rows = (size_t)t->spec.batch, all = rows * (size_t)t->spec.seq;
    BY_TRY(by_write(p->program, p->tokens, inputs, all * sizeof *inputs));
    BY_TRY(by_write(p->program, p->targets, targets, (p->pick ? rows : all) * sizeof *targets));
    if (p->pick)
        BY_TRY(write_mask(t, p, inputs));
    if (p->scale) {
        float scale = 1.0f / (float)t->spec.accumulate;
        BY_TRY(by_write(p->program, p->scale, &scale, sizeof scale));
    }
    uint64_t step = (uint64_t)(t->steps * t->spec.accumulate + t->micro);
    by_program_seed(p->program, t->spec.seed, step);
    return by_run(p->program);
}

static by_status check_loss(const by_trainer *t, double loss)
{
    return isfinite(loss) ? BY_OK
                          : by_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld", loss, (long long)t->steps);
}

by_status by_trainer_backward(by_trainer *t, const int32_t *inputs, const int32_t *targets, bool first,
                              double *loss)
{
    pass *p = first ? &t->store : &t->add;
    BY_TRY(compile(t, p, first ? BY_GRAD_STORE : BY_GRAD_ADD));
    if (first)
        t->micro = 0;
    BY_TRY(run(t, p, inputs, targets));
    if (t->micro < t->spec.accumulate)
        BY_TRY(by_keep(p->program, p->loss, t->losses, (size_t)t->micro * loss_size(t)));
    t->micro++;
    if (!loss)
        return BY_OK;
    float value;
    BY_TRY(by_read_f32(p->program, p->loss, &value));
    *loss = value;
    return check_loss(t, value);
}

by_status by_trainer_loss(by_trainer *t, double *loss)
{
    const int64_t n = t->spec.accumulate;
    double wide[64], sum = 0;
    for (int64_t i = 0; i < n; i += BY_COUNT(wide)) {
        size_t part = (size_t)BY_MIN(n - i, BY_COUNT(wide)), size = loss_size(t);
        float narrow[BY_COUNT(wide)];
        void *to = size == sizeof *narrow ? (void *)narrow : (void *)wide;
        BY_TRY(by_memory_read(t->losses, (size_t)i * size, to, part * size));
        for (size_t k = 0; k < part; k++)
            sum += size == sizeof *narrow ? (double)narrow[k] : wide[k];
    }
    *loss = sum / (double)n;
    return check_loss(t, *loss);
}

by_status by_trainer_update(by_trainer *t, double learning_rate, double *norm)
{
    BY_TRY(by_update_run(t->update, learning_rate, t->steps + 1, norm));
    t->steps++;
    t->micro = 0;
    return BY_OK;
}

by_status by_trainer_norm(by_trainer *t, double *norm)
{
    return by_update_norm(t->update, norm);
}

by_status by_trainer_evaluate(by_trainer *t, const int32_t *inputs, const int32_t *targets, double *sum,
                              int64_t *count)
{
    float loss;
    int64_t counted = 0,
            all = (int64_t)t->spec.batch * (by_model_task(t->model) == BY_TASK_CLASSIFY ? 1 : t->spec.seq);
    for (int64_t i = 0; i < all; i++)
        counted += targets[i] != -100;
    BY_TRY(compile(t, &t->eval, BY_GRAD_NONE));
    BY_TRY(run(t, &t->eval, inputs, targets));
    BY_TRY(by_read_f32(t->eval.program, t->eval.loss, &loss));
    *sum += (double)loss * (double)counted;
    *count += counted;
    return BY_OK;
}

int64_t by_trainer_steps(const by_trainer *t)
{
    return t->steps;
}

void by_trainer_set_steps(by_trainer *t, int64_t steps)
{
    t->steps = steps;
    t->micro = 0;
}

by_program *by_trainer_program(by_trainer *t)
{
    return compile(t, &t->store, BY_GRAD_STORE) == BY_OK ? t->store.program : NULL;
}

by_status by_trainer_time(by_trainer *t, by_trace_fn fn, void *user)
{
    BY_TRY(compile(t, &t->store, BY_GRAD_STORE));
    if (t->spec.accumulate > 1)
        BY_TRY(compile(t, &t->add, BY_GRAD_ADD));
    by_program *all[] = {t->store.program, t->add.program, by_update_program(t->update)};
    for (int i = 0; i < BY_COUNT(all); i++)
        if (all[i])
            by_program_time(all[i], fn, user);
    return BY_OK;
}

size_t by_trainer_bytes(const by_trainer *t)
{
    size_t most = 0;
    const pass *all[] = {&t->store, &t->add, &t->eval};
    for (int i = 0; i < BY_COUNT(all); i++)
        most += all[i]->program ? by_program_bytes(all[i]->program) : 0;
    return most;
}

size_t by_trainer_state_bytes(const by_trainer *t)
{
    by_params *p = by_model_params(t->model);
    size_t each = by_dtype_size(by_params_dtype(p));
    return (size_t)by_params_elements(p) * (each + (each < 4 ? 16 : 3 * each));
}

double by_trainer_flops(const by_trainer *t)
{
    return t->store.program ? by_program_flops(t->store.program) : 0;
}
