/* preferences.c - preference losses: DPO and its variants, KTO, CPO, SimPO, ORPO, reward models
 * (banyan/align.h). */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "align/losses.h"
#include "align/terms.h"

static const char *const dpo_names[BY_DPO_KINDS] = {
    [BY_DPO_SIGMOID] = "sigmoid",
    [BY_DPO_HINGE] = "hinge",
    [BY_DPO_IPO] = "ipo",
    [BY_DPO_ROBUST] = "robust",
    [BY_DPO_SIGMOID_NORM] = "sigmoid_norm",
    [BY_DPO_SPPO_HARD] = "sppo_hard",
    [BY_DPO_APO_ZERO] = "apo_zero",
    [BY_DPO_APO_DOWN] = "apo_down",
    [BY_DPO_NCA_PAIR] = "nca_pair",
    [BY_DPO_EXO_PAIR] = "exo_pair",
    [BY_DPO_BCO_PAIR] = "bco_pair",
    [BY_DPO_SFT] = "sft",
    [BY_DPO_DISCOPOP] = "discopop",
    [BY_DPO_AOT] = "aot",
    [BY_DPO_AOT_UNPAIRED] = "aot_unpaired",
};

const char *by_dpo_name(by_dpo_kind kind)
{
    return (unsigned)kind < BY_DPO_KINDS ? dpo_names[kind] : "?";
}

bool by_dpo_find(const char *name, by_dpo_kind *out)
{
    for (int i = 0; name && out && i < BY_DPO_KINDS; i++)
        if (strcmp(name, dpo_names[i]) == 0) {
            *out = (by_dpo_kind)i;
            return true;
        }
    return false;
}

static const char *const divergence_names[BY_DIVERGENCES] = {
    [BY_DIVERGENCE_REVERSE_KL] = "reverse_kl",
    [BY_DIVERGENCE_FORWARD_KL] = "forward_kl",
    [BY_DIVERGENCE_JS] = "js_divergence",
    [BY_DIVERGENCE_ALPHA] = "alpha_divergence",
};

const char *by_divergence_name(by_divergence divergence)
{
    return (unsigned)divergence < BY_DIVERGENCES ? divergence_names[divergence] : "?";
}

bool by_divergence_find(const char *name, by_divergence *out)
{
    for (int i = 0; name && out && i < BY_DIVERGENCES; i++)
        if (strcmp(name, divergence_names[i]) == 0) {
            *out = (by_divergence)i;
            return true;
        }
    return false;
}

bool by_dpo_takes_divergence(by_dpo_kind kind)
{
    static const bool takes[BY_DPO_KINDS] = {
        [BY_DPO_SIGMOID] = true,      [BY_DPO_HINGE] = true,    [BY_DPO_IPO] = true, [BY_DPO_ROBUST] = true,
        [BY_DPO_SIGMOID_NORM] = true, [BY_DPO_EXO_PAIR] = true, [BY_DPO_SFT] = true, [BY_DPO_DISCOPOP] = true,
    };
    return (unsigned)kind < BY_DPO_KINDS && takes[kind];
}

/* ---- pairs ------------------------------------------------------------------------------------ */

static by_tensor *chosen(by_graph *g, by_tensor *x)
{
    return by_slice(g, x, 0, 0, by_dim(x, 0) / 2);
}

static by_tensor *rejected(by_graph *g, by_tensor *x)
{
    return by_slice(g, x, 0, by_dim(x, 0) / 2, by_dim(x, 0) / 2);
}

static void check_pairs(by_graph *g, int64_t rows)
{
    if (rows % 2)
        by_graph_fail(g, "%lld rows are not pairs of answers", (long long)rows);
}

static by_tensor *negative_log_sigmoid(by_graph *g, by_tensor *x, double factor)
{
    return by_scale(g, train_log_sigmoid(g, by_scale(g, x, factor)), -1);
}

