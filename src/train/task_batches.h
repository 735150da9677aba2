/* task_batches.h - examples of a task as rows and batches with targets, and their evaluation. */
#ifndef BY_TRAIN_TASK_BATCHES_H
#define BY_TRAIN_TASK_BATCHES_H

#include "banyan/finetune.h"
#include "data/mask.h"
#include "data/rows.h"
#include "data/spans.h"
#include "data/labelled.h"

typedef struct train_task {
    by_row_spec spec;
    data_examples examples;
    by_model *model;               /* borrowed */
    const by_tokenizer *tokenizer; /* borrowed */
    data_rows rows;
    data_row_batch batch;
    int32_t *targets, *second; /* of the batch */
    int32_t *none;             /* questions: 1 if the window has no answer */
    data_answer_inputs answers;
    float *numbers;
    size_t room;
    data_masker masker; /* of BY_EXAMPLE_MLM */
    int32_t *hidden;    /* what it needs for a row */
    float *weights;     /* class weights, or NULL: see by_batch */
    bool may_be_none;   /* some questions have no answer */
} train_task;

/* The head and the problem of a kind of examples. */
by_task train_task_task(by_example_kind kind);
by_problem train_task_problem(const by_examples_spec *data);
const char *train_task_title(by_example_kind kind);             /* "text classification" */
const char *train_task_loss_unit(const by_examples_spec *data); /* "nats per example" */

bool train_task_has_names(by_example_kind kind); /* number of classes */

/* Fails unless the model has the head for these examples. For classifiers, the problem must match too:
 * regression, single-label or multi-label. */
by_status train_task_check(const by_model *m, const by_examples_spec *data);

/* Numbers the labels of examples as the model does. */
by_status train_task_number(const by_model *m, data_examples *c);

/* Takes ownership of the examples, also on failure. Their labels must be numbered. */
by_status train_task_open(train_task *w, data_examples *examples, by_model *m, const by_tokenizer *t,
                          const by_row_spec *spec);
void train_task_close(train_task *w); /* zero state is legal */

/* Builds rows with targets in w->batch.batch. height: total rows, filled up with padding rows without targets
 * (not for regression). counted: number of targets. seed: for masked tokens. */
by_status train_task_batch(train_task *w, const int *rows, int count, int height, uint64_t seed,
                           int64_t *counted);
/* Adds the class weights of the task, if any, to the batch. */
void train_task_weigh(train_task *w);

/* Whether the row decides for its token t. In the overlap of two windows, each token belongs to the window
 * where it is further from the edge. */
bool train_task_owns(const train_task *w, int row, int t);
/* The index in the row of the first token of the word, or -1. */
int train_task_word(const train_task *w, int row, const data_example *x, int word);

/* The batch with the longest rows, which needs the most memory. */
by_status train_task_largest(train_task *w, int batch);

/* Sets w->weights from "balanced" or comma-separated numbers; NULL: none. */
by_status train_tuning_weights(train_task *w, const char *list);

/* by_finetune_run for BY_EXAMPLE_SEQ2SEQ (finetune_seq2seq.c). */
by_status train_finetune_seq2seq(by_device *d, const by_finetune_spec *spec, by_finetune_result *out);

/* Evaluates the model on all examples (task_evaluate.c). */
by_status train_task_evaluate(train_task *w, by_passes *passes, const char *predictions, by_task_result *out);

#endif
