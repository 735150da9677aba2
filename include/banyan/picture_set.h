/* picture_set.h - datasets of pictures: folders per class, lists of files, IDX files (MNIST, Fashion-MNIST)
 * and CIFAR binaries behind one interface. */
#ifndef BANYAN_PICTURE_SET_H
#define BANYAN_PICTURE_SET_H

#include "banyan/examples.h"
#include "banyan/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dataset. Any number of threads may read one. */
typedef struct by_picture_set by_picture_set;

typedef struct by_picture_set_spec {
    /* Required annotation: a class for BY_EXAMPLE_IMAGE_CLASSIFY, a sentence for BY_EXAMPLE_CAPTION, none for
     * BY_EXAMPLE_IMAGE */
    by_example_kind kind;
    const char *file, *label; /* columns of a list; NULL: the conventional ones (by_examples_spec) */
    by_header header;         /* of a list */
    /* Class names of IDX and CIFAR files: "cat,dog", or a file with one per line. NULL: a file of the
     * dataset, otherwise numbers */
    const char *classes;
    bool coarse; /* CIFAR-100: the 20 superclasses */
    /* BY_PIXELS_RGB, BY_PIXELS_GREY, or BY_PIXELS_NATIVE: grey if the dataset is grey, otherwise RGB */
    by_pixels format;
    int64_t max_pixels; /* per picture, as in by_image_spec */
    int64_t max_bytes;  /* memory for IDX and CIFAR files, which are read as a whole; 0: 8 GiB */
} by_picture_set_spec;

/* Opens `count` paths as one dataset. Each is
 *   a directory with a sub-directory per class, whose pictures may be nested deeper
 *   a directory with metadata.csv or metadata.jsonl, which is read as a list
 *   a directory of pictures without labels (BY_EXAMPLE_IMAGE)
 *   a picture, *.png, *.jpg, *.jpeg, *.webp or *.gif (BY_EXAMPLE_IMAGE)
 *   a list: a table (TSV, CSV) or JSON lines with a file and a label or caption; paths are relative to the list
 *   an IDX file of pictures, *images-idx3-ubyte, with labels in *labels-idx1-ubyte next to it; also compressed
 *   a file of CIFAR-10 (records of 3073 bytes) or CIFAR-100 (3074 bytes), *.bin
 *   a directory with the training files of MNIST, CIFAR-10 or CIFAR-100
 * Pictures of folders and lists are decoded on access. Returns NULL on failure. */
BY_API by_picture_set *by_picture_set_open(const char *const *paths, int count,
                                           const by_picture_set_spec *spec);
BY_API void by_picture_set_free(by_picture_set *p);

BY_API int64_t by_picture_set_count(const by_picture_set *p); /* number of pictures */
BY_API int by_picture_set_channels(const by_picture_set *p);  /* 1: all pictures are grey; 3 */
/* The size of all pictures; 0 and 0 if they are separate files, whose sizes are unknown. */
BY_API void by_picture_set_size(const by_picture_set *p, int *height, int *width);
/* Decodes picture i. The error names its file. Returns NULL on failure; free the result with
 * by_image_free. */
BY_API by_image *by_picture_set_get(const by_picture_set *p, int64_t i);
BY_API int by_picture_set_label(const by_picture_set *p, int64_t i);           /* -1: none */
BY_API const char *by_picture_set_caption(const by_picture_set *p, int64_t i); /* NULL: none */
/* Writes the file of picture i, or "FILE:NUMBER" (from 0) for one of many in a file, to `out`. */
BY_API void by_picture_set_name(const by_picture_set *p, int64_t i, char *out, size_t size);

/* The classes, numbered in sorted order, or as the dataset numbers them. */
BY_API int by_picture_set_classes(const by_picture_set *p);
BY_API const char *by_picture_set_class(const by_picture_set *p, int i);
/* Renumbers the classes by a model's list: a class that is not in it by name must be the number of one. The
 * names are copied. */
BY_API by_status by_picture_set_number(by_picture_set *p, const char *const *names, int count);
/* A hash of the contents: labels and captions, and pixels in memory or names and sizes of files. */
BY_API uint64_t by_picture_set_fingerprint(const by_picture_set *p);

#ifdef __cplusplus
}
#endif
#endif
