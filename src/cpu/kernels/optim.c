/* optim.c - AdamW, SGD and Adafactor over the flat buffers: every parameter is a segment with its own factor
 * of the learning rate. 16-bit values have a float master, which is updated; the value is the rounded master.
 * bf16 values may do without a master: updates are then rounded stochastically.
 *
 * Throughout, lr is the learning rate times the segment's lr_scale, and g is the gradient times min(1,
 * max_norm / (norm + 1e-6)). Segments with lr_scale 0 are frozen: nothing of them changes. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

#define SPAN 16384 /* elements per task */
/* Maximum number of partial sums of a matrix in Adafactor, independent of the number of threads. */
#define CHUNKS 32

static int64_t elements(const by_tensor *t)
{
    return gr_tensor_rows(t) * gr_tensor_cols(t);
}

/* Computes the factor of the gradients. Fails, before anything is changed, if their norm is not finite. */
static by_status clip_factor(const by_tensor *norm, float max_norm, double *factor)
{
    *factor = 1;
    if (!norm)
        return BY_OK;
    const double x = norm->type == BY_F64 ? *(const double *)norm->data : (double)*(const float *)norm->data;
    if (!isfinite(x))
        return base_fail(BY_ERR_NUMERIC, "gradient norm is not finite");
    if (max_norm > 0)
        *factor = BY_MIN(1.0, max_norm / (x + 1e-6));
    return BY_OK;
}

/* Source of the random bits for stochastic rounding. */
typedef struct dice {
    const gr_exec *e;
    const gr_node *n;
} dice;

static bool rounds_by_chance(const gr_node *n, const by_tensor *master)
{
    return n->in[0]->type == BY_BF16 && ((const gr_optim_attr *)n->attr)->gr_stochastic && !master;
}

#define BY_TEMPLATE "cpu/kernels/optim.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(adamw)(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[4]))
        BY_BRANCH("adamw, stochastic rounding");
    BY_DISPATCH(n->in[0]->type, adamw, e, n)
}

by_status KERNEL(sgd)(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[3]))
        BY_BRANCH("sgd, stochastic rounding");
    BY_DISPATCH(n->in[0]->type, sgd, e, n)
}

by_status KERNEL(adafactor)(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[4]))
        BY_BRANCH("adafactor, stochastic rounding");
    BY_DISPATCH(n->in[0]->type, adafactor, e, n)
}

#else /* ---- once per element type ---- */

/* For each i: loads the weight w, runs body, which updates w, and stores it. With dice, the first one is
 * element `first` of the buffer. */
#define EACH_WEIGHT(body)                                                                              \
    do {                                                                                               \
        if (master) {                                                                                  \
            R_SIMD                                                                                     \
            for (int64_t i = 0; i < count; i++) {                                                      \
                R w = master[i];                                                                       \
                body;                                                                                  \
                master[i] = w;                                                                         \
                value[i] = ST(w);                                                                      \
            }                                                                                          \
        } else if (!thrown) {                                                                          \
            R_SIMD                                                                                     \
            for (int64_t i = 0; i < count; i++) {                                                      \
                R w = LD(value[i]);                                                                    \
                body;                                                                                  \
                value[i] = ST(w);                                                                      \
            }                                                                                          \
        } else {                                                                                       \
            uint32_t space[BY_RANDOM_PLACES];                                                          \
            for (int64_t from = 0; from < count; from += BY_RANDOM_SPAN) {                             \
                const int64_t to = BY_MIN(from + BY_RANDOM_SPAN, count);                               \
                const uint32_t *random =                                                               \
                    cpu_random_span(thrown->e, thrown->n, (uint64_t)(first + from), to - from, space); \
                R_SIMD                                                                                 \
                for (int64_t i = from; i < to; i++) {                                                  \
                    R w = LD(value[i]);                                                                \
                    body;                                                                              \
                    value[i] = FN(gr_stochastic)(w, random[i - from]);                                 \
                }                                                                                      \
            }                                                                                          \
        }                                                                                              \
    } while (0)

/* Only bf16 has it. */
static inline T FN(gr_stochastic)(R w, uint32_t random)
{
    return T_ID == BY_BF16 ? (T)cpu_bf16_stochastic((float)w, random >> 16) : ST(w);
}

/* ---- AdamW (Loshchilov and Hutter 2019) ----------------------------------------------------- */

typedef struct FN(adamw_numbers) {
    R clip, beta1, beta2, eps, keep, rate,
        root; /* keep: 1 - lr wd; rate: lr / corr1; root: 1 / sqrt(corr2) */
} FN(adamw_numbers);

