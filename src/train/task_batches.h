/* task_batches.h - examples of a task as a model gets them: rows, batches with targets; and what it makes of them. */
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
    int32_t *none;             /* of questions: 1 where the window has no answer */
    data_answer_inputs answers;
    float *numbers;
    size_t room;
    data_masker masker; /* of BY_EXAMPLE_MLM */
    int32_t *hidden;    /* what it needs for a row */
    float *weights;     /* of the labels, or NULL: see by_batch */
    bool may_be_none;   /* some questions have no answer */
} train_task;

/* The head that a kind of work needs, and what its labels are. */
by_task train_task_task(by_example_kind kind);
by_problem train_task_problem(const by_examples_spec *data);
const char *train_task_title(by_example_kind kind);             /* "text classification" */
const char *train_task_loss_unit(const by_examples_spec *data); /* "nats per example" */

bool train_task_has_names(by_example_kind kind); /* labels that are chosen from */

/* An error unless the model has the head for this work. A classifier whose labels are numbers is one for regression, one with
 * several for many labels. */
by_status train_task_check(const by_model *m, const by_examples_spec *data);

/* Give the labels of examples the numbers that the model knows them by. */
by_status train_task_number(const by_model *m, data_examples *c);

/* Takes the examples over, also on failure. Their labels must have numbers. */
by_status train_task_open(train_task *w, data_examples *examples, by_model *m, const by_tokenizer *t,
                          const by_row_spec *spec);
void train_task_close(train_task *w); /* zero state is legal */

/* Rows with their targets: w->batch.batch. height: rows in all, the rest being padding without targets (not
 * for regression). counted: how many targets count. seed: of hidden tokens. */
by_status train_task_batch(train_task *w, const int *rows, int count, int height, uint64_t seed,
                           int64_t *counted);
/* Give the classes of the batch the weights of the task, if it has some. */
void train_task_weigh(train_task *w);

/* Whether the row speaks for its token t, where windows overlap: each half of what they share belongs to the
 * window where it is further inside. */
bool train_task_owns(const train_task *w, int row, int t);
/* The first token of the word, counted in the row, or -1. */
int train_task_word(const train_task *w, int row, const data_example *x, int word);

/* The batch of the longest rows, which needs the most memory. */
by_status train_task_largest(train_task *w, int batch);

/* w->weights from "balanced" or numbers with commas; NULL: none. */
by_status train_tuning_weights(train_task *w, const char *list);

/* by_finetune_run for BY_EXAMPLE_SEQ2SEQ (finetune_seq2seq.c). */
by_status train_finetune_seq2seq(by_device *d, const by_finetune_spec *spec, by_finetune_result *out);

/* Run the model over all examples (task_evaluate.c). */
by_status train_task_evaluate(train_task *w, by_passes *passes, const char *predictions, by_task_result *out);

#endif
