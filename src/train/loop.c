/* loop.c - see loop.h. */
#include "train/loop.h"

#include <math.h>

#include "base/file.h"

/* ---- set-up ---------------------------------------------------------------------------------- */

by_status train_loop_open(train_loop *l, const train_client *client, void *self, const train_folder_use *use)
{
    *l = (train_loop){.client = client,
                      .self = self,
                      .folder = {.lock = -1},
                      .state = {.best_eval = NAN, .best_loss = NAN},
                      .started = base_seconds(),
                      .peak = NAN,
                      .loss = NAN};
    BY_TRY(train_folder_enter(&l->folder, use));
    return use->overwrite ? BY_OK : train_checkpoint_find(&l->folder, &l->last);
}

by_status train_loop_check_family(const train_loop *l, const char *family)
{
    train_record r = {0};
    if (!l->last || !family)
        return BY_OK;
    train_record_text(&r, "family", family, TRAIN_SAME);
    return train_record_compare(l->folder.out, &r);
}

by_status train_loop_load(train_loop *l)
{
    BY_TRY(train_checkpoint_load(l->last, &l->state, l->client->load, l->self));
    l->read = l->state.step;
    return BY_OK;
}

by_status train_loop_plan(train_loop *l, int64_t steps)
{
    l->first_steps = steps;
    return l->last ? train_record_recall(l->folder.out, steps, &l->first_steps, &l->longer) : BY_OK;
}

by_status train_loop_check(train_loop *l)
{
    train_record r = {0};
    if (!l->last)
        return BY_OK;
    BY_TRY(l->client->record(l->self, &r));
    return train_record_compare(l->folder.out, &r);
}

void train_loop_record(const train_loop *l, const train_course *c, train_record *out)
{
    train_record_text(out, "banyan", by_version(), TRAIN_FREE);
    train_record_text(out, "command", c->command, TRAIN_FREE);
    train_record_text(out, "device", by_device_description(c->device), TRAIN_FREE);
    train_record_number(out, "batch", c->batch, TRAIN_SAME);
    train_record_number(out, "accumulate", c->accumulate, TRAIN_SAME);
    train_record_number(out, "steps", (double)c->steps, l->longer ? TRAIN_FREE : TRAIN_SAME);
    train_record_number(out, "first_steps", (double)l->first_steps, TRAIN_FREE);
    train_record_number(out, "seed", (double)c->seed, TRAIN_SAME);
    train_record_number(out, "learning_rate", c->schedule->rate, TRAIN_SAME);
    train_record_number(out, "warmup_steps", (double)c->schedule->warmup, TRAIN_SAME);
    train_record_number(out, "schedule", c->schedule->kind, TRAIN_SAME);
    train_record_newer(out, "optimizer", c->optimizer->kind, NAN);
    train_record_optimizer(out, c->optimizer);
}

by_run_result train_loop_no_result(void)
{
    return (by_run_result){.loss = NAN,
                           .eval_loss = NAN,
                           .best_eval_loss = NAN,
                           .next_accuracy = NAN,
                           .averaged_eval_loss = NAN,
                           .data_wait = NAN};
}

static by_status write_record(train_loop *l)
{
    train_record r = {.options = l->spec.options};
    BY_TRY(l->client->record(l->self, &r));
    return train_record_write(l->folder.out, &r);
}

by_status train_loop_begin(train_loop *l, const train_loop_spec *spec)
{
    l->spec = *spec;
    if (spec->patience > 0 && !spec->evaluates)
        return base_fail(BY_ERR_ARGUMENT, "patience requires evaluation data");
    if (l->last) {
        BY_TRY(train_checkpoint_mend(&l->folder, &l->state, spec->keep));
        BY_TRY(l->longer ? write_record(l) : BY_OK);
    } else {
        BY_TRY(spec->overwrite ? train_folder_forget(&l->folder) : BY_OK);
        BY_TRY(train_folder_take_input(&l->folder));
        BY_TRY(write_record(l));
    }
    l->log = train_log_open(&l->folder, l->state.step);
    if (l->log && spec->measures_peak && spec->report && l->state.step < spec->steps)
        l->peak = by_device_peak(spec->device, spec->dtype);
    return l->log ? BY_OK : base_error_status();
}

bool train_loop_best_is_older(const train_loop *l)
{
    return l->spec.evaluates && l->state.best_step > 0 && l->state.best_step != l->state.step;
}

void train_loop_close(train_loop *l, by_status status)
{
    if (status != BY_OK && (l->log == NULL || (status != BY_ERR_CANCELLED && l->state.step == 0)))
        train_folder_abandon(&l->folder);
    base_free(l->last);
    train_log_close(l->log);
    train_folder_close(&l->folder);
}

