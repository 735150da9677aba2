/* readback.c - see readback.h. */
#include "train/readback.h"

#include <math.h>

#include "base/base.h"

/* Between two looks at the steps. Each costs the GPU a break of less than a millisecond. */
static const double PACE_SECONDS = 1;

by_report train_report_empty(void)
{
    return (by_report){.loss = NAN,
                       .eval_loss = NAN,
                       .next_accuracy = NAN,
                       .learning_rate = NAN,
                       .grad_norm = NAN,
                       .ms = NAN,
                       .tokens_per_s = NAN,
                       .peak_share = NAN};
}

void train_readback_report(const train_readback *a, by_report *p)
{
    p->steps = a->steps;
    p->seconds = base_seconds() - a->started;
    if (a->report)
        a->report(a->user, p);
}

void train_readback_begin(train_readback *a)
{
    if (a->count > 0)
        return;
    if (a->limit == 0)
        a->limit = BY_MAX(BY_MIN(a->wanted, BY_TRAINER_KEPT), 1); /* the first one tells how long they take */
    a->begin = base_seconds();
    a->tokens = a->flops = 0;
}

void train_readback_add(train_readback *a, double rate, double tokens, double flops)
{
    a->rates[a->count++] = rate;
    a->tokens += tokens;
    a->flops += flops;
}

bool train_readback_full(const train_readback *a)
{
    return a->count >= a->limit;
}

static void set_limit(train_readback *a, double step_seconds)
{
    const bool can = by_device_runs_ahead(by_model_device(by_trainer_model(a->trainer)));
    double limit = a->wanted > 0 ? a->wanted : can ? PACE_SECONDS / step_seconds : 1;
    a->limit = (int)BY_MAX(BY_MIN(limit, (double)BY_TRAINER_KEPT), 1);
}

static by_status bad_norm(int64_t step)
{
    return base_fail(BY_ERR_NUMERIC, "the gradient norm is not finite at step %lld", (long long)step);
}

by_status train_readback_failed(const train_readback *a, by_status updated)
{
    double loss;
    BY_TRY(by_trainer_loss(a->trainer, &loss)); /* says more than a norm that is not finite */
    return updated == BY_ERR_NUMERIC ? bad_norm(by_trainer_steps(a->trainer) + 1) : updated;
}

static by_status check(const by_report *p)
{
    if (!isfinite(p->loss))
        return base_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld", p->loss, (long long)p->step);
    return isfinite(p->grad_norm) ? BY_OK : bad_norm(p->step);
}

/* A share above 1 says that the peak was measured while something else kept the device busy: it is measured
 * again, a few times at most, and is unknown when that does not help. */
static double peak_share(train_readback *a, double rate)
{
    enum { TRIES = 3 };
    if (!(a->peak > 0) || !(a->flops > 0))
        return NAN;
    while (rate > a->peak && a->remeasured < TRIES) {
        const double again = by_device_peak(by_model_device(by_trainer_model(a->trainer)), a->dtype);
        a->peak = again > a->peak ? again : a->peak;
        a->remeasured++;
    }
    return rate <= a->peak ? rate / a->peak : NAN;
}

by_status train_readback_settle(train_readback *a, by_report *last)
{
    const int n = a->count;
    double losses[BY_TRAINER_KEPT], norms[BY_TRAINER_KEPT];
    *last = train_report_empty();
    a->count = 0;
    if (n == 0)
        return BY_OK;
    BY_TRY(by_trainer_read(a->trainer, n, losses, norms));
    const double seconds = base_seconds() - a->begin;
    by_report p = train_report_empty();
    p.ms = seconds * 1e3 / n;
    p.tokens_per_s = a->tokens / seconds;
    p.peak_share = peak_share(a, a->flops / seconds);
    set_limit(a, seconds / n);
    for (int i = 0; i < n; i++) {
        p.step = by_trainer_steps(a->trainer) - n + i + 1;
        p.loss = losses[i];
        p.grad_norm = norms[i];
        p.learning_rate = a->rates[i];
        p.more = i + 1 < n;
        BY_TRY(check(&p));
        if (!p.more)
            break;
        if (p.step % a->log_every == 0)
            train_log_write(a->log, &p);
        train_readback_report(a, &p);
    }
    *last = p;
    return BY_OK;
}
