/* dataset.h - the data of a run: tokenizer, tokenised text, the held-out part, and the rows that its
 * objective makes of them. */
#ifndef BY_TRAIN_DATASET_H
#define BY_TRAIN_DATASET_H

#include "banyan/image.h"
#include "banyan/train.h"
#include "data/objective.h"
#include "train/folder.h"

typedef struct train_dataset {
    by_tokenizer *tokenizer; /* NULL when shards came without one */
    by_processor *processor; /* of DATA_OBJECTIVE_PIXELS; otherwise NULL */
    data_objective_kind kind;
    /* of DATA_OBJECTIVE_LM and DATA_OBJECTIVE_PIXELS: streams */
    data_tokens *train, *eval; /* eval: NULL, or the same object as train, or one of its own */
    int64_t train_begin, train_end, eval_begin, eval_end;
    /* of the others: documents */
    data_docs docs, eval_docs;
    data_docs_part train_part, eval_part;
    double entropy; /* of single tokens of the training text; NaN when it was not asked for */

    data_objective *rows,
        *eval_rows; /* by train_dataset_objectives; eval_rows: NULL when nothing is held out */
    int64_t train_tokens, eval_tokens;
    double bytes_per_token; /* of the text; NaN when unknown */
    uint64_t fingerprint;   /* of the token streams: the same data gives the same */
    base_buf found;         /* lines about the tables that were read, for people */
} train_dataset;

/* Open the data of a run: tokenise text once into out/data/, or open .bin shards as they are. from: the
 * checkpoint that a run goes on from, whose tokenizer it keeps, or NULL. */
by_status train_dataset_open(train_dataset *d, const by_run_spec *spec, train_folder *folder,
                             const char *from);
void train_dataset_close(train_dataset *d); /* zero state is legal */

/* Make rows and, when held, eval_rows for a model, once sizes are known. */
by_status train_dataset_objectives(train_dataset *d, const by_run_spec *spec, const by_model *m, bool held);

/* The objective that the spec names, or that of its family. */
by_status train_objective_choose(const by_run_spec *spec, data_objective_kind *out);
/* How it masks tokens. */
data_masking train_masking_choose(const by_run_spec *spec, data_objective_kind kind);

#endif
