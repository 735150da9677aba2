/* weights.h - the tensors of a checkpoint: .safetensors files, PyTorch files (.bin, .pt) and NumPy archives
 * (.npz), as one file or as shards with an index. Files are mapped; nothing is copied until values are
 * requested. */
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
    /* When reading: points into the mapped file, possibly unaligned. When writing: the caller's memory. */
    const void *data;
    size_t bytes; /* total size of the elements */
    /* Strides in elements. NULL: row-major and contiguous, as in all formats except some PyTorch files. */
    const int64_t *stride;
} by_weight;

/* The contents of a file or a directory. Tensors are sorted by name and live as long as this object. */
typedef struct by_weights by_weights;

/* Opens a .safetensors file, a PyTorch file, an uncompressed .npz file, a shard index (*.index.json), or a
 * directory. In a directory, it looks for model.safetensors, model.safetensors.index.json, pytorch_model.bin
 * and pytorch_model.bin.index.json, in this order. PyTorch files are read without executing anything; an
 * object in them that is not a tensor or a plain value is an error that names it. Returns NULL on failure. */
BY_API by_weights *by_weights_open(const char *path);

/* The same for one file in memory, which must outlive the object. `what` names it in error messages. */
BY_API by_weights *by_weights_open_memory(const void *bytes, size_t size, const char *what);
BY_API void by_weights_free(by_weights *w);

/* Number of tensors. */
BY_API int by_weights_count(const by_weights *w);
BY_API const by_weight *by_weights_at(const by_weights *w, int i);              /* NULL if out of range */
BY_API const by_weight *by_weights_find(const by_weights *w, const char *name); /* NULL if absent */

/* The format ("safetensors", "PyTorch zip", "PyTorch stream" or "NumPy npz"); the number of files; the
 * metadata by key (NULL if absent), or the i-th key and value (false past the end). */
BY_API const char *by_weights_format(const by_weights *w);
BY_API int by_weights_files(const by_weights *w);
BY_API const char *by_weights_metadata(const by_weights *w, const char *key);
BY_API bool by_weights_metadata_at(const by_weights *w, int i, const char **key, const char **value);

/* Reads elements begin .. begin + count - 1 of a tensor, in row-major order, converted to `type`, into the
 * caller's memory. A range outside the tensor is BY_ERR_ARGUMENT. */
BY_API by_status by_weight_read(const by_weight *w, size_t begin, size_t count, void *out, by_dtype type);

/* Writes one .safetensors file atomically (temporary name, fsync, rename). Tensors are ordered by decreasing
 * element size, then by name; the data start at a 64-byte boundary. metadata is a list key, value, key,
 * value, ..., NULL, or NULL for {"format": "pt"}. */
BY_API by_status by_weights_write(const char *path, const by_weight *list, int count,
                                  const char *const *metadata);

/* ---- converting checkpoints ------------------------------------------------------------------ */

typedef struct by_convert_spec {
    bool set_dtype;             /* convert floating-point tensors to `dtype`; leave the others unchanged */
    by_dtype dtype;             /* f32, bf16, f16 or f64 */
    int64_t shard_bytes;        /* maximum size of a file, in bytes; 0: one file */
    bool dry_run;               /* check and count, but write nothing */
    const char *const *renames; /* new names of tensors, each "OLD=NEW"; NULL: none */
    int rename_count;
    /* Called after each tensor with the bytes written so far, unless NULL. Returning false stops the
     * conversion. */
    bool (*progress)(void *user, const char *name, size_t done, size_t total);
    void *user;
} by_convert_spec;

typedef struct by_convert_report {
    int tensors, files;
    int dropped; /* duplicate names of tied tensors, which are written once */
    int64_t elements;
    size_t bytes_in, bytes_out; /* total size of the tensors */
} by_convert_report;

/* Writes the tensors of `in` (anything that by_weights_open accepts) as safetensors, one at a time through a
 * buffer of fixed size. `out` is a file if it ends in .safetensors, otherwise a directory, which must be
 * missing or empty and appears only when it is complete. If `in` is a directory, its other files
 * (configuration, tokenizer) are copied as well, and config.json gets the new element type. */
BY_API by_status by_weights_convert(const char *in, const char *out, const by_convert_spec *spec,
                                    by_convert_report *report);

/* Copies the files that accompany a model's weights (tokenizer, configuration, templates) from one directory
 * to another: regular files that are not weights of any format, not hidden, and not yet present. Files of a
 * training run and adapter configurations are not copied. Files in the folders listed in modules.json
 * (sentence-transformers) are. */
BY_API by_status by_companions_copy(const char *from, const char *to);

#ifdef __cplusplus
}
#endif
#endif
