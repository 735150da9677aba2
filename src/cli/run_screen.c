/* run_screen.c - see run_screen.h. */
#include "cli/run_screen.h"

#include <math.h>

#include "base/base.h"
#include "cli/eval_texts.h"
#include "cli/report.h"

enum { SHOWN_MEASURES = 2 }; /* in the progress line */

/* After some steps it is known how long all of them take. */
static void estimate(cli_run_screen *s, const by_report *r)
{
    /* Steps after the first, in which programs are compiled: many, where rows have many lengths. */
    const int64_t enough = BY_MAX(5, BY_MIN(r->steps / 50, 50));
    char text[32];
    if (s->began == 0) {
        s->began = r->seconds;
        s->begin = r->step;
    }
    const double spent = r->seconds - s->began;
    if (!s->estimates || s->estimated || r->step < s->begin + enough || spent <= 0)
        return;
    s->estimated = true;
    const double step = spent / (double)(r->step - s->begin);
    cli_format_duration(text, sizeof text, step * (double)(r->steps - s->begin));
    cli_note("%lld steps of %.3g s: about %s in total", (long long)r->steps, step, text);
}

static void start(cli_run_screen *s, const by_report *r)
{
    if (s->quiet)
        return;
    cli_note("%s", r->note);
    if (r->step > 0)
        cli_note("continuing from step %lld", (long long)r->step);
    s->bar = (cli_progress){.label = s->label,
                            .first = r->step,
                            .total = r->steps,
                            .every_steps = BY_MAX(r->steps / 50, s->log_every)};
    cli_progress_start(&s->bar);
    s->started = true;
}

/* A line that stays. */
static void show_evaluation(const by_report *r)
{
    base_buf line = {0};
    if (isfinite(r->next_accuracy))
        base_buf_printf(&line, "  NSP/SOP accuracy %.1f%%", 100 * r->next_accuracy);
    for (int i = 0; i < r->n_metrics; i++)
        base_buf_printf(&line, "  %s %.4f", r->metrics[i].name, r->metrics[i].value);
    char held_out[32] = "";
    if (isfinite(r->eval_loss))
        base_format(held_out, sizeof held_out, "  held-out %.4f", r->eval_loss);
    cli_progress_hide();
    cli_note("step %lld  loss %.4f%s%s%s", (long long)r->step, r->loss, held_out, line.data ? line.data : "",
             r->saved ? "  saved" : "");
    base_buf_free(&line);
}

void cli_run_report(void *user, const by_report *r)
{
    cli_run_screen *s = user;
    if (r->warning) {
        cli_progress_hide();
        cli_note("%s", r->warning);
        return;
    }
    if (r->note) {
        start(s, r);
        return;
    }
    if (!s->started)
        return;
    estimate(s, r);
    if (r->more && s->bar.terminal) /* a terminal shows the newest */
        return;
    if (r->evaluated)
        show_evaluation(r);
    char share[32] = "";
    if (isfinite(r->peak_share))
        base_format(share, sizeof share, "  %.0f%% of peak", 100 * r->peak_share);
    char speed[64];
    base_buf measures = {0};
    for (int i = 0; i < BY_MIN(r->n_measures, SHOWN_MEASURES); i++)
        base_buf_printf(&measures, "  %s %.4g", r->measures[i].name, r->measures[i].value);
    if (isfinite(r->pictures_per_s))
        base_format(speed, sizeof speed, "%.0f img/s  data wait %.0f%%", r->pictures_per_s,
                    100 * r->data_wait);
    else
        base_format(speed, sizeof speed, "%.0f tok/s", r->tokens_per_s);
    cli_progress_update(&s->bar, r->step, "loss %.4f%s  norm %.3f  lr %.2e  %.1f ms%s  %s", r->loss,
                        measures.data ? measures.data : "", r->grad_norm, r->learning_rate, r->ms, share,
                        speed);
    base_buf_free(&measures);
}

/* The line of the steps makes room for that of the texts. */
void cli_run_wrote(void *user, const by_text_result *so_far, int64_t total)
{
    cli_run_screen *s = user;
    if (s->quiet)
        return;
    if (!s->writing) {
        cli_run_end(s);
        s->bar = (cli_progress){.label = "eval", .total = total};
        cli_progress_start(&s->bar);
        s->started = s->writing = true;
    }
    cli_text_progress(&s->bar, so_far, total);
}

void cli_run_end(cli_run_screen *s)
{
    if (s->started)
        cli_progress_end(&s->bar);
    s->started = false;
}
