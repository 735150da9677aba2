/* row_exp.h - the sum of the exponentials of a row. Included once per element type (each_type.h), so it has no
 * guard. */
#define BLOCK 256 /* exponentials added in R before they are added to a sum in double */

/* The sum of exp(scale x - max). */
static double FN(row_sum_exp)(const T *x, R scale, R max, int64_t count)
{
    double total = 0;
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = BY_MIN(from + BLOCK, count);
        R sum = 0;
        R_SIMD_SUM(sum)
        for (int64_t i = from; i < to; i++)
            sum += R_EXP(LD(x[i]) * scale - max);
        total += sum;
    }
    return total;
}
