/* sample.h - the inside of objectives: what makes a row. Private to src/data. */
#ifndef BY_DATA_SAMPLE_H
#define BY_DATA_SAMPLE_H

#include "data/fim.h"
#include "data/objective.h"

enum { SHORTEST_TEXT = 8 }; /* tokens that spans are cut from */

/* A row in the making. */
typedef struct by_sample {
    int32_t *tokens, *mask;
    int32_t *segments, *positions; /* may be NULL */
    int seq, used;
    int position; /* of the next token */
    int second;   /* label of the second task */
    /* of encoder-decoders, whose tokens follow from the targets: used counts those */
    int32_t *source, *targets;
    int source_seq, source_used;
    int32_t *scratch; /* three times the objective's window */
} by_sample;

/* Where a row comes from. */
typedef struct by_span {
    int64_t begin, end; /* tokens (pack.c) or sentences (pairs.c) */
    int64_t doc;        /* where it begins, in the part's list */
} by_span;

/* Pairs of about the same length, and how they make batches (buckets.c). */
typedef struct by_bucket {
    int seq;      /* tokens of the longer text at most */
    int sides[2]; /* the same of each, rounded up */
    int rows;     /* of a batch */
    int64_t first, count, batches;
} by_bucket;
enum { BY_BUCKETS = 64 };
typedef struct by_bucket_list {
    by_bucket list[BY_BUCKETS];
    int count;
    int64_t *pairs; /* documents, bucket by bucket */
    int64_t batches;
} by_bucket_list;

struct by_objective {
    by_objective_spec spec;
    by_lm_batches lm;
    const by_docs_part *text;
    int first, sep, pad; /* special tokens */
    by_masker masker;
    int picks;     /* of a row; 0: everywhere */
    by_span *rows; /* what an epoch has */
    int64_t count, capacity;
    by_bucket_list buckets;
    int64_t empty, longer; /* pairs left out */
    int eos;
    int source_seq, target_seq, window; /* of corrupt.c: of the two texts, and of what they are made from */
    int32_t *sentinels;                 /* <extra_id_0>, ... */
    int n_sentinels;
    by_fim fim;
};

by_status by_span_add(by_objective *o, by_span s);

/* Append to a row; what does not fit is a mistake of the caller's plan and left out. */
void by_sample_put(by_sample *r, int32_t id, int segment);
by_status by_sample_copy(by_sample *r, const by_objective *o, int64_t begin, int64_t end, int segment);

/* Each plans the rows of an epoch, and makes row number i with random numbers of its own. */
by_status by_pack_plan(by_objective *o);
by_status by_pack_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);
by_status by_pairs_plan(by_objective *o);
by_status by_pairs_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);
by_status by_translations_plan(by_objective *o);
by_status by_translations_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);

by_status by_spans_plan(by_objective *o);
by_status by_spans_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);
by_status by_infill_plan(by_objective *o);
by_status by_infill_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);
by_status by_fim_row(const by_objective *o, int64_t i, by_rng *random, by_sample *row);

/* Pairs into buckets; batch number i of an epoch whose orders follow from a seed, into micro-batch k of rows;
 * ordered: none is shuffled. */
by_status by_buckets_plan(by_objective *o);
by_status by_buckets_batch(const by_objective *o, int64_t i, uint64_t order, bool ordered, by_samples *rows,
                           int k);

uint64_t by_number_at(uint64_t seed, uint64_t stream); /* the first of a stream */

#endif
