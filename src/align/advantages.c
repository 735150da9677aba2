/* advantages.c - advantages of answers and tokens, and metrics of policy training (banyan/align.h). Sums are
 * in double. */
#include <math.h>

#include "base/base.h"
#include "align/losses.h"
#include "align/terms.h"

/* ---- answers ---------------------------------------------------------------------------------- */

static double mean_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i];
    return n > 0 ? sum / n : 0;
}

/* The sample standard deviation (n - 1); 0 for one value. */
static double deviation_of(const float *x, int n)
{
    const double mean = mean_of(x, n);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

enum { SMALL_INVERSE = 10000 }; /* 1e-4 is added to deviations */

void by_group_advantages(const float *rewards, int count, int group, by_reward_scale scale, float *out)
{
    const double all = scale == BY_SCALE_BATCH ? deviation_of(rewards, count) : 0;
    for (int first = 0; first < count; first += BY_MAX(group, 1)) {
        const int n = BY_MIN(BY_MAX(group, 1), count - first);
        const double mean = mean_of(rewards + first, n);
        const double own = scale == BY_SCALE_GROUP ? deviation_of(rewards + first, n) : all;
        for (int i = first; i < first + n; i++) {
            const double a = (double)rewards[i] - mean;
            out[i] = (float)(scale == BY_SCALE_NONE ? a : a / (own + 1.0 / SMALL_INVERSE));
        }
    }
}

void by_leave_one_out(const float *rewards, int count, int group, bool normalized, float *out)
{
    for (int first = 0; first < count; first += BY_MAX(group, 1)) {
        const int n = BY_MIN(BY_MAX(group, 1), count - first);
        const double sum = mean_of(rewards + first, n) * n;
        for (int i = first; i < first + n; i++)
            out[i] = n > 1 ? (float)((double)rewards[i] - (sum - (double)rewards[i]) / (n - 1)) : 0;
    }
    if (!normalized)
        return;
    const double mean = mean_of(out, count), deviation = deviation_of(out, count);
    for (int i = 0; i < count; i++)
        out[i] = (float)(((double)out[i] - mean) / (deviation + 1.0 / SMALL_INVERSE));
}

/* ---- tokens ----------------------------------------------------------------------------------- */

void by_whiten(float *values, const float *mask, size_t count, bool keep_mean)
{
    double n = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        n += mask[i] != 0;
        sum += mask[i] != 0 ? (double)values[i] : 0;
    }
    const double mean = n > 0 ? sum / n : 0;
    for (size_t i = 0; i < count; i++)
        squares += mask[i] != 0 ? ((double)values[i] - mean) * ((double)values[i] - mean) : 0;
    const double factor = 1 / sqrt((n > 1 ? squares / (n - 1) : 0) + 1e-8);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(((double)values[i] - mean) * factor + (keep_mean ? mean : 0));
}

/* Rewards: -kl of every token, plus the score one past the last token. */
static void put_rewards(const by_rollout *r, const by_gae_spec *s, const by_gae *out, float *rewards)
{
    const double weight = train_or(s->kl, 0.05);
    for (int row = 0; row < r->rows; row++) {
        for (int t = 0; t < r->cols; t++) {
            const int i = row * r->cols + t;
            const double d = (double)r->ref_logps[i] - (double)r->logps[i];
            const double kl = s->third ? exp(d) - 1 - d : -d;
            if (out->kl)
                out->kl[i] = (float)kl;
            rewards[i] = (float)(-weight * kl);
        }
        const int end = r->last[row] + 1 < r->cols ? r->last[row] + 1 : r->last[row];
        rewards[row * r->cols + end] += r->scores[row];
    }
}

/* A(t) = delta(t) + gamma lambda A(t + 1), delta(t) = r(t) + gamma V(t + 1) - V(t) */
static void estimate(const by_rollout *r, const by_gae_spec *s, const float *rewards, float *advantages)
{
    const double gamma = train_or(s->gamma, 1), lambda = train_or(s->lambda, 0.95);
    for (int row = 0; row < r->rows; row++) {
        double after = 0;
        for (int t = r->cols - 1; t >= 0; t--) {
            const int i = row * r->cols + t;
            const double next = t + 1 < r->cols ? (double)r->values[i + 1] : 0;
            after = (double)rewards[i] + gamma * next - (double)r->values[i] + gamma * lambda * after;
            advantages[i] = (float)after;
        }
    }
}

static void copy(float *to, const float *from, size_t n)
{
    if (to)
        memcpy(to, from, n * sizeof *to);
}

static void hide(float *values, const float *mask, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = mask[i] != 0 ? values[i] : 0;
}

/* The mask: 1 up to the last token plus `more`. */
static void put_mask(const by_rollout *r, int more, float *mask)
{
    for (int i = 0; i < r->rows * r->cols; i++)
        mask[i] = i % r->cols <= r->last[i / r->cols] + more;
}

