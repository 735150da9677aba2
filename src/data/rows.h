/* rows.h - converts texts and pairs of texts to rows of tokens, and rows to padded batches of similar length.
 * The field `example` maps a row back to its text. */
#ifndef BY_DATA_ROWS_H
#define BY_DATA_ROWS_H

#include "banyan/pass.h"
#include "text/tokenizer.h"

typedef struct data_rows_spec {
    int limit; /* longest row; 0: the model's context */
    /* Split a long text into several rows instead of truncating it; of a pair, the second text. */
    bool windows;
    int overlap;  /* tokens that a window shares with the previous one */
    bool offsets; /* record the byte range of each token */
    /* above 1 if the student has no segments: batches contain them as "teacher_segments" */
    int teacher_segments;
    int together; /* consecutive examples that stay in one batch: choices. 0: 1 */
} data_rows_spec;

typedef struct data_row {
    size_t first; /* index of its first token in the arrays below */
    int count;
    int example, window; /* counted from 0, in the order of addition */
    int repeated;        /* windowed text: leading tokens that the previous window has too */
} data_row;

typedef struct data_rows {
    by_model *model;               /* borrowed */
    const by_tokenizer *tokenizer; /* borrowed */
    data_rows_spec spec;
    data_row *list;
    int count, capacity, examples;
    /* concatenated over all rows */
    by_ids tokens;
    uint8_t *segments, *parts; /* as in by_encoding */
    by_offset *offsets;        /* NULL unless requested */
    size_t room;
} data_rows;

/* A decoder without a padding token uses its end-of-text token for padding: its labels are predicted where
 * padding starts. */
by_status data_rows_init(data_rows *r, by_model *m, const by_tokenizer *t, const data_rows_spec *spec);
void data_rows_clear(data_rows *r); /* removes the rows, keeps the memory */
void data_rows_free(data_rows *r);  /* the zero state is a no-op */

/* Appends the rows of one example. pair may be NULL. A long example is truncated to the limit, the longer
 * text first, as in the reference library; or split into windows. */
by_status data_rows_add(data_rows *r, const char *text, const char *pair);

/* Appends tokens as one row, of one example. */
by_status data_rows_put(data_rows *r, const int32_t *tokens, int count);

/* The rows that run together: group g has rows[first[g]] ... rows[first[g + 1] - 1]. Every row is in one
 * group. */
typedef struct data_row_groups {
    int *rows, *first;
    int count;
} data_row_groups;
/* Groups at most `batch` rows, longest first, which minimises padding. */
by_status data_rows_by_length(const data_rows *r, int batch, data_row_groups *out);
/* Groups rows for an epoch of training: at random, sorted by length only within 32 batches. */
by_status data_rows_shuffled(const data_rows *r, int batch, uint64_t seed, data_row_groups *out);
void data_row_groups_free(data_row_groups *g); /* the zero state is a no-op */

/* A batch that owns its memory: tokens, and mask and segments if the family has them. Its length is rounded
 * up (data_rows_bucket), which limits the number of shapes. Row i is rows[i]; missing rows up to `height` are
 * padding. Reused by the next call. */
typedef struct data_row_batch {
    by_batch batch;
    int32_t *cells;
    size_t capacity;
    int rows; /* without padding rows */
} data_row_batch;
by_status data_rows_batch(const data_rows *r, const int *rows, int count, int height, data_row_batch *out);
/* The position of a row's first token in a batch of that length: 0, or after padding on the left. */
int data_rows_start(const data_rows *r, int row, int seq);
void data_row_batch_free(data_row_batch *b); /* the zero state is a no-op */

/* Makes group g for inference. The height is rounded up to a power of two, so that the last group needs no
 * separate shape. */
by_status data_rows_group(const data_rows *r, const data_row_groups *groups, int g, int batch,
                          data_row_batch *out);

/* Returns the length to which rows of n tokens are padded: 8, 16, ... 64, 80, ... 128, 160, ... 256, 320,
 * ..., at most limit. */
int data_rows_bucket(int n, int limit);

#endif
