/* objective_row.h - internals of objectives: making a row. Private to src/data. */
#ifndef BY_DATA_OBJECTIVE_ROW_H
#define BY_DATA_OBJECTIVE_ROW_H

#include "data/fim.h"
#include "data/objective.h"

enum { SHORTEST_TEXT = 8 }; /* minimum tokens from which spans are removed */

/* A row under construction. */
typedef struct data_sample {
    int32_t *tokens, *mask;
    int32_t *segments, *positions; /* may be NULL */
    int seq, used;
    int position; /* position of the next token */
    int second;   /* label of the second task */
    /* encoder-decoders only: tokens are derived from the targets, and used counts targets */
    int32_t *source, *targets;
    int source_seq, source_used;
    int32_t *scratch; /* three times the window of the objective */
} data_sample;

/* The source of a row. */
typedef struct data_span {
    int64_t begin, end; /* tokens (pack.c) or sentences (pairs.c) */
    int64_t doc;        /* index of its first document in the part's list */
} data_span;

/* Pairs of similar length and their batches (length_buckets.c). */
typedef struct data_bucket {
    int seq;      /* maximum length of the longer text */
    int sides[2]; /* the same for each side, rounded up */
    int rows;     /* rows per batch */
    int64_t first, count, batches;
} data_bucket;
enum { DATA_BUCKETS = 64 };
typedef struct data_bucket_list {
    data_bucket list[DATA_BUCKETS];
    int count;
    int64_t *pairs; /* documents, grouped by bucket */
    int64_t batches;
} data_bucket_list;

struct data_objective {
    data_objective_spec spec;
    data_lm_batches lm;
    const data_docs_part *text;
    int first, sep, pad; /* special tokens */
    data_masker masker;
    int picks;       /* predicted positions per row; 0: all */
    data_span *rows; /* the spans of an epoch */
    int64_t count, capacity;
    data_bucket_list buckets;
    int64_t empty, longer; /* dropped pairs */
    int eos;
    /* corrupt.c: lengths of source and target, and of the text they are made from. */
    int source_seq, target_seq, window;
    int32_t *sentinels; /* <extra_id_0>, ... */
    int n_sentinels;
    data_fim fim;
    /* plm.c: the text is the spans of `rows`, one after another; where each begins, and its length. */
    int64_t *at, total;
};

by_status data_span_add(data_objective *o, data_span s);

/* Append to a row. Tokens that do not fit indicate an error in the caller's plan and are dropped. */
void data_sample_put(data_sample *r, int32_t id, int segment);
by_status data_sample_copy(data_sample *r, const data_objective *o, int64_t begin, int64_t end, int segment);

/* Each objective plans the rows of an epoch, and makes row i with its own random stream. */
by_status data_pack_plan(data_objective *o);
by_status data_pack_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);
by_status data_pairs_plan(data_objective *o);
by_status data_pairs_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);
by_status data_translations_plan(data_objective *o);
by_status data_translations_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);

by_status data_spans_plan(data_objective *o);
by_status data_spans_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);
by_status data_infill_plan(data_objective *o);
by_status data_infill_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);
by_status data_fim_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row);

/* Steps of an epoch; rows of the step at `window` of an epoch whose columns begin at a random shift. */
by_status data_plm_plan(data_objective *o);
int64_t data_plm_steps(const data_objective *o);
by_status data_plm_rows(const data_objective *o, int64_t window, uint64_t shift, uint64_t seed,
                        data_samples *rows);

/* A row of a picture; a negative number: one without targets. */
by_status data_pixels_row(const data_objective *o, int64_t picture, int32_t *tokens, int32_t *targets);

/* Sorts pairs into buckets; makes batch i of an epoch, in an order that depends on a seed, in micro-batch k
 * of rows. ordered: no shuffling. */
by_status data_buckets_plan(data_objective *o);
by_status data_buckets_batch(const data_objective *o, int64_t i, uint64_t order, bool ordered,
                             data_samples *rows, int k);

uint64_t data_number_at(uint64_t seed, uint64_t stream); /* first number of a stream */

#endif
