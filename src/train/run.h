/* run.h - a pretraining run. Private to run.c, run_record.c, picture_record.c and preview.c. */
#ifndef BY_TRAIN_RUN_H
#define BY_TRAIN_RUN_H

#include "model/model.h"
#include "train/dataset.h"
#include "train/lesson.h"
#include "train/loop.h"

typedef struct train_run {
    by_device *device;
    by_run_spec spec;           /* defaults filled in */
    const train_lesson *lesson; /* NULL: none */
    train_dataset data;
    char *languages; /* their names, with commas between them; NULL: none */
    by_model *model;
    by_trainer *trainer;
    /* one per micro-batch of a step, then one for evaluations; NULL: texts are independent */
    by_stream **streams;
    data_samples rows, eval_rows; /* rows of a step; rows of an evaluation batch */
    int32_t *sampled;             /* scheduled sampling, for a micro-batch, see by_batch; NULL: none */
    by_metric metrics[1];         /* of the last evaluation, of pixel models */
    int n_metrics;
    train_loop loop;
    by_run_result *result;
} train_run;

/* The shape requested by the spec, which may differ from that of the model in the folder. */
by_model_shape train_run_shape(const train_run *r);

/* Sets the model's special tokens from the tokenizer. */
void train_run_tokens(const train_dataset *d, by_model *m);

/* Fills in the default sizes of a step once the model is known. */
void train_run_sizes(by_run_spec *s, data_objective_kind kind, const by_model *m);

/* A rate of dropout as it is recorded. A resumed run of an existing model has that of its checkpoint, whatever
 * `asked` is; negative: the model's own. */
double train_asked_rate(const by_run_spec *s, const by_model *m, arch_role wanted, double asked);

/* What the spec asks for. */
by_status train_run_record(void *self, train_record *out);

#endif
