/* safetensors.h - the safetensors container: eight bytes of header length, a JSON header, raw little-endian
 * tensors. */
#ifndef BY_IO_SAFETENSORS_H
#define BY_IO_SAFETENSORS_H

#include "base/base.h"

#define BY_ST_MAX_RANK 8

typedef struct by_st_entry {
    const char *name;
    by_dtype dtype;
    int rank;
    int64_t dim[BY_ST_MAX_RANK];
    const void *data; /* reading: into the map, perhaps unaligned; writing: the caller's memory */
    size_t bytes;
} by_st_entry;

/* A mapped file, or a directory's shards behind one list. Entries are sorted by name; nothing is copied. */
typedef struct by_st by_st;

/* Open one .safetensors file, an index (*.safetensors.index.json) or a directory that holds model.safetensors
 * or a sharded index. NULL on failure. The entries live as long as the returned object. */
by_st *by_st_open(const char *path);

/* The same for one container in memory, which must outlive the object; `what` names it in messages. */
by_st *by_st_open_memory(const void *bytes, size_t size, const char *what);
void by_st_free(by_st *s);
int by_st_count(const by_st *s);
const by_st_entry *by_st_at(const by_st *s, int i);
const by_st_entry *by_st_find(const by_st *s, const char *name); /* NULL when absent, no error set */
const char *by_st_metadata(const by_st *s, const char *key);     /* NULL when absent */

/* Write one file atomically (temporary name, fsync, rename). Tensors are laid out by falling element size,
 * then name, the data 64-byte aligned from the start of the file by header padding. metadata: key, value,
 * key, value, ..., NULL (or NULL for {"format": "pt"}). */
by_status by_st_write(const char *path, const by_st_entry *entries, int count, const char *const *metadata);

#endif
