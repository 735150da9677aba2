/* test_layer_kernels.c - the CPU kernels of softmax, cross-entropy, normalisation, gather and the optimisers,
 * one node at a time, against their formulas written out in double. */
#include "kernel_case.h"

static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {5, 64}, {2, 2051}, {37, 1003}};

static double *zeros(pool *p, int64_t count)
{
    return pool_alloc(p, (size_t)count * sizeof(double));
}

/* Relative error of a sum of n terms, in roundings, when they are independent. */
static double sum_roundings(int64_t n)
{
    return sqrt((double)n);
}

static size_t bytes_of(const by_tensor *t)
{
    return (size_t)count_of(t) * by_dtype_size(t->type);
}

/* ---- softmax -------------------------------------------------------------------------------- */

static double log_sum_exp(const double *x, int64_t count)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        max = fmax(max, x[i]);
    for (int64_t i = 0; i < count; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

static void check_softmax(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes); k++) {
        pool p = {.rng = base_rng_make(1, (uint64_t)k)};
        const int64_t rows = sizes[k][0], cols = sizes[k][1];
        by_tensor *x = TENSOR(&p, type, rows, cols), *y = TENSOR(&p, type, rows, cols);
        by_tensor *dy = TENSOR(&p, type, rows, cols), *dx = TENSOR(&p, type, rows, cols);
        double *u = randomise(&p, x, 5), *want = zeros(&p, rows * cols);
        if (cols > 2) /* a masked place */
            u[1] = -INFINITY;
        base_convert(x->data, type, u, BY_F64, (size_t)(rows * cols));
        for (int64_t r = 0; r < rows; r++) {
            const double lse = log_sum_exp(u + r * cols, cols);
            for (int64_t i = r * cols; i < (r + 1) * cols; i++)
                want[i] = exp(u[i] - lse);
        }
        gr_node n = {.op = GR_OP_SOFTMAX, .in = {x}, .out = {y}};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "softmax", y, want, 1, 40 + sum_roundings(cols)); /* x - max is up to 40 */
        gr_node over = {.op = GR_OP_SOFTMAX, .in = {x}, .out = {x}};
        assert_int_equal(run_node(&p, set, &over), BY_OK);
        assert_memory_equal(x->data, y->data, bytes_of(x));

        const double *s = values_of(&p, y), *g = randomise(&p, dy, 1);
        for (int64_t r = 0; r < rows; r++) {
            double dot = 0;
            for (int64_t i = r * cols; i < (r + 1) * cols; i++)
                dot += s[i] * g[i];
            for (int64_t i = r * cols; i < (r + 1) * cols; i++)
                want[i] = s[i] * (g[i] - dot);
        }
        gr_node grad = {.op = GR_OP_SOFTMAX_GRAD, .in = {y, dy}, .out = {dx}};
        assert_int_equal(run_node(&p, set, &grad), BY_OK);
        expect(set, "softmax_grad", dx, want, 4, 8);
        gr_node grad_over = {.op = GR_OP_SOFTMAX_GRAD, .in = {y, dy}, .out = {dy}};
        assert_int_equal(run_node(&p, set, &grad_over), BY_OK);
        assert_memory_equal(dx->data, dy->data, bytes_of(x));
        pool_free(&p);
    }
}

static void test_softmax(void **state)
{
    (void)state;
    for_each_kernel(check_softmax);
}

/* ---- cross-entropy -------------------------------------------------------------------------- */

