/* test_augment.c - augmentation: operations byte by byte, and random choices that depend on their key alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "banyan/augment.h"
#include "image/enhance.h"

enum { WIDTH = 23, HEIGHT = 17 };

static by_image *sized(int width, int height)
{
    by_image *m = by_image_new(width, height, BY_PIXELS_RGB);
    assert_non_null(m);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                image_row(m, y)[3 * x + c] = (uint8_t)((20 + 7 * x + 5 * y + 31 * c + x * y) % 200);
    return m;
}

static by_image *picture(void)
{
    return sized(WIDTH, HEIGHT);
}

static uint64_t fnv(const by_image *m)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < m->width * m->height * m->channels; i++)
        h = (h ^ ((const uint8_t *)m->pixels)[i]) * UINT64_C(0x100000001b3);
    return h;
}

static const uint8_t fill[3] = {124, 116, 104};

/* ---- operations -------------------------------------------------------------------------------- */

static void posterize(by_image *m)
{
    image_posterize(m, 3);
}

static void solarize(by_image *m)
{
    image_solarize(m, 100);
}

static void solarize_add(by_image *m)
{
    image_solarize_add(m, 77);
}

static void saturation(by_image *m)
{
    image_saturation(m, 0.3);
}

static void contrast(by_image *m)
{
    image_contrast(m, 1.7);
}

static void brightness(by_image *m)
{
    image_brightness(m, 1.4);
}

static void sharpness(by_image *m)
{
    assert_int_equal(image_sharpness(m, 1.9), BY_OK);
}

static void hue(by_image *m)
{
    image_hue(m, 0.3);
}

static void rotate_bilinear(by_image *m)
{
    assert_int_equal(image_rotate(m, 20, BY_FILTER_BILINEAR, fill), BY_OK);
}

static void rotate_bicubic(by_image *m)
{
    assert_int_equal(image_rotate(m, -13, BY_FILTER_BICUBIC, fill), BY_OK);
}

static void shear(by_image *m)
{
    assert_int_equal(image_affine(m, (const double[]){1, .25, 0, -.125, 1, 3.5}, BY_FILTER_BICUBIC, fill),
                     BY_OK);
}

/* The sums of what Pillow 13 makes of the same picture. */
static void test_operations(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*fn)(by_image *m);
        uint64_t sum;
    } all[] = {{"autocontrast", image_autocontrast, 0x36772ef509453ea5},
               {"equalize", image_equalize, 0xda72d5a6a5f1c59f},
               {"invert", image_invert, 0xa8cf1b3f07d10024},
               {"posterize", posterize, 0x6903c8f8f6b36bcf},
               {"solarize", solarize, 0x0038aa17649e49e5},
               {"solarize_add", solarize_add, 0x1e256de199fbf516},
               {"saturation", saturation, 0xf042f3043778fe4b},
               {"contrast", contrast, 0x34c3f6bafcedb382},
               {"brightness", brightness, 0x427ffc6120989f51},
               {"sharpness", sharpness, 0xbc25b928234c377b},
               {"hue", hue, 0xa410ea2970ed5d59},
               {"mirror", image_mirror, 0x7cd7e9ca5b2c4565},
               {"rotate, bilinear", rotate_bilinear, 0x7fae0280f16ae05c},
               {"rotate, bicubic", rotate_bicubic, 0x2777ab7ca4b6a05f},
               {"shear, bicubic", shear, 0xc6fb759ecc73cc01}};
    for (int i = 0; i < BY_COUNT(all); i++) {
        by_image *m = picture();
        all[i].fn(m);
        if (fnv(m) != all[i].sum)
            fail_msg("%s: 0x%016llx", all[i].name, (unsigned long long)fnv(m));
        by_image_free(m);
    }
}

static void resize(by_image *m)
{
    by_image *to = by_image_resize(m, 101, 99, BY_FILTER_BICUBIC);
    assert_non_null(to);
    base_free(m->pixels);
    *m = *to;
    base_free(to);
}

/* The sine of 45 degrees has 15 digits only if it is rounded in decimal. */
static void test_rounded_angle(void **state)
{
    (void)state;
    by_image *m = by_image_new(2, 2, BY_PIXELS_GREY);
    assert_non_null(m);
    memcpy(m->pixels, (const uint8_t[]){21, 71, 121, 171}, 4);
    assert_int_equal(image_rotate(m, 45, BY_FILTER_BILINEAR, (const uint8_t[]){0, 0, 0}), BY_OK);
    assert_memory_equal(m->pixels, ((const uint8_t[]){45, 120, 71, 146}), 4);
    by_image_free(m);
}

