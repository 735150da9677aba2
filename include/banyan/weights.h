/* weights.h - the tensors of a checkpoint: .safetensors files and old PyTorch files (.bin, .pt), one file or
 * shards behind an index. Files are mapped; nothing is copied until somebody asks for values. */
#ifndef BANYAN_WEIGHTS_H
#define BANYAN_WEIGHTS_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_WEIGHT_MAX_RANK 8

typedef struct by_weight {
    const char *name;
    by_dtype dtype;
    int rank;
    int64_t dim[BY_WEIGHT_MAX_RANK];
    const void *data; /* reading: into the mapped file, perhaps unaligned; writing: the caller's memory */
    size_t bytes;     /* of all its elements */
    const int64_t *stride; /* NULL: row-major without gaps, as everywhere but in some PyTorch files. Else how
                              many elements lie between two neighbours along each axis */
} by_weight;

/* What a file or a directory holds. Tensors are sorted by name and live as long as this object. */
typedef struct by_weights by_weights;

/* Open a .safetensors file, a PyTorch file, an index of either (*.index.json), or a directory with one of
 * model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json, looked
 * for in this order. PyTorch files are read by a machine that executes nothing; whatever they hold beyond
 * tensors and plain values is an error that names it. NULL on failure. */
BY_API by_weights *by_weights_open(const char *path);

/* The same for one file in memory, which must outlive the object; `what` names it in messages. */
BY_API by_weights *by_weights_open_memory(const void *bytes, size_t size, const char *what);
BY_API void by_weights_free(by_weights *w);

/* Number of tensors. */
BY_API int by_weights_count(const by_weights *w);
BY_API const by_weight *by_weights_at(const by_weights *w, int i);              /* NULL when out of range */
BY_API const by_weight *by_weights_find(const by_weights *w, const char *name); /* NULL when absent */

/* "safetensors", "PyTorch zip" or "PyTorch stream"; how many files; metadata by key (NULL when absent), and
 * the i-th pair of it (false past the end). */
BY_API const char *by_weights_format(const by_weights *w);
BY_API int by_weights_files(const by_weights *w);
BY_API const char *by_weights_metadata(const by_weights *w, const char *key);
BY_API bool by_weights_metadata_at(const by_weights *w, int i, const char **key, const char **value);

/* Elements begin .. begin + count - 1 of a tensor, in row-major order and converted, into memory of the
 * caller's. Out of range is BY_ERR_ARGUMENT. */
BY_API by_status by_weight_read(const by_weight *w, size_t begin, size_t count, void *out, by_dtype type);

/* Write one .safetensors file atomically (temporary name, fsync, rename). Tensors are laid out by falling
 * element size, then name; the data start 64-byte aligned. metadata: key, value, key, value, ..., NULL, or
 * NULL for {"format": "pt"}. */
BY_API by_status by_weights_write(const char *path, const by_weight *list, int count,
                                  const char *const *metadata);

/* ---- from one checkpoint to another ---------------------------------------------------------- */

typedef struct by_convert_spec {
    bool set_dtype;      /* floating-point tensors become `dtype`; others stay as they are */
    by_dtype dtype;      /* f32, bf16, f16 or f64 */
    int64_t shard_bytes; /* start a new file before one grows beyond this; 0: one file */
    bool dry_run;        /* look and count, write nothing */
    /* Called after each tensor with the bytes written so far, unless NULL; false stops the work. */
    bool (*progress)(void *user, const char *name, size_t done, size_t total);
    void *user;
} by_convert_spec;

typedef struct by_convert_report {
    int tensors, files;
    int dropped; /* second names of tied tensors, written once */
    int64_t elements;
    size_t bytes_in, bytes_out; /* of tensors */
} by_convert_report;

/* Write the tensors of `in` (anything by_weights_open takes) as safetensors, one at a time in a buffer of
 * fixed size. `out` is a file when it ends in .safetensors, otherwise a directory, which must not exist or be
 * empty and appears when all of it is there. From a directory its other files come along (configuration,
 * tokenizer), config.json with the new element type. */
BY_API by_status by_weights_convert(const char *in, const char *out, const by_convert_spec *spec,
                                    by_convert_report *report);

/* Copy what belongs to a model besides its weights (tokenizer, configuration, templates) from one directory
 * to another: plain files that are no weights of any format, not hidden, and not there yet. The same files of
 * the folders that modules.json names (sentence-transformers) are copied too. */
BY_API by_status by_companions_copy(const char *from, const char *to);

#ifdef __cplusplus
}
#endif
#endif
