/* elementwise.c - one output element from the input elements at the same place: add, sub, mul, binary, scale,
 * activations and their gradients, dropout. The output may lie over an input, so loops read an element before
 * they write it. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "graph/spread.h"

#define SPAN 512 /* elements per task */
#define TILE 512 /* a short b is repeated up to this many elements, so that rows fill vectors */

static int64_t elements(const by_tensor *t)
{
    return gr_tensor_rows(t) * gr_tensor_cols(t);
}

#define BY_TEMPLATE "cpu/kernels/elementwise.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(add)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, binary, e, n, GR_ADD)}

by_status KERNEL(sub)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, binary, e, n, GR_SUB)}

by_status KERNEL(mul)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, binary, e, n, GR_MUL)}

by_status KERNEL(binary)(gr_exec *e, gr_node *n){
    BY_DISPATCH(n->out[0]->type, binary, e, n, ((const gr_binary_attr *)n->attr)->kind)}

by_status KERNEL(scale)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, scale, e, n)}

by_status KERNEL(activation)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, activation, e, n)}

by_status KERNEL(activation_grad)(gr_exec *e, gr_node *n){BY_DISPATCH(n->out[0]->type, activation_grad, e, n)}

by_status KERNEL(dropout)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->out[0]->type, dropout, e, n)
}

#else /* ---- once per element type ---- */

/* ---- add, sub, mul -------------------------------------------------------------------------- */

#define EACH(expr)                                                  \
    do {                                                            \
        R_SIMD for (int64_t i = 0; i < count; i++) y[i] = ST(expr); \
    } while (0)

static void FN(binary_span)(gr_binary kind, T *y, const T *a, const T *b, int64_t count)
{
    switch (kind) {
    case GR_ADD:
        EACH(LD(a[i]) + LD(b[i]));
        break;
    case GR_SUB:
        EACH(LD(a[i]) - LD(b[i]));
        break;
    case GR_MUL:
        EACH(LD(a[i]) * LD(b[i]));
        break;
    case GR_DIV:
        EACH(LD(a[i]) / LD(b[i]));
        break;
    case GR_MAXIMUM: /* a NaN on either side stays */
        EACH(LD(a[i]) >= LD(b[i]) || LD(a[i]) != LD(a[i]) ? LD(a[i]) : LD(b[i]));
        break;
    case GR_MINIMUM:
        EACH(LD(a[i]) <= LD(b[i]) || LD(a[i]) != LD(a[i]) ? LD(a[i]) : LD(b[i]));
        break;
    case GR_NOT_LESS:
        EACH((R)(LD(a[i]) >= LD(b[i])));
        break;
    case GR_LESS:
        EACH((R)(LD(a[i]) < LD(b[i])));
        break;
    }
}

/* [at, at + count) of the last axis of an operand that lies from x on, or one element repeated in `room`. */
static const T *FN(spread_span)(const T *x, int64_t step, int64_t at, int64_t count, T *room)
{
    if (step)
        return x + at;
    for (int64_t i = 0; i < count; i++)
        room[i] = x[0];
    return room;
}

/* Operands of other shapes: row by row of the last axis, which each has whole or as one element. */
static by_status FN(binary_spread)(gr_exec *e, gr_node *n, gr_binary kind)
{
    const gr_spread s = gr_spread_of(n->out[0], n->in, 2);
    const int last = s.rank - 1;
    const int64_t cols = s.dim[last], cuts = (cols + SPAN - 1) / SPAN, count = elements(n->out[0]);
    const int64_t tasks = cols ? count / cols * cuts : 0;
    T *y = n->out[0]->data;
    BY_BRANCH("binary " BY_STRING(T_NAME) ", axes repeated");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t t = 0; t < tasks; t++) {
        const T *x[2] = {n->in[0]->data, n->in[1]->data};
        const int64_t at = t % cuts * SPAN, part = BY_MIN(SPAN, cols - at);
        T room[2][SPAN];
        int64_t row = t / cuts;
        for (int i = last - 1; i >= 0; i--) {
            x[0] += row % s.dim[i] * s.step[0][i];
            x[1] += row % s.dim[i] * s.step[1][i];
            row /= s.dim[i];
        }
        for (int k = 0; k < 2; k++)
            x[k] = FN(spread_span)(x[k], s.step[k][last], at, part, room[k]);
        FN(binary_span)(kind, y + t / cuts * cols + at, x[0], x[1], part);
    }
    return BY_OK;
}

