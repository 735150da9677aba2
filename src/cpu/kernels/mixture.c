/* mixture.c - the likelihood of pixels under a discretised mixture of logistics (Salimans et al. 2017), and its
 * gradient. A row has K mixture logits and for each channel K means and K log scales; with three channels also K
 * coefficients each, by which the means of later channels depend on the values of earlier ones. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "graph/mixture_layout.h"

/* Checks that every target is a value or ignored; *counted is the number of rows whose targets all count. */
static by_status check_values(const gr_node *n, int64_t rows, const gr_mixture_attr *a, int64_t *counted)
{
    const int32_t *target = n->in[1]->data;
    *counted = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int c = 0; c < a->channels; c++) {
            const int32_t v = target[r * a->channels + c];
            if (v != a->ignore_index && (v < 0 || v >= GR_MIXTURE_VALUES))
                return base_fail(
                    BY_ERR_ARGUMENT, "%s: target %d of row %lld is not in [0, %d) nor the ignored %d",
                    gr_tensor_label(n->in[1]), (int)v, (long long)r, GR_MIXTURE_VALUES, a->ignore_index);
        }
        *counted += gr_mixture_counts(target + r * a->channels, a->channels, a->ignore_index);
    }
    return BY_OK;
}

#define BY_TEMPLATE "cpu/kernels/mixture.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(logistic_mixture)(gr_exec *e,
                                   gr_node *n){BY_DISPATCH(n->in[0]->type, logistic_mixture, e, n)}

by_status KERNEL(logistic_mixture_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, logistic_mixture_grad, e, n)
}

#else /* ---- once per element type ---- */

static inline R FN(sigmoid)(R z)
{
    return 1 / (1 + R_EXP(-z)); /* e^-z may be infinite */
}

/* ln(1 + e^z) */
static inline R FN(softplus)(R z)
{
    const R a = z < 0 ? z : -z;
    return (z > 0 ? z : 0) + R_LOG(1 + R_EXP(a));
}

/* ln p of value v under one logistic, and its derivatives by the mean and the log scale. The difference of two
 * sigmoids is taken as a product, which loses no digits in the tails. */
static R FN(bin)(int32_t v, R mean, R raw, R *dmean, R *dscale)
{
    const R scale = raw < (R)GR_MIXTURE_LEAST ? (R)GR_MIXTURE_LEAST : raw, inverse = R_EXP(-scale);
    const R mid = inverse * ((R)v / (R)127.5 - 1 - mean), half = inverse / 255, a = mid + half,
            b = mid - half;
    const R live = raw < (R)GR_MIXTURE_LEAST ? 0 : 1;
    if (v == 0 || v == GR_MIXTURE_VALUES - 1) { /* with the tail on its side */
        const R z = v == 0 ? a : -b, rest = FN(sigmoid)(-z);
        *dmean = v == 0 ? -inverse * rest : inverse * rest;
        *dscale = -z * rest * live;
        return -FN(softplus)(-z);
    }
    const R above = FN(sigmoid)(a), below = FN(sigmoid)(b), after = FN(sigmoid)(-a), rest = FN(sigmoid)(-b);
    const R t = R_TANH(half), gap = 2 * t / (1 + t), p = above * rest * gap; /* gap: 1 - e^-(a - b) */
    if (p > (R)GR_MIXTURE_SMALL) {
        *dmean = -inverse * (after - below);
        *dscale = -(mid * (after - below) + half * (after / rest + below / above) / gap) * live;
        return R_LOG(p);
    }
    const R slope = 1 - 2 * FN(sigmoid)(mid); /* the density in the middle, times the width */
    *dmean = -inverse * slope;
    *dscale = -(mid * slope + 1) * live;
    return mid - scale - 2 * FN(softplus)(mid) - (R)GR_MIXTURE_LOG_WIDTH;
}

/* One component: ln p of all channels of a pixel; d, unless NULL, receives the derivatives by its parameters, in the
 * order of a row. x: the parameters of component k, K apart. */
static R FN(component)(const R *x, int count, int channels, const int32_t *v, R *d)
{
    R sum = 0, dmean[3], dscale[3], turn[3] = {0}, value[3];
    for (int c = 0; c < channels; c++) {
        const R *own = x + gr_mixture_at(c, channels) * count;
        R mean = own[0];
        value[c] = (R)v[c] / (R)127.5 - 1;
        if (channels > 1)
            turn[c] = R_TANH(own[2 * count]);
        if (c == 1)
            mean += turn[0] * value[0];
        if (c == 2)
            mean += turn[1] * value[0] + turn[2] * value[1];
        sum += FN(bin)(v[c], mean, own[count], &dmean[c], &dscale[c]);
        if (c == 2 && d) {
            d[gr_mixture_at(0, 3) + 2] = dmean[1] * value[0] * (1 - turn[0] * turn[0]);
            d[gr_mixture_at(1, 3) + 2] = dmean[2] * value[0] * (1 - turn[1] * turn[1]);
            d[gr_mixture_at(2, 3) + 2] = dmean[2] * value[1] * (1 - turn[2] * turn[2]);
        }
        if (d) {
            d[gr_mixture_at(c, channels)] = dmean[c];
            d[gr_mixture_at(c, channels) + 1] = dscale[c];
        }
    }
    return sum;
}