/* ---- reports --------------------------------------------------------------------------------- */

by_report train_report_empty(void)
{
    return (by_report){.loss = NAN,
                       .eval_loss = NAN,
                       .next_accuracy = NAN,
                       .learning_rate = NAN,
                       .grad_norm = NAN,
                       .ms = NAN,
                       .tokens_per_s = NAN,
                       .pictures_per_s = NAN,
                       .data_wait = NAN,
                       .peak_share = NAN};
}

void train_loop_report(const train_loop *l, by_report *r)
{
    r->steps = l->spec.steps;
    r->seconds = base_seconds() - l->started;
    if (l->spec.report)
        l->spec.report(l->spec.user, r);
}

void train_loop_announce(const train_loop *l, const char *note)
{
    by_report r = train_report_empty();
    r.step = l->state.step;
    r.note = note;
    train_loop_report(l, &r);
}

/* ---- steps and their read-back --------------------------------------------------------------- */

static int64_t pending(const train_loop *l)
{
    return l->state.step - l->read;
}

static by_status bad_norm(int64_t step)
{
    return base_fail(BY_ERR_NUMERIC, "the gradient norm is not finite at step %lld", (long long)step);
}

by_status train_update(by_trainer *t, double rate)
{
    double loss;
    by_status s = by_trainer_update(t, rate, NULL);
    if (s == BY_OK)
        return BY_OK;
    BY_TRY(by_trainer_loss(t, &loss)); /* a non-finite loss is reported before a non-finite norm */
    return s == BY_ERR_NUMERIC ? bad_norm(by_trainer_steps(t) + 1) : s;
}

static by_status start_step(train_loop *l)
{
    train_work work = {0};
    if (pending(l) == 0) {
        if (l->limit == 0) /* the first step shows how long they take */
            l->limit = l->client->measure ? 1 : BY_MAX(BY_MIN(l->spec.ahead, BY_TRAINER_KEPT), 1);
        l->begin = base_seconds();
        l->work = (train_work){0};
    }
    BY_TRY(
        l->client->step(l->self, l->state.step, by_schedule_rate(&l->spec.schedule, l->state.step), &work));
    l->work.tokens += work.tokens;
    l->work.flops += work.flops;
    l->work.pictures += work.pictures;
    l->work.waited += work.waited;
    l->state.step++;
    return BY_OK;
}

/* Each read-back stalls a GPU for less than a millisecond, which is negligible once a second. */
static void set_limit(train_loop *l, double step_seconds)
{
    const double wanted = l->client->measure                     ? 1
                          : l->spec.ahead > 0                    ? l->spec.ahead
                          : by_device_runs_ahead(l->spec.device) ? 1 / step_seconds
                                                                 : 1;
    l->limit = (int)BY_MAX(BY_MIN(wanted, (double)BY_TRAINER_KEPT), 1);
}

/* A share above 1 shows that the device was busy when the peak was measured. It is measured again, a few
 * times at most, and otherwise unknown. */
static double peak_share(train_loop *l, double rate)
{
    enum { TRIES = 3 };
    if (!(l->peak > 0) || !(l->work.flops > 0))
        return NAN;
    while (rate > l->peak && l->remeasured < TRIES) {
        const double again = by_device_peak(l->spec.device, l->spec.dtype);
        l->peak = again > l->peak ? again : l->peak;
        l->remeasured++;
    }
    return rate <= l->peak ? rate / l->peak : NAN;
}

static by_status check(const by_report *r)
{
    if (!isfinite(r->loss))
        return base_fail(BY_ERR_NUMERIC, "the loss is %g at step %lld",
                         isnan(r->loss) ? (double)NAN : r->loss, (long long)r->step);
    return isfinite(r->grad_norm) ? BY_OK : bad_norm(r->step);
}

/* Waits for the pending steps; logs and reports all except the last, which is left to the caller in *last. A
 * non-finite loss or norm is BY_ERR_NUMERIC, after the reports of the steps before it. */
