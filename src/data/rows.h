/* rows.h - texts and pairs of texts to rows of tokens, and rows to padded batches of like length. Who reads
 * results finds out by `example` which text a row belongs to. */
#ifndef BY_DATA_ROWS_H
#define BY_DATA_ROWS_H

#include "banyan/pass.h"
#include "text/tokenizer.h"

typedef struct data_rows_spec {
    int limit;    /* longest row; 0: the model's context */
    bool windows; /* a text too long becomes several rows instead of being cut; of a pair, the second */
    int overlap;  /* tokens that a window shares with the one before */
    bool offsets; /* keep the place of each token in its text */
    int together; /* so many examples after one another stay in one batch: choices. 0: 1 */
} data_rows_spec;

typedef struct data_row {
    size_t first; /* of its tokens in the arrays below */
    int count;
    int example, window; /* counted from 0, each in the order they were added */
    int repeated;        /* of the windowed text: tokens at its beginning that the window before has too */
} data_row;

typedef struct data_rows {
    by_model *model;               /* borrowed */
    const by_tokenizer *tokenizer; /* borrowed */
    data_rows_spec spec;
    data_row *list;
    int count, capacity, examples;
    /* of all tokens, row after row */
    by_ids tokens;
    uint8_t *segments, *parts; /* as in by_encoding */
    by_offset *offsets;        /* NULL unless asked for */
    size_t room;
} data_rows;

/* A decoder without padding token gets its end of text for one: its labels are read where padding begins. */
by_status data_rows_init(data_rows *r, by_model *m, const by_tokenizer *t, const data_rows_spec *spec);
void data_rows_clear(data_rows *r); /* forget the rows, keep the memory */
void data_rows_free(data_rows *r);  /* zero state is legal */

/* Append one example: its rows are the last ones then. pair may be NULL. Too long, it is cut to the limit,
 * the longer of two texts first, as the reference library does; or becomes windows. */
by_status data_rows_add(data_rows *r, const char *text, const char *pair);

/* Which rows go through the model at once: group g has rows[first[g]] ... rows[first[g + 1] - 1]. Every row
 * is in one group. */
typedef struct data_row_groups {
    int *rows, *first;
    int count;
} data_row_groups;
/* At most `batch` rows each, the longest first: the least padding there can be. */
by_status data_rows_by_length(const data_rows *r, int batch, data_row_groups *out);
/* For an epoch of training: at random, rows of like length together only among 32 batches. */
by_status data_rows_shuffled(const data_rows *r, int batch, uint64_t seed, data_row_groups *out);
void data_row_groups_free(data_row_groups *g); /* zero state is legal */

/* A batch with memory of its own: tokens, and mask and segments where the family has them. Its length is
 * rounded up (data_rows_bucket), so that few shapes occur. Row i of it is rows[i]; what is then missing to
 * `height` rows is padding. Reused by the next call. */
typedef struct data_row_batch {
    by_batch batch;
    int32_t *cells;
    size_t capacity;
    int rows; /* those that count */
} data_row_batch;
by_status data_rows_batch(const data_rows *r, const int *rows, int count, int height, data_row_batch *out);
void data_row_batch_free(data_row_batch *b); /* zero state is legal */

/* Group g for inference: as high as the next power of two, so that the last one makes no shape of its own. */
by_status data_rows_group(const data_rows *r, const data_row_groups *groups, int g, int batch,
                          data_row_batch *out);

/* The length that rows of n tokens are padded to: 8, 16, ... 64, 80, ... 128, 160, ... 256, 320, ... and at
 * most limit. */
int data_rows_bucket(int n, int limit);

#endif
