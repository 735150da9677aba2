/* parallel_text.h - source texts and their targets: parallel lines of two files, or the rows of a table or of
 * JSON lines. */
#ifndef BY_DATA_PARALLEL_TEXT_H
#define BY_DATA_PARALLEL_TEXT_H

#include "data/docs.h"
#include "data/labelled.h"

/* Pairs of one kind. */
typedef struct data_parallel_item {
    const char *source; /* a file of lines, or a file with both texts */
    const char *target; /* NULL if source has both texts */
    const char *prefix; /* prepended to every source text; "": nothing */
    const char *back;   /* prefix of the reverse direction; NULL: no reverse direction */
} data_parallel_item;

typedef struct data_parallel_spec {
    const data_parallel_item *items;
    int count;
    const char *text, *label; /* columns or keys of files with both texts; NULL: the conventional ones */
    const char *words; /* words for the targets 0, 1, ... of such files, separated by commas; or NULL */
    base_buf *found;   /* receives a description of each such file (data_examples_describe), or NULL */
} data_parallel_spec;

/* Returns true if a file contains both texts, by its extension: .tsv, .csv, .jsonl, .ndjson, .json. */
bool data_parallel_is_table(const char *path);

/* Tokenises into a shard and an index (docs.h). Each pair is a document of two sentences, source and target,
 * with the special tokens that the tokenizer adds to a text; a tokenizer with two sides encodes each with its
 * own. A pair with an empty side is a document with an empty sentence. Languages are the items in order, each
 * followed by its reverse direction. */
by_status data_parallel_build(const by_tokenizer *t, const data_parallel_spec *spec, const char *shard,
                              const char *index, int64_t *bytes, int64_t *tokens);

/* All pairs as strings, without prefixes. The caller frees them, also after a failure. */
typedef struct data_pairs {
    base_arena *arena;
    char **sources, **targets;
    int count, capacity;
} data_pairs;
by_status data_parallel_read(const data_parallel_spec *spec, data_pairs *out);
void data_pairs_free(data_pairs *p);

/* Writes the texts of one side or both into a file, one per line, to train a vocabulary on. */
typedef enum data_side { DATA_SIDE_BOTH, DATA_SIDE_SOURCE, DATA_SIDE_TARGET } data_side;
by_status data_parallel_text(const data_parallel_spec *spec, data_side side, const char *path);

#endif
