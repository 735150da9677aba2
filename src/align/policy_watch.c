/* policy_watch.c - metrics of policy runs, under their usual names, and samples of answers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "align/policy_run.h"
#include "base/file.h"
#include "base/json.h"

/* ---- passes --------------------------------------------------------------------------------------- */

static double mean_ratio(const by_policy_seen *seen, double tokens)
{
    double sum = 0;
    for (int i = 0; i < seen->rows * seen->cols; i++)
        sum += seen->mask[i] != 0 ? exp((double)seen->logps[i] - (double)seen->old_logps[i]) : 0;
    return sum / BY_MAX(tokens, 1);
}

by_status align_policy_see(align_policy *p, int count)
{
    struct align_part *x = &p->part;
    align_seen *all = &p->seen;
    by_policy_metrics m;
    double tokens = 0;
    by_pass *pass = by_trainer_trained(p->trainer);
    const by_model_io *io = by_pass_io(pass);
    BY_TRY(by_pass_read(pass, by_io_output(io, "token_logps"), x->logps));
    BY_TRY(by_pass_read(pass, by_io_output(io, "entropy"), x->entropy));
    for (int i = 0; i < count * p->rollouts.width; i++)
        tokens += x->mask[i] != 0;
    const by_policy_seen seen = {.rows = count,
                                 .cols = p->rollouts.width,
                                 .logps = x->logps,
                                 .old_logps = align_policy_needs_old(p) ? x->old_logps : NULL,
                                 .ref_logps = align_policy_needs_reference(p) ? x->ref_logps : NULL,
                                 .entropy = x->entropy,
                                 .mask = x->mask,
                                 .advantages = x->advantages,
                                 .by_token = p->spec.method == BY_ALIGN_PPO};
    by_policy_measure(&seen, &p->loss, &m);
    all->tokens += tokens;
    all->sum.kl += tokens * m.kl;
    all->sum.entropy += tokens * m.entropy;
    all->sum.approx_kl += tokens * m.approx_kl;
    all->sum.low_mean += tokens * m.low_mean;
    all->sum.high_mean += tokens * m.high_mean;
    all->sum.region_mean += tokens * m.region_mean;
    all->sum.low_min = BY_MIN(all->sum.low_min, m.low_min);
    all->sum.high_max = BY_MAX(all->sum.high_max, m.high_max);
    const double ratio = seen.old_logps ? mean_ratio(&seen, tokens) : 1;
    all->ratio += ratio;
    all->ratio_squares += ratio * ratio;
    all->parts++;
    return BY_OK;
}

/* ---- measures ------------------------------------------------------------------------------------- */

void align_measures_add(align_measures *m, double value, const char *fmt, ...)
{
    va_list args;
    if (m->count == ALIGN_MEASURES)
        return;
    va_start(args, fmt);
    base_vformat(m->names[m->count], sizeof m->names[0], fmt, args);
    va_end(args);
    m->list[m->count] = (by_metric){m->names[m->count], value};
    m->count++;
}

typedef struct spread {
    double mean, deviation; /* n - 1 */
} spread;

static spread spread_of(const float *x, int n)
{
    spread s = {0};
    for (int i = 0; i < n; i++)
        s.mean += (double)x[i] / n;
    for (int i = 0; i < n && n > 1; i++)
        s.deviation += ((double)x[i] - s.mean) * ((double)x[i] - s.mean) / (n - 1);
    s.deviation = sqrt(s.deviation);
    return s;
}

static void add_rewards(align_policy *p)
{
    const align_rollouts *r = &p->rollouts;
    align_measures *m = &p->measures;
    double deviation = 0, same = 0;
    const int groups = r->rows / r->group;
    for (int i = 0; i < groups; i++) {
        const double own = spread_of(r->total + (ptrdiff_t)i * r->group, r->group).deviation;
        deviation += own / groups;
        same += own == 0 ? 1.0 / groups : 0;
    }
    const spread all = spread_of(r->total, r->rows);
    align_measures_add(m, all.mean, "reward");
    if (align_policy_needs_reference(p))
        align_measures_add(m, p->seen.sum.kl / BY_MAX(p->seen.tokens, 1), "kl");
    align_measures_add(m, r->group > 1 ? deviation : all.deviation, "reward_std");
    if (r->group > 1)
        align_measures_add(m, same, "frac_reward_zero_std");
    for (int k = 0; k < p->rewards.count; k++) {
        const spread own = spread_of(r->each + (ptrdiff_t)k * r->rows, r->rows);
        align_measures_add(m, own.mean, "rewards/%s/mean", p->rewards.list[k].name);
        align_measures_add(m, own.deviation, "rewards/%s/std", p->rewards.list[k].name);
    }
}