/* -(1 - e) log sigmoid(beta x) - e log sigmoid(-beta x) */
static by_tensor *smoothed(by_graph *g, by_tensor *x, double beta, double e)
{
    by_tensor *loss = negative_log_sigmoid(g, x, beta);
    if (e == 0)
        return loss;
    return by_add(g, by_scale(g, loss, 1 - e), by_scale(g, negative_log_sigmoid(g, x, -beta), e));
}

static by_tensor *square(by_graph *g, by_tensor *x)
{
    return by_mul(g, x, x);
}

static by_tensor *sigmoid(by_graph *g, by_tensor *x, double factor)
{
    return by_activation(g, by_scale(g, x, factor), BY_SIGMOID);
}

/* q_w (log q_w - log(1 - e)) + q_l (log q_l - log e), q_w = sigmoid(beta d) */
static by_tensor *exo(by_graph *g, by_tensor *d, double beta, double e)
{
    if (!(e > 0 && e < 1))
        return by_graph_fail(g, "exo_pair needs label smoothing between 0 and 1");
    by_tensor *win = train_shift(g, train_log_sigmoid(g, by_scale(g, d, beta)), -log(1 - e));
    by_tensor *lose = train_shift(g, train_log_sigmoid(g, by_scale(g, d, -beta)), -log(e));
    return by_add(g, by_mul(g, sigmoid(g, d, beta), win), by_mul(g, sigmoid(g, d, -beta), lose));
}

/* A mixture of the logistic and the exponential loss, weighted by the reward margin. */
static by_tensor *discopop(by_graph *g, by_tensor *d, double beta)
{
    const double tau = 0.05;
    by_tensor *much = sigmoid(g, d, beta / tau), *logistic = negative_log_sigmoid(g, d, beta);
    by_tensor *exponential = by_activation(g, by_scale(g, d, -beta), BY_EXP);
    return by_add(g, logistic, by_mul(g, much, by_sub(g, exponential, logistic)));
}

/* Compares answers of equal rank, not the two answers to a prompt. */
static by_tensor *ranked(by_graph *g, by_tensor *better, by_tensor *worse)
{
    return by_sub(g, by_sort(g, better, false, NULL), by_sort(g, worse, false, NULL));
}

by_tensor *train_dpo_losses(by_graph *g, const by_dpo_spec *s, const train_ratios *r)
{
    const double beta = train_or(s->beta, 0.1), e = s->label_smoothing;
    switch (s->kind) {
    case BY_DPO_HINGE:
        return by_activation(g, train_shift(g, by_scale(g, r->d, -beta), 1), BY_RELU);
    case BY_DPO_IPO:
        return square(g, train_shift(g, r->mean_d, -1 / (2 * beta)));
    case BY_DPO_ROBUST:
        return by_scale(g,
                        by_sub(g, by_scale(g, negative_log_sigmoid(g, r->d, beta), 1 - e),
                               by_scale(g, negative_log_sigmoid(g, r->d, -beta), e)),
                        1 / (1 - 2 * e));
    case BY_DPO_SIGMOID_NORM:
        return negative_log_sigmoid(g, r->mean_d, beta);
    case BY_DPO_SPPO_HARD:
        return by_add(g, square(g, train_shift(g, r->w, -0.5 / beta)),
                      square(g, train_shift(g, r->l, 0.5 / beta)));
    case BY_DPO_APO_ZERO: /* 1 - sigmoid(x) = sigmoid(-x) */
        return by_add(g, sigmoid(g, r->w, -beta), sigmoid(g, r->l, beta));
    case BY_DPO_APO_DOWN:
        return by_add(g, sigmoid(g, r->w, beta), sigmoid(g, r->d, -beta));
    case BY_DPO_NCA_PAIR:
        return by_add(
            g, negative_log_sigmoid(g, r->w, beta),
            by_scale(g, by_add(g, negative_log_sigmoid(g, r->w, -beta), negative_log_sigmoid(g, r->l, -beta)),
                     0.5));
    case BY_DPO_EXO_PAIR:
        return exo(g, r->d, beta, e);
    case BY_DPO_BCO_PAIR:
        return by_add(g, negative_log_sigmoid(g, r->w, beta), negative_log_sigmoid(g, r->l, -beta));
    case BY_DPO_DISCOPOP:
        return discopop(g, r->d, beta);
    case BY_DPO_AOT:
        return smoothed(g, ranked(g, r->policy_d, r->ref_d), beta, e);
    case BY_DPO_AOT_UNPAIRED:
        return smoothed(g, ranked(g, r->w, r->l), beta, e);
    default:
        return smoothed(g, r->d, beta, e);
    }
}