/* y[i] = a[i] op b[i % period]. Spans never cross the end of a period. */
static by_status FN(binary)(gr_exec *e, gr_node *n, gr_binary kind)
{
    if (!gr_repeats_whole(n->out[0], n->in[0], n->in[1]))
        return FN(binary_spread)(e, n, kind);
    T *y = n->out[0]->data;
    const T *a = n->in[0]->data, *b = n->in[1]->data;
    const int64_t count = elements(n->out[0]);
    int64_t period = elements(n->in[1]);
    T tile[TILE];
    if (count == 0)
        return BY_OK;
    if (period < count && period <= TILE / 2) {
        BY_BRANCH("binary " BY_STRING(T_NAME) ", short b repeated");
        for (int64_t i = 0; i < TILE; i++)
            tile[i] = b[i % period];
        period = TILE / period * period;
        b = tile;
    } else {
        BY_BRANCH("binary " BY_STRING(T_NAME));
    }
    const int64_t cuts = (period + SPAN - 1) / SPAN, tasks = (count + period - 1) / period * cuts;
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t t = 0; t < tasks; t++) {
        const int64_t in_b = t % cuts * SPAN, at = t / cuts * period + in_b;
        FN(binary_span)(kind, y + at, a + at, b + in_b, BY_MIN(BY_MIN(SPAN, period - in_b), count - at));
    }
    return BY_OK;
}

/* ---- scale ---------------------------------------------------------------------------------- */

static by_status FN(scale)(gr_exec *e, gr_node *n)
{
    T *y = n->out[0]->data;
    const T *x = n->in[0]->data;
    const R factor = (R)((const gr_scale_attr *)n->attr)->factor;
    const int64_t count = elements(n->out[0]);
    BY_BRANCH("scale " BY_STRING(T_NAME));
#pragma omp parallel for simd schedule(simd                                           \
                                       : static) num_threads(e->threads) if (parallel \
                                                                             : count >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < count; i++)
        y[i] = ST(LD(x[i]) * factor);
    return BY_OK;
}

/* ---- activations ---------------------------------------------------------------------------- */

#include "cpu/kernels/act.h"

#define SQRT_HALF  (R)0.70710678118654752440
#define SQRT_2_PI  (R)0.79788456080286535588 /* sqrt(2 / pi) */
#define RSQRT_2PI  (R)0.39894228040143267794 /* 1 / sqrt(2 pi) */
#define GELU_CUBIC (R)0.044715

static void FN(activation_span)(by_act act, T *y, const T *x, int64_t count)
{
    R before[SPAN] = {0}, after[SPAN];
    R_SIMD
    for (int64_t i = 0; i < count; i++)
        before[i] = LD(x[i]);
    FN(activate)(act, count, before, after);
    EACH(after[i]);
}

static inline __attribute__((always_inline)) R FN(gelu_slope)(R x)
{
    return (R)0.5 * (1 + R_ERF(x * SQRT_HALF)) + x * RSQRT_2PI * R_EXP((R)-0.5 * x * x);
}

/* sigmoid(x), and 1 - sigmoid(x) without cancellation. Below -80 both equal their values at -80 to within
 * 1e-35. */
static inline R FN(sigmoid)(R x, R *rest)
{
    const R e = R_EXP(x < -80 ? 80 : -x), s = 1 / (1 + e);
    *rest = e * s;
    return s;
}

/* gelu(x) = x s with s = (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): slope s + x s
 * (1 - s) 2u' */
static inline R FN(gelu_tanh_slope)(R x)
{
    R rest;
    const R s = FN(sigmoid)(2 * SQRT_2_PI * (x + GELU_CUBIC * x * x * x), &rest);
    return s + x * s * rest * (2 * SQRT_2_PI) * (1 + 3 * GELU_CUBIC * x * x);
}

static inline R FN(silu_slope)(R x)
{
    R rest;
    const R s = FN(sigmoid)(x, &rest);
    return s * (1 + x * rest);
}

static inline R FN(tanh_slope)(R x)
{
    const R t = R_TANH(x);
    return 1 - t * t;
}

static inline R FN(sigmoid_slope)(R x)
{
    R rest;
    const R s = FN(sigmoid)(x, &rest);
    return s * rest;
}

