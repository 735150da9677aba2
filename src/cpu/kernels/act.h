/* act.h - activations over a row of numbers, for the typed part of a kernel file. No include guard: included
 * once per element type. */

#define ACT_LOOP(expr)                \
    for (int64_t i = 0; i < n; i++) { \
        R v = x[i];                   \
        y[i] = (expr);                \
    }                                 \
    break

static inline R FN(clip)(R v, R low, R high)
{
    return v < low ? low : v > high ? high : v; /* propagates NaN */
}

/* tanh(softplus(v)) by e = e^v: ((1 + e)^2 - 1) / ((1 + e)^2 + 1). From 20 on it is 1. */
static inline R FN(mish_gate)(R v)
{
    const R e = R_EXP(v > 20 ? 20 : v), n = e * (e + 2);
    return v > 20 ? 1 : n / (n + 2);
}

/* log(1 + e^v) */
static inline R FN(softplus)(R v)
{
    return v > 20 ? v : R_LOG1P(R_EXP(v));
}

/* y = act(x), n numbers; y may be x. */
static inline void FN(activate)(by_act act, int64_t n, const R *x, R *y)
{
    const R one = 1, half = (R)0.5;
    const R sqrt1_2 = (R)0.70710678118654752440, sqrt2_pi = (R)0.79788456080286535588, cubic = (R)0.044715;
    switch (act) {
    case BY_GELU:
        ACT_LOOP(half * v * (one + R_ERF(v * sqrt1_2)));
    case BY_GELU_TANH:
        ACT_LOOP(half * v * (one + R_TANH(sqrt2_pi * (v + cubic * v * v * v))));
    case BY_RELU:
        ACT_LOOP(v < 0 ? 0 : v); /* propagates NaN */
    case BY_SILU:
        ACT_LOOP(v / (one + R_EXP(-v)));
    case BY_TANH:
        ACT_LOOP(R_TANH(v));
    case BY_SIGMOID:
        ACT_LOOP(one / (one + R_EXP(-v)));
    case BY_QUICK_GELU:
        ACT_LOOP(v / (one + R_EXP(-(R)1.702 * v)));
    case BY_GELU_10:
        ACT_LOOP(FN(clip)(half * v * (one + R_ERF(v * sqrt1_2)), -10, 10));
    case BY_RELU2:
        ACT_LOOP(v < 0 ? 0 : v * v);
    case BY_RELU6:
        ACT_LOOP(FN(clip)(v, 0, 6));
    case BY_LEAKY_RELU:
        ACT_LOOP(v < 0 ? v * (R)0.01 : v);
    case BY_HARD_SWISH:
        ACT_LOOP(v * FN(clip)(v + 3, 0, 6) / 6);
    case BY_MISH:
        ACT_LOOP(v * FN(mish_gate)(v));
    case BY_LAPLACE:
        ACT_LOOP(half * (one + R_ERF((v - (R)0.707107) / (R)0.28209500 * sqrt1_2)));
    case BY_SQRT_SOFTPLUS:
        ACT_LOOP(R_SQRT(FN(softplus)(v)));
    case BY_EXP:
        ACT_LOOP(R_EXP(v));
    case BY_LOG:
        ACT_LOOP(R_LOG(v));
    case BY_SQRT:
        ACT_LOOP(R_SQRT(v));
    default:
        if (y != x)
            memcpy(y, x, (size_t)n * sizeof(R));
    }
}

#undef ACT_LOOP
