/* augment.c - see banyan/augment.h: random crops, flips and colour changes of one picture. */
#include "banyan/augment.h"

#include <math.h>
#include <stdlib.h>

#include "image/augment_random.h"
#include "image/enhance.h"

base_rng image_random(const by_augment_key *key, uint64_t stage)
{
    const uint64_t keys[] = {key->seed, key->epoch, stage};
    return base_rng_make(base_hash(keys, sizeof keys, 0), key->example);
}

double image_random_between(base_rng *r, double low, double high)
{
    return low + (high - low) * base_rng_uniform(r);
}

/* ---- settings ---------------------------------------------------------------------------------- */

/* One part of the notation, "mstd0.5". */
static by_status read_part(const char *part, size_t n, const char *text, by_augment *out)
{
    const size_t letters = strspn(part, "abcdefghijklmnopqrstuvwxyz");
    char *end;
    const double v = base_strtod(part + letters, &end);
    const bool number = end == part + n && end > part + letters && isfinite(v) && v >= 0;
#define IS(name) (letters == sizeof(name) - 1 && memcmp(part, name, letters) == 0 && number)
    if (IS("m"))
        out->magnitude = v;
    else if (IS("mstd"))
        out->magnitude_std = v > 100 ? INFINITY : v;
    else if (IS("n"))
        out->layers = (int)BY_MIN(v, 100);
    else if (IS("p"))
        out->probability = v;
    else if (IS("inc"))
        out->increasing = v != 0;
    else
        return base_fail(
            BY_ERR_ARGUMENT,
            "\"%s\" is not a RandAugment setting: \"%.*s\" is not m, mstd, n, p or inc with a number, as in "
            "rand-m9-mstd0.5-inc1",
            text, (int)n, part);
#undef IS
    return BY_OK;
}

by_status by_augment_parse(const char *text, by_augment *out)
{
    if (!text || !out)
        return base_fail_missing(text ? "by_augment" : "RandAugment");
    if (strncmp(text, "rand", 4) != 0 || (text[4] && text[4] != '-'))
        return base_fail(BY_ERR_ARGUMENT, "\"%s\" is not a RandAugment setting such as rand-m9-mstd0.5-inc1",
                         text);
    out->layers = 2;
    out->magnitude = 10;
    out->magnitude_std = 0;
    out->probability = 0.5;
    out->increasing = false;
    for (const char *at = text + 4; *at;) {
        const char *part = at + 1;
        const size_t n = strcspn(part, "-");
        BY_TRY(read_part(part, n, text, out));
        at = part + n;
    }
    return BY_OK;
}

static bool is_share(double x)
{
    return x >= 0 && x <= 1;
}

by_status by_augment_check(const by_augment *a)
{
    if (!a)
        return base_fail_missing("by_augment");
    const struct {
        bool ok;
        const char *what;
    } rules[] = {
        {is_share(a->crop_scale[0]) && is_share(a->crop_scale[1]) && a->crop_scale[0] <= a->crop_scale[1],
         "the shares of a resized crop are two numbers from 0 to 1, the smaller first"},
        {a->crop_ratio[0] >= 0 && a->crop_ratio[0] <= a->crop_ratio[1] && a->crop_ratio[1] <= 1000,
         "the ratios of a resized crop are two positive numbers, the smaller first"},
        {a->crop_padding >= 0 && a->crop_padding <= 4096, "the border of shifted crops has 0 to 4096 pixels"},
        {is_share(a->flip) && is_share(a->erase) && is_share(a->probability),
         "probabilities are numbers from 0 to 1"},
        {a->layers >= 0 && a->layers <= 100 && a->magnitude >= 0 && a->magnitude <= 100 &&
             a->magnitude_std >= 0,
         "RandAugment has a magnitude from 0 to 100 and up to 100 layers"},
        {a->brightness >= 0 && a->contrast >= 0 && a->saturation >= 0 && a->hue >= 0 && a->hue <= 0.5,
         "changes of colour are not negative, and that of the hue is at most 0.5"},
        {a->mixup >= 0 && a->cutmix >= 0 && a->mixup <= 1e6 && a->cutmix <= 1e6,
         "the parameters of mixup and cutmix are not negative"},
    };
    for (int i = 0; i < BY_COUNT(rules); i++)
        if (!rules[i].ok)
            return base_fail(BY_ERR_ARGUMENT, "%s", rules[i].what);
    return BY_OK;
}

/* ---- crops ------------------------------------------------------------------------------------- */

typedef struct box {
    int left, top, width, height;
} box;