/* Derivatives of rarely used activations. */
static R FN(rare_slope)(by_act act, R x)
{
    R rest, s;
    switch (act) {
    case BY_QUICK_GELU:
        s = FN(sigmoid)((R)1.702 * x, &rest);
        return s * (1 + (R)1.702 * x * rest);
    case BY_GELU_10: /* flat below -10 */
        return x > 10 ? 0 : FN(gelu_slope)(x);
    case BY_RELU2:
        return x > 0 ? 2 * x : 0;
    case BY_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case BY_LEAKY_RELU:
        return x > 0 ? 1 : (R)0.01;
    case BY_HARD_SWISH:
        return x < -3 ? 0 : x <= 3 ? x / 3 + (R)0.5 : 1;
    case BY_MISH:
        s = FN(mish_gate)(x);
        return s + x * (1 - s * s) * FN(sigmoid)(x, &rest);
    case BY_LAPLACE:
        s = (x - (R)0.707107) / (R)0.28209500;
        return RSQRT_2PI / (R)0.28209500 * R_EXP((R)-0.5 * s * s);
    case BY_SQRT_SOFTPLUS:
        s = FN(softplus)(x);
        return s > 0 ? FN(sigmoid)(x, &rest) / (2 * R_SQRT(s)) : 0;
    case BY_EXP:
        return R_EXP(x);
    case BY_LOG:
        return 1 / x;
    case BY_SQRT:
        return (R)0.5 / R_SQRT(x);
    default:
        return 1;
    }
}

/* dx = dy act'(x) */
static void FN(activation_grad_span)(by_act act, T *y, const T *x, const T *dy, int64_t count)
{
#define X          LD(x[i])
#define DY         LD(dy[i])
    switch (act) {
    case BY_GELU:
        EACH(DY * FN(gelu_slope)(X));
        break;
    case BY_GELU_TANH:
        EACH(DY * FN(gelu_tanh_slope)(X));
        break;
    case BY_RELU:
        EACH(X > 0 ? DY : 0);
        break;
    case BY_SILU:
        EACH(DY * FN(silu_slope)(X));
        break;
    case BY_TANH:
        EACH(DY * FN(tanh_slope)(X));
        break;
    case BY_SIGMOID:
        EACH(DY * FN(sigmoid_slope)(X));
        break;
    case BY_ACT_NONE:
        EACH(DY);
        break;
    default: /* a switch per element: not worth vectorising */
        for (int64_t i = 0; i < count; i++)
            y[i] = ST(DY * FN(rare_slope)(act, X));
    }
#undef X
#undef DY
}

static by_status FN(activation)(gr_exec *e, gr_node *n)
{
    T *y = n->out[0]->data;
    const T *x = n->in[0]->data;
    const by_act act = ((const gr_activation_attr *)n->attr)->act;
    const int64_t count = elements(n->out[0]), spans = (count + SPAN - 1) / SPAN;
    BY_BRANCH("activation " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t s = 0; s < spans; s++)
        FN(activation_span)(act, y + s * SPAN, x + s * SPAN, BY_MIN(SPAN, count - s * SPAN));
    return BY_OK;
}

static by_status FN(activation_grad)(gr_exec *e, gr_node *n)
{
    T *dx = n->out[0]->data;
    const T *x = n->in[0]->data, *dy = n->in[1]->data;
    const by_act act = ((const gr_activation_attr *)n->attr)->act;
    const int64_t count = elements(n->out[0]), spans = (count + SPAN - 1) / SPAN;
    BY_BRANCH("activation_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t s = 0; s < spans; s++)
        FN(activation_grad_span)
    (act, dx + s * SPAN, x + s * SPAN, dy + s * SPAN, BY_MIN(SPAN, count - s * SPAN));
    return BY_OK;
}

/* ---- dropout -------------------------------------------------------------------------------- */

static by_status FN(dropout)(gr_exec *e, gr_node *n)
{
    T *y_all = n->out[0]->data;
    const T *x_all = n->in[0]->data;
    const float p = ((const gr_dropout_attr *)n->attr)->p;
    const uint32_t threshold = cpu_drop_threshold(p);
    const R factor = (R)cpu_drop_factor(p);
    const int64_t total = elements(n->out[0]), spans = (total + BY_RANDOM_SPAN - 1) / BY_RANDOM_SPAN;
    BY_BRANCH("dropout " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (total >= BY_FORK_ELEMENTS)
    for (int64_t s = 0; s < spans; s++) {
        const int64_t at = s * BY_RANDOM_SPAN, count = BY_MIN(BY_RANDOM_SPAN, total - at);
        uint32_t buffer[BY_RANDOM_PLACES];
        const uint32_t *random = cpu_random_span(e, n, (uint64_t)at, count, buffer);
        T *y = y_all + at;
        const T *x = x_all + at;
        EACH(random[i] >= threshold ? LD(x[i]) * factor : 0);
    }
    return BY_OK;
}

#undef EACH
#undef SQRT_HALF
#undef SQRT_2_PI
#undef RSQRT_2PI
#undef GELU_CUBIC
#endif
