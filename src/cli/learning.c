/* learning.c - see learning.h. */
#include "cli/learning.h"

#include "cli/report.h"

bool cli_optimizer_fits(by_optimizer optimizer, by_schedule schedule, const cli_args *own)
{
    enum { LINEAR = 1 << BY_SCHEDULE_LINEAR, COSINE = 1 << BY_SCHEDULE_COSINE };
    static const cli_scope optimizers[] = {{"momentum", 1 << BY_SGD, "--optimizer sgd"},
                                           {"adam-beta1", 1 << BY_ADAMW, "--optimizer adamw"},
                                           {"adam-beta2", 1 << BY_ADAMW, "--optimizer adamw"},
                                           {"adam-epsilon", 1 << BY_ADAMW, "--optimizer adamw"}};
    static const cli_scope schedules[] = {
        {"min-learning-rate", LINEAR | COSINE, "--lr-scheduler linear and cosine"}};
    const cli_scope *row = cli_given_outside(own, optimizers, BY_COUNT(optimizers), 1u << optimizer);
    if (!row)
        row = cli_given_outside(own, schedules, BY_COUNT(schedules), 1u << schedule);
    if (row)
        cli_usage_fail("--%s is for %s", row->option, row->names);
    return !row;
}

void cli_adam_read(by_optimizer_spec *o)
{
    double *const all[] = {&o->beta1, &o->beta2, &o->eps};
    for (int i = 0; i < BY_COUNT(all); i++)
        *all[i] = cli_or_none(*all[i]);
}

int cli_fail_learning(by_status s, const char *rate, const char *memory)
{
    const char *hint = s == BY_ERR_NUMERIC ? rate : s == BY_ERR_MEMORY ? memory : NULL;
    return hint ? cli_fail("%s", hint) : cli_fail(NULL);
}

void cli_steps_print(const cli_steps *s)
{
    const int64_t steps = s->steps - s->resumed_from;
    printf("%lld step%s in %.1f s%s", (long long)steps, steps == 1 ? "" : "s", s->seconds,
           s->stopped_early ? " (stopped early)" : "");
    if (s->best)
        printf("; best at step %lld", (long long)s->best);
}
