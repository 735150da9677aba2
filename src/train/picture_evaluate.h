/* picture_evaluate.h - a model measured on labelled pictures. */
#ifndef BY_TRAIN_PICTURE_EVALUATE_H
#define BY_TRAIN_PICTURE_EVALUATE_H

#include "banyan/image_tasks.h"
#include "train/picture_loader.h"

typedef struct train_picture_measure {
    const train_picture_source *source; /* does not train */
    int workers;
    by_passes *passes; /* by train_picture_passes */
    by_model *model;
    const char *predictions;             /* or NULL */
    const by_image_evaluate_spec *hooks; /* cancelled and progress; or NULL */
} train_picture_measure;

/* Passes that evaluate a model. NULL on failure. */
by_passes *train_picture_passes(by_model *m, by_memory **memory);

/* by_image_result_free in every case. */
by_status train_pictures_measure(const train_picture_measure *w, by_image_result *out);
/* The numbers that decide and are logged: accuracy and top5_accuracy, or exact and token_accuracy. Returns how many. */
int train_picture_metrics(const by_image_result *r, by_metric out[BY_METRICS_MAX]);

/* Numbers the labels of a dataset as the model does. */
by_status train_pictures_number(const by_model *m, by_picture_set *set);

#endif
