/* measure.c - see measure.h. */
#include "verify/measure.h"

#include <math.h>

#include "base/base.h"

const char *by_measure_name(by_measure m)
{
    static const char *const names[] = {"max", "norm", "nmse", "different"};
    return (unsigned)m < BY_COUNT(names) ? names[m] : "?";
}

/* Some gradients, for example those of key biases, are zero in exact arithmetic and only rounding noise on
 * both sides. For these, a fraction of the norm of the whole gradient replaces their own norm. The fraction
 * times the bound is about the rounding step of the type. */
#define FLOOR_F32 1e-3
#define FLOOR_16  0.1

verify_rule verify_rule_for(verify_subject subject, by_dtype dtype)
{
    static const verify_rule wide[VERIFY_SUBJECT_COUNT] = {
        [VERIFY_SUBJECT_OUTPUT] = {BY_MEASURE_MAX, 1e-4, 0},
        [VERIFY_SUBJECT_LOSS] = {BY_MEASURE_MAX, 1e-5, 0},
        [VERIFY_SUBJECT_GRADIENT] = {BY_MEASURE_NORM, 1e-4, FLOOR_F32},
        [VERIFY_SUBJECT_TOKENS] = {BY_MEASURE_DIFFERENT, 0, 0},
        [VERIFY_SUBJECT_STEP_VALUES] = {BY_MEASURE_MAX, 1e-4, 0},
        [VERIFY_SUBJECT_TRAINED] = {BY_MEASURE_NORM, 1e-4, 0},
    };
    static const verify_rule narrow[VERIFY_SUBJECT_COUNT] = {
        [VERIFY_SUBJECT_OUTPUT] = {BY_MEASURE_NMSE, 1e-4, 0},
        [VERIFY_SUBJECT_LOSS] = {BY_MEASURE_MAX, 1e-2, 0},
        [VERIFY_SUBJECT_GRADIENT] = {BY_MEASURE_NMSE, 1e-3, FLOOR_16},
        [VERIFY_SUBJECT_TOKENS] = {BY_MEASURE_DIFFERENT, 0, 0},
        [VERIFY_SUBJECT_STEP_VALUES] = {BY_MEASURE_MAX, 3e-2, 0},
        [VERIFY_SUBJECT_TRAINED] = {BY_MEASURE_NMSE, 1e-2, 0}, /* Adam turns rounding noise into full steps */
    };
    return dtype == BY_BF16 || dtype == BY_F16 ? narrow[subject] : wide[subject];
}

double verify_measure_error(const verify_rule *rule, const float *a, const float *b, size_t n, double whole)
{
    double most = 0, apart = 0, own = 0, different = 0;
    for (size_t i = 0; i < n; i++) {
        double x = a[i], y = b[i], d = x - y;
        if (x == y) {
            own += isinf(y) ? 0 : y * y;
            continue;
        }
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        most = BY_MAX(most, fabs(d) / BY_MAX(1, fabs(y)));
        apart += d * d;
        own += y * y;
        different++;
    }
    switch (rule->measure) {
    case BY_MEASURE_MAX:
        return most;
    case BY_MEASURE_DIFFERENT:
        return different;
    case BY_MEASURE_NORM:
    case BY_MEASURE_NMSE:
        break;
    }
    double scale = BY_MAX(own, rule->floor * rule->floor * whole * whole);
    double nmse = apart == 0 ? 0 : scale > 0 ? apart / scale : (double)INFINITY;
    return rule->measure == BY_MEASURE_NMSE ? nmse : sqrt(nmse);
}
