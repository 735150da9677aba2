/* picture_evaluate.h - evaluates a model on labelled pictures. */
#ifndef BY_TRAIN_PICTURE_EVALUATE_H
#define BY_TRAIN_PICTURE_EVALUATE_H

#include "banyan/image_tasks.h"
#include "train/picture_loader.h"

typedef struct train_picture_measure {
    const train_picture_source *source; /* `trains` is false */
    int workers;
    by_passes *passes; /* from train_picture_passes */
    by_model *model;
    const char *predictions;             /* or NULL */
    const by_image_evaluate_spec *hooks; /* cancelled and progress; or NULL */
} train_picture_measure;

/* Passes for evaluation. NULL on failure. */
by_passes *train_picture_passes(by_model *m, by_memory **memory);

/* Call by_image_result_free in every case. */
by_status train_pictures_measure(const train_picture_measure *w, by_image_result *out);
/* Metrics that select the best model and are logged: accuracy and top5_accuracy, or exact and token_accuracy.
 * Returns their number. */
int train_picture_metrics(const by_image_result *r, by_metric out[BY_METRICS_MAX]);

/* Numbers the labels of a dataset as the model does. */
by_status train_pictures_number(const by_model *m, by_picture_set *set);

#endif