/* ln of the sum of e^x. */
static R FN(sum_exp)(const R *x, int count)
{
    R most = x[0], sum = 0;
    for (int i = 1; i < count; i++)
        most = x[i] > most ? x[i] : most;
    for (int i = 0; i < count; i++)
        sum += R_EXP(x[i] - most);
    return most + R_LOG(sum);
}

static by_status FN(logistic_mixture)(gr_exec *e, gr_node *n)
{
    const gr_mixture_attr a = *(const gr_mixture_attr *)n->attr;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const int count = (int)cols / gr_mixture_parts(a.channels);
    const T *x_all = n->in[0]->data;
    const int32_t *target = n->in[1]->data;
    R *each = n->out[1] ? n->out[1]->data : NULL;
    int64_t counted;
    BY_TRY(check_values(n, rows, &a, &counted));
    double *loss = base_alloc((size_t)rows * sizeof *loss), total = 0;
    if (!loss)
        return BY_ERR_MEMORY;
    BY_BRANCH("logistic_mixture " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 4)
    for (int64_t r = 0; r < rows; r++) {
        R x[GR_MIXTURE_ROW], p[GR_MIXTURE_MOST] = {0};
        loss[r] = 0;
        if (gr_mixture_counts(target + r * a.channels, a.channels, a.ignore_index)) {
            for (int64_t i = 0; i < cols; i++)
                x[i] = LD(x_all[r * cols + i]);
            for (int k = 0; k < count; k++)
                p[k] = x[k] + FN(component)(x + k, count, a.channels, target + r * a.channels, NULL);
            loss[r] = (double)FN(sum_exp)(x, count) - (double)FN(sum_exp)(p, count);
        }
        if (each)
            each[r] = (R)loss[r];
    }
    for (int64_t r = 0; r < rows; r++)
        total += loss[r];
    base_free(loss);
    if (each)
        each[rows] = (R)counted;
    *(R *)n->out[0]->data = (R)(counted > 0 ? total / ((double)counted * a.channels) : 0);
    return BY_OK;
}

/* With r_k the share of component k in the likelihood: its mixture logit gets softmax_k - r_k, its parameters
 * -r_k d ln p_k; all times dloss / (counted C). */
static by_status FN(logistic_mixture_grad)(gr_exec *e, gr_node *n)
{
    const gr_mixture_attr a = *(const gr_mixture_attr *)n->attr;
    const int64_t rows = gr_tensor_rows(n->in[0]), cols = gr_tensor_cols(n->in[0]);
    const int parts = gr_mixture_parts(a.channels), count = (int)cols / parts;
    const T *x_all = n->in[0]->data;
    T *dx_all = n->out[0]->data;
    const int32_t *target = n->in[1]->data;
    int64_t counted;
    BY_TRY(check_values(n, rows, &a, &counted));
    const R all = ((const R *)n->in[2]->data)[rows];
    const R factor = all > 0 ? *(const R *)n->in[3]->data / (all * (R)a.channels) : 0;
    BY_BRANCH("logistic_mixture_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (rows * cols >= BY_FORK_ELEMENTS / 4)
    for (int64_t r = 0; r < rows; r++) {
        R x[GR_MIXTURE_ROW], p[GR_MIXTURE_MOST] = {0}, d[GR_MIXTURE_MOST][GR_MIXTURE_PARTS];
        T *dx = dx_all + r * cols;
        if (!gr_mixture_counts(target + r * a.channels, a.channels, a.ignore_index)) {
            memset(dx, 0, (size_t)cols * sizeof *dx);
            continue;
        }
        for (int64_t i = 0; i < cols; i++)
            x[i] = LD(x_all[r * cols + i]);
        for (int k = 0; k < count; k++)
            p[k] = x[k] + FN(component)(x + k, count, a.channels, target + r * a.channels, d[k]);
        const R prior = FN(sum_exp)(x, count), lse = FN(sum_exp)(p, count);
        for (int k = 0; k < count; k++) {
            const R share = R_EXP(p[k] - lse);
            dx[k] = ST((R_EXP(x[k] - prior) - share) * factor);
            for (int i = 1; i < parts; i++)
                dx[i * count + k] = ST(-share * d[k][i] * factor);
        }
    }
    return BY_OK;
}
#endif
