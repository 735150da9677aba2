/* parallel.h - texts and what is to be written from them: lines of two files that say the same, or the rows
 * of a table or of JSON lines. */
#ifndef BY_DATA_PARALLEL_H
#define BY_DATA_PARALLEL_H

#include "data/docs.h"
#include "data/tasks.h"

/* Pairs of one kind. */
typedef struct by_parallel_item {
    const char *source; /* a file of lines; or one that has both texts, */
    const char *target; /* and then this is NULL */
    const char *prefix; /* put before every source text; "": nothing */
    const char *back;   /* the same the other way round; NULL: that is not wanted */
} by_parallel_item;

typedef struct by_parallel_spec {
    const by_parallel_item *items;
    int count;
    const char *text, *label; /* columns or keys of files that have both; NULL: the usual ones */
    const char *words;        /* what targets 0, 1, ... of such files stand for, with commas; or NULL */
    by_buf *found;            /* receives a line about each such file (by_cases_describe), or NULL */
} by_parallel_spec;

/* Whether a file has both texts, by its ending: .tsv, .csv, .jsonl, .ndjson, .json. */
bool by_parallel_is_table(const char *path);

/* Tokenise into a shard and an index (docs.h): each pair is a document of two sentences, source and target,
 * with the special tokens that the tokenizer puts around a text; of two whose sides are many, each has its
 * own. One that has an empty side is a document with an empty sentence. Languages are the items in order,
 * each followed by its way back. */
by_status by_parallel_build(const by_tokenizer *t, const by_parallel_spec *spec, const char *shard,
                            const char *index, int64_t *bytes, int64_t *tokens);

/* All pairs as strings, prefixes left out. To be freed also after a failure. */
typedef struct by_pairs {
    by_arena *arena;
    char **sources, **targets;
    int count, capacity;
} by_pairs;
by_status by_parallel_read(const by_parallel_spec *spec, by_pairs *out);
void by_pairs_free(by_pairs *p);

/* The texts of one side or of both, a line each, into one file: what a vocabulary is learnt from. */
typedef enum by_side { BY_SIDE_BOTH, BY_SIDE_SOURCE, BY_SIDE_TARGET } by_side;
by_status by_parallel_text(const by_parallel_spec *spec, by_side side, const char *path);

#endif