/* Operations that take several pixels at a time, on pictures of more than one vector or block: again the sums of Pillow 13. */
static void test_wide(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*fn)(by_image *m);
        uint64_t sum;
    } all[] = {{"saturation", saturation, 0x8793b5820704b4f2},
               {"sharpness", sharpness, 0x0086f9239d0cc07d},
               {"rotate, bilinear", rotate_bilinear, 0x9ab73010b4858b2d},
               {"rotate, bicubic", rotate_bicubic, 0xeae2e1273f5d623c},
               {"shear, bicubic", shear, 0x5cec443176e36210},
               {"resize", resize, 0xa3555efc3e38ec6c}};
    for (int i = 0; i < BY_COUNT(all); i++) {
        by_image *m = sized(150, 70);
        all[i].fn(m);
        if (fnv(m) != all[i].sum)
            fail_msg("%s: 0x%016llx", all[i].name, (unsigned long long)fnv(m));
        by_image_free(m);
    }
}

/* ---- settings ---------------------------------------------------------------------------------- */

static void test_parse(void **state)
{
    static const char *const bad[] = {"",        "m9",       "rand-",    "rand-m",
                                      "rand-x3", "rand-m9-", "rand-m9x", "random"};
    by_augment a = {.flip = 0.5};
    (void)state;
    assert_int_equal(by_augment_parse("rand-m9-mstd0.5-inc1", &a), BY_OK);
    assert_true(a.layers == 2 && a.magnitude == 9 && a.magnitude_std == 0.5 && a.increasing && a.flip == 0.5);
    assert_int_equal(by_augment_parse("rand-n3-mstd101-p1", &a), BY_OK);
    assert_true(a.layers == 3 && a.magnitude == 10 && isinf(a.magnitude_std) && a.probability == 1);
    assert_false(a.increasing);
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(by_augment_parse(bad[i], &a), BY_ERR_ARGUMENT);
    assert_int_equal(by_augment_check(&(by_augment){.flip = 1.5}), BY_ERR_ARGUMENT);
    assert_int_equal(by_augment_check(&(by_augment){.crop_scale = {0.5, 0.3}}), BY_ERR_ARGUMENT);
    assert_int_equal(by_augment_check(&(by_augment){.mixup = NAN}), BY_ERR_ARGUMENT);
    assert_int_equal(by_augment_check(&(by_augment){.crop_scale = {0.08, 1}, .mixup = 0.8}), BY_OK);
}

/* ---- one picture ------------------------------------------------------------------------------- */

static const by_augment everything = {.crop_scale = {0.3, 1},
                                      .crop_padding = 2,
                                      .flip = 0.5,
                                      .layers = 2,
                                      .magnitude = 9,
                                      .magnitude_std = 0.5,
                                      .probability = 1,
                                      .increasing = true,
                                      .brightness = 0.4,
                                      .contrast = 0.4,
                                      .saturation = 0.4,
                                      .hue = 0.1};

static uint64_t augmented(const by_augment *a, const by_image *m, uint64_t seed, uint64_t epoch,
                          uint64_t example)
{
    by_image *out =
        by_augment_image(a, m, 20, 24, BY_FILTER_BICUBIC, fill, &(by_augment_key){seed, epoch, example});
    assert_non_null(out);
    assert_int_equal(out->width, 20);
    assert_int_equal(out->height, 24);
    const uint64_t sum = fnv(out);
    by_image_free(out);
    return sum;
}

static void test_keys(void **state)
{
    (void)state;
    by_image *m = picture(), *grey = by_image_new(9, 9, BY_PIXELS_GREY);
    uint64_t sums[64];
    for (int i = 0; i < 64; i++)
        sums[i] = augmented(&everything, m, 1, (uint64_t)i / 8, (uint64_t)i % 8);
    for (int i = 63; i >= 0; i--) /* in any order */
        assert_true(augmented(&everything, m, 1, (uint64_t)i / 8, (uint64_t)i % 8) == sums[i]);
    for (int i = 1; i < 64; i++)
        assert_true(sums[i] != sums[i - 1]);
    assert_true(augmented(&everything, m, 2, 0, 0) != sums[0]);
    for (int i = 0; i < 100; i++)
        augmented(&everything, grey, 1, 0, (uint64_t)i);
    assert_null(by_augment_image(&everything, NULL, 3, 3, BY_FILTER_BILINEAR, NULL, &(by_augment_key){0}));
    by_image_free(grey);
    by_image_free(m);
}

/* A flip half of the time, and nothing else. */
static void test_flips(void **state)
{
    (void)state;
    by_image *m = picture(), *mirrored = picture();
    image_mirror(mirrored);
    int flipped = 0;
    for (int i = 0; i < 1000; i++) {
        by_image *out = by_augment_image(&(by_augment){.flip = 0.5}, m, WIDTH, HEIGHT, BY_FILTER_BILINEAR,
                                         NULL, &(by_augment_key){3, 1, (uint64_t)i});
        const bool is = fnv(out) == fnv(mirrored);
        assert_true(is || fnv(out) == fnv(m));
        flipped += is;
        by_image_free(out);
    }
    assert_true(flipped > 430 && flipped < 570);
    by_image_free(m);
    by_image_free(mirrored);
}