/* which: bit 0 label smoothing, bit 1 every third row ignored, bit 2 all rows ignored, bit 3 weights */
static void check_loss(const kernel_set *set, by_dtype type, int64_t rows, int64_t cols, int which)
{
    pool p = {.rng = base_rng_make(2, (uint64_t)which)};
    const by_dtype acc = gr_acc_type(type);
    gr_loss_attr a = {.ignore_index = -100, .label_smoothing = which & 1 ? 0.125f : 0};
    by_tensor *x = TENSOR(&p, type, rows, cols), *targets = TENSOR(&p, BY_I32, rows);
    by_tensor *loss = tensor_of(&p, acc, 0, NULL), *lse = TENSOR(&p, acc, rows + 1);
    by_tensor *dloss = tensor_of(&p, acc, 0, NULL), *dx = TENSOR(&p, type, rows, cols);
    const double *u = randomise(&p, x, 4), s = a.label_smoothing;
    double *want_lse = zeros(&p, rows + 1), *want = zeros(&p, rows * cols), total = 0, up = 0.75, counted = 0;
    int32_t *target = targets->data;
    by_tensor *weights = which & 8 ? TENSOR(&p, acc, cols) : NULL;
    double *weight = zeros(&p, cols);
    for (int64_t j = 0; j < cols; j++)
        weight[j] = weights ? 0.25 * (double)(1 + j % 7) : 1;
    if (weights)
        base_convert(weights->data, acc, weight, BY_F64, (size_t)cols);
    base_convert(dloss->data, acc, &up, BY_F64, 1);
    for (int64_t r = 0; r < rows; r++) {
        const bool ignored = which & 4 || (which & 2 && r % 3 == 1);
        target[r] = ignored ? -100 : (int32_t)base_rng_below(&p.rng, (uint64_t)cols);
        want_lse[r] = log_sum_exp(u + r * cols, cols);
        counted += ignored ? 0 : weight[target[r]];
        double mean = 0;
        for (int64_t j = 0; j < cols; j++)
            mean += u[r * cols + j] / (double)cols;
        if (!ignored)
            total += weight[target[r]] *
                     ((1 - s) * (want_lse[r] - u[r * cols + target[r]]) + s * (want_lse[r] - mean));
    }
    want_lse[rows] = counted;
    total = counted > 0 ? total / counted : 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t r = i / cols;
        const double hot = (target[r] == i % cols ? 1 - s : 0) + s / (double)cols;
        want[i] = target[r] == -100 ? 0 : weight[target[r]] * (exp(u[i] - want_lse[r]) - hot) * up / counted;
    }
    gr_node n = {.op = GR_OP_CROSS_ENTROPY, .in = {x, targets, weights}, .out = {loss, lse}, .attr = &a};
    assert_int_equal(run_node(&p, set, &n), BY_OK);
    expect(set, "loss", loss, &total, 1, 20 + sum_roundings(cols));
    expect(set, "lse", lse, want_lse, 1, 20 + sum_roundings(cols));
    gr_node g = {
        .op = GR_OP_CROSS_ENTROPY_GRAD, .in = {x, targets, lse, dloss, weights}, .out = {dx}, .attr = &a};
    assert_int_equal(run_node(&p, set, &g), BY_OK);
    expect(set, "cross_entropy_grad", dx, want, counted > 0 ? up / counted : 0, 40 + sum_roundings(cols));
    g.out[0] = x;
    assert_int_equal(run_node(&p, set, &g), BY_OK);
    assert_memory_equal(x->data, dx->data, bytes_of(x));

    target[rows - 1] = (int32_t)cols;
    assert_int_equal(run_node(&p, set, &n), BY_ERR_ARGUMENT);
    assert_int_equal(run_node(&p, set, &g), BY_ERR_ARGUMENT);
    target[rows - 1] = -1;
    assert_int_equal(run_node(&p, set, &n), BY_ERR_ARGUMENT);
    pool_free(&p);
}

static void check_cross_entropy(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes); k++)
        for (int which = 0; which < 5; which++)
            check_loss(set, type, sizes[k][0], sizes[k][1], which);
    check_loss(set, type, 9, 33, 8);
    check_loss(set, type, 9, 33, 10);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    for_each_kernel(check_cross_entropy);
}

/* ---- normalisation -------------------------------------------------------------------------- */

