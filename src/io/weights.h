/* weights.h - internals of a checkpoint's list of tensors, and the readers that fill it. The public interface
 * is banyan/weights.h. */
#ifndef BY_IO_WEIGHTS_H
#define BY_IO_WEIGHTS_H

#include "banyan/weights.h"
#include "base/base.h"
#include "base/file.h"

typedef struct io_weights_pair {
    const char *key, *value;
} io_weights_pair;

struct by_weights {
    const char *format;
    base_map map;      /* zero for memory and for an index */
    base_arena *arena; /* names, strides and metadata */
    by_weight *list;
    io_weights_pair *metadata;
    int count, metadata_count;
    by_weights **shards; /* for an index: the files with its tensors */
    int shard_count;
};

/* Fill an empty object from the bytes of a file; `what` names it in messages. All claims in the file are
 * validated; all tensors lie inside the bytes. */
by_status io_safetensors_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what);
by_status io_torch_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what);

by_status io_npz_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what);

/* Returns true if the bytes start like an archive of NumPy arrays. */
bool io_npz_is(const uint8_t *bytes, size_t size);

/* Returns true if the bytes start like a PyTorch file. */
bool io_torch_is(const uint8_t *bytes, size_t size);

/* Sorts by name. Duplicate names are an error with the status `failure`. */
by_status io_weights_sort(by_weight *list, int count, const char *what, by_status failure);

/* Computes the bytes of a tensor from its shape and type. Returns false on overflow. */
bool io_weight_bytes(const by_weight *w, size_t *out);

/* Returns true if two tensors refer to the same elements in memory. */
bool io_weight_same(const by_weight *a, const by_weight *b);

/* Writes the configuration that names and shapes of a recurrent network imply; nothing for other weights. */
by_status io_recurrent_config(const by_weights *file, const char *path);

/* A name from a file, sanitised for a message: shortened, and without control sequences. */
typedef struct io_shown {
    char text[100];
} io_shown;
io_shown io_show(const char *name);

/* Writes one .safetensors file atomically. put writes exactly e->bytes bytes of a tensor; e->data is private
 * to the caller, but not NULL unless the tensor is empty. */
typedef by_status (*io_weight_put)(void *user, base_writer *w, const by_weight *e);
by_status io_safetensors_write(const char *path, const by_weight *list, int count,
                               const char *const *metadata, io_weight_put put, void *user);

/* Assigns each tensor, in order, to a file; starts a new file if the current one would exceed `limit` bytes.
 * Returns the number of files, at least 1. */
int io_shards_plan(const by_weight *list, int count, size_t limit, int *shard);

/* Writes the tensors into a directory: model.safetensors, or shards and then their index, each atomically.
 * Then removes files of an earlier save that have such names. */
by_status io_shards_write(const char *dir, const by_weight *list, int count, const int *shard, int files,
                          const char *const *metadata, io_weight_put put, void *user);

/* Writes all elements of a tensor as `type`, through a small buffer. */
by_status io_weight_write(base_writer *w, const by_weight *e, by_dtype type);

#endif
