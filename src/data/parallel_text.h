/* parallel_text.h - texts and what is to be written from them: lines of two files that say the same, or the rows
 * of a table or of JSON lines. */
#ifndef BY_DATA_PARALLEL_TEXT_H
#define BY_DATA_PARALLEL_TEXT_H

#include "data/docs.h"
#include "data/labelled.h"

/* Pairs of one kind. */
typedef struct data_parallel_item {
    const char *source; /* a file of lines; or one that has both texts, */
    const char *target; /* and then this is NULL */
    const char *prefix; /* put before every source text; "": nothing */
    const char *back;   /* the same the other way round; NULL: that is not wanted */
} data_parallel_item;

typedef struct data_parallel_spec {
    const data_parallel_item *items;
    int count;
    const char *text, *label; /* columns or keys of files that have both; NULL: the usual ones */
    const char *words;        /* what targets 0, 1, ... of such files stand for, with commas; or NULL */
    base_buf *found;          /* receives a line about each such file (data_examples_describe), or NULL */
} data_parallel_spec;

/* Whether a file has both texts, by its ending: .tsv, .csv, .jsonl, .ndjson, .json. */
bool data_parallel_is_table(const char *path);

/* Tokenise into a shard and an index (docs.h): each pair is a document of two sentences, source and target,
 * with the special tokens that the tokenizer puts around a text; of two whose sides are many, each has its
 * own. One that has an empty side is a document with an empty sentence. Languages are the items in order,
 * each followed by its way back. */
by_status data_parallel_build(const by_tokenizer *t, const data_parallel_spec *spec, const char *shard,
                              const char *index, int64_t *bytes, int64_t *tokens);

/* All pairs as strings, prefixes left out. To be freed also after a failure. */
typedef struct data_pairs {
    base_arena *arena;
    char **sources, **targets;
    int count, capacity;
} data_pairs;
by_status data_parallel_read(const data_parallel_spec *spec, data_pairs *out);
void data_pairs_free(data_pairs *p);

/* The texts of one side or of both, a line each, into one file: what a vocabulary is learnt from. */
typedef enum data_side { DATA_SIDE_BOTH, DATA_SIDE_SOURCE, DATA_SIDE_TARGET } data_side;
by_status data_parallel_text(const data_parallel_spec *spec, data_side side, const char *path);

#endif
