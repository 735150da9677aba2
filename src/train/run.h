/* run.h - a pretraining run. Private to run.c, run_record.c and preview.c. */
#ifndef BY_TRAIN_RUN_H
#define BY_TRAIN_RUN_H

#include "train/dataset.h"
#include "train/lesson.h"
#include "train/loop.h"

typedef struct train_run {
    by_device *device;
    by_run_spec spec;           /* with every default filled in */
    const train_lesson *lesson; /* NULL: none */
    train_dataset data;
    char *languages; /* their names, with commas between them; NULL: none */
    by_model *model;
    by_trainer *trainer;
    /* one for each micro-batch of a step, then one for evaluations; NULL: texts are apart */
    by_stream **streams;
    data_samples rows, eval_rows; /* of a step; of a batch of an evaluation */
    int32_t *sampled;             /* of scheduled sampling: for a micro-batch, see by_batch; NULL: none */
    by_metric metrics[1];         /* of the last evaluation, of models of pixels */
    int n_metrics;
    train_loop loop;
    by_run_result *result;
} train_run;

/* The shape that the spec asks for, which need not be that of the model in the folder. */
by_model_shape train_run_shape(const train_run *r);

/* Special tokens of a model are the tokenizer's. */
void train_run_tokens(const train_dataset *d, by_model *m);

/* Sizes of a step that the spec leaves open, once the model is known. */
void train_run_sizes(by_run_spec *s, data_objective_kind kind, const by_model *m);

/* What the spec asks for. */
by_status train_run_record(void *self, train_record *out);

#endif