/* All shifts up to the border occur, and what comes from outside is black. */
static void test_shifts(void **state)
{
    (void)state;
    by_image *m = by_image_new(5, 5, BY_PIXELS_GREY);
    ((uint8_t *)m->pixels)[12] = 200;
    int seen[5][5] = {0};
    for (int i = 0; i < 1000; i++) {
        by_image *out = by_augment_image(&(by_augment){.crop_padding = 2}, m, 5, 5, BY_FILTER_BILINEAR, NULL,
                                         &(by_augment_key){1, 2, (uint64_t)i});
        int lit = 0;
        for (int k = 0; k < 25; k++)
            if (((uint8_t *)out->pixels)[k]) {
                seen[k / 5][k % 5]++;
                lit++;
            }
        assert_int_equal(lit, 1);
        by_image_free(out);
    }
    for (int k = 0; k < 25; k++)
        assert_true(seen[k / 5][k % 5] > 10);
    by_image_free(m);
}

/* ---- batches ----------------------------------------------------------------------------------- */

static void test_erase(void **state)
{
    (void)state;
    int erased = 0;
    for (int i = 0; i < 500; i++) {
        float values[2 * 12 * 10] = {0};
        int changed = 0;
        by_augment_erase(&(by_augment){.erase = 0.25}, values, 2, 12, 10,
                         &(by_augment_key){1, 1, (uint64_t)i});
        for (int k = 0; k < 240; k++)
            changed += values[k] != 0;
        assert_true(changed <= 2 * 12 * 10 / 2);
        erased += changed > 0;
    }
    assert_true(erased > 85 && erased < 165);
}

enum { BATCH = 5, CLASSES = 4, PLANE = 2 * 6 * 6 };

static void mix_in_parts(const by_augment *a, const by_augment_batch *b, int parts, const by_augment_key *key)
{
    for (int k = parts - 1; k >= 0; k--)
        by_augment_mix(a, b, k, parts, key);
}

/* Every value of a mixed batch comes from the picture or from its partner, and targets say in which shares. */
static void check_mix(const by_augment *a, bool cuts)
{
    static const int32_t labels[BATCH] = {0, 1, 2, 3, 1};
    bool changed = false;
    for (uint64_t step = 0; step < 50; step++) {
        float values[BATCH * PLANE], targets[BATCH * CLASSES];
        for (int i = 0; i < BATCH * PLANE; i++)
            values[i] = (float)(i / PLANE + 1);
        by_augment_batch batch = {values, BATCH, 2, 6, 6, labels, CLASSES, 0, targets};
        mix_in_parts(a, &batch, 1 + (int)step % 4, &(by_augment_key){7, 0, step});
        for (int b = 0; b < BATCH; b++) {
            double own = b + 1, other = BATCH - b, mean = 0, sum = 0;
            for (int i = 0; i < PLANE; i++) {
                const double v = values[b * PLANE + i];
                assert_true(v >= fmin(own, other) - 1e-6 && v <= fmax(own, other) + 1e-6);
                assert_true(!cuts || v == own || v == other);
                mean += v / PLANE;
            }
            for (int c = 0; c < CLASSES; c++)
                sum += targets[b * CLASSES + c];
            assert_true(fabs(sum - 1) < 1e-6);
            const double share = own == other ? 1 : (mean - other) / (own - other);
            if (labels[b] != labels[BATCH - 1 - b])
                assert_true(fabs(targets[b * CLASSES + labels[b]] - share) < 1e-5);
            changed = changed || (share > 0.1 && share < 0.9);
        }
    }
    assert_true(changed);
}

static void test_mix(void **state)
{
    (void)state;
    check_mix(&(by_augment){.mixup = 0.8}, false);
    check_mix(&(by_augment){.cutmix = 1}, true);
    check_mix(&(by_augment){.mixup = 0.8, .cutmix = 1}, false);
    float values[2] = {1, 2}, targets[6]; /* nothing to mix: smoothed labels */
    by_augment_batch batch = {values, 2, 1, 1, 1, (int32_t[]){0, 2}, 3, 0.3, targets};
    by_augment_mix(&(by_augment){0}, &batch, 0, 1, &(by_augment_key){1, 1, 1});
    assert_true(values[0] == 1 && values[1] == 2);
    assert_true(fabsf(targets[0] - 0.8f) < 1e-6f && fabsf(targets[1] - 0.1f) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_wide),  cmocka_unit_test(test_rounded_angle),
        cmocka_unit_test(test_parse),      cmocka_unit_test(test_keys),  cmocka_unit_test(test_flips),
        cmocka_unit_test(test_shifts),     cmocka_unit_test(test_erase), cmocka_unit_test(test_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
