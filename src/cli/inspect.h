/* inspect.h - the parts of `banyan inspect`. */
#ifndef BY_CLI_INSPECT_H
#define BY_CLI_INSPECT_H

#include <cjson/cJSON.h>

#include "cli/lora.h"
#include "base/base.h"

typedef struct inspect_options {
    const char *graph, *mode, *freeze, *task, *weights;
    cli_adapter_words adapters;
    int batch, seq;
    by_dtype dtype;
    bool params, recompute, json;
    bool dtype_given, seq_given;
} inspect_options;

/* Shows shape, parameters, memory and FLOP of a model directory, a run folder or FAMILY:PRESET. Returns an
 * exit code. */
int cli_inspect_model(const char *what, const inspect_options *o);

/* One file: weights of any format, an index, or a tokenizer. */
int cli_inspect_file(const char *path, const inspect_options *o);

/* A directory whose model, if there is one, cannot be built here: its files, its weights, its tokenizer. */
int cli_inspect_folder(const char *dir, const inspect_options *o);

/* Ends the line about a directory's weights. Where the file counts other tensors than the model has
 * parameters (repeated tied tensors, buffers), adds both numbers, which are those of `banyan convert`. */
void cli_inspect_stored(const char *dir, int params, int64_t elements);

/* For the text of a model: lines about its weights' metadata and its tokenizer. The same as JSON. */
void cli_inspect_companions(const char *dir);
void cli_inspect_companions_json(const char *dir, cJSON *j);

/* Call fn for every plain file of a directory, in order. */
void cli_each_file(const char *dir, void (*fn)(void *user, const char *name, size_t bytes), void *user);

cJSON *cli_shape_json(int rank, const int64_t *dim);

#endif