/* A box of random area and shape. If ten tries do not fit, the largest centred box of an allowed shape. */
static box random_box(const by_augment *a, const by_image *m, base_rng *r)
{
    const double low = a->crop_ratio[0] > 0 ? a->crop_ratio[0] : 3.0 / 4,
                 high = a->crop_ratio[1] > 0 ? a->crop_ratio[1] : 4.0 / 3;
    const double area = (double)m->width * m->height, shape = (double)m->width / m->height;
    for (int i = 0; i < 10; i++) {
        const double share = image_random_between(r, a->crop_scale[0], a->crop_scale[1]);
        const double ratio = exp(image_random_between(r, log(low), log(high)));
        const int width = (int)rint(sqrt(area * share * ratio)),
                  height = (int)rint(sqrt(area * share / ratio));
        if (width > 0 && height > 0 && width <= m->width && height <= m->height)
            return (box){(int)base_rng_below(r, (uint64_t)(m->width - width) + 1),
                         (int)base_rng_below(r, (uint64_t)(m->height - height) + 1), width, height};
    }
    const int width = shape > high ? BY_MAX((int)rint(m->height * high), 1) : m->width;
    const int height = shape < low ? BY_MAX((int)rint(m->width / low), 1) : m->height;
    return (box){(m->width - width) / 2, (m->height - height) / 2, width, height};
}

static by_image *crop_box(const by_augment *a, const by_image *m, int width, int height, by_filter filter,
                          base_rng *r)
{
    const box b = random_box(a, m, r);
    by_image *part = by_image_crop(m, b.left, b.top, b.width, b.height);
    by_image *sized = part ? by_image_resize(part, width, height, filter) : NULL;
    by_image_free(part);
    return sized;
}

/* A picture of the right size that the caller may change. */
static by_image *take(const by_augment *a, const by_image *m, int width, int height, by_filter filter,
                      base_rng *r)
{
    if (a->crop_scale[1] > 0)
        return crop_box(a, m, width, height, filter, r);
    return m->width == width && m->height == height ? by_image_crop(m, 0, 0, width, height)
                                                    : by_image_resize(m, width, height, filter);
}

/* Takes ownership of m. */
static by_image *shift(const by_augment *a, by_image *m, base_rng *r)
{
    const int p = a->crop_padding, left = (int)base_rng_below(r, 2 * (uint64_t)p + 1) - p,
              top = (int)base_rng_below(r, 2 * (uint64_t)p + 1) - p;
    by_image *out = by_image_crop(m, left, top, m->width, m->height);
    by_image_free(m);
    return out;
}

/* ---- RandAugment ------------------------------------------------------------------------------- */

typedef enum operation {
    AUTOCONTRAST,
    EQUALIZE,
    INVERT,
    ROTATE,
    POSTERIZE,
    SOLARIZE,
    SOLARIZE_ADD,
    SATURATION,
    CONTRAST,
    BRIGHTNESS,
    SHARPNESS,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    OPERATIONS
} operation;

typedef struct layer {
    by_image *image;
    by_filter filter;
    const uint8_t *fill;
    double level; /* from 0 to 1 */
    double sign;  /* 1 or -1 */
    bool increasing;
} layer;

/* The factor of a blend: 1 is no change. */
static double blend_factor(const layer *l)
{
    return l->increasing ? BY_MAX(0.1, 1 + l->sign * l->level * 0.9) : l->level * 1.8 + 0.1;
}

static by_status move(const layer *l, double a, double b, double c, double d)
{
    return image_affine(l->image, (const double[]){1, a, b, c, 1, d}, l->filter, l->fill);
}

static by_status operate(const layer *l, operation op)
{
    by_image *m = l->image;
    const int bits = (int)(l->level * 4), threshold = BY_MIN(256, (int)(l->level * 256));
    const double shear = l->sign * l->level * 0.3, shift_by = l->sign * l->level * 0.45;
    switch (op) {
    case AUTOCONTRAST:
        image_autocontrast(m);
        break;
    case EQUALIZE:
        image_equalize(m);
        break;
    case INVERT:
        image_invert(m);
        break;
    case ROTATE:
        return image_rotate(m, l->sign * l->level * 30, l->filter, l->fill);
    case POSTERIZE:
        image_posterize(m, l->increasing ? 4 - bits : bits);
        break;
    case SOLARIZE:
        image_solarize(m, l->increasing ? 256 - threshold : threshold);
        break;
    case SOLARIZE_ADD:
        image_solarize_add(m, BY_MIN(128, (int)(l->level * 110)));
        break;
    case SATURATION:
        image_saturation(m, blend_factor(l));
        break;
    case CONTRAST:
        image_contrast(m, blend_factor(l));
        break;
    case BRIGHTNESS:
        image_brightness(m, blend_factor(l));
        break;
    case SHARPNESS:
        return image_sharpness(m, blend_factor(l));
    case SHEAR_X:
        return move(l, shear, 0, 0, 0);
    case SHEAR_Y:
        return move(l, 0, 0, shear, 0);
    case TRANSLATE_X:
        return move(l, 0, shift_by * m->width, 0, 0);
    case TRANSLATE_Y:
        return move(l, 0, 0, 0, shift_by * m->height);
    case OPERATIONS:
        break;
    }
    return BY_OK;
}

