/* trainer.c - steps: forward, backward, update, evaluation, each a compiled program that is replayed. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "banyan/adapter.h"
#include "banyan/train.h"

enum { KEPT = BY_TRAINER_KEPT };

struct by_trainer {
    by_model *model;
    by_trainer_spec spec;
    int64_t steps, micro;          /* updates so far; micro-batches since the last */
    by_passes *store, *add, *eval; /* compiled when first needed */
    by_passes *recent;             /* of the last micro-batch: store or accumulate */
    by_update *update;
    by_memory *losses;    /* (KEPT, accumulate) f32 or f64: of the micro-batches of the last steps */
    by_memory *norms;     /* (KEPT): of the gradients of these */
    void *host;           /* (KEPT, accumulate): to read them */
    double *shares;       /* (KEPT, accumulate): of the micro-batches in the mean */
    int64_t counts[KEPT]; /* ring of losses */
    double share;         /* weight of the next micro-batch; 0: 1 / accumulate */
    by_memory *memory;    /* of activations, when it is shared */
};

/* Passes of one kind that are kept. Micro-batches with streams of their own have passes of their own. */
enum { FEW = 16, MANY = 64 };

static size_t loss_size(const by_trainer *t)
{
    return by_dtype_size(by_params_dtype(by_model_params(t->model)) == BY_F64 ? BY_F64 : BY_F32);
}

static by_passes *passes_of(by_trainer *t, by_grad_mode grads)
{
    const by_pass_spec spec = {.grads = grads,
                               .recompute = t->spec.recompute,
                               .no_dropout = t->spec.no_dropout,
                               .loss_alone = grads == BY_GRAD_NONE && by_model_task(t->model) == BY_TASK_LM,
                               .label_smoothing = grads == BY_GRAD_NONE ? 0 : t->spec.label_smoothing,
                               .memory = t->spec.many_shapes || t->spec.streams ? &t->memory : NULL,
                               .loss = grads == BY_GRAD_NONE ? NULL : t->spec.loss,
                               .loss_user = t->spec.loss_user,
                               .hidden = grads != BY_GRAD_NONE && t->spec.hidden,
                               .scores = grads != BY_GRAD_NONE && t->spec.scores};
    return by_passes_new(t->model, &spec,
                         BY_MAX(t->spec.many_shapes ? MANY : FEW, t->spec.streams ? t->spec.accumulate : 0));
}

by_trainer *by_trainer_new(by_model *m, const by_trainer_spec *spec)
{
    if (!m || !spec) {
        base_fail_missing(m ? "by_trainer_spec" : "model");
        return NULL;
    }
    if (spec->accumulate < 0) {
        base_fail(BY_ERR_ARGUMENT, "invalid number of micro-batches: %d", spec->accumulate);
        return NULL;
    }
    by_trainer *t = base_alloc_zero(1, sizeof *t);
    if (!t)
        return NULL;
    t->model = m;
    t->spec = *spec;
    t->spec.accumulate = BY_MAX(spec->accumulate, 1);
    t->spec.optimizer.seed = spec->seed;
    t->update = by_update_new(by_model_trained(m), &t->spec.optimizer);
    const size_t kept = KEPT * (size_t)t->spec.accumulate;
    t->losses = by_memory_new(by_model_device(m), kept * loss_size(t));
    t->norms = by_memory_new(by_model_device(m), KEPT * loss_size(t));
    t->host = base_alloc_zero(kept, loss_size(t));
    t->shares = base_alloc_zero(kept, sizeof *t->shares);
    t->store = passes_of(t, BY_GRAD_STORE);
    t->add = passes_of(t, BY_GRAD_ADD);
    t->eval = passes_of(t, BY_GRAD_NONE);
    if (!t->update || !t->losses || !t->norms || !t->host || !t->shares || !t->store || !t->add || !t->eval) {
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
    by_memory_free(t->norms);
    by_memory_free(t->memory);
    base_free(t->host);
    base_free(t->shares);
    base_free(t);
}

static by_status run(by_trainer *t, by_passes *passes, const by_batch *b, by_pass **pass)
{
    by_pass *p = by_passes_get(passes, b);
    if (!p)
        return base_error_status();
    by_pass_scale(p, t->share > 0 ? t->share : 1.0 / (double)t->spec.accumulate);
    by_program_seed(by_pass_program(p), t->spec.seed, (uint64_t)(t->steps * t->spec.accumulate + t->micro));
    *pass = p;
    return by_pass_run(p, b);
}

/* Row of the current or last step in the ring; steps count from 1. */
static by_status check_loss(const by_trainer *t, double loss)
{
    return isfinite(loss)
               ? BY_OK
               : base_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld", isnan(loss) ? (double)NAN : loss,
                           (long long)(t->steps + (t->micro > 0)));
}