static by_status read_back(train_loop *l, by_report *last)
{
    const int n = (int)pending(l);
    double losses[BY_TRAINER_KEPT], norms[BY_TRAINER_KEPT];
    by_report r = train_report_empty();
    const int64_t first = l->read;
    l->read = l->state.step;
    BY_TRY(l->client->read(l->self, n, losses, norms));
    const double seconds = base_seconds() - l->begin;
    r.ms = seconds * 1e3 / n;
    r.tokens_per_s = l->work.tokens / seconds;
    r.peak_share = peak_share(l, l->work.flops / seconds);
    if (l->work.pictures > 0) {
        r.pictures_per_s = l->work.pictures / seconds;
        r.data_wait = l->work.waited / seconds;
        l->waited += l->work.waited;
        l->stepped += seconds;
    }
    set_limit(l, seconds / n);
    for (int i = 0; i < n; i++) {
        r.step = first + i + 1;
        r.loss = losses[i];
        r.grad_norm = norms[i];
        r.learning_rate = by_schedule_rate(&l->spec.schedule, first + i);
        r.more = i + 1 < n;
        BY_TRY(check(&r));
        if (r.more && r.step % l->spec.log_every == 0)
            train_log_write(l->log, &r);
        if (r.more)
            train_loop_report(l, &r);
    }
    if (l->client->measure)
        l->client->measure(l->self, &r);
    *last = r;
    return BY_OK;
}

/* ---- between two steps ----------------------------------------------------------------------- */

static bool is_last(const train_loop *l)
{
    return l->state.step >= l->spec.steps;
}

static bool evaluates(const train_loop *l)
{
    return l->spec.evaluates && (is_last(l) || l->state.step % l->spec.eval_every == 0);
}

/* Whether anything is due after this step besides starting the next one. */
static bool is_due(const train_loop *l)
{
    return pending(l) >= l->limit || evaluates(l) || is_last(l) || l->state.step % l->spec.save_every == 0;
}

static bool out_of_patience(const train_loop *l)
{
    return l->spec.patience > 0 && l->state.stale >= l->spec.patience;
}

/* Small evaluation sets often tie: the lower loss then decides. */
static bool is_better(const train_run_state *best, double loss, double score)
{
    if (isnan(best->best_eval))
        return true;
    return isnan(score) ? loss < best->best_eval
                        : score > best->best_eval || (score == best->best_eval && loss < best->best_loss);
}

/* Evaluates, and records the best. */
static by_status evaluate(train_loop *l, by_report *r, bool *is_best)
{
    train_run_state *s = &l->state;
    double score = NAN;
    BY_TRY(l->client->evaluate(l->self, r, &score));
    r->evaluated = true;
    *is_best = is_better(s, r->eval_loss, score);
    s->stale = *is_best ? 0 : s->stale + 1;
    if (*is_best) {
        s->best_eval = isnan(score) ? r->eval_loss : score;
        s->best_loss = isnan(score) ? NAN : r->eval_loss;
        s->best_step = s->step;
    }
    l->stopped_early = out_of_patience(l) && !is_last(l);
    return BY_OK;
}

static by_status save(train_loop *l, bool is_best)
{
    base_buf title = {0};
    BY_TRY(train_checkpoint_save(&l->folder, &l->state, is_best, l->spec.keep, l->client->save, l->self));
    l->client->title(l->self, &title);
    train_log_draw(l->log, title.failed ? "" : title.data, l->spec.loss_unit);
    base_buf_free(&title);
    return BY_OK;
}

/* Reads back the pending steps, and does what is due after the last of them. */
static by_status complete(train_loop *l)
{
    by_report r;
    bool is_best = false;
    BY_TRY(read_back(l, &r));
    l->loss = r.loss;
    if (evaluates(l))
        BY_TRY(evaluate(l, &r, &is_best));
    if (r.evaluated || is_last(l) || l->state.step % l->spec.log_every == 0)
        train_log_write(l->log, &r);
    if (is_last(l) || l->stopped_early || is_best || l->state.step % l->spec.save_every == 0) {
        BY_TRY(save(l, is_best));
        r.saved = true;
    }
    train_loop_report(l, &r);
    return BY_OK;
}

static by_status cancel(train_loop *l)
{
    if (pending(l) > 0)
        BY_TRY(complete(l));
    if (l->state.step > 0)
        BY_TRY(save(l, false));
    return base_fail(BY_ERR_CANCELLED, "stopped at step %lld; repeat the command to continue",
                     (long long)l->state.step);
}

by_status train_loop_run(train_loop *l)
{
    while (!is_last(l) && !out_of_patience(l)) {
        if (l->spec.cancelled && l->spec.cancelled(l->spec.user))
            return cancel(l);
        by_status s = start_step(l);
        if (s == BY_ERR_CANCELLED) /* before it has changed anything */
            return cancel(l);
        if (s != BY_OK && pending(l) > 0)
            BY_TRY(complete(l)); /* the steps before it were in order */
        BY_TRY(s);
        if (is_due(l))
            BY_TRY(complete(l));
    }
    return BY_OK;
}
