/* picture_filters.c - learned positions and patch filters of an image model (banyan/inspect.h). */
#include <math.h>

#include "banyan/inspect.h"
#include "base/base.h"

enum { SWEEPS = 200 };

/* The patch embedding parameter, (width, channels, patch, patch), or -1. */
static int find_filters(const by_model *m, const by_pictures *reads)
{
    const by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        const int64_t *dim = by_params_shape(p, i);
        if (by_params_rank(p, i) == 4 && dim[1] == reads->channels && dim[2] == reads->patch &&
            dim[3] == reads->patch)
            return i;
    }
    return -1;
}

static by_status read_pictures(const by_model *m, by_pictures *reads, int *filters)
{
    *filters = by_model_pictures(m, reads) && reads->patch > 0 ? find_filters(m, reads) : -1;
    if (*filters < 0)
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no patches", base_a(by_model_class(m)).text);
    return BY_OK;
}

static float *values_of(const by_params *p, int i)
{
    int64_t count = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        count *= by_params_shape(p, i)[k];
    float *x = base_alloc_zero((size_t)count, sizeof *x);
    if (x && by_params_get(p, i, BY_SLOT_VALUE, x) == BY_OK)
        return x;
    base_free(x);
    return NULL;
}

/* ---- positions ----------------------------------------------------------------------------------- */

/* The position table, next to the filters, with a row for each token and patch. */
static int find_positions(const by_params *p, int filters, int64_t rows)
{
    static const char part[] = "embeddings.";
    const char *name = by_params_name(p, filters), *cut = strstr(name, part);
    const size_t shared = cut ? (size_t)(cut - name) + sizeof part - 1 : 0;
    for (int i = 0; cut && i < by_params_count(p); i++) {
        const int rank = by_params_rank(p, i);
        const char *other = by_params_name(p, i);
        if (strncmp(other, name, shared) == 0 && strncmp(other + shared, "position_embedding", 18) == 0 &&
            rank >= 2 && by_params_shape(p, i)[rank - 2] == rows)
            return i;
    }
    return -1;
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

by_status by_position_similarities(const by_model *m, float *out)
{
    by_pictures reads;
    int filters;
    if (!m || !out)
        return base_fail_missing(m ? "array" : "model");
    BY_TRY(read_pictures(m, &reads, &filters));
    const by_params *p = by_model_params(m);
    const int rows = by_pictures_positions(&reads, reads.height, reads.width), patches = rows - reads.tokens;
    const int at = find_positions(p, filters, rows);
    if (at < 0)
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no learned positions", base_a(by_model_class(m)).text);
    const int64_t width = by_params_shape(p, at)[by_params_rank(p, at) - 1];
    float *table = values_of(p, at);
    if (!table)
        return base_error_status();
    const float *first = table + (int64_t)reads.tokens * width;
    for (int a = 0; a < patches; a++)
        for (int b = 0; b < patches; b++)
            out[(size_t)a * (size_t)patches + (size_t)b] =
                (float)cosine(first + a * width, first + b * width, width);
    base_free(table);
    return BY_OK;
}

/* ---- filters -------------------------------------------------------------------------------------- */

/* The covariance (n, n) of `count` filters of n numbers. */
static void covariance(const float *x, int64_t count, int n, double *out)
{
    double *mean = out + (size_t)n * (size_t)n;
    for (int i = 0; i < n; i++) {
        mean[i] = 0;
        for (int64_t r = 0; r < count; r++)
            mean[i] += (double)x[r * n + i] / (double)count;
    }
    memset(out, 0, (size_t)n * (size_t)n * sizeof *out);
    for (int64_t r = 0; r < count; r++)
        for (int i = 0; i < n; i++) {
            const double a = (double)x[r * n + i] - mean[i];
            for (int j = 0; j < n; j++)
                out[(size_t)i * (size_t)n + (size_t)j] += a * ((double)x[r * n + j] - mean[j]);
        }
}

/* Orthogonalises v against the k previous components and normalises it. */
static void make_component(const float *components, int k, int n, double *v)
{
    double length = 0;
    for (int c = 0; c < k; c++) {
        const float *other = components + (size_t)c * (size_t)n;
        double shared = 0;
        for (int i = 0; i < n; i++)
            shared += v[i] * (double)other[i];
        for (int i = 0; i < n; i++)
            v[i] -= shared * (double)other[i];
    }
    for (int i = 0; i < n; i++)
        length += v[i] * v[i];
    for (int i = 0; i < n && length > 0; i++)
        v[i] /= sqrt(length);
}

/* The next principal component by power iteration. v, next (n). */
static void find_component(const double *matrix, int n, float *components, int k, double *v, double *next)
{
    base_rng r = base_rng_make(1, (uint64_t)k);
    for (int i = 0; i < n; i++)
        v[i] = base_rng_uniform(&r) - 0.5;
    make_component(components, k, n, v);
    double turned = 1;
    for (int sweep = 0; sweep < SWEEPS && turned > 1e-9; sweep++) {
        for (int i = 0; i < n; i++) {
            next[i] = 0;
            for (int j = 0; j < n; j++)
                next[i] += matrix[(size_t)i * (size_t)n + (size_t)j] * v[j];
        }
        make_component(components, k, n, next);
        turned = 1;
        for (int i = 0; i < n; i++)
            turned -= v[i] * next[i];
        memcpy(v, next, (size_t)n * sizeof *v);
    }
    for (int i = 0; i < n; i++)
        components[(size_t)k * (size_t)n + (size_t)i] = (float)v[i];
}

by_status by_patch_filters(const by_model *m, int count, float *out)
{
    by_pictures reads;
    int filters;
    if (!m || !out)
        return base_fail_missing(m ? "array" : "model");
    BY_TRY(read_pictures(m, &reads, &filters));
    const int n = reads.channels * reads.patch * reads.patch;
    if (count < 1 || count > n)
        return base_fail(BY_ERR_ARGUMENT, "filters of %d elements do not have %d components", n, count);
    const size_t square = (size_t)n * (size_t)n;
    float *x = values_of(by_model_params(m), filters);
    double *matrix = base_alloc_zero(square + 3 * (size_t)n, sizeof *matrix);
    if (x && matrix) {
        covariance(x, by_params_shape(by_model_params(m), filters)[0], n, matrix);
        for (int k = 0; k < count; k++)
            find_component(matrix, n, out, k, matrix + square + n, matrix + square + 2 * n);
    }
    const bool done = x && matrix;
    base_free(x);
    base_free(matrix);
    return done ? BY_OK : base_error_status();
}
