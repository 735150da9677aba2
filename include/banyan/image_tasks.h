/* image_tasks.h - training on pictures (members of by_run_spec and by_finetune_spec), and evaluation on
 * pictures. */
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

/* How to read pictures and labels. Paths are as in by_picture_set_open. */
typedef struct by_image_data {
    const char *file, *label; /* columns of lists; NULL: the usual ones */
    by_header header;         /* header of lists */
    const char *classes;      /* names of classes: see by_picture_set_spec */
    bool coarse;              /* CIFAR-100: superclasses */
    int workers;              /* threads that prefetch batches; 0: one on the CPU, otherwise all cores */
} by_image_data;

/* Settings of training on pictures. */
typedef struct by_image_training {
    by_image_data data;
    by_augment augment;
    /* Decay of an exponential moving average of the parameters, which is evaluated and saved instead; 0:
     * none */
    double average;
    int size;            /* image side; 0: that of the model, or of the data for a new model */
    int colours;         /* pixel models: size of the palette to learn; 0: 512, or 32 for grey pictures */
    const char *palette; /* directory whose preprocessor_config.json has the palette; NULL: learn one */
    double drop_path;    /* fine-tuning: stochastic depth of the last layer; negative: as in the model */
    /* A model directory with the same classes whose predictions the distillation token learns: the most
     * likely class, or with soft_teacher all probabilities. NULL: none */
    const char *teacher;
    unsigned soft_teacher; /* 0 or 1 */
} by_image_training;

/* Results on labelled pictures, or on pictures with captions, which have no classes. */
typedef struct by_image_result {
    int classes;
    int64_t pictures;
    double loss;        /* nats per picture */
    double top1, top5;  /* accuracies; top5 is NaN with 5 classes or fewer */
    int64_t *confusion; /* (classes, classes): number of pictures of class i predicted as class j */
    /* Captioning models: fraction of exact captions, and of tokens predicted correctly from the true prefix.
     * NaN for other models. For models of texts and pictures, top1 is the fraction of pictures whose own
     * caption is the nearest in the batch */
    double exact, token_accuracy;
    int64_t left_out;     /* pairs of an incomplete last batch, because pairs are compared within batches */
    double seconds, wait; /* total time, and the fraction spent waiting for pictures */
} by_image_result;
BY_API void by_image_result_free(by_image_result *r); /* resets to the zero state */
/* Precision, recall and F1 of a class; NaN if undefined. */
BY_API void by_image_result_class(const by_image_result *r, int class_index, double *precision,
                                  double *recall, double *f1);

typedef struct by_image_evaluate_spec {
    by_image_data data;
    bool lists;              /* require a list among the files, because `data` names columns */
    int batch;               /* 0: 64 */
    const char *predictions; /* a file that receives one JSON object per picture, or NULL */
    by_dtype weights;        /* storage of matrix weights, as in by_model_spec */
    const char *adapter;     /* a folder with an adapter for the model, or NULL */
    bool (*cancelled)(void *user);
    void (*progress)(void *user, int64_t done, int64_t total); /* or NULL */
    void *user;
} by_image_evaluate_spec;
/* Evaluates a model directory on a dataset. Without preprocessor_config.json in the directory, pictures are
 * resized to the model's size, with values in [-1, 1]. */
BY_API by_status by_image_evaluate(by_device *d, const char *model, by_dtype dtype, const char *const *paths,
                                   int count, const by_image_evaluate_spec *spec, by_image_result *out);
/* Likelihood of pictures under a pixel model. */
typedef struct by_pixel_result {
    int64_t pictures;
    int tokens; /* per picture */
    /* tokens are colours of a palette; otherwise channel values, and `bits` is bits per dimension */
    bool palette;
    double nats, bits; /* per token */
    double seconds;
} by_pixel_result;
/* Evaluates an open pixel model on a dataset. The members predictions, weights and adapter of spec are
 * ignored. */
BY_API by_status by_pixel_evaluate(by_model *m, const by_processor *p, const char *const *paths, int count,
                                   const by_image_evaluate_spec *spec, by_pixel_result *out);
/* Draws the confusion matrix with class names, as SVG or PNG by the extension of the path. */
BY_API by_status by_image_result_draw(const by_image_result *r, const char *const *names, const char *title,
                                      const char *path);

#ifdef __cplusplus
}
#endif
#endif