/* which: bit 0 rms, bit 1 residual, bit 2 dropout on it, bit 3 no beta */
static void check_norm_case(const kernel_set *set, by_dtype type, int64_t rows, int64_t cols, int which)
{
    pool p = {.rng = base_rng_make(3, (uint64_t)which)};
    const by_dtype acc = gr_acc_type(type);
    gr_norm_attr a = {.rms = which & 1, .eps = 0x1p-17f, .p = which & 4 ? 0.5f : 0};
    by_tensor *x = TENSOR(&p, type, rows, cols), *h = which & 2 ? TENSOR(&p, type, rows, cols) : NULL;
    by_tensor *gamma = TENSOR(&p, type, cols), *beta = which & 8 ? NULL : TENSOR(&p, type, cols);
    by_tensor *y = TENSOR(&p, type, rows, cols), *stats = TENSOR(&p, acc, rows, 2);
    by_tensor *sum = h ? TENSOR(&p, type, rows, cols) : NULL;
    const double *u = randomise(&p, x, 2), *g = randomise(&p, gamma, 1),
                 *b = beta ? randomise(&p, beta, 1) : NULL;
    const double *v = h ? randomise(&p, h, 1) : NULL;
    gr_node n = {.op = GR_OP_NORM, .in = {x, gamma, beta, h}, .out = {y, stats, sum}, .attr = &a, .rng = 5};
    assert_int_equal(run_node(&p, set, &n), BY_OK);
    if (h) {
        double *want = zeros(&p, rows * cols);
        for (int64_t i = 0; i < rows * cols; i++) {
            const base_philox random =
                base_philox_at(TEST_SEED, (uint64_t)TEST_STEP << 32 | 5u, (uint64_t)i / 4);
            want[i] = u[i] + (a.p == 0 ? v[i] : random.v[i % 4] >= 0x80000000u ? 2 * v[i] : 0);
        }
        expect(set, "sum", sum, want, 8, 1);
        u = values_of(&p, sum);
    }
    double *want = zeros(&p, rows * cols), *want_stats = zeros(&p, rows * 2);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            mean += a.rms ? 0 : u[i] / (double)cols;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            square += (u[i] - mean) * (u[i] - mean) / (double)cols;
        want_stats[2 * r] = mean;
        want_stats[2 * r + 1] = 1 / sqrt(square + a.eps);
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            want[i] = (u[i] - mean) * want_stats[2 * r + 1] * g[i % cols] + (b ? b[i % cols] : 0);
    }
    if (cols > 1 || a.rms) { /* the variance of one number is 0, and 1 / std enlarges every rounding by 362 */
        expect(set, "stats", stats, want_stats, 2, 4 + sum_roundings(cols));
        expect(set, "norm", y, want, 12, 4 + sum_roundings(cols));
    }
    by_tensor *again = TENSOR(&p, type, rows, cols); /* neither statistics nor sum wanted */
    gr_node bare = {.op = GR_OP_NORM, .in = {x, gamma, beta, h}, .out = {again}, .attr = &a, .rng = 5};
    assert_int_equal(run_node(&p, set, &bare), BY_OK);
    assert_memory_equal(again->data, y->data, bytes_of(y));

    by_tensor *dy = TENSOR(&p, type, rows, cols), *dx = TENSOR(&p, type, rows, cols);
    by_tensor *dsum = h ? TENSOR(&p, type, rows, cols) : NULL;
    by_tensor *dgamma = TENSOR(&p, acc, cols), *dbeta = TENSOR(&p, acc, cols);
    const double *d = randomise(&p, dy, 1), *e = dsum ? randomise(&p, dsum, 1) : NULL,
                 *st = values_of(&p, stats);
    double *want_gamma =
        h ? randomise(&p, dgamma, 1) : zeros(&p, cols); /* with a residual, added to what is there */
    double *want_beta = h ? randomise(&p, dbeta, 1) : zeros(&p, cols);
    for (int64_t r = 0; r < rows; r++) {
        const double mean = st[2 * r], inverse = st[2 * r + 1];
        double g_mean = 0, gz_mean = 0;
        for (int64_t j = 0, i = r * cols; j < cols; j++, i++) {
            const double z = (u[i] - mean) * inverse;
            g_mean += a.rms ? 0 : d[i] * g[j] / (double)cols;
            gz_mean += d[i] * g[j] * z / (double)cols;
            want_gamma[j] += d[i] * z;
            want_beta[j] += d[i];
        }
        for (int64_t j = 0, i = r * cols; j < cols; j++, i++)
            want[i] = (d[i] * g[j] - g_mean - (u[i] - mean) * inverse * gz_mean) * inverse + (e ? e[i] : 0);
    }
    const double large = cols == 1 ? 2e3 : 8;
    gr_node back = {.op = GR_OP_NORM_GRAD,
                    .in = {dy, h ? sum : x, stats, gamma, dsum, h ? dgamma : NULL, h ? dbeta : NULL},
                    .out = {dx, dgamma, dbeta},
                    .attr = &a};
    assert_int_equal(run_node(&p, set, &back), BY_OK);
    expect(set, "dx", dx, want, large, 8 + sum_roundings(cols));
    expect(set, "dgamma", dgamma, want_gamma, large * sqrt((double)rows), 8);
    expect(set, "dbeta", dbeta, want_beta, 4 * sqrt((double)rows), 8);
    by_tensor *alone = TENSOR(&p, type, rows, cols);
    gr_node input_only = {
        .op = GR_OP_NORM_GRAD, .in = {dy, h ? sum : x, stats, gamma, dsum}, .out = {alone}, .attr = &a};
    assert_int_equal(run_node(&p, set, &input_only), BY_OK);
    assert_memory_equal(alone->data, dx->data, bytes_of(dx));
    pool_free(&p);
}

