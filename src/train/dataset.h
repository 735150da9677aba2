/* dataset.h - the data of a run: tokenizer, tokenised text, the held-out part, and the rows that its
 * objective makes of them. */
#ifndef BY_TRAIN_DATASET_H
#define BY_TRAIN_DATASET_H

#include "banyan/train.h"
#include "data/objective.h"
#include "train/folder.h"

typedef struct by_dataset {
    by_tokenizer *tokenizer; /* NULL when shards came without one */
    by_objective_kind kind;
    /* of BY_OBJECTIVE_LM: streams */
    by_tokens *train, *eval; /* eval: NULL, or the same object as train, or one of its own */
    int64_t train_begin, train_end, eval_begin, eval_end;
    /* of the others: documents */
    by_docs docs, eval_docs;
    by_docs_part train_part, eval_part;
    double entropy; /* of single tokens of the training text; NaN when it was not asked for */

    by_objective *rows, *eval_rows; /* by by_dataset_objectives; eval_rows: NULL when nothing is held out */
    int64_t train_tokens, eval_tokens;
    double bytes_per_token; /* of the text; NaN when unknown */
    uint64_t fingerprint;   /* of the token streams: the same data gives the same */
    by_buf found;           /* lines about the tables that were read, for people */
} by_dataset;

/* Open the data of a run: tokenise text once into out/data/, or open .bin shards as they are. from: the
 * checkpoint that a run goes on from, whose tokenizer it keeps, or NULL. */
by_status by_dataset_open(by_dataset *d, const by_run_spec *spec, by_folder *folder, const char *from);
void by_dataset_close(by_dataset *d); /* zero state is legal */

/* Make rows and, when held, eval_rows for a model, once sizes are known. */
by_status by_dataset_objectives(by_dataset *d, const by_run_spec *spec, const by_model *m, bool held);

/* The objective that the spec names, or that of its family. */
by_status by_objective_choose(const by_run_spec *spec, by_objective_kind *out);
/* How it hides tokens. */
by_masking by_masking_choose(const by_run_spec *spec, by_objective_kind kind);

#endif
