/* dataset.h - the data of a run: tokenizer, token shards, the held-out part. */
#ifndef BY_TRAIN_DATASET_H
#define BY_TRAIN_DATASET_H

#include "banyan/train.h"
#include "data/tokens.h"

typedef struct by_dataset {
    by_tokenizer *tokenizer; /* NULL when shards came without one */
    by_tokens *train, *eval; /* eval: NULL, or the same object as train, or one of its own */
    int64_t train_begin, train_end, eval_begin, eval_end;
    double bytes_per_token; /* of the text; NaN when unknown */
    uint64_t fingerprint;   /* of the token streams: the same data gives the same */
} by_dataset;

/* Open the data of a run: tokenise text once into out/data/, or open .bin shards as they are. A run that
 * resumes keeps its tokenizer. */
by_status by_dataset_open(by_dataset *d, const by_run_spec *spec, bool resuming);
void by_dataset_close(by_dataset *d); /* zero state is legal */

#endif
