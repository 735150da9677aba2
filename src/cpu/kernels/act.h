/* act.h - activations over a row of numbers, for the typed part of a kernel file. No include guard: once per
 * element type. */

#define ACT_LOOP(expr)                \
    for (int64_t i = 0; i < n; i++) { \
        R v = x[i];                   \
        y[i] = (expr);                \
    }                                 \
    break

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
        ACT_LOOP(v < 0 ? 0 : v); /* NaN stays */
    case BY_SILU:
        ACT_LOOP(v / (one + R_EXP(-v)));
    case BY_TANH:
        ACT_LOOP(R_TANH(v));
    case BY_SIGMOID:
        ACT_LOOP(one / (one + R_EXP(-v)));
    default:
        if (y != x)
            memcpy(y, x, (size_t)n * sizeof(R));
    }
}

#undef ACT_LOOP
