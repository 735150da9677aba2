/* augment_batch.c - see banyan/augment.h: augmentation of normalised pictures by random erasing, mixup and
 * cutmix. */
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
            base_rng_normals(r, values + ((size_t)c * (size_t)height + (size_t)y) * (size_t)width + e.left,
                             (size_t)(e.right - e.left));
}

void by_augment_erase(const by_augment *a, float *values, int channels, int height, int width,
                      const by_augment_key *key)
{
    base_rng r = image_random(key, STAGE_ERASE);
    if (!(a->erase > 0) || base_rng_uniform(&r) >= a->erase)
        return;
    for (int i = 0; i < 10; i++) { /* tries ten times to find a shape that fits */
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

/* A sample of the gamma distribution with shape k (Marsaglia and Tsang 2000). */
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

/* The rectangle to replace by the other picture; *share becomes the part that stays. */
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

static void exchange(float *a, float *b, const by_augment_batch *m, area e)
{
    const size_t width = (size_t)m->width;
    for (int c = 0; c < m->channels; c++)
        for (int y = e.top; y < e.bottom; y++) {
            const size_t row = ((size_t)c * (size_t)m->height + (size_t)y) * width;
            for (size_t i = row + (size_t)e.left; i < row + (size_t)e.right; i++) {
                const float t = a[i];
                a[i] = b[i];
                b[i] = t;
            }
        }
}

static void blend(float *restrict a, float *restrict b, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) {
        const float x = a[i], y = b[i];
        a[i] = x * share + y * (1 - share);
        b[i] = y * share + x * (1 - share);
    }
}

/* The targets of picture i, mixed with the class `other` of its partner. */
static void put_targets(const by_augment_batch *m, int i, int32_t other, double share)
{
    const double off = m->label_smoothing / m->classes, on = 1 - m->label_smoothing;
    float *row = m->targets + (size_t)i * (size_t)m->classes;
    for (int c = 0; c < m->classes; c++)
        row[c] = (float)(off + on * (share * (m->labels[i] == c) + (1 - share) * (other == c)));
}

void by_augment_mix(const by_augment *a, const by_augment_batch *m, int k, int parts,
                    const by_augment_key *key)
{
    base_rng r = image_random(key, STAGE_MIX);
    const size_t plane = (size_t)m->channels * (size_t)m->height * (size_t)m->width;
    const bool both = a->mixup > 0 && a->cutmix > 0, any = a->mixup > 0 || a->cutmix > 0;
    const bool cuts = both ? base_rng_uniform(&r) < 0.5 : a->cutmix > 0;
    double share = any ? random_beta(&r, cuts ? a->cutmix : a->mixup) : 1;
    const area e = cuts ? random_area(&r, m->height, m->width, &share) : (area){0};
    const int64_t pairs = (m->batch + 1) / 2; /* the picture in the middle is its own partner */
    for (int i = (int)(pairs * k / parts); i < pairs * (k + 1) / parts; i++) {
        const int partner = m->batch - 1 - i;
        float *one = m->values + (size_t)i * plane, *other = m->values + (size_t)partner * plane;
        if (i != partner && cuts)
            exchange(one, other, m, e);
        else if (i != partner && any)
            blend(one, other, plane, (float)share);
        put_targets(m, i, m->labels[partner], share);
        put_targets(m, partner, m->labels[i], share);
    }
}