static void add_lengths(align_policy *p)
{
    const align_rollouts *r = &p->rollouts;
    align_measures *m = &p->measures;
    double sum = 0, ended = 0, ended_sum = 0;
    int least = r->count[0], most = 0;
    for (int i = 0; i < r->rows; i++) {
        sum += r->count[i];
        least = BY_MIN(least, r->count[i]);
        most = BY_MAX(most, r->count[i]);
        ended += r->ended[i];
        ended_sum += r->ended[i] ? r->count[i] : 0;
    }
    align_measures_add(m, sum / r->rows, "completions/mean_length");
    align_measures_add(m, least, "completions/min_length");
    align_measures_add(m, most, "completions/max_length");
    align_measures_add(m, 1 - ended / r->rows, "completions/clipped_ratio");
    align_measures_add(m, ended > 0 ? ended_sum / ended : 0, "completions/mean_terminated_length");
}

static void add_clipping(align_policy *p, double tokens)
{
    const by_policy_metrics *s = &p->seen.sum;
    align_measures *m = &p->measures;
    if (p->loss.term == BY_TERM_WEIGHTED)
        align_measures_add(m, s->high_mean / tokens, "cispo_clip_ratio");
    if (p->loss.term != BY_TERM_CLIPPED)
        return;
    align_measures_add(m, s->low_mean / tokens, "clip_ratio/low_mean");
    align_measures_add(m, s->low_min, "clip_ratio/low_min");
    align_measures_add(m, s->high_mean / tokens, "clip_ratio/high_mean");
    align_measures_add(m, s->high_max, "clip_ratio/high_max");
    align_measures_add(m, s->region_mean / tokens, "clip_ratio/region_mean");
}

/* The mean divergence of whole answers (summed over their tokens) that their rewards include. */
static double answer_kl(const align_policy *p)
{
    double sum = 0;
    for (int i = 0; i < p->rollouts.rows; i++)
        sum += (double)p->row_kl[i] / p->rollouts.rows;
    return sum;
}

static void add_ppo(align_policy *p, double tokens)
{
    const align_seen *s = &p->seen;
    const align_rollouts *r = &p->rollouts;
    align_measures *m = &p->measures;
    const double kl = align_policy_needs_reference(p) ? answer_kl(p) : 0;
    const double scores = spread_of(p->critic.scores, r->rows).mean, ratio = s->ratio / BY_MAX(s->parts, 1);
    double spoken = 0;
    int ended = 0;
    for (int i = 0; i < r->rows; i++) {
        ended += r->ended[i];
        for (int t = 0; t < r->count[i]; t++)
            spoken -= (double)p->critic.logps[i * p->critic.cols + t] / r->rows;
    }
    align_measures_add(m, kl, "objective/kl");
    align_measures_add(m, spoken, "objective/entropy");
    align_measures_add(m, -p->beta * kl, "objective/non_score_reward");
    align_measures_add(m, scores, "objective/scores");
    align_measures_add(m, scores - p->beta * kl, "objective/rlhf_reward");
    align_measures_add(m, p->beta, "objective/kl_coef");
    align_measures_add(m, s->sum.approx_kl / tokens, "policy/approxkl_avg");
    align_measures_add(m, s->sum.region_mean / tokens, "policy/clipfrac_avg");
    align_measures_add(m, s->sum.entropy / tokens, "policy/entropy_avg");
    align_measures_add(m, s->policy_loss / BY_MAX(s->updates, 1), "loss/policy_avg");
    align_measures_add(m, s->value_loss / BY_MAX(s->updates, 1), "loss/value_avg");
    align_measures_add(m, s->value_clipped / BY_MAX(s->updates, 1), "val/clipfrac_avg");
    align_measures_add(m, ratio, "val/ratio");
    align_measures_add(
        m,
        s->parts > 1 ? BY_MAX(s->ratio_squares / s->parts - ratio * ratio, 0) * s->parts / (s->parts - 1) : 0,
        "val/ratio_var");
    align_measures_add(m, ended, "val/num_eos_tokens");
}

static void add_failures(align_policy *p)
{
    const align_failures *f = &p->rewards.failures;
    align_measures *m = &p->measures;
    if (f->timeouts + f->crashes + f->nonsense + f->fallbacks == 0)
        return;
    align_measures_add(m, (double)f->timeouts, "reward_failures/timeouts");
    align_measures_add(m, (double)f->crashes, "reward_failures/crashes");
    align_measures_add(m, (double)f->nonsense, "reward_failures/nonsense");
    align_measures_add(m, (double)f->fallbacks, "reward_failures/fallbacks");
}

