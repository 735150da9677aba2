/* mixture_probs.c - probabilities of values under a discretised mixture of logistics (by_logistic_mixture),
 * for sampling. */
#include <math.h>

#include "banyan/pixels.h"
#include "base/base.h"
#include "graph/mixture_layout.h"

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double softplus(double z)
{
    return fmax(z, 0) + log1p(exp(-fabs(z)));
}

/* ln p of value v under one logistic. */
static double log_bin(int v, double mean, double raw)
{
    const double scale = fmax(raw, GR_MIXTURE_LEAST), inverse = exp(-scale);
    const double mid = inverse * (v / 127.5 - 1 - mean), half = inverse / 255;
    if (v == 0)
        return -softplus(-(mid + half));
    if (v == GR_MIXTURE_VALUES - 1)
        return -softplus(mid - half);
    const double p = sigmoid(mid + half) * sigmoid(half - mid) * -expm1(-2 * half);
    return p > GR_MIXTURE_SMALL ? log(p) : mid - scale - 2 * softplus(mid) - GR_MIXTURE_LOG_WIDTH;
}

static double log_sum_exp(const double *x, int n)
{
    double most = x[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = fmax(most, x[i]);
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

/* The mean of a channel of component k, which depends on the previous channels. */
static double mean_of(const float *x, int components, int k, int channels, int channel, const int32_t *before)
{
    const float *own = x + gr_mixture_at(channel, channels) * components + k;
    double mean = (double)own[0], coefficient[3] = {0};
    for (int c = 0; c < channels && channels > 1; c++)
        coefficient[c] = tanh((double)x[(gr_mixture_at(c, channels) + 2) * components + k]);
    if (channel == 1)
        mean += coefficient[0] * (before[0] / 127.5 - 1);
    if (channel == 2)
        mean += coefficient[1] * (before[0] / 127.5 - 1) + coefficient[2] * (before[1] / 127.5 - 1);
    return mean;
}

void by_mixture_log_probs(const float *logits, int count, int channels, int channel, const int32_t *before,
                          double out[256])
{
    const int components = BY_MIN(count / gr_mixture_parts(channels), GR_MIXTURE_MOST);
    double share[GR_MIXTURE_MOST], each[GR_MIXTURE_MOST], mean[GR_MIXTURE_MOST];
    for (int k = 0; k < components; k++) {
        share[k] = (double)logits[k];
        for (int c = 0; c < channel; c++)
            share[k] += log_bin(before[c], mean_of(logits, components, k, channels, c, before),
                                (double)logits[(gr_mixture_at(c, channels) + 1) * components + k]);
        mean[k] = mean_of(logits, components, k, channels, channel, before);
    }
    const double all = log_sum_exp(share, components);
    for (int v = 0; v < GR_MIXTURE_VALUES; v++) {
        for (int k = 0; k < components; k++)
            each[k] =
                share[k] - all +
                log_bin(v, mean[k], (double)logits[(gr_mixture_at(channel, channels) + 1) * components + k]);
        out[v] = log_sum_exp(each, components);
    }
}