/* f(r) for the divergence of the spec (docs/ALIGN.md; Wang et al. 2023). */
static by_tensor *worth(by_graph *g, const by_dpo_spec *s, by_tensor *ratio)
{
    const double alpha = train_or(s->divergence_alpha, 0.5), less = alpha - 1;
    if (s->divergence == BY_DIVERGENCE_FORWARD_KL)
        return train_shift(g, by_scale(g, by_activation(g, by_scale(g, ratio, -1), BY_EXP), -1),
                           1); /* 1 - 1 / t */
    if (s->divergence == BY_DIVERGENCE_JS)
        return train_shift(g, train_log_sigmoid(g, ratio), log(2)); /* log(2 t / (t + 1)) */
    if (s->divergence != BY_DIVERGENCE_ALPHA || fabs(less) < 1e-6)
        return ratio;
    by_tensor *power = by_activation(g, by_clamp(g, by_scale(g, ratio, less), -1e30, 80), BY_EXP);
    return by_scale(g, train_shift(g, power, -1), 1 / less); /* (t^(alpha - 1) - 1) / (alpha - 1) */
}

typedef struct pair_tensors {
    const train_answers *answers;
    by_tensor *logps, *lengths; /* (B) */
    train_ratios ratios;
    by_tensor *weights; /* (n); NULL: 1 */
} pair_tensors;

/* WPO weights: how likely the policy is to write both answers. For each answer, exp of the mean of log p -
 * log sum p^2 over its tokens. log sum p^2 is the log-normalizer of the doubled logits minus twice that of
 * the logits. No gradient. */
static by_tensor *pair_weights(by_graph *g, const by_model_io *io, const pair_tensors *p)
{
    const train_answers *a = p->answers;
    by_tensor *twice =
        by_log_probs(g, by_detach(g, by_io_output(io, "logits")), by_io_input(io, "targets"), 2, NULL);
    by_tensor *sums = train_answer_sums(g, a, by_sub(g, twice, by_detach(g, a->logps)));
    by_tensor *each = by_activation(g, by_div(g, sums, p->lengths), BY_EXP);
    return by_detach(g, by_mul(g, chosen(g, each), rejected(g, each)));
}

/* The loss of one kind, a scalar; *losses gets the loss of each pair. */
static by_tensor *one_loss(by_graph *g, const by_dpo_spec *s, const pair_tensors *p, by_tensor **losses)
{
    if (s->divergence != BY_DIVERGENCE_REVERSE_KL && !by_dpo_takes_divergence(s->kind))
        return by_graph_fail(g, "the loss %s is defined only for the divergence reverse_kl",
                             by_dpo_name(s->kind));
    *losses = NULL;
    if (s->kind == BY_DPO_SFT && s->weighted)
        return by_graph_fail(g, "the loss sft is a mean over tokens and has no weights of pairs");
    if (s->kind != BY_DPO_SFT) {
        *losses = train_dpo_losses(g, s, &p->ratios);
        *losses = p->weights ? by_mul(g, *losses, p->weights) : *losses;
        return by_mean(g, *losses, 0);
    }
    /* one mean over all tokens; the loss of a pair is the mean over its tokens */
    by_tensor *w = chosen(g, p->logps), *n = chosen(g, p->lengths);
    *losses = by_scale(g, by_div(g, w, n), -1);
    return by_scale(g, by_div(g, train_total(g, w), train_total(g, n)), -1);
}