by_status by_trainer_backward(by_trainer *t, const by_batch *batch, bool first, double *loss)
{
    by_pass *p;
    if (!t || !batch)
        return base_fail_missing(t ? "batch" : "trainer");
    if (first)
        t->micro = 0;
    t->recent = first ? t->store : t->add;
    BY_TRY(run(t, t->recent, batch, &p));
    if (t->micro < t->spec.accumulate) {
        const int64_t at = t->steps % KEPT * t->spec.accumulate + t->micro;
        BY_TRY(by_keep(by_pass_program(p), by_pass_loss(p), t->losses, (size_t)at * loss_size(t)));
        t->shares[at] = t->share > 0 ? t->share : 1.0 / (double)t->spec.accumulate;
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

static double value_at(const by_trainer *t, int64_t i)
{
    return loss_size(t) == sizeof(float) ? (double)((const float *)t->host)[i] : ((const double *)t->host)[i];
}

/* Mean loss of step `row`; its micro-batch losses start at t->host[from]. */
static double mean_loss(const by_trainer *t, int64_t row, int64_t count, int64_t from)
{
    const double *shares = t->shares + row * t->spec.accumulate;
    double sum = 0, all = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += shares[i] * value_at(t, from + i);
        all += shares[i];
    }
    return count < t->spec.accumulate ? sum / all : sum; /* a step with fewer micro-batches */
}

by_status by_trainer_loss(by_trainer *t, double *loss)
{
    if (!t || !loss)
        return base_fail_missing(t ? "place for the loss" : "trainer");
    const int64_t row = (t->steps + KEPT - (t->micro == 0)) % KEPT;
    const int64_t count = t->micro ? BY_MIN(t->micro, t->spec.accumulate) : t->counts[row];
    if (count == 0)
        return base_fail(BY_ERR_ARGUMENT, "no loss: no step has been taken");
    const size_t size = loss_size(t), bytes = (size_t)t->spec.accumulate * size;
    BY_TRY(by_memory_read(t->losses, (size_t)row * bytes, t->host, (size_t)count * size));
    *loss = mean_loss(t, row, count, 0);
    return check_loss(t, *loss);
}

by_status by_trainer_read(by_trainer *t, int count, double *losses, double *norms)
{
    if (!t || (count > 0 && (!losses || !norms)))
        return base_fail_missing(t ? "place for losses and norms" : "trainer");
    if (count < 0 || count > KEPT || count > t->steps)
        return base_fail(BY_ERR_ARGUMENT, "cannot read %d steps; at most %d are kept", count, KEPT);
    BY_TRY(by_memory_read(t->losses, 0, t->host, by_memory_bytes(t->losses)));
    for (int i = 0; i < count; i++) {
        const int64_t row = (t->steps - count + i) % KEPT;
        if (t->counts[row] == 0)
            return base_fail(BY_ERR_ARGUMENT, "step %lld was taken by another trainer",
                             (long long)(t->steps - count + i + 1));
        losses[i] = mean_loss(t, row, t->counts[row], row * t->spec.accumulate);
    }
    BY_TRY(by_memory_read(t->norms, 0, t->host, by_memory_bytes(t->norms)));
    for (int i = 0; i < count; i++)
        norms[i] = value_at(t, (t->steps - count + i) % KEPT);
    return BY_OK;
}

by_status by_trainer_update(by_trainer *t, double learning_rate, double *norm)
{
    if (!t)
        return base_fail_missing("trainer");
    const int64_t row = t->steps % KEPT;
    BY_TRY(by_update_run(t->update, learning_rate, t->steps + 1, norm));
    BY_TRY(by_update_keep(t->update, t->norms, (size_t)row * loss_size(t)));
    t->counts[row] = BY_MIN(t->micro, t->spec.accumulate);
    t->steps++;
    t->micro = 0;
    return BY_OK;
}

by_status by_trainer_norm(by_trainer *t, double *norm)
{
    return t ? by_update_norm(t->update, norm) : base_fail_missing("trainer");
}

by_status by_trainer_evaluate(by_trainer *t, const by_batch *batch, double *sum, int64_t *count)
{
    by_pass *p;
    float loss;
    if (!t || !batch || !sum || !count)
        return base_fail_missing(t ? "batch or place for the loss" : "trainer");
    const int32_t *targets = by_batch_ids(batch, "targets"); /* NULL: floats, none of which is ignored */
    int64_t counted = 0, all = by_batch_targets(t->model, batch);
    for (int64_t i = 0; i < all; i++)
        counted += !targets || targets[i] != -100;
    BY_TRY(run(t, t->eval, batch, &p));
    BY_TRY(by_pass_read(p, by_pass_loss(p), &loss));
    *sum += (double)loss * (double)counted;
    *count += counted;
    return BY_OK;
}

by_pass *by_trainer_trained(const by_trainer *t)
{
    return t && t->recent ? by_passes_last(t->recent) : NULL;
}

by_pass *by_trainer_evaluated(const by_trainer *t)
{
    return by_passes_last(t->eval);
}

by_model *by_trainer_model(const by_trainer *t)
{
    return t->model;
}

int64_t by_trainer_steps(const by_trainer *t)
{
    return t->steps;
}

void by_trainer_set_steps(by_trainer *t, int64_t steps)
{
    t->steps = steps;
    t->micro = 0;
    memset(t->counts, 0, sizeof t->counts); /* those before were another's */
}

by_program *by_trainer_program(by_trainer *t, const by_batch *like)
{
    if (!t) {
        base_fail_missing("trainer");
        return NULL;
    }
    by_pass *p = by_passes_get(t->store, like);
    return p ? by_pass_program(p) : NULL;
}

by_status by_trainer_time(by_trainer *t, const by_batch *like, by_trace_fn fn, void *user)
{
    by_passes *all[] = {t->store, t->add};
    for (int i = 0; i < (t->spec.accumulate > 1 ? 2 : 1); i++) {
        by_pass *p = by_passes_get(all[i], like);
        if (!p)
            return base_error_status();
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
    const by_params *body = by_model_params(t->model), *trained = by_model_trained(t->model);
    return by_params_bytes(body) + (trained != body ? by_params_bytes(trained) : 0);
}

double by_trainer_flops(const by_trainer *t)
{
    by_pass *p = by_passes_last(t->recent ? t->recent : t->store);
    return p ? by_program_flops(by_pass_program(p)) : 0;
}
