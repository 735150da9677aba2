/* policy.c - policy-gradient losses with clipped ratios (PPO, GRPO and its variants, RLOO) and the loss of
 * PPO's critic (banyan/align.h). */
#include "base/base.h"
#include "align/losses.h"
#include "align/terms.h"

#define SOFT_GOOD 1.0
#define SOFT_BAD  1.05
#define ALMOST_HALF \
    0.4999 /* makes a cast, which rounds to nearest, round up; below 0.5 for rounding errors */

/* (B) as (B, 1), so that it repeats along the tokens. */
static by_tensor *column(by_graph *g, by_tensor *x)
{
    return by_reshape(g, x, 2, (int64_t[]){by_dim(x, 0), 1});
}

double train_epsilon_high(const by_policy_spec *s)
{
    return train_or(s->epsilon_high, s->term == BY_TERM_WEIGHTED ? 5 : 0.2);
}

by_tensor *train_clipped_losses(by_graph *g, const by_policy_spec *s, by_tensor *ratio, by_tensor *advantages)
{
    by_tensor *near = by_clamp(g, ratio, 1 - train_or(s->epsilon_low, 0.2), 1 + train_epsilon_high(s));
    if (s->delta > 0)
        ratio = by_clamp(g, ratio, 0, s->delta);
    by_tensor *least = by_minimum(g, by_mul(g, ratio, advantages), by_mul(g, near, advantages));
    return by_scale(g, least, -1);
}

/* -min(ratio, largest) A log p */
static by_tensor *weighted_losses(by_graph *g, const by_policy_spec *s, by_tensor *ratio,
                                  by_tensor *advantages, by_tensor *logps)
{
    by_tensor *weight = by_detach(g, by_clamp(g, ratio, 0, train_epsilon_high(s)));
    return by_scale(g, by_mul(g, by_mul(g, weight, advantages), logps), -1);
}

/* -4 / t sigmoid(t (ratio - 1)) A */
static by_tensor *soft_losses(by_graph *g, by_tensor *ratio, by_tensor *advantages)
{
    by_tensor *good = by_clamp(g, by_scale(g, advantages, 1e30), 0, 1);
    by_tensor *t = train_shift(g, by_scale(g, good, SOFT_GOOD - SOFT_BAD), SOFT_BAD);
    by_tensor *soft = by_activation(g, by_mul(g, train_shift(g, ratio, -1), t), BY_SIGMOID);
    return by_scale(g, by_mul(g, by_div(g, soft, t), advantages), -4);
}

static by_tensor *token_losses(by_graph *g, const by_policy_spec *s, by_tensor *ratio, by_tensor *advantages,
                               by_tensor *logps)
{
    return s->term == BY_TERM_WEIGHTED ? weighted_losses(g, s, ratio, advantages, logps)
           : s->term == BY_TERM_SOFT   ? soft_losses(g, ratio, advantages)
                                       : train_clipped_losses(g, s, ratio, advantages);
}

/* 1 for tokens whose entropy is at least the quantile 1 - share of the n tokens of the batch. With the
 * entropies sorted, this quantile has the index (1 - share) (n - 1), rounded up. Padding sorts last. */
static by_tensor *entropy_mask(by_graph *g, double share, by_tensor *entropy, by_tensor *mask)
{
    const int64_t n = by_elements(mask), column_of[] = {n, 1}, one = 1;
    by_tensor *far = by_scale(g, train_shift(g, by_scale(g, mask, -1), 1), 1e30);
    by_tensor *flat = by_reshape(g, by_add(g, by_mul(g, entropy, mask), far), 1, &n);
    by_tensor *ordered = by_reshape(g, by_sort(g, flat, false, NULL), 2, column_of);
    by_tensor *last = by_clamp(g, train_shift(g, train_total(g, mask), -1), 0, 1e30);
    by_tensor *place = by_cast(g, train_shift(g, by_scale(g, last, 1 - share), ALMOST_HALF), BY_I32);
    by_tensor *border = by_gather(g, ordered, by_reshape(g, place, 1, &one)); /* (1, 1) */
    by_tensor *below = by_clamp(g, by_scale(g, by_sub(g, border, entropy), 1e30), 0, 1);
    return by_detach(g, train_shift(g, by_scale(g, below, -1), 1));
}

