/* picture_passes.h - batches of pictures, and running a model on them. Threads decode and preprocess the next
 * batch while the device works on the current one. */
#ifndef BY_INFER_PICTURE_PASSES_H
#define BY_INFER_PICTURE_PASSES_H

#include "banyan/pass.h"
#include "banyan/picture_set.h"

/* The processor of a model that was opened from `dir`, with the adapter in the folder `adapter` unless that
 * is NULL: the first preprocessor_config.json in the folder of the adapter, in `dir`, and in the model that
 * `dir` is an adapter for. Otherwise the default processor of the family, for the
 * model's size. NULL on failure. */
by_processor *gen_processor_open(const by_model *m, const char *dir, const char *adapter);

/* The pictures that a model reads: as patches, or as one palette colour per position (channels 0, patch 1).
 * Returns false if it reads none. */
bool gen_reads_pictures(const by_model *m, by_pictures *out);

/* Preprocessed pictures of one size; the first has index `first` in the call. */
typedef struct gen_picture_pack {
    int first, count, channels, height, width;
    const float *values; /* (count, channels, height, width), */
    const int32_t *ids;  /* or with a palette (count, height * width) */
} gen_picture_pack;

typedef struct gen_pictures_spec {
    const by_model *model; /* that reads them */
    const by_processor *processor;
    int batch;                     /* most pictures at once */
    bool (*cancelled)(void *user); /* polled between batches; may be NULL */
    void *cancel_user;
} gen_pictures_spec;

/* Reads pictures [first, first + count) of a dataset and calls `take` for each batch of consecutive pictures
 * of one size. */
by_status gen_pictures_read(const gen_pictures_spec *spec, const by_picture_set *set, int64_t first,
                            int count, by_status (*take)(void *user, const gen_picture_pack *pack),
                            void *user);

/* The same, running a model on each batch. */
typedef struct gen_picture_passes {
    by_passes *passes;
    by_status (*prepare)(void *user, by_batch *b); /* adds arrays to a batch before it runs; may be NULL */
    by_status (*take)(void *user, by_pass *p, int first, int count); /* reads the results */
    void *user;
} gen_picture_passes;
by_status gen_pictures_run(const gen_pictures_spec *spec, const gen_picture_passes *passes,
                           const by_picture_set *set, int64_t first, int count);

#endif