void align_policy_measure(align_policy *p)
{
    align_measures *m = &p->measures;
    const double tokens = BY_MAX(p->seen.tokens, 1);
    m->count = 0;
    add_rewards(p);
    align_measures_add(m, p->seen.sum.entropy / tokens, "entropy");
    add_clipping(p, tokens);
    if (p->spec.method == BY_ALIGN_PPO)
        add_ppo(p, tokens);
    else if (align_policy_needs_reference(p) && p->spec.method != BY_ALIGN_GRPO)
        align_measures_add(m, answer_kl(p), "objective/kl");
    add_lengths(p);
    add_failures(p);
    align_measures_add(m, (double)p->rollouts.new_tokens / BY_MAX(p->rollouts.seconds, 1e-9),
                       "speed/rollout_tokens_per_s");
    align_measures_add(m, p->sampled, "speed/rollout_s");
    align_measures_add(m, p->judged, "speed/reward_s");
    align_measures_add(m, p->learned, "speed/learn_s");
}

/* ---- samples ---------------------------------------------------------------------------------------- */

#define SAMPLES "samples.jsonl"

/* Keeps the lines up to a step. Drops a last line that a crash left incomplete. */
static void keep_lines(const char *text, size_t size, int64_t step, base_buf *kept)
{
    const char *end;
    for (const char *at = text; (end = memchr(at, '\n', size - (size_t)(at - text))); at = end + 1) {
        int64_t own = -1;
        cJSON *line = base_json_parse(at, (size_t)(end - at), SAMPLES);
        if (line && base_json_int(line, "step", -1, 0, INT64_C(1) << 50, &own) == BY_OK && own >= 0 &&
            own <= step)
            base_buf_put(kept, at, (size_t)(end + 1 - at));
        cJSON_Delete(line);
    }
    base_error_clear();
}

by_status align_samples_open(align_policy *p)
{
    if (p->spec.policy.sample_every < 0)
        return BY_OK;
    BY_TRY(train_folder_claim(&p->loop.folder, (const char *const[]){SAMPLES}, 1));
    char *path = base_path_join(p->spec.out, SAMPLES);
    base_buf kept = {0};
    size_t size;
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    char *text = path && base_file_exists(path) ? base_file_read(path, (size_t)1 << 32, &size) : NULL;
    if (text) {
        keep_lines(text, size, p->loop.state.step, &kept);
        s = kept.failed ? BY_ERR_MEMORY : base_file_write(path, kept.data ? kept.data : "", kept.size);
    }
    base_free(text);
    base_buf_free(&kept);
    base_free(path);
    return s;
}

static void put_sample(const align_policy *p, int64_t step, int row, base_buf *out)
{
    const align_rollouts *r = &p->rollouts;
    base_buf_printf(out, "{\"step\": %lld, \"prompt\": ", (long long)step);
    base_json_quote(out, r->judged[row].prompt);
    base_buf_puts(out, ", \"answer\": ");
    base_json_quote(out, r->judged[row].answer);
    if (r->judged[row].expected) {
        base_buf_puts(out, ", \"expected\": ");
        base_json_quote(out, r->judged[row].expected);
    }
    base_buf_printf(out, ", \"tokens\": %d, \"ended\": %s, \"reward\": %.6g", r->count[row],
                    r->ended[row] ? "true" : "false", (double)r->total[row]);
    if (p->spec.method != BY_ALIGN_PPO)
        base_buf_printf(out, ", \"advantage\": %.6g", (double)p->advantages[row]);
    for (int k = 0; k < p->rewards.count && p->rewards.count > 1; k++) {
        base_buf_puts(out, ", ");
        base_json_quote(out, p->rewards.list[k].name);
        base_buf_printf(out, ": %.6g", (double)r->each[(ptrdiff_t)k * r->rows + row]);
    }
    base_buf_puts(out, "}\n");
}

/* Writes answers to different prompts of the step every few steps. A write error does not end the run. */
by_status align_samples_write(align_policy *p, int64_t step)
{
    const by_policy_run *run = &p->spec.policy;
    if (run->sample_every <= 0 || (step % run->sample_every != 0 && step != 1 && step != p->spec.steps))
        return BY_OK;
    base_buf text = {0};
    char *path = base_path_join(p->spec.out, SAMPLES);
    const int count = BY_MIN(run->sample_count, p->rollouts.rows);
    for (int i = 0; i < count; i++)
        put_sample(p, step, i * (p->rollouts.rows / count), &text);
    FILE *f = path && !text.failed ? fopen(path, "a") : NULL;
    const bool written = f && fwrite(text.data, 1, text.size, f) == text.size;
    if ((f && fclose(f) != 0) || !written)
        train_folder_warn(&p->loop.folder, "%s: samples of step %lld could not be written: %s",
                          path ? path : SAMPLES, (long long)step, strerror(errno));
    base_buf_free(&text);
    base_free(path);
    return BY_OK;
}