by_status by_gae_compute(const by_rollout *r, const by_gae_spec *s, const by_gae *out)
{
    if (!r || !s || !out || !out->advantages || !out->returns)
        return base_fail_missing(r ? "by_gae_spec or place for the advantages" : "by_rollout");
    const size_t n = (size_t)r->rows * (size_t)r->cols;
    for (int row = 0; row < r->rows; row++)
        if (r->last[row] < 0 || r->last[row] >= r->cols)
            return base_fail(BY_ERR_ARGUMENT, "answer %d ends at token %d of %d", row, r->last[row], r->cols);
    float *rewards = base_alloc(n * sizeof *rewards), *mask = base_alloc(n * sizeof *mask);
    if (!rewards || !mask) {
        base_free(rewards);
        base_free(mask);
        return BY_ERR_MEMORY;
    }
    put_rewards(r, s, out, rewards);
    copy(out->rewards_raw, rewards, n);
    put_mask(r, 1, mask); /* rewards and values extend one token further */
    if (s->whiten_rewards) {
        by_whiten(rewards, mask, n, true);
        hide(rewards, mask, n);
    }
    copy(out->rewards, rewards, n);
    estimate(r, s, rewards, out->advantages);
    copy(out->advantages_raw, out->advantages, n);
    for (size_t i = 0; i < n; i++)
        out->returns[i] = out->advantages[i] + r->values[i];
    put_mask(r, 0, mask);
    by_whiten(out->advantages, mask, n, false);
    hide(out->advantages, mask, n);
    base_free(rewards);
    base_free(mask);
    return BY_OK;
}

/* ---- metrics ---------------------------------------------------------------------------------- */

/* Sums over one answer. */
typedef struct seen_row {
    double tokens, kl, entropy, log_ratio, squares;
    double low, high; /* clipped tokens */
} seen_row;

/* -1 if a token with a negative advantage is clipped, 1 if one with a positive advantage is. */
static int side(const by_policy_spec *s, double ratio, double advantage)
{
    if (s->term != BY_TERM_CLIPPED)
        return s->term == BY_TERM_WEIGHTED && ratio > train_epsilon_high(s) && advantage > 0;
    if (ratio < 1 - train_or(s->epsilon_low, 0.2) && advantage < 0)
        return -1;
    return ratio > 1 + train_epsilon_high(s) && advantage > 0;
}

static seen_row see(const by_policy_seen *p, const by_policy_spec *s, int row)
{
    seen_row sum = {0};
    for (int i = row * p->cols; i < (row + 1) * p->cols; i++) {
        if (p->mask[i] == 0)
            continue;
        const double log_ratio = p->old_logps ? (double)p->logps[i] - (double)p->old_logps[i] : 0;
        const double d = p->ref_logps ? (double)p->ref_logps[i] - (double)p->logps[i] : 0;
        const int where = side(s, exp(log_ratio), (double)p->advantages[p->by_token ? i : row]);
        sum.tokens++;
        sum.squares += log_ratio * log_ratio;
        sum.log_ratio += log_ratio;
        sum.kl += exp(d) - d - 1;
        sum.entropy += p->entropy ? (double)p->entropy[i] : 0;
        sum.low += where < 0;
        sum.high += where > 0;
    }
    if (s->by_sequence || s->whole_sequence) { /* one ratio per answer counts as one token */
        const double mean = s->by_sequence ? BY_MAX(sum.tokens, 1) : 1;
        const int where = side(s, exp(sum.log_ratio / mean), (double)p->advantages[row]);
        sum.low = where < 0;
        sum.high = where > 0;
    }
    return sum;
}

void by_policy_measure(const by_policy_seen *p, const by_policy_spec *s, by_policy_metrics *out)
{
    const bool single = s->by_sequence || s->whole_sequence;
    double tokens = 0, ratios = 0;
    *out = (by_policy_metrics){.low_min = p->rows > 0, .high_max = 0};
    for (int row = 0; row < p->rows; row++) {
        const seen_row r = see(p, s, row);
        const double n = single ? 1 : r.tokens;
        tokens += r.tokens;
        ratios += n;
        out->kl += r.kl;
        out->entropy += r.entropy;
        out->approx_kl += 0.5 * r.squares;
        out->low_mean += r.low;
        out->high_mean += r.high;
        out->low_min = n > 0 ? BY_MIN(out->low_min, r.low / n) : out->low_min;
        out->high_max = n > 0 ? BY_MAX(out->high_max, r.high / n) : out->high_max;
    }
    tokens = BY_MAX(tokens, 1);
    ratios = BY_MAX(ratios, 1);
    out->kl /= tokens;
    out->entropy /= tokens;
    out->approx_kl /= tokens;
    out->low_mean /= ratios;
    out->high_mean /= ratios;
    out->region_mean = out->low_mean + out->high_mean;
}

double by_value_clipped(const float *values, const float *old_values, const float *returns, const float *mask,
                        int count, const by_value_spec *spec)
{
    const double clip = train_or(spec->clip, 0.2);
    double all = 0, clipped = 0;
    for (int i = 0; i < count; i++) {
        const double v = (double)values[i], old = (double)old_values[i];
        const double near = BY_MIN(BY_MAX(v, old - clip), old + clip);
        const double e1 = v - (double)returns[i], e2 = near - (double)returns[i];
        all += mask[i] != 0;
        clipped += mask[i] != 0 && e2 * e2 > e1 * e1;
    }
    return all > 0 ? clipped / all : 0;
}