/* Magnitudes above 10 count as 10. Filters other than bilinear and bicubic become bilinear. */
static by_status rand_augment(const by_augment *a, by_image *m, by_filter filter, const uint8_t *fill,
                              base_rng *r)
{
    const double p = a->probability > 0 ? a->probability : 0.5;
    layer l = {.image = m,
               .filter = filter == BY_FILTER_BICUBIC ? BY_FILTER_BICUBIC : BY_FILTER_BILINEAR,
               .fill = fill,
               .increasing = a->increasing};
    for (int i = 0; i < a->layers; i++) {
        const operation op = (operation)base_rng_below(r, OPERATIONS);
        const bool used = base_rng_uniform(r) < p;
        const double noise = base_rng_normal(r), share = base_rng_uniform(r);
        const double magnitude =
            isinf(a->magnitude_std) ? share * a->magnitude : a->magnitude + noise * a->magnitude_std;
        l.level = BY_MAX(0, BY_MIN(magnitude, 10)) / 10;
        l.sign = base_rng_uniform(r) > 0.5 ? -1 : 1;
        if (used)
            BY_TRY(operate(&l, op));
    }
    return BY_OK;
}

/* ---- colours ----------------------------------------------------------------------------------- */

static double factor(base_rng *r, double x)
{
    return image_random_between(r, BY_MAX(0, 1 - x), 1 + x);
}

static void jitter(const by_augment *a, by_image *m, base_rng *r)
{
    int order[4] = {0, 1, 2, 3};
    for (int i = 3; i > 0; i--) {
        const int k = (int)base_rng_below(r, (uint64_t)i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    const double brightness = factor(r, a->brightness), contrast = factor(r, a->contrast),
                 saturation = factor(r, a->saturation), hue = image_random_between(r, -a->hue, a->hue);
    for (int i = 0; i < 4; i++) {
        if (order[i] == 0 && a->brightness > 0)
            image_brightness(m, brightness);
        else if (order[i] == 1 && a->contrast > 0)
            image_contrast(m, contrast);
        else if (order[i] == 2 && a->saturation > 0)
            image_saturation(m, saturation);
        else if (order[i] == 3 && a->hue > 0)
            image_hue(m, hue);
    }
}

/* ---- pipeline ---------------------------------------------------------------------------------- */

enum { STAGE_SHAPE, STAGE_FLIP, STAGE_RAND, STAGE_COLOURS };

static by_status change(const by_augment *a, by_image *m, by_filter filter, const uint8_t *fill,
                        const by_augment_key *key)
{
    base_rng flips = image_random(key, STAGE_FLIP), layers = image_random(key, STAGE_RAND),
             colours = image_random(key, STAGE_COLOURS);
    if (a->flip > 0 && base_rng_uniform(&flips) < a->flip)
        image_mirror(m);
    if (a->layers > 0)
        BY_TRY(rand_augment(a, m, filter, fill, &layers));
    if (a->brightness > 0 || a->contrast > 0 || a->saturation > 0 || a->hue > 0)
        jitter(a, m, &colours);
    return BY_OK;
}

by_image *by_augment_image(const by_augment *a, const by_image *m, int width, int height, by_filter filter,
                           const uint8_t fill[3], const by_augment_key *key)
{
    static const uint8_t grey[3] = {128, 128, 128};
    if (!a || !m || !key) {
        base_fail_missing(!a ? "by_augment" : !m ? "picture" : "by_augment_key");
        return NULL;
    }
    if (m->format != BY_PIXELS_RGB && m->format != BY_PIXELS_GREY) {
        base_fail(BY_ERR_ARGUMENT, "only RGB and grey pictures can be augmented");
        return NULL;
    }
    base_rng shapes = image_random(key, STAGE_SHAPE);
    by_image *out = take(a, m, width, height, filter, &shapes);
    if (out && a->crop_padding > 0)
        out = shift(a, out, &shapes);
    if (out && change(a, out, filter, fill ? fill : grey, key) != BY_OK) {
        by_image_free(out);
        return NULL;
    }
    return out;
}
