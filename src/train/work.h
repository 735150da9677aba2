/* work.h - cases of a task as a model gets them: rows, batches with targets; and what it makes of them. */
#ifndef BY_TRAIN_WORK_H
#define BY_TRAIN_WORK_H

#include "banyan/finetune.h"
#include "data/mask.h"
#include "data/rows.h"
#include "data/tasks.h"

typedef struct by_work {
    by_work_spec spec;
    by_cases cases;
    by_model *model;               /* borrowed */
    const by_tokenizer *tokenizer; /* borrowed */
    by_rows rows;
    by_row_batch batch;
    int32_t *targets, *second; /* of the batch */
    float *numbers;
    size_t room;
    by_masker masker; /* of BY_WORK_MLM */
    int32_t *hidden;  /* what it needs for a row */
    float *weights;   /* of the labels, or NULL: see by_batch */
    bool may_be_none; /* some questions have no answer */
} by_work;

/* The head that a kind of work needs, and what its labels are. */
by_task by_work_task(by_work_kind kind);
by_problem by_work_problem(const by_task_data *data);
const char *by_work_title(by_work_kind kind);            /* "text classification" */
const char *by_work_loss_unit(const by_task_data *data); /* "nats per example" */

bool by_work_has_names(by_work_kind kind); /* labels that are chosen from */

/* Give the labels of cases the numbers that the model knows them by. */
by_status by_work_number(const by_model *m, by_cases *c);

/* Takes the cases over, also on failure. Their labels must have numbers. */
by_status by_work_open(by_work *w, by_cases *cases, by_model *m, const by_tokenizer *t,
                       const by_work_spec *spec);
void by_work_close(by_work *w); /* zero state is legal */

/* Rows with their targets: w->batch.batch. height: rows in all, the rest being padding without targets (not
 * for regression). counted: how many targets count. seed: of hidden tokens. */
by_status by_work_batch(by_work *w, const int *rows, int count, int height, uint64_t seed, int64_t *counted);

/* Whether the row speaks for its token t, where windows overlap: each half of what they share belongs to the
 * window where it is further inside. */
bool by_work_owns(const by_work *w, int row, int t);
/* The first token of the word, counted in the row, or -1. */
int by_work_word(const by_work *w, int row, const by_case *x, int word);

/* The batch of the longest rows, which needs the most memory. */
by_status by_work_largest(by_work *w, int batch);

/* How fast each parameter learns: each layer at layer_decay (0: 1) times the rate of the one above it, and
 * not at all where it is frozen ("embeddings", "body", a number of layers; NULL: nothing). *trained: those
 * that learn. */
by_status by_tuning_rates(by_model *m, double layer_decay, const char *freeze, int64_t *trained);

/* w->weights from "balanced" or numbers with commas; NULL: none. */
by_status by_tuning_weights(by_work *w, const char *list);

/* Run the model over all cases (judge.c). */
by_status by_work_judge(by_work *w, by_passes *passes, const char *predictions, by_verdict *out);

#endif