/* m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  w = w (1 - lr wd) - lr (m / corr1) / (sqrt(v
 * / corr2) + eps) */
static void FN(adamw_span)(T *restrict value, R *restrict master, const R *restrict grad, R *restrict m,
                           R *restrict v, int64_t first, int64_t count, const dice *thrown,
                           FN(adamw_numbers) k)
{
    EACH_WEIGHT({
        const R g = grad[i] * k.clip;
        m[i] = k.beta1 * m[i] + (1 - k.beta1) * g;
        v[i] = k.beta2 * v[i] + (1 - k.beta2) * (g * g);
        w = w * k.keep - k.rate * m[i] / (R_SQRT(v[i]) * k.root + k.eps);
    });
}

static by_status FN(adamw)(gr_exec *e, gr_node *n)
{
    const gr_optim_attr *a = n->attr;
    const float *hyper = n->in[6]->data;
    T *value = n->in[0]->data;
    const R *grad = n->in[1]->data;
    R *m = n->in[2]->data, *v = n->in[3]->data, *master = n->in[4] ? n->in[4]->data : NULL;
    double clip;
    BY_TRY(clip_factor(n->in[5], hyper[GR_HYPER_MAX_NORM], &clip));
    const dice *thrown = rounds_by_chance(n, n->in[4]) ? &(dice){e, n} : NULL;
    BY_BRANCH("adamw " BY_STRING(T_NAME));
#pragma omp parallel num_threads(e->threads) if (elements(n->in[0]) >= BY_FORK_ELEMENTS)
    for (int s = 0; s < a->n_segments; s++) {
        const gr_segment seg = a->segments[s];
        const double lr = (double)hyper[GR_HYPER_LR] * seg.lr_scale;
        const FN(adamw_numbers) k = {.clip = (R)clip,
                                     .beta1 = a->beta1,
                                     .beta2 = a->beta2,
                                     .eps = a->eps,
                                     .keep = (R)(seg.decay ? 1 - lr * a->weight_decay : 1),
                                     .rate = (R)(lr / hyper[GR_HYPER_CORR1]),
                                     .root = (R)(1 / sqrt(hyper[GR_HYPER_CORR2]))};
        const int64_t end = seg.lr_scale == 0 ? seg.offset : seg.offset + seg.count;
#pragma omp for schedule(static) nowait
        for (int64_t at = seg.offset; at < end; at += SPAN)
            FN(adamw_span)
        (value + at, master ? master + at : NULL, grad + at, m + at, v + at, at, BY_MIN(SPAN, end - at),
         thrown, k);
    }
    return BY_OK;
}

/* ---- SGD ------------------------------------------------------------------------------------ */

/* g += wd w;  m = mu m + g;  w -= lr m. Without m: w -= lr g. */
static void FN(sgd_span)(T *restrict value, R *restrict master, const R *restrict grad, R *restrict m,
                         int64_t first, int64_t count, const dice *thrown, R clip, R mu, R decay, R lr)
{
    if (m)
        EACH_WEIGHT({
            m[i] = mu * m[i] + (grad[i] * clip + decay * w);
            w = w - lr * m[i];
        });
    else
        EACH_WEIGHT(w = w - lr * (grad[i] * clip + decay * w));
}

static by_status FN(sgd)(gr_exec *e, gr_node *n)
{
    const gr_optim_attr *a = n->attr;
    const float *hyper = n->in[5]->data;
    T *value = n->in[0]->data;
    const R *grad = n->in[1]->data, mu = hyper[GR_HYPER_MOMENTUM];
    R *m = n->in[2] && mu > 0 ? n->in[2]->data : NULL, *master = n->in[3] ? n->in[3]->data : NULL;
    double clip;
    BY_TRY(clip_factor(n->in[4], hyper[GR_HYPER_MAX_NORM], &clip));
    const dice *thrown = rounds_by_chance(n, n->in[3]) ? &(dice){e, n} : NULL;
    if (m)
        BY_BRANCH("sgd " BY_STRING(T_NAME) ", momentum");
    else
        BY_BRANCH("sgd " BY_STRING(T_NAME));
#pragma omp parallel num_threads(e->threads) if (elements(n->in[0]) >= BY_FORK_ELEMENTS)
    for (int s = 0; s < a->n_segments; s++) {
        const gr_segment seg = a->segments[s];
        const R lr = (R)((double)hyper[GR_HYPER_LR] * seg.lr_scale),
                decay = seg.decay ? (R)a->weight_decay : 0;
        const int64_t end = seg.lr_scale == 0 ? seg.offset : seg.offset + seg.count;
#pragma omp for schedule(static) nowait
        for (int64_t at = seg.offset; at < end; at += SPAN)
            FN(sgd_span)
        (value + at, master ? master + at : NULL, grad + at, m ? m + at : NULL, at, BY_MIN(SPAN, end - at),
         thrown, (R)clip, mu, decay, lr);
    }
    return BY_OK;
}

