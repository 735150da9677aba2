/* dataset.h - the data of a run: tokenizer, tokenised text, held-out part, and rows by objective. */
#ifndef BY_TRAIN_DATASET_H
#define BY_TRAIN_DATASET_H

#include "banyan/image.h"
#include "banyan/train.h"
#include "data/objective.h"
#include "train/folder.h"

typedef struct train_dataset {
    by_tokenizer *tokenizer; /* NULL for shards without one */
    by_processor *processor; /* of DATA_OBJECTIVE_PIXELS; otherwise NULL */
    data_objective_kind kind;
    /* streams, for DATA_OBJECTIVE_LM and DATA_OBJECTIVE_PIXELS */
    data_tokens *train, *eval; /* eval: NULL, the same object as train, or a separate one */
    int64_t train_begin, train_end, eval_begin, eval_end;
    /* of the others: documents */
    data_docs docs, eval_docs;
    data_docs_part train_part, eval_part;
    double entropy; /* unigram entropy of the training text; NaN if not computed */

    data_objective *rows,
        *eval_rows; /* set by train_dataset_objectives; eval_rows: NULL if nothing is held out */
    int64_t train_tokens, eval_tokens;
    double bytes_per_token; /* of the text; NaN when unknown */
    uint64_t fingerprint;   /* hash of the token streams */
    base_buf found;         /* notes on the tables that were read */
} train_dataset;

/* Opens the data of a run: tokenises text once into out/data/, or opens .bin shards directly. from: the
 * checkpoint to resume from, whose tokenizer is kept, or NULL. */
by_status train_dataset_open(train_dataset *d, const by_run_spec *spec, train_folder *folder,
                             const char *from);
void train_dataset_close(train_dataset *d); /* zero state is legal */

/* Creates rows and, if data are held out, eval_rows for a model, once sizes are known. */
by_status train_dataset_objectives(train_dataset *d, const by_run_spec *spec, const by_model *m, bool held);

/* The objective that the spec names, or that of its family. */
by_status train_objective_choose(const by_run_spec *spec, data_objective_kind *out);
/* How it masks tokens. */
data_masking train_masking_choose(const by_run_spec *spec, data_objective_kind kind);

#endif