/* The weighted sum of the terms, or the loss of the single kind. */
static by_tensor *all_losses(by_graph *g, const by_dpo_spec *s, const pair_tensors *p, by_tensor **losses)
{
    by_tensor *sum = NULL;
    if (s->term_count == 0)
        return one_loss(g, s, p, losses);
    for (int i = 0; i < s->term_count; i++) {
        const double weight = train_or(s->terms[i].weight, 1);
        by_dpo_spec one = *s;
        one.kind = s->terms[i].kind;
        by_tensor *own, *loss = by_scale(g, one_loss(g, &one, p, &own), weight);
        own = by_scale(g, own, weight);
        sum = sum ? by_add(g, sum, loss) : loss;
        *losses = i ? by_add(g, *losses, own) : own;
    }
    return sum;
}

by_tensor *by_dpo_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_dpo_spec *s = user;
    train_answers a = train_answers_of(g, io, 1);
    check_pairs(g, a.batch);
    pair_tensors p = {
        .answers = &a, .logps = train_answer_sums(g, &a, a.logps), .lengths = train_answer_lengths(g, &a)};
    by_tensor *ref = train_array(g, io, "ref_logps", p.logps), *ratio = by_sub(g, p.logps, ref);
    by_tensor *worths = worth(g, s, ratio), *means = by_div(g, worths, p.lengths), *losses = NULL;
    p.ratios = (train_ratios){.w = chosen(g, ratio),
                              .l = rejected(g, ratio),
                              .d = by_sub(g, chosen(g, worths), rejected(g, worths)),
                              .mean_d = by_sub(g, chosen(g, means), rejected(g, means)),
                              .policy_d = by_sub(g, chosen(g, p.logps), rejected(g, p.logps)),
                              .ref_d = by_sub(g, chosen(g, ref), rejected(g, ref))};
    p.weights = s->weighted ? pair_weights(g, io, &p) : NULL;
    train_keep(g, io, "rewards", by_scale(g, ratio, train_or(s->beta, 0.1)));
    by_tensor *loss = all_losses(g, s, &p, &losses);
    if (losses)
        train_keep(g, io, "losses", losses);
    return loss;
}

/* ---- single answers --------------------------------------------------------------------------- */

float by_kto_kl(const float *logps, const float *ref_logps, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)logps[i] - (double)ref_logps[i];
    return (float)BY_MAX(count > 0 ? sum / count : 0, 0);
}

/* w (1 - sigmoid(beta z (r - kl))), z = 1 for good answers and -1 for bad ones */
by_tensor *by_kto_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_kto_spec *s = user;
    const double beta = train_or(s->beta, 0.1), good = train_or(s->desirable_weight, 1),
                 bad = train_or(s->undesirable_weight, 1);
    train_answers a = train_answers_of(g, io, 1);
    by_tensor *logps = train_answer_sums(g, &a, a.logps);
    by_tensor *ratio = by_sub(g, logps, train_array(g, io, "ref_logps", logps));
    by_tensor *label = train_array(g, io, "label", logps);
    by_tensor *sign = train_shift(g, by_scale(g, label, 2), -1);
    by_tensor *weight = train_shift(g, by_scale(g, label, good - bad), bad);
    by_tensor *over = s->unpaired ? ratio : by_sub(g, ratio, train_array(g, io, "kl", logps));
    by_tensor *losses = by_mul(g, weight, sigmoid(g, by_mul(g, sign, over), -beta));
    train_keep(g, io, "rewards", by_scale(g, ratio, beta));
    train_keep(g, io, "losses", losses);
    return by_mean(g, losses, 0);
}

/* ---- without a reference ---------------------------------------------------------------------- */

