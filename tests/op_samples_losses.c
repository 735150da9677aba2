/* op_samples_losses.c - samples of losses, log-probabilities and divergences. */
#include "op_sample_build.h"

#include "graph/mixture_layout.h"

static const struct {
    int64_t rows, classes;
    float smoothing;
    bool ignore, nothing, weighted;
} losses[] = {
    {4, 7, 0, false, false, false},    {5, 11, 0.1f, true, false, false},     {3, 4, 0, true, true, false},
    {130, 90, 0, true, false, false},  {20, 1030, 0.2f, false, false, false}, {1, 50, 0, false, false, false},
    {5, 72, 0.1f, true, false, false}, {1, 59000, 0, false, false, false},    {5, 7, 0, true, false, true},
    {9, 72, 0, true, false, true},
};

static gr_node *lose(by_op_sample *s, int which)
{
    const int64_t r = losses[which].rows, v = losses[which].classes;
    gr_loss_attr a = {.ignore_index = -100, .label_smoothing = losses[which].smoothing};
    tag(s, "smoothing %g ", (double)a.label_smoothing);
    tag_if(s, losses[which].ignore, "ignored rows");
    tag_if(s, losses[which].nothing, "all ignored");
    by_tensor *x = operand(s, SHAPE(r, v)), *targets = indices(s, v, SHAPE(r));
    double *t = values_of(s, targets);
    for (int64_t i = 0; t && i < r; i++)
        if (losses[which].nothing || (losses[which].ignore && i % 3 == 1))
            t[i] = -100;
    by_tensor *weights = losses[which].weighted ? input(s, gr_acc_type(s->type), SHAPE(v)) : NULL;
    double *w = weights ? values_of(s, weights) : NULL;
    for (int64_t i = 0; w && i < v; i++)
        w[i] = 0.25 * (double)(i % 5);
    s->loss_scale = (double)r; /* or else 16 bits could not hold the gradients */
    s->forward_only = losses[which].nothing;
    return NODE(CROSS_ENTROPY, &a, x, targets, weights);
}

bool op_sample_cross_entropy(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(losses))
        return false;
    out_of(s, lose(s, which), 0);
    return true;
}

bool op_sample_cross_entropy_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(losses))
        return false;
    gr_node *n = lose(s, which);
    by_tensor *dloss = input(s, gr_acc_type(s->type), 0, NULL);
    double *scale = values_of(s, dloss);
    if (!n || !scale)
        return true;
    *scale = (double)losses[which].rows;
    shown_of(s,
             NODE(CROSS_ENTROPY_GRAD, (const gr_loss_attr *)n->attr, n->in[0], n->in[1], n->out[1], dloss,
                  n->in[2]),
             0);
    return true;
}

/* Wide logistics, whose bins have about the same probability; narrow ones, whose tails are taken by density; scales
 * below the least, with means outside of the values, where ln p is a straight line. */
static const struct {
    int64_t rows;
    int components, channels;
    bool narrow, least, ignore;
} mixtures[] = {{5, 1, 1, false, false, false},
                {9, 10, 3, false, false, true},
                {7, 3, 3, true, false, false},
                {6, 1, 1, false, true, false},
                {130, 40, 1, true, false, true}};

static gr_node *mix(by_op_sample *s, int which)
{
    const int channels = mixtures[which].channels, k = mixtures[which].components;
    const int64_t rows = mixtures[which].rows, cols = (int64_t)k * gr_mixture_parts(channels);
    gr_mixture_attr a = {.channels = channels, .ignore_index = -100};
    tag_if(s, mixtures[which].narrow, "narrow");
    tag_if(s, mixtures[which].least, "least scale");
    by_tensor *x = operand(s, SHAPE(rows, cols)), *targets = indices(s, 256, SHAPE(rows, channels));
    double *v = values_of(s, x), *t = values_of(s, targets);
    for (int64_t i = 0; v && t && i < rows; i++) {
        if (i % 3 != 2)
            t[i * channels] = i % 3 ? 255 : 0;
        if (mixtures[which].ignore && i % 4 == 1)
            t[i * channels + channels - 1] = -100;
        for (int j = 0; mixtures[which].narrow && j < channels * k; j++)
            v[i * cols + (gr_mixture_at(j / k, channels) + 1) * k + j % k] = -3 - 0.5 * (j % 4);
        if (mixtures[which].least) {
            v[i * cols + 1] = i % 2 ? 1.5 : -1.5;
            v[i * cols + 2] = -8;
        }
    }
    s->loss_scale = (double)rows;
    return NODE(LOGISTIC_MIXTURE, &a, x, targets);
}

