/* tokens.h - token streams on disk, and batches taken from them by a seeded permutation. */
#ifndef BY_DATA_TOKENS_H
#define BY_DATA_TOKENS_H

#include "base/file.h"
#include "text/tokenizer.h"

/* A stream of token ids over one or many mapped shards. Reads llm.c's .bin (magic 20240520, version 1,
 * uint16; and 20240801, version 7, uint32) and nanoGPT's headerless uint16 .bin. */
typedef struct data_tokens data_tokens;

bool data_tokens_is_shard(const char *path); /* by its ending, .bin */

/* Open shards by path or glob pattern; vocab_size > 0 makes ids outside [0, vocab_size) an error at open
 * (checked once). */
data_tokens *data_tokens_open(const char *const *patterns, int count, int64_t vocab_size);
void data_tokens_free(data_tokens *t);
int64_t data_tokens_count(const data_tokens *t);

/* Copies ids [start, start + count) as int32. The range must be valid. */
by_status data_tokens_read(const data_tokens *t, int64_t start, int64_t count, int32_t *out);

/* Hints that a range will be read soon (madvise). */
void data_tokens_prefetch(const data_tokens *t, int64_t start, int64_t count);

/* Tokenises text files (patterns allowed) into one shard at path, in llm.c's format (uint16 if the vocabulary
 * allows, otherwise uint32), streaming with bounded memory and written atomically. Files are separated by the
 * end-of-text id if the tokenizer has one. bytes_out and tokens_out (may be NULL) receive the totals. */
by_status data_tokens_build(const by_tokenizer *t, const char *const *patterns, int count, const char *path,
                            int64_t *bytes_out, int64_t *tokens_out);

/* A shard in llm.c's format that is written piece by piece, atomically. */
typedef struct data_shard_writer {
    base_writer writer;
    int width; /* bytes per id */
    int64_t tokens;
} data_shard_writer;
by_status data_shard_begin(data_shard_writer *w, const char *path, int vocab_size);
by_status data_shard_put(data_shard_writer *w, by_ids *ids); /* appends the ids and empties the list */
by_status data_shard_finish(data_shard_writer *w);           /* call this */
void data_shard_abort(data_shard_writer *w);                 /* or this; the zero state is a no-op */

/* Language-model batches of rows of seq + 1 tokens (inputs and their successors) from [begin, end) of a
 * stream. The contents of row r of step s depend only on (seed, s, r): the region is split into windows of
 * seq tokens, visited in the order of a seeded permutation that changes every epoch together with a random
 * shift of the cuts. Resuming is seeking.
 *
 * For models with a memory, the region is split into as many columns as a step has rows. Row r of consecutive
 * steps reads consecutive windows of column r. Every epoch begins at the top of the columns. */
typedef struct data_lm_batches {
    const data_tokens *tokens;
    int64_t begin, end;
    int batch, seq;
    uint64_t seed;
    bool columns;
} data_lm_batches;

/* Whether no row of the step continues the previous step, so that the memory must be cleared. */
bool data_lm_batches_restart(const data_lm_batches *d, int64_t step);

/* Checks that at least one window fits. */
by_status data_lm_batches_check(const data_lm_batches *d);

/* inputs, targets: (batch, seq) int32. */
/* Hints that the rows of a coming step will be needed. */
void data_lm_batches_prefetch(const data_lm_batches *d, int64_t step);
by_status data_lm_batches_get(const data_lm_batches *d, int64_t step, int32_t *inputs, int32_t *targets);

/* Windows in order, for evaluation: window w covers tokens [begin + w*seq, ...]; the last, shorter one is
 * padded with targets of -100 (inputs 0). Returns the number of windows, 0 if the region has no prediction or
 * is outside the stream. Every token but the first is predicted exactly once. */
int64_t data_lm_eval_windows(const data_lm_batches *d);

/* Reads windows window, window + 1, ... as (rows, seq) int32. Rows past the last window are all padding. */
by_status data_lm_eval_get(const data_lm_batches *d, int64_t window, int rows, int32_t *inputs,
                           int32_t *targets);

/* The same for columns: (rows, seq) windows of batch `number`, row r being window number of column r. */
int64_t data_lm_eval_segments(const data_lm_batches *d, int rows);
by_status data_lm_eval_columns(const data_lm_batches *d, int64_t number, int rows, int32_t *inputs,
                               int32_t *targets);

#endif
