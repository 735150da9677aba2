/* picture_set.h - internals of picture datasets, shared by the readers of folders, lists, IDX and CIFAR
 * files. Files are untrusted: sizes are checked before memory is allocated. */
#ifndef BY_DATA_PICTURE_SET_H
#define BY_DATA_PICTURE_SET_H

#include "banyan/picture_set.h"
#include "data/labelled.h"

/* Pictures of one size, held in memory. */
typedef struct data_picture_block {
    uint8_t *bytes;
    size_t stride, skip; /* size of a record, and offset of its pixels */
    int height, width, channels;
    bool planar; /* (channels, height, width) instead of (height, width, channels) */
} data_picture_block;

typedef struct data_picture {
    const char *path; /* path of its file, or of the file of the whole block */
    const char *caption;
    int32_t number; /* index in its block */
    int16_t block;  /* -1: a file of its own */
    int label;      /* -1: none */
} data_picture;

struct by_picture_set {
    base_arena *arena; /* holds paths, captions and class names */
    by_picture_set_spec spec;
    data_picture *list;
    int64_t count, capacity;
    data_picture_block *blocks;
    int n_blocks;
    data_labels classes;
    int class_room;
    base_names *numbers; /* of the classes, by name */
    bool named_classes, had_coarse,
        had_list; /* whether spec.classes, spec.coarse and column names were used */
    uint64_t fingerprint;
};

/* Readers: each appends the examples of one path. */
by_status data_picture_set_folder(by_picture_set *p, const char *dir);
bool data_picture_set_is_picture(const char *path); /* by its extension */
by_status data_picture_set_list(by_picture_set *p, const char *path);
by_status data_picture_set_idx(by_picture_set *p, const char *path);
by_status data_picture_set_cifar(by_picture_set *p, const char *path);
bool data_picture_set_is_idx(const char *path); /* by its first bytes, compressed or not */

/* Appends an example. label NULL: none. The strings are in the arena or live at least as long. */
by_status data_picture_set_add(by_picture_set *p, const char *path, const char *label, const char *caption);
/* Appends the pictures of a block and takes ownership of its bytes, even on failure; labels may be NULL. */
by_status data_picture_set_add_block(by_picture_set *p, const char *path, const data_picture_block *b,
                                     int64_t count, const uint8_t *labels);
/* The number of a class, which is added if it is new; -1 on failure. */
int data_picture_set_class(by_picture_set *p, const char *name);
/* Names `count` classes in this order: from spec.classes, from a file of the directory of `path`, or by their
 * numbers. */
by_status data_picture_set_name_classes(by_picture_set *p, const char *path, const char *file, int count);
/* BY_ERR_FORMAT if `bytes` exceeds the memory limit, or what a file of this size can hold. */
by_status data_picture_set_check_bytes(const by_picture_set *p, const char *path, uint64_t bytes);

/* An error if the spec of the sets has names of classes, superclasses or names of columns that neither set
 * has use for. other: a second set of the same spec, or NULL. */
by_status data_picture_set_check_use(const by_picture_set *p, const by_picture_set *other);
by_status data_picture_set_check_list(const by_picture_set *p); /* an error unless a list was read */

/* ---- parts ------------------------------------------------------------------------------------ */

/* Examples [begin, begin + count) of a permutation of a dataset by the seed. */
typedef struct data_picture_part {
    const by_picture_set *pictures; /* borrowed */
    uint64_t seed;
    int64_t begin, count;
    bool whole; /* the whole dataset in its own order */
} data_picture_part;
/* The dataset's index of example i of the part. */
int64_t data_picture_part_at(const data_picture_part *d, int64_t i);
/* Holds out a share of the examples, at least one if the share is positive. */
by_status data_picture_set_split(const by_picture_set *p, double share, uint64_t seed,
                                 data_picture_part *train, data_picture_part *held);

#endif
