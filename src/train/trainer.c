/* trainer.c - steps: forward, backward, update, evaluation, each a compiled program that is replayed. */
#include <math.h>

#include "base/base.h"
#include "banyan/train.h"

struct by_trainer {
    by_model *model;
    by_trainer_spec spec;
    int64_t steps, micro;          /* updates so far; micro-batches since the last */
    by_passes *store, *add, *eval; /* compiled when first needed */
    by_passes *recent;             /* of the last micro-batch: store or add */
    by_update *update;
    by_memory *losses; /* (accumulate) f32 or f64: of the micro-batches since the last first one */
    double *shares;    /* (accumulate): of these in the mean */
    double share;      /* of the next one; 0: one over their number */
    by_memory *memory; /* of activations, when it is shared */
};

enum { MANY = 64 };

static size_t loss_size(const by_trainer *t)
{
    return by_dtype_size(by_params_dtype(by_model_params(t->model)) == BY_F64 ? BY_F64 : BY_F32);
}

static by_passes *passes_of(by_trainer *t, by_grad_mode grads)
{
    const by_pass_spec spec = {.grads = grads,
                               .recompute = t->spec.recompute,
                               .label_smoothing = grads == BY_GRAD_NONE ? 0 : t->spec.label_smoothing,
                               .memory = t->spec.many_shapes ? &t->memory : NULL};
    return by_passes_new(t->model, &spec, t->spec.many_shapes ? MANY : 0);
}

by_trainer *by_trainer_new(by_model *m, const by_trainer_spec *spec)
{
    if (spec->accumulate < 0) {
        by_fail(BY_ERR_ARGUMENT, "a step of %d micro-batches is not possible", spec->accumulate);
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
    t->shares = by_alloc_zero((size_t)t->spec.accumulate, sizeof *t->shares);
    t->store = passes_of(t, BY_GRAD_STORE);
    t->add = passes_of(t, BY_GRAD_ADD);
    t->eval = passes_of(t, BY_GRAD_NONE);
    if (!t->update || !t->losses || !t->shares || !t->store || !t->add || !t->eval) {
        by_trainer_free(t);
        return NULL;
    }
    return t;
}

void by_trainer_free(by_trainer *t)
{
    if (!t)
        return;
    by_passes_free(t->store);
    by_passes_free(t->add);
    by_passes_free(t->eval);
    by_update_free(t->update);
    by_memory_free(t->losses);
    by_memory_free(t->memory);
    by_free(t->shares);
    by_free(t);
}

static by_status run(by_trainer *t, by_passes *passes, const by_batch *b, by_pass **pass)
{
    by_pass *p = by_passes_get(passes, b);
    if (!p)
        return by_error_status();
    by_pass_scale(p, t->share > 0 ? t->share : 1.0 / (double)t->spec.accumulate);
    by_program_seed(by_pass_program(p), t->spec.seed, (uint64_t)(t->steps * t->spec.accumulate + t->micro));
    *pass = p;
    return by_pass_run(p, b);
}

static by_status check_loss(const by_trainer *t, double loss)
{
    return isfinite(loss) ? BY_OK
                          : by_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld", loss, (long long)t->steps);
}

by_status by_trainer_backward(by_trainer *t, const by_batch *batch, bool first, double *loss)
{
    by_pass *p;
    if (first)
        t->micro = 0;
    t->recent = first ? t->store : t->add;
    BY_TRY(run(t, t->recent, batch, &p));
    if (t->micro < t->spec.accumulate) {
        BY_TRY(by_keep(by_pass_program(p), by_pass_loss(p), t->losses, (size_t)t->micro * loss_size(t)));
        t->shares[t->micro] = t->share > 0 ? t->share : 1.0 / (double)t->spec.accumulate;
    }
    t->share = 0;
    t->micro++;
    if (!loss)
        return BY_OK;
    float value;
    BY_TRY(by_pass_read(p, by_pass_loss(p), &value));
    *loss = value;
    return check_loss(t, value);
}

void by_trainer_share(by_trainer *t, double share)
{
    t->share = share;
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
            sum += t->shares[i + (int64_t)k] * (size == sizeof *narrow ? (double)narrow[k] : wide[k]);
    }
    *loss = sum;
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

by_status by_trainer_evaluate(by_trainer *t, const by_batch *batch, double *sum, int64_t *count)
{
    by_pass *p;
    float loss;
    int64_t counted = 0, all = by_batch_targets(t->model, batch);
    for (int64_t i = 0; i < all; i++)
        counted += batch->numbers || batch->targets[i] != -100;
    BY_TRY(run(t, t->eval, batch, &p));
    BY_TRY(by_pass_read(p, by_pass_loss(p), &loss));
    *sum += (double)loss * (double)counted;
    *count += counted;
    return BY_OK;
}

by_pass *by_trainer_evaluated(const by_trainer *t)
{
    return by_passes_last(t->eval);
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

by_program *by_trainer_program(by_trainer *t, const by_batch *like)
{
    by_pass *p = by_passes_get(t->store, like);
    return p ? by_pass_program(p) : NULL;
}

by_status by_trainer_time(by_trainer *t, const by_batch *like, by_trace_fn fn, void *user)
{
    by_passes *all[] = {t->store, t->add};
    for (int i = 0; i < (t->spec.accumulate > 1 ? 2 : 1); i++) {
        by_pass *p = by_passes_get(all[i], like);
        if (!p)
            return by_error_status();
        by_program_time(by_pass_program(p), fn, user);
    }
    by_program_time(by_update_program(t->update), fn, user);
    return BY_OK;
}

size_t by_trainer_bytes(const by_trainer *t)
{
    return by_passes_bytes(t->store) + by_passes_bytes(t->add) + by_passes_bytes(t->eval);
}

size_t by_trainer_state_bytes(const by_trainer *t)
{
    by_params *p = by_model_params(t->model);
    size_t each = by_dtype_size(by_params_dtype(p));
    return (size_t)by_params_elements(p) * (each + (each < 4 ? 16 : 3 * each));
}

double by_trainer_flops(const by_trainer *t)
{
    by_pass *p = by_passes_last(t->recent ? t->recent : t->store);
    return p ? by_program_flops(by_pass_program(p)) : 0;
}
