/* run.h - what a whole training run knows. Private to run.c and record.c. */
#ifndef BY_TRAIN_RUN_H
#define BY_TRAIN_RUN_H

#include "train/readback.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/folder.h"

typedef struct train_run {
    by_device *device;
    by_run_spec spec; /* with every default filled in */
    train_dataset data;
    char *languages; /* their names, with commas between them; NULL: none */
    by_model *model;
    by_trainer *trainer;
    train_log *log;
    train_readback ahead;
    char *last; /* the checkpoint it goes on from, NULL for a run that begins */
    train_run_state state;
    int64_t first_steps;          /* that it began with */
    bool longer;                  /* more than recorded are asked for */
    data_samples rows, eval_rows; /* of a step; of a batch of an evaluation */
    train_folder folder;
    double started;
    by_run_result *result;
} train_run;

/* The shape that the spec asks for, which need not be that of the model in the folder. */
by_model_shape train_run_shape(const train_run *r);

/* Special tokens of a model are the tokenizer's. */
void train_run_tokens(const train_dataset *d, by_model *m);

by_status train_run_record(const train_run *r); /* write run.json */
by_status train_run_check(const train_run *r);  /* that the run goes on as it began, or longer */

#endif
