/* recurrent_tile.h - the product of a recurrent step, in registers: a few rows times a panel of packed weights. No include guard:
 * included once for float and, in the generic set, once for double, with R set. */

#define VEC     BY_PASTE(rec_vec, R)
#define LANES   ((int)(sizeof(VEC) / sizeof(R)))
#define TILE(f) BY_PASTE(f, R)

/* out (rows, vecs LANES) = bias (vecs LANES) + x (rows, k) panel (k, vecs LANES). Every sum goes over k in order. */
static inline __attribute__((always_inline)) void TILE(rec_rows)(int rows, int vecs, int64_t k, const R *x,
                                                                 int64_t ldx, const R *panel, const R *bias,
                                                                 R *out)
{
    VEC acc[REC_ROWS_2 * 2];
#pragma GCC unroll 24
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            acc[r * vecs + v] = *(const VEC *)(bias + v * LANES);
    for (int64_t p = 0; p < k; p++) {
        VEC w[4];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            w[v] = *(const VEC *)(panel + (p * vecs + v) * LANES);
#pragma GCC unroll 24
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                acc[r * vecs + v] += w[v] * x[r * ldx + p];
    }
#pragma GCC unroll 24
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            *(VEC *)(out + (r * vecs + v) * LANES) = acc[r * vecs + v];
}

#define ROWS_CASE(n, vecs)                                    \
    case n:                                                   \
        TILE(rec_rows)(n, vecs, k, x, ldx, panel, bias, out); \
        break;
#define ROWS_FUNCTION(vecs, cases)                                                                           \
    static void TILE(BY_PASTE(rec_tile, vecs))(int rows, int64_t k, const R *x, int64_t ldx, const R *panel, \
                                               const R *bias, R *out)                                        \
    {                                                                                                        \
        switch (rows) {                                                                                      \
            cases default : break;                                                                           \
        }                                                                                                    \
    }
ROWS_FUNCTION(2, REC_CASES_2)
ROWS_FUNCTION(3, REC_CASES_3)
ROWS_FUNCTION(4, REC_CASES_4)

static int TILE(rec_most_rows)(int vecs)
{
    return vecs == 2 ? REC_ROWS_2 : vecs == 3 ? REC_ROWS_3 : REC_ROWS_4;
}

static void TILE(rec_tile)(int vecs, int rows, int64_t k, const R *x, int64_t ldx, const R *panel,
                           const R *bias, R *out)
{
    if (vecs == 2)
        TILE(rec_tile_2)(rows, k, x, ldx, panel, bias, out);
    else if (vecs == 3)
        TILE(rec_tile_3)(rows, k, x, ldx, panel, bias, out);
    else
        TILE(rec_tile_4)(rows, k, x, ldx, panel, bias, out);
}

#undef ROWS_FUNCTION
#undef ROWS_CASE