/* ---- Adafactor (Shazeer and Stern 2018, without momentum, the step size given) ------------------
 *   b = 1 - t^-0.8
 *   matrix:  r_i = b r_i + (1 - b) (mean over j of g_ij^2 + 1e-30),  c_j likewise over i
 *            u_ij = g_ij / sqrt(r_i c_j / mean(r))
 *   vector:  v_i = b v_i + (1 - b) (g_i^2 + 1e-30)
 *            u_i = g_i / sqrt(v_i)
 *   w = w (1 - lr wd) - lr max(1e-3, rms(w)) u / max(1, rms(u))
 * r is in the first `rows` elements of the segment's stretch of m, c in the first `cols` of its stretch of
 * v; a vector has all of v. From the statistics on, a vector is a matrix of one row whose r is 1. */

/* One segment; all pointers are at its start. */
typedef struct FN(factored) {
    T *value;
    R *master;
    const R *grad;
    R *m, *v;
    R *columns; /* scratch (CHUNKS, cols): partial sums of columns, then 1 / sqrt(c) in the first row */
    int64_t rows, cols;
    int64_t step, chunks; /* rows per chunk, number of chunks */
    R clip, keep;         /* keep: 1 - lr wd */
    int64_t offset;       /* of the segment in the buffers */
    const dice *thrown;
    int threads;
} FN(factored);

/* Updates r and c. Each chunk of rows sums its columns; the chunks are then added in order. */
static void FN(matrix_statistics)(const FN(factored) * f, R b)
{
#pragma omp parallel for schedule(static) num_threads(f->threads) if (f->rows * f->cols >= BY_FORK_ELEMENTS)
    for (int64_t c = 0; c < f->chunks; c++) {
        R *restrict column = f->columns + c * f->cols;
        memset(column, 0, (size_t)f->cols * sizeof *column);
        for (int64_t r = c * f->step; r < BY_MIN((c + 1) * f->step, f->rows); r++) {
            const R *restrict grad = f->grad + r * f->cols;
            R sum = 0;
            R_SIMD_SUM(sum)
            for (int64_t j = 0; j < f->cols; j++) {
                const R g = grad[j] * f->clip;
                sum += g * g;
                column[j] += g * g;
            }
            f->m[r] = b * f->m[r] + (1 - b) * (sum / (R)f->cols + (R)1e-30);
        }
    }
    R *restrict total = f->columns;
    for (int64_t c = 1; c < f->chunks; c++) {
        const R *restrict column = f->columns + c * f->cols;
        R_SIMD
        for (int64_t j = 0; j < f->cols; j++)
            total[j] += column[j];
    }
    for (int64_t j = 0; j < f->cols; j++)
        f->v[j] = b * f->v[j] + (1 - b) * (total[j] / (R)f->rows + (R)1e-30);
}

static void FN(vector_statistics)(const FN(factored) * f, R b)
{
    for (int64_t j = 0; j < f->cols; j++) {
        const R g = f->grad[j] * f->clip;
        f->v[j] = b * f->v[j] + (1 - b) * (g * g + (R)1e-30);
    }
}

/* Adds one row to sums = {sum of u^2, sum of w^2}. */
static void FN(row_squares)(const FN(factored) * f, int64_t r, R row, double sums[2])
{
    const R *restrict grad = f->grad + r * f->cols, *restrict column = f->columns;
    const R *restrict master = f->master ? f->master + r * f->cols : NULL;
    const T *restrict value = f->value + r * f->cols;
    const R factor = f->clip * row;
    double u2 = 0, w2 = 0;
#pragma omp simd reduction(+ : u2)
    for (int64_t j = 0; j < f->cols; j++) {
        const double u = grad[j] * factor * column[j];
        u2 += u * u;
    }
#pragma omp simd reduction(+ : w2)
    for (int64_t j = 0; j < f->cols; j++) {
        const double w = master ? master[j] : LD(value[j]);
        w2 += w * w;
    }
    sums[0] += u2;
    sums[1] += w2;
}

