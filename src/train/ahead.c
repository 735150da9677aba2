/* ahead.c - see ahead.h. */
#include "train/ahead.h"

#include <math.h>

#include "base/base.h"

/* Between two looks at the steps. Each costs the GPU a break of less than a millisecond. */
static const double PACE_SECONDS = 1;

by_report by_report_empty(void)
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

void by_ahead_report(const by_ahead *a, by_report *p)
{
    p->steps = a->steps;
    p->seconds = by_seconds() - a->started;
    if (a->report)
        a->report(a->user, p);
}

void by_ahead_begin(by_ahead *a)
{
    if (a->count > 0)
        return;
    if (a->limit == 0)
        a->limit = BY_MAX(BY_MIN(a->wanted, BY_TRAINER_KEPT), 1); /* the first one tells how long they take */
    a->begin = by_seconds();
    a->tokens = a->flops = 0;
}

void by_ahead_add(by_ahead *a, double rate, double tokens, double flops)
{
    a->rates[a->count++] = rate;
    a->tokens += tokens;
    a->flops += flops;
}

bool by_ahead_full(const by_ahead *a)
{
    return a->count >= a->limit;
}

static void set_limit(by_ahead *a, double step_seconds)
{
    const bool can = by_device_runs_ahead(by_model_device(by_trainer_model(a->trainer)));
    double limit = a->wanted > 0 ? a->wanted : can ? PACE_SECONDS / step_seconds : 1;
    a->limit = (int)BY_MAX(BY_MIN(limit, (double)BY_TRAINER_KEPT), 1);
}

static by_status bad_norm(int64_t step)
{
    return by_fail(BY_ERR_NUMERIC, "the gradient norm is not finite at step %lld", (long long)step);
}

by_status by_ahead_failed(const by_ahead *a, by_status updated)
{
    double loss;
    BY_TRY(by_trainer_loss(a->trainer, &loss)); /* says more than a norm that is not finite */
    return updated == BY_ERR_NUMERIC ? bad_norm(by_trainer_steps(a->trainer) + 1) : updated;
}

static by_status check(const by_report *p)
{
    if (!isfinite(p->loss))
        return by_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld", p->loss, (long long)p->step);
    return isfinite(p->grad_norm) ? BY_OK : bad_norm(p->step);
}

/* A share above 1 says that the peak was measured while something else kept the device busy: it is measured
 * again, a few times at most, and is unknown when that does not help. */
static double peak_share(by_ahead *a, double rate)
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

by_status by_ahead_settle(by_ahead *a, by_report *last)
{
    const int n = a->count;
    double losses[BY_TRAINER_KEPT], norms[BY_TRAINER_KEPT];
    *last = by_report_empty();
    a->count = 0;
    if (n == 0)
        return BY_OK;
    BY_TRY(by_trainer_read(a->trainer, n, losses, norms));
    const double seconds = by_seconds() - a->begin;
    by_report p = by_report_empty();
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
            by_log_write(a->log, &p);
        by_ahead_report(a, &p);
    }
    *last = p;
    return BY_OK;
}
