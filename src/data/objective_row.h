/* objective_row.h - the inside of objectives: what makes a row. Private to src/data. */
#ifndef BY_DATA_OBJECTIVE_ROW_H
#define BY_DATA_OBJECTIVE_ROW_H

#include "data/fim.h"
#include "data/objective.h"

enum { SHORTEST_TEXT = 8 }; /* tokens that spans are cut from */

/* A row in the making. */
typedef struct data_sample {
    int32_t *tokens, *mask;
    int32_t *segments, *positions; /* may be NULL */
    int seq, used;
    int position; /* of the next token */
    int second;   /* label of the second task */
    /* of encoder-decoders, whose tokens follow from the targets: used counts those */
    int32_t *source, *targets;
    int source_seq, source_used;
    int32_t *scratch; /* three times the objective's window */
} data_sample;

/* Where a row comes from. */
typedef struct data_span {
    int64_t begin, end; /* tokens (pack.c) or sentences (pairs.c) */
    int64_t doc;        /* where it begins, in the part's list */
} data_span;

/* Pairs of about the same length, and how they make batches (buckets.c). */
typedef struct data_bucket {
    int seq;      /* tokens of the longer text at most */
    int sides[2]; /* the same of each, rounded up */
    int rows;     /* of a batch */
    int64_t first, count, batches;
} data_bucket;
enum { DATA_BUCKETS = 64 };
typedef struct data_bucket_list {
    data_bucket list[DATA_BUCKETS];
    int count;
    int64_t *pairs; /* documents, bucket by bucket */
    int64_t batches;
} data_bucket_list;

struct data_objective {
    data_objective_spec spec;
    data_lm_batches lm;
    const data_docs_part *text;
    int first, sep, pad; /* special tokens */
    data_masker masker;
    int picks;       /* of a row; 0: everywhere */
    data_span *rows; /* what an epoch has */
    int64_t count, capacity;
    data_bucket_list buckets;
    int64_t empty, longer; /* pairs left out */
    int eos;
    int source_seq, target_seq, window; /* of corrupt.c: of the two texts, and of what they are made from */
    int32_t *sentinels;                 /* <extra_id_0>, ... */
    int n_sentinels;
    data_fim fim;
};

by_status data_span_add(data_objective *o, data_span s);

/* Append to a row; what does not fit is a mistake of the caller's plan and left out. */
void data_sample_put(data_sample *r, int32_t id, int segment);
by_status data_sample_copy(data_sample *r, const data_objective *o, int64_t begin, int64_t end, int segment);

/* Each plans the rows of an epoch, and makes row number i with random numbers of its own. */
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

/* Pairs into buckets; batch number i of an epoch whose orders follow from a seed, into micro-batch k of rows;
 * ordered: none is shuffled. */
by_status data_buckets_plan(data_objective *o);
by_status data_buckets_batch(const data_objective *o, int64_t i, uint64_t order, bool ordered,
                             data_samples *rows, int k);

uint64_t data_number_at(uint64_t seed, uint64_t stream); /* the first of a stream */

#endif
