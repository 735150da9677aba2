/* eval_pictures.h - how a model that classifies pictures is evaluated: accuracy, classes, confusion matrix. */
#ifndef BY_CLI_EVAL_PICTURES_H
#define BY_CLI_EVAL_PICTURES_H

#include "banyan/image_tasks.h"
#include "banyan/model.h"

typedef struct cli_picture_evaluation {
    by_model *model;
    const char *dir, *const *data;
    int count;
    by_dtype dtype;
    by_image_evaluate_spec spec;
    const char *confusion; /* a file for the picture, or NULL */
    bool per_class, json, quiet;
} cli_picture_evaluation;

/* Evaluates and prints. Returns the exit code. */
int cli_evaluate_pictures(cli_picture_evaluation *e);

/* How likely a pixel model finds pictures. Returns an exit code. */
int cli_evaluate_pixels(cli_picture_evaluation *e);

#endif