static void check_norm(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes); k++)
        for (int which = 0; which < 16; which++)
            check_norm_case(set, type, sizes[k][0], sizes[k][1], which);
}

static void test_norm(void **state)
{
    (void)state;
    for_each_kernel(check_norm);
}

/* ---- gather --------------------------------------------------------------------------------- */

static void check_gather(const kernel_set *set, by_dtype type)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 12}, {11, 100, 300}, {300, 70, 20}}; /* V, C, ids */
    for (int k = 0; k < BY_COUNT(shapes) * 2; k++) {
        pool p = {.rng = base_rng_make(4, (uint64_t)k)};
        const int64_t rows = shapes[k / 2][0], cols = shapes[k / 2][1], count = shapes[k / 2][2];
        const bool add = k % 2;
        by_tensor *table = TENSOR(&p, type, rows, cols), *ids = TENSOR(&p, BY_I32, count);
        by_tensor *y = TENSOR(&p, type, count, cols), *dtable = TENSOR(&p, gr_acc_type(type), rows, cols);
        int32_t *id = ids->data;
        randomise(&p, table, 1);
        for (int64_t i = 0; i < count; i++)
            id[i] = (int32_t)base_rng_below(&p.rng, (uint64_t)rows);
        gr_gather_attr attr = {.rows = rows, .still = -1};
        gr_node n = {.op = GR_OP_GATHER, .attr = &attr, .in = {table, ids}, .out = {y}};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        const size_t row = (size_t)cols * by_dtype_size(type);
        for (int64_t i = 0; i < count; i++)
            assert_memory_equal((char *)y->data + (size_t)i * row, (char *)table->data + (size_t)id[i] * row,
                                row);
        double *want = add ? randomise(&p, dtable, 1) : zeros(&p, rows * cols);
        const double *dy = randomise(&p, y, 1);
        for (int64_t i = 0; i < count * cols; i++)
            want[id[i / cols] * cols + i % cols] += dy[i];
        gr_node g = {
            .op = GR_OP_GATHER_GRAD, .attr = &attr, .in = {ids, y, add ? dtable : NULL}, .out = {dtable}};
        assert_int_equal(run_node(&p, set, &g), BY_OK);
        expect(set, "gather_grad", dtable, want, 10, 16);
        id[count - 1] = (int32_t)rows;
        assert_int_equal(run_node(&p, set, &n), BY_ERR_ARGUMENT);
        assert_int_equal(run_node(&p, set, &g), BY_ERR_ARGUMENT);
        assert_non_null(strstr(by_error_message(), "not in [0, "));
        id[count - 1] = -1;
        assert_int_equal(run_node(&p, set, &n), BY_ERR_ARGUMENT);
        pool_free(&p);
    }
}

static void test_gather(void **state)
{
    (void)state;
    for_each_kernel(check_gather);
}

/* ---- optimisers ----------------------------------------------------------------------------- */

/* A vector, a matrix, a frozen vector, a matrix large enough for several threads; gaps between them as
 * between parameters. */
static const gr_segment segments[] = {
    {.offset = 0, .count = 37, .rows = 1, .cols = 37, .lr_scale = 1, .decay = false},
    {.offset = 48, .count = 15, .rows = 5, .cols = 3, .lr_scale = 1, .decay = true},
    {.offset = 64, .count = 10, .rows = 1, .cols = 10, .lr_scale = 0, .decay = true},
    {.offset = 80, .count = 131 * 301, .rows = 131, .cols = 301, .lr_scale = 0.5f, .decay = true},
};
#define FLAT (80 + 131 * 301 + 1)

typedef struct optim_case {
    double *w, *g, *m, *v; /* the reference's own */
    double lr, clip, wd, beta1, beta2, eps, momentum, t;
} optim_case;

