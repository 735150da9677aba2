/* row_max.h - the largest element of a row. Included once per element type (each_type.h), so it has no
 * guard. */
#define LANES 32 /* maxima kept at once */

/* In LANES parts, because compilers do not reorder comparisons that may involve a NaN. (NaNs are skipped
 * here: they show in the sum of exponentials.) */
static R FN(row_max)(const T *x, int64_t count)
{
    R best[LANES];
    for (int j = 0; j < LANES; j++)
        best[j] = LD(x[0]);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        R_SIMD
        for (int j = 0; j < LANES; j++)
            best[j] = LD(x[i + j]) > best[j] ? LD(x[i + j]) : best[j];
    }
    for (; i < count; i++)
        best[0] = LD(x[i]) > best[0] ? LD(x[i]) : best[0];
    for (int j = 1; j < LANES; j++)
        best[0] = best[j] > best[0] ? best[j] : best[0];
    return best[0];
}
#undef LANES