bool op_sample_logistic_mixture(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(mixtures))
        return false;
    gr_node *n = mix(s, which);
    out_of(s, n, 0);
    return true;
}

bool op_sample_logistic_mixture_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(mixtures))
        return false;
    gr_node *n = mix(s, which);
    by_tensor *dloss = input(s, gr_acc_type(s->type), 0, NULL);
    double *scale = values_of(s, dloss);
    if (!n || !scale)
        return true;
    *scale = (double)mixtures[which].rows;
    shown_of(
        s,
        NODE(LOGISTIC_MIXTURE_GRAD, (const gr_mixture_attr *)n->attr, n->in[0], n->in[1], n->out[1], dloss),
        0);
    return true;
}

/* Less than a vector, rows that are not whole pieces, several threads, more columns than a block has threads. */
static const struct {
    int64_t rows, classes;
    float scale;
    bool entropy;
} policies[] = {
    {4, 7, 1, true}, {5, 11, 0.7f, false}, {130, 90, 1.4f, true}, {6, 72, 1, true}, {2, 5000, 0.5f, false}};

static gr_node *log_probs(by_op_sample *s, int which)
{
    const int64_t r = policies[which].rows, v = policies[which].classes;
    gr_log_probs_attr a = {.ignore_index = -100, .scale = policies[which].scale};
    tag(s, "scale %g ", (double)a.scale);
    by_tensor *x = operand(s, SHAPE(r, v)), *targets = indices(s, v, SHAPE(r));
    double *t = values_of(s, targets);
    for (int64_t i = 0; t && i < r; i++)
        t[i] = i % 3 == 1 ? -100 : t[i];
    return NODE(LOG_PROBS, &a, x, targets);
}

bool op_sample_log_probs(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = log_probs(s, which);
    out_of(s, n, 0);
    shown_of(s, n, 1);
    if (policies[which].entropy)
        shown_of(s, n, 2);
    return true;
}

bool op_sample_log_probs_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = log_probs(s, which);
    by_tensor *dy = input(s, gr_acc_type(s->type), SHAPE(policies[which].rows));
    if (n)
        shown_of(s,
                 NODE(LOG_PROBS_GRAD, (const gr_log_probs_attr *)n->attr, n->in[0], n->in[1], n->out[1], dy),
                 0);
    return true;
}

static gr_node *diverge(by_op_sample *s, int which)
{
    const int64_t r = policies[which].rows, v = policies[which].classes;
    gr_kl_attr a = {policies[which].scale};
    tag(s, "scale %g ", (double)a.scale);
    by_tensor *x = operand(s, SHAPE(r, v));
    return NODE(KL_DIVERGENCE, &a, x, input(s, s->type, SHAPE(r, v)));
}

bool op_sample_kl_divergence(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = diverge(s, which);
    out_of(s, n, 0);
    shown_of(s, n, 1);
    return true;
}

bool op_sample_kl_divergence_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = diverge(s, which);
    by_tensor *dy = input(s, gr_acc_type(s->type), SHAPE(policies[which].rows));
    if (n)
        shown_of(s, NODE(KL_DIVERGENCE_GRAD, (const gr_kl_attr *)n->attr, n->in[0], n->in[1], n->out[1], dy),
                 0);
    return true;
}
