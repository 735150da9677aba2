/* augment_batch.c - see banyan/augment.h: what happens to normalised pictures: erased rectangles, mixup and cutmix. */
#include <math.h>

#include "image/augment_random.h"

enum { STAGE_ERASE = 16, STAGE_MIX };

typedef struct area {
    int left, top, right, bottom;
} area;

/* ---- random erasing ---------------------------------------------------------------------------- */

static void fill_noise(float *values, int channels, int height, int width, area e, base_rng *r)
{
    for (int c = 0; c < channels; c++)
        for (int y = e.top; y < e.bottom; y++)
            for (int x = e.left; x < e.right; x++)
                values[((size_t)c * (size_t)height + (size_t)y) * (size_t)width + (size_t)x] =
                    (float)base_rng_normal(r);
}

void by_augment_erase(const by_augment *a, float *values, int channels, int height, int width,
                      const by_augment_key *key)
{
    base_rng r = image_random(key, STAGE_ERASE);
    if (!(a->erase > 0) || base_rng_uniform(&r) >= a->erase)
        return;
    for (int i = 0; i < 10; i++) { /* a shape that fits is found in ten tries, or not at all */
        const double size = image_random_between(&r, 0.02, 1.0 / 3) * height * width;
        const double ratio = exp(image_random_between(&r, log(0.3), log(1 / 0.3)));
        const int h = (int)rint(sqrt(size * ratio)), w = (int)rint(sqrt(size / ratio));
        if (h >= height || w >= width)
            continue;
        const int top = (int)base_rng_below(&r, (uint64_t)(height - h) + 1),
                  left = (int)base_rng_below(&r, (uint64_t)(width - w) + 1);
        fill_noise(values, channels, height, width, (area){left, top, left + w, top + h}, &r);
        return;
    }
}

/* ---- mixup and cutmix -------------------------------------------------------------------------- */

/* A number of the gamma distribution with shape k (Marsaglia and Tsang 2000). */
static double random_gamma(base_rng *r, double k)
{
    if (k < 1)
        return random_gamma(r, k + 1) * pow(1 - base_rng_uniform(r), 1 / k);
    const double d = k - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = base_rng_normal(r), v = pow(1 + c * x, 3), u = 1 - base_rng_uniform(r);
        if (1 + c * x > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static double random_beta(base_rng *r, double k)
{
    const double x = random_gamma(r, k), y = random_gamma(r, k);
    return x + y > 0 ? x / (x + y) : 1;
}

/* The rectangle that comes from the other picture; *share becomes the part of a picture that stays. */
static area random_area(base_rng *r, int height, int width, double *share)
{
    const double side = sqrt(1 - *share);
    const int h = (int)(height * side), w = (int)(width * side);
    const int y = (int)base_rng_below(r, (uint64_t)height), x = (int)base_rng_below(r, (uint64_t)width);
    const area out = {BY_MAX(x - w / 2, 0), BY_MAX(y - h / 2, 0), BY_MIN(x + (w + 1) / 2, width),
                      BY_MIN(y + (h + 1) / 2, height)};
    *share = 1 - (double)(out.right - out.left) * (out.bottom - out.top) / ((double)height * width);
    return out;
}

static void exchange(float *a, float *b, int channels, int height, int width, area e)
{
    for (int c = 0; c < channels; c++)
        for (int y = e.top; y < e.bottom; y++)
            for (int x = e.left; x < e.right; x++) {
                const size_t i = ((size_t)c * (size_t)height + (size_t)y) * (size_t)width + (size_t)x;
                const float t = a[i];
                a[i] = b[i];
                b[i] = t;
            }
}

static void blend(float *a, float *b, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) {
        const float x = a[i], y = b[i];
        a[i] = x * share + y * (1 - share);
        b[i] = y * share + x * (1 - share);
    }
}

static void put_targets(const int32_t *labels, int batch, int classes, double smoothing, double share,
                        float *targets)
{
    const double off = smoothing / classes, on = 1 - smoothing;
    for (int b = 0; b < batch; b++) {
        float *row = targets + (size_t)b * (size_t)classes;
        for (int i = 0; i < classes; i++)
            row[i] =
                (float)(off + on * (share * (labels[b] == i) + (1 - share) * (labels[batch - 1 - b] == i)));
    }
}

void by_augment_mix(const by_augment *a, float *values, int batch, int channels, int height, int width,
                    const int32_t *labels, int classes, double label_smoothing, float *targets,
                    const by_augment_key *key)
{
    base_rng r = image_random(key, STAGE_MIX);
    const size_t plane = (size_t)channels * (size_t)height * (size_t)width;
    const bool both = a->mixup > 0 && a->cutmix > 0, any = a->mixup > 0 || a->cutmix > 0;
    const bool cuts = both ? base_rng_uniform(&r) < 0.5 : a->cutmix > 0;
    double share = any ? random_beta(&r, cuts ? a->cutmix : a->mixup) : 1;
    const area e = cuts ? random_area(&r, height, width, &share) : (area){0};
    for (int b = 0; b < batch / 2 && any; b++) {
        float *one = values + (size_t)b * plane, *other = values + (size_t)(batch - 1 - b) * plane;
        if (cuts)
            exchange(one, other, channels, height, width, e);
        else
            blend(one, other, plane, (float)share);
    }
    put_targets(labels, batch, classes, label_smoothing, share, targets);
}