/* The negative log-likelihood, a mean over tokens: of the answers, or for ORPO of prompts and answers. */
static by_tensor *likelihood(by_graph *g, by_model_io *io, by_cpo_kind kind, by_tensor *logps,
                             by_tensor *lengths)
{
    by_tensor *all = by_io_input(io, "all_targets");
    if (kind == BY_CPO_ORPO)
        return all ? by_cross_entropy(g, by_io_output(io, "logits"), all, NULL)
                   : by_graph_fail(g, "the batch has no array \"all_targets\"");
    return by_scale(g, by_div(g, train_total(g, chosen(g, logps)), train_total(g, chosen(g, lengths))), -1);
}

/* log sigmoid of the log of the odds ratio, times -beta */
static by_tensor *odds(by_graph *g, by_model_io *io, by_tensor *w, by_tensor *l, double beta)
{
    by_tensor *more = by_sub(g, train_log1mexp(g, w), train_log1mexp(g, l));
    by_tensor *log_odds = by_sub(g, by_sub(g, w, l), more);
    train_keep(g, io, "log_odds", log_odds);
    return by_scale(g, train_log_sigmoid(g, log_odds), -beta);
}

by_tensor *by_cpo_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_cpo_spec *s = user;
    const double beta = train_or(s->beta, 0.1);
    train_answers a = train_answers_of(g, io, 1);
    check_pairs(g, a.batch);
    by_tensor *sums = train_answer_sums(g, &a, a.logps), *lengths = train_answer_lengths(g, &a);
    const bool means = s->kind == BY_CPO_SIMPO || s->kind == BY_CPO_ORPO;
    by_tensor *logps = means ? by_div(g, sums, lengths) : sums;
    by_tensor *w = chosen(g, logps), *l = rejected(g, logps), *d = by_sub(g, w, l), *losses;
    if (s->kind == BY_CPO_SIMPO)
        d = train_shift(g, d, -s->gamma / beta);
    if (s->kind == BY_CPO_ORPO)
        losses = odds(g, io, w, l, beta);
    else if (s->kind == BY_CPO_HINGE)
        losses = by_activation(g, train_shift(g, by_scale(g, d, -beta), 1), BY_RELU);
    else
        losses = smoothed(g, d, beta, s->label_smoothing);
    train_keep(g, io, "losses", losses);
    train_keep(g, io, "rewards", by_scale(g, logps, beta));
    const double alpha = s->kind == BY_CPO_ORPO ? 1 : s->alpha;
    by_tensor *loss = by_mean(g, losses, 0);
    if (alpha == 0)
        return loss;
    by_tensor *nll = likelihood(g, io, s->kind, sums, lengths);
    train_keep(g, io, "likelihood", nll);
    return by_add(g, loss, by_scale(g, nll, alpha));
}

/* ---- reward models ---------------------------------------------------------------------------- */

by_tensor *by_reward_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_reward_spec *s = user;
    by_tensor *logits = by_io_output(io, "logits");
    if (!logits || io->labels != 1)
        return by_graph_fail(g, "a reward model classifies with one label");
    const by_dtype type = by_type(logits) == BY_F64 ? BY_F64 : BY_F32;
    by_tensor *rewards = by_cast(g, by_reshape(g, logits, 1, (int64_t[]){-1}), type);
    check_pairs(g, by_dim(rewards, 0));
    by_tensor *w = chosen(g, rewards), *l = rejected(g, rewards), *d = by_sub(g, w, l);
    if (by_io_input(io, "margin"))
        d = by_sub(g, d, train_array(g, io, "margin", d));
    train_keep(g, io, "rewards", rewards);
    by_tensor *loss = by_mean(g, negative_log_sigmoid(g, d, 1), 0);
    if (s->center == 0)
        return loss;
    return by_add(g, loss, by_scale(g, by_mean(g, square(g, by_add(g, w, l)), 0), s->center));
}