/* The k3 estimate of the divergence, which is never negative: e^d - d - 1, d = reference - policy. */
static by_tensor *divergence(by_graph *g, by_model_io *io, const train_answers *a)
{
    by_tensor *ref = train_array(g, io, "token_ref_logps", a->logps);
    by_tensor *d = by_mul(g, by_sub(g, ref, a->logps), a->mask);
    by_tensor *kl = train_shift(g, by_sub(g, by_activation(g, d, BY_EXP), d), -1);
    train_keep(g, io, "token_kl", kl);
    return kl;
}

static by_tensor *average(by_graph *g, const by_policy_spec *s, const train_answers *a, by_tensor *terms)
{
    terms = by_mul(g, terms, a->mask); /* (B, T), even with one ratio per answer */
    if (s->mean == BY_MEAN_SEQUENCE)
        return by_mean(g, by_div(g, by_sum(g, terms, 1), train_answer_lengths(g, a)), 0);
    if (s->mean == BY_MEAN_TOKEN)
        return train_masked_mean(g, terms, a->mask);
    return s->divisor > 0 ? by_scale(g, train_total(g, terms), 1 / s->divisor)
                          : by_graph_fail(g, "a mean by a given number needs that number");
}

by_tensor *by_policy_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_policy_spec *s = user;
    train_answers a = train_answers_of(g, io, s->temperature);
    if (a.rows)
        return by_graph_fail(g, "policy losses take whole rows, not picked positions");
    by_tensor *old =
        by_io_input(io, "old_logps") ? train_array(g, io, "old_logps", a.logps) : by_detach(g, a.logps);
    by_tensor *advantages = train_array(g, io, "advantages", a.logps);
    by_tensor *log_ratio = by_mul(g, by_sub(g, a.logps, old), a.mask);
    if (s->whole_sequence) {
        by_tensor *ratio = by_activation(g, by_sum(g, log_ratio, 1), BY_EXP); /* (B) */
        return by_mean(g, train_clipped_losses(g, s, ratio, advantages), 0);
    }
    if (s->by_sequence)
        log_ratio = column(g, by_div(g, by_sum(g, log_ratio, 1), train_answer_lengths(g, &a)));
    if (by_rank(advantages) == 1)
        advantages = column(g, advantages);
    by_tensor *terms = token_losses(g, s, by_activation(g, log_ratio, BY_EXP), advantages, a.logps);
    if (s->top_entropy > 0 && s->top_entropy < 1)
        terms = by_mul(g, terms, entropy_mask(g, s->top_entropy, a.entropy, a.mask));
    if (s->beta != 0)
        terms = by_add(g, by_scale(g, divergence(g, io, &a), s->beta), terms);
    return average(g, s, &a, terms);
}

by_tensor *by_value_loss(void *user, by_graph *g, by_model_io *io)
{
    const double clip = train_or(((const by_value_spec *)user)->clip, 0.2);
    by_tensor *logits = by_io_output(io, "logits"), *there = by_io_input(io, "value_mask");
    if (!logits || io->labels != 1 || !there)
        return by_graph_fail(g, "a critic classifies with one label, and the batch has a \"value_mask\"");
    const by_dtype type = by_type(logits) == BY_F64 ? BY_F64 : BY_F32;
    by_tensor *values =
        by_cast(g, by_reshape(g, logits, 2, (int64_t[]){by_dim(there, 0), by_dim(there, 1)}), type);
    by_tensor *old = train_array(g, io, "old_values", values),
              *mask = train_array(g, io, "value_mask", values);
    by_tensor *returns = train_array(g, io, "returns", values);
    by_tensor *near = by_add(g, by_clamp(g, by_sub(g, values, old), -clip, clip), old);
    by_tensor *e1 = by_sub(g, values, returns), *e2 = by_sub(g, near, returns);
    train_keep(g, io, "values", values);
    by_tensor *larger = by_maximum(g, by_mul(g, e1, e1), by_mul(g, e2, e2));
    return by_scale(g, train_masked_mean(g, larger, mask), 0.5);
}
