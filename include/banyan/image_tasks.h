/* image_tasks.h - training on pictures: what by_run_spec and by_finetune_spec have for it; and measuring a model on pictures. */
#ifndef BANYAN_IMAGE_TASKS_H
#define BANYAN_IMAGE_TASKS_H

#include "banyan/augment.h"
#include "banyan/examples.h"
#include "banyan/image.h"
#include "banyan/model.h"
#include "banyan/score.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where pictures and labels are, and how they are prepared. The paths are those of by_picture_set_open. */
typedef struct by_image_data {
    const char *file, *label; /* columns of lists; NULL: the conventional ones */
    by_header header;         /* of lists */
    const char *classes;      /* names of classes: see by_picture_set_spec */
    bool coarse;              /* CIFAR-100: superclasses */
    int workers;              /* threads that prepare batches ahead; 0: one on the CPU, else all cores */
} by_image_data;

/* Training on pictures. */
typedef struct by_image_training {
    by_image_data data;
    by_augment augment;
    double
        average; /* decay of a moving average of the parameters, which is evaluated and saved in their place; 0: none */
    int size;            /* side of the pictures; 0: the model's, or that of the data for a new model */
    int colours;         /* pixel models: of a palette that is learned; 0: 512, or 32 for grey pictures */
    const char *palette; /* a directory whose preprocessor_config.json has the palette; NULL: it is learned */
    double drop_path;    /* fine-tuning: stochastic depth of the last layer; negative: the model's own */
    /* A directory with a model of the same classes, whose predictions the distillation token learns; NULL: none. A teacher gives its
     * likeliest class, or with soft_teacher the probabilities of all. */
    const char *teacher;
    unsigned soft_teacher; /* 0 or 1 */
} by_image_training;

/* Measures of a model on labelled pictures, or on pictures with captions, which have no classes. */
typedef struct by_image_result {
    int classes;
    int64_t pictures;
    double loss;        /* nats per picture */
    double top1, top5;  /* shares; top5 is NaN with 5 classes or fewer */
    int64_t *confusion; /* (classes, classes): pictures of class i that were taken for class j */
    /* of models that write captions: the share of captions that they write without an error, and of tokens that they predict from the
     * right ones before. Of models with one space for texts and pictures, top1 is the share of pictures whose own caption is the nearest of
     * the batch. NaN: they do not apply */
    double exact, token_accuracy;
    int64_t left_out; /* pairs that do not fill a batch: texts and pictures are compared within whole batches */
    double seconds, wait; /* in all, and the share of them spent waiting for pictures */
} by_image_result;
BY_API void by_image_result_free(by_image_result *r); /* resets it to zero */
/* Precision, recall and F1 of a class; NaN where nothing is divided. */
BY_API void by_image_result_class(const by_image_result *r, int class_index, double *precision,
                                  double *recall, double *f1);

typedef struct by_image_evaluate_spec {
    by_image_data data;
    bool lists;              /* an error unless there is a list among the files, whose columns `data` names */
    int batch;               /* 0: 64 */
    const char *predictions; /* a file for one JSON object a picture, or NULL */
    by_dtype weights;        /* how those of products are stored, as in by_model_spec */
    const char *adapter;     /* a folder with an adapter for the model, or NULL */
    bool (*cancelled)(void *user);
    void (*progress)(void *user, int64_t done, int64_t total); /* or NULL */
    void *user;
} by_image_evaluate_spec;
/* Measures a model directory on a dataset. preprocessor_config.json is looked for in the same place; without one, pictures get the model's
 * size and values in [-1, 1]. */
BY_API by_status by_image_evaluate(by_device *d, const char *model, by_dtype dtype, const char *const *paths,
                                   int count, const by_image_evaluate_spec *spec, by_image_result *out);
/* How probable pictures are to a pixel model. */
typedef struct by_pixel_result {
    int64_t pictures;
    int tokens; /* of a picture */
    bool palette; /* they are colours of a palette; otherwise values of channels, and `bits` are bits per dimension */
    double nats, bits; /* per token */
    double seconds;
} by_pixel_result;
/* Measures a pixel model on a dataset. Of the spec, predictions, weights and the adapter do not count: the model is open. */
BY_API by_status by_pixel_evaluate(by_model *m, const by_processor *p, const char *const *paths, int count,
                                   const by_image_evaluate_spec *spec, by_pixel_result *out);
/* Draws the confusion matrix with the names of the classes, as SVG or PNG by the ending of the path. */
BY_API by_status by_image_result_draw(const by_image_result *r, const char *const *names, const char *title,
                                      const char *path);

#ifdef __cplusplus
}
#endif
#endif
