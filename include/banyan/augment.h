/* augment.h - augmentation of training pictures. Every random choice is a function of (seed, epoch, example),
 * so runs do not depend on the number of threads and resume bit for bit. */
#ifndef BANYAN_AUGMENT_H
#define BANYAN_AUGMENT_H

#include "banyan/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Augmentations, in order of application. Zero disables all. */
typedef struct by_augment {
    double crop_scale[2]; /* RandomResizedCrop: range of area fractions, 0.08 to 1 for ImageNet */
    double crop_ratio[2]; /* range of aspect ratios (width / height); 0: from 3/4 to 4/3 */
    int crop_padding;     /* random crop after padding with this many pixels on each side */
    double flip;          /* probability of a horizontal flip */
    /* RandAugment (Cubuk et al. 2019) as in timm */
    int layers;           /* number of operations; 0: none */
    double magnitude;     /* of 10 */
    double magnitude_std; /* standard deviation of magnitudes; infinite: uniform from 0 */
    double probability;   /* probability of each operation; 0: 0.5 */
    bool increasing;      /* a larger magnitude makes every operation stronger */
    /* Colour jitter by factors from 1 - x to 1 + x, in random order; hue is rotated by up to this fraction of
     * the circle */
    double brightness, contrast, saturation, hue;
    double erase; /* random erasing: probability of replacing a rectangle by noise (Zhong et al. 2017) */
    /* Parameters of the beta distribution; if both are set, each is used half of the time */
    double mixup;  /* blend pictures and their targets (Zhang et al. 2017) */
    double cutmix; /* paste a rectangle of another picture (Yun et al. 2019) */
} by_augment;

/* The key of the random numbers. */
typedef struct by_augment_key {
    uint64_t seed, epoch, example;
} by_augment_key;

/* Parses timm's notation for RandAugment, "rand-m9-mstd0.5-inc1": m magnitude, mstd its deviation (above 100:
 * uniform), n layers, p probability, inc increasing. */
BY_API by_status by_augment_parse(const char *text, by_augment *out);
/* Returns BY_ERR_ARGUMENT for invalid values. */
BY_API by_status by_augment_check(const by_augment *a);

/* Creates a picture of that size from an 8-bit grey or RGB one by all augmentations up to the colours. `fill`
 * is the colour outside of rotated or shifted pictures; NULL: 128. Returns NULL on failure. */
BY_API by_image *by_augment_image(const by_augment *a, const by_image *m, int width, int height,
                                  by_filter filter, const uint8_t fill[3], const by_augment_key *key);
/* Erases a rectangle of a normalised picture (channels, height, width). */
BY_API void by_augment_erase(const by_augment *a, float *values, int channels, int height, int width,
                             const by_augment_key *key);
/* A batch to mix, and its targets. */
typedef struct by_augment_batch {
    float *values; /* (batch, channels, height, width), normalised */
    int batch, channels, height, width;
    const int32_t *labels; /* (batch) */
    int classes;
    double label_smoothing;
    float *targets; /* (batch, classes) */
} by_augment_batch;

/* Mixes the pictures of a batch, the first with the last and so on, and writes their targets. A call
 * processes part k of `parts`, which may run on different threads. The key's example is the number of the
 * batch. */
BY_API void by_augment_mix(const by_augment *a, const by_augment_batch *b, int k, int parts,
                           const by_augment_key *key);

#ifdef __cplusplus
}
#endif
#endif
