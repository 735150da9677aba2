/* picture_loader.h - batches of pictures, prepared ahead by threads. Row r of batch n is picture n * batch +
 * r of an endless sequence of epochs, each shuffled differently. A batch therefore depends only on its
 * number, not on threads or on where a run resumed. */
#ifndef BY_TRAIN_PICTURE_LOADER_H
#define BY_TRAIN_PICTURE_LOADER_H

#include "banyan/augment.h"
#include "banyan/pass.h"
#include "base/prefetch.h"
#include "data/picture_set.h"
#include "train/captions.h"

typedef struct train_picture_source {
    data_picture_part part;
    const by_processor *processor; /* borrowed */
    int height, width;             /* of preprocessed pictures */
    int batch, classes;
    by_task task;                   /* BY_TASK_CLASSIFY; or for pairs BY_TASK_SEQ2SEQ and BY_TASK_CONTRAST: */
    const train_captions *captions; /* captions of the whole set */
    int length;                     /* tokens of a row */
    const by_model *model;          /* for the decoder's start token and padding */
    bool trains; /* epochs in random order with augmentation; otherwise one pass in order, without it */
    by_augment augment;
    double label_smoothing;
    uint64_t seed;
} train_picture_source;

enum { TRAIN_PICTURE_SLOTS = 4 };

typedef struct train_pictures {
    train_picture_source source;
    bool soft;    /* targets are probabilities of classes (batch, classes) */
    size_t plane; /* values per picture */
    int parts;
    base_prefetch *ahead;
    float *pixels[TRAIN_PICTURE_SLOTS], *shares[TRAIN_PICTURE_SLOTS];
    bool colours; /* pictures are palette colours: tokens (batch, height * width) instead of pixels */
    int32_t *labels[TRAIN_PICTURE_SLOTS],
        *tokens[TRAIN_PICTURE_SLOTS]; /* pairs: targets and tokens (batch, length) */
    double waited;                    /* seconds, over all batches so far */
} train_pictures;

/* Prepares batches from `first` to before `end`. threads 0: on demand. Call train_pictures_close in every
 * case. */
by_status train_pictures_open(train_pictures *p, const train_picture_source *source, int threads,
                              int64_t first, int64_t end);
void train_pictures_close(train_pictures *p); /* closing the zero state is a no-op */
/* The next batch, valid until the next call. *labels (may be NULL) receives the classes of its rows, or the
 * targets of captions; -100 for padding rows of the last batch. */
by_status train_pictures_next(train_pictures *p, const by_model *m, by_batch *out, const int32_t **labels);
/* A batch of that shape without values, for compiling. */
by_batch train_pictures_like(const train_pictures *p, const by_model *m);

/* Batches of one pass over the pictures. */
int64_t train_pictures_batches(const train_picture_source *s);
/* Threads for a device: see by_image_data. */
int train_picture_workers(const by_device *d, int asked);

#endif