static void reference_adamw(optim_case *c, gr_segment s)
{
    const double lr = c->lr * s.lr_scale;
    for (int64_t i = s.offset; i < s.offset + s.count; i++) {
        const double g = c->g[i] * c->clip;
        c->w[i] -= s.decay ? lr * c->wd * c->w[i] : 0;
        c->m[i] = c->beta1 * c->m[i] + (1 - c->beta1) * g;
        c->v[i] = c->beta2 * c->v[i] + (1 - c->beta2) * g * g;
        const double m = c->m[i] / (1 - pow(c->beta1, c->t)), v = c->v[i] / (1 - pow(c->beta2, c->t));
        c->w[i] -= lr * m / (sqrt(v) + c->eps);
    }
}

static void reference_sgd(optim_case *c, gr_segment s)
{
    for (int64_t i = s.offset; i < s.offset + s.count; i++) {
        const double g = c->g[i] * c->clip + (s.decay ? c->wd * c->w[i] : 0);
        c->m[i] = c->momentum > 0 ? c->momentum * c->m[i] + g : c->m[i];
        c->w[i] -= c->lr * s.lr_scale * (c->momentum > 0 ? c->m[i] : g);
    }
}

static void reference_adafactor(optim_case *c, gr_segment s)
{
    const double lr = c->lr * s.lr_scale, b = 1 - pow(c->t, -0.8), n = (double)s.count;
    double *w = c->w + s.offset, *r = c->m + s.offset, *v = c->v + s.offset, mean = 0, u2 = 0, w2 = 0;
    double *u = test_calloc((size_t)s.count, sizeof *u);
    for (int64_t i = 0; i < s.count; i++)
        u[i] = c->g[s.offset + i] * c->clip;
    if (s.rows > 1) {
        for (int64_t i = 0; i < s.rows; i++) {
            double sum = 0;
            for (int64_t j = 0; j < s.cols; j++)
                sum += u[i * s.cols + j] * u[i * s.cols + j];
            r[i] = b * r[i] + (1 - b) * (sum / (double)s.cols + 1e-30);
            mean += r[i] / (double)s.rows;
        }
        for (int64_t j = 0; j < s.cols; j++) {
            double sum = 0;
            for (int64_t i = 0; i < s.rows; i++)
                sum += u[i * s.cols + j] * u[i * s.cols + j];
            v[j] = b * v[j] + (1 - b) * (sum / (double)s.rows + 1e-30);
        }
        for (int64_t i = 0; i < s.count; i++)
            u[i] /= sqrt(r[i / s.cols] * v[i % s.cols] / mean);
    } else {
        for (int64_t i = 0; i < s.count; i++) {
            v[i] = b * v[i] + (1 - b) * (u[i] * u[i] + 1e-30);
            u[i] /= sqrt(v[i]);
        }
    }
    for (int64_t i = 0; i < s.count; i++) {
        u2 += u[i] * u[i];
        w2 += w[i] * w[i];
    }
    for (int64_t i = 0; i < s.count; i++)
        w[i] -=
            (s.decay ? lr * c->wd * w[i] : 0) + lr * fmax(1e-3, sqrt(w2 / n)) * u[i] / fmax(1, sqrt(u2 / n));
    test_free(u);
}

/* Three steps. 16-bit values have a master; f32 ones when which is odd. Momentum and clipping for which >= 2.
 */
