/* terms.c - see terms.h. */
#include "align/terms.h"

#include "base/base.h"

/* ---- arrays ----------------------------------------------------------------------------------- */

by_tensor *train_array(by_graph *g, const by_model_io *io, const char *name, const by_tensor *like)
{
    by_tensor *t = by_io_input(io, name);
    return t ? by_cast(g, t, by_type(like)) : by_graph_fail(g, "the batch has no array \"%s\"", name);
}

void train_keep(by_graph *g, by_model_io *io, const char *name, by_tensor *t)
{
    by_io_return(io, name, by_output(g, NULL, by_detach(g, t)));
}

/* ---- functions -------------------------------------------------------------------------------- */

by_tensor *train_total(by_graph *g, by_tensor *x)
{
    return by_sum(g, by_reshape(g, x, 1, (int64_t[]){-1}), 0);
}

by_tensor *train_shift(by_graph *g, by_tensor *x, double by)
{
    return by_add(g, x, by_fill(g, by_type(x), 0, NULL, by));
}

by_tensor *train_masked_mean(by_graph *g, by_tensor *x, by_tensor *mask)
{
    by_tensor *count = by_clamp(g, train_total(g, mask), 1, 1e30);
    return by_div(g, train_total(g, by_mul(g, x, mask)), count);
}

/* min(x, 0) - log(1 + e^-|x|) */
by_tensor *train_log_sigmoid(by_graph *g, by_tensor *x)
{
    by_tensor *zero = by_fill(g, by_type(x), 0, NULL, 0);
    by_tensor *less = by_minimum(g, x, by_scale(g, x, -1)); /* -|x| */
    by_tensor *log = by_activation(g, train_shift(g, by_activation(g, less, BY_EXP), 1), BY_LOG);
    return by_sub(g, by_minimum(g, x, zero), log);
}

/* 1 - e^x = tanh(-x / 2) (1 + e^x), which loses no digits near 0. */
by_tensor *train_log1mexp(by_graph *g, by_tensor *x)
{
    by_tensor *small = by_activation(g, by_activation(g, by_scale(g, x, -0.5), BY_TANH), BY_LOG);
    return by_add(g, small, by_activation(g, train_shift(g, by_activation(g, x, BY_EXP), 1), BY_LOG));
}

/* ---- answers ---------------------------------------------------------------------------------- */

by_tensor *train_answer_sums(by_graph *g, const train_answers *a, by_tensor *x)
{
    if (!a->rows)
        return by_sum(g, x, 1);
    x = by_scatter_add(g, by_reshape(g, x, 2, (int64_t[]){-1, 1}), a->rows, a->batch);
    return by_reshape(g, x, 1, &a->batch);
}

by_tensor *train_answer_lengths(by_graph *g, const train_answers *a)
{
    return by_clamp(g, train_answer_sums(g, a, a->mask), 1, 1e30);
}

train_answers train_answers_of(by_graph *g, by_model_io *io, double temperature)
{
    by_tensor *targets = by_io_input(io, "targets"), *logits = by_io_output(io, "logits");
    const by_tensor *tokens = by_io_input(io, "tokens");
    train_answers a = {.rows = by_io_input(io, "pick") ? by_io_input(io, "sequences") : NULL,
                       .batch = by_dim(tokens, 0)};
    if (!targets || !logits || (by_io_input(io, "pick") && !a.rows))
        by_graph_fail(g, "the batch has no %s",
                      !targets  ? "targets"
                      : !logits ? "logits"
                                : "array \"sequences\"");
    a.logps = by_log_probs(g, logits, targets, 1 / train_or(temperature, 1), &a.entropy);
    /* -100 becomes 0, every token 1 */
    a.mask = by_clamp(g, train_shift(g, by_cast(g, targets, by_type(a.logps)), 1), 0, 1);
    train_keep(g, io, "token_logps", a.logps);
    train_keep(g, io, "entropy", a.entropy);
    train_keep(g, io, "logps", train_answer_sums(g, &a, a.logps));
    return a;
}

by_tensor *by_likelihood_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_likelihood_spec *s = user;
    train_answers a = train_answers_of(g, io, s ? s->temperature : 1);
    by_tensor *terms = a.logps;
    if (s && s->dynamic)
        terms = by_mul(g, by_detach(g, by_activation(g, a.logps, BY_EXP)), terms);
    return by_scale(g, train_masked_mean(g, terms, a.mask), -1);
}
