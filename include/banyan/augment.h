/* augment.h - augmentation of training pictures. Every random choice is a function of (seed, epoch, example): runs are the same with any
 * number of threads, and continue bit for bit. */
#ifndef BANYAN_AUGMENT_H
#define BANYAN_AUGMENT_H

#include "banyan/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to do, in this order. Zero: nothing. */
typedef struct by_augment {
    double crop_scale[2]; /* RandomResizedCrop: cut out this share of the area, from 0.08 to 1 for ImageNet */
    double crop_ratio[2]; /* with this ratio of width to height; 0: from 3/4 to 4/3 */
    int crop_padding;     /* add a border of this many pixels, and cut the picture out of it somewhere */
    double flip;          /* probability that the picture is mirrored, left to right */
    /* RandAugment (Cubuk et al. 2019) as in timm */
    int layers;           /* operations in a row; 0: none */
    double magnitude;     /* of 10 */
    double magnitude_std; /* of the normal distribution of magnitudes; infinite: they are uniform from 0 on */
    double probability;   /* of each operation; 0: 0.5 */
    bool increasing;      /* all operations are stronger with a larger magnitude */
    /* changes of colour by a factor up to 1 - x or 1 + x, in random order; hue is turned by up to this share of a turn */
    double brightness, contrast, saturation, hue;
    double erase; /* probability that a rectangle becomes noise (Zhong et al. 2017) */
    /* parameters of the beta distribution; with both, each is used half of the time */
    double mixup;  /* pictures are blended, and so are their targets (Zhang et al. 2017) */
    double cutmix; /* a rectangle comes from another picture (Yun et al. 2019) */
} by_augment;

/* What random numbers depend on. */
typedef struct by_augment_key {
    uint64_t seed, epoch, example;
} by_augment_key;

/* Reads RandAugment in timm's notation, "rand-m9-mstd0.5-inc1": m magnitude, mstd its deviation (above 100: uniform), n layers, p
 * probability, inc increasing. */
BY_API by_status by_augment_parse(const char *text, by_augment *out);
/* BY_ERR_ARGUMENT for numbers that make no sense. */
BY_API by_status by_augment_check(const by_augment *a);

/* A new picture of that size, made from an 8-bit grey or RGB one by everything up to the colours. `fill` is the colour outside of pictures
 * that are turned or moved; NULL: 128. NULL on failure. */
BY_API by_image *by_augment_image(const by_augment *a, const by_image *m, int width, int height,
                                  by_filter filter, const uint8_t fill[3], const by_augment_key *key);
/* Erases a rectangle of a normalised picture (channels, height, width). */
BY_API void by_augment_erase(const by_augment *a, float *values, int channels, int height, int width,
                             const by_augment_key *key);
/* A batch that is mixed, and its targets. */
typedef struct by_augment_batch {
    float *values; /* (batch, channels, height, width), normalised */
    int batch, channels, height, width;
    const int32_t *labels; /* (batch) */
    int classes;
    double label_smoothing;
    float *targets; /* (batch, classes) */
} by_augment_batch;

/* Mixes the pictures of a batch, the first with the last and so on, and writes their targets. Does part k of `parts`, which threads may
 * share; all parts together do the batch. The key's example is the number of the batch. */
BY_API void by_augment_mix(const by_augment *a, const by_augment_batch *b, int k, int parts,
                           const by_augment_key *key);

#ifdef __cplusplus
}
#endif
#endif