static void check_optimiser(const kernel_set *set, by_dtype type, gr_op op, int which)
{
    pool p = {.rng = base_rng_make(5, (uint64_t)which)};
    const by_dtype acc = gr_acc_type(type);
    const bool mastered = type == BY_BF16 || type == BY_F16 || (type == BY_F32 && which % 2);
    by_tensor *value = TENSOR(&p, type, FLAT), *master = mastered ? TENSOR(&p, acc, FLAT) : NULL;
    by_tensor *grad = TENSOR(&p, acc, FLAT), *m = TENSOR(&p, acc, FLAT), *v = TENSOR(&p, acc, FLAT);
    by_tensor *norm = tensor_of(&p, acc, 0, NULL), *hyper = TENSOR(&p, BY_F32, GR_HYPER_COUNT);
    float *hp = hyper->data;
    gr_optim_attr a = {.segments = segments,
                       .n_segments = BY_COUNT(segments),
                       .beta1 = 0.875f,
                       .beta2 = 0.96875f,
                       .eps = 0x1p-20f,
                       .weight_decay = 0.125f};
    memset(m->data, 0, bytes_of(m));
    memset(v->data, 0, bytes_of(v));
    memset(hp, 0, bytes_of(hyper));
    double *w = randomise(&p, value, 1), *start = values_of(&p, value);
    if (mastered)
        base_convert(master->data, acc, w, BY_F64, FLAT);
    optim_case c = {.w = w,
                    .m = zeros(&p, FLAT),
                    .v = zeros(&p, FLAT),
                    .lr = 0.0625,
                    .wd = a.weight_decay,
                    .beta1 = a.beta1,
                    .beta2 = a.beta2,
                    .eps = a.eps,
                    .momentum = which >= 2 ? 0.75 : 0};
    gr_node n = {.op = op, .attr = &a};
    by_tensor *adam[] = {value, grad, m, v, master, norm, hyper},
              *sgd[] = {value, grad, m, master, norm, hyper};
    memcpy(n.in, op == GR_OP_SGD ? sgd : adam, op == GR_OP_SGD ? sizeof sgd : sizeof adam);
    for (int step = 1; step <= 3; step++) {
        c.t = step;
        c.g = randomise(&p, grad, 1);
        double length = 0;
        for (int64_t i = 0; i < FLAT; i++)
            length += c.g[i] * c.g[i];
        length = sqrt(length);
        base_convert(norm->data, acc, &length, BY_F64, 1);
        c.clip = which >= 2 ? 16 / (length + 1e-6) : 1;
        hp[GR_HYPER_LR] = (float)c.lr;
        hp[GR_HYPER_MAX_NORM] = which >= 2 ? 16 : 0;
        hp[GR_HYPER_CORR1] = (float)(1 - pow(a.beta1, step));
        hp[GR_HYPER_CORR2] = (float)(1 - pow(a.beta2, step));
        hp[GR_HYPER_STEP] = (float)step;
        hp[GR_HYPER_MOMENTUM] = (float)c.momentum;
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        for (int s = 0; s < BY_COUNT(segments); s++) {
            if (segments[s].lr_scale == 0)
                continue;
            if (op == GR_OP_ADAMW)
                reference_adamw(&c, segments[s]);
            else if (op == GR_OP_SGD)
                reference_sgd(&c, segments[s]);
            else
                reference_adafactor(&c, segments[s]);
        }
    }
    /* the corrections of f64 come from floats; a step moves a weight by about lr */
    const double roundings = type == BY_F64 ? 1e6 : 16;
    expect(set, "m", m, c.m, 4, roundings);
    expect(set, "v", v, c.v, 4, roundings);
    expect(set, "weights", mastered ? master : value, c.w, 4, roundings);
    if (mastered) {
        by_tensor *rounded = TENSOR(&p, type, FLAT);
        base_convert(rounded->data, type, master->data, acc, FLAT);
        assert_memory_equal(rounded->data, value->data, bytes_of(value));
    }
    const double *end = values_of(&p, value);
    for (int64_t i = 0; i < FLAT; i++) { /* frozen parameters and gaps */
        const bool trained = i < 37 || (i >= 48 && i < 63) || (i >= 80 && i < FLAT - 1);
        assert_true(trained || end[i] == start[i]);
    }
    static const double bad[] = {(double)NAN, (double)INFINITY};
    for (int k = 0; k < 2; k++) {
        void *before = memcpy(pool_alloc(&p, bytes_of(value)), value->data, bytes_of(value));
        void *m_before = memcpy(pool_alloc(&p, bytes_of(m)), m->data, bytes_of(m));
        base_convert(norm->data, acc, &bad[k], BY_F64, 1);
        assert_int_equal(run_node(&p, set, &n), BY_ERR_NUMERIC);
        assert_memory_equal(before, value->data, bytes_of(value));
        assert_memory_equal(m_before, m->data, bytes_of(m));
    }
    pool_free(&p);
}

static void check_optimisers(const kernel_set *set, by_dtype type)
{
    for (int which = 0; which < 4; which++) {
        check_optimiser(set, type, GR_OP_ADAMW, which);
        check_optimiser(set, type, GR_OP_SGD, which);
        check_optimiser(set, type, GR_OP_ADAFACTOR, which);
    }
}

static void test_optimisers(void **state)
{
    (void)state;
    for_each_kernel(check_optimisers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_gather),  cmocka_unit_test(test_optimisers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
