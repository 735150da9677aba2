/* run.h - what a whole training run knows. Private to run.c and record.c. */
#ifndef BY_TRAIN_RUN_H
#define BY_TRAIN_RUN_H

#include "train/ahead.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/folder.h"

typedef struct train_run {
    by_device *device;
    by_run_spec spec; /* with every default filled in */
    by_dataset data;
    char *languages; /* their names, with commas between them; NULL: none */
    by_model *model;
    by_trainer *trainer;
    by_log *log;
    by_ahead ahead;
    char *last; /* the checkpoint it goes on from, NULL for a run that begins */
    by_run_state state;
    int64_t first_steps;        /* that it began with */
    bool longer;                /* more than recorded are asked for */
    by_samples rows, eval_rows; /* of a step; of a batch of an evaluation */
    by_folder folder;
    double started;
    by_run_result *result;
} train_run;

/* The shape that the spec asks for, which need not be that of the model in the folder. */
by_model_shape by_run_shape(const train_run *r);

/* Special tokens of a model are the tokenizer's. */
void by_run_tokens(const by_dataset *d, by_model *m);

by_status by_run_record(const train_run *r); /* write run.json */
by_status by_run_check(const train_run *r);  /* that the run goes on as it began, or longer */

#endif
