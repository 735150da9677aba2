/* weights.h - the inside of a checkpoint's list of tensors, and those who fill it. The public face is
 * banyan/weights.h. */
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
    by_weights **shards; /* an index: the files that its tensors lie in */
    int shard_count;
};

/* Fill an empty object from the bytes of a file; `what` names it in messages. What the bytes claim is checked
 * before it is believed; all tensors lie inside them. */
by_status io_safetensors_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what);
by_status io_torch_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what);

/* Whether the bytes begin like a PyTorch file. */
bool io_torch_is(const uint8_t *bytes, size_t size);

/* Sort by name; two of the same name are an error with the status `failure`. */
by_status io_weights_sort(by_weight *list, int count, const char *what, by_status failure);

/* Bytes of a tensor from its shape and type; false on overflow. */
bool io_weight_bytes(const by_weight *w, size_t *out);

/* Whether two tensors are the same elements in the same place. */
bool io_weight_same(const by_weight *a, const by_weight *b);

/* A name from a file, fit for a message: cut short, and with nothing that would steer a terminal. */
typedef struct io_shown {
    char text[100];
} io_shown;
io_shown io_show(const char *name);

/* Write one .safetensors file atomically. put writes the bytes of a tensor, exactly e->bytes of them; e->data
 * is whatever the caller has left there, but not NULL unless the tensor is empty. */
typedef by_status (*io_weight_put)(void *user, base_writer *w, const by_weight *e);
by_status io_safetensors_write(const char *path, const by_weight *list, int count,
                               const char *const *metadata, io_weight_put put, void *user);

/* Which file each tensor goes to, in their order: the next one when it would grow beyond `limit` bytes.
 * Returns how many files there are, at least 1. */
int io_shards_plan(const by_weight *list, int count, size_t limit, int *shard);

/* Write them into a directory: model.safetensors, or shards and then their index, each atomically. Afterwards
 * what an earlier save left there under such names is removed. */
by_status io_shards_write(const char *dir, const by_weight *list, int count, const int *shard, int files,
                          const char *const *metadata, io_weight_put put, void *user);

/* Write all elements of a tensor as `type`, through a small buffer. */
by_status io_weight_write(base_writer *w, const by_weight *e, by_dtype type);

#endif
