/* picture_run.h - training a model on pictures with labels or captions, from scratch or from a model. Private
 * to picture_run.c and picture_setup.c. */
#ifndef BY_TRAIN_PICTURE_RUN_H
#define BY_TRAIN_PICTURE_RUN_H

#include "banyan/finetune.h"
#include "train/loop.h"
#include "train/moving_average.h"
#include "train/picture_evaluate.h"
#include "train/picture_teacher.h"

/* Settings of fine-tuning runs. */
typedef struct train_picture_tuning {
    by_example_kind kind;
    const char *freeze;
    double layer_decay;  /* 0: 1 */
    double warmup_share; /* of the run; used if the schedule's warm-up is negative */
    int eval_batch;
    const char *predictions;
} train_picture_tuning;

typedef struct train_picture_run {
    by_device *device;
    by_run_spec spec;                   /* defaults filled in */
    const train_picture_tuning *tuning; /* NULL: none */
    by_picture_set *set, *eval_set;     /* eval_set NULL: part of the set is held out, or none */
    data_picture_part train, held;
    by_task task; /* BY_TASK_CLASSIFY, BY_TASK_SEQ2SEQ (captions), BY_TASK_CONTRAST (pairs) */
    by_processor *processor;
    by_tokenizer *tokenizer; /* for captions; NULL: labels */
    train_captions captions, eval_captions;
    int length; /* caption tokens of a row */
    by_model *model;
    by_trainer *trainer;
    train_teacher *teacher; /* NULL: none */
    train_average *average; /* NULL: none */
    by_passes *passes;      /* for evaluation */
    by_memory *memory;      /* for their activations */
    train_picture_source source, eval_source;
    train_pictures batches;
    by_image_result evaluation; /* result of the last evaluation */
    by_metric metrics[BY_METRICS_MAX];
    int n_metrics;
    train_loop loop;
    by_run_result *result;
} train_picture_run;

/* Opens data, model and the rest, up to train_loop_begin (picture_setup.c). */
by_status train_picture_set_up(train_picture_run *r, const train_client *client);
by_status train_picture_load(void *self, const char *dir);
by_status train_picture_record(void *self, train_record *out); /* picture_record.c */
/* The shape for the spec. Values that the spec leaves open follow from the data, unless a preset with its own
 * size is named. */
by_status train_picture_shape(const train_picture_run *r, by_model_shape *out);
/* A batch without values, for compiling a step. */
by_batch train_picture_like(const train_picture_run *r);
by_status train_picture_make_passes(train_picture_run *r);
const char *train_picture_loss_unit(by_task task);
bool train_picture_holds_out(const train_picture_run *r);

/* Runs training. The spec's family or init_from must read pictures. */
by_status train_picture_train(by_device *d, const by_run_spec *spec, const train_picture_tuning *tuning,
                              by_run_result *result);
/* by_finetune_run for BY_EXAMPLE_IMAGE_CLASSIFY and BY_EXAMPLE_CAPTION. */
by_status train_finetune_pictures(by_device *d, const by_finetune_spec *spec, by_finetune_result *result);
/* Whether a family, or the model in a directory, reads pictures. */
bool train_reads_pictures(by_device *d, const by_run_spec *spec);
/* Fails if the spec has options that only training on pictures supports: augmentation, a teacher, averaged
 * weights. Called for other kinds of runs, which would ignore them silently. */
by_status train_without_pictures(const by_image_training *i);

#endif