static void FN(row_update)(const FN(factored) * f, int64_t r, R row, R rate)
{
    const int64_t count = f->cols;
    const R *restrict grad = f->grad + r * count, *restrict column = f->columns;
    R *restrict master = f->master ? f->master + r * count : NULL;
    T *restrict value = f->value + r * count;
    const R factor = f->clip * row * rate, keep = f->keep;
    const int64_t first = f->offset + r * count;
    const dice *thrown = f->thrown;
    EACH_WEIGHT(w = w * keep - grad[i] * factor * column[i]);
}

/* sqrt(mean(r) / r_i), 1 for a vector */
static inline R FN(row_factor)(const FN(factored) * f, double mean, int64_t r)
{
    return f->rows > 1 ? (R)sqrt(mean / (double)f->m[r]) : 1;
}

static void FN(factored_update)(const FN(factored) * f, double lr, double t)
{
    const R b = (R)(1 - pow(t, -0.8));
    const bool fork = f->rows * f->cols >= BY_FORK_ELEMENTS;
    double mean = 0, squares[CHUNKS][2] = {{0}}, u2 = 0, w2 = 0;
    if (f->rows > 1)
        FN(matrix_statistics)(f, b);
    else
        FN(vector_statistics)(f, b);
    for (int64_t r = 0; f->rows > 1 && r < f->rows; r++)
        mean += (double)f->m[r] / (double)f->rows;
    for (int64_t j = 0; j < f->cols; j++)
        f->columns[j] = 1 / R_SQRT(f->v[j]);
#pragma omp parallel for schedule(static) num_threads(f->threads) if (fork)
    for (int64_t c = 0; c < f->chunks; c++)
        for (int64_t r = c * f->step; r < BY_MIN((c + 1) * f->step, f->rows); r++)
            FN(row_squares)(f, r, FN(row_factor)(f, mean, r), squares[c]);
    for (int64_t c = 0; c < f->chunks; c++) {
        u2 += squares[c][0];
        w2 += squares[c][1];
    }
    const double count = (double)f->rows * (double)f->cols;
    const double rms_u = sqrt(u2 / count), rms_w = sqrt(w2 / count);
    const R rate = (R)(lr * BY_MAX(1e-3, rms_w) / BY_MAX(1.0, rms_u));
#pragma omp parallel for schedule(static) num_threads(f->threads) if (fork)
    for (int64_t r = 0; r < f->rows; r++)
        FN(row_update)(f, r, FN(row_factor)(f, mean, r), rate);
}

static by_status FN(adafactor)(gr_exec *e, gr_node *n)
{
    const gr_optim_attr *a = n->attr;
    const float *hyper = n->in[6]->data;
    double clip;
    BY_TRY(clip_factor(n->in[5], hyper[GR_HYPER_MAX_NORM], &clip));
    int64_t places = 0; /* size of scratch for the largest segment, allocated before anything changes */
    for (int s = 0; s < a->n_segments; s++)
        places = BY_MAX(places, a->segments[s].cols * BY_MIN(CHUNKS, a->segments[s].rows));
    R *columns = base_alloc((size_t)places * sizeof *columns);
    if (!columns)
        return BY_ERR_MEMORY;
    const dice *thrown = rounds_by_chance(n, n->in[4]) ? &(dice){e, n} : NULL;
    BY_BRANCH("adafactor " BY_STRING(T_NAME));
    for (int s = 0; s < a->n_segments; s++) {
        const gr_segment seg = a->segments[s];
        const double lr = (double)hyper[GR_HYPER_LR] * seg.lr_scale;
        if (seg.lr_scale == 0 || seg.count == 0)
            continue;
        const int64_t step = (seg.rows + CHUNKS - 1) / CHUNKS;
        const FN(factored) f = {.value = (T *)n->in[0]->data + seg.offset,
                                .master = n->in[4] ? (R *)n->in[4]->data + seg.offset : NULL,
                                .grad = (const R *)n->in[1]->data + seg.offset,
                                .m = (R *)n->in[2]->data + seg.offset,
                                .v = (R *)n->in[3]->data + seg.offset,
                                .columns = columns,
                                .rows = seg.rows,
                                .cols = seg.cols,
                                .step = step,
                                .chunks = (seg.rows + step - 1) / step,
                                .clip = (R)clip,
                                .keep = (R)(seg.decay ? 1 - lr * a->weight_decay : 1),
                                .offset = seg.offset,
                                .thrown = thrown,
                                .threads = e->threads};
        FN(factored_update)(&f, lr, hyper[GR_HYPER_STEP]);
    }
    base_free(columns);
    return BY_OK;
}

#undef EACH_WEIGHT
#endif
